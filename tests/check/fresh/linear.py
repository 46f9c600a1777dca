# SPDX-License-Identifier: MIT
"""Generated cases of linear attention, by the recurrence over tokens."""
import numpy as np

from core import Case, mix, positions, products, repeat, softmax

FINE = {"abs": 2e-5, "rel": 2e-5}


def tokens(x, first):
    """[b, h, t, d] in the layout of the file: [b, t, h, d] if tokens come first."""
    return x.swapaxes(1, 2) if first else x


def recurrence(q, k, v, state, step, scale):
    """o_t = scale S_t^T q_t with S_t = step(S, t); query heads share the states of their group."""
    out = []
    for t in range(q.shape[2]):
        state = step(state, t)
        out.append(scale * np.einsum("bhc,bhcd->bhd", q[:, :, t], repeat(state, q.shape[1])))
    return np.stack(out, 2), state


def outer(a, b):
    return a[..., :, None] * b[..., None, :]


def read(state, x):
    """S^T x."""
    return np.einsum("bhcd,bhc->bhd", state, x)


def fla(rng, n):
    cases = []
    kinds = ["naive_recurrent_linear_attn", "naive_retention", "naive_recurrent_simple_gla", "delta_rule_recurrence", "naive_recurrent_gated_delta_rule",
             "dplr_recurrence", "iplr_recurrence", "naive_recurrent_comba"]
    first_of = {"naive_recurrent_linear_attn", "naive_recurrent_simple_gla", "naive_recurrent_gated_delta_rule", "naive_recurrent_comba"}
    for name in kinds:
        batch, heads, length, dim, dim_v = (int(rng.integers(1, 9)) for _ in range(5))
        length *= 4
        first = name in first_of
        layout = "(B,T,H,D)" if first else "(B,H,T,D)"
        normal = name == "naive_recurrent_linear_attn" and bool(n % 2)
        scaled = 1 / np.sqrt(dim)
        params = {"scale": "1/sqrt(D)" if name == "naive_retention" else "1/sqrt(K)", "layout": layout, "upstream_function": name}
        if first and not normal and rng.integers(0, 2):
            scaled = params["scale"] = 0.7
        c = Case("%s_%d" % (name, n), name, params, FINE, rng)

        def draw(role, *more, make=lambda x: x, first=first, c=c, batch=batch, heads=heads, length=length):
            x = make(rng.standard_normal((batch, heads, length, *more)))
            return tokens(c.give(role, tokens(x, first)), first)

        def small(x):
            return x / np.sqrt(2 * dim)
        q, k, v = draw("query", dim), draw("key", dim, make=small), draw("value", dim_v)
        state = np.zeros((batch, heads, dim, dim_v))
        if first and name != "naive_recurrent_comba" and rng.integers(0, 2) and not normal:
            state = c.draw("initial_state", batch, heads, dim, dim_v)
        decays = {"naive_recurrent_simple_gla": (), "naive_recurrent_gated_delta_rule": (), "naive_recurrent_comba": (), "dplr_recurrence": (dim,)}
        g = draw("log_gate", *decays[name], make=lambda x: -abs(x)) if name in decays else None
        if name == "naive_retention":
            g = np.broadcast_to(np.log1p(-2.0 ** (-5 - np.arange(heads)))[:, None], (batch, heads, length))
        beta = None
        if "delta_rule_recurrence" in name or name in ("naive_recurrent_gated_delta_rule", "naive_recurrent_comba"):
            beta = draw("beta", make=lambda x: 1 / (1 + np.exp(-x)))
        if name in ("dplr_recurrence", "iplr_recurrence"):
            alpha, write = draw("alpha", dim, make=small), draw("beta", dim, make=small)
        if name == "naive_recurrent_comba":
            p = draw("p", dim, make=small)

        def step(S, t, name=name, k=k, v=v, g=g, beta=beta):
            old = S
            if g is not None:
                S = np.exp(g[:, :, t])[..., None] * S if g.ndim == 4 else np.exp(g[:, :, t])[..., None, None] * S
            if name in ("dplr_recurrence", "iplr_recurrence"):
                return S + outer(k[:, :, t], v[:, :, t]) + outer(write[:, :, t], read(old, alpha[:, :, t]))
            if name == "naive_recurrent_comba":
                return S + outer(k[:, :, t], beta[:, :, t, None] * (v[:, :, t] - read(S, p[:, :, t])))
            if beta is not None:
                return S + outer(k[:, :, t], beta[:, :, t, None] * (v[:, :, t] - read(S, k[:, :, t])))
            return S + outer(k[:, :, t], v[:, :, t])
        o, state = recurrence(q, k, v, state, step, scaled)
        if name == "naive_recurrent_linear_attn":
            params["normalize"] = normal
            if normal:
                c.give("query", tokens(abs(q), first)), c.give("key", tokens(abs(k), first))
                q, k = abs(q), abs(k)
                s = products(q, k) * scaled * np.tril(np.ones((length, length)))
                o = mix(s, v) / (s.sum(-1, keepdims=True) + 1e-10)
        c.expect("output", tokens(o, first))
        if not normal and name != "naive_retention":
            c.expect("final_state", state)
        cases.append(c)
    for name in ("naive_parallel_based", "naive_parallel_rebased"):
        batch, heads, length, dim, dim_v = (int(rng.integers(1, 7)) for _ in range(5))
        c = Case("%s_%d" % (name, n), name, {"use_norm": True, "layout": "(B,H,T,D)", "upstream_function": name}, {"abs": 1e-4, "rel": 1e-4}, rng)
        q, k = c.draw("query", batch, heads, length, dim), c.draw("key", batch, heads, length, dim)
        v = c.draw("value", batch, heads, length, dim_v)
        s = products(q, k) / np.sqrt(dim)
        s = (1 + s + s * s / 2 if name == "naive_parallel_based" else s * s) * np.tril(np.ones((length, length)))
        cases.append(c.expect("output", mix(s, v) / (s.sum(-1, keepdims=True) + 1e-6)))
    batch, length, dim = (int(rng.integers(1, 9)) for _ in range(3))
    c = Case("hgrn_%d" % n, "HGRN", {"upstream_function": "naive_recurrent_hgrn"}, FINE, rng)
    x, g = c.draw("x", batch, length, dim), c.give("log_gate", -abs(rng.standard_normal((batch, length, dim))))
    h, out = np.zeros((batch, dim)), []
    for t in range(length):
        h = np.exp(g[:, t]) * h + x[:, t]
        out.append(h)
    cases.append(c.expect("output", np.stack(out, 1)).expect("final_state", h))
    return cases + softmaxes(rng, n) + composed(rng, n)


