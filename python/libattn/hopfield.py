# SPDX-License-Identifier: MIT
"""Associative memory: patterns are stored, and a state near one of them moves to it.  (The header attn/hopfield.h.)

One update of the modern network is one attention: states are queries, patterns are keys and values.

    memory = hopfield.Hopfield(patterns, beta=4)
    found = memory.retrieve(noisy).updated
"""
from __future__ import annotations

import ctypes
import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from . import _abi, _native
from ._arguments import choice, integer, one, real, typed
from ._arrays import Array, asarray, like, pointer, slot
from ._calls import Isa, options

__all__ = ["Hopfield", "Retrieval", "classical_capacity", "modern_capacity"]

ORDERS = {"synchronous": _abi.ATTN_HOPFIELD_ORDER_SYNCHRONOUS, "asynchronous": _abi.ATTN_HOPFIELD_ORDER_ASYNCHRONOUS}
TYPES = (np.dtype(np.float32), np.dtype(np.float64))


@dataclass(frozen=True)
class Retrieval:
    """Where states came to rest: what Hopfield.retrieve returns."""

    updated: Any  #: [..., dim], the final states
    iterations: Any  #: [...] of int64: updates of each state, including one that moved nothing; an int for a single state
    energies: Any  #: [..., most + 1] of double: before each update and after the last, which is repeated; None if not requested


