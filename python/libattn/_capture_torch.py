# SPDX-License-Identifier: MIT
"""Records the attention of a PyTorch model (libattn.capture) at the places where models call it:

    F.scaled_dot_product_attention and F.multi_head_attention_forward
        by a TorchFunctionMode, which sees them wherever they were imported to.  While one is active, nn.MultiheadAttention and
        nn.TransformerEncoderLayer leave their fast paths by themselves
    libattn.torch.attention, and libattn's modules and FlexAttention over it
        by the same, which sees their operator (_capture_operator.py)
    the attention functions of transformers
        by AttentionInterface.get_interface, from which every model gets its function, "eager" or a registered one

Hooks of the model's modules say which of them is running.
"""
from __future__ import annotations

import contextlib
import inspect
import sys
import threading
from typing import Any, Callable, Iterator

import numpy as np
import torch
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from ._arrays import Array
from ._capture import Layer, Record

Tensor = torch.Tensor
MHA = inspect.signature(F.multi_head_attention_forward)

_lock = threading.Lock()
_active = threading.local()
_patched: dict[type, Callable[..., Any]] = {}
_users = 0


class Running(threading.local):
    """The modules whose forward runs, each thread's own, the innermost last."""

    def __init__(self) -> None:
        self.modules: list[int] = []

    def enter(self, module: int) -> None:
        self.modules.append(module)

    def leave(self, module: int) -> None:
        """Also of modules within it, which a removed hook or an interrupt may have left; nothing, if it began before there was a hook."""
        if module in self.modules:
            del self.modules[len(self.modules) - 1 - self.modules[::-1].index(module):]


