# SPDX-License-Identifier: MIT
"""The command attn that comes with the package, called with tensors instead of files."""
from __future__ import annotations

import pathlib
import shutil
import subprocess
from typing import Sequence

COMMAND = pathlib.Path(__file__).parent / "bin" / "attn"


def find() -> str | None:
    """The command of this package, or else the one on the PATH; None if there is neither."""
    return str(COMMAND) if COMMAND.exists() else shutil.which("attn")


def absent() -> str:
    """The sentence for what needs the command where there is none."""
    return f"there is no command attn, neither {COMMAND} nor on the PATH"


def run(words: Sequence[str], folder: str) -> None:
    """Runs the command in a folder.  Its one sentence becomes a ValueError, or a NotImplementedError where its status is 3."""
    command = find()
    if command is None:
        raise FileNotFoundError(absent())
    done = subprocess.run([command, *words], cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode:
        said = done.stderr.strip().removeprefix(f"attn {words[0]}: ") or f"attn {words[0]} ended with status {done.returncode}"
        raise (NotImplementedError if done.returncode == 3 else ValueError)(said)


def numbers(what: str, chosen: int | str | Sequence[int] | None) -> list[str]:
    """The flag --WHAT=LIST of a number, a list of numbers, or a text such as "0,3-5"."""
    if chosen is None:
        return []
    text = chosen if isinstance(chosen, str) else ",".join(map(str, [chosen] if isinstance(chosen, int) else chosen))
    return [f"--{what}={text}"]
