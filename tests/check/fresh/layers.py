# SPDX-License-Identifier: MIT
"""Generated cases of layers with weights, and of onnxruntime's attention over projected tensors."""
import numpy as np

from core import Case, join, mix, products, softmax, split, visible
from places import frequencies, turn

FINE = {"abs": 1e-5, "rel": 1e-5}


def some(rng, *most):
    return [int(rng.integers(1, m)) for m in most]


def loose(dtype):
    return {"abs": 5e-3, "rel": 1e-3} if dtype == "F16" else FINE


# ---- torch.nn.MultiheadAttention: boolean masks drop where True; float masks are added ----

def torch_layers(rng, n):
    cases = []
    for number, (own_key, own_zero, apart) in enumerate(((0, 0, 0), (1, 0, 0), (0, 1, 0), (1, 1, 1), (0, 0, 1))):
        batch, heads, width, queries, keys = some(rng, 4, 5, 6, 8, 8)
        model = heads * width
        k_dim, v_dim = (some(rng, 9, 9) if apart else (model, model))
        bias, first, average = (bool(rng.integers(0, 2)) for _ in range(3))
        params = {"embed_dim": model, "num_heads": heads, "bias": bias, "add_bias_kv": bool(own_key), "add_zero_attn": bool(own_zero),
                  "kdim": k_dim if apart else None, "vdim": v_dim if apart else None}
        if first or n % 2:
            params["batch_first"] = first
        if not average or n % 2:
            params["average_attn_weights"] = average
        c = Case("torch_%d_%d" % (number, n), "torch.nn.MultiheadAttention", params, FINE, rng)
        x = [rng.standard_normal((batch, length, d)) for length, d in ((queries, model), (keys, k_dim), (keys, v_dim))]
        x = [c.give(role, t if first else t.swapaxes(0, 1)) for role, t in zip(("query", "key", "value"), x)]
        x = x if first else [t.swapaxes(0, 1) for t in x]
        if apart:
            w = [c.draw("param.%s_proj_weight" % name, model, d) for name, d in (("q", model), ("k", k_dim), ("v", v_dim))]
        else:
            w = np.split(c.draw("param.in_proj_weight", 3 * model, model), 3)
        b = np.split(c.draw("param.in_proj_bias", 3 * model), 3) if bias else [0, 0, 0]
        p = [x[t] @ w[t].T + b[t] for t in range(3)]
        if own_key:
            p[1:] = [np.concatenate([p[t], np.tile(c.draw("param.bias_" + name, 1, 1, model), (batch, 1, 1))], 1) for t, name in ((1, "k"), (2, "v"))]
        if own_zero:
            p[1:] = [np.concatenate([t, np.zeros((batch, 1, model))], 1) for t in p[1:]]
        q, k, v = (split(t, heads) for t in p)
        s = products(q, k) / np.sqrt(width)
        keep = np.ones(s.shape, bool)
        kind = int(rng.integers(0, 5))
        if kind in (1, 2):
            drop = c.give("attn_mask", rng.random((batch * heads if kind == 2 else 1, queries, keys))[0 if kind == 1 else slice(None)] < 0.4, "BOOL")
            keep[..., :keys] &= ~(drop if kind == 1 else drop.reshape(batch, heads, queries, keys))
        if kind in (3, 4):
            added = c.draw("attn_mask", *((batch * heads, queries, keys) if kind == 4 else (queries, keys)))
            s[..., :keys] += added if kind == 3 else added.reshape(batch, heads, queries, keys)
        if rng.integers(0, 2):
            drop = c.give("key_padding_mask", np.arange(keys)[None] >= rng.integers(1, keys + 1, batch)[:, None], "BOOL")
            keep[..., :keys] &= ~drop[:, None, None]
        weights, _ = softmax(s, keep)
        weights = np.where(keep.any(-1, keepdims=True), weights, np.nan)  # torch returns NaN for a fully masked query
        o = join(mix(weights, v)) @ c.draw("param.out_proj.weight", model, model).T + (c.draw("param.out_proj.bias", model) if bias else 0)
        c.expect("output", o if first else o.swapaxes(0, 1))
        cases.append(c.expect("attention_probs", weights.mean(1) if params.get("average_attn_weights", True) else weights))
    return cases


