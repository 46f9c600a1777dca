# SPDX-License-Identifier: MIT
"""Plans: what a problem costs and how it will be computed, known from shapes alone."""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Sequence, Unpack

import numpy as np

from . import _abi, _arrays, _callbacks, _core, _native, _schedule
from ._attention import further_results
from ._blocks import FORMATS, NAMES, Blocks
from ._introspection import tensors
from ._options import ArrayLike, ForwardOptions, Problem
from ._schedule import Prefix, Schedule

Operation = Literal["forward", "backward", "jvp", "double_backward"]
OPERATIONS: dict[str, int] = {
    "forward": _abi.ATTN_FORWARD, "backward": _abi.ATTN_BACKWARD, "jvp": _abi.ATTN_JVP, "double_backward": _abi.ATTN_DOUBLE_BACKWARD,
}
READ = ("cu_seqlens_q", "cu_seqlens_kv", "lengths_kv", "page_starts", "lengths_last_page", "offset_q", "block_starts")  # by schedules
COUNTED = {  # what says how many tokens, pages or blocks an array has, if it is not cu_seqlens_q
    **dict.fromkeys(("k", "v", "k_scale", "v_scale"), "cu_seqlens_kv"), "page_index": "page_starts", "block_index": "block_starts",
}


@dataclass(frozen=True)
class Spec:
    """An array of a plan: its shape and type; of Blocks, the shape of their numbers and the name of their format."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any] | str


class PlanOptions(Problem, ForwardOptions, total=False):
    """Keywords of Plan and explain: those of attention and of its derivatives, where an array may also be a Spec or (shape, dtype)."""

    return_lse: bool
    return_weights: bool
    arrays: dict[str, ArrayLike | Spec]  #: further arrays of the operation by name: tan_bias, grad_lse, grad_bias, ...


class Plan:
    """A checked problem: what computes it, in what tiles, with how much memory; then, as often as you like, its results.

        plan = libattn.Plan((1, 8, 512, 64), (1, 8, 512, 64), (1, 8, 512, 64), causal=True, return_lse=True)
        print(plan.kernel, plan.workspace_bytes, plan.outputs["o"].shape)
        o, lse = plan.execute(q, k, v)

    q, k, v    arrays, whose contents do not matter, or their shapes
    dtype      the type of q, k and v where shapes are given
    op         "forward", "backward", "jvp" or "double_backward": the latter take o, lse, grad_o, tan_q, ... as their functions do,
               and have all results that those always have.  Name others in `arrays`: arrays={"grad_sink": True}
    options    as in libattn.attention; any array may be given as libattn.Spec(shape, dtype)

    With the layout "thd", the tokens of an execution may be fewer or more than those of the plan, and so may the entries of page_index
    and block_index: a plan for the steps of an engine has the longest sequences as len_q and len_kv, or as the width of page_table.

    Raises what attention raises for the same problem, before there is any data.  A plan may be executed by any number of threads at
    once.  Shapes alone are assumed to be of arrays in C order.
    """

    op: Operation
    kernel: str  #: "attn_fwd_f32_avx2"
    why: str  #: why this kernel, and how the problem is walked
    isa: str
    compute: str  #: the type of all sums: "f32" or "f64"
    threads: int
    tile_q: int  #: a tile is tile_q queries times block_kv keys
    block_kv: int
    tiles_total: int
    tiles_visited: int  #: the others have no visible key
    tiles_modified: int  #: passed through a mask or a bias
    workspace_bytes: int  #: memory that a call takes besides its arrays
    flops: float  #: 2 * (dim + dim_v) for each visible pair of a query and a key
    inputs: dict[str, Spec]
    outputs: dict[str, Spec]

    def __init__(
        self, q: ArrayLike | Spec, k: ArrayLike | Spec, v: ArrayLike | Spec, *, op: Operation = "forward", dtype: Any = "float32",
        **options: Unpack[PlanOptions],
    ) -> None:
        if op not in OPERATIONS:
            raise ValueError(f"op is {op!r}; known: {', '.join(OPERATIONS)}")
        self.op = op
        given: dict[str, Any] = dict(options)
        if given.get("schedule") is not None:
            raise TypeError("schedule is set; a plan is made before its schedules, which execute takes")
        self._layout: Any = given.pop("layout", "bhsd")
        given = {**further_results(given), **given.pop("arrays", {})}
        given.pop("arrays", None)
        three = {name: _spec(x, dtype) for name, x in (("q", q), ("k", k), ("v", v))}
        keywords = {**three, **_results(op, given, three, self._layout), **given}
        keywords = {name: _pair(x) for name, x in keywords.items()}
        # A plan depends on whether there are functions, not on which.
        addresses = {name: 1 for name in _callbacks.KINDS if keywords.get(name) is not None}
        found = _core.describe(OPERATIONS[op], self._layout, {**keywords, **addresses}, ())
        arrays: list[Any] = found.pop("arrays")
        names = {written: {n: Spec(shape, NAMES.get(t) or _arrays.dtype_of(t)) for n, w, t, shape, _ in arrays if w == written} for written in (0, 1)}
        self.inputs, self.outputs = names[0], names[1]
        self._strides: dict[str, tuple[int, ...]] = {name: strides for name, _, _, _, strides in arrays}
        found["why"] = _core.sentence(found["why"])
        found["isa"] = _native.call("attn_isa_name", found["isa"]).decode()
        found["compute"] = _native.call("attn_dtype_name", found["compute"]).decode()
        for name, value in found.items():
            setattr(self, name, value)
        self._fixed = {name: x for name, x in keywords.items() if name not in self.inputs and name not in self.outputs}
        self._keywords = list(keywords)
        self._free = {row.name for row in tensors() if row.name in self.inputs and self._is_free(row.name, row.axes)}

    def _is_free(self, name: str, axes: tuple[str, str, str, str]) -> bool:
        """Whether the first axis of an input is counted by other inputs: tokens of packed sequences, entries of lists."""
        if name in ("page_index", "block_index"):
            return True
        packed = axes[2] == "query" or (axes[2] == "key" and "cu_seqlens_kv" in self.inputs)
        return self._layout == "thd" and packed and axes[3] not in ("key", "list")

    def schedule(
        self, *, prefixes: Sequence[Prefix | tuple[int, int, int]] = (), nodes: int = 0, entry_nodes: ArrayLike | None = None,
        worker_nodes: ArrayLike | None = None, **arrays: ArrayLike,
    ) -> Schedule:
        """The schedule of one step: what executions with it take is that of the tokens that exist.  It takes microseconds.

        arrays        inputs of the plan by name.  Of cu_seqlens_q, cu_seqlens_kv, lengths_kv, page_starts, lengths_last_page, offset_q and,
                      with block_heads, block_starts, those that the plan has are needed, and read.  Of others only the strides count:
                      that the heads of a token, or the tokens of a head, lie side by side, as in the k that the plan was made with
        prefixes      what batch entries in a row share at their beginning, a libattn.Prefix for each.  Keys and values of one are read
                      once for all its entries that decode.  Two have no entries in common, or those of the later one are among those of
                      the earlier one, and its keys are no fewer
        nodes         how many nodes of memory (NUMA) there are, 1 to 64; 0: none is told apart
        entry_nodes   [batch], with nodes: the node of each entry's pages, or -1 where they are on none
        worker_nodes  the node of each thread; None: each asks the system when it begins

        Results have the same bits with any of these, and claims that are not true cost time only.  Raises ValueError for lengths that
        attention rejects, prefixes that break the rules and nodes that there are not, NotImplementedError for plans of other operations
        than "forward", of lengths_q and of an origin, and TypeError for an array that is missing or that the plan does not have.
        """
        given = dict(arrays)
        for name in READ:
            if name in self.inputs and given.get(name) is None and (name != "block_starts" or self._fixed.get("block_heads")):
                raise TypeError(f"{name} is missing; the plan was made with it")
        for name, x in given.items():
            if name not in self.inputs:
                raise TypeError(f"{name} is set; the plan was made without it")
            self._check(name, x)
        shapes = {name: self._of_step(name, spec, given) for name, spec in self.inputs.items()}
        keywords = {**self._fixed, **shapes, **{name: True for name in self.outputs}}
        addresses = {name: 1 for name in _callbacks.KINDS if keywords.get(name) is not None}
        ordered = {name: keywords[name] for name in self._keywords if name in keywords}
        shape = self.inputs["q"].shape
        batch = self.inputs["cu_seqlens_q"].shape[0] - 1 if self._layout == "thd" else shape[0] if len(shape) == 4 else 1
        return _schedule.make(
            OPERATIONS[self.op], self._layout, {**ordered, **addresses}, self.threads, batch, prefixes, nodes, entry_nodes, worker_nodes,
        )

    def _of_step(self, name: str, spec: Spec, given: dict[str, Any]) -> Any:
        """An array of the step, or the shape of one: with as many tokens, pages or blocks as there are, and the strides of the plan."""
        if given.get(name) is not None:
            return given[name]
        starts = COUNTED.get(name, "cu_seqlens_q")
        shape = spec.shape
        if name in self._free and given.get(starts) is not None:
            ends = _arrays.asarray(given[starts], starts)
            shape = (max(int(ends[-1]), 0) if ends.size else 0, *shape[1:])
        return (*_pair(Spec(shape, spec.dtype)), self._strides[name])

    def execute(self, q: ArrayLike, k: ArrayLike, v: ArrayLike, **arrays: ArrayLike) -> Any:
        """The results for these arrays: all inputs of the plan, by their names, and outputs to write to where wanted.

        `seed`, `dropout_offset` and `schedule`, of this step, may be given too.  Returns what the plan's operation returns.  Raises
        TypeError for an array that the plan does not have or that is missing, ValueError for another shape or type than the plan's, and
        for a schedule of other lengths or of a plan that cuts the work otherwise.
        """
        given: dict[str, Any] = {"q": q, "k": k, "v": v, **arrays}
        extra = {name: given.pop(name) for name in ("seed", "dropout_offset", "schedule") if name in given}
        for name in self.inputs:
            if name not in given:
                raise TypeError(f"{name} is missing; the plan was made with it")
            self._check(name, given[name])
        for name in given:
            if name not in self.inputs and name not in self.outputs:
                raise TypeError(f"{name} is set; the plan was made without it")
        keywords = {n: given.get(n, True) if n in self.outputs else given[n] if n in self.inputs else self._fixed[n] for n in self._keywords}
        return _callbacks.compute(OPERATIONS[self.op], self._layout, {**keywords, **extra}, ())

    def _check(self, name: str, x: Any) -> None:
        spec = self.inputs[name]
        shape, dtype = (x.shape, x.format) if isinstance(x, Blocks) else (lambda a: (a.shape, a.dtype))(_arrays.asarray(x, name))
        first = 1 if name in self._free and len(shape) == len(spec.shape) else 0
        if shape[first:] != spec.shape[first:]:
            raise ValueError(f"{name} has the shape {shape}; the plan was made with {spec.shape}")
        if dtype != spec.dtype and (isinstance(dtype, str) or isinstance(spec.dtype, str) or {dtype.kind, spec.dtype.kind} != {"f"}):
            raise ValueError(f"{name} has the type {dtype}; the plan was made with {spec.dtype}")

    def __repr__(self) -> str:
        return f"<libattn.Plan {self.op}, {self.kernel}, {self.flops:.3g} flop, {self.threads} threads>"

    def __str__(self) -> str:
        rows = [
            ("kernel", f"{self.kernel} (computes in {self.compute})"),
            ("why", self.why),
            ("tile", f"{self.tile_q} queries x {self.block_kv} keys"),
            ("tiles", f"{self.tiles_total} in all; {self.tiles_visited} visited, {self.tiles_modified} of them through a mask or bias"),
            ("threads", str(self.threads)),
            ("workspace", f"{self.workspace_bytes} bytes"),
            ("work", f"{self.flops:.3g} flop"),
            ("inputs", _list(self.inputs)),
            ("outputs", _list(self.outputs)),
        ]
        return "\n".join(f"{name:<10} {text}" for name, text in rows)


def explain(
    q: ArrayLike | Spec, k: ArrayLike | Spec, v: ArrayLike | Spec, *, op: Operation = "forward", dtype: Any = "float32",
    **options: Unpack[PlanOptions],
) -> str:
    """What would compute a problem, why, in which tiles and with how much memory, as text; the arguments are those of Plan.

        >>> print(libattn.explain((1, 8, 512, 64), (1, 8, 512, 64), (1, 8, 512, 64), causal=True))
    """
    return str(Plan(q, k, v, op=op, dtype=dtype, **options))


def _spec(x: Any, dtype: Any) -> Any:
    """A shape becomes a Spec; what has a shape, or is one, stays."""
    if isinstance(x, (tuple, list)) and all(isinstance(n, (int, np.integer)) for n in x):
        return Spec(tuple(int(n) for n in x), np.dtype(dtype))
    return x


def _pair(x: Any) -> Any:
    """What _core takes for a shape."""
    if not isinstance(x, Spec):
        return x
    return tuple(x.shape), x.dtype if isinstance(x.dtype, str) and x.dtype in FORMATS else np.dtype(x.dtype)


def _results(op: str, given: dict[str, Any], three: dict[str, Any], layout: str) -> dict[str, Any]:
    """What an operation always takes and gives, besides q, k and v."""
    lse, weights = given.pop("return_lse", False), given.pop("return_weights", False)
    if op == "forward":
        return {"o": True, "lse": lse, "weights": weights}
    q, v = (x if isinstance(x, Spec) else Spec(np.shape(x), _arrays.asarray(x, n).dtype) for n, x in three.items() if n in "qv")
    wide = np.dtype("float64") if q.dtype == np.dtype("float64") else np.dtype("float32")
    o, row = Spec((*q.shape[:-1], *v.shape[-1:]), q.dtype), Spec(q.shape[:-1], wide)
    more: dict[str, Any] = {"o": o, "lse": row}
    if op != "jvp":
        more["grad_o"] = o
    if op != "backward":
        more.update({"tan_" + name: x for name, x in three.items()})
    if op == "backward":
        return {**more, "grad_q": True, "grad_k": True, "grad_v": True}
    if op == "jvp":
        return {**more, "tan_o": True, "tan_lse": lse}
    return {**more, "second_grad_o": True, "second_q": True, "second_k": True, "second_v": True}


def _list(arrays: dict[str, Spec]) -> str:
    return ", ".join(f"{name} {list(spec.shape)} {spec.dtype}" for name, spec in arrays.items())
