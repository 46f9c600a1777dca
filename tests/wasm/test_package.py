# SPDX-License-Identifier: MIT
"""test_package.py PACKAGE [--attn COMMAND] [--suites FOLDER] [--browser]

The npm package: conformance cases of other projects through its JavaScript in node, or with --browser in a headless Chromium, against
the suites' numbers, against attention by definition within the bound of docs/numerics.md, and against the native command."""
import argparse
import base64
import json
import os
import shutil
import subprocess
import sys
import tempfile

import numpy as np

sys.path[:0] = [os.path.dirname(os.path.abspath(__file__)), os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "view"),
                os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")]
import bound
import suites
import tap
from suites import Bits, wide

HERE = os.path.dirname(os.path.abspath(__file__))
DTYPES = {"float32": "f32", "float64": "f64", "float16": "f16", "bool": "bool", "int32": "i32", "int64": "i64", "uint8": "u8"}
FORMAT = {"f32": "F32", "f64": "F64", "f16": "F16", "bf16": "BF16", "bool": "BOOL", "i32": "I32", "i64": "I64"}


def parts(array):
    """Its type, shape and bytes."""
    bits = array.bits if isinstance(array, Bits) else array
    return "bf16" if isinstance(array, Bits) else DTYPES[bits.dtype.name], list(bits.shape), np.ascontiguousarray(bits).tobytes()


def to_json(case):
    tensors = {}
    for name, array in case["tensors"].items():
        dtype, shape, data = parts(array)
        tensors[name] = {"dtype": dtype, "shape": shape, "data": base64.b64encode(data).decode()}
    return {"operation": case["operation"], "tensors": tensors, "options": case["options"],
            "outputs": [name for name in case["expected"] if name.startswith("grad_") and name not in ("grad_q", "grad_k", "grad_v")
                        or name in ("scores", "second_bias")] if case["operation"] != "double_backward" else
            [name for name in case["expected"] if name == "second_bias"]}


def from_json(answer):
    arrays = {}
    for name, tensor in answer.items():
        data = np.frombuffer(base64.b64decode(tensor["data"]), {"f32": np.float32, "f64": np.float64, "f16": np.float16, "bf16": np.uint16}[tensor["dtype"]])
        data = data.reshape(tensor["shape"])
        arrays[name] = Bits(data).wide() if tensor["dtype"] == "bf16" else data
    return arrays


def in_double(case):
    """The same case in f64 (its numbers are exact there); None for 16 bits, which do not mix with it."""
    if wide(case["tensors"]["q"]).dtype != np.float32 or isinstance(case["tensors"]["q"], Bits):
        return None
    tensors = {name: array.astype(np.float64) if wide(array).dtype == np.float32 else array for name, array in case["tensors"].items()}
    return dict(case, name=case["name"] + " in f64", tensors=tensors)


def in_node(package, calls):
    answer = subprocess.run(["node", os.path.join(HERE, "node.mjs"), package], input=json.dumps(calls), capture_output=True, text=True, check=False)
    if answer.returncode:
        sys.exit(f"node failed: {answer.stderr}")
    return json.loads(answer.stdout)


def in_page(package, calls):
    from browser import Browser, find_browser
    page = Browser(find_browser())
    try:
        sources = {}
        for name, path in (("index", os.path.join(package, "index.js")), ("cases", os.path.join(HERE, "run_cases.js"))):
            with open(path, encoding="utf-8") as file:
                sources[name] = file.read()
        with open(os.path.join(package, "attn.wasm"), "rb") as file:
            module = base64.b64encode(file.read()).decode()
        page.evaluate("""(async () => {
            const sources = %s, from = (text) => import(URL.createObjectURL(new Blob([text], { type: "text/javascript" })));
            const { load } = await from(sources.index), { runCases } = await from(sources.cases);
            window.attn = await load(Uint8Array.from(atob(%s), (c) => c.charCodeAt(0)));
            window.runCases = runCases;
        })()""" % (json.dumps(sources), json.dumps(module)))
        results = []
        for start in range(0, len(calls), 16):
            results += page.evaluate("window.runCases(window.attn, %s)" % json.dumps(calls[start:start + 16]))
        about = page.evaluate("({ version: window.attn.version, isa: window.attn.isa })")
        return dict(about, results=results, failures=page.failures)
    finally:
        page.close()


