/* SPDX-License-Identifier: MIT
 * distributed.c - the public functions: planning, executing, describing. */
#include "attn/distributed.h"

#include "../common/options.h"
#include "agree.h"
#include "index.h"
#include "run.h"
#include "split.h"

/* ---- reading ---- */

static attn_status read_transport(attn_transport *copy, const attn_transport *caller, attn_error *error)
{
    *copy = (attn_transport){.struct_size = sizeof *copy, .ranks = 1};
    if (!caller) return ATTN_OK;
    TRY(struct_read(copy, sizeof *copy, sizeof *copy, caller, "attn_transport", error));
    CHECK(copy->ranks >= 1 && copy->rank >= 0 && copy->rank < copy->ranks, ATTN_ERR_ARGUMENT,
          "transport.rank is %d of %d; it must be at least 0 and below transport.ranks", copy->rank, copy->ranks);
    CHECK(copy->ranks == 1 || (copy->send && copy->receive && copy->wait), ATTN_ERR_ARGUMENT, "transport.%s is NULL",
          !copy->send      ? "send"
          : !copy->receive ? "receive"
                           : "wait");
    for (size_t n = 0; n < sizeof copy->reserved / sizeof *copy->reserved; n++)
        CHECK(copy->reserved[n] == 0, ATTN_ERR_ARGUMENT, "transport.reserved[%zu] is %" PRId64 "; it must be 0", n,
              copy->reserved[n]);
    return ATTN_OK;
}

/* ---- planning ---- */

static void list_parts(const attn_parts *p, int rank, int64_t *parts, int64_t *count)
{
    *count = 0;
    for (int64_t n = 0; n < p->count; n++)
        if (p->owner[n] == rank) parts[(*count)++] = n;
}

/* What each rank has to do; the most cells of a rank are known without asking. */
static void count_cells(attn_distributed_plan *p, int64_t *of_rank)
{
    const attn_grid *g = &p->cells.grid;
    for (int r = 0; r < p->ranks; r++) of_rank[r] = 0;
    for (int64_t i = 0; i < g->q.count; i++) of_rank[g->q.owner[i]] += attn_row_cells(g, i);
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
    p->needs = (attn_run_needs){.slots = {8, 8, 8}, .requests = 8};
    for (;;) {
        attn_run_needs needs;
        int enough;
        const size_t bytes = attn_run_bytes(p, 1);
        void *memory = options_acquire(o, bytes);
        CHECK(memory, ATTN_ERR_MEMORY, "cannot allocate the %zu bytes in which a plan counts", bytes);
        attn_run_count(p, memory, &needs, &enough);
        options_release(o, memory);
        if (enough) {
            p->needs = needs;
            return ATTN_OK;
        }
        for (int kind = 0; kind < ATTN_NODE_KINDS; kind++) p->needs.slots[kind] *= 2;
        p->needs.requests *= 2;
    }
}

/* All but what concerns the other ranks. */
static attn_status plan_alone(attn_distributed_plan *p, const attn_problem *problem, const attn_tensors *tensors,
                              const attn_split *caller, const attn_options *options, attn_error *error)
{
    attn_cells *c = &p->cells;
    attn_split split;
    CHECK(problem, ATTN_ERR_ARGUMENT, "problem is NULL");
    CHECK(tensors, ATTN_ERR_ARGUMENT, "tensors is NULL");
    TRY(struct_read(&c->problem, sizeof c->problem, sizeof c->problem, problem, "attn_problem", error));
    TRY(slots_read(&c->planned, sizeof c->planned, sizeof c->planned, tensors, "attn_tensors", error));
    TRY(attn_bounds_read_call(&c->call, &c->planned, error));
    c->planned.call = &c->call;
    TRY(attn_split_read(&split, caller, error));
    const attn_shape *s = &c->problem.shape;
    TRY(attn_index_check(s, error));
    p->numbers = options_acquire(&c->options, attn_index_bytes(s->batch));
    CHECK(p->numbers, ATTN_ERR_MEMORY, "cannot allocate the %zu bytes of lengths", attn_index_bytes(s->batch));
    TRY(attn_index_read(&c->index, &c->planned, &c->problem, p->numbers, error));
    c->problem.mask.align = ATTN_ALIGN_TOP_LEFT;
    const attn_range tokens = attn_index_tokens(&c->index, &c->problem); /* of queries, of keys */
    TRY(attn_split_check(&split, tokens.first, ATTN_AXIS_QUERY, "the number of queries", error));
    TRY(attn_split_check(&split, tokens.end, ATTN_AXIS_KEY, "the number of keys", error));
    const int64_t longest = tokens.first > tokens.end ? tokens.first : tokens.end;
    if (split.part > longest && longest > 0) split.part = longest;
    p->way = split.way == ATTN_WAY_AUTO ? ATTN_WAY_DIRECT : split.way;
    const size_t grid = attn_grid_bytes(tokens, split.part);
    const int64_t all_q = tokens.first / split.part + 1, all_kv = tokens.end / split.part + 1;
    const size_t lists = (size_t)(all_q + all_kv + p->ranks) * sizeof(int64_t);
    p->memory = options_acquire(&c->options, grid + lists);
    CHECK(p->memory, ATTN_ERR_MEMORY, "cannot allocate the %zu bytes of a plan", grid + lists);
    TRY(attn_grid_fill(&c->grid, p->memory, tokens, &c->problem, &c->index, &split, p->ranks, error));
    if (c->index.starts_q) {
        c->documents = s->batch;
        c->problem.shape.batch = 1;
    }
    p->own.q = (int64_t *)(void *)((char *)p->memory + grid);
    p->own.kv = p->own.q + all_q;
    list_parts(&c->grid.q, p->me, p->own.q, &p->own.count_q);
    list_parts(&c->grid.kv, p->me, p->own.kv, &p->own.count_kv);
    count_cells(p, p->own.kv + all_kv);
    TRY(attn_bounds_fill(&c->bounds, &c->problem, &c->planned, split.part, attn_parts_tokens(&c->grid.q, p->me),
                         attn_parts_tokens(&c->grid.kv, p->me), options, error));
    TRY(attn_cells_plan(c, p->me, &p->own, error));
    TRY(find_needs(p, error));
    p->needs.messages += attn_agree_messages(&p->transport);
    p->needs.bytes += attn_agree_messages(&p->transport) * (int64_t)attn_agree_bytes();
    TRY(attn_run_fits(p, error));
    p->workspace = attn_run_bytes(p, 0);
    return ATTN_OK;
}

