# SPDX-License-Identifier: MIT
"""python -m libattn: the command `attn`, and unchanged programs of Python with libattn's attention.

    python -m libattn ARGUMENT...                     the command attn: python -m libattn --help
    python -m libattn run SCRIPT.py ARGUMENT...       runs a program, in which torch's attention is libattn's
    python -m libattn run -m MODULE ARGUMENT...       the same for a module

The last two call libattn.torch.enable() first; with LIBATTN_ENABLE=0 in the environment they do not.
"""

from __future__ import annotations

import importlib.util
import os
import pathlib
import runpy
import sys
from typing import NoReturn

from . import _command


USAGE = """\
python -m libattn run: what is to run?
  python -m libattn run SCRIPT.py ARGUMENT...     a program, in which torch's attention is libattn's
  python -m libattn run -m MODULE ARGUMENT...     the same for a module
  python -m libattn run FILE ARGUMENT...          attention over the tensors of a file, as the command `attn run`:"""


def command(arguments: list[str]) -> NoReturn:
    """Becomes the command attn: that of this package, or else the one on the PATH."""
    found = _command.find()
    if found is None:
        sys.exit(f"python -m libattn: {_command.absent()}")
    os.execv(found, ["attn", *arguments])


def wrong(sentence: str) -> NoReturn:
    """One line and the status of a wrong argument, as the command has them."""
    print(f"python -m libattn run: {sentence}", file=sys.stderr)
    sys.exit(2)


def exists(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError as error:  # of a package that it names; others are the package's own
        if error.name and f"{module}.".startswith(f"{error.name}."):
            return False
        raise


def program(arguments: list[str]) -> None:
    """Runs a script or a module as Python itself does, after libattn.torch.enable()."""
    if arguments[0] == "-m":
        if len(arguments) < 2:
            wrong("-m: the name of a module is missing")
        sys.path.insert(0, os.getcwd())
        if not exists(arguments[1]):
            wrong(f"-m: there is no module {arguments[1]}")
    else:
        try:
            open(arguments[0], "rb").close()
        except OSError as error:
            wrong(f"{arguments[0]}: {error.strerror}")
    if os.environ.get("LIBATTN_ENABLE", "1") != "0":
        from .torch import enable

        enable()
    if arguments[0] == "-m":
        sys.argv = arguments[1:]
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = arguments
        sys.path.insert(0, str(pathlib.Path(arguments[0]).resolve().parent))
        runpy.run_path(arguments[0], run_name="__main__")


def main() -> None:
    arguments = sys.argv[1:]
    if arguments == ["run"]:  # `attn run` without arguments says what it takes; here that is half of it
        print(USAGE, file=sys.stderr)
    if len(arguments) > 1 and arguments[0] == "run" and (arguments[1] == "-m" or arguments[1].endswith(".py")):
        program(arguments[1:])
    else:
        command(arguments)


if __name__ == "__main__":
    main()