def softmaxes(rng, n):
    cases = []
    for kind in ("causal", "all", "window", "sink", "gate", "forget"):
        batch, groups, each, length, dim, dim_v = (int(rng.integers(1, 7)) for _ in range(6))
        heads, length = groups * each, 3 * length
        window = int(rng.integers(1, 6)) if kind in ("window", "forget") else None
        forget = kind == "forget"
        params = {"window_size": window, "scale": "1/sqrt(D)", "layout": "(B,T,H,D)",
                  "upstream_function": "naive_forgetting_attn" if forget else "naive_parallel_attn"}
        if not forget:
            params["causal"] = kind != "all"
        c = Case("softmax_%s_%d" % (kind, n), "softmax attention", params, FINE, rng)
        q, k, v = (tokens(c.draw(role, batch, length, h, d), True) for role, h, d in (("query", heads, dim), ("key", groups, dim), ("value", groups, dim_v)))
        s = products(q, k) / np.sqrt(dim)
        i, j = positions(length, length)
        keep = (j <= i) | (kind == "all")
        if window:
            keep = keep & (j > i - window)
        if kind in ("gate", "forget"):
            role = "log_gate" if forget else "cumulative_log_gate_increments"
            sums = np.cumsum(tokens(c.give(role, -abs(rng.standard_normal((batch, length, heads)))), True), -1)
            s = s + sums[..., :, None] - sums[..., None, :]
        sink = c.draw("sink_bias", heads)[:, None, None] if kind == "sink" else None
        c.expect("output", tokens(mix(softmax(s, keep, sink)[0], v), True))
        if kind in ("causal", "all", "window"):
            c.expect("max_logits", np.where(keep, s, -np.inf).max(-1).swapaxes(1, 2))
        cases.append(c)
    return cases


