# SPDX-License-Identifier: MIT
"""tools/version.py: all places that name the version agree; a place that differs or that is not known is found; a release is one call."""
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

TOP = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP / "tools"))
import version  # noqa: E402  pylint: disable=wrong-import-position

PLACES = sorted({name for name, *_ in version.PLACES})


class Version(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        for name in [*PLACES, "CHANGELOG.md"]:
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(TOP / name, self.root / name)
        version.write(self.root, "0.98.9", None)  # whatever the version is now

    def edit(self, name, pattern, text, count=1):
        path = self.root / name
        before = path.read_text(encoding="utf-8")
        after = re.sub(pattern, text, before, count=count)
        self.assertNotEqual(after, before, f"{name} has no {pattern}")
        path.write_text(after, encoding="utf-8")

    def fails(self, message, *words):
        run = subprocess.run([sys.executable, TOP / "tools/version.py", "--root", self.root, *words], capture_output=True, text=True, check=False)
        self.assertNotEqual(run.returncode, 0)
        self.assertEqual(run.stdout, "")
        self.assertRegex(run.stderr, message)

    def test_tree(self):
        version.check(TOP)

    def test_each_place(self):
        whole = {name: (self.root / name).read_text(encoding="utf-8") for name in PLACES}
        for name, pattern, count, part in version.PLACES[1:]:
            for which in range(count):
                match = list(re.finditer(pattern, whole[name]))[which]
                other = {"whole": "0.98.1", "abi": "0.1"}.get(part, "1")
                (self.root / name).write_text(whole[name][:match.start(1)] + other + whole[name][match.end(1):], encoding="utf-8")
                self.fails(rf"^{re.escape(name)}:\d+: {re.escape(other)}, but {version.parts('0.98.9')[part]} in CMakeLists.txt\n$")
                (self.root / name).write_text(whole[name], encoding="utf-8")
            self.edit(name, pattern, "", count)
            self.fails(rf"^{re.escape(name)}: 0 times .*, not {count}: correct PLACES")
            (self.root / name).write_text(whole[name], encoding="utf-8")
        self.edit("CHANGELOG.md", r"## 0\.98\.9, not", "## 0.98.8, not")
        self.fails(r"^CHANGELOG.md: the first version is 0\.98\.8, but 0\.98\.9 in CMakeLists.txt\n$")

    def test_another_place(self):
        path = self.root / "python/pyproject.toml"
        path.parent.mkdir()
        for text, found in (('version = "0.98.9"', True), ("needs 0.98.9 of libattn", True), ("numpy version 10.98.9", False), ("0.98.9.1 libattn", False),
                            ("find_package(libattn 0.98)", True), ("libattn_io.so.0.98", True), ("ATTN_0.98", True), ("attn 0.987", False)):
            path.write_text(f'name = "libattn"\n{text}\n', encoding="utf-8")
            if found:
                self.fails(r"^python/pyproject.toml:2: `.*0\.98.*` names the version, and is not in PLACES of tools/version.py\n$")
            else:
                self.assertEqual(version.check(self.root), "0.98.9")

    def test_release(self):
        changes = (self.root / "CHANGELOG.md").read_text(encoding="utf-8")
        self.assertEqual(version.write(self.root, "0.99.0", "2031-02-03"), "0.99.0")
        self.assertEqual((self.root / "CHANGELOG.md").read_text(encoding="utf-8"), changes.replace("## 0.98.9, not yet released", "## 0.99.0, 2031-02-03", 1))
        self.assertIn("project(libattn VERSION 0.99.0 ", (self.root / "CMakeLists.txt").read_text(encoding="utf-8"))
        self.assertIn("\nversion: 0.99.0\ndate-released: 2031-02-03\n", (self.root / "CITATION.cff").read_text(encoding="utf-8"))
        self.fails(r"^CHANGELOG.md: 0\.99\.0 was released on 2031-02-03\n$", "0.99.0", "2031-02-04")
        self.edit("CITATION.cff", "date-released: 2031", "date-released: 2030")
        self.fails(r"^CITATION.cff: date-released is 2030-02-03, but CHANGELOG.md says 2031-02-03\n$")
        self.edit("CITATION.cff", "date-released: .*\n", "")
        self.fails(r"^CITATION.cff: date-released is missing, but CHANGELOG.md says 2031-02-03\n$")
        self.edit("CITATION.cff", "(version: .*\n)", r"\1date-released: 2031-02-03\n")
        self.assertEqual(version.write(self.root, "0.100.0", None), "0.100.0")  # development goes on
        self.assertNotIn("date-released", (self.root / "CITATION.cff").read_text(encoding="utf-8"))
        self.assertEqual((self.root / "CHANGELOG.md").read_text(encoding="utf-8"),
                         changes.replace("## 0.98.9, not yet released", "## 0.100.0, not yet released\n\n## 0.99.0, 2031-02-03", 1))

    def test_wrong_words(self):
        self.fails(r"^0\.98\.1 is older than 0\.98\.9\n$", "0.98.1")
        self.fails("^from 1.0 on a soname is the major version alone", "1.0.0")
        self.fails("1.0 is not MAJOR.MINOR.PATCH", "1.0")
        self.fails("2031-02-30 is not a day, YYYY-MM-DD", "0.99.0", "2031-02-30")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
