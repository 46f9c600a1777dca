/* SPDX-License-Identifier: MIT
 * heads.c - see heads.h. */
#include "heads.h"

#include "../common/options.h"
#include "piece.h"
#include "runs.h"
#include "swap.h"

#define MODULE "distributed"

/* ---- planning ---- */

static attn_status plan_engine(const attn_distributed_plan *p, attn_heads *h, attn_error *error)
{
    attn_distributed_plan *e = &h->engine;
    const attn_slice slice = attn_slice_of(&p->cells.problem.shape, p->members, h->me);
    const size_t bytes = attn_grid_join_bytes(&p->cells.grid, p->ranks);
    *e = (attn_distributed_plan){.cells = p->cells,
                                 .transport = p->transport,
                                 .way = ATTN_WAY_DIRECT,
                                 .me = p->me / p->members,
                                 .ranks = p->ranks / p->members,
                                 .first = h->me,
                                 .apart = p->members,
                                 .members = 1};
    e->cells.planned.call = &e->cells.call;
    e->memory = options_acquire(&p->cells.options, bytes);
    CHECK(e->memory, ATTN_ERR_MEMORY, "cannot allocate the %zu bytes of the parts of groups", bytes);
    attn_grid_join(&e->cells.grid, e->memory, &p->cells.grid, p->ranks, p->members);
    e->queries = attn_parts_tokens(&e->cells.grid.q, e->me);
    e->keys = attn_parts_tokens(&e->cells.grid.kv, e->me);
    attn_slice_take(&e->cells, &slice, e->queries, e->keys);
    return attn_runs_plan(e, error);
}

attn_status attn_heads_plan(attn_distributed_plan *p, uint64_t shared, attn_error *error)
{
    const attn_options *o = &p->cells.options;
    attn_heads *h = p->heads = options_acquire(o, sizeof *h);
    CHECK(h, ATTN_ERR_MEMORY, "cannot allocate the %zu bytes of a plan of heads", sizeof *h);
    *h = (attn_heads){.me = p->me % p->members, .first = p->me / p->members * p->members};
    h->engine.cells.options = *o;
    TRY(attn_slices_share(&p->cells, shared, error));
    TRY(plan_engine(p, h, error));
    const attn_distributed_plan *e = &h->engine;
    const attn_slice all = {.count_q = e->cells.problem.shape.heads_q, .count_kv = e->cells.problem.shape.heads_kv};
    for (int n = 0; n < e->cells.bounds.count; n++) {
        const attn_bound *b = &e->cells.bounds.all[n];
        if (attn_bound_is_same(b) || b->spread == ATTN_SPREAD_INDEX || b->index < 0) continue;
        h->at[n] = h->tensors;
        h->tensors +=
            attn_round_64_up(attn_swap_tensor_bytes(b, &e->cells.problem.mask, (attn_swap_rows){e->queries, e->keys}, &all));
    }
    p->needs = e->needs;
    const int busy = attn_slices_busy(&p->cells.problem.shape, p->members);
    p->cells_most = busy > 0 ? e->cells_most : 0;
    p->cells_total = e->cells_total * busy;
    for (int way = ATTN_SWAP_TO_HEADS; way <= ATTN_SWAP_TO_TOKENS; way++) attn_swap_count(p, (attn_swap)way, &p->needs, h->message);
    /* Messages lie where the run has its results: they are never there together. */
    const size_t messages = attn_round_64_up(h->message[0]) + h->message[1];
    CHECK((double)e->workspace + (double)messages + (double)h->tensors < 0x1p62, ATTN_ERR_SHAPE,
          MODULE ": the workspace of a plan is too large: its bytes overflow 64 bits");
    p->workspace = h->tensors + (e->workspace > messages ? e->workspace : messages) + ATTN_ALIGNING;
    return ATTN_OK;
}

void attn_heads_free(attn_heads *h, const attn_options *options)
{
    if (!h) return;
    attn_runs_free(&h->engine);
    options_release(options, h->engine.memory);
    options_release(options, h);
}

/* ---- running ---- */

/* The tensors of the run: those that came, and of what all ranks have the rows of the own heads. */
static void place_tensors(const attn_distributed_plan *p, const attn_tensors *mine, char *tensors, attn_tensors *to)
{
    const attn_heads *h = p->heads;
    const attn_slice slice = attn_slice_of(&p->cells.problem.shape, p->members, h->me);
    *to = *mine;
    for (int n = 0; n < p->cells.bounds.count; n++) {
        const attn_bound *b = &h->engine.cells.bounds.all[n];
        attn_input *slot = attn_slot_in(to, b);
        if (b->spread == ATTN_SPREAD_INDEX || b->index < 0) continue;
        if (!b->has_elements) slot->data = ATTN_EMPTY;
        else if (!attn_bound_is_same(b)) slot->data = tensors + h->at[n];
        else slot->data = (const char *)slot->data + slice.first_q * b->stride[1] * (int64_t)attn_dtype_size(b->dtype);
    }
}

attn_status attn_heads_run(const attn_distributed_plan *p, const attn_tensors *mine, void *workspace, attn_error *error)
{
    const attn_heads *h = p->heads;
    char *const base = attn_align_64_up(workspace), *const rest = base + h->tensors;
    char *const message[2] = {rest, rest + attn_round_64_up(h->message[0])};
    attn_tensors here;
    TRY(attn_swap_run(p, ATTN_SWAP_TO_HEADS, mine, base, message, error));
    place_tensors(p, mine, base, &here);
    const attn_status status = attn_runs_execute(&h->engine, &here, rest, error);
    attn_error later;
    if (status == ATTN_ERR_IO) return status;
    /* After a cell that failed, too: others wait for it. */
    const attn_status back = attn_swap_run(p, ATTN_SWAP_TO_TOKENS, mine, base, message, status == ATTN_OK ? error : &later);
    if (back != ATTN_OK && status != ATTN_OK && error) *error = later;
    return back != ATTN_OK ? back : status;
}
