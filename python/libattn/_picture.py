# SPDX-License-Identifier: MIT
"""libattn.plot: pictures of weights, masks, gradients and measurements, in a notebook or as files."""
from __future__ import annotations

import json
from typing import Any, Mapping, Sequence

import numpy as np

from . import _command, _shown
from ._arrays import asarray
from ._shown import Path, Tokens

# What a kind reads: the name of its tensor, where one array is enough.
TENSOR = {
    "weights": "weights", "heads": "weights", "compare": "weights", "entropy": "weights", "temperature": "scores", "mask": "mask",
    "steps": "", "gradients": "", "hopfield": "", "runtime": "", "latency": "", "peers": "",
}


class Picture:
    """A picture as SVG, for light and dark screens; a notebook shows it as the result of a cell.

    svg      the picture
    """

    def __init__(self, svg: str) -> None:
        self.svg = svg

    def save(self, path: Path) -> None:
        """Writes the picture to a file .svg; an existing file is replaced as a whole or not at all."""
        _shown.write(path, self.svg, [".svg"])

    def _repr_svg_(self) -> str:
        return self.svg

    def __repr__(self) -> str:
        return f"Picture({len(self.svg.encode()) / 1e3:.0f} kB of SVG)"


def plot(
    kind: str, *data: Any, tokens: Tokens | None = None, title: str | None = None, layer: int | str | Sequence[int] | None = None,
    head: int | str | Sequence[int] | None = None, entry: int | None = None, query: int | None = None, high: float | str | None = None,
) -> Picture:
    """A picture: what `attn plot` draws.

        libattn.plot("weights", w, tokens=words, layer=3, head=1)       a head's weights
        libattn.plot("compare", w, other)                               the same head of each
        libattn.plot("gradients", {"dq": dq, "dk": dk, "dv": dv})       several tensors

    kind             data
    "weights"        weights: one head, with tokens on both axes
    "heads"          weights: all heads side by side
    "compare"        weights, up to eight arrays: a head under several mechanisms
    "entropy"        weights: the distribution of the entropies of rows
    "temperature"    scores, before the softmax: entropy and weights by temperature
    "mask"           a mask of bool, True where a query sees a key
    "steps"          {"q", "scores", "weights", "o"}: from queries to outputs
    "gradients"      {"dq", "dk", "dv"}: gradients, and their norms
    "hopfield"       the tensors of `attn hopfield`
    "runtime", "latency", "peers"    the JSON of `attn bench --json`, as a dict

    data             each an array, a dict of arrays, or the path of a file that the command reads.  Arrays are [heads, queries, keys];
                     a matrix is one head, an axis before these is layers (batch entries, if tokens are a list of lists), two are
                     layers and batch entries; a list of arrays is one layer each
    tokens           a list of words for the keys, and for the queries where there are as many; a list for each batch entry
    layer, head      only these; in a picture of one head, that one (default: the first)
    entry            this batch entry
    query            the query of "temperature" and "compare" (default: the last)
    high             the upper end of a scale of weights (default 1), or "max"

    Returns a Picture: the last value of a cell of a notebook, or `.save("picture.svg")`.

    Raises ValueError for an unknown kind, tensors that are missing or do not fit, and a choice of heads or layers that do not exist;
    FileNotFoundError where the package was built without the command attn.
    """
    if kind not in TENSOR:
        raise ValueError(f"there is no picture {kind!r}; known: {', '.join(TENSOR)}")
    if not data:
        raise ValueError(f"{kind}: there is nothing to draw; data is missing")
    words = ["plot", *_command.numbers("layer", layer), *_command.numbers("head", head), *([f"--title={title}"] if title is not None else [])]
    words += [f"--{name}={value}" for name, value in (("entry", entry), ("query", query), ("high", high)) if value is not None]
    if all(_shown.is_path(one) for one in data):
        if tokens is not None:
            raise ValueError("data are files, which have their own tokens")
        return Picture(_shown.made([*words, kind], ".svg", [str(one) for one in data]))
    if len(data) == 1 and isinstance(data[0], Mapping) and not tensors_in(data[0]):
        return Picture(_shown.made([*words, kind], ".svg", ["data.json"], {"data.json": json.dumps(data[0])}))
    tensors = {f"data{i + 1}.safetensors" if len(data) > 1 else "data.safetensors": tensors_of(kind, one) for i, one in enumerate(data)}
    rank = max(array.ndim for arrays in tensors.values() for array in arrays.values())
    return Picture(_shown.made([*words, kind], ".svg", list(tensors), tensors, _shown.metadata_of(tokens, rank)))


def tensors_in(data: Mapping[str, Any]) -> bool:
    """Is it a dict of arrays (and not the JSON of a benchmark)?"""
    return any(hasattr(value, "shape") for value in data.values())


def tensors_of(kind: str, data: Any) -> dict[str, Any]:
    if isinstance(data, Mapping):
        return {name: array_of(value, name) for name, value in data.items()}
    if _shown.is_path(data):
        raise ValueError(f"{kind}: data are files or arrays, not both")
    if not TENSOR[kind]:
        raise ValueError(f"{kind}: data must be a dict of what it reads, not one array")
    return {TENSOR[kind]: array_of(data, TENSOR[kind])}


def array_of(x: Any, name: str) -> Any:
    if name == "mask":
        array = asarray(x, name)
        return array if array.dtype == np.bool_ else array != 0
    return _shown.floats(x, name)