# ---- onnxruntime ----

FILTER = -10000.0


def mask_index(c, kind, batch, queries, past, causal):
    """The bias added to the scores: mask_filter_value where mask_index drops a key."""
    rng, keys = c.rng, past + queries
    j = np.arange(keys)
    least = keys if causal else 1  # at least one visible key for every query
    if kind == "lengths":
        length = c.give("mask_index", rng.integers(least, keys + 2, batch), "I32")
        keep = np.broadcast_to((j < length[:, None])[:, None], (batch, queries, keys))
    elif kind == "spans":
        end = rng.integers(1, keys + 1, batch)
        first = rng.integers(0, end)
        if causal:
            end, first = np.full(batch, keys), np.zeros(batch, int)
        c.give("mask_index", np.concatenate([end, first]), "I32")
        keep = np.broadcast_to(((j < end[:, None]) & (j >= first[:, None]))[:, None], (batch, queries, keys))
    elif kind == "keys":
        keep = rng.random((batch, keys)) < 0.7
        keep[:, 0] = True
        c.give("mask_index", keep, "I32")
        keep = np.broadcast_to(keep[:, None], (batch, queries, keys))
    elif kind == "dummy":
        c.give("mask_index", np.ones((batch, 1)), "I32")
        keep = np.ones((batch, queries, keys), bool)
    elif kind == "pairs":
        keep = rng.random((batch, queries, keys)) < 0.7
        keep[..., 0] = True
        c.give("mask_index", keep, "I32")
    else:
        most = keys + int(rng.integers(0, 3))
        whole = np.tril(np.ones((batch, 1, most, most), bool))
        c.give("mask_index", whole, "I32")
        keep = whole[:, 0, past:past + queries, :keys]
    return np.where(keep, 0, FILTER)[:, None]


def ort_layers(rng, n):
    cases = []
    for number, kind in enumerate(("none", "lengths", "spans", "keys", "dummy", "pairs", "square", "rotary", "bias")):
        batch, heads, width, queries, model = some(rng, 4, 4, 6, 7, 8)
        past = int(rng.integers(1, 6)) if number % 3 == 0 or kind == "keys" else 0
        if kind in ("spans", "dummy", "rotary"):
            past = 0
        shared = past > 0 and bool(rng.integers(0, 2))
        width_v = width if past or rng.integers(0, 2) else width + 1
        width = width_v = 2 * width if kind == "rotary" else width
        dtype = "F16" if rng.integers(0, 4) == 0 else "F32"
        causal = bool(rng.integers(0, 2)) or kind == "rotary"
        params = {"num_heads": heads}
        if causal or n % 2:
            params["unidirectional"] = int(causal)
        if rng.integers(0, 2):
            params["mask_filter_value"] = FILTER
        if width_v != width:
            params["qkv_hidden_sizes"] = [heads * width, heads * width, heads * width_v]
        scale = 1 / np.sqrt(width)
        if rng.integers(0, 3) == 0:
            scale = params["scale"] = 0.3
        c = Case("attention_%s_%d" % (kind, n), "com.microsoft.Attention", params, loose(dtype), rng)
        x = c.draw("input", batch, queries, model, dtype=dtype)
        p = x @ c.draw("weight", model, heads * (2 * width + width_v), dtype=dtype, size=0.5)
        if rng.integers(0, 3):
            p = p + c.draw("bias", p.shape[2], dtype=dtype)
        q, k, v = (split(t, heads) for t in np.split(p, [heads * width, 2 * heads * width], -1))
        if kind == "rotary":
            params["do_rotary"] = 1
            angles = np.outer(np.arange(queries), frequencies(width, 10000))
            q, k = turn(q, angles, False), turn(k, angles, False)
        if past:
            room = past + queries + int(rng.integers(0, 4)) if shared else past
            state = c.draw("past", 2, batch, heads, room, width, dtype=dtype)
            if shared:
                params["past_present_share_buffer"] = 1
                c.give("past_sequence_length", [past], "I32")
            k, v = np.concatenate([state[0, :, :, :past], k], 2), np.concatenate([state[1, :, :, :past], v], 2)
            present = state.copy() if shared else np.stack([k, v])
            present[0, :, :, :past + queries], present[1, :, :, :past + queries] = k, v
            c.expect("present", present, dtype)
        s = products(q, k) * scale
        if kind not in ("none", "rotary", "bias"):
            s = s + mask_index(c, kind, batch, queries, past, causal)
        if kind == "bias" or rng.integers(0, 4) == 0:
            axes = (batch if rng.integers(0, 2) else 1, heads if rng.integers(0, 2) else 1)
            s = s + c.draw("attention_bias", *axes, queries, past + queries, dtype=dtype)
        weights, _ = softmax(s, visible(queries, past + queries, "bottom_right" if causal else None))
        cases.append(c.expect("output", join(mix(weights, v)), dtype))
    return cases


