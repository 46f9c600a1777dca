/* SPDX-License-Identifier: MIT
 *
 * forward.inc.c - the forward kernel, written once.  An instantiation (<isa>/fwd_<type>.c) defines REAL_BITS, includes the SIMD
 * layer of its instruction set and then this file, and defines its parts as ATTN_FORWARD_PARTS.
 */
#ifdef VF_LANES

/* Whether there are register tiles for the last 8, 4 and 2 rows too, besides those of full height and 1 (scores: 4): not in an
 * inference-only build, since they are a third of its code. */
enum { VF_TAILS = ATTN_TRAINS };

/* Calls f with the width as a constant, so that register tiles are unrolled. */
#if VF_VECTORS <= 4
#define VF_EACH_WIDTH(f, width, ...)                                                                                               \
    do {                                                                                                                           \
        if ((width) == VF_VECTORS) f(VF_VECTORS, __VA_ARGS__);                                                                     \
        else if ((width) == 1) f(1, __VA_ARGS__);                                                                                  \
        else if ((width) == 2) f(2, __VA_ARGS__);                                                                                  \
        else if (VF_VECTORS > 3) f(3, __VA_ARGS__);                                                                                \
    } while (0)
#elif VF_VECTORS == 6
#define VF_EACH_WIDTH(f, width, ...)                                                                                               \
    do {                                                                                                                           \
        if ((width) == 6) f(6, __VA_ARGS__);                                                                                       \
        else if ((width) == 5) f(5, __VA_ARGS__);                                                                                  \
        else if ((width) == 4) f(4, __VA_ARGS__);                                                                                  \
        else if ((width) == 3) f(3, __VA_ARGS__);                                                                                  \
        else if ((width) == 2) f(2, __VA_ARGS__);                                                                                  \
        else f(1, __VA_ARGS__);                                                                                                    \
    } while (0)
#else
#error "define VF_EACH_WIDTH for this many vectors"
#endif

/* The same with functions f_1, f_2, f_3, ..., which VF_WIDTHS(DEFINE) defines by DEFINE(1) and so on: a single function would
 * compute the addresses of all widths before it needs any.  For SIMD layers that have short heads. */
#if VF_VECTORS == 3
#define VF_WIDTHS(DEFINE) DEFINE(1) DEFINE(2) DEFINE(3)
#define VF_CALL_WIDTH(f, width, ...)                                                                                               \
    do {                                                                                                                           \
        if ((width) == 3) f##_3(__VA_ARGS__);                                                                                      \
        else if ((width) == 2) f##_2(__VA_ARGS__);                                                                                 \
        else f##_1(__VA_ARGS__);                                                                                                   \
    } while (0)
#elif VF_VECTORS == 6
#define VF_WIDTHS(DEFINE) DEFINE(1) DEFINE(2) DEFINE(3) DEFINE(4) DEFINE(5) DEFINE(6)
#define VF_CALL_WIDTH(f, width, ...)                                                                                               \
    do {                                                                                                                           \
        if ((width) == 6) f##_6(__VA_ARGS__);                                                                                      \
        else if ((width) == 5) f##_5(__VA_ARGS__);                                                                                 \
        else if ((width) == 4) f##_4(__VA_ARGS__);                                                                                 \
        else if ((width) == 3) f##_3(__VA_ARGS__);                                                                                 \
        else if ((width) == 2) f##_2(__VA_ARGS__);                                                                                 \
        else f##_1(__VA_ARGS__);                                                                                                   \
    } while (0)
#endif

#include "band_step.inc.c"

#include "prefetch_step.inc.c"

#include "product_step.inc.c"

#include "value_step.inc.c"

#include "exp_step.inc.c"

#include "dropout_step.inc.c"

#include "fold_step.inc.c"

#include "storage_step.inc.c"

#include "merge_step.inc.c"

#include "modify_step.inc.c"

#include "option_step.inc.c"

#include "distance_step.inc.c"

#include "outputs_step.inc.c"

#include "additive_step.inc.c"

#include "normalise_step.inc.c"

#ifndef ATTN_INFERENCE_ONLY
#include "short_step.inc.c"
#endif

static int64_t step_block_kv(int64_t dim_qk, int64_t dim_v) { return VF_BLOCK_KV(dim_qk, dim_v); }

/* The first member of every part: what parts must agree on. */
#define ATTN_TILE_SHAPE                                                                                                            \
    {                                                                                                                              \
        VF_LANES, VF_VECTORS, VF_FUSED                                                                                             \
    }

#define ATTN_FORWARD_PARTS                                                                                                         \
    {                                                                                                                              \
        .storage = {ATTN_TILE_SHAPE, step_pack_query, step_load_rows, step_scale_rows, step_store_rows, step_store_columns},       \
        .product = {.shape = ATTN_TILE_SHAPE,                                                                                      \
                    .block_kv = step_block_kv,                                                                                     \
                    .score = step_score,                                                                                           \
                    .score_beside = step_score_beside,                                                                             \
                    .score_seen = step_score_seen,                                                                                 \
                    .score_beside_in_order = step_score_beside_in_order,                                                           \
                    .score_seen_in_order = step_score_seen_in_order,                                                               \
                    .values = step_values,                                                                                         \
                    .values_seen = step_values_seen,                                                                               \
                    .values_nan_safe = step_values_nan_safe,                                                                       \
                    .add_values = step_add_values,                                                                                 \
                    .add_values_nan_safe = step_add_values_nan_safe},                                                              \
        .softmax = {.shape = ATTN_TILE_SHAPE,                                                                                      \
                    .start = step_start,                                                                                           \
                    .exponentiate = step_exponentiate_block,                                                                       \
                    .merge = step_merge,                                                                                           \
                    .not_finite = step_not_finite,                                                                                 \
                    .find_empty = step_find_empty,                                                                                 \
                    .finish = step_finish},                                                                                        \
        .modify = {.shape = ATTN_TILE_SHAPE,                                                                                       \
                   .keep_range = step_keep_range,                                                                                  \
                   .drop_range = step_drop_range,                                                                                  \
                   .keep_mask = step_keep_mask,                                                                                    \
                   .add_bias = step_add_bias,                                                                                      \
                   .softcap = step_softcap,                                                                                        \
                   .add_alibi = step_add_alibi,                                                                                    \
                   .add_diagonals = step_add_diagonals,                                                                            \
                   .unmask_empty = step_unmask_empty,                                                                              \
                   .block_max = step_block_max},                                                                                   \
        .relative = {ATTN_TILE_SHAPE, step_add_relative_shift, step_relative_shift, step_add_to_lanes, step_sum_keys},             \
        .outputs = ATTN_OUTPUTS_PART,                                                                                              \
        .additive = {ATTN_TILE_SHAPE, step_prepare_queries, step_prepare_keys, step_additive_score, step_additive_score_seen},     \
        .elementwise = {ATTN_TILE_SHAPE, step_elementwise_weights, step_clamp_denominator, step_elementwise_weights_over,          \
                        step_elementwise_gradient},                                                                                \
        ATTN_IF_TRAINS(.small = ATTN_SMALL_PART, ).merge = {step_part_weights, step_add_parts, step_part_inner},                   \
    }

#endif
