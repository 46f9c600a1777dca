# SPDX-License-Identifier: MIT
"""libattn.onnx.fuse: the graphs that exporters write, built by hand; what must stay as it is."""
import numpy as np
import pytest

for name in ("onnx", "onnxruntime", "ml_dtypes"):
    pytest.importorskip(name)

import onnx  # noqa: E402
import onnxruntime  # noqa: E402
from onnx import numpy_helper  # noqa: E402

import libattn.onnx  # noqa: E402
from onnx_graphs import B, Builder, check, D, E, H, heads, kinds, random, ROOT, S, scaled_product, T  # noqa: E402
from onnx_models import run, session, stock, TYPES  # noqa: E402


@pytest.mark.parametrize("opset", [13, 17, 23, 25])
@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("how", ["div", "mul", "q", "both", "before transpose", "of the shape", "identity"])
def test_scales(how, symbolic, opset):
    feed = heads()
    b = Builder(**feed)
    model = b.model(b("MatMul", b("Softmax", scaled_product(b, how), axis=-1), "v"), opset=opset, symbolic=symbolic)
    fused = check(model, feed)
    assert len(fused.graph.node) == 1


@pytest.mark.parametrize("opset, axis", [(11, 3), (12, 3), (12, -1)])
def test_softmax_of_old_opsets(opset, axis):
    """Before opset 13 a Softmax is over all axes from one on, which the conversion says with a Flatten."""
    feed = heads()
    b = Builder(**feed)
    fused = check(b.model(b("MatMul", b("Softmax", scaled_product(b, "div"), axis=axis), "v"), opset=opset, symbolic=True), feed)
    assert len(fused.graph.node) == 1
    b = Builder(**feed)
    check(b.model(b("MatMul", b("Softmax", scaled_product(b, "div"), axis=2), "v"), opset=opset), feed, 0, strict=False)


def test_softcap():
    feed = heads(mask=random(4, B, 1, S, T))
    b = Builder(**feed)
    capped = b("Mul", b("Tanh", b("Div", scaled_product(b, "div"), 5.0)), 5.0)
    fused = check(b.model(b("MatMul", b("Softmax", b("Add", capped, "mask"), axis=-1), "v")), feed)
    options = {a.name: onnx.helper.get_attribute_value(a) for a in fused.graph.node[0].attribute}
    assert options["softcap"] == 5 and abs(options["scale"] - 1 / ROOT) < 1e-6


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("shape", [(B, H, S, T), (B, 1, S, T), (1, 1, S, T), (B, 1, 1, T), (H, S, T), (S, T), (1, T), (S, 1), (B, 1, S, 1)])
def test_added_masks(shape, symbolic):
    feed = heads(mask=random(4, *shape))
    feed["mask"][np.abs(feed["mask"]) > 1.5] = -np.inf
    feed["mask"][..., 0] = 0
    b = Builder(**feed)
    scores = b("Add", "mask", scaled_product(b, "div")) if symbolic else b("Add", scaled_product(b, "div"), "mask")
    check(b.model(b("MatMul", b("Softmax", scores, axis=-1), "v"), symbolic=symbolic), feed)


@pytest.mark.parametrize("number", [-np.inf, -1e9, float(np.finfo(np.float32).min)])
@pytest.mark.parametrize("hide", [False, True])
def test_chosen_masks(hide, number):
    """A query that sees no key averages all of them if the number is finite."""
    visible = random(4, B, 1, S, T) > -0.5
    visible[..., 0] = True
    if np.isfinite(number):
        visible[0, 0, 1] = False
    feed = heads(mask=~visible if hide else visible)
    b = Builder(**feed)
    scores, constant = scaled_product(b, "div"), b.constant(number)
    scores = b("Where", "mask", constant, scores) if hide else b("Where", "mask", scores, constant)
    check(b.model(b("MatMul", b("Softmax", scores, axis=-1), "v")), feed)


@pytest.mark.parametrize("number, kind", [(-1e8, np.float32), (-1e9, np.float32), (-1e9, np.float64), (float(np.finfo(np.float32).min), np.float32)])
@pytest.mark.parametrize("twice", [False, True])
def test_a_query_that_sees_no_key_averages_all_of_them(number, kind, twice):
    """Whatever its scores are: those of this test would be left over in a sum with the number."""
    visible = random(4, B, 1, S, T) > -0.5
    visible[:, :, 0] = False
    feed = {name: (x if name == "v" else 5 * x).astype(kind) for name, x in heads().items()} | {"mask": visible}
    b = Builder(**feed)
    scores = b("Where", "mask", b("MatMul", "q", b("Transpose", "k", perm=[0, 1, 3, 2])), b.constant(number, kind))
    if twice:
        scores = b("Where", b("Not", "mask"), b.constant(number, kind), scores)
    check(b.model(b("MatMul", b("Softmax", scores, axis=-1), "v"), types=[TYPES[np.dtype(kind)]]), feed, atol=1e-5, strict=False)


