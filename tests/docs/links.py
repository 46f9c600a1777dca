#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Without Sphinx: every relative link of a page leads to a file, every page of docs/ has a place in the site (PARTS in
tools/docs/site.py), every mechanism a line in docs/mechanisms.md, every folder that CMakeLists.txt adds one in the tree of
ARCHITECTURE.md, and every option of CMake one in docs/building.md.  With an argument, only the links of the pages in that folder."""
import ast
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
LINK = re.compile(r"\]\(([^)#:\s]+)(?:#[^)\s]*)?\)")

FOLDERS = ("cli", "cmake", "fuzz", "python", "ref", "src", "testing", "tests")  # those of the build


def parts():
    """The pages that PARTS lists."""
    for statement in ast.parse((ROOT / "tools/docs/site.py").read_text(encoding="utf-8")).body:
        if isinstance(statement, ast.Assign) and getattr(statement.targets[0], "id", "") == "PARTS":
            return {page for pages in ast.literal_eval(statement.value).values() for page in pages}
    return set()


def undescribed():
    """What CMakeLists.txt has and no page describes."""
    build, design, described = ((ROOT / name).read_text(encoding="utf-8") for name in ("CMakeLists.txt", "ARCHITECTURE.md", "docs/building.md"))
    tree = re.search(r"^## The tree\n+```\n(.*?)^```", design, re.S | re.M)[1].split()
    for folder in re.findall(r"^ *add_subdirectory\((\S+)\)", build, re.M):
        if folder + "/" not in tree:
            yield f"ARCHITECTURE.md: the tree has no {folder}/"
    files = [ROOT / "CMakeLists.txt", *(file for folder in FOLDERS for name in ("CMakeLists.txt", "*.cmake") for file in (ROOT / folder).rglob(name))]
    texts = [(file.relative_to(ROOT), file.read_text(encoding="utf-8")) for file in files]
    unlisted = {"ATTN_WERROR", *re.findall(r"^mark_as_advanced\((\w+)\)", build, re.M)}  # for work on libattn itself
    for file, text in texts:
        for option in re.findall(r"^ *(?:(?:cmake_dependent_)?option\(|set\((?=ATTN_\w+ [^()\n]* CACHE ))(\w+)", text, re.M):
            if option not in unlisted and f"`{option}`" not in described:
                yield f"docs/building.md does not have the option {option} of {file}; add a row"


def lost(page):
    """The relative links of a page that lead nowhere, and how many it has."""
    text = re.sub(r"^```.*?^```$|`[^`\n]*`", "", page.read_text(encoding="utf-8"), flags=re.S | re.M)
    links = LINK.findall(text)
    return [link for link in links if not (page.parent / link).exists()], len(links)


def installed(folder):
    found = {page: lost(page) for page in sorted(pathlib.Path(folder).rglob("*.md"))}
    faults = [f"{page}: there is no {link}" for page, (links, _) in found.items() for link in links]
    links = sum(count for _, count in found.values())
    print("\n".join(faults) or f"{len(found)} pages, {links} links")
    return 1 if faults or links < 100 else 0


def main():
    faults, links, placed = list(undescribed()), 0, parts()
    mechanisms = (ROOT / "docs/mechanisms.md").read_text(encoding="utf-8")
    pages = [page for page in sorted(ROOT.rglob("*.md")) if not re.search(r"(^|/)(build|dist|\.[^/]*)/", str(page.relative_to(ROOT)))]
    for page in pages:
        name, (missing, count) = str(page.relative_to(ROOT))[:-3], lost(page)
        links += count
        faults += [f"{name}.md: there is no {link}" for link in missing]
        if name.startswith("docs/mechanisms/") and f"](mechanisms/{page.name})" not in mechanisms:
            faults.append(f"{name}.md has no link in docs/mechanisms.md")
        elif name.startswith("docs/") and not name.startswith("docs/mechanisms/") and name not in placed:
            faults.append(f"{name}.md has no place in the site: add it to PARTS in tools/docs/site.py")
    print("\n".join(faults) or f"{len(pages)} pages, {links} links")
    return 1 if faults or links < 200 else 0


if __name__ == "__main__":
    sys.exit(installed(sys.argv[1]) if len(sys.argv) > 1 else main())
