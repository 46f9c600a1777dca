/* SPDX-License-Identifier: MIT
 * grid.c - see grid.h. */
#include "grid.h"

#include "../common/slots.h"
#include "split.h"

static int64_t min(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t max(int64_t a, int64_t b) { return a > b ? a : b; }
static int64_t parts_of(int64_t tokens, int64_t part) { return tokens / part + (tokens % part != 0); }

/* ---- owners ---- */

static attn_status fill_owners(attn_parts *p, const attn_split *split, attn_axis axis, int ranks, attn_error *error)
{
    for (int64_t n = 0; n < p->count; n++) {
        const int32_t r = attn_split_owner(split, axis, n, p->count, ranks);
        CHECK(r >= 0 && r < ranks, ATTN_ERR_ARGUMENT, "split.owners_%s[%" PRId64 "] is %d; it must be a rank, 0 to %d",
              axis == ATTN_AXIS_KEY ? "kv" : "q", n, (int)r, ranks - 1);
        p->owner[n] = r;
    }
    /* `local` by one pass for each rank would be quadratic; the parts of a rank are in rising order, so count as they come. */
    for (int64_t n = 0; n < p->count; n++) p->local[n] = -1;
    for (int64_t n = 0; n < p->count; n++) {
        if (p->local[n] >= 0) continue;
        int64_t at = 0;
        for (int64_t m = n; m < p->count; m++)
            if (p->owner[m] == p->owner[n]) p->local[m] = at, at += attn_part_size(p, m);
    }
    return ATTN_OK;
}

int64_t attn_parts_tokens(const attn_parts *p, int rank)
{
    int64_t tokens = 0;
    for (int64_t n = 0; n < p->count; n++)
        if (p->owner[n] == rank) tokens += attn_part_size(p, n);
    return tokens;
}

/* ---- which keys are seen ---- */

static int64_t floor_to(int64_t x, int64_t unit)
{
    const int64_t rest = x % unit;
    return x - (rest < 0 ? rest + unit : rest);
}

void attn_keys_seen(const attn_mask *m, int64_t first, int64_t last, int64_t keys, attn_range seen[ATTN_SEEN_RANGES])
{
    const int64_t far = INT64_C(1) << 60;
    attn_range all = {0, keys};
    if (m->causal) all.end = min(all.end, last + 1);
    if (m->chunk > 0) {
        all.first = max(all.first, floor_to(first, m->chunk));
        all.end = min(all.end, floor_to(last, m->chunk) + min(m->chunk, far));
    }
    seen[0] = all;
    seen[1] = (attn_range){all.first, min(all.end, m->global_kv)};
    if (!m->window || (last >= 0 && first < m->global_q)) return;
    if (m->window_left >= 0) seen[0].first = max(all.first, first - min(m->window_left, far));
    if (m->window_right >= 0) seen[0].end = min(all.end, last + min(m->window_right, far) + 1);
}

static void include(attn_range *all, attn_range more, int64_t part)
{
    if (more.first >= more.end) return;
    const attn_range parts = {more.first / part, (more.end - 1) / part + 1};
    if (all->first >= all->end) *all = parts;
    else *all = (attn_range){min(all->first, parts.first), max(all->end, parts.end)};
}

static void fill_seen(attn_grid *g, const attn_problem *problem, const attn_grid_index *x)
{
    const attn_shape *s = &problem->shape;
    for (int64_t n = 0; n < ATTN_SEEN_RANGES * g->q.count; n++) g->seen[n] = (attn_range){0, 0};
    for (int64_t b = 0; b < s->batch; b++) {
        const int64_t base_q = x->starts_q ? x->starts_q[b] : 0, base_kv = x->starts_kv ? x->starts_kv[b] : 0;
        const int64_t queries = x->starts_q ? x->starts_q[b + 1] - base_q : x->lengths_q ? x->lengths_q[b] : s->len_q;
        const int64_t keys = x->starts_kv ? x->starts_kv[b + 1] - base_kv : x->lengths_kv ? x->lengths_kv[b] : s->len_kv;
        const int64_t offset = x->offset_q ? x->offset_q[b] : 0;
        if (queries == 0 || keys == 0) continue;
        for (int64_t i = base_q / g->q.part; i <= (base_q + queries - 1) / g->q.part; i++) {
            const int64_t at = attn_part_first(&g->q, i);
            attn_range seen[ATTN_SEEN_RANGES];
            attn_keys_seen(&problem->mask, max(at - base_q, 0) + offset, min(at + g->q.part - base_q, queries) - 1 + offset, keys,
                           seen);
            for (int n = 0; n < ATTN_SEEN_RANGES; n++)
                include(&g->seen[ATTN_SEEN_RANGES * i + n], (attn_range){seen[n].first + base_kv, seen[n].end + base_kv},
                        g->kv.part);
        }
    }
}

/* ---- the grid ---- */

size_t attn_grid_bytes(attn_range tokens, int64_t part)
{
    const size_t q = (size_t)parts_of(tokens.first, part), kv = (size_t)parts_of(tokens.end, part);
    const size_t bytes =
        q * (ATTN_SEEN_RANGES * sizeof(attn_range) + sizeof(int64_t) + sizeof(int32_t)) + kv * (sizeof(int64_t) + sizeof(int32_t));
    return (bytes + 7) / 8 * 8;
}

attn_status attn_grid_fill(attn_grid *g, void *memory, attn_range tokens, const attn_problem *problem, const attn_grid_index *index,
                           const attn_split *split, int ranks, attn_error *error)
{
    char *at = memory;
    g->ranks = ranks;
    g->q = (attn_parts){.tokens = tokens.first, .part = split->part, .count = parts_of(tokens.first, split->part)};
    g->kv = (attn_parts){.tokens = tokens.end, .part = split->part, .count = parts_of(tokens.end, split->part)};
    g->seen = (attn_range *)(void *)at, at += (size_t)g->q.count * ATTN_SEEN_RANGES * sizeof(attn_range);
    g->q.local = (int64_t *)(void *)at, at += (size_t)g->q.count * sizeof(int64_t);
    g->kv.local = (int64_t *)(void *)at, at += (size_t)g->kv.count * sizeof(int64_t);
    g->q.owner = (int32_t *)(void *)at, at += (size_t)g->q.count * sizeof(int32_t);
    g->kv.owner = (int32_t *)(void *)at;
    TRY(fill_owners(&g->q, split, ATTN_AXIS_QUERY, ranks, error));
    TRY(fill_owners(&g->kv, split, ATTN_AXIS_KEY, ranks, error));
    fill_seen(g, problem, index);
    return ATTN_OK;
}

int attn_row_exists(const attn_grid *g, int64_t i, int64_t first, int64_t end)
{
    for (int n = 0; n < ATTN_SEEN_RANGES; n++) {
        const attn_range *seen = &g->seen[ATTN_SEEN_RANGES * i + n];
        if (max(seen->first, first) < min(seen->end, end)) return 1;
    }
    return 0;
}

int64_t attn_row_cells(const attn_grid *g, int64_t i)
{
    const attn_range *near = &g->seen[ATTN_SEEN_RANGES * i], *global = near + 1;
    const int64_t both = min(near->end, global->end) - max(near->first, global->first);
    return near->end - near->first + global->end - global->first - max(both, 0);
}

int attn_column_exists(const attn_grid *g, int64_t j, int64_t first, int64_t end)
{
    for (int64_t i = first; i < min(end, g->q.count); i++)
        if (attn_row_exists(g, i, j, j + 1)) return 1;
    return 0;
}
