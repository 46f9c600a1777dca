#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Times libattn against the alternatives that a user has: PyTorch, ONNX Runtime and JAX, on this CPU.

    bench/peers.py                       all cases, two threads, a table of ratios
    bench/peers.py --threads 1 --json fwd-d64 bwd-d64

All run in one process, alternately, on the same numbers and with the same number of threads (the process is bound to as many cores).
PyTorch gets [batch, head, token, channel], ONNX Runtime and JAX [batch, token, head, channel], their preferred layouts; libattn is
timed on both.  Results are compared before anything is timed, and a candidate with different results is not timed.  The packages are
installed into an environment of the script's own, build/peers, in the versions below.  Batches of an inference engine are another
suite, bench/serving.py, which shares all but the cases and the candidates.
"""
import argparse
import importlib
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

TOP = pathlib.Path(__file__).resolve().parent.parent
HOME = TOP / "build" / "peers"
HEADER = TOP / "include/attn/schedule.h"  # which includes attn.h
PACKAGES = {
    "numpy": ["numpy==2.4.6"],
    "torch": ["torch==2.13.0+cpu", "--extra-index-url", "https://download.pytorch.org/whl/cpu"],
    "onnxruntime": ["onnxruntime==1.32.0", "onnx==1.23.2"],
    "jax": ["jax==0.10.2", "jaxlib==0.10.2"],
    "ggml": ["libggml-python==0.20.2.post1"],
}


BOUNDS = {"f32": 1e-4, "f16": 4e-3, "bf16": 3e-2}  # of differences (below) between results that count as the same


class Skip(Exception):
    """This candidate does not support this case; the text says why."""


class Case:
    """One problem.  Forward counts two products, backward five."""

    def __init__(self, name, words, batch=1, heads=8, heads_kv=None, len_q=2048, len_kv=None, dim=64, dtype="f32", causal=False, backward=False):
        self.name, self.words, self.batch, self.heads, self.heads_kv = name, words, batch, heads, heads_kv or heads
        self.len_q, self.len_kv, self.dim, self.dtype = len_q, len_kv or len_q, dim, dtype
        self.causal, self.backward, self.bound = causal, backward, BOUNDS[dtype]

    def flops(self):
        n, m = self.len_q, self.len_kv
        pairs = n * m - n * (n - 1) / 2 if self.causal else n * m
        return (2.5 if self.backward else 1) * 4 * self.batch * self.heads * pairs * self.dim


CASES = [
    Case("fwd-d64", "forward `hq8:sq2048:d64`"),
    Case("fwd-d128", "forward `hq8:sq2048:d128`", dim=128),
    Case("fwd-d64-causal", "forward `hq8:sq2048:d64:causal`", causal=True),
    Case("fwd-d128-causal", "forward `hq8:sq2048:d128:causal`", dim=128, causal=True),
    Case("fwd-s512", "forward `hq8:sq512:d64`", len_q=512),
    Case("fwd-s512-causal", "forward `hq8:sq512:d64:causal`", len_q=512, causal=True),
    Case("fwd-b32", "forward `b32:hq8:sq100:d64`", batch=32, len_q=100),
    Case("fwd-b32-causal", "forward `b32:hq8:sq100:d64:causal`", batch=32, len_q=100, causal=True),
    Case("fwd-gqa", "forward `hq32:hkv8:sq2048:d128:causal`", heads=32, heads_kv=8, dim=128, causal=True),
    Case("fwd-bf16", "forward `hq8:sq2048:d64`, bf16", dtype="bf16"),
    Case("fwd-f16", "forward `hq8:sq2048:d64`, f16", dtype="f16"),
    Case("bwd-d64", "backward `hq8:sq2048:d64`", backward=True),
    Case("bwd-d64-causal", "backward `hq8:sq2048:d64:causal`", backward=True, causal=True),
    Case("bwd-d128", "backward `hq8:sq2048:d128`", dim=128, backward=True),
    Case("bwd-b32", "backward `b32:hq8:sq100:d64`", batch=32, len_q=100, backward=True),
    Case("bwd-bf16", "backward `hq8:sq2048:d64`, bf16", dtype="bf16", backward=True),
    Case("decode-4k", "one query, `hq32:hkv8:d128`, 4096 keys", heads=32, heads_kv=8, len_q=1, len_kv=4096, dim=128),
    Case("decode-32k", "one query, `hq32:hkv8:d128`, 32,768 keys", heads=32, heads_kv=8, len_q=1, len_kv=32768, dim=128),
]


# ---- the environment ----


def install(home, packages):
    """Creates the environment; packages that cannot be installed are left out, and the reasons recorded."""
    python, notes = home / "bin" / "python", home / "notes.json"
    done = json.loads(notes.read_text()) if notes.exists() else {}
    if done.get("packages") == packages and not done["missing"]:
        return python, {}
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
    missing = {}
    for name, words in packages.items():
        print(f"installing {' '.join(word for word in words if '==' in word)} into {home.relative_to(TOP)}", file=sys.stderr)
        pip = subprocess.run([str(python), "-m", "pip", "install", "-q", "--retries", "0", *words], capture_output=True, text=True, check=False)
        if pip.returncode:
            missing[name] = (pip.stderr.strip().splitlines() or ["pip failed"])[-1]
    notes.write_text(json.dumps({"packages": packages, "missing": missing}))
    return python, missing


def enter(home, packages, script):
    """Restarts this script with the same arguments in the environment.  Returns the packages missing there."""
    python, missing = install(home, packages)
    if pathlib.Path(sys.prefix) != home:
        os.execv(python, [str(python), script, *sys.argv[1:]])
    return missing


def bind(threads):
    """Binds the process to as many cores as threads: not every peer has a setting for this."""
    cores = sorted(os.sched_getaffinity(0))[:threads]
    os.sched_setaffinity(0, cores)
    os.environ["OMP_NUM_THREADS"] = str(threads)
    return len(cores)


# ---- tensors ----


def rounded(array, dtype):
    """The array in a storage type: bf16 is its upper halves, as uint16."""
    if dtype == "f32":
        return array
    if dtype == "f16":
        return array.astype(np.float16)
    bits = array.view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def widened(array):
    """Any of these as f32."""
    if array.dtype == np.uint16:
        return (array.astype(np.uint32) << 16).view(np.float32)
    return np.asarray(array, dtype=np.float32)


class Tensors:
    """Inputs of a case in both orders; outputs are compared as [batch, head, token, channel] in f32."""

    def __init__(self, case):
        random = np.random.default_rng(1)
        query = (case.batch, case.heads, case.len_q, case.dim)
        keys = (case.batch, case.heads_kv, case.len_kv, case.dim)
        shapes = {"q": query, "k": keys, "v": keys, "grad_o": query}
        drawn = {name: random.standard_normal(shape, dtype=np.float32) for name, shape in shapes.items()}
        self.by_head = {name: rounded(x, case.dtype) for name, x in drawn.items()}
        self.by_token = {name: np.ascontiguousarray(x.transpose(0, 2, 1, 3)) for name, x in self.by_head.items()}


# ---- candidates: each takes a case and its tensors, and returns a function to call and one that reads the results ----


def libattn_on(by_token):
    def make(case, tensors, threads):
        """Outputs in the order of the inputs."""
        inputs = tensors.by_token if by_token else tensors.by_head
        heads, kinds = {"q": case.heads, "k": case.heads_kv, "v": case.heads_kv, "o": case.heads}, attn.values
        made = {"o": np.zeros_like(inputs["q"]), **{f"grad_{name}": np.zeros_like(inputs[name]) for name in "qkv"}}
        made["lse"] = np.zeros((case.batch, case.heads, case.len_q), np.float32)

        def describe(backward):
            problem, slots = attn.new("attn_problem"), attn.new("attn_tensors")
            shape = problem.shape
            shape.batch, shape.heads_q, shape.heads_kv = case.batch, case.heads, case.heads_kv
            shape.len_q, shape.len_kv, shape.dim_qk, shape.dim_v = case.len_q, case.len_kv, case.dim, case.dim
            problem.op = kinds["ATTN_BACKWARD" if backward else "ATTN_FORWARD"]
            problem.mask.causal = case.causal
            for name in "qkvo":
                length, row = case.len_q if name in "qo" else case.len_kv, heads[name] * case.dim
                for slot in [getattr(slots, name)] + ([getattr(slots, f"grad_{name}")] if backward else []):
                    slot.dtype = kinds[f"ATTN_{case.dtype.upper()}"]
                    if by_token:
                        slot.stride[:] = [length * row, case.dim, row, 1]
            for name, array in {**inputs, **made}.items():
                if backward or (not name.startswith("grad_") and (name != "lse" or case.backward)):
                    getattr(slots, name).data = array.ctypes.data
            return attn.plan(problem, slots, threads), slots

        plan, slots = describe(False)
        plan.run(slots)
        if case.backward:
            plan, slots = describe(True)
        names = ["grad_q", "grad_k", "grad_v"] if case.backward else ["o"]
        turn = (0, 2, 1, 3) if by_token else (0, 1, 2, 3)
        return lambda: plan.run(slots), lambda: [widened(made[name]).transpose(turn) for name in names]

    return make


def pytorch(case, tensors, threads):
    """scaled_dot_product_attention; backward is autograd's backward of a forward that was kept."""
    torch = importlib.import_module("torch")
    torch.set_num_threads(threads)

    def tensor(array):
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16) if case.dtype == "bf16" else torch.from_numpy(array)

    q, k, v, grad_o = (tensor(tensors.by_head[name]) for name in ("q", "k", "v", "grad_o"))
    grouped = {"enable_gqa": True} if case.heads != case.heads_kv else {}
    last = {}

    def forward():
        last["o"] = [torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=case.causal, **grouped)]

    def backward():
        last["o"] = torch.autograd.grad(output, (q, k, v), grad_o, retain_graph=True)

    if case.backward:
        for x in (q, k, v):
            x.requires_grad_(True)
        forward()
        output = last["o"][0]
        return backward, lambda: [x.float().numpy() for x in last["o"]]

    def quietly():
        with torch.no_grad():
            forward()

    return quietly, lambda: [x.float().numpy() for x in last["o"]]


