#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compares libattn and PyTorch with attention in double, on the same numbers: forward and backward, f32, f16 and bf16, on this CPU.

    bench/errors.py                                       300 problems, a table
    bench/errors.py --problems 50 --types bf16 --json     fewer, as JSON
    bench/errors.py --against definition                  libattn alone against loops in double; needs only numpy
    bench/errors.py --json >RUN; bench/errors.py --write RUN
                                                          keeps a run in bench/results/errors.json, and its table in docs/numerics.md

Problems are drawn from seeds.  Each is computed by libattn, by PyTorch's scaled_dot_product_attention in the storage type, and in
double from the same stored numbers.  An error is the largest difference from double in a tensor, or the root mean square, in units in
the last place of the storage type at the tensor's largest number: one rounding leaves at most 0.5.  The status is 1 if the median ratio
of libattn's errors to PyTorch's is significantly above 1 (a sign test at 5 %), or a result of libattn exceeds the bound of
docs/numerics.md.  The packages are installed into build/errors, unless --here.
"""
import argparse
import ctypes
import datetime
import importlib
import json
import math
import pathlib
import platform
import subprocess
import sys
import textwrap

import structs
import peers

TOP = peers.TOP
HOME = TOP / "build" / "errors"
KEPT = TOP / "bench/results/errors.json"
PAGE = TOP / "docs/numerics.md"
PACKAGES = {name: peers.PACKAGES[name] for name in ("numpy", "torch")}
TENSORS = ("o", "grad_q", "grad_k", "grad_v")
DIGITS = {"f32": 24, "f16": 11, "bf16": 8}
SMALLEST = {"f32": -126, "f16": -14, "bf16": -126}  # exponents of the smallest normal numbers
U, NORMAL = 2.0**-24, 2.0**-126


class Problem:
    """One problem: its sizes, choices and numbers follow from the seed, and its numbers are rounded to the storage type."""

    def __init__(self, seed, dtype):
        draw = np.random.default_rng(seed)
        self.seed, self.dtype = seed, dtype
        self.batch, self.heads_kv, self.group = (int(draw.integers(1, most + 1)) for most in (2, 2, 3))
        self.heads = self.heads_kv * self.group
        self.len_q, self.len_kv = (1 + int(most * draw.random() ** 2) for most in (300, 600))
        self.dim = int(draw.integers(8, 193))
        self.kind = ("none", "causal", "mask", "bias")[draw.integers(4)]
        self.scale = None if draw.integers(2) else float(draw.choice([0.03, 0.1, 0.25, 1.0])) / math.sqrt(self.dim / 64)
        size = float(draw.choice([0.3, 1.0, 1.0, 2.0]))
        query = (self.batch, self.heads, self.len_q, self.dim)
        keys = (self.batch, self.heads_kv, self.len_kv, self.dim)
        self.stored = {}
        for name, shape, by in (("q", query, size), ("k", keys, size), ("v", keys, 1), ("grad_o", query, 1)):
            self.stored[name] = peers.rounded(draw.standard_normal(shape, dtype=np.float32) * np.float32(by), dtype)
        shape = ((self.batch, self.heads), (self.batch, 1), (1, 1))[draw.integers(3)] + (self.len_q, self.len_kv)
        if self.kind == "mask":  # every query sees the first key, since PyTorch returns NaN for a fully masked row
            self.stored["mask"] = (draw.random(shape) < draw.choice([0.1, 0.5, 0.9])) | (np.arange(self.len_kv) == 0)
        if self.kind == "bias":
            self.stored["bias"] = peers.rounded(draw.standard_normal(shape, dtype=np.float32), dtype)

    def __str__(self):
        scale = "" if self.scale is None else f", scale {self.scale:.3g}"
        sizes = f"B{self.batch} Hq{self.heads} Hkv{self.heads_kv} {self.len_q} x {self.len_kv} D{self.dim}"
        return f"seed {self.seed}, {self.dtype} {sizes}, {self.kind}{scale}"

    def factor(self):
        return 1 / math.sqrt(self.dim) if self.scale is None else self.scale

    def wide(self, name):
        """The stored numbers, in double, with key heads repeated for their query heads."""
        array = self.stored[name].astype(bool) if name == "mask" else peers.widened(self.stored[name]).astype(np.float64)
        return np.repeat(array, self.group, axis=1) if name in ("k", "v") else array

    def unseen(self):
        """For each pair, whether the key is masked; None if all are visible."""
        if self.kind == "causal":
            return np.arange(self.len_kv) > np.arange(self.len_q)[:, None]
        return ~self.wide("mask") if self.kind == "mask" else None

    def by_key_head(self, array):
        """Sums of the query heads of each key head."""
        return array.reshape(self.batch, self.heads_kv, self.group, *array.shape[2:]).sum(2)


# ---- implementations ----


def by_libattn(problem, library, threads):
    """A dictionary of o and gradients, in the storage type."""
    kinds, stored = library.values, dict(problem.stored)
    made = {"o": np.zeros_like(stored["q"]), **{f"grad_{name}": np.zeros_like(stored[name]) for name in "qkv"}}
    made["lse"] = np.zeros((problem.batch, problem.heads, problem.len_q), np.float32)
    for backward in (False, True):
        described, slots = library.new("attn_problem"), library.new("attn_tensors")
        shape = described.shape
        shape.batch, shape.heads_q, shape.heads_kv = problem.batch, problem.heads, problem.heads_kv
        shape.len_q, shape.len_kv, shape.dim_qk, shape.dim_v = problem.len_q, problem.len_kv, problem.dim, problem.dim
        described.op = kinds["ATTN_BACKWARD" if backward else "ATTN_FORWARD"]
        described.mask.causal = problem.kind == "causal"
        if problem.scale is not None:
            described.score.scale_kind, described.score.scale = kinds["ATTN_SCALE_VALUE"], problem.scale
        for name, array in {**stored, **made}.items():
            if not backward and name.startswith("grad_"):
                continue
            slot = getattr(slots, name)
            slot.data = array.ctypes.data
            slot.dtype = kinds["ATTN_BOOL" if name == "mask" else "ATTN_F32" if name == "lse" else f"ATTN_{problem.dtype.upper()}"]
            if name in ("mask", "bias"):
                slot.stride[:] = [0 if size == 1 else step // array.itemsize for size, step in zip(array.shape, array.strides)]
                slot.stride[3] = 1
        library.plan(described, slots, threads).run(slots)
    return {name: made[name] for name in TENSORS}


def by_torch(problem, double):
    """The same by scaled_dot_product_attention, in the storage type or in double, and whether a flash kernel ran."""
    torch = importlib.import_module("torch")

    def tensor(name):
        array = problem.stored[name]
        if name == "mask":
            return torch.from_numpy(array)
        kept = torch.from_numpy(array.view(np.int16)).view(torch.bfloat16) if array.dtype == np.uint16 else torch.from_numpy(array)
        return kept.double() if double else kept

    q, k, v = (tensor(name).requires_grad_(True) for name in "qkv")
    words = {"is_causal": problem.kind == "causal", "scale": problem.scale, "enable_gqa": problem.group > 1}
    if problem.kind in ("mask", "bias"):
        words["attn_mask"] = tensor(problem.kind)
    flash = torch._fused_sdp_choice(q, k, v, **words) == 1  # pylint: disable=protected-access
    o = torch.nn.functional.scaled_dot_product_attention(q, k, v, **words)
    results = dict(zip(TENSORS, (o.detach(), *torch.autograd.grad(o, (q, k, v), tensor("grad_o")))))
    return {name: (x if double else x.float()).numpy() for name, x in results.items()}, flash


def by_definition(problem):
    """The results in double, straight from the formulas, and the terms of the bound."""
    q, k, v, grad_o = (problem.wide(name) for name in ("q", "k", "v", "grad_o"))
    score = problem.factor() * (q @ k.swapaxes(2, 3))
    if problem.kind == "bias":
        score = score + problem.wide("bias")
    unseen = problem.unseen()
    if unseen is not None:
        score = np.where(unseen, -np.inf, score)
    most = score.max(-1, keepdims=True)
    weights = np.exp(score - most)
    total = weights.sum(-1, keepdims=True)
    weights /= total
    o = weights @ v
    slope = weights * (grad_o @ v.swapaxes(2, 3) - (grad_o * o).sum(-1, keepdims=True))
    return {
        "o": o,
        "grad_q": problem.factor() * (slope @ k),
        "grad_k": problem.by_key_head(problem.factor() * (slope.swapaxes(2, 3) @ q)),
        "grad_v": problem.by_key_head(weights.swapaxes(2, 3) @ grad_o),
        "weights": weights,
        "below": np.where(weights > 0, most - score, 0),
        "lse": most + np.log(total),
    }


# ---- errors ----


def gamma(n):
    return n * U / (1 - n * U)


def bounds(problem, exact):
    """The bound of docs/numerics.md for dot products, from the terms of by_definition, a little coarser: |v - O| counts as |v| + |O|."""
    q, k, v, grad_o = (np.abs(problem.wide(name)) for name in ("q", "k", "v", "grad_o"))
    dim, seen, weights, below, o = problem.dim, problem.len_kv, exact["weights"], exact["below"], np.abs(exact["o"])
    reach = abs(problem.factor()) * (q @ k.swapaxes(2, 3))
    off = gamma(dim + 2) * reach
    extra = np.abs(problem.wide("bias")) if problem.kind == "bias" else 0
    if problem.kind == "bias":
        off = off + U * (2 * extra + reach + off)
    off = np.where(weights > 0, off, 0)
    blocks = math.ceil(seen / 16)
    far = below + 2 * off.max(-1, keepdims=True)
    eps = off + U * (4 + 1.1 * np.maximum(5.5, far)) + U * (4 * np.minimum(blocks, far / 5.5 + 1 + blocks / 4) + 1.1 * (far + 5.5))
    least, n = (weights * np.exp(-eps)).sum(-1, keepdims=True), seen + 2 * blocks
    moved = weights * np.expm1(eps)
    largest = v.max(2, keepdims=True)
    summed = (2 * gamma(n) + gamma(2)) * (1 + 2 * gamma(n)) * ((weights * np.exp(eps)) @ v)
    flushed = 2 * (n + 2) * NORMAL * largest
    of = {"o": (moved @ v + moved.sum(-1, keepdims=True) * o + summed) / least + flushed}

    chains = 8 + dim + seen + problem.len_q * problem.group + np.abs(exact["lse"])
    chains = 2 * U * (chains + ((dim + 2) * reach + extra).max(-1, keepdims=True))
    digits = DIGITS[problem.dtype]
    kept = 0 if digits == 24 else (grad_o * (2.0**-digits * o + of["o"])).sum(-1, keepdims=True)  # the storage error of O
    lost = weights * chains + np.minimum(weights, NORMAL)  # a weight below the smallest normal number may be lost completely
    slope = lost * (grad_o @ v.swapaxes(2, 3) + (grad_o * o).sum(-1, keepdims=True)) + weights * kept
    of["grad_q"] = abs(problem.factor()) * (slope @ k)
    of["grad_k"] = problem.by_key_head(abs(problem.factor()) * (slope.swapaxes(2, 3) @ q))
    of["grad_v"] = problem.by_key_head(lost.swapaxes(2, 3) @ grad_o)
    return of


def rounding(dtype, stored):
    """The possible storage error of each number: half a unit in its last place."""
    exponent = np.maximum(np.frexp(stored)[1] - 1, SMALLEST[dtype])
    return np.exp2(exponent - DIGITS[dtype])


def last_place(dtype, array):
    """The unit in the last place of the largest number."""
    most = float(np.max(np.abs(array)))
    exponent = math.floor(math.log2(most)) if most > 0 else SMALLEST[dtype]
    return 2.0 ** (max(exponent, SMALLEST[dtype]) - DIGITS[dtype] + 1)


def errors(problem, results, exact, bound):
    """For each tensor, the largest error and the root mean square, in units, and the largest fraction of the bound, without the storage
    error.  A tensor whose sums all cancel (gradients of the scores of a single key) has no unit, and only the fraction."""
    found = {}
    for name in TENSORS:
        stored = peers.widened(results[name]).astype(np.float64)
        away, unit = np.abs(stored - exact[name]), last_place(problem.dtype, exact[name])
        beyond = np.maximum(away - rounding(problem.dtype, stored), 0)
        with np.errstate(divide="ignore", invalid="ignore"):  # a number with bound 0, such as the gradient of a key that no query sees, is exact
            fraction = float(np.where(beyond == 0, 0, beyond / bound[name]).max())
        found[name] = {"largest": None, "rms": None, "fraction": fraction}
        if np.max(np.abs(exact[name])) > 1e-6 * np.max(bound[name]):
            found[name].update(largest=float(away.max()) / unit, rms=math.sqrt(float((away * away).mean())) / unit)
    return found


def judge(problem, chosen, library):
    """One row: errors of libattn, and of PyTorch if requested."""
    definition = by_definition(problem)
    row = {"problem": str(problem), "dtype": problem.dtype, "len_kv": problem.len_kv}
    exact, bound = definition, bounds(problem, definition)
    if chosen.against == "torch":
        exact = by_torch(problem, True)[0]
        for name in TENSORS:  # both in double: checks that all computed the same problem
            if not np.all(np.abs(exact[name] - definition[name]) <= 1e-6 * bound[name]):
                raise SystemExit(f"errors.py: {name} of PyTorch in double is not the definition's: {problem}")
        results, row["flash"] = by_torch(problem, False)
        row["torch_errors"] = errors(problem, results, exact, bound)
    row["libattn_errors"] = errors(problem, by_libattn(problem, library, chosen.threads), exact, bound)
    return row


# ---- the table ----


def spread(values):
    ordered = sorted(values)
    return {"median": float(np.median(ordered)), "95 %": ordered[math.ceil(0.95 * len(ordered)) - 1], "worst": ordered[-1]}


def candidates(against):
    return ("libattn", "torch") if against == "torch" else ("libattn",)


def over(ours, theirs):
    """A ratio.  Errors below a thousandth of a unit count as 0."""
    return max(ours, 1e-3) / max(theirs, 1e-3)


def summary(rows, against):
    """A line for each type, tensor and measure."""
    lines = []
    for dtype in dict.fromkeys(row["dtype"] for row in rows):
        for name in TENSORS:
            found = {who: [row[f"{who}_errors"][name] for row in rows if row["dtype"] == dtype] for who in candidates(against)}
            for measure in ("largest", "rms"):
                line = {"dtype": dtype, "tensor": name, "measure": measure}
                kept = {who: [error[measure] for error in all_of if error[measure] is not None] for who, all_of in found.items()}
                for who, values in kept.items():
                    line[who] = spread(values)
                    line[f"{who} fraction"] = max(error["fraction"] for error in found[who])
                if against == "torch":
                    ratios = [over(ours, theirs) for ours, theirs in zip(kept["libattn"], kept["torch"], strict=True)]
                    line["ratio"], line["above"] = spread(ratios), sum(ratio > 1.05 for ratio in ratios) / len(ratios)
                    line["larger"], line["smaller"] = sum(ratio > 1 for ratio in ratios), sum(ratio < 1 for ratio in ratios)
                lines.append(line)
    return lines


def table(lines, against):
    def three(spreads):
        return " / ".join(f"{spreads[key]:.3g}" for key in ("median", "95 %", "worst"))

    made = ["| type | tensor | error | libattn | of the bound |" + (" PyTorch | ratio | libattn above |" if against == "torch" else "")]
    made.append("|---|---|---|---|--:|" + ("---|---|--:|" if against == "torch" else ""))
    for line in lines:
        cells = [line["dtype"], line["tensor"], line["measure"], three(line["libattn"]), f"{line['libattn fraction']:.2g}"]
        if against == "torch":
            cells += [three(line["torch"]), three(line["ratio"]), f"{100 * line['above']:.0f} %"]
        made.append("| " + " | ".join(cells) + " |")
    return "\n".join(made)


def few_keys(rows, below=16):
    """The median ratio over the f32 problems with few keys, forward."""
    few = [row for row in rows if row["dtype"] == "f32" and row["len_kv"] < below]
    ratios = [over(row["libattn_errors"]["o"]["largest"], row["torch_errors"]["o"]["largest"]) for row in few]
    return {"below": below, "problems": len(few), "ratio": float(np.median(ratios)) if ratios else None}


# ---- the page ----


def kept(run):
    """What bench/results keeps of a run."""
    if run["against"] != "torch" or run["faults"]:
        raise SystemExit("errors.py: --write takes a run against PyTorch in which nothing is wrong")
    head = {name: run[name] for name in ("versions", "commit", "date", "cpu", "isa", "threads", "seed", "count", "flash", "few_keys")}
    lines = ",\n  ".join(json.dumps(line) for line in run["summary"])
    return "{\n" + "".join(f" {json.dumps(name)}: {json.dumps(value)},\n" for name, value in head.items()) + f' "summary": [\n  {lines}\n ]\n}}\n'


def section(run):
    """The table with its run, and what it says of f32."""
    versions, total, few = run["versions"], run["count"] * len({line["dtype"] for line in run["summary"]}), run["few_keys"]
    flash = f"all {total}" if run["flash"] == total else f"{run['flash']} of {total}"

    def medians(tensors):
        found = sorted(line["ratio"]["median"] for line in run["summary"] if line["dtype"] == "f32" and line["tensor"] in tensors)
        return " to ".join(dict.fromkeys(f"{ratio:.2f}" for ratio in (found[0], found[-1])))

    text = (
        f"{run['date']}: libattn {versions['libattn']} at {run['commit']}, PyTorch {versions['torch']} (its flash kernels took {flash} problems), "
        f"NumPy {versions['numpy']}, {run['cpu']} ({run['isa']}), {run['threads']} threads, seeds from {run['seed']}. "
        f"Median ratios in f32: {medians(TENSORS[1:])} for gradients, {medians(TENSORS[:1])} for o, "
        f"{few['ratio']:.2f} for o in the {few['problems']} problems of fewer than {few['below']} keys."
    )
    return table(run["summary"], "torch") + "\n\n" + textwrap.fill(text, 100, break_long_words=False, break_on_hyphens=False)


def filled(text, run):
    """The page with the section of the run."""
    begin, end = "<!-- bench/errors.py -->\n", "<!-- end -->"
    before, found, rest = text.partition(begin)
    if not found or end not in rest:
        raise SystemExit(f"errors.py: {PAGE.name} has no place for the table: {begin.strip()} ... {end}")
    return f"{before}{begin}\n{section(run)}\n\n{end}{rest.partition(end)[2]}"


def write(path):
    KEPT.write_text(kept(json.loads(pathlib.Path(path).read_text(encoding="utf-8"))), encoding="utf-8")
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), json.loads(KEPT.read_text(encoding="utf-8"))), encoding="utf-8")


def commit():
    """The commit of the sources, with a plus if they differ from it."""
    def git(*words):
        return subprocess.run(["git", *words], cwd=TOP, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False).stdout.strip()

    return git("rev-parse", "--short", "HEAD") + ("+" if git("status", "--porcelain", "src", "include") else "")


def isa(library):
    """The instruction set of plans here, and what the CPU has beyond it."""
    described, error = library.new("attn_cpu_description"), library.new("attn_error")
    library.check(library.calls.attn_cpu_describe(ctypes.byref(described), ctypes.byref(error)), error)
    library.calls.attn_isa_name.restype = ctypes.c_char_p
    beyond = [name for name in described.features.decode().split() if "_" in name]
    return ", ".join([library.calls.attn_isa_name(described.isa).decode(), *beyond])


def faults(rows, lines):
    """The reasons for exit status 1."""
    report = []
    for row in rows:
        for name, found in row["libattn_errors"].items():
            if not found["fraction"] <= 1:
                report.append(f"{name} is off by {found['fraction']:.3g} of its bound: {row['problem']}")
    for line in lines:
        if "ratio" in line and line["ratio"]["median"] > 1 and line["larger"] - line["smaller"] > 1.65 * math.sqrt(line["larger"] + line["smaller"]):
            where = f"{line['dtype']} {line['tensor']}, {line['measure']}"
            report.append(f"{where}: the median of libattn's error over PyTorch's is {line['ratio']['median']:.4f}")
    return report


def cpu():
    """The name of the CPU."""
    try:
        text = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.machine()
    names = {words[0].strip(): words[-1].strip() for words in (line.partition(":") for line in text.splitlines())}
    return f"{names.get('model name', platform.machine())}, family {names.get('cpu family', '?')} model {names.get('model', '?')}"


def arguments():
    parser = argparse.ArgumentParser(description="Hold libattn's errors against PyTorch's.")
    parser.add_argument("--problems", type=int, default=300, help="for each type (default 300)")
    parser.add_argument("--seed", type=int, default=1, help="of the first problem; the others follow")
    parser.add_argument("--types", default="f32,f16,bf16")
    parser.add_argument("--against", choices=("torch", "definition"), default="torch")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--library", default=peers.find_library(), help="libattn.so (default: the newest in build/*/lib)")
    parser.add_argument("--here", action="store_true", help="install nothing: use the packages of this Python")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--write", metavar="RUN", help="compute nothing: keep the output of --json, and its table in docs/numerics.md")
    chosen = parser.parse_args()
    if chosen.write:
        return chosen
    unknown = set(chosen.types.split(",")) - set(DIGITS)
    if unknown:
        parser.error(f"unknown type: {', '.join(sorted(unknown))}; known: {', '.join(DIGITS)}")
    if chosen.problems < 1:
        parser.error("--problems is at least 1")
    if not chosen.library:
        parser.error("no libattn.so in build/*/lib; build it, or say --library")
    return chosen


def main():
    chosen = arguments()
    if chosen.write:
        return write(chosen.write)
    if chosen.against == "torch" and not chosen.here:
        for name, why in peers.enter(HOME, PACKAGES, __file__).items():
            raise SystemExit(f"errors.py: {name} could not be installed: {why}")
    globals()["np"] = peers.np = importlib.import_module("numpy")
    library = structs.Library(str(chosen.library), str(TOP / "include/attn/attn.h"))
    versions = {"libattn": library.version, "numpy": np.__version__}
    if chosen.against == "torch":
        torch = importlib.import_module("torch")
        torch.set_num_threads(chosen.threads)
        versions["torch"] = torch.__version__

    rows = []
    for dtype in chosen.types.split(","):
        for seed in range(chosen.seed, chosen.seed + chosen.problems):
            rows.append(judge(Problem(seed, dtype), chosen, library))
    lines = summary(rows, chosen.against)
    report = faults(rows, lines)
    if chosen.json:
        run = {"versions": versions, "commit": commit(), "date": datetime.date.today().isoformat(), "cpu": cpu(), "isa": isa(library)}
        run |= {"threads": chosen.threads, "against": chosen.against, "seed": chosen.seed, "count": chosen.problems}
        if chosen.against == "torch":
            run |= {"flash": sum(row["flash"] for row in rows), "few_keys": few_keys(rows)}
        print(json.dumps(run | {"summary": lines, "faults": report, "problems": rows}, indent=1))
    else:
        print(f"{', '.join(f'{name} {version}' for name, version in versions.items())}; {cpu()}")
        print(f"{chosen.problems} problems of each type, seeds from {chosen.seed}: median / 95 % / worst, in units in the last place")
        if chosen.against == "torch":
            print(f"PyTorch used its flash kernels in {sum(row['flash'] for row in rows)} of {len(rows)}.")
        print()
        print(table(lines, chosen.against))
        print("".join(f"\nerrors.py: {line}" for line in report), end="\n" if report else "")
    return 1 if report else 0


if __name__ == "__main__":
    sys.exit(main())
