# SPDX-License-Identifier: MIT
"""What layers, latent attention and the attention of decoders share: weights by name, calls of C, gradients, files."""
from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Self

import numpy as np

from . import _abi, _native
from ._arguments import choice, integer, result, text, typed
from ._arrays import Array, asarray, like, pointer, rows
from ._problem import Inner, Sizes, check_options, enum, fill, put_dense
from ._slots import Slots, integers
from .cache import Cache
from .files import Archive, Path

Init = Literal["xavier", "head", "small", "torch"]


@dataclass(frozen=True)
class Counts:
    """What a module has and needs (attn_layer_counts)."""

    parameters: int  #: numbers in the weights and biases
    cache_per_token: int  #: bytes that decoding keeps per token of an entry
    saved_bytes: int  #: size of what forward saves for backward
    flops: float  #: multiplications and additions of forward: projections, and the attention without its masks


@dataclass(frozen=True)
class Forward:
    """What forward computed."""

    output: Any  #: [batch, len_q, dim_output], without the axis batch where the input has none
    saved: Any  #: for backward, a NumPy array of bytes; None if it was not requested
    outputs: dict[str, Any] = field(default_factory=dict)  #: further outputs by name


@dataclass(frozen=True)
class Gradients:
    """What backward computed: gradients of the inputs, of the weights by name, and of further tensors by name."""

    query: Any
    key: Any  #: None if there was no key: its gradient is part of the query's
    value: Any  #: None if there was no value: its gradient is part of the key's
    weights: dict[str, Any]
    grads: dict[str, Any]


@dataclass(frozen=True)
class Weight:
    """Where a weight is in its slot: the slot's axes, their sizes, and which axis forms a matrix with the one after it."""

    axes: tuple[int, ...]
    sizes: tuple[int, ...]
    merge: int | None = None
    strided: bool = False  #: any strides where one of the last two axes is contiguous; else dense

    @property
    def flat(self) -> tuple[int, ...]:
        """The shape as a matrix or vector."""
        if self.merge is None:
            return self.sizes
        i = self.merge
        return (*self.sizes[:i], self.sizes[i] * self.sizes[i + 1], *self.sizes[i + 2:])

    def place(self, array: Array, name: str) -> Array:
        """The array with the slot's axes: a view, unless its layout is one that C does not take."""
        plain = tuple(size for size in array.shape if size != 1)
        for shape in (self.flat, self.sizes):
            if plain == tuple(size for size in shape if size != 1):
                found = array.reshape(self.sizes)
                if self.strided and array.itemsize in found.strides[-2 if self.axes[-1] == 3 else -1:]:
                    return found
                return np.require(found, requirements=["C", "A"])
        shapes = f"{list(self.flat)}" + (f" or {list(self.sizes)}" if self.merge is not None else "")
        raise ValueError(f"{name} has shape {list(array.shape)}; it must be {shapes}")


