# SPDX-License-Identifier: MIT
"""A Llama-shaped model of two layers with random weights, as a .gguf file, and what it computes, in plain Python and double."""
import math
import os
import random
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import gguf_file

WIDTH, HEADS, HEADS_KV, HIDDEN, LAYERS, BASE, EPSILON = 64, 4, 2, 96, 2, 10000.0, 1e-5
DIM = WIDTH // HEADS
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TEMPLATE = "{{ '<|im_start|>system\nBe brief<|im_end|>\n' }}{{ '<|im_start|>' + role }}"


def byte_characters():
    """GPT-2's characters for bytes."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [byte for byte in range(256) if byte not in shown]
    return {**{byte: chr(byte) for byte in shown}, **{byte: chr(256 + n) for n, byte in enumerate(hidden)}}


CHARACTERS = byte_characters()
MERGES = [("t", "h"), ("th", "e"), ("Ġ", "the"), ("a", "n"), ("an", "d"), ("Ġ", "a"), ("Ġ", "an"), ("Ġ", "and"), ("1", "2"), ("e", "r"),
          ("Ã", "©"), ("Ġ", "Ġ")]
VOCABULARY = [*SPECIAL, *CHARACTERS.values(), *dict.fromkeys(left + right for left, right in MERGES)]


def metadata():
    return {
        "general.architecture": "llama", "general.name": "small", "llama.block_count": LAYERS, "llama.context_length": 512,
        "llama.embedding_length": WIDTH, "llama.feed_forward_length": HIDDEN, "llama.attention.head_count": HEADS,
        "llama.attention.head_count_kv": HEADS_KV, "llama.attention.layer_norm_rms_epsilon": EPSILON, "llama.rope.freq_base": BASE,
        "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "smollm", "tokenizer.ggml.tokens": VOCABULARY,
        "tokenizer.ggml.token_type": [3 if word in SPECIAL else 1 for word in VOCABULARY],
        "tokenizer.ggml.merges": [" ".join(pair) for pair in MERGES], "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.chat_template": TEMPLATE,
    }


def tensors():
    """Each type of weight at least once; matrices are [out, in], and so large that attention decides what comes next."""
    draw = random.Random(1)
    keys = HEADS_KV * DIM
    shapes = {"token_embd": ("Q8_0", (len(VOCABULARY), WIDTH)), "output_norm": ("F32", (WIDTH,)),
              "output": ("F16", (len(VOCABULARY), WIDTH))}
    for n in range(LAYERS):
        shapes |= {f"blk.{n}.{name}": row for name, row in {
            "attn_norm": ("F32", (WIDTH,)), "attn_q": ("Q4_1", (WIDTH, WIDTH)), "attn_k": ("F16", (keys, WIDTH)),
            "attn_v": ("F32", (keys, WIDTH)), "attn_output": ("Q8_0", (WIDTH, WIDTH)), "ffn_norm": ("F32", (WIDTH,)),
            "ffn_gate": ("Q4_1", (HIDDEN, WIDTH)), "ffn_up": ("Q4_1", (HIDDEN, WIDTH)), "ffn_down": ("F16", (WIDTH, HIDDEN))}.items()}
    made = {}
    for name, (kind, shape) in shapes.items():
        scale = 1 if len(shape) == 1 or name == "token_embd" else (9 if "attn" in name else 4) / math.sqrt(shape[1])
        made[f"{name}.weight"] = kind, shape, [(1 if len(shape) == 1 else 0) + scale * (draw.random() - 0.5) for _ in range(math.prod(shape))]
    return made


def encode(text):
    """The tokens of a text of ASCII and é."""
    number, ranks = {word: n for n, word in enumerate(VOCABULARY)}, {pair: n for n, pair in enumerate(MERGES)}
    found = []
    for part in re.split("(" + "|".join(map(re.escape, SPECIAL)) + ")", text):
        if part in SPECIAL:
            found.append(number[part])
            continue
        for piece in re.findall(r"\d|\D+", part):
            for word in re.findall(r"'s|'t|'re|'ve|'m|'ll|'d| ?[a-zA-Zé]+| ?[0-9]+| ?[^\sa-zA-Zé0-9]+|\s+(?!\S)|\s+", piece):
                pieces = [CHARACTERS[byte] for byte in word.encode()]
                while True:
                    best = min(range(len(pieces) - 1), key=lambda i: ranks.get(tuple(pieces[i:i + 2]), 99), default=None)
                    if best is None or tuple(pieces[best:best + 2]) not in ranks:
                        break
                    pieces[best:best + 2] = ["".join(pieces[best:best + 2])]
                found += [number[one] for one in pieces]
    return found


class Reference:
    """Runs one token after the other."""

    def __init__(self, read):
        self.read, self.keys, self.values = read, [[] for _ in range(LAYERS)], [[] for _ in range(LAYERS)]

    def rows(self, name, x):
        w, n = self.read[f"{name}.weight"], len(x)
        return [sum(a * b for a, b in zip(w[i:i + n], x)) for i in range(0, len(w), n)]

    def norm(self, name, x):
        scale = 1 / math.sqrt(sum(a * a for a in x) / len(x) + EPSILON)
        return [a * scale * g for a, g in zip(x, self.read[f"{name}.weight"])]

    @staticmethod
    def rotate(x, position):
        turned = []
        for i in range(0, len(x), 2):
            angle = position * BASE ** (-(i % DIM) / DIM)
            turned += [x[i] * math.cos(angle) - x[i + 1] * math.sin(angle), x[i] * math.sin(angle) + x[i + 1] * math.cos(angle)]
        return turned

    def attend(self, n, q):
        o = []
        for h in range(HEADS):
            k = slice(h * HEADS_KV // HEADS * DIM, (h * HEADS_KV // HEADS + 1) * DIM)
            scores = [sum(a * b for a, b in zip(q[h * DIM:(h + 1) * DIM], key[k])) / math.sqrt(DIM) for key in self.keys[n]]
            weights = [math.exp(s - max(scores)) for s in scores]
            o += [sum(w * value[k][c] for w, value in zip(weights, self.values[n])) / sum(weights) for c in range(DIM)]
        return o

    def logits(self, token):
        """After one more token."""
        position = len(self.keys[0])
        x = self.read["token_embd.weight"][token * WIDTH:(token + 1) * WIDTH]
        for n in range(LAYERS):
            h = self.norm(f"blk.{n}.attn_norm", x)
            self.keys[n].append(self.rotate(self.rows(f"blk.{n}.attn_k", h), position))
            self.values[n].append(self.rows(f"blk.{n}.attn_v", h))
            o = self.attend(n, self.rotate(self.rows(f"blk.{n}.attn_q", h), position))
            x = [a + b for a, b in zip(x, self.rows(f"blk.{n}.attn_output", o))]
            h = self.norm(f"blk.{n}.ffn_norm", x)
            gate, up = self.rows(f"blk.{n}.ffn_gate", h), self.rows(f"blk.{n}.ffn_up", h)
            x = [a + b for a, b in zip(x, self.rows(f"blk.{n}.ffn_down", [g / (1 + math.exp(-g)) * u for g, u in zip(gate, up)]))]
        return self.rows("output", self.norm("output_norm", x))


def write(path, change=None):
    """The model as a file; change(tensors, metadata) may spoil it.  The numbers that a reader gets."""
    parts = tensors(), metadata()
    if change:
        change(*parts)
    return gguf_file.write(path, *parts)
