/* SPDX-License-Identifier: MIT
 *
 * in_order.c - decode in the order of tiles: few queries get the bits that forward.c gives them in a tile with options.invariant,
 * so that it does not matter how many of them come at a time.  Rows, keys and tasks are those of decode.c; sums are cut as in
 * tiles:
 *
 *      a task is one or more parts of the keys, each with its own m, l and O     plan.c cuts both alike
 *          for each block of tiles:
 *              scores, their modifiers, m and l, O of the block, and O of the part absorbs it
 *      the worker that ends a key head's last task merges its parts, in ascending order
 */
#include <float.h>
#include <math.h>
#include <string.h>

#include "../../base/names.h"
#include "group.h"

/* n rows from j on: in place, or, if they are quantised, unpacked as in tiles. */
static attn_decode_rows usable(const attn_decode_group *g, const attn_decode_source *s, int64_t j, int64_t n, const char *at,
                               int64_t fetch)
{
    if (attn_is_quantised(s->layout->dtype)) return attn_decode_unpacked(g, s, j, n, at, fetch);
    return (attn_decode_rows){at, s->layout->dtype, s->ld, fetch};
}

static void score_piece(const attn_decode_group *g, const attn_decode_source *s, int64_t j, int64_t n, const char *at,
                        int64_t fetch, void *context)
{
    const attn_decode_walk *plan = g->call->plan;
    const attn_walk *w = g->call->walk;
    const attn_decode_block *b = context;
    const attn_decode_rows K = usable(g, s, j, n, at, fetch);
    void *S = attn_decode_at(g, b->S, j - b->base);
    if (w->kernel.decode_pairs)
        w->kernel.decode_pairs->ordered_scores(g->rows, n, s->dim, b->Q, g->ldq, K.at, K.ld, S, g->lds, K.fetch, plan->streams);
    else w->kernel.decode->order.scores(g->rows, n, s->dim, b->Q, g->ldq, K.at, K.dtype, K.ld, S, g->lds, K.fetch, plan->streams);
}

static void value_piece(const attn_decode_group *g, const attn_decode_source *s, int64_t j, int64_t n, const char *at,
                        int64_t fetch, void *context)
{
    const attn_decode_walk *plan = g->call->plan;
    const attn_walk *w = g->call->walk;
    const attn_decode_block *b = context;
    const attn_decode_rows V = usable(g, s, j, n, at, fetch);
    const void *P = attn_decode_at(g, b->S, j - b->base);
    w->kernel.decode->add_values(g->rows, n, s->dim, P, g->lds, V.at, V.dtype, V.ld, b->O, g->ldo, V.fetch, plan->streams);
}

static void value_nan_safe(const attn_decode_group *g, const attn_decode_source *s, int64_t j, int64_t n, const char *at,
                           int64_t fetch, void *context)
{
    const attn_decode_block *b = context; /* its S, kept_scores and O are those of one row */
    const attn_decode_rows V = usable(g, s, j, n, at, fetch);
    g->call->walk->kernel.decode->add_values_nan_safe(n, s->dim, attn_decode_at(g, b->kept_scores, j - b->base),
                                                      attn_decode_at(g, b->S, j - b->base), V.at, V.dtype, V.ld, b->O);
}

/* Recomputes a row whose O is not finite although keys were dropped: 0 * NaN must not leak. */
static void repeat_nan_safe(const attn_decode_group *g, const attn_decode_block *b, int64_t row)
{
    attn_decode_block one = *b;
    one.S = attn_decode_at(g, b->S, row * g->lds);
    one.kept_scores = attn_decode_at(g, b->kept_scores, row * g->lds);
    one.O = attn_decode_at(g, b->O, row * g->ldo);
    if (!g->call->walk->kernel.decode->row_not_finite(g->ldo, one.O)) return;
    memset(one.O, 0, (size_t)(g->ldo * g->size));
    attn_decode_pieces(g, &g->values, b->low, b->high, (attn_decode_next){NULL, 0}, value_nan_safe, &one);
}

