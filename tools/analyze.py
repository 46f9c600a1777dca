#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""tools/analyze.py gcc|clang|clang-tidy|cppcheck BUILD FOLDER...: runs an analyser over the C files of these source folders.

BUILD has a compile_commands.json.  The status is 1 if there is any finding or the analyser failed; 77, with `skipped: REASON`, if it is
not installed.  clang gives the warnings of a build with it, without generating code, for what has no object in BUILD that is newer than
its sources.  Disabled checks, and the reasons, are here (gcc), in .clang-tidy and in tools/cppcheck.txt.  The last line is the number of
findings and files, and the time.
"""
import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent

# gcc 12: -O0, at which paths match the sources, and so without _FORTIFY_SOURCE, which needs optimization.
GCC = ["-fanalyzer", "-O0", "-U_FORTIFY_SOURCE", "-fdiagnostics-path-format=none", "-fdiagnostics-plain-output"]
# gcc takes five minutes for the kernels, which neither allocate nor call anything that fails, and does not know that a loop over the
# vectors of a tile runs at least once: every vector then "may be uninitialized".  The memory sanitizer and valgrind cover them.
# clang-tidy and cppcheck check the kernels in plain C: the same *.inc.c for AVX2 and AVX-512 would take five more minutes (cppcheck: a
# half more).
ONLY_VECTORS = re.compile(r"src/core/kernels/avx[a-z0-9]*/")
NOT_FOR_GCC = re.compile(r"src/core/kernels/[a-z0-9]+/")


def commands(build, folders):
    """One command for each file (files compiled twice differ only in definitions for tests)."""
    seen = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        path = pathlib.Path(entry["directory"], entry["file"]).resolve()
        if path.is_relative_to(ROOT):
            name = str(path.relative_to(ROOT))
            if name.split("/")[0] in folders:
                seen.setdefault(name, dict(entry, file=str(path)))
    return seen


def compiler_words(entry):
    words = shlex.split(entry["command"])
    if os.path.basename(words[0]) in ("ccache", "sccache"):
        words = words[1:]
    words[words.index("-o") + 1] = os.devnull
    return words


def sources_of(build):
    """{object: the files it was compiled from}, as ninja recorded them; empty if the build is not ninja's."""
    done = subprocess.run(["ninja", "-C", str(build), "-t", "deps"], capture_output=True, text=True, check=False)
    found = {}
    for block in done.stdout.split("\n\n") if done.returncode == 0 else []:
        head, *files = [line for line in block.splitlines() if not line.startswith("ninja: ")] or [""]
        made, mark, state = head.partition(": #deps ")
        if mark and state.endswith("(VALID)"):
            found[build / made] = [build / line.strip() for line in files]
    return found


def changed(path, times):
    """When a file changed, from `times`; now if there is none."""
    if path not in times:
        try:
            times[path] = path.stat().st_mtime_ns
        except OSError:
            times[path] = time.time_ns()
    return times[path]


def is_compiled(entry, sources, times):
    """Whether the object of a command is newer than all that it was compiled from."""
    words = shlex.split(entry["command"])
    made = pathlib.Path(entry["directory"], words[words.index("-o") + 1])
    return made in sources and made.exists() and all(changed(path, times) <= changed(made, times) for path in sources[made])


def run(words, folder):
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, errors="replace")
    return done.returncode, done.stdout + done.stderr


def run_gcc(entry, _):
    status, text = run(["gcc"] + compiler_words(entry)[1:] + GCC, entry["directory"])
    return status, text


def run_clang(entry, _):
    return run(["clang"] + compiler_words(entry)[1:] + ["-fsyntax-only"], entry["directory"])


def run_clang_tidy(entry, database):
    return run(["clang-tidy", "-p", str(database), "--quiet", entry["file"]], entry["directory"])


def cppcheck_words(database, jobs):
    return ["cppcheck", f"--project={database}/compile_commands.json", "--quiet", f"-j{jobs}", "--error-exitcode=1",
            "--enable=warning,performance,portability,style", f"--suppressions-list={database}/suppressions.txt",
            "--template={file}:{line}: {severity}: {message} [{id}]"]


def write_suppressions(path):
    """tools/cppcheck.txt in the format of cppcheck 2: without comments, and with full paths."""
    lines = [line.split("#")[0].strip() for line in (ROOT / "tools/cppcheck.txt").read_text().splitlines()]
    path.write_text("".join(f"{line.replace(':', ':*', 1)}\n" for line in lines if line))


def findings(text):
    text = text.replace(f"{ROOT}/", "")
    found = re.findall(r"^[^\s:]+:\d+:(?:\d+:)? (?:fatal )?(?:warning|error|style|performance|portability): .*$", text, re.M)
    return [re.sub(r"(?<=/)[^/\s:]+/\.\./", "", line) for line in found]


def main():
    if len(sys.argv) < 4 or sys.argv[1] not in ("gcc", "clang", "clang-tidy", "cppcheck"):
        sys.exit(__doc__)
    tool, build, folders = sys.argv[1], pathlib.Path(sys.argv[2]).resolve(), sys.argv[3:]
    if not shutil.which(tool):
        print(f"skipped: there is no {tool}")
        return 77
    begin, jobs = time.monotonic(), len(os.sched_getaffinity(0))
    entries = commands(build, folders)
    leave = {"gcc": NOT_FOR_GCC, "clang-tidy": ONLY_VECTORS, "cppcheck": ONLY_VECTORS}.get(tool)
    entries = {name: entry for name, entry in entries.items() if not (leave and leave.match(name))}
    if not entries:
        sys.exit(f"{build}: no file of {' '.join(folders)} is compiled there")
    if tool == "clang":
        sources, times, every = sources_of(build), {}, len(entries)
        entries = {name: entry for name, entry in entries.items() if not is_compiled(entry, sources, times)}
        print(f"clang: {every - len(entries)} of {every} files have an object that is newer than their sources")
    database = build / "analyze" / tool
    database.mkdir(parents=True, exist_ok=True)
    (database / "compile_commands.json").write_text(json.dumps(list(entries.values())))
    if tool == "cppcheck":
        write_suppressions(database / "suppressions.txt")
        outcomes = [run(cppcheck_words(database, jobs), ROOT)]
    else:
        work = {"gcc": run_gcc, "clang": run_clang, "clang-tidy": run_clang_tidy}[tool]
        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            outcomes = list(pool.map(lambda entry: work(entry, database), entries.values()))
    found = sorted({line for _, text in outcomes for line in findings(text)})
    print("".join(f"{line}\n" for line in found), end="")
    broken = [text for status, text in outcomes if status and not findings(text)]
    for text in broken:
        print(f"{tool} failed:\n{text}")
    print(f"{tool}: {len(found)} found in {len(entries)} files of {' '.join(folders)}, {time.monotonic() - begin:.0f} s")
    return 1 if found or broken else 0


if __name__ == "__main__":
    sys.exit(main())
