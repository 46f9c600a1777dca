# SPDX-License-Identifier: MIT
"""libattn.capture: what the attention of a model computes with, layer by layer.

Here is what was recorded, and how it is shown and saved; _capture_torch.py records it.
"""
from __future__ import annotations

import functools
import json
import re
from contextlib import AbstractContextManager
from typing import Any, Iterator, Mapping, Sequence

import numpy as np

from . import _shown, files
from ._arrays import Array
from ._attention import attention
from ._page import FILE, Page
from ._shown import Path, Tokens


class Layer:
    """One attention: its inputs as NumPy arrays, and what libattn computes of them.

    name     of the module that computed it: "encoder.layer.3.attention.self"
    q        [batch, heads_q, queries, dim], with rotary positions if the model has them
    k, v     [batch, heads_kv, keys, dim] and [batch, heads_kv, keys, dim_v]
    options  the rest of the problem as keywords of libattn.attention: mask, bias, scale, softcap, sink, temperature
    """

    def __init__(self, name: str, q: Array, k: Array, v: Array, options: Mapping[str, Any]) -> None:
        self.name = name
        self.q = q
        self.k = k
        self.v = v
        self.options: dict[str, Any] = dict(options)

    @functools.cached_property
    def _results(self) -> tuple[Array, Array]:
        return attention(self.q, self.k, self.v, return_weights=True, **self.options)

    @property
    def o(self) -> Array:
        """The result, [batch, heads_q, queries, dim_v], before the projection of the output."""
        return self._results[0]

    @property
    def weights(self) -> Array:
        """[batch, heads_q, queries, keys]: without dropout, 0 for a query that sees no key."""
        return self._results[1]

    def __repr__(self) -> str:
        more = "".join(f", {name}" for name in sorted(self.options))
        return f"Layer({self.name!r}, q {list(self.q.shape)}, k {list(self.k.shape)}{more})"


