# SPDX-License-Identifier: MIT
"""python -m libattn: the command, and programs that it runs."""
import json
import os
import pathlib
import subprocess
import sys

import pytest

import libattn


def run(*arguments, folder=None, **environment):
    words = [sys.executable, "-m", "libattn", *map(str, arguments)]
    return subprocess.run(words, capture_output=True, text=True, check=False, cwd=folder, env={**os.environ, **environment})


def test_the_command():
    found = run("--version")
    assert found.returncode == 0, found.stderr
    assert found.stdout.split() == ["attn", libattn.version()]


def test_status_and_message_are_those_of_the_command():
    found = run("run", "layer.safetensors")
    assert found.returncode == 2 and found.stderr.startswith("attn run: ")


def test_run_alone_says_what_it_takes():
    found, command = run("run"), run("run", "--threads=1")
    assert (found.returncode, found.stdout) == (2, "") and command.returncode == 2
    ours, theirs = found.stderr.split("`attn run`:\n")
    assert "run SCRIPT.py ARGUMENT..." in ours and "run -m MODULE ARGUMENT..." in ours and ours.startswith("python -m libattn run: ")
    assert theirs == command.stderr and theirs.startswith("attn run: ")


def test_without_the_command(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    program = "import pathlib, libattn.__main__ as m; m._command.COMMAND = pathlib.Path('/nowhere/attn'); m.main()"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert found.returncode == 1 and "there is no command attn" in found.stderr


@pytest.fixture
def script(tmp_path):
    (tmp_path / "beside.py").write_text("value = 7\n")
    found = tmp_path / "program.py"
    found.write_text("import json, sys, beside\nprint(json.dumps([__name__, sys.argv, beside.value]))\nsys.exit(3)\n")
    return found


def test_a_script_runs_as_in_python(script):
    found = run("run", script, "--flag", "run", LIBATTN_ENABLE="0")
    assert found.returncode == 3, found.stderr
    assert json.loads(found.stdout) == ["__main__", [str(script), "--flag", "run"], 7]


def test_a_module_runs_as_in_python(script, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(pathlib.Path(libattn.__file__).parent.parent))
    found = run("run", "-m", "program", "x", folder=script.parent, LIBATTN_ENABLE="0")
    assert found.returncode == 3, found.stderr
    name, arguments, value = json.loads(found.stdout)
    assert (name, pathlib.Path(arguments[0]).name, arguments[1:], value) == ("__main__", "program.py", ["x"], 7)


def test_a_program_that_is_missing(tmp_path):
    script = tmp_path / "missing.py"
    (tmp_path / "package").mkdir()
    (tmp_path / "package/__init__.py").write_text("")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken/__init__.py").write_text("import nowhere_at_all\n")
    for words, sentence in (
        ([script], f"{script}: No such file or directory"), (["-m"], "-m: the name of a module is missing"),
        (["-m", "nowhere_at_all"], "-m: there is no module nowhere_at_all"), (["-m", "nowhere.at.all"], "-m: there is no module nowhere.at.all"),
        (["-m", "package.missing"], "-m: there is no module package.missing"),
    ):
        found = run("run", *words, folder=tmp_path, LIBATTN_ENABLE="0")
        assert (found.returncode, found.stderr) == (2, f"python -m libattn run: {sentence}\n")
    found = run("run", "-m", "broken.part", folder=tmp_path, LIBATTN_ENABLE="0")  # that is the package's own error
    assert found.returncode == 1 and "No module named 'nowhere_at_all'" in found.stderr and "Traceback" in found.stderr
