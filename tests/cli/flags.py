#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Every flag that the --help of a command lists has a use that the command accepts, and every word of problem strings a string that
attn explain accepts.

usage: flags.py ATTN
"""
import math
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import tensor_file
from tap import check, finish, run_in_folder

ATTN = sys.argv[1]
H, S, D = 2, 4, 8


def floats(*shape):
    return "F32", shape, [0.25 * ((7 * n) % 5) - 0.5 for n in range(math.prod(shape))]


def integers(*numbers):
    return "I64", [len(numbers)], numbers


def booleans(*shape):
    return "BOOL", shape, [True] * math.prod(shape)


def bytes_of(*shape):
    return "I8", shape, bytes(range(math.prod(shape)))


QKV = {"q": floats(H, S, D), "k": floats(H, S, D), "v": floats(H, S, D)}
BATCH = {name: floats(1, H, S, D) for name in "qkv"}
LINEAR = ["--linear", "--causal"]

# Flags over the tensors of a file: {flag: (its words, the tensors beside q, k and v)}.
TENSORS = {
    **{name: ([f"--{name}=t"], {"t": floats(H, S, D)}) for name in "qkv"},
    "query": (["--query=t"], {"t": floats(H, S, D)}), "key": (["--key=t"], {"t": floats(H, S, D)}), "value": (["--value=t"], {"t": floats(H, S, D)}),
    "mask": (["--mask=t"], {"t": booleans(S, S)}), "mask-drop": (["--mask-drop"], {"mask": ("I64", [S, S], [1 if j > i else 0 for i in range(S) for j in range(S)])}), "bias": (["--bias=t"], {"t": floats(S, S)}),
    "lengths-q": (["--lengths-q=t"], {**BATCH, "t": integers(3)}), "lengths-kv": (["--lengths-kv=t"], {**BATCH, "t": integers(3)}),
    "offset": (["--offset=t", "--causal"], {**BATCH, "t": integers(1)}), "slopes": (["--slopes=t"], {"t": floats(H)}),
    "bias-table": (["--bias-table=t", "--clipped=2"], {"t": floats(H, 5)}), "clipped": (["--clipped=2"], {"bias_table": floats(H, 5)}),
    "t5": (["--t5"], {"bias_table": floats(H, 32)}),
    "relative-keys": (["--relative-keys=t", "--rel=shaw/2"], {"t": floats(H, 5, D)}), "rel": (["--rel=shaw/2"], {"relative_keys": floats(H, 5, D)}),
    "relative-values": (["--relative-values=t", "--rel=shaw-values/2"], {"relative_keys": floats(H, 5, D), "t": floats(H, 5, D)}),
    "relative-u": (["--relative-u=t", "--rel=xl"], {"relative_keys": floats(H, 2 * S - 1, D), "t": floats(H, D), "relative_v": floats(H, D)}),
    "relative-v": (["--relative-v=t", "--rel=xl"], {"relative_keys": floats(H, 2 * S - 1, D), "t": floats(H, D), "relative_u": floats(H, D)}),
    "sink": (["--sink=t"], {"t": floats(H)}), "scale": (["--scale=t"], {"t": floats(H)}),
    "w": (["--w=t", "--score=general"], {"t": floats(D, D)}), "score": (["--score=cosine"], {}),
    "block-mask": (["--block-mask=t", "--block=2,2"], {"t": booleans(2, 2)}), "block": (["--block=2,2"], {"blocks": booleans(2, 2)}),
    "dropout-given": (["--dropout-given=t", "--dropout=0.5"], {"t": booleans(H, S, S)}), "dropout": (["--dropout=0.5"], {}),
    "cu-seqlens-q": (["--cu-seqlens-q=t"], {"t": integers(0, 1, S), "cu_seqlens_kv": integers(0, 1, S)}),
    "cu-seqlens-kv": (["--cu-seqlens-kv=t"], {"t": integers(0, 1, S), "cu_seqlens_q": integers(0, 1, S)}),
    "do": (["--do=t", "--backward"], {"t": floats(H, S, D)}), "dlse": (["--dlse=t", "--backward"], {"do": floats(H, S, D), "t": floats(H, S)}),
    **{f"tan-{x}": ([f"--tan-{x}=t", "--jvp"], {"t": floats(H, S, D)}) for x in "qkv"},
    "tan-bias": (["--tan-bias=t", "--jvp"], {"bias": floats(S, S), "t": floats(S, S)}),
    "positions-q": (["--positions-q=t", "--rope"], {"t": integers(4, 3, 2, 1)}), "positions-kv": (["--positions-kv=t", "--rope"], {"t": integers(4, 3, 2, 1)}),
    "k-scale": (["--k-scale=t"], {"k": bytes_of(H, S, D), "t": floats(H, S)}), "v-scale": (["--v-scale=t"], {"v": bytes_of(H, S, D), "t": floats(H, S)}),
    "ignore": (["--ignore=mask"], {"mask": booleans(S, S)}), "alibi": (["--alibi"], {}), "dtype": (["--dtype=f64"], {}),
    "tokens": (["--tokens=words.txt"], {}), "rope": (["--rope"], {}), "rope-pairs": (["--rope", "--rope-pairs=halves"], {}),
    "rope-channels": (["--rope", "--rope-channels=4"], {}), "rope-base": (["--rope", "--rope-base=100"], {}),
    "rope-scaling": (["--rope", "--rope-scaling=linear/4"], {}), "causal": (["--causal"], {}), "align": (["--window=1,0", "--align=bottom-right"], {}),
    "window": (["--window=1,0"], {}), "layout": (["--layout=bhsd"], {}), "softcap": (["--softcap=2"], {}), "temperature": (["--temperature=2"], {}),
    "chunk": (["--chunk=2"], {}), "empty": (["--empty=uniform"], {}), "normaliser": (["--normaliser=relu"], {}),
    "shift": (["--shift=1", "--normaliser=sigmoid"], {}), "sparse": (["--sparse=bigbird/1/1/1/0+prefix/2"], {}),
    # of run
    "backward": (["--backward"], {"do": floats(H, S, D)}), "jvp": (["--jvp"], {"tan_q": floats(H, S, D)}),
    "double-backward": (["--double-backward"], {"do": floats(H, S, D), "tan_q": floats(H, S, D)}), "linear": (["--linear"], {}), "linformer": (["--linformer"], {"projection": floats(S, 2)}),
    "state": ([*LINEAR, "--state"], {}), "compare": (["--compare"], {"o": floats(H, S, D)}), "scores": (["--scores"], {}),
    "column-queries": (["--column-sum", "--column-queries=2"], {}), "topk": (["--topk=2"], {}), "dropout-mask": (["--dropout-mask", "--dropout=0.5"], {}),
    "after-dropout": (["--weights", "--after-dropout", "--dropout=0.5"], {}), "phi": (["--phi=relu"], {}),
    "rule": ([*LINEAR, "--rule=delta"], {"beta": floats(H, S)}), "denominator": ([*LINEAR, "--denominator=add"], {}),
    "epsilon": ([*LINEAR, "--epsilon=0.5"], {}), "form": ([*LINEAR, "--form=recurrent"], {}),
    **{name: ([f"--{name}"], {}) for name in ("row-max", "entropy", "effective-keys", "column-sum", "lse", "weights", "states", "gradients")},
    # of top, view and analyze
    "layer": (["--layer=0"], {}), "head": (["--head=0"], {}), "entry": (["--entry=0"], {}), "queries": (["--queries=0-1"], {}), "token": ([], {}),
    "count": (["--count=1"], {}), "content": (["--content"], {}), "title": (["--title=T"], {}), "with": (["--with=in.safetensors"], {}),
    "live": (["--live"], {}), "export": (["--export=head.svg", "--layer=0", "--head=0"], {}), "sweep": (["--sweep=1,2"], {}),
    "steps": (["--steps=steps.npz"], {}), "roles": (["--roles"], {}),
    "rollout": (["--rollout=map.npz"], {}), "flow": (["--flow=map.npz"], {}), "gradient-weighted": (["--gradient-weighted=map.npz"], {"do": floats(H, S, D)}),
}
COMMON = {"output": [], "threads": ["--threads=1"], "isa": ["--isa=scalar"], "seed": ["--seed=1"], "json": ["--json"], "quiet": ["--quiet"],
          "help": ["--help"], "invariant": ["--invariant"], "reproducible": ["--reproducible"]}

E = H * D
LAYER = {"x": floats(1, S, E), **{name: floats(E, E) for name in ("wq", "wk", "wv", "wo")}}
MODULE = {"x": floats(1, S, D), "context": floats(1, S, D)}
GGUF = {**{f"blk.0.attn_{n}.weight": floats(E, E) for n in ("q", "k", "v", "output")}, "blk.0.attn_norm.weight": floats(E)}
# Flags of layer that are not among the above, or take other words.
LAYERS = {
    "kind": (["--kind=multi-head"], {}), "heads": ([], {}), "heads-kv": (["--heads-kv=2"], {}), "head-dim": ([f"--head-dim={D}"], {}),
    "head-dim-v": ([f"--head-dim-v={D}"], {}), "weights-file": (["--weights-file=weights.safetensors"], {"wq": None}), "prefix": (["--prefix="], {}),
    "layer": (["--layer=0"], {"wq": None, **{f"layers.0.self_attn.{n}_proj.weight": floats(E, E) for n in "qkvo"}}), "names": (["--names=names.txt"], {}), "config": (["--config=config.json"], {}),
    "plain": (["--plain"], {}), "no-output": (["--no-output"], {}), "tokens": (["--tokens=0,1"], {"x": None, "wte.weight": floats(2, E)}),
    "norm-epsilon": (["--norm", "--norm-epsilon=0.5"], {"wq": None, **GGUF}), "norm": (["--norm"], {"wq": None, **GGUF}),
    "rope-channels": (["--rope", "--rope-channels=2"], {}), "after-dropout": (["--weights", "--after-dropout", "--dropout=0.5"], {}),
    "weights-mean": (["--weights-mean"], {}), "qkv": (["--qkv"], {}), "backward": (["--backward"], {"dy": floats(1, S, E)}), "decode": (["--decode", "--causal"], {}),
    "page-size": (["--decode", "--page-size=2", "--causal"], {}), "compare": (["--compare"], {"y": floats(1, S, E)}),
}
# The other commands: all words of a call.
CALLS = {
    "plot": {"output": [], "title": ["--title=T"], "layer": ["--layer=0"], "head": ["--head=0"], "entry": ["--entry=0"], "query": ["--query=1"],
             "tensor": ["--tensor=weights"], "high": ["--high=max"]},
    "mask": {"queries": [], "keys": ["-m", "4"], "text": ["--text"], "png": ["--png=mask.png"], "output": ["-o", "mask.npz"], "map": ["map/2/2", "--map=map.safetensors"],
             "tile-q": ["--tile-q=2"], "tile-kv": ["--tile-kv=2"]},
    "hopfield": {"output": ["-o", "found.npz"], "beta": ["--beta=2"], "noise": ["--noise=0.5"], "iterations": ["--iterations=2"], "tolerance": ["--tolerance=1"],
                 "classical": ["--classical=asynchronous"], "basin": ["--basin=3"], "landscape": ["--landscape=1", "-o", "found.npz"],
                 "backward": ["-o", "found.npz", "--backward"]},
    "train": {"output": ["-o", "trained.npz"], "steps": [], "resume": ["--steps=2", "--resume=one.npz"], "save-every": ["-o", "saved.npz", "--save-every=1"]},
    "position": {"output": ["slopes", "--heads=2", "-o", "slopes.npz"], "tokens": [], "channels": [], "heads": ["slopes", "--heads=2"], "base": ["--base=100"],
                 "keys": ["buckets", "-n", "2", "--t5", "--keys=3"], "offset": ["buckets", "-n", "2", "--t5", "--offset=3"], "pairs": ["--pairs=halves"],
                 "scaling": ["frequencies", "--channels=4", "--scaling=linear/2"], "t5": ["buckets", "-n", "2", "--t5"],
                 "clipped": ["buckets", "-n", "2", "--clipped=2"], "dtype": ["--dtype=f64"], "backward": ["rotate", "turned.safetensors", "--backward"]},
    "metric": {"output": ["-o", "form.npz"], "scaled": ["turned.safetensors", "--scaled=2"], "inner": ["turned.safetensors", "--inner=scaled"],
               "tolerance": ["--tolerance=1"], "inverse": ["--inverse"], "backward": ["--backward"]},
    "cost": {"fast": ["--fast=4096"], "features": ["--features=4"], "peak": ["--peak=2", "--bandwidth=3"], "bandwidth": ["--peak=2", "--bandwidth=3"],
             "width": ["--width=9"], "rank": ["--rank=4"], "rotary": ["--rank=4", "--rotary=2"]},
    "merge": {"output": [], "backward": ["--backward"]},
    "einsum": {"sizes": ["--sizes=i=2,j=3,k=4"], "tensors": ["square.safetensors", "--tensors=a,a"], "output": ["square.safetensors", "--tensors=a,a", "-o", "product.npy"],
               "backward": ["square.safetensors", "--tensors=a,a", "--backward"]},
    "check": {},
    "bench": {"seconds": [], "problems": ["--problems=problems.txt"], "clock": ["--clock=cpu", "--threads=1"], "csv": ["--csv=out.csv"], "samples": ["--samples", "--json"],
              "list": ["--list"], "iterations": ["-i", "2"], "warmup": ["-w", "3", "-i", "2"], "baseline": ["--baseline=1"], "batch-sizes": ["flash", "-b", "2", "-s", "8"],
              "seq-lengths": ["flash", "-s", "8,9"], "embed-dim": ["flash", "-s", "8", "-e", "24"], "num-heads": ["flash", "-s", "8", "-n", "2"], "causal": ["flash", "-s", "8", "--causal"]},
    "show": {"diff": ["--diff=weights.safetensors"], "all": ["x", "--all"], "csv": ["--csv"]},
    "make": {"output": [], "only": ["--only=q"], "tokens": ["--tokens=words.txt"]},
    "info": {}, "explain": {"ranks": ["--ranks=4"], "network": ["--ranks=4", "--network=10Gbit/s"], "latency": ["--ranks=4", "--latency=2"], "flops": ["--ranks=4", "--flops=1"], "any-order": ["--ranks=4", "--any-order"],
                            "part": ["--ranks=4", "--part=2"], "layout": ["--ranks=4", "--layout=striped"], "way": ["--ranks=4", "--way=ring"],
                            "ranks-heads": ["--ranks=4", "--ranks-heads=2"]},
}
OPERANDS = {
    "make": ["fwd:f32:sq4:d8", "-o", "made.npz"],
    "show": ["weights.safetensors"],
    "plot": ["weights", "weights.safetensors", "-o", "out.svg"],
    "mask": ["causal", "-n", "4"],
    "hopfield": ["patterns.safetensors"],
    "train": ["seq2seq", "--steps=1"],
    "einsum": ["matrix_multiply"],
    "position": ["sinusoidal", "--tokens=3", "--channels=4"],
    "metric": ["form.safetensors"],
    "merge": ["part.safetensors", "-o", "merged.npz"],
    "cost": ["fwd:f32:sq4:d8"],
    "check": ["fwd:f32:sq4:d8"],
    "bench": ["fwd:f32:sq4:d8", "--seconds=0.001"],
    "info": [],
    "explain": ["fwd:f32:sq4:d8"],
}
INPUTS = {"run": ["-o", "out.safetensors"], "top": ["--token=#1"], "view": ["-o", "out.html"], "analyze": [],
          "layer": ["-o", "out.safetensors", f"--heads={H}"]}
# Flags of a command that need other words than the table's.
OWN = {("analyze", flag): [*TENSORS[flag][0], "--steps=steps.npz"] for flag in ("value", "relative-values", "v-scale")}
OWN["analyze", "dropout-given"] = ["--dropout-given=t", "--steps=steps.npz"]
OWN["analyze", "content"] = ["--roles", "--content"]
OWN.update({(command, flag): words for command in ("position", "metric") for flag, words in CALLS[command].items() if words and not words[0].startswith("-")})
OWN["plot", "query"] = ["compare", "weights.safetensors", "weights.safetensors", "-o", "out.svg", "--query=1"]
ELSEWHERE = {("check", "conformance"), ("check", "thorough"), ("check", "quick"), ("check", "part")}  # each takes long; tests/check uses them

# Words of problem strings that take a value or need others beside them.
SIZES = {"b": "b2", "hq": "hq4", "hkv": "hq4:hkv2", "sq": "", "skv": "skv9", "d": "", "dv": "dv3", "op": "bwd", "dtype": "bf16"}
WORDS = {
    "align": "window=1,0:align=bottom-right", "offset": "causal:offset=1", "window": "window=1,0", "mask": "mask=0.5", "scale": "scale=2",
    "layout": "layout=bshd", "softcap": "softcap=2", "temperature": "temperature=2", "dropout": "dropout=0.5", "chunk": "chunk=2", "block": "block=2,2/0.5",
    "empty": "empty=uniform", "dlse": "bwd:dlse", "dslopes": "bwd:alibi:dslopes", "dsink": "bwd:sink:dsink", "dscale": "bwd:scale=heads:dscale",
    "dbias": "bwd:bias:dbias", "score": "score=cosine", "w": "score=additive/8:w=bias", "normaliser": "normaliser=relu", "shift": "normaliser=sigmoid:shift=1",
    "rel": "rel=shaw/2", "drel": "bwd:rel=shaw/2:drel", "clipped": "clipped=2", "shared": "clipped=2:shared", "dtable": "bwd:t5:dtable",
    "sparse": "sparse=documents/1/3+strided/2", "phi": "linear:phi=relu", "decay": "linear:causal:decay=head", "rule": "linear:causal:rule=delta",
    "denominator": "linear:denominator=add", "epsilon": "linear:epsilon=0.5", "form": "linear:causal:form=recurrent", "seed": "seed=1",
    "ktype": "ktype=f16:vtype=i8", "vtype": "vtype=f8_e4m3", "spread": "lens:spread=log", "page": "page=4", "prefix": "b2:skv9:page=4:prefix=8", "tree": "tree=3", "steps": "decode:skv16:steps=2",
}


def attn(*words):
    return subprocess.run([ATTN, *words], capture_output=True, text=True, stdin=subprocess.DEVNULL)


def use(command, flag):
    """The words of a call with the flag; writes its input."""
    if flag == "list":
        return ["--list"]
    if command in OPERANDS:
        if (command, flag) in OWN:
            return OWN[command, flag]
        return OPERANDS[command] + {**COMMON, **CALLS[command]}[flag]
    table = {**TENSORS, **LAYERS} if command == "layer" else TENSORS
    words, more = (COMMON[flag], {}) if flag in COMMON else table[flag]
    words = OWN.get((command, flag), words)
    given = {**(LAYER if command == "layer" else QKV), **more}
    tensor_file.write("in.safetensors", {name: tensor for name, tensor in given.items() if tensor})
    return ["in.safetensors", *INPUTS[command], *words]


def main():
    tensor_file.write("weights.safetensors", {**LAYER, "weights": floats(H, S, S)[:2] + ([0.25] * (H * S * S),)})
    tensor_file.write("patterns.safetensors", {"patterns": floats(3, 4), "dupdated": floats(3, 4)})
    tensor_file.write("map.safetensors", {"map": booleans(2, 2)})
    tensor_file.write("square.safetensors", {"a": floats(2, 2), "do": floats(2, 2)})
    tensor_file.write("turned.safetensors", {"dy": floats(2, 4), "u": floats(2, 4), "v": floats(2, 4)})
    tensor_file.write("part.safetensors", {"o": floats(2, 4), "lse": floats(2), "do": floats(2, 4)})
    tensor_file.write("form.safetensors", {"diagonal": ("F32", [2], [1.0, 2.0]), "v": floats(2, 2), "dlowered": floats(2, 2)})
    attn("train", "seq2seq", "--steps=1", "-o", "one.npz")
    with open("words.txt", "w") as file:
        file.write("a\nb\nc\nd\n")
    with open("names.txt", "w") as file:
        file.write("wq = wq\nwk = wk\nwv = wv\nwo = wo\n")
    with open("config.json", "w") as file:
        file.write('{"num_attention_heads": %d}' % H)
    with open("problems.txt", "w") as file:
        file.write("fwd:f32:sq5:d8\n")
    missing = set(re.findall(r"^  attn ([a-z]+) ", attn("--help").stdout, re.M)) - {*INPUTS, *OPERANDS}
    check("each command has a call in this test: CALLS and OPERANDS, or INPUTS", not missing, missing)
    for command in (*INPUTS, *OPERANDS):
        asked = attn(command, "--help")
        if asked.returncode:  # a build without layers
            continue
        help_text = asked.stdout.split("\nExample")[0]
        for flag in re.findall(r"^ +(?:-\w, )?--([a-z0-9-]+)", help_text, re.M):
            if (command, flag) in ELSEWHERE:
                continue
            try:
                words = use(command, flag)
            except KeyError:
                check(f"{command} --{flag} has a use in this test", False)
                continue
            done = attn(command, *words)
            lacks = done.returncode == 3 and "built without WebAssembly" in done.stderr
            check(f"{command} {' '.join(words)}", done.returncode == 0 or lacks, done.stderr.strip())
    listed = re.findall(r"^  ([a-z0-9]+?)(?:N|=\S+|\[\S+)? ", attn("explain", "--help").stdout.split("\nWords")[1], re.M)
    check("words are listed", len(listed) > 50, listed)
    for word in listed:
        problem = ":".join(filter(None, ("sq8:d8", SIZES.get(word, WORDS.get(word, word)))))
        done = attn("explain", problem)
        check(f"explain {problem}", done.returncode == 0, done.stderr.strip())
    return finish()


run_in_folder(main)
