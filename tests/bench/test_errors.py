# SPDX-License-Identifier: MIT
"""bench/errors.py without PyTorch: libattn's results are within their error bounds, and wrong results are detected."""
import argparse
import json
import sys
import unittest

LIBRARY, TOP = sys.argv[1:3]
sys.path.insert(0, f"{TOP}/bench")
try:
    import numpy as np
except ImportError:
    print("skipped: no numpy")
    sys.exit(77)
import errors  # noqa: E402  pylint: disable=wrong-import-position,import-error
import structs  # noqa: E402  pylint: disable=wrong-import-position,import-error
import peers  # noqa: E402  pylint: disable=wrong-import-position,import-error

errors.np = peers.np = np
CHOSEN = argparse.Namespace(against="definition", threads=2)


class Errors(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.library = structs.Library(LIBRARY, f"{TOP}/include/attn/attn.h")

    def rows(self, dtype, count):
        return [errors.judge(errors.Problem(seed, dtype), CHOSEN, self.library) for seed in range(1, count + 1)]

    def test_within_bounds(self):
        for dtype in errors.DIGITS:
            rows = self.rows(dtype, 20)
            lines = errors.summary(rows, "definition")
            self.assertEqual(errors.faults(rows, lines), [])
            self.assertEqual(len(lines), 8)
            for line in lines:
                self.assertGreater(line["libattn fraction"], 1e-6)
                if dtype != "f32" and line["tensor"] == "o":  # a single rounding dominates
                    self.assertLess(line["libattn"]["worst"], 0.51)

    def test_wrong_results_are_found(self):
        computed = errors.by_libattn
        for name in errors.TENSORS:

            def off(*words, name=name):
                results = computed(*words)
                array = results[name]
                array[..., -1] = array[..., -1] * np.float32(1.02) + np.float32(0.01)
                return results

            errors.by_libattn = off
            try:
                rows = self.rows("f32", 3)
            finally:
                errors.by_libattn = computed
            report = errors.faults(rows, errors.summary(rows, "definition"))
            self.assertTrue(report and all(line.startswith(f"{name} is off by") for line in report), report)

    def test_units(self):
        self.assertEqual(errors.last_place("bf16", np.array([-3.0, 1.0])), 2.0**-6)
        self.assertEqual(errors.last_place("f16", np.array([2.0**-20])), 2.0**-24)
        self.assertEqual(errors.rounding("f32", np.array([1.0, 3.0])).tolist(), [2.0**-24, 2.0**-23])

    def test_ratios_above_one_are_found(self):
        def line(larger, smaller, ratio):
            ratios = {"median": ratio, "95 %": 2.0, "worst": 2.0}
            return {"dtype": "f32", "tensor": "o", "measure": "rms", "ratio": ratios, "larger": larger, "smaller": smaller}

        self.assertEqual(errors.faults([], [line(105, 95, 1.001), line(0, 200, 0.5)]), [])
        self.assertEqual(len(errors.faults([], [line(130, 70, 1.02)])), 1)

    def test_page(self):
        text, run = errors.PAGE.read_text(encoding="utf-8"), json.loads(errors.KEPT.read_text(encoding="utf-8"))
        self.assertEqual(errors.filled(text, run), text, "docs/numerics.md is not what bench/errors.py --write made")
        self.assertFalse(run["commit"].endswith("+"), "measured with changes that are in no commit")
        run["summary"][0]["libattn"]["median"] += 1
        self.assertNotEqual(errors.filled(text, run), text)

    def test_write(self):
        rows = [errors.judge(errors.Problem(seed, "f32"), CHOSEN, self.library) for seed in (1, 2)]
        for row in rows:  # in place of PyTorch, libattn itself
            row["torch_errors"] = row["libattn_errors"]
        run = json.loads(errors.KEPT.read_text(encoding="utf-8"))
        lines = errors.summary(rows, "torch")
        run |= {"against": "torch", "faults": [], "problems": rows, "summary": lines, "few_keys": errors.few_keys(rows, 1000)}
        back = json.loads(errors.kept(run))
        self.assertNotIn("problems", back)
        self.assertEqual(back["summary"], lines)
        self.assertEqual(back["few_keys"], {"below": 1000, "problems": 2, "ratio": 1.0})
        self.assertIn("1.00 for o in the 2 problems of fewer than 1000 keys", errors.section(back).replace("\n", " "))
        for name, value in (("against", "definition"), ("faults", ["one"])):
            with self.assertRaises(SystemExit):
                errors.kept(run | {name: value})

    def test_instruction_set(self):
        self.assertRegex(errors.isa(self.library), "^(scalar|avx2|avx512|neon|wasm128)(, |$)")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
