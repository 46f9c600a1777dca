# SPDX-License-Identifier: MIT
"""`attn bench` and bench/compare.py: fields, order, rejections.  No test depends on measured speed."""
import csv
import json
import math
import os
import subprocess
import sys
import tempfile
import unittest

ATTN, BENCH = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
QUICK = ["--seconds", "0.02", "--threads", "1"]
FIELDS = {
    "problem": str,
    "kernel": str,
    "isa": str,
    "compute": str,
    "bound": str,
    "stream": str,
    "seconds": dict,
    "samples": int,
    "calls_per_sample": int,
    "threads": int,
    "workspace_bytes": int,
    "plan_bytes": int,
}
NUMBERS = (
    "flops gflops gflops_best ceiling_gflops share_of_ceiling share_of_ceiling_best gbs gbs_best stream_gbs share_of_stream "
    "share_of_stream_best tokens_per_second tensor_bytes memory_estimate_bytes scores_bytes"
).split()


def attn(*words):
    """Runs `attn bench` with these arguments."""
    return subprocess.run([ATTN, "bench", *words], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)


def measured(*words):
    """The JSON object that `attn bench` prints."""
    done = attn(*words, *QUICK, "--json")
    assert done.returncode == 0 and done.stderr == "", (words, done.returncode, done.stderr)
    return json.loads(done.stdout)


def flat(value, before=""):
    """Pairs of the names of CSV columns and values."""
    for name, inner in value.items():
        if isinstance(inner, dict):
            yield from flat(inner, f"{before}{name}_")
        else:
            yield before + name, inner


