/* SPDX-License-Identifier: MIT
 *
 * distributed_linear.h - linear attention (attn/linear.h) over several ranks, each of which holds some of the tokens, with the
 * transport of attn/distributed.h.  The same bits for any number of ranks.  Conventions of attn.h hold.
 *
 * Tokens are cut into parts as in attn/distributed.h, and each rank has one range of parts, in the order of ranks.  What earlier
 * tokens leave to later ones is a state of fixed size, whatever their number, so that only states travel:
 *
 *      causal, forward       a rank gets the state after the rank before, computes its tokens and passes its own state on
 *      causal, backward      states as in forward, without outputs; then gradients of states from the last rank to the first
 *      not causal            the state moves over the keys of all ranks; the sum goes to all of them, which read it; backward,
 *                            the gradient of that sum moves over the queries of all ranks, and goes to all of them
 *
 * A rank would wait until those before it are done.  So heads, or entries of the batch, form groups whose states travel apart:
 * while a rank computes group g, the next one computes group g - 1.  With R ranks and G groups, which take equally long, the last
 * rank is done after R + G - 1 of them, instead of R G.
 *
 * Or all ranks begin at once (ATTN_WAY_DIRECT), and make, of each of their parts, what it does to any state: S -> A S + B, where A
 * is nothing without a decay, a factor for each feature with one, and a matrix [F, F] by the other rules.  That goes to all ranks
 * after them, and part n begins with the state that the largest nodes of a binary tree over the numbers of parts make up of parts 0
 * to n - 1, one after another, where a node is that of its second half after that of its first (a scan: Blelloch 1990).  That is
 * twice the work (by the other rules, and backward, up to three times), whose results are near those of a chain.  Backward
 * likewise.
 *
 * In a chain, each part is a call of the library, from the state before it, and a chunk never spans two parts.  If the part is a
 * multiple of the chunk (attn_distributed_linear_description), or there is one part, all results have the bits of one call of
 * attn_linear_execute with this form and chunk; except grad_decay in chunks with one decay per head, which is a sum over all later
 * tokens: here that of its part, and what the state after the part adds.  It has the same bits for any number of ranks, too, as has
 * all that follows from a scan.
 */
#ifndef ATTN_DISTRIBUTED_LINEAR_H
#define ATTN_DISTRIBUTED_LINEAR_H

#include "attn/distributed.h"
#include "attn/linear.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A problem planned for the ranks of a transport.  Immutable; one execution at a time uses its transport. */
typedef struct attn_distributed_linear_plan attn_distributed_linear_plan;

/*
 * Plans ATTN_FORWARD or ATTN_BACKWARD over all ranks.  Collective: each rank calls it, with the same problem and split.
 *
 *  problem    [in]  the whole problem: len_q and len_kv are those of all ranks together.  chunk 0: the number nearest to the
 *                   fastest, and no more than twice or less than half of it, of which the part is a multiple, if there is one; the
 *                   part itself, if it is below the fastest.
 *                   ATTN_LINEAR_FORM_QUADRATIC: each part is one chunk
 *  tensors    [in]  the rank's own, one part after another along the axis of tokens:
 *                      a tensor with a row for each query or key      the rows of the rank
 *                      feature_matrix                                 all of it, the same on all ranks
 *                      lengths                                        all of it: tokens of the whole
 *                      initial_state, initial_sum, grad_final_state, grad_final_sum
 *                                                                     on all ranks, with the same numbers
 *                      final_state, final_sum, grad_initial_state, grad_initial_sum
 *                                                                     all ranks get all of it
 *                   Pointers may be ATTN_LATER; what has no rows on this rank is ATTN_EMPTY
 *  split      [in]  NULL: all defaults.  The layout is ATTN_LAYOUT_CONTIGUOUS; the way ATTN_WAY_RING (and ATTN_WAY_AUTO), a chain,
 *                   or ATTN_WAY_DIRECT, a scan: for few heads on many ranks.  attn_split_describe says what a rank owns
 *  transport  [in]  as in attn_distributed_plan_create
 *  options    [in]  NULL: all defaults.  The instruction set must be the same on all ranks
 *
 * All ranks return the same status and message, as attn_distributed_plan_create says: what attn_linear_plan_create returns for the
 * tokens of a rank, or
 *      ATTN_ERR_ARGUMENT     also if ranks disagree about the problem, the split, types, the instruction set, or about which
 *                            tensors there are
 *      ATTN_ERR_UNSUPPORTED  another layout or way, or any_order; ragged batches (cu_seqlens), slots, states of 16 bits
 *      ATTN_ERR_MEMORY       also if the workspace would be larger than options.workspace_limit
 *      ATTN_ERR_IO           the transport failed
 */
ATTN_API attn_status attn_distributed_linear_plan_create(attn_distributed_linear_plan **plan, const attn_linear_problem *problem,
                                                         const attn_linear_tensors *tensors, const attn_split *split,
                                                         const attn_transport *transport, const attn_options *options,
                                                         attn_error *error);

/* Bytes of workspace of attn_distributed_linear_execute on this rank: the states of all heads (backward: one for each part of the
 * rank, and two gradients), of a scan what each part of the rank does to them and some 8 log2(parts) nodes, and what a call for one
 * part and group needs; 0 for NULL. */
ATTN_API size_t attn_distributed_linear_workspace_size(const attn_distributed_linear_plan *plan);

/*
 * Runs a plan.  Collective; the plan must not be NULL.  Allocates nothing.  Returns, on all ranks alike and with all outputs
 * untouched, what attn_linear_execute returns, or ATTN_ERR_ARGUMENT if ranks disagree about lengths; or ATTN_ERR_IO, if the
 * transport fails, with outputs that are lost, as attn_distributed_execute does.
 */
ATTN_API attn_status attn_distributed_linear_execute(const attn_distributed_linear_plan *plan, const attn_linear_tensors *tensors,
                                                     void *workspace, size_t workspace_size, attn_error *error);

/* What a plan does on this rank. */
typedef struct attn_distributed_linear_description {
    size_t struct_size; /* in: sizeof(attn_distributed_linear_description) */
    int64_t parts_q;    /* of the whole */
    int64_t parts_kv;
    int64_t queries; /* tokens of this rank */
    int64_t keys;
    int64_t groups;      /* of heads or entries of the batch, whose states travel apart; of a scan 1 */
    int64_t calls;       /* of the library, for a part and a group each, in an execution */
    int64_t messages;    /* that this rank sends in an execution */
    int64_t bytes;       /* of these */
    int64_t state_bytes; /* of the states of all heads, with their sums */
    int64_t chunk;       /* tokens; 1 if recurrent */
    size_t workspace_bytes;
    attn_linear_form form; /* of calls: ATTN_LINEAR_FORM_CHUNKED or _RECURRENT */
    attn_way way;          /* ATTN_WAY_RING or ATTN_WAY_DIRECT */
    int ranks;
    int reserved; /* 0 */
} attn_distributed_linear_description;

/* Fills in *description, whose struct_size is set.  ATTN_ERR_ARGUMENT: NULL, or an invalid struct_size. */
ATTN_API attn_status attn_distributed_linear_describe(const attn_distributed_linear_plan *plan,
                                                      attn_distributed_linear_description *description, attn_error *error);

/* Frees a plan; NULL is a no-op.  Not collective. */
ATTN_API void attn_distributed_linear_plan_destroy(attn_distributed_linear_plan *plan);

#ifdef __cplusplus
}
#endif

#endif
