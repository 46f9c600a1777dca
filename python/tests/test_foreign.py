# SPDX-License-Identifier: MIT
"""Arrays that mean more than the numbers in their memory: what is not right is rejected with a sentence, never ignored."""
import numpy as np
import pytest

import libattn
from libattn import analysis, files, linear, positions
from libattn._introspection import dtypes

A = libattn.attention
RNG = np.random.default_rng(0)
Q, K, V = (RNG.standard_normal(shape).astype("f") for shape in ((2, 4, 5, 8), (2, 2, 7, 8), (2, 2, 7, 6)))
O = A(Q, K, V)
SIZES = {"batch": 2, "head_q": 4, "head_kv": 2, "query": 5, "key": 7, "dim_qk": 8, "dim_k": 8, "dim_v": 6}
INPUTS = [row for row in libattn.tensors() if "forward" in row.inputs]
TYPES = dtypes()


def array_for(row):
    """An array that attention takes for a tensor, or at least looks at."""
    shape = [SIZES.get(axis, 2) for axis in row.axes if axis != "one"]
    return np.ones(shape, TYPES[row.dtypes[0]])


class Unit(np.ndarray):
    """Numbers with a unit, as astropy and unyt have them."""

    def __array_ufunc__(self, *_, **__):
        raise AssertionError("not computed with")


class Lazy:
    """What becomes an array only when it is asked, such as a frame."""

    def __init__(self, array):
        self.array = array

    def __array__(self, *_, **__):
        return self.array


@pytest.mark.parametrize("row", INPUTS, ids=[row.name for row in INPUTS])
def test_masked_arrays(row):
    arguments = {"q": Q, "k": K, "v": V}
    array = arguments.get(row.name, array_for(row))
    masked = np.ma.array(array, mask=np.arange(array.size).reshape(array.shape) == 1)
    for x in (masked, np.ma.array(array), Lazy(masked)):
        given = {**arguments, row.name: x}
        with pytest.raises(TypeError, match=rf"^{row.name} is a masked array, whose mask would be ignored; pass what numpy\.ma\.filled makes of it, and mask= to hide keys$"):
            A(given.pop("q"), given.pop("k"), given.pop("v"), **given)


def test_masked_elements_of_lists_and_outputs():
    for x in ([np.ma.masked] * 4, [0.0, 1.0, 2.0, np.ma.masked], [np.ma.array(1.0, mask=True)] * 4):
        with pytest.raises(TypeError, match="^sink has masked elements"):
            A(Q, K, V, sink=x)
    with pytest.raises(TypeError, match=r"^out is a masked array, whose mask would be ignored; pass out\.data$"):
        A(Q, K, V, out=np.ma.array(O.copy()))
    with pytest.raises(ValueError, match="scale is nan"), pytest.warns(UserWarning):
        A(Q, K, V, scale=np.ma.masked)


def test_masked_arrays_elsewhere(tmp_path):
    masked = np.ma.array(Q, mask=Q > 0)
    for call in (lambda: files.save(tmp_path / "x.npz", {"x": masked}), lambda: positions.Rope()(masked), lambda: linear.attention(masked, Q, Q), lambda: analysis.entropy(masked), lambda: libattn.plot("heads", masked[0]),
                 lambda: libattn.view(masked[0])):
        with pytest.raises(TypeError, match="is a masked array"):
            call()
    given = np.ma.array(np.ones((4, 5, 7), bool), mask=np.zeros((4, 5, 7), bool))
    with pytest.raises(TypeError, match="^mask is a masked array"):
        libattn.Plan(Q, K, V, mask=given)


def test_subclasses():
    with pytest.raises(TypeError, match=r"^k is of type Unit, whose numbers may have a meaning \(a unit\) that would be lost; pass numpy.asarray\(k\)"):
        A(Q, K.view(Unit), V)
    one = A(Q[0, 0], K[0, 0], V[0, 0])
    with pytest.warns(PendingDeprecationWarning):
        matrices = [np.matrix(x[0, 0]) for x in (Q, K, V)]
    got = A(*matrices)
    assert type(got) is np.ndarray and (got == one).all()
    assert (A(Q.view(np.recarray), K, V) == O).all()


def test_memory_that_is_mapped(tmp_path):
    Q.tofile(tmp_path / "q")
    q = np.memmap(tmp_path / "q", Q.dtype, "r", shape=Q.shape)
    out = np.memmap(tmp_path / "o", O.dtype, "w+", shape=O.shape)
    assert A(q, K, V, out=out) is out and (out == O).all()
    assert type(A(q, K, V)) is np.ndarray


@pytest.mark.parametrize("change, sentence", [
    (lambda x: x.view([("a", "f4")]), r"type \[\('a', '<f4'\)\], which libattn does not know"),
    (lambda x: x.astype(object), r"type object, which libattn does not know"),
    (lambda x: x.astype(">f4"), r"type >f4, .* pass q.astype\(q.dtype.newbyteorder\('='\)\)"),
    (lambda x: x.astype("M8[s]"), r"type datetime64\[s\], which libattn does not know"),
    (lambda x: x.astype(complex), r"type complex128, which libattn does not know"),
    (lambda x: x.astype("i8"), r"type int64; it must be float32, float64, float16 or bfloat16"),
    (lambda x: x > 0, r"type bool; it must be float32"),
])
def test_types(change, sentence):
    with pytest.raises(TypeError, match=f"^q has {sentence}"):
        A(change(Q), K, V)


