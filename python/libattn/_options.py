# SPDX-License-Identifier: MIT
"""Options that attention, its derivatives and Plan share.

What they mean is in the docstrings, which `help` and the site show; their types are beside the names, for type checkers.
"""
from __future__ import annotations

from typing import Any, Callable, Literal, Mapping, Sequence, TypedDict

from ._callbacks import Rows, Tile
from ._execution import continued
from ._schedule import Schedule

ArrayLike = Any  #: an array of any library, or what numpy.asarray takes
Causal = bool | Literal["top-left", "bottom-right"]
Window = int | tuple[int | None, int | None] | None
Layout = Literal["bhsd", "bshd", "thd"]
Isa = Literal["default", "scalar", "avx2", "avx512", "neon", "wasm128"]
Stage = Literal["raw", "capped", "biased", "weights"]


class Shared(TypedDict, total=False):
    """Those of libattn.Options that layers and analysis take too."""

    temperature: float
    normaliser: Literal["softmax", "softmax-one", "sigmoid", "relu"]
    shift: float
    align: Literal["top-left", "bottom-right"]
    offset_q: ArrayLike
    chunk: int
    dilation: int
    global_q: int
    global_kv: int
    least_distance: int
    ranges: ArrayLike
    block_mask: ArrayLike
    block_starts: ArrayLike
    block_index: ArrayLike
    block_q: int
    block_kv: int
    empty: Literal["zero", "uniform"]
    bias_table: ArrayLike
    bias_table_kind: Literal["t5", "clipped"]
    bias_table_max_distance: int
    bias_table_causal: bool
    relative_keys: ArrayLike
    relative_values: ArrayLike
    relative_u: ArrayLike
    relative_v: ArrayLike
    relative_first: int
    dropout_offset: int
    dropout_given: ArrayLike
    isa: Isa
    invariant: bool
    reproducible: bool
    workspace_limit: int
    origin: tuple[int, int, int, int, int]


class Options(Shared, total=False):
    """Keywords after those that a signature names: the rest of attn.h, under the names there (attn_problem, attn_tensors, ...).

    Arrays have the axes that are listed; those on the left may be missing or have size 1, which broadcasts, except where there is
    one axis.  B is the batch, Hq and Hkv are the heads of queries and of keys, Sq and Skv the numbers of queries and keys, D and Dv
    the channels of keys and of values.

    Scores:

     score                    "dot", "general", "metric", "cosine", "distance" or "additive": what is compared (default "dot")
     score_matrix             [Hq, rows, channels] of floats, for general, metric and additive scores
     temperature              a number: scores are divided by it, before the softcap (default 1)
     normaliser               "softmax", "softmax-one", "sigmoid" or "relu": how scores become weights (default "softmax")
     shift                    a number, of the sigmoid
     modify_scores            a function, called with a libattn.Tile: the caller's own scores
     modify_slopes            a function, called with a libattn.Tile: their derivatives

    Which keys a query sees, besides causal, window and mask:

     align                    "top-left" or "bottom-right": which query stands where; default as in `causal`
     offset_q                 [B] of integers: position of query 0 of each batch entry among the keys, in place of `align`
     chunk                    an integer: keys of the same chunk of so many only
     dilation                 an integer n: every n-th key of a window
     global_q                 an integer: so many of the first queries see all keys, whatever the window
     global_kv                an integer: all queries see so many of the first keys
     least_distance           an integer; 1: a query does not see its own key
     ranges                   [B, Hq, Sq, 2] of integers: the first key that a query may see, and one past the last
     block_mask               [B, Hq, ceil(Sq/block_q), ceil(Skv/block_kv)] of bool: True where queries see the keys of a block
     block_starts             [ceil(Sq/block_q) + 1] of integers: where the list of each block of queries starts in block_index
     block_index              [blocks of all lists] of integers: blocks of keys that are visited, ascending within a list
     block_q                  an integer: queries per block
     block_kv                 an integer: keys per block
     empty                    "zero" or "uniform": the result of a query that sees no key (default "zero")
     len_q                    an integer, layout thd: the longest sequence of queries, if known; found from cu_seqlens_q otherwise
     len_kv                   an integer: the same of keys

    Terms by distance:

     bias_table               [Hq, buckets] of floats, added by distance (T5, clipped distances)
     bias_table_kind          "t5" or "clipped": how a distance chooses the bucket
     bias_table_max_distance  an integer: farther keys are added what this distance has
     bias_table_causal        a bool, T5: all buckets are for keys before the query
     relative_keys            [Hq, rows, D] of floats (Shaw; Transformer-XL)
     relative_values          [Hq, rows, Dv] of floats
     relative_u               [Hq, D] of floats, added to queries before keys
     relative_v               [Hq, D] of floats, added to queries before relative keys
     relative_first           an integer: the distance of row 0

    Dropout:

     dropout_offset           an integer: continues the sequence of `seed`
     dropout_given            [B, Hq, Sq, Skv] of bool: which weights are kept, drawn by the caller

    How to compute; results have the same bits for any number of threads, with or without a limit:

     isa                      "default", "scalar", "avx2", "avx512", "neon" or "wasm128": exactly this instruction set, or an error
     invariant                a bool: bits do not depend on how queries are split into calls
     reproducible             a bool: the same bits with AVX2, AVX-512 and NEON
     workspace_limit          an integer: bytes that a call may use besides its arrays
     origin                   (batch, head, heads, q, kv), five integers: where a part is within a larger problem
    """

    score: Literal["dot", "general", "metric", "cosine", "distance", "additive"]
    score_matrix: ArrayLike
    modify_scores: Callable[[Tile], object]
    modify_slopes: Callable[[Tile], object]
    len_q: int
    len_kv: int