/* Of all that must be the same on all ranks. */
static uint64_t digest_of(const attn_distributed_plan *p)
{
    const attn_problem *x = &p->cells.problem;
    const attn_grid *g = &p->cells.grid;
    const attn_mask *m = &x->mask;
    const attn_score *s = &x->score;
    const int64_t batch = p->cells.documents ? p->cells.documents : x->shape.batch;
    attn_digest d = {0xcbf29ce484222325u};
    const int64_t whole[] = {p->ranks,          p->way,          x->op,
                             m->causal,         m->window,       m->empty,
                             m->window_left,    m->window_right, m->chunk,
                             m->dilation,       m->global_q,     m->global_kv,
                             m->block_q,        m->block_kv,     m->block_entries,
                             m->least_distance, s->kind,         s->scale_kind,
                             s->dim_k,          s->dim_metric,   s->additive_bias,
                             s->normaliser,     g->q.part,       p->cells.bounds.compute};
    const double real[] = {s->scale, s->temperature, s->softcap, s->shift, x->dropout.probability};
    attn_digest_add(&d, &x->shape, sizeof x->shape);
    attn_digest_add(&d, whole, sizeof whole);
    for (size_t n = 0; n < sizeof real / sizeof *real; n++) attn_digest_real(&d, real[n]);
    attn_digest_number(&d, x->bias_table.kind), attn_digest_number(&d, x->bias_table.max_distance);
    attn_digest_number(&d, x->relative.first), attn_digest_number(&d, x->relative.rows);
    attn_digest_add(&d, g->q.owner, (size_t)g->q.count * sizeof *g->q.owner);
    attn_digest_add(&d, g->kv.owner, (size_t)g->kv.count * sizeof *g->kv.owner);
    const attn_grid_index *index = &p->cells.index;
    const int64_t *const lists[] = {index->lengths_q, index->lengths_kv, index->offset_q, index->starts_q, index->starts_kv};
    for (int n = 0; n < 5; n++) {
        attn_digest_number(&d, lists[n] != NULL);
        if (lists[n]) attn_digest_add(&d, lists[n], (size_t)(batch + (n > 2)) * sizeof(int64_t));
    }
    for (int n = 0; n < p->cells.bounds.count; n++) {
        const attn_bound *b = &p->cells.bounds.all[n];
        attn_digest_number(&d, b->index);
        if (b->spread == ATTN_SPREAD_KEYS) attn_digest_number(&d, b->dtype);
    }
    attn_options resolved = {.struct_size = sizeof resolved};
    const attn_options *o = &p->cells.options;
    if (!o->reproducible && attn_options_resolve(o, &resolved, NULL) == ATTN_OK) attn_digest_number(&d, resolved.isa);
    attn_digest_number(&d, o->reproducible), attn_digest_number(&d, o->invariant);
    return d.value;
}