def session(node, inputs, outputs, threads):
    """An ONNX model of one node, bound to these arrays; outputs share memory with the inputs of the same array."""
    onnx, runtime = importlib.import_module("onnx"), importlib.import_module("onnxruntime")
    helper = onnx.helper

    def describe(arrays):
        kind = helper.np_dtype_to_tensor_dtype
        return [helper.make_tensor_value_info(name, kind(x.dtype), x.shape) for name, x in arrays.items()]

    graph = helper.make_graph([node], "attention", describe(inputs), describe(outputs))
    domains = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=domains, ir_version=8)
    options = runtime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.log_severity_level = 3
    run = runtime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    binding, values = run.io_binding(), {}
    for arrays, attach in ((inputs, binding.bind_ortvalue_input), (outputs, binding.bind_ortvalue_output)):
        for name, array in arrays.items():
            value = values.setdefault(id(array), runtime.OrtValue.ortvalue_from_numpy(array))
            attach(name, value)
    return lambda: run.run_with_iobinding(binding), lambda name: values[id(outputs[name])].numpy()


def onnx_type(case):
    if case.backward:
        raise Skip("has no backward")
    if case.dtype == "bf16":
        raise Skip("has no bf16 on CPUs")


def onnx_mha(case, tensors, threads):
    """com.microsoft.MultiHeadAttention."""
    onnx_type(case)
    if case.heads != case.heads_kv:
        raise Skip("has no grouped heads")
    helper, width = importlib.import_module("onnx").helper, case.heads * case.dim
    inputs = {name: tensors.by_token[name].reshape(case.batch, -1, width) for name in ("q", "k", "v")}
    outputs = {"o": np.zeros_like(inputs["q"])}
    node = helper.make_node("MultiHeadAttention", list(inputs), ["o"], domain="com.microsoft", num_heads=case.heads, unidirectional=int(case.causal))
    call, read = session(node, inputs, outputs, threads)
    shape = (case.batch, case.len_q, case.heads, case.dim)
    return call, lambda: [widened(read("o")).reshape(shape).transpose(0, 2, 1, 3)]


