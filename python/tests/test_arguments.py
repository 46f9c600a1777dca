# SPDX-License-Identifier: MIT
"""What attention accepts, from which library, in which memory; what it rejects, and with which sentence."""
import array
import importlib
import inspect
import multiprocessing
import os
import re
import signal
import threading
import time
import typing

import numpy as np
import pytest
from problems import BFLOAT16, ROOT, nothing_leaks

import libattn
from libattn import _names, _problem

A = libattn.attention


def three(dtype=np.float32, batch=2):
    rng = np.random.default_rng(0)
    return [rng.standard_normal(s).astype(dtype) for s in ((batch, 4, 5, 8), (batch, 2, 7, 8), (batch, 2, 7, 6))]


Q, K, V = three()
O = A(Q, K, V)


def near(a, b):
    """Two problems with the same results may be walked differently, and differ in the last bits."""
    return a.shape == b.shape and np.allclose(a, b, rtol=1e-5, atol=1e-6)


# ---- memory


@pytest.mark.parametrize(
    "change",
    [
        lambda x: np.asfortranarray(x),
        lambda x: np.stack([x, x + 1], -1)[..., 0],  # the last axis is not contiguous: a copy
        lambda x: np.concatenate([x, x], -1)[..., : x.shape[-1]],
        lambda x: x[:, :, ::-1].copy()[:, :, ::-1],  # backwards
        lambda x: np.ascontiguousarray(x.transpose(2, 0, 1, 3)).transpose(1, 2, 0, 3),
        lambda x: np.frombuffer(b"\0" + x.tobytes(), np.uint8)[1:].view(x.dtype).reshape(x.shape),  # not aligned
        lambda x: memoryview(x),
        lambda x: memoryview(x.tobytes()).cast("B").cast("f", x.shape),
        lambda x: x.view(np.ndarray).astype(np.dtype("<f4").newbyteorder("=")),
        lambda x: x.tolist() and np.array(x.tolist(), "f"),
    ],
)
def test_any_memory(change):
    assert (A(change(Q), change(K), change(V)) == O).all()


def test_read_only_and_broadcast_inputs():
    q = Q.copy()
    q.flags.writeable = False
    assert (A(q, K, V) == O).all()
    k = np.broadcast_to(K[:1], K.shape)
    assert (A(Q, k, V) == A(Q, k.copy(), V)).all()
    mask = np.broadcast_to(np.array([1, 0, 1, 1, 0, 1, 1], bool), (5, 7))
    assert (A(Q, K, V, mask=mask) == A(Q, K, V, mask=mask.copy())).all()


def test_plain_arrays_of_numbers():
    lengths = array.array("q", [3, 7])
    assert (A(Q, K, V, lengths_kv=lengths) == A(Q, K, V, lengths_kv=[3, 7])).all()
    assert (A(Q, K, V, sink=array.array("d", [1, 2, 3, 4])) == A(Q, K, V, sink=[1, 2, 3, 4])).all()
    assert (A(Q, K, V, scale=np.float32(0.5)) == A(Q, K, V, scale=0.5)).all()
    assert near(A(Q, K, V, scale=np.full(4, 0.5)), A(Q, K, V, scale=0.5))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, *BFLOAT16])
def test_the_output_has_the_type_of_q(dtype):
    q, k, v = three(dtype)
    o, lse, weights = A(q, k, v, return_lse=True, return_weights=True)
    assert o.dtype == dtype and lse.dtype == weights.dtype == (np.float64 if dtype == np.float64 else np.float32)
    out = np.empty(o.shape, dtype)
    assert A(q, k, v, out=out) is out and (out == o).all()


def test_types_may_differ():
    out = np.empty(O.shape, np.float16)
    A(Q, K.astype(np.float16), V.astype((BFLOAT16 or [np.float32])[0]), out=out)
    assert abs(out - O).max() < 0.05
    k, v = (np.arange(n, dtype=np.int8).reshape(s) for n, s in ((224, (2, 2, 7, 8)), (168, (2, 2, 7, 6))))
    scales = np.full((2, 2, 7), 0.01, np.float32)
    want = A(Q, k * np.float32(0.01), v * np.float32(0.01))
    assert abs(A(Q, k, v, k_scale=scales, v_scale=scales) - want).max() < 1e-5


