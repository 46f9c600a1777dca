# SPDX-License-Identifier: MIT
"""Options that attention, its derivatives and Plan share."""
from __future__ import annotations

from typing import Any, Callable, Literal, Mapping, Sequence, TypedDict

from ._callbacks import Rows, Tile
from ._schedule import Schedule

ArrayLike = Any  #: an array of any library, or what numpy.asarray takes
Causal = bool | Literal["top-left", "bottom-right"]
Window = int | tuple[int | None, int | None] | None
Layout = Literal["bhsd", "bshd", "thd"]
Isa = Literal["default", "scalar", "avx2", "avx512", "neon"]
Stage = Literal["raw", "capped", "biased", "weights"]


class Options(TypedDict, total=False):
    """Keywords after those that a signature names: the rest of attn.h, under the names there (attn_problem, attn_tensors, ...).

    Arrays have the axes that are listed; those on the left may be missing or have size 1, which broadcasts, except where there is
    one axis.  B is the batch, Hq and Hkv are the heads of queries and of keys, Sq and Skv the numbers of queries and keys, D and Dv
    the channels of keys and of values.
    """

    # Scores.
    score: Literal["dot", "general", "metric", "cosine", "distance", "additive"]  #: what is compared (default "dot")
    score_matrix: ArrayLike  #: [Hq, rows, channels] of general, metric and additive scores
    temperature: float  #: scores are divided by it, before the softcap (default 1)
    normaliser: Literal["softmax", "softmax-one", "sigmoid", "relu"]  #: how scores become weights (default "softmax")
    shift: float  #: of the sigmoid
    modify_scores: Callable[[Tile], object]  #: the caller's own scores: libattn.Tile
    modify_slopes: Callable[[Tile], object]  #: their derivatives

    # Which keys a query sees, besides causal, window and mask.
    align: Literal["top-left", "bottom-right"]  #: which query stands where; default as in `causal`
    offset_q: ArrayLike  #: [B] position of query 0 of each batch entry among the keys, in place of `align`
    chunk: int  #: keys of the same chunk only
    dilation: int  #: every n-th key of a window
    global_q: int  #: the first queries see all keys, whatever the window
    global_kv: int  #: all queries see the first keys
    least_distance: int  #: 1: a query does not see its own key
    ranges: ArrayLike  #: [B, Hq, Sq, 2] the first key that a query may see, and one past the last
    block_mask: ArrayLike  #: [B, Hq, ceil(Sq/block_q), ceil(Skv/block_kv)] of bool
    block_starts: ArrayLike  #: [ceil(Sq/block_q) + 1] where the list of each block of queries starts in block_index
    block_index: ArrayLike  #: blocks of keys that are visited
    block_q: int  #: queries per block
    block_kv: int  #: keys per block
    empty: Literal["zero", "uniform"]  #: the result of a query that sees no key (default "zero")
    len_q: int  #: layout thd: the longest sequence of queries, if known; found from cu_seqlens_q otherwise
    len_kv: int  #: the same of keys

    # Terms by distance.
    bias_table: ArrayLike  #: [Hq, buckets] added by distance (T5, clipped distances)
    bias_table_kind: Literal["t5", "clipped"]
    bias_table_max_distance: int
    bias_table_causal: bool  #: T5: all buckets for keys before the query
    relative_keys: ArrayLike  #: [Hq, rows, D] (Shaw; Transformer-XL)
    relative_values: ArrayLike  #: [Hq, rows, Dv]
    relative_u: ArrayLike  #: [Hq, D] added to queries before keys
    relative_v: ArrayLike  #: [Hq, D] added to queries before relative keys
    relative_first: int  #: the distance of row 0

    # Dropout.
    dropout_offset: int  #: continues the sequence of `seed`
    dropout_given: ArrayLike  #: [B, Hq, Sq, Skv] of bool: which weights are kept, drawn by the caller

    # How to compute: results have the same bits for any number of threads, with or without a limit.
    isa: Isa  #: exactly this instruction set, or an error
    invariant: bool  #: bits do not depend on how queries are split into calls
    reproducible: bool  #: the same bits with AVX2, AVX-512 and NEON
    workspace_limit: int  #: bytes that a call may use besides its arrays
    origin: tuple[int, int, int, int, int]  #: (batch, head, heads, q, kv) of a part within a larger problem


class ForwardOptions(Options, total=False):
    """Options of attention alone."""

    # Keys and values of int8, each with a scale, or float8, with scales (np.broadcast_to: of heads) or without: arrays like k and v
    # without their last axis, of float32.  (cache.Blocks have their own.)
    k_scale: ArrayLike
    v_scale: ArrayLike
    k_tail: ArrayLike  #: [B, Hkv, 64, D] of float16, where k is Blocks of q4_1c: the last keys of each entry (cache.Cache)

    schedule: Schedule  #: of this step, by Plan.schedule of a plan of the same sizes

    # Few queries that see some of very many keys: libattn.choose makes the lists.
    block_heads: bool | int  #: block_starts has lists for each batch entry and key head, [B * Hkv * ceil(Sq/block_q) + 1]
    tree: ArrayLike  #: [B, 1, Sq, ceil(tree_keys/64)] of uint64: which of the last keys a draft sees, a bit for each, bit 0 the first
    tree_keys: int  #: how many of the last keys have bits

    # Further results of attention: their names, or names and arrays to write to.
    outputs: Sequence[str] | Mapping[str, ArrayLike]
    after_dropout: bool  #: weights are returned after dropout
    scores_stage: Stage  #: of the output "scores" (default "raw")
    topk: int  #: keys per query of the outputs "topk_index" and "topk_weight"
    column_heads: Literal["each", "group", "all"]  #: which heads share a sum of the output "column_sum"
    column_queries: int  #: how many of the last queries it covers; 0: all
    visit_rows: Callable[[Rows], object]  #: receives scores of rows_stage, in ranges of rows: libattn.Rows
    rows_stage: Stage  #: default "raw"; "weights": what return_weights returns


class Named(TypedDict, total=False):
    """The keywords that the signature of libattn.attention names, but for layouts and results."""

    causal: Causal
    window: Window
    mask: ArrayLike | None
    bias: ArrayLike | None
    scale: float | ArrayLike | None
    softcap: float | None
    sink: ArrayLike | None
    alibi_slopes: ArrayLike | None
    dropout: float
    seed: int
    lengths_q: ArrayLike | None
    lengths_kv: ArrayLike | None
    cu_seqlens_q: ArrayLike | None
    cu_seqlens_kv: ArrayLike | None
    threads: int | None


class Problem(Options, Named, total=False):
    """All that says what is computed, besides q, k and v: the keywords of libattn.attention, where they are explained."""

    page_table: ArrayLike | None
    page_starts: ArrayLike  #: [B + 1] in place of page_table: where the list of pages of each entry starts in page_index
    page_index: ArrayLike  #: the pages
    lengths_last_page: ArrayLike  #: [B] in place of lengths_kv: tokens in the last page of each list
    layout: Layout
