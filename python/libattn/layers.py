# SPDX-License-Identifier: MIT
"""Attention layers with weights: multi-head, grouped and single-head attention, self or cross, forward, backward and token by token.
(The header attn/layers.h.)

    layer = layers.Layer.load("layer.safetensors", heads_q=12)          # or layers.Layer(384, 12).initialise()
    y = layer(x)                                                        # x and y [batch, tokens, channels]
    done = layer.forward(x, saved=True, outputs=["weights_mean"])
    grads = layer.backward(grad_y, x, saved=done.saved)                 # grads.query, grads.weights["query_bias"], ...
"""
from __future__ import annotations

import copy
import ctypes
from collections.abc import Mapping, Sequence
from typing import Any, Self, Unpack

import numpy as np

from . import _abi, _modules, _native
from ._arguments import integer, text
from ._arrays import asarray
from ._modules import Counts, Forward, Gradients, Module, Weight
from ._problem import Options
from .cache import Cache
from .files import Archive, Path

__all__ = ["Counts", "Forward", "Gradients", "Layer", "Options"]


class Layer(Module):
    """Multi-head attention (Vaswani et al. 2017, section 3.2.2).  With x the query, key and value inputs,

        q[b,h,i,:] = query(x_q[b,i]), k[b,g,j,:] = key(x_k[b,j]), v[b,g,j,:] = value(x_v[b,j])     rotated if there is a rope
        a          = attention(q, k, v)                                                        libattn.attention, with its options
        y[b,i,:]   = output(a[b,:,i,:])

     dim_model       channels of the query input, and of the output unless dim_output is given
     heads_q         query heads; 1 is single-head attention
     heads_kv        key and value heads, of which heads_q is a multiple; None: heads_q
     head_dim        channels of a query and of a key; None: dim_model / heads_q, an integer
     head_dim_v      channels of a value; None: head_dim
     dim_key, dim_value, dim_output    channels of the key input, the value input, the output; None: dim_model, dim_key, dim_model
     dtype           of inputs, weights and outputs: float32 or float64
     weights         by name, or None: none yet (initialise, load_weights)
     rope            libattn.positions.Rope, the rotation of projected queries and keys
     no_query, no_key, no_value    no projection: that input has the heads side by side; a bias is still added
     no_output       no output projection: the output is the heads side by side, heads_q * head_dim_v channels
     options         libattn.layers.Options

    Weights, of the layer's type: matrices [out, in], or with their heads apart as in the second form; the names in `weights`:

        query    [heads_q * head_dim, dim_model]          [heads_q, head_dim, dim_model]        query_bias    [heads_q * head_dim]
        key      [heads_kv * head_dim, dim_key]           [heads_kv, head_dim, dim_key]         key_bias      [heads_kv * head_dim]
        value    [heads_kv * head_dim_v, dim_value]       [heads_kv, head_dim_v, dim_value]     value_bias    [heads_kv * head_dim_v]
        output   [dim_output, heads_q * head_dim_v]       [dim_output, heads_q, head_dim_v]     output_bias   [dim_output]
        extra_key [heads_kv * head_dim], extra_value [heads_kv * head_dim_v]: a learned key that every query sees, regardless of masks,
        and its value (bias_k and bias_v of torch.nn.MultiheadAttention), without a position; it is the last column of weights_mean

    Slices and transposes (w.T of x @ w) are used where they are.  Weights may be replaced in the dict `weights` at any time.  Layers can
    be copied and pickled.

    Errors, here and in all methods: ValueError for shapes and values, TypeError for types, NotImplementedError for what is well formed and
    not supported, MemoryError; the sentence names the argument, and nothing is written.
    """

    _name = "layer"
    _functions = {
        "forward": "attn_layer_forward", "backward": "attn_layer_backward", "decode": "attn_layer_decode", "count": "attn_layer_count",
        "initialise": "attn_layer_initialise", "load": "attn_layer_load", "store": "attn_layer_store",
    }

    def __init__(
        self, dim_model: int, heads_q: int, *, heads_kv: int | None = None, head_dim: int | None = None, head_dim_v: int | None = None,
        dim_key: int | None = None, dim_value: int | None = None, dim_output: int | None = None, dtype: Any = np.float32,
        weights: Mapping[str, Any] | None = None, rope: Any = None, no_query: bool = False, no_key: bool = False, no_value: bool = False,
        no_output: bool = False, **options: Unpack[Options],
    ) -> None:
        self.dim_model: int = integer(dim_model, "dim_model", 1)
        self.heads_q: int = integer(heads_q, "heads_q", 1)
        self.heads_kv: int = self.heads_q if heads_kv is None else integer(heads_kv, "heads_kv", 1)
        if head_dim is None and self.dim_model % self.heads_q:
            raise ValueError(f"dim_model ({self.dim_model}) is not a multiple of heads_q ({self.heads_q}); set head_dim")
        self.head_dim: int = self.dim_model // self.heads_q if head_dim is None else integer(head_dim, "head_dim", 1)
        self.head_dim_v: int = self.head_dim if head_dim_v is None else integer(head_dim_v, "head_dim_v", 1)
        self.dim_key: int = self.dim_model if dim_key is None else integer(dim_key, "dim_key", 1)
        self.dim_value: int = self.dim_key if dim_value is None else integer(dim_value, "dim_value", 1)
        self.dim_output: int = self.dim_model if dim_output is None else integer(dim_output, "dim_output", 1)
        if self.heads_q % self.heads_kv:
            raise ValueError(f"heads_q ({self.heads_q}) is not a multiple of heads_kv ({self.heads_kv})")
        self.rope: Any = check_rope(rope)
        self.no_query: bool = bool(no_query)
        self.no_key: bool = bool(no_key)
        self.no_value: bool = bool(no_value)
        self.no_output: bool = bool(no_output)
        super().__init__(dtype, weights, options)

    @classmethod
    def load(
        cls, source: Archive | Path, prefix: str = "", *, heads_q: int, heads_kv: int | None = None, head_dim: int | None = None,
        head_dim_v: int | None = None, dim_model: int | None = None, dim_key: int | None = None, dim_value: int | None = None,
        dim_output: int | None = None, dtype: Any = None, rope: Any = None, **options: Unpack[Options],
    ) -> Self:
        """A layer with the weights of a file or an archive; sizes and the type that are not given are those of its tensors.

        Names, after `prefix` ("" or such as "layers.3.attn."): torch.nn.MultiheadAttention's in_proj_weight or q_proj_weight,
        k_proj_weight, v_proj_weight; in_proj_bias; out_proj.weight, out_proj.bias; or NAME.weight and NAME.bias with q_proj, k_proj,
        v_proj, out_proj or o_proj; or wq wk wv wo, bq bk bv bo.  bias_k and bias_v are the extra key and value.

        Raises what load_weights raises.
        """
        archive = source if isinstance(source, Archive) else Archive.read(source)
        text(prefix, "prefix")
        heads = integer(heads_q, "heads_q", 1)

        def shape(*names: str) -> tuple[int, ...]:
            shapes = (archive[prefix + name].shape for name in names if prefix + name in archive)
            return next((found for found in shapes if len(found) == 2), ())

        def per_head(size: int, count: int) -> int | None:
            return size // count if size and size % count == 0 else None

        fused = shape("in_proj_weight")
        query = (fused[0] // 3, fused[1]) if fused else shape("q_proj_weight", "q_proj.weight", "wq")
        key = query if fused else shape("k_proj_weight", "k_proj.weight", "wk")
        value = query if fused else shape("v_proj_weight", "v_proj.weight", "wv")
        output = shape("out_proj.weight", "o_proj.weight", "wo")
        if head_dim is None and query:
            head_dim = per_head(query[0], heads)
        if heads_kv is None and key and head_dim and key[0] % head_dim == 0:
            heads_kv = key[0] // head_dim
        if head_dim_v is None and value:
            head_dim_v = per_head(value[0], heads_kv or heads)
        if dtype is None:
            dtype = next((tensor.dtype for name, tensor in archive.items() if name.startswith(prefix) and tensor.dtype.itemsize in (4, 8)
                          and tensor.dtype.kind == "f"), np.dtype(np.float32))
        made = cls(
            dim_model or (query[1] if query else heads), heads, heads_kv=heads_kv, head_dim=head_dim, head_dim_v=head_dim_v,
            dim_key=dim_key or (key[1] if key else None), dim_value=dim_value or (value[1] if value else None),
            dim_output=dim_output or (output[0] if output else None), dtype=dtype, rope=rope, **options,
        )
        return made.load_weights(archive, prefix)

    def __repr__(self) -> str:
        heads = f"{self.heads_q} heads" if self.heads_kv == self.heads_q else f"{self.heads_q} heads over {self.heads_kv}"
        return f"Layer({self.dim_model} channels, {heads} of {self.head_dim}, {self.dtype}, weights: {', '.join(self.weights) or 'none'})"

    def __call__(self, query: Any, key: Any = None, value: Any = None, *, out: Any = None, **options: Unpack[Options]) -> Any:
        """The output of forward."""
        return _modules.forward(self, (query, key, value), options, out, False, ()).output

    def forward(
        self, query: Any, key: Any = None, value: Any = None, *, out: Any = None, saved: bool = False, outputs: Sequence[str] = (),
        positions_q: Any = None, positions_kv: Any = None, **options: Unpack[Options],
    ) -> Forward:
        """The layer over whole sequences.

         query          [batch, len_q, dim_model], or [len_q, dim_model]
         key            [batch, len_kv, dim_key]; None: the query (self-attention)
         value          [batch, len_kv, dim_value]; None: the key
         out            where the output is written: dense, of the layer's type
         saved          True: keep what backward would have to compute again
         outputs        names of further outputs: "weights_mean" [batch, len_q, len_kv], the weights averaged over the heads, and those of
                        libattn.attention: "weights" [batch, heads_q, len_q, len_kv], "lse", "entropy", ...
         positions_q, positions_kv    [batch, tokens] of integers, for the rotation; None: 0, 1, 2 ... of each entry

        Packed: with cu_seqlens_q and cu_seqlens_kv, sequences are concatenated, and query, key, value and output are [tokens, channels].

        The bits of the output do not depend on the number of threads.
        """
        return _modules.forward(self, (query, key, value), options, out, saved, outputs, (positions_q, positions_kv))

    def backward(
        self, grad_output: Any, query: Any, key: Any = None, value: Any = None, *, saved: Any = None, grads: Sequence[str] = (),
        grad_lse: Any = None, positions_q: Any = None, positions_kv: Any = None, **options: Unpack[Options],
    ) -> Gradients:
        """All gradients, from that of the output: of the inputs, of all weights by name, each of the weight's shape, and of the tensors of
        the call that `grads` names, such as "bias", "sink", "alibi_slopes" or "scale", as in libattn.attention_backward.

        Arguments and options are those of forward (with its seed, dropout drops the same weights); `saved` is what it saved, None:
        computed again.  If the key is the query, its gradient is part of query's, and if the value is the key, of key's.  grad_lse
        [batch, heads_q, len_q] is the gradient of the output "lse".
        """
        return _modules.backward(self, grad_output, (query, key, value), options, saved, grads, grad_lse, (positions_q, positions_kv))

    def decode(
        self, cache: Cache, query: Any, key: Any = None, value: Any = None, *, only_cached: bool = False, out: Any = None,
        outputs: Sequence[str] = (), **options: Unpack[Options],
    ) -> Any:
        """The next tokens of each entry, over a cache (self.cache, or any without a rope of its own).  With n = cache.lengths[b] before,

            token t of the key input becomes key n + t of the cache, rotated to position n + t if there is a rope
            query t has position n + t and sees all keys; with causal those up to n + t, with a window those within it

        so with causal, token by token or in chunks of any size, the outputs are those of forward over the whole, up to rounding.

         lengths_q     (among the options) [batch]: how many of the tokens are real; None: all
         only_cached   True: nothing is appended, and queries attend to the cache as it is, for example a memory that was filled once
                       (cross-attention)

        Returns the output, or with `outputs` a Forward.  On any error the cache's lengths are unchanged.
        """
        return _modules.decode(self, cache, (query, key, value), options, out, outputs, only_cached)

    def cache(
        self, batch: int, capacity: int, *, dtype: Any = None, v_dtype: Any = None, page_size: int | None = None,
    ) -> Cache:
        """An empty cache for decode: capacity tokens of each of `batch` sequences, of float32, float16, bfloat16, or as cache.quantise names
        them, "i8", "f8_e4m3", "f8_e5m2", "q8_0", "q4_0" or "q4_1" (float64 for a layer of float64); None: of the layer's type.
        v_dtype: None: as dtype."""
        kind, keys = self.dtype if dtype is None else dtype, self._key_dim(self.options)
        return Cache.empty(batch, self.heads_kv, capacity, keys, self.head_dim_v, dtype=kind, v_dtype=v_dtype, page_size=page_size)

    def group_heads(self, groups: int) -> Layer:
        """A layer with fewer heads of keys and values: head g is the mean of heads g*n .. g*n+n-1 of this one, n = heads_kv / groups
        (Ainslie et al. 2023, section 2.1).  The other weights are shared."""
        count = integer(groups, "groups", 1)
        made = copy.copy(self)
        made.options, made.weights = dict(self.options), dict(self.weights)
        made.heads_kv = count
        known = made._weights(self.options)
        grouped = ("key", "value", "key_bias", "value_bias", "extra_key", "extra_value")
        names = [name for name in grouped if self.weights.get(name) is not None]
        if self.heads_kv % count:
            raise ValueError(f"heads_kv ({self.heads_kv}) is not a multiple of groups ({count})")
        fresh = {name: np.empty(known[name].flat, self.dtype) for name in names}
        layer, kept = self._described(self.options)
        old, new = self._slots(self.weights, self._weights(self.options)), made._slots(fresh, known, writable=True)
        _native.call("attn_layer_group_heads", ctypes.byref(layer), count, old.reference, new.reference)
        del kept
        made.weights.update(fresh)
        return made

    def _key_dim(self, options: Mapping[str, Any]) -> int:
        matrix = options.get("score_matrix")
        if options.get("score") == "general" and matrix is not None and np.ndim(matrix):
            return asarray(matrix, "score_matrix").shape[-1]
        return self.head_dim

    def _weights(self, options: Mapping[str, Any]) -> dict[str, Weight]:
        h, g, c, cv = self.heads_q, self.heads_kv, self.head_dim, self.head_dim_v
        ck = self._key_dim({**getattr(self, "options", {}), **options})
        known = {
            "query": Weight((1, 2, 3), (h, c, self.dim_model), 0, True), "key": Weight((1, 2, 3), (g, ck, self.dim_key), 0, True),
            "value": Weight((1, 2, 3), (g, cv, self.dim_value), 0, True), "output": Weight((1, 2, 3), (self.dim_output, h, cv), 1, True),
            "query_bias": Weight((1, 2), (h, c), 0), "key_bias": Weight((1, 2), (g, ck), 0), "value_bias": Weight((1, 2), (g, cv), 0),
            "output_bias": Weight((3,), (self.dim_output,)), "extra_key": Weight((1, 2), (g, ck), 0),
            "extra_value": Weight((1, 2), (g, cv), 0),
        }
        return known

    def _needed(self) -> set[str]:
        return {name for name in ("query", "key", "value", "output") if not getattr(self, f"no_{name}")}

    def _biased(self) -> set[str]:
        return {"query", "key", "value"} | ({"output"} - {"output" if self.no_output else ""})

    def _heads(self, options: Mapping[str, Any]) -> tuple[int, int]:
        return self.heads_q, self.heads_kv

    def _dims(self, options: Mapping[str, Any], decoding: bool) -> tuple[int, int, int]:
        return self.head_dim, self._key_dim(options), self.head_dim_v

    def _channels(self) -> tuple[tuple[int, int, int], int]:
        inputs = (
            self.heads_q * self.head_dim if self.no_query else self.dim_model,
            self.heads_kv * self._key_dim(self.options) if self.no_key else self.dim_key,
            self.heads_kv * self.head_dim_v if self.no_value else self.dim_value,
        )
        return inputs, self.heads_q * self.head_dim_v if self.no_output else self.dim_output

    def _struct(self, options: Mapping[str, Any]) -> tuple[Any, list[Any]]:
        made = _native.struct(
            _abi.attn_layer, dtype=_abi.ATTN_F64 if self.dtype == np.float64 else _abi.ATTN_F32,
            **{name: getattr(self, name) for name in ("dim_model", "dim_key", "dim_value", "dim_output", "heads_q", "heads_kv", "head_dim",
                                                      "head_dim_v")},
            **{name: int(getattr(self, name)) for name in ("no_query", "no_key", "no_value", "no_output")},
        )
        if self.no_output:
            made.dim_output = 0
        return made, put_rope(made, self.rope, self.head_dim)


def check_rope(rope: Any) -> Any:
    """The rope itself, if it is one or None."""
    if rope is not None and not hasattr(rope, "_struct"):
        raise TypeError(f"rope is of type {type(rope).__name__}; it must be a libattn.positions.Rope or None")
    return rope


def put_rope(struct: Any, rope: Any, channels: int) -> list[Any]:
    """Fills in struct.rope; returns what must live as long as it is used."""
    if rope is None:
        return []
    made, kept = rope._struct(channels, False)
    struct.rope = ctypes.pointer(made)
    return [made, kept]
