/* SPDX-License-Identifier: MIT
 * prefixes.h - prefixes that sequences share, as pieces that a schedule gives to one task for all of them. */
#ifndef ATTN_PLAN_PREFIXES_H
#define ATTN_PLAN_PREFIXES_H

#include "schedule.h"

/* The caller's; none: count 0. */
typedef struct attn_prefixes {
    const attn_prefix *list;
    int64_t count;
} attn_prefixes;

/* The entries and the pieces of an item that several sequences share. */
typedef struct attn_shared_pieces {
    int64_t entry, sharers; /* from the first that has part in it to the last; between them there may be others */
    int64_t first, end;     /* pieces of each */
} attn_shared_pieces;

/* Every rule of the list, for sequences of these lengths. */
attn_status attn_prefixes_check(const attn_prefixes *prefixes, const attn_plan *plan, const attn_args *args, attn_error *error);

/* What the sequences of prefix `i` have in part n that no wider prefix before it has; returns 0 if there is nothing. */
int attn_prefix_pieces(const attn_prefixes *prefixes, int64_t i, const attn_schedule *schedule, const attn_plan *plan, int n,
                       attn_shared_pieces *pieces);

/* Whether an entry has part in an item of part n. */
static inline int attn_entry_shares(const attn_scheduled_entry *entry, int64_t n) { return entry->part == n && !entry->skipped; }

#endif
