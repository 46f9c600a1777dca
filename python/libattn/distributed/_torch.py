# SPDX-License-Identifier: MIT
"""What is for PyTorch alone; it is imported when it is called."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, ContextManager, Sequence

from ._graphs import outside_graphs
from ._split import Layout, Way

if TYPE_CHECKING:
    import torch


@outside_graphs
def by_parts(
    module: torch.nn.Module, *inputs: torch.Tensor, axis: int = 1, group: Any = None, layout: Layout = "contiguous", part: int = 1024,
) -> Any:
    """module(*inputs) for each part of this rank apart, joined along the axis of tokens, with gradients that do not depend on the ranks.

        q, k, v = distributed.by_parts(projections, x, layout="zigzag", part=256)
        o = distributed.attention(q, k, v, axes="bshd", layout="zigzag", part=256, causal=True)
        x = distributed.by_parts(rest, x, o, layout="zigzag", part=256)

    For layers that treat tokens apart: projections, norms, hidden layers, embeddings, losses of tokens.  The gradient of each parameter
    is its sum over all parts of all ranks, added in a binary tree over their numbers, and is the same on all ranks: no other reduction
    (DDP) must follow.  Bits of a product of matrices may depend on the number of its rows, and so would those of a whole rank; those of
    a part do not depend on which rank has it.  So a model trains with the same bits on any number of ranks, if torch.set_num_threads(1)
    is.  Modules that draw random numbers draw each rank's own.

    inputs     tensors [..., own tokens, ...] of the rank's rows, along `axis`; further arguments belong into the module
    returns    what the module returns, a tensor or a tuple of them, with the tokens of the rank along `axis`

    Collective, and its backward is: every rank must come to it.  Raises ValueError or TypeError, on all ranks alike, or ConnectionError.
    """
    from . import _by_parts

    return _by_parts.by_parts(module, inputs, axis, group, (layout, part))


def context_parallel(
    mesh: Any, *, buffers: Sequence[torch.Tensor] | None = None, buffer_seq_dims: Sequence[int] | None = None,
    no_restore_buffers: set[torch.Tensor] | None = None, layout: Layout = "zigzag", part: int = 1024, way: Way = "auto",
    ranks_heads: int = 0,
) -> ContextManager[None]:
    """torch.distributed.tensor.experimental.context_parallel on CPUs: within it, F.scaled_dot_product_attention is attention over ranks.

        with distributed.context_parallel(mesh, buffers=[x, targets], buffer_seq_dims=[1, 1]):
            loss = model(x, targets)                # x and targets have the rows of this rank; the model is as it was
            loss.backward()

    mesh                    a mesh of one axis, or anything else that `group=` may be
    buffers                 tensors that all ranks have whole, without gradients: within, each has the rank's rows, along its axis of
                            buffer_seq_dims, in memory of its own
    no_restore_buffers      those that keep the rank's rows afterwards
    layout, part, way, ranks_heads    as in distributed.attention

    The model calls torch.nn.functional.scaled_dot_product_attention, directly or by modules such as nn.TransformerEncoderLayer and
    nn.MultiheadAttention with need_weights=False (whose fast path is off meanwhile); what attends in other ways, FlexAttention among
    them, sees the rank's own tokens alone.  attn_mask has the rows of the rank's queries and all keys.  Gradients of parameters are
    those of the rank's tokens, to be summed over the ranks, as by DDP.  Lengths need not be multiples of anything.

    All ranks enter; what one of them rejects then, or in a call within, all reject.  Raises what distributed.attention raises.
    """
    from . import _context

    how = {"group": mesh, "layout": layout, "part": part}
    return _context.context(buffers, buffer_seq_dims, no_restore_buffers, how, {"way": way, "ranks_heads": ranks_heads})


def context_parallel_unshard(
    mesh: Any, buffers: Sequence[torch.Tensor], seq_dims: Sequence[int], *, layout: Layout = "zigzag", part: int = 1024,
) -> list[torch.Tensor]:
    """The whole of tensors whose rows ranks have, on all ranks, without gradients: as torch.distributed.tensor.experimental has it.

    Collective.  Raises what distributed.unshard raises.
    """
    from . import _context

    return _context.unshard_all(buffers, seq_dims, {"group": mesh, "layout": layout, "part": part})
