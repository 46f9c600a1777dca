# SPDX-License-Identifier: MIT
"""libattn.attention against its definition in double, within the derived bound, for each option and pairs of them."""
import itertools

import numpy as np
import pytest
from problems import BFLOAT16

import libattn
from libattn import _bound, _definition, _problem

SHAPES = [  # batch, heads_q, heads_kv, len_q, len_kv, dim, dim_v
    (2, 4, 2, 5, 7, 8, 6),
    (1, 2, 1, 1, 33, 16, 16),
    (1, 3, 3, 40, 40, 12, 20),
    (2, 2, 2, 9, 4, 1, 3),
]


def arrays(shape, dtype=np.float32, seed=0):
    batch, heads_q, heads_kv, len_q, len_kv, dim, dim_v = shape
    rng = np.random.default_rng(seed)
    return [
        rng.standard_normal(size).astype(dtype)
        for size in ((batch, heads_q, len_q, dim), (batch, heads_kv, len_kv, dim), (batch, heads_kv, len_kv, dim_v))
    ]


def options_of(name, shape):
    """One option by name, for a shape."""
    batch, heads, _, len_q, len_kv, dim, dim_v = shape
    rng = np.random.default_rng(1)
    pairs = (batch, heads, len_q, len_kv)
    return {
        "plain": {},
        "causal": {"causal": True},
        "top-left": {"causal": "top-left"},
        "window": {"window": 3},
        "left": {"window": (2, None)},
        "right": {"window": (-1, 1)},
        "mask": {"mask": rng.random(pairs) < 0.7},
        "mask2": {"mask": rng.random(pairs[2:]) < 0.5},
        "mask_keys": {"mask": rng.random((batch, 1, 1, len_kv)) < 0.5},
        "bias": {"bias": rng.standard_normal(pairs).astype("f")},
        "bias3": {"bias": rng.standard_normal(pairs[1:])},
        "bias_inf": {"bias": np.where(rng.random(pairs[2:]) < 0.3, -np.inf, 0.5).astype("f")},
        "scale": {"scale": 0.25},
        "scales": {"scale": rng.random(heads)},
        "softcap": {"softcap": 2.0},
        "temperature": {"temperature": 1.7},
        "sink": {"sink": rng.standard_normal(heads)},
        "alibi": {"alibi_slopes": rng.random(heads)},
        "alibi2": {"alibi_slopes": rng.random((batch, heads)).astype("f")},
        "dropout": {"dropout": 0.3, "seed": 0x123456789ABCDEF0},
        "given": {"dropout": 0.5, "dropout_given": rng.random(pairs) < 0.5},
        "lengths_q": {"lengths_q": rng.integers(0, len_q + 1, batch)},
        "lengths_kv": {"lengths_kv": rng.integers(0, len_kv + 1, batch).astype("i4")},
        "offset": {"offset_q": rng.integers(-2, 5, batch), "causal": True},
        "chunk": {"chunk": 3},
        "dilation": {"window": (6, 6), "dilation": 2},
        "global": {"window": 1, "global_q": 1, "global_kv": 2},
        "distance": {"least_distance": 1},
        "ranges": {"ranges": np.sort(rng.integers(-1, len_kv + 2, (batch, heads, len_q, 2)))},
        "blocks": {"block_mask": rng.random((-(-len_q // 2), -(-len_kv // 3))) < 0.6, "block_q": 2, "block_kv": 3},
        "one": {"normaliser": "softmax-one"},
        "uniform": {"empty": "uniform"},
        "sigmoid": {"normaliser": "sigmoid", "shift": -1.5},
        "relu": {"normaliser": "relu"},
        "t5": {"bias_table": rng.standard_normal((heads, 8)), "bias_table_max_distance": 20},
        "t5_causal": {"bias_table": rng.standard_normal(6), "bias_table_max_distance": 9, "bias_table_causal": True, "causal": True},
        "clipped": {"bias_table": rng.standard_normal((heads, 7)), "bias_table_kind": "clipped"},
        "shaw": {"relative_keys": rng.standard_normal((5, dim)), "relative_values": rng.standard_normal((5, dim_v)), "relative_first": -2},
        "xl": {"relative_keys": rng.standard_normal((heads, len_kv + 2, dim)), "relative_u": rng.standard_normal((heads, dim)),
               "relative_v": rng.standard_normal((heads, dim)), "relative_first": 0, "causal": True},
        "general": {"score": "general", "score_matrix": rng.standard_normal((heads, dim, dim))},
        "metric": {"score": "metric", "score_matrix": rng.standard_normal((3, dim)), "scale": 0.2},
        "cosine": {"score": "cosine", "scale": 5.0},
        "distances": {"score": "distance", "scale": 0.1},
        "additive": {"score": "additive", "score_matrix": rng.standard_normal((heads, 1, dim))},
        "additive2": {"score": "additive", "score_matrix": rng.standard_normal((2, dim))},
    }[name]


NAMES = [
    "plain", "causal", "top-left", "window", "left", "right", "mask", "mask2", "mask_keys", "bias", "bias3", "bias_inf", "scale", "scales",
    "softcap", "temperature", "sink", "alibi", "alibi2", "dropout", "given", "lengths_q", "lengths_kv", "offset", "chunk", "dilation",
    "global", "distance", "ranges", "blocks", "one", "uniform",
]
FORWARD = ["sigmoid", "relu", "shaw", "xl", "general", "metric", "cosine", "distances", "additive", "additive2", "t5", "t5_causal", "clipped"]


def compare(shape, options, dtype=np.float32):
    """Fails if a result is farther from the definition than the bound; returns the largest fraction of it."""
    q, k, v = arrays(shape, dtype)
    o, lse, weights = libattn.attention(q, k, v, return_lse=True, return_weights=True, **options)
    double = dtype == np.float64
    if not double:  # what the library is given: numbers of the compute type
        options = {n: x.astype("f") if isinstance(x, np.ndarray) and x.dtype == float and n != "bias" else x for n, x in options.items()}
    want = _definition.forward(q, k, v, options)
    bound = _bound.forward(want, q, k, options, double, block_kv=16)
    assert o.dtype == dtype and lse.dtype == weights.dtype == (np.float64 if double else np.float32)
    fractions = []
    for name, got, exact, most in (("o", o, want.o, bound.o), ("lse", lse, want.lse, bound.lse), ("weights", weights, want.weights, bound.weights)):
        got = np.asarray(got)
        with np.errstate(invalid="ignore"):
            error = np.where(got.astype(float) == exact, 0, abs(got.astype(float) - exact))
        most = most + _bound.storage(got)
        assert (error <= most).all(), f"{name}: {error.max()} of {most.ravel()[error.argmax()]}"
        fractions.append(np.divide(error, most, out=np.zeros_like(error), where=error > 0).max(initial=0))
    return max(fractions)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", NAMES + FORWARD)
def test_an_option_is_its_definition(name, shape):
    for dtype in (np.float32, np.float64, np.float16, *BFLOAT16):
        compare(shape, options_of(name, shape), dtype)


@pytest.mark.parametrize("option, enum", [("score", "attn_score_kind"), ("normaliser", "attn_normaliser"), ("empty", "attn_empty")])
def test_each_word_of_an_option_is_compared(option, enum):
    words = _problem.enum(enum)
    default = min(words, key=words.__getitem__)
    assert {options_of(name, SHAPES[0]).get(option, default) for name in NAMES + FORWARD} == set(words)


def test_pairs_of_options_are_their_definition():
    rejected = []
    for first, second in itertools.combinations(NAMES + FORWARD, 2):
        one, two = options_of(first, SHAPES[0]), options_of(second, SHAPES[0])
        if set(one) & set(two):
            continue
        try:
            compare(SHAPES[0], {**one, **two})
        except (NotImplementedError, ValueError) as error:
            rejected.append((first, second, str(error)))
    scores = {"general", "metric", "cosine", "distances", "additive", "additive2"}
    exclusive = [({"shaw", "xl"}, scores), ({"sigmoid", "relu"}, {"sink", "uniform"}), ({"sink", "one"}, {"uniform"}), ({"sink"}, {"one"})]
    wrong = [(*pair, why) for *pair, why in rejected if not any(set(pair) & x and set(pair) & y for x, y in exclusive)]
    assert not wrong and len(rejected) == sum(len(x) * len(y) for x, y in exclusive)


def test_the_comparison_can_fail():
    q, k, v = arrays(SHAPES[0])
    want = _definition.forward(q, k, v, {})
    bound = _bound.forward(want, q, k, {}, False, 16)
    got = libattn.attention(q, k, v, scale=1.0001 / np.sqrt(8))
    assert (abs(got - want.o) > bound.o).any()
