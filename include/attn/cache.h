/* SPDX-License-Identifier: MIT
 *
 * cache.h - inference over a cache of keys and values: append new tokens and attend to everything so far, for a batch of sequences
 * of different lengths.  The caller owns the cache's memory, contiguous or in pages.  Conventions of attn.h hold.
 */
#ifndef ATTN_CACHE_H
#define ATTN_CACHE_H

#include "attn/attn.h"
#include "attn/position.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Quantises rows in a format of keys and values.  To i8, with a scale for each row (k_scale and v_scale of attn_tensors):
 *
 *      scales[i]    = max_c |x_ic| / 127, rounded to f32
 *      values[i, c] = x_ic / scales[i] rounded to nearest, ties to even; 0 if the scale is 0
 *
 * so that the error of a number is at most half a scale, as long as the scale is a normal f32 number.  A NaN or infinity makes its
 * row's scale NaN, and so the whole row NaN.
 *
 * Other formats are made of x rounded to f32.  f8 with scales is the same with the type's largest number (448 or 57344) for 127,
 * x_ic / scales[i] being rounded to the nearest number of the type; without scales, x_ic itself is.  What is beyond the largest
 * number becomes it; infinity stays in e5m2, and is NaN in e4m3.
 *
 * Blocks are those of ggml's quantize_row_q8_0_ref, _q4_0_ref and _q4_1_ref, bit for bit.  In f32, with x those of a block:
 *
 *      q8_0    d = max |x| / 127                                   q_c = x_c * (1 / d), rounded to nearest, halves away from 0
 *      q4_0    d = (the first x whose |x| is largest) / -8         q_c = floor(x_c * (1 / d) + 8.5), at most 15
 *      q4_1    m = min x    d = (max x - m) / 15                   q_c = floor((x_c - m) * (1 / d) + 0.5), at most 15
 *
 * (1 / d is 0 where d is 0), and then d and m are rounded to f16.  A block with a NaN or infinity, which ggml does not define, gets
 * a d of NaN.  q4_1c is q4_1 of each channel of ATTN_BLOCK rows, which are rounded to f16 first; rows must be a multiple of
 * ATTN_BLOCK.
 *
 *  src     [in]  [1, 1, rows, dim] of f32 (default), f64, f16 or bf16, the last axis contiguous
 *  values  [out] [1, 1, rows, dim] of i8 (default), f8 or blocks (dim / ATTN_BLOCK of them), the same
 *  scales  [out] [1, 1, rows, 1] of f32; NULL or absent for blocks, and for f8 without scales
 *
 * Runs on the calling thread.
 */
ATTN_API attn_status attn_quantise(int64_t rows, int64_t dim, const attn_input *src, const attn_output *values,
                                   const attn_output *scales, attn_error *error);

/*
 * Rotates rows so that a large channel is spread over many, before they are quantised: channels in groups of n, the largest power
 * of 2 that divides dim, at most 4096,
 *
 *      dst[i, a] = sum_b H_ab src[i, b] / sqrt(n)       H_ab = -1 if a and b have an odd number of common 1 bits, else 1
 *
 * which is its own inverse.  If both queries and keys are rotated (after a rope), scores are what they were; if values are, the
 * outputs are rotated, and this undoes it.  4 bits gain most (docs/mechanisms/quantised.md).  In double, rounded once to dst's
 * type, on the calling thread.
 *
 *  src  [in]  [1, 1, rows, dim] of f32 (default), f64, f16 or bf16, the last axis contiguous
 *  dst  [out] [1, 1, rows, dim] of any of these types (default: f32), the same; shares no memory with src
 */
ATTN_API attn_status attn_hadamard(int64_t rows, int64_t dim, const attn_input *src, const attn_output *dst, attn_error *error);

