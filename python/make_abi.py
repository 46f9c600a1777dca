#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes libattn/_abi.py: every struct, constant and function of the public headers, for ctypes.

Usage: make_abi.py ABI OUT     (ABI: tests/install/abi.txt, which a test compares with the headers)

Nothing is declared by hand, so nothing of the headers can be missing or differ.  The offsets that ctypes computes are compared with
those of the compiler here, when the file is made.
"""
import ctypes
import pathlib
import re
import sys

INTEGERS = {
    "int": "c_int", "unsigned": "c_uint", "int64_t": "c_int64", "uint64_t": "c_uint64", "uint32_t": "c_uint32", "size_t": "c_size_t",
    "double": "c_double", "char": "c_char", "void": "None",
}
LIBRARIES = {"io.h": "attn_io", "layers.h": "attn_layers", "latent.h": "attn_layers", "seq2seq.h": "attn_layers"}


def split(text):
    """The parts between commas outside brackets."""
    parts, depth, start = [], 0, 0
    for i, c in enumerate(text):
        depth += (c in "([") - (c in ")]")
        if c == "," and depth == 0:
            parts.append(text[start:i].strip())
            start = i + 1
    return [part for part in [*parts, text[start:].strip()] if part and part != "void"]


class Interface:
    def __init__(self, text):
        self.enums, self.constants, self.structs, self.callbacks, self.functions, self.opaque = {}, {}, {}, {}, {}, set()
        header = current = None
        for line in text.splitlines():
            if found := re.fullmatch(r"\[attn/(.*)\]", line):
                header = found[1]
            elif found := re.fullmatch(r"enum (\w+): 4 bytes", line):
                current = self.enums.setdefault(found[1], {})
            elif found := re.fullmatch(r"    (\w+) = (-?\d+)", line):
                current[found[1]] = int(found[2])
            elif found := re.fullmatch(r"struct (\w+): (\d+) bytes", line):
                current = []
                self.structs[found[1]] = (int(found[2]), current)
            elif found := re.fullmatch(r"    (\d+): (\w+), (.*), (\d+) bytes", line):
                current.append((int(found[1]), found[2], found[3], int(found[4])))
            elif found := re.fullmatch(r"typedef (void|int) (\w+)\((.*)\)", line):
                self.callbacks[found[2]] = ({"void": "None", "int": "c_int"}[found[1]], found[3])
            elif found := re.fullmatch(r"typedef struct (\w+) \1", line):
                self.opaque.add(found[1])
            elif found := re.fullmatch(r"enum \{ (\w+) = (\d+) \}", line):
                self.constants[found[1]] = int(found[2])
            elif found := re.fullmatch(r"macro (\w+) (.*)", line):
                self.constants[found[1]] = self.macro(found[1], found[2])
            elif line.startswith("static inline ") or not line:
                pass
            elif found := re.fullmatch(r"((?:const )?\w+(?: \*+)?) (\w+)\((.*)\)", line):
                self.functions[found[2]] = (found[1], split(found[3]), LIBRARIES.get(header, "attn"))
            else:
                raise SystemExit(f"make_abi.py: what is this? {line}")

    @staticmethod
    def macro(name, value):
        if value == "INT64_MIN":
            return -(2**63)
        if found := re.fullmatch(r"\(\(void \*\)(\d+)\)", value):
            return int(found[1])
        if value.startswith("'"):
            return value[1:-1]
        try:
            return int(value.strip("()"), 0)
        except ValueError:
            raise SystemExit(f"make_abi.py: the value of the macro {name} is not understood: {value}") from None

    def kind(self, text):
        """The ctypes type, as source, of a C type."""
        text = re.sub(r"\*\s+(?=\*)", "*", re.sub(r"\bconst\b", "", text)).strip()
        text = re.sub(r"\bstruct\b", "", text).strip()
        text = re.sub(r"\b(un)?signed char\b", "byte", text)  # not text: memory where there is a pointer to it
        if found := re.fullmatch(r"([\w *]+?)\s*\[(\w+)\]", text):
            return f"{self.kind(found[1])} * {self.constants.get(found[2], found[2])}"
        if found := re.fullmatch(r"([\w *]+)\(\*\w*\)\((.*)\)", text):  # a pointer to a function
            return f"CFUNCTYPE({', '.join([self.kind(found[1]), *self.named(found[2])])})"
        found = re.fullmatch(r"(\w+)\s*(\**)", text)
        if not found:
            raise SystemExit(f"make_abi.py: what type is this? {text}")
        base, stars = found.groups()
        if stars and base in self.callbacks:
            return base
        if stars == "*" and base == "char":
            return "c_char_p"
        if stars == "*" and base not in self.structs:
            return "c_void_p"  # memory, or an opaque object
        if stars == "**":
            return f"POINTER({self.kind(base + ' *')})"
        plain = INTEGERS.get(base) or ("c_int" if base in self.enums else base)
        return f"POINTER({plain})" if stars else plain

    def named(self, text):
        """The types of parameters that have names."""
        for one in split(text):
            yield self.kind(one if "(" in one else re.sub(r"\w+$", "", one))

    def source(self):
        yield '# SPDX-License-Identifier: MIT'
        yield '# Made by make_abi.py from the public headers.'
        yield '"""The binary interface of libattn: constants, structs and functions under the names of its headers."""'
        yield "from ctypes import CFUNCTYPE, POINTER, Structure, c_char, c_char_p, c_double, c_int, c_int64, c_size_t, c_uint, c_uint32, c_uint64, c_void_p"
        yield ""
        for name, values in self.enums.items():
            yield f"# {name}"
            yield from (f"{key} = {value}" for key, value in values.items())
        yield from (f"{key} = {value!r}" for key, value in self.constants.items())
        yield ""
        done = set()
        callbacks = dict(self.callbacks)

        def declared(names):
            for name in names:
                if name in done:
                    continue
                done.add(name)
                if name in callbacks:
                    result, body = callbacks[name]
                    yield from declared([word for word in re.findall(r"\w+", body) if word in self.structs])
                    yield f"{name} = CFUNCTYPE({', '.join([result, *self.named(body)])})"
                else:
                    size, fields = self.structs[name]
                    uses = [word for field in fields for word in re.findall(r"\w+", field[2])]
                    yield from declared([word for word in uses if (word in self.structs or word in callbacks) and word != name])
                    yield f"class {name}(Structure):"
                    yield "    _fields_ = ["
                    yield from (f'        ("{field}", {self.kind(kind)}),' for _, field, kind, _ in fields)
                    yield "    ]"
                    yield ""

        yield from declared([*self.structs, *callbacks])
        yield ""
        yield "# Of each enum, the names of its values, without ATTN_."
        yield f"ENUMS = {self.enums!r}"
        yield "# Of each function: its library, its result, its parameters."
        yield "FUNCTIONS = {"
        for name, (result, parameters, library) in self.functions.items():
            arguments = ", ".join(self.kind(one) for one in parameters)
            yield f'    "{name}": ("{library}", {self.kind(result)}, [{arguments}]),'
        yield "}"
        yield "# The functions that return an attn_status."
        yield f"CHECKED = {sorted(name for name, (result, _, _) in self.functions.items() if result == 'attn_status')!r}"

    def check(self, source):
        """ctypes has the offsets and sizes of the compiler."""
        space = {}
        exec(source, space)  # the text made above
        for name, (size, fields) in self.structs.items():
            kind = space[name]
            if ctypes.sizeof(kind) != size:
                raise SystemExit(f"make_abi.py: {name} has {ctypes.sizeof(kind)} bytes, in C {size}")
            for offset, field, _, width in fields:
                here = getattr(kind, field)
                if (here.offset, here.size) != (offset, width):
                    raise SystemExit(f"make_abi.py: {name}.{field} is at {here.offset} ({here.size} bytes), in C at {offset} ({width})")


def main():
    if len(sys.argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    interface = Interface(pathlib.Path(sys.argv[1]).read_text(encoding="utf-8"))
    source = "\n".join(interface.source()) + "\n"
    interface.check(source)
    pathlib.Path(sys.argv[2]).write_text(source, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
