# SPDX-License-Identifier: MIT
"""Generated cases of the suites about masks."""
import numpy as np

from core import Case, join, mix, positions, products, softmax, split, visible

EXACT = {"abs": 0}


# ---- masks ----

def masks(rng, n):
    cases = []

    def case(op, params):
        cases.append(Case("mask_%d_%d" % (len(cases), n), op, params, EXACT, rng))
        return cases[-1]

    lengths = rng.integers(0, 7, int(rng.integers(1, 6)))
    others = rng.integers(0, 7, lengths.size)
    for k_lengths in (lengths, others):
        c = case("block-diagonal attention mask", {"q_lengths": lengths.tolist(), "k_lengths": k_lengths.tolist()})
        c.give("q_lengths", lengths, "I64"), c.give("k_lengths", k_lengths, "I64")
        of_q, of_k = np.repeat(np.arange(lengths.size), lengths), np.repeat(np.arange(lengths.size), k_lengths)
        same = of_q[:, None] == of_k[None, :]
        first_q, first_k = np.cumsum(lengths) - lengths, np.cumsum(k_lengths) - k_lengths
        i, j = np.arange(of_q.size) - first_q[of_q], np.arange(of_k.size) - first_k[of_k]
        if same.size:
            c.expect("mask", same, "BOOL").expect("mask_causal_topleft", same & (j[None, :] <= i[:, None]), "BOOL")
        else:
            cases.pop()
    width = int(rng.integers(1, 12))
    real = rng.integers(0, width + 1, int(rng.integers(1, 6)))
    c = case("padding mask from ragged token lists", {"pad_token": 0, "lengths": real.tolist()})
    c.give("lengths", real, "I64")
    c.expect("mask", np.arange(width)[None] < real[:, None], "BOOL")
    batch, tokens, chunk = int(rng.integers(1, 4)), int(rng.integers(1, 20)), int(rng.integers(1, 7))
    for decode in (False, True):
        first = rng.integers(0, tokens, batch)
        valid = np.arange(tokens)[None] >= first[:, None]
        keys = np.arange(tokens)[-chunk:] if decode else np.arange(tokens)
        queries = np.arange(tokens)[-1:] if decode else np.arange(tokens)
        params = {"chunk_size": chunk, "rule": "k<=q, both valid, same chunk counted from the first valid token"}
        if decode:
            params = {"chunk_size": chunk, "query_index": tokens - 1, "key_indices": keys.tolist(), "pad_tokens": int(first[0])}
        c = case("chunked causal mask, chunk %d" % chunk, params)
        c.give("attention_mask", valid, "I64")
        q, k = queries[None, :, None], keys[None, None, :]
        at = first[:, None, None]
        mask = (k <= q) & (k >= at) & (q >= at) & ((k - at) // chunk == (q - at) // chunk)
        c.expect("mask", mask[:, None], "BOOL")
    prefix = int(rng.integers(0, width + 1))
    c = case("causal mask enabled only for query positions from %d on" % prefix, {"rule": "later tokens are causal"})
    c.give("causal_flag", np.arange(width) >= prefix, "I64")
    i, j = positions(width, width)
    c.expect("mask", (j <= i) | (j < prefix), "BOOL")
    c = case("causal + additive bias", {"alignment": "top-left"})
    bias = c.draw("bias", int(rng.integers(1, 9)), int(rng.integers(1, 9)))
    c.expect("attn_bias", np.where(visible(*bias.shape, "top_left"), bias, -np.inf), "F32")
    stride = int(rng.integers(1, 6))
    columns, tokens = int(rng.integers(1, stride + 1)), int(rng.integers(1, 20))
    for both in (True, False):
        c = case("Sparse Transformer fixed pattern", {"stride": stride, "expressivity": columns, "bidirectional": both, "seq": tokens})
        c.give("seq", [tokens], "I64")
        i, j = positions(tokens, tokens)
        mask = (i // stride == j // stride) | (j % stride >= stride - columns)
        c.expect("mask", mask & (both | (j <= i)), "BOOL")
    return cases


# ---- onnxruntime: Longformer ----

def longformer(rng, n):
    cases = []
    for kind in ("first", "none", "anywhere", "masked"):
        heads, width, batch = (int(rng.integers(1, 4)) for _ in range(3))
        window = int(rng.integers(1, 4))
        tokens, dim = 2 * window * int(rng.integers(1, 5)), heads * width
        c = Case("longformer_%s_%d" % (kind, n), "com.microsoft.LongformerAttention", {"num_heads": heads, "window": window}, {"abs": 1e-4, "rel": 1e-4}, rng)
        x = c.draw("input", batch, tokens, dim)
        local = x @ c.draw("weight", dim, 3 * dim) + c.draw("bias", 3 * dim)
        real = np.ones((batch, tokens), bool)
        if kind == "masked":
            real = np.arange(tokens)[None] < rng.integers(0, tokens + 1, batch)[:, None]
        c.give("mask", np.where(real, 0, -10000))
        whole = x @ c.draw("global_weight", dim, 3 * dim) + c.draw("global_bias", 3 * dim)
        marked = np.zeros((batch, tokens), bool)
        if kind in ("first", "masked"):
            marked[:, :int(rng.integers(0, tokens))] = True
        if kind == "anywhere":
            marked = rng.random((batch, tokens)) < 0.3
        marked &= real
        c.give("global", marked, "I32")
        i, j = positions(tokens, tokens)
        both = (real[:, :, None] & real[:, None, :])[:, None]
        seen = both & ((abs(i - j) <= window) | marked[:, None, None, :])

        def attend(p, keep):
            q, k, v = (split(t, heads) for t in np.split(p, 3, -1))
            return join(mix(softmax(products(q, k) / np.sqrt(width), keep)[0], v))

        cases.append(c.expect("output", np.where(marked[..., None], attend(whole, both), attend(local, seen)), "F32"))
    return cases