def onnx_gqa(case, tensors, threads):
    """com.microsoft.GroupQueryAttention: always causal.  In decoding the last key is the new one, and the cache is its own."""
    onnx_type(case)
    if not case.causal and case.len_q != 1:
        raise Skip("is always causal")
    helper = importlib.import_module("onnx").helper
    old = case.len_kv - case.len_q
    inputs = {
        "q": tensors.by_token["q"].reshape(case.batch, case.len_q, -1),
        "k": np.ascontiguousarray(tensors.by_token["k"][:, old:]).reshape(case.batch, case.len_q, -1),
        "v": np.ascontiguousarray(tensors.by_token["v"][:, old:]).reshape(case.batch, case.len_q, -1),
        "past_k": tensors.by_head["k"].copy(),
        "past_v": tensors.by_head["v"].copy(),
        "last": np.full((case.batch,), case.len_kv - 1, np.int32),
        "all": np.array([case.len_kv], np.int32),
    }
    outputs = {"o": np.zeros_like(inputs["q"]), "new_k": inputs["past_k"], "new_v": inputs["past_v"]}
    node = helper.make_node(
        "GroupQueryAttention", list(inputs), list(outputs), domain="com.microsoft", num_heads=case.heads, kv_num_heads=case.heads_kv
    )
    call, read = session(node, inputs, outputs, threads)
    shape = (case.batch, case.len_q, case.heads, case.dim)
    return call, lambda: [widened(read("o")).reshape(shape).transpose(0, 2, 1, 3)]


