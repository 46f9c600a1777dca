#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Public names and signatures follow docs/conventions.md.

Names: a constant is its enum's name and a word; a function ..._count fills a struct ..._counts.
Signatures: a function that can fail returns a status and its last argument is an error; only one that cannot fail returns void; the
order of arguments is subject, numbers, inputs, outputs, options, error; a gradient follows its tensor; one tensor is one slot; only
attn_pattern_... return a struct by value, and no argument is one.
Comments: each function has one above it, or shares that of the function above it.  Macros of the headers begin with ATTN_.

Usage: names.py ABI HEADERS...        (tests/install/abi.txt include/attn/*.h)
"""
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools/docs"))
import headers as reader

OWN = {"attn_op", "attn_status", "attn_dtype"}  # these have their own naming rules, in docs/conventions.md
BLOCKS = {"attn_convert", "attn_archive_add", "attn_archive_allocate"}  # numbers in an array of any rank: not a slot
CANNOT_FAIL = {"attn_unfinished_remove"}  # besides ..._destroy: called in signal handlers
PLAIN = {  # arrays that are not tensors of a call, or go with arrays of double, which have no slots either
    "attn_pattern_documents", "attn_pattern_block_map",  # a value that borrows them
    "attn_softmax", "attn_log_softmax",
}
SHARED = {  # described in the comment of the function above
    "attn_out", "attn_index_raise", "attn_hopfield_modern_capacity", "attn_file_write_watched",
    "attn_latent_store", "attn_seq2seq_step", "attn_seq2seq_store",
}


def constants(text):
    for name, body in re.findall(r"^enum (\w+): .*\n((?:    .*\n)*)", text, re.M):
        prefix = re.sub(r"_kind$", "", name).upper() + "_"
        values = [line.split()[0] for line in body.splitlines()]
        assert values, f"{name} has no values"
        yield name, prefix, values


def functions(text):
    return [(kind.strip(), name, args.split(", ")) for kind, name, args in re.findall(r"^(\w[\w \*]*?)(\w+)\((.*)\)$", text, re.M)
            if not kind.startswith("typedef")]


def declared(text):
    """Name and arguments, with their names, of each function of a header."""
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    for name, args in re.findall(r"^ATTN_API [^;(]*?(\w+)\(([^;]*)\);", text, re.M):
        yield name, [" ".join(arg.split()) for arg in args.split(",")]


ORDER = ["a number", "an input", "an output", "options", "an error"]


def place(arg):
    """The index in ORDER of an argument that is not the subject."""
    if "*" not in arg:
        return 0
    if arg in ("const attn_options *", "const attn_schedule_options *", "attn_error *"):
        return 3 if arg.startswith("const") else 4
    return 1 if arg.startswith("const ") and arg != "const attn_output *" else 2


def order(name, args):
    """The arguments that are out of order."""
    subject = re.fullmatch(r"(const )?attn_\w+ \*+", args[0]) and place(args[0]) != 4
    highest = 0
    for i in range(1 if subject else 0, len(args)):
        arg, before = args[i], args[i - 1] if i else ""
        if arg == "const char *" or (arg in ("size_t", "attn_dtype") and re.fullmatch(r"(const )?void \*", before)):
            continue  # a string; or the size or type of the memory argument before it
        if place(arg) < highest:
            yield f"{name}: {ORDER[place(arg)]} ({arg}, argument {i + 1}) comes after {ORDER[highest]}"
        highest = max(highest, place(arg))


def signatures(calls):
    for kind, name, args in calls:
        if (kind == "attn_status") != (args[-1] == "attn_error *"):
            yield f"{name} returns {kind} and its last argument is {args[-1]}"
        if name not in BLOCKS and "attn_dtype" in args and any(re.fullmatch(r"(const )?void \*+", arg) for arg in args):
            yield f"{name} takes a type and a pointer; a slot has both"
        if kind == "void" and not name.endswith("_destroy") and name not in CANNOT_FAIL and any("*" in arg for arg in args):
            yield f"{name} returns void but takes a pointer, which may be NULL"
        if not kind.startswith("static inline"):
            yield from order(name, args)


def arguments(name, args):
    names = [re.search(r"(\w+)(\[\d*\])?$", arg).group(1) for arg in args]
    for i, grad in enumerate(names):
        of = grad[len("grad_"):]
        if grad.startswith("grad_") and of in names and names.index(of) > i:
            yield f"{name}: {grad} comes before {of}"
    numbers = [arg for arg in args if re.match(r"(const )?(float|double|unsigned char|u?int\d+_t|short|char16_t) \*", arg)
               and arg != "const int64_t *shape"]
    slots = [arg for arg in args if re.search(r"attn_(in|out)put \*", arg)]
    for arg in numbers:
        if slots or (name not in PLAIN and "double" not in arg):
            yield f"{name}: {arg} is an array without a type and strides; one tensor is one slot"


def comments(file, text):
    """The functions of a header without a comment, and macros that are anybody's."""
    last = True  # whether the declaration above has a comment
    for kind, name, _, comment in reader.declarations(text):
        if kind == "func" and bool(comment) == (name in SHARED):
            yield (f"{file}: {name} has a comment of its own: take it out of SHARED in tests/interface/names.py" if comment
                   else f"{file}: {name} has no comment above it; say what it computes, its arguments and every error")
        elif kind == "func" and not comment and not last:
            yield f"{file}: {name} shares the comment of the function above, which has none"
        last = kind == "func" and bool(comment or (name in SHARED and last))
    for name in re.findall(r"^# *define (?!ATTN_)(\w+)", text, re.M):
        yield f"{file}: the macro {name} does not begin with ATTN_, and may be a name of the program that includes this"


def main():
    text = pathlib.Path(sys.argv[1]).read_text(encoding="utf-8")
    enums, calls = list(constants(text)), functions(text)
    headers = [one for path in sys.argv[2:] for one in declared(pathlib.Path(path).read_text(encoding="utf-8"))]
    assert len(enums) > 20 and len(calls) > 100, f"{len(enums)} enums, {len(calls)} functions"
    public = {name for kind, name, _ in calls if not kind.startswith("static inline")}
    if {name for name, _ in headers} != public:
        print(f"only in the headers or only in {sys.argv[1]}, which script/abi writes: {', '.join(sorted({name for name, _ in headers} ^ public))}")
        return 1
    wrong = [f"{value} of {name} does not begin with {prefix}" for name, prefix, values in enums if name not in OWN
             for value in values if not value.startswith(prefix)]
    wrong += signatures(calls)
    wrong += [line for name, args in headers for line in arguments(name, args)]
    wrong += [line for path in sys.argv[2:] for line in comments(path, pathlib.Path(path).read_text(encoding="utf-8"))]
    wrong += [f"{name} does not fill a {name}s" for kind, name, args in calls
              if kind == "attn_status" and name.endswith("_count") and not re.search(r"^attn_\w*counts \*$", args[-2])]
    wrong += [f"{name} is a struct, but there is no function {name[:-1]}" for name in re.findall(r"^struct (attn_\w+_counts): ", text, re.M)
              if name[:-1] not in public]
    structs = set(re.findall(r"^struct (\w+): ", text, re.M))
    wrong += [f"{name}: {kind} by value, which not every language can pass or receive" for result, name, args in calls
              for kind in (result, *args) if kind in structs and not (kind == "attn_pattern" and kind == result)]
    print("\n".join(wrong) or f"{len(enums)} enums, {len(calls)} functions")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