@pytest.mark.parametrize("name", ["torch", "jax.numpy", "array_api_strict"])
def test_arrays_of_other_libraries(name):
    library = pytest.importorskip(name)
    make = library.from_numpy if name == "torch" else library.asarray
    q, k, v = (make(x.copy()) for x in (Q, K, V))
    o, lse = A(q, k, v, return_lse=True)
    assert type(o) is type(q) and type(lse) is type(q) and (np.asarray(o) == O).all()
    assert (A(Q, k, v) == O).all() and isinstance(A(Q, k, v), np.ndarray)
    if name == "torch":
        out = library.empty(O.shape)
        assert A(q, k, v, out=out) is out and (out.numpy() == O).all()
        half = A(*(x.bfloat16() for x in (q, k, v)))
        assert half.dtype == library.bfloat16 and abs(half.float().numpy() - O).max() < 0.05
        assert (A(q.transpose(1, 2).contiguous().transpose(1, 2), k, v).numpy() == O).all()


@pytest.mark.parametrize("shape", [(0, 4, 5, 8), (2, 0, 5, 8), (2, 4, 0, 8), (2, 4, 5, 0)])
def test_no_elements(shape):
    q = np.zeros(shape, "f")
    k = np.zeros((shape[0], shape[1], 7, shape[3]), "f")
    o, lse = A(q, k, k, return_lse=True)
    assert o.shape == shape and lse.shape == shape[:3]
    o, lse = A(Q, K[:, :, :0], V[:, :, :0], return_lse=True)
    assert (o == 0).all() and (lse == -np.inf).all()


# ---- layouts


def test_layouts():
    swap = [np.ascontiguousarray(x.swapaxes(1, 2)) for x in (Q, K, V)]
    o, lse, weights = A(*swap, layout="bshd", causal=True, return_lse=True, return_weights=True)
    want = A(Q, K, V, causal=True, return_lse=True, return_weights=True)
    assert near(o.swapaxes(1, 2), want[0]) and near(lse.swapaxes(1, 2), want[1]) and near(weights, want[2])
    assert near(A(Q[0], K[0], V[0], causal=True), want[0][0])
    assert near(A(Q[0, 0], K[0, 0], V[0, 0], causal=True), want[0][0, 0])
    assert A(Q[0, 0], K[0, 0], V[0, 0], return_weights=True)[1].shape == (5, 7)
    assert near(A(*(x[0] for x in swap), layout="bshd", causal=True).swapaxes(0, 1), want[0][0])
    mask = np.random.default_rng(0).random((4, 5, 7)) < 0.5
    assert near(A(Q[0], K[0], V[0], mask=mask), A(Q[:1], K[:1], V[:1], mask=mask)[0])


def test_packed_sequences():
    rng = np.random.default_rng(1)
    q, k = rng.standard_normal((9, 4, 8)).astype("f"), rng.standard_normal((12, 2, 8)).astype("f")
    cu_q, cu_k = np.array([0, 4, 4, 9], np.int32), np.array([0, 5, 8, 12])
    packed = {"layout": "thd", "cu_seqlens_q": cu_q, "cu_seqlens_kv": cu_k, "causal": True}
    o, lse, top = A(q, k, k, return_lse=True, outputs=["topk_index"], topk=2, **packed)
    assert o.shape == (9, 4, 8) and lse.shape == (9, 4) and top.shape == (9, 4, 2)
    for b in (0, 2):
        i, j = slice(cu_q[b], cu_q[b + 1]), slice(cu_k[b], cu_k[b + 1])
        want, want_lse = A(q[i].swapaxes(0, 1), k[j].swapaxes(0, 1), k[j].swapaxes(0, 1), causal=True, return_lse=True)
        assert near(o[i].swapaxes(0, 1), want) and near(lse[i].T, want_lse)
    grads = libattn.attention_backward(q, k, k, o, lse, o, **packed)
    assert [g.shape for g in grads] == [q.shape, k.shape, k.shape]
    assert near(A(q, k, k, len_q=9, len_kv=12, **packed), o)
    with pytest.raises(ValueError, match=r"cu_seqlens_q\[3\] \(9\) minus cu_seqlens_q\[2\] \(4\) is not between 0 and len_q \(4\)"):
        A(q, k, k, len_q=4, **packed)


