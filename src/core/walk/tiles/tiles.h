/* SPDX-License-Identifier: MIT
 * tiles.h - the plan of the walk of forward attention over tiles (forward.c). */
#ifndef ATTN_WALK_TILES_TILES_H
#define ATTN_WALK_TILES_TILES_H

#include "../../prepare/prepare.h"
#include "../../tile/plan.h"
#include "../walks.h"

/* One worker's memory, as in attn_tile_scratch. */
typedef struct attn_forward_scratch {
    int64_t O, O_bytes;        /* of each place of a group, transposed */
    int64_t m, l;              /* likewise */
    int64_t empty;             /* int32_t: of the current tile, 1 where a query is fully masked and its weights uniform */
    int64_t part;              /* of each place: O, m and l of one part of the keys */
    int64_t rows;              /* whole rows of a tile, for the caller's view */
    int64_t row_max, row_sums; /* of a tile: T[tile_q] and double[2][tile_q] */
    int64_t top, top_index;    /* of a tile: T[topk kept][tile_q] and int64_t likewise */
    int64_t columns;           /* double[block_kv] */
} attn_forward_scratch;

/* Shared memory, after that of the workers. */
typedef struct attn_forward_shared {
    int64_t states, state_bytes; /* [batch * heads_q][at_once + 1]: O, m, l and a flag of all parts so far, and of each at work */
    int64_t row_m, row_l;        /* for column sums: of every row, each head's padded to whole vectors */
    int64_t row_empty;           /* likewise: 1 where it is fully masked and its weights uniform */
} attn_forward_shared;

typedef struct attn_forward_walk {
    attn_tile_walk tiles;
    attn_prepare prepare;   /* with the caller's problem in it */
    int by_heads;           /* tiles of a group are of different heads that share a key head, else of one head */
    int whole_heads;        /* a task goes through all groups of a head, one after another */
    int64_t tasks_of_entry; /* scheduled: of an item of one batch entry */
    int outputs;            /* something other than O and lse is requested of a tile */
    /* Keys of a part, which is summed on its own, and merged in order: a multiple of block_kv that depends only on the head sizes,
     * since sums depend on it. */
    int64_t part_kv;
    int64_t parts;   /* of len_kv */
    int64_t at_once; /* parts of a head that are tasks of their own at the same time; 1: a task goes through all */
    attn_forward_scratch scratch;
    attn_forward_shared shared;
} attn_forward_walk;

static inline const attn_forward_walk *attn_forward_of(const attn_walk *walk) { return (const attn_forward_walk *)walk; }

/* Plans walk->problem, which was derived from that of plan->prepare; `before` bytes of the caller's own precede all of it. Returns
 * 0 if a size overflows. */
int attn_forward_init(attn_forward_walk *plan, const attn_setting *setting, int64_t before);
/* args: for plan->prepare.problem; folded: for walk->problem, if that is another one; workspace: after the caller's own bytes. */
/* How a schedule cuts the sequences of the walk, and of those over its tiles; a unit is nothing. */
extern const attn_walk_cut attn_forward_cut;

void attn_forward_run(const attn_forward_walk *plan, const attn_args *args, const attn_args *folded, char *workspace);

#endif
