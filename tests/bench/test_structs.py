# SPDX-License-Identifier: MIT
"""bench/structs.py: structs read from attn.h have the compiler's layout, and a plan runs."""
import ctypes
import struct
import subprocess
import sys
import unittest

PRINT, LIBRARY, TOP = sys.argv[1:4]
sys.path.insert(0, f"{TOP}/bench")
import structs  # noqa: E402  pylint: disable=wrong-import-position,import-error

HEADER = f"{TOP}/include/attn/schedule.h"


class Structs(unittest.TestCase):
    def test_layout(self):
        types, _ = structs.read_header(HEADER)
        lines = subprocess.run([PRINT], capture_output=True, text=True, check=True).stdout.splitlines()
        self.assertGreater(len(lines), 20)
        for line in lines:
            name, field, number = line.split()
            found = ctypes.sizeof(types[name]) if field == "-" else getattr(types[name], field).offset
            self.assertEqual(found, int(number), line)

    def test_enumerators(self):
        _, values = structs.read_header(HEADER)
        self.assertEqual((values["ATTN_OK"], values["ATTN_BF16"], values["ATTN_BACKWARD"]), (0, 4, 1))


class Plans(unittest.TestCase):
    def setUp(self):
        self.attn = structs.Library(LIBRARY, HEADER)

    def problem(self, length):
        made = self.attn.new("attn_problem")
        shape = made.shape
        shape.batch, shape.heads_q, shape.heads_kv, shape.len_q, shape.len_kv, shape.dim_qk, shape.dim_v = 1, 1, 1, 1, length, 1, 1
        return made

    def test_runs(self):
        one, three = ctypes.c_float * 1, ctypes.c_float * 3
        q, k, v, o = one(0), three(1, 2, 3), three(1, 2, 6), one(0)
        tensors = self.attn.new("attn_tensors")
        for name, array in {"q": q, "k": k, "v": v, "o": o}.items():
            getattr(tensors, name).data = ctypes.addressof(array)
        self.attn.plan(self.problem(3), tensors, threads=1).run(tensors)
        self.assertAlmostEqual(struct.unpack("f", bytes(o))[0], 3.0, places=6)

    def test_runs_with_a_schedule(self):
        """Of two sequences in one cache, the second has a length of 1."""
        problem, tensors = self.problem(3), self.attn.new("attn_tensors")
        problem.shape.batch = 2
        q, k, v, o = (ctypes.c_float * 2)(0, 0), (ctypes.c_float * 6)(*range(6)), (ctypes.c_float * 6)(1, 2, 6, 5, 9, 9), (ctypes.c_float * 2)()
        lengths = (ctypes.c_int64 * 2)(3, 1)
        for name, array in {"q": q, "k": k, "v": v, "o": o, "lengths_kv": lengths}.items():
            getattr(tensors, name).data = ctypes.addressof(array)
        plan = self.attn.plan(problem, tensors, threads=1)
        plan.schedule(tensors)
        self.assertTrue(tensors.call)
        plan.run(tensors)
        self.assertEqual([round(x, 6) for x in o], [3, 5])
        lengths[1] = 2
        with self.assertRaisesRegex(structs.LibraryError, "schedule"):
            plan.run(tensors)

    def test_says_what_is_wrong(self):
        wrong = self.problem(-1)
        with self.assertRaisesRegex(structs.LibraryError, "len_kv"):
            self.attn.plan(wrong, self.attn.new("attn_tensors"), threads=1)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
