#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The examples of each --help, and the commands of README.md, run as they are written, on files that have what they name.

usage: examples.py ATTN ROOT
"""
import os
import pathlib
import re
import shutil
import struct
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import gguf_file
import tensor_file
from tap import check, finish, run_in_folder

ATTN, ROOT = os.path.abspath(sys.argv[1]), pathlib.Path(sys.argv[2]).resolve()
DATA = ROOT / "examples/data"


def floats(*shape):
    count = 1
    for size in shape:
        count *= size
    return "F32", shape, [0.25 * ((7 * n) % 5) - 0.5 for n in range(count)]


def write_npy(path, kind, shape, raw):
    header = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape!r}, }}".encode()
    header += b" " * (-(len(header) + 11) % 64) + b"\n"
    pathlib.Path(path).write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + raw)


def make_files(command):
    """The input of one command's examples; layer.safetensors and x.safetensors are layers with weights for `attn layer`."""
    tensors, metadata = tensor_file.read(DATA / "animal_street.safetensors")
    for name in ("IN", "sentence", "layer"):
        tensor_file.write(f"{name}.safetensors", {**tensors, "do": tensors["o"]}, **metadata)
    for name, pair in (("tired", "animal_street"), ("flooded", "animal_street_flooded")):
        shutil.copy(DATA / f"{pair}.safetensors", f"{name}.safetensors")
    for name in "qkv":
        write_npy(f"{name}.npy", "<f4", (2, 300, 8), struct.pack("<4800f", *floats(4800)[2]))
    for name in "ab":
        write_npy(f"{name}.npy", "<f4", (4, 4), struct.pack("<16f", *floats(16)[2]))
    for name in ("left", "right"):
        tensor_file.write(f"{name}.safetensors", {"o": floats(2, 4), "lse": floats(2)})
    tensor_file.write("signs.safetensors", {"patterns": ("F32", (2, 4), [1.0, -1.0, 1.0, 1.0, -1.0, 1.0, 1.0, -1.0])})
    vectors = {"u": floats(3, 2), "v": floats(3, 2)}
    tensor_file.write("pairs.npz", vectors)
    for name in ("metric", "vectors"):
        tensor_file.write(f"{name}.safetensors", {"g": ("F32", (2, 2), [2.0, 1.0, 1.0, 2.0]), "dform": floats(3), **vectors})
    pathlib.Path("book.txt").write_text("the cat sat on the mat. " * 40, encoding="utf-8")
    write_npy("blocks.npy", "|b1", (16, 16), bytes([1, 0]) * 128)
    for name in ("patterns", "memory"):
        shutil.copy(DATA / "drawn_patterns.safetensors", f"{name}.safetensors")
    shutil.copy(DATA / "animal_street_layer2.safetensors", "x.safetensors")
    if command == "layer":
        shutil.move("x.safetensors", "layer.safetensors")
        tensor_file.write("x.safetensors", {"x": floats(5, 64)})
        rows = {"q": 64, "k": 16, "v": 16, "o": 64}
        pathlib.Path("config.json").write_text('{"num_attention_heads": 8, "rope_theta": 10000.0}', encoding="utf-8")
        weights = {f"blk.3.attn_{name}.weight": floats(rows[name[0]], 64) for name in ("q", "k", "v", "output")}
        gguf_file.write("model.gguf", {**weights, "token_embd.weight": floats(3, 64)},
                        {"general.architecture": "llama", "llama.attention.head_count": 8, "tokenizer.ggml.tokens": ["the", "cat", "sat"]})
        tensor_file.write("model.safetensors", {f"layers.3.self_attn.{name}_proj.weight": floats(rows[name], 64) for name in rows})


def examples():
    """(command, lines): those of each --help, a line that ends in a backslash joined with the next, and those of README.md."""
    for command in re.findall(r"^  attn ([a-z]+) ", subprocess.run([ATTN, "--help"], capture_output=True, text=True, check=True).stdout, re.M):
        text = subprocess.run([ATTN, command, "--help"], capture_output=True, text=True, check=True).stdout
        block = re.search(r"^Examples?: ?(.*?)(?=^\S|\Z)", text.replace("\\\n", " "), re.M | re.S)
        if block:
            yield command, re.findall(r"^ *(attn .*)$", block[1], re.M)
    yield "README.md", re.findall(r"^    ((?:attn|cp) .*)$", (ROOT / "README.md").read_text(encoding="utf-8"), re.M)


def main():
    pathlib.Path("bin").mkdir()
    pathlib.Path("bin/attn").symlink_to(ATTN)
    pathlib.Path("examples").symlink_to(ROOT / "examples")
    around = dict(os.environ, PATH=f"{os.getcwd()}/bin:{os.environ['PATH']}")
    count = 0
    for command, lines in examples():
        make_files(command)
        for line in lines:
            if re.match(r"attn check( |$)(?!fwd)", line):  # minutes; tests/check runs it
                continue
            count += 1
            quick = re.sub(r"^attn bench ", "attn bench --seconds=0.01 ", line)
            quick = re.sub(r"^(attn train .*)--steps=\d+", r"\1--steps=2", quick)
            quick = re.sub(r"^attn train (?!.*--steps)", "attn train --steps=4 ", quick)
            done = subprocess.run(["bash", "-c", quick], env=around, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
            lacks = done.returncode == 3 and "built without WebAssembly" in done.stderr
            check(f"{command}: {line}", done.returncode == 0 or lacks, done.stderr.strip())
    check("there are examples", count > 30, count)
    return finish()


if __name__ == "__main__":
    run_in_folder(main)
