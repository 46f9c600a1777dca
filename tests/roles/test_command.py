#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""`attn analyze --roles`: planted heads rank first, uniform ones equal the baseline, weights alone are as good as q and k."""
import json
import os
import random
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import tensor_file
from tap import check, finish, run_in_folder

ATTN, SOURCE = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
DATA = os.path.join(SOURCE, "examples/data")
STREET = os.path.join(DATA, "animal_street.safetensors")
POINTS = ("previous", "next", "self", "first", "separator", "duplicate", "induction")
N, HALF = 24, 12
WORDS = [*"abcdefghijk", "[SEP]"] * 2


def attn(*words, status=0):
    done = subprocess.run([ATTN, *words], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode != status:
        sys.exit(f"attn {' '.join(words)}: {done.returncode} {done.stderr}")
    return done.stdout if status == 0 else done.stderr


def heads(*words):
    return json.loads(attn("analyze", *words, "--roles", "--json"))["heads"]


def planted(role, i):
    """The key that a planted head looks at from query i, None where there is none."""
    key = {"previous": i - 1, "next": i + 1, "self": i, "first": 0, "separator": HALF - 1, "duplicate": i - HALF,
           "induction": i - HALF + 1 if i >= HALF else -1}[role]
    return key if 0 <= key < N else None


def noise(draw):
    row = [draw.random() for _ in range(N)]
    return [x / sum(row) for x in row]


def write_planted(path):
    """A head for each role; one that is uniform, and one of noise."""
    draw, rows = random.Random(5), []
    for role in POINTS:
        for i in range(N):
            key = planted(role, i)
            rows += noise(draw) if key is None else [float(j == key) for j in range(N)]
    rows += [1 / N] * (N * N)
    for i in range(N):
        rows += noise(draw)
    tensor_file.write(path, {"weights": ("F32", [len(POINTS) + 2, N, N], rows)}, tokens=json.dumps(WORDS))


def check_planted():
    write_planted("planted.safetensors")
    found = heads("planted.safetensors")
    for place, role in enumerate(POINTS):
        best = max(found, key=lambda head: head[role])
        check(f"the planted head of {role} scores 1 and ranks first", best["head"] == place and best[role] == 1, best)
        check("  and is named so", role in best["roles"], best["roles"])
        others = [head["head"] for head in found if role in head["roles"] and head["head"] != place]
        # whoever looks at the first token from all queries, or at one separator, does so by definition
        check("  alone", not others, others)
    uniform = found[len(POINTS)]
    check("a uniform head equals the baseline in each number", all(uniform[name] == uniform["uniform"][name] for name in uniform["uniform"]), uniform)
    check("  and has no role", uniform["roles"] == [])
    check("  1/24 on one key", all(uniform[role] == uniform["sink"] for role in ("previous", "next", "self", "first", "duplicate", "induction")))
    check("a head of noise has no role", found[-1]["roles"] == [], found[-1])
    check("rows are those that have such a key", uniform["rows"]["previous"] == 23 and uniform["rows"]["duplicate"] == 12 and
          uniform["rows"]["induction"] == 12 and uniform["rows"]["self"] == 24, uniform["rows"])
    without = heads("planted.safetensors", "--content")
    check("without separators there is no role of that name", all(head["separator"] is None and head["rows"]["separator"] == 0 for head in without))
    check("  and 22 queries see themselves", without[2]["rows"]["self"] == 22 and without[2]["self"] == 1, without[2])
    with open("words.txt", "w") as file:
        file.write("\n".join(f"w{i}" for i in range(N)))
    alone = heads("planted.safetensors", "--tokens=words.txt")
    check("with other tokens nothing is repeated", all(head["duplicate"] is None and head["induction"] is None for head in alone))
    tensor_file.write("few.safetensors", {"weights": ("F32", [1, 4, 4], [float(i == j) for i in range(4) for j in range(4)])})
    few = heads("few.safetensors")[0]
    check("four rows name no role", few["self"] == 1 and few["roles"] == [], few)
    check("  nor is there one without tokens", few["separator"] is None and few["duplicate"] is None)


def check_table():
    lines = attn("analyze", "planted.safetensors", "--roles").splitlines()
    at = next(n for n, line in enumerate(lines) if line.split()[2:3] == ["previous"])
    check("the table has the names", lines[at].split() == ["layer", "head", *POINTS, "sink", "entropy", "positional", "copying", "roles"], lines[at])
    check("  a row for each head", lines[at + 3].split()[:5] == ["0", "2", lines[at + 3].split()[2], lines[at + 3].split()[3], "1.000"], lines[at + 3])
    check("  ends it with the roles", lines[at + 1].endswith("-  previous, positional"), lines[at + 1])
    check("  then uniform rows", lines[at + len(POINTS) + 3].split()[:3] == ["0", "uniform", "0.042"], lines[at + len(POINTS) + 3])
    check("  and their number", lines[at + len(POINTS) + 4].split()[:6] == ["0", "rows", "23", "23", "24", "23"], lines[at + len(POINTS) + 4])


def check_places():
    """Queries of another text have no places; aligned at the end they have the last ones."""
    draw = random.Random(9)
    tensor_file.write("cross.safetensors", {name: ("F32", [1, n, 8], [draw.gauss(0, 1) for _ in range(8 * n)]) for name, n in (("q", 5), ("k", 12), ("v", 12))})
    head = heads("cross.safetensors")[0]
    check("a cross-attention has no previous token", head["previous"] is None and head["positional"] is None and head["rows"]["sink"] == 5, head)
    check("  nor does its table", "nan" not in attn("analyze", "cross.safetensors", "--roles"))
    last = heads("cross.safetensors", "--causal=bottom-right")[0]
    check("the last queries have places", last["rows"]["previous"] == last["rows"]["first"] == 5 and last["next"] is None, last)
    uniform = sum(1 / n for n in range(8, 13)) / 5
    check("  and see the keys before", abs(last["uniform"]["self"] - uniform) < 1e-7)


def check_weights_alone():
    """The same numbers from q and k, and from the weights that `attn run` writes; of layers and entries too."""
    for flags in ([], ["--causal"]):
        attn("run", STREET, "-o", "weights.safetensors", "--weights", *flags, "--quiet")
        check(f"weights alone give what q and k give {flags}", heads("weights.safetensors") == heads(STREET, *flags))
        check(f"  as a table {flags}", attn("analyze", "weights.safetensors", "--roles") == attn("analyze", STREET, "--roles", *flags))
        check(f"  to attn top too {flags}", attn("top", "weights.safetensors", "--token=it", "--json") == attn("top", STREET, "--token=it", "--json", *flags))
    window = heads(STREET, "--window=2,0")
    check("the mask says what uniform rows are", all(abs(head["uniform"]["self"] - (1 + 1 / 2 + 12 / 3) / 14) < 1e-7 for head in window), window[0])
    check("  and nothing comes after", all(head["next"] is None for head in window))
    attn("run", STREET, "-o", "sums.safetensors", "--weights", "--normaliser=sigmoid", "--quiet")
    check("weights that do not sum to 1 have sums", "row_sum" in heads("sums.safetensors")[0] and "row_sum" in heads(STREET, "--normaliser=sigmoid")[0])
    draw = random.Random(3)
    qk = {name: ("F32", [2, 2, 12, 8], [draw.gauss(0, 1) for _ in range(2 * 2 * 12 * 8)]) for name in "qkv"}
    tensor_file.write("padded.safetensors", {**qk, "lengths_kv": ("I64", [2], [12, 9]), "lengths_q": ("I64", [2], [12, 9])},
                      tokens=json.dumps([list("abcdefghijkl"), list("abcabcabc")]))
    attn("run", "padded.safetensors", "-o", "weights.safetensors", "--weights", "--quiet")
    both = heads("padded.safetensors")
    check("a padded batch has entries of its lengths", [head["rows"]["self"] for head in both] == [12, 12, 9, 9], both)
    check("  also from weights alone", heads("weights.safetensors") == both)


def check_recorded():
    """Heads of a real encoder, on 24 random words said twice; and what the pair of sentences shows."""
    found = {content: heads(os.path.join(DATA, "repeated_words.safetensors"), *content) for content in ((), ("--content",))}
    for content, role, place, least in (((), "previous", (0, 2), 0.99), ((), "next", (1, 8), 0.58), (("--content",), "next", (1, 8), 0.82),
                                        ((), "duplicate", (2, 9), 0.57), (("--content",), "duplicate", (2, 9), 0.72)):
        best = max(found[content], key=lambda head: head[role])
        check(f"repeated words {content}: {role} is layer {place[0]}, head {place[1]}",
              (best["layer"], best["head"]) == place and least < best[role] < least + 0.02 and role in best["roles"], best)
    check("  no other head is one of duplicates", [(h["layer"], h["head"]) for h in found[()] if "duplicate" in h["roles"]] == [(2, 9)])
    check("  over the 24 words that were said before", all(head["rows"]["duplicate"] == head["rows"]["induction"] == 24 for head in found[()]))
    check("  the first token is a sink of 52", sum("sink" in head["roles"] and head["sink_key"] == 0 for head in found[()]) == 52)
    check("  and has 0.45 of the weight in a sentence", abs(sum(head["first"] for head in heads(STREET)) / 72 - 0.45) < 0.005)
    check("  none continues the repetition", max(head["induction"] for head in found[()]) < 0.03)
    weights = {name: tensor_file.read(os.path.join(DATA, name + ".safetensors"))[0]["weights"][2] for name in ("animal_street", "animal_street_flooded")}
    for name, expected in (("animal_street", (0.687, 0.656, 0.078, 0.048)), ("animal_street_flooded", (0.330, 0.624, 0.070, 0.048))):
        at = lambda layer, head, key: weights[name][((layer * 12 + head) * 14 + 9) * 14 + key]
        mean = lambda key: sum(at(layer, head, key) for layer in range(6) for head in range(12)) / 72
        check(f"{name}: the numbers of the page", all(abs(a - b) < 0.0005 for a, b in zip((at(3, 1, 2), at(5, 11, 2), mean(2), mean(7)), expected)))
        street = max(at(layer, head, 7) for layer in range(6) for head in range(12))
        check("  and no head looks at the street", street < 0.24 < at(5, 11, 2), street)


def check_copying():
    # the eigenvalues of NumPy give these
    expected = [0.529327, 0.988169, -0.992624, -0.050943, -0.075683, 0.913906, -0.180059, -0.907281, 0.702890, -0.588986, 0.031133, 0.671031]
    layer = os.path.join(DATA, "animal_street_layer2.safetensors")
    check("copying of a real layer", all(abs(head["copying"] - x) < 1e-6 for head, x in zip(heads(layer), expected)))
    # Query heads 0 and 1 share values, as do 2 and 3: outputs that are their transposes, their negatives, or those of the others'
    # channels, which overlap in none.
    model, dim = 6, 2
    value = [float(i == j) for i in range(4) for j in range(model)]
    output = [[0.0] * (4 * dim) for _ in range(model)]
    for head, (first, sign) in enumerate(((0, 1), (0, -1), (2, 1), (0, 1))):
        for c in range(dim):
            output[first + c][head * dim + c] = float(sign)
    weights = {"weights": ("F32", [2, 4, 3, 3], [1 / 3] * 72)}
    twice = {"wv": ("F64", [2, 4, model], value + [-x for x in value]), "wo": ("F64", [2, model, 4 * dim], 2 * [x for row in output for x in row])}
    tensor_file.write("layers.safetensors", {**weights, **twice})
    found = heads("layers.safetensors")
    check("copying of layers whose heads share values", [head["copying"] for head in found] == [1, -1, 1, None, -1, 1, -1, None], found)
    reasons = (("copying cannot be computed from queries, keys and weights: it needs wv and wo of the layer", {}),
               ("copying cannot be computed: 'wv' and 'wo' are not [out, in] of 4 heads and 2 layers", {"wv": twice["wv"], "wo": ("F64", [model, 4 * dim], [1.0] * (8 * model))}),
               ("copying cannot be computed: 'wv' and 'wo' are not [out, in] of 4 heads and 2 layers", {"wv": ("F64", [2, 3, model], [1.0] * 6 * model), "wo": twice["wo"]}))
    for reason, tensors in reasons:
        tensor_file.write("none.safetensors", {**weights, **tensors})
        said = json.loads(attn("analyze", "none.safetensors", "--roles", "--json"))
        check(f"it is said why there is none: {sorted(tensors)}", said["copying_reason"] == reason and all(head["copying"] is None for head in said["heads"]), said.get("copying_reason"))
        check("  below the table too", attn("analyze", "none.safetensors", "--roles").endswith(f"{reason}\n"))


def check_rejected():
    says = "weights.safetensors has weights and no q: "
    for flag in ("--states", "--sweep=1,2", "--gradients", "--steps=steps.npz"):
        error = attn("analyze", "weights.safetensors", flag, status=2)
        check(f"{flag} says that it needs scores",
              error == f"attn analyze: {says}{flag.split('=')[0]} needs scores, which cannot be computed from weights\n", error)
    for command in (["analyze"], ["top", "--token=a"]):
        for flag in ("--temperature=2", "--causal", "--dtype=f64", "--mask=m"):
            error = attn(*command, "weights.safetensors", flag, status=2)
            check(f"{command[0]} {flag} says so too",
                  error == f"attn {command[0]}: {says}the flags of a mechanism need scores, which cannot be computed from weights\n", error)
    error = attn("analyze", STREET, "--content", status=2)
    check("--content alone is rejected", error == "attn analyze: --content is for --roles: it leaves separators out of them\n", error)


def main():
    check_planted()
    check_table()
    check_places()
    check_weights_alone()
    check_recorded()
    check_copying()
    check_rejected()
    return finish()


run_in_folder(main)