@pytest.mark.parametrize("order", range(4))
def test_several_masks(order):
    """As GPT-2 has them: a triangle, then padding."""
    triangle, padding, bias = np.tri(S, T, 2, bool), np.zeros((B, 1, 1, T), np.float32), random(5, 1, H, S, T)
    padding[1, ..., 5:] = np.finfo(np.float32).min
    feed = heads(triangle=triangle, padding=padding, bias=bias, other=np.tri(S, T, 1, bool))
    b = Builder(**feed)
    scores, none = scaled_product(b, "div"), b.constant(-np.inf)
    if order == 0:
        scores = b("Add", b("Where", "triangle", scores, none), "padding")
    elif order == 1:
        scores = b("Where", "triangle", b("Add", b("Add", scores, "bias"), "padding"), none)
    elif order == 2:
        scores = b("Where", "triangle", b("Where", b("Not", "other"), none, scores), none)
    else:
        scores = b("Add", "bias", b("Where", b("Not", "triangle"), b.constant(-1e30), scores))
    check(b.model(b("MatMul", b("Softmax", scores, axis=-1), "v")), feed)


def test_layers_share_a_mask():
    feed = heads(one=np.tri(S, T, 2, bool), two=random(4, B, 1, 1, T))
    b = Builder(**feed)
    o = []
    for _ in range(2):
        scores = b("Add", b("Where", "one", scaled_product(b, "div"), b.constant(-np.inf)), "two")
        o.append(b("MatMul", b("Softmax", scores, axis=-1), "v"))
    fused = check(b.model(*o), feed, 2)
    assert kinds(fused)["Where"] == 1 and kinds(fused)["Add"] == 1


def triangle(b, how):
    """The mask "j <= i" of exporters, as (kind of use, name)."""
    lengths = b("Concat", b("Slice", b("Shape", "q"), [-2], [-1]), b("Slice", b("Shape", "k"), [-2], [-1]), axis=0)
    ones = b("Expand", np.array([1], np.int64), lengths)
    if how == "added":
        return b("Where", b("Equal", b("Trilu", ones, upper=0), [0]), b.constant(-np.inf), b.constant(0.0))
    if how == "added, bool":
        return b("Where", b("Cast", b("Trilu", ones, upper=0), to=9), b.constant(0.0), b.constant(-np.inf))
    if how == "keep":
        return b("Cast", b("Trilu", b("ConstantOfShape", lengths, value=numpy_helper.from_array(np.array([1.0], np.float32))), upper=0), to=9)
    if how == "hide":
        return b("Cast", b("Trilu", ones, 1, upper=1), to=9)
    if how == "not hide":
        return b("Not", b("Cast", b("Trilu", ones, 1, upper=1), to=9))
    raise AssertionError(how)


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("more", [False, True])
@pytest.mark.parametrize("how", ["added", "added, bool", "keep", "hide", "not hide"])
def test_triangles(how, more, symbolic):
    """A triangle made of the lengths needs no mask: Attention is causal."""
    feed = heads(more=random(4, B, 1, 1, T))
    b = Builder(**feed)
    scores, mask = scaled_product(b, "div"), triangle(b, how)
    none = b.constant(-np.inf)
    scores = b("Add", scores, mask) if "added" in how else b("Where", mask, none, scores) if how == "hide" else b("Where", mask, scores, none)
    if more:
        scores = b("Add", scores, "more")
    fused = check(b.model(b("MatMul", b("Softmax", scores, axis=-1), "v"), symbolic=symbolic), feed)
    assert len(fused.graph.node) == 1 and len(fused.graph.node[0].input) == 3 + more
    assert {a.name: a.i for a in fused.graph.node[0].attribute}["is_causal"] == 1