def ort_packed(rng, n):
    cases = []
    for number in range(4):
        batch, heads, width, most, model = some(rng, 5, 4, 6, 7, 8)
        width_v = width + number % 2
        dtype = "F16" if number == 3 else "F32"
        lengths = rng.integers(1, most + 1, batch)
        total, longest = int(lengths.sum()), int(lengths.max())
        params = {"num_heads": heads}
        if number % 2:
            params["qkv_hidden_sizes"] = [heads * width, heads * width, heads * width_v]
        scale = 1 / np.sqrt(width)
        if rng.integers(0, 2):
            scale = params["scale"] = 0.6
        c = Case("packed_%d_%d" % (number, n), "com.microsoft.PackedAttention", params, loose(dtype), rng)
        p = c.draw("input", total, model, dtype=dtype) @ c.draw("weight", model, heads * (2 * width + width_v), dtype=dtype) + c.draw(
            "bias", heads * (2 * width + width_v), dtype=dtype)
        real = np.arange(longest)[None] < lengths[:, None]
        at = np.arange(batch * longest).reshape(batch, longest)
        c.give("token_offset", np.concatenate([at[real], at[~real]]).reshape(batch, longest), "I32")
        starts = c.give("cumulative_sequence_length", np.concatenate([[0], np.cumsum(lengths)]), "I32")
        bias = c.draw("attention_bias", batch, heads, longest, longest, dtype=dtype) if rng.integers(0, 2) else np.zeros((batch, heads, longest, longest))
        out = []
        for b in range(batch):
            q, k, v = (split(t[None], heads) for t in np.split(p[starts[b]:starts[b + 1]], [heads * width, 2 * heads * width], -1))
            weights, _ = softmax(products(q, k) * scale + bias[b:b + 1, :, :lengths[b], :lengths[b]])
            out.append(join(mix(weights, v))[0])
        cases.append(c.expect("output", np.concatenate(out), dtype))
    return cases


def ort_decoder(rng, n):
    cases = []
    for cross in (False, True):
        for with_past in (False, True):
            for masked in (False, True):
                batch, heads, width, queries, others = some(rng, 4, 4, 6, 6, 7)
                past = int(rng.integers(1, 6))
                model = heads * width
                c = Case("decoder_%d%d%d_%d" % (cross, with_past, masked, n), "com.microsoft.DecoderAttention",
                         {"num_heads": heads, "mask_filter_value": -10000}, FINE, rng)
                x, y = c.draw("query", queries, batch, model), c.draw("key", others, batch, model)
                q = x @ c.draw("q_weight", model, model)
                source = (y if cross else x) @ c.draw("kv_weight", model, 2 * model)
                bias = np.split(c.draw("bias", 3 * model), 3)
                for role, value in (("static_kv", cross), ("use_past", with_past), ("has_layer_state", True), ("has_key_padding_mask", masked)):
                    c.give(role, [value], "BOOL")
                q, k, v = (split(t.swapaxes(0, 1), heads) for t in (q + bias[0], source[..., :model] + bias[1], source[..., model:] + bias[2]))
                if with_past:
                    caches = [c.draw(role, batch, heads, past, width) for role in ("key_cache", "value_cache")]
                    k, v = caches if cross else (np.concatenate([old, new], 2) for old, new in zip(caches, (k, v)))
                keep = True
                if masked:
                    drop = rng.random((batch, k.shape[2])) < 0.4
                    drop[:, 0] = False
                    keep = ~c.give("key_padding_mask", drop, "BOOL")[:, None, None]
                weights, _ = softmax(products(q, k) / np.sqrt(width), keep)
                c.expect("output", join(mix(weights, v)).swapaxes(0, 1))
                cases.append(c.expect("new_key_cache", k).expect("new_value_cache", v))
    return cases


