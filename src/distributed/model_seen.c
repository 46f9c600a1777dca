/* SPDX-License-Identifier: MIT
 * model_seen.c - which parts of keys a rank sees; see model_count.h. */
#include "model_count.h"

#include <string.h>

int64_t attn_model_between(const attn_by_rank *by, int rank, int64_t first, int64_t end)
{
    int64_t found[2];
    for (int n = 0; n < 2; n++) {
        int64_t low = by->first[rank], high = by->first[rank + 1];
        while (low < high) {
            const int64_t middle = low + (high - low) / 2;
            if (by->part[middle] < (n ? end : first)) low = middle + 1;
            else high = middle;
        }
        found[n] = low;
    }
    return found[1] > found[0] ? found[1] - found[0] : 0;
}

static int64_t seen_first(const attn_grid *g, int kind, int32_t part)
{
    return g->seen[ATTN_SEEN_RANGES * (int64_t)part + kind].first;
}

/* Moves heap[n] down to where no part below it begins later. */
static void sink(const attn_grid *g, int kind, int32_t *heap, int64_t n, int64_t count)
{
    for (int64_t child; (child = 2 * n + 1) < count; n = child) {
        if (child + 1 < count && seen_first(g, kind, heap[child]) < seen_first(g, kind, heap[child + 1])) child++;
        if (seen_first(g, kind, heap[n]) >= seen_first(g, kind, heap[child])) return;
        const int32_t part = heap[n];
        heap[n] = heap[child];
        heap[child] = part;
    }
}

/* Ranges rise with the parts, unless entries of a batch have other offsets. */
static void sort_by_seen(const attn_grid *g, int kind, int32_t *parts, int64_t count)
{
    int64_t n = 1;
    while (n < count && seen_first(g, kind, parts[n - 1]) <= seen_first(g, kind, parts[n])) n++;
    if (n >= count) return;
    for (n = count / 2; n-- > 0;) sink(g, kind, parts, n, count);
    for (n = count - 1; n > 0; n--) {
        const int32_t last = parts[0];
        parts[0] = parts[n];
        parts[n] = last;
        sink(g, kind, parts, 0, n);
    }
}

void attn_model_sort_seen(attn_model *m)
{
    const attn_grid *g = &m->cells.grid;
    for (int kind = 0; kind < ATTN_SEEN_RANGES; kind++) {
        if (g->q.count > 0) memcpy(m->by_seen[kind], m->q.part, (size_t)g->q.count * sizeof *m->q.part);
        for (int r = 0; r < m->ranks; r++)
            sort_by_seen(g, kind, m->by_seen[kind] + m->q.first[r], m->q.first[r + 1] - m->q.first[r]);
    }
}

/* The next range of kind `kind` that has parts, of numbers *at .. end - 1 in m->by_seen; NULL: there is none. */
static const attn_range *seen_from(const attn_model *m, int kind, int64_t *at, int64_t end)
{
    for (; *at < end; ++*at) {
        const attn_range *x = &m->cells.grid.seen[ATTN_SEEN_RANGES * (int64_t)m->by_seen[kind][*at] + kind];
        if (x->first < x->end) return x;
    }
    return NULL;
}

void attn_model_each_seen(attn_model *m, int rank, attn_model_range *call)
{
    const int64_t end = m->q.first[rank + 1];
    int64_t at[ATTN_SEEN_RANGES] = {m->q.first[rank], m->q.first[rank]};
    attn_range now = {0, 0};
    for (;;) {
        const attn_range *next = NULL;
        int of = 0;
        for (int n = 0; n < ATTN_SEEN_RANGES; n++) {
            const attn_range *x = seen_from(m, n, &at[n], end);
            if (x && (!next || x->first < next->first)) next = x, of = n;
        }
        if (!next) break;
        at[of]++;
        if (next->first <= now.end && now.first < now.end) {
            now.end = attn_max(now.end, next->end);
            continue;
        }
        if (now.first < now.end) call(m, rank, now);
        now = *next;
    }
    if (now.first < now.end) call(m, rank, now);
}