def write(path, tensors):
    header, data = {}, b""
    for name, array in tensors.items():
        dtype, shape, raw = parts(array)
        header[name] = {"dtype": FORMAT[dtype], "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text + data)


FLAGS = {"lengths_q": "--lengths-q=lengths_q", "lengths_kv": "--lengths-kv=lengths_kv", "alibi_slopes": "--slopes=alibi_slopes",
         "sink": "--sink=sink", "scale": "--scale=scale"}
KNOWN = {"q", "k", "v", "mask", "bias"} | set(FLAGS)


def in_native(command, case, folder):
    """What the native command computes; None if the case has what it is not asked here."""
    options = dict(case["options"])
    options.pop("scores_stage", None)
    tensors = {name: array for name, array in case["tensors"].items() if not name.startswith("grad_")}
    if not set(tensors) <= KNOWN or "score" in options:
        return None
    flags = [FLAGS[name] for name in tensors if name in FLAGS]
    aligned = options.pop("causal", None)
    if aligned:
        flags.append("--causal=" + aligned)
    align = options.pop("align", "bottom-right")
    if "window" in options:
        flags.append("--window=%d,%d" % tuple(options.pop("window")))
        if not aligned:
            flags.append("--align=" + align)
    elif not aligned and "alibi_slopes" in tensors:
        flags.append("--align=" + align)
    flags += [f"--{name}={value!r}" for name, value in options.items()]
    path, out = os.path.join(folder, "in.safetensors"), os.path.join(folder, "out.safetensors")
    write(path, tensors)
    done = subprocess.run([command, "run", path, "-o", out, "--lse", "--weights", "--quiet", *flags], capture_output=True, text=True, check=False)
    if done.returncode:
        return {"error": done.stderr.strip(), "flags": flags}
    return {name: wide(array) for name, array in suites.read(out).items()}


def distance(found, expected, limit):
    """The largest difference as a fraction of the limit, where both are finite; infinite where only one is, or shapes differ."""
    found, expected, limit = (np.asarray(x).astype(bound.WIDE) for x in (found, expected, limit))
    if found.size != expected.size:
        return np.inf
    found = found.reshape(expected.shape)
    same = (found == expected) | (np.isnan(found) & np.isnan(expected))
    with np.errstate(invalid="ignore", divide="ignore"):
        part = np.where(same, 0, abs(found - expected) / limit)
    return float(np.nan_to_num(part, nan=np.inf).max(initial=0))


def is_steep(case):
    """Scores above 20, whose errors in f32 are magnified: suites' tolerances are for other numbers (docs/conformance.md)."""
    q, k = (bound.four(case["tensors"][name]).astype(np.float64) for name in "qk")
    with np.errstate(invalid="ignore"):
        scores = q @ np.repeat(k, q.shape[1] // k.shape[1], 1).swapaxes(2, 3) if q.shape[3] == k.shape[3] else np.zeros(1)
    return abs(scores * case["options"].get("scale", q.shape[3] ** -0.5)).max(initial=0) > 20


def has_definition(case):
    if not all(np.isfinite(wide(case["tensors"][name])).all() for name in "qkv"):
        return False
    return "score" not in case["options"] and "dropout_given" not in case["tensors"] and case["operation"] == "forward"


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("package")
    arguments.add_argument("--attn")
    arguments.add_argument("--suites", default=os.environ.get("ATTN_CONFORMANCE_DIR", "../shared/conformance"))
    arguments.add_argument("--browser", action="store_true")
    given = arguments.parse_args()
    if not given.suites or not os.path.isdir(given.suites):
        print("skipped: there is no folder of suites (ATTN_CONFORMANCE_DIR)")
        sys.exit(77)
    if given.browser:
        from browser import find_browser
        if not find_browser():
            print("skipped: no Chromium (apt-get install chromium, or set ATTN_CHROMIUM to a browser)")
            sys.exit(77)
    elif not shutil.which("node"):
        print("skipped: there is no node (apt-get install nodejs)")
        sys.exit(77)

    cases, left_out = suites.cases(given.suites)
    cases += [double for double in map(in_double, cases) if double]
    # Forward of what has gradients, too: o, lse and weights are compared with the definition there.
    calls = [to_json(case) for case in cases]
    forwards = []
    for case in cases:
        tensors = {name: array for name, array in case["tensors"].items() if not name.startswith(("grad_", "tan_"))}
        forwards.append(dict(case, operation="forward", tensors=tensors, expected={}))
    answer = (in_page if given.browser else in_node)(given.package, calls + [to_json(case) for case in forwards])
    results, again = answer["results"][:len(cases)], answer["results"][len(cases):]

    with open(os.path.join(given.package, "package.json"), encoding="utf-8") as file:
        tap.check("the version is that of package.json", answer["version"] == json.load(file)["version"])
    tap.check("the instruction set is wasm128", answer["isa"] == "wasm128")
    if given.browser:
        tap.check("the page reports no errors", not answer["failures"], str(answer["failures"]))
        if shutil.which("node"):
            tap.check("results have the bits that they have in node", in_node(given.package, calls)["results"] == results)
    else:
        tap.check("every way to load gives the same bits", answer["same"])
        tap.check("a missing file is an error", answer["missing"] == "ENOENT", answer["missing"])
        tap.check("AttnError is an Error", answer["isError"])

    counts = {"suite": 0, "bound": 0, "native": 0, "bits": 0}
    worst = {"suite": (0, ""), "bound": (0, ""), "native": (0, "")}
    wrong = {"suite": [], "bound": [], "native": []}

    def judge(kind, name, fraction, why=""):
        counts[kind] += 1
        worst[kind] = max(worst[kind], (fraction, name))
        if not fraction <= 1:
            wrong[kind].append(f"{name} {why or '%.3g' % fraction}")

    with tempfile.TemporaryDirectory() as folder:
        for case, got, forward in zip(cases, results, map(lambda c, g: (c, g), forwards, again)):
            if "error" in got or "error" in forward[1]:
                judge("suite", case["name"], np.inf, got.get("error") or forward[1].get("error"))
                continue
            arrays, simple = from_json(got), from_json(forward[1])
            absolute, relative = case["tolerance"]
            compute = "f64" if wide(case["tensors"]["q"]).dtype == np.float64 else "f32"
            for name, expected in case["expected"].items() if compute == "f64" or not is_steep(case) else ():
                values = arrays.get(name, simple.get(name))
                if values is None or (case["operation"] == "double_backward" and name.startswith("grad_")):
                    continue
                judge("suite", f"{case['name']} {name}", distance(values, expected, absolute + relative * abs(wide(expected).astype(bound.WIDE))))
            if not has_definition(forward[0]):
                continue
            storage = parts(case["tensors"]["q"])[0]
            limits = bound.exact(forward[0], compute, storage)
            native = in_native(given.attn, forward[0], folder) if given.attn else None
            if native and "error" in native:
                judge("native", case["name"], np.inf, f"{native['error']} {native['flags']}")
                native = None
            for name, (exactly, limit) in limits.items():
                judge("bound", f"{case['name']} {name}", distance(simple[name], exactly, limit))
                if native is not None:
                    judge("native", f"{case['name']} {name}", distance(simple[name], native[name].reshape(simple[name].shape), 2 * limit.reshape(simple[name].shape)))
                    counts["bits"] += np.array_equal(simple[name], native[name].reshape(simple[name].shape))

    print(f"# {len(cases)} calls of {len(set(case['name'].removesuffix(' in f64') for case in cases))} cases; {left_out} of the suites are not one call")
    for kind, (fraction, name) in worst.items():
        print(f"# {kind}: {counts[kind]} tensors, at most {fraction:.3f} of the limit ({name})")
    print(f"# to the bit as the native command: {counts['bits']} of {counts['native']}")
    tap.check("there are cases of every operation", {case["operation"] for case in cases} == {"forward", "backward", "jvp", "double_backward"})
    tap.check("results agree with the suites within their tolerance", not wrong["suite"], "; ".join(wrong["suite"][:5]))
    tap.check("results agree with the definition within the bound", not wrong["bound"], "; ".join(wrong["bound"][:5]))
    if given.attn:
        tap.check("results agree with the native command within two bounds", counts["native"] and not wrong["native"], "; ".join(wrong["native"][:5]))
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
