/* SPDX-License-Identifier: MIT
 * model_count.c - see model_count.h. */
#include "model_count.h"

#include <string.h>

#include "agree.h"

/* ---- arrays ---- */

static void *take(char **at, size_t bytes)
{
    void *here = *at;
    if (*at) *at += (bytes + 7) / 8 * 8;
    return here;
}

size_t attn_model_bytes(attn_range parts, int ranks)
{
    const size_t q = (size_t)parts.first, kv = (size_t)parts.end, r = (size_t)ranks;
    return ((1 + ATTN_SEEN_RANGES) * q + kv) * sizeof(int32_t) + 8 * (2 + ATTN_SEEN_RANGES) + (q + kv + 1) * sizeof(int64_t) +
           2 * (r + 1) * sizeof(int64_t) + r * (10 + ATTN_NODE_KINDS) * sizeof(double);
}

void attn_model_carve(attn_model *m, void *memory, attn_range parts)
{
    const size_t q = (size_t)parts.first, kv = (size_t)parts.end, r = (size_t)m->ranks;
    char *at = memory;
    m->row_pairs = take(&at, q * sizeof *m->row_pairs);
    m->seen = take(&at, (kv + 1) * sizeof *m->seen);
    m->q.first = take(&at, (r + 1) * sizeof *m->q.first);
    m->kv.first = take(&at, (r + 1) * sizeof *m->kv.first);
    m->pairs = take(&at, r * sizeof *m->pairs);
    m->cells_of = take(&at, r * sizeof *m->cells_of);
    m->counted = take(&at, r * sizeof *m->counted);
    m->keys_sent = take(&at, r * sizeof *m->keys_sent);
    m->keys_got = take(&at, r * sizeof *m->keys_got);
    m->nodes_sent = take(&at, r * ATTN_NODE_KINDS * sizeof *m->nodes_sent);
    m->group_nodes = take(&at, r * sizeof *m->group_nodes);
    m->row_bytes = take(&at, r * sizeof *m->row_bytes);
    m->bytes_sent = take(&at, r * sizeof *m->bytes_sent);
    m->bytes_got = take(&at, r * sizeof *m->bytes_got);
    m->messages_sent = take(&at, r * sizeof *m->messages_sent);
    m->q.part = take(&at, q * sizeof *m->q.part);
    for (int n = 0; n < ATTN_SEEN_RANGES; n++) m->by_seen[n] = take(&at, q * sizeof *m->by_seen[n]);
    m->kv.part = take(&at, kv * sizeof *m->kv.part);
}

static void sort_by_rank(attn_by_rank *by, const attn_parts *p, int ranks)
{
    for (int r = 0; r <= ranks; r++) by->first[r] = 0;
    for (int64_t n = 0; n < p->count; n++) by->first[p->owner[n]]++;
    int64_t end = 0;
    for (int r = 0; r <= ranks; r++) {
        const int64_t count = by->first[r];
        by->first[r] = end;
        end += count;
    }
    for (int64_t n = 0; n < p->count; n++) by->part[by->first[p->owner[n]]++] = (int32_t)n;
    for (int r = ranks; r > 0; r--) by->first[r] = by->first[r - 1];
    by->first[0] = 0;
}

/* ---- work ---- */

/* The keys that the queries first .. end - 1 see, added up: exact where their number grows evenly between eighths of these. */
static double pairs_between(const attn_mask *m, int64_t first, int64_t end, int64_t offset, int64_t keys)
{
    const int64_t step = attn_max((end - first + 7) / 8, 1);
    double sum = 0;
    for (int64_t at = first; at < end; at += step) {
        const int64_t last = attn_min(at + step, end) - 1;
        sum += (double)(last - at + 1) * (attn_keys_count(m, at + offset, keys) + attn_keys_count(m, last + offset, keys)) / 2;
    }
    return sum;
}

static void count_pairs(attn_model *m)
{
    const attn_cells *c = &m->cells;
    const attn_parts *q = &c->grid.q;
    attn_shape shape = c->problem.shape;
    for (int64_t i = 0; i < q->count; i++) m->row_pairs[i] = 0;
    const int64_t apart = attn_entries_apart(&c->index);
    const double alike = apart > 0 ? (double)(c->index.entries / apart) : 0;
    for (int64_t b = 0; b < apart; b++) {
        const attn_entry e = attn_entry_at(&c->index, &shape, b);
        if (e.queries == 0 || e.keys == 0) continue;
        for (int64_t i = e.first_q / q->part; i <= (e.first_q + e.queries - 1) / q->part; i++) {
            const int64_t at = attn_part_first(q, i) - e.first_q;
            m->row_pairs[i] +=
                alike * pairs_between(&c->problem.mask, attn_max(at, 0), attn_min(at + q->part, e.queries), e.offset, e.keys);
        }
    }
}