def test_pages():
    rng = np.random.default_rng(2)
    pages = rng.standard_normal((6, 2, 4, 8)).astype("f")
    table = np.array([[5, 0], [3, 2]], np.int32)
    k = pages[table].swapaxes(1, 2).reshape(2, 2, 8, 8)
    want = A(Q, k, k, lengths_kv=[7, 5], causal=True)
    assert near(A(Q, pages, pages, page_table=table, lengths_kv=[7, 5], causal=True), want)
    swap = [x.swapaxes(1, 2) for x in (Q, pages)]
    o = A(swap[0], swap[1], swap[1], page_table=table, lengths_kv=[7, 5], causal=True, layout="bshd")
    assert near(o.swapaxes(1, 2), want)


def test_further_outputs():
    names = ["entropy", "effective_keys", "row_max", "topk_index", "topk_weight", "column_sum", "scores", "dropout_keep"]
    o, weights, *more = A(Q, K, V, outputs=names, topk=3, return_weights=True)
    entropy, keys, top, index, weight, columns, scores, keep = more
    assert (o == O).all() and abs(-(weights * np.log(weights)).sum(-1) - entropy).max() < 1e-5 and abs(np.exp(entropy) - keys).max() < 1e-4
    assert (scores.max(-1) == top).all() and (keep == 1).all() and keep.dtype == bool and abs(weights.sum(2) - columns).max() < 1e-5
    assert (index == np.argsort(-weights, -1)[..., :3]).all() and (np.take_along_axis(weights, index, -1) == weight).all()
    given = {"entropy": np.empty_like(entropy)}
    assert A(Q, K, V, outputs=given)[1] is given["entropy"] and (given["entropy"] == entropy).all()
    assert A(Q, K, V, outputs=["column_sum"], column_heads="group")[1].shape == (2, 2, 7)
    assert A(Q, K, V, outputs=["column_sum"], column_heads="all")[1].shape == (2, 1, 7)


# ---- errors


class Cuda:
    """A tensor of another device."""

    device, requires_grad, dtype = "cuda:0", False, "float32"

    def __dlpack_device__(self):
        return (2, 0)

    def __dlpack__(self, **_):
        raise AssertionError("its memory must not be asked for")


def read_only():
    x = np.empty_like(O)
    x.flags.writeable = False
    return x


