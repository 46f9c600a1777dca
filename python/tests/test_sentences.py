# SPDX-License-Identifier: MIT
"""Errors name what a caller from Python has written: keywords, never fields of C's structs (python/common/words.def)."""
import inspect
import re
import typing

import numpy as np
import pytest

import libattn
from libattn import _core, _native, cache, layers
from problems import ROOT

A = libattn.attention
RNG = np.random.default_rng(0)
Q, K, V = (RNG.standard_normal(shape).astype("f") for shape in ((2, 4, 5, 8), (2, 2, 7, 8), (2, 2, 7, 8)))
WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*")
STRUCTS = {"score", "mask", "dropout", "outputs", "bias_table", "relative", "paging", "options", "call", "origin", "shape", "attention", "tensors",
           "tokens", "scaling", "problem"}


def of_c(text):
    """Names of C in a sentence: fields of structs, constants, functions."""
    return [word for word in WORD.findall(text)
            if word.split(".")[0] in STRUCTS and "." in word or (word == "NULL" or word.startswith(("ATTN_", "attn_"))) and word not in ("ATTN_ISA", "ATTN_THREADS")]


# ---- the table


def rows():
    text = (ROOT / "python/common/words.def").read_text(encoding="utf-8")
    return re.findall(r'^WORD\("(.*)", "(.*)"\)$', text, re.M)


def test_the_table():
    table = rows()
    assert len(table) > 50 and len(dict(table)) == len(table)
    for c, python in table:
        assert of_c(c) and not of_c(python)
        assert _core.sentence(f"{c} is 3; set {c}[0]") == f"{python} is 3; set {python}[0]"
        assert _core.sentence(f"layer: attention.{c} ({c})") == f"layer: {python} ({python})"
    assert _core.sentence("tokens.lengths[3] and q.dtype, v0.25, a.b.") == "lengths[3] and q.dtype, v0.25, a.b."
    assert _core.sentence("mask.chunk " * 30) == "chunk " * 30
    assert len(_core.sentence("mask.window_left " * 60)) == 1023 and _core.sentence("mask.chunk " * 200) == "mask.chunk " * 200  # no more fits


def test_what_only_a_caller_from_c_can_do():
    hint = "; the array was read as i64 (set its dtype if it is i32)"
    for path in ("core/base/names.h", "layers/middle.c"):
        assert f'"{hint}"' in (ROOT / "src" / path).read_text(encoding="utf-8")
    assert _core.sentence(f"cu_seqlens[1] is 9{hint}, and so on") == "cu_seqlens[1] is 9, and so on"
    with pytest.raises(ValueError, match=r"^lengths_kv\[0\] \(1099511627776\) is not between 0 and 7$"):
        A(Q[:1], K[:1], V[:1], lengths_kv=np.array([2**40]))


def test_the_table_has_the_fields_that_keywords_set():
    text = (ROOT / "python/core/fields.c").read_text(encoding="utf-8")
    fields = re.findall(r'(?:AT\(\w+, |ONE_OF\()"(\w+)", ([\w.]+)', text)
    assert len(fields) > 30
    for keyword, field in fields:
        if field.startswith("problem.shape."):
            continue  # len_q and len_kv, which sentences call so
        field = field.removeprefix("problem.").replace("more.", "call.")
        assert dict(rows()).get(field) == keyword, (keyword, field)


# Words of the sources that no caller from Python can cause to be said.
NEVER = {
    "ATTN_LATER": "arrays have memory", "ATTN_EMPTY": "the package sets it where there are no elements", "ATTN_SCALE_VALUE": "set with the scale",
    "ATTN_VERBOSE": "an environment variable", "ATTN_INFERENCE_ONLY": "the package has everything",
    "options.allocator": "no keyword", "call.reserved": "always 0", "origin.reserved": "always 0", "attn_init": "chosen by name",
    "attn_layer_tensors": "about a seed that the package sets elsewhere",
    "shape.batch": "set by the cache", "shape.heads_kv": "as shape.batch", "shape.len_kv": "as shape.batch", "shape.len_q": "as shape.batch",
    "shape.dim_qk": "as shape.batch", "shape.dim_v": "as shape.batch", "shape.heads_q": "as shape.batch",
}
FILES = re.compile(r"\.(def|c|h|weight|bias)$")  # of sources, and tensors of models


def test_the_table_has_the_words_of_the_sources():
    said = {}
    for path in sorted((ROOT / "src").rglob("*.[ch]")):
        for literal in re.findall(r'"((?:[^"\\\n]|\\.)*)"', re.sub(r"/\*.*?\*/", "", path.read_text(encoding="utf-8"), flags=re.S)):
            if not re.fullmatch(r"attn_\S*|.*\.(def|h|c)", literal):  # structs by name, for their sizes; kernels; files that are included
                said.update((word, path.name) for word in of_c(literal) if not FILES.search(word))
    assert len(said) > 60
    for word, where in said.items():
        left = of_c(_core.sentence(word))
        assert not left or word in NEVER, f"{where} says {word}, which python/common/words.def does not translate"
        assert left or word not in NEVER, f"{word} is translated: remove it from NEVER"
    assert not sorted(NEVER.keys() - said.keys())


