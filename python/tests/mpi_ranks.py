# SPDX-License-Identifier: MIT
"""A rank of MPI for test_distributed.py: the bits of one rank, and errors on all ranks; prints "as one" on rank 0."""
import numpy as np
from mpi4py import MPI

import test_distributed as tests
from libattn import distributed

WORLD = MPI.COMM_WORLD
distributed._groups.PIECE = 1000  # bytes, so that messages have several
for case in ("causal", "window", "bias"):
    given, grads = tests.CASES[case]
    alone = tests.compute(distributed._groups.Alone(), "contiguous", "auto", given, grads)
    for layout, way in (("zigzag", "ring"), ("striped", "direct")):
        assert tests.same(tests.compute(WORLD, layout, way, given, grads), alone), (case, layout)
said = []
for who in range(WORLD.size):
    try:
        distributed.attention(tests.Q[:, :2], tests.Q[:, :2], tests.Q[:, :2], group=WORLD, softcap=-1.0 if WORLD.rank == who else 1.0)
    except ValueError as error:
        said.append(str(error))
assert WORLD.allgather(said) == [["softcap is -1.0; it must be above 0"] * WORLD.size] * WORLD.size
for wrong, sentence in ((MPI.COMM_NULL, "this process is not among its ranks"), (WORLD.group, "group is of type Group; it must be")):
    try:
        distributed.parts(3, group=wrong)
    except (TypeError, ValueError) as error:
        assert sentence in str(error)
    else:
        raise AssertionError(sentence)


def cut(*arguments):
    raise RuntimeError("the wire is cut")


other, said = WORLD.Dup(), []
distributed._groups.transport_of(other).receive = cut
for _ in range(2):
    try:
        distributed.unshard(np.ones((0, 1)), 0, group=other)
    except ConnectionError as error:
        said.append(str(error))
assert "the wire is cut" in said[0] and "make a new group" in said[1], said
other.Free()
total = distributed.sum_parts(np.full((1, 3), 1.0 + WORLD.rank), group=WORLD)
assert (total == WORLD.size * (WORLD.size + 1) / 2).all()
if WORLD.rank == 0:
    print("as one")