def composed(rng, n):
    batch, heads, length, dim, dim_v, slots = (int(rng.integers(1, 6)) for _ in range(6))
    length *= 3
    c = Case("gsa_%d" % n, "Gated slot attention", {"scale": "1/sqrt(K)", "layout": "(B,H,T,D)", "upstream_function": "naive_recurrent_gsa"}, FINE, rng)
    q, k, v, s = (tokens(c.draw(role, batch, length, heads, d), True) for role, d in (("query", dim), ("key", dim), ("value", dim_v), ("slots", slots)))
    g = tokens(c.give("log_gate", -abs(rng.standard_normal((batch, length, heads, slots)))), True)
    of_k, of_v, out = np.zeros((batch, heads, slots, dim)), np.zeros((batch, heads, slots, dim_v)), []
    for t in range(length):
        of_k = np.exp(g[:, :, t])[..., None] * of_k + outer(s[:, :, t], k[:, :, t])
        of_v = np.exp(g[:, :, t])[..., None] * of_v + outer(s[:, :, t], v[:, :, t])
        weights, _ = softmax(np.einsum("bhc,bhmc->bhm", q[:, :, t], of_k) / np.sqrt(dim))
        out.append(read(of_v, weights))
    cases = [c.expect("output", tokens(np.stack(out, 2), True))]
    c = Case("mesa_%d" % n, "MesaNet", {"layout": "(B,T,H,D)", "upstream_function": "naive_mesa_net_exact"}, {"abs": 1e-4, "rel": 1e-4}, rng)
    q, k, v = (tokens(c.draw(role, batch, length, heads, d), True) for role, d in (("query", dim), ("key", dim), ("value", dim_v)))
    g = tokens(c.give("log_gate", -abs(rng.standard_normal((batch, length, heads)))), True)
    beta = tokens(c.give("beta", rng.uniform(0.1, 1, (batch, length, heads))), True)
    ridge = c.give("lambda_", rng.uniform(0.5, 2, (heads, dim)))
    kk, kv, out = np.zeros((batch, heads, dim, dim)), np.zeros((batch, heads, dim, dim_v)), []
    for t in range(length):
        decay, write = np.exp(g[:, :, t])[..., None, None], beta[:, :, t, None] * k[:, :, t]
        kk, kv = decay * kk + outer(write, k[:, :, t]), decay * kv + outer(write, v[:, :, t])
        x = np.linalg.solve(kk + ridge[:, :, None] * np.eye(dim), q[:, :, t][..., None])[..., 0]
        out.append(read(kv, x))
    cases.append(c.expect("output", tokens(np.stack(out, 2), True)))
    groups, most = 1, int(rng.integers(1, 6))
    c = Case("dsa_%d" % n, "DeepSeek sparse attention", {"topk": most, "layout": "(B,T,H,D)", "upstream_function": "naive_dsa"}, FINE, rng)
    q, k, v = (tokens(c.draw(role, batch, length, h, d), True) for role, h, d in (("query", heads, dim), ("key", groups, dim), ("value", groups, dim_v)))
    of_q = c.give("index_query", rng.uniform(0.1, 1, (batch, length, slots, dim)))  # all positive: no ties of scores at 0
    of_k = c.give("index_key", rng.uniform(0.1, 1, (batch, length, dim)))
    score = np.einsum("bihc,bjc->bihj", of_q, of_k)
    score = np.einsum("bihj,bih->bij", np.maximum(score, 0), c.give("index_weight", rng.uniform(0.1, 1, (batch, length, slots))))
    i, j = positions(length, length)
    score = np.where(j <= i, score, -np.inf)
    most = c.json["params"]["topk"] = min(most, length)
    order = np.argsort(-score, -1, kind="stable")[..., :most]
    best = np.where(np.take_along_axis(score, order, -1) > -np.inf, order, -1)
    keep = np.zeros(score.shape, bool)
    np.put_along_axis(keep, order, True, -1)
    weights, _ = softmax(products(q, k) / np.sqrt(dim), (keep & (j <= i))[:, None])
    cases.append(c.expect("output", tokens(mix(weights, v), True)).expect("indices", best, "I64"))
    return cases


# ---- ONNX LinearAttention ----

def onnx(rng, n):
    cases = []
    for rule in ("linear", "gated", "delta", "gated_delta", None):
        for by_channel in (False, True):
            batch, groups, each, length, dim, dim_v = (int(rng.integers(1, 6)) for _ in range(6))
            heads, length = groups * each, 4 * length
            attributes = {"q_num_heads": heads, "kv_num_heads": groups}
            if rule:
                attributes["update_rule"] = rule
            scale = 1 / np.sqrt(dim)
            if rng.integers(0, 2):
                scale = attributes["scale"] = [0.3, -1.5][int(rng.integers(0, 2))]
            c = Case("linear_%s_%d_%d" % (rule, by_channel, n), "LinearAttention", attributes, {"rtol": 1e-4, "atol": 1e-5}, rng, "attributes")

            def given(role, count, width, make=lambda x: x, c=c, batch=batch, length=length):
                x = c.give(role, make(rng.standard_normal((batch, length, count * width))))
                return x.reshape(batch, length, count, width).swapaxes(1, 2)
            q, k, v = given("query", heads, dim), given("key", groups, dim, lambda x: x / np.sqrt(2 * dim)), given("value", groups, dim_v)
            state = c.draw("past_state", batch, groups, dim, dim_v) if rng.integers(0, 2) else np.zeros((batch, groups, dim, dim_v))
            gated, delta = rule in ("gated", "gated_delta", None), rule in ("delta", "gated_delta", None)
            g = given("decay", groups, dim if by_channel else 1, lambda x: -abs(x)) if gated else None
            beta = given("beta", groups, 1, lambda x: 1 / (1 + np.exp(-x))) if delta else None

            def step(S, t, k=k, v=v, g=g, beta=beta):
                if g is not None:
                    S = np.exp(g[:, :, t])[..., None] * S
                u = v[:, :, t] if beta is None else beta[:, :, t] * (v[:, :, t] - read(S, k[:, :, t]))
                return S + outer(k[:, :, t], u)
            o, state = recurrence(q, k, v, state, step, scale)
            c.expect("output", o.swapaxes(1, 2).reshape(batch, length, -1), "F32")
            cases.append(c.expect("present_state", state, "F32"))
    return cases
