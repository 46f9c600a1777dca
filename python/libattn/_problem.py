# SPDX-License-Identifier: MIT
"""attn_problem and attn_tensors, for ctypes, made of the keywords of libattn.attention: what layers and analysis pass to C."""
from __future__ import annotations

import ctypes
import functools
from typing import Any, Literal, Mapping, cast

import numpy as np

from . import _abi, _native
from ._arguments import choice, integer, real
from ._arrays import Array, asarray, rows
from ._execution import NAMES as EXECUTION
from ._execution import Execution, execution
from ._options import ArrayLike, Named, Shared, Stage
from ._slots import Slots, booleans, floats, integers

# The tensors that keywords may give: their axes in a slot's four, and how their numbers are read.  Of "BHqk", axes that are missing on
# the left or have size 1 broadcast; B and H are batch and query heads, q and k the two lengths, n and m blocks of these.
# Others must have their size: D and V are channels of keys and values, X and Y those of the matrix, R rows, S and N starts; "." is any.
FLOAT, COMPUTE, BOOL, INT = "float", "compute", "bool", "int"
TENSORS: dict[str, tuple[str, str]] = {
    "mask": ("BHqk", BOOL), "bias": ("BHqk", FLOAT), "ranges": ("BHq2", INT), "block_mask": ("BHnm", BOOL), "dropout_given": ("BHqk", BOOL),
    "lengths_q": ("B", INT), "lengths_kv": ("B", INT), "offset_q": ("B", INT), "cu_seqlens_q": ("S", INT), "cu_seqlens_kv": ("S", INT),
    "block_starts": ("N", INT), "block_index": (".", INT), "scale": (" H", COMPUTE), "alibi_slopes": ("BH", COMPUTE),
    "sink": (" H", COMPUTE), "score_matrix": (" HXY", FLOAT), "bias_table": (" H.", FLOAT), "relative_keys": (" HRD", FLOAT),
    "relative_values": (" HRV", FLOAT), "relative_u": (" H D", COMPUTE), "relative_v": (" H D", COMPUTE),
}
GRADIENTS = (
    "bias", "scale", "score_matrix", "alibi_slopes", "sink", "bias_table", "relative_keys", "relative_values", "relative_u", "relative_v",
)
DENSE = ("scale", "sink", "relative_u", "relative_v")
ROWS = ("lse", "row_max", "entropy", "effective_keys")
OUTPUTS = (*ROWS, "weights", "scores", "column_sum", "topk_index", "topk_weight", "dropout_keep")


class Common(Named, Shared, total=False):
    """Those keywords of libattn.attention, where they are explained, that other modules pass on."""

    after_dropout: bool
    scores_stage: Stage
    topk: int
    column_heads: Literal["each", "group", "all"]
    column_queries: int


class Options(Common, total=False):
    """Keywords of libattn.attention that say what the attention inside a layer, or one that is analysed, computes, and how; they are
    explained there and in libattn.Options.  Given to a layer, they hold for all of its calls; given to a call, for that one."""

    score: Literal["dot", "general", "metric", "cosine", "distance", "additive"]
    score_matrix: ArrayLike


KNOWN = frozenset({*Common.__annotations__, *Options.__annotations__})


@functools.cache
def enum(name: str) -> dict[str, int]:
    """The names of an enum of the headers as they are in Python: ATTN_SCORE_DOT of attn_score_kind is "dot"."""
    values: dict[str, int] = _abi.ENUMS[name]
    shared = "_".join(_shared([one.split("_") for one in values])) + "_"
    return {one.removeprefix(shared).lower().replace("_", "-"): value for one, value in values.items()}


def _shared(names: list[list[str]]) -> list[str]:
    found: list[str] = []
    for parts in zip(*names):
        if len(set(parts)) > 1:
            break
        found.append(parts[0])
    return found


def put_dense(slots: Slots, name: str, array: Array) -> None:
    """Fills a slot with an array that is dense in the order of the slot's axes, with strides of 0, as some calls require."""
    slots.put(name, array.reshape(-1))
    getattr(slots.struct, name).stride[:] = [0, 0, 0, 0]


