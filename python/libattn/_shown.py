# SPDX-License-Identifier: MIT
"""Arrays and files as input of the command's pages and pictures, for libattn.view and libattn.plot."""
from __future__ import annotations

import json
import os
import pathlib
import tempfile
from typing import Any, Mapping, Sequence, Union

import numpy as np

from . import _command, files
from ._arrays import Array, asarray

Path = Union[str, "os.PathLike[str]"]
Tokens = Union[Sequence[str], Sequence[Sequence[str]]]


def is_path(data: Any) -> bool:
    return isinstance(data, (str, os.PathLike))


def floats(x: Any, name: str) -> Array:
    """An array of floats that the command reads; of tensors that require a gradient, the numbers; of a list of arrays, a stack of them."""
    if isinstance(x, (list, tuple)) and x and hasattr(x[0], "shape"):
        return np.stack([floats(one, f"{name}[{i}]") for i, one in enumerate(x)])
    array = asarray(x.detach() if hasattr(x, "detach") else x, name)
    if array.dtype.name not in ("float16", "bfloat16", "float32", "float64"):
        array = array.astype(np.float64 if array.dtype.itemsize > 2 else np.float32)
    return array


def words_of(tokens: Any) -> str:
    """The tokens as the metadata of a file has them: a list of words, or a list of such lists."""
    if isinstance(tokens, str):
        raise TypeError(f"tokens is a text; it must be a list of words, such as {tokens.split()}")
    nested = [[str(word) for word in one] if isinstance(one, (list, tuple)) else str(one) for one in tokens]
    return json.dumps(nested)


def metadata_of(tokens: Tokens | None, rank: int, **more: str) -> dict[str, str]:
    """Metadata of arrays [layers, batch, heads, ...] of five axes, [layers, heads, ...] or, with tokens for each, [batch, heads, ...]."""
    if rank > 5:
        raise ValueError(f"there are {rank} axes; at most 5 are possible: layers, batch, heads and two more")
    axes = ["layer", "entry", "head", "row", "column"] if rank == 5 else ["head", "row", "column"][-min(rank, 3):]
    if rank == 4:
        nested = tokens is not None and len(tokens) > 0 and not isinstance(tokens[0], str)
        axes = ["entry" if nested else "layer", *axes]
    found = {"layout": f"[{', '.join(axes)}]", **more}
    if tokens is not None:
        found["tokens"] = words_of(tokens)
    return found


def made(words: Sequence[str], extension: str, paths: Sequence[str], contents: Mapping[str, Mapping[str, Any] | str] | None = None,
         metadata: Mapping[str, str] | None = None) -> str:
    """What the command writes, as text: of the files `paths`, which are first made if `contents` has their tensors or their text."""
    with tempfile.TemporaryDirectory(prefix="libattn-") as folder:
        for name, content in (contents or {}).items():
            if isinstance(content, str):
                pathlib.Path(folder, name).write_text(content, encoding="utf-8")
            else:
                files.save(os.path.join(folder, name), content, metadata=metadata)
        out = os.path.join(folder, f"out{extension}")
        try:
            _command.run([*words, *(f"./{path}" if path.startswith("-") else path for path in paths), "-o", out], folder if contents else os.curdir)
        except (ValueError, NotImplementedError) as error:
            text = str(error)
            for name in contents or {}:
                text = text.removeprefix(f"{name}: ")
            raise type(error)(text) from None
        return pathlib.Path(out).read_text(encoding="utf-8")


def write(path: Path, text: str, extensions: Sequence[str]) -> None:
    """Writes a text as a whole or not at all."""
    if pathlib.Path(path).suffix not in extensions:
        raise ValueError(f"{os.fspath(path)} does not end in {' or '.join(extensions)}")
    files.file_write(path, text.encode())