class Record(Mapping[str, Layer]):
    """What capture recorded: a mapping from the names of attention modules, in the order of their first call, to their last Layer.

        record["encoder.layer.3.attention.self"]     by name
        record["layer.3"]                            by a part of a name that no other has
        record[3]                                    by number
        record.calls("layer.3")                      all that it recorded, in order

    Calls that continue a cache are one Layer: where a call has the keys of the one before and those of its own queries behind them, or
    (a single query) the same keys, its queries are appended.  So what `generate` computes is one triangle, as if all tokens had come at
    once.  Any other call is a Layer of its own; so is each step over a cache of fixed size.
    """

    def __init__(self, model: str = "") -> None:
        self._model = model
        self._calls: dict[str, list[Layer]] = {}

    def _add(self, made: Layer) -> None:
        calls = self._calls.setdefault(made.name, [])
        if calls and continues(calls[-1], made):
            calls[-1] = joined(calls[-1], made)
        else:
            calls.append(made)

    def _found(self, key: str | int) -> str:
        names = list(self._calls)
        if isinstance(key, int):
            if not -len(names) <= key < len(names):
                raise KeyError(f"there is no layer {key}; {len(names)} were recorded")
            return names[key]
        if key in self._calls:
            return key
        parts = [name for name in names if f".{key}." in f".{name}."]
        if not parts:
            raise KeyError(f"no layer has {key!r} in its name; recorded: {listed(names)}")
        if len(parts) > 1:
            raise KeyError(f"{len(parts)} layers have {key!r} in their name, and it must say which: {listed(parts)}")
        return parts[0]

    def __getitem__(self, key: str | int) -> Layer:
        return self._calls[self._found(key)][-1]

    def calls(self, key: str | int) -> tuple[Layer, ...]:
        """All that a module computed, in order."""
        return tuple(self._calls[self._found(key)])

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._calls))

    def __len__(self) -> int:
        return len(self._calls)

    def __contains__(self, key: object) -> bool:
        return key in self._calls

    def __repr__(self) -> str:
        return f"Record({len(self)} layer{'s' * (len(self) != 1)}{' of ' + self._model if self._model else ''})"

    def chosen(self, layers: str | Sequence[str | int] | None = None, call: int = -1) -> list[Layer]:
        """The layers of one page or file, which have the same shapes.

        layers   a part of names, such as "decoder" or "self_attn"; a list of names and numbers; default: all
        call     which call of each

        Raises ValueError where nothing was recorded, where the shapes differ, and where a layer has no such call; KeyError for a name
        that was not recorded.
        """
        if not self._calls:
            raise ValueError("no attention was recorded: the model was not called in the block, or computes attention by products and a softmax of its own")
        if isinstance(layers, str):
            names = [name for name in self._calls if f".{layers}." in f".{name}."]
            if not names:
                raise KeyError(f"no layer has {layers!r} in its name; recorded: {listed(list(self._calls))}")
        else:
            names = list(self._calls) if layers is None else [self._found(one) for one in layers]
        for name in names:
            if not -len(self._calls[name]) <= call < len(self._calls[name]):
                raise ValueError(f"{name} has no call {call}; {len(self._calls[name])} were recorded")
        found = [self._calls[name][call] for name in names]
        kinds: dict[Any, list[str]] = {}
        for one in found:
            kinds.setdefault((one.q.shape, one.k.shape, one.v.shape), []).append(one.name)
        if len(kinds) > 1:
            told = "; ".join(f"q {list(q)} and k {list(k)}: {', '.join(of[:2])}{', ...' if len(of) > 2 else ''}" for (q, k, _), of in kinds.items())
            raise ValueError(f"the layers have {len(kinds)} different shapes; choose some with layers ({told})")
        return found

    def view(self, tokens: Tokens | None = None, *, layers: str | Sequence[str | int] | None = None, entry: int | None = None,
             lengths: Sequence[int] | None = None, call: int = -1, title: str | None = None, height: int = 640) -> Page:
        """The page of libattn.view, with all heads of the layers that `chosen` finds.

        tokens, entry, lengths    as for `save`
        title, height             as for libattn.view
        """
        found = self.chosen(layers, call)
        tensors, metadata = self._contents(found, tokens, entry, lengths, False)
        words = ["view", f"--title={title or self._model or 'Attention weights'}"]
        return Page(_shown.made(words, ".html", [FILE], {FILE: tensors}, metadata), height)

    def save(self, path: Path, tokens: Tokens | None = None, *, layers: str | Sequence[str | int] | None = None, entry: int | None = None,
             lengths: Sequence[int] | None = None, call: int = -1, metadata: Mapping[str, str] | None = None) -> None:
        """Writes q, k, v, o and weights [layer, batch, head, ...] of the layers that `chosen` finds to a file .safetensors or .npz, with
        mask, bias, scale and sink where they are used.  `attn view`, `top`, `analyze`, `run` and `plot` read it.

        path      as for libattn.files.save
        tokens    the words of the input, a list; or a list for each batch entry
        layers, call     as for `chosen`
        entry     only this batch entry; default: all
        lengths   real tokens of each batch entry, where padding follows; default: all, or the lengths of the lists in tokens.  Padding
                  that the model masks is never a key
        metadata  further strings

        The flags of a softcap and a temperature are in the metadata as `flags`, for the command to be given.

        Raises ValueError for what does not fit, and for layers whose scales, softcaps or sinks differ: a file has one of each.
        """
        found = self.chosen(layers, call)
        tensors, kept = self._contents(found, tokens, entry, lengths, True)
        files.save(path, tensors, metadata={**kept, **(metadata or {})})

    def _contents(self, found: list[Layer], tokens: Tokens | None, entry: int | None, lengths: Sequence[int] | None,
                  whole: bool) -> tuple[dict[str, Any], dict[str, str]]:
        """The tensors and the metadata of a file: with q, k, v and all that they need, or with the weights alone."""
        batch, _, queries, _ = found[0].q.shape
        keys = found[0].k.shape[2]
        if entry is not None and not 0 <= entry < batch:
            raise ValueError(f"entry is {entry}; there are {batch} batch entries")
        nested = tokens is not None and len(tokens) > 0 and not isinstance(tokens[0], str)
        if nested and tokens is not None and len(tokens) != batch:
            raise ValueError(f"tokens has {len(tokens)} lists for {batch} batch entries")
        if nested and tokens is not None and lengths is None and any(len(one) != keys for one in tokens):
            lengths = [len(one) for one in tokens]
        if lengths is not None and (len(lengths) != batch or not all(0 <= one <= keys for one in lengths)):
            raise ValueError(f"lengths is {list(lengths)}; it must have {batch} numbers from 0 to {keys}")
        some = slice(None) if entry is None else slice(entry, entry + 1)
        if entry is not None and nested and tokens is not None:
            tokens = [tokens[entry]]  # type: ignore[list-item]
        tensors: dict[str, Any] = {"weights": np.stack([one.weights[some] for one in found])}
        kept = _shown.metadata_of(tokens, 5, **({"model": self._model} if self._model else {}))
        kept.update({"layer names": json.dumps([one.name for one in found]), "layers": json.dumps(numbers_of([one.name for one in found]))})
        if lengths is not None:
            each = np.asarray(lengths, np.int64)[some]
            if queries == keys:
                tensors["lengths_q"] = np.broadcast_to(each, (len(found), len(each)))
            tensors["lengths_kv"] = np.broadcast_to(each, (len(found), len(each)))
        if whole:
            tensors.update({name: np.stack([getattr(one, name)[some] for one in found]) for name in ("q", "k", "v", "o")})
            options, flags = common(found)
            if flags:
                kept["flags"] = flags
            tensors.update(options)
            for name in ("mask", "bias"):
                tensors.update(stacked(name, found, some))
        return tensors, kept


