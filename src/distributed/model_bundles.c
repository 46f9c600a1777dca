/* SPDX-License-Identifier: MIT
 * model_bundles.c - how many messages ATTN_WAY_GATHER takes: the parts of an owner in a range of parts, all of which a rank sees,
 * are one.  Each is counted at the first of these parts; so part j of keys is as many messages as there are ranges that it lies in
 * and that begin behind the part before it of the same owner. */
#include "model_count.h"

#include <string.h>

enum { NONE = -1 };

size_t attn_model_bundles_bytes(attn_range parts, int ranks)
{
    return (2 * ATTN_SEEN_RANGES * (size_t)parts.first + 2 * ((size_t)parts.end + 1) + (size_t)ranks + 1) * sizeof(int32_t);
}

typedef struct bundles {
    int32_t *first, *next; /* of each range: its first part, and the next one that ends at the same part */
    int32_t *ending;       /* the first range that ends at a part */
    int32_t *began;        /* how many begin: node n of a Fenwick tree has those of the parts n - (n & -n) .. n - 1 */
    int32_t *last;         /* part of each rank so far */
    int32_t *count;        /* ranges */
} bundles;

static bundles carve(const attn_model *m)
{
    const attn_grid *g = &m->cells.grid;
    const int64_t ranges = ATTN_SEEN_RANGES * g->q.count;
    bundles b = {.count = m->bundles, .first = m->bundles + 1};
    b.next = b.first + ranges, b.ending = b.next + ranges;
    b.began = b.ending + g->kv.count + 1, b.last = b.began + g->kv.count + 1;
    return b;
}

static void add_beginning(const bundles *b, int64_t parts, int64_t part, int32_t more)
{
    for (int64_t n = part + 1; n <= parts; n += n & -n) b->began[n] += more;
}

/* Ranges, not taken away, that begin at parts 0 .. end - 1. */
static int64_t beginning_before(const bundles *b, int64_t end)
{
    int64_t count = 0;
    for (int64_t n = end; n > 0; n -= n & -n) count += b->began[n];
    return count;
}

/* A rank sends itself nothing. */
static void collect(attn_model *m, int rank, attn_range of)
{
    const bundles b = carve(m);
    const int32_t n = (*b.count)++;
    b.first[n] = (int32_t)of.first;
    b.next[n] = b.ending[of.end];
    b.ending[of.end] = n;
    add_beginning(&b, m->cells.grid.kv.count, of.first, 1);
    if (attn_model_between(&m->kv, rank, of.first, of.end) > 0) m->keys_sent[rank]--;
}

void attn_model_bundles(attn_model *m)
{
    const attn_parts *kv = &m->cells.grid.kv;
    const bundles b = carve(m);
    *b.count = 0;
    memset(b.began, 0, ((size_t)kv->count + 1) * sizeof *b.began);
    for (int64_t j = 0; j <= kv->count; j++) b.ending[j] = NONE;
    for (int r = 0; r < m->ranks; r++) b.last[r] = NONE, m->keys_sent[r] = 0;
    for (int r = 0; r < m->ranks; r++) attn_model_each_seen(m, r, collect);
    for (int64_t j = 0; j < kv->count; j++) {
        const int32_t owner = kv->owner[j];
        for (int32_t n = b.ending[j]; n != NONE; n = b.next[n]) add_beginning(&b, kv->count, b.first[n], -1);
        m->keys_sent[owner] += (double)(beginning_before(&b, j + 1) - beginning_before(&b, b.last[owner] + 1));
        b.last[owner] = (int32_t)j;
    }
}
