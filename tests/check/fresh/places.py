# SPDX-License-Identifier: MIT
"""Generated cases of the suites about positions: rotary embeddings, biases by distance, tables of sines."""
import numpy as np

from core import Case, join, mix, positions, products, softmax, split

FINE = {"abs": 1e-5, "rel": 1e-5}
EXACT = {"abs": 0}


# ---- positions ----

def turn(x, angle, interleaved):
    """x [..., token, channel] by angles [token, pair]: pairs (2c, 2c+1), or (c, c + half)."""
    pairs = angle.shape[-1]
    head, rest = x[..., :2 * pairs], x[..., 2 * pairs:]
    a, b = (head[..., 0::2], head[..., 1::2]) if interleaved else (head[..., :pairs], head[..., pairs:])
    re, im = a * np.cos(angle) - b * np.sin(angle), a * np.sin(angle) + b * np.cos(angle)
    if interleaved:
        turned = np.stack([re, im], -1).reshape(head.shape)
    else:
        turned = np.concatenate([re, im], -1)
    return np.concatenate([turned, rest], -1)


def frequencies(dim, base):
    return base ** (-np.arange(0, dim, 2) / dim)


def t5_bucket(relative, buckets, most, bidirectional):
    """Raffel et al. 2020; relative = key - query."""
    out = np.zeros(relative.shape, np.int64)
    if bidirectional:
        buckets //= 2
        out = np.where(relative > 0, buckets, 0)
        distance = abs(relative)
    else:
        distance = np.maximum(-relative, 0)
    exact = buckets // 2
    far = exact + (np.log(np.maximum(distance, 1).astype(np.float32) / exact) / np.log(most / exact) * (buckets - exact)).astype(np.int64)
    return out + np.where(distance < exact, distance, np.minimum(far, buckets - 1))


