#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""`attn metric`: properties, the inverse, forms and scores against loops over integers, whose sums are exact, and all gradients;
rejected files and flags.

usage: metric.py ATTN
"""
import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import tensor_file
from tap import check, finish, run_in_folder

ATTN = os.path.abspath(sys.argv[1])
U = 2.0 ** -53


def metric(*words):
    return subprocess.run([ATTN, "metric", *words], capture_output=True, text=True, stdin=subprocess.DEVNULL)


def done(*words, **tensors):
    """The JSON of a call, with {name: (shape, numbers)} as results."""
    save("in.safetensors", **tensors)
    made = metric("in.safetensors", *words, "--json", "-o", "out.safetensors")
    check(f"{' '.join(words)} of {', '.join(tensors)}", made.returncode == 0 and made.stderr == "", made.stderr)
    told = json.loads(made.stdout)
    told["results"] = {row["name"]: (row["shape"], row["numbers"]) for row in told["results"]}
    found = {name: (shape, list(numbers)) for name, (_, shape, numbers) in tensor_file.read("out.safetensors")[0].items()}
    check("  --json and the file agree", told["results"] == found, (told["results"], found))
    return told


def save(path, **tensors):
    tensor_file.write(path, {name: ("F64", shape, [float(x) for x in numbers]) for name, (shape, numbers) in tensors.items()})


def rejected(status, message, *words):
    before = sorted(os.listdir("."))
    made = metric(*words)
    check(f"{' '.join(words)}: {message}", (made.returncode, made.stderr, made.stdout) == (status, f"attn metric: {message}\n", ""), (made.returncode, made.stderr))
    check("  nothing written", sorted(os.listdir(".")) == before)


def matrix(rows, columns, seed):
    return [[(5 * i * i + 3 * j + i * j + seed) % 7 - 3 for j in range(columns)] for i in range(rows)]


def product(a, b):
    return [[sum(x * y for x, y in zip(row, column)) for column in zip(*b)] for row in a]


def transposed(a):
    return [list(row) for row in zip(*a)]


def plus(*terms):
    return [[sum(numbers) for numbers in zip(*rows)] for rows in zip(*terms)]


def tensor(a):
    return [len(a), len(a[0])], [x for row in a for x in row]


def rows_of(found):
    (rows, columns), numbers = found
    return [numbers[i * columns:(i + 1) * columns] for i in range(rows)]


def outer(u, v, weights):
    return product(transposed([[w * x for x in row] for row, w in zip(u, weights)]), v)


def properties():
    # the eigenvalues of [[2, 1], [1, 2]] are 1 and 3, those of [[1, 2], [2, 1]] -1 and 3
    for g, words, expected in (([2, 1, 1, 2], [], (True, True, True, 1, 3)), ([1, 2, 2, 1], [], (True, False, False, -1, 3)),
                               ([2, 1, 0, 2], [], (False, True, False, 1.5, 2.5)), ([2, 1, 0, 2], ["--tolerance=0.6"], (True, True, True, 1.5, 2.5))):
        told = done(*words, g=([2, 2], g))
        found = told["symmetric"], told["positive_definite"], told["valid"], told["min_eigenvalue"], told["max_eigenvalue"]
        check(f"  {g}: {expected}", found[:3] == expected[:3] and all(abs(a - b) <= 16 * U * 3 for a, b in zip(found[3:], expected[3:])), found)
    save("in.safetensors", g=([2, 2], [1, 2, 2, 1]))
    save("made.safetensors", diagonal=([2], [1, 4]))
    printed = metric("made.safetensors", "-o", "-").stdout
    check("-o - prints the tensors and nothing else", printed == "g f64 [2, 2]\n  1  0\n  0  4\n", printed)
    check("as text", metric("in.safetensors").stdout == "not a metric of 2 channels: symmetric, not positive definite, eigenvalues from -1 to 3\n", metric("in.safetensors").stdout)


def forms():
    g, u, v, q, k = matrix(3, 3, 1), matrix(4, 3, 2), matrix(4, 3, 5), matrix(2, 3, 3), matrix(5, 3, 6)
    dlowered, dform, dquadratic, dscores = matrix(4, 3, 9), [1, -2, 3, 2], [2, 1, -1, 3], matrix(2, 5, 4)
    told = done("--backward", g=tensor(g), u=tensor(u), v=tensor(v), q=tensor(q), k=tensor(k), dlowered=tensor(dlowered), dform=([4], dform),
                dquadratic=([4], dquadratic), dscores=tensor(dscores))
    gt = transposed(g)
    lowered = product(v, gt)
    dot = lambda a, b: sum(x * y for x, y in zip(a, b))
    expected = {
        "lowered": tensor(lowered), "form": ([4], [dot(a, b) for a, b in zip(u, lowered)]), "quadratic": ([4], [dot(a, b) for a, b in zip(v, lowered)]),
        "scores": tensor(product(product(q, g), transposed(k))),
        "du": tensor([[d * x for x in row] for d, row in zip(dform, lowered)]),
        "dv": tensor(plus(product(dlowered, g), [[d * x for x in row] for d, row in zip(dform, product(u, g))],
                          [[d * x for x in row] for d, row in zip(dquadratic, lowered)], [[d * x for x in row] for d, row in zip(dquadratic, product(v, g))])),
        "dq": tensor(product(dscores, product(k, gt))), "dk": tensor(product(transposed(dscores), product(q, g))),
        "dg": tensor(plus(product(transposed(dlowered), v), outer(u, v, dform), outer(v, v, dquadratic), product(transposed(q), product(dscores, k))))}
    for name, numbers in expected.items():
        check(f"  {name}", told["results"].get(name) == numbers, (told["results"].get(name), numbers))
    check("  and no more", set(told["results"]) == set(expected), set(told["results"]))


def made():
    w, q, k = matrix(2, 3, 1), matrix(2, 3, 3), matrix(2, 3, 6)
    dscores = matrix(2, 2, 4)
    told = done("--backward", w=tensor(w), q=tensor(q), k=tensor(k), dscores=tensor(dscores))["results"]
    g = product(transposed(w), w)
    dg = product(transposed(q), product(dscores, k))
    check("  g is w^T w", told["g"] == tensor(g) and told["scores"] == tensor(product(product(q, g), transposed(k))), told)
    check("  dw", told["dw"] == tensor(product(w, plus(dg, transposed(dg)))), told["dw"])
    told = done("--backward", diagonal=([3], [1, 2, 4]), q=tensor(q), k=tensor(k), dscores=tensor(dscores))["results"]
    check("a diagonal", told["g"] == ([3, 3], [1, 0, 0, 0, 2, 0, 0, 0, 4]) and told["ddiagonal"] == ([3], [dg[c][c] for c in range(3)]), told)
    told = done("--scaled", v=([1, 4], [1, 2, 3, 4]))["results"]
    check("scaled: 1/sqrt(4)", told["quadratic"] == ([1], [15]) and told["lowered"] == ([1, 4], [0.5, 1, 1.5, 2]), told)
    told = done("--scaled=3", v=([1, 4], [1, 2, 3, 4]))["results"]
    check("scaled by 3", told["quadratic"] == ([1], [90]), told)
    u, v = [1, 2, 3, 4], [2, 0, 1, -1]
    check("euclidean inner products", done("--inner=euclidean", u=([1, 4], u), v=([1, 4], v))["results"] == {"form": ([1], [1])})
    check("scaled ones", done("--inner=scaled", u=([1, 4], u), v=([1, 4], v))["results"] == {"form": ([1], [0.5])})


def inverse():
    g, v = [[2, 0, 0], [0, 4, 0], [1, 0, 8]], matrix(2, 3, 1)
    exact = [[0.5, 0, 0], [0, 0.25, 0], [-1 / 16, 0, 0.125]]
    draised, dinverse = matrix(2, 3, 5), matrix(3, 3, 2)
    told = done("--inverse", "--backward", g=tensor(g), v=tensor(v), draised=tensor(draised), dinverse=tensor(dinverse))["results"]
    check("  powers of 2 have exact inverses", told["inverse"] == tensor(exact), told["inverse"])
    check("  raised vectors", told["raised"] == tensor(product(v, transposed(exact))), told["raised"])
    check("  their gradient", told["dv"] == tensor(product(draised, exact)), told["dv"])
    total = plus(dinverse, product(transposed(draised), v))
    expected = [[-x for x in row] for row in product(product(transposed(exact), total), transposed(exact))]
    check("  dg", told["dg"] == tensor(expected), (told["dg"], expected))


def rejections():
    def bad(message, *words, status=2, **tensors):
        save("bad.safetensors", **tensors)
        rejected(status, f"bad.safetensors: {message}", "bad.safetensors", *words, "-o", "never.npz")
    two = ([2, 2], [1, 2, 3, 4])
    rejected(2, "no input file; for example: attn metric metric.safetensors")
    rejected(2, "gone.npz: cannot open: No such file or directory", "gone.npz")
    rejected(2, "--inner: 'x' is not euclidean or scaled", "in.safetensors", "--inner=x")
    rejected(2, "--scaled: '0' is not a number above 0", "in.safetensors", "--scaled=0")
    for flag in ("--inverse", "--backward", "--tolerance=1"):
        rejected(2, f"{flag.split('=')[0]} has no effect with --inner, which has no metric", "in.safetensors", "--inner=scaled", flag)
    bad("no metric: no tensor 'g', 'w' or 'diagonal', and no --scaled or --inner", v=two)
    bad("g and w are two metrics; there must be one", g=two, w=two)
    bad("g and --scaled are two metrics; there must be one", "--scaled", g=two)
    bad("tensor 'g' has 2 rows and 3 columns; a metric has as many", g=([2, 3], range(6)))
    bad("tensor 'g' is [4]; it must be [channel, channel]", g=([4], range(4)))
    bad("tensor 'g': number 1 is nan", g=([2, 2], [1, float("nan"), 2, 3]))
    bad("tensor 'v' is [2, 3]; it must be [vector, channel]", g=two, v=([2, 3], range(6)))
    bad("tensor 'u' is [1, 2]; it must be [vector, channel], [2, 2]", g=two, v=two, u=([1, 2], [1, 2]))
    bad("tensor 'u' needs a tensor 'v'", g=two, u=two)
    bad("tensor 'q' needs a tensor 'k'", g=two, q=two)
    bad("tensor 'k' needs a tensor 'q'", g=two, k=two)
    bad("--inner needs the tensors 'u' and 'v'", "--inner=scaled", v=two)
    bad("--scaled needs vectors, which say how many channels there are", "--scaled", x=two)
    bad("--backward needs a gradient of a result, such as 'dscores' or 'dform'", "--backward", g=two, v=two)
    bad("tensor 'dscores' is [2]; it must be [query, key], [2, 2]", "--backward", g=two, q=two, k=two, dscores=([2], [1, 2]))
    save("singular.safetensors", g=([2, 2], [1, 2, 2, 4]))
    made = metric("singular.safetensors", "--inverse")
    check("a singular matrix has no inverse", made.returncode == 2 and "singular" in made.stderr and made.stdout == "", made.stderr)


def main():
    properties()
    forms()
    made()
    inverse()
    rejections()
    return finish()


run_in_folder(main)
