# SPDX-License-Identifier: MIT
"""Writes .gguf files with the standard library only, for the Python tests (src/io/gguf.h has the format)."""
import struct

TYPES = {"F32": 0, "F16": 1, "Q4_1": 3, "Q8_0": 8}


def text(string):
    raw = string.encode()
    return struct.pack("<Q", len(raw)) + raw


def value(item):
    """The type and bytes of a metadata value; a list has items of one type."""
    if isinstance(item, str):
        return 8, text(item)
    if isinstance(item, bool):
        return 7, struct.pack("<?", item)
    if isinstance(item, int):
        return 4, struct.pack("<I", item)
    if isinstance(item, float):
        return 6, struct.pack("<f", item)
    parts = [value(one) for one in item]
    return 9, struct.pack("<IQ", parts[0][0] if parts else 4, len(parts)) + b"".join(raw for _, raw in parts)


def pack(kind, numbers):
    """The bytes of numbers, and the numbers that a reader gets."""
    if kind == "F32":
        raw = struct.pack(f"<{len(numbers)}f", *numbers)
        return raw, list(struct.unpack(f"<{len(numbers)}f", raw))
    if kind == "F16":
        raw = struct.pack(f"<{len(numbers)}e", *numbers)
        return raw, list(struct.unpack(f"<{len(numbers)}e", raw))
    raw, read = b"", []
    for begin in range(0, len(numbers), 32):
        block = numbers[begin:begin + 32]
        least = min(block) if kind == "Q4_1" else 0.0
        step = (max(block) - least) / 15 if kind == "Q4_1" else max(map(abs, block)) / 127
        step, least = struct.unpack("<2e", struct.pack("<2e", step or 1.0, least))
        if kind == "Q4_1":
            digits = [min(15, max(0, round((x - least) / step))) for x in block]
            raw += struct.pack("<2e", step, least) + bytes(digits[i] | digits[i + 16] << 4 for i in range(16))
        else:
            digits = [min(127, max(-127, round(x / step))) for x in block]
            raw += struct.pack("<e32b", step, *digits)
        read += [step * digit + least for digit in digits]
    return raw, read


def write(path, tensors, metadata):
    """tensors: {name: (type, shape with the contiguous axis last, numbers)}.  Returns {name: the numbers that a reader gets}."""
    header, data, read = struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(metadata)), b"", {}
    for key, item in metadata.items():
        kind, raw = value(item)
        header += text(key) + struct.pack("<I", kind) + raw
    for name, (kind, shape, numbers) in tensors.items():
        raw, read[name] = pack(kind, numbers)
        header += text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *reversed(shape), TYPES[kind], len(data))
        data += raw + bytes(-len(raw) % 32)
    with open(path, "wb") as file:
        file.write(header + bytes(-len(header) % 32) + data)
    return read
