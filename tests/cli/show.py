#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""attn show: figures, numbers, slices, CSV and JSON of every kind of file, and the differences of two files.

usage: show.py ATTN
"""
import json
import math
import os
import struct
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import gguf_file
import tensor_file
from tap import check, finish, run_in_folder

ATTN = sys.argv[1]
INF, NAN = math.inf, math.nan


def attn(*words, status=0, text=None):
    done = subprocess.run([ATTN, *words], capture_output=True, text=True, input=text or "")
    if done.returncode != status:
        check(f"status {status}: attn {' '.join(words)}", False, f"{done.returncode} {done.stdout} {done.stderr}")
    return done


def show(*words, status=0, text=None):
    return attn("show", *words, status=status, text=text).stdout


def f32(x):
    return struct.unpack("f", struct.pack("f", x))[0]


def nested(shape, numbers):
    if not shape:
        return numbers[0]
    size = math.prod(shape[1:])
    return [nested(shape[1:], numbers[k * size:(k + 1) * size]) for k in range(shape[0])]


def cut(tensor, parts):
    """numbers[parts] of nested lists, parts as Python has them."""
    if not parts:
        return tensor
    if isinstance(parts[0], slice):
        return [cut(row, parts[1:]) for row in tensor[parts[0]]]
    return cut(tensor[parts[0]], parts[1:])


def whole_file():
    tensor_file.write("a.safetensors", {"q": ("F32", [2, 3], [1, -2, 0.5, NAN, INF, -INF]), "n": ("I64", [2], [2**62 + 1, -3]),
                                        "empty": ("F32", [0, 2], []), "one": ("F64", [], [0.1]), "mask": ("BOOL", [2], [True, False])},
                      tokens='["a", "b"]', long="x" * 150)
    said = show("a.safetensors").splitlines()
    check("the file and its number of tensors", said[0] == "a.safetensors: 5 tensors", said)
    check("metadata", said[1:3] == ["  long: " + "x" * 100 + " ... (150 bytes)", '  tokens: ["a", "b"]'], said[1:3])
    check("a line for each tensor", said[3:] == [
        "name   type  shape   min          max         mean         norm  nan  inf",
        "empty  f32   [0, 2]    -            -            -            -    0    0",
        "mask   bool  [2]       0            1          0.5            1    0    0",
        "n      i64   [2]      -3  4.61169e+18  2.30584e+18  4.61169e+18    0    0",
        "one    f64   []      0.1          0.1          0.1          0.1    0    0",
        "q      f32   [2, 3]   -2            1    -0.166667      2.29129    1    2"], "\n".join(said[3:]))
    check("numbers", show("a.safetensors", "q").splitlines()[2:] == ["   1.000000  -2.000000   0.500000", "        nan        inf       -inf"], show("a.safetensors", "q"))
    check("integers of 64 bits", show("a.safetensors", "n").splitlines()[2:] == ["  4611686018427387905                   -3"], show("a.safetensors", "n"))
    check("  exactly in CSV", show("a.safetensors", "n", "--csv") == "4611686018427387905,-3\n")
    check("no numbers", show("a.safetensors", "empty").splitlines()[2:] == ["  no numbers"])
    check("one number", show("a.safetensors", "one").splitlines()[2:] == ["  0.100000"], show("a.safetensors", "one"))
    check("CSV of numbers", show("a.safetensors", "q", "--csv") == "1,-2,0.5\nnan,inf,-inf\n", show("a.safetensors", "q", "--csv"))
    check("CSV of the file", show("a.safetensors", "--csv").splitlines()[-1].startswith("q,f32,2x3,6,-2,1,-0.1666"), show("a.safetensors", "--csv"))
    found = json.loads(show("a.safetensors", "--json"))
    check("JSON", (found["file"], found["metadata"]["tokens"], [t["name"] for t in found["tensors"]]) == ("a.safetensors", '["a", "b"]', ["empty", "mask", "n", "one", "q"]))
    check("  of figures", {**found["tensors"][4]} == {"name": "q", "dtype": "f32", "shape": [2, 3], "count": 6, "min": -2, "max": 1, "mean": -0.5 / 3,
                                                     "norm": math.sqrt(5.25), "nan": 1, "inf": 2}, found["tensors"][4])
    check("  of numbers", json.loads(show("a.safetensors", "q", "--json"))["tensors"][0]["values"] == [[1, -2, 0.5], [None, None, None]])
    check("  of an empty tensor", json.loads(show("a.safetensors", "empty", "--json"))["tensors"][0]["values"] == [])
    check("  of integers", json.loads(show("a.safetensors", "n", "--json"))["tensors"][0]["values"] == [2**62 + 1, -3])
    tensor_file.write("huge.safetensors", {"x": ("F64", [3], [1e308, 1.5e308, -1e308])})
    huge = json.loads(show("huge.safetensors", "--json"))["tensors"][0]
    check("a mean of large numbers", math.isclose(huge["mean"], 0.5e308, rel_tol=1e-14), huge)
    tensor_file.write("whole.safetensors", {"i": ("I32", [4], [10, -200, 123456789, 2**31 - 1]), "x": ("F32", [5], [10, 1000, 16777216, -0.0, 1e20])})
    check("CSV has every digit of integers", show("whole.safetensors", "i", "--csv") == "10,-200,123456789,2147483647\n", show("whole.safetensors", "i", "--csv"))
    check("  and no powers of ten of small ones", show("whole.safetensors", "x", "--csv") == "10,1000,16777216,-0,1e+20\n", show("whole.safetensors", "x", "--csv"))
    numbers = [f32(math.sin(n) * 10.0 ** (n % 9 - 4)) for n in range(60)]
    tensor_file.write("b.safetensors", {"x": ("F32", [6, 10], numbers)})
    back = [float(x) for line in show("b.safetensors", "x", "--csv").splitlines() for x in line.split(",")]
    check("CSV has every bit of f32", [f32(x) for x in back] == numbers)
    tensor_file.write("b.safetensors", {"x": ("F64", [60], [x / 3 for x in numbers])})
    check("  and of f64", [float(x) for x in show("b.safetensors", "x", "--csv").strip().split(",")] == [x / 3 for x in numbers])


def slices():
    shape = [3, 4, 5]
    numbers = list(range(60))
    tensor_file.write("t.safetensors", {"t": ("F32", shape, numbers), "odd[name": ("F32", [1], [7])})
    tensor = nested(shape, numbers)
    every = slice(None)
    for text, parts in {"[1]": [1], "[-1]": [-1], "[0,3,:4]": [0, 3, slice(4)], "[:,::2]": [every, slice(None, None, 2)], "[...,-1]": [every, every, -1],
                        "[1, ..., 2:]": [1, every, slice(2, None)], "[2,1,4]": [2, 1, 4], "[:-1,1:3,-2:]": [slice(-1), slice(1, 3), slice(-2, None)],
                        "[1:100:2]": [slice(1, 100, 2)], "[:,0::9223372036854775807]": [every, slice(0, None, 2**63 - 1)], "[...]": [], "[ 0 , 1 : 4 : 3 ]": [0, slice(1, 4, 3)], "[2:1]": [slice(2, 1)], "[-100:1]": [slice(-100, 1)]}.items():
        got = json.loads(show("t.safetensors", "t" + text, "--json"))["tensors"][0]
        expected = cut(tensor, parts)
        check(f"t{text}", got["values"] == expected, got)
    check("a name with a bracket", json.loads(show("t.safetensors", "odd[name", "--json"))["tensors"][0]["values"] == [7])
    check("a matrix for each leading index", show("t.safetensors", "t[:2,:1,:2]").splitlines()[2:] == ["[0]", "   0   1", "[1]", "  20  21"], show("t.safetensors", "t[:2,:1,:2]"))
    tensor_file.write("large.safetensors", {"t": ("F32", [9, 20, 30], [n % 7 for n in range(5400)])})
    said = show("large.safetensors", "t")
    check("the middle of a large tensor is left out", said.count("\n") == 2 + 6 * 14 + 1 and "...  3 more matrices\n" in said and "  ...  8 more rows\n" in said, said)
    check("  of each row, too", said.splitlines()[3] == "  0  1  2  3  4  5  ...  5  6  0  1", said.splitlines()[3])
    check("  but not with --all", show("large.safetensors", "t", "--all").count("\n") == 2 + 9 * 21)
    for text, said in {"[3]": "'[3]': index 3 of axis 0, which has 3 elements", "[0,-5]": "'[0,-5]': index -5 of axis 1, which has 4 elements",
                       "[x]": "'[x]' is not an index, or a range such as 0:4 or ::2", "[]": "'[]' is not an index, or a range such as 0:4 or ::2",
                       "[0,1,2,3]": "'[0,1,2,3]' has more parts than the tensor has axes, 3", "[0": "'[0' does not end in its ']'",
                       "[::0]": "'[::0]': a step is at least 1, not 0", "[::-1]": "'[::-1]': a step is at least 1, not -1",
                       "[...,...]": "'[...,...]' has '...' more than once", "[1:2:3:4]": "'[1:2:3:4]' is not an index, or a range such as 0:4 or ::2",
                       "[...1]": "'[...1]': a comma follows '...'", "[99999999999999999999]": "'[99999999999999999999]' is not an index, or a range such as 0:4 or ::2"}.items():
        done = attn("show", "t.safetensors", "t" + text, status=2)
        check(f"refuses t{text}", done.stderr == f"attn show: {said}\n" and not done.stdout, done.stderr)


def kinds():
    numbers = gguf_file.write("t.gguf", {"w": ("Q8_0", [2, 32], [0.1 * n - 3 for n in range(64)])}, {"general.name": "tiny"})["w"]
    check(".gguf, decoded", [f32(float(x)) for line in show("t.gguf", "w", "--csv").split() for x in line.split(",")] == [f32(x) for x in numbers])
    check("  with its metadata", "  general.name: tiny\n" in show("t.gguf"))
    attn("make", "fwd:sq2:d2", "-o", "t.npz", "-q")
    attn("make", "fwd:sq2:d2", "-o", "q.npy", "-q", "--only=q")
    with open("t.csv", "w") as file:
        file.write("0.1,2\n3,4\n")
    with open("t.json", "w") as file:
        file.write('{"q": [[0.1, 2], [3, 4]], "mask": [[true, false]]}')
    check(".npz", "\nq     f32   [2, 2]" in show("t.npz"), show("t.npz"))
    check(".npy", "\nq     f32   [2, 2]" in show("q.npy"))
    check(".csv, with all digits", show("t.csv", "t", "--csv") == "0.1,2\n3,4\n")
    check(".json, with all digits", show("t.json", "q", "--csv") == "0.1,2\n3,4\n")
    check("  and booleans", "\nmask  bool  [1, 2]" in show("t.json"))
    check("standard input", show("-", "stdin", "--csv", text="1 2; 3 4") == "1,2\n3,4\n")


def differences():
    a = [1, f32(1 + 2**-23), -0.0, NAN, 4, 0]
    b = [1, 1, 0.0, NAN, f32(4 + 3 * 2**-21), 2**-149]
    more = {"gone": ("F32", [1], [1]), "shape": ("F32", [2, 1], [1, 2]), "type": ("F32", [2], [0.5, f32(0.1)]), "same": ("I64", [1], [2**60])}
    tensor_file.write("a.safetensors", {"x": ("F32", [2, 3], a), **more})
    tensor_file.write("b.safetensors", {"x": ("F32", [2, 3], b), "new": ("F32", [1], [1]), "shape": ("F32", [1, 2], [1, 2]),
                                        "type": ("F64", [2], [0.5, 0.1]), "same": ("I64", [1], [2**60])})
    said = show("a.safetensors", "--diff=b.safetensors", status=1)
    check("differences in words", said == """gone: not in b.safetensors