class Pages(TypedDict, total=False):
    """Pages in lists, in place of page_table and lengths_kv: libattn.ForwardOptions."""

    page_starts: ArrayLike
    page_index: ArrayLike
    lengths_last_page: ArrayLike


class ForwardOptions(Options, Pages, total=False):
    """Options of attention alone, besides those of libattn.Options.

    Keys and values of int8, each with a scale, or float8, with scales or without (cache.Blocks have their own):

     k_scale                  [B, Hkv, Skv] of float32, or in pages as k is; np.broadcast_to makes one of heads, or of all keys
     v_scale                  [B, Hkv, Skv] of float32, or in pages as v is
     k_tail                   [B, Hkv, 64, D] of float16, where k is Blocks of q4_1c: the last keys of each entry (cache.Cache)

    Pages in lists, and the work of a step:

     page_starts              [B + 1] of integers, in place of page_table: where the pages of each entry start in page_index
     page_index               [all entries' pages] of integers: the lists of pages
     lengths_last_page        [B] of integers, in place of lengths_kv: tokens in the last page of each list
     schedule                 a libattn.Schedule of this step, by Plan.schedule of a plan of the same sizes

    Few queries that see some of very many keys; cache.choose_blocks makes the lists:

     block_heads              a bool: block_starts has lists for each batch entry and key head, [B * Hkv * ceil(Sq/block_q) + 1]
     tree                     [B, 1, Sq, ceil(tree_keys/64)] of uint64: which of the last keys a draft sees, bit 0 the first of 64
     tree_keys                an integer: how many of the last keys have bits

    Further results of attention:

     outputs                  their names, or names and arrays to write to
     after_dropout            a bool: weights are returned after dropout
     scores_stage             "raw", "capped", "biased" or "weights": of the output "scores" (default "raw")
     topk                     an integer: keys per query of the outputs "topk_index" and "topk_weight"
     column_heads             "each", "group" or "all": which heads share a sum of the output "column_sum"
     column_queries           an integer: how many of the last queries it covers; 0: all
     visit_rows               a function, called with libattn.Rows, ranges of rows of scores of rows_stage
     rows_stage               "raw", "capped", "biased" or "weights" (what return_weights returns); default "raw"
    """

    k_scale: ArrayLike
    v_scale: ArrayLike
    k_tail: ArrayLike
    schedule: Schedule
    block_heads: bool | int
    tree: ArrayLike
    tree_keys: int
    outputs: Sequence[str] | Mapping[str, ArrayLike]
    after_dropout: bool
    scores_stage: Stage
    topk: int
    column_heads: Literal["each", "group", "all"]
    column_queries: int
    visit_rows: Callable[[Rows], object]
    rows_stage: Stage


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


class Problem(Options, Named, Pages, total=False):
    """All that says what is computed, besides q, k and v: the keywords of libattn.attention, where they are explained, with lists of pages
    (libattn.ForwardOptions) and those of libattn.Options."""

    page_table: ArrayLike | None
    layout: Layout


ForwardOptions.__doc__ = continued(ForwardOptions.__doc__, Options.__doc__)
Problem.__doc__ = continued(Problem.__doc__, Options.__doc__)
