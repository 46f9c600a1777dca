#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Draws the small files next to this script, for mechanisms that the recorded model does not have: tables by distance, patterns, a
latent layer, a decoder.  The same bytes everywhere: it has its own generator and uses only Python's standard library.

    draw.py [FOLDER]
"""
import json
import math
import pathlib
import struct
import sys


class Draw:
    def __init__(self, seed):
        self.state = seed

    def normal(self):
        """The sum of twelve uniform numbers minus 6: approximately normal, and the same on every machine."""
        total = -6.0
        for _ in range(12):
            self.state = (self.state * 6364136223846793005 + 1442695040888963407) % 2**64
            total += (self.state >> 40) / 2**24
        return total

    def tensor(self, *shape, scale=1.0):
        return shape, [scale * self.normal() for _ in range(math.prod(shape))]


def save(path, tensors, about):
    """A .safetensors file of f32."""
    head, at = {"__metadata__": {"title": about}}, 0
    for name, (shape, values) in tensors.items():
        head[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [at, at + 4 * len(values)]}
        at += 4 * len(values)
    text = json.dumps(head, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(struct.pack(f"<{len(v)}f", *v) for _, v in tensors.values()))


def heads():
    """q, k and v of two heads and 24 tokens of 16 channels; all queries have a direction in common."""
    draw = Draw(1)
    q, k, v = (draw.tensor(2, 24, 16) for _ in range(3))
    return {"q": (q[0], [x + 1 for x in q[1]]), "k": k, "v": v}


def relative():
    """Two heads of 24 tokens, and rows by distance that favour the token before."""
    return heads() | {"relative_keys": ((13, 16), [0.75 * math.exp(-((t - 7) / 1.5) ** 2) for t in range(13) for _ in range(16)])}


def t5():
    """Two heads of 24 tokens, and a bias for each of 32 buckets, which favours tokens some places before."""
    return heads() | {"bias_table": ((2, 32), [2 * (head + 1) * math.exp(-((n - 3) / 2) ** 2) for head in range(2) for n in range(32)])}


def linformer():
    """Two heads of 24 queries over six keys and values, the means of four tokens each."""
    whole = heads()

    def means(values):
        return (2, 6, 16), [sum(values[(h * 24 + 4 * r + j) * 16 + c] for j in range(4)) / 4 for h in range(2) for r in range(6) for c in range(16)]

    return {"q": whole["q"], "k": means(whole["k"][1]), "v": means(whole["v"][1])}


def patterns():
    """Five patterns of length about 1 in 16 channels, and states near three of them."""
    draw = Draw(2)
    stored = draw.tensor(5, 16, scale=0.25)
    states = [stored[1][p * 16 + c] + 0.12 * draw.normal() for p in (0, 2, 4) for c in range(16)]
    return {"patterns": stored, "states": ((3, 16), states)}


def latent():
    """A latent layer of two heads: width 32, content 8 and rotated 4 channels, rank 6."""
    draw = Draw(3)
    return {"x": draw.tensor(12, 32), "q_proj.weight": draw.tensor(2 * 12, 32, scale=0.35), "kv_a_proj_with_mqa.weight": draw.tensor(6 + 4, 32, scale=0.25),
            "kv_b_proj.weight": draw.tensor(2 * 16, 6, scale=0.6), "o_proj.weight": draw.tensor(32, 16, scale=0.2)}


def seq2seq():
    """Six states of a decoder over nine vectors of a memory, additive scores of 8 hidden units."""
    draw = Draw(4)
    return {"x": draw.tensor(6, 16), "context": draw.tensor(9, 16), "w": draw.tensor(8, scale=2), "state.weight": draw.tensor(8, 16, scale=0.3),
            "memory.weight": draw.tensor(8, 16, scale=0.3), "bias": draw.tensor(8, scale=0.1)}


def main():
    folder = pathlib.Path(sys.argv[1]) if sys.argv[1:] else pathlib.Path(__file__).parent
    for make in (relative, t5, linformer, patterns, latent, seq2seq):
        save(folder / f"drawn_{make.__name__}.safetensors", make(), make.__doc__)


if __name__ == "__main__":
    main()