def listed(names: list[str]) -> str:
    """Names for a sentence, the first and the last of many."""
    shown = names if len(names) <= 8 else [*names[:4], "...", *names[-2:]]
    return f"{', '.join(shown)}{f' ({len(names)} layers)' if len(shown) < len(names) else ''}" or "nothing"


def stacked(name: str, found: list[Layer], some: slice) -> dict[str, Array]:
    """A mask or bias of all layers, [layer, batch, head, query, key]; {} where none has one."""
    if not any(name in one.options for one in found):
        return {}
    batch, heads, queries, _ = found[0].q.shape
    full = (batch, heads, queries, found[0].k.shape[2])
    absent = np.ones((1, 1, 1, 1), bool) if name == "mask" else np.zeros((1, 1, 1, 1), np.float32)
    given = [one.options.get(name, absent) for one in found]
    sizes = tuple(max(array.shape[axis] for array in given) for axis in range(2)) + full[2:]
    if sizes[0] > 1:
        given = [np.broadcast_to(array, (batch, *array.shape[1:]))[some] for array in given]
        sizes = (given[0].shape[0], *sizes[1:])
    return {name: np.stack([np.broadcast_to(array, sizes) for array in given])}


def common(found: list[Layer]) -> tuple[dict[str, Array], str]:
    """The scale and the sink of all layers, as tensors [heads], and the flags of their softcap and temperature."""
    heads = found[0].q.shape[1]
    tensors = {}
    for name in ("scale", "sink", "softcap", "temperature"):
        values = [one.options.get(name) for one in found]
        if not all(same(value, values[0]) for value in values):
            raise ValueError(f"the layers differ in their {name}, and a file has one; save one layer at a time, with layers=[0]")
        if values[0] is not None and name in ("scale", "sink"):
            tensors[name] = np.broadcast_to(np.asarray(values[0], np.float32), (heads,))
    flags = [f"--{name}={found[0].options[name]:g}" for name in ("softcap", "temperature") if name in found[0].options]
    return tensors, " ".join(flags)