/*
 * A cache: its sizes and tensors, one slot each.  Keys and values are each of f32, f16, bf16, i8, f8 or blocks, or both f64; by
 * default keys are f32, and values as keys.  In pages (if page_table is present), token j of entry b is token j % page_size of page
 * page_table[b, j / page_size], and capacity is how many tokens an entry's row of the table can hold.  The pages that a call writes
 * to must be distinct (not checked: of two tokens in one place, either may remain).  Appending reads the entries of these pages
 * only; those of an entry without new tokens may be -1 or stale.  If keys (values) are i8, k_scale (v_scale) has one for each row,
 * and appending quantises as attn_quantise does, to f8 and blocks too.  f8 without k_scale (v_scale) has the scale 1.  With a
 * stride over tokens of 0 ({0, 0, 0, 1}: a scale of the tensor, {0, 1, 0, 1}: of each head), scales are the caller's and only read;
 * else appending writes one for each row.  Dense strides are those of the shape beside a slot, a block being one element.
 *
 * If v is the slot of k (the same memory, type and strides), the values are the first dim_v channels of the keys, as with latents:
 * they are written with the keys, tokens.v is absent, and v_scale is absent or k_scale.  (A rope rotates the first channels: rotate
 * the others of a latent by attn_rope_apply before it is appended.)
 *
 * If k is q4_1c, appending rounds (rotated) keys to f16 and writes them to k_tail, key j to row j % ATTN_TAIL; whenever ATTN_BLOCK
 * keys are complete, it quantises them into k.  So bits depend on the keys only, not on how they were divided into calls, and the
 * group that is not full is exact.  k_tail still has the keys of the group before, so that a length may go back to the largest that
 * it has had less ATTN_BLOCK (drafts that are refused).  Sequences that share pages share whole groups; each has its own tail,
 * which is copied for a sequence that begins as another one does.  page_size is a multiple of ATTN_BLOCK.  attn_cache_shift,
 * attn_cache_move and attn_page_bounds do not take such a cache: its keys are no rows.
 *
 * The cache is the only thing in libattn that is updated in place: appending writes k, v, their scales, k_tail and lengths.  So
 * calls on one cache must not overlap; calls on different caches may run at once.
 */
typedef struct attn_cache {
    size_t struct_size; /* sizeof(attn_cache) */
    int64_t batch;
    int64_t heads_kv;
    int64_t capacity;
    int64_t dim_qk;
    int64_t dim_v;
    int64_t page_size;     /* 0: contiguous; then pages is 0 too */
    int64_t pages;         /* in k and v */
    const attn_rope *rope; /* NULL, or the rotation of keys (when appended) and queries, by their positions in the sequence */
    int64_t reserved[3];   /* must be 0 */

    attn_output k;         /* [batch, heads_kv, capacity, dim_qk], in pages [pages, heads_kv, page_size, dim_qk] */
    attn_output v;         /* [batch, heads_kv, capacity, dim_v], in pages [pages, heads_kv, page_size, dim_v] */
    attn_output lengths;   /* [batch], dense, of i64: tokens in the cache; appending adds to them */
    attn_input page_table; /* [batch, ceil(capacity / page_size)] [B,1,1,..] of i64 or i32, the last axis contiguous */
    attn_output k_scale;   /* [batch, heads_kv, capacity, 1], or in pages, of f32: if k is i8, or f8 with scales */
    attn_output v_scale;   /* the same, of v; absent or k_scale if v is k */
    attn_output k_tail;    /* [batch, heads_kv, ATTN_TAIL, dim_qk] of f16, channels contiguous: if k is q4_1c */
} attn_cache;

/*
 * New tokens, of any float type (f64 if and only if the cache is; by default f64 if the cache is, else f32), rounded once to the
 * cache's type (keys rotated into i8, f8 or blocks: rotated in f32, dim_qk at most 4096; of q4_1c: in f16).  Without `slots` they
 * are those of every entry:
 *
 *      token t of entry b becomes key lengths[b] + t;   lengths[b] += tokens.lengths[b]
 *
 * With `cu_seqlens` they are packed, without a batch axis, and those of entry b are tokens cu_seqlens[b] .. cu_seqlens[b+1]-1, as
 * many as tokens.lengths[b] would say; it begins with 0, never decreases, and ends at `len` or before.
 *
 * With `slots` (not if k is q4_1c, whose tail is that of an entry) they are packed, without a batch axis, and each says where it
 * goes, as in vLLM's reshape_and_cache: slot s is token s % page_size of page s / page_size, or without pages token s % capacity of
 * entry s / capacity; a token of slot -1 is skipped. The rope rotates token t for positions[t].  Neither lengths nor page_table of
 * the cache are read or written, and both may be absent.
 *
 * Packed tokens [len, heads_kv, dim] have strides {0, dim, heads_kv * dim, 1}.
 */
typedef struct attn_cache_tokens {
    size_t struct_size; /* sizeof(attn_cache_tokens) */
    int64_t len;
    const attn_options *options; /* of attn_cache_append: isa, threads, parallel_for; NULL: all defaults */
    attn_input k;                /* [batch, heads_kv, len, dim_qk], channels contiguous; packed [1, heads_kv, len, dim_qk] */
    attn_input v;                /* [batch, heads_kv, len, dim_v], the same; absent if the cache's v is its k */
    attn_input lengths;          /* [batch], dense, of i64 or i32: how many of the `len` tokens are real; absent: all */
    attn_input slots;            /* [len], dense, of i64 or i32; no slot twice */
    attn_input positions;        /* [len], dense, of i64 or i32: with slots and a rope */
    attn_input cu_seqlens;       /* [batch + 1], dense, of i64 or i32: packed by entry; without lengths and slots */
} attn_cache_tokens;

