#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""attn-mpi run: the same bytes for any number of ranks, layout and way, near those of `attn run`; what attn-mpi bench says of its
work, but not its speed; what both reject, and their manual page.

usage: command.py ATTN ATTN-MPI MPIRUN
"""
import json
import math
import os
import random
import re
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import tensor_file
from tap import check, finish, run_in_folder

ATTN, ATTN_MPI, MPIRUN = sys.argv[1:4]
ROOT = os.getcwd()
# Sizes that no part divides.
B, H, HKV, SQ, SKV, D, DV = 2, 4, 2, 37, 45, 8, 6
LENGTHS_Q, LENGTHS_KV = (5, 0, 20, 12), (9, 3, 20, 13)
# How near: those that docs/distributed.md has, and one unit of a type in which results are stored.
TOLERANCE = {"BOOL": 1e-9, "F64": 1e-13, "F32": 2e-5, "F16": 2e-3, "I64": 1e-9}
# Ranks, and how the parts are divided among them; the first is one process.
WAYS = [(1, "contiguous", "direct"), (2, "zigzag", "ring"), (3, "striped", "direct"), (4, "zigzag", "heads-ring"), (4, "contiguous", "ring"),
        (3, "contiguous", "heads"), (3, "zigzag", "gather"), (4, "zigzag", "auto")]

# What comes before MPI is the same with any: the second, which starts slower, runs each fourth case, and the first the others.
SECOND = "openmpi" in MPIRUN


def mine(cases):
    """The cases of this MPI, each with its number."""
    return [(number, case) for number, case in enumerate(cases.items()) if (number % 4 == 0) == SECOND]


drawn = random.Random(7)


def floats(*shape, kind="F32"):
    return kind, shape, [drawn.gauss(0, 1) for _ in range(math.prod(shape))]


def flags(*shape, share=0.8):
    return "BOOL", shape, [drawn.random() < share for _ in range(math.prod(shape))]


def whole(*numbers, kind="I64"):
    return kind, [len(numbers)], list(numbers)


def begins(lengths):
    return whole(*(sum(lengths[:n]) for n in range(len(lengths) + 1)), kind="I32")


def problem(kind="F32", lead=(B,), **more):
    return {"q": floats(*lead, H, SQ, D, kind=kind), "k": floats(*lead, HKV, SKV, D, kind=kind),
            "v": floats(*lead, HKV, SKV, DV, kind=kind), "do": floats(*lead, H, SQ, DV, kind=kind), **more}


def packed(bshd):
    def rows(heads, tokens, width):
        return floats(tokens, heads, width) if bshd else floats(heads, tokens, width)
    sq, skv = sum(LENGTHS_Q), sum(LENGTHS_KV)
    return {"q": rows(H, sq, D), "k": rows(HKV, skv, D), "v": rows(HKV, skv, DV), "do": rows(H, sq, DV),
            "dlse": floats(H, sq), "cu_seqlens_q": begins(LENGTHS_Q), "cu_seqlens_kv": begins(LENGTHS_KV)}


def linear(kind="F32", tokens=SQ, **more):
    made = {name: floats(B, heads, tokens, width, kind=kind) for name, heads, width in (("q", H, D), ("k", HKV, D), ("v", HKV, DV), ("do", H, DV))}
    return {**made, **more}


def decays(*shape):
    return "F32", shape, [-0.2 * drawn.random() for _ in range(math.prod(shape))]


def bshd(linear=False):
    if linear:
        return {"q": floats(B, SQ, H, D), "k": floats(B, SQ, HKV, D), "v": floats(B, SQ, HKV, DV)}
    return {"q": floats(B, SQ, H, D), "k": floats(B, SKV, HKV, D), "v": floats(B, SKV, HKV, DV),
            "tan_q": floats(B, SQ, H, D), "tan_v": floats(B, SKV, HKV, DV), "bias": floats(H, SQ, SKV), "tan_bias": floats(H, SQ, SKV)}


def quantised():
    rows = {"k": (B, HKV, SKV, D), "v": (B, HKV, SKV, DV)}
    made = {"q": floats(B, H, SQ, D)}
    for name, shape in rows.items():
        made[name] = ("I8", shape, [drawn.randrange(-127, 128) for _ in range(math.prod(shape))])
        made[name + "_scale"] = ("F32", shape[:3], [0.01 + 0.02 * drawn.random() for _ in range(math.prod(shape[:3]))])
    return made


# name: tensors, flags
CASES = {
    "gradients of all": (problem(bias=floats(B, H, SQ, SKV), slopes=floats(H), sink=floats(H), scale=floats(H), dlse=floats(B, H, SQ)),
                         ["--causal=bottom-right", "--backward", "--lse", "--alibi"]),
    "a window, f64": (problem("F64", offset=whole(3, -2)), ["--window=6,2", "--backward", "--softcap=3"]),
    "packed": (packed(False), ["--causal", "--backward", "--lse", "--rope"]),
    "packed, token before head": (packed(True), ["--layout=bshd", "--window=4,1", "--backward", "--rope"]),
    "masks, lengths, dropout": (problem(mask=flags(1, 1, SQ, SKV), lengths_q=whole(SQ, 20), lengths_kv=whole(11, SKV)),
                                ["--dropout=0.2", "--seed=5", "--dtype=f16"]),
    "a given dropout mask": (problem(dropout_keep=flags(B, 1, SQ, SKV), mask=flags(H, 1, SKV)), ["--dropout=0.2", "--backward"]),
    "a block mask": (problem(blocks=flags(H, 10, 12)), ["--block=4,4", "--backward", "--lse"]),
    "tangents, token before head": (bshd(), ["--layout=bshd", "--jvp", "--lse", "--causal"]),
    "second derivatives": (problem(tan_q=floats(B, H, SQ, D), tan_k=floats(B, HKV, SKV, D), bias=floats(H, SQ, SKV), dlse=floats(B, H, SQ)),
                           ["--causal", "--double-backward", "--lse"]),
    "second derivatives of packed sequences": (packed(True) | {"tan_v": floats(sum(LENGTHS_KV), HKV, DV)}, ["--layout=bshd", "--double-backward"]),
    "keys of i8": (quantised(), ["--lse"]),
    "quantised here, positions": (problem(positions_q=whole(*range(5, 5 + SQ))), ["--rope", "--rope-pairs=halves"]),
    "relative terms": (problem(relative_keys=floats(H, 9, D), relative_values=floats(H, 9, DV)),
                       ["--rel=shaw-values/4", "--backward"]),
    "a table, of one batch": (problem(bias_table=floats(H, 32)), ["--t5=causal", "--causal", "--backward"]),
    "a bias that some entries share": (problem("F64", lead=(2, 3), bias=floats(3, H, SQ, SKV, kind="F64")), ["--backward"]),
    "further outputs": (problem(sink=floats(H)), ["--causal", "--row-max", "--entropy", "--effective-keys", "--topk=3"]),
    "outputs of packed sequences": (packed(True), ["--layout=bshd", "--causal", "--row-max", "--topk=2", "--column-sum", "--lse", "--backward"]),
    "weights, scores, sums of columns": (problem(sink=floats(H)), ["--causal", "--weights", "--scores=biased", "--column-sum=group",
                                                                   "--column-queries=9", "--dropout=0.2", "--after-dropout"]),
    "all pairs, token before head": (bshd(), ["--layout=bshd", "--causal", "--scores", "--dropout=0.3", "--dropout-mask", "--column-sum"]),
    "masks of packed sequences": (packed(False) | {"mask": flags(4, 1, 20, 20), "bias": floats(H, 20, 20), "slopes": floats(4, H)},
                                  ["--causal", "--backward", "--alibi"]),
    "the mean of all values": (problem(mask=flags(H, SQ, SKV, share=0.04)), ["--empty=uniform", "--causal", "--entropy", "--backward"]),
    "a bias of all queries": (problem(bias=floats(H, 1, SKV)), ["--causal", "--backward"]),
    "a bias of all keys": (problem("F64", bias=floats(B, H, SQ, 1, kind="F64")), ["--window=4,4", "--backward"]),
    "a weight of scores": (problem(w=floats(D, D)), ["--score=general", "--backward"]),
    "no queries": ({"q": floats(H, 0, D), "k": floats(HKV, SKV, D), "v": floats(HKV, SKV, DV)}, ["--rope"]),
    "a padding mask of floats": (problem(mask=("F32", [B, SKV], [float(drawn.random() < 0.7) for _ in range(B * SKV)])), ["--backward", "--lse"]),
    "global tokens, and a mask in which 1 hides": (problem(mask=("I64", [B, SQ, SKV], [int(drawn.random() < 0.3) for _ in range(B * SQ * SKV)])),
                                                   ["--mask-drop", "--sparse=longformer/9/3", "--backward", "--lse"]),
    "one head without a batch": ({"q": floats(SQ, D), "k": floats(3, D), "v": floats(3, DV)}, ["--normaliser=softmax-one"]),
}

# Linear attention: tensors, flags, tokens of a part, ranks; whether it is found by a scan too; tensors that need not have the bits of one call.
LINEAR = {
    "a state, recurrent": (linear("F64", initial_state=floats(B, HKV, D, DV, kind="F64"), initial_sum=floats(B, HKV, D, 1, kind="F64"),
                                  dfinal_state=floats(B, HKV, D, DV, kind="F64"), dfinal_sum=floats(B, HKV, D, 1, kind="F64")),
                           ["--linear", "--causal", "--backward", "--state", "--form=recurrent"], 8, 3, True, ""),
    "delta, decay in chunks": (linear(tokens=150, decay=decays(B, HKV, 150), beta=decays(B, HKV, 150)),
                               ["--rule=delta", "--phi=softmax", "--causal", "--backward", "--state"], 96, 2, True, "ddecay"),
    "low rank, token before head": (bshd(linear=True) | {"erase": floats(B, HKV, SQ, D), "write": floats(B, HKV, SQ, D), "decay": decays(B, HKV, SQ, D)},
                                    ["--rule=low-rank", "--causal", "--layout=bshd", "--form=recurrent", "--state"], 8, 4, False, ""),
    "weights": (linear(lengths=whole(20, 37)), ["--phi=favor/8", "--seed=3", "--causal", "--weights", "--dtype=f16", "--form=recurrent"], 16, 3, False, ""),
    "not causal": (problem(), ["--phi=elu1", "--backward", "--state"], 8, 3, False, "o dq dk dv final_state final_sum"),
    "one head without a batch": ({name: floats(SQ, D) for name in "qkv"}, ["--linear", "--causal", "--denominator=none", "--form=recurrent", "--weights"],
                                 16, 2, False, ""),
}


def start(command):
    return subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=60)


def run(ranks, words):
    return start([MPIRUN, "-n", str(ranks), ATTN_MPI, "run", *words] if ranks else [ATTN, "run", *words])


def bytes_of(path):
    with open(path, "rb") as file:
        return file.read()


def distance(path, other):
    """The largest difference as a fraction of the tolerance, which grows with the numbers of the tensor; None: other tensors."""
    (got, _), (expected, _) = tensor_file.read(path), tensor_file.read(other)
    if {n: t[:2] for n, t in got.items()} != {n: t[:2] for n, t in expected.items()}:
        return None
    worst = 0
    for name, (kind, _, numbers) in expected.items():
        tolerance = TOLERANCE[kind] * (1 + max((abs(x) for x in numbers if math.isfinite(x)), default=0))
        worst = max([worst, *(0 if x == y else abs(x - y) / tolerance for x, y in zip(got[name][2], numbers, strict=True))])
    return worst


def same_bits():
    """Each case on one rank, and on two, three or four in turn; a gradient that all heads share by no way that divides them."""
    for number, (name, (tensors, options)) in mine(CASES):
        tensor_file.write("in.safetensors", tensors, tokens="[]")
        failed = ""
        others = [way for way in WAYS[1:] if name != "a weight of scores" or way[2] in ("direct", "ring", "auto")]  # which computes no heads apart there
        for out, ranks, layout, way in (("first.safetensors", *WAYS[0]), ("other.safetensors", *others[number % len(others)])):
            split = ["--part=8", f"--layout={layout}", f"--way={way}"]
            done = run(ranks, ["in.safetensors", "-o", out, "--quiet", *split, *options])
            failed = failed or done.stdout + done.stderr
        done = run(0, ["in.safetensors", "-o", "plain.safetensors", "--quiet", *options])
        failed = failed or done.stderr
        check(f"{name}: the same bytes on {ranks} ranks, {layout}, {way}",
              not failed and bytes_of("first.safetensors") == bytes_of("other.safetensors"), failed)
        off = None if failed else distance("first.safetensors", "plain.safetensors")
        check(f"{name}: near one call", off is not None and off <= 1, f"{off} of the tolerance")


def linear_bits():
    """A chain on some ranks has the bits of `attn run`, a scan those of one rank, and all are near `attn run`."""
    for _, (name, (tensors, options, part, ranks, scans, others)) in mine(LINEAR):
        tensor_file.write("in.safetensors", tensors, tokens="[]")
        failed, files = "", {}
        for way, count in (("", 0), ("ring", ranks), *([("direct", 1), ("direct", ranks)] if scans else [])):
            out = f"{way}{count}.safetensors"
            done = run(count, ["in.safetensors", "-o", out, "--quiet", *([f"--part={part}", f"--way={way}"] if count else []), *options])
            failed = failed or done.stdout + done.stderr
            files[way, count] = out
        plain, chain = (tensor_file.read(files[key])[0] if not failed else {} for key in (("", 0), ("ring", ranks)))
        differ = [one for one in plain if plain[one] != chain.get(one) and one not in others.split()]
        check(f"linear, {name}: a chain has the bits of one call", plain and plain.keys() == chain.keys() and not differ, failed or str(differ))
        if scans and not failed:
            check(f"linear, {name}: a scan has those of one rank", bytes_of(files["direct", 1]) == bytes_of(files["direct", ranks]))
        off = [None] if failed else [distance(files[key], files["", 0]) for key in files if key[1] == ranks]
        check(f"linear, {name}: near one call", all(d is not None and d <= 1 for d in off), f"{off} of the tolerance")


def told():
    """--json names the ranks, and --compare what differs from tensors of the input; the metadata of the input are kept."""
    made = problem()
    tensor_file.write("in.safetensors", made, tokens="[1]")
    run(0, ["in.safetensors", "-o", "plain.safetensors", "--quiet"])
    tensor_file.write("both.safetensors", {**made, "o": tensor_file.read("plain.safetensors")[0]["o"]}, tokens="[1]")
    words = ["both.safetensors", "-o", "told.safetensors", "--part=8", "--way=ring", "--compare"]
    done = run(3, [*words, "--json"])
    said = json.loads(done.stdout) if done.returncode == 0 else {}
    check("--json", [said.get(name) for name in ("ranks", "part", "layout", "way")] == [3, 8, "contiguous", "ring"] and
          [t["name"] for t in said["used"]] == ["q", "k", "v"] and said["unused"] == ["do", "o"] and
          [t["shape"] for t in said["written"]] == [[B, H, SQ, DV]], done.stdout + done.stderr)
    check("--compare", 0 < said["differences"][0]["largest"] < TOLERANCE["F32"] * 10, done.stdout)
    metadata = tensor_file.read("told.safetensors")[1]
    check("the metadata", metadata["tokens"] == "[1]" and metadata["attn_kernel"] == "distributed, parts of 8" and
          metadata["attn_problem"] == tensor_file.read("plain.safetensors")[1]["attn_problem"], str(metadata))
    done = run(2, ["in.safetensors", "-o", "linear.safetensors", "--part=8", "--phi=elu1", "--json"])
    said = json.loads(done.stdout) if done.returncode == 0 else {}
    check("--json of linear attention", [said.get(name) for name in ("ranks", "part", "layout", "way", "chunk")] == [2, 8, "contiguous", "ring", 8] and
          ":phi=elu1" in said["problem"] and said["problem"].startswith("linear:"), done.stdout + done.stderr)
    for network, way, why in (("0.01Mbit/s", "direct", "direct: "), ("100Tbit/s", "heads", "heads: ")):  # of 5 parts, one rank has 3
        done = run(2, ["in.safetensors", "-o", "auto.safetensors", "--part=8", "--latency=0", "--flops=1e-6", f"--network={network}", "--json"])
        said = json.loads(done.stdout) if done.returncode == 0 else {}
        check(f"the fastest way at {network}", said.get("way") == way and said["why"].startswith(why) and " predicted, " in said["why"],
              done.stdout + done.stderr)
    whole = tensor_file.read("plain.safetensors")[0]["o"]
    tensor_file.write("near.safetensors", {**made, "o": whole}, tokens="[1]")
    for ranks in (1, 3):
        done = run(ranks, ["near.safetensors", "-o", "any.safetensors", "--part=8", "--any-order", "--compare", "--json"])
        said = json.loads(done.stdout) if done.returncode == 0 else {}
        check(f"{ranks} ranks in any order", said and said["differences"][0]["largest"] < TOLERANCE["F32"] * 10 and
              tensor_file.read("any.safetensors")[1]["attn_kernel"] == "distributed, parts of 8, in any order", done.stdout + done.stderr)
    done = run(2, [*words, "--quiet"])
    check("--compare without --json", done.stdout.startswith("compare o ") and done.stdout.count("\n") == 1, done.stdout)


def rejects(name, ranks, words, status, sentence):
    """One line from all ranks (and what mpirun adds), the status of `attn run`, and no file."""
    done = run(ranks, [*words, "-o", "out.safetensors"])
    ours = [line for line in done.stderr.splitlines() if line.startswith("attn-mpi run: ")]
    check(name, done.returncode == status and len(ours) == 1 and sentence in ours[0] and not done.stdout and
          not [file for file in os.listdir() if file.startswith(("out", ".out"))], f"{done.returncode}: {done.stderr}")


def errors():
    tensor_file.write("in.safetensors", problem(mask=flags(SQ, SKV), tan_q=floats(B, H, SQ, D)))
    whole_file = bytes_of("in.safetensors")
    with open("short.safetensors", "wb") as file:
        file.write(whole_file[:-100])
    tensor_file.write("other.safetensors", {**problem(), "k": floats(B, HKV, SKV + 1, D)})
    tensor_file.write("cut.safetensors", packed(False) | {"blocks": flags(5, 5)})
    rejects("an unknown flag", 2, ["in.safetensors", "--casual"], 2, "unknown option '--casual' (nearest: --causal)")
    rejects("a layout", 1, ["in.safetensors", "--layout=zigzagged"], 2, "is not contiguous, zigzag or striped, nor an order")
    rejects("a way", 1, ["in.safetensors", "--way=around"], 2, "--way: 'around' is not auto, direct, ring, heads, heads-ring or gather")
    rejects("heads of 3 of 2 ranks", 2, ["in.safetensors", "--way=heads-ring", "--ranks-heads=3"], 2, "--ranks-heads is 3; it must divide the number of ranks, 2")
    rejects("heads that no way divides", 2, ["in.safetensors", "--way=ring", "--ranks-heads=2"], 2, "--ranks-heads has no effect without --way=heads-ring")
    rejects("a network that changes nothing", 2, ["in.safetensors", "--way=ring", "--network=2"], 2, "--network has no effect with --way=ring")
    rejects("a part of nothing", 1, ["in.safetensors", "--part=0"], 2, "--part is 0; it must be at least 1")
    rejects("no file", 3, ["none.safetensors"], 2, "none.safetensors: cannot open")
    rejects("standard input, which each process would read", 3, ["-"], 2, "-: each process would read standard input; give a file")
    rejects("a mask that is not by windows", 2, ["in.safetensors", "--sparse=prefix/3"], 3, "sparse=prefix/3 is made for all queries together")
    rejects("a short file", 3, ["short.safetensors"], 2, "short.safetensors: ")
    rejects("tensors that do not fit", 2, ["other.safetensors"], 2, "does not fit 'k'")
    done = run(2, ["in.safetensors", "-o", "out.safetensors", ":", "-n", "1", ATTN_MPI, "bench", "fwd:f32:sq8:d8"])
    check("another command", done.returncode == 2 and "not all started with this command" in done.stderr, done.stderr)
    rejects("a rank with an unknown flag", 2, ["in.safetensors", "-o", "out.safetensors", ":", "-n", "1", ATTN_MPI, "run", "--casual"], 2,
            "unknown option '--casual'")
    for name, words, sentence in (("a rank without its file", ["none.safetensors"], "none.safetensors: cannot open"),
                                  ("ranks that disagree", ["in.safetensors", "--softcap=2"], "process 2 was started with other options"),
                                  ("a rank with linear attention", ["in.safetensors", "--linear"], "process 2 was started with other options"),
                                  ("a rank that rotates", ["in.safetensors", "--rope"], "process 2 was started with other options")):
        rejects(name, 2, ["in.safetensors", "-o", "out.safetensors", ":", "-n", "1", ATTN_MPI, "run", *words], 2, sentence)
    check("the input is kept", bytes_of("in.safetensors") == whole_file)
    done = run(2, ["in.safetensors", "-o", "in.safetensors"])
    check("an output that is the input", done.returncode == 2 and "this output is an input" in done.stderr and
          bytes_of("in.safetensors") == whole_file, done.stderr)
    tensor_file.write("wide.safetensors", {name: ("F32", [1 << 40, 0], []) for name in "qkv"})
    rejects("more parts than there may be", 2, ["wide.safetensors", "--part=4"], 2, "wide.safetensors: tokens (1099511627776) has more than 2^31 parts of --part (4)")
    tensor_file.write("linear.safetensors", linear())
    for name, words, status, sentence in (
            ("parts that states cannot go along", ["--layout=zigzag"], 3, "linear attention has 0 (contiguous) only"),
            ("heads of linear attention", ["--way=heads"], 3, "linear attention has 0 (auto), 1 (ring: a chain) and 2 (direct: a scan)"),
            ("linear attention in any order", ["--any-order"], 3, "--any-order is set; linear attention adds along the tokens"),
            ("tangents of linear attention", ["--jvp"], 3, "linear attention has forward and --backward only"),
            ("a rule without its tensor", ["--rule=delta"], 2, "rule=delta needs a tensor 'beta'"),
            ("the entropy of linear attention", ["--entropy"], 3, "linear attention writes o and weights, not --entropy")):
        rejects(name, 2, ["linear.safetensors", "--linear", "--causal", *words], status, sentence)
    rejects("a flag of linear attention", 2, ["linear.safetensors", "--state"], 2, "--state needs --linear (or --phi, --rule)")
    rejects("weights of packed sequences", 2, ["cut.safetensors", "--ignore=blocks", "--weights"], 3, "weights is set with cu_seqlens_q, which is not there yet")
    rejects("a block mask of packed sequences", 2, ["cut.safetensors", "--block=4,4"], 3, "block_mask is set with cu_seqlens_q")


def bench():
    """Causal, 64 queries and keys in parts of 16: the cells at and below the diagonal of 4 by 4 parts, and of larger squares."""
    words = [MPIRUN, "-n", "3", ATTN_MPI, "bench", "fwd:f32:hq2:sq64:d8:causal", "--part=16", "--layout=striped", "--way=direct", "--seconds=0.01"]
    done = start([*words, "--json"])
    check("bench: no message", done.returncode == 0 and not done.stderr, done.stderr)
    with open("scaling.json", "w") as file:
        file.write(done.stdout)
    found = json.loads(done.stdout)
    rows = found["results"]
    check("bench: 1, 2 and 3 ranks, strong and weak", [(r["scaling"], r["ranks"]) for r in rows] ==
          [(kind, n) for kind in ("strong", "weak") for n in (1, 2, 3)] and found["machine"]["ranks"] == 3)
    check("bench: weak has so many tokens for each rank", [r["measured"] for r in rows[3:]] ==
          [f"fwd:f32:hq2:sq{64 * n}:d8:causal" for n in (1, 2, 3)], str([r["measured"] for r in rows]))
    check("bench: how it is divided", all((r["part"], r["layout"], r["way"]) == (16, "striped", "direct") for r in rows))
    done = start([MPIRUN, "-n", "2", ATTN_MPI, "bench", "bwd:f32:hq2:sq64:d8:causal", "--part=4", "--any-order", "--seconds=0.01", "--json"])
    check("bench: in any order", done.returncode == 0 and all(r["any_order"] for r in json.loads(done.stdout)["results"]) and
          not any(r["any_order"] for r in rows), done.stdout + done.stderr)
    check("bench: what is predicted", all(r["why"].startswith("direct: asked for; ") and r["predicted"] > 0 for r in rows))
    check("bench: cells", [r["cells"] for r in rows] == [10, 10, 10, 10, 36, 78] and [r["cells_most"] for r in rows[:3]] == [10, 6, 5],
          str([(r["cells"], r["cells_most"]) for r in rows]))
    check("bench: flops of visible pairs", [r["flops"] for r in rows[3:]] == [2 * 16 * 2 * n * (n + 1) / 2 for n in (64, 128, 192)])
    check("bench: one rank sends nothing", [r["bytes"] > 0 for r in rows] == [False, True, True] * 2 and not rows[0]["messages"])
    check("bench: shares", all(0 <= r["share_of_messages"] <= 1 for r in rows) and rows[0]["share_of_messages"] == 0)
    check("bench: figures of its times", all(
        r["samples"] >= 3 and 0 < r["seconds"]["p10"] <= r["seconds"]["median"] <= r["seconds"]["p90"] and
        math.isclose(r["speedup"], r["flops"] / one["flops"] * one["seconds"]["median"] / r["seconds"]["median"]) and
        math.isclose(r["efficiency"], r["speedup"] / r["ranks"]) and math.isclose(r["gflops"], r["flops"] / r["seconds"]["median"] / 1e9)
        for one, r in zip([rows[0]] * 3 + [rows[3]] * 3, rows)))
    drawn_picture = start([ATTN, "plot", "scaling", "scaling.json", "-o", "scaling.svg"])
    check("bench: attn plot scaling", drawn_picture.returncode == 0 and b"Efficiency by ranks" in bytes_of("scaling.svg"), drawn_picture.stderr)
    done = start(words)
    check("bench: a table", done.returncode == 0 and "strong scaling" in done.stdout and done.stdout.count("\n     3 ") == 2 and done.stdout.count("  direct\n") == 6, done.stdout + done.stderr)
    groups = ["--way=heads-ring", "--ranks-heads=2", "--seconds=0.01", "--json"]
    done = start([MPIRUN, "-n", "2", ATTN_MPI, "bench", "fwd:f32:hq2:sq32:d8", "--part=16", *groups])
    check("bench: as many ranks divide the heads as there are", done.returncode == 0 and
          [r["ranks_heads"] for r in json.loads(done.stdout)["results"]] == [1, 2, 1, 2], done.stdout + done.stderr)
    done = start([MPIRUN, "-n", "2", ATTN_MPI, "bench", "fwd:f32:hq4:hkv2:sq32:d8", "--part=8", "--way=gather", "--seconds=0.01", "--json"])
    rows = json.loads(done.stdout)["results"] if done.returncode == 0 else [{}]
    check("bench: one head after another", [r.get("way") for r in rows] == ["gather"] * 4 and rows[1]["cells"] == 2 * 16, done.stdout + done.stderr)
    done = start([MPIRUN, "-n", "2", ATTN_MPI, "bench", "fwd:f32:sq0:d8", "--seconds=0.01"])
    check("bench: nothing to compute", done.returncode == 0 and "nan" not in done.stdout, done.stdout + done.stderr)
    done = start([MPIRUN, "-n", "2", ATTN_MPI, "bench", "bwd2:f32:sq32:d8", "--part=8", "--seconds=0.01"])
    check("bench: double backward", done.returncode == 0 and "strong scaling" in done.stdout, done.stdout + done.stderr)
    for problem, more, status, sentence in (("fwd:f32:sq8", [], 2, "d is missing"), ("fwd:f32:sq8:d8:packed", [], 3, "for sequences of one length"),
                                            ("linear:f32:sq8:d8", [], 3, "linear attention is not there yet"),
                                            ("fwd:f32:sq8:d8", ["--ranks-heads=2"], 2, "--ranks-heads has no effect without --way=heads-ring")):
        done = start([MPIRUN, "-n", "2", ATTN_MPI, "bench", problem, *more])
        lines = [line for line in done.stderr.splitlines() if line.startswith("attn-mpi bench: ")]
        check(f"bench: {problem}", done.returncode == status and len(lines) == 1 and sentence in lines[0], done.stderr)


    done = start([MPIRUN, "-n", "1", ATTN_MPI, "bench", "fwd:f32:sq8:d8", ":", "-n", "1", ATTN_MPI, "bench", "fwd:f32:sq8:d8", "fwd:f32:sq9:d8"])
    check("bench: other problems", done.returncode == 2 and "process 1 was started with other options than process 0" in done.stderr, done.stderr)


def explain():
    """What attn says; of as many ranks as there are processes, unless it is told how many; once."""
    problem = "fwd:f32:hq8:sq4096:d64:causal"
    for processes, words, same in ((1, ["--threads=1"], ["--threads=1"]), (1, ["--ranks=1024", "--network=200Gbit/s"], ["--ranks=1024", "--network=200Gbit/s"]),
                                   (3, ["--json"], ["--json", "--ranks=3"]), (2, ["--ranks=5"], ["--ranks=5"])):
        done = start([MPIRUN, "-n", str(processes), ATTN_MPI, "explain", problem, *words])
        plain = start([ATTN, "explain", problem, *same])
        check(f"explain of {processes} processes {' '.join(words)}", done.returncode == 0 and plain.stdout and done.stdout == plain.stdout and not done.stderr,
              done.stdout + done.stderr)
    done = start([MPIRUN, "-n", "2", ATTN_MPI, "explain", problem, "--way=around"])
    check("explain with a wrong flag, once", done.returncode == 2 and not done.stdout and done.stderr.count("attn-mpi explain: --way: 'around' is not") == 1, done.stderr)


def text():
    """Tensors from text, and results on standard output."""
    with open("in.json", "w") as file:
        json.dump({"q": [[1, 0], [0, 1], [1, 1]], "k": [[1, 0], [0, 1]], "v": [[1, 2], [3, 4]]}, file)
    words = ["in.json", "--mask=1 0; 1 1; 0 1"]
    run(0, [*words, "-o", "one.safetensors"]), run(3, [*words, "-o", "many.safetensors"])
    check("text over 3 processes", tensor_file.read("one.safetensors")[0] == tensor_file.read("many.safetensors")[0])
    check("-o - of 3 processes", run(3, [*words, "-o", "-"]).stdout == run(0, [*words, "-o", "-"]).stdout != "")


def manual():
    """--help of all commands; attn-mpi.1 has the flags that attn.1 does not."""
    def flags_of(text):
        return set(re.findall(r"^ +(?:-\w, )?--([a-z0-9-]+)", text, re.M))
    with open(os.path.join(ROOT, "cli/attn-mpi.1.in")) as file:
        described = set(re.findall(r"^\.It Fl \\-([a-z-]+)", file.read(), re.M))
    known, flags = flags_of(start([ATTN, "run", "--help"]).stdout) - {"linformer"}, set()  # which one process computes
    for command in ("run", "bench", "explain"):
        done = start([MPIRUN, "-n", "2", ATTN_MPI, command, "--help"])
        check(f"{command} --help, once", done.returncode == 0 and done.stdout.startswith(f"usage: attn-mpi {command} ") and done.stdout.count("usage:") == 1)
        flags |= flags_of(done.stdout)
        wanted = {"run": known, "bench": {"invariant", "reproducible"}, "explain": flags_of(start([ATTN, "explain", "--help"]).stdout)}[command]
        check(f"{command} has the flags that it shares with attn", wanted <= flags_of(done.stdout), str(wanted - flags_of(done.stdout)))
    check("the page has their flags", flags - known <= described, str(flags - known - described))
    check("and no others", described <= flags, str(described - flags))
    done = start([MPIRUN, "-n", "2", ATTN_MPI, "--version"])
    check("--version, once", done.stdout == "attn-mpi " + start([ATTN, "--version"]).stdout.split()[1] + "\n", done.stdout)


def ours():
    """The processes of attn-mpi that work in this folder."""
    found = []
    for process in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.readlink(f"/proc/{process}/exe") == os.path.realpath(ATTN_MPI) and os.readlink(f"/proc/{process}/cwd") == os.getcwd():
                found.append(int(process))
        except OSError:
            continue
    return sorted(found)


def mapped(process, file):
    """Bytes of a mapped file that a process has in memory."""
    found, bytes_there = False, 0
    with open(f"/proc/{process}/smaps") as lines:
        for line in lines:
            if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
                found = line.rstrip().endswith("/" + file)
            elif found and line.startswith("Rss:"):
                bytes_there += 1024 * int(line.split()[1])
    return bytes_there


def killed():
    """Each of three ranks has read about its third of the file.  A rank is killed while all compute, for minutes: the job ends within 10 s, and leaves nothing."""
    zeros = ("F32", (262144, 16), bytes(4 * 262144 * 16))
    tensor_file.write("long.safetensors", {"q": zeros, "k": zeros, "v": zeros})
    words = ["run", "long.safetensors", "-o", "out.safetensors", "--isa=scalar", "--threads=1"]
    with subprocess.Popen([MPIRUN, "-n", "3", ATTN_MPI, *words], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL) as job:
        try:
            end, shares = time.monotonic() + 60, []
            while (len(shares) < 3 or min(shares) < 0.3) and time.monotonic() < end and job.poll() is None:
                time.sleep(0.05)  # (on a busy machine they start late)
                shares = [mapped(rank, "long.safetensors") / os.path.getsize("long.safetensors") for rank in ours()]
            time.sleep(0.5)
            ranks, begin = ours(), time.monotonic()
            if check("three ranks compute", len(ranks) == 3 and job.poll() is None, str(ranks)):
                shares = [mapped(rank, "long.safetensors") / os.path.getsize("long.safetensors") for rank in ranks]
                check("each reads its rows", all(0.3 < share < 0.7 for share in shares), str(shares))
                os.kill(ranks[-1], signal.SIGKILL)
                status = job.wait(30)
                took = time.monotonic() - begin
                check("a rank is killed: the job ends", status != 0 and took < 10, f"{status} after {took:.1f} s")
                check("nothing is left", not ours() and not [file for file in os.listdir() if file.startswith(("out", ".out"))])
        finally:
            job.kill()


def main():
    same_bits()
    linear_bits()
    killed()
    if not SECOND:
        told()
        errors()
        bench()
        explain()
        text()
        manual()
    return finish()


if __name__ == "__main__":
    run_in_folder(main)
