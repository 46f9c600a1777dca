# SPDX-License-Identifier: MIT
"""bench/errors.py without PyTorch: libattn's results are within their error bounds, and wrong results are detected."""
import argparse
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
import libattn  # noqa: E402  pylint: disable=wrong-import-position,import-error
import peers  # noqa: E402  pylint: disable=wrong-import-position,import-error

errors.np = peers.np = np
CHOSEN = argparse.Namespace(against="definition", threads=2)


class Errors(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.library = libattn.Library(LIBRARY, f"{TOP}/include/attn/attn.h")

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
            said = errors.faults(rows, errors.summary(rows, "definition"))
            self.assertTrue(said and all(line.startswith(f"{name} is off by") for line in said), said)

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


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