class Recorder(TorchFunctionMode):
    def __init__(self, model: torch.nn.Module, record: Record) -> None:
        super().__init__()
        self.names = {id(module): name or type(model).__name__ for name, module in model.named_modules()}
        self.record = record
        self.running = Running()
        self.inside = 0  # calls of transformers' functions, which may call PyTorch's
        self.kept: dict[tuple[Any, ...], tuple[Any, Array]] = {}  # masks as arrays, which layers share

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self.running.modules and not self.inside:
            name = self.names[self.running.modules[-1]]
            if func is F.scaled_dot_product_attention:
                self.add(name, *self.of_sdpa(*args, **kwargs))
            elif func is F.multi_head_attention_forward:
                bound = MHA.bind(*args, **kwargs)
                bound.apply_defaults()
                self.add(name, *self.of_multi_head(bound.arguments))
            elif str(func) == "libattn.attention.default":
                from ._capture_operator import problem

                self.add(name, *problem(*args[:3], args[3:], array))
        return func(*args, **kwargs)

    def add(self, name: str, q: Tensor, k: Tensor, v: Tensor, options: dict[str, Any]) -> None:
        self.record._add(Layer(name, array(q), array(k), array(v), options))

    # ---- masks

    def shared(self, tensor: Tensor, make: Callable[[Any], Any], *key: Any) -> Any:
        """make(tensor), once for a tensor that several layers get."""
        place = (id(tensor), tensor._version if not tensor.is_inference() else 0, *key)
        if place not in self.kept:
            self.kept[place] = (tensor, make(tensor))
        return self.kept[place][1]

    def triangle(self, queries: int, keys: int, first: int, left: int | None = None) -> Array:
        """[1, 1, queries, keys]: query i stands at key first + i, and sees it, those before it, and at most `left` of these."""
        place = ("triangle", queries, keys, first, left)
        if place not in self.kept:
            distance = (first + np.arange(queries))[:, None] - np.arange(keys)
            seen = distance >= 0 if left is None else (distance >= 0) & (distance <= left)
            self.kept[place] = (None, seen[None, None])
        return self.kept[place][1]

    def of_mask(self, mask: Tensor, keys: int) -> dict[str, Array]:
        """A mask [..., queries, keys], of bool (True is kept) or added to the scores, as options."""
        return self.shared(mask, lambda given: split(array(four(given))[..., :keys]), "split", keys)

    # ---- the problem of a call: q, k, v as [batch, heads, tokens, dim], and options

    def of_sdpa(self, query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0,
                is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False) -> tuple[Any, ...]:
        q, k, v = four(query), four(key), four(value)
        options: dict[str, Any] = {} if scale is None else {"scale": float(scale)}
        if attn_mask is not None:
            options.update(self.of_mask(attn_mask, k.shape[2]))
        if is_causal:
            both(options, "mask", self.triangle(q.shape[2], k.shape[2], 0))
        return q, k, v, options

    def of_multi_head(self, given: dict[str, Any]) -> tuple[Any, ...]:
        """nn.MultiheadAttention's: the projections of its inputs, as F.multi_head_attention_forward computes them."""
        if given["static_k"] is not None or given["static_v"] is not None:
            raise NotImplementedError("capture: static_k and static_v of multi_head_attention_forward are not recorded")
        x = [given[name] if given[name].dim() == 3 else given[name].unsqueeze(1) for name in ("query", "key", "value")]
        packed, bias, heads = given["in_proj_weight"], given["in_proj_bias"], given["num_heads"]
        by_name = [given[f"{name}_proj_weight"] for name in "qkv"]
        weights = by_name if given["use_separate_proj_weight"] else packed.chunk(3)
        biases = (None, None, None) if bias is None else bias.chunk(3)
        q, k, v = (F.linear(one, weight, more) for one, weight, more in zip(x, weights, biases))
        if given["bias_k"] is not None:
            k, v = (torch.cat([one, more.repeat(1, one.shape[1], 1)]) for one, more in ((k, given["bias_k"]), (v, given["bias_v"])))
        if given["add_zero_attn"]:
            k, v = (torch.cat([one, one.new_zeros(1, *one.shape[1:])]) for one in (k, v))
        q, k, v = (one.reshape(one.shape[0], one.shape[1], heads, -1).permute(1, 2, 0, 3) for one in (q, k, v))
        batch, queries, keys, more = q.shape[0], q.shape[2], k.shape[2], k.shape[2] - x[1].shape[0]
        options: dict[str, Any] = {}
        if given["attn_mask"] is not None:  # True is masked here
            mask = given["attn_mask"]
            mask = F.pad(~mask if mask.dtype == torch.bool else mask, (0, more), value=mask.dtype == torch.bool)
            options.update(split(array(four(mask if mask.dim() == 2 else mask.reshape(batch, heads, queries, keys)))))
        elif given["is_causal"]:
            both(options, "mask", self.triangle(queries, keys, 0))
        if given["key_padding_mask"] is not None:
            padding = given["key_padding_mask"].reshape(batch, -1)
            padding = F.pad(~padding if padding.dtype == torch.bool else padding, (0, more), value=padding.dtype == torch.bool)
            for name, seen in split(array(padding)[:, None, None]).items():
                both(options, name, seen)
        return q, k, v, options

    def of_interface(self, name: str, module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Any = None,
                     **more: Any) -> tuple[Any, ...]:
        """An attention function of transformers."""
        queries, keys = query.shape[2], key.shape[2]
        options: dict[str, Any] = {}
        scale, softcap, sink, window = (more.get(one) for one in ("scaling", "softcap", "s_aux", "sliding_window"))
        if scale is not None and not np.isclose(float(scale), query.shape[3] ** -0.5, rtol=1e-6):
            options["scale"] = float(scale)
        if softcap is not None:
            options["softcap"] = float(softcap)
        if sink is not None:
            options["sink"] = array(sink)
        causal = more.get("is_causal")
        causal = getattr(module, "is_causal", True) if causal is None else causal
        aligned = name in ("sdpa", "eager", "libattn")  # these have windows in their masks, and the first query at the first key
        if isinstance(attention_mask, Tensor) and attention_mask.dim() == 4:
            options.update(self.of_mask(attention_mask, keys))
        elif isinstance(attention_mask, Tensor) and attention_mask.dim() == 2 and aligned:  # these read it as [queries, keys]
            options.update(self.of_mask(attention_mask, keys))
        elif attention_mask is None or isinstance(attention_mask, Tensor) and attention_mask.dim() == 2:
            if attention_mask is not None:
                both(options, "mask", array(attention_mask)[:, None, None, -keys:] != 0)
            if causal and queries > 1 and name != "eager" or window is not None and not aligned:
                left = None if window is None or aligned else int(window) - 1
                both(options, "mask", self.triangle(queries, keys, 0 if aligned else keys - queries, left))
        elif hasattr(attention_mask, "mask_mod"):  # FlexAttention's
            from torch.nn.attention.flex_attention import create_mask

            both(options, "mask", array(create_mask(attention_mask.mask_mod, query.shape[0], query.shape[1], queries, keys, str(query.device))))
        else:
            raise NotImplementedError(f"capture: the mask of {name!r} is a {type(attention_mask).__name__}; set attn_implementation to \"sdpa\" or \"eager\"")
        if more.get("position_bias") is not None:
            options["bias"] = options.get("bias", 0) + array(four(more["position_bias"]))[..., :keys]
        return query, key, value, {one: np.broadcast_to(value, (*value.shape[:2], queries, keys)) if one in ("mask", "bias") else value
                                   for one, value in options.items()}


