#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The tables of measured figures are what bench/results.py makes of bench/results; a table that somebody edited is
noticed, and what `attn bench` and bench/peers.py print becomes a column.

Usage: test_results.py ATTN TOP
"""
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ATTN, TOP = sys.argv[1], pathlib.Path(sys.argv[2])
PEERS = {"versions": {"libattn": "0.1.0", "torch": "2.13.0"}, "threads": 2, "results": [
    {"case": "fwd-d64", "problem": "forward", "times": {"libattn": {"median": 0.04237}}, "ratios": {"PyTorch": {"median": 1.3241, "best": 1.3}}}]}


class Results(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.top = pathlib.Path(self.folder.name)
        shutil.copytree(TOP / "bench", self.top / "bench", ignore=shutil.ignore_patterns("__pycache__"))
        (self.top / "docs").mkdir()
        shutil.copy(TOP / "docs/benchmarks.md", self.top / "docs/benchmarks.md")

    def tearDown(self):
        self.folder.cleanup()

    def results(self, *words, status=0):
        done = subprocess.run([sys.executable, str(self.top / "bench/results.py"), *map(str, words)], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done.stdout

    def test_they_are_what_the_files_make(self):
        self.results("check")

    def test_an_edited_figure_is_noticed(self):
        page = self.top / "docs/benchmarks.md"
        text = page.read_text(encoding="utf-8")
        page.write_text(text.replace("85, 88 %", "86, 88 %", 1), encoding="utf-8")
        self.assertIn("docs/benchmarks.md is not what", self.results("check", status=1))
        self.results("write")
        self.assertEqual(page.read_text(encoding="utf-8"), text)

    def test_a_changed_result_is_noticed(self):
        file = next((self.top / "bench/results").glob("*-peers.json"))
        file.write_text(file.read_text(encoding="utf-8").replace('"PyTorch": 1.32', '"PyTorch": 1.33'), encoding="utf-8")
        self.assertIn("docs/benchmarks.md is not what", self.results("check", status=1))

    def test_a_row_that_no_table_has_is_an_error(self):
        file = self.top / "bench/results/2026-11-22-zen4-avx2.json"
        file.write_text(file.read_text(encoding="utf-8").replace("fwd:f32:hq8:sq512:d64:causal", "fwd:f32:hq8:sq513:d64:causal"), encoding="utf-8")
        self.results("check", status=1)

    def test_a_run_becomes_a_column(self):
        problems = ["fwd:f32:hq12:sq14:d32", "fwd:f32:b8:hq12:sq128:d64"]
        run = subprocess.run([ATTN, "bench", *problems, "--seconds=0.02", "--threads=1", "--json"], capture_output=True, text=True, check=True)
        (self.top / "run.json").write_text(run.stdout, encoding="utf-8")
        made = self.top / "bench/results/new.json"
        self.results("take", made, self.top / "run.json", "This machine", "--gcc=1.2", "--command=attn bench", "--date=2026-01-02")
        result = json.loads(made.read_text(encoding="utf-8"))
        self.assertEqual([row["row"] for row in result["rows"]], problems[::-1])
        self.assertEqual((result["date"], result["versions"]["gcc"], result["threads"]), ("2026-01-02", "1.2", 1))
        share = json.loads(run.stdout)["results"][1]["share_of_ceiling"]
        self.assertEqual(result["rows"][0]["median"], round(100 * share))
        self.results("write")
        self.assertIn("| This machine |", (self.top / "docs/benchmarks.md").read_text(encoding="utf-8"))

    def test_peers_become_a_column(self):
        (self.top / "run.json").write_text(json.dumps(PEERS), encoding="utf-8")
        self.results("take", self.top / "bench/results/new.json", self.top / "run.json", "Peers here", "--isa=avx2", "--date=2026-01-02")
        self.results("write")
        self.assertIn("| forward | 42.4 | 1.32 |", (self.top / "docs/benchmarks.md").read_text(encoding="utf-8"))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
