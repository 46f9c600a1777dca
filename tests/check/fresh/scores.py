# SPDX-License-Identifier: MIT
"""Generated cases of the suites about scores."""
import numpy as np

from core import Case, mix, positions, products, softmax, visible

FINE = {"abs": 1e-5, "rel": 1e-5}


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


# ---- keras_attention: True keeps; masked scores get -1e9, so a fully masked query has uniform weights ----

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
                mask[0] = False  # an entry with all keys masked
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
