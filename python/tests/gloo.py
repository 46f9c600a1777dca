# SPDX-License-Identifier: MIT
"""Ranks for tests: processes of torch.distributed with gloo, which are forked, since each import of PyTorch takes seconds; and mpirun."""
import datetime
import multiprocessing
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
import time
import traceback

import pytest

SECONDS = 120  # after which ranks that hang are ended


def _rank(function, rank, ranks, store, pipe, arguments):
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    try:
        dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=ranks, timeout=datetime.timedelta(seconds=SECONDS / 2))
        pipe.send_bytes(pickle.dumps((True, function(*arguments))))
    except BaseException:
        pipe.send_bytes(pickle.dumps((False, traceback.format_exc())))
    pipe.close()
    os._exit(0)  # the parent's exit handlers are not this process's


def run(ranks, function, *arguments, lost=()):
    """function(*arguments) on each of `ranks` ranks: the results in their order; None of ranks in `lost`, which end themselves."""
    context = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as folder:
        pipes, processes = [], []
        for rank in range(ranks):
            ours, theirs = context.Pipe(False)
            processes.append(context.Process(target=_rank, args=(function, rank, ranks, f"{folder}/store", theirs, arguments)))
            processes[-1].start()
            theirs.close()
            pipes.append(ours)
        end, results = time.monotonic() + SECONDS, []
        try:
            for rank, pipe in enumerate(pipes):
                if not pipe.poll(max(0, end - time.monotonic())):
                    raise AssertionError(f"rank {rank} of {ranks} hangs")
                try:
                    results.append(pickle.loads(pipe.recv_bytes()))
                except EOFError:
                    results.append((rank in lost, None))
        finally:
            for process in processes:
                if len(results) < ranks:
                    process.kill()
                process.join()
        for rank, (succeeded, result) in enumerate(results):
            assert succeeded, f"rank {rank} of {ranks}: {result or 'it ended without a word'}"
    return [result for _, result in results]


def mpirun(ranks):
    """The words before a program that run it on so many ranks of MPI; skips the test where there is no MPI, or none that mpi4py finds."""
    if not shutil.which("mpirun"):
        pytest.skip("there is no mpirun")
    found = subprocess.run([sys.executable, "-c", "from mpi4py import MPI; print(MPI.Get_library_version())"], capture_output=True, text=True, check=False)
    if found.returncode:
        pytest.skip(f"mpi4py does not work: {found.stderr.strip().splitlines()[-1]}")
    return ["mpirun", "-n", str(ranks), *(["--oversubscribe"] if "Open MPI" in found.stdout else [])]
