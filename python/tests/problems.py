# SPDX-License-Identifier: MIT
"""What the tests of several subjects share: comparisons within a bound, arrays of other libraries, attention by its formula."""
import ctypes
import gc
import importlib
import importlib.util
import pathlib
import resource
import sys

import numpy as np
import pytest

EPS = 2.0**-53  # half a unit in the last place of 1 in double
ROOT = pathlib.Path(__file__).resolve().parents[2]
BFLOAT16 = [importlib.import_module("ml_dtypes").bfloat16] if importlib.util.find_spec("ml_dtypes") else []  # where NumPy has it
FOLDERS = [ROOT / "examples" / "data", ROOT.parent / "shared" / "data"]


def close(found, expected, bound):
    """|found - expected| <= bound, element by element; infinities must agree, and NaN is never close."""
    found, expected = np.asarray(found, float), np.asarray(expected, float)
    assert found.shape == expected.shape, (found.shape, expected.shape)
    with np.errstate(invalid="ignore"):
        excess = np.where(found == expected, 0, np.abs(found - expected))
    assert np.all(excess <= bound), f"differs by {np.max(excess)}, allowed {np.max(bound)}"


def _torch(array):
    return importlib.import_module("torch").from_numpy(np.array(array))


def _strict(array):
    return importlib.import_module("array_api_strict").asarray(np.array(array))


# Calls a test with a function that makes arrays of each library.
arrays = pytest.mark.parametrize("make", [
    pytest.param(np.array, id="numpy"),
    pytest.param(_torch, id="torch", marks=pytest.mark.skipif(not importlib.util.find_spec("torch"), reason="torch is not installed")),
    pytest.param(_strict, id="strict", marks=pytest.mark.skipif(not importlib.util.find_spec("array_api_strict"), reason="array_api_strict is not installed")),
])


class _Mallinfo(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")]


def held():
    """Bytes that malloc and Python have given out, with at least 32 for each block; skips the test where this is not known."""
    try:
        ask = ctypes.CDLL(None).mallinfo2
    except AttributeError:
        pytest.skip("needs mallinfo2 of glibc")
    ask.restype = _Mallinfo
    gc.collect()
    found = ask()
    return found.uordblks + found.hblkhd + 32 * sys.getallocatedblocks()


def nothing_leaks(call, count):
    """Asserts that of so many calls fewer than half leave a block behind, and that no other memory grows by much."""
    def resident():
        return int(pathlib.Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * resource.getpagesize()

    for _ in range(count // 10):
        call()
    before = held(), resident()
    for _ in range(count):
        call()
    after = held(), resident()
    assert after[0] - before[0] < 16 * count and after[1] - before[1] < 2 << 20, (before, after)


def data(name):
    """The path of a file of real data; skips the test where there is none."""
    for folder in FOLDERS:
        if (folder / name).exists():
            return str(folder / name)
    pytest.skip(f"no {name} in {' or '.join(map(str, FOLDERS))}")
