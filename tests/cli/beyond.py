#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""attn run --jvp and --double-backward against finite differences of attn run; dropout masks written and read.

usage: beyond.py ATTN
"""
import math
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import tensor_file

ATTN = sys.argv[1]
B, H, HKV, SQ, SKV, D, DV = 2, 4, 2, 5, 7, 3, 4
SHAPES = {
    "q": [B, H, SQ, D], "k": [B, HKV, SKV, D], "v": [B, HKV, SKV, DV], "bias": [1, H, SQ, SKV], "do": [B, H, SQ, DV],
    "dlse": [B, H, SQ], "dropout_keep": [B, 1, SQ, SKV],
}
STEP = 1e-5


def draw(name, seed):
    return [math.sin(seed + 1.3 * n) for n in range(math.prod(SHAPES[name]))]


def run(folder, tensors, *options, mechanism=("--softcap=2", "--causal=bottom-right")):
    path, out = os.path.join(folder, "in.safetensors"), os.path.join(folder, "out.safetensors")
    tensor_file.write(path, {name: t if isinstance(t, tuple) else ("F64", SHAPES[name.removeprefix("tan_")], t) for name, t in tensors.items()})
    subprocess.run([ATTN, "run", path, "-o", out, "--quiet", *mechanism, *options], check=True)
    return {name: (shape, list(numbers)) for name, (_, shape, numbers) in tensor_file.read(out)[0].items()}


def moved(tensors, tangents, step):
    return {name: [x + step * y for x, y in zip(values, tangents[name])] if name in tangents else values
            for name, values in tensors.items()}


def close(name, got, expected):
    for n, (a, b) in enumerate(zip(got, expected, strict=True)):
        if not abs(a - b) <= 1e-7 * (1 + abs(b)):
            sys.exit("FAILED: %s[%d] = %.12g, by differences %.12g" % (name, n, a, b))


def difference(above, below):
    return [(a - b) / (2 * STEP) for a, b in zip(above, below, strict=True)]


def jvp(folder, tensors, tangents):
    named = {"tan_" + name: values for name, values in tangents.items()}
    got = run(folder, {**tensors, **named}, "--jvp", "--lse")
    above, below = (run(folder, moved(tensors, tangents, step), "--lse") for step in (STEP, -STEP))
    for name in ("o", "lse"):
        if got["tan_" + name][0] != got[name][0]:
            sys.exit("FAILED: the shape of tan_%s" % name)
        close("tan_" + name, got["tan_" + name][1], difference(above[name][1], below[name][1]))


def double_backward(folder, tensors, tangents):
    """Equals the difference of the first-order gradients along the tangents: the Hessian of <o, do> + <lse, dlse> is symmetric."""
    named = {"tan_" + name: values for name, values in tangents.items()}
    got = run(folder, {**tensors, **named}, "--double-backward")
    above, below = (run(folder, moved(tensors, tangents, step), "--backward") for step in (STEP, -STEP))
    for name in ("q", "k", "v", "bias"):
        close("second_" + name, got["second_" + name][1], difference(above["d" + name][1], below["d" + name][1]))
    forward = run(folder, {**{n: t for n, t in tensors.items() if n not in ("do", "dlse")}, **named}, "--jvp")
    close("second_do", got["second_do"][1], forward["tan_o"][1])
    close("second_dlse", got["second_dlse"][1], forward["tan_lse"][1])


def soft_limit(folder, tensors):
    """No gradient passes a softmax with one-hot weights; a higher temperature lets it pass again."""
    large = {**tensors, "q": [100000 * x for x in tensors["q"]]}
    size = {}
    for temperature in (1, 100000):
        got = run(folder, large, "--backward", "--temperature=%d" % temperature, mechanism=())
        size[temperature] = max(map(abs, got["dk"][1])) / 100000, max(map(abs, got["dv"][1]))
    if not (size[1][0] < 1e-12 and size[1][1] > 0.1 and size[100000][0] * 100000 > 1e-3):
        sys.exit("FAILED: gradients of one-hot rows %s, of soft ones %s" % (size[1], size[100000]))


def dropout(folder, tensors):
    """A dropout mask that is written and read back gives the same output; weights after dropout are 0 where it drops."""
    drawn = run(folder, tensors, "--dropout=0.4", "--seed=7", "--dropout-mask", "--weights", "--after-dropout")
    shape, keep = drawn["dropout_keep"]
    if shape != [B, H, SQ, SKV] or not 0.3 < sum(keep) / len(keep) < 0.9:
        sys.exit("FAILED: dropout_keep %s keeps %d of %d" % (shape, sum(keep), len(keep)))
    if any(w and not k for w, k in zip(drawn["weights"][1], keep, strict=True)):
        sys.exit("FAILED: a weight that dropout drops is not 0")
    given = run(folder, {**tensors, "dropout_keep": ("BOOL", shape, keep)}, "--dropout=0.4")
    close("o of a given mask", given["o"][1], drawn["o"][1])
    for flag in "--dropout-given", "--dropout-keep":  # the slot's name, and the name in files
        if run(folder, {**tensors, "mine": ("BOOL", shape, keep)}, "--dropout=0.4", flag + "=mine")["o"] != given["o"]:
            sys.exit("FAILED: %s does not choose the mask" % flag)
    whole = run(folder, tensors)
    if given["o"][1] == whole["o"][1]:
        sys.exit("FAILED: a dropout mask changes nothing")


def whole_names(folder, tensors):
    """The library's names are accepted in files too: grad_o for do, dropout_given for dropout_keep."""
    names = {"do": "grad_o", "dlse": "grad_lse", "dropout_keep": "dropout_given"}
    short = run(folder, tensors, "--backward", "--dropout=0.4")
    SHAPES.update({whole: SHAPES[name] for name, whole in names.items()})
    if run(folder, {names.get(name, name): values for name, values in tensors.items()}, "--backward", "--dropout=0.4") != short:
        sys.exit("FAILED: the library's names give another result than %s" % ", ".join(names))
    flags, (kind, shape, keep) = ("--backward", "--dropout=0.4"), tensors["dropout_keep"]
    other = {"dropout_given": (kind, shape, [not k for k in keep])}
    if run(folder, {**tensors, **other}, *flags) != short:
        sys.exit("FAILED: dropout_given is used although dropout_keep is there")
    del tensors["dropout_keep"]
    alone = run(folder, {**tensors, **other}, *flags)
    if run(folder, {**tensors, **other, "dropout_keep": (kind, shape, keep)}, *flags, "--ignore=dropout_keep") != alone:
        sys.exit("FAILED: --ignore=dropout_keep also ignores dropout_given")


def main():
    tensors = {name: draw(name, n) for n, name in enumerate(("q", "k", "v", "bias"))}
    tangents = {name: draw(name, 10 + n) for n, name in enumerate(tensors)}
    gradients = {name: draw(name, 20 + n) for n, name in enumerate(("do", "dlse"))}
    keep = ("BOOL", SHAPES["dropout_keep"], [n % 5 != 2 for n in range(math.prod(SHAPES["dropout_keep"]))])
    with tempfile.TemporaryDirectory() as folder:
        jvp(folder, tensors, tangents)
        jvp(folder, tensors, {"k": tangents["k"]})
        double_backward(folder, {**tensors, **gradients}, tangents)
        jvp(folder, {**tensors, "dropout_keep": keep}, tangents)
        double_backward(folder, {**tensors, **gradients, "dropout_keep": keep}, tangents)
        soft_limit(folder, {**{name: tensors[name] for name in "qkv"}, "do": gradients["do"]})
        dropout(folder, tensors)
        whole_names(folder, {**tensors, **gradients, "dropout_keep": keep})
    print("beyond forward: all as expected")


main()
