# SPDX-License-Identifier: MIT
"""Generated cases of mechanism_grad: outputs; gradients, tangents and double backward by complex steps."""
import numpy as np

from core import Case, gradients, inner, join, mix, positions, products, repeat, softmax, split, tangent, visible
from places import frequencies, t5_bucket, turn

FINE = {"rel": 1e-5, "abs": 1e-5}
LAYOUT = {"layout": "(B,H,S,D)"}


def sizes(rng, most=9):
    batch, groups, each = (int(rng.integers(1, 3)) for _ in range(3))
    queries, keys, dim, dim_v = (int(rng.integers(1, most)) for _ in range(4))
    return batch, groups * each, groups, queries, keys, dim, dim_v


def finish(c, forward, inputs, names, with_lse=True):
    """forward(**inputs) -> o, lse, weights: expects these three, and the gradients of <o, grad_o> + <lse, grad_lse>."""
    o, lse, weights = forward(**inputs)
    grad_o = c.draw("grad_output", *o.shape)
    grad_lse = c.draw("grad_lse", *lse.shape) if with_lse else np.zeros(lse.shape)
    c.expect("output", o).expect("lse", lse).expect("weights", weights)

    def loss(**x):
        o, lse, _ = forward(**x)
        return np.sum(grad_o * o) + inner(grad_lse, lse)
    for name, g in gradients(loss, inputs).items():
        c.expect("grad_" + names.get(name, name), g)
    return c


# ---- dot products with their options ----

def dot_forward(params, keep, dropped, scale):
    """A function of q, k, v and optional bias, slopes, sink and scale per head; it returns o, lse and weights."""
    def forward(q, k, v, bias=None, slopes=None, sink=None, scale_per_head=None):
        queries, keys = q.shape[2], k.shape[2]
        s = products(q, k) * (scale if scale_per_head is None else scale_per_head[:, None, None])
        s = s / params.get("temperature", 1)
        if "softcap" in params:
            s = params["softcap"] * np.tanh(s / params["softcap"])
        if bias is not None:
            s = s + bias
        if slopes is not None:
            i, j = positions(queries, keys, keys - queries if params.get("causal") == "bottom_right" else 0)
            s = s - slopes[:, None, None] * abs(i - j)
        weights, lse = softmax(s, keep, None if sink is None else sink[:, None, None])
        return mix(weights * dropped, v), lse, weights
    return forward


def dot_case(rng, name, op="scaled_dot_product_attention", options=None, most=9):
    batch, heads, groups, queries, keys, dim, dim_v = sizes(rng, most)
    params = dict(LAYOUT)
    c = Case(name, op, params, FINE, rng)
    chosen = options if options is not None else {o for o in ("scale", "temperature", "softcap", "causal", "window", "mask", "bias", "slopes", "sink",
                                                              "dropout", "scale_per_head", "lengths") if rng.random() < 0.3}
    scale = 1 / np.sqrt(dim)
    inputs = {"q": c.draw("query", batch, heads, queries, dim), "k": c.draw("key", batch, groups, keys, dim),
              "v": c.draw("value", batch, groups, keys, dim_v)}
    if "scale" in chosen:
        scale = params["scale"] = [0.0, -0.7, 1.3][int(rng.integers(0, 3))]
    else:
        params["scale"] = "1/sqrt(D)"
    if "scale_per_head" in chosen:
        params["scale"] = "in.scale_per_head (H)"
        inputs["scale_per_head"] = c.draw("scale_per_head", heads)
    if "temperature" in chosen:
        params["temperature"] = round(float(rng.uniform(0.3, 3)), 2)
    if "softcap" in chosen:
        params["softcap"] = round(float(rng.uniform(0.5, 4)), 2)
    if "causal" in chosen:
        params["causal"] = ["top_left", "bottom_right"][int(rng.integers(0, 2))]
    if "window" in chosen:
        params["window"] = [int(rng.integers(-1, 4)), int(rng.integers(-1, 4))]
    keep = visible(queries, keys, params.get("causal"), params.get("window"))[None, None]
    if "mask" in chosen:
        keep = keep & c.give("mask", rng.random((batch, 1, queries, keys)) < 0.5, "BOOL")
    if "lengths" in chosen:
        of_q, of_k = rng.integers(0, queries + 1, batch), rng.integers(0, keys + 1, batch)
        if params.get("causal") == "bottom_right" or "slopes" in chosen:  # lengths would shift the positions
            of_q, of_k = np.full(batch, queries), np.full(batch, keys)
        c.give("lengths_q", of_q, "I32"), c.give("lengths_kv", of_k, "I32")
        i, j = positions(queries, keys)
        keep = keep & ((i < of_q[:, None, None]) & (j < of_k[:, None, None]))[:, None]
    if "bias" in chosen and "mask" not in chosen:
        axes = [n if rng.integers(0, 2) else 1 for n in (batch, heads, queries)]
        inputs["bias"] = c.draw("bias", *axes, keys)
    if "slopes" in chosen:
        inputs["slopes"] = c.draw("slopes", heads)
    if "sink" in chosen and "lengths" not in chosen:
        inputs["sink"] = c.draw("sink", heads)
    dropped = 1.0
    if "dropout" in chosen:
        params["dropout_p"] = 0.3
        dropped = c.give("dropout_keep", rng.random((batch, heads, queries, keys)) >= 0.3, "BOOL") / (1 - 0.3)
    return c, inputs, dot_forward(params, keep, dropped, scale)