def yarn(dim, base, factor, length, fast, slow):
    def at(rotations):
        return dim * np.log(length / (rotations * 2 * np.pi)) / (2 * np.log(base))
    low, high = max(np.floor(at(fast)), 0), min(np.ceil(at(slow)), dim - 1)
    ramp = np.clip((np.arange(dim // 2) - low) / (high - low if high > low else 0.001), 0, 1)
    plain = frequencies(dim, base)
    return plain / factor * ramp + plain * (1 - ramp)


def places(rng, n):
    cases = []

    def case(op, params, tolerance=None):
        cases.append(Case("position_%d_%d" % (len(cases), n), op, params, tolerance or {"abs": 1e-5, "rel": 1e-5}, rng))
        return cases[-1]

    base, dim = float(rng.choice([100, 10000, 500000])), 2 * int(rng.integers(1, 20))
    tokens, first = int(rng.integers(1, 20)), int(rng.integers(0, 50))
    for interleaved in (False, True):
        op = "RoPE " + ("interleaved" if interleaved else "half-split")
        for leading in ((), (3,), (2, 3)):
            begin = first if len(leading) == 2 else 0
            at = ",".join(str(begin + t) for t in range(tokens))
            c = case(op, {"base": base, "positions": at, "layout": "(batch,heads,seq,dim)"[:1]} if leading else {"base": base, "positions": at})
            x = c.draw("x", *leading, tokens, dim)
            angle = np.outer(np.arange(begin, begin + tokens), frequencies(dim, base))
            c.expect("output", turn(x, angle, interleaved))
            if not leading and not interleaved:
                c.expect("cos", np.cos(np.tile(angle, 2))).expect("sin", np.sin(np.tile(angle, 2)))
    heads = 2 ** int(rng.integers(0, 5))
    c = case("ALiBi bias added to zero scores (key-position form)", {"num_heads": heads, "rule": "bias=-slope*(kv_len-1-k); slope=2^(-8h/%d)" % heads})
    s = c.draw("scores", int(rng.integers(1, 3)), heads, int(rng.integers(1, 6)), int(rng.integers(1, 9)))
    slopes = 2.0 ** (-8 * np.arange(1, heads + 1) / heads)
    keys = s.shape[3]
    c.expect("output", s - slopes[:, None, None] * (keys - 1 - np.arange(keys)))
    for both in (False, True):
        buckets, most = 4 * int(rng.integers(1, 10)), int(rng.integers(30, 300))
        c = case("T5 relative position bucket", {"num_buckets": buckets, "max_distance": most, "bidirectional": both}, EXACT)
        relative = np.arange(-2 * most, 2 * most)
        c.give("relative_position", relative, "I32")
        c.expect("bucket", t5_bucket(relative, buckets, most, both), "I32")
    dim, factor, length = 2 * int(rng.integers(2, 40)), float(rng.integers(2, 20)), int(rng.integers(64, 4096))
    for seen in (int(length * rng.uniform(1.1, 9)), length // 2):
        c = case("RoPE inv_freq (dynamic_ntk)", {"head_dim": dim, "rope_theta": base, "max_position_embeddings": length, "factor": factor, "seq_len": seen})
        c.give("dim_index", np.arange(dim // 2), "I64")
        stretched = base * (factor * max(seen, length) / length - (factor - 1)) ** (dim / (dim - 2)) if dim > 2 else base
        c.expect("inv_freq", frequencies(dim, stretched))
    c = case("RoPE inv_freq (yarn)", {"head_dim": dim, "rope_theta": base, "max_position_embeddings": length, "factor": factor, "beta_fast": 32, "beta_slow": 1,
                                      "attention_factor": "0.1*ln(factor)+1"})
    c.give("dim_index", np.arange(dim // 2), "I64")
    c.expect("inv_freq", yarn(dim, base, factor, length, 32, 1))
    low, high, old = 1.0, float(rng.integers(2, 8)), int(rng.integers(512, 9000))
    c = case("cos/sin table with Llama-3 frequency scaling", {"dim": dim, "max_len": tokens, "theta": base, "factor": factor, "low_freq_factor": low,
                                                              "high_freq_factor": high, "old_context_len": old})
    c.give("positions", np.arange(tokens), "I64")
    plain = frequencies(dim, base)
    wave = 2 * np.pi / plain
    smooth = (old / wave - low) / (high - low)
    scaled = np.where(wave > old / low, plain / factor, np.where(wave < old / high, plain, (1 - smooth) * plain / factor + smooth * plain))
    angle = np.outer(np.arange(tokens), scaled)
    c.expect("cos_sin", np.stack([np.cos(angle), np.sin(angle)], -1))
    return cases


# ---- axlearn_golden ----

def resized(table, rows):
    """Linear interpolation between row centres, as in image resizing."""
    at = np.clip((np.arange(rows) + 0.5) * len(table) / rows - 0.5, 0, len(table) - 1)
    low = np.floor(at).astype(int)
    high = np.minimum(low + 1, len(table) - 1)
    return table[low] * (1 - (at - low))[:, None] + table[high] * (at - low)[:, None]


def block(c, tokens, heads, width, turns, turns_v, given_positions):
    rng, batch, model = c.rng, int(c.rng.integers(1, 4)), 2 * int(c.rng.integers(1, 9))
    inner = "attention.i_proj." + ("i_proj." if turns else "")
    x = c.draw("target", batch, tokens, model)
    at = np.tile(np.arange(tokens), (batch, 1))
    if given_positions:
        at = c.give("positions", rng.integers(0, 90, (batch, tokens)), "I32")
    p = []
    for t, name in enumerate("qkv"):
        w, b = c.draw("param.%s%s_proj.weight" % (inner, name), model, heads, width), c.draw("param.%s%s_proj.bias" % (inner, name), heads, width)
        y = np.einsum("bsd,dhe->bhse", x, w) + b[None, :, None]
        if (turns and t < 2) or (turns_v and t == 2):
            angles = at[:, None, :, None] * frequencies(width, 10000)
            y = turn(y, angles, True)
        p.append(y)
    weights, _ = softmax(products(p[0], p[1]) / np.sqrt(width))
    at_o = "param.attention.%so_proj." % ("i_proj." if turns else "")
    if turns:  # the inner module has an output projection of its own, which is never used
        c.draw("param.attention.i_proj.o_proj.weight", model, heads, width), c.draw("param.attention.i_proj.o_proj.bias", model)
        at_o = "param.attention.o_proj."
    y = x + np.einsum("bhse,ohe->bso", mix(weights, p[2]), c.draw(at_o + "weight", model, heads, width)) + c.draw(at_o + "bias", model)
    y = (y - y.mean(-1, keepdims=True)) / np.sqrt(y.var(-1, keepdims=True) + c.json["params"]["layer_norm_eps"])
    c.expect("data", y * c.draw("param.norm.scale", model) + c.draw("param.norm.bias", model))


def axlearn(rng, n):
    cases = []

    def case(op, params, tolerance=None):
        cases.append(Case("axlearn_%d_%d" % (len(cases), n), op, params, tolerance or FINE, rng))
        return cases[-1]

    batch, heads, tokens, dim = int(rng.integers(1, 4)), int(rng.integers(1, 6)), int(rng.integers(1, 20)), 2 * int(rng.integers(1, 20))
    angle = np.outer(np.arange(tokens), frequencies(dim, 10000))
    for key, value in ((False, False), (True, False), (False, True), (True, True)):
        c = case("RoPE interleaved from [sin|cos] table (B,S,H,D)", {"rotary_key": key, "rotary_value": value})
        table = c.give("sinusoidal_pos", np.concatenate([np.sin(angle), np.cos(angle)], -1)[None, :, None])
        for role, turns in (("query", True), ("key", key), ("value", value)):
            x = c.draw(role, batch, tokens, heads, dim)
            sines, cosines = table[0, :, 0, :dim // 2], table[0, :, 0, dim // 2:]
            a, b = x[..., 0::2], x[..., 1::2]
            s, co = sines[:, None], cosines[:, None]
            y = np.stack([a * co - b * s, a * s + b * co], -1).reshape(x.shape)
            c.expect(role[0] + "_proj", y if turns else x)
    c = case("[sin|cos] position table, theta 10000", {"max_len": tokens, "dim": dim})
    c.give("token_ids", rng.integers(0, 9, (batch, tokens)), "I64")
    c.expect("ref", np.concatenate([np.sin(angle), np.cos(angle)], -1))
    old = int(rng.integers(8, 100))
    new = old * int(rng.integers(2, 9))
    wide = 2 * int(rng.integers(4, 40))
    fast, slow, theta = float(rng.integers(16, 64)), float(rng.integers(1, 3)), float(rng.choice([1000, 10000]))
    c = case("YaRN inv_freq", {"original_max_len": old, "dim": wide, "new_max_len": new, "beta_slow": slow, "beta_fast": fast, "theta": theta,
                               "expected_attention_factor": 0.1 * np.log(new / old) + 1})
    c.give("token_ids", rng.integers(0, 9, (batch, new)), "I64")
    c.expect("inv_freq", yarn(wide, theta, new / old, old, fast, slow))
    theta = float(rng.choice([100, 10000, 500000]))
    c = case("cos/sin table", {"dim": dim, "max_len": tokens, "theta": theta})
    table = np.outer(np.arange(tokens), frequencies(dim, theta))
    c.expect("real", np.cos(table)).expect("imag", np.sin(table))
    c = case("RoPE interleaved, positions 0..%d, theta 10000" % (tokens - 1), {})
    for role in ("query", "key"):
        x = c.draw(role, batch, tokens, dim)
        c.expect(role[0], turn(x, angle, True).reshape(batch, tokens, dim // 2, 2))
    for both in (False, True):
        buckets, most = 4 * int(rng.integers(2, 10)), int(rng.integers(30, 300))
        c = case("T5 relative position bucket", {"num_buckets": buckets, "max_distance": most, "bidirectional": both,
                                                 "relative_position": "key_pos - query_pos"}, EXACT)
        i, j = positions(int(rng.integers(1, 60)), int(rng.integers(1, 400)))
        c.give("relative_position", j - i, "I16")
        c.expect("bucket", t5_bucket(j - i, buckets, most, both), "U8")
    sizes = (int(rng.integers(1, 12)), int(rng.integers(1, 12)))
    if n % 2:
        sizes = (sizes[0], sizes[0])
    if max(sizes) % min(sizes):
        sizes = (sizes[0], 3 * sizes[0])
    c = case("ViTDet decomposed relative position lookup", {"q_size": sizes[0], "k_size": sizes[1]})
    table = resized(c.draw("rel_pos", int(rng.integers(1, 30)), dim), 2 * max(sizes) - 1)
    q_at, k_at = np.arange(sizes[0]) * max(sizes[1] / sizes[0], 1), np.arange(sizes[1]) * max(sizes[0] / sizes[1], 1)
    at = q_at[:, None] - k_at[None, :] + (sizes[1] - 1) * max(sizes[0] / sizes[1], 1)
    c.expect("ref", table[at.astype(int)])
    for turns, turns_v, given in ((False, False, False), (True, False, n % 2 == 0), (True, True, False)):
        words = " with interleaved RoPE on v too" if turns_v else " with interleaved RoPE" if turns else ""
        c = case("post-norm self-attention block: LayerNorm(x + MHA(x))" + words, {"layer_norm_eps": 1e-12, "weight_layout": "(model,heads,head_dim)"},
                 {"abs": 1e-4, "rel": 1e-4})
        block(c, tokens, heads, 2 * int(rng.integers(1, 6)), turns, turns_v, given)
    return cases


# ---- onnxruntime: biases by distance, rotations ----

def distance_bias(rng, n):
    cases = []
    for dtype in ("F32", "F16"):
        for both in (0, 1):
            heads, buckets, most = int(rng.integers(1, 6)), 4 * int(rng.integers(1, 9)), int(rng.integers(40, 200))
            queries, keys = int(rng.integers(1, 30)), int(rng.integers(1, 300))
            params = {"max_distance": most, "is_bidirectional": both}
            if not both and n % 2:
                del params["is_bidirectional"]  # 0 by default
            c = Case("bias_%s_%d_%d" % (dtype, both, n), "com.microsoft.RelativePositionBias", params, {"abs": 1e-6, "rel": 1e-5}, rng)
            table = c.draw("bias_table", buckets, heads, dtype=dtype).reshape(heads, buckets)  # stored head-major
            c.give("query_length", [queries], "I64"), c.give("key_length", [keys], "I64")
            i, j = positions(queries, keys)
            cases.append(c.expect("output", table[:, t5_bucket(j - i, buckets, most, both)][None], dtype))
    for dtype in ("F32", "F16"):
        batch, heads, tokens, width, half = (int(rng.integers(1, 6)) for _ in range(5))
        tolerance = {"abs": 5e-3, "rel": 1e-3} if dtype == "F16" else {"abs": 1e-4, "rel": 1e-3}
        c = Case("gate_%s_%d" % (dtype, n), "com.microsoft.GatedRelativePositionBias", {"num_heads": heads}, tolerance, rng)
        x = c.draw("query_layer", batch, tokens, heads * width, dtype=dtype) + c.draw("query_bias", heads * width, dtype=dtype)
        bias = c.draw("rel_pos", 1, heads, tokens, tokens, dtype=dtype)
        g = split(x, heads) @ c.draw("weight", width, 2 * half, dtype=dtype) + c.draw("bias", 2 * half, dtype=dtype)
        g = 1 / (1 + np.exp(-g.reshape(*g.shape[:3], 2, half).sum(-1)))
        gate = g[..., 0] * (g[..., 1] * c.draw("eco_a", 1, heads, 1, 1, dtype=dtype)[..., 0] - 1) + 2
        cases.append(c.expect("output", gate[..., None] * bias, dtype))
    return cases


def rotary_ort(rng, n):
    cases = []
    for interleaved in (None, 0, 1):
        for rank in (3, 4):
            for ids in ("first", "all"):
                partial = rank == 3 and bool(rng.integers(0, 2))
                batch, heads, tokens, pairs = (int(rng.integers(1, 6)) for _ in range(4))
                dim, rows = 2 * pairs + (2 * int(rng.integers(1, 4)) if partial else 0), tokens + int(rng.integers(0, 20))
                dtype = "F16" if rng.integers(0, 3) == 0 else "F32"
                params = {} if interleaved is None else {"interleaved": interleaved}
                if partial:
                    params.update(rotary_embedding_dim=2 * pairs, num_heads=heads)
                tolerance = {"abs": 2e-3, "rel": 1e-3} if dtype == "F16" else {"abs": 1e-5, "rel": 1e-5}
                c = Case("rotary_%d_%d" % (len(cases), n), "com.microsoft.RotaryEmbedding", params, tolerance, rng)
                x = c.draw("input", *((batch, tokens, heads * dim) if rank == 3 else (batch, heads, tokens, dim)), dtype=dtype)
                first = int(rng.integers(0, rows - tokens + 1))
                at = rng.integers(0, rows, (batch, tokens)) if ids == "all" else np.tile(np.arange(first, first + tokens), (batch, 1))
                c.give("position_ids", at if ids == "all" else [first], "I64")
                angles = rng.uniform(-3, 3, (rows, pairs))
                cosines, sines = c.give("cos_cache", np.cos(angles), dtype), c.give("sin_cache", np.sin(angles), dtype)
                y = split(x, heads) if rank == 3 else x
                a, b = (y[..., 0:2 * pairs:2], y[..., 1:2 * pairs:2]) if interleaved else (y[..., :pairs], y[..., pairs:2 * pairs])
                co, s = cosines[at][:, None], sines[at][:, None]
                parts = [a * co - b * s, a * s + b * co]
                y = np.concatenate([np.stack(parts, -1).reshape(*a.shape[:3], 2 * pairs) if interleaved else np.concatenate(parts, -1), y[..., 2 * pairs:]], -1)
                cases.append(c.expect("output", join(y) if rank == 3 else y, dtype))
    return cases


def rotary_gemma(rng, n):
    batch, heads, tokens, dim = (int(rng.integers(1, 6)) for _ in range(4))
    c = Case("gemma_%d" % n, "com.microsoft.GemmaRotaryEmbedding", {}, {"abs": 5e-3, "rel": 1e-3}, rng)
    angles = c.draw("emb", batch, tokens, dim)
    for number, role in enumerate("qk"):
        x, y = c.draw(role + "_data", batch, heads, tokens, dim, dtype="F16"), c.draw(role + "_rot_data", batch, heads, tokens, dim, dtype="F16")
        c.expect("output%d" % (number + 1), x * np.cos(angles)[:, None] + y * np.sin(angles)[:, None], "F16")
    return [c]