# ---- every argument, with values that it cannot have

BAD = {float: [float("nan"), -1.0, 1e300, 2.0], int: [-3, 2**40, 2**62, 0], bool: [], str: ["magic"]}
KINDS = {
    "softcap": float, "dropout": float, "temperature": float, "shift": float, "seed": int, "dropout_offset": int, "threads": int, "chunk": int,
    "dilation": int, "global_q": int, "global_kv": int, "least_distance": int, "block_q": int, "block_kv": int, "block_heads": bool, "tree_keys": int, "topk": int, "column_queries": int,
    "relative_first": int, "bias_table_max_distance": int, "workspace_limit": int, "len_q": int, "len_kv": int, "window": int, "scale": float,
    "score": str, "normaliser": str, "align": str, "causal": str, "empty": str, "scores_stage": str, "rows_stage": str, "column_heads": str,
    "bias_table_kind": str, "isa": str, "layout": str, "after_dropout": bool, "bias_table_causal": bool, "invariant": bool, "reproducible": bool,
    "return_lse": bool, "return_weights": bool,
}
OTHERS = {  # values of their own
    "origin": [(0, 0, 0, 0), (9, 9, 4, 1, 1), (0, 0, 4, -1, 0)], "outputs": [["magic"], ["grad_q"], ["topk_index"], 3], "visit_rows": [3],
    "modify_scores": [3], "modify_slopes": [3, print], "out": [Q[0], Q.astype(int)],
    "schedule": [3, object(), libattn.Plan((1, 2, 1, 8), (1, 2, 9, 8), (1, 2, 9, 8)).schedule()],
}
TENSORS = {row.name for row in libattn.tensors() if "forward" in row.inputs}
NAMES = sorted({*inspect.signature(A).parameters, *typing.get_type_hints(libattn.ForwardOptions)} - {"options"})
# What else a sentence may name: what does not fit together with the argument, or what was derived from it.
ALSO = {"block_mask": "block_", "block_starts": "block_", "block_index": "block_", "block_heads": "block_", "tree": "tree_keys", "k": "k_scale|dim_k|len_kv|heads", "v": "v_scale|dim_v",
        "len_q": "layout", "len_kv": "layout", "page_table": "page", "bias_table": "buckets", "relative_values": "relative", "bias_table_max_distance": "bias_table", "cu_seqlens_q": "layout",
        "cu_seqlens_kv": "layout", "score_matrix": "score", "modify_slopes": "modify_", "origin": "origin", "outputs": "outputs|magic|grad_q|topk",
        "column_queries": "len_q"}


def values(name):
    """Values that the argument cannot have, at least not in this problem."""
    if name in OTHERS:
        return OTHERS[name]
    if name in TENSORS and name != "scale":
        return [np.ones((3, 3), "f"), np.full((2, 4, 5, 7), -1), np.zeros(0), np.ones((1, 1, 1, 1, 1)), object(), np.full(2, 99), [[99, -1], [0, 0]]]
    return [*BAD[KINDS[name]], object(), "text" if KINDS[name] is not str else 3] if KINDS[name] is not bool else []


def problems():
    """Calls in which an argument may be wrong in more ways: alone, and with what it needs."""
    yield {}
    yield {"layout": "thd", "cu_seqlens_q": [0, 5], "cu_seqlens_kv": [0, 7]}
    yield {"score": "general", "score_matrix": np.ones((4, 8, 8), "f")}
    yield {"normaliser": "sigmoid"}
    yield {"block_mask": np.ones((1, 1, 3, 4), bool), "block_q": 2, "block_kv": 2}
    yield {"block_starts": [0, 1], "block_index": [0], "block_q": 5, "block_kv": 7}
    yield {"bias_table": np.ones((4, 5), "f"), "bias_table_kind": "clipped"}
    yield {"relative_keys": np.ones((4, 11, 8), "f"), "relative_first": -4}
    yield {"outputs": ["topk_index", "column_sum", "scores"], "topk": 2}
    yield {"page_table": [[0, 1], [1, 0]], "lengths_kv": [3, 4]}
    yield {"origin": (0, 0, 4, 0, 0), "dropout": 0.5, "seed": 1}
    yield {"sink": [0.0] * 4, "empty": "uniform"}
    yield {"reproducible": True, "invariant": True, "softcap": 3.0, "window": (2, 0)}