NAMES = {"q": "query", "k": "key", "v": "value"}


def dots(rng, n):
    cases = []
    for number in range(4):
        c, inputs, forward = dot_case(rng, "dot_%d_%d" % (number, n))
        cases.append(finish(c, forward, inputs, NAMES, with_lse=number % 2 == 0))
    for number in range(2):
        options = {o for o in ("scale", "softcap", "causal", "window", "bias", "temperature", "mask") if rng.random() < 0.4}
        c, inputs, forward = dot_case(rng, "jvp_%d_%d" % (number, n), "scaled_dot_product_attention jvp", options)
        o, lse, _ = forward(**inputs)
        d = {name: c.draw("tangent_" + NAMES.get(name, name), *x.shape) for name, x in inputs.items()}
        o_d, lse_d, _ = tangent(forward, inputs, d)
        cases.append(c.expect("output", o).expect("lse", lse).expect("tangent_output", o_d).expect("tangent_lse", lse_d))
        c, inputs, forward = dot_case(rng, "second_%d_%d" % (number, n), "scaled_dot_product_attention double_backward", options, 6)
        cases.append(second(c, inputs, forward))
    return cases


def second(c, inputs, forward):
    """<grads, cotangents> is the tangent of the loss along the cotangents, a complex step; real differences differentiate it again."""
    o = forward(**inputs)[0]
    inputs = {**inputs, "grad_o": c.draw("grad_output", *o.shape)}
    cot = {name: c.draw("cotangent_grad_" + NAMES.get(name, name), *x.shape) for name, x in inputs.items() if name != "grad_o"}
    out = {name: np.zeros(x.shape) for name, x in inputs.items() if name != "grad_o"}

    def loss(grad_o, **x):
        return np.sum(grad_o * forward(**x)[0])

    def along(**x):
        """<grads(x), cotangents>: the imaginary part of a step."""
        return loss(x["grad_o"], **{k: x[k] + 1e-30j * cot[k] for k in cot}).imag / 1e-30

    for name, g in gradients(loss, inputs).items():
        if name in out:
            c.expect("grad_" + NAMES.get(name, name), g)
    for name, x in inputs.items():
        flat, g = x.reshape(-1), np.empty(x.size)
        for k in range(x.size):
            def moved(h):
                y = flat.copy()
                y[k] += h
                return along(**{**inputs, name: y.reshape(x.shape)})
            h = 1e-3  # two Richardson extrapolations: error O(h^6)
            d1, d2, d4 = ((moved(m * h) - moved(-m * h)) / (2 * m * h) for m in (1, 2, 4))
            a, b = (4 * d1 - d2) / 3, (4 * d2 - d4) / 3
            g[k] = (16 * a - b) / 15
        role = {"grad_o": "second_grad_output"}.get(name, "second_" + NAMES.get(name, name))
        c.expect(role, g.reshape(x.shape))
    return c


# ---- other scores ----