class Module:
    """A module with weights.  Subclasses say what its struct and its weights are."""

    _name = ""  # of attn_NAME and attn_NAME_weights
    _functions: dict[str, str] = {}  # the functions of C by what they do
    _inputs = ("query", "key", "value")

    def __init__(self, dtype: Any, weights: Mapping[str, Any] | None, options: Mapping[str, Any]) -> None:
        self.dtype: np.dtype[Any] = np.dtype(dtype)
        if self.dtype not in (np.dtype(np.float32), np.dtype(np.float64)):
            raise TypeError(f"dtype is {self.dtype}; it must be float32 or float64")
        check_options(options)
        self.options: dict[str, Any] = dict(options)
        self.weights: dict[str, Any] = dict(weights or {})
        self._slots(self.weights, self._weights({}))

    # What subclasses define.

    def _weights(self, options: Mapping[str, Any]) -> dict[str, Weight]:
        """The weights that this module may have."""
        raise NotImplementedError

    def _struct(self, options: Mapping[str, Any]) -> tuple[Any, list[Any]]:
        """The C struct without its attention, and what it borrows."""
        raise NotImplementedError

    def _heads(self, options: Mapping[str, Any]) -> tuple[int, int]:
        raise NotImplementedError

    def _dims(self, options: Mapping[str, Any], decoding: bool) -> tuple[int, int, int]:
        """Channels of a query, a key and a value in the attention."""
        raise NotImplementedError

    def _channels(self) -> tuple[tuple[int, int, int], int]:
        """Channels of the three inputs, and of the output."""
        raise NotImplementedError

    def _needed(self) -> set[str]:
        """The weights that initialise makes, but for biases."""
        raise NotImplementedError

    def _described(self, options: Mapping[str, Any]) -> tuple[Any, list[Any]]:
        """The C struct with the options of its attention, and what it borrows."""
        made, kept = self._struct(options)
        problem = _native.struct(_abi.attn_problem)
        fill(problem, options)
        made.attention = ctypes.pointer(problem)
        return made, kept

    # Weights.

    def _slots(self, weights: Mapping[str, Any], known: Mapping[str, Weight], writable: bool = False) -> Slots:
        slots = Slots(getattr(_abi, f"attn_{self._name}_weights"))
        for name, x in weights.items():
            if name not in known:
                raise ValueError(f"weights has {name!r}; known: {', '.join(known)}")
            if x is None:
                continue
            array = asarray(x, name) if writable else typed(x, name, self.dtype, f"the {self._noun} is")
            placed = known[name].place(array, name)
            if known[name].strided:
                slots.put(name, placed, known[name].axes)
            else:
                put_dense(slots, name, placed)
        return slots

    @property
    def _noun(self) -> str:
        return "module" if self._name == "seq2seq" else "layer"

    def initialise(self, init: Init = "xavier", *, seed: int = 0, biases: bool = True) -> Self:
        """Fills in new weights with numbers that depend only on the seed, the matrix and the place in it; biases are 0.  Returns self.

            "xavier"   uniform within sqrt(6 / (in + out)) of each matrix (Glorot and Bengio 2010)
            "head"     normal, variance 2 / (in + channels of one head), for the output 2 / (in + out)
            "small"    normal, deviation 0.02 (GPT-2)
            "torch"    torch.nn.MultiheadAttention's rule for a layer, torch.nn.Linear's for other modules
        """
        known = self._weights({})
        names = self._needed()
        if biases:
            names = names | {name for name in known if name.endswith("bias") and name.removesuffix("_bias") in self._biased()}
        made = {name: np.empty(known[name].flat, self.dtype) for name in known if name in names}
        slots = self._slots(made, known, writable=True)
        layer, kept = self._described(self.options)
        value = choice(init, "init", enum("attn_init"))
        _native.call(self._functions["initialise"], ctypes.byref(layer), value, integer(seed, "seed", 0, 2**64 - 1), slots.reference)
        del kept
        self.weights = dict(made)
        return self

    def _biased(self) -> set[str]:
        """Matrices that may have a bias: NAME of NAME_bias."""
        return self._needed() | {"bias"}

    def load_weights(self, source: Archive | Path, prefix: str = "") -> Self:
        """Weights from the tensors of a file or an archive, whose memory they keep.  Returns self.

        Raises ValueError for a name that is missing, a shape that does not fit and a NaN, NotImplementedError for another type than this
        module's, OSError; the weights are then unchanged.
        """
        archive = source if isinstance(source, Archive) else Archive.read(source)
        slots = Slots(getattr(_abi, f"attn_{self._name}_weights"))
        layer, kept = self._described(self.options)
        with archive._lock:
            _native.call(
                self._functions["load"], ctypes.byref(layer), archive._address(), text(prefix, "prefix"), slots.reference
            )
            owner = (archive._handle, dict(archive._kept))
        del kept
        found: dict[str, Any] = {}
        for name, weight in self._weights({}).items():
            slot = getattr(slots.struct, name)
            if slot.data:
                found[name] = _borrowed(slot, weight, self.dtype, owner)
        self.weights = found
        return self

    def store(self, archive: Archive, prefix: str = "") -> None:
        """Copies the weights, as matrices [out, in], into an archive, under the names that load_weights reads.

        All or nothing: if a name is taken (ValueError) or memory runs out, the archive is unchanged.
        """
        if not isinstance(archive, Archive):
            raise TypeError(f"archive is of type {type(archive).__name__}; it must be a libattn.files.Archive")
        slots = self._slots(self.weights, self._weights({}))
        layer, kept = self._described(self.options)
        with archive._lock:
            _native.call(
                self._functions["store"], ctypes.byref(layer), slots.reference, text(prefix, "prefix"), archive._address()
            )
        del kept

    def save(self, path: Path, prefix: str = "") -> None:
        """Writes the weights to a new .safetensors or .npz file: store, then Archive.write."""
        with Archive() as archive:
            self.store(archive, prefix)
            archive.write(path)

    def count(self, batch: int, len_q: int, len_kv: int | None = None) -> Counts:
        """Counts parameters, memory and operations for a batch; len_kv None: that of self-attention.  Packed: a batch of 1, and the total
        tokens.  Biases and norms count if the module has them."""
        sizes = [integer(batch, "batch", 0), integer(len_q, "len_q", 0)]
        sizes.append(sizes[1] if len_kv is None else integer(len_kv, "len_kv", 0))
        return self._count({}, *sizes)

    def _count(self, options: Mapping[str, Any], batch: int, len_q: int, len_kv: int) -> Counts:
        layer, kept = self._described({**self.options, **options})
        slots = self._slots(self.weights, self._weights(options))
        found = _native.struct(_abi.attn_layer_counts)
        _native.call(self._functions["count"], ctypes.byref(layer), batch, len_q, len_kv, slots.reference, ctypes.byref(found))
        del kept
        return Counts(found.parameters, found.cache_per_token, found.saved_bytes, found.flops)