ERRORS = [
    ({"q": Q[0, 0, 0]}, ValueError, r"q has 1 axes; it must have 4, or 3 without a batch, or 2 without heads"),
    ({"q": np.zeros((1, 1, 1, 1, 1), "f")}, ValueError, r"q has 5 axes; with layout bhsd it has at most 4"),
    ({"k": K[0]}, ValueError, r"k has 3 axes; it must have 4"),
    ({"k": K[..., :4]}, ValueError, r"k has the shape \(2, 2, 7, 4\); it must be \(2, 2, 7, 8\)"),
    ({"v": V[:, :, :6]}, ValueError, r"v has the shape \(2, 2, 6, 6\); it must be \(2, 2, 7, 6\)"),
    ({"k": K[:1], "v": V[:1]}, ValueError, r"k has the shape \(1, 2, 7, 8\); it must be \(2, 2, 7, 8\)"),
    ({"k": np.zeros((2, 3, 7, 8), "f"), "v": np.zeros((2, 3, 7, 8), "f")}, ValueError, r"heads_q \(4\) is not a multiple of heads_kv \(3\)"),
    ({"q": Q.astype(complex)}, TypeError, r"q has type complex128, which libattn does not know"),
    ({"q": Q.astype(">f4")}, TypeError, r"q has type >f4, which libattn does not know"),
    ({"q": Q.astype("i4")}, TypeError, r"q has type int32; it must be float32, float64, float16 or bfloat16"),
    ({"v": V.astype("d")}, NotImplementedError, r"v.dtype is f64; it must be"),
    ({"q": "text"}, TypeError, r"q has type <U4, which libattn does not know"),
    ({"q": object()}, TypeError, r"q is of type object, not an array of numbers"),
    ({"q": Cuda()}, TypeError, r"q is on the device cuda:0, and libattn computes on the CPU"),
    ({"k": Cuda()}, TypeError, r"k is on the device cuda:0, and libattn computes on the CPU"),
    ({"q": None}, TypeError, r"q is missing"),
    ({"mask": np.ones((5, 6), bool)}, ValueError, r"mask has the shape \(5, 6\); it must be \(2, 4, 5, 7\), or 1 on axes that broadcast"),
    ({"mask": np.ones((5, 7))}, TypeError, r"mask has type float64; it must be bool \(what is added to the scores is the bias\)"),
    ({"bias": np.ones((2, 4, 5, 7), bool)}, TypeError, r"bias has type bool; it must be float32, float64, float16 or bfloat16"),
    ({"sink": [0.0] * 3}, ValueError, r"sink has the shape \(3,\); it must be \(4,\)"),
    ({"sink": ["x"]}, TypeError, r"sink has type <U1, which libattn does not know"),
    ({"alibi_slopes": np.zeros((3, 4))}, ValueError, r"alibi_slopes has the shape \(3, 4\); it must be \(2, 4\), or 1 on axes"),
    ({"lengths_kv": [3]}, ValueError, r"lengths_kv has the shape \(1,\); it must be \(2,\)"),
    ({"lengths_kv": [3, 8]}, ValueError, r"lengths_kv\[1\] \(8\) is not between 0 and 7"),
    ({"lengths_q": [0.5, 1]}, TypeError, r"lengths_q has type float64; it must be int64 or int32"),
    ({"causal": "middle"}, ValueError, r"causal is 'middle'; known: top-left bottom-right"),
    ({"causal": 1}, TypeError, r"causal must be False, True, 'top-left' or 'bottom-right', not 1"),
    ({"window": (1, 2, 3)}, TypeError, r"window must be an integer or \(left, right\), not \(1, 2, 3\)"),
    ({"window": 1.5}, TypeError, r"window must be an integer, not 1.5"),
    ({"window": -2}, ValueError, r"the left side of window is -2"),
    ({"scale": "large"}, TypeError, r"scale has type <U5"),
    ({"scale": float("nan")}, ValueError, r"scale"),
    ({"softcap": "x"}, TypeError, r"softcap must be a number, not 'x'"),
    ({"softcap": -1}, ValueError, r"softcap is -1"),
    ({"dropout": 2}, ValueError, r"dropout is 2; it must be between 0 and 1"),
    ({"seed": -1}, ValueError, r"seed is -1; it must be at least 0 and below 2\^64"),
    ({"seed": 1 << 64}, ValueError, r"seed is 18446744073709551616; it must be at least 0 and below 2\^64"),
    ({"seed": 0.5}, TypeError, r"seed must be an integer, not 0.5"),
    ({"chunk": 1 << 70}, ValueError, r"chunk is 1180591620717411303424, which does not fit in 64 bits"),
    ({"threads": 0}, ValueError, r"threads is 0; it must be between 1 and 1024, or None"),
    ({"threads": 2000}, ValueError, r"threads is 2000; it must be between 1 and 1024, or None"),
    ({"layout": "sbhd"}, ValueError, r"layout is 'sbhd'; known: bhsd bshd thd"),
    ({"layout": 3}, TypeError, r"layout must be a string, not 3"),
    ({"layout": "thd"}, ValueError, r"q has 4 axes; with layout thd it has at most 3"),
    ({"cu_seqlens_q": [0, 5]}, ValueError, r"cu_seqlens_q and cu_seqlens_kv need the layout thd"),
    ({"page_table": [[0, 9], [0, 1]], "lengths_kv": [14, 14]}, ValueError, r"page 1 of batch entry 0 is 9 in page_table; the number of pages is 2"),
    ({"nothing": 1}, TypeError, r"'nothing' is not an option or a tensor of attention"),
    ({"attn_mask": True}, TypeError, r"'attn_mask' is not an option or a tensor of attention; write mask=, of booleans.*, or bias="),
    ({"is_causal": True}, TypeError, r"write causal=True;.* PyTorch's is causal=\"top-left\""),
    ({"outputs": "lse"}, TypeError, r"outputs must be names, as in outputs=\['lse'\]"),
    ({"outputs": ["lss"]}, TypeError, r"'lss' is not an option or a tensor of attention"),
    ({"outputs": ["lse"], "return_lse": True}, TypeError, r"lse is given twice"),
    ({"outputs": ["grad_q"]}, ValueError, r"grad_q is set; forward does not use it"),
    ({"out": np.empty((2, 4, 5, 5), "f")}, ValueError, r"out has the shape \(2, 4, 5, 5\); it must be \(2, 4, 5, 6\)"),
    ({"out": read_only()}, ValueError, r"out is read-only; the result is written there"),
    ({"out": [1.0]}, TypeError, r"out is of type <class 'list'>, which has no memory to write to"),
    ({"out": np.empty((2, 4, 5, 12), "f")[..., ::2]}, ValueError, r"out has strides .*, or its last axis is not contiguous"),
    ({"out": np.empty(O.shape, "i4")}, TypeError, r"out has type int32; it must be float32"),
    ({"score": "magic"}, ValueError, r"score is 'magic'; known: dot general metric cosine distance additive"),
    ({"isa": "avx3"}, ValueError, r"isa is 'avx3'; known: default scalar avx2 avx512 neon wasm128"),
    ({"origin": (1, 2)}, TypeError, r"origin must be \(batch, head, heads, q, kv\), not \(1, 2\)"),
    ({"workspace_limit": 1}, MemoryError, r"workspace"),
]