def kinds(rng, n):
    cases = []

    def case(op, formula, params=None):
        batch, heads, groups, queries, keys, dim, dim_v = sizes(rng)
        c = Case("%s_%d_%d" % (op, len(cases), n), op, {**LAYOUT, **({"formula": formula} if formula else {}), **(params or {})}, FINE, rng)
        cases.append(c)
        if formula:
            options(c, batch, queries, keys, op != "relative")
        return c, batch, heads, groups, queries, keys, dim, dim_v

    def qkv(c, batch, heads, groups, queries, keys, dim, dim_k, dim_v):
        return {"q": c.draw("query", batch, heads, queries, dim), "k": c.draw("key", batch, groups, keys, dim_k),
                "v": c.draw("value", batch, groups, keys, dim_v)}

    def attend(s, v):
        params, (queries, keys) = cases[-1].json["params"], s.shape[2:]
        s = s / params.get("temperature", 1)
        if "softcap" in params:
            s = params["softcap"] * np.tanh(s / params["softcap"])
        keep = visible(queries, keys, params.get("causal"), params.get("window"))
        if "in.mask" in cases[-1].tensors:
            keep = keep & cases[-1].tensors["in.mask"][1]
        weights, lse = softmax(s, keep)
        return mix(weights, v), lse, weights

    def options(c, batch, queries, keys, positioned=True):
        if rng.integers(0, 3) == 0:
            c.json["params"]["temperature"] = round(float(rng.uniform(0.3, 3)), 2)
        if rng.integers(0, 3) == 0:
            c.json["params"]["softcap"] = round(float(rng.uniform(0.5, 4)), 2)
        if rng.integers(0, 3) == 0 and positioned:
            c.json["params"]["causal"] = ["top_left", "bottom_right", "none"][int(rng.integers(0, 3))]
        if rng.integers(0, 3) == 0 and positioned:
            c.json["params"]["window"] = [int(rng.integers(-1, 5)), int(rng.integers(-1, 5))]
        if rng.integers(0, 3) == 0:
            c.give("mask", rng.random((batch, 1, queries, keys)) < 0.6, "BOOL")

    for bias in (False, True):
        c, batch, heads, groups, queries, keys, dim, dim_v = case("additive", "v_a . tanh(w_q q + w_k k%s)" % (" + b" if bias else ""))
        hidden, dim_k = int(rng.integers(1, 9)), int(rng.integers(1, 9))
        inputs = qkv(c, batch, heads, groups, queries, keys, dim, dim_k, dim_v)
        inputs.update(w_q=c.draw("w_q", hidden, dim), w_k=c.draw("w_k", hidden, dim_k), v_a=c.draw("v_a", hidden))
        if bias:
            inputs["b"] = c.draw("b", hidden)

        def additive(q, k, v, w_q, w_k, v_a, b=0):
            return attend(np.tanh((q @ w_q.T)[:, :, :, None] + repeat(k @ w_k.T, q.shape[1])[:, :, None] + b) @ v_a, v)
        finish(c, additive, inputs, NAMES)
    c, batch, heads, groups, queries, keys, dim, dim_v = case("concat", "v_a . tanh(w [q;k])")
    hidden, dim_k = int(rng.integers(1, 9)), int(rng.integers(1, 9))
    inputs = qkv(c, batch, heads, groups, queries, keys, dim, dim_k, dim_v)
    inputs.update(w=c.draw("w", hidden, dim + dim_k), v_a=c.draw("v_a", hidden))

    def concat(q, k, v, w, v_a):
        d = q.shape[3]
        return attend(np.tanh((q @ w[:, :d].T)[:, :, :, None] + repeat(k @ w[:, d:].T, q.shape[1])[:, :, None]) @ v_a, v)
    finish(c, concat, inputs, NAMES)
    c, batch, heads, groups, queries, keys, dim, dim_v = case("general", "q^T w k, no scale")
    dim_k = int(rng.integers(1, 9))
    inputs = qkv(c, batch, heads, groups, queries, keys, dim, dim_k, dim_v)
    inputs["w"] = c.draw("w", dim, dim_k)
    finish(c, lambda q, k, v, w: attend(products(q @ w, k), v), inputs, NAMES)
    c, batch, heads, groups, queries, keys, dim, dim_v = case("metric", "(w q).(w k), g = w^T w")
    inputs = qkv(c, batch, heads, groups, queries, keys, dim, dim, dim_v)
    inputs["w"] = c.draw("w", int(rng.integers(1, 9)), dim)
    finish(c, lambda q, k, v, w: attend(products(q @ w.T, k @ w.T), v), inputs, NAMES)

    for formula in ("(q.k + q.r[clip(i-j,-c,c)+c]) / sqrt(D)", "(q.k + q.r[i-j+c]) / sqrt(D)", "((q+u).k + (q+w).r[h,i-j+c]) / sqrt(D)"):
        c, batch, heads, groups, queries, keys, dim, dim_v = case("relative", formula, {"scale": "1/sqrt(D)"})
        clip = int(rng.integers(1, 5)) if "clip" in formula else max(queries, keys) + int(rng.integers(0, 3))
        c.json["params"]["clip"] = clip
        inputs = qkv(c, batch, heads, groups, queries, keys, dim, dim, dim_v)
        own = "[h," in formula
        inputs["r"] = c.draw("r", *((heads,) if own else ()), 2 * clip + 1, dim)
        if own:
            inputs.update(u=c.draw("u", heads, dim), w=c.draw("w", heads, dim))
        i, j = positions(queries, keys)
        at = np.clip(i - j, -clip, clip) + clip

        def relative(q, k, v, r, u=None, w=None, at=at):
            heads = q.shape[1]
            table = r if r.ndim == 3 else np.broadcast_to(r, (heads,) + r.shape)
            q_u, q_w = (q, q) if u is None else (q + u[:, None], q + w[:, None])
            s = products(q_u, k) + np.einsum("bhic,hijc->bhij", q_w, table[:, at])
            return attend(s / np.sqrt(q.shape[3]), v)
        finish(c, relative, inputs, NAMES)

    for both in (True, False):
        c, batch, heads, groups, queries, keys, dim, dim_v = case("t5_bias", None, {"bidirectional": both, "table": "(bucket, head)"})
        buckets, most = 4 * int(rng.integers(1, 5)), int(rng.integers(20, 60))
        c.json["params"].update(buckets=buckets, max_distance=most, scale=1.0)
        causal = None
        if not both:
            causal = c.json["params"]["causal"] = ["top_left", "bottom_right"][int(rng.integers(0, 2))]
        queries, keys = int(rng.integers(1, 30)), int(rng.integers(1, 70))
        inputs = qkv(c, 1, heads, groups, queries, keys, 2, 2, 3)
        inputs["table"] = c.draw("table", buckets, heads)
        keep = visible(queries, keys, causal)
        i, j = positions(queries, keys, keys - queries if causal == "bottom_right" else 0)
        bucket = t5_bucket(j - i, buckets, most, both)

        def biased(q, k, v, table, bucket=bucket, keep=keep):
            weights, lse = softmax(products(q, k) + table[bucket].transpose(2, 0, 1), keep)
            return mix(weights, v), lse, weights
        finish(c, biased, inputs, NAMES)

    for interleaved in (True, False):
        c, batch, heads, groups, queries, keys, dim, dim_v = case("rope_attention", None)
        dim, rotary = 2 * dim, 2 * int(rng.integers(1, dim + 1))
        base = float(rng.choice([100, 10000]))
        c.json["params"].update(base=base, interleaved=interleaved, rotary_dim=rotary, causal="bottom_right", positions="query i at i+Sk-Sq", scale="1/sqrt(D)")
        inputs = qkv(c, batch, heads, groups, queries, keys, dim, dim, dim_v)
        keep = visible(queries, keys, "bottom_right")
        angles = [np.outer(np.arange(length) + first, frequencies(rotary, base)) for length, first in ((queries, keys - queries), (keys, 0))]

        def turned(q, k, v, keep=keep, angles=angles, interleaved=interleaved):
            s = products(turn(q, angles[0], interleaved), turn(k, angles[1], interleaved)) / np.sqrt(q.shape[3])
            weights, lse = softmax(s, keep)
            return mix(weights, v), lse, weights
        finish(c, turned, inputs, NAMES)
    return cases