class Call:
    """One call of a module: its structs, and the arrays behind them."""

    def __init__(
        self, module: Module, inputs: Sequence[Any], options: Mapping[str, Any], held: Callable[[Call], int] | None = None,
    ) -> None:
        """held: where there is a cache, how many keys its longest entry will have."""
        self.module, self.names = module, module._inputs
        merged = {**module.options, **options}
        self.slots = Slots(_abi.attn_layer_tensors)
        tensors = self.slots.struct
        packed = merged.get("cu_seqlens_q") is not None or merged.get("cu_seqlens_kv") is not None
        self.known = module._weights(merged)
        self.arrays: dict[str, Array] = {}
        self.flat = packed
        lengths: dict[str, int] = {}
        widths, self.width = module._channels()
        for field_name, name, x, width in zip(("query", "key", "value"), self.names, inputs, widths):
            if x is None:
                continue
            array = rows(typed(x, name, module.dtype, f"the {module._noun} is"))
            wanted = 2 if packed or (self.flat and field_name != "query") else None
            if field_name == "query":
                self.flat = array.ndim == 2
                self.front = array.shape[:-2]
            if array.ndim not in (2, 3) or (wanted and array.ndim != wanted) or (field_name != "query" and (array.ndim == 2) != self.flat):
                axes = "[tokens" if packed or (self.flat and field_name != "query") else "[batch, tokens"
                why = ", as cu_seqlens_q is given" if packed else ""
                raise ValueError(f"{name} has shape {list(array.shape)}; it must be {axes}, {width}]{why}")
            if array.shape[-1] != width:
                raise ValueError(f"{name} has shape {list(array.shape)}; it must have {width} channels")
            self.put(field_name, array)
            lengths[field_name] = array.shape[-2]
            if array.ndim == 3 and array.shape[0] != self.arrays["query"].shape[0]:
                entries = self.arrays["query"].shape[0]
                raise ValueError(f"{name} has shape {list(array.shape)}; it must have {entries} entries, as {self.names[0]} has")
        keys = lengths.get("key", lengths["query"])
        if lengths.get("value", keys) != keys:
            raise ValueError(f"{self.names[2]} has {lengths['value']} tokens; it must have {keys}, as {self.names[1]} has")
        self.tokens_q, self.tokens_kv = lengths["query"], lengths.get("key", lengths.get("value", lengths["query"]))
        self.has_key = "key" in lengths or "value" in lengths
        batch, len_q, len_kv = (1 if self.flat else self.front[0]), self.tokens_q, self.tokens_kv
        if packed:
            for name in ("cu_seqlens_q", "cu_seqlens_kv"):
                if merged.get(name) is None:
                    raise ValueError(f"{name} is missing; set both cu_seqlens_q and cu_seqlens_kv")
            bounds = [integers(merged[name], name) for name in ("cu_seqlens_q", "cu_seqlens_kv")]
            for name, bound, total in zip(("cu_seqlens_q", "cu_seqlens_kv"), bounds, (self.tokens_q, self.tokens_kv)):
                if bound.ndim != 1 or bound.size < 1 or bound[-1] != total:
                    raise ValueError(f"{name} must end with the {total} tokens of its input")
            batch = bounds[0].size - 1
            len_q, len_kv = (int(np.max(np.diff(bound), initial=0)) for bound in bounds)
        self.batch = batch
        tensors.batch, tensors.len_q, tensors.len_kv = batch, len_q, len_kv if self.has_key else 0
        keys = len_kv if held is None else held(self)
        dims = module._dims(merged, held is not None)
        self.sizes = Sizes(batch, *module._heads(merged), len_q, keys, dims, self.tokens_q if packed else 0)
        self.counted = (1, self.tokens_q, self.tokens_kv) if packed else (batch, len_q, len_kv)
        self.inner = Inner(merged, self.sizes, module.dtype, align=held is None)
        self.layer, self.kept = module._struct(merged)
        self.layer.attention = ctypes.pointer(self.inner.problem)
        self.weights = module._slots(module.weights, self.known)

    def put(self, name: str, array: Array) -> None:
        """A tensor [batch, tokens, channels] or [tokens, channels]."""
        self.arrays[name] = array if array.ndim == 3 else array[np.newaxis]
        self.slots.put(name, self.arrays[name], (0, 2, 3))

    def positions(self, name: str, x: Any, tokens: int) -> None:
        """Positions of tokens for a rotation."""
        if x is None:
            return
        array = np.require(integers(x, name), np.int64, ["C", "A"])
        shape = (tokens,) if self.flat else (self.batch, tokens)
        if array.shape != shape:
            raise ValueError(f"{name} has shape {list(array.shape)}; it must be {list(shape)}")
        put_dense(self.slots, name, array)

    def outputs(self, names: Sequence[str]) -> dict[str, Array]:
        """Arrays for further outputs by name."""
        len_kv = self.sizes.len_kv + ("extra_key" in self.weights.arrays)
        if isinstance(names, str):
            raise TypeError(f"outputs must be names, as in outputs=[{names!r}]")
        found: dict[str, Array] = {}
        for name in names:
            if name == "weights_mean":
                if self.sizes.tokens:
                    shape: tuple[int, ...] = (self.batch, self.sizes.len_q, len_kv)
                else:
                    shape = (self.batch, self.tokens_q, len_kv)
                found[name] = np.empty(shape, self.module.dtype)
                put_dense(self.slots, name, found[name])
            else:
                self.inner.output(name, ("weights_mean",))
                found[name] = self.inner.outputs[name]
        return found

    def run(self, function: str, *between: Any, after: Sequence[Any] = ()) -> None:
        """Calls attn_NAME_function(layer, weights, between..., tensors, after...)."""
        tensors = self.slots.struct
        if self.inner.tensors.arrays:
            tensors.attention = ctypes.pointer(self.inner.tensors.struct)
        if self.inner.call is not None:
            tensors.call = ctypes.pointer(self.inner.call)
        if self.inner.options is not None:
            tensors.options = self.inner.options
        name = self.module._functions[function]
        _native.call(name, ctypes.byref(self.layer), self.weights.reference, *between, self.slots.reference, *after)


