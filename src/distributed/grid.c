/* SPDX-License-Identifier: MIT
 * grid.c - see grid.h. */
#include "grid.h"

#include "../common/slots.h"
#include "split.h"

/* ---- owners ---- */

static attn_status fill_owners(attn_parts *p, const attn_split *split, attn_axis axis, int ranks, attn_error *error)
{
    for (int64_t n = 0; n < p->count; n++) {
        const int32_t r = attn_split_owner(split, axis, n, p->count, ranks);
        TRY(attn_split_check_owner(r, axis, n, ranks, error));
        p->owner[n] = r;
    }
    return ATTN_OK;
}

/* owned: space for a number of each rank. */
static void fill_local(attn_parts *p, int ranks, int64_t *owned)
{
    for (int r = 0; r < ranks; r++) owned[r] = 0;
    for (int64_t n = 0; n < p->count; n++) {
        p->local[n] = owned[p->owner[n]];
        owned[p->owner[n]] += attn_part_size(p, n);
    }
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
    if (m->causal) all.end = attn_min(all.end, last + 1);
    if (m->chunk > 0) {
        all.first = attn_max(all.first, floor_to(first, m->chunk));
        all.end = attn_min(all.end, floor_to(last, m->chunk) + attn_min(m->chunk, far));
    }
    seen[0] = all;
    seen[1] = (attn_range){all.first, attn_min(all.end, m->global_kv)};
    if (!m->window || (m->global_q > 0 && last >= 0 && first < m->global_q)) return;
    if (m->window_left >= 0) seen[0].first = attn_max(all.first, first - attn_min(m->window_left, far));
    if (m->window_right >= 0) seen[0].end = attn_min(all.end, last + attn_min(m->window_right, far) + 1);
}

double attn_keys_count(const attn_mask *m, int64_t position, int64_t keys)
{
    attn_range seen[ATTN_SEEN_RANGES];
    attn_keys_seen(m, position, position, keys, seen);
    const int64_t window = seen[0].end - seen[0].first, before = seen[0].first < seen[1].end ? seen[0].first : seen[1].end;
    const double near = window > 0 ? (double)window / (double)(m->dilation > 1 ? m->dilation : 1) : 0;
    return near + (before > seen[1].first ? (double)(before - seen[1].first) : 0); /* global keys before the window */
}

static void include(attn_range *all, attn_range more, int64_t part)
{
    if (more.first >= more.end) return;
    const attn_range parts = {more.first / part, (more.end - 1) / part + 1};
    if (all->first >= all->end) *all = parts;
    else *all = (attn_range){attn_min(all->first, parts.first), attn_max(all->end, parts.end)};
}

attn_entry attn_entry_at(const attn_grid_index *x, const attn_shape *s, int64_t b)
{
    attn_entry e = {.queries = s->len_q, .keys = s->len_kv, .offset = x->offset_q ? x->offset_q[b] : 0};
    if (x->lengths_q) e.queries = x->lengths_q[b];
    if (x->lengths_kv) e.keys = x->lengths_kv[b];
    if (x->starts_q) e.first_q = x->starts_q[b], e.queries = x->starts_q[b + 1] - e.first_q;
    if (x->starts_kv) e.first_kv = x->starts_kv[b], e.keys = x->starts_kv[b + 1] - e.first_kv;
    return e;
}

static void fill_seen(attn_grid *g, const attn_problem *problem, const attn_grid_index *x)
{
    for (int64_t n = 0; n < ATTN_SEEN_RANGES * g->q.count; n++) g->seen[n] = (attn_range){0, 0};
    for (int64_t b = 0; b < attn_entries_apart(x); b++) {
        attn_entry e = attn_entry_at(x, &problem->shape, b);
        const int is_uniform = problem->mask.empty == ATTN_EMPTY_UNIFORM; /* any query may see none, and average all */
        if ((is_uniform || x->all_pairs) && !x->starts_kv) e.keys = problem->shape.len_kv;
        if (x->all_pairs && !x->starts_q) e.queries = problem->shape.len_q;
        if (e.queries == 0 || e.keys == 0) continue;
        for (int64_t i = e.first_q / g->q.part; i <= (e.first_q + e.queries - 1) / g->q.part; i++) {
            const int64_t at = attn_part_first(&g->q, i), first = attn_max(at - e.first_q, 0),
                          last = attn_min(at + g->q.part - e.first_q, e.queries) - 1;
            attn_range seen[ATTN_SEEN_RANGES];
            attn_keys_seen(&problem->mask, x->origin_q + first + e.offset, x->origin_q + last + e.offset, x->origin_kv + e.keys,
                           seen);
            if (is_uniform || x->all_pairs)
                seen[0] = (attn_range){x->origin_kv, x->origin_kv + e.keys}, seen[1] = (attn_range){0, 0};
            for (int n = 0; n < ATTN_SEEN_RANGES; n++) {
                const int64_t from = attn_max(seen[n].first - x->origin_kv, 0), to = seen[n].end - x->origin_kv;
                include(&g->seen[ATTN_SEEN_RANGES * i + n], (attn_range){from + e.first_kv, to + e.first_kv}, g->kv.part);
            }
        }
    }
}

/* The first part at or behind j that has not been reached; next[j] is j for these. */
static int64_t unreached(int64_t *next, int64_t j)
{
    for (; next[j] != j; j = next[j]) next[j] = next[next[j]];
    return j;
}

