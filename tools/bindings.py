#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes the interface of libattn (the core, not layers and files) for Rust or Go.

Usage: tools/bindings.py rust OUT.rs
       tools/bindings.py go OUT.go          (whose folder is the package)

Everything comes from tests/install/abi.txt, which a test compares with the headers.  Names in Rust are those of C, and `default()` of
a struct sets its struct_size; in Go attn_plan_create is PlanCreate and ATTN_ALIGN_BOTTOM_RIGHT AlignBottomRight
(types whose name a constant or function has end with Type, functions with Call).
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "python"))
from make_abi import LIBRARIES, Interface, split  # noqa: E402

RUST = {
    "int": "c_int", "int32_t": "i32", "unsigned": "c_uint", "int64_t": "i64", "uint64_t": "u64", "uint32_t": "u32", "size_t": "usize", "double": "f64",
    "char": "c_char", "unsigned char": "u8", "signed char": "i8", "void": "c_void", "float": "f32",
}
GO = {
    "int": ("int32", "C.int"), "int32_t": ("int32", "C.int32_t"), "unsigned": ("uint32", "C.uint"), "int64_t": ("int64", "C.int64_t"), "uint64_t": ("uint64", "C.uint64_t"),
    "uint32_t": ("uint32", "C.uint32_t"), "size_t": ("uint64", "C.size_t"), "double": ("float64", "C.double"), "char": ("byte", "C.char"),
    "unsigned char": ("byte", "C.uchar"), "float": ("float32", "C.float"),
}
KEYWORDS = {"type", "match", "move", "ref", "in", "fn", "mod", "use", "range", "func", "map", "len", "cap", "var", "chan", "select", "go"}


def core(text):
    """The sections of abi.txt that belong to libattn itself."""
    sections = re.split(r"^(?=\[attn/)", text, flags=re.M)
    return "".join(s for s in sections if not (found := re.match(r"\[attn/(.*)\]", s)) or found[1] not in [*LIBRARIES, "mpi.h"])


def parsed(text):
    """(is const, base, stars, length) of a C type that is no pointer to a function."""
    const = text.strip().startswith("const")
    text = re.sub(r"\b(const|struct)\b", "", text)
    found = re.fullmatch(r"\s*([\w ]+?)\s*((?:\*\s*)*)(?:\[(\w+)\])?\s*", text)
    if not found:
        raise SystemExit(f"bindings.py: what type is this? {text}")
    return const, found[1], found[2].count("*"), found[3]


def pointed_function(text):
    """(result, parameters) of a pointer to a function."""
    found = re.fullmatch(r"([\w *]+?)\s*\(\s*\*\s*\w*\s*\)\s*\((.*)\)", text)
    return (found[1], [unnamed(one) for one in split(found[2])]) if found else None


def unnamed(text):
    """The type of a parameter that may have a name."""
    if "(" in text:
        return text
    found = re.fullmatch(r"((?:const )?(?:struct )?(?:unsigned |signed )?\w+(?: const)?[ *]*?)\s*(\w+)?", text)
    return found[1] if found and (found[2] or "*" in found[1]) else text


class Rust:
    def __init__(self, interface):
        self.i = interface

    def function(self, result, parameters):
        gives = "" if result.strip() == "void" else f" -> {self.kind(result)}"
        return f"Option<unsafe extern \"C\" fn({', '.join(self.kind(one) for one in parameters)}){gives}>"

    def kind(self, text):
        if found := pointed_function(text):
            return self.function(*found)
        const, base, stars, length = parsed(text)
        if base in self.i.callbacks and stars == 1:
            result, parameters = self.i.callbacks[base]
            return self.function({"None": "void", "c_int": "int"}[result], [unnamed(one) for one in split(parameters)])
        plain = RUST.get(base, base)
        for level in range(stars):
            plain = f"*{'const' if const and level == 0 else 'mut'} {plain}"
        return f"[{plain}; {self.i.constants.get(length, length)}]" if length else plain

    def source(self):
        i = self.i
        yield "// SPDX-License-Identifier: MIT"
        yield "// Made by tools/bindings.py from the headers of libattn, whose comments are the manual.  Link with -l attn."
        yield "#![allow(dead_code, non_camel_case_types, non_upper_case_globals)]"
        yield "use std::os::raw::{c_char, c_int, c_uint, c_void};"
        for name, values in i.enums.items():
            yield f"\npub type {name} = c_int;"
            yield from (f"pub const {key}: {name} = {value};" for key, value in values.items())
        yield ""
        yield from (f"pub const {key}: i64 = {value};" for key, value in i.constants.items() if isinstance(value, int))
        for name in sorted(i.opaque):
            yield f"\n#[repr(C)]\npub struct {name} {{\n    _private: [u8; 0],\n}}"
        for name, (size, fields) in i.structs.items():
            yield f"\n#[repr(C)]\n#[derive(Clone, Copy)]\npub struct {name} {{"
            yield from (f"    pub {'r#' if field in KEYWORDS else ''}{field}: {self.kind(kind)}," for _, field, kind, _ in fields)
            yield "}"
            yield f"const _: () = assert!(std::mem::size_of::<{name}>() == {size});"
            yield f"impl Default for {name} {{\n    fn default() -> Self {{"
            if fields[0][1] == "struct_size":
                yield f"        Self {{ struct_size: {size}, ..unsafe {{ std::mem::zeroed() }} }}"
            else:
                yield "        unsafe { std::mem::zeroed() }"
            yield "    }\n}"
        yield '\nextern "C" {'
        for name, (result, parameters, _) in i.functions.items():
            gives = "" if result == "void" else f" -> {self.kind(result)}"
            yield f"    pub fn {name}({', '.join(f'p{n}: {self.kind(one)}' for n, one in enumerate(parameters))}){gives};"
        yield "}"
        yield "\n/// A dense tensor of the default type."
        yield "pub fn attn_in<T>(data: &[T]) -> attn_input {\n    attn_input { data: data.as_ptr() as *const c_void, ..Default::default() }\n}"
        yield "pub fn attn_out<T>(data: &mut [T]) -> attn_output {\n    attn_output { data: data.as_mut_ptr() as *mut c_void, ..Default::default() }\n}"