@pytest.mark.parametrize("what", ["diagonal", "upper", "zeros", "one row", "another length", "finite"])
def test_other_triangles(what):
    """What is nearly a causal mask is a mask like others."""
    feed = heads()
    b = Builder(**feed)
    lengths = b("Concat", b("Slice", b("Shape", "q" if what != "another length" else "k"), [-2], [-1]), b("Slice", b("Shape", "k"), [-2], [-1]), axis=0)
    if what == "one row":
        lengths = b("Concat", [1], b("Slice", b("Shape", "k"), [-2], [-1]), axis=0)
    if what == "another length":
        lengths = b.constant([1, T])
    ones = b("Expand", np.array([what != "zeros"], np.int64), lengths)
    cut = b("Trilu", ones, 1, upper=0) if what == "diagonal" else b("Trilu", ones, 0, upper=1) if what == "upper" else b("Trilu", ones, upper=0)
    hides = -1e9 if what in ("finite", "zeros") else -np.inf
    scores = b("Add", scaled_product(b, "div"), b("Where", b("Equal", cut, [0]), b.constant(hides), b.constant(0.0)))
    fused = check(b.model(b("MatMul", b("Softmax", scores, axis=-1), "v")), feed, strict=False)
    made = next(node for node in fused.graph.node if node.op_type == "Attention")
    assert len(made.input) == 4 and "is_causal" not in {a.name for a in made.attribute}


def test_no_key_is_seen():
    """Without the guard against NaN, and with it."""
    visible = np.ones((B, 1, S, T), bool)
    visible[1, 0, 2] = False
    feed = heads(mask=visible)
    b = Builder(**feed)
    weights = b("Softmax", b("Where", "mask", scaled_product(b, "div"), b.constant(-np.inf)), axis=-1)
    guarded = b("Where", b("IsNaN", weights), 0.0, weights)
    check(b.model(b("MatMul", guarded, "v")), feed)
    b = Builder(**feed)
    model = b.model(b("MatMul", b("Softmax", b("Where", "mask", scaled_product(b, "div"), b.constant(-np.inf)), axis=-1), "v"))
    found, = run(session(libattn.onnx.fuse(model), strict=False), feed)
    assert np.isnan(stock(model, feed)[0][1, :, 2]).all() and not found[1, :, 2].any()


def test_half_with_casts():
    feed = {name: x.astype(np.float16) for name, x in heads().items()}
    b = Builder(**feed)
    product = b("MatMul", b("Mul", "q", np.array(0.5, np.float16)), b("Transpose", "k", perm=[0, 1, 3, 2]))
    weights = b("Cast", b("Softmax", b("Cast", product, to=1), axis=-1), to=10)
    fused = check(b.model(b("MatMul", weights, "v"), types=[10]), feed, atol=3e-3)
    assert {a.name: a.i for a in fused.graph.node[0].attribute}["softmax_precision"] == 1


def test_dropout_of_inference():
    feed = heads()
    b = Builder(**feed)
    model = b.model(b("MatMul", b("Dropout", b("Softmax", scaled_product(b, "div"), axis=-1)), "v"))
    check(model, feed)


def test_three_axes():
    feed = {"q": random(1, B * H, S, D), "k": random(2, B * H, T, D), "v": random(3, B * H, T, E), "mask": random(4, B * H, 1, T)}
    b = Builder(**feed)
    scores = b("Add", b("MatMul", b("Mul", "q", 0.3), b("Transpose", "k", perm=[0, 2, 1])), "mask")
    fused = check(b.model(b("MatMul", b("Softmax", scores, axis=2), "v")), feed, strict=False)
    assert kinds(fused) == {"Unsqueeze": 3, "Attention": 1, "Squeeze": 1}


@pytest.mark.parametrize("order", [[0, 2, 3, 1], [0, 1, 3, 2], None])
def test_transposes(order):
    """Keys that lie in memory as [batch, tokens, heads, dim], and those that come transposed."""
    feed = heads()
    if order == [0, 2, 3, 1]:
        feed["k"] = np.ascontiguousarray(feed["k"].swapaxes(1, 2))
    elif order is None:
        feed["k"] = np.ascontiguousarray(feed["k"].swapaxes(2, 3))
    b = Builder(**feed)
    k = "k" if order is None else b("Transpose", "k", perm=order)
    fused = check(b.model(b("MatMul", b("Softmax", b("MatMul", "q", k), axis=-1), "v")), feed, strict=False)
    assert kinds(fused)["Transpose"] == (order != [0, 1, 3, 2])


