/* SPDX-License-Identifier: MIT
 * predict.h - the seconds, messages and bytes of one way, for attn_split_predict and for plans, which choose by them. */
#ifndef ATTN_DISTRIBUTED_PREDICT_H
#define ATTN_DISTRIBUTED_PREDICT_H

#include "model_count.h"

/* A copy of a machine; NULL: what predictions assume. */
attn_status attn_machine_read(attn_split_machine *copy, const attn_split_machine *caller, attn_error *error);

/* Predicts a way, which is not ATTN_WAY_AUTO.  All but prediction->why.
 *
 *  cells     of all heads and all ranks, as attn_grid_fill and attn_bounds_fill leave them, without plans; where heads are divided,
 *            after attn_slices_share.  Of rows of tensors that a rank has nothing is read, so that all ranks get the same
 *  members   ranks that divide the heads */
attn_status attn_predict_way(attn_split_prediction *prediction, const attn_cells *cells, attn_way way, int ranks, int members,
                             const attn_split_machine *machine, attn_error *error);

#endif
