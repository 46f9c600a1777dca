#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Every command when the n-th call of some kind fails (nth_call.c): it gives the right result, or fails with a message, keeps the old
output file and leaves no other file behind.

    command.py ATTN LIBRARY MAKE_TENSORS [--all] [--kinds=KIND,...] [COMMAND...]

A COMMAND is a name of COMMANDS below.  Without --all (or ATTN_FAULT_ALL=1 in the environment) only some calls of each kind fail: the first, the last and
some between."""
import concurrent.futures
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile

FLAGS = [word for word in sys.argv[1:] if word.startswith("--")]
ALL = "--all" in FLAGS or bool(os.environ.get("ATTN_FAULT_ALL"))
KINDS = next((word.partition("=")[2].split(",") for word in FLAGS if word.startswith("--kinds=")), None)
ATTN, LIBRARY, MAKE, *ONLY = (word for word in sys.argv[1:] if word not in FLAGS)
ATTN, LIBRARY, MAKE = map(os.path.abspath, (ATTN, LIBRARY, MAKE))
POINTS = 7

TOKENS = json.dumps(["the", "animal", "was", "tired", "."])
MANY = json.dumps([f"word {n}" for n in range(60)])
HEAD = [f"{name}:f32:2x5x4" for name in ("q", "k", "v", "do")]
INPUTS = {
    "in.safetensors": [*HEAD, f"tokens={TOKENS}", "layers=[7]"],
    "in.npz": [*HEAD, f"tokens={TOKENS}"],
    "wide.safetensors": ["q:f32:1x60x4", "k:f32:1x60x4", "v:f32:1x60x4", f"tokens={MANY}"],
    "linear.safetensors": ["q:f32:2x5x4", "k:f32:2x5x4", "v:f32:2x5x4"],
    "weights.safetensors": ["weights:f32:2x40x40:0.025", "layers=[3]"],
    "layer.safetensors": ["x:f32:1x5x8", *(f"{name}_proj.weight:f32:8x8" for name in ("q", "k", "v", "out"))],
    "patterns.safetensors": ["patterns:f32:3x6"],
    "part.safetensors": ["o:f32:2x5x4", "lse:f32:2x5"],
    "two.safetensors": ["q:f32:3x4", "k:f32:5x4", "w:f32:2x4", "x:f32:3x4", "v:f32:5x4", "projection:f32:5x2"],
}
TEXTS = {"in.json": '{"q": [[1, 2], [3, 4]], "k": [[1, 0], [0, 1]], "v": [[1], [2]], "tokens": ["a", "b"]}', "tokens.txt": "the\nanimal\nwas\ntired\n.\n",
         "problems.txt": "fwd:f32:sq8:d4\n", "book.txt": "the cat sat on the mat. " * 40}

# name: (arguments, the input file that faults modify)
COMMANDS = {
    "run": (["run", "in.safetensors", "-o", "out.safetensors", "--weights", "--lse", "--backward", "--json"], "in.safetensors"),
    "make": (["make", "bwd:f32:hq2:sq5:d4:bias", "-o", "out.safetensors", "--tokens=tokens.txt", "--json"], None),
    "show": (["show", "in.safetensors", "q[0]", "--json"], "in.safetensors"),
    "show differences": (["show", "in.safetensors", "--diff=in.npz", "--json"], "in.safetensors"),
    "run text": (["run", "in.json", "-o", "out.safetensors", "--mask=1 0; 1 1", "--json"], "in.json"),
    "run npz": (["run", "in.npz", "-o", "out.npz", "--causal", "-q"], "in.npz"),
    "run linear": (["run", "linear.safetensors", "-o", "out.safetensors", "--linear", "--json"], "linear.safetensors"),
    "top": (["top", "wide.safetensors", "--token", "word 5"], "wide.safetensors"),
    "top tokens": (["top", "in.safetensors", "--token", "it", "--tokens", "tokens.txt", "--token", "was", "--json"], "in.safetensors"),
    "view": (["view", "wide.safetensors", "-o", "out.html", "--json"], "wide.safetensors"),
    "view with": (["view", "in.safetensors", "--with=in.safetensors", "-o", "out.html"], "in.safetensors"),
    "view picture": (["view", "wide.safetensors", "--export=out.svg", "--head=0"], "wide.safetensors"),
    "plot": (["plot", "weights", "weights.safetensors", "-o", "out.svg", "--json"], "weights.safetensors"),
    "plot mask": (["plot", "mask", "mask.safetensors", "-o", "out.html"], "mask.safetensors"),
    "mask": (["mask", "longformer/4/2", "causal", "-n", "40", "-o", "out.safetensors", "--json"], None),
    "mask picture": (["mask", "causal", "-n", "40", "--png", "out.png"], None),
    "layer": (["layer", "layer.safetensors", "-o", "out.safetensors", "--heads=2", "--json"], "layer.safetensors"),
    "analyze": (["analyze", "in.safetensors", "--json"], "in.safetensors"),
    "analyze steps": (["analyze", "in.safetensors", "--steps=out.safetensors", "--json"], "in.safetensors"),
    "check": (["check", "fwd:f32:sq5:d4", "linear:f32:sq5:d4:causal", "--json"], None),
    "bench": (["bench", "--problems=problems.txt", "--seconds=0.001", "--threads=1", "--csv=out.csv", "--quiet"], None),
    "hopfield": (["hopfield", "patterns.safetensors", "-o", "out.safetensors", "--json"], "patterns.safetensors"),
    "einsum": (["einsum", "bhqd,bhkd->bhqk"], None),
    "hopfield classical": (["hopfield", "patterns.safetensors", "--classical", "--json"], "patterns.safetensors"),
    "einsum files": (["einsum", "ia,ja->ij", "two.safetensors", "--tensors=q,k", "-o", "out.npy", "--json"], "two.safetensors"),
    "linformer": (["run", "two.safetensors", "-o", "out.safetensors", "--linformer", "--json"], "two.safetensors"),
    "merge": (["merge", "part.safetensors", "part.safetensors", "-o", "out.safetensors", "--json"], "part.safetensors"),
    "metric": (["metric", "two.safetensors", "-o", "out.safetensors", "--json"], "two.safetensors"),
    "position": (["position", "rotate", "two.safetensors", "-o", "out.safetensors", "--json"], "two.safetensors"),
    "cost": (["cost", "fwd:f32:sq64:d64", "--json"], None),
    "train": (["train", "text", "book.txt", "--steps=1", "-o", "out.safetensors", "--json"], "book.txt"),
    "info": (["info"], None),
    "explain": (["explain", "fwd:f32:sq64:d64", "--json"], None),
}
OLD = b"what was there before"
count = faults = 0


def outcome(good, name, why=""):
    global count, faults
    count, faults = count + 1, faults + (not good)
    if not good:
        print(f"not ok - {name}: {why}", flush=True)


def without_times(text):
    """Removes measured times, which differ from run to run."""
    return re.sub(rb'("seconds":\s*)[-+.e0-9]+', rb"\1", text)


def folder_with_inputs():
    folder = tempfile.mkdtemp(prefix="attn-fault-")
    for name, words in INPUTS.items():
        subprocess.run([MAKE, name, *words], cwd=folder, check=True)
    for name, text in TEXTS.items():
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            file.write(text)
    subprocess.run([ATTN, "mask", "causal", "-n", "20", "-o", "mask.safetensors"], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    return folder


def content(folder):
    found = {}
    for name in os.listdir(folder):
        with open(os.path.join(folder, name), "rb") as file:
            found[name] = file.read()
    return found


def output_of(words):
    return next((word.rpartition("=")[2] for word in words if re.fullmatch(r"(--\w+=)?out\.\w+", word)), None)


class Bench:
    """One command; each run has a folder of its own."""

    def __init__(self, name, original):
        self.name, (self.words, self.input) = name, COMMANDS[name]
        self.output, self.original = output_of(self.words), original

    def run(self, fault, threads=1):
        folder = tempfile.mkdtemp(prefix="attn-fault-")
        try:
            return self.run_in(folder, fault, threads)
        finally:
            shutil.rmtree(folder)

    def run_in(self, folder, fault, threads):
        for name, data in self.original.items():
            with open(os.path.join(folder, name), "wb") as file:
                file.write(data)
        if self.output:
            with open(os.path.join(folder, self.output), "wb") as file:
                file.write(OLD)
        if self.input and "replace" in fault:
            shutil.copy(os.path.join(folder, self.input), os.path.join(folder, self.input + ".new"))
        counts = folder + ".count"
        environment = {**os.environ, "LD_PRELOAD": LIBRARY, "FAULT": fault, "FAULT_COUNT": counts, "FAULT_FILE": self.input or "",
                       "OMP_NUM_THREADS": str(threads), "OPENBLAS_NUM_THREADS": "1", "TZ": "UTC0"}
        p = subprocess.run([ATTN, *self.words], cwd=folder, env=environment, capture_output=True, timeout=60, check=False)
        calls = {}
        if os.path.exists(counts):
            with open(counts, encoding="utf-8") as file:
                calls = {kind: int(number) for kind, number in (line.split() for line in file)}
            os.unlink(counts)
        return p, content(folder), calls

    def judge(self, fault, good, p, now):
        """None, or (name, what is wrong).  good: the result of the run without a fault."""
        before = {**self.original, **({self.output: OLD} if self.output else {})}
        written = now.get(self.output) if self.output else None
        whole = good[1].get(self.output) if self.output else None
        if self.name == "bench" and written and written.startswith(b"problem,") and written.count(b"\n") == 2 and written.endswith(b"\n"):
            whole = written
        rest = {name for name in now if name != self.output} - set(before) - {f"{self.input}.new"}
        printed, name = p.stderr.decode("utf-8", "replace").strip(), f"{self.name}, {fault}"
        if rest:
            return name, f"left behind: {rest}"
        if p.returncode == 0:
            if written != whole:
                return name, "the file is not the right one"
            if self.name != "bench" and without_times(p.stdout) != without_times(good[0].stdout):
                return name, f"printed {p.stdout[:200]!r}"
            return None
        if p.returncode < 0 and f":{-p.returncode}" in fault:
            return None if written in (before.get(self.output), whole) else (name, "a signal left half a file")
        if p.returncode == 1 and printed.startswith("libgomp: "): # libgomp ends the process itself without memory or threads
            return (name, "libgomp, and the file was touched") if self.output and written != before.get(self.output) else None
        if p.returncode not in (2, 3):
            return name, f"exit status {p.returncode}: {printed[-200:]}"
        if not re.match(r"attn\b.*: ", printed.split("\n")[-1]):
            return name, f"no sentence: {printed[-200:]!r}"
        if self.output and written != before.get(self.output):
            return name, f"rejected, and the file was touched: {printed[-200:]}"
        return None


def chosen(total):
    """The call numbers at which to inject a fault."""
    if ALL or total <= POINTS:
        return range(1, total + 1)
    return sorted({1, 2, total, *(1 + (total - 1) * n // (POINTS - 3) for n in range(POINTS - 3))})


def faults_of(bench, calls):
    for kind, total in calls.items():
        for number in chosen(total) if not KINDS or kind in KINDS else ():
            yield f"{kind}:{number}"
            if kind in ("malloc", "write") and (ALL or number % 2):
                yield f"{kind}:{number}:ever"
            if kind == "write":
                yield f"{kind}:{number}:short"
            if bench.input and kind in ("open", "read", "map", "stream"):
                yield from (f"{kind}:{number}:{how}" for how in ("shrink", "grow", "replace"))
            if bench.output and kind in ("open", "write", "fsync", "rename"):
                yield f"{kind}:{number}:{int(signal.SIGTERM)}"
                yield f"{kind}:{number}:{int(signal.SIGINT)}:after"
    if bench.output and calls["fsync"] and (not KINDS or "fsync" in KINDS):
        for number in (signal.SIGHUP, signal.SIGQUIT, signal.SIGXFSZ, signal.SIGXCPU, signal.SIGUSR1, signal.SIGSEGV, signal.SIGPIPE):
            yield f"fsync:1:{int(number)}"


def main():
    known = re.findall(r"^  attn (\w+)", subprocess.run([ATTN, "--help"], capture_output=True, text=True, check=True).stdout, re.M)
    for name in sorted(set(known) - {arguments[0] for arguments, _ in COMMANDS.values()}):
        outcome(False, f"attn {name}", "it has no faults: add it to COMMANDS in tests/fault/command.py")
    folder = folder_with_inputs()
    original = content(folder)
    shutil.rmtree(folder)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for name in ONLY or COMMANDS:
            bench = Bench(name, original)
            good = bench.run("")
            outcome(good[0].returncode == 0, name, good[0].stderr.decode())
            runs = {fault: pool.submit(bench.run, fault) for fault in faults_of(bench, good[2])}
            if not KINDS or "thread" in KINDS:
                threads = bench.run("", 2)[2]["thread"]
                runs |= {f"thread:{n}": pool.submit(bench.run, f"thread:{n}", 2) for n in chosen(threads)}
            for fault, future in runs.items():
                wrong = bench.judge(fault, good, *future.result()[:2])
                outcome(not wrong, *(wrong or ("",)))
    print(f"{count} tried, {faults} wrong")
    return faults > 0


sys.exit(main())