/* Parts of keys are reached by one part of queries after another, from both ends; each is looked at once. */
static void fill_rows(attn_grid *g, int64_t *next)
{
    const int64_t rows = g->q.count, columns = g->kv.count;
    for (int64_t j = 0; j < columns; j++) g->rows[j] = (attn_range){0, 0};
    for (int down = 0; down < 2; down++) {
        for (int64_t j = 0; j <= columns; j++) next[j] = j;
        for (int64_t n = 0; n < rows * ATTN_SEEN_RANGES; n++) {
            const int64_t i = down ? rows - 1 - n / ATTN_SEEN_RANGES : n / ATTN_SEEN_RANGES;
            const attn_range *seen = &g->seen[ATTN_SEEN_RANGES * i + n % ATTN_SEEN_RANGES];
            if (seen->first >= seen->end) continue;
            for (int64_t j = unreached(next, seen->first); j < seen->end; j = unreached(next, j)) {
                if (down) g->rows[j].end = i + 1;
                else g->rows[j].first = i;
                next[j] = j + 1;
            }
        }
    }
}

/* ---- the grid ---- */

size_t attn_grid_bytes(attn_range tokens, int64_t part, int ranks)
{
    const size_t q = (size_t)attn_parts_of(tokens.first, part), kv = (size_t)attn_parts_of(tokens.end, part);
    const size_t bytes = q * (ATTN_SEEN_RANGES * sizeof(attn_range) + sizeof(int64_t) + sizeof(int32_t)) +
                         kv * (sizeof(attn_range) + sizeof(int64_t) + sizeof(int32_t)) + (kv + 1 + (size_t)ranks) * sizeof(int64_t);
    return (bytes + 7) / 8 * 8;
}

attn_status attn_grid_fill(attn_grid *g, void *memory, attn_range tokens, const attn_problem *problem, const attn_grid_index *index,
                           const attn_split *split, int ranks, attn_error *error)
{
    char *at = memory;
    g->q = (attn_parts){.tokens = tokens.first, .part = split->part, .count = attn_parts_of(tokens.first, split->part)};
    g->kv = (attn_parts){.tokens = tokens.end, .part = split->part, .count = attn_parts_of(tokens.end, split->part)};
    g->seen = (attn_range *)(void *)at, at += (size_t)g->q.count * ATTN_SEEN_RANGES * sizeof(attn_range);
    g->rows = (attn_range *)(void *)at, at += (size_t)g->kv.count * sizeof(attn_range);
    g->q.local = (int64_t *)(void *)at, at += (size_t)g->q.count * sizeof(int64_t);
    g->kv.local = (int64_t *)(void *)at, at += (size_t)g->kv.count * sizeof(int64_t);
    int64_t *const next = (int64_t *)(void *)at, *const owned = next + g->kv.count + 1; /* until this returns */
    g->q.owner = (int32_t *)(void *)(owned + ranks);
    g->kv.owner = g->q.owner + g->q.count;
    TRY(fill_owners(&g->q, split, ATTN_AXIS_QUERY, ranks, error));
    TRY(fill_owners(&g->kv, split, ATTN_AXIS_KEY, ranks, error));
    fill_local(&g->q, ranks, owned);
    fill_local(&g->kv, ranks, owned);
    fill_seen(g, problem, index);
    fill_rows(g, next);
    return ATTN_OK;
}

/* Aligned for int64_t; `owned` is used until attn_grid_join returns. */
size_t attn_grid_join_bytes(const attn_grid *from, int ranks)
{
    const size_t parts = (size_t)from->q.count + (size_t)from->kv.count;
    return (parts + (size_t)ranks) * sizeof(int64_t) + (parts * sizeof(int32_t) + 7) / 8 * 8;
}

void attn_grid_join(attn_grid *g, void *memory, const attn_grid *from, int ranks, int members)
{
    *g = *from;
    g->q.local = memory;
    g->kv.local = g->q.local + g->q.count;
    int64_t *const owned = g->kv.local + g->kv.count;
    g->q.owner = (int32_t *)(void *)(owned + ranks);
    g->kv.owner = g->q.owner + g->q.count;
    for (int64_t n = 0; n < g->q.count; n++) g->q.owner[n] = from->q.owner[n] / members;
    for (int64_t n = 0; n < g->kv.count; n++) g->kv.owner[n] = from->kv.owner[n] / members;
    fill_local(&g->q, ranks / members, owned);
    fill_local(&g->kv, ranks / members, owned);
}

int attn_row_exists(const attn_grid *g, int64_t i, int64_t first, int64_t end)
{
    for (int n = 0; n < ATTN_SEEN_RANGES; n++) {
        const attn_range *seen = &g->seen[ATTN_SEEN_RANGES * i + n];
        if (attn_max(seen->first, first) < attn_min(seen->end, end)) return 1;
    }
    return 0;
}

int64_t attn_row_cells(const attn_grid *g, int64_t i)
{
    const attn_range *near = &g->seen[ATTN_SEEN_RANGES * i], *global = near + 1;
    const int64_t both = attn_min(near->end, global->end) - attn_max(near->first, global->first);
    return near->end - near->first + global->end - global->first - attn_max(both, 0);
}

int attn_grid_has_cells(const attn_grid *g)
{
    for (int64_t j = 0; j < g->kv.count; j++)
        if (g->rows[j].first < g->rows[j].end) return 1;
    return 0;
}

int64_t attn_column_cells(const attn_grid *g, int64_t j)
{
    int64_t cells = 0;
    for (int64_t i = g->rows[j].first; i < g->rows[j].end; i++) cells += attn_row_exists(g, i, j, j + 1);
    return cells;
}

int attn_column_exists(const attn_grid *g, int64_t j, int64_t first, int64_t end)
{
    for (int64_t i = attn_max(first, g->rows[j].first); i < attn_min(end, g->rows[j].end); i++)
        if (attn_row_exists(g, i, j, j + 1)) return 1;
    return 0;
}
