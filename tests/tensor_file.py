# SPDX-License-Identifier: MIT
"""Reads and writes .safetensors files with the standard library only, for the Python tests of the command."""
import json
import struct

CODES = {"F16": "e", "F32": "f", "F64": "d", "I8": "b", "I32": "i", "I64": "q", "BOOL": "?"}


def write(path, tensors, **metadata):
    """tensors: {name: (dtype, shape, numbers)}, with dtypes named as in the format; numbers may be raw bytes."""
    header, data = {"__metadata__": metadata} if metadata else {}, b""
    for name, (dtype, shape, numbers) in tensors.items():
        raw = numbers if isinstance(numbers, bytes) else struct.pack("<%d%s" % (len(numbers), CODES[dtype]), *numbers)
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def read(path):
    """{name: (dtype, shape, numbers)}, and the metadata."""
    with open(path, "rb") as file:
        header, data = json.loads(file.read(struct.unpack("<Q", file.read(8))[0])), file.read()
    metadata, tensors = header.pop("__metadata__", {}), {}
    for name, row in header.items():
        begin, end = row["data_offsets"]
        code = CODES[row["dtype"]]
        tensors[name] = (row["dtype"], row["shape"], struct.unpack("<%d%s" % ((end - begin) // struct.calcsize(code), code), data[begin:end]))
    return tensors, metadata
