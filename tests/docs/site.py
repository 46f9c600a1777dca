#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The site documents each public name of C and of Python exactly once, and each option of each command, loads nothing from a network,
and has no broken links.

Usage: site.py ATTN SITE
"""
import html
import os
import pathlib
import re
import subprocess
import sys
import urllib.parse
import zlib

ATTN, SITE = sys.argv[1], pathlib.Path(sys.argv[2])
ABI = pathlib.Path("tests/install/abi.txt").read_text(encoding="utf-8")
faults = []


def inventory():
    """[(name, kind, address)] of objects.inv."""
    data = (SITE / "objects.inv").read_bytes()
    lines = zlib.decompress(data[data.index(b"zlib.\n") + 6:]).decode().splitlines()
    return [re.match(r"(.+?) (\S+:\S+) -?\d+ (\S*) ", line).groups() for line in lines]


def check_names():
    """The functions, structs, enums and constants of tests/install/abi.txt, which another tool extracts from the compiled headers."""
    found = {}
    for name, kind, address in inventory():
        if kind.startswith("c:") and kind != "c:functionParam":
            found.setdefault(name, []).append((kind, address))
    functions = re.findall(r"^[a-z][^\n:]*?\b(attn_\w+)\(", ABI, re.M)
    types = re.findall(r"^(?:struct|enum) (attn_\w+)", ABI, re.M)
    constants = re.findall(r"^(?:macro |    )(ATTN_\w+) ", ABI, re.M)
    for name in [*functions, *types, *constants]:
        if len(found.get(name, [])) != 1:
            faults.append(f"{name} has {len(found.get(name, []))} places")
    print(f"{len(functions)} functions, {len(types)} structs and enums, {len(constants)} constants, {len(found)} names in all")
    if len(functions) < 100 or len(types) < 50 or len(constants) < 100:
        faults.append("abi.txt was not understood")


def text_of(page):
    return html.unescape(re.sub(r"<[^>]+>", "", (SITE / page).read_text(encoding="utf-8")))


def check_commands():
    names = re.findall(r"^  attn (\w+)", subprocess.run([ATTN, "--help"], capture_output=True, text=True, check=True).stdout, re.M)
    count = 0
    for name in names:
        printed = subprocess.run([ATTN, name, "--help"], capture_output=True, text=True, check=True).stdout
        page = text_of(f"commands/{name}.html")
        for option in set(re.findall(r"--[a-z][a-z-]*", printed)):
            count += 1
            if option not in page:
                faults.append(f"attn {name} {option} is not in the site")
    print(f"{len(names)} commands, {count} options")


PUBLIC = """
import types, libattn
def names(module):
    for name in module.__all__:
        found = getattr(module, name)
        if isinstance(found, types.ModuleType):
            yield from names(found)
        elif not name.startswith("__"):
            yield f"{module.__name__}.{name}"
print(*names(libattn), sep="\\n")
"""


def check_package():
    """The public names of the Python package, if this build has it."""
    tree = pathlib.Path(ATTN).resolve().parent / "python"
    if not (tree / "libattn/_abi.py").exists():
        print("Python: not built, not compared")
        return
    asked = subprocess.run([sys.executable, "-c", PUBLIC], capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": str(tree)})
    public = asked.stdout.split()
    if len(public) < 50:
        faults.append(f"the package has {len(public)} public names: {asked.stderr}")
    listed = [name for name, kind, _ in inventory() if kind.startswith("py:")]
    for name in public:
        if listed.count(name) != 1:
            faults.append(f"{name} has {listed.count(name)} places")
    print(f"{len(public)} names of Python")


def check_links():
    """Links between pages, and everything a browser would load, lead to files of the site."""
    anchors, links, count = {}, [], 0
    for page in sorted(SITE.rglob("*.html")):
        text = re.sub(r"(<script\b[^>]*>).*?</script>", r"\1", page.read_text(encoding="utf-8"), flags=re.S)  # programs that write markup
        anchors[page] = set(re.findall(r'\bid="([^"]+)"', text))
        links += [(page, tag, html.unescape(address)) for tag, address in re.findall(r'<(\w+)\b[^>]*?\s(?:src|href|srcset)="([^"]*)"', text)]
    for page, tag, address in links:
        count += 1
        path, _, anchor = address.partition("#")
        if re.match(r"(https?:)?//", address):
            if tag != "a":
                faults.append(f"{page.relative_to(SITE)}: <{tag}> asks for {address}")
            continue
        if re.match(r"(mailto|data):", address):
            continue
        target = (page.parent / urllib.parse.unquote(path.split("?")[0])).resolve() if path else page.resolve()
        if not target.exists():
            faults.append(f"{page.relative_to(SITE)}: there is no {address}")
        elif anchor and target.suffix == ".html" and urllib.parse.unquote(anchor) not in anchors[SITE / target.relative_to(SITE.resolve())]:
            faults.append(f"{page.relative_to(SITE)}: {address} has no such place")
    for file in SITE.rglob("*.css"):
        if re.search(r"@import|url\(\s*['\"]?(https?:)?//", file.read_text(encoding="utf-8")):
            faults.append(f"{file.relative_to(SITE)} asks for something")
    print(f"{len(anchors)} pages, {count} links")


check_names()
check_commands()
check_package()
check_links()
for fault in faults:
    print(fault)
sys.exit(1 if faults else 0)
