# SPDX-License-Identifier: MIT
"""libattn.view: all heads on one page, in a notebook or as a file."""
from __future__ import annotations

import html
from typing import Any, Sequence

import numpy as np

from . import _command, _shown
from ._attention import attention
from ._shown import Path, Tokens

FILE = "arrays.safetensors"


class Page:
    """A page of HTML that needs no network and no other file; a notebook shows it as the result of a cell.

    html     the page
    height   of its frame in a notebook, in pixels
    """

    def __init__(self, html: str, height: int = 640) -> None:
        self.html = html
        self.height = height

    def save(self, path: Path) -> None:
        """Writes the page to a file .html, which any browser opens; an existing file is replaced as a whole or not at all."""
        _shown.write(path, self.html, [".html"])

    def _repr_html_(self) -> str:
        """The page in a frame, so that its styles and the notebook's do not mix."""
        page = html.escape(self.html)
        return f'<iframe title="Attention weights" srcdoc="{page}" style="width: 100%; height: {self.height}px; border: 0"></iframe>'

    def __repr__(self) -> str:
        return f"Page({len(self.html.encode()) / 1e6:.1f} MB of HTML)"


def view(
    data: Any, k: Any = None, *, tokens: Tokens | None = None, title: str | None = None, layers: int | str | Sequence[int] | None = None,
    heads: int | str | Sequence[int] | None = None, entries: int | str | Sequence[int] | None = None, queries: int | str | None = None,
    height: int = 640, **options: Any,
) -> Page:
    """One page that shows the weights of all heads: what `attn view` writes.  Hover, click, or press a key: `?` lists them.

        libattn.view(weights, tokens=words)             weights
        libattn.view(q, k, tokens=words, causal=True)   weights of queries and keys, with any option of libattn.attention
        libattn.view("heads.safetensors")               a file, as for the command

    data, k    weights [heads, queries, keys]; or q [heads_q, queries, dim] and k [heads_kv, keys, dim], where heads_q is a multiple
               of heads_kv.  A matrix is one head; an axis before these is layers (batch entries, if tokens are a list of lists), two
               are layers and batch entries.  A list of arrays is one layer each, as in `attentions` of transformers
    tokens     a list of words for the keys, and for the queries where there are as many; a list for each batch entry
    title      the heading
    layers, heads, entries      only these: a number, a list of numbers, or a text such as "0,3-5"
    queries    only these: a number, or a text such as "100-199"
    height     of the frame in a notebook, in pixels
    options    of libattn.attention, for q and k: causal, window, scale, mask, ...; layout is "bhsd"

    Returns a Page: the last value of a cell of a notebook, or `.save("page.html")`.  Its heading counts the rows that are no weights of
    a softmax, if there are any: with NaN or infinities, numbers below 0, or a sum that is neither 1 nor 0.  Weights are held as 32-bit floats up to
    2 million of them, then in 16 bits; 48 million is the limit.  Of a file with q and k the page holds these, and computes weights itself.

    Raises ValueError for shapes that do not fit, more tokens than rows, and a choice of heads or layers that do not exist; NotImplementedError for
    more weights than a page can hold; FileNotFoundError where the package was built without the command attn.
    """
    words = ["view", *_command.numbers("layer", layers), *_command.numbers("head", heads), *_command.numbers("entry", entries),
             *_command.numbers("queries", queries), *([f"--title={title}"] if title is not None else [])]
    if _shown.is_path(data):
        if k is not None or tokens is not None or options:
            raise ValueError("data is a file, which has its own keys, tokens and options; pass its tensors (libattn.files.load) to change them")
        return Page(_shown.made(words, ".html", [str(data)]), height)
    if title is None:
        words.append("--title=Attention weights")
    if k is None:
        if options:
            raise ValueError(f"data is weights: the option {sorted(options)[0]} would change nothing; with k, data is q")
        weights, how = _shown.floats(data, "data"), {}
    else:
        weights = weights_of(_shown.floats(data, "q"), _shown.floats(k, "k"), options)
        how = {"computed with": ", ".join(described(name, value) for name, value in sorted(options.items())) or "no option"}
    if weights.ndim < 2:
        raise ValueError(f"data has the shape {list(weights.shape)}; weights are [queries, keys] or have more axes")
    metadata = _shown.metadata_of(tokens, weights.ndim, **how)
    return Page(_shown.made(words, ".html", [FILE], {FILE: {"weights": weights}}, metadata), height)


def weights_of(q: Any, k: Any, options: dict[str, Any]) -> Any:
    """The weights of q [..., heads_q, queries, dim] and k, of as many axes."""
    if q.ndim < 2 or q.ndim != k.ndim or q.shape[:-3] != k.shape[:-3]:
        raise ValueError(f"q has the shape {list(q.shape)} and k {list(k.shape)}; all axes before heads must agree")
    lead = q.shape[:-3]
    if len(lead) > 1:
        q, k = q.reshape(-1, *q.shape[-3:]), k.reshape(-1, *k.shape[-3:])
    _, weights = attention(q, k, np.zeros((*k.shape[:-1], 1), k.dtype), return_weights=True, **options)
    return weights.reshape(*lead, *weights.shape[-3:]) if len(lead) > 1 else weights


def described(name: str, value: Any) -> str:
    """An option as a fact of the page: numbers and words as they are, arrays by their shape."""
    return f"{name}={value!r}" if isinstance(value, (bool, int, float, str, tuple)) else f"{name} of the shape {list(np.shape(value))}"
