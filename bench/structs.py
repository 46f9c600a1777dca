# SPDX-License-Identifier: MIT
"""libattn from Python, with ctypes: the structs are read from attn.h, so that they are declared only once.

    attn = structs.Library("build/release/lib/libattn.so", "include/attn/attn.h")
    problem = attn.new("attn_problem"); problem.shape.batch = 1; ...
    tensors = attn.new("attn_tensors"); tensors.q.data = ...
    plan = attn.plan(problem, tensors, threads=2); plan.run(tensors)
"""
import ctypes
import pathlib
import re


class LibraryError(Exception):
    """The message of an attn_error."""


WORDS = {
    "int": ctypes.c_int,
    "unsigned": ctypes.c_uint,
    "size_t": ctypes.c_size_t,
    "int64_t": ctypes.c_int64,
    "uint64_t": ctypes.c_uint64,
    "uint32_t": ctypes.c_uint32,
    "double": ctypes.c_double,
    "char": ctypes.c_char,
}


def read_text(path, seen):
    """A header without comments, after those of our headers that it includes."""
    if path in seen:
        return ""
    seen.add(path)
    text = re.sub(r"/\*.*?\*/", "", path.read_text(encoding="utf-8"), flags=re.S)
    return "".join(read_text(path.parents[1] / name, seen) for name in re.findall(r'#include "(attn/\w+\.h)"', text)) + text


def read_header(path):
    """The types of a header by name, as ctypes types, and its enumerators by name."""
    text = read_text(pathlib.Path(path), set())
    types, values = dict(WORDS), {}
    for body, name in re.findall(r"typedef enum \w+ \{(.*?)\} (\w+);", text, flags=re.S):
        types[name] = ctypes.c_int
        values.update((key, int(value)) for key, value in re.findall(r"(\w+) = (-?\d+)", body))
    values.update((key, int(value)) for key, value in re.findall(r"enum \{ (\w+) = (\d+) \};", text))
    for body, name in re.findall(r"typedef struct \w+ \{(.*?)\} (\w+);", text, flags=re.S):
        fields = [field for line in body.split(";") if line.strip() for field in read_fields(line.strip(), types, values)]
        types[name] = type(name, (ctypes.Structure,), {"_fields_": fields})
    return types, values


def read_fields(line, types, values):
    """`type a, b[4]` or a pointer, to data or to a function, as pairs of name and type."""
    function = re.fullmatch(r".*\(\*(\w+)\)\(.*\)", line, flags=re.S)
    if function:
        return [(function.group(1), ctypes.c_void_p)]
    word, names = re.fullmatch(r"(?:const )?(?:struct )?(\w+)\s+(.*)", line, flags=re.S).groups()
    fields = []
    for name in names.split(","):
        pointer, plain, count = re.fullmatch(r"\s*(\*?)\s*(\w+)(?:\[(\w+)\])?\s*", name).groups()
        kind = ctypes.c_void_p if pointer else types[word]
        fields.append((plain, kind * (values[count] if count in values else int(count)) if count else kind))
    return fields


class Library:
    """The functions that a plan needs."""

    def __init__(self, library, header):
        self.types, self.values = read_header(header)
        self.calls = ctypes.CDLL(library)
        self.calls.attn_version.restype = ctypes.c_char_p
        self.calls.attn_plan_workspace_size.restype = ctypes.c_size_t
        self.calls.attn_plan_workspace_size.argtypes = [ctypes.c_void_p]
        self.calls.attn_plan_destroy.argtypes = [ctypes.c_void_p]
        self.calls.attn_execute.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_size_t, ctypes.c_void_p]
        self.calls.attn_schedule_size.restype = ctypes.c_size_t
        self.calls.attn_schedule_size.argtypes = [ctypes.c_void_p]
        self.calls.attn_schedule_make.argtypes = [ctypes.c_void_p] * 4 + [ctypes.c_size_t] + [ctypes.c_void_p] * 2
        self.calls.attn_schedule_workspace_size.restype = ctypes.c_size_t
        self.calls.attn_schedule_workspace_size.argtypes = [ctypes.c_void_p]
        self.version = self.calls.attn_version().decode()

    def new(self, name):
        """A zeroed struct with its struct_size set."""
        made = self.types[name]()
        if hasattr(made, "struct_size"):
            made.struct_size = ctypes.sizeof(made)
        return made

    def check(self, status, error):
        if status != self.values["ATTN_OK"]:
            raise LibraryError(error.message.decode())

    def plan(self, problem, tensors, threads):
        return Plan(self, problem, tensors, threads)


class Plan:
    """A plan with a workspace of its own."""

    def __init__(self, library, problem, tensors, threads):
        self.library, self.handle, self.error = library, ctypes.c_void_p(), library.new("attn_error")
        options = library.new("attn_options")
        options.threads = threads
        status = library.calls.attn_plan_create(
            ctypes.byref(self.handle),
            ctypes.byref(problem),
            ctypes.byref(tensors),
            ctypes.byref(options),
            ctypes.byref(self.error),
        )
        library.check(status, self.error)
        self.size = library.calls.attn_plan_workspace_size(self.handle)
        self.workspace = ctypes.create_string_buffer(max(1, self.size))

    def schedule(self, tensors):
        """Makes the schedule of these lengths, for all executions with these tensors; the header has to be attn/schedule.h."""
        size = self.library.calls.attn_schedule_size(self.handle)
        memory, made, call = ctypes.create_string_buffer(max(1, size)), ctypes.c_void_p(), self.library.new("attn_call")
        status = self.library.calls.attn_schedule_make(
            ctypes.byref(made),
            self.handle,
            ctypes.byref(tensors),
            memory,
            size,
            None,
            ctypes.byref(self.error),
        )
        self.library.check(status, self.error)
        call.schedule, tensors.call = made, ctypes.addressof(call)
        self.size = self.library.calls.attn_schedule_workspace_size(made)
        self.workspace, self.kept = ctypes.create_string_buffer(max(1, self.size)), (memory, call)

    def run(self, tensors):
        status = self.library.calls.attn_execute(
            self.handle, ctypes.byref(tensors), self.workspace, self.size, ctypes.byref(self.error)
        )
        self.library.check(status, self.error)

    def __del__(self):
        if self.handle:
            self.library.calls.attn_plan_destroy(self.handle)