def forward(
    module: Module, inputs: Sequence[Any], options: Mapping[str, Any], out: Any, saved: bool, outputs: Sequence[str],
    positions: Sequence[Any] = (None, None),
) -> Forward:
    call = Call(module, inputs, options)
    call.positions("positions_q", positions[0], call.tokens_q)
    call.positions("positions_kv", positions[1], call.tokens_kv)
    made = result(out, (*call.arrays["query"].shape[1 if call.flat else 0:-1], call.width), module.dtype)
    call.put("output", made)
    further = call.outputs(outputs)
    memory = np.empty(module._count({**module.options, **options}, *call.counted).saved_bytes, np.uint8) if saved else None
    if memory is not None:
        call.slots.struct.saved = pointer(memory)
    call.run("forward")
    x = inputs[0]
    return Forward(like(made, x) if out is None else out, memory, {name: like(_plain(array, call), x) for name, array in further.items()})


def _plain(array: Array, call: Call) -> Array:
    """Without the axis batch where the input has none."""
    return array[0] if call.flat and array.shape[0] == 1 and (call.batch == 1 or call.sizes.tokens) else array


def backward(
    module: Module, grad_output: Any, inputs: Sequence[Any], options: Mapping[str, Any], saved: Any, grads: Sequence[str], grad_lse: Any,
    positions: Sequence[Any] = (None, None),
) -> Gradients:
    if isinstance(grads, str):
        raise TypeError(f"grads must be names, as in grads=[{grads!r}]")
    if saved is None:
        saved = forward(module, inputs, options, None, True, (), positions).saved
    call = Call(module, inputs, options)
    call.positions("positions_q", positions[0], call.tokens_q)
    call.positions("positions_kv", positions[1], call.tokens_kv)
    gradient = rows(typed(grad_output, "grad_output", module.dtype, f"the {module._noun} is"))
    expected = (*call.arrays["query"].shape[1 if call.flat else 0:-1], call.width)
    if gradient.shape != expected:
        raise ValueError(f"grad_output has shape {list(gradient.shape)}; it must be {list(expected)}")
    call.put("grad_output", gradient)
    if grad_lse is not None:
        array = rows(typed(grad_lse, "grad_lse", module.dtype, f"the {module._noun} is"))
        shape = (call.sizes.heads_q, call.tokens_q)
        if array.shape[-2:] != shape or array.ndim > 3 or (array.ndim == 3 and array.shape[0] not in (1, call.batch)):
            wanted = list(shape) if call.flat else [call.batch, *shape]
            raise ValueError(f"grad_lse has shape {list(array.shape)}; it must be {wanted}")
        put_dense(call.inner.tensors, "grad_lse", np.ascontiguousarray(array))
    memory = np.require(asarray(saved, "saved"), requirements=["C", "A"])
    size = module._count({**module.options, **options}, *call.counted).saved_bytes
    if memory.dtype != np.uint8 or memory.size != size:
        raise ValueError(f"saved has {memory.nbytes} bytes of {memory.dtype}; it must be the {size} that forward saved for these inputs")
    call.slots.struct.saved = pointer(memory)
    made: list[Array | None] = []
    for name in ("query", "key", "value"):
        made.append(None if name not in call.arrays else np.empty(call.arrays[name].shape, module.dtype))
        if made[-1] is not None:
            call.slots.put(f"grad_{name}", made[-1], (0, 2, 3))
    for name in grads:
        call.inner.gradient(name)
    shapes = {name: asarray(x, name).shape for name, x in module.weights.items() if x is not None}
    of_weights = {name: np.empty(shape, module.dtype) for name, shape in shapes.items()}
    slots = module._slots(of_weights, call.known, writable=True)
    call.run("backward", after=(slots.reference,))
    x = inputs[0]
    plain = [None if one is None else like(one[0] if call.flat else one, x) for one in made]
    return Gradients(
        plain[0], plain[1], plain[2], {name: like(array, module.weights[name]) for name, array in of_weights.items()},
        {name: like(array, x) for name, array in call.inner.gradients.items()},
    )