same i64 [1]: same
shape f32 [2, 1]: shape differs, [1, 2]
type f32 [2]: type differs, f64, 1 of 2 numbers
  absolute  1.49e-09   at [1]: 0.10000000149011612, 0.10000000000000001
  relative  1.49e-08   at [1]: 0.10000000149011612, 0.10000000000000001
  units     0.2        at [1]: 0.10000000149011612, 0.10000000000000001
x f32 [2, 3]: differs, 3 of 6 numbers
  absolute  1.431e-06  at [1, 1]: 4, 4.0000014
  relative  1          at [1, 2]: 0, 1e-45
  units     3          at [1, 1]: 4, 4.0000014
new: not in a.safetensors
""", said)
    found = json.loads(show("a.safetensors", "--diff=b.safetensors", "--json", status=1))
    check("  and in JSON", [(t["name"], t["status"]) for t in found["tensors"]] ==
          [("gone", "missing"), ("same", "same"), ("shape", "shape"), ("type", "type"), ("x", "differs"), ("new", "added")] and found["different"] == 5)
    x = found["tensors"][4]
    check("  with indices and both numbers", x["units"] == {"error": 3, "index": [1, 1], "value": "4", "other": "4.0000014"} and x["differ"] == 3, x)
    check("the same file", attn("show", "a.safetensors", "--diff=a.safetensors").returncode == 0)
    check("one tensor of two", show("a.safetensors", "same", "--diff=b.safetensors") == "same i64 [1]: same\n")
    check("a slice of both", show("a.safetensors", "x[0]", "--diff=b.safetensors", status=1).splitlines()[0] == "x f32 [3]: differs, 1 of 3 numbers")
    tensor_file.write("n.safetensors", {"x": ("F32", [1], [NAN]), "n": ("I64", [1], [2**53 + 1]), "h": ("F16", [1], [1.0])})
    tensor_file.write("m.safetensors", {"x": ("F32", [1], [1]), "n": ("I64", [1], [2**53]), "h": ("F16", [1], [1 + 2**-10])})
    found = json.loads(show("n.safetensors", "--diff=m.safetensors", "--json", status=1))["tensors"]
    check("units of f16", found[0]["units"]["error"] == 1, found[0])
    check("integers that a double does not hold", found[1]["status"] == "differs" and "units" not in found[1], found[1])
    check("NaN and a number", found[2]["absolute"] == {"error": None, "index": [0], "value": "nan", "other": "1"}, found[2])


def messages():
    for words, said in ((["a.safetensors", "y"], "a.safetensors: no tensor 'y' (nearest: x) (available: gone, same, shape, type, x)"),
                        (["a.safetensors", "--csv", "--json"], "--csv and --json are two ways to print the same; give one of them"),
                        (["a.safetensors", "--all"], "--all needs a TENSOR, whose numbers are printed"),
                        (["a.safetensors", "x", "--all", "--csv"], "--all has no effect: --csv and --json print every number"),
                        (["a.safetensors", "--csv", "--diff=b.safetensors"], "--csv has no effect with --diff, which prints no other numbers"),
                        (["a.safetensors", "x", "--all", "--diff=b.safetensors"], "--all has no effect with --diff, which prints no other numbers"),
                        (["a.safetensors", "y", "--diff=b.safetensors"], "no tensor 'y' in a.safetensors, nor in b.safetensors"),
                        (["a.safetensors", "x[9]", "--diff=b.safetensors"], "a.safetensors: '[9]': index 9 of axis 0, which has 2 elements"),
                        (["t.safetensors", "t", "--csv"], "--csv has rows and columns, and 't' has 3 axes; a slice such as 't[0]' has fewer"),
                        (["missing.npz"], "missing.npz: cannot open: No such file or directory"), ([], "no file; for example: attn show out.npz"),
                        (["a.safetensors", "--diff=missing.npz"], "missing.npz: cannot open: No such file or directory"),
                        (["a.safetensors", "x", "y"], "unexpected argument 'y'")):
        done = attn("show", *words, status=2)
        check(f"refuses {' '.join(words)}", done.stderr == f"attn show: {said}\n" and not done.stdout, done.stderr)


def main():
    whole_file()
    slices()
    kinds()
    differences()
    messages()
    return finish()


run_in_folder(main)
