# SPDX-License-Identifier: MIT
"""DLPack: bfloat16 and float8 of any library over the same memory, with any strides, and results as such; attn_dlpack_input over the
tensors that libraries really make."""
import ctypes
import gc
import weakref

import numpy as np
import pytest

import libattn
from libattn import _abi, _arrays, _dlpack, _native

ml_dtypes = pytest.importorskip("ml_dtypes")
TYPES = {name: np.dtype(getattr(ml_dtypes, name)) for name in ("bfloat16", "float8_e4m3fn", "float8_e5m2")}
RANDOM = np.random.default_rng(5)
Q = RANDOM.standard_normal((2, 4, 3, 8)).astype(np.float32)
PAGES = RANDOM.standard_normal((5, 2, 6, 2, 8)).astype(np.float32)  # [pages, K and V, page_size, heads, dim]
TABLE = np.array([[3, 0], [1, 4]])
NEAR = 1e-5


class Producer:
    """A library with DLPack 1.0, or an older one, of which NumPy knows nothing else."""

    def __init__(self, x, older=False):
        self.x, self.older = libattn.dlpack(x), older

    def __dlpack_device__(self):
        return self.x.__dlpack_device__()

    def __dlpack__(self, *arguments, **named):
        if self.older and named:
            raise TypeError("unexpected keyword")
        return self.x.__dlpack__(*arguments, **named)


def close(one, other):
    np.testing.assert_allclose(np.asarray(one, np.float64), np.asarray(other, np.float64), rtol=NEAR, atol=NEAR)


@pytest.mark.parametrize("name", TYPES)
def test_pages(name):
    """K and V are strided views of pages, and the result is that over their numbers."""
    pages = PAGES.astype(TYPES[name])
    k, v = (Producer(pages[:, i].swapaxes(1, 2)) for i in range(2))
    known = _arrays.asarray(k, "k")
    assert known.ctypes.data == pages.ctypes.data and known.dtype == pages.dtype and known.strides == pages[:, 0].swapaxes(1, 2).strides
    options = {"page_table": TABLE, "lengths_kv": [11, 7], "causal": True}
    plain = pages.astype(np.float32)
    close(libattn.attention(Q, k, v, **options), libattn.attention(Q, *(plain[:, i].swapaxes(1, 2) for i in range(2)), **options))
    if name != "bfloat16":
        scale = np.broadcast_to(np.float32([[2], [3]]), (5, 2, 6))  # of each head
        scaled = [plain[:, i].swapaxes(1, 2) * scale[..., np.newaxis] for i in range(2)]
        close(libattn.attention(Q, k, v, k_scale=scale, v_scale=scale, **options), libattn.attention(Q, *scaled, **options))


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("older", [False, True])
def test_memory_is_kept_and_given_back(name, older):
    array = PAGES[0, 0].astype(TYPES[name])
    gone = weakref.ref(array)
    taken = _arrays.asarray(Producer(array, older), "x")
    numbers = array.astype(np.float32)
    assert taken.flags.writeable == (not older and np.lib.NumpyVersion(np.__version__) >= "2.1.0")  # older ones do not say
    del array
    gc.collect()
    assert gone() is not None and (taken.astype(np.float32) == numbers).all()
    del taken
    gc.collect()
    assert gone() is None


def test_results_are_written():
    torch = pytest.importorskip("torch")
    q, k, v = (torch.from_numpy(x).bfloat16() for x in (Q, Q, Q))
    want = libattn.attention(q, k, v)
    assert want.dtype == torch.bfloat16
    memory = torch.zeros(2, 3, 5, 8, dtype=torch.bfloat16)
    out = memory[:, :, :4].transpose(1, 2)
    assert libattn.attention(q, k, v, out=out) is out
    assert torch.equal(memory[:, :, :4].transpose(1, 2), want) and not memory[:, :, 4].any()


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("library", ["torch", "jax.numpy"])
def test_libraries(name, library):
    """In from their arrays, out to them, without a copy."""
    module = pytest.importorskip(library)
    array = PAGES[0, 0].astype(TYPES[name])
    made = module.from_dlpack(libattn.dlpack(array))
    assert str(made.dtype).endswith(name)
    seen = _arrays.asarray(made, "x")
    assert seen.dtype == array.dtype and (seen.view(np.uint8) == array.view(np.uint8)).all()
    if library == "torch":
        array[:] = 0
        assert not made.float().any() and seen.ctypes.data == array.ctypes.data
        made = made.transpose(0, 1)[1:]
        assert _arrays.asarray(made, "x").ctypes.data == made.data_ptr()