def numbers_of(names: list[str]) -> list[int]:
    """The number of each layer: the one in its name, where names differ in nothing else; else 0, 1, ..."""
    numbers = [int(found[1]) if (found := re.search(r"(?:^|\.)(\d+)(?:\.|$)", name)) else -1 for name in names]
    alike = len({re.sub(r"(^|\.)\d+(?=\.|$)", r"\1#", name, count=1) for name in names}) == 1
    increasing = all(a < b for a, b in zip(numbers, numbers[1:]))
    return numbers if alike and increasing and numbers[0] >= 0 else list(range(len(names)))


def same(a: Any, b: Any) -> bool:
    """Are two options the same number, the same array, or both not there?"""
    return (a is None) == (b is None) and (a is None or np.array_equal(a, b))


def continues(last: Layer, made: Layer) -> bool:
    """Does a call go on where the last one ended?"""
    a, b = last.k.shape, made.k.shape
    if a[:2] != b[:2] or a[3] != b[3] or last.q.shape[:2] != made.q.shape[:2] or last.v.shape[3] != made.v.shape[3]:
        return False
    grown, queries = b[2] - a[2], made.q.shape[2]
    if not (grown == queries and grown > 0 or grown == 0 and queries == 1 < b[2]):
        return False
    alike = all(same(last.options.get(name), made.options.get(name)) for name in ("scale", "softcap", "sink", "temperature"))
    return alike and np.array_equal(made.k[:, :, :a[2]], last.k)


def joined(last: Layer, made: Layer) -> Layer:
    """Both as one: all queries over the keys of the later call, where the earlier queries see only those that they had."""
    options = {name: value for name, value in made.options.items() if name not in ("mask", "bias")}
    keys, before = made.k.shape[2], last.q.shape[2]
    parts = [(last.options, before, last.k.shape[2]), (made.options, made.q.shape[2], keys)]
    for name, kind in (("mask", bool), ("bias", np.float32)):
        if name == "bias" and not any(name in of for of, _, _ in parts):
            continue
        given = [of.get(name, np.ones((1, 1, 1, 1), bool) if name == "mask" else np.zeros((1, 1, 1, 1), np.float32)) for of, _, _ in parts]
        batch, heads = (max(array.shape[axis] for array in given) for axis in range(2))
        out = np.zeros((batch, heads, before + made.q.shape[2], keys), kind)
        row = 0
        for array, (_, rows, columns) in zip(given, parts):
            out[:, :, row:row + rows, :columns] = array
            row += rows
        options[name] = out
    if options["mask"].all():
        del options["mask"]
    return Layer(made.name, np.concatenate([last.q, made.q], axis=2), made.k, made.v, options)


def capture(model: Any) -> AbstractContextManager[Record]:
    """Records q, k, v and the weights of every attention of a PyTorch model, while a block runs:

        with libattn.capture(model) as record:
            model(**inputs)
        record.view(tokens)                             # all heads, in a notebook; or .save("page.html")
        record.save("heads.safetensors", tokens)        # for attn view, top, analyze
        record["layer.3"].weights                       # [batch, heads, queries, keys]

    model    a torch.nn.Module, on any device; nothing of it is changed, and it computes the same, but for rows of padding that
             nn.TransformerEncoder sets to 0 in evaluation, which have other values

    Recorded are F.scaled_dot_product_attention, nn.MultiheadAttention and what is made of them (nn.Transformer...),
    libattn.torch.attention and libattn.torch.nn, and in models of transformers every attn_implementation, "eager" too; not recorded
    are models that compute attention by products and a softmax of their own, call PyTorch's flex_attention themselves, or are
    scripted.  Compiled models run eagerly.  What is kept is copied to NumPy arrays (bfloat16 and float16 as float32): 4 bytes for each
    number of q, k and v, and a byte for each pair of query and key where there is a mask.  Weights are computed when they are read.

    Only calls of this thread are recorded; others may run the model meanwhile.  Returns a context manager, whose value is a Record,
    which is complete at the end of the block and remains valid.

    Raises TypeError if model is not a torch.nn.Module; in the block, NotImplementedError for a mask that it cannot read, and for packed
    sequences, pages, and scores of libattn.torch.attention other than dot products with a softmax.
    """
    from ._capture_torch import recording

    return recording(model)
