#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""NumPy and the safetensors package read the files of libattn_io: read_back.py WRITE_SAMPLES.  Exits with 77 if they are not installed."""
import json
import subprocess
import sys
import tempfile

try:
    import numpy as np
    from safetensors import safe_open
except ImportError as error:
    print("skipped:", error)
    sys.exit(77)

names = {"f64": "f8", "f32": "f4", "f16": "f2", "bool": "?", "i8": "i1", "u8": "u1", "i16": "i2", "u16": "u2", "i32": "i4", "u32": "u4",
         "i64": "i8", "u64": "u8"}


def check(name, array):
    dtype = np.dtype({"scalar": "f4", "none": "f8"}.get(name) or names[name])
    shape = {"scalar": (), "none": (0, 3)}.get(name, (2, 3))
    numbers = np.arange(int(np.prod(shape))).reshape(shape)
    assert array.dtype == dtype and array.shape == shape, (name, array.dtype, array.shape)
    assert (array == (numbers % 2 if name == "bool" else numbers)).all(), (name, array)


with tempfile.TemporaryDirectory() as folder:
    subprocess.run([sys.argv[1]], cwd=folder, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for name in names:
        check(name, np.load(f"{folder}/{name}.npy"))
    file = np.load(f"{folder}/samples.npz")
    assert set(file.files) == set(names) | {"scalar", "none", "__metadata__"}, file.files
    for name in file.files:
        if name != "__metadata__":
            check(name, file[name])
    metadata = json.loads(bytes(file["__metadata__"]))
    assert json.loads(metadata["tokens"]) == ["na\u00efve", '"'], metadata
    with safe_open(f"{folder}/samples.safetensors", "numpy") as file:
        assert set(file.keys()) == set(names) | {"scalar", "none", "bf16"}, file.keys()
        for name in [*names, "scalar", "none"]:
            check(name, file.get_tensor(name))
        assert file.get_slice("bf16").get_dtype() == "BF16" and file.get_slice("bf16").get_shape() == [2, 3]
        assert json.loads(file.metadata()["tokens"]) == ["na\u00efve", '"'], file.metadata()
