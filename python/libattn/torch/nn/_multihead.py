# SPDX-License-Identifier: MIT
"""MultiheadAttention: torch.nn.MultiheadAttention, with further options."""
from __future__ import annotations

from typing import Any, Unpack

import torch
from torch.nn import functional

from .. import _nested
from .._attention import attention, check_tensors
from ._scores import POSITIONAL, ScoreOptions, Scores, check_input, join_heads, multiple, split_heads

Tensor = torch.Tensor


class MultiheadAttention(Scores):
    """Multi-head attention (Vaswani et al. 2017, section 3.2.2) in place of torch.nn.MultiheadAttention: its arguments, its
    parameters under the same names, so that a state_dict goes from one to the other, and the same result, computed by libattn.

    embed_dim, num_heads    channels of queries and of the result, and heads, of embed_dim / num_heads channels each
    dropout                 probability that a weight is dropped in training
    bias                    projections have biases
    add_bias_kv             a learned key and its value, bias_k and bias_v, which every query sees
    add_zero_attn           a key and a value of zeros, likewise
    kdim, vdim              channels of key and value; None: embed_dim
    batch_first             inputs are [batch, tokens, channels], else [tokens, batch, channels]
    options                 ScoreOptions: window, softcap, alibi, sinks, rope, qk_norm, ...

    Parameters: in_proj_weight [3 embed_dim, embed_dim], or q_proj_weight, k_proj_weight and v_proj_weight if kdim or vdim differ;
    in_proj_bias, out_proj.weight, out_proj.bias, bias_k, bias_v; and sinks, q_norm.weight and k_norm.weight of options.

    Unlike PyTorch's: a query that sees no key gets zeros and not NaN; is_causal needs no attn_mask; the weights that are returned have
    no gradient and are those before dropout.  Position i of the queries is position i of the keys for window, alibi and rope.

        >>> layer = libattn.torch.nn.MultiheadAttention(64, 8, batch_first=True, window=(128, 0), rope=True)
        >>> layer.load_state_dict(torch.nn.MultiheadAttention(64, 8).state_dict())
        <All keys matched successfully>
    """

    def __init__(
        self, embed_dim: int, num_heads: int, dropout: float = 0.0, bias: bool = True, add_bias_kv: bool = False, add_zero_attn: bool = False,
        kdim: int | None = None, vdim: int | None = None, batch_first: bool = False, device: Any = None, dtype: torch.dtype | None = None,
        **options: Unpack[ScoreOptions],
    ) -> None:
        head_dim = multiple(embed_dim, "embed_dim", num_heads, "num_heads")
        kind: dict[str, Any] = {"device": device, "dtype": dtype}
        super().__init__(num_heads, head_dim, options, **kind)
        self.embed_dim: int = embed_dim
        self.num_heads: int = num_heads
        self.head_dim: int = head_dim
        self.kdim: int = embed_dim if kdim is None else kdim
        self.vdim: int = embed_dim if vdim is None else vdim
        self.dropout: float = dropout
        self.batch_first: bool = batch_first
        self.add_zero_attn: bool = add_zero_attn
        if (add_bias_kv or add_zero_attn) and (self.options.get("alibi") or self.options.get("chunk")):
            raise NotImplementedError(
                f"{'add_bias_kv' if add_bias_kv else 'add_zero_attn'} is set, and {'alibi' if self.options.get('alibi') else 'chunk'}: "
                "such a key has no position")
        # nn.TransformerEncoderLayer goes round the forward of modules of which this is true.
        self._qkv_same_embed_dim = False
        self._fused = self.kdim == embed_dim and self.vdim == embed_dim

        def parameter(*shape: int) -> torch.nn.Parameter:
            return torch.nn.Parameter(torch.empty(shape, **kind))

        self.in_proj_weight: torch.nn.Parameter | None = parameter(3 * embed_dim, embed_dim) if self._fused else None
        self.q_proj_weight: torch.nn.Parameter | None = None if self._fused else parameter(embed_dim, embed_dim)
        self.k_proj_weight: torch.nn.Parameter | None = None if self._fused else parameter(embed_dim, self.kdim)
        self.v_proj_weight: torch.nn.Parameter | None = None if self._fused else parameter(embed_dim, self.vdim)
        self.in_proj_bias: torch.nn.Parameter | None = parameter(3 * embed_dim) if bias else None
        self.out_proj: torch.nn.Linear = torch.nn.Linear(embed_dim, embed_dim, bias=bias, **kind)
        self.bias_k: torch.nn.Parameter | None = parameter(1, 1, embed_dim) if add_bias_kv else None
        self.bias_v: torch.nn.Parameter | None = parameter(1, 1, embed_dim) if add_bias_kv else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws weights as torch.nn.MultiheadAttention does."""
        for weight in (self.in_proj_weight, self.q_proj_weight, self.k_proj_weight, self.v_proj_weight):
            if weight is not None:
                torch.nn.init.xavier_uniform_(weight)
        for bias in (self.in_proj_bias, self.out_proj.bias):
            if bias is not None:
                torch.nn.init.zeros_(bias)
        for extra in (self.bias_k, self.bias_v):
            if extra is not None:
                torch.nn.init.xavier_normal_(extra)

    def extra_repr(self) -> str:
        more = super().extra_repr()
        return f"{self.embed_dim}, {self.num_heads}" + (f", {more}" if more else "")

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, key_padding_mask: Tensor | None = None, need_weights: bool = True,
        attn_mask: Tensor | None = None, average_attn_weights: bool = True, is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """The result and, unless need_weights is False, the weights.

        query                 [len_q, batch, embed_dim], or with batch_first [batch, len_q, embed_dim], or [len_q, embed_dim]; or with
                              batch_first a nested tensor [batch, len_q, embed_dim] with a len_q for each batch entry, as key and value then
                              are too, without masks: the result is one as well, and the weights are padded with zeros
        key, value            the same with len_kv and kdim, vdim channels
        key_padding_mask      [batch, len_kv] (or [len_kv]): True where a key is left out, or floats that are added to the scores
        need_weights          False is faster: no weights are formed
        attn_mask             [len_q, len_kv] or [batch * num_heads, len_q, len_kv]: True where a query does not see a key, or floats that
                              are added to the scores, which may have a gradient
        average_attn_weights  weights [batch, len_q, len_kv], averaged over the heads; False: [batch, num_heads, len_q, len_kv]
        is_causal             query i sees keys 0 .. i; attn_mask, if given, is taken to say the same

        Raises ValueError for shapes and TypeError for types and devices, with a sentence that names the argument.
        """
        if any(isinstance(x, Tensor) and x.is_nested for x in (query, key, value)):
            return self._forward_nested(query, key, value, key_padding_mask, need_weights, attn_mask, average_attn_weights, is_causal)
        for name, x, channels in (("query", query, self.embed_dim), ("key", key, self.kdim), ("value", value, self.vdim)):
            axes = f"[tokens, channels], or {'[batch, tokens, channels]' if self.batch_first else '[tokens, batch, channels]'}"
            check_input(x, name, self.out_proj.weight, channels, axes, (2, 3))
            if x.dim() != query.dim():
                raise ValueError(f"{name} has {x.dim()} axes; it must have {query.dim()}, as query has")
        for name, x in (("key_padding_mask", key_padding_mask), ("attn_mask", attn_mask)):
            if x is not None:
                check_tensors(**{name: x})
        same, batched = query is key and key is value, query.dim() == 3
        if not batched:
            query, key, value = query[None], key[None], value[None]
            key_padding_mask = None if key_padding_mask is None else key_padding_mask[None]
        elif not self.batch_first:
            query, key, value = (x.transpose(0, 1) for x in (query, key, value))
        if key.shape[:2] != value.shape[:2] or key.shape[0] != query.shape[0]:
            raise ValueError(
                f"query, key and value have {query.shape[0]}, {key.shape[0]} and {value.shape[0]} batch entries and {query.shape[1]}, "
                f"{key.shape[1]} and {value.shape[1]} tokens; batch must agree, and the tokens of key and value")
        q, k, v = (split_heads(x, self.num_heads) for x in self._projected(query, key, value, same))
        q, k = self.prepare(q, k)
        mask, bias = self._masks(attn_mask if not is_causal else None, key_padding_mask, q.shape[0], q.shape[2], k.shape[2])
        more, k, v, mask, bias = self._with_extra_keys(k, v, mask, bias)
        options = self.arguments()
        if more or (q.shape[2] != k.shape[2] and any(name in self.options for name in POSITIONAL)):
            options["offset_q"] = torch.full((q.shape[0],), more, dtype=torch.int64)
        if more and ("window" in options or "dilation" in options):
            options["global_kv"] = more
        found = attention(
            q, k, v, causal="top-left" if is_causal else False, mask=mask, bias=bias, dropout=self.dropout if self.training else 0.0,
            return_weights=need_weights, **options)
        o, weights = found if need_weights else (found, None)
        o = self.out_proj(join_heads(o))
        if weights is not None:
            weights = torch.cat([weights[..., more:], weights[..., :more]], -1) if more else weights
            weights = (weights.mean(1) if average_attn_weights else weights).to(o.dtype)
            weights = weights if batched else weights[0]
        return o if batched and self.batch_first else o.transpose(0, 1) if batched else o[0], weights

    def _forward_nested(
        self, query: Tensor, key: Tensor, value: Tensor, key_padding_mask: Tensor | None, need_weights: bool, attn_mask: Tensor | None,
        average_attn_weights: bool, is_causal: bool,
    ) -> tuple[Tensor, Tensor | None]:
        """forward of nested tensors: as packed sequences, or padded where there are weights to return."""
        if not self.batch_first:
            raise ValueError("query, key or value is a nested tensor, [batch, tokens, channels]; this needs batch_first=True")
        for name, given in (("key_padding_mask", key_padding_mask is not None), ("attn_mask", attn_mask is not None and not is_causal)):
            if given:
                raise NotImplementedError(f"{name} is set, and query, key or value is a nested tensor; pad them, and give the lengths as key_padding_mask")
        if self.bias_k is not None or self.add_zero_attn:
            name = "add_zero_attn" if self.add_zero_attn else "add_bias_kv"
            raise NotImplementedError(f"{name} is set, and query, key or value is a nested tensor; pad them, and give the lengths as key_padding_mask")
        values, starts = [], []
        for name, x, channels in (("query", query, self.embed_dim), ("key", key, self.kdim), ("value", value, self.vdim)):
            if not (isinstance(x, Tensor) and _nested.fits(x, 3)):
                raise ValueError(f"{name} must be a nested tensor [batch, tokens, {channels}], of which only the tokens differ, as others of the inputs are")
            one, its = _nested.packed(x)
            values.append(check_input(one, name, self.out_proj.weight, channels, "[batch, tokens, channels]", (2,)))
            starts.append(its)
        starts_q, starts_kv, starts_v = starts
        if not torch.equal(starts_kv, starts_v) or starts_q.shape != starts_kv.shape:
            raise ValueError(
                f"query, key and value have the lengths {[one.diff().tolist() for one in starts]}; as many for each, and those of key and "
                "value must agree")
        same = query is key and key is value
        q, k, v = (x.unflatten(-1, (self.num_heads, -1)) for x in self._projected(values[0], values[0] if same else values[1], values[2], same))
        places = (torch.arange(x.shape[0]) - one[:-1].repeat_interleave(one.diff()) for x, one in ((q, starts_q), (k, starts_kv)))
        q, k = (x[0].transpose(0, 1) for x in self.prepare(q.transpose(0, 1)[None], k.transpose(0, 1)[None], *places))
        options = self.arguments()
        if not torch.equal(starts_q, starts_kv) and any(name in self.options for name in POSITIONAL):
            options["offset_q"] = torch.zeros(starts_q.shape[0] - 1, dtype=torch.int64)
        options["causal"] = "top-left" if is_causal else False
        options["dropout"] = self.dropout if self.training else 0.0
        weights = None
        if need_weights:
            q, k, v = (_nested.padded(x, one) for x, one in ((q, starts_q), (k, starts_kv), (v, starts_kv)))
            o, weights = attention(q, k, v, layout="bshd", lengths_q=starts_q.diff(), lengths_kv=starts_kv.diff(), return_weights=True, **options)
            o, weights = o[_nested.present(starts_q)], (weights.mean(1) if average_attn_weights else weights).to(o.dtype)
        else:
            o = attention(q, k, v, layout="thd", cu_seqlens_q=starts_q, cu_seqlens_kv=starts_kv, **options)
        return _nested.nested(self.out_proj(o.flatten(1)), starts_q, query), weights

    def _projected(self, query: Tensor, key: Tensor, value: Tensor, same: bool) -> Any:
        biases = (None,) * 3 if self.in_proj_bias is None else self.in_proj_bias.chunk(3)
        if self.in_proj_weight is not None:
            if same:
                return functional.linear(query, self.in_proj_weight, self.in_proj_bias).chunk(3, -1)
            weights: Any = self.in_proj_weight.chunk(3)
        else:
            weights = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
        return [functional.linear(x, w, b) for x, w, b in zip((query, key, value), weights, biases, strict=True)]

    def _masks(
        self, attn_mask: Tensor | None, padding: Tensor | None, batch: int, len_q: int, len_kv: int,
    ) -> tuple[Tensor | None, Tensor | None]:
        """Booleans, True where a query sees a key, and floats to add, [batch or 1, heads or 1, len_q or 1, len_kv]."""
        mask: Tensor | None = None
        bias: Tensor | None = None
        for name, x in (("attn_mask", attn_mask), ("key_padding_mask", padding)):
            if x is None:
                continue
            if x.dtype != torch.bool and not x.is_floating_point():
                raise TypeError(f"{name} has type {x.dtype}; it must be of booleans, True where a key is left out, or of floats to add")
            if name == "attn_mask":
                shapes = {2: (len_q, len_kv), 3: (batch * self.num_heads, len_q, len_kv)}
                if x.shape != shapes.get(x.dim()):
                    raise ValueError(f"attn_mask has shape {list(x.shape)}; it must be {list(shapes[2])} or {list(shapes[3])}")
                x = x[None, None] if x.dim() == 2 else x.unflatten(0, (batch, self.num_heads))
            else:
                if x.shape != (batch, len_kv):
                    raise ValueError(f"key_padding_mask has shape {list(x.shape)}; it must be {[batch, len_kv]}, batch and keys")
                x = x[:, None, None]
            if x.dtype == torch.bool:
                mask = ~x if mask is None else mask & ~x
            else:
                bias = x if bias is None else bias + x
        return mask, bias

    def _with_extra_keys(self, k: Tensor, v: Tensor, mask: Tensor | None, bias: Tensor | None) -> Any:
        """Keys that every query sees, in front: how many, then the arguments with them."""
        keys, values = [], []
        shape = (k.shape[0], self.num_heads, 1, self.head_dim)
        if self.bias_k is not None and self.bias_v is not None:
            keys.append(split_heads(self.bias_k, self.num_heads).to(k.dtype).expand(shape))
            values.append(split_heads(self.bias_v, self.num_heads).to(v.dtype).expand(shape))
        if self.add_zero_attn:
            keys.append(k.new_zeros(shape))
            values.append(v.new_zeros(shape))
        more = len(keys)
        if more:
            k, v = torch.cat([*keys, k], 2), torch.cat([*values, v], 2)
            mask = None if mask is None else functional.pad(mask, (more, 0), value=True)
            bias = None if bias is None else functional.pad(bias, (more, 0))
        return more, k, v, mask, bias