@pytest.mark.parametrize("option, enum", [("score", "attn_score_kind"), ("normaliser", "attn_normaliser"), ("empty", "attn_empty"),
                                          ("scores_stage", "attn_stage"), ("column_heads", "attn_columns"),
                                          ("bias_table_kind", "attn_distance_kind"), ("isa", "attn_isa")])
def test_words_of_an_option_are_those_of_its_enum(option, enum):
    """In C (python/core/fields.c) the position of a word is its value."""
    words = _problem.enum(enum)
    with pytest.raises(ValueError, match=f"{option} is 'magic'; known: {' '.join(sorted(words, key=words.__getitem__))}$"):
        A(Q, K, V, **{option: "magic"})
    hints = [typing.get_type_hints(of).get(option) for of in (libattn.Options, _problem.Options)]
    assert all(set(typing.get_args(hint)) == set(words) for hint in hints if hint is not None)


@pytest.mark.parametrize("change, error, sentence", ERRORS, ids=[f"{n}-{'-'.join(c)}" for n, (c, *_) in enumerate(ERRORS)])
def test_errors(change, error, sentence):
    arguments = {"q": Q, "k": K, "v": V, **change}
    with pytest.raises(error, match=sentence):
        A(arguments.pop("q"), arguments.pop("k"), arguments.pop("v"), **arguments)


