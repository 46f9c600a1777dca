/* SPDX-License-Identifier: MIT
 *
 * heads.h - ranks that divide the heads among themselves: `members` ranks after one another, a group, exchange rows until each has
 * all tokens of the group for some heads; what they compute then, with the ranks of other groups that have the same heads, is a
 * problem with fewer heads over fewer ranks, for run.h; and what comes out of it goes back to the owners of the tokens.  The result
 * of a cell for a head does not depend on other heads, so that no bit does. */
#ifndef ATTN_DISTRIBUTED_HEADS_H
#define ATTN_DISTRIBUTED_HEADS_H

#include "run.h"
#include "slice.h"

typedef struct attn_heads {
    attn_distributed_plan engine; /* of the rank's heads */
    int me;                       /* in the group, whose member 0 is rank `first` */
    int first;
    size_t at[ATTN_BOUND]; /* bytes: of the tensors of the group's tokens and the rank's heads, in the workspace */
    size_t tensors;        /* of all of these */
    size_t message[2];     /* of the largest message that is sent, and of the largest one that comes */
} attn_heads;

/* After all ranks have agreed about the plan.  plan->heads is released by attn_heads_free, also if this fails. */
attn_status attn_heads_plan(attn_distributed_plan *plan, uint64_t shared, attn_error *error);
void attn_heads_free(attn_heads *heads, const attn_options *options);

/* As attn_run. */
attn_status attn_heads_run(const attn_distributed_plan *plan, const attn_tensors *mine, void *workspace, attn_error *error);

#endif
