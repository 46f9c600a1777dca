/* SPDX-License-Identifier: MIT
 *
 * schedule.h - ragged batches as inference engines run them: the work of a step is cut and ordered once, from the lengths of its
 * sequences, and serves all layers.
 *
 *      attn_plan_create(&plan, &problem, &tensors, &options, &error);          once, for the capacities
 *      void *memory = malloc(attn_schedule_size(plan));
 *
 *      attn_schedule_make(&schedule, plan, &tensors, memory, size, &error);    each step
 *      call.schedule = schedule;
 *      attn_execute(plan, &tensors, workspace, attn_schedule_workspace_size(schedule), &error);      each layer
 *
 * With a schedule, work and workspace follow the tokens that exist, not the capacities of the plan: a sequence of one query is cut
 * over its keys and one of many queries into tiles, whatever else is in the batch, and threads get the longest pieces first.  The
 * results have the same bits as without.
 */
#ifndef ATTN_SCHEDULE_H
#define ATTN_SCHEDULE_H

#include "attn/attn.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The work of one step, in the caller's memory. */
typedef struct attn_schedule attn_schedule;

/* Bytes of memory that a schedule of this plan may need, for any lengths within its capacities; 0 for NULL, and if the plan cannot
 * be scheduled (attn_schedule_make) or the size overflows. */
ATTN_API size_t attn_schedule_size(const attn_plan *plan);

/*
 * Makes the schedule of one step in the caller's memory.  Allocates nothing; takes less than a microsecond for a sequence of a few
 * queries, and grows with the tiles of queries.
 *
 *  schedule  [out] lies in `memory`, which must stay where it is, unchanged, as long as the schedule is used; there is nothing to
 *                  free.  NULL on failure
 *  plan      [in]  of ATTN_FORWARD, without lengths_q (pack ragged queries) and without an origin
 *  tensors   [in]  those of the step.  Only cu_seqlens_q, cu_seqlens_kv, lengths_kv, page_starts, lengths_last_page, offset_q and,
 *                  with mask.block_heads, block_starts are read, as far as the plan has them; other pointers may be ATTN_LATER
 *  memory    [out] size >= attn_schedule_size(plan) bytes of any alignment
 *
 * An execution with the schedule must have the lengths and positions that it was made from, which is checked.  Its plan may be
 * another one that cuts the same work alike: the same sizes, mask, kernels, threads and statistics, such as another layer's with
 * strides of its own.  Any number of executions may use a schedule at once; their workspace must not overlap it.
 *
 * Returns ATTN_ERR_ARGUMENT (NULL; lengths as in attn_execute), ATTN_ERR_UNSUPPORTED (another operation, lengths_q, an origin) or
 * ATTN_ERR_MEMORY (size is too small).
 */
ATTN_API attn_status attn_schedule_make(const attn_schedule **schedule, const attn_plan *plan, const attn_tensors *tensors,
                                        void *memory, size_t size, attn_error *error);

/* Batch entries first .. first+count-1 begin with the same `keys` keys and values, in the same pages: a system prompt. */
typedef struct attn_prefix {
    int64_t first;
    int64_t count;
    int64_t keys;
} attn_prefix;

/*
 * The same for sequences that share prefixes: what lies in one is read for all its decoding sequences together, so that memory
 * delivers it once.  For 64 sequences over 8192 common keys these reads are 1/64 of what they are otherwise; sequences of many
 * queries, which compute longer than they read, and the last keys of a prefix, up to a block (512), are as without.
 *
 *  count     [in]  how many prefixes there are
 *  prefixes  [in]  [count].  Two of them have no entries in common, or the entries of the later one are among those of the earlier
 *                  one and its keys are no fewer: a system prompt, then conversations that begin with it
 *
 * This only orders the work: each sequence is computed from its own pages, in the same blocks and with the same sums as always, so
 * all results have the same bits as without prefixes, and the claim that keys are the same is not checked, nor needed for right
 * results.  Also ATTN_ERR_ARGUMENT for a list that breaks these rules, or a sequence of fewer keys.
 */
ATTN_API attn_status attn_schedule_make_shared(const attn_schedule **schedule, int64_t count, const attn_plan *plan,
                                               const attn_prefix *prefixes, const attn_tensors *tensors, void *memory, size_t size,
                                               attn_error *error);

/* Bytes of workspace that attn_execute needs with this schedule and the plan it was made with; at most attn_plan_workspace_size of
 * the plan, and 0 for NULL. */
ATTN_API size_t attn_schedule_workspace_size(const attn_schedule *schedule);

/* What a schedule contains. */
typedef struct attn_schedule_description {
    size_t struct_size; /* in: sizeof(attn_schedule_description) */
    int64_t sequences;  /* with at least one query */
    int64_t queries;    /* of all sequences */
    int64_t keys;
    int64_t walks;  /* of the plan that have work, one after another */
    int64_t tasks;  /* that threads take, of all walks */
    double balance; /* the mean over the greatest work of a thread, if each takes the next task when it is done; 1 is even */
    size_t workspace_bytes;
    int64_t keys_read; /* of each key head, from memory: all keys, but those of a shared prefix once, and of lists at most theirs */
} attn_schedule_description;

/* Fills in *description for so many workers, 1 to 1024, in tasks times workers steps.  ATTN_ERR_ARGUMENT: NULL, what is no schedule
 * of this version of the library, an invalid struct_size, or workers. */
ATTN_API attn_status attn_schedule_describe(const attn_schedule *schedule, int workers, attn_schedule_description *description,
                                            attn_error *error);

#ifdef __cplusplus
}
#endif

#endif