def camel(name):
    words = re.sub(r"^attn_", "", name, flags=re.I).split("_")
    return "".join(w[:1].upper() + w[1:].lower() for w in words)


class Go:
    def __init__(self, interface):
        self.i = interface
        self.constants = {camel(key) for key in interface.constants} | {camel(key) for values in interface.enums.values() for key in values}
        self.functions = {camel(name) for name in interface.functions}

    def name(self, c):
        """A name in Go that nothing else has: constants keep theirs."""
        name = camel(c)
        if c in self.i.functions:
            return name + "Call" if name in self.constants else name
        return name + "Type" if name in self.constants | self.functions else name

    def kind(self, text):
        """The type in Go, and in C if its values are converted."""
        if pointed_function(text):
            return "unsafe.Pointer", None
        _, base, stars, length = parsed(text)
        if base in self.i.callbacks or (stars and base == "void"):
            plain = ("*" * (stars - 1) + "unsafe.Pointer", None)
        elif base in self.i.enums:
            plain = ("*" * stars + self.name(base), "*" * stars + f"C.{base}")
        elif base in self.i.structs or base in self.i.opaque:
            plain = ("*" * stars + self.name(base), "*" * stars + f"C.{base}")
        else:
            plain = tuple("*" * stars + one for one in GO[base])
        return (f"[{self.i.constants.get(length, length)}]{plain[0]}", None) if length else plain

    def field(self, struct, name, kind):
        """The type of a field.  The data of a slot may be Empty, Later or Missing, which Go does not allow of a pointer."""
        return "uintptr" if (struct, name) in (("attn_input", "data"), ("attn_output", "data")) else self.kind(kind)[0]

    def source(self):
        i = self.i
        headers = sorted(set(re.findall(r"\[attn/(.*)\]", self.text)))
        yield "// SPDX-License-Identifier: MIT"
        yield "// Made by tools/bindings.py from the headers of libattn, whose comments are the manual."
        yield "//"
        yield "// Memory that structs point to must be C's (Alloc), by the rules of cgo; a struct itself may be Go's, unless another points to it."
        yield "// The data of an Input or Output is a uintptr: uintptr(Alloc(n)), or Empty, Later or Missing."
        yield "package attn\n\n/*\n#cgo LDFLAGS: -lattn\n#include <stdlib.h>"
        yield from (f"#include <attn/{header}>" for header in headers)
        yield '*/\nimport "C"\nimport "unsafe"\n'
        yield "// Alloc returns zeroed memory, which Free frees."
        yield "func Alloc(bytes uint64) unsafe.Pointer { return C.calloc(1, C.size_t(bytes)) }"
        yield "func Free(memory unsafe.Pointer)         { C.free(memory) }\n"
        for name, values in i.enums.items():
            yield f"type {self.name(name)} int32\n\nconst ("
            yield from (f"\t{camel(key)} {self.name(name)} = {value}" for key, value in values.items())
            yield ")\n"
        yield from (f"const {camel(key)} = {value}" for key, value in i.constants.items() if isinstance(value, int))
        for name in sorted(i.opaque):
            yield f"\ntype {self.name(name)} struct{{ _ [0]byte }}"
        for name, (size, fields) in i.structs.items():
            yield f"\ntype {self.name(name)} struct {{"
            yield from (f"\t{camel(field)} {self.field(name, field, kind)}" for _, field, kind, _ in fields)
            if size > (end := fields[-1][0] + fields[-1][3]):
                yield f"\t_ [{size - end}]byte"
            yield f"}}\n\nvar _ = [1]byte{{}}[unsafe.Sizeof({self.name(name)}{{}})-{size}]"
        for name, (result, parameters, _) in i.functions.items():
            kinds = [self.kind(one) for one in parameters]
            declared = ", ".join(f"p{n} {go}" for n, (go, _) in enumerate(kinds))
            passed = ", ".join(self.passed(f"p{n}", go, c) for n, (go, c) in enumerate(kinds))
            called = f"C.{name}({passed})"
            gives = "" if result == "void" else self.kind(result)[0]
            if not gives:
                body = called
            elif parsed(result)[1:3] == ("char", 1):
                gives, body = "string", f"return C.GoString({called})"
            elif parsed(result)[1] in i.structs and "*" not in gives:
                body = f"result := {called}; return *(*{gives})(unsafe.Pointer(&result))"
            else:
                body = f"return ({gives})(unsafe.Pointer({called}))" if "*" in gives else f"return {gives}({called})"
            yield f"\nfunc {self.name(name)}({declared}) {gives} {{ {body} }}"

    def passed(self, name, go, c):
        """A parameter of a call of C."""
        if c is None:
            return name
        if go.startswith("*"):
            return f"({c})(unsafe.Pointer({name}))"
        return f"*(*{c})(unsafe.Pointer(&{name}))" if c.removeprefix("C.") in self.i.structs else f"{c}({name})"


def main():
    if len(sys.argv) != 3 or sys.argv[1] not in ("rust", "go"):
        raise SystemExit(__doc__)
    text = core((ROOT / "tests/install/abi.txt").read_text(encoding="utf-8"))
    writer = {"rust": Rust, "go": Go}[sys.argv[1]](Interface(text))
    writer.text = text
    out = pathlib.Path(sys.argv[2])
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text("\n".join(writer.source()) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