# ---- linear attention, layers, retrieval ----

def features(name, x, omega=None):
    if name == "elu1":
        return np.where(x.real > 0, x + 1, np.exp(np.where(x.real > 0, 0, x)))
    if name == "relu":
        return np.where(x.real > 0, x, 0)
    if name == "softmax":
        return softmax(x)[0]
    x = x / x.shape[-1] ** 0.25
    return np.exp(x @ omega.T - (x * x).sum(-1, keepdims=True) / 2) / np.sqrt(len(omega))


def linear(rng, n):
    cases = []
    for name in ("elu1", "relu", "softmax", "favor+"):
        for causal in (False, True):
            batch, heads, groups, queries, keys, dim, dim_v = sizes(rng)
            if causal:
                keys = queries
            params = {**LAYOUT, "feature_map": name, "causal": causal}
            c = Case("linear_%s_%d_%d" % (name.strip("+"), causal, n), "linear_attention", params, FINE, rng)
            omega = None
            inputs = {"q": c.draw("query", batch, heads, queries, dim), "k": c.draw("key", batch, groups, keys, dim),
                      "v": c.draw("value", batch, groups, keys, dim_v)}
            if name == "favor+":
                omega = c.draw("omega", int(rng.integers(1, 20)), dim)
                params["formula"] = "exp(w.x - |x|^2/2)/sqrt(M) with x scaled by D^-1/4; omega given (M,D)"
            else:
                params["denominator"] = "max(phi(q).sum phi(k), 1e-6)"
            keep = visible(queries, keys, "top_left" if causal else None)

            def forward(q, k, v, name=name, omega=omega, keep=keep):
                s = products(features(name, q, omega), features(name, k, omega)) * keep
                total = s.sum(-1, keepdims=True)
                return mix(s, v) / np.where(total.real > 1e-6, total, 1e-6)
            o = forward(**inputs)
            grad = c.draw("grad_output", *o.shape)
            c.expect("output", o)
            for role, g in gradients(lambda **x: np.sum(grad * forward(**x)), inputs).items():
                c.expect("grad_" + NAMES[role], g)
            cases.append(c)
    return cases