def decode(
    module: Module, cache: Any, inputs: Sequence[Any], options: Mapping[str, Any], out: Any, outputs: Sequence[str],
    only_cached: bool, function: str = "decode",
) -> Any:
    struct = of_cache(module, cache)
    rest = {name: x for name, x in options.items() if name != "lengths_q"}
    x = options.get("lengths_q")
    lengths = None if x is None else np.require(integers(x, "lengths_q"), np.int64, ["C", "A"])

    def held(call: Call) -> int:
        if cache.batch != call.batch:
            raise ValueError(f"cache has {cache.batch} entries; it must have {call.batch}, as {call.names[0]} has")
        if lengths is not None and lengths.shape != (call.batch,):
            raise ValueError(f"lengths_q has shape {list(lengths.shape)}; it must be [{call.batch}]")
        appended = 0 if only_cached else lengths if lengths is not None and not call.has_key else call.tokens_kv
        return max(int(np.max(cache.lengths + appended, initial=0)), 0)

    with cache._lock:  # the lengths that sizes are made of must be those that C reads
        call = Call(module, inputs, rest, held)
        if lengths is not None:
            put_dense(call.slots, "lengths_q", lengths)
        call.slots.struct.only_cached = int(bool(only_cached))
        made = result(out, (*call.arrays["query"].shape[1 if call.flat else 0:-1], call.width), module.dtype)
        call.put("output", made)
        further = call.outputs(outputs)
        call.run(function, ctypes.byref(struct))
    output = like(made, inputs[0]) if out is None else out
    return Forward(output, None, {name: like(_plain(array, call), inputs[0]) for name, array in further.items()}) if further else output


