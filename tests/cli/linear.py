#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""attn run --linear against an independent implementation of the recurrence, with a new seed each run; its gradients against finite
differences of attn run; attn explain and attn check of linear problems; rejected options.

usage: linear.py ATTN [SEED]
"""
import json
import math
import os
import random
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import tensor_file

ATTN = sys.argv[1]
SEED = int(sys.argv[2]) if len(sys.argv) > 2 else int.from_bytes(os.urandom(4), "little")
B, H, HKV, N, D, DV = 2, 4, 2, 29, 3, 5
MAPS = {
    "elu1": lambda x: [max(t, 0) + math.exp(min(t, 0)) for t in x],
    "identity": lambda x: x,
    "relu": lambda x: [max(t, 0) for t in x],
    "softmax": lambda x: [math.exp(t) / sum(math.exp(s) for s in x) for t in x],
}


def write(path, tensors):
    tensor_file.write(path, {name: ("F64", *t) for name, t in tensors.items()})


def attn(*words):
    return subprocess.run([ATTN, *words], capture_output=True, text=True)


def run(folder, tensors, *options):
    path, out = os.path.join(folder, "in.safetensors"), os.path.join(folder, "out.safetensors")
    write(path, tensors)
    done = attn("run", path, "-o", out, "--quiet", *options)
    if done.returncode:
        sys.exit(f"attn run {options}: {done.stderr}")
    return {name: list(numbers) for name, (_, _, numbers) in tensor_file.read(out)[0].items()}


def rows(values, width):
    return [values[i : i + width] for i in range(0, len(values), width)]


def define(t, phi, rule, causal, guard=lambda n: max(n, 1e-6)):
    """o, and the final state of each head, by ONNX LinearAttention's update rules; normalised if phi is not identity and the rule is add."""
    f, normal = MAPS[phi], phi != "identity" and rule == "add"
    scale = 1 if normal else 1 / math.sqrt(D)
    q, k, v = rows(t["q"][1], D), rows(t["k"][1], D), rows(t["v"][1], DV)
    decay, beta, erase, put = ([*t[name][1]] if name in t else None for name in ("decay", "beta", "erase", "write"))
    width = len(decay) // len(k) if decay else 0
    o, states = [None] * len(q), []
    for head in range(B * HKV):
        S, z = [[0.0] * DV for _ in range(D)], [0.0] * D
        if "initial_state" in t:
            S = rows(t["initial_state"][1], DV)[head * D : head * D + D]
        seen = []
        for i in range(N):
            at = head * N + i
            key, value = f(k[at]), v[at]
            y = [sum(erase[at * D + c] * S[c][d] for c in range(D)) for d in range(DV)] if erase else [0.0] * DV
            for c in range(D):
                gate = math.exp(decay[at * width + (c if width > 1 else 0)]) if decay else 1
                S[c], z[c] = [gate * x for x in S[c]], gate * z[c]
            if rule == "delta":
                value = [beta[at] * (value[d] - sum(key[c] * S[c][d] for c in range(D))) for d in range(DV)]
            for c in range(D):
                S[c] = [S[c][d] + key[c] * value[d] + (put[at * D + c] * y[d] if erase else 0) for d in range(DV)]
                z[c] += key[c]
            seen.append(([row[:] for row in S], z[:]))
        states += [x for row in S for x in row]
        for h in range(H // HKV):
            for i in range(N):
                index = ((head // HKV) * H + head % HKV * (H // HKV) + h) * N + i
                S, z = seen[i if causal else -1]
                x = f(q[index])
                n = guard(scale * sum(a * b for a, b in zip(x, z))) if normal else 1
                o[index] = [scale * sum(x[c] * S[c][d] for c in range(D)) / n for d in range(DV)]
    return [x for row in o for x in row], states


def near(what, got, expected, bound=1e-12):
    assert len(got) == len(expected), f"{what}: {len(got)} numbers, not {len(expected)}"
    for i, (a, b) in enumerate(zip(got, expected)):
        if not abs(a - b) <= bound * (1 + abs(b)):
            sys.exit(f"seed {SEED}: {what}[{i}] is {a}, expected {b}")


def drawn(rng, phi, rule, decay, state):
    size = lambda *shape: (list(shape), [rng.uniform(-1, 1) for _ in range(math.prod(shape))])
    t = {"q": size(B, H, N, D), "k": size(B, HKV, N, D), "v": size(B, HKV, N, DV), "do": size(B, H, N, DV)}
    if decay:
        shape, values = size(B, HKV, N, D if decay == "channel" else 1)
        t["decay"] = (shape[:3] if decay == "token" else shape, [-abs(x) for x in values])
    if rule == "delta":
        t["beta"] = ([B, HKV, N], [abs(x) for x in size(B, HKV, N)[1]])
    if rule == "low-rank":
        t["erase"], t["write"] = ((shape, [0.4 * x for x in values]) for shape, values in (size(B, HKV, N, D), size(B, HKV, N, D)))
    if state:
        t["initial_state"] = size(B, HKV, D, DV)
    return t


def differences(folder, t, options, names):
    got, step = run(folder, t, *options, "--backward"), 1e-5

    def objective():
        out = run(folder, t, *options, "--state")
        pairs = {"o": "do", "final_state": "dfinal_state", "final_sum": "dfinal_sum"}
        return sum(a * b for name, weight in pairs.items() if weight in t for a, b in zip(out[name], t[weight][1]))

    for name in names:
        values = t[name][1]
        for i in range(0, len(values), 1 + len(values) // 3):
            kept = values[i]
            values[i] = kept + step
            up = objective()
            values[i] = kept - step
            slope = (up - objective()) / (2 * step)
            values[i] = kept
            near(f"d{name}", [got["d" + name][i]], [slope], 1e-7)


def main():
    rng = random.Random(SEED)
    with tempfile.TemporaryDirectory() as folder:
        for phi, rule, decay, state in [
            ("elu1", "add", None, False), ("relu", "add", None, False), ("softmax", "add", "head", False), ("elu1", "add", "channel", False),
            ("identity", "add", "token", True), ("identity", "add", "channel", True), ("identity", "delta", None, True),
            ("softmax", "delta", "head", True), ("identity", "delta", "channel", False), ("identity", "low-rank", "channel", True),
        ]:
            t = drawn(rng, phi, rule, decay, state)
            options = ["--linear", f"--phi={phi}", f"--rule={rule}", "--causal"]
            out = run(folder, t, *options, "--state")
            o, states = define(t, phi, rule, True)
            near(f"{phi} {rule} {decay} o", out["o"], o)
            near(f"{phi} {rule} {decay} final_state", out["final_state"], states)
            if rule == "add" and not decay:
                near(f"{phi} full o", run(folder, t, "--linear", f"--phi={phi}")["o"], define(t, phi, rule, False)[0])
        differences(folder, t, options, ["q", "k", "v", "decay", "erase", "write", "initial_state"])
        t = drawn(rng, "softmax", "delta", "head", True)
        differences(folder, t, ["--phi=softmax", "--rule=delta", "--causal"], ["q", "k", "v", "decay", "beta", "initial_state"])
        # The other denominator guard, gradients through the final state, and the same results in every form.
        t = drawn(rng, "elu1", "add", "head", False)
        t["initial_state"], t["dfinal_state"] = (([B, HKV, D, DV], [rng.uniform(-1, 1) for _ in range(B * HKV * D * DV)]) for _ in "12")
        t["initial_sum"], t["dfinal_sum"] = (([B, HKV, D, 1], [rng.uniform(0, 1) for _ in range(B * HKV * D)]) for _ in "12")
        options = ["--linear", "--denominator=add", "--epsilon=0.25", "--causal"]
        differences(folder, t, options, ["q", "k", "v", "decay", "initial_state", "initial_sum"])
        whole = run(folder, t, *options, "--backward")
        for form in ("chunked", "recurrent", "quadratic"):
            for name, values in run(folder, t, *options, "--backward", f"--form={form}").items():
                near(f"{form} {name}", values, whole[name])
        plain = {name: t[name] for name in ("q", "k", "v", "decay")}
        near("add", run(folder, plain, *options)["o"], define(plain, "elu1", "add", True, lambda n: n + 0.25)[0])
        near("clamp", run(folder, plain, "--linear", "--epsilon=9", "--causal")["o"], define(plain, "elu1", "add", True, lambda n: max(n, 9))[0])
        # In two parts, with the state passed on: the same final state.
        t = drawn(rng, "identity", "add", "head", False)
        whole = run(folder, t, "--linear", "--phi=identity", "--causal", "--state")
        half = {}
        for part in (slice(0, 10), slice(10, N)):
            cut = {}
            for name in ("q", "k", "v", "decay"):
                shape, values = t[name]
                blocks = rows(values, N * shape[3])
                cut[name] = ([*shape[:2], part.stop - part.start, shape[3]],
                             [x for b in blocks for x in b[part.start * shape[3] : part.stop * shape[3]]])
            if half:
                cut["initial_state"] = ([B, HKV, D, DV], half["final_state"])
            half = run(folder, cut, "--linear", "--phi=identity", "--causal", "--state")
        near("final_state in two parts", half["final_state"], whole["final_state"])
        once, again = (run(folder, t, "--phi=favor/8", "--seed=3", "--causal")["o"] for _ in range(2))
        near("favor, drawn from the same seed", once, again, 0)

        near("--rule=add is linear attention", run(folder, t, "--rule=add", "--causal")["o"], run(folder, t, "--linear", "--causal")["o"], 0)

        # `lengths` are of both sides, as two tensors say it.
        path, outputs = os.path.join(folder, "in.safetensors"), []
        for names in (["lengths"], ["lengths_q", "lengths_kv"], []):
            tensor_file.write(path, {**{name: ("F64", *t[name]) for name in "qkv"}, **{name: ("I64", [B], [N - 7, 3]) for name in names}})
            done = attn("run", path, "-o", os.path.join(folder, "out.safetensors"), "--linear", "--quiet")
            assert done.returncode == 0, done.stderr
            outputs.append(list(tensor_file.read(os.path.join(folder, "out.safetensors"))[0]["o"][2]))
        near("lengths", outputs[0], outputs[1], 0)
        assert outputs[0] != outputs[2]

        write(path, {name: t[name] for name in "qkv"})
        for words, message in [
            (["--rule=delta", "--causal"], "rule=delta needs a tensor 'beta'"),
            (["--linear", "--softcap=3"], "linear attention takes sizes, causal, scale, phi, decay, rule, denominator, epsilon, form and seed, and no other words"),
            *[(["--linear", flag], "linear attention takes sizes, causal, scale") for flag in ("--offset=3", "--align=bottom-right")],
            (["--linear", "--lse"], "linear attention writes o and weights, not --lse"),
            (["--linear", "--jvp"], "linear attention has forward and --backward only"),
            (["--state"], "--state needs --linear"),
            (["--rule=delta"], "the delta rule is causal; set causal"),
            (["--phi=cosine"], "phi"),
            (["--linear", "--form=recurrent"], "the recurrent form is causal; set causal"),
            (["--linear", "--denominator=clip"], "denominator: unknown value 'clip'"),
            (["--epsilon=0"], "epsilon is 0; it must be above 0"),
        ]:
            if words == ["--rule=delta"]:
                write(path, {"beta": ([B, HKV, N], [0.5] * (B * HKV * N)), **{name: t[name] for name in "qkv"}})
            done = attn("run", path, "-o", os.path.join(folder, "none.safetensors"), *words)
            assert done.returncode in (2, 3) and message in done.stderr, f"{words}: {done.returncode} {done.stderr}"
            assert not os.path.exists(os.path.join(folder, "none.safetensors")), words

        write(path, {"decay": ([B, HKV, N], [-0.1] * (B * HKV * N)), "other": ([1], [0.0]), **{name: t[name] for name in "qkv"}})
        says = json.loads(attn("run", path, "-o", os.path.join(folder, "some.safetensors"), "--linear", "--causal", "--json").stdout)
        assert [one["role"] for one in says["used"]] == ["q", "k", "v", "decay"] and says["unused"] == ["other"], says

    done = attn("explain", "linear:f32:sq4096:d64:causal:phi=favor/256", "--json", "--isa=scalar")
    says = json.loads(done.stdout)
    assert (says["form"], says["features"], says["kernel"]) == ("chunked", 256, "attn_linear_f32_scalar"), says
    done = attn("check", f"linear-bwd:f64:hq2:sq60:d9:causal:phi=identity:rule=delta:decay=head:seed={SEED}", "--json")
    says = json.loads(done.stdout)
    assert done.returncode == 0 and says["passed"] > 0 and says["failed"] == 0, (SEED, says)


main()
