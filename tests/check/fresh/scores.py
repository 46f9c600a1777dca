# SPDX-License-Identifier: MIT
"""Fresh cases of suites about scores, masks and positions."""
import numpy as np

from core import Case, join, mix, positions, products, softmax, split, visible

FINE = {"abs": 1e-5, "rel": 1e-5}
EXACT = {"abs": 0}


# ---- allennlp_scoring ----

def allennlp(rng, n):
    batch, queries, keys, x_dim, y_dim = (int(rng.integers(1, 9)) for _ in range(5))
    cases = []

    def case(op, params, both=False, same=True):
        c = Case("%s_%d" % (op.split(" ")[0].replace("/", "_") + str(len(cases)), n), op, params, {"abs": 1e-6, "rel": 1e-5}, rng)
        cases.append(c)
        y_width = x_dim if same else y_dim
        if both:
            return c, c.draw("x", batch, queries, x_dim), c.draw("y", batch, keys, y_width)
        return c, c.draw("vector", batch, x_dim)[:, None], c.draw("matrix", batch, keys, y_width)

    def done(c, s, both, name="scores"):
        c.expect(name, s if both else s[:, 0], "F64")

    hidden = int(rng.integers(1, 20))
    c, x, y = case("Bahdanau/additive score", {"score": "tanh(vector@W + matrix@U)@V", "normalize": bool(n % 2)}, same=False)
    w, u, v = c.draw("W", x_dim, hidden), c.draw("U", y_dim, hidden), c.draw("V", hidden, 1)
    s = (np.tanh((x @ w)[:, :, None] + (y @ u)[:, None]) @ v)[..., 0]
    done(c, softmax(s)[0] if n % 2 else s, False, "probs" if n % 2 else "scores")
    for both in (False, True):
        c, x, y = case("dot score", {}, both)
        done(c, np.einsum("bic,bjc->bij", x, y), both)
        c, x, y = case("cosine score", {}, both)
        size = np.linalg.norm(x, axis=-1)[:, :, None] * np.linalg.norm(y, axis=-1)[:, None]
        done(c, np.einsum("bic,bjc->bij", x, y) / size, both)
        c, x, y = case("scaled dot score", {"scale": "1/sqrt(%d)" % x_dim}, both)
        done(c, np.einsum("bic,bjc->bij", x, y) / np.sqrt(x_dim), both)
        b = round(float(rng.normal()), 3)
        c, x, y = case("bilinear score", {"score": "X@W@Y^T+b", "b": b}, both, same=False)
        done(c, x @ c.draw("W", x_dim, y_dim) @ y.transpose(0, 2, 1) + b, both)
        c, x, y = case("bilinear score with appended ones", {"score": "[X;1]@W@[Y;1]^T+b", "b": b}, both, same=False)
        more = [np.concatenate([t, np.ones(t.shape[:2] + (1,))], -1) for t in (x, y)]
        done(c, more[0] @ c.draw("W", x_dim + 1, y_dim + 1) @ more[1].transpose(0, 2, 1) + b, both)
        for normalize in (False, True):
            params = {"score": "w.[x;y]+b", "b": b, **({"normalize": True} if normalize else {})}
            c, x, y = case("linear(concat) score" + (" + softmax" if normalize else ""), params, both, same=False)
            w = c.draw("w", x_dim + y_dim)
            s = (x @ w[:x_dim])[:, :, None] + (y @ w[x_dim:])[:, None] + b
            done(c, softmax(s)[0] if normalize else s, both, "probs" if normalize else "scores")
        c, x, y = case("trilinear score", {"score": "w.[x;y;x*y]"}, both)
        w = c.draw("w", 3 * x_dim).reshape(3, -1)
        done(c, (x @ w[0])[:, :, None] + (y @ w[1])[:, None] + np.einsum("bic,bjc,c->bij", x, y, w[2]), both)
    return cases


# ---- keras_attention: True keeps; what is masked gets -1e9, so a query that sees nothing weighs all keys alike ----

def keras_softmax(s, keep):
    weights, _ = softmax(s, keep)
    return np.where(np.broadcast_to(keep, s.shape).any(-1, keepdims=True), weights, 1 / s.shape[-1])