static double cells_of_grid(const attn_grid *g)
{
    double cells = 0;
    for (int64_t i = 0; i < g->q.count; i++) cells += (double)attn_row_cells(g, i);
    return cells;
}

static void share_work(attn_model *m)
{
    const attn_grid *g = &m->cells.grid;
    for (int64_t i = 0; i < g->q.count; i++) {
        m->pairs[g->q.owner[i]] += m->row_pairs[i];
        m->cells_of[g->q.owner[i]] += attn_row_cells(g, i);
    }
}

/* The work of split keys: a part of queries is shared by the owners of the keys that it sees. */
static void share_rows(attn_model *m)
{
    const attn_grid *g = &m->cells.grid;
    const attn_part_sample s = attn_model_sample(g->q.count, (double)g->q.count * m->ranks);
    for (int64_t i = s.first; i < g->q.count; i += s.stride) {
        const int64_t cells = attn_row_cells(g, i);
        for (int r = 0; r < m->ranks && cells > 0; r++) {
            const attn_range *near = &g->seen[ATTN_SEEN_RANGES * i], *far = near + 1;
            const int64_t both = attn_model_between(&m->kv, r, attn_max(near->first, far->first), attn_min(near->end, far->end)),
                          own = attn_model_between(&m->kv, r, near->first, near->end) +
                                attn_model_between(&m->kv, r, far->first, far->end) - both;
            m->cells_of[r] += (int64_t)((double)own * s.weight + 0.5);
            m->pairs[r] += m->row_pairs[i] * (double)own * s.weight / (double)cells;
        }
    }
    m->sampled = 1 / s.weight;
}

/* ---- keys ---- */

/* Rank `rank` sees parts first .. end - 1 of keys, which its queries see in no other of these calls. */
static void see(attn_model *m, int rank, attn_range of)
{
    const attn_grid *g = &m->cells.grid;
    const int64_t own = attn_model_between(&m->kv, rank, of.first, of.end);
    if (of.first >= of.end) return;
    m->seen[of.first]++, m->seen[of.end]--;
    m->keys_sent[rank] -= (double)own;
    m->keys_got[rank] += (double)(of.end - of.first - own);
    if (of.end == g->kv.count && g->kv.owner[of.end - 1] != rank) /* the last part may be smaller */
        m->bytes_got[rank] -= (double)(attn_message_bytes(&m->cells, attn_part_most(&g->kv)) -
                                       attn_message_bytes(&m->cells, attn_part_size(&g->kv, g->kv.count - 1)));
}

static void send_directly(attn_model *m)
{
    const attn_grid *g = &m->cells.grid;
    const double full = (double)attn_message_bytes(&m->cells, attn_part_most(&g->kv)), rounds = (double)m->rounds;
    memset(m->seen, 0, (size_t)(g->kv.count + 1) * sizeof *m->seen);
    for (int r = 0; r < m->ranks; r++) attn_model_each_seen(m, r, see);
    for (int64_t j = 0, seen = 0; j < g->kv.count; j++) {
        seen += m->seen[j];
        m->keys_sent[g->kv.owner[j]] += (double)seen;
    }
    for (int r = 0; r < m->ranks; r++) {
        m->bytes_sent[r] += rounds * m->keys_sent[r] * full;
        m->bytes_got[r] += m->keys_got[r] * full;
    }
    if (g->kv.count == 0) return;
    const int32_t last = g->kv.owner[g->kv.count - 1];
    const attn_range at = {g->kv.count - 1, g->kv.count};
    int64_t others = 0; /* ranks that see the last part */
    for (int64_t j = 0; j <= at.first; j++) others += m->seen[j];
    for (int64_t n = m->q.first[last]; n < m->q.first[last + 1]; n++)
        if (attn_row_exists(g, m->q.part[n], at.first, at.end)) {
            others--;
            break;
        }
    m->bytes_sent[last] -=
        rounds * (double)others * (full - (double)attn_message_bytes(&m->cells, attn_part_size(&g->kv, at.first)));
}