def test_types_that_are_converted():
    for kind in (">f4", ">f8", "f2", "i4", np.longdouble):
        assert (A(Q, K, V, sink=np.arange(4).astype(kind)) == A(Q, K, V, sink=[0.0, 1, 2, 3])).all(), kind


@pytest.mark.parametrize("name, x, sentence", [
    ("lengths_kv", [3.0, 4.0], "float64; it must be int64 or int32"),
    ("lengths_q", np.ones(2, np.uint16), "uint16; it must be int64 or int32"),
    ("page_table", np.ones((2, 1)), "float64; it must be int64 or int32"),
    ("mask", np.ones((5, 7), int), r"int64; it must be bool \(what is added to the scores is the bias\)"),
    ("mask", np.zeros((5, 7), "f"), r"float32; it must be bool \(what is added to the scores is the bias\)"),
    ("dropout_given", np.ones((2, 4, 5, 7), np.int8), "int8; it must be bool"),
    ("bias", np.ones((5, 7), bool), "bool; it must be float32, float64, float16 or bfloat16"),
    ("sink", np.ones(4, complex), "complex128, which does not become float32 without loss"),
])
def test_types_of_options(name, x, sentence):
    with pytest.raises(TypeError, match=f"^{name} has type {sentence}$"):
        A(Q, K, V, **{name: x})
    if not sentence.startswith("complex"):
        with pytest.raises(TypeError, match=f"^{name} has type {sentence}$"):
            libattn.Plan(Q, K, V, **{name: libattn.Spec(np.shape(x), np.asarray(x).dtype)})


def test_no_axes():
    for name in ("sink", "lengths_kv"):
        with pytest.raises(ValueError, match=rf"^{name} has the shape \(\); it must be"):
            A(Q, K, V, **{name: np.array(1)})
    with pytest.raises(ValueError, match="^q has 0 axes"):
        A(np.float32(1), K, V)
    assert (A(Q, K, V, mask=np.array(True)) == A(Q, K, V, mask=np.ones((5, 7), bool))).all()


def test_frames():
    with pytest.raises(TypeError, match="^sink is of type Lazy, not an array of numbers"):
        A(Q, K, V, sink=Lazy(np.array([1.0, 2.0, 3.0, None], object)))  # a column with a value missing
    assert (A(Lazy(Q), K, V) == O).all()

    class Column:
        """As pyarrow has them: DLPack, and a type that is not called dtype."""

        def __dlpack_device__(self):
            return (1, 0)

        def __dlpack__(self, **arguments):
            return V.__dlpack__()

    assert (A(Q, K, Column()) == O).all()


def test_torch_notes_instead_of_changing_memory():
    torch = pytest.importorskip("torch")
    import libattn.torch

    q, k, v = (torch.from_numpy(x) for x in (Q, K, V))
    lazy = torch.complex(v, q[..., :5, :6].repeat(1, 1, 2, 1)[:, :2, :7]).conj()
    with pytest.raises(TypeError, match=r"^v is a tensor whose memory does not have its numbers yet; pass v.resolve_neg\(\)"):
        A(q, k, lazy.imag)
    with pytest.raises(TypeError, match=r"^v is a tensor whose memory does not have its numbers yet; pass v.resolve_conj\(\)"):
        A(q, k, lazy)
    assert (libattn.torch.attention(q, k, lazy.imag) == A(q, k, lazy.imag.resolve_neg())).all()
    for x in (q.to_sparse(), torch.nested.nested_tensor([q[0], q[1]])):
        with pytest.raises(TypeError):
            A(x, k, v)


@pytest.mark.parametrize("name, x, sentence", [
    ("lengths_kv", [3.0, 4.0], "has type torch.float32; it must be torch.int64 or torch.int32"),
    ("offset_q", [3.0, 4.0], "has type torch.float32; it must be torch.int64 or torch.int32"),
    ("mask", [[1] * 7] * 5, "has type torch.int64; it must be of booleans"),
    ("mask", None, "is of type MaskedArray; it must be a torch.Tensor"),
    ("sink", None, "is of type MaskedArray; it must be a torch.Tensor"),
    ("bias", None, "is of type MaskedArray; it must be a torch.Tensor"),
])
def test_tensors_of_options(name, x, sentence):
    torch = pytest.importorskip("torch")
    import libattn.torch

    q, k, v = (torch.from_numpy(x) for x in (Q, K, V))
    with pytest.raises(TypeError, match=f"^{name} {sentence}"):
        libattn.torch.attention(q, k, v, **{name: np.ma.array([1.0]) if x is None else torch.tensor(x)})
