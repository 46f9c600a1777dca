# SPDX-License-Identifier: MIT
"""Attention over ranks: the functions."""
from __future__ import annotations

from typing import Any, Sequence, Unpack

from .._arrays import is_tensor
from .._options import ArrayLike
from .._problem import Options
from ._graphs import outside_graphs
from ._plan import Axes, once
from ._split import Layout, Machine, Way


@outside_graphs
def attention(
    q: ArrayLike, k: ArrayLike, v: ArrayLike, *, group: Any = None, layout: Layout = "contiguous", part: int = 1024, way: Way = "auto",
    ranks_heads: int = 0, machine: Machine | None = None, any_order: bool = False, axes: Axes = "bhsd", out: ArrayLike | None = None,
    return_lse: bool = False, outputs: Sequence[str] = (), **options: Unpack[Options],
) -> Any:
    """libattn.attention of a sequence that is divided among the ranks of a group, with the same bits for any number of ranks
    (unless any_order says that they need not).

        mine = [distributed.shard(x, 2, layout="zigzag", part=256) for x in (q, k, v)]
        o = distributed.attention(*mine, layout="zigzag", part=256, causal=True)      # the rows of this rank

    Collective: every rank calls it, in the same order as other calls over the group, and with the same options.

    q, k, v    the rank's own rows: those of its parts, one after another (distributed.parts, distributed.shard); NumPy arrays, or
               tensors of PyTorch, then with gradients (of q, k, v and bias also second ones), which also ranks exchange: so every rank
               must come to backward, and a rank whose loss does not use o must add 0 * o.sum() to it
    group      a process group or a mesh of one axis of torch.distributed, of a backend that sends tensors on the CPU (gloo, MPI); a
               communicator of mpi4py; a distributed.Transport; None: PyTorch's default group if there is one, else one rank
    layout     which rank owns a part.  "contiguous": ranges of the sequence; "zigzag": each rank a range from the front and one from
               the back, so that causal work is even; "striped": every ranks-th part; or Owners (distributed.balance)
    part       tokens of a part: the same on all ranks and whatever their number, since bits depend on it
    way        how keys reach other ranks: "direct": from their owner to ranks that see them; "ring": from neighbour to neighbour;
               "auto": by that of "direct", "heads", "heads-ring" and "gather" which is predicted to be the fastest.  "split-keys":
               they stay, for decode: each rank passes all queries and its own keys, and gets all of o; without gradients.  "heads":
               once, so that each rank has all tokens of some heads; "heads-ring": so do groups of ranks, each for its tokens, and keys
               go from group to group.  "gather": those of one key head after another, each while the head before is computed.  No
               result depends on it (but with any_order)
    ranks_heads  of "heads-ring": ranks of a group, which divides the ranks; 0: the greatest number that divides the key heads, too
    machine    what "auto" goes by: a distributed.Machine, the same on all ranks; None: what distributed.predict assumes
    any_order  True: results of parts are added as they come, which takes less memory; bits then depend on ranks, layout and way (those of
               the same ones are the same)
    axes       the order of axes, which libattn.attention calls layout: "bhsd", "bshd" or "thd"
    out        an array that o is written to; not with gradients: TypeError
    outputs    names of further results, not with gradients either: "row_max", "entropy" and "effective_keys", in the order of axes of lse;
               "topk_index" and "topk_weight" (with topk=K), in that of o; "column_sum" of the rank's own keys, in the order of lse;
               "weights", "scores" and "dropout_keep", [batch, heads_q, own queries, all keys], not of packed sequences
    options    those of libattn.attention (libattn.layers.Options), without functions of Python and keys of 8 bits.  Of them
                   mask, bias, ranges, block_mask, dropout_given   are the rows of the rank's queries, with all keys; of packed
                                                                   sequences, all of them, the same on all ranks
                   everything else                                 is that of the whole, the same on all ranks
               A seed of dropout may be left out for tensors of PyTorch: rank 0 draws one for all.  The instruction set must be the
               same on all ranks, or reproducible=True

    Returns o, the rank's rows, or (o, lse, *outputs) of those that were requested.  The bits are those of the same call on one rank with
    the same `part`; libattn.attention adds in another order (docs/distributed.md).

    Gradients are asked for on all ranks, or on none.

    Raises what libattn.attention raises, on all ranks alike and with the sentence of the lowest rank that was asked something wrong,
    with nothing written; ValueError if ranks were asked different things; NotImplementedError for what is not there yet over ranks:
    pages, block lists, block masks, weights and scores of packed sequences, second derivatives of anything but q, k, v and bias, and where ranks divide heads what all heads share: the gradient of anything, and a sum of columns;
    ConnectionError if a message fails, for example because a rank was killed, after which the group cannot be used again.
    """
    given: dict[str, Any] = dict(options)
    if any(map(is_tensor, (q, k, v))):
        from . import _autograd

        return _autograd.attention(q, k, v, group, (layout, part, way, ranks_heads, machine, any_order), axes, out, return_lse, outputs, given)
    return once(
        "forward", {"q": q, "k": k, "v": v}, given, group=group, layout=layout, part=part, way=way, ranks_heads=ranks_heads, machine=machine,
        any_order=any_order, axes=axes, return_lse=return_lse, out=out, outputs=outputs)


def attention_backward(
    q: ArrayLike, k: ArrayLike, v: ArrayLike, o: ArrayLike, lse: ArrayLike, grad_o: ArrayLike, *, grad_lse: ArrayLike | None = None,
    grads: Sequence[str] = (), group: Any = None, layout: Layout = "contiguous", part: int = 1024, way: Way = "auto", ranks_heads: int = 0,
    machine: Machine | None = None, any_order: bool = False, axes: Axes = "bhsd", **options: Unpack[Options],
) -> tuple[Any, ...]:
    """libattn.attention_backward over ranks: (grad_q, grad_k, grad_v, *grads), the rank's rows.  Collective.

    The arguments are those of distributed.attention and what it returned, with the rows of grad_o that belong to the rank, and names of
    further arrays whose gradients are returned.  Gradients of slopes, tables, sinks and scales are those of the whole, the same on all
    ranks to the bit, and so is that of a bias with one row for all queries, or of packed sequences; of another bias it is the rows of
    the rank's queries.  (If each rank has one query, a bias with one row is that of this query.)  For tensors of PyTorch, attention
    itself has gradients.

    Raises what attention raises.
    """
    given: dict[str, Any] = {**options, "o": o, "lse": lse, "grad_o": grad_o, "grad_lse": grad_lse}
    return once(
        "backward", {"q": q, "k": k, "v": v}, given, group=group, layout=layout, part=part, way=way, ranks_heads=ranks_heads, machine=machine,
        any_order=any_order, axes=axes, grads=grads)