class Offset(Producer):
    """Counts from an address before its first number."""

    def __dlpack__(self, *arguments, **named):
        capsule = super().__dlpack__(*arguments, **named)
        tensor = _dlpack._opened(capsule)[0].tensor
        tensor.data, tensor.byte_offset = tensor.data - 64, 64
        return capsule


def test_offset():
    array = PAGES[0, 0].astype(TYPES["bfloat16"])
    assert _arrays.asarray(Offset(array), "x").ctypes.data == array.ctypes.data
    assert slot_of(Offset(array), "thc").data == array.ctypes.data


@pytest.mark.parametrize("device", [3, 11])  # kDLCUDAHost, kDLROCMHost
@pytest.mark.parametrize("name", ["float32", *TYPES])
def test_pinned_memory(name, device):
    """Memory of the host that a GPU also reads, as of torch's pin_memory, is like any other."""
    class Pinned(Producer):
        def __dlpack_device__(self):
            return device, 0

        def __dlpack__(self, *arguments, **named):
            capsule = super().__dlpack__(*arguments, **named)
            _dlpack._opened(capsule)[0].tensor.device_type = device
            return capsule

    array = Q.astype(TYPES.get(name, name))
    taken = _arrays.asarray(Pinned(array), "q")
    assert taken.ctypes.data == array.ctypes.data and taken.dtype == array.dtype
    with pytest.raises(TypeError, match="q is on the device"):
        device = 2  # kDLCUDA
        _arrays.asarray(Pinned(array), "q")


def test_what_needs_no_wrapper():
    assert libattn.dlpack(Q) is Q
    assert np.shares_memory(np.from_dlpack(libattn.dlpack(Q)), Q)
    assert _arrays.asarray(Producer(np.empty((0, 3), TYPES["bfloat16"])), "x").shape == (0, 3)

    class Wrong:
        """Says that it has what it has not."""

        def __dlpack__(self):
            return 7

    assert _dlpack.take(Wrong()) is None


def slot_of(x, axes, shape=None):
    """What attn_dlpack_input makes of the tensor that x gives."""
    capsule = x.__dlpack__()
    tensor, slot = _dlpack._opened(capsule)[0].tensor, _abi.attn_input()
    sizes = None if shape is None else (ctypes.c_int64 * 4)(*shape)
    _native.call("attn_dlpack_input", ctypes.byref(tensor), axes.encode(), sizes, ctypes.byref(slot))
    return slot


@pytest.mark.parametrize("library", ["numpy", "torch", "jax.numpy"])
def test_slots_of_real_tensors(library):
    module = pytest.importorskip(library)
    one = module.from_dlpack(PAGES) if library != "jax.numpy" else module.asarray(PAGES)
    slot = slot_of(one, "b1thc", (5, 2, 6, 8))
    assert slot.dtype == _abi.ATTN_F32 and list(slot.stride) == [192, 8, 16, 1]
    found = np.ctypeslib.as_array((ctypes.c_float * 8).from_address(slot.data))
    assert (found == PAGES[0, 1, 0, 0]).all()
    if library == "torch":
        assert slot_of(one.bfloat16(), "b0thc").dtype == _abi.ATTN_BF16
        assert slot_of(one.to(module.float8_e5m2), "b0thc").dtype == _abi.ATTN_F8_E5M2
        assert list(slot_of(one[:, 0, ::2].transpose(1, 2), "bhtc").stride) == [192, 8, 32, 1]
        assert slot_of(module.arange(3) > 0, "b").dtype == _abi.ATTN_BOOL
    with pytest.raises(ValueError, match="^axis t of the DLTensor has size 6; it must have 7"):
        slot_of(one, "b1thc", (5, 2, 7, 8))


def test_a_cache_over_such_memory():
    k, v = (np.zeros((1, 2, 4, 8), TYPES["bfloat16"]) for _ in range(2))
    one = libattn.cache.Cache(Producer(k), Producer(v), np.zeros(1, np.int64))
    one.append(np.ones((1, 2, 1, 8), np.float32), np.full((1, 2, 1, 8), 2, np.float32))
    assert k[0, 0, 0, 0] == 1 and v[0, 1, 0, 7] == 2 and not k[:, :, 1:].any()