class Sizes:
    """The sizes of an attention, in the letters of TENSORS."""

    def __init__(
        self, batch: int, heads_q: int, heads_kv: int, len_q: int, len_kv: int, dims: tuple[int, int, int], tokens: int = 0
    ) -> None:
        self.dims = dims  # channels of a query, a key and a value
        self.batch, self.heads_q, self.heads_kv, self.len_q, self.len_kv = batch, heads_q, heads_kv, len_q, len_kv
        self.tokens = tokens  # packed: of all sequences
        self.letters: dict[str, int] = {
            "B": batch, "H": heads_q, "q": len_q, "k": len_kv, "D": dims[0], "V": dims[2], "S": batch + 1, "2": 2,
        }

    def settle(self, problem: Any) -> None:
        """Adds what depends on the problem: blocks, rows of tables, the matrix of the scores."""
        mask, score, letters = problem.mask, problem.score, self.letters
        if mask.block_q > 0 and mask.block_kv > 0:
            letters["n"], letters["m"] = -(-self.len_q // mask.block_q), -(-self.len_kv // mask.block_kv)
            letters["N"] = letters["n"] + 1
        letters["R"] = problem.relative.rows
        if score.kind == _abi.ATTN_SCORE_GENERAL:
            letters["X"], letters["Y"] = self.dims[0], self.dims[1]
        elif score.kind in (_abi.ATTN_SCORE_METRIC, _abi.ATTN_SCORE_ADDITIVE):
            letters["Y"] = self.dims[0]
        if score.kind == _abi.ATTN_SCORE_ADDITIVE:
            letters["X"] = 1 + score.additive_bias


def check_options(options: Mapping[str, Any]) -> None:
    """Raises TypeError for a name that is not an option."""
    for name in options:
        if name not in KNOWN:
            raise TypeError(f"{name} is not an option here; known: {', '.join(sorted(KNOWN))}")


def fill(problem: Any, options: Mapping[str, Any], *, align: bool = True) -> None:
    """The groups score, mask, dropout, outputs, bias_table and relative.  `align`: whether queries are aligned by options."""
    check_options(options)
    get = options.get
    score, mask = problem.score, problem.mask
    matrix = get("score_matrix")
    if get("score") is not None:
        score.kind = choice(options["score"], "score", enum("attn_score_kind"))
    if matrix is not None:
        shape = asarray(matrix, "score_matrix").shape
        if score.kind == _abi.ATTN_SCORE_GENERAL and len(shape) > 1 and shape[-1] != shape[-2]:
            score.dim_k = shape[-1]
        if score.kind == _abi.ATTN_SCORE_METRIC and len(shape) > 1:
            score.dim_metric = shape[-2]
        score.additive_bias = int(score.kind == _abi.ATTN_SCORE_ADDITIVE and len(shape) > 1 and shape[-2] == 2)
    if get("scale") is not None and np.ndim(options["scale"]) == 0:
        score.scale_kind, score.scale = _abi.ATTN_SCALE_VALUE, real(options["scale"], "scale")
    for name in ("temperature", "softcap", "shift"):
        if get(name) is not None:
            value = real(options[name], name)
            if name != "shift" and not value > 0:
                raise ValueError(f"{name} is {value}; it must be above 0")
            setattr(score, name, value)
    if get("normaliser") is not None:
        score.normaliser = choice(options["normaliser"], "normaliser", enum("attn_normaliser"))

    causal, side = get("causal", False), get("align")
    aligns = enum("attn_align")
    if isinstance(causal, str):
        side = side or causal
        mask.causal, _ = 1, choice(causal, "causal", aligns)
    elif not isinstance(causal, (bool, np.bool_)):
        raise TypeError(f"causal is {causal!r}; it must be False, True, 'top-left' or 'bottom-right'")
    else:
        mask.causal = int(causal)
    if align:
        where = get("offset_q") is None and get("origin") is None
        mask.align = choice(side, "align", aligns) if side else _abi.ATTN_ALIGN_BOTTOM_RIGHT if where else _abi.ATTN_ALIGN_TOP_LEFT
    if get("window") is not None:
        window = options["window"]
        left, right = window if isinstance(window, (tuple, list)) and len(window) == 2 else (window, window)
        mask.window = 1
        mask.window_left = -1 if left is None else integer(left, "window", -1)
        mask.window_right = -1 if right is None else integer(right, "window", -1)
    for name in ("chunk", "dilation", "global_q", "global_kv", "block_q", "block_kv", "least_distance"):
        if get(name) is not None:
            setattr(mask, name, integer(options[name], name))
    for name in ("block_mask", "block_starts"):
        if get(name) is not None and not (mask.block_q > 0 and mask.block_kv > 0):
            raise ValueError(f"{name} is set; block_q and block_kv must be at least 1")
    if get("block_index") is not None:
        mask.block_entries = asarray(options["block_index"], "block_index").size
    if get("empty") is not None:
        mask.empty = choice(options["empty"], "empty", enum("attn_empty"))
    if get("dropout") is not None:
        problem.dropout.probability = real(options["dropout"], "dropout")

    outputs = problem.outputs
    outputs.after_dropout = int(bool(get("after_dropout", False)))
    if get("scores_stage") is not None:
        outputs.scores_stage = choice(options["scores_stage"], "scores_stage", enum("attn_stage"))
    if get("column_heads") is not None:
        outputs.column_heads = choice(options["column_heads"], "column_heads", enum("attn_columns"))
    for name in ("topk", "column_queries"):
        if get(name) is not None:
            setattr(outputs, name, integer(options[name], name))

    table = problem.bias_table
    if get("bias_table") is not None:
        shape = asarray(options["bias_table"], "bias_table").shape
        if not shape:
            raise ValueError("bias_table has shape []; it must be [heads, buckets]")
        table.buckets = shape[-1]
        if get("bias_table_kind") is not None:
            table.kind = choice(options["bias_table_kind"], "bias_table_kind", enum("attn_distance_kind"))
        if table.kind == _abi.ATTN_DISTANCE_CLIPPED:
            table.max_distance = (table.buckets - 1) // 2
    if get("bias_table_max_distance") is not None:
        table.max_distance = integer(options["bias_table_max_distance"], "bias_table_max_distance")
    table.causal = int(bool(get("bias_table_causal", False)))
    for name in ("relative_keys", "relative_values"):
        if get(name) is not None:
            shape = asarray(options[name], name).shape
            if len(shape) < 2:
                raise ValueError(f"{name} has shape {list(shape)}; it must be [heads, rows, channels]")
            if problem.relative.rows not in (0, shape[-2]):
                raise ValueError(f"relative_values has {shape[-2]} rows; it must have {problem.relative.rows}, as relative_keys has")
            problem.relative.rows = shape[-2]
    if get("relative_first") is not None:
        problem.relative.first = integer(options["relative_first"], "relative_first")


def read(x: Any, name: str, compute: np.dtype[Any]) -> Array:
    """A tensor of a keyword, of the type that C takes."""
    kind = TENSORS[name][1]
    if kind == BOOL:
        return booleans(x, name)
    if kind == INT:
        return integers(x, name)
    if kind == COMPUTE:
        return rows(asarray(x, name, compute))
    return floats(x, name, None if hasattr(x, "dtype") else compute)


def placed(array: Array, name: str, sizes: Sizes) -> Array:
    """The array with the axes that TENSORS lists (without blanks), those on the left added; raises ValueError for others."""
    axes = TENSORS[name][0].replace(" ", "")
    if array.ndim > len(axes) or (len(axes) == 1 and array.ndim == 0):
        raise ValueError(f"{name} has shape {list(array.shape)}; it must have {len(axes)} axes{' at most' if len(axes) > 1 else ''}")
    full = array[(np.newaxis,) * (len(axes) - array.ndim)]
    for size, letter in zip(full.shape, axes):
        expected = sizes.letters.get(letter, size)
        if size != expected and (size != 1 or letter not in ("BHqknm" if len(axes) > 1 else "H")):
            wanted = ", ".join(str(sizes.letters.get(one, "any")) for one in axes)
            constant = ", or 1 where it is constant" if len(axes) > 1 else ""
            raise ValueError(f"{name} has shape {list(array.shape)}; it must be [{wanted}]{constant}")
    return full


class Inner:
    """The attention inside a call: attn_problem and attn_tensors, with the arrays behind them."""

    def __init__(self, options: Mapping[str, Any], sizes: Sizes, compute: Any, *, align: bool = True) -> None:
        self.sizes, self.compute = sizes, np.dtype(compute)
        self.problem = _native.struct(_abi.attn_problem)
        fill(self.problem, options, align=align)
        sizes.settle(self.problem)
        self.tensors = Slots(_abi.attn_tensors)
        self.given: dict[str, Array] = {}  # with the axes of TENSORS
        self.outputs: dict[str, Array] = {}
        self.gradients: dict[str, Array] = {}
        for name in TENSORS:
            x = options.get(name)
            if x is None or (name == "scale" and np.ndim(x) == 0):
                continue
            self.put(name, read(x, name, self.compute))
        self.call = self._call(options)
        self.options = execution(cast(Execution, {name: options[name] for name in EXECUTION if options.get(name) not in (None, "default")}))

    def put(self, name: str, array: Array) -> None:
        """Fills the slot of an input."""
        axes = TENSORS[name][0]
        full = placed(array, name, self.sizes)
        self.given[name] = full
        letters = axes.replace(" ", "")
        shape = [self.sizes.letters[letter] if letter in self.sizes.letters else size for size, letter in zip(full.shape, letters)]
        wide = np.broadcast_to(full, shape)
        if len(letters) == 1 or name in DENSE:
            put_dense(self.tensors, name, np.ascontiguousarray(wide))
        else:
            self.tensors.put(name, wide, [i for i, letter in enumerate(axes) if letter != " "])

    def _call(self, options: Mapping[str, Any]) -> Any:
        if not any(options.get(name) for name in ("seed", "dropout_offset", "origin")):
            return None
        made = _native.struct(_abi.attn_call)
        made.dropout_seed = integer(options.get("seed") or 0, "seed", 0, 2**64 - 1)
        made.dropout_offset = integer(options.get("dropout_offset") or 0, "dropout_offset", 0, 2**32 - 1)
        if options.get("origin"):
            numbers = [integer(x, "origin") for x in options["origin"]]
            if len(numbers) != 5:
                raise ValueError("origin must be (batch, head, heads, q, kv)")
            made.origin = ctypes.pointer(_native.struct(_abi.attn_origin, **dict(zip(("batch", "head", "heads", "q", "kv"), numbers))))
        return made

    def output(self, name: str, extra: tuple[str, ...] = ()) -> None:
        """A new array for a further output, [batch, heads, ...] as in attn_tensors, packed [heads, tokens]."""
        s, topk = self.sizes, self.problem.outputs.topk
        if name not in OUTPUTS:
            raise ValueError(f"outputs has {name!r}; known: {', '.join((*extra, *OUTPUTS))}")
        if name in ("weights", "scores", "dropout_keep"):
            shape: tuple[int, ...] = (s.batch, s.heads_q, s.len_q, s.len_kv)
        elif name == "column_sum":
            heads = {_abi.ATTN_COLUMNS_GROUP: s.heads_kv, _abi.ATTN_COLUMNS_ALL: 1}.get(self.problem.outputs.column_heads, s.heads_q)
            shape = (s.batch, heads, s.len_kv)
        else:
            shape = (s.batch, s.heads_q, s.len_q) if name in ROWS else (s.batch, s.heads_q, s.len_q, topk)
        if s.tokens and name != "weights" and name != "scores" and name != "dropout_keep":
            if name == "column_sum":
                raise NotImplementedError("column_sum is not among the outputs of packed sequences here")
            shape = (1, s.heads_q, s.tokens, *shape[3:])
        dtype = np.dtype(np.bool_ if name == "dropout_keep" else np.int64 if name == "topk_index" else self.compute)
        self.outputs[name] = np.empty(shape, dtype)
        array = self.outputs[name]
        put_dense(self.tensors, name, array)

    def gradient(self, name: str, slot: str = "grad") -> None:
        """A new array for the gradient of a given tensor, or of the scale of each head; slot "second": for that of the gradient."""
        if name not in GRADIENTS:
            raise ValueError(f"grads has {name!r}; known: {', '.join(GRADIENTS)}")
        if name == "scale":
            self.gradients[name] = np.empty(self.sizes.heads_q, self.compute)
        elif name not in self.given:
            raise ValueError(f"grads has {name!r}, which is not given")
        else:
            given = self.given[name]
            shape = (self.sizes.heads_q, *given.shape[1:]) if name in DENSE else given.shape
            self.gradients[name] = np.empty(shape, given.dtype)
        axes = [i for i, letter in enumerate(TENSORS[name][0]) if letter != " "]
        self.tensors.put(f"{slot}_{name}", self.gradients[name], axes)
