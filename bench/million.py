#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A million tokens over processes: what they take in memory and time, and the bits of what comes out.

    export PYTHONPATH=build/release/python
    mpirun -n 4 python3 bench/million.py               # a causal window of 4096 keys, forward and backward; one head, D 64, f32
    python3 bench/million.py                           # the same by one process: the same bits
    mpirun -n 4 python3 bench/million.py --dense=64    # forward of the first 64th of the queries, with all keys

Needs mpi4py where there is more than one process.  Rank 0 prints one object of JSON:

    results     a checksum of each result of all ranks, in the order of the tokens
    tensors     bytes of all arguments and results, of all ranks together
    memory      the peak of each rank (VmHWM), with Python and NumPy, and before there were tensors
    share       the peaks of all ranks over `tensors`
    seconds     of the slowest rank; with --dense also `whole`, that time multiplied to all queries: extrapolated, not measured
    workspace   bytes of the plans' workspaces, of all ranks

The numbers of a part depend on its number alone, so no process ever has the whole.
"""
import argparse
import hashlib
import json
import os
import re
import time

import numpy as np

from libattn import distributed

DIM = 64
PRIMES = {"q": 2, "k": 3, "v": 5, "grad_o": 7}


def join():
    """The group of all ranks, as mpirun has it: None alone."""
    if any(name in os.environ for name in ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE")):
        from mpi4py import MPI

        return MPI.COMM_WORLD
    return None


def peak():
    """The most memory that this process has had at a time."""
    with open("/proc/self/status") as status:
        return int(re.search(r"VmHWM:\s*(\d+) kB", status.read())[1]) * 1024


def rows(name, parts):
    """[1, 1, own tokens, DIM], the rank's rows of a tensor."""
    x = np.empty((1, 1, sum(p.tokens for p in parts), DIM), np.float32)
    for p in parts:
        np.random.default_rng([PRIMES[name], p.number]).standard_normal(out=x[0, 0, p.local:p.local + p.tokens], dtype=np.float32)
    return x


def checksums(x, parts):
    """(number, checksum) of each part of a result."""
    return [(p.number, hashlib.sha256(x[0, 0, p.local:p.local + p.tokens]).hexdigest()) for p in parts]


def together(found):
    """One checksum of those of all parts, each of which one rank has."""
    return hashlib.sha256("".join(text for _, text in sorted(set(found))).encode()).hexdigest()[:16]


def windowed(group, given, threads):
    """Forward and backward; (results by name, arguments, seconds by name, workspaces)."""
    how = {"group": group, "part": given.part}
    parts = distributed.parts(given.tokens, **how)
    q, k, v, grad_o = (rows(name, parts) for name in PRIMES)
    options = {**how, "causal": True, "window": (given.window - 1, 0), "threads": threads}
    seconds, workspaces = {}, {}
    began = time.perf_counter()
    plan = distributed.Plan(q, k, v, return_lse=True, **options)
    o, lse = plan.execute(q, k, v)
    workspaces["forward"] = plan.description.workspace_bytes
    del plan  # and with it its workspace
    seconds["forward"] = time.perf_counter() - began
    began = time.perf_counter()
    plan = distributed.Plan(q, k, v, op="backward", arrays={"o": o, "lse": lse, "grad_o": grad_o}, **options)
    grads = plan.execute(q, k, v)
    workspaces["backward"] = plan.description.workspace_bytes
    seconds["backward"] = time.perf_counter() - began
    results = {"o": o, "lse": lse, **dict(zip(("grad_q", "grad_k", "grad_v"), grads, strict=True))}
    return {name: checksums(x, parts) for name, x in results.items()}, (q, k, v, grad_o, *results.values()), seconds, workspaces


def dense(group, given, threads):
    """Forward of 1/dense of the queries, which all ranks have, with all keys, which stay where they are; as `windowed` returns."""
    tokens, how = given.tokens // given.dense, {"group": group, "part": given.part}
    first = [distributed.Part(n, n * given.part, min(given.part, tokens - n * given.part), n * given.part) for n in range(-(-tokens // given.part))]
    q, (k, v) = rows("q", first), (rows(name, distributed.parts(given.tokens, **how)) for name in "kv")
    began = time.perf_counter()
    plan = distributed.Plan(q, k, v, way="split-keys", threads=threads, **how)
    o = plan.execute(q, k, v)
    seconds = time.perf_counter() - began
    return {"o": checksums(o, first)}, (q, k, v, o), {"forward": seconds}, {"forward": plan.description.workspace_bytes}


def at_least_one(word):
    """A number of tokens."""
    if int(word) < 1:
        raise argparse.ArgumentTypeError(f"{word} is below 1")
    return int(word)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--tokens", type=at_least_one, default=1 << 20)
    parser.add_argument("--window", type=at_least_one, default=4096, help="keys that a query sees, itself among them")
    parser.add_argument("--part", type=at_least_one, default=1024)
    parser.add_argument("--dense", type=int, default=0, help="all keys, for 1/DENSE of the queries, forward alone")
    parser.add_argument("--threads", type=int, default=0, help="of a process; default: the CPUs over the processes, at least 1")
    given = parser.parse_args()
    group = join()
    ranks, before = group.size if group else 1, peak()
    threads = given.threads or max(len(os.sched_getaffinity(0)) // ranks, 1)
    results, tensors, seconds, workspaces = (dense if given.dense else windowed)(group, given, threads)
    mine = {"results": results, "tensors": sum(x.nbytes for x in tensors), "peak": peak(), "before": before, "seconds": seconds, "workspaces": workspaces}
    all_ranks = group.gather(mine) if group else [mine]
    if not all_ranks:
        return
    tensors = sum(one["tensors"] for one in all_ranks)
    slowest = {name: max(one["seconds"][name] for one in all_ranks) for name in seconds}
    print(json.dumps({
        "tokens": given.tokens, "part": given.part, **({"dense": given.dense} if given.dense else {"window": given.window}),
        "ranks": ranks, "threads": threads,
        "results": {name: together([tuple(part) for one in all_ranks for part in one["results"][name]]) for name in results},
        "tensors": tensors, "memory": [one["peak"] for one in all_ranks], "before": [one["before"] for one in all_ranks],
        "share": round(sum(one["peak"] for one in all_ranks) / tensors, 3),
        "workspace": {name: sum(one["workspaces"][name] for one in all_ranks) for name in workspaces},
        "seconds": {**{name: round(x, 1) for name, x in slowest.items()}, **({"whole": round(slowest["forward"] * given.dense)} if given.dense else {})},
    }, indent=1))


if __name__ == "__main__":
    main()