@pytest.mark.parametrize("library", ["numpy", "torch", "jax"])
def test_keywords_of_other_libraries(library):
    """Each is unknown, with a hint whose keywords are not."""
    if library == "numpy":
        function, x = A, Q
    else:
        kind = pytest.importorskip(library)
        function = importlib.import_module(f"libattn.{library}").attention
        x = (kind.tensor if library == "torch" else kind.numpy.asarray)(Q)
    known = inspect.signature(function).parameters
    for name, hint in _names.ELSEWHERE.items():
        assert name not in known and set(re.findall(r"(\w+)=", hint)) <= known.keys(), name
        elsewhere = re.fullmatch(r"(\w+), which libattn.attention (and libattn.torch.attention )?ha(s|ve)", hint)
        if elsewhere:
            assert elsewhere[1] in libattn.Problem.__annotations__ and (library != "torch" or not elsewhere[2] or elsewhere[1] in known), name
        assert "=" in hint or elsewhere or name == "enable_gqa", name
        with pytest.raises(TypeError, match=f"^'{name}' is not an option or a tensor of attention; write {re.escape(hint)}$"):
            function(x, x, x, **{name: True})
    engines = (ROOT / "docs/serving.md").read_text(encoding="utf-8").partition("| here | FlashInfer | vLLM |")[2].partition("\n\n")[0]
    rows = [re.findall(r"`(\w+)`", row) for row in engines.splitlines()]
    theirs = {name for row in rows for name in row} - libattn.Problem.__annotations__.keys()
    assert len(theirs) > 7 and theirs <= _names.ELSEWHERE.keys()
    page = (ROOT / "docs/python/migration.md").read_text(encoding="utf-8").partition("\n## ")[0]
    promised = set(re.findall(r"`(\w+)`", page))
    assert len(promised) > 6 and promised <= _names.ELSEWHERE.keys()
    with pytest.raises(TypeError, match="^'nothing' is not an option or a tensor of attention$"):
        function(x, x, x, nothing=True)


def test_a_tensor_that_requires_a_gradient():
    torch = pytest.importorskip("torch")
    q = torch.zeros(1, 1, 1, 1, requires_grad=True)
    with pytest.raises(TypeError, match=r"q is a tensor that requires a gradient: use libattn.torch, or q.detach\(\)"):
        A(q, q, q)
    with pytest.raises(TypeError, match=r"q is on the device meta, and libattn computes on the CPU"):
        A(q.detach().to("meta"), Q, Q)


def test_an_output_may_not_be_an_input():
    with pytest.raises(ValueError, match="overlap"):
        A(Q, Q, Q, out=Q)


def test_random_arguments():
    """Any arrays for any tensors: an exception or a result, and never what is behind an array (as valgrind would see)."""
    rng = np.random.default_rng(9)
    rows = [row for row in libattn.tensors() if row.name not in "qkvo" and ("forward" in row.inputs + row.outputs or rng.random() < 0.1)]
    sizes = {"batch": 2, "head_q": 4, "head_kv": 2, "query": 5, "key": 7, "dim_qk": 8, "dim_k": 8, "dim_v": 6, "one": 1}
    dtypes = [np.float32, np.float64, np.int64, np.int32, bool, np.uint8, np.float16]
    natural = {"f32": np.float32, "bool": bool, "i32": np.int32, "u64": np.uint64, "f16": np.float16}
    raised, computed = set(), 0
    for _ in range(3000):
        options = {}
        for row in rng.choice(len(rows), rng.integers(1, 4), replace=False):
            row = rows[row]
            shape = [sizes.get(axis, int(rng.integers(1, 5))) for axis in row.axes if axis != "one" or rng.random() < 0.2]
            shape = [n if rng.random() < 0.95 else int(rng.integers(0, 9)) for n in shape][rng.integers(0, 2) * (rng.random() < 0.3):]
            dtype = dtypes[rng.integers(len(dtypes))]
            if rng.random() < 0.8:
                dtype = next(natural[name] for name in natural if name in row.dtypes)
            options[row.name] = rng.integers(0, 3, shape).astype(dtype)
        for name, choices in {"block_q": [2], "block_kv": [2, 3], "topk": [1, 3], "causal": [True], "dropout": [0.5], "layout": ["bshd"],
                              "score": ["general", "metric", "additive", "cosine"], "relative_first": [-2], "len_q": [3],
                              "bias_table_kind": ["clipped"], "column_heads": ["all", "group"], "after_dropout": [True]}.items():
            if rng.random() < (0.9 if name in ("block_q", "block_kv", "topk") and any(n.startswith(name[:4]) for n in options) else 0.05):
                options[name] = choices[rng.integers(len(choices))]
        try:
            A(Q, K, V, **options)
            computed += 1
        except (ValueError, NotImplementedError, TypeError) as error:
            raised.add(str(error))
    assert computed > 20 and len(raised) > 100


