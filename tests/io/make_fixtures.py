#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes the files in data/ with the formats' own libraries.  The files are committed; this script records how they were made.

Element k of every tensor is the number k (bool: k odd).  Needs numpy and safetensors (made with numpy 2.4.6, safetensors 0.5.3).
"""
import os

import numpy as np
from numpy.lib import format as npy_format
from safetensors import serialize_file

here = os.path.join(os.path.dirname(os.path.abspath(__file__)), "data")
types = "f8 f4 f2 i8 i4 i2 i1 u8 u4 u2 u1 b1".split()
long_names = {"f8": "float64", "f4": "float32", "f2": "float16", "i8": "int64", "i4": "int32", "i2": "int16", "i1": "int8",
              "u8": "uint64", "u4": "uint32", "u2": "uint16", "u1": "uint8", "b1": "bool"}


def count(dtype, *shape):
    numbers = np.arange(int(np.prod(shape)))
    return (numbers % 2 if dtype == "b1" else numbers).astype(dtype).reshape(shape)


def path(name):
    return os.path.join(here, name)


arrays = {name: count(name, 2, 3) for name in types}
arrays["scalar"] = count("f4")
arrays["none"] = count("f8", 0, 3)
np.savez(path("numpy.npz"), **arrays)
np.savez_compressed(path("numpy_deflated.npz"), **arrays)
np.savez(path("numpy_empty.npz"))

np.save(path("numpy_plain.npy"), count("f4", 2, 3))
np.save(path("numpy_scalar.npy"), count("i8"))
np.save(path("numpy_big_endian.npy"), count(">f4", 2, 3))
np.save(path("numpy_fortran.npy"), np.asfortranarray(count("f8", 2, 3, 4)))
np.save(path("numpy_big_endian_fortran.npy"), np.asfortranarray(count(">i2", 2, 3, 4)))
for version in (2, 3):
    with open(path(f"numpy_version_{version}.npy"), "wb") as file:
        npy_format.write_array(file, count("u4", 5), version=(version, 0))
np.save(path("numpy_complex.npy"), np.zeros(2, "c8"))
np.save(path("numpy_structured.npy"), np.zeros(2, [("a", "f4"), ("b", "i4")]))
with open(path("python2.npy"), "wb") as file:  # as Python 2 wrote long integers
    text = b"{'descr': '<f4', 'fortran_order': False, 'shape': (2L, 3L), }"
    file.write(b"\x93NUMPY\x01\x00" + (118).to_bytes(2, "little") + text.ljust(117) + b"\n" + count("f4", 2, 3).tobytes())

tensors = {name: {"dtype": long_names[name], "shape": [2, 3], "data": count(name, 2, 3).tobytes()} for name in types}
bf16 = (count("f4", 2, 3).view("u4") >> 16).astype("u2")
tensors["bf16"] = {"dtype": "bfloat16", "shape": [2, 3], "data": bf16.tobytes()}
tensors["scalar"] = {"dtype": "float32", "shape": [], "data": count("f4").tobytes()}
tensors["none"] = {"dtype": "float64", "shape": [0, 3], "data": b""}
serialize_file(tensors, path("python.safetensors"), {"tokens": '["the", "na\u00efve", "\u72d7"]', "note": "tab\tquote\""})
serialize_file({}, path("python_empty.safetensors"))
