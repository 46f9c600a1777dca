#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The measured figures of the documentation: bench/results/*.json are the source from which the tables of docs/benchmarks.md are
generated; these are never edited by hand.  (The chart is made by `attn plot peers`, through tools/pictures.py.)

    bench/results.py write                           generates the tables
    bench/results.py check                           reports differences from the output of `write` (the test bench/results)
    bench/results.py take OUT.json IN.json COLUMN    makes a result file from the output of `attn bench --json`, `bench/peers.py
                                                     --json`, `bench/serving.py --json`, `bench/models.py --json` or `lab/python/calls.py --json`; --cpu,
                                                     --machine, --isa, --date, --gcc and --command add what these lack
    bench/results.py figures OUT.json COLUMN         measures the other figures (FIGURES below) with build/release/attn; the same options

Kinds of result files: shares (of a ceiling, by `attn bench`; rows.json has the rows of the table, in order, and the targets), peers (times
of others over those of libattn, by bench/peers.py and bench/serving.py), models (in PyTorch with libattn enabled, by bench/models.py), calls (what a call from
Python takes, by lab/python/calls.py) and figures (all other figures, with their commands).
"""
import argparse
import datetime
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

TOP = pathlib.Path(__file__).resolve().parent.parent
RESULTS = TOP / "bench/results"
PAGE = TOP / "docs/benchmarks.md"
FORMATS = {"%": ("{:d}", " %"), "times": ("{:.2f}", ""), "us": ("{:.1f}", " us"), "cycles": ("{:.1f}", "")}
PEERS = ("PyTorch", "ONNX Runtime", "JAX", "ggml")
KINDS = ("shares", "peers", "models", "calls", "figures")


def load():
    """The rows of the table of shares, and result files by kind, in the order of their columns."""
    found = {kind: [] for kind in KINDS}
    rows = json.loads((RESULTS / "rows.json").read_text(encoding="utf-8"))["rows"]
    for path in sorted(RESULTS.glob("*.json")):
        if path.name not in ("rows.json", "errors.json"):  # errors.json is bench/errors.py's
            result = json.loads(path.read_text(encoding="utf-8"))
            known = {row["row"] for row in rows}
            for row in result["rows"]:
                if result["kind"] == "shares" and row["row"] not in known:
                    raise SystemExit(f"{path.name}: rows.json has no row {row['row']}")
            found[result["kind"]].append(dict(result, file=path.name))
    for kind in found.values():
        kind.sort(key=lambda result: (result["column"].replace("AVX2", "AVX-2"), result["date"]))  # AVX2 before AVX-512
    return rows, found


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|---|" + "---|" * (len(head) - 1)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def versions(result):
    return ", ".join(f"{name} {version}" for name, version in result["versions"].items())


def columns(results):
    """The description of each column."""
    head = ["column", "CPU", "threads", "ceiling in f32", "date", "versions", "command", "file"]
    ceiling = {id(r): f"{r['ceilings']['fma_f32_gflops']:g} GFLOP/s" if "ceilings" in r else "-" for r in results}
    return table(head, [[r["column"], f"{r['cpu']}, {r['machine']}", str(r["threads"]), ceiling[id(r)], r["date"], versions(r),
                         f"`{r['command']}`" if "command" in r else "in the table",
                         f"[{r['file']}](../bench/results/{r['file']})"] for r in results])


def share(row, result):
    entry = next((e for e in result["rows"] if e["row"] == row["row"]), None)
    if not entry:
        return "-"
    pattern, unit = FORMATS[row["unit"]]
    return ", ".join(pattern.format(entry[key]) for key in ("median", "best") if key in entry) + unit


def shares(rows, results):
    return table(["problem (f32 unless stated)", "target, at best"] + [r["column"] for r in results],
                 [[row["words"], row["aim"]] + [share(row, r) for r in results] for row in rows])


def peers(result):
    names = [name for name in PEERS if name in result["versions"]]
    head = ["problem", "libattn, ms"] + [f"{name} {result['versions'][name]}" for name in names]
    body = [[r["words"], f"{r['libattn_ms']:g}"] + [f"{r['ratios'][n]:g}" if n in r["ratios"] else "-" for n in names] for r in result["rows"]]
    return table(head, body)


def cells(results, cell):
    """Rows of one line for each, `words` and `aim`, and a cell for each result file."""
    lines = {row["words"]: "" if row.get("aim") is None else f"{row['aim']:g}" for result in results for row in result["rows"]}
    found = [{row["words"]: cell(row) for row in result["rows"]} for result in results]
    return [[words, aim, *[column.get(words, "-") for column in found]] for words, aim in lines.items()]


def models(results):
    return table(["what", "target"] + [r["column"] for r in results],
                 cells(results, lambda row: f"{row['ratio']:.2f}, {row['ratio_best']:.2f} ({row['pytorch_ms']:g} to {row['libattn_ms']:g} ms)"))


def calls(results):
    return table(["call", "target, us more"] + [r["column"] for r in results], cells(results, lambda row: f"{row['us']:.1f}, {row['over']:.1f} more"))


def figures(results):
    words = {row["words"]: row["command"] for result in results for row in result["rows"]}
    return table(["what", "by"] + [r["column"] for r in results],
                 [[what, f"`{command}`"] + [next((e["value"] for e in r["rows"] if e["words"] == what), "-") for r in results]
                  for what, command in words.items()])


def tables():
    """The text between the markers of the page, by name."""
    rows, found = load()
    return {
        "columns": columns([result for kind in KINDS for result in found[kind]]),
        "shares": shares(rows, found["shares"]),
        "peers": "\n\n".join(f"{r['column']}, {r['date']}:\n\n{peers(r)}" for r in found["peers"]),
        "models": models(found["models"]),
        "calls": calls(found["calls"]),
        "figures": figures(found["figures"]),
    }


def filled(text):
    """The page with up-to-date tables."""
    for name, body in tables().items():
        begin, end = f"<!-- bench/results.py: {name} -->", "<!-- end -->"
        before, found, rest = text.partition(begin + "\n")
        if not found or end not in rest:
            raise SystemExit(f"{PAGE.name} has no place for the table `{name}`: {begin} ... {end}")
        text = f"{before}{found}\n{body}\n\n{end}{rest.partition(end)[2]}"
    return text


def wanted():
    """The expected content of each file."""
    return {PAGE: filled(PAGE.read_text(encoding="utf-8"))}


# ---- result files of runs ----


def take_shares(run, rows):
    """The rows of rows.json whose problems are in the run."""
    by_name, taken = {result["problem"]: result for result in run["results"]}, []
    for row in rows:
        result = by_name.get(row.get("problem", row["row"]))
        over = row.get("over", [])
        bases = [by_name.get(name) for name in ([over] if isinstance(over, str) else over)]
        if result and row["unit"] == "%":
            field = "share_of_stream" if row.get("of") == "stream" else "share_of_ceiling"
            taken.append({"row": row["row"], "median": round(100 * result[field]), "best": round(100 * result[field + "_best"])})
        elif result and bases and all(bases):
            alone = sum(base["seconds"]["median"] for base in bases)
            taken.append({"row": row["row"], "median": round(result["seconds"]["median"] / alone, 2)})
        elif result and row["unit"] == "us":
            taken.append({"row": row["row"], "best": round(1e6 * result["seconds"]["p10"], 1)})
    return taken


def take_peers(run):
    """The best way of each library."""
    taken, ours = [], {"PyTorch": ("PyTorch", "PyTorch, padded", "PyTorch, loop", "PyTorch, Flex"), "ONNX Runtime": ("ORT MHA", "ORT GQA"),
                       "JAX": ("JAX",), "ggml": ("ggml",)}
    for result in run["results"]:
        ratios = {name: min(result["ratios"][n]["median"] for n in known if n in result["ratios"])
                  for name, known in ours.items() if any(n in result["ratios"] for n in known)}
        taken.append({"case": result["case"], "words": result["problem"], "libattn_ms": float(f"{1e3 * result['times']['libattn']['median']:.3g}"),
                      "ratios": {name: float(f"{ratio:.3g}") for name, ratio in ratios.items()}})
    return taken


def write_result(words, result):
    """One row a line."""
    rows = ",\n  ".join(json.dumps(row, ensure_ascii=False) for row in result.pop("rows"))
    head = "".join(f" {json.dumps(key)}: {json.dumps(value, ensure_ascii=False)},\n" for key, value in result.items())
    pathlib.Path(words.output).write_text(f'{{\n{head} "rows": [\n  {rows}\n ]\n}}\n', encoding="utf-8")


NAMES = {"onnxruntime": "ONNX Runtime", "torch": "PyTorch", "jax": "JAX", "ggml": "ggml", "libattn": "libattn", "python": "Python", "numpy": "NumPy",
         "transformers": "transformers"}


def take_python(words, run):
    """The rows as they are."""
    compiler = {"gcc": words.gcc} if words.gcc else {}
    return write_result(words, {
        "kind": run["kind"], "column": words.column, "cpu": words.cpu or "?", "machine": words.machine, "isa": words.isa, "threads": run["threads"],
        "versions": {NAMES[name]: version for name, version in run["versions"].items()} | compiler, "date": words.date, "command": words.command,
        "rows": run["results"]})


def take(words):
    run = json.loads(pathlib.Path(words.input).read_text(encoding="utf-8"))
    if "kind" in run:
        return take_python(words, run)
    beside = "times" in run["results"][0]
    compiler = {"gcc": words.gcc} if words.gcc else {}
    found = {NAMES[n]: v for n, v in run["versions"].items() if n in ("onnxruntime", "torch", "jax", "ggml", "libattn")} if beside else {"libattn": run["version"]}
    machine = run.get("machine", {})
    result = {"kind": "peers" if beside else "shares", "column": words.column, "cpu": words.cpu or machine.get("cpu", "?"),
              "machine": words.machine, "isa": machine.get("isa", words.isa), "threads": run["threads"] if beside else machine["threads"],
              "versions": found | compiler, "date": words.date, "command": words.command}
    if not beside:
        result["isa"] = run["results"][0]["isa"]
        result["ceilings"] = {"fma_f32_gflops": round(machine["ceilings"].get(f"fma_f32_{result['isa']}_gflops", machine["fma_f32_gflops"]))}
    write_result(words, result | {"rows": take_peers(run) if beside else take_shares(run, load()[0])})


# ---- the other figures ----


def output(command):
    return subprocess.run(command, cwd=TOP, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, check=True).stdout


def memory():
    bytes_needed = json.loads(output(["build/release/attn", "explain", "fwd:f32:sq65536:d64", "--threads=2", "--json"]))["workspace_bytes"]
    return f"{bytes_needed / 1024:.0f} KiB"


def differences():
    with tempfile.TemporaryDirectory() as folder:
        run = output(["build/release/attn", "run", "examples/data/animal_street.safetensors", "-o", f"{folder}/o.npz", "--weights", "--compare", "--json"])
    return ", ".join(f"{one['largest']:.1e}" for one in json.loads(run)["differences"])


def start_to_exit():
    times = []
    for _ in range(21):
        begin = time.perf_counter()
        output(["build/release/attn", "info"])
        times.append(time.perf_counter() - begin)
    return f"{1e3 * sorted(times)[10]:.1f} ms"


def whole_build():
    with tempfile.TemporaryDirectory() as folder:
        begin = time.perf_counter()
        output(["cmake", "--preset", "release", "-B", folder])
        subprocess.run(["cmake", "--build", folder, "--parallel", str(os.cpu_count())], cwd=TOP, stdout=subprocess.DEVNULL, check=True,
                       env=os.environ | {"CCACHE_DISABLE": "1"})
        return f"{(time.perf_counter() - begin) / 60:.1f} min"


FIGURES = [
    ("memory beside the tensors, 65,536 tokens of one head, D 64, f32, 2 threads (the scores would take 16 GiB)",
     "attn explain fwd:f32:sq65536:d64 --threads=2", memory),
    ("largest difference to a model's own output, and to its weights, 72 heads, f32", "script/demo", differences),
    ("`attn info` from start to exit, median of 21", "attn info", start_to_exit),
    ("the whole build", "script/build", whole_build),
]


def measure_figures(words):
    info = json.loads(output(["build/release/attn", "info", "--json"]))
    write_result(words, {"kind": "figures", "column": words.column, "cpu": words.cpu or info["cpu"], "machine": words.machine, "isa": info["isa"],
                         "threads": info["threads"], "versions": {"libattn": info["version"]} | ({"gcc": words.gcc} if words.gcc else {}),
                         "date": words.date, "rows": [{"words": what, "value": measure(), "command": command} for what, command, measure in FIGURES]})


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("write")
    verbs.add_parser("check")
    for verb, names in (("take", ("output", "input", "column")), ("figures", ("output", "column"))):
        one = verbs.add_parser(verb)
        for name in names:
            one.add_argument(name)
        for name, default in (("cpu", ""), ("machine", "?"), ("isa", "?"), ("date", datetime.date.today().isoformat()), ("gcc", ""), ("command", "?")):
            one.add_argument(f"--{name}", default=default)
    words = parser.parse_args()
    if words.verb in ("take", "figures"):
        return {"take": take, "figures": measure_figures}[words.verb](words)
    stale = [path for path, text in wanted().items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    if words.verb == "check":
        for path in stale:
            print(f"{path.relative_to(TOP)} is not what bench/results.py write makes of bench/results")
        return 1 if stale else 0
    for path in stale:
        path.parent.mkdir(exist_ok=True)
        path.write_text(wanted()[path], encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