@pytest.mark.parametrize("name", NAMES)
def test_arguments(name):
    said = set()
    for problem in problems():
        arrays = {"q": Q, "k": K, "v": V} if problem.get("layout") != "thd" else {"q": Q[0].swapaxes(0, 1), "k": K[0].swapaxes(0, 1), "v": V[0].swapaxes(0, 1)}
        for value in values(name):
            given = {**arrays, **problem, name: value}
            for call in (A, libattn.Plan):
                try:
                    call(given["q"], given["k"], given["v"], **{key: x for key, x in given.items() if key not in ("q", "k", "v")})
                except (ValueError, TypeError, NotImplementedError, MemoryError) as error:
                    assert not of_c(str(error)), error
                    if not problem:
                        said.add(str(error))
    if values(name):
        assert said, f"no value of {name} is rejected"
    for sentence in said:
        assert re.search(rf"\b{name}\b|{ALSO.get(name, name)}", sentence), sentence


def test_derivatives():
    o, lse = A(Q, K, V, return_lse=True)
    for options in ({"chunk": -3}, {"normaliser": "relu", "score": "magic"}, {"grads": ["bias"]}, {"dropout": 7}, {"topk": 3}, {"return_lse": True},
                    {"page_table": [[0, 1], [1, 0]], "lengths_kv": [3, 4]}, {"window": -9}, {"threads": 5000}):
        for call in (libattn.attention_backward, libattn.attention_double_backward):
            with pytest.raises((ValueError, NotImplementedError, TypeError)) as error:
                call(Q, K, V, o, lse, o, **options)
            assert not of_c(str(error.value)), error.value
    with pytest.raises(NotImplementedError, match="^page_table is set and op is not forward; paged keys have no gradients$"):
        libattn.attention_backward(Q, K, V, o, lse, o, page_table=[[0, 1], [1, 0]], lengths_kv=[3, 4])
    with pytest.raises(ValueError, match="^grad_q is set; forward does not use it$"):
        A(Q, K, V, outputs=["grad_q"])


def test_an_output_is_called_out():
    whole = np.zeros((2, 4, 5, 16), "f")
    with pytest.raises(ValueError, match="^out and q share elements|^out .*overlap"):
        A(whole[..., :8], K, V, out=whole[..., 4:12])


def test_other_modules():
    layer = layers.Layer(16, 4)
    x = np.ones((1, 3, 16), layer.dtype)
    kept = cache.Cache.empty(batch=2, heads=2, capacity=9, dim_qk=8)
    calls = [
        lambda: layers.Layer(16, 4, chunk=-3)(x), lambda: layer(x, dropout=7.0), lambda: layer(x, window=-9), lambda: layer(x, score="general"),
        lambda: layer(x, normaliser="relu", empty="uniform"), lambda: kept.attend(Q, K[:, :, :5], V[:, :, :5], chunk=-2),
        lambda: kept.attend(Q, K[:, :, :5], V[:, :, :5], align="top-left"), lambda: libattn.positions.Rope(base=-3.0)(Q),
        lambda: libattn.positions.rope_frequencies("yarn", 8, 0.5), lambda: libattn.analysis.decompose(Q, K, V, dropout=2.0),
        lambda: libattn.linear.attention(Q, Q, Q, workspace_limit=1, chunk=2),
    ]
    refused = 0
    for call in calls:
        try:
            call()
        except (ValueError, NotImplementedError, TypeError, MemoryError) as error:
            refused += 1
            assert not of_c(str(error)), error
    assert refused >= 8


def test_what_is_in_files_is_left_alone():
    assert str(_native.exception(7, "mask.chunk.npy: it ends early")) == "mask.chunk.npy: it ends early"


def test_why_a_kernel_was_chosen():
    plan = libattn.Plan(Q, K, V, isa="scalar", invariant=True)
    assert "requested by isa" in plan.why and "invariant" in plan.why and not of_c(plan.why)
    assert not of_c(libattn.explain(Q, K, V, isa="scalar", invariant=True).replace(plan.kernel, ""))
    assert not of_c(libattn.linear.Plan(Q, Q, Q, isa="scalar").description.why)


def test_torch():
    torch = pytest.importorskip("torch")
    import libattn.torch

    q, k, v = (torch.from_numpy(x) for x in (Q, K, V))
    for options in ({"chunk": -3}, {"softcap": -1.0}, {"dropout": 7.0}, {"window": -9}, {"scale": float("nan")}, {"temperature": 1e300}, {"threads": 5000}):
        with pytest.raises((ValueError, RuntimeError, NotImplementedError)) as error:
            libattn.torch.attention(q, k, v, **options)
        assert not of_c(str(error.value)) and next(iter(options)) in str(error.value), error.value


def test_jax():
    jax = pytest.importorskip("jax")
    import libattn.jax

    for options in ({"softcap": -1.0}, {"dropout": 7.0}, {"window": -9}, {"scale": float("nan")}):
        with pytest.raises(ValueError, match=next(iter(options))) as error:
            libattn.jax.attention(*map(jax.numpy.asarray, (Q, K, V)), **options)
        assert not of_c(str(error.value)), error.value