/* A rank passes on all parts but those of its right neighbour, and gets all but its own. */
static void send_around(attn_model *m)
{
    const attn_grid *g = &m->cells.grid;
    double all = 0;
    for (int64_t j = 0; j < g->kv.count; j++) {
        const double bytes = (double)attn_message_bytes(&m->cells, attn_part_size(&g->kv, j));
        const int owner = g->kv.owner[j], left = (owner + m->ranks - 1) % m->ranks;
        all += bytes;
        m->bytes_sent[left] -= bytes, m->bytes_got[owner] -= bytes;
        m->keys_sent[left]--, m->keys_got[owner]--;
    }
    for (int r = 0; r < m->ranks; r++) {
        m->bytes_sent[r] += all, m->bytes_got[r] += all;
        m->keys_sent[r] += (double)g->kv.count, m->keys_got[r] += (double)g->kv.count;
    }
}

/* ---- sums ---- */

/* A sum over parts: who has its nodes. */
typedef struct sum_walk {
    attn_model *model;
    attn_node_kind kind;
    int64_t which;
    attn_range terms;
    const int32_t *owner;
    int32_t to;    /* the rank that gets them */
    double weight; /* of one node */
} sum_walk;

enum { NOBODY = -1, SEVERAL = -2 };

static int exists(const sum_walk *w, int64_t n)
{
    const attn_cells *c = &w->model->cells;
    const attn_grid *g = &c->grid;
    if (w->kind == ATTN_NODE_SHARED) return c->has_sink || attn_row_cells(g, n) > 0;
    return w->kind == ATTN_NODE_COLUMN ? attn_row_exists(g, n, w->which, w->which + 1) : attn_row_exists(g, w->which, n, n + 1);
}

static void send_node(const sum_walk *w, int32_t owner)
{
    if (owner >= 0 && owner != w->to) w->model->nodes_sent[ATTN_NODE_KINDS * (int64_t)owner + (int64_t)w->kind] += w->weight;
}

/* The rank that has all terms below a node; others send the largest such nodes. */
static int32_t owner_below(const sum_walk *w, int level, int64_t number)
{
    if ((number << level) >= w->terms.end || ((number + 1) << level) <= w->terms.first) return NOBODY;
    if (level == 0) return exists(w, number) ? w->owner[number] : NOBODY;
    const int32_t left = owner_below(w, level - 1, 2 * number), right = owner_below(w, level - 1, 2 * number + 1);
    if (left == NOBODY || left == right) return right;
    if (right == NOBODY) return left;
    send_node(w, left), send_node(w, right);
    return SEVERAL;
}

/* With any_order, a rank sends one node of all its terms. */
static void count_ranks(const sum_walk *w)
{
    attn_model *const m = w->model;
    m->sums++;
    for (int64_t n = w->terms.first; n < w->terms.end; n++) {
        if (m->counted[w->owner[n]] == m->sums || !exists(w, n)) continue;
        m->counted[w->owner[n]] = m->sums;
        send_node(w, w->owner[n]);
    }
}

static void count_sum(const sum_walk *w)
{
    int level = 0;
    if (w->model->cells.any_order) {
        count_ranks(w);
        return;
    }
    while ((INT64_C(1) << level) < w->terms.end) level++;
    send_node(w, owner_below(w, level, 0));
}

/* Messages along the binomial tree by which all ranks get what rank 0 has. */
static void spread_from_first(attn_model *m, attn_node_kind kind, double weight)
{
    for (int64_t r = 0; r < m->ranks; r++)
        for (int64_t bit = 1; bit < m->ranks && !(r & bit); bit *= 2)
            if (r + bit < m->ranks) m->nodes_sent[ATTN_NODE_KINDS * (int64_t)r + (int64_t)kind] += weight;
}

static void send_columns(attn_model *m)
{
    const attn_grid *g = &m->cells.grid;
    const attn_part_sample s = attn_model_sample(g->kv.count, cells_of_grid(g));
    sum_walk w = {.model = m, .kind = ATTN_NODE_COLUMN, .owner = g->q.owner, .weight = s.weight};
    for (int64_t j = s.first; j < g->kv.count; j += s.stride) {
        w.which = j, w.to = g->kv.owner[j], w.terms = g->rows[j];
        count_sum(&w);
    }
    m->sampled = 1 / s.weight;
}