def remember(module: Module, cache: Any, memory: Any, lengths: Any) -> None:
    """attn_seq2seq_remember: appends a memory to a cache."""
    array = rows(typed(memory, "memory", module.dtype, f"the {module._noun} is"))
    width = module._channels()[0][1]
    if array.ndim not in (2, 3) or array.shape[-1] != width:
        raise ValueError(f"memory has shape {list(array.shape)}; it must be [batch, tokens, {width}]")
    full = array if array.ndim == 3 else array[np.newaxis]
    real = None if lengths is None else integers(lengths, "lengths")
    if real is not None and (real.shape != full.shape[:1] or np.any(real < 0) or np.any(real > full.shape[1])):
        raise ValueError(f"lengths must be {full.shape[0]} numbers between 0 and {full.shape[1]}")
    slots = Slots(_abi.attn_layer_tensors)
    slots.struct.batch, slots.struct.len_kv = full.shape[:2]
    slots.put("key", full, (0, 2, 3))
    inner = Inner(module.options, Sizes(full.shape[0], 1, 1, 0, full.shape[1], module._dims(module.options, True)), module.dtype, align=False)
    layer, kept = module._struct(module.options)
    layer.attention = ctypes.pointer(inner.problem)
    struct = of_cache(module, cache)
    weights = module._slots(module.weights, module._weights({}))
    with cache._lock:
        before = np.array(cache.lengths)
        _native.call(module._functions["remember"], ctypes.byref(layer), weights.reference, ctypes.byref(struct), slots.reference)
        if real is not None:
            cache.lengths[...] = before + real
    del kept


def of_cache(module: Module, cache: Any) -> Any:
    """The attn_cache of a cache; that of a latent layer has no values of its own."""
    if not isinstance(cache, Cache):
        raise TypeError(f"cache is of type {type(cache).__name__}; it must be a libattn.cache.Cache")
    struct = _abi.attn_cache.from_buffer_copy(cache._cache)
    if module._name == "latent":
        struct.v, struct.v_scale = _abi.attn_output(), _abi.attn_output()
    return struct


class _View:
    """Memory of an archive that a weight borrows."""

    def __init__(self, owner: Any, address: int, shape: tuple[int, ...], strides: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self.owner = owner
        self.__array_interface__ = {"version": 3, "shape": shape, "strides": strides, "typestr": dtype.str, "data": (address, True)}


def _borrowed(slot: Any, weight: Weight, dtype: np.dtype[Any], owner: Any) -> Array:
    strides = [slot.stride[axis] for axis in weight.axes]
    if not any(slot.stride):
        strides = [int(np.prod(weight.sizes[i + 1:], dtype=np.int64)) for i in range(len(weight.sizes))]
    view = _View(owner, slot.data, weight.sizes, tuple(stride * dtype.itemsize for stride in strides), dtype)
    return np.asarray(view).reshape(weight.flat)
