# SPDX-License-Identifier: MIT
"""Inside shard_map, JAX tracks along which axes of the mesh a value varies: results vary as their arguments do."""
from __future__ import annotations

from typing import Any, Sequence

import jax
from jax.sharding import PartitionSpec


def axes_of(aval: Any) -> frozenset[Any]:
    """The axes of the mesh along which an abstract value varies; none outside shard_map, or in a JAX that does not track them."""
    kind = getattr(aval, "manual_axis_type", None)  # JAX 0.10
    return frozenset(kind.varying if kind is not None else getattr(aval, "vma", ()))


def result(shape: jax.ShapeDtypeStruct, first: Any) -> Any:
    """The abstract value of a result that varies as the argument `first` does."""
    if not axes_of(first):
        return jax.core.ShapedArray(shape.shape, shape.dtype)
    sharding = first.sharding.update(spec=PartitionSpec(*[None] * len(shape.shape)))
    return first.update(shape=shape.shape, dtype=shape.dtype, weak_type=False, sharding=sharding)


def alike(args: Sequence[Any]) -> list[Any]:
    """The arguments, all varying along every axis that one of them varies along."""
    found = [axes_of(jax.typeof(x)) for x in args] if hasattr(jax, "typeof") else [frozenset()]
    every = frozenset().union(*found)
    if not every:
        return list(args)
    return [x if axes == every else jax.lax.pcast(x, tuple(every - axes), to="varying") for x, axes in zip(args, found, strict=True)]
