/* SPDX-License-Identifier: MIT
 *
 * linear.inc.c - the kernel of linear attention, written once.  An instantiation (<isa>/linear_<type>.c) says REAL_BITS, includes
 * the vocabulary of its instruction set and then this file, and defines its table as ATTN_LINEAR_KERNEL.
 */
#ifdef VF_LANES

/* Some steps of forward are only building blocks here. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"

#include "forward.inc.c"

#pragma GCC diagnostic pop

#include "feature_step.inc.c"

#include "linear_step.inc.c"

#include "token_step.inc.c"

#include "gate_step.inc.c"

#define ATTN_LINEAR_KERNEL                                                                                                         \
    {                                                                                                                              \
        .features = step_features, .lane_features = step_lane_features, .features_backward = step_features_backward,               \
        .random_features = step_random_features, .random_features_backward = step_random_features_backward, .pairs = step_pairs,   \
        .weigh = step_weigh_triangle, .read = step_read, .take_rows = step_take_rows, .pack_panels = step_pack_panels,             \
        .update_state = step_update_state, .add_columns = step_add_columns, .add_lanes = step_add_lanes,                           \
        .dot_lanes = step_dot_lanes, .inner_lanes = step_inner_lanes, .scale_lanes = step_scale_lanes,                             \
        .row_terms = step_row_terms, .token = step_token, .recall = step_recall, .token_sum = step_token_sum,                      \
        .recall_backward = step_recall_backward, .token_backward = step_token_backward, .gates = step_gates,                       \
        .decay_rows = step_decay_rows, .score_gated = step_score_gated, .add_gated = step_add_gated, .solve = step_solve,          \
        .solve_back = step_solve_back, .add_multiplied = step_add_multiplied, .sums_from = step_sums_from,                         \
    }

#endif
