#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What holds for every file of the repository: sources begin with the licence, and no text names a folder of somebody's machine.  And
what is never run is noticed: with --build, C files and CMakeLists.txt that this (full) build does not have; scripts of tests/ that nothing names; and
test functions that are in no list (the compiler notices static ones).

Usage: tests/api/tracked.py [--build BUILD]    (in the root of the sources)
"""
import json
import pathlib
import re
import subprocess
import sys

LICENCE = "SPDX-License-Identifier: MIT"
SOURCES = {".c", ".cmake", ".cpp", ".css", ".def", ".h", ".js", ".py", ".pyi", ".rb", ".sh"}
WITHOUT_LICENCE = {".ci/run": "calls script/test and nothing else"}
MACHINE = re.compile(r"(?<![\w.~-])/(?:root|work|home/\w+|Users/\w+)/[\w.-]*")
MACHINES_ALLOWED = {}  # {file: reason}
NOT_TEXT = {".npy", ".npz", ".png", ".safetensors"}
ELSEWHERE = {  # C files, or folders of them, that the build does not compile, and what does
    "javascript/": "the preset wasm, with a compiler of its own (script/test-platform wasm)",
    "lab/": "tests/api/lab.sh",
    "python/tests/": "the tests of Python, when they run",
    "tests/distributed/mpi.c": "tests/distributed/mpi.sh, with an MPI",
    "tests/distributed/mpi_large.c": "tests/distributed/mpi.sh, with an MPI",
    "tests/distributed/mpi_linear.c": "tests/distributed/mpi.sh, with an MPI",
    "tests/fault/wrap.c": "tests/fault, into a library to preload",
    "tests/install/": "tests/install, against what was installed",
    "tests/wasm/": "the preset wasm (script/test-platform wasm)",
    "tests/kernels/test_operations.c": "the build, where the CPU has no AVX-512 (tests/kernels/CMakeLists.txt)",
}
BY_HAND = {"tests/io/make_fixtures.py": "wrote tests/io/data, with the libraries of other projects"}  # scripts that no test runs


def tracked():
    """Files of the checkout; of an unpacked tarball, all but what was built."""
    listed = subprocess.run(["git", "ls-files", "-z"], capture_output=True, text=True, check=False)
    if listed.returncode == 0 and listed.stdout:
        return [path for path in map(pathlib.Path, listed.stdout.rstrip("\0").split("\0")) if path.is_file()]
    return [path for path in pathlib.Path().rglob("*") if path.is_file() and not {"build", "dist", "__pycache__"} & set(path.parts)]


def faults_of_text(path):
    text = path.read_text(encoding="utf-8", errors="replace")  # a fuzzing corpus holds any bytes
    source = path.suffix in SOURCES or path.name == "CMakeLists.txt" or text.startswith("#!")
    if source and path.as_posix() not in WITHOUT_LICENCE and LICENCE not in "\n".join(text.split("\n", 4)[:4]):
        yield f"{path}: its first lines have no comment with `{LICENCE}`; add it"
    found = MACHINE.search(text)
    if found and path.as_posix() not in MACHINES_ALLOWED:
        line = text.count("\n", 0, found.start()) + 1
        yield f"{path}:{line}: {found[0]} is a folder of one machine; write a path that others have"


def not_built(files, build):
    entries = json.loads((build / "compile_commands.json").read_text())
    built = {pathlib.Path(entry["directory"], entry["file"]).resolve() for entry in entries}
    with_python = any("python" in path.parts for path in built)
    for path in files:
        name = path.as_posix()
        if path.suffix != ".c" or name.endswith(".inc.c") or path.resolve() in built or name.startswith(tuple(ELSEWHERE)):
            continue
        if with_python or path.parts[0] != "python":
            yield f"{path}: nothing builds this; add it to a CMakeLists.txt, or to ELSEWHERE in {sys.argv[0]} with a reason"
    ninja = build / "build.ninja"
    read = re.search(r"^build build\.ninja: RERUN_CMAKE.*", ninja.read_text(), re.M)[0] + " " if ninja.is_file() else ""
    for path in files if read else ():
        own = path.parts[0] in ("examples", "packaging")  # projects of their own
        own |= path.as_posix().startswith(tuple(ELSEWHERE))
        if path.name == "CMakeLists.txt" and not own and f"/{path} " not in read and (with_python or path.parts[0] != "python"):
            yield f"{path}: the build does not read this; add its folder (of tests, to the list in tests/CMakeLists.txt)"


def not_run(files):
    tests = [path for path in files if path.parts[0] == "tests"]
    lists, callers = {}, {}  # the words of each CMakeLists.txt; who names a file or imports a module
    for path in files:
        if path.name == "CMakeLists.txt":
            lists[path.parent] = set(re.findall(r"\w+", path.read_text(encoding="utf-8")))
        if path.name == "CMakeLists.txt" or path.suffix in (".py", ".sh", ".cmake") or path.parts[0] == "script":
            text = path.read_text(encoding="utf-8")
            for name in re.findall(r"[\w-]+\.(?:py|sh)\b", text):
                callers.setdefault(name, set()).add(path)
            for line in re.findall(r"^ *(?:import|from) (.*)", text, re.M):
                for name in re.findall(r"\w+", line):
                    callers.setdefault(name + ".py", set()).add(path)
    for path in tests:
        named = path.stem in lists.get(path.parent, ()) or callers.get(path.name, set()) - {path}
        if path.suffix in (".py", ".sh") and not named and path.as_posix() not in BY_HAND:
            yield f"{path}: nothing runs this; add it to a CMakeLists.txt, or to BY_HAND in {sys.argv[0]} with a reason"
    texts = {path: path.read_text(encoding="utf-8") for path in tests if path.suffix == ".c"}
    listed = {name for text in texts.values() for name in re.findall(r"\b(?:cmocka_unit_test\w*|TEST)\(\s*(\w+)", text)}
    for path, text in texts.items():
        for name in re.findall(r"^void (test_\w+)\(void \*\*", text, re.M):
            if name not in listed:
                yield f"{path}: {name} is in no list of cmocka_unit_test(...), so it is never run"


def main():
    files = tracked()
    faults = [fault for path in files if path.suffix not in NOT_TEXT for fault in faults_of_text(path)] + list(not_run(files))
    if sys.argv[1:2] == ["--build"]:
        faults += not_built(files, pathlib.Path(sys.argv[2]))
    print("\n".join(faults) or f"{len(files)} files")
    return 1 if faults or len(files) < 1500 else 0


if __name__ == "__main__":
    sys.exit(main())
