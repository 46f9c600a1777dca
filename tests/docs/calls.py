#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The code on all pages of docs/, and of README.md, ARCHITECTURE.md and CONTRIBUTING.md, names what exists, in blocks and in the text:
commands of `attn` and their options, names ATTN_..., names of the Python package; blocks of C compile, those of Python parse.
(The test docs/names looks for names attn_..., tools/pictures.py runs the `sh` blocks, python/tests/test_docs.py the Python of its pages, and
tests/api/check_pages.py compiles the calls of mechanisms.)  tools/snippets.py says how to exempt a block.

Usage: calls.py ATTN CC
"""
import ast
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "tools/docs"), str(ROOT / "tests/api")]
import package  # pylint: disable=wrong-import-position
import snippets  # pylint: disable=wrong-import-position
import check_pages  # pylint: disable=wrong-import-position

ATTN, CC = sys.argv[1:3]
CONSTANT = re.compile(r"\bATTN_\w+\b(?![*/])")
PYTHON_NAME = re.compile(r"\blibattn((?:\.[A-Za-z_]\w*)+)(?![\w-])")
HEAD = "".join(f"#include <{name}.h>\n" for name in ("math", "stdio", "stdlib", "string")) + "".join(
    f'#include "attn/{path.name}"\n' for path in sorted((ROOT / "include/attn").glob("*.h")) if path.name != "mpi.h")  # which needs an MPI
# What the blocks of docs/serving.md and others take as given.
GIVEN = check_pages.GIVEN + """
extern attn_tensors t;
extern attn_cache cache;
extern attn_cache_tokens tokens;
extern attn_options options;
extern attn_plan *plan;
extern const attn_schedule *schedule;
extern attn_rope rope;
extern attn_input first_new, x_slot;
extern attn_output y_slot;
extern void *memory, *workspace, *kv_cache, *blocks_of;
extern int64_t cu_seqlens_q[], lengths_kv[], page_table[], starts[], blocks[], row[], shape[4];
extern int64_t most_sequences, most_new_tokens, capacity, pages, page_size, new_tokens, length, slot, sink_pages, columns, n, s, token, text;
extern uint64_t words[];
extern uint16_t latent_pages[], bound_rows[];
extern float latents[], page_scores[];
"""
SPAN = re.compile(r"`([^`\n]+(?:\n[^`\n]+)?)`")
FOLDERS = ("include", "src", "cli", "testing", "tests", "fuzz", "python", "cmake", "tools", "script", "packaging", "examples", "bench")
count = {"commands": 0, "names ATTN_...": 0, "names of Python": 0, "blocks of C": 0, "blocks of Python": 0}


def help_of(*words):
    return subprocess.run([ATTN, *words, "--help"], capture_output=True, text=True, check=True).stdout


def constants():
    """The words ATTN_... of all sources."""
    found = set()
    for path in [ROOT / "CMakeLists.txt", *(path for folder in FOLDERS for path in (ROOT / folder).rglob("*"))]:
        if path.is_file() and path.suffix in (".c", ".h", ".py", ".pyi", ".txt", ".cmake", ".in", ".sh", ".def", ".cpp", "") and path != pathlib.Path(__file__).resolve():
            found.update(CONSTANT.findall(path.read_text(encoding="utf-8", errors="replace")))
    return found


class Commands:
    """The commands of attn with their options."""

    def __init__(self):
        general = help_of()
        self.options = {name: None for name in re.findall(r"^  attn (\w+)", general, re.M)}
        self.general = set(re.findall(r"--[a-z][\w-]*", general)) | {"--help", "--version"}

    def faults(self, line):
        """What is wrong in a line that begins with attn."""
        words = re.split(r"\s#|[|;<>]|&&", line)[0].split()[1:]
        name = words[0] if words else ""
        if re.match(r"[a-z]\w*$", name):
            count["commands"] += 1
            if name not in self.options:
                yield f"there is no command `attn {name}`"
                return
            if self.options[name] is None:
                self.options[name] = set(re.findall(r"--[a-z][\w-]*", help_of(name))) | {"--help"}
        elif name.startswith("--"):
            name = ""
        known = self.options.get(name, self.general) if name == "" or name in self.options else None  # None: a placeholder
        for word in words if known else []:
            option = re.match(r"\[?(--[a-z][\w-]*)", word)
            if option and option[1] not in known:
                yield f"`attn {name}`".replace(" `", "`") + f" has no option {option[1]}"


class Python:
    """The names of the package, from its sources."""

    def __init__(self):
        self.modules = {"libattn": package.Module(ROOT / "python/libattn")}

    def module(self, name):
        """The module of this full name, or None."""
        if name not in self.modules:
            parent, _, last = name.rpartition(".")
            above = self.module(parent) if parent else None
            self.modules[name] = above.child(last) if above and above.is_module(last) else None
        return self.modules[name]

    def has(self, chain):
        """Whether libattn.a.b exists, as far as the sources alone tell."""
        place = "libattn"
        for name in chain:
            module = self.module(place)
            if self.module(f"{place}.{name}"):
                place += f".{name}"
                continue
            return name in module.public or name.startswith("__") or module.definition(name) is not None
        return True

    def block(self, code):
        """What is wrong in a block: names of the package, also by the names under which it imports them."""
        tree = ast.parse(code)
        places = {"libattn": ()}
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "libattn":
                for one in node.names:
                    places[one.asname or one.name] = (*node.module.split(".")[1:], one.name)
            elif isinstance(node, ast.Import):
                places.update({one.asname: tuple(one.name.split(".")[1:]) for one in node.names if one.asname and one.name.split(".")[0] == "libattn"})
        chains = set(places.values())
        for node in ast.walk(tree):
            chain = []
            while isinstance(node, ast.Attribute):
                chain.insert(0, node.attr)
                node = node.value
            if isinstance(node, ast.Name) and node.id in places and chain:
                chains.add((*places[node.id], *chain))
        count["names of Python"] += len(chains)
        return [f"there is no libattn.{'.'.join(chain)}" for chain in sorted(chains) if chain and not self.has(chain)]


def commands_of(text):
    """(line, command) of the lines that begin with attn in blocks and of the spans that do."""
    for number, line in enumerate(re.sub(r"\\\n", lambda _: " \\", text).splitlines(), 1):
        match = re.match(r"\s*(?:\$ )?(?:[A-Z_]+=\S* )*(attn .*)", line)
        if match and (line.startswith("    ") or "`" not in line):
            yield number, match[1].replace("\\", " ")
    outside = snippets.unfenced(text)
    for match in SPAN.finditer(outside):
        if re.match(r"(?:[A-Z_]+=\S* )*attn\s", match[1]):
            yield outside.count("\n", 0, match.start()) + 1, " ".join(match[1][match[1].index("attn"):].split())


def compiles(blocks, folder):
    """Compiler errors of (name, line, code), each as a file of its own or, if it is not one, as the body of a function."""
    for name, line, code in blocks:
        count["blocks of C"] += 1
        for before, after in (("", ""), (f"{GIVEN}int call(void);\nint call(void)\n{{\n", "return 0;\n}\n")):
            path = folder / "block.c"
            path.write_text(f'{HEAD}{before}#line {line} "{name}"\n{code}{after}', encoding="utf-8")
            done = subprocess.run([CC, "-std=c11", "-Wall", "-Wextra", "-Wno-unused", "-Wno-unknown-pragmas", "-Werror", "-fsyntax-only", f"-I{ROOT / 'include'}", str(path)],
                                  capture_output=True, text=True, check=False)
            if not done.returncode:
                break
        else:
            yield f"{name}:{line}: does not compile\n{done.stderr}"


def page_faults(text, commands, python, known):
    """(line or None, fault) of one page."""
    for number, line in commands_of(text):
        yield from ((number, fault) for fault in commands.faults(line))
    for match in CONSTANT.finditer(text):
        count["names ATTN_..."] += 1
        if match[0] not in known and not match[0].endswith("_"):
            yield text.count("\n", 0, match.start()) + 1, f"no source has {match[0]}"
    for _, number, code in snippets.fenced(text, "python"):
        count["blocks of Python"] += 1
        try:
            yield from ((number, fault) for fault in python.block(code))
        except SyntaxError as error:
            yield number + (error.lineno or 1) - 1, f"not Python: {error.msg}"
    outside = snippets.unfenced(text)
    for match in PYTHON_NAME.finditer(outside):
        count["names of Python"] += 1
        if not python.has(match[1].split(".")[1:]):
            yield outside.count("\n", 0, match.start()) + 1, f"there is no libattn{match[1]}"


def main():
    known, commands, python = constants(), Commands(), Python()
    faults, blocks = [], []
    for path in snippets.pages():
        name = str(path.relative_to(ROOT))
        text, nameless = snippets.checked(path.read_text(encoding="utf-8"))
        faults += [f"{name}: an exemption without a reason"] * nameless
        faults += [f"{name}{f':{number}' if number else ''}: {fault}" for number, fault in page_faults(text, commands, python, known)]
        blocks += [(name, number, code) for _, number, code in snippets.fenced(text, "c") if name != "README.md"]  # tests/interface/program.sh
    with tempfile.TemporaryDirectory() as folder:
        faults += compiles(blocks, pathlib.Path(folder))
    print("\n".join(faults) or ", ".join(f"{number} {what}" for what, number in count.items()))
    return 1 if faults or min(count.values()) < 3 or count["commands"] < 50 else 0


if __name__ == "__main__":
    os.chdir(ROOT)
    sys.exit(main())