@pytest.mark.parametrize("symbolic", [False, True])
def test_groups(symbolic):
    """Keys and values that are repeated for a group of query heads are read once."""
    feed = heads() | {"k": random(2, B, 2, T, D), "v": random(3, B, 2, T, E)}
    b = Builder(**feed)

    def repeat(name, dim):
        five, four = np.array([B, 2, 2, T, dim]), np.array([B, H, T, dim])
        if symbolic:
            sizes = b("Shape", name)
            size = [b("Slice", sizes, [i], [i + 1]) for i in range(4)]
            five, four = b("Concat", size[0], size[1], [2], size[2], size[3], axis=0), b("Concat", size[0], [H], size[2], size[3], axis=0)
        return b("Reshape", b("Expand", b("Unsqueeze", name, [2]), five), four)

    k, v = repeat("k", D), repeat("v", E)
    scores = b("MatMul", "q", b("Transpose", k, perm=[0, 1, 3, 2]))
    fused = check(b.model(b("MatMul", b("Softmax", scores, axis=-1), v), symbolic=symbolic), feed)
    assert len(fused.graph.node) == 1 and list(fused.graph.node[0].input) == ["q", "k", "v"]


def test_tiled_heads_are_not_groups():
    """[h0, h1, h0, h1] is another order than a group's."""
    feed = heads() | {"k": random(2, B, 2, T, D), "v": random(3, B, 2, T, E)}
    b = Builder(**feed)

    def repeat(name, dim):
        return b("Reshape", b("Expand", b("Unsqueeze", name, [1]), np.array([B, 2, 2, T, dim])), np.array([B, H, T, dim]))

    k, v = repeat("k", D), repeat("v", E)
    check(b.model(b("MatMul", b("Softmax", b("MatMul", "q", b("Transpose", k, perm=[0, 1, 3, 2])), axis=-1), v)), feed, strict=False)


def test_one_head_of_keys():
    feed = heads() | {"k": random(2, B, 1, T, D), "v": random(3, B, 1, T, E)}
    b = Builder(**feed)
    check(b.model(b("MatMul", b("Softmax", scaled_product(b, "div"), axis=-1), "v")), feed)


def test_subgraphs():
    feed = heads(choice=np.array(True))
    b, yes, no = Builder(**feed), Builder(), Builder()
    one = yes("MatMul", yes("Softmax", scaled_product(yes, "div"), axis=-1), "v")
    two = no("Neg", "v")

    def graph(builder, name):
        return onnx.helper.make_graph(builder.nodes, "branch", [], [onnx.helper.make_tensor_value_info(name, 1, None)], builder.constants)

    o = b("If", "choice", then_branch=graph(yes, one), else_branch=graph(no, two))
    model = b.model(o)
    fused = libattn.onnx.fuse(model)
    branch = next(a.g for a in fused.graph.node[0].attribute if a.name == "then_branch")
    assert [node.op_type for node in branch.node] == ["Attention"]
    for choice in (True, False):
        values = feed | {"choice": np.array(choice)}
        np.testing.assert_allclose(run(session(fused, strict=False), values)[0], stock(model, values)[0], rtol=0, atol=2e-6)


# ---- what stays as it is ----------------------------------------------------------------------------------------------------


def left(build, **more):
    feed = heads(**more)
    b = Builder(**feed)
    results = build(b)
    model = b.model(*(results if isinstance(results, tuple) else (results,)))
    check(model, feed, 0, strict=False, atol=0)