attn_status attn_distributed_plan_create(attn_distributed_plan **plan, const attn_problem *problem, const attn_tensors *tensors,
                                         const attn_split *split, const attn_transport *transport, const attn_options *options,
                                         attn_error *error)
{
    attn_options o;
    attn_transport t;
    attn_error rejected = {.status = ATTN_OK};
    CHECK(plan, ATTN_ERR_ARGUMENT, "plan is NULL");
    *plan = NULL;
    TRY(read_transport(&t, transport, error));
    attn_status status = options_read(&o, options, &rejected);
    attn_distributed_plan *p = NULL;
    if (status == ATTN_OK) {
        p = options_acquire(&o, sizeof *p);
        if (!p) status = fail(&rejected, ATTN_ERR_MEMORY, "cannot allocate the %zu bytes of a plan", sizeof *p);
    }
    if (p) {
        *p = (attn_distributed_plan){.transport = t, .me = t.rank, .ranks = t.ranks, .cells.options = o};
        status = plan_alone(p, problem, tensors, split, options, &rejected);
    }
    if (t.ranks > 1)
        status = attn_agree(&t, status, status == ATTN_OK ? digest_of(p) : 0,
                            "distributed: ranks disagree about the problem, the split or the instruction set", &rejected);
    if (status != ATTN_OK) {
        attn_distributed_plan_destroy(p);
        if (error) *error = rejected;
        return status;
    }
    *plan = p;
    return succeed(error);
}

void attn_distributed_plan_destroy(attn_distributed_plan *p)
{
    if (!p) return;
    const attn_options o = p->cells.options;
    attn_cells_free(&p->cells);
    options_release(&o, p->memory);
    options_release(&o, p->numbers);
    options_release(&o, p);
}

/* ---- executing and describing ---- */

size_t attn_distributed_workspace_size(const attn_distributed_plan *plan) { return plan->workspace; }

/* What an execution was given, in copies: the tensors have the call. */
typedef struct given {
    attn_tensors tensors;
    attn_call call;
} given;

static attn_status check_call(const attn_distributed_plan *p, const attn_tensors *tensors, given *copy, const void *workspace,
                              size_t size, attn_error *error)
{
    CHECK(tensors, ATTN_ERR_ARGUMENT, "tensors is NULL");
    TRY(slots_read(&copy->tensors, sizeof copy->tensors, sizeof copy->tensors, tensors, "attn_tensors", error));
    TRY(attn_bounds_read_call(&copy->call, &copy->tensors, error));
    copy->tensors.call = &copy->call;
    TRY(attn_bounds_check_call(&p->cells.call, &copy->call, error));
    TRY(attn_bounds_check(&p->cells.bounds, &p->cells.planned, &copy->tensors, error));
    CHECK(size >= p->workspace, ATTN_ERR_MEMORY, "workspace_size is %zu; this plan needs %zu", size, p->workspace);
    CHECK(workspace, ATTN_ERR_ARGUMENT, "workspace is NULL");
    return ATTN_OK;
}

attn_status attn_distributed_execute(const attn_distributed_plan *plan, const attn_tensors *tensors, void *workspace,
                                     size_t workspace_size, attn_error *error)
{
    given mine = {.call.dropout_seed = 0};
    attn_error rejected = {.status = ATTN_OK};
    CHECK(plan, ATTN_ERR_ARGUMENT, "plan is NULL");
    attn_status status = check_call(plan, tensors, &mine, workspace, workspace_size, &rejected);
    attn_digest dropout = {0xcbf29ce484222325u};
    attn_digest_add(&dropout, &mine.call.dropout_seed, sizeof mine.call.dropout_seed);
    attn_digest_number(&dropout, mine.call.dropout_offset);
    if (plan->ranks > 1)
        status = attn_agree(&plan->transport, status, dropout.value,
                            "distributed: ranks disagree about call.dropout_seed or dropout_offset", &rejected);
    if (status == ATTN_OK) status = attn_run(plan, &mine.tensors, workspace, &rejected);
    if (error) *error = rejected;
    return status == ATTN_OK ? succeed(error) : status;
}

attn_status attn_distributed_describe(const attn_distributed_plan *plan, attn_distributed_description *description,
                                      attn_error *error)
{
    CHECK(plan, ATTN_ERR_ARGUMENT, "plan is NULL");
    CHECK(description, ATTN_ERR_ARGUMENT, "description is NULL");
    const attn_grid *g = &plan->cells.grid;
    const attn_distributed_description d = {.struct_size = sizeof d,
                                            .parts_q = g->q.count,
                                            .parts_kv = g->kv.count,
                                            .queries = attn_parts_tokens(&g->q, plan->me),
                                            .keys = attn_parts_tokens(&g->kv, plan->me),
                                            .cells = plan->needs.cells,
                                            .cells_most = plan->cells_most,
                                            .cells_total = plan->cells_total,
                                            .messages = plan->needs.messages,
                                            .bytes = plan->needs.bytes,
                                            .row_nodes = plan->needs.slots[ATTN_NODE_ROW],
                                            .column_nodes = plan->needs.slots[ATTN_NODE_COLUMN],
                                            .workspace_bytes = plan->workspace,
                                            .way = plan->way,
                                            .ranks = plan->ranks};
    TRY(struct_write(description, &d, sizeof d, "attn_distributed_description", error));
    return succeed(error);
}
