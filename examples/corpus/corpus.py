#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What heads of attention do, on average over a corpus: by several processes, on Dask or on multiprocessing.

    python3 corpus.py TEXTS OUT.json                           one process; TEXTS has a text in each line
    python3 corpus.py TEXTS OUT.json --workers=8               processes of this machine
    python3 corpus.py TEXTS OUT.json --dask --workers=8        the same, by Dask
    python3 corpus.py TEXTS OUT.json --dask=tcp://HOST:8786    workers that Dask has on other machines: they need libattn, and get the rest

The result has the same bits for any engine and number of workers, on CPUs of one kind: a task is a fixed number of texts, whose
statistics depend on nothing else, and tasks are added in their order.  If a worker dies, its tasks are computed again by others; a task
whose worker died three times ends the job.

The heads are those of the recorded layer in ../data, whose words here are vectors drawn from their letters: put your model in the place
of `projected`.  Printed for each head, and written to OUT.json: the entropy of the weights, how far away they are, and how much goes to
the first token and to the token itself; means over all queries but the first of each text.
"""
import argparse
import concurrent.futures
import functools
import json
import multiprocessing
import os
import pathlib
import zlib
from concurrent.futures.process import BrokenProcessPool

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # bits of NumPy's products may depend on it, and workers are parallel anyway

import numpy as np

import libattn

TASK = 16  # texts: the same for any number of workers
ATTEMPTS = 3
HERE = pathlib.Path(__file__).resolve().parent
FILE = "animal_street_layer2.safetensors"
LAYER = HERE / FILE if (HERE / FILE).exists() else HERE.parent / "data" / FILE  # beside it on workers that Dask has sent it to
HEADS, COLUMNS = 12, ("entropy", "distance", "first", "itself")


@functools.cache
def layer():
    return libattn.files.load(LAYER)


def vector(word):
    return np.random.default_rng(zlib.crc32(word.encode())).standard_normal(384, dtype=np.float32) / 10


def projected(text):
    """Queries and keys of a text, [heads, tokens, channels]."""
    x, data = np.stack([vector(word) for word in text.split()]), layer()
    q, k = (x @ np.asarray(data["w" + name]).T + np.asarray(data["b" + name]) for name in "qk")
    return [y.reshape(len(x), HEADS, -1).swapaxes(0, 1) for y in (q, k)]


def statistics(texts):
    """Of a task: (queries, sums over them [heads, columns])."""
    queries, sums = 0, np.zeros((HEADS, len(COLUMNS)))
    for text in texts:
        if len(text.split()) < 2:
            continue
        q, k = projected(text)
        _, weights = libattn.attention(q, k, k, causal=True, return_weights=True, threads=1)
        w, n = np.asarray(weights, np.float64)[:, 1:], q.shape[1]
        away = abs(np.arange(1, n)[:, None] - np.arange(n))
        entropy = -(w * np.log(np.where(w > 0, w, 1))).sum((1, 2))
        sums += np.stack([entropy, (w * away).sum((1, 2)), w[:, :, 0].sum(1), (w * (away == 0)).sum((1, 2))], 1)
        queries += n - 1
    return queries, sums


# ---- engines: function(task) of each task, in their order ----


def by_one(function, tasks, workers):
    return list(map(function, tasks))


def by_processes(function, tasks, workers):
    """multiprocessing has no answer to the death of a worker but to lose the pool: what is not done then begins again in a new one.  A
    task that kills its worker each time is, in the end, left alone."""
    found, deaths, context = {}, 0, multiprocessing.get_context("spawn")
    while len(found) < len(tasks):
        before = len(found)
        try:
            with concurrent.futures.ProcessPoolExecutor(workers, context) as pool:
                begun = {pool.submit(function, task): n for n, task in enumerate(tasks) if n not in found}
                for future in concurrent.futures.as_completed(begun):
                    found[begun[future]] = future.result()
        except BrokenProcessPool:
            deaths = deaths + 1 if len(found) == before else 1
            if deaths == ATTEMPTS:
                raise
    return [found[n] for n in range(len(tasks))]


def by_dask(function, tasks, workers, address=None):
    """Dask sends tasks of a dead worker to another one, and starts it anew."""
    import dask
    import distributed

    with (
        dask.config.set({"distributed.scheduler.allowed-failures": ATTEMPTS - 1}),
        distributed.Client(address) if address else distributed.Client(n_workers=workers, threads_per_worker=1, dashboard_address=None) as client,
    ):
        for file in (LAYER, __file__) if address else ():
            client.upload_file(str(file), load=file is __file__)
        return client.gather(client.map(function, tasks, pure=False))


def run(texts, engine, workers=1, function=statistics):
    """{head: {column: mean}} of all texts."""
    tasks = [texts[n:n + TASK] for n in range(0, len(texts), TASK)]
    queries, sums = 0, np.zeros((HEADS, len(COLUMNS)))
    for more_queries, more in engine(function, tasks, workers):
        queries, sums = queries + more_queries, sums + more
    means = sums / max(queries, 1)
    return {"texts": len(texts), "queries": queries, "heads": [dict(zip(COLUMNS, row, strict=True)) for row in means.tolist()]}


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("texts", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--dask", nargs="?", const="", metavar="ADDRESS", help="by Dask: by a scheduler, or by processes of its own")
    given = parser.parse_args()
    engine = by_one if given.workers == 1 else by_processes
    if given.dask is not None:
        engine = functools.partial(by_dask, address=given.dask or None)
    found = run(given.texts.read_text(encoding="utf-8").splitlines(), engine, given.workers)
    given.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print("head  " + "  ".join(f"{name:>8}" for name in COLUMNS))
    for n, row in enumerate(found["heads"]):
        print(f"{n:4}  " + "  ".join(f"{row[name]:8.3f}" for name in COLUMNS))


if __name__ == "__main__":
    import corpus  # by this name, workers of Dask find the functions in what they were sent

    corpus.main()
