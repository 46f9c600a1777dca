# SPDX-License-Identifier: MIT
"""multiprocessing with fork, after the parent has used threads: every child computes the parent's bits, with threads of its own.

Usage: tests/api/fork.py LIBATTN TOP
"""
import ctypes
import multiprocessing
import os
import sys

LIBRARY, TOP = sys.argv[1:3]
sys.path.insert(0, f"{TOP}/bench")
import structs  # noqa: E402  pylint: disable=wrong-import-position,import-error

LENGTH, DIM, THREADS = 400, 32, 4
COUNT = LENGTH * DIM


def attend(_number):
    """The bits of O, and the number of threads besides the main thread."""
    problem, arguments = ATTN.new("attn_problem"), ATTN.new("attn_tensors")
    shape = problem.shape
    shape.batch = shape.heads_q = shape.heads_kv = 1
    shape.len_q = shape.len_kv = LENGTH
    shape.dim_qk = shape.dim_v = DIM
    tensors = {name: (ctypes.c_float * COUNT)(*(n * k % 89 / 89 for n in range(COUNT))) for name, k in zip("qkvo", (3, 5, 7, 1))}
    for name, array in tensors.items():
        getattr(arguments, name).data = ctypes.addressof(array)
    ATTN.plan(problem, arguments, threads=THREADS).run(arguments)
    return bytes(tensors["o"]), len(os.listdir("/proc/self/task")) - 1


def main():
    expected, threads = attend(0)
    assert threads >= THREADS - 1, f"{threads} threads"
    with multiprocessing.get_context("fork").Pool(3) as pool:
        found = pool.map_async(attend, range(12), chunksize=1).get(timeout=120)
    for bits, threads in found:
        assert bits == expected
        assert threads >= THREADS - 1, f"a child had {threads} threads"
    assert attend(0)[0] == expected
    print(f"{len(found)} results of 3 children are the parent's")


if "fork" not in multiprocessing.get_all_start_methods() or not os.path.isdir("/proc/self/task"):
    print("skipped: no fork here")
    sys.exit(77)
ATTN = structs.Library(LIBRARY, f"{TOP}/include/attn/attn.h")
main()