# ---- threads, processes, signals, memory


def test_threads_have_the_same_bits():
    rng = np.random.default_rng(3)
    q = rng.standard_normal((2, 4, 300, 32)).astype("f")
    want = A(q, q, q, causal=True, threads=1)
    assert all((A(q, q, q, causal=True, threads=n) == want).all() for n in (2, 3, 8))
    results = [None] * 8

    def work(n):
        for _ in range(5):
            results[n] = A(q, q, q, causal=True)

    workers = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    [w.start() for w in workers], [w.join() for w in workers]
    assert all((r == want).all() for r in results)


def test_other_threads_run_meanwhile():
    q = np.random.default_rng(4).standard_normal((1, 8, 2048, 64)).astype("f")
    done, ticks = threading.Event(), []

    def tick():
        while not done.is_set():
            ticks.append(time.perf_counter())
            time.sleep(0.001)

    ticker = threading.Thread(target=tick)
    ticker.start()
    start = time.perf_counter()
    A(q, q, q)
    end = time.perf_counter()
    done.set(), ticker.join()
    assert any(start < t < end for t in ticks)


def _in_child(queue):
    queue.put(A(Q, K, V))


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_processes(method):
    A(Q, K, V)  # the parent has plans and threads
    context = multiprocessing.get_context(method)
    queue = context.Queue()
    child = context.Process(target=_in_child, args=(queue,))
    child.start()
    got = queue.get(timeout=120)
    child.join(120)
    assert child.exitcode == 0 and (got == O).all()


def test_a_signal_is_handled():
    q = np.random.default_rng(5).standard_normal((1, 8, 1024, 64)).astype("f")
    threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        for _ in range(10000):
            A(q, q, q)


def test_more_shapes_than_are_kept():
    for n in (*range(1, 80), *range(1, 80)):
        q = np.ones((1, 1, n, 4), "f")
        assert near(A(q, q, q, causal=True), q)


def test_what_a_call_depends_on_is_not_mixed_up():
    calls = [
        {}, {"causal": True}, {"causal": "top-left"}, {"window": 1}, {"scale": 0.1}, {"dropout": 0.5, "seed": 1}, {"dropout": 0.5, "seed": 2},
        {"lengths_kv": [1, 2]}, {"sink": [0.0] * 4}, {"align": "top-left", "window": 1}, {"isa": "scalar"}, {"layout": "bhsd"},
    ]
    first = [A(Q, K, V, **c) for c in calls]
    for _ in range(3):
        for c, want in zip(calls, first, strict=True):
            assert (A(Q, K, V, **c) == want).all(), c


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["calls", "errors", "threads", "converted"])
def test_nothing_leaks(kind):
    def once():
        if kind == "calls":
            A(Q, K, V, return_lse=True, sink=np.zeros(4, "f"))
        elif kind == "errors":
            with pytest.raises(ValueError):
                A(Q, K, V[:, :, :6], sink=[0, 0, 0, 0])
        elif kind == "threads":
            worker = threading.Thread(target=A, args=(Q, K, V))
            worker.start(), worker.join()
        else:
            A(Q.swapaxes(2, 3).copy().swapaxes(2, 3), K.tolist() and K, memoryview(V), lengths_kv=[7, 7], outputs=["entropy"])

    nothing_leaks(once, 5000)
