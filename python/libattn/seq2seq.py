# SPDX-License-Identifier: MIT
"""Attention in encoder-decoder models: the states of the decoder attend to the vectors that the encoder produced, the memory.
(The header attn/seq2seq.h.)

    module = seq2seq.Seq2Seq("additive", dim_state=512, dim_memory=256, dim_hidden=128).initialise()
    context = module(states, memory, lengths_kv=lengths)
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Self, Unpack

import numpy as np

from . import _abi, _modules, _native
from ._arguments import choice, integer
from ._modules import Counts, Forward, Gradients, Module, Weight
from ._problem import Common
from .cache import Cache
from .files import Archive, Path

__all__ = ["Counts", "Forward", "Gradients", "Options", "Seq2Seq"]

Score = Literal["dot", "general", "additive"]
SCORES = {"dot": _abi.ATTN_SCORE_DOT, "general": _abi.ATTN_SCORE_GENERAL, "additive": _abi.ATTN_SCORE_ADDITIVE}


class Options(Common, total=False):
    """libattn.layers.Options but score and score_matrix, which are the module's; cu_seqlens are an error."""


class Seq2Seq(Module):
    """The attention of a decoder, with states h_i and memory m_j:

        s_ij = score(h_i, m_j)      context_i = sum_j softmax(s_i)_j m_j      y_i = context_i, or tanh(combine [context_i; h_i])

     score        how a state and a vector of the memory are compared:
                      "dot"        h.m                                      dim_state = dim_memory   } Luong et al. 2015, section 3.1
                      "general"    h.(w m)                                                           }
                      "additive"   w.tanh(state h + memory m + bias)        Bahdanau et al. 2015, section A.1.2; with [state memory] as
                                                                            one matrix it is Luong's concat
     dim_state    channels of a state of the decoder
     dim_memory   channels of the memory; None: dim_state
     dim_hidden   additive: rows of `state` and `memory`; None: dim_state
     dim_output   None: the output is the context; else the channels of tanh(combine [context; state]) (ibid., equation 5)
     dtype        of inputs, weights and outputs: float32 or float64
     weights      by name, or None: none yet (initialise, load_weights)
     options      libattn.seq2seq.Options; the scale is 1 unless it is given

    Weights, matrices [out, in], dense, of the module's type; the names in `weights`:

        w         general: [dim_state, dim_memory]; additive: [dim_hidden]
        state     [dim_hidden, dim_state]
        memory    [dim_hidden, dim_memory]
        bias      [dim_hidden]; absent: none
        combine   [dim_output, dim_memory + dim_state]

    What libattn.layers.Layer says of weights, copies and errors holds here.
    """

    _name = "seq2seq"
    _functions = {
        "forward": "attn_seq2seq_forward", "backward": "attn_seq2seq_backward", "remember": "attn_seq2seq_remember",
        "step": "attn_seq2seq_step", "count": "attn_seq2seq_count", "initialise": "attn_seq2seq_initialise", "load": "attn_seq2seq_load",
        "store": "attn_seq2seq_store",
    }
    _inputs = ("states", "memory", "value")

    def __init__(
        self, score: Score, *, dim_state: int, dim_memory: int | None = None, dim_hidden: int | None = None, dim_output: int | None = None,
        dtype: Any = np.float32, weights: Mapping[str, Any] | None = None, **options: Unpack[Options],
    ) -> None:
        choice(score, "score", SCORES)
        self.score: Score = score
        self.dim_state: int = integer(dim_state, "dim_state", 1)
        self.dim_memory: int = self.dim_state if dim_memory is None else integer(dim_memory, "dim_memory", 1)
        if dim_hidden is not None and score != "additive":
            raise ValueError(f"dim_hidden is set; the score '{score}' has no hidden channels")
        if score == "dot" and self.dim_memory != self.dim_state:
            raise ValueError(f"dim_memory ({self.dim_memory}) is not dim_state ({self.dim_state}), which the score 'dot' needs")
        self.dim_hidden: int = 0 if score != "additive" else self.dim_state if dim_hidden is None else integer(dim_hidden, "dim_hidden", 1)
        self.dim_output: int = 0 if dim_output is None else integer(dim_output, "dim_output", 1)
        super().__init__(dtype, weights, options)

    @classmethod
    def load(cls, source: Archive | Path, prefix: str = "", *, score: Score, dim_state: int, **sizes: Any) -> Self:
        """A module with the weights of a file or an archive: "w", "state.weight", "memory.weight", "bias" and "combine.weight", after
        `prefix`.  The other keywords are those of the class."""
        return cls(score, dim_state=dim_state, **sizes).load_weights(source, prefix)

    def __repr__(self) -> str:
        weights = ", ".join(self.weights) or "none"
        return f"Seq2Seq({self.score!r}, {self.dim_state} channels over {self.dim_memory}, {self.dtype}, weights: {weights})"

    def __call__(self, states: Any, memory: Any, *, out: Any = None, **options: Unpack[Options]) -> Any:
        """The output of forward."""
        return _modules.forward(self, (states, _present(memory)), options, out, False, ()).output

    def forward(
        self, states: Any, memory: Any, *, out: Any = None, saved: bool = False, outputs: Sequence[str] = (), **options: Unpack[Options]
    ) -> Forward:
        """All steps of the decoder, or one: states [batch, len_q, dim_state], memory [batch, len_kv, dim_memory], the lengths of the
        sources in lengths_kv [batch].  The output "weights_mean" has the weights, [batch, len_q, len_kv].  The rest is as in
        libattn.layers.Layer.forward."""
        return _modules.forward(self, (states, _present(memory)), options, out, saved, outputs)

    def backward(
        self, grad_output: Any, states: Any, memory: Any, *, saved: Any = None, grads: Sequence[str] = (), grad_lse: Any = None,
        **options: Unpack[Options],
    ) -> Gradients:
        """All gradients, as libattn.layers.Layer.backward has them: `query` is that of the states, `key` that of the memory."""
        return _modules.backward(self, grad_output, (states, _present(memory)), options, saved, grads, grad_lse)

    def remember(self, cache: Cache, memory: Any, *, lengths: Any = None) -> None:
        """Appends the memory [batch, len_kv, dim_memory] to a cache (self.cache): the part of the scores that depends on the memory
        alone is computed once.  lengths [batch] says how many of the vectors are real, in place of lengths_kv; None: all."""
        _modules.remember(self, cache, _present(memory), lengths)

    def step(self, cache: Cache, states: Any, *, out: Any = None, outputs: Sequence[str] = (), **options: Unpack[Options]) -> Any:
        """What forward computes for these states [batch, len_q, dim_state], over a cache that `remember` filled.  Returns the output, or
        with `outputs` a Forward."""
        return _modules.decode(self, cache, (states, None), options, out, outputs, True, "step")

    def cache(self, batch: int, capacity: int, *, dtype: Any = None) -> Cache:
        """An empty cache for remember and step: capacity vectors of the memory of each of `batch` sequences, of float32, float16, bfloat16
        or int8 (float64 for a module of float64); None: of the module's type."""
        return Cache.empty(
            batch, 1, capacity, self.dim_hidden or self.dim_memory, self.dim_memory, dtype=self.dtype if dtype is None else dtype
        )

    def _weights(self, options: Mapping[str, Any]) -> dict[str, Weight]:
        known: dict[str, Weight] = {}
        if self.score == "general":
            known["w"] = Weight((2, 3), (self.dim_state, self.dim_memory))
        if self.score == "additive":
            known |= {
                "w": Weight((3,), (self.dim_hidden,)), "state": Weight((2, 3), (self.dim_hidden, self.dim_state)),
                "memory": Weight((2, 3), (self.dim_hidden, self.dim_memory)), "bias": Weight((3,), (self.dim_hidden,)),
            }
        if self.dim_output:
            known["combine"] = Weight((2, 3), (self.dim_output, self.dim_memory + self.dim_state))
        return known

    def _needed(self) -> set[str]:
        return set(self._weights({})) - {"bias"}

    def _heads(self, options: Mapping[str, Any]) -> tuple[int, int]:
        return 1, 1

    def _dims(self, options: Mapping[str, Any], decoding: bool) -> tuple[int, int, int]:
        return self.dim_hidden or self.dim_state, self.dim_hidden or self.dim_memory, self.dim_memory

    def _channels(self) -> tuple[tuple[int, int, int], int]:
        return (self.dim_state, self.dim_memory, 0), self.dim_output or self.dim_memory

    def _struct(self, options: Mapping[str, Any]) -> tuple[Any, list[Any]]:
        made = _native.struct(
            _abi.attn_seq2seq, dtype=_abi.ATTN_F64 if self.dtype == np.float64 else _abi.ATTN_F32, score=SCORES[self.score],
            **{name: getattr(self, name) for name in ("dim_state", "dim_memory", "dim_hidden", "dim_output")},
        )
        return made, []


def _present(memory: Any) -> Any:
    if memory is None:
        raise TypeError("memory is None; it must be an array")
    return memory
