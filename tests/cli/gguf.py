#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Commands take a .gguf file where they take a .safetensors file, and say the same; they do not write one.

usage: gguf.py ATTN
"""
import math
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import gguf_file
import tensor_file
from tap import check, finish, run_in_folder

ATTN = os.path.abspath(sys.argv[1])
WORDS = ["the", "animal", "it", "was"]

COMMANDS = [
    "run FILE -o OUT --causal --weights",
    "top FILE --token it",
    "analyze FILE",
    "view FILE -o OUT.html",
    "hopfield FILE --json",
    "layer FILE -o OUT --heads=2",
    "plot heads FILE -o OUT.svg",
]


def attn(line, name):
    """What a command on model.NAME prints and writes, without the name."""
    output = f"out.{line.split()[0]}"
    words = [word.replace("FILE", f"model.{name}").replace("OUT", output) for word in line.split()]
    words = [word + ".safetensors" if word == output else word for word in words]
    done = subprocess.run([ATTN, *words], capture_output=True, text=True, check=False)
    written = [open(word, "rb").read().replace(name.encode(), b"") for word in words if word.startswith("out.") and os.path.exists(word)]
    return done.returncode, (done.stdout + done.stderr).replace(name, ""), written


def test():
    wave = lambda count, step: [((step * n) % 17 - 8) / 8 for n in range(count)]
    shapes = {"weights": (2, 4, 4), "q": (2, 4, 8), "k": (2, 4, 8), "v": (2, 4, 8), "patterns": (5, 8), "states": (3, 8), "x": (4, 32),
              "wq": (32, 32), "wk": (32, 32), "wv": (32, 32), "wo": (32, 32)}
    numbers = {name: wave(math.prod(shape), 3 + n) for n, (name, shape) in enumerate(shapes.items())}
    numbers["weights"] = [0.25] * 32
    kinds = {"k": "F16", "wq": "Q8_0", "wv": "Q4_1"}
    metadata = {"note": "as it is", "layers": 30, "epsilon": 1e-5}
    read = gguf_file.write("model.gguf", {name: (kinds.get(name, "F32"), shapes[name], numbers[name]) for name in shapes},
                           {"tokens": WORDS, **metadata})
    tensor_file.write("model.safetensors", {name: ("F16" if name == "k" else "F32", shapes[name], read[name]) for name in shapes},
                      tokens='["the","animal","it","was"]', note="as it is", layers="30", epsilon="1e-05")
    for line in COMMANDS:
        left, right = attn(line, "gguf"), attn(line, "safetensors")
        check(f"attn {line}", left[0] == 0 and left == right, f"{left[:2]} and {right[:2]}")
    _, kept = tensor_file.read("out.run.safetensors")
    check("its metadata is that of the output", kept["layers"] == "30" and kept["epsilon"] == "1e-05", str(kept))
    code, said, _ = attn("run FILE -o OUT.gguf", "gguf")
    check("no command writes one", code == 2 and "ends in .safetensors" in said, said)
    with open("model.gguf", "rb") as file:
        whole = file.read()
    with open("model.gguf", "wb") as file:
        file.write(whole[:-40])
    code, said, _ = attn("run FILE -o OUT", "gguf")
    check("a file that is cut off is rejected", code == 2 and "reach past the" in said, said)
    return finish()


run_in_folder(test)
