/* SPDX-License-Identifier: MIT
 * prefixes.c - the rules of shared prefixes, and the pieces of walks that lie in them. */
#include "prefixes.h"

#include <inttypes.h>

#include "../base/checked.h"
#include "../base/error.h"

static int contains(const attn_prefix *wide, const attn_prefix *p)
{
    return wide->first <= p->first && p->first + p->count <= wide->first + wide->count;
}

static int is_disjoint(const attn_prefix *a, const attn_prefix *b)
{
    return a->count == 0 || b->count == 0 || a->first + a->count <= b->first || b->first + b->count <= a->first;
}

attn_status attn_prefixes_check(const attn_prefixes *prefixes, const attn_plan *plan, const attn_args *args, attn_error *error)
{
    const int64_t batch = plan->problem.shape.batch;
    CHECK(prefixes->count >= 0, ATTN_ERR_ARGUMENT, "options.prefix_count is %" PRId64 "; it must be at least 0", prefixes->count);
    CHECK(prefixes->list || prefixes->count == 0, ATTN_ERR_ARGUMENT,
          "options.prefixes is NULL and options.prefix_count is %" PRId64, prefixes->count);
    for (int64_t i = 0; i < prefixes->count; i++) {
        const attn_prefix *p = &prefixes->list[i];
        CHECK(p->first >= 0 && p->count >= 0 && p->first <= batch && p->count <= batch - p->first, ATTN_ERR_ARGUMENT,
              "options.prefixes[%" PRId64 "] has %" PRId64 " entries from %" PRId64 " on; the batch has %" PRId64, i, p->count,
              p->first, batch);
        CHECK(p->keys >= 0, ATTN_ERR_ARGUMENT, "options.prefixes[%" PRId64 "].keys is %" PRId64 "; it must be at least 0", i,
              p->keys);
        for (int64_t b = p->first; b < p->first + p->count; b++) {
            const int64_t keys = attn_tokens_of(&plan->problem, args, b).len_kv;
            CHECK(p->keys <= keys, ATTN_ERR_ARGUMENT,
                  "options.prefixes[%" PRId64 "].keys is %" PRId64 "; batch entry %" PRId64 " has %" PRId64 " keys", i, p->keys, b,
                  keys);
        }
        for (int64_t k = 0; k < i; k++) {
            const attn_prefix *wide = &prefixes->list[k];
            CHECK(is_disjoint(wide, p) || (contains(wide, p) && wide->keys <= p->keys), ATTN_ERR_ARGUMENT,
                  "options.prefixes[%" PRId64 "] and [%" PRId64
                  "] have entries in common; the entries of the second must be among those of the first, and its keys no fewer",
                  k, i);
        }
    }
    return ATTN_OK;
}

/* Pieces of part n that lie in the prefix; 0 if fewer than two of its sequences are there. */
static int64_t pieces_within(const attn_prefix *p, const attn_schedule *s, const attn_plan *plan, int n, attn_shared_pieces *at)
{
    const attn_plan_part *part = &plan->part[n];
    int64_t members = 0;
    at->entry = at->sharers = 0;
    if (!part->type->cut->keys_of_piece || attn_has_choices(&plan->problem)) return 0;
    for (int64_t b = p->first; b < p->first + p->count; b++) {
        if (!attn_entry_shares(&s->entry[b], n)) continue;
        if (members++ == 0) at->entry = b;
        at->sharers = b + 1 - at->entry;
    }
    return members > 1 ? p->keys / part->type->cut->keys_of_piece(part->walk) : 0;
}

int attn_prefix_pieces(const attn_prefixes *prefixes, int64_t i, const attn_schedule *s, const attn_plan *plan, int n,
                       attn_shared_pieces *pieces)
{
    pieces->first = 0;
    for (int64_t k = 0; k < i; k++)
        if (contains(&prefixes->list[k], &prefixes->list[i]))
            pieces->first = attn_max(pieces->first, pieces_within(&prefixes->list[k], s, plan, n, pieces));
    pieces->end = pieces_within(&prefixes->list[i], s, plan, n, pieces);
    return pieces->first < pieces->end;
}
