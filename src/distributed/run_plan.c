/* SPDX-License-Identifier: MIT
 * run_plan.c - what a rank has to do, and what it needs for that; see run.h. */
#include "run.h"

#include "../common/options.h"
#include "gather.h"

/* Those of a rank, or all (-1). */
static void list_parts(const attn_parts *p, int rank, int64_t *parts, int64_t *count)
{
    *count = 0;
    for (int64_t n = 0; n < p->count; n++)
        if (rank < 0 || p->owner[n] == rank) parts[(*count)++] = n;
}

/* What each rank has to do; the most cells of a rank are known without asking. */
static void count_cells(attn_distributed_plan *p, int64_t *of_rank)
{
    const attn_grid *g = &p->cells.grid;
    for (int r = 0; r < p->ranks; r++) of_rank[r] = 0;
    for (int64_t i = 0; i < g->q.count && !p->cells.keys_stay; i++) of_rank[g->q.owner[i]] += attn_row_cells(g, i);
    for (int64_t j = 0; j < g->kv.count && p->cells.keys_stay; j++)
        for (int64_t i = g->rows[j].first; i < g->rows[j].end; i++) of_rank[g->kv.owner[j]] += attn_row_exists(g, i, j, j + 1);
    for (int r = 0; r < p->ranks; r++) {
        if (of_rank[r] > p->cells_most) p->cells_most = of_rank[r];
        p->cells_total += of_rank[r];
    }
    for (int r = 0; r < p->ranks; r++) of_rank[r] = 0;
    for (int64_t j = 0; j < g->kv.count; j++)
        if (++of_rank[g->kv.owner[j]] > p->most_kv) p->most_kv = of_rank[g->kv.owner[j]];
}

/* Counts with more and more slots, until they suffice. */
static attn_status find_needs(attn_distributed_plan *p, attn_error *error)
{
    const attn_options *o = &p->cells.options;
    p->needs = (attn_run_needs){.slots = {64, 64, 64}};
    for (;;) {
        attn_run_needs needs;
        int enough;
        const size_t bytes = attn_run_bytes(p, 1);
        void *memory = options_acquire(o, bytes);
        CHECK(memory, ATTN_ERR_MEMORY, "cannot allocate the %zu bytes in which a plan counts", bytes);
        const attn_status status = attn_run_count(p, memory, &needs, &enough, error);
        options_release(o, memory);
        if (status != ATTN_OK) return status;
        if (enough) {
            p->needs = needs;
            return ATTN_OK;
        }
        for (int kind = 0; kind < ATTN_NODE_KINDS; kind++) p->needs.slots[kind] *= 4;
    }
}

static attn_status plan_cells(attn_distributed_plan *p, attn_error *error)
{
    attn_cells *c = &p->cells;
    const attn_parts *q = &c->grid.q, *kv = &c->grid.kv;
    const size_t lists = (size_t)(q->count + kv->count + p->ranks) * sizeof(int64_t);
    p->lists = options_acquire(&c->options, lists);
    CHECK(p->lists, ATTN_ERR_MEMORY, "cannot allocate the %zu bytes of lists of parts", lists);
    p->own.q = p->lists;
    p->own.kv = p->own.q + q->count;
    list_parts(q, c->keys_stay ? -1 : p->me, p->own.q, &p->own.count_q);
    list_parts(kv, p->me, p->own.kv, &p->own.count_kv);
    count_cells(p, p->own.kv + kv->count);
    TRY(attn_cells_plan(c, p->me, &p->own, error));
    CHECK((double)attn_message_bytes(c, attn_part_most(kv)) * (double)p->most_kv < 0x1p60, ATTN_ERR_SHAPE,
          "distributed: the keys of a rank are too large: their bytes overflow 64 bits");
    TRY(find_needs(p, error));
    TRY(attn_run_fits(p, error));
    p->workspace = attn_run_bytes(p, 0);
    return ATTN_OK;
}

/* Of one head after another: all are alike. */
static attn_status plan_head(attn_distributed_plan *p, attn_error *error)
{
    const attn_options o = p->cells.options;
    attn_distributed_plan *e = options_acquire(&o, sizeof *e);
    CHECK(e, ATTN_ERR_MEMORY, "cannot allocate the %zu bytes of a plan of a head", sizeof *e);
    *e = *p;
    p->head = e;
    e->runs = NULL, e->heads = NULL, e->memory = e->numbers = NULL;
    e->gathers = 1;
    e->rounds = p->cells.problem.shape.heads_kv;
    TRY(attn_cells_lay_out(&p->cells, error)); /* what ranks agree about */
    attn_gather_take(&e->cells);
    const attn_parts *kv = &e->cells.grid.kv;
    CHECK((double)attn_message_bytes(&e->cells, attn_part_most(kv)) * (double)kv->count < 0x1p60, ATTN_ERR_SHAPE,
          "distributed: the keys of a head are too large: their bytes overflow 64 bits");
    TRY(plan_cells(e, error));
    p->needs = e->needs;
    p->needs.cells = attn_times(e->needs.cells, e->rounds);
    p->needs.messages = attn_times(e->needs.messages, e->rounds);
    p->needs.bytes = attn_times(e->needs.bytes, e->rounds);
    p->cells_most = attn_times(e->cells_most, e->rounds);
    p->cells_total = attn_times(e->cells_total, e->rounds);
    p->workspace = e->workspace;
    return ATTN_OK;
}

/* (Where there are no cells, there is nothing to gather, and there may be 2^40 heads.) */
attn_status attn_run_plan(attn_distributed_plan *p, attn_error *error)
{
    return p->way == ATTN_WAY_GATHER && attn_grid_has_cells(&p->cells.grid) ? plan_head(p, error) : plan_cells(p, error);
}
