#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The binary interface of all public headers, as text: functions, constants, and the offset of each field of each struct.

Usage: tools/abi.py CC FILE            compares the interface of include/attn, compiled by CC, with FILE
       tools/abi.py CC FILE --write    writes FILE (script/abi)

Declarations are read from the preprocessed headers; sizes, offsets and values are printed by a program that CC compiles.  They are
those of machines with 64-bit pointers; on others there is nothing to compare.
"""
import difflib
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).parent.parent
INCLUDE = ROOT / "include"


def declarations(cc, header):
    """The text of each declaration in the header itself, not in the headers that it includes."""
    run = subprocess.run([cc, "-std=c11", "-E", f"-I{INCLUDE}", str(header)], capture_output=True, text=True, check=True)
    here, lines = False, []
    for line in run.stdout.splitlines():
        marker = re.match(r'# \d+ "(.*?)"', line)
        if marker:
            here = pathlib.Path(marker[1]) == header
        elif here:
            lines.append(line)
    text = re.sub(r"\s+", " ", " ".join(lines))
    text = re.sub(r"__attribute__ ?\(\((?:[^()]|\([^()]*\))*\)\)", "", text)
    depth, start = 0, 0
    for i, c in enumerate(text):
        depth += (c in "({") - (c in ")}")
        # The body of an inline function ends a declaration, that of a struct does not.
        body = c == "}" and depth == 0 and re.match(r"(?:static |inline |extern )*(?!typedef|struct|union|enum)\w.*?\)\s*\{", text[start:].strip())
        if (c == ";" and depth == 0) or body:
            yield text[start:i].strip()
            start = i + 1


def split(text, separator):
    """The parts of the text between separators outside brackets."""
    parts, depth, start = [], 0, 0
    for i, c in enumerate(text):
        depth += (c in "({[") - (c in ")}]")
        if c == separator and depth == 0:
            parts.append(text[start:i].strip())
            start = i + 1
    return [part for part in [*parts, text[start:].strip()] if part]


def declared(text):
    """`type name`, `type (*name)(...)` or `type name[n]` as the name and the declaration without it."""
    found = re.search(r"\(\s*\*\s*(?:const )?(\w+)", text) or re.search(r"(\w+)\s*((?:\[[^\]]*\]\s*)*)$", text)
    name, rest = found[1], text[: found.start(1)] + text[found.end(1) :]
    return name, tidy(rest)


def tidy(text):
    return re.sub(r"\s*([*,()\[\]])\s*", r"\1", re.sub(r"\s+", " ", text)).strip().replace("*", " *").replace("* *", "**").replace("( *", "(*").replace(",", ", ")


def fields(body, prefix=""):
    """The fields of a struct: their paths and types; those of a struct or union within it by their own names."""
    for field in split(body, ";"):
        nested = re.fullmatch(r"(?:struct|union)\s*\w*\s*\{(.*)\}\s*(\w*)(\[.*\])?", field)
        if nested:
            name = f"{prefix}{nested[2]}."
            yield from fields(nested[1], name if nested[2] and not nested[3] else prefix)
            continue
        first, *others = split(field, ",")
        name, kind = declared(first)
        yield prefix + name, kind
        for other in others:  # int64_t a, b[4]
            name, rest = declared(other)
            yield prefix + name, tidy(re.sub(r"[*\[].*", "", kind) + rest)


def parameters(text):
    """The parameter types of a function, without the names."""
    for parameter in split(text, ","):
        words = re.sub(r"\b(const|struct|enum|unsigned|long)\b", "", parameter)
        named = parameter.endswith("]") or "(" in parameter or len(re.findall(r"\w+", words)) > 1
        yield re.sub(r"\[\w*\]$", " *", declared(parameter)[1]) if named else tidy(parameter)


def say(text, *values):
    """A line of the program that prints the text, with a number for each %."""
    return '    printf("' + text.replace("%", "%lld") + '\\n"' + "".join(f", (long long)({value})" for value in values) + ");"


def program(cc, headers):
    """A C program that prints the interface."""
    out = []
    for header in headers:
        out.append(say(f"\\n[attn/{header.name}]"))
        for name, value in re.findall(r"^#define (ATTN_\w+)[ \t]+(?!__)([^\s\\].*?)(?:[ \t]*/\*.*)?$", header.read_text(encoding="utf-8"), flags=re.M):
            if not name.startswith("ATTN_VERSION") and name != "ATTN_API":
                out.append(say(f"macro {name} " + value.replace('"', "'").replace("%", "%%")))
        for text in declarations(cc, header):
            enum = re.fullmatch(r"typedef enum\s*\w*\s*\{(.*)\}\s*(\w+)", text)
            struct = re.fullmatch(r"typedef (?:struct|union)\s*\w*\s*\{(.*)\}\s*(\w+)", text)
            function = re.fullmatch(r"((?!typedef).*?)\b(\w+)\s*\(((?:[^()]|\([^()]*\))*)\)(?:\s*\{.*)?", text)
            if enum:
                out.append(say(f"enum {enum[2]}: % bytes", f"sizeof({enum[2]})"))
                for name in re.findall(r"(\w+)\s*(?:=[^,]*)?(?:,|$)", enum[1].strip()):
                    out.append(say(f"    {name} = %", name))
            elif struct:
                out.append(say(f"struct {struct[2]}: % bytes", f"sizeof({struct[2]})"))
                for name, kind in fields(struct[1]):
                    out.append(say(f"    %: {name}, {kind}, % bytes", f"offsetof({struct[2]}, {name})", f"sizeof((({struct[2]} *)0)->{name})"))
            elif function:
                out.append(say(f"{tidy(function[1])} {function[2]}({', '.join(parameters(function[3]))})"))
            else:
                out.append(say(tidy(text)))
    includes = "".join(f"#include <attn/{header.name}>\n" for header in headers)
    return f"#include <stdio.h>\n{includes}int main(void)\n{{\n" + "\n".join(out) + "\n    return 0;\n}\n"


def interface(cc):
    headers = sorted(path for path in (INCLUDE / "attn").glob("*.h") if path.name != "mpi.h")  # which is in no library
    with tempfile.TemporaryDirectory() as folder:
        source, binary = pathlib.Path(folder) / "abi.c", pathlib.Path(folder) / "abi"
        source.write_text(program(cc, headers), encoding="utf-8")
        subprocess.run([cc, "-std=c11", f"-I{INCLUDE}", str(source), "-o", str(binary)], check=True)
        return subprocess.run([str(binary)], capture_output=True, text=True, check=True).stdout.lstrip()


def main():
    if len(sys.argv) not in (3, 4) or (len(sys.argv) == 4 and sys.argv[3] != "--write"):
        print(__doc__, file=sys.stderr)
        return 2
    if sys.maxsize < 2**63 - 1:
        print("skipped: pointers here do not have 64 bits")
        return 77
    file, now = pathlib.Path(sys.argv[2]), interface(sys.argv[1])
    if len(sys.argv) == 4:
        file.write_text(now, encoding="utf-8")
        return 0
    before = file.read_text(encoding="utf-8")
    changes = list(difflib.unified_diff(before.splitlines(), now.splitlines(), "as written down", "as it is", lineterm="", n=2))
    print("\n".join([*changes, "", "the interface has changed; if this is intended, script/abi records it"]) if changes else "as written down")
    return 1 if changes else 0


if __name__ == "__main__":
    sys.exit(main())
