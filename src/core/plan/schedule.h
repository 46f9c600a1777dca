/* SPDX-License-Identifier: MIT
 * schedule.h - a schedule in the caller's memory: how the parts of a plan cut the sequences of one step. */
#ifndef ATTN_PLAN_SCHEDULE_H
#define ATTN_PLAN_SCHEDULE_H

#include "../task/schedule.h"
#include "../threads/pool.h"
#include "attn/schedule.h"
#include "plan.h"

/* What two plans have in common if they cut every batch alike. */
typedef struct attn_schedule_key {
    attn_shape shape;
    int64_t dilation;
    int64_t listed;       /* keys of a block, if each key head has a list of blocks */
    attn_visibility mask; /* of full lengths: windows leave out pieces */
    struct attn_schedule_key_part {
        const attn_walk_type *type;
        int64_t least, most;
        attn_small small;
        int64_t small_only;
        int64_t tile_q, block_kv, tasks, group, pieces;
        int64_t tiling, lanes, vectors; /* they decide where tiles begin */
        int64_t workers;                /* they decide how much workspace there must be */
    } part[ATTN_MAX_PLAN_PARTS];
} attn_schedule_key;

struct attn_schedule {
    uint64_t mark; /* ATTN_SCHEDULE_MARK */
    size_t bytes;  /* of all of it */
    attn_schedule_key key;
    size_t workspace;
    int parts;
    int64_t tasks[ATTN_MAX_PLAN_PARTS]; /* of an item */
    attn_part_schedule part[ATTN_MAX_PLAN_PARTS];
    attn_scheduled_entry *entry; /* [batch] */
    int8_t worker_nodes[ATTN_POOL_MAX];
};

#define ATTN_SCHEDULE_MARK UINT64_C(0x6174746e73636864) /* "attnschd" */

/* NULL, or the reason why the plan cannot be scheduled. */
const char *attn_schedule_rejection(const attn_plan *plan);

/* Bytes for any lengths, without alignment; returns 0 if they overflow. */
int attn_schedule_bytes(const attn_plan *plan, size_t *bytes);

/* Fills the memory, which has these bytes and is aligned to 64, from the lengths in args; options: complete and checked. */
attn_schedule *attn_schedule_fill(const attn_plan *plan, const attn_args *args, const attn_schedule_options *options, void *memory);

/* Checks that the schedule was made for such a plan and these lengths. */
attn_status attn_schedule_check(const attn_schedule *schedule, const attn_plan *plan, const attn_args *args, attn_error *error);

/* Bytes of workspace of an execution that has something to do. */
size_t attn_schedule_need(const attn_schedule *schedule, const attn_plan *plan);

#endif
