#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""tools/check_layers.py accepts a small valid source tree, and reports it with one rule broken at a time.

usage: layers_broken.py CC
"""
import json
import pathlib
import subprocess
import sys
import tempfile

TOOL = pathlib.Path(__file__).resolve().parent.parent.parent / "tools/check_layers.py"
HEADER = "#define ATTN_API\nATTN_API int attn_compute(int n);\n"
RIGHT = {
    "include/attn/attn.h": HEADER,
    "src/core/base/sizes.c": "int size_of(int n) { return n; }",
    "src/core/plan/plan.c": "int size_of(int); int plan_of(int n) { return size_of(n); }",
    "src/core/api/compute.c": "int plan_of(int); int attn_compute(int n) { return plan_of(n); }",
    "src/io/read.c": "#include <attn/attn.h>\nint read_all(int n) { return attn_compute(n); }",
    "testing/random/draw.c": "int draw(int n) { return n; }",
    "testing/verdict/judge.c": "int draw(int); int judge(int n) { return draw(n); }",
    "cli/base/say.c": "int say(int n) { return n; }",
    "cli/input/load.c": "int say(int); int load(int n) { return say(n); }",
    "cli/input/part.c": "int part(int n) { return n; }",
    "cli/run/run.c": "int load(int); int draw(int); int attn_cmd_run(int n) { return load(n) + draw(n); }",
    "cli/check/check.c": "int judge(int); int attn_cmd_check(int n) { return judge(n); }",
    "cli/top.c": "int attn_cmd_top(int n) { return n; }",
    "cli/main.c": "int attn_cmd_run(int), attn_cmd_top(int); int begin(int n) { return attn_cmd_run(n) + attn_cmd_top(n); }",
}
BROKEN = {  # rule broken: the files that replace those of RIGHT, and a line that the tool prints
    "a command calls another": ({"cli/top.c": "int attn_cmd_run(int); int attn_cmd_top(int n) { return attn_cmd_run(n); }"},
                                "cli/top.c: cli/top may not call attn_cmd_run of cli/run/run.c"),
    "run calls check": ({"cli/run/run.c": "int judge(int); int attn_cmd_run(int n) { return judge(n); } int load(int);"},
                        "cli/run/run.c: cli/run may not call judge of testing/verdict/judge.c"),
    "input calls a command": ({"cli/input/part.c": "int attn_cmd_run(int); int part(int n) { return attn_cmd_run(n); }"},
                              "cli/input/part.c: cli/input may not call attn_cmd_run of cli/run/run.c"),
    "the base calls the interface": ({"src/core/base/sizes.c": "#include <attn/attn.h>\nint size_of(int n) { return attn_compute(n); }"},
                                   "src/core/base/sizes.c: src/core/base may not call attn_compute of src/core/api/compute.c"),
    "the core calls another library": ({"include/attn/io.h": "#define ATTN_API\nATTN_API int attn_read(int n);\n",
                                        "src/io/read.c": "#include <attn/attn.h>\nint attn_read(int n) { return attn_compute(n); }",
                                        "src/core/base/sizes.c": "int attn_read(int); int size_of(int n) { return attn_read(n); }"},
                                       "src/core/base/sizes.c: src/core/base may not call attn_read of src/io/read.c"),
    "files call the core's inside": ({"src/io/read.c": "int plan_of(int); int read_all(int n) { return plan_of(n); }"},
                                     "src/io/read.c: src/io may not call plan_of of src/core/plan/plan.c"),
    "the harness calls upwards": ({"testing/random/draw.c": "int judge(int); int draw(int n) { return judge(n); }"},
                                  "testing/random/draw.c: testing/random may not call judge of testing/verdict/judge.c"),
    "the command sees the harness": ({"cli/top.c": '#include "testing/verdict/judge.c"\nint attn_cmd_top(int n) { return n; }'},
                                     "cli/top.c: cli/top may not include testing/verdict/judge.c"),
    "two functions of one name": ({"cli/top.c": "int draw(int n) { return n; } int attn_cmd_top(int n) { return draw(n); }"},
                                  "cli/top.c and testing/random/draw.c both define draw: give one of them another name"),
    "headers in a circle": ({"src/core/base/one.h": '#include "two.h"', "src/core/base/two.h": '#include "base/one.h"'},
                            "these include each other in a circle; move what they share to a header of its own: "
                            "src/core/base/one.h, src/core/base/two.h"),
    "a header named by a macro": ({"src/io/x.h": "", "src/io/read.c": '#define NAME "x.h"\n#include NAME\nint read_all(int n) { return n; }'},
                                  "src/io/read.c: #include NAME: name the file, or its rule cannot be checked"),
    "Python sees the core's inside": ({"src/core/base/sizes.h": "int size_of(int);", "python/core/call.c": '#include "src/core/base/sizes.h"'},
                                      "python/core/call.c: python/core may not include src/core/base/sizes.h"),
    "files of a folder in a circle": ({"cli/input/load.c": "int part(int); int load(int n) { return part(n); }",
                                       "cli/input/part.c": "int load(int); int part(int n) { return load(n); }"},
                                      "    cli/input/part.c calls load of cli/input/load.c"),
}


def run(cc, folder, files):
    """Builds a tree of these files; returns the tool's exit status and output."""
    entries = []
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    for name in files:
        path = folder / name
        if path.suffix == ".c":
            made = folder / "build" / (name.replace("/", "_") + ".o")
            made.parent.mkdir(exist_ok=True)
            words = [cc, "-I", str(folder / "include"), "-I", str(folder), "-c", str(path), "-o", str(made)]
            subprocess.run(words, check=True)
            entries.append({"directory": str(folder), "file": str(path), "arguments": words})
    (folder / "build/compile_commands.json").write_text(json.dumps(entries))
    done = subprocess.run([sys.executable, TOOL, "--build", folder / "build", folder], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def main():
    cc = sys.argv[1]
    wrong = 0
    cases = {"right": ({}, None), **BROKEN}
    for what, (others, expected) in cases.items():
        with tempfile.TemporaryDirectory() as folder:
            status, words = run(cc, pathlib.Path(folder).resolve(), {**RIGHT, **others})
        if status != (1 if expected else 0) or (expected and expected not in words.splitlines()):
            wrong += 1
            print(f"{what}: status {status}\n{words}")
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "compile_commands.json").write_text("[]")
        status = subprocess.run([sys.executable, TOOL, "--build", folder], capture_output=True, check=False).returncode
        wrong += status != 1  # nothing built: nothing verified, which is a failure
    print(f"{len(cases) + 1} trees, {wrong} judged wrongly")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