def jax_attention(case, tensors, threads):
    """jax.nn.dot_product_attention, compiled; backward is the compiled transpose of a forward that was kept."""
    del threads  # XLA uses the cores of the process
    jax = importlib.import_module("jax")
    jnp = jax.numpy

    def array(x):
        return jax.lax.bitcast_convert_type(jnp.asarray(x), jnp.bfloat16) if case.dtype == "bf16" else jnp.asarray(x)

    q, k, v, grad_o = (array(tensors.by_token[name]) for name in ("q", "k", "v", "grad_o"))
    forward = jax.jit(lambda q, k, v: jax.nn.dot_product_attention(q, k, v, is_causal=case.causal))
    last = {}
    if case.backward:
        _, pull = jax.vjp(forward, q, k, v)
        pull = jax.jit(pull)

    def call():
        last["o"] = jax.block_until_ready(pull(grad_o) if case.backward else [forward(q, k, v)])

    return call, lambda: [np.asarray(x.astype(jnp.float32)).transpose(0, 2, 1, 3) for x in last["o"]]


CONTENDERS = {
    "libattn": (None, libattn_on(False)),
    "libattn, by token": (None, libattn_on(True)),
    "PyTorch": ("torch", pytorch),
    "ORT MHA": ("onnxruntime", onnx_mha),
    "ORT GQA": ("onnxruntime", onnx_gqa),
    "JAX": ("jax", jax_attention),
}
BY_TOKEN = ("ORT MHA", "JAX")  # the others are compared with libattn on tensors by head


class Suite:
    """What a script measures: its cases, the candidates for them, and what they are compared with."""

    def __init__(self, script, doc, names, cases, contenders, tensors, ours, found=dict):
        self.script, self.doc, self.names, self.cases, self.contenders = script, doc, names, cases, contenders
        self.tensors, self.ours = tensors, ours  # of a case; the candidate of libattn with the tensors of a peer
        self.found = found  # versions of libraries that are not the packages'
        used = {package for package, _ in contenders.values()}
        self.packages = {name: words for name, words in PACKAGES.items() if name in used or name == "numpy"}


# ---- measuring ----


def difference(ours, theirs):
    """The largest difference over the largest number, for the output that differs most."""
    return max(float(np.max(np.abs(a - b)) / np.max(np.abs(a))) for a, b in zip(ours, theirs, strict=True))


def prepare(suite, case, threads, missing):
    """The candidates that support the case and agree, by name, and the reasons why the others do not run."""
    ready, skipped, reference, tensors = {}, {}, None, suite.tensors(case)
    for name, (package, make) in suite.contenders.items():
        try:
            if package in missing:
                raise Skip(f"not installed: {missing[package]}")
            call, read = make(case, tensors, threads)
            call()
            results = read()
            reference = reference or results
            away = difference(reference, results)
            if not away <= case.bound:
                raise Skip(f"computes something else: {away:.1e} away")
            ready[name] = call, read  # both, since one may own data that the other uses
        except Skip as skip:
            skipped[name] = str(skip)
        except Exception as error:  # pylint: disable=broad-except
            skipped[name] = f"{type(error).__name__}: {str(error).strip().splitlines()[0][:120]}" if str(error).strip() else type(error).__name__
    return ready, skipped


def sample(call):
    """Seconds of one call: as many in a row as take 2 ms, after an untimed one and a pause in which the threads of others go to sleep."""
    time.sleep(0.003)
    call()
    calls, start = 0, time.perf_counter()
    while True:
        call()
        calls += 1
        passed = time.perf_counter() - start
        if passed > 0.002:
            return passed / calls