class Hopfield:
    """Stored patterns [stored, dim], of float32 or float64 (a list is of float64; other types become float32).

     beta      how sharp: above 0
     threads   how many threads may work at once; None: as libattn.cpu().threads says
     isa       "scalar", "avx2", "avx512", "neon" or "wasm128": exactly this instruction set; None: the best

    The patterns are borrowed if they are dense and of one of the two types: changing them changes the memory.  States are [..., dim]
    of the same type, and results have the type and library of the states.  Arguments of another shape or value raise ValueError, of
    another kind TypeError; an instruction set that this CPU lacks NotImplementedError.  Copies share patterns, deep copies and
    pickles have their own.
    """

    def __init__(self, patterns: Any, *, beta: float = 1.0, threads: int | None = None, isa: Isa | None = None) -> None:
        array = asarray(patterns, "patterns")
        dtype = array.dtype if array.dtype in TYPES else np.dtype(np.float32 if hasattr(patterns, "dtype") else np.float64)
        self.patterns: Array = np.require(array, dtype, ["C", "A"])
        if self.patterns.ndim != 2 or 0 in self.patterns.shape:
            raise ValueError(f"patterns has shape {list(array.shape)}; it must be [stored, dim], at least [1, 1]")
        self.beta: float = real(beta, "beta")
        if not 0 < self.beta < math.inf:
            raise ValueError(f"beta is {self.beta}; it must be above 0 and finite")
        self.threads: int | None = threads
        self.isa: Isa | None = isa
        options(threads, isa)

    def __repr__(self) -> str:
        return f"Hopfield({self.stored} patterns of {self.dim} channels, {self.patterns.dtype}, beta={self.beta})"

    @property
    def stored(self) -> int:
        """How many patterns there are."""
        return self.patterns.shape[0]

    @property
    def dim(self) -> int:
        """Channels of a pattern."""
        return self.patterns.shape[1]

    def _memory(self) -> Any:
        return _native.struct(
            _abi.attn_hopfield, dtype=_abi.ATTN_F64 if self.patterns.dtype == np.float64 else _abi.ATTN_F32, stored=self.stored,
            dim=self.dim, beta=self.beta, options=options(self.threads, self.isa),
            patterns=slot(_abi.attn_input, self.patterns, (2, 3)),
        )

    def _states(self, x: Any, name: str) -> Array:
        array = np.ascontiguousarray(typed(x, name, self.patterns.dtype, "the patterns"))
        if array.ndim == 0 or array.shape[-1] != self.dim:
            raise ValueError(f"{name} has shape {list(array.shape)}; it must be [..., dim], where dim is {self.dim} as in patterns")
        return array

    def _call(self, name: str, arguments: tuple[Any, ...], count: int, arrays: dict[str, Array | None]) -> None:
        tensors = _native.struct(_abi.attn_hopfield_tensors)
        for field, array in arrays.items():
            if array is not None:
                flat = array.reshape(count, array.size // count) if count else array.reshape(0, 1)
                kind = type(getattr(tensors, field))
                setattr(tensors, field, slot(kind, flat, (2, 3)))
        _native.call(name, ctypes.byref(self._memory()), *arguments, ctypes.byref(tensors))

    def _step(self, name: str, before: tuple[Any, ...], states: Any, energy: bool) -> Any:
        old = self._states(states, "states")
        updated, energies = np.empty_like(old), np.empty(old.shape[:-1], old.dtype) if energy else None
        count = old.size // self.dim
        self._call(name, (*before, count), count, {"states": old, "updated": updated, "energy": energies})
        return like(updated, states) if energies is None else (like(updated, states), one(energies, states))

    def update(self, states: Any, *, return_energy: bool = False) -> Any:
        """One update of the modern network (Ramsauer et al. 2020, equations 2 and 3, without the constant terms of the energy), for
        every state x, with X the patterns as rows:

            energy = -log(sum_m exp(beta X_m.x)) / beta + |x|^2 / 2          updated = X^T softmax(beta X x)

        An update never raises the energy.  Returns updated [..., dim], or (updated, energy [...] of the states before).
        """
        return self._step("attn_hopfield_update", (), states, return_energy)

    def update_backward(self, states: Any, *, grad_updated: Any = None, grad_energy: Any = None) -> tuple[Any, Any]:
        """The gradient of update: from grad_updated [..., dim] and grad_energy [...] (None: 0) to (grad_states [..., dim], grad_patterns
        [stored, dim])."""
        old = self._states(states, "states")
        updated = None if grad_updated is None else self._states(grad_updated, "grad_updated")
        energy = None if grad_energy is None else np.ascontiguousarray(typed(grad_energy, "grad_energy", old.dtype, "the patterns"))
        for array, shape, name in ((updated, old.shape, "grad_updated"), (energy, old.shape[:-1], "grad_energy")):
            if array is not None and array.shape not in (shape, shape or (1,)):
                raise ValueError(f"{name} has shape {list(array.shape)}; it must be {list(shape)}, as the states are")
        grad_states, grad_patterns = np.empty_like(old), np.empty_like(self.patterns)
        tensors = _native.struct(_abi.attn_hopfield_tensors, grad_patterns=slot(_abi.attn_output, grad_patterns, (2, 3)))
        count = old.size // self.dim
        for field, array in {"states": old, "grad_updated": updated, "grad_energy": energy, "grad_states": grad_states}.items():
            if array is not None:
                flat = array.reshape(count, 1 if field == "grad_energy" else self.dim)
                setattr(tensors, field, slot(type(getattr(tensors, field)), flat, (2, 3)))
        _native.call("attn_hopfield_update_backward", ctypes.byref(self._memory()), count, ctypes.byref(tensors))
        return like(grad_states, states), like(grad_patterns, states)

    def retrieve(self, states: Any, *, most: int = 10, tolerance: float = 1e-6, return_energies: bool = False) -> Retrieval:
        """Updates every state until none of its components moves by `tolerance` or more, at most `most` times."""
        old, steps = self._states(states, "states"), integer(most, "most", 0, 2**31 - 1)
        updated, iterations = np.empty_like(old), np.empty(old.shape[:-1], np.int64)
        energies = np.empty((*old.shape[:-1], steps + 1)) if return_energies else None
        count = old.size // self.dim
        arrays = {"states": old, "updated": updated, "iterations": iterations, "energies": energies}
        self._call("attn_hopfield_retrieve", (count, steps, real(tolerance, "tolerance")), count, arrays)
        times = int(iterations) if iterations.ndim == 0 else like(iterations, states)
        return Retrieval(like(updated, states), times, None if energies is None else like(energies, states))

    def classical(
        self, states: Any, *, order: Literal["synchronous", "asynchronous"] = "synchronous", return_energy: bool = False
    ) -> Any:
        """One update of the classical network (Hopfield 1982), with W = sum_m X_m X_m^T / dim, its diagonal kept:

            energy = -x^T W x / 2          updated = sign(W x), sign(0) = 0

        All units from the old state ("synchronous", which may cycle), or one after the other, each seeing the earlier updates
        ("asynchronous", which does not raise the energy of states of -1 and 1).  Returns updated [..., dim], or (updated, energy [...]).
        """
        return self._step("attn_hopfield_classical", (choice(order, "order", ORDERS),), states, return_energy)

    def separation(self) -> float:
        """The smallest distance between two patterns, divided by their mean length: 0 for equal ones, infinity for a single pattern,
        NaN if all are 0."""
        found = ctypes.c_double()
        _native.call("attn_hopfield_separation", ctypes.byref(self._memory()), ctypes.byref(found))
        return found.value

    def landscape(self, axis: int = 0, *, points: int = 100, low: float = -2.0, high: float = 2.0) -> tuple[Any, Any]:
        """The modern energy along one axis: (x, energy), two arrays of double [points], with x[i] = low + i (high - low) / (points - 1)
        and all other channels 0.  points is at least 2."""
        count = integer(points, "points", 2, 2**40)
        x, energy = np.empty(count), np.empty(count)
        _native.call(
            "attn_hopfield_landscape", ctypes.byref(self._memory()), integer(axis, "axis"), count, real(low, "low"), real(high, "high"),
            pointer(x), pointer(energy),
        )
        return x, energy

    def basin(
        self, index: int, *, samples: int = 100, noise: float = 0.5, seed: int = 0, most: int = 10, tolerance: float = 1e-6
    ) -> float:
        """The share of `samples` probes (pattern number `index` plus normal noise of standard deviation `noise`) whose retrieved state,
        after at most `most` updates to the tolerance, is nearest to that pattern.  Among equal distances the lowest pattern counts.
        The same seed gives the same probes."""
        share = ctypes.c_double()
        _native.call(
            "attn_hopfield_basin", ctypes.byref(self._memory()), integer(index, "index"), integer(samples, "samples"), real(noise, "noise"),
            integer(seed, "seed", 0, 2**64 - 1), integer(most, "most"), real(tolerance, "tolerance"), ctypes.byref(share),
        )
        return share.value


def classical_capacity(dim: int) -> float:
    """How many random patterns a classical network of `dim` units can store: 0.14 dim (Amit et al. 1985)."""
    return _native.call("attn_hopfield_classical_capacity", integer(dim, "dim"))


def modern_capacity(dim: int) -> float:
    """The same for a modern one, on the order of exp(dim / 2) (Demircigil et al. 2017); infinity on overflow."""
    return _native.call("attn_hopfield_modern_capacity", integer(dim, "dim"))