/*
 * Writes the new tokens.  The angles of a token are computed once for all heads; bits do not depend on threads, and are those of
 * attn_rope_apply and attn_convert, or attn_quantise.  Allocates nothing.
 *
 * Returns ATTN_ERR_ARGUMENT (also for a slot that is out of range or given twice, or if the rope's tables end before a token),
 * ATTN_ERR_SHAPE (an entry would exceed its capacity), ATTN_ERR_STRIDE (also for tensors that share elements with what is written)
 * or ATTN_ERR_UNSUPPORTED with the cache untouched.
 */
ATTN_API attn_status attn_cache_append(const attn_cache *cache, const attn_cache_tokens *tokens, attn_error *error);

/*
 * Drops tokens to make room: those after the first `keep` of each entry, which stay as sinks (StreamingLLM: Xiao et al. 2024).  The
 * tokens behind them move down, and a rope's keys are rotated on to where they are now:
 *
 *      j >= keep:   value j = value (j + drop[b])     key j = R(j) R(j + drop[b])^-1 key (j + drop[b])     lengths[b] -= drop[b]
 *
 * in double, rounded once: with a rope, each shift adds the rounding of the cache's type to a key, and no more than 2^-50 of the
 * size of each pair.  Tables of cosines and sines must be of rotations (not both 0).  Runs on the calling thread, and allocates
 * nothing.
 *
 *  drop  [in] [batch], dense, of i64 (default) or i32; 0: nothing of the entry changes or is read, however few tokens it has
 *
 * Returns ATTN_ERR_ARGUMENT (also if an entry has fewer tokens, or more than the rope's tables, or if a page that a token leaves or
 * goes to does not exist), ATTN_ERR_SHAPE, ATTN_ERR_STRIDE or ATTN_ERR_UNSUPPORTED (also for quantised keys with a rope, which
 * would be quantised again, and of q4_1c) with the cache untouched.
 */
ATTN_API attn_status attn_cache_shift(const attn_cache *cache, int64_t keep, const attn_input *drop, attn_error *error);

/*
 * Copies the token of slot from[i] to slot to[i], with its scales, one after another: to bring the pages of a sequence together
 * (write its page_table afterwards), or to copy a page that sequences shared.  Slots are those of attn_cache_tokens, none is -1;
 * lengths and page_table are not needed.  Keys keep their rotation.
 *
 *  from, to  [in] [count], dense, of i64 (default) or i32
 *
 * Runs on the calling thread, and allocates nothing.  Returns ATTN_ERR_ARGUMENT, ATTN_ERR_SHAPE, ATTN_ERR_STRIDE or
 * ATTN_ERR_UNSUPPORTED with the cache untouched.
 */
ATTN_API attn_status attn_cache_move(const attn_cache *cache, int64_t count, const attn_input *from, const attn_input *to,
                                     attn_error *error);

/*
 * Appends, then lets the new tokens attend causally to all of their sequence, themselves included: query t of entry b sees keys 0
 * .. lengths_before[b] + t.  Key heads shared by query heads are read once, and keys and pages of an entry without tokens not at
 * all.  tokens->slots and tokens->cu_seqlens must be absent: lengths tell which keys a query sees, and queries are not packed.
 *
 *  problem  [in] shape.heads_q, and every choice of attn_problem that applies: score, mask.window, outputs.  What follows from
 *                the cache and the tokens (the other sizes, mask.align, paging) is filled in and must be 0; mask.causal may be 1
 *  tensors  [in] q and o [batch, heads_q, len, dim], lse, bias, sink, ...; k, v, their scales, lengths_q, lengths_kv and page_table
 *                are filled in and must be absent
 *  options  [in] as in attn_plan_create; may be NULL.  tokens->options must be
 *
 * Plans and allocates for the call, with options->allocator (or malloc); a loop that must not allocate calls attn_cache_append and
 * keeps a plan with lengths_kv and lengths_q for the longest sequence.  Returns what attn_cache_append and attn_compute return; on
 * error nothing is written.
 */
ATTN_API attn_status attn_cache_attend(const attn_cache *cache, const attn_cache_tokens *tokens, const attn_problem *problem,
                                       const attn_tensors *tensors, const attn_options *options, attn_error *error);

#ifdef __cplusplus
}
#endif

#endif
