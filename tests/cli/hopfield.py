#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""`attn hopfield`: the classical network against loops over integers, separation, capacity, basins, energies along a channel, and
gradients; rejected arguments.

usage: hopfield.py ATTN
"""
import json
import math
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import tensor_file
from tap import check, finish, run_in_folder

ATTN = os.path.abspath(sys.argv[1])
DIM, U = 16, 2.0 ** -53
PATTERNS = [[1 if (k * k * 7 + c * (k + 2) + c * c // 3) % 5 < 3 else -1 for c in range(DIM)] for k in range(3)]


def hopfield(*words):
    return subprocess.run([ATTN, "hopfield", *words], capture_output=True, text=True, stdin=subprocess.DEVNULL)


def done(*words):
    made = hopfield(*words)
    check(" ".join(words), made.returncode == 0 and made.stderr == "", made.stderr)
    return json.loads(made.stdout)


def rejected(status, message, *words):
    before = sorted(os.listdir("."))
    made = hopfield(*words)
    check(f"{' '.join(words)}: {message}", (made.returncode, made.stderr, made.stdout) == (status, f"attn hopfield: {message}\n", ""), (made.returncode, made.stderr))
    check("  nothing written", sorted(os.listdir(".")) == before)


def field(x, c):
    return sum(p[c] * sum(a * b for a, b in zip(p, x)) for p in PATTERNS)


def sign(n):
    return (n > 0) - (n < 0)


def energy(x):
    return -sum(sum(a * b for a, b in zip(p, x)) ** 2 for p in PATTERNS) / (2 * DIM)


def classical_by_loops(x, asynchronous, most):
    energies, count = [energy(x)], 0
    while count < most:
        before = list(x)
        if asynchronous:
            for c in range(DIM):
                x[c] = sign(field(x, c))
        else:
            x = [sign(field(before, c)) for c in range(DIM)]
        count += 1
        energies.append(energy(x))
        if x == before:
            break
    return x, count, energies


def classical():
    states = [list(p) for p in PATTERNS] + [[-c if n in (1, 6) else c for n, c in enumerate(PATTERNS[0])], [1] * DIM]
    tensor_file.write("signs.safetensors", {"patterns": ("F64", [3, DIM], [float(c) for p in PATTERNS for c in p]),
                                            "states": ("F64", [5, DIM], [float(c) for s in states for c in s])})
    for order in ("synchronous", "asynchronous"):
        made = done("signs.safetensors", f"--classical={order}", "--iterations=4", "-o", "out.safetensors", "--json")["states"]
        found = tensor_file.read("out.safetensors")[0]
        check("  found, energies, iterations and patterns", set(found) == {"found", "energies", "iterations", "patterns"})
        for i, state in enumerate(states):
            x, count, energies = classical_by_loops(list(state), order == "asynchronous", 4)
            check(f"  {order}: state {i}", list(found["found"][2][i * DIM:(i + 1) * DIM]) == x and made[i]["iterations"] == count == found["iterations"][2][i] and
                  made[i]["energies"] == energies, (made[i], count, energies))
    check("--classical alone is synchronous", hopfield("signs.safetensors", "--classical").stdout == hopfield("signs.safetensors", "--classical=synchronous").stdout)
    tensor_file.write("memory.safetensors", {"patterns": ("F32", [3, DIM], [float(c) for p in PATTERNS for c in p])})
    made = done("memory.safetensors", "--classical", "--noise=0", "--json")["states"]
    check("drawn states are signs: without noise the patterns", all(s["energies"][0] == energy(p) for s, p in zip(made, PATTERNS)), made)


def measures():
    made = done("memory.safetensors", "--json")
    distances = [math.dist(p, q) for n, p in enumerate(PATTERNS) for q in PATTERNS[:n]]
    check("separation", abs(made["separation"] - min(distances) / math.sqrt(DIM)) <= 8 * U * made["separation"], made["separation"])
    check("capacities", made["classical_capacity"] == 0.14 * DIM and abs(made["modern_capacity"] / math.exp(DIM / 2) - 1) <= 4 * U, made)
    tensor_file.write("one.safetensors", {"patterns": ("F32", [1, 2], [3.0, 4.0])})
    check("one pattern is infinitely far from others", done("one.safetensors", "--json")["separation"] is None)
    made = done("memory.safetensors", "--basin=50", "--noise=0", "--beta=2", "--json")
    check("without noise all return", made["basins"] == [1, 1, 1], made)
    some, again, many = (done("memory.safetensors", "--basin=50", f"--noise={noise}", "--beta=2", "--json")["basins"] for noise in (3, 3, 30))
    check("with noise fewer do", some == again and all(0 < b < 1 for b in some + many) and sum(many) < sum(some), (some, many))
    check("  50 noisy states", all(b == round(50 * b) / 50 for b in some), some)
    tensor_file.write("near.safetensors", {"patterns": ("F64", [3, 2], [1.0, 0.0, 0.9, 0.1, -1.0, 0.0])})
    near = done("near.safetensors", "--basin=50", "--noise=0.3", "--beta=100", "--json")["basins"]
    check("a pattern that is far from the others has the largest basin", near[2] > 0.9 > near[1], near)
    printed = hopfield("memory.safetensors", "-o", "-").stdout
    check("-o - prints the tensors and nothing else", "\npatterns f" in printed and "separation" not in printed, printed)
    text = hopfield("memory.safetensors", "--basin=50", "--noise=3", "--beta=2").stdout.splitlines()
    check("as text, the number of states", text[3:] == [f"pattern {m}: {round(50 * b)} of 50 noisy states return" for m, b in enumerate(some)] +
          [f"separation {min(distances) / math.sqrt(DIM):.4g}; of 16 channels, capacity 2.24 classical, 2981 modern"], text)


def landscape():
    values = [0.5, -1.0, 2.0, 0.25]
    tensor_file.write("two.safetensors", {"patterns": ("F64", [2, 2], values)})
    done("two.safetensors", "--landscape=1", "--beta=3", "-o", "out.safetensors", "--json")
    found = tensor_file.read("out.safetensors")[0]
    x, e = found["landscape_x"][2], found["landscape_energy"][2]
    check("200 points, half again as far as the patterns", len(x) == len(e) == 200 and x[0] == -1.5 and x[-1] == 1.5, (x[0], x[-1]))
    expected = [-math.log(sum(math.exp(3 * p * at) for p in (-1.0, 0.25))) / 3 + at * at / 2 for at in x]
    # sums of two numbers, a logarithm below 5 and a square: 16 roundings of numbers up to 8
    check("their energies", all(abs(a - b) <= 16 * U * 8 for a, b in zip(e, expected)), max(abs(a - b) for a, b in zip(e, expected)))


def gradients():
    patterns, states = [0.5, -1.0, 2.0, 0.25, 1.0, 1.0], [0.1, 0.2, -0.7, 0.4]
    tensor_file.write("grad.safetensors", {"patterns": ("F64", [3, 2], patterns), "states": ("F64", [2, 2], states), "denergy": ("F64", [2], [1.0, -2.0])})
    done("grad.safetensors", "--backward", "--beta=2", "-o", "out.safetensors", "--json")
    found = {name: t[2] for name, t in tensor_file.read("out.safetensors")[0].items()}
    for i, g in enumerate((1.0, -2.0)):
        expected = [g * (states[2 * i + c] - found["updated"][2 * i + c]) for c in range(2)]
        check(f"the gradient of the energy of state {i} is state - updated",
              all(abs(found["dstates"][2 * i + c] - expected[c]) <= 16 * U * 4 for c in range(2)), (found["dstates"], expected))
    weights = []
    for i in range(2):
        raised = [math.exp(2 * sum(patterns[2 * m + c] * states[2 * i + c] for c in range(2))) for m in range(3)]
        weights.append([r / sum(raised) for r in raised])
    expected = [-sum(g * weights[i][m] * states[2 * i + c] for i, g in enumerate((1.0, -2.0))) for m in range(3) for c in range(2)]
    check("and that of the patterns", all(abs(a - b) <= 32 * U * 4 for a, b in zip(found["dpatterns"], expected)), (found["dpatterns"], expected))
    tensor_file.write("both.safetensors", {"patterns": ("F64", [3, 2], patterns), "states": ("F64", [2, 2], states), "dupdated": ("F64", [2, 2], [1.0] * 4)})
    done("both.safetensors", "--backward", "-o", "out.safetensors", "--json")


def rejections():
    of_modern = "has no effect with --classical; it is of the modern network"
    for flag in ("--beta=2", "--tolerance=0.1", "--basin=3", "--landscape=0", "--backward"):
        rejected(2, f"{flag.split('=')[0]} {of_modern}", "signs.safetensors", "--classical", flag)
    rejected(2, "--classical: unknown order 'x'; known: synchronous, asynchronous", "signs.safetensors", "--classical=x")
    rejected(2, "--landscape has no effect without -o", "signs.safetensors", "--landscape=0")
    rejected(2, "--backward has no effect without -o", "signs.safetensors", "--backward")
    rejected(2, "signs.safetensors: --landscape (16) is not between 0 and 15", "signs.safetensors", "--landscape=16", "-o", "never.npz")
    rejected(2, "signs.safetensors: --backward needs a tensor 'dupdated' or 'denergy'", "signs.safetensors", "--backward", "-o", "never.npz")
    base = {"patterns": ("F64", [1, 2], [1.0, 2.0]), "states": ("F64", [1, 2], [1.0, 2.0])}
    for name, tensor, message, status in (
            ("denergy", ("F64", [2], [1.0, 1.0]), "tensor 'denergy' is [2]; it must be [state], [1]", 2),
            ("dupdated", ("F64", [1, 3], [1.0] * 3), "tensor 'dupdated' is [1, 3]; it must be [state, channel], [1, 2]", 2),
            ("dupdated", ("F64", [1, 2], [1.0, float("nan")]), "tensor 'dupdated': number 1 is nan", 2),
            ("dupdated", ("F32", [1, 2], [1.0, 1.0]), "tensor 'dupdated' is f32, and patterns are f64", 3)):
        tensor_file.write("bad.safetensors", {**base, name: tensor})
        rejected(status, f"bad.safetensors: {message}", "bad.safetensors", "--backward", "-o", "never.npz")


def main():
    classical()
    measures()
    landscape()
    gradients()
    rejections()
    return finish()


run_in_folder(main)