static void send_shared(attn_model *m)
{
    const attn_grid *g = &m->cells.grid;
    const sum_walk w = {.model = m, .kind = ATTN_NODE_SHARED, .owner = g->q.owner, .weight = 1, .terms = {0, g->q.count}};
    int some = 0;
    for (int64_t i = 0; i < g->q.count && !some; i++) some = exists(&w, i);
    if (!some) return;
    count_sum(&w);
    spread_from_first(m, ATTN_NODE_SHARED, 1);
}

/* ---- all of it ---- */

/* What is sent beside keys, which are there already. */
static void add_nodes(attn_model *m)
{
    for (int r = 0; r < m->ranks; r++) {
        m->messages_sent[r] += m->keys_sent[r];
        for (int kind = 0; kind < ATTN_NODE_KINDS; kind++) {
            const double nodes = m->nodes_sent[ATTN_NODE_KINDS * (int64_t)r + (int64_t)kind] * (double)m->rounds;
            m->messages_sent[r] += nodes;
            if (kind != ATTN_NODE_ROW) m->bytes_sent[r] += nodes * (double)m->cells.node[kind]; /* rows are in it already */
        }
    }
}

static void begin(attn_model *m, int run)
{
    const attn_transport as = {.ranks = m->agreeing};
    const double agreements = 2 * attn_agree_messages(&as);
    if (run == 0) m->sampled = 1;
    m->row_rounds = 0, m->sums = 0;
    for (int r = 0; r < m->ranks; r++) {
        m->row_bytes[r] = m->pairs[r] = m->keys_sent[r] = m->keys_got[r] = m->bytes_got[r] = 0;
        m->cells_of[r] = m->counted[r] = 0;
        for (int kind = 0; kind < ATTN_NODE_KINDS; kind++) m->nodes_sent[ATTN_NODE_KINDS * (int64_t)r + (int64_t)kind] = 0;
        if (run > 0) continue;
        m->messages_sent[r] = agreements;
        m->bytes_sent[r] = agreements * (double)sizeof(attn_verdict);
    }
}

void attn_model_count(attn_model *m, int run)
{
    const attn_cells *c = &m->cells;
    begin(m, run);
    sort_by_rank(&m->q, &c->grid.q, m->ranks);
    sort_by_rank(&m->kv, &c->grid.kv, m->ranks);
    attn_model_sort_seen(m);
    count_pairs(m);
    if (c->keys_stay) share_rows(m);
    else share_work(m);
    if (m->ranks > 1 && !c->idle) {
        if (c->keys_stay) attn_model_rows(m);
        else if (m->way == ATTN_WAY_RING) send_around(m);
        else send_directly(m);
        if (m->bundles) attn_model_bundles(m);
        for (int r = 0; r < m->ranks; r++) m->keys_sent[r] *= (double)m->rounds;
        if (c->node[ATTN_NODE_COLUMN] && !c->keys_stay) send_columns(m);
        if (c->node[ATTN_NODE_SHARED]) send_shared(m);
    }
    add_nodes(m);
}

static void mark(attn_model *m, int rank, attn_range range)
{
    (void)rank;
    m->seen[range.first]++, m->seen[range.end]--;
}

void attn_model_look(attn_model *m, int rank, int64_t *own_cells, int64_t *sources)
{
    const attn_grid *g = &m->cells.grid;
    *own_cells = *sources = 0;
    for (int64_t n = m->q.first[rank]; n < m->q.first[rank + 1]; n++) {
        const attn_range *near = &g->seen[ATTN_SEEN_RANGES * m->q.part[n]], *far = near + 1;
        *own_cells += attn_model_between(&m->kv, rank, near->first, near->end) +
                      attn_model_between(&m->kv, rank, far->first, far->end) -
                      attn_model_between(&m->kv, rank, attn_max(near->first, far->first), attn_min(near->end, far->end));
    }
    if (m->way == ATTN_WAY_RING) {
        *sources = m->ranks - 1;
        return;
    }
    memset(m->seen, 0, (size_t)(g->kv.count + 1) * sizeof *m->seen);
    attn_model_each_seen(m, rank, mark);
    for (int64_t j = 1; j < g->kv.count; j++) m->seen[j] += m->seen[j - 1];
    for (int r = 0; r < m->ranks; r++)
        for (int64_t n = m->kv.first[r]; n < m->kv.first[r + 1]; n++)
            if (r != rank && m->seen[m->kv.part[n]] > 0) {
                ++*sources;
                break;
            }
}