def layers(rng, n):
    cases = []
    for number in range(3):
        batch, groups, each, width, queries, keys, model = (int(rng.integers(1, 5)) for _ in range(7))
        heads = groups * each
        params = {"heads": heads, "scale": "1/sqrt(D)"}
        if groups != heads:
            params["heads_kv"] = groups
        cross, bias, causal = number == 1, bool(rng.integers(0, 2)), number == 2
        if causal:
            params["causal"] = "top_left"
        c = Case("layer_%d_%d" % (number, n), "multi_head_attention", params, FINE, rng)
        inputs = {"x": c.draw("x", batch, queries, model)}
        if cross:
            inputs["context"] = c.draw("context", batch, keys, model)
        else:
            keys = queries
        for name, rows, columns in (("q", heads * width, model), ("k", groups * width, model), ("v", groups * width, model), ("o", model, heads * width)):
            inputs["w" + name] = c.draw("w" + name, rows, columns)
            if bias:
                inputs["b" + name] = c.draw("b" + name, rows)
        keep = visible(queries, keys, params.get("causal"))[None, None]
        if cross:
            lengths = c.give("lengths_kv", rng.integers(0, keys + 1, batch), "I32")
            keep = keep & (np.arange(keys) < lengths[:, None])[:, None, None]

        def forward(x, context=None, keep=keep, heads=heads, groups=groups, **w):
            source = x if context is None else context
            q, k, v = (split(t @ w["w" + name].T + w.get("b" + name, 0), h) for t, name, h in ((x, "q", heads), (source, "k", groups), (source, "v", groups)))
            weights, _ = softmax(products(q, k) / np.sqrt(q.shape[3]), keep)
            return join(mix(weights, v)) @ w["wo"].T + w.get("bo", 0), weights
        y, weights = forward(**inputs)
        grad = c.draw("grad_y", *y.shape)
        c.expect("y", y).expect("weights", weights)
        for name, g in gradients(lambda **x: np.sum(grad * forward(**x)[0]), inputs).items():
            c.expect("grad_" + name, g)
        cases.append(c)
    return cases


def hopfield(rng, n):
    count, patterns, dim, beta = (int(rng.integers(1, 7)) for _ in range(4))
    c = Case("hopfield_%d" % n, "modern_hopfield", {"beta": beta / 2}, FINE, rng)
    inputs = {"state": c.draw("state", count, dim), "patterns": c.draw("patterns", patterns, dim)}

    def forward(state, patterns):
        weights, lse = softmax(beta / 2 * state @ patterns.T)
        return weights @ patterns, -lse / (beta / 2) + (state * state).sum(-1) / 2
    o, energy = forward(**inputs)
    grad_o, grad_e = c.draw("grad_output", *o.shape), c.draw("grad_energy", *energy.shape)
    c.expect("output", o).expect("energy", energy)

    def loss(**x):
        o, energy = forward(**x)
        return np.sum(grad_o * o) + np.sum(grad_e * energy)
    for name, g in gradients(loss, inputs).items():
        c.expect("grad_" + name, g)
    return [c]


def mechanisms(rng, n):
    return dots(rng, n) + kinds(rng, n) + linear(rng, n) + layers(rng, n) + hopfield(rng, n)