LEFT = {
    "weights are a result": (lambda b: (lambda w: (b("MatMul", w, "v"), w))(b("Softmax", scaled_product(b, "div"), axis=-1)), {}),
    "scores are a result": (lambda b: (lambda s: (b("MatMul", b("Softmax", s, axis=-1), "v"), s))(scaled_product(b, "div")), {}),
    "weights are used twice": (lambda b: (lambda w: (b("MatMul", w, "v"), b("ReduceMax", w)))(b("Softmax", scaled_product(b, "div"), axis=-1)), {}),
    "another axis": (lambda b: b("MatMul", b("Softmax", scaled_product(b, "div"), axis=2), "v"), {}),
    "scaled after the mask": (lambda b: b("MatMul", b("Softmax", b("Mul", b("Add", scaled_product(b, "div"), "mask"), 0.5), axis=-1), "v"), {"mask": random(4, S, T)}),
    "capped after the mask": (
        lambda b: b("MatMul", b("Softmax", b("Mul", b("Tanh", b("Add", scaled_product(b, "div"), "mask")), 5.0), axis=-1), "v"), {"mask": random(4, S, T)},
    ),
    "a small number hides": (lambda b: b("MatMul", b("Softmax", b("Where", "mask", scaled_product(b, "div"), b.constant(-100.0)), axis=-1), "v"), {"mask": np.tri(S, T, 2, bool)}),
    "a large number hides": (lambda b: b("MatMul", b("Softmax", b("Where", "mask", scaled_product(b, "div"), b.constant(1e9)), axis=-1), "v"), {"mask": np.tri(S, T, 2, bool)}),
    "a number that leaves scores over hides, and another mask is added": (
        lambda b: b("MatMul", b("Softmax", b("Add", b("Where", "mask", scaled_product(b, "div"), b.constant(-1e9)), "more"), axis=-1), "v"),
        {"mask": np.tri(S, T, -1, bool), "more": random(5, S, T)},
    ),
    "a mask is added, then a number hides": (
        lambda b: b("MatMul", b("Softmax", b("Where", "mask", b("Add", scaled_product(b, "div"), "more"), b.constant(-1e30)), axis=-1), "v"),
        {"mask": np.tri(S, T, -1, bool), "more": np.where(random(5, S, T) > 0, 0, -np.inf).astype(np.float32)},
    ),
    "two numbers hide": (
        lambda b: b("MatMul", b("Softmax", b("Where", "mask", b("Where", "other", scaled_product(b, "div"), b.constant(-1e9)), b.constant(-1e10)), axis=-1), "v"),
        {"mask": np.tri(S, T, -1, bool), "other": np.tri(S, T, -2, bool)},
    ),
    "scale of zero": (lambda b: b("MatMul", b("Softmax", b("Mul", scaled_product(b, "div"), 0.0), axis=-1), "v"), {}),
    "negative scale": (lambda b: b("MatMul", b("Softmax", b("Mul", scaled_product(b, "div"), -1.0), axis=-1), "v"), {}),
    "a mask of one axis": (lambda b: b("MatMul", b("Softmax", b("Add", scaled_product(b, "div"), "mask"), axis=-1), "v"), {"mask": random(4, T)}),
    "a mask of five axes": (lambda b: b("MatMul", b("Softmax", b("Add", scaled_product(b, "div"), "mask"), axis=-1), "v"), {"mask": random(4, 2, B, H, S, T)}),
    "a batch of one key": (lambda b: b("MatMul", b("Softmax", scaled_product(b, "div"), axis=-1), "v"), {"k": random(2, 1, H, T, D)}),
    "a batch of one query": (lambda b: b("MatMul", b("Softmax", scaled_product(b, "div"), axis=-1), "v"), {"q": random(1, 1, H, S, D)}),
    "values of other heads": (lambda b: b("MatMul", b("Softmax", scaled_product(b, "div"), axis=-1), "v"), {"v": random(3, B, 1, T, E)}),
    "no softmax": (lambda b: b("MatMul", b("Relu", scaled_product(b, "div")), "v"), {}),
}


@pytest.mark.parametrize("what", LEFT)
def test_left(what):
    build, more = LEFT[what]
    left(build, **more)


def test_scale_for_each_channel_stays():
    """Keys times a vector are keys of their own."""
    feed = heads(w=random(4, D))
    b = Builder(**feed)
    scores = b("MatMul", "q", b("Transpose", b("Mul", "k", "w"), perm=[0, 1, 3, 2]))
    fused = check(b.model(b("MatMul", b("Softmax", scores, axis=-1), "v")), feed, strict=False)
    assert kinds(fused)["Mul"] == 1


# ---- models -----------------------------------------------------------------------------------------------------------------


def test_large_initializers(tmp_path):
    """They come back, and a path does as well as a model."""
    feed = {"x": random(1, 1, S, H * D)}
    b = Builder(**feed)
    weights = {name: random(seed, H * D, H * D) / 8 for seed, name in enumerate("abc")}

    def project(w):
        return b("Transpose", b("Reshape", b("MatMul", "x", b.constant(w)), np.array([1, S, H, D])), perm=[0, 2, 1, 3])

    q, k, v = (project(w) for w in weights.values())
    o = b("MatMul", b("Softmax", b("Div", b("MatMul", q, b("Transpose", k, perm=[0, 1, 3, 2])), ROOT), axis=-1), v)
    model = b.model(b("Reshape", b("Transpose", o, perm=[0, 2, 1, 3]), np.array([1, S, H * D])), opset=17)
    fused = check(model, feed, strict=False)
    assert [x.name for x in fused.graph.input] == ["x"] and sum(np.prod(t.dims) == (H * D) ** 2 for t in fused.graph.initializer) == 3
    onnx.save(model, tmp_path / "model.onnx")
    assert libattn.onnx.fuse(tmp_path / "model.onnx") == fused == libattn.onnx.fuse(str(tmp_path / "model.onnx"))


