/* SPDX-License-Identifier: MIT
 *
 * linear.inc.c - the linear attention kernel, written once.  An instantiation (<isa>/linear_<type>.c) defines REAL_BITS, includes
 * the SIMD layer of its instruction set and then this file, and defines its parts as ATTN_LINEAR_PARTS.
 */
#ifdef VF_LANES

/* Some steps of forward are only building blocks here. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"

#include "attn/linear.h"
#include "forward.inc.c"

#pragma GCC diagnostic pop

#include "feature_step.inc.c"

#include "linear_step.inc.c"

#include "token_step.inc.c"

#include "gate_step.inc.c"

#include "convolution_step.inc.c"

#define ATTN_LINEAR_PARTS                                                                                                          \
    {                                                                                                                              \
        .features = {ATTN_TILE_SHAPE, step_features, step_lane_features, step_random_features,                                     \
                     ATTN_IF_TRAINS(step_features_backward, step_random_features_backward)},                                       \
        .chunk = {.shape = ATTN_TILE_SHAPE,                                                                                        \
                  .pairs = step_pairs,                                                                                             \
                  .read = step_read,                                                                                               \
                  .read_nan_safe = step_read_nan_safe,                                                                             \
                  .update_state = step_update_state,                                                                               \
                  .apply_decay = step_decay_triangle,                                                                              \
                  .take_rows = step_take_rows,                                                                                     \
                  .pack_panels = step_pack_panels,                                                                                 \
                  .add_columns = step_add_columns,                                                                                 \
                  .add_lanes = step_add_lanes,                                                                                     \
                  .dot_lanes = step_dot_lanes,                                                                                     \
                  .inner_lanes = step_inner_lanes,                                                                                 \
                  .scale_lanes = step_scale_lanes,                                                                                 \
                  .row_terms = step_row_terms},                                                                                    \
        .token = {ATTN_TILE_SHAPE, step_token, step_recall, step_token_sum,                                                        \
                  ATTN_IF_TRAINS(step_recall_backward, step_token_backward)},                                                      \
        .gate = {.shape = ATTN_TILE_SHAPE,                                                                                         \
                 .gates = step_gates,                                                                                              \
                 .decay_rows = step_decay_rows,                                                                                    \
                 .score_gated = step_score_gated,                                                                                  \
                 .add_gated = step_add_gated,                                                                                      \
                 .solve = step_solve,                                                                                              \
                 ATTN_IF_TRAINS(.solve_back = step_solve_back, ).add_multiplied = step_add_multiplied,                             \
                 .sums_from = step_sums_from},                                                                                     \
        .convolution = {ATTN_TILE_SHAPE, step_convolution, step_convolution_through,                                               \
                        ATTN_IF_TRAINS(step_convolution_inputs, step_convolution_weights)},                                        \
    }

#endif