def keras(rng, n):
    batch, queries, keys, dim, dim_v = (int(rng.integers(1, 10)) for _ in range(5))
    cases = []
    for kind in ("Attention(dot)", "Attention(concat)", "AdditiveAttention"):
        for causal in (False, True):
            given = rng.integers(0, 2, 4)
            scale = [None, round(float(rng.normal()), 2), 0.0][int(rng.integers(0, 3))]
            params = {"scale": scale, "causal": causal}
            c = Case("%s_%d_%d" % (kind.strip(")").replace("(", "_"), causal, n), kind, params, FINE, rng)
            q, k = c.draw("query", batch, queries, dim), c.draw("key", batch, keys, dim)
            v = c.draw("value", batch, keys, dim_v)
            keep = np.ones((batch, queries, keys), bool)
            if causal:
                keep &= visible(queries, keys, "top_left")
            if given[0]:
                mask = rng.random((batch, keys)) < 0.6
                mask[0] = False  # an entry without keys
                keep &= c.give("value_mask", mask, "BOOL")[:, None]
            if kind == "Attention(dot)":
                params["score"] = "q.k (no 1/sqrt(d))"
                s = np.einsum("bic,bjc->bij", q, k) * (1 if scale is None else scale)
            elif kind == "Attention(concat)":
                weight = params["concat_score_weight"] = round(float(rng.normal()), 2)
                params["score"] = "concat_score_weight*sum(tanh(scale*(q+k)))"
                s = weight * np.tanh((1 if scale is None else scale) * (q[:, :, None] + k[:, None])).sum(-1)
            else:
                params["score"] = "sum(score_scale*tanh(q+k))"
                params["scale"] = "in.score_scale" if given[1] else None
                w = c.draw("score_scale", dim) if given[1] else np.ones(dim)
                s = np.tanh(q[:, :, None] + k[:, None]) @ w
            weights = keras_softmax(s, keep)
            o = weights @ v
            if given[2]:
                rows = c.give("query_mask", rng.random((batch, queries)) < 0.5, "BOOL")
                o = o * rows[..., None]
            c.expect("output", o).expect("attention_probs", weights)
            if given[3]:
                c.expect("scores", s)
            cases.append(c)
    c = Case("softmax_%d" % n, "masked softmax + weighted sum", {"mask": "True = keep"}, FINE, rng)
    s, v = c.draw("scores", batch, queries, keys), c.draw("value", batch, keys, dim_v)
    keep = c.give("scores_mask", rng.random((batch, queries, keys)) < 0.5, "BOOL") if n % 2 else np.ones(s.shape, bool)
    weights = keras_softmax(s, keep)
    cases.append(c.expect("output", weights @ v).expect("attention_probs", weights))
    for dtype in ("F32", "F16"):
        groups, each, width, width_v, model = (int(rng.integers(1, 5)) for _ in range(5))
        heads = groups * each
        c = Case("mha_%s_%d" % (dtype, n), "MultiHeadAttention(with projections)",
                 {"num_heads": heads, "key_dim": width, "scale": "1/sqrt(key_dim)"}, FINE, rng)
        x = [c.draw(role, batch, length, d, dtype=dtype) for role, length, d in
             (("query", queries, model), ("key", keys, dim), ("value", keys, dim_v))]
        sizes = ((heads, width), (groups, width), (groups, width_v))
        p = [np.einsum("bsd,dhe->bhse", x[t], c.draw(name + "_kernel", x[t].shape[2], *sizes[t], dtype=dtype)) for t, name in enumerate("qkv")]
        p = [p[t] + c.draw(name + "_bias", *sizes[t], dtype=dtype)[None, :, None] for t, name in enumerate("qkv")]
        weights, _ = softmax(products(p[0], p[1]) / np.sqrt(width))
        o = np.einsum("bhse,heo->bso", mix(weights, p[2]), c.draw("out_kernel", heads, width_v, model, dtype=dtype))
        cases.append(c.expect("output", o + c.draw("out_bias", model, dtype=dtype)).expect("attention_probs", weights))
    return cases


# ---- flex_attention ----

def flex(rng, n):
    cases = []
    batch, groups, each, dim, dim_v = (int(rng.integers(1, 4)) for _ in range(5))
    queries, keys = (int(rng.integers(1, 40)) for _ in range(2))
    dim, dim_v, heads = 5 * dim, 3 * dim_v, groups * each
    i, j = positions(queries, keys)
    window, prefix, step = int(rng.integers(1, 9)), int(rng.integers(0, keys + 1)), int(rng.integers(1, 5))
    masks = {
        "flex_attention causal mask_mod": (j <= i, {}),
        "flex_attention causal sliding window (key>=query-%d)" % window: ((j <= i) & (j >= i - window), {"window_size": window}),
        "flex_attention prefix LM, prefix %d" % prefix: ((j <= i) | (j < prefix), {"prefix_length": prefix}),
        "flex_attention dilated sliding window": ((abs(i - j) <= window * step) & ((i - j) % step == 0), {"window_size": window, "dilation": step}),
        "flex_attention some keys": (rng.random((queries, keys)) < 0.3, {}),
        "flex_attention nothing seen": ((j < 0) & (i < 0), {}),
        "flex_attention alibi score_mod": (j <= i, {"num_heads": heads, "rule": "score + (key-query)*slope_h, slope_h=2^(-(h+1)*8/H)"}),
        "flex_attention score + (q-k)*0.25": (None, {"bias": "0.25*(q-k)"}),
        "flex_attention score + (k-q)*1.5": (None, {"bias": "1.5*(k-q)"}),
    }
    for number, (op, (keep, params)) in enumerate(masks.items()):
        c = Case("flex_%d_%d" % (number, n), op, {"layout": "(B,H,T,D)", "scale": "1/sqrt(D)", **params}, FINE, rng)
        q = c.draw("query", batch, heads, queries, dim)
        k, v = c.draw("key", batch, groups, keys, dim), c.draw("value", batch, groups, keys, dim_v)
        s = products(q, k) / np.sqrt(dim)
        if "rule" in params:
            s = s + (j - i) * (2.0 ** (-8 * (np.arange(heads) + 1) / heads))[:, None, None]
        if "bias" in params:
            s = s + (0.25 * (i - j) if "q-k" in params["bias"] else 1.5 * (j - i))
        if keep is not None:
            c.give("keep_mask", np.broadcast_to(keep, s.shape), "BOOL")
        weights, lse = softmax(s, True if keep is None else keep)
        c.expect("output", mix(weights, v))
        if n % 2:
            c.expect("lse", lse)
        cases.append(c)
    return cases


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
    """Linear between the middles of rows, as images are stretched."""
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
    if turns:  # the projections' own module may have one, which nothing calls
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


# ---- onnxruntime: Longformer, biases by distance, rotations ----

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
            table = c.draw("bias_table", buckets, heads, dtype=dtype).reshape(heads, buckets)  # its memory is head-major
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