@pytest.mark.parametrize("version", [3, 4, 10])
def test_defaults_are_no_constants(version):
    """An initializer that is an input too may be replaced by a run, but in models of the first formats."""
    feed = heads(scale=np.array(0.25, np.float32))
    b = Builder(**heads())
    b.constants.append(numpy_helper.from_array(feed["scale"], "scale"))
    product = b("Mul", b("MatMul", "q", b("Transpose", "k", perm=[0, 1, 3, 2])), "scale")
    model = b.model(b("MatMul", b("Softmax", product, axis=-1), "v"), opset=17)
    model.graph.input.append(onnx.helper.make_tensor_value_info("scale", 1, []))
    model.ir_version = version
    assert kinds(libattn.onnx.fuse(model))["Attention"] == (version < 4)


@pytest.mark.parametrize("sizes", [(2, 5), (1, 1), (4, 9)])
def test_heads_of_unknown_number(sizes):
    """As transformers' models are exported: heads are what is left of the channels, and a mask is made for all layers."""
    feed = {"x": random(1, *sizes, H * D), "seen": random(2, *sizes) > -0.5}
    feed["seen"][:, 0] = True
    example = {"x": random(1, B, S, H * D), "seen": np.ones((B, S), bool)}
    b = Builder(**example)
    lengths = [b("Unsqueeze", b("Gather", b("Shape", "x"), b.constant(np.array(axis))), [0]) for axis in (0, 1)]
    mask = b("Where", b("Unsqueeze", "seen", [1, 2]), b.constant(0.0), b.constant(float(np.finfo(np.float32).min)))
    o = "x"
    for layer in range(2):
        def project(x, seed):
            projected = b("MatMul", x, random(seed, H * D, H * D) / 8)
            return b("Reshape", projected, b("Concat", *lengths, [-1], [D], axis=0))

        q, v = (b("Transpose", project(o, 10 * layer + seed), perm=[0, 2, 1, 3]) for seed in (3, 4))
        k = b("Transpose", project(o, 10 * layer + 5), perm=[0, 2, 3, 1])
        weights = b("Softmax", b("Add", b("Mul", b("MatMul", q, k), D**-0.5), mask), axis=-1)
        together = b("Transpose", b("MatMul", weights, v), perm=[0, 2, 1, 3])
        o = b("Reshape", together, b("Concat", *lengths, [H * D], axis=0))
    model = b.model(o, opset=17, symbolic=True)
    check(model, feed, 2, strict=False)


def test_nothing_to_fuse():
    feed = {"q": random(1, 3)}
    b = Builder(**feed)
    model = b.model(b("Neg", "q"))
    assert kinds(libattn.onnx.fuse(model)) == {"Neg": 1}


def test_fused_twice():
    feed = heads()
    b = Builder(**feed)
    fused = libattn.onnx.fuse(b.model(b("MatMul", b("Softmax", scaled_product(b, "div"), axis=-1), "v")))
    assert libattn.onnx.fuse(fused) == fused


def test_errors(tmp_path):
    with pytest.raises(TypeError, match="model is of the type int; it must be an onnx.ModelProto or a path"):
        libattn.onnx.fuse(3)
    with pytest.raises(FileNotFoundError):
        libattn.onnx.fuse(tmp_path / "none.onnx")
    b = Builder(q=random(1, 3))
    model = b.model(b("Neg", "q"), opset=17)
    model.graph.node[0].op_type = "Negative"
    with pytest.raises(NotImplementedError, match="the model cannot be converted from opset 17 to 23, which has Attention: "):
        libattn.onnx.fuse(model)


def test_needs_no_runtime(monkeypatch):
    """fuse() takes the package onnx alone."""
    monkeypatch.setattr(onnxruntime, "InferenceSession", None)
    feed = heads()
    b = Builder(**feed)
    assert kinds(libattn.onnx.fuse(b.model(b("MatMul", b("Softmax", scaled_product(b, "div"), axis=-1), "v")))) == {"Attention": 1}
