/* SPDX-License-Identifier: MIT
 *
 * schedule.h - ragged batches as inference engines run them: the work of a step is cut and ordered once, from the lengths of its
 * sequences, and serves all layers.
 *
 *      attn_plan_create(&plan, &problem, &tensors, &options, &error);          once, for the capacities
 *      void *memory = malloc(attn_schedule_size(plan));
 *
 *      attn_schedule_make(&schedule, plan, &tensors, memory, size, NULL, &error);      each step
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

/* Batch entries first .. first+count-1 begin with the same `keys` keys and values, in the same pages: a system prompt. */
typedef struct attn_prefix {
    int64_t first;
    int64_t count;
    int64_t keys;
} attn_prefix;

/*
 * What a schedule may know besides lengths: prefixes that sequences share, and on which node of memory (NUMA) their pages are.  It
 * only orders the work: each sequence is computed from its own pages, in the same blocks and with the same sums as always, so all
 * results have the same bits as without options, and claims that are not true cost time, not correctness.
 *
 * Prefixes: what lies in one is read for all its decoding sequences together, so that memory delivers it once.  For 64 sequences
 * over 8192 common keys these reads are 1/64 of what they are otherwise; sequences of many queries, which compute longer than they
 * read, and the last keys of a prefix, up to a block (512), are as without.  Two prefixes have no entries in common, or the entries
 * of the later one are among those of the earlier one and its keys are no fewer: a system prompt, then conversations that begin
 * with it.
 *
 * Nodes: a worker takes the items whose keys are on its own node first, then those on none, then those of the node that has most
 * left, so that no thread is idle while there is work.  Keys of a shared prefix are on the node of the first sequence that decodes
 * over them.  Where threads run and pages are is the engine's to decide (numactl, pthread_setaffinity_np, and writing a page first
 * on its node); attn_schedule_describe says how much of the work stays at home.
 */
typedef struct attn_schedule_options {
    size_t struct_size; /* sizeof(attn_schedule_options) */
    int64_t prefix_count;
    const attn_prefix *prefixes; /* [prefix_count] */
    int nodes;                   /* of memory, 1 to 64; 0: none is told apart */
    int workers;                 /* length of worker_nodes, 0 to 1024 */
    const int32_t *entry_nodes;  /* [batch], with nodes: 0 to nodes - 1, or -1: on none, spread over all */
    /* [workers]: the node of worker i of a team (attn/team.h), or body i of options.parallel_for, 0 to nodes - 1, or -1: none, as
     * are those after the last.  NULL: each thread asks the system when it begins (Linux: getcpu; none elsewhere), so that
     * entry_nodes are the numbers that the system gives nodes. */
    const int32_t *worker_nodes;
} attn_schedule_options;

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
 *  options   [in]  NULL: no prefixes and no nodes.  Its arrays are not needed after the call
 *
 * An execution with the schedule must have the lengths and positions that it was made from.  Its plan may be another one that cuts
 * the same work alike: of the same sizes, masks, instruction set, options.threads and workspace_limit, such as another layer's with
 * strides of its own.  Plans with column sums, and those with terms or outputs that have few queries walked otherwise (sinks,
 * slopes, dropout, entropy, ...; beside plain f32 also softcaps, trees and other types of keys), are not like those without.  All
 * this is checked, and the error says what differs.  Any number of executions may use a schedule at once; their workspace must not
 * overlap it.
 *
 * Returns ATTN_ERR_ARGUMENT (NULL; lengths as in attn_execute; options: prefixes that break the rules or are longer than one of
 * their sequences, a node that is not among `nodes`, nodes without their count), ATTN_ERR_UNSUPPORTED (another operation,
 * lengths_q, an origin) or ATTN_ERR_MEMORY (size is too small).
 */
ATTN_API attn_status attn_schedule_make(const attn_schedule **schedule, const attn_plan *plan, const attn_tensors *tensors,
                                        void *memory, size_t size, const attn_schedule_options *options, attn_error *error);

/* Bytes of workspace that attn_execute needs with this schedule and the plan it was made with; at most attn_plan_workspace_size of
 * the plan, and 0 for NULL.  Another plan with terms or outputs that this one lacks may need more; the error says how much. */
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
    /* Of each key head, from memory: all keys of sequences with queries, but those of a shared prefix once, and of lists at most
     * theirs.  Keys that a window hides count, though they are not read. */
    int64_t keys_read;
    int64_t items; /* of all walks; a task is an item of one head (or some) */
    int64_t nodes; /* of the options */
    double local;  /* the share of the work, of what is on a node, that workers of its node do if each takes as above; 1: all */
} attn_schedule_description;

/* Fills in *description for so many workers, 1 to 1024, in tasks times workers steps.  They are on the nodes that
 * options.worker_nodes gave them, or without these on nodes 0, 1, 2 ... in turn.  ATTN_ERR_ARGUMENT: NULL, what is no schedule of
 * this version of the library, an invalid struct_size, or workers. */
ATTN_API attn_status attn_schedule_describe(const attn_schedule *schedule, int workers, attn_schedule_description *description,
                                            attn_error *error);

/* An item: what one task has of the keys or queries of a sequence, for each of its heads. */
typedef struct attn_scheduled_item {
    size_t struct_size; /* in: sizeof(attn_scheduled_item) */
    int64_t entry;      /* of the batch: the sequence, or the first of those that share these keys */
    int64_t sequences;  /* that share them; otherwise 1 */
    int64_t tasks;
    double work;  /* of all its tasks, in queries times keys */
    int64_t node; /* that its keys are on; -1: none */
} attn_scheduled_item;

/* Fills in *item: number `number` of attn_schedule_description.items, walk after walk, and in each walk node after node, the
 * greatest work first.  ATTN_ERR_ARGUMENT: NULL, what is no schedule of this version of the library, an invalid struct_size, or
 * number. */
ATTN_API attn_status attn_schedule_item(const attn_schedule *schedule, int64_t number, attn_scheduled_item *item,
                                        attn_error *error);

#ifdef __cplusplus
}
#endif

#endif
