#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""attn_tensors in the public header, its list in the sources (slots.def) and, given a shared library, the table that it describes
(loaded as a binding of another language loads it) have the same names in the same order at the same offsets.

Usage: table.py [LIBRARY]
"""
import ctypes
import re
import sys

SLOT, FIRST, OPERATIONS = 48, 16, 8


def header_slots(path, struct):
    text = re.sub(r"/\*.*?\*/", "", open(path, encoding="utf-8").read(), flags=re.S)
    body = re.search(r"typedef struct " + struct + r" \{(.*?)\} " + struct + ";", text, re.S).group(1)
    fields = [" ".join(field.split()) for field in body.split(";") if field.strip()]
    assert fields[:2] == ["size_t struct_size", "const attn_call *call"], fields[:2]
    slots = []
    for field in fields[2:]:
        kind, names = field.split(" ", 1)
        assert kind in ("attn_input", "attn_output"), f"{field} is not a slot"
        slots += [(kind, name.strip()) for name in names.split(",")]
    return slots


def source_slots(path):
    kinds = {"INPUT": "attn_input", "OUTPUT": "attn_output"}
    return [(kinds[kind], name) for kind, name in re.findall(r"^(INPUT|OUTPUT)\((\w+)\)$", open(path, encoding="utf-8").read(), re.M)]


class Description(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("name", ctypes.c_char_p), ("offset", ctypes.c_size_t),
                ("role", ctypes.c_int * OPERATIONS), ("need", ctypes.c_int * OPERATIONS), ("axes", ctypes.c_int * 4),
                ("types", ctypes.c_uint), ("gradient_of", ctypes.c_int), ("may_alias", ctypes.c_int), ("since", ctypes.c_int)]


class Input(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("dtype", ctypes.c_int), ("stride", ctypes.c_int64 * 4)]


def check_library(path, slots):
    library = ctypes.CDLL(path)
    fields = [("struct_size", ctypes.c_size_t), ("call", ctypes.c_void_p)] + [(name, Input) for _, name in slots]
    tensors = type("Tensors", (ctypes.Structure,), {"_fields_": fields})
    for index, (kind, name) in enumerate(slots):
        row = Description(struct_size=ctypes.sizeof(Description))
        status = library.attn_tensor_describe(0, index, ctypes.byref(row), None)
        assert status == 0, f"tensor {index}: status {status}"
        assert row.name.decode() == name, f"tensor {index} is {row.name.decode()}, but {name} in the header"
        assert row.offset == getattr(tensors, name).offset == FIRST + SLOT * index, f"{name} is at {row.offset}"
        assert kind == "attn_output" or 2 not in list(row.role), f"{name} is const and an output"
    row = Description(struct_size=ctypes.sizeof(Description))
    assert library.attn_tensor_describe(0, len(slots), ctypes.byref(row), None) == 1, "the library has more tensors than the header"


def main():
    slots = header_slots("include/attn/attn.h", "attn_tensors")
    assert len(slots) > 60 and len(set(slots)) == len(slots)
    assert slots == source_slots("src/core/base/slots.def"), "slots.def does not match the struct of attn.h"
    for path in sys.argv[1:]:
        check_library(path, slots)
    print(f"{len(slots)} tensors: the header, slots.def and {len(sys.argv) - 1} libraries agree")


if __name__ == "__main__":
    main()
