# SPDX-License-Identifier: MIT
"""examples/corpus: the same statistics by any engine and any number of workers, also if one of them dies."""
import json
import os
import pathlib
import signal
import subprocess
import sys

import numpy as np
import pytest

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "examples/corpus"
sys.path.insert(0, str(FOLDER))  # workers get it, too

import corpus  # noqa: E402

WORDS = "the animal did not cross the street because it was tired and so were we".split()
TEXTS = [" ".join(np.random.default_rng(n).choice(WORDS, n % 9)) for n in range(5 * corpus.TASK - 3)]


def deadly(task):
    """corpus.statistics; the first worker that gets one of the tasks in DEATHS dies."""
    folder, *numbers = os.environ["DEATHS"].split(",")
    number = next(n for n in range(5) if task == TEXTS[n * corpus.TASK:(n + 1) * corpus.TASK])
    if str(number) in numbers:
        try:
            os.close(os.open(f"{folder}/{number}", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return corpus.statistics(task)
        os.kill(os.getpid(), signal.SIGKILL)
    return corpus.statistics(task)


def hopeless(task):
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.fixture(scope="module")
def alone():
    return corpus.run(TEXTS, corpus.by_one)


def test_statistics(alone):
    assert alone["texts"] == len(TEXTS) and alone["queries"] == sum(max(len(text.split()) - 1, 0) for text in TEXTS)
    for row in alone["heads"]:
        assert 0 < row["entropy"] < np.log(9) and 0 < row["distance"] < 8 and 0 < row["first"] < 1 and 0 < row["itself"] < 1
    two = corpus.run(["a a", "a"], corpus.by_one)["heads"][0]  # two equal tokens: half to each
    assert two == pytest.approx({"entropy": np.log(2), "distance": 0.5, "first": 0.5, "itself": 0.5})


@pytest.mark.parametrize("engine", ["by_processes", "by_dask"])
def test_a_worker_dies(engine, alone, tmp_path, monkeypatch):
    if engine == "by_dask":
        pytest.importorskip("distributed", reason="Dask is not installed (examples/corpus/requirements.txt)")
    workers, numbers = (2, ["2"]) if engine == "by_dask" else (1, ["0", "2", "4"])  # as many deaths as one task may cause
    (tmp_path / "deaths").mkdir()
    monkeypatch.setenv("DEATHS", ",".join([str(tmp_path / "deaths"), *numbers]))
    monkeypatch.chdir(tmp_path)  # Dask writes beside itself
    assert corpus.run(TEXTS, getattr(corpus, engine), workers, deadly) == alone
    assert sorted(os.listdir(tmp_path / "deaths")) == numbers


def test_workers_elsewhere(alone, tmp_path, monkeypatch):
    """Workers that the program has not started, and that know nothing of it."""
    dask = pytest.importorskip("distributed", reason="Dask is not installed (examples/corpus/requirements.txt)")
    monkeypatch.setattr(corpus, "LAYER", corpus.LAYER)  # the scheduler, which is in this process, loads the module again
    monkeypatch.setattr(sys, "path", [x for x in sys.path if x != str(FOLDER)])
    (tmp_path / "texts").write_text("\n".join(TEXTS))
    with dask.LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None) as cluster:
        words = [FOLDER / "corpus.py", tmp_path / "texts", tmp_path / "out.json", f"--dask={cluster.scheduler_address}"]
        subprocess.run([sys.executable, *words], check=True)
    assert json.loads((tmp_path / "out.json").read_text()) == alone


def test_all_workers_die(monkeypatch):
    monkeypatch.setattr(corpus, "ATTEMPTS", 1)
    with pytest.raises(corpus.BrokenProcessPool):
        corpus.run(TEXTS[:1], corpus.by_processes, 1, hopeless)


def test_command(alone, tmp_path, monkeypatch, capsys):
    (tmp_path / "texts").write_text("\n".join(TEXTS))
    monkeypatch.setattr(sys, "argv", ["corpus.py", str(tmp_path / "texts"), str(tmp_path / "out.json")])
    corpus.main()
    assert json.loads((tmp_path / "out.json").read_text()) == alone
    assert len(capsys.readouterr().out.splitlines()) == 1 + corpus.HEADS
