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

HEADER = f"{TOP}/include/attn/attn.h"


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

    def test_says_what_is_wrong(self):
        wrong = self.problem(-1)
        with self.assertRaisesRegex(structs.LibraryError, "len_kv"):
            self.attn.plan(wrong, self.attn.new("attn_tensors"), threads=1)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
