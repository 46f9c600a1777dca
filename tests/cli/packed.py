#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""`attn top`, `analyze` and `view` on packed sequences: each is an entry with its own tokens, and has the links that it has alone."""

import json
import os
import random
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import tensor_file
from tap import check, finish, run_in_folder

ATTN = sys.argv[1]
LENGTHS, HEADS_Q, HEADS_KV, DIM = (3, 5, 0, 4), 4, 2, 6
TOKENS = [f"w{i}" for i in range(sum(LENGTHS))]


def save(path, tokens, **tensors):
    """tensors: {name: (shape, numbers)}, stored as i64 if all numbers are integers, else as f64."""
    kind = {name: "I64" if all(isinstance(x, int) for x in numbers) else "F64" for name, (_, numbers) in tensors.items()}
    tensor_file.write(path, {name: (kind[name], *t) for name, t in tensors.items()}, tokens=json.dumps(tokens))


def run(*words):
    return subprocess.run([ATTN, *words], capture_output=True, text=True)


def rows(tensor, heads, begin, end, token_first):
    """The tokens begin .. end-1 of [head][token] rows, flat."""
    if token_first:
        return [x for i in range(begin, end) for h in range(heads) for x in tensor[h][i]]
    return [x for h in range(heads) for i in range(begin, end) for x in tensor[h][i]]


def main():
    draw = random.Random(1)
    total = sum(LENGTHS)
    begins = [sum(LENGTHS[:n]) for n in range(len(LENGTHS) + 1)]
    q = [[[draw.gauss(0, 1) for _ in range(DIM)] for _ in range(total)] for _ in range(HEADS_Q)]
    k = [[[draw.gauss(0, 1) for _ in range(DIM)] for _ in range(total)] for _ in range(HEADS_KV)]
    nested = [TOKENS[begins[b]:begins[b + 1]] for b in range(len(LENGTHS))]
    for token_first in (0, 1):
        layout = ["--layout=bshd"] if token_first else []
        shape = (lambda heads, n: [n, heads, DIM]) if token_first else (lambda heads, n: [heads, n, DIM])
        parts = {"q": (shape(HEADS_Q, total), rows(q, HEADS_Q, 0, total, token_first)),
                 "k": (shape(HEADS_KV, total), rows(k, HEADS_KV, 0, total, token_first)),
                 "cu_seqlens_q": ([len(begins)], begins), "cu_seqlens_kv": ([len(begins)], begins)}
        save("flat.safetensors", TOKENS, **parts)
        save("nested.safetensors", nested, **parts)
        for options in ([], ["--causal"], ["--window=1,0", "--softcap=2"]):
            for b, length in enumerate(LENGTHS):
                if not length:
                    continue
                alone = {"q": (shape(HEADS_Q, length), rows(q, HEADS_Q, begins[b], begins[b + 1], token_first)),
                         "k": (shape(HEADS_KV, length), rows(k, HEADS_KV, begins[b], begins[b + 1], token_first))}
                save("alone.safetensors", nested[b], **alone)
                word = nested[b][-1]
                words = ["--token", word, "--count=1000", "--json", *layout, *options]
                expected = json.loads(run("top", "alone.safetensors", *words).stdout)["links"]
                for name in ("flat", "nested"):
                    links = json.loads(run("top", f"{name}.safetensors", *words).stdout)["links"]
                    same = [{f: x for f, x in link.items() if f != "entry"} for link in links] == expected
                    check(f"top {name} {layout + options}: sequence {b} as alone", same and links and {x["entry"] for x in links} == {b}, links[:2])
        found = json.loads(run("analyze", "flat.safetensors", "--json", *layout).stdout)["heads"]
        save("alone.safetensors", nested[1], q=(shape(HEADS_Q, 5), rows(q, HEADS_Q, 3, 8, token_first)), k=(shape(HEADS_KV, 5), rows(k, HEADS_KV, 3, 8, token_first)))
        expected = json.loads(run("analyze", "alone.safetensors", "--json", *layout).stdout)["heads"]
        mine = [h for h in found if h["entry"] == 1]
        check("analyze: entropies of a sequence as alone", len(mine) == HEADS_Q and all(abs(a["entropy"] - b["entropy"]) < 1e-6 for a, b in zip(mine, expected)))
        for flag in () if token_first else ("--gradients", "--steps=steps.safetensors", "--gradient-weighted=map.safetensors"):
            save("values.safetensors", TOKENS, **parts, v=parts["k"], do=parts["q"])
            done = run("analyze", "values.safetensors", "--json", flag)
            same = done.returncode == 0 and [h["entropy"] for h in json.loads(done.stdout)["heads"]] == [h["entropy"] for h in found]
            check(f"analyze {flag}: sequences are entries, with their values", same, done.stderr)
        done = run("view", "flat.safetensors", "-o", "page.html", "--json", *layout)
        check("view: an entry for each sequence", done.returncode == 0 and json.loads(done.stdout)["entries"] == len(LENGTHS), done.stderr)
    save("known.safetensors", TOKENS, **parts, lengths=([4], list(LENGTHS)))
    done = run("top", "known.safetensors", "--token=w1", "--layout=bshd")
    check("lengths of any meaning beside cu_seqlens are left alone", done.returncode == 0, done.stderr)
    save("both.safetensors", TOKENS, **parts, lengths_q=([4], list(LENGTHS)))
    done = run("top", "both.safetensors", "--token=w1", "--layout=bshd")
    check("lengths beside cu_seqlens are rejected", done.returncode == 2 and
          done.stderr == "attn top: both.safetensors: tensor 'lengths_q': packed sequences take their lengths from cu_seqlens\n", done.stderr)
    return finish()


run_in_folder(main)
