#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""`attn position`: every kind against its formula, gradients too; rejected files and flags.

usage: position.py ATTN
"""
import json
import math
import os
import struct
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import tensor_file
from tap import check, finish, run_in_folder

ATTN = os.path.abspath(sys.argv[1])
U = 2.0 ** -53


def position(*words):
    return subprocess.run([ATTN, "position", *words], capture_output=True, text=True, stdin=subprocess.DEVNULL)


def done(*words):
    """{name: (shape, numbers)} of a call, as --json and the file have them."""
    made = position(*words, "--json", "-o", "out.safetensors")
    check(" ".join(words), made.returncode == 0 and made.stderr == "", made.stderr)
    tensors = {name: (shape, list(numbers)) for name, (_, shape, numbers) in tensor_file.read("out.safetensors")[0].items()}
    told = {row["name"]: (row["shape"], row["numbers"]) for row in json.loads(made.stdout)["results"]}
    types = {name: dtype for name, (dtype, _, _) in tensor_file.read("out.safetensors")[0].items()}
    for name, (_, numbers) in told.items():  # with the digits that an f32 needs
        numbers[:] = [struct.unpack("f", struct.pack("f", x))[0] if types[name] == "F32" else x for x in numbers]
    check("  --json and the file agree", told == tensors, (told, tensors))
    return tensors


def rejected(status, message, *words):
    before = sorted(os.listdir("."))
    made = position(*words)
    check(f"{' '.join(words)}: {message}", (made.returncode, made.stderr, made.stdout) == (status, f"attn position: {message}\n", ""), (made.returncode, made.stderr))
    check("  nothing written", sorted(os.listdir(".")) == before)


def near(found, expected, bounds):
    return len(found) == len(expected) and all(abs(a - b) <= bound for a, b, bound in zip(found, expected, bounds))


def save(**tensors):
    tensor_file.write("in.safetensors", {name: (dtype, shape, numbers) for name, (dtype, shape, numbers) in tensors.items()})


def sinusoidal(places, channels, base, halves):
    """The table and the bound of each number: that of its angle, of three roundings, and of the sine."""
    rows, bounds, half = [], [], (channels + 1) // 2
    for p in places:
        row, bound = [0.0] * channels, [0.0] * channels
        for c in range(channels):
            i = c // 2
            angle = p * base ** (-2 * i / channels)
            for n, f in enumerate((math.sin, math.cos)):
                at = (i + n * half) if halves else 2 * i + n
                if at < channels and (not halves or n == 0 or i < channels // 2):
                    row[at], bound[at] = f(angle), 8 * U * (abs(angle) + 1)
        rows += row
        bounds += bound
    return rows, bounds


def tables():
    for words, places, base, halves, channels in ((["--tokens=5", "--channels=6"], range(5), 10000, 0, 6), (["-n", "4", "--channels=5", "--base=100"], range(4), 100, 0, 5),
                                                  (["--tokens=3", "--channels=8", "--pairs=halves"], range(3), 10000, 1, 8)):
        shape, found = done("sinusoidal", "--dtype=f64", *words)["table"]
        check("  the sines and cosines", shape == [len(places), channels] and near(found, *sinusoidal(places, channels, base, halves)), found)
    save(positions=("I64", [3], [7, 0, 2]))
    shape, found = done("sinusoidal", "in.safetensors", "--channels=4", "--dtype=f64")["table"]
    check("  at the positions of a file", shape == [3, 4] and near(found, *sinusoidal((7, 0, 2), 4, 10000, 0)), found)
    single = done("sinusoidal", "--tokens=3", "--channels=4")["table"][1]
    check("f32 by default", near(single, sinusoidal(range(3), 4, 10000, 0)[0], [2.0 ** -24] * 12) and tensor_file.read("out.safetensors")[0]["table"][0] == "F32")
    check("slopes of 4 heads", done("slopes", "--heads=4", "--dtype=f64")["slopes"] == ([4], [2.0 ** -(2 * (h + 1)) for h in range(4)]))
    check("of 3: those of 2, then the first of 4", done("slopes", "--heads=3")["slopes"] == ([3], [2.0 ** -4, 2.0 ** -8, 2.0 ** -2]))
    plain = [10000 ** (-2 * i / 6) for i in range(3)]
    found = done("frequencies", "--channels=6")
    check("frequencies", near(found["frequencies"][1], plain, [8 * U * f for f in plain]) and found["magnitude"] == ([], [1]))
    found = done("frequencies", "--channels=6", "--scaling=linear/4")
    check("divided by 4", near(found["frequencies"][1], [f / 4 for f in plain], [8 * U * f for f in plain]))
    found = done("frequencies", "--channels=6", "--scaling=yarn/4/2048")
    check("YaRN keeps the fastest, divides the slowest, and has a magnitude", found["frequencies"][1][0] == 1 and
          near(found["frequencies"][1][2:], [plain[2] / 4], [8 * U]) and near(found["magnitude"][1], [0.1 * math.log(4) + 1], [4 * U]), found)
    found = done("frequencies", "--channels=6", "--scaling=ntk-dynamic/2/100", "--tokens=300")
    factor = 2 * 300 / 100 - 1
    check("dynamic NTK by the length", near(found["frequencies"][1][2:], [plain[2] / factor], [32 * U * plain[2]]), (found, plain[2] / factor))


def t5_bucket(d, buckets, most, causal):
    """As published, for d = query - key."""
    n, first = d, 0
    if not causal:
        buckets //= 2
        first, n = (buckets, -d) if d < 0 else (0, d)
    n = max(n, 0)
    exact = buckets // 2
    if n < exact:
        return first + n
    return first + min(buckets - 1, exact + int(math.log(n / exact) / math.log(most / exact) * (buckets - exact)))


def distances():
    found = done("buckets", "--tokens=3", "--keys=5", "--clipped=2", "--offset=1")
    expected = [max(-2, min(2, i + 1 - j)) + 2 for i in range(3) for j in range(5)]
    check("clipped distances", found == {"buckets": ([3, 5], expected), "count": ([], [5])}, found)
    for words, rule in (("--t5", (32, 128, False)), ("--t5=causal", (32, 128, True)), ("--t5=both/8/16", (8, 16, False))):
        found = done("buckets", "-n", "12", "-m", "12", words)
        check(f"{words}: as published", found["buckets"][1] == [t5_bucket(i - j, *rule) for i in range(12) for j in range(12)] and found["count"][1] == [rule[0]], found)
    table = [float(n) for n in range(10)]
    save(bias_table=("F32", [2, 5], table), dbias=("F32", [2, 3, 4], [float(n % 7) for n in range(24)]))
    pairs = [(h, i, j, max(-2, min(2, i - j)) + 2) for h in range(2) for i in range(3) for j in range(4)]
    check("a bias by distance", done("bias", "in.safetensors", "-n", "3", "-m", "4", "--clipped=2")["bias"] == ([2, 3, 4], [table[5 * h + b] for h, _, _, b in pairs]))
    sums = [0.0] * 10
    for n, (h, _, _, b) in enumerate(pairs):
        sums[5 * h + b] += n % 7
    check("its gradient", done("bias", "in.safetensors", "-n", "3", "-m", "4", "--clipped=2", "--backward") == {"dbias_table": ([2, 5], sums)})


def rotated(x, tokens, channels, places, halves, rotate, sign):
    y = list(x)
    for n in range(len(x) // channels):
        for i in range(rotate // 2):
            a, b = (i, i + rotate // 2) if halves else (2 * i, 2 * i + 1)
            angle = sign * places[n % tokens] * 10000 ** (-2 * i / rotate)
            u, v = x[n * channels + a], x[n * channels + b]
            y[n * channels + a], y[n * channels + b] = u * math.cos(angle) - v * math.sin(angle), u * math.sin(angle) + v * math.cos(angle)
    return y


def transforms():
    x = [((5 * n) % 17 - 8) / 4 for n in range(2 * 3 * 6)]
    bounds = [64 * U * 4] * len(x)  # angles up to 5, numbers up to 2
    for words, halves, rotate in (([], 0, 6), (["--pairs=halves"], 1, 6), (["--channels=4"], 0, 4)):
        save(x=("F64", [2, 3, 6], x), dy=("F64", [2, 3, 6], x))
        shape, y = done("rotate", "in.safetensors", *words)["y"]
        check("  rotated", shape == [2, 3, 6] and near(y, rotated(x, 3, 6, range(3), halves, rotate, 1), bounds), y)
        shape, dx = done("rotate", "in.safetensors", "--backward", *words)["dx"]
        check("  and back", shape == [2, 3, 6] and near(dx, rotated(x, 3, 6, range(3), halves, rotate, -1), bounds), dx)
    save(x=("F64", [2, 3, 6], x), positions=("I32", [3], [5, 1, 1]))
    check("at given positions", near(done("rotate", "in.safetensors")["y"][1], rotated(x, 3, 6, (5, 1, 1), 0, 6, 1), bounds))
    save(x=("F64", [2, 1, 3, 6], x), positions=("I64", [2, 3], [5, 1, 1, 0, 0, 4]))
    expected = rotated(x[:18], 3, 6, (5, 1, 1), 0, 6, 1) + rotated(x[18:], 3, 6, (0, 0, 4), 0, 6, 1)
    check("at those of each entry", near(done("rotate", "in.safetensors")["y"][1], expected, bounds))
    save(x=("F32", [3, 2], [1.0, 2, 3, 4, 5, 6]), table=("F32", [4, 2], [10.0, 20, 30, 40, 50, 60, 70, 80]), positions=("I64", [3], [3, 0, 3]),
         dy=("F32", [3, 2], [1.0, 2, 3, 4, 5, 6]))
    check("rows of a table added", done("add", "in.safetensors") == {"y": ([3, 2], [71, 82, 13, 24, 75, 86])})
    check("and the gradient of the table", done("add", "in.safetensors", "--backward") == {"dtable": ([4, 2], [3, 4, 0, 0, 0, 0, 6, 8])})
    save(table=("F64", [2, 2], [0.0, 8, 4, 16]), dy=("F64", [4, 2], [1.0, 2, 4, 8, 16, 32, 64, 128]))
    check("a table resized", done("resize", "in.safetensors", "-n", "4") == {"y": ([4, 2], [0, 8, 1, 10, 3, 14, 4, 16])})
    check("and its gradient", done("resize", "in.safetensors", "-n", "4", "--backward") == {"dtable": ([2, 2], [1 + 3 + 4, 2 + 6 + 8, 1 + 12 + 64, 2 + 24 + 128])})


def gate():
    q, w, b, a = [0.5, -1, 0.25, 2], [0.5, -0.25, 1, 0.75, 0.125, 0.5, -1, 0.25], [0.1, 0.2, -0.3, 0.4], [1.5, -0.5]
    grad = [1.0, -2.0]
    save(q=("F64", [2, 1, 2], q), w=("F64", [2, 4], w), b=("F64", [4], b), a=("F64", [2], a), dgates=("F64", [2, 1], grad))
    sigmoid = lambda x: 1 / (1 + math.exp(-x))
    gates, dq, dw, db, da = [], [0.0] * 4, [0.0] * 8, [0.0] * 4, []
    for h in range(2):
        z = [sum(q[2 * h + c] * w[4 * c + k] for c in range(2)) + b[k] for k in range(4)]
        u, r = sigmoid(z[0] + z[1]), sigmoid(z[2] + z[3])
        gates.append(u * (r * a[h] - 1) + 2)
        da.append(grad[h] * u * r)
        for k in range(4):
            dz = grad[h] * ((r * a[h] - 1) * u * (1 - u) if k < 2 else u * a[h] * r * (1 - r))
            db[k] += dz
            for c in range(2):
                dq[2 * h + c] += dz * w[4 * c + k]
                dw[4 * c + k] += dz * q[2 * h + c]
    bounds = [64 * U * 8] * 8  # fewer than 64 roundings of numbers below 8
    check("gates", near(done("gate", "in.safetensors")["gates"][1], gates, bounds))
    found = done("gate", "in.safetensors", "--backward")
    for name, shape, expected in (("dq", [2, 1, 2], dq), ("dw", [2, 4], dw), ("db", [4], db), ("da", [2], da)):
        check(f"  {name}", found[name][0] == shape and near(found[name][1], expected, bounds), (found[name], expected))


def rejections():
    kinds = "`attn position --help` lists what each kind is"
    rejected(2, "no kind; for example: attn position slopes --heads=12")
    rejected(2, "unknown kind 'slope' (nearest: slopes); `attn position --help` lists them", "slope")
    rejected(2, "slopes needs --heads", "slopes")
    rejected(2, f"--keys has no effect on slopes; {kinds}", "slopes", "--heads=2", "--keys=2")
    rejected(2, f"--backward has no effect on buckets; {kinds}", "buckets", "--tokens=2", "--backward")
    rejected(2, "unexpected argument 'in.safetensors'; slopes reads no file", "slopes", "in.safetensors")
    rejected(2, "no input file; rotate reads x", "rotate")
    rejected(2, "sinusoidal needs --tokens, or a file with a tensor 'positions'", "sinusoidal", "--channels=4")
    rejected(2, "no rule; --t5 or --clipped=N sets it", "buckets", "--tokens=2")
    rejected(2, "--t5 and --clipped are two rules; set only one of them", "buckets", "--tokens=2", "--t5", "--clipped=2")
    rejected(2, "--channels (5) is odd; pairs are rotated", "frequencies", "--channels=5")
    rejected(2, "--scaling=ntk-dynamic needs --tokens, the length of the sequence", "frequencies", "--channels=4", "--scaling=ntk-dynamic/2/100")
    rejected(2, "--dtype: 'f16' is not f32 or f64", "slopes", "--heads=2", "--dtype=f16")
    rejected(2, "--pairs: 'x' is not interleaved or halves", "sinusoidal", "--pairs=x")
    rejected(2, "--heads (0) is not between 1 and 2147483647", "slopes", "--heads=0")
    rejected(2, "gone.npz: cannot open: No such file or directory", "rotate", "gone.npz")
    base = {"x": ("F32", [3, 2], [1.0] * 6), "table": ("F32", [4, 2], [1.0] * 8), "positions": ("I64", [3], [0, 1, 2])}

    def bad(kind, message, *words, status=2, **tensors):
        tensor_file.write("bad.safetensors", {name: t for name, t in {**base, **tensors}.items() if t})
        rejected(status, f"bad.safetensors: {message}", kind, "bad.safetensors", *words, "-o", "never.npz")
    bad("rotate", "no tensor 'x' (available: positions, table)", x=None)
    bad("rotate", "tensor 'x' is [6]; it must be [token, channel], [head, token, channel] or [batch, head, token, channel]", x=("F32", [6], [1.0] * 6))
    bad("rotate", "tensor 'positions' is not [3], a position for each token", positions=("I64", [2], [0, 1]))
    bad("rotate", "tensor 'positions' is f32; it must be i64 or i32", positions=("F32", [3], [0.0] * 3), status=3)
    bad("sinusoidal", "--tokens (4) is not the number of positions in the file, 3", "--tokens=4", "--channels=2")
    bad("add", "tensor 'x' has 3 channels, and 'table' 2", x=("F32", [3, 3], [1.0] * 9))
    bad("add", "tensor 'dy' has 3 channels, and 'table' 2", "--backward", dy=("F32", [3, 3], [1.0] * 9))
    bad("add", "tensor 'table' is [8]; it must be [position, channel]", table=("F32", [8], [1.0] * 8))
    bad("add", "positions[2] is 4; the table has 4 rows", positions=("I64", [3], [0, 1, 4]))
    bad("resize", "tensor 'dy' is [3, 2]; it must be [position, channel], [5, 2]", "--backward", "--tokens=5", dy=base["x"])
    bad("bias", "tensor 'bias_table' has 4 buckets, and the rule 5", "--tokens=2", "--clipped=2", bias_table=("F32", [1, 4], [1.0] * 4))
    bad("bias", "tensor 'dbias' is [1, 2, 3]; it must be [head, query, key], [1, 2, 2]", "--tokens=2", "--clipped=2", "--backward",
        bias_table=("F32", [1, 5], [1.0] * 5), dbias=("F32", [1, 2, 3], [1.0] * 6))
    bad("bias", "--t5: 4 buckets up to 1 are no rule of T5", "--tokens=2", "--t5=causal/4/1", bias_table=("F32", [1, 4], [1.0] * 4))
    bad("gate", "tensor 'w' has 3 columns; half of them are of each sigmoid", q=base["x"], w=("F32", [2, 3], [1.0] * 6))
    bad("gate", "tensor 'w' is [3, 2]; it must be [channel, 2 width]", q=base["x"], w=base["x"])
    bad("gate", "tensor 'dgates' is [2]; it must be [.., head, query], [3]", "--backward", q=base["x"], w=("F32", [2, 2], [1.0] * 4), b=("F32", [2], [1.0] * 2),
        a=("F32", [1], [1.0]), dgates=("F32", [2], [1.0] * 2))


def main():
    tables()
    distances()
    transforms()
    gate()
    rejections()
    return finish()


run_in_folder(main)
