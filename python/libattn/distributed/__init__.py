# SPDX-License-Identifier: MIT
"""Attention over several processes or machines: each rank has some of the queries and keys, and all of them get the same bits as one.
(The headers attn/distributed.h and attn/distributed_linear.h; docs/distributed.md.)

    q, k, v = (distributed.shard(x, 2, layout="zigzag", part=256) for x in (q, k, v))
    o = distributed.attention(q, k, v, layout="zigzag", part=256, causal=True)
    whole = distributed.unshard(o, 2, layout="zigzag", part=256)

Messages go through torch.distributed, mpi4py, or a Transport of your own; NumPy arrays and tensors of PyTorch are taken, the latter with
gradients.
"""
from ._attention import attention, attention_backward
from ._linear import LinearDescription, linear_attention, linear_backward, linear_describe, linear_forward
from ._plan import Description, Plan
from ._predict import Prediction, predict
from ._split import Machine, Owners, Part, balance, parts, shard, unshard
from ._sums import sum_parts
from ._torch import by_parts, context_parallel, context_parallel_unshard
from ._transport import Transport, in_threads

__all__ = [
    "Description", "LinearDescription", "Machine", "Owners", "Part", "Plan", "Prediction", "Transport", "attention", "attention_backward", "balance",
    "by_parts", "context_parallel", "context_parallel_unshard", "in_threads", "linear_attention", "linear_backward", "linear_describe", "linear_forward",
    "parts", "predict", "shard", "sum_parts", "unshard",
]
