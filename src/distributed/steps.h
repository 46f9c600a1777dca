/* SPDX-License-Identifier: MIT
 *
 * steps.h - the exchange of keys and of what they get: in step s, a rank computes with keys of rank me - s (modulo the ranks), and
 * rank me + s with keys of this one.  Ways differ in where keys come from and in which of them come. */
#ifndef ATTN_DISTRIBUTED_STEPS_H
#define ATTN_DISTRIBUTED_STEPS_H

#include "link.h"
#include "run.h"

/* A run, or a count of what a run does. */
typedef struct attn_running {
    const attn_distributed_plan *plan;
    const attn_tensors *mine; /* NULL: counts */
    attn_error *error;
    attn_status status; /* of the transport, or of a run by one rank; after a failure nothing more is done */
    attn_status failed; /* of the first cell that failed; messages go on, with zeros, so that no rank waits for ever */
    attn_tree_pool pool[ATTN_NODE_KINDS];
    attn_tree *rows, *shared; /* of each own part of queries */
    int64_t *left;            /* cells that each of these has yet to get */
    attn_tree *columns;       /* of each own part of keys */
    int64_t *left_kv;         /* likewise; with any_order alone */
    attn_tree *away;          /* of each part of keys of the step's rank, until its sums are sent there */
    attn_tree total;          /* shared results of all parts of queries */
    int64_t *from;            /* the parts of keys of the step, */
    int64_t from_count;       /* in rising order, */
    int64_t *from_at;         /* and where each begins in `here`, in bytes; -1: the caller owns it */
    const char *here;         /* the keys that came */
    int64_t head;             /* query heads before those that are computed now */
    char *home, *arrived[2], *workspace;
    attn_link link;                  /* whose failure is `status` */
    attn_tree_queue coming, going;   /* nodes of which a message is on its way */
    int32_t *seen_here, *seen_there; /* for each part of keys, whether queries of this rank, and of another one, see it */
    attn_run_needs needs;
    int enough;
    attn_cells some; /* with the units that are combined (halving.h), if has_some; else all are */
    int has_some;
    int lost; /* 1: a node that another rank waits for was not there */
} attn_running;

static inline int attn_rank_at(const attn_distributed_plan *plan, int64_t distance)
{
    const int64_t n = plan->ranks;
    return (int)((plan->me + distance % n + n) % n);
}

static inline int attn_rank_of_transport(const attn_distributed_plan *plan, int rank) { return plan->first + rank * plan->apart; }

/* The number of own part j of keys among the own ones: all but the last of all are full. */
static inline int64_t attn_own_number(const attn_distributed_plan *plan, int64_t j)
{
    return plan->cells.grid.kv.local[j] / plan->cells.grid.kv.part;
}

/* Sends and receives; a count only counts. */
void attn_steps_send(attn_running *r, int to, int tag, const void *data, size_t bytes);
void attn_steps_receive(attn_running *r, int from, int tag, void *data, size_t bytes);
void attn_steps_wait(attn_running *r);
/* Lets the transport work; called between cells. */
void attn_steps_progress(attn_running *r);

/* Copies the own keys into messages, if there are other ranks. */
void attn_steps_begin(attn_running *r);
/* Marks the parts of keys that queries of `rank` see, unless all come by; seen: space for the parts and one. */
void attn_steps_mark(const attn_distributed_plan *plan, int rank, int32_t *seen);
/* Begins the exchange of the keys of step `step`. */
void attn_steps_post(attn_running *r, int step);
/* Fills in r->from with the parts of keys of a step. */
void attn_steps_list(attn_running *r, int step);
/* The keys of part number n of the list; NULL: the caller owns them. */
const char *attn_steps_message(const attn_running *r, int64_t n);
/* What part number n of the list gets: of own parts their sums, of others those that go to their owner. */
attn_tree *attn_steps_column(attn_running *r, int64_t n);

#endif