/* m, l and O of the part absorb one block of tiles.  then: what this worker will read after it. */
static void run_block(const attn_decode_group *g, attn_decode_block *b, void *O, attn_decode_next then)
{
    const attn_decode_walk *plan = g->call->plan;
    const attn_walk *w = g->call->walk;
    const attn_decode_order *order = &w->kernel.decode->order;
    const int64_t n = b->high - b->low;
    void *factors = attn_part(g->task, plan->scratch.row_factors);
    unsigned dropped = 0; /* a bit for each row */

    attn_decode_pieces(g, &g->keys, b->low, b->high, (attn_decode_next){&g->values, b->low}, score_piece, b);
    for (int64_t k = 0; k < g->heads; k++) {
        for (int64_t i = 0; i < g->queries; i++) {
            const int64_t row = k * g->queries + i;
            void *S = attn_decode_at(g, b->S, row * g->lds);
            if (!attn_decode_modify(g, &g->task[k], i, b, NULL, S)) continue;
            dropped |= 1u << row;
            memcpy(attn_decode_at(g, b->kept_scores, row * g->lds), S, (size_t)(n * g->size));
        }
    }
    order->absorb_rows(g->rows, n, b->S, g->lds, attn_decode_at(g, attn_decode_number(g, g->call->shared.m, 0), b->number),
                       attn_decode_at(g, attn_decode_number(g, g->call->shared.l, 0), b->number), g->blocks, factors);
    memset(b->O, 0, (size_t)(attn_ceil_div(g->rows, 4) * 4 * g->ldo * g->size));
    attn_decode_pieces(g, &g->values, b->low, b->high, then, value_piece, b);
    for (int64_t row = 0; row < g->rows; row++) {
        if (dropped >> row & 1) repeat_nan_safe(g, b, row);
        order->join_row(w->problem.shape.dim_v, attn_decode_at(g, factors, row), attn_decode_at(g, b->O, row * g->ldo),
                        attn_decode_at(g, O, row * g->ldo));
    }
}

/* m, l and O before any key: the first part has the sink. */
void attn_decode_part_masked(const attn_decode_group *g, int64_t number)
{
    const attn_walk *w = g->call->walk;
    const double lowest = w->compute == ATTN_F64 ? -DBL_MAX : -(double)FLT_MAX;
    for (int64_t row = 0; row < g->rows; row++) {
        const double sink = number == 0 ? attn_task_sink(&g->task[row / g->queries]) : -INFINITY;
        const int joins = sink > -INFINITY || sink != sink;
        attn_real_put(attn_decode_number(g, g->call->shared.m, row), w->compute, number, joins ? sink : lowest);
        attn_real_put(attn_decode_number(g, g->call->shared.l, row), w->compute, number, joins ? 1 : 0);
    }
    memset(attn_decode_state(g, number), 0, (size_t)(g->rows * g->ldo * g->size));
}

void attn_decode_part_run(const attn_decode_group *g, attn_decode_block *part, attn_decode_next then)
{
    const attn_decode_walk *plan = g->call->plan;
    attn_decode_part_masked(g, part->number);
    for (int64_t low = part->low, high; low < part->high; low = high) {
        high = attn_min(part->high, (low / plan->tile_kv + 1) * plan->tile_kv);
        attn_decode_block b = *part;
        b.low = b.base = low;
        b.high = high;
        b.O = attn_part(g->task, plan->scratch.block_O);
        run_block(g, &b, part->O, high < part->high ? (attn_decode_next){&g->keys, high} : then);
    }
}

/* Row `row` of the group, or -1 for one past its sequence's end, which has no keys and no sink. */
void attn_decode_finish(const attn_decode_group *g, const attn_task *task, int64_t row, int64_t i)
{
    const attn_decode_walk *plan = g->call->plan;
    const attn_walk *w = g->call->walk;
    const attn_resolved *p = &w->problem;
    const int64_t dim_v = p->shape.dim_v;
    const double nothing = 0;
    const void *m = &nothing, *l = &nothing, *O = attn_decode_state(g, 0);
    if (row >= 0) {
        void *most = attn_decode_number(g, g->call->shared.m, row), *sum = attn_decode_number(g, g->call->shared.l, row);
        void *all = attn_decode_at(g, attn_decode_state(g, 0), row * g->ldo);
        for (int64_t part = 1; part < g->blocks; part++)
            if (attn_real_at(sum, w->compute, part) != 0) /* else the row sees none of its keys */
                w->kernel.decode->order.merge_row(dim_v, attn_decode_at(g, most, part), attn_decode_at(g, sum, part),
                                                  attn_decode_at(g, attn_decode_state(g, part), row * g->ldo), most, sum, all);
        m = most, l = sum, O = all;
    }
    w->kernel.decode->order.normalise_row(dim_v, m, l, O, p->at.v.dtype, attn_part(g->task, plan->scratch.O),
                                          attn_query_row(task, task->args->o, &p->at.o, i), p->at.o.dtype,
                                          p->has.lse ? attn_query_row(task, task->args->lse, &p->at.lse, i) : NULL);
}