def measure(ready, seconds):
    """Samples of each, alternately, until each has used its time or has 5 of them."""
    samples, spent = {name: [] for name in ready}, dict.fromkeys(ready, 0.0)
    while True:
        waiting = [name for name in ready if spent[name] < seconds or len(samples[name]) < 5]
        if not waiting:
            return samples
        for name in waiting:
            start = time.perf_counter()
            samples[name].append(sample(ready[name][0]))
            spent[name] += time.perf_counter() - start


def summary(values):
    ordered = sorted(values)
    return {"median": statistics.median(ordered), "best": ordered[len(ordered) // 10], "samples": len(ordered)}


def run_case(suite, case, threads, seconds, missing):
    ready, skipped = prepare(suite, case, threads, missing)
    row = {"case": case.name, "problem": case.words, "skipped": skipped, "times": {}, "ratios": {}}
    for name, values in measure(ready, seconds).items():
        row["times"][name] = summary(values)
        row["times"][name]["gflops_best"] = case.flops() / row["times"][name]["best"] / 1e9
    for name, times in row["times"].items():
        ours = row["times"].get(suite.ours(name))
        if ours and not name.startswith("libattn"):
            row["ratios"][name] = {key: times[key] / ours[key] for key in ("median", "best")}
    return row


def print_row(suite, row):
    def cell(name):
        ratio = row["ratios"].get(name)
        return f"{ratio['median']:.2f} ({ratio['best']:.2f})" if ratio else "-"

    names = list(suite.contenders)
    ours = [f"{row['times'][name]['median'] * 1e3:.3g}" if name in row["times"] else "-" for name in names[:2]]
    print("| " + " | ".join([row["problem"], *ours, *(cell(name) for name in names[2:])]) + " |", flush=True)


def find_library():
    found = sorted(TOP.glob("build/*/lib/libattn.so"), key=lambda path: path.stat().st_mtime)
    return found[-1] if found else None


def arguments(suite):
    known = ", ".join(case.name for case in suite.cases)
    parser = argparse.ArgumentParser(description=suite.doc.partition("\n\n")[0], epilog=f"Cases: {known}")
    parser.add_argument("case", nargs="*", help="the cases to run (default: all)")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=1.0, help="for each candidate and case (default 1)")
    parser.add_argument("--library", default=find_library(), help="libattn.so (default: the newest in build/*/lib)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    chosen = parser.parse_args()
    unknown = set(chosen.case) - {case.name for case in suite.cases}
    if unknown:
        parser.error(f"unknown case: {', '.join(sorted(unknown))}; known: {known}")
    if not chosen.library:
        parser.error("no libattn.so in build/*/lib; build it, or say --library")
    return chosen


def main(suite):
    chosen = arguments(suite)
    missing = enter(HOME, PACKAGES, suite.script)
    if "numpy" in missing:
        print(f"{pathlib.Path(suite.script).name}: numpy could not be installed: {missing['numpy']}", file=sys.stderr)
        return 2
    threads = bind(chosen.threads)
    sys.path.insert(0, str(TOP / "bench"))
    late = {"np": importlib.import_module("numpy"), "attn": importlib.import_module("structs").Library(str(chosen.library), str(HEADER))}
    globals().update(late)
    suite.names.update(late)

    versions = {name: words[0].split("==")[1] for name, words in suite.packages.items() if name not in missing} | suite.found()
    rows = []
    if not chosen.json:
        print(f"libattn {attn.version}, {', '.join(f'{name} {version}' for name, version in versions.items())}; {threads} threads")
        print("Milliseconds of libattn (median), and how many times longer each peer takes: median (best decile)\n")
        print("| problem | " + " | ".join(suite.contenders) + " |\n|---|" + "--:|" * len(suite.contenders))
    for case in suite.cases:
        if chosen.case and case.name not in chosen.case:
            continue
        rows.append(run_case(suite, case, threads, chosen.seconds, missing))
        if not chosen.json:
            print_row(suite, rows[-1])
    if chosen.json:
        print(json.dumps({"versions": {"libattn": attn.version, **versions}, "missing": missing, "threads": threads, "results": rows}, indent=1))
    else:
        print()
        for reason in sorted({f"{name} {why}" if why[0].islower() else f"{name}: {why}" for row in rows for name, why in row["skipped"].items()}):
            print(f"- {reason}")
    return 0


if __name__ == "__main__":
    sys.exit(main(Suite(__file__, __doc__, globals(), CASES, CONTENDERS, Tensors, lambda name: "libattn, by token" if name in BY_TOKEN else "libattn")))
