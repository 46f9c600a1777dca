/* SPDX-License-Identifier: MIT
 *
 * halving.h - how ranks combine the results that each of them has of a part of queries, its own keys' share of them
 * (ATTN_WAY_SPLIT_KEYS): of R ranks in 2 log2 R rounds (a reduce-scatter by recursive halving, and an all-gather: Thakur et al.
 * 2005).
 *
 * The units of a part are its heads, of all entries of the batch, whose results are combined apart from each other's.  In a round,
 * two groups of ranks with keys beside each other become one: of what a pair of ranks, one of each, has, each keeps one half of the
 * units, gives the other half away, and combines its half with what it gets, as far as nodes of the tree meet.  After the last
 * round each has some units, complete, and all ranks get all of them in the reverse order.  The bits are those of the tree, whoever
 * adds.
 *
 * Groups have a power of two of ranks.  If the ranks are more, the first ones are pairs, of which the second ones only give and
 * get.
 */
#ifndef ATTN_DISTRIBUTED_HALVING_H
#define ATTN_DISTRIBUTED_HALVING_H

#include "steps.h"

/* Seats: 2^rounds ranks, or pairs of ranks, the first `pairs` of them. */
typedef struct attn_halving {
    int rounds;
    int64_t seats, pairs;
} attn_halving;

static inline attn_halving attn_halving_of(int ranks)
{
    attn_halving h = {0, 1, 0};
    while (2 * h.seats <= ranks) h.seats *= 2, h.rounds++;
    h.pairs = ranks - h.seats;
    return h;
}

/* The first rank of a seat, or the end of all; and the seat of a rank. */
static inline int64_t attn_halving_rank(const attn_halving *h, int64_t seat) { return seat + attn_min(seat, h->pairs); }
static inline int64_t attn_halving_seat(const attn_halving *h, int64_t rank)
{
    return rank < 2 * h->pairs ? rank / 2 : rank - h->pairs;
}

/* How many of `units` units a seat has after so many rounds. */
static inline int64_t attn_halving_count(int64_t units, int64_t seat, int rounds)
{
    const int64_t groups = INT64_C(1) << rounds;
    return units / groups + (units % groups > seat % groups);
}

/* Bytes of the results of so many units in a message. */
size_t attn_halving_bytes(const attn_cells *cells, int64_t units);

/* Combines what all ranks have of part i of queries, whose nodes are in `tree`.  Returns the slot of the results, on all ranks; -1
 * if something failed, or there are none. */
int64_t attn_halving_run(attn_running *r, int64_t i, attn_tree *tree);

#endif