class Json(unittest.TestCase):
    PROBLEMS = [
        "fwd:f32:hq2:sq64:d32",
        "fwd:f64:hq2:sq40:d16:causal",
        "fwd:bf16:b2:hq4:hkv2:sq17:skv33:d24:dv8:lens:mask=0.5:lse",
        "bwd:f32:hq2:sq48:d16:softcap=5:alibi:sink:dropout=0.1:bias:dbias",
        "bwd:f16:b3:hq2:sq20:d8:packed",
        "fwd:f32:hq2:sq8:d8:offset=3:weights:layout=bshd:seed=4",
        "fwd:bf16:b3:hq2:sq20:skv50:d32:ktype=q8_0:vtype=f8_e4m3:causal=bottom-right:lens=kv:spread=log:ragged=mixed:page=4:prefix=8:schedule",
        "fwd:f32:b2:hq2:sq7:skv50:d8:causal=bottom-right:ragged:tree=5",
    ]

    @classmethod
    def setUpClass(cls):
        cls.whole = measured(*cls.PROBLEMS)

    def test_the_machine(self):
        machine = self.whole["machine"]
        self.assertIsInstance(machine["features"], list)
        self.assertTrue(machine["cpu"])
        self.assertEqual(machine["threads"], 1)
        for where in (machine, machine["ceilings"]):
            for name in ("fma_f32_gflops", "fma_f64_gflops", "stream_gbs"):
                self.assertGreater(where[name], 0, name)
        isa = machine["isa"]
        self.assertEqual(machine["ceilings"][f"fma_f32_{isa}_gflops"], machine["fma_f32_gflops"])
        self.assertRegex(self.whole["version"], r"^\d+\.\d+\.\d+$")

    def test_every_problem_once_in_its_order(self):
        self.assertEqual([row["problem"].split(":")[0:2] for row in self.whole["results"]], [p.split(":")[0:2] for p in self.PROBLEMS])
        self.assertTrue(self.whole["results"][5]["problem"].endswith("seed=4"))

    def test_the_fields(self):
        for row in self.whole["results"]:
            for name, kind in FIELDS.items():
                self.assertIsInstance(row[name], kind, name)
            for name in NUMBERS:
                self.assertGreater(row[name], 0, (name, row["problem"]))
            self.assertIn(row["bound"], ("fma", "stream"))
            self.assertIn(row["stream"], ("L2", "L3", "memory"))
            self.assertGreaterEqual(row["samples"], 1)

    def test_bytes_of_formats(self):
        """Bytes of 2 heads x 64 rows of 64 channels: blocks of 32, and scales of rows."""
        row = {"bf16": 128, "i8": 68, "f8_e5m2": 68, "f8_e5m2-unscaled": 64, "q8_0": 68, "q4_0": 36, "q4_1": 40}
        kinds = [("q8_0", "i8"), ("q4_0", "f8_e5m2"), ("q4_1", "f8_e5m2-unscaled"), ("bf16", "q4_0")]
        for (k, v), result in zip(kinds, measured(*(f"fwd:f16:hq2:sq1:skv64:d64:ktype={k}:vtype={v}" for k, v in kinds))["results"]):
            self.assertEqual(result["tensor_bytes"], 2 * 2 * 64 * 2 + 2 * 64 * (row[k] + row[v]), result["problem"])

    def test_a_shared_prefix_exists_once(self):
        """64 keys of 16 channels in f16, K and V, are 4 KiB; the table has 4 pages of 3 sequences, the batch 1 + 3 pages of keys, or 12."""
        shared, apart = (row["tensor_bytes"] for row in measured(*(f"fwd:f16:b3:sq1:skv64:d16:page=16:prefix={n}:schedule" for n in (48, 0)))["results"])
        self.assertEqual(apart, 3 * 4096 + 3 * 4 * 8 + 3 * 64)
        self.assertEqual(apart - shared, 2 * 3 * 1024)

    def test_pages_without_memory_are_nobodys(self):
        """Lengths fill fewer pages than there could be; another tensor may lie where the rest would."""
        rows = measured(*(f"fwd:f16:b8:sq1:skv16384:d32:lens=kv:spread=log:page=64:seed={n}" for n in range(1, 9)))["results"]
        self.assertEqual(len(rows), 8)

    def test_pairs_of_a_tree(self):
        """16 operations a pair: 10 keys before the drafts for each query; a draft sees itself, and its ancestors, which come before it."""
        for row in measured(*(f"fwd:f32:sq6:skv16:d4:tree=6:seed={n}" for n in range(1, 4)))["results"]:
            pairs = row["flops"] / 16
            self.assertTrue(6 * 10 + 6 <= pairs <= 6 * 10 + 21, pairs)

    def test_percentiles_are_ordered(self):
        for row in self.whole["results"]:
            seconds = row["seconds"]
            self.assertLessEqual(0, seconds["p10"])
            self.assertLessEqual(seconds["p10"], seconds["median"])
            self.assertLessEqual(seconds["median"], seconds["p90"])
            self.assertLessEqual(seconds["p90"], seconds["p95"])
            self.assertLessEqual(seconds["p95"], seconds["p99"])
            self.assertLessEqual(seconds["p99"], seconds["p999"])
            self.assertLessEqual(seconds["p999"], seconds["max"])
            self.assertLessEqual(seconds["min"], seconds["p10"])
            self.assertLessEqual(seconds["min"], seconds["mean"])
            self.assertLessEqual(seconds["mean"], seconds["max"])
            self.assertLessEqual(seconds["std"], seconds["max"] - seconds["min"])
            self.assertEqual(sum(row["histogram"]["counts"]), row["samples"])
            self.assertEqual((row["histogram"]["low"], row["histogram"]["high"]), (seconds["min"], seconds["max"]))
            self.assertLessEqual(row["gflops"], row["gflops_best"])
            self.assertLessEqual(row["share_of_ceiling"], row["share_of_ceiling_best"])
            self.assertLessEqual(row["share_of_stream"], row["share_of_stream_best"])

    def test_memory_is_held_against_reads_of_the_same_tensors(self):
        """Median against median, if the tensors do not fit in a cache (64 MiB do not on most machines)."""
        row = measured("fwd:f32:hq8:hkv8:sq1:skv16384:d64")["results"][0]
        if row["stream"] != "memory":
            self.skipTest("64 MiB lie in a cache here")
        self.assertTrue(math.isclose(row["share_of_stream"], row["gbs"] / row["stream_gbs"], rel_tol=1e-9))
        self.assertGreater(row["share_of_stream_best"], 0)

    def test_numbers_agree_with_each_other(self):
        for row in self.whole["results"]:
            time = row["seconds"]["median"]
            self.assertAlmostEqual(row["gflops"] * time * 1e9 / row["flops"], 1, 6)
            self.assertAlmostEqual(row["speedup"] * time / self.whole["results"][0]["seconds"]["median"], 1, 6)
            self.assertAlmostEqual(row["gbs"] * time * 1e9 / row["tensor_bytes"], 1, 6)
            self.assertEqual(row["memory_estimate_bytes"], row["tensor_bytes"] + row["workspace_bytes"] + row["plan_bytes"])

    def test_work_is_counted_by_hand(self):
        forward, causal = self.whole["results"][:2]
        self.assertEqual(forward["flops"], 2 * 64 * 64 * (32 + 32) * 2)
        self.assertEqual(forward["tensor_bytes"], 4 * 2 * 64 * 32 * 4)
        self.assertEqual(forward["scores_bytes"], 2 * 64 * 64 * 4)
        self.assertEqual(causal["flops"], 2 * (40 * 41 // 2) * (16 + 16) * 2)
        self.assertAlmostEqual(forward["tokens_per_second"] * forward["seconds"]["median"], 64)
        backward = self.whole["results"][3]
        self.assertEqual(backward["flops"], 2.5 * 2 * 48 * 48 * (16 + 16) * 2)
        self.assertTrue(backward["kernel"].startswith("attn_bwd_f32"))

    def test_the_chosen_instruction_set_is_its_own_ceiling(self):
        whole = measured(self.PROBLEMS[0], "--isa", "scalar")
        self.assertEqual(whole["machine"]["isa"], "scalar")
        self.assertEqual(whole["results"][0]["kernel"], "attn_fwd_f32_scalar")
        ceilings = whole["machine"]["ceilings"]
        self.assertEqual(ceilings["fma_f32_gflops"], ceilings["fma_f32_scalar_gflops"])

    def test_the_clock_of_the_thread(self):
        whole = measured("fwd:f32:hq2:sq64:d32", "--clock=cpu")
        self.assertEqual((whole["machine"]["clock"], self.whole["machine"]["clock"]), ("cpu", "wall"))

    def test_nothing_to_compute(self):
        row = measured("fwd:f32:sq0:d8")["results"][0]
        self.assertEqual((row["flops"], row["gflops"], row["share_of_ceiling"]), (0, 0, 0))


class Text(unittest.TestCase):
    def test_a_table(self):
        done = attn("fwd:f32:hq2:sq64:d32", *QUICK)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertRegex(done.stdout, r"(?m)^ceilings  FMA f32 ")
        self.assertRegex(done.stdout, r"(?m)^fwd:f32:hq2:sq64:d32 .* %")
        self.assertRegex(done.stdout, r"(?m)^memory +tensors +workspace")

    def test_memory_is_not_filled_for_a_small_problem(self):
        machine = measured("fwd:f32:hq2:sq64:d32")["machine"]
        if "stream_l2_gbs" not in machine["ceilings"]:
            self.skipTest("the size of the L2 is unknown")
        done = attn("fwd:f32:hq2:sq64:d32", *QUICK)
        self.assertRegex(done.stdout, r"(?m)^ceilings  .*, L2 \d+\.\d GB/s$")


class Rejections(unittest.TestCase):
    def rejected(self, status, message, *words):
        done = attn(*words)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (status, "", f"attn bench: {message}\n"))

    def test_bad_arguments(self):
        problem = "fwd:sq8:d8"
        self.rejected(2, "--seconds: '0' is not a number above 0 and up to 86400", problem, "--seconds", "0")
        self.rejected(2, "--seconds: 'x' is not a number above 0 and up to 86400", problem, "--seconds=x")
        self.rejected(2, "--seconds: '1e9' is not a number above 0 and up to 86400", problem, "--seconds=1e9")
        self.rejected(2, "--threads (-1) is not between 0 and 1024", problem, "--threads=-1")
        self.rejected(2, "unknown option '--secnods' (nearest: --seconds)", problem, "--secnods=1")
        self.rejected(2, "--clock: unknown clock 'sun' (known: wall, cpu)", problem, "--clock=sun")
        self.rejected(2, "--clock=cpu counts one thread; use it with --threads=1", problem, "--clock=cpu", "--threads=2")
        self.rejected(2, "--csv: the name of the file is empty", problem, "--csv=")
        self.rejected(2, "unexpected argument 'fwd:sq8:d8'", "--list", problem)

    def test_bad_problems(self):
        self.rejected(2, "fwd:d8: sq is missing (the number of queries, as in sq1024)", "fwd:sq8:d8", "fwd:d8")
        self.rejected(3, "sq1:d8:rope: rope rotates queries and keys before there is a problem: attn run, top, view and analyze have --rope",
                     "sq1:d8:rope")
        self.rejected(2, "sq8:d8:hq3:hkv2: heads_q (3) is not a multiple of heads_kv (2)", "sq8:d8:hq3:hkv2", *QUICK)

    def test_files(self):
        with tempfile.TemporaryDirectory() as folder:
            path, out = os.path.join(folder, "problems.txt"), os.path.join(folder, "out.csv")
            self.rejected(2, f"{path}: No such file or directory", "--problems", path)
            with open(path, "w", encoding="utf-8") as file:
                file.write("# nothing yet\n\n   \n")
            self.rejected(2, "no problem; for example: attn bench fwd:f32:hq8:sq1024:d64:causal", "--problems", path)
            with open(path, "a", encoding="utf-8") as file:
                file.write("fwd:sq8:d8  # fine\nfwd:sq8\n")
            self.rejected(2, f"{path}:5: fwd:sq8: d is missing (the width of a query, as in d64)", "--problems", path, "--csv", out)
            self.assertEqual(os.listdir(folder), ["problems.txt"])
            missing = os.path.join(folder, "no", "out.csv")
            self.rejected(2, f"{missing}: cannot be written: No such file or directory", "fwd:sq8:d8", *QUICK, "--csv", missing)


class Files(unittest.TestCase):
    def test_the_standard_list_can_be_run(self):
        with open(os.path.join(BENCH, "problems.txt"), encoding="utf-8") as file:
            problems = [line.split("#")[0].strip() for line in file]
        problems = [line for line in problems if line]
        self.assertGreater(len(problems), 20)
        self.assertEqual(len(problems), len(set(problems)))
        for problem in problems:
            done = subprocess.run([ATTN, "explain", problem, "--json"], capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(json.loads(done.stdout)["problem"], problem)  # as bench reports it, by which files are compared
        # So does bench/results.py take find the results of the rows of the page, except those that are made by hand.
        with open(os.path.join(BENCH, "results", "rows.json"), encoding="utf-8") as file:
            rows = [row for row in json.load(file)["rows"] if row["unit"] != "cycles" and (row["unit"] != "times" or "over" in row)]
        self.assertGreater(len(rows), 20)
        for row in rows:
            self.assertIn(row["unit"], ("%", "times", "us"), row)
            over = row.get("over", [])
            over = [over] if isinstance(over, str) else over
            self.assertTrue({row.get("problem", row["row"]), *over} <= set(problems), row)

    def compare(self, *words):
        return subprocess.run(
            [sys.executable, os.path.join(BENCH, "compare.py"), *words], capture_output=True, text=True, check=False
        )

    def test_csv_and_json_say_the_same_and_compare(self):
        with tempfile.TemporaryDirectory() as folder:
            path = {kind: os.path.join(folder, kind) for kind in ("problems", "json", "csv", "other")}
            with open(path["problems"], "w", encoding="utf-8") as file:
                file.write("fwd:f32:hq2:sq64:d32 # one\n\n  fwd:f32:sq1:skv512:d64\n")
            whole = measured("--problems", path["problems"], "-o", path["csv"])
            with open(path["csv"], encoding="utf-8", newline="") as file:
                rows = list(csv.DictReader(file))
            self.assertEqual([row["problem"] for row in rows], [row["problem"] for row in whole["results"]])
            columns = [dict(flat(result)) for result in whole["results"]]
            for row, result in zip(rows, columns):
                self.assertEqual(list(row)[: len(result)], list(result))
                self.assertEqual((row["cpu"], row["version"]), (whole["machine"]["cpu"], whole["version"]))
                self.assertEqual(float(row["ceilings_stream_gbs"]), whole["machine"]["ceilings"]["stream_gbs"])
                for name, value in result.items():  # every number, as exactly
                    as_text = row[name]
                    same = (as_text == "" if value is None else as_text == value if isinstance(value, str)
                            else [float(x) for x in as_text.split()] == value if isinstance(value, list) else float(as_text) == value)
                    self.assertTrue(same, (name, as_text, value))
            whole["results"][0]["bound"] = "fma"  # whatever it is here: the share of the ceiling is compared
            with open(path["json"], "w", encoding="utf-8") as file:
                json.dump(whole, file)

            whole["results"][0]["share_of_ceiling"] *= 2
            whole["results"][1]["problem"] = "fwd:f32:sq9:d9"
            with open(path["other"], "w", encoding="utf-8") as file:
                json.dump(whole, file)
            for before in (path["json"], path["csv"]):
                done = self.compare(before, path["other"])
                self.assertEqual((done.returncode, done.stderr), (0, ""))
                self.assertIn("only after: fwd:f32:sq9:d9", done.stdout)
            done = self.compare(path["json"], path["other"], "--markdown")
            self.assertRegex(done.stdout, r"(?m)^\| fwd:f32:hq2:sq64:d32 \| FMA \|.* \| 2\.000 \|")

            with open(path["other"], "w", encoding="utf-8") as file:
                file.write("{}")
            done = self.compare(path["json"], path["other"])
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertEqual(done.stderr.count("\n"), 1)
            self.assertIn("not a result of attn bench --json", done.stderr)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], "-v"])