def array(x: Tensor) -> Array:
    """A copy in NumPy: of float16 and bfloat16 as float32."""
    x = x.detach()
    x = x.float() if x.is_floating_point() and x.dtype != torch.float64 else x
    return x.cpu().clone().numpy()  # (a clone of libattn.transformers' masks is their matrix)


def four(x: Tensor) -> Tensor:
    """With four axes: further ones in front are one batch, missing ones have size 1."""
    return x.reshape(*(1,) * (4 - x.dim()), *x.shape) if x.dim() < 4 else x.reshape(-1, *x.shape[-3:])


def split(mask: Array) -> dict[str, Array]:
    """A mask of bool, or a sum to the scores in which the lowest numbers mean masked, as mask and bias."""
    if mask.dtype == bool:
        return {"mask": mask}
    seen = mask > np.finfo(np.float16).min
    found = {} if seen.all() else {"mask": seen}
    rest = np.where(seen, mask, 0)
    return {**found, **({"bias": rest} if rest.any() else {})}


def both(options: dict[str, Any], name: str, more: Array) -> None:
    """Adds a mask or bias to one that there may be."""
    if name in options:
        more = options[name] & more if name == "mask" else options[name] + more
    options[name] = more


def get_interface(stock: Callable[..., Any]) -> Callable[..., Any]:
    """AttentionInterface.get_interface, whose functions record for the captures of their thread."""

    def get(self: Any, attn_implementation: str, default: Callable[..., Any]) -> Callable[..., Any]:
        function = stock(self, attn_implementation, default)

        def recorded(module: Any, *args: Any, **kwargs: Any) -> Any:
            concerned = [one for one in getattr(_active, "recorders", ()) if id(module) in one.names]
            for one in concerned:
                one.add(one.names[id(module)], *one.of_interface(attn_implementation, module, *args, **kwargs))
                one.inside += 1
            try:
                return function(module, *args, **kwargs)
            finally:
                for one in concerned:
                    one.inside -= 1

        return recorded if getattr(_active, "recorders", ()) else function

    return get


@contextlib.contextmanager
def patched() -> Iterator[None]:
    """transformers' get_interface is ours while any capture is active."""
    global _users
    kind = getattr(sys.modules.get("transformers.modeling_utils"), "AttentionInterface", None)
    with _lock:
        if not _users and kind is not None and hasattr(kind, "get_interface"):
            _patched[kind] = kind.get_interface
            kind.get_interface = get_interface(kind.get_interface)
        _users += 1
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if not _users:
                for one, stock in _patched.items():
                    one.get_interface = stock
                _patched.clear()


@contextlib.contextmanager
def hooked(model: torch.nn.Module, recorder: Recorder) -> Iterator[None]:
    """recorder.running is what runs of the model."""
    def enter(module: torch.nn.Module, *_: Any) -> None:
        recorder.running.enter(id(module))

    def leave(module: torch.nn.Module, *_: Any) -> None:
        recorder.running.leave(id(module))

    handles = []
    try:
        for module in model.modules():
            handles.append(module.register_forward_pre_hook(enter))
            handles.append(module.register_forward_hook(leave, always_call=True))
        yield
    finally:
        for handle in handles:
            handle.remove()


@contextlib.contextmanager
def recording(model: Any) -> Iterator[Record]:
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"model is of type {type(model).__name__}; it must be a torch.nn.Module")
    model = getattr(model, "_orig_mod", model)  # of torch.compile
    record = Record(getattr(getattr(model, "config", None), "_name_or_path", "") or type(model).__name__)
    recorder = Recorder(model, record)
    if not hasattr(_active, "recorders"):
        _active.recorders = []
    eager = torch.compiler.set_stance("force_eager") if "torch._dynamo" in sys.modules else contextlib.nullcontext()
    with eager, patched(), hooked(model, recorder), recorder:
        _active.recorders.append(recorder)
        try:
            yield record
        finally:
            _active.recorders.remove(recorder)
            recorder.kept.clear()