def ort_multihead(rng, n):
    cases = []
    for number, kind in enumerate(("plain", "lengths", "ends", "keys", "pairs", "past", "packed_kv", "packed_qkv", "cached", "causal")):
        batch, heads, width, queries, keys = some(rng, 4, 4, 7, 7, 9)
        width_v = width if kind in ("past", "packed_kv", "packed_qkv", "cached") else width + int(rng.integers(0, 3))
        dtype = "F16" if rng.integers(0, 4) == 0 else "F32"
        params = {"num_heads": heads}
        scale = 1 / np.sqrt(width)
        if rng.integers(0, 3) == 0:
            scale = params["scale"] = -0.4
        filler = FILTER
        if rng.integers(0, 2):
            filler = params["mask_filter_value"] = [-10000, -3.0][int(rng.integers(0, 2))]
        c = Case("multihead_%s_%d" % (kind, n), "com.microsoft.MultiHeadAttention", params, loose(dtype), rng)
        if kind in ("past", "packed_qkv", "causal"):
            keys = queries
        p = [rng.standard_normal((batch, length, heads * w)) for length, w in ((queries, width), (keys, width), (keys, width_v))]
        if kind == "packed_qkv":
            packed = c.give("query", np.stack([t.reshape(batch, queries, heads, width) for t in p], 3), dtype)
            p = [packed[:, :, :, t].reshape(batch, queries, -1) for t in range(3)]
        elif kind == "packed_kv":
            p[0] = c.give("query", p[0], dtype)
            packed = c.give("key", np.stack([t.reshape(batch, keys, heads, width) for t in p[1:]], 3), dtype)
            p[1:] = [packed[:, :, :, t].reshape(batch, keys, -1) for t in range(2)]
        elif kind == "cached":
            p[0] = c.give("query", p[0], dtype)
            p[1:] = [join(c.give(role, split(t, heads), dtype)) for role, t in (("key", p[1]), ("value", p[2]))]
        else:
            p = [c.give(role, t, dtype) for role, t in zip(("query", "key", "value"), p)]
        if kind not in ("cached", "packed_kv", "packed_qkv") and rng.integers(0, 2):
            bias = c.draw("bias", heads * (2 * width + width_v), dtype=dtype)
            p = [(t + b).astype(np.float16 if dtype == "F16" else np.float32).astype(float) for t, b in
                 zip(p, np.split(bias, [heads * width, 2 * heads * width]))]
        q, k, v = (split(t, heads) for t in p)
        past = 0
        if kind == "past":
            past = int(rng.integers(1, 6))
            old = [c.draw(role, batch, heads, past, width, dtype=dtype) for role in ("past_key", "past_value")]
            k, v = (np.concatenate(pair, 2) for pair in zip(old, (k, v)))
            c.expect("present_key", k, dtype).expect("present_value", v, dtype)
        total = past + keys
        keep = np.ones((batch, 1, 1, total), bool)
        if kind in ("lengths", "ends"):
            length = rng.integers(0, keys + 1, batch)
            more = [] if kind == "lengths" else [np.arange(batch + 1) * queries, np.arange(batch + 1) * keys]
            c.give("key_padding_mask", np.concatenate([length, *more]), "I32")
            keep = np.arange(keys) < length[:, None, None, None]
        if kind in ("keys", "past"):
            keep = c.give("key_padding_mask", rng.random((batch, total)) < 0.6, "I32")[:, None, None] != 0
        if kind == "pairs":
            keep = c.give("key_padding_mask", rng.random((batch, queries, total)) < 0.6, "I32")[:, None] != 0
        s = products(q, k) * scale + np.where(keep, 0, filler)
        if rng.integers(0, 3) == 0:
            axes = (batch if rng.integers(0, 2) else 1, heads if rng.integers(0, 2) else 1)
            s = s + c.draw("attention_bias", *axes, queries, total, dtype=dtype)
        seen = True
        if kind == "causal":
            params["unidirectional"] = 1
            seen = visible(queries, keys, "top_left")
        cases.append(c.expect("output", join(mix(softmax(s, seen)[0], v)), dtype))
    return cases
