/* SPDX-License-Identifier: MIT
 * model_rows.c - what halving.c sends: the results of parts of queries whose keys are on several ranks. */
#include "halving.h"
#include "model_count.h"

enum { NOBODY = -1, SEVERAL = -2 };

/* The tree of a part of queries, whose terms belong to ranks (round -1), or to groups of seats before a round. */
typedef struct group_walk {
    const attn_grid *grid;
    const attn_halving *halving;
    int64_t which;
    int round;
    int any_order;
    double *nodes; /* of each of these: the largest nodes whose terms are all its own */
} group_walk;

static int64_t group_of(const group_walk *w, int64_t rank)
{
    return w->round < 0 ? rank : attn_halving_seat(w->halving, rank) >> w->round;
}

/* Who has all terms below a node; otherwise what is below is counted. */
static int64_t group_below(const group_walk *w, int level, int64_t number)
{
    const int64_t first = number << level, end = (number + 1) << level;
    if (first >= w->grid->kv.count || !attn_row_exists(w->grid, w->which, first, end)) return NOBODY;
    if (level == 0) return group_of(w, w->grid->kv.owner[number]);
    const int64_t left = group_below(w, level - 1, 2 * number), right = group_below(w, level - 1, 2 * number + 1);
    if (left == NOBODY || left == right) return right;
    if (right == NOBODY) return left;
    if (left >= 0) w->nodes[left]++;
    if (right >= 0) w->nodes[right]++;
    return SEVERAL;
}

static void count_nodes(const group_walk *w)
{
    int level = 0;
    for (int64_t n = 0; n < w->grid->kv.count && w->any_order; n++) /* all terms of a group are one node */
        if (attn_row_exists(w->grid, w->which, n, n + 1)) w->nodes[group_of(w, w->grid->kv.owner[n])] = 1;
    if (w->any_order) return;
    while ((INT64_C(1) << level) < w->grid->kv.count) level++;
    const int64_t root = group_below(w, level, 0);
    if (root >= 0) w->nodes[root]++;
}

static void add(attn_model *m, int64_t rank, double messages, int64_t units)
{
    if (units == 0) return;
    m->nodes_sent[ATTN_NODE_KINDS * rank + ATTN_NODE_ROW] += messages;
    m->row_bytes[rank] += messages * (double)attn_halving_bytes(&m->cells, units);
}

/* What the ranks give away of a part of queries. */
static void count_given(attn_model *m, const attn_halving *h, int64_t which, double weight, int64_t units)
{
    group_walk w = {&m->cells.grid, h, which, -1, m->cells.any_order, m->group_nodes};
    for (w.round = h->pairs > 0 ? -1 : 0; w.round < h->rounds; w.round++) {
        const int64_t groups = w.round < 0 ? m->ranks : h->seats >> w.round;
        for (int64_t n = 0; n < groups; n++) w.nodes[n] = 0;
        count_nodes(&w);
        if (w.round < 0)
            for (int64_t n = 0; n < h->pairs; n++) add(m, 2 * n + 1, weight * w.nodes[2 * n + 1], units);
        for (int64_t seat = 0; seat < h->seats && w.round >= 0; seat++)
            add(m, attn_halving_rank(h, seat), weight * w.nodes[seat >> w.round],
                attn_halving_count(units, seat ^ (INT64_C(1) << w.round), w.round + 1));
    }
}

void attn_model_rows(attn_model *m)
{
    const attn_grid *g = &m->cells.grid;
    const attn_halving h = attn_halving_of(m->ranks);
    const int64_t units = m->cells.problem.shape.batch * m->cells.problem.shape.heads_q;
    double cells = 0, rows = 0;
    if (!m->cells.node[ATTN_NODE_ROW]) return;
    for (int64_t i = 0; i < g->q.count; i++) cells += (double)attn_row_cells(g, i), rows += attn_row_cells(g, i) > 0;
    const attn_part_sample s = attn_model_sample(g->q.count, (h.rounds + 1) * (cells + (double)g->q.count * m->ranks));
    for (int64_t i = s.first; i < g->q.count; i += s.stride)
        if (attn_row_cells(g, i) > 0) count_given(m, &h, i, s.weight, units);
    for (int64_t seat = 0; seat < h.seats; seat++)
        for (int round = 0; round < h.rounds; round++)
            add(m, attn_halving_rank(&h, seat), rows, attn_halving_count(units, seat, round + 1));
    for (int64_t n = 0; n < h.pairs; n++) add(m, 2 * n, rows, units);
    for (int r = 0; r < m->ranks; r++) m->bytes_sent[r] += m->row_bytes[r];
    m->row_rounds = rows * 2 * (h.rounds + (h.pairs > 0));
    if (m->sampled > 1 / s.weight) m->sampled = 1 / s.weight;
}
