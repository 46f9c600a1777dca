#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""`attn einsum CONTRACTION FILE...` against loops over all indices, and its gradients: integers, so that sums are exact.

usage: einsum.py ATTN
"""
import itertools
import json
import math
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import tensor_file
from one_command import attn, done, rejects
from tap import check, finish, run_in_folder

SIZES = {letter: 2 + n % 3 for n, letter in enumerate("abcdefghijklmnopqrstuvwxyz")}
# Beside those by name: an index of one tensor alone, diagonals, four tensors, an outer product, no arrow.
OTHERS = ["ij,jk,kl,lm->im", "iij,jk->ki", "ii,jj->", "ab,c->ca", "kj,ik", "abc,cd->a", "iij->ij", "ab,ab,ab->b", "abcd,dcbe->ea"]


def rejected(status, message, *words):
    rejects("einsum", status, message, *words)


def at(indices, place):
    """The offset of an element of a dense tensor."""
    offset = 0
    for letter in indices:
        offset = offset * SIZES[letter] + place[letter]
    return offset


def shape(indices):
    return [SIZES[letter] for letter in indices]


def by_loops(terms, output, tensors, grad):
    """The output, and the gradient of each tensor."""
    letters = sorted(set("".join(terms)))
    out, gradients = [0] * math.prod(shape(output)), [[0] * len(t) for t in tensors]
    for numbers in itertools.product(*(range(SIZES[letter]) for letter in letters)):
        place = dict(zip(letters, numbers))
        factors = [t[at(term, place)] for term, t in zip(terms, tensors)]
        o = at(output, place)
        out[o] += math.prod(factors)
        for n, term in enumerate(terms):
            gradients[n][at(term, place)] += grad[o] * math.prod(factors[:n] + factors[n + 1:])
    return out, gradients


def integers(count, seed):
    return [(7 * n * n + 3 * n + seed) % 5 - 2 for n in range(count)]


def contractions():
    listed = re.findall(r"^  [a-z_]+ +([a-z,]+->[a-z]*) ", done("einsum", "--help"), re.M)
    check("26 by name", len(listed) == 26)
    for text in listed + OTHERS:
        terms, output = (text.split("->") + [None])[:2]
        terms = terms.split(",")
        if output is None:
            output = "".join(sorted(letter for letter in set("".join(terms)) if "".join(terms).count(letter) == 1))
        tensors = [integers(math.prod(shape(term)), n) for n, term in enumerate(terms)]
        grad = integers(math.prod(shape(output)), 9)
        names = "abcdefgh"[:len(terms)]
        tensor_file.write("in.safetensors", {"do": ("F64", shape(output), grad),
                                             **{name: ("F64", shape(term), t) for name, term, t in zip(names, terms, tensors)}})
        made = attn("einsum", text, "in.safetensors", "--backward", "-o", "out.safetensors", "-q")
        check(f"{text}: status 0", made.returncode == 0 and made.stdout == made.stderr == "", made.stderr)
        found = tensor_file.read("out.safetensors")[0]
        out, gradients = by_loops(terms, output, tensors, grad)
        check(f"{text}: output", found["o"] == ("F64", shape(output), tuple(map(float, out))), (found["o"], out))
        for name, term, gradient in zip(names, terms, gradients):
            check(f"{text}: d{name}", found[f"d{name}"] == ("F64", shape(term), tuple(map(float, gradient))), (found[f"d{name}"], gradient))


def files():
    tensor_file.write("a.safetensors", {"a": ("F32", [2, 3], [1, 2, 3, 4, 5, 6])})
    tensor_file.write("b.safetensors", {"b": ("F32", [3, 2], [1, 0, 0, 1, 2, 2]), "do": ("F32", [2, 2], [1, 0, 0, 1])})
    text = done("einsum", "ij,jk->ik", "a.safetensors", "b.safetensors", "--tensors=a,b")
    check("small results are printed", text == "o f32 [2, 2]\n   7   8\n  16  17\n", text)
    check("two files in order", done("einsum", "ij,jk->ik", "a.safetensors", "b.safetensors", "--backward", "--json") and
          json.loads(attn("einsum", "ij,jk->ik", "a.safetensors", "b.safetensors", "--backward", "--json").stdout)["results"] ==
          [{"name": "da", "shape": [2, 3], "numbers": [1, 0, 2, 0, 1, 2]}, {"name": "db", "shape": [3, 2], "numbers": [1, 4, 2, 5, 3, 6]},
           {"name": "o", "shape": [2, 2], "numbers": [7, 8, 16, 17]}])
    made = json.loads(done("einsum", "ij,kj->ik", "a.safetensors", "--tensors=a,a", "--json"))
    check("a tensor twice", made["used"] == ["a", "a"] and made["results"][0]["numbers"] == [14, 32, 32, 77] and made["multiplications"] == 12, made)
    tensor_file.write("both.safetensors", {"a": ("F32", [2, 3], [1, 2, 3, 4, 5, 6]), "do": ("F32", [2, 2], [1, 0, 0, 1])})
    made = json.loads(done("einsum", "ij,kj->ik", "both.safetensors", "--tensors=a,a", "--backward", "--json"))
    check("  has one gradient, the sum", [r for r in made["results"] if r["name"] == "da"] == [{"name": "da", "shape": [2, 3], "numbers": [2, 4, 6, 8, 10, 12]}], made)
    done("einsum", "ij->ji", "a.safetensors", "-o", "t.npy", "-q")
    made = json.loads(done("einsum", "ji->ij", "t.npy", "--json"))
    check(".npy files", made["results"][0]["numbers"] == [1, 2, 3, 4, 5, 6] and made["used"] == ["t"], made)
    for dtypes, expected in ((("F32", "F32"), "F32"), (("F16", "F16"), "F16"), (("F32", "F64"), "F64"), (("I32", "I32"), "F64")):
        tensor_file.write("typed.safetensors", {"a": (dtypes[0], [2], [1, 2]), "b": (dtypes[1], [2], [3, 4])})
        done("einsum", "i,i->", "typed.safetensors", "-o", "out.safetensors", "-q")
        check(f"{dtypes} to {expected}", tensor_file.read("out.safetensors")[0]["o"] == (expected, [], (11,)))
    waves = {name: ("F64", [3, 70, 90], [math.sin(seed + n) for n in range(3 * 70 * 90)]) for name, seed in (("a", 0.1), ("b", 0.7))}
    tensor_file.write("waves.safetensors", waves)
    made = []
    for threads in "123":
        done("einsum", "hia,hja->hij", "waves.safetensors", f"--threads={threads}", "-o", "out.safetensors", "-q")
        made.append(tensor_file.read("out.safetensors"))
    check("the same bits for 1, 2 and 3 threads", made[0] == made[1] == made[2])
    row = [sum(waves["a"][2][i * 90 + n] * waves["b"][2][n] for n in range(90)) for i in range(70)]
    bound = 2 ** -53 * (5 + 90 + 90) * 90  # of both sums; products of sines are at most 1
    check("a sum of 90 products, within its bound", all(abs(made[0][0]["o"][2][i * 70] - row[i]) <= bound for i in range(70)))
    text = done("einsum", "hia,hja->hij", "waves.safetensors")
    check("the middle of large results is left out", text.startswith("o f64 [3, 70, 70]\n[0]\n") and text.count("  ...  58 more rows\n") == 3, text)
    check("-o - prints them once", done("einsum", "ij->ji", "t.npy", "-o", "-") == done("einsum", "ij->ji", "t.npy") != "")


def many_indices():
    letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
    text, sizes = ",".join(letters[n:n + 7] for n in range(0, 52, 7)) + "->", ",".join(f"{letter}={2**30}" for letter in letters)
    said = done("einsum", text, f"--sizes={sizes}")
    check("all letters, with sizes of ten digits", f"each of [{', '.join(f'{letter}={2**30}' for letter in letters)}]: " in said, said)


def rejections():
    example = "for example: attn einsum ij,jk->ik a.npy b.npy"
    rejected(2, f"-o has no effect without a file; {example}", "ij,jk->ik", "-o", "out.npy")
    rejected(2, f"--tensors has no effect without a file; {example}", "ij,jk->ik", "--tensors=a,b")
    rejected(2, f"--backward has no effect without a file; {example}", "ij,jk->ik", "--backward")
    rejected(2, "--sizes has no effect on the tensors of files", "ij->ji", "a.safetensors", "--sizes=i=2,j=3")
    rejected(2, "--backward writes several tensors, which an .npy file cannot have", "ij->ji", "both.safetensors", "--tensors=a", "--backward", "-o", "out.npy")
    rejected(2, "the files have 1 tensors, and ij,jk->ik has 2; --tensors=A,B names those to use", "ij,jk->ik", "a.safetensors")
    rejected(2, "no file has a tensor 'z'", "ij,jk->ik", "a.safetensors", "--tensors=a,z")
    rejected(2, "--tensors names 1 tensors, and ij,jk->ik has 2", "ij,jk->ik", "a.safetensors", "--tensors=a")
    rejected(2, "--tensors names 3 tensors, and ij,jk->ik has 2", "ij,jk->ik", "a.safetensors", "--tensors=a,a,a")
    rejected(2, "tensor 'a' has 2 axes, and its indices are ijk", "ijk->k", "a.safetensors")
    rejected(2, "index j is 3 on tensor 'a' and 2 on tensor 'a'", "ij,jk->ik", "a.safetensors", "--tensors=a,a")
    rejected(2, "--backward needs a tensor 'do' of the output's shape, [j=3, i=2]", "ij->ji", "a.safetensors", "--backward")
    rejected(2, "--backward needs a tensor 'do' of the output's shape, [j=3, i=2]", "ij->ji", "both.safetensors", "--backward")
    tensor_file.write("c.safetensors", {"a": ("F32", [3, 2], [1, 0, 0, 1, 2, 2]), "do": ("F32", [2, 2], [1, 0, 0, 1])})
    rejected(2, "two tensors are named 'a'; their gradients need different names", "ij,jk->ik", "a.safetensors", "c.safetensors", "--backward")
    tensor_file.write("none.safetensors", {"a": ("F32", [0, 2], [])})
    rejected(2, "tensor 'a' has no numbers", "ij->j", "none.safetensors")
    rejected(2, "gone.npy: cannot open: No such file or directory", "ij->j", "gone.npy")
    rejected(2, "a.safetensors: this output is an input, which would be replaced", "ij->j", "a.safetensors", "-o", "a.safetensors")
    tensor_file.write("long.safetensors", {"a": ("F32", [50000], [0.0] * 50000)})
    rejected(3, "i,j->ij has a tensor [ij] of more than 2^31 numbers on its way", "i,j->ij", "long.safetensors", "--tensors=a,a")
    tensor_file.write("nine.safetensors", {"a": ("F32", [1] * 5, [1.0]), "b": ("F32", [1] * 4, [1.0])})
    rejected(3, "the output has 9 axes; files have at most 8", "abcde,fghi->abcdefghi", "nine.safetensors")


def main():
    contractions()
    files()
    many_indices()
    rejections()
    return finish()


run_in_folder(main)
