/* SPDX-License-Identifier: MIT
 * distributed.c - the public functions: planning, executing, describing. */
#include "attn/distributed.h"

#include "../common/options.h"
#include "agree.h"
#include "choose.h"
#include "heads.h"
#include "index.h"
#include "link.h"
#include "origin.h"
#include "runs.h"
#include "split.h"
#include "weights.h"

/* ---- planning ---- */

/* All but what concerns the other ranks. */
static attn_status plan_alone(attn_distributed_plan *p, const attn_problem *problem, const attn_tensors *tensors,
                              const attn_split *caller, attn_error *error)
{
    attn_cells *c = &p->cells;
    attn_split split;
    attn_range tokens; /* of queries, of keys */
    CHECK(problem, ATTN_ERR_ARGUMENT, "problem is NULL");
    CHECK(tensors, ATTN_ERR_ARGUMENT, "tensors is NULL");
    TRY(struct_read(&c->problem, sizeof c->problem, sizeof c->problem, problem, "attn_problem", error));
    TRY(slots_read(&c->planned, sizeof c->planned, sizeof c->planned, tensors, "attn_tensors", error));
    TRY(attn_bounds_read_call(&c->call, &c->planned, error));
    TRY(attn_bounds_check_call(&c->call, &c->call, c->problem.op, error));
    c->planned.call = &c->call;
    TRY(attn_split_read(&split, caller, error));
    TRY(attn_machine_read(&p->machine, split.machine, error));
    const attn_shape *s = &c->problem.shape;
    TRY(attn_index_check(s, error));
    TRY(attn_origin_read(c, error));
    p->numbers = options_acquire(&c->options, attn_index_bytes(s->batch));
    CHECK(p->numbers, ATTN_ERR_MEMORY, "cannot allocate the %zu bytes of lengths", attn_index_bytes(s->batch));
    TRY(attn_index_begin(&c->index, &c->planned, &c->problem, p->numbers, &split, &tokens, error));
    p->way = split.way;
    c->keys_stay = p->way == ATTN_WAY_SPLIT_KEYS;
    c->any_order = split.any_order != 0;
    TRY(attn_split_check_op(&split, c->problem.op, error));
    TRY(attn_split_members(&split, s->heads_kv, p->ranks, &p->members, error));
    const size_t grid = attn_grid_bytes(tokens, split.part, p->ranks);
    p->memory = options_acquire(&c->options, grid);
    CHECK(p->memory, ATTN_ERR_MEMORY, "cannot allocate the %zu bytes of a plan", grid);
    TRY(attn_grid_fill(&c->grid, p->memory, tokens, &c->problem, &c->index, &split, p->ranks, error));
    p->queries = c->keys_stay ? tokens.first : attn_parts_tokens(&c->grid.q, p->me);
    p->keys = attn_parts_tokens(&c->grid.kv, p->me);
    attn_options any = c->options;
    any.workspace_limit = 0; /* a cell may have fewer heads */
    TRY(attn_bounds_fill(&c->bounds, &c->problem, &c->planned, split.part, p->queries, p->keys, &any, error));
    TRY(attn_slices_divide(&c->bounds, &c->problem, tokens, &split, &p->divided, error));
    TRY(attn_weights_check(c, error));
    if (c->index.starts_q) {
        c->documents = s->batch;
        c->problem.shape.batch = 1;
    }
    return attn_cells_lay_out(c, error);
}

/* Plans the way that p->choice is.  The messages of each execution are those of the run, and agreements. */
static attn_status plan_choice(attn_distributed_plan *p, uint64_t shared, attn_error *error)
{
    const size_t limit = p->cells.options.workspace_limit;
    const int agreements = 2 * attn_agree_messages(&p->transport); /* before and after the run */
    p->way = p->choice.way, p->members = p->choice.members;
    p->cells_most = p->cells_total = p->most_kv = 0;
    TRY(p->members > 1 ? attn_heads_plan(p, shared, error) : attn_runs_plan(p, error));
    p->needs.messages += agreements;
    p->needs.bytes += agreements * (int64_t)sizeof(attn_verdict);
    CHECK(!limit || p->workspace <= limit, ATTN_ERR_MEMORY,
          "distributed: the workspace takes %zu bytes and options.workspace_limit is %zu; smaller parts take less", p->workspace,
          limit);
    return ATTN_OK;
}

enum { NEVER_DIVIDED = 63 }; /* the bit beside those of attn_slices_shared that a rank sets whose heads cannot be divided */

/* bits: what ranks have said of their tensors. */
static attn_status choose(attn_distributed_plan *p, uint64_t bits, attn_error *error)
{
    attn_cells cells = p->cells;
    attn_error differ;
    const int may = p->way == ATTN_WAY_AUTO || p->members > 1,
              divided = may && !(bits >> NEVER_DIVIDED) && attn_slices_share(&cells, bits, &differ) == ATTN_OK;
    return attn_choose(&p->choice, divided ? &cells : &p->cells, p->way, p->members, p->ranks, divided, &p->machine, error);
}

/* What a rank says of its choice: that direct is left, and that there is none. */
enum { MAY_GO_DIRECTLY = 1, CHOOSES_NOTHING = 2 };

/* As plan_choice, with all ranks: if one of them cannot plan the way that was chosen, all of them plan direct.  If one of them
 * cannot choose, all of them fail: they would not know what was chosen. */
static attn_status plan_together(attn_distributed_plan *p, uint64_t shared, attn_error *error)
{
    const int is_auto = p->way == ATTN_WAY_AUTO;
    const attn_cells cells = p->cells;
    attn_asking what = {.differs = "distributed: ranks do not predict the same; their seconds are rounded differently"};
    attn_status status = choose(p, shared, error);
    what.bits = status != ATTN_OK ? CHOOSES_NOTHING : is_auto && p->choice.way != ATTN_WAY_DIRECT ? MAY_GO_DIRECTLY : 0;
    if (status == ATTN_OK) status = plan_choice(p, shared & ~(UINT64_C(1) << NEVER_DIVIDED), error);
    what.asked = ((uint64_t)p->choice.way << 32) + (uint64_t)p->choice.members;
    status = attn_agree(&p->transport, status, &what, error);
    if (status == ATTN_OK || status == ATTN_ERR_IO || what.bits != MAY_GO_DIRECTLY) return status;
    const attn_error failed = *error;
    attn_heads_free(p->heads, &cells.options);
    attn_runs_free(p);
    p->heads = NULL, p->runs = NULL, p->head = NULL, p->lists = NULL;
    p->cells = cells;
    status = attn_choose_instead(&p->choice, &p->cells, p->ranks, &p->machine, &failed, error);
    if (status == ATTN_OK) status = plan_choice(p, 0, error);
    return attn_agree(&p->transport, status, &(attn_asking){.asked = 0}, error);
}

static void add_index(attn_digest *d, const attn_grid_index *x)
{
    const int64_t *const lists[] = {x->lengths_q, x->lengths_kv, x->offset_q, x->starts_q, x->starts_kv};
    attn_digest_number(d, x->entries);
    for (int n = 0; n < 5; n++) {
        attn_digest_number(d, lists[n] != NULL);
        if (lists[n]) attn_digest_add(d, lists[n], (size_t)(x->entries + (n > 2)) * sizeof(int64_t));
    }
}

/* How outputs are computed that there are. */
static void add_outputs(attn_digest *d, const attn_tensors *t, const attn_outputs *o)
{
    attn_digest_number(d, t->weights.data || t->scores.data ? o->after_dropout : 0);
    attn_digest_number(d, t->scores.data ? (int64_t)o->scores_stage : 0);
    attn_digest_number(d, t->column_sum.data ? (int64_t)o->column_heads : 0);
    attn_digest_number(d, t->column_sum.data ? o->column_queries : 0);
}

/* Of all that must be the same on all ranks.  (The structs that are added as bytes have no padding.) */
static uint64_t digest_of(const attn_distributed_plan *p)
{
    const attn_cells *c = &p->cells;
    const attn_problem *x = &c->problem;
    const attn_bias_table *table = &x->bias_table;
    attn_options resolved = {.struct_size = sizeof resolved};
    const attn_options *o = &c->options;
    attn_digest d = attn_digest_begin();
    const int64_t numbers[] = {p->ranks,
                               p->way, /* that was asked for, unless it needs no more than this agreement */
                               p->members,
                               c->any_order,
                               x->op,
                               x->outputs.topk,
                               table->kind,
                               table->buckets,
                               table->max_distance,
                               table->causal,
                               c->grid.q.part,
                               c->bounds.compute,
                               c->call.modify_scores != NULL,
                               c->call.modify_slopes != NULL,
                               o->reproducible,
                               o->invariant,
                               (int64_t)attn_message_bytes(c, attn_part_most(&c->grid.kv))};
    attn_digest_add(&d, numbers, sizeof numbers);
    attn_digest_add(&d, &x->shape, sizeof x->shape);
    attn_digest_add(&d, &x->score, sizeof x->score);
    attn_digest_add(&d, &x->mask, sizeof x->mask);
    attn_digest_add(&d, &x->dropout, sizeof x->dropout);
    attn_digest_add(&d, &x->relative, sizeof x->relative);
    attn_digest_add(&d, &p->machine, sizeof p->machine);
    attn_digest_add(&d, &c->origin, sizeof c->origin);
    attn_digest_add(&d, c->grid.q.owner, (size_t)c->grid.q.count * sizeof *c->grid.q.owner);
    attn_digest_add(&d, c->grid.kv.owner, (size_t)c->grid.kv.count * sizeof *c->grid.kv.owner);
    add_index(&d, &c->index);
    add_outputs(&d, &c->planned, &x->outputs);
    for (const attn_bound *b = c->bounds.all; b < c->bounds.all + c->bounds.count; b++) {
        attn_digest_number(&d, b->index), attn_digest_number(&d, b->dtype), attn_digest_number(&d, b->spread);
        if (b->spread == ATTN_SPREAD_SAME) attn_digest_add(&d, b->shape, sizeof b->shape);
    }
    attn_digest_add(&d, c->node, sizeof c->node);
    if (!o->reproducible && attn_options_resolve(o, &resolved, NULL) == ATTN_OK) attn_digest_number(&d, resolved.isa);
    return d.value;
}

/* 1 if the plan depends on what other ranks say of their tensors. */
static int needs_others(const attn_distributed_plan *p) { return p->ranks > 1 && (p->way == ATTN_WAY_AUTO || p->members > 1); }

/* Plans on this rank; *plan is set if there is anything to destroy, also after a failure. */
static attn_status plan_here(attn_distributed_plan **plan, const attn_problem *problem, const attn_tensors *tensors,
                             const attn_split *split, const attn_transport *transport, const attn_options *options,
                             attn_error *error)
{
    attn_options o;
    TRY(attn_transport_check(transport, error));
    TRY(options_read(&o, options, error));
    attn_distributed_plan *p = options_acquire(&o, sizeof *p);
    CHECK(p, ATTN_ERR_MEMORY, "cannot allocate the %zu bytes of a plan", sizeof *p);
    *p = (attn_distributed_plan){
        .transport = *transport, .me = transport->rank, .ranks = transport->ranks, .apart = 1, .cells.options = o};
    *plan = p;
    TRY(plan_alone(p, problem, tensors, split, error));
    if (needs_others(p)) return ATTN_OK;
    TRY(choose(p, 0, error));
    return plan_choice(p, 0, error);
}

attn_status attn_distributed_plan_create(attn_distributed_plan **plan, const attn_problem *problem, const attn_tensors *tensors,
                                         const attn_split *split, const attn_transport *transport, const attn_options *options,
                                         attn_error *error)
{
    attn_transport t;
    attn_error rejected = {.status = ATTN_OK};
    attn_distributed_plan *p = NULL;
    if (plan) *plan = NULL;
    TRY(attn_transport_read(&t, transport, error));
    attn_status status =
        plan ? plan_here(&p, problem, tensors, split, &t, options, &rejected) : fail(&rejected, ATTN_ERR_ARGUMENT, "plan is NULL");
    if (t.ranks > 1) {
        attn_asking what = {.differs = "distributed: ranks disagree about the problem, the split or the instruction set"};
        if (status == ATTN_OK) {
            what.asked = digest_of(p);
            what.bits = attn_slices_shared(&p->cells) | (uint64_t)!p->divided << NEVER_DIVIDED;
        }
        status = attn_agree(&t, status, &what, &rejected);
        if (p && status == ATTN_OK && needs_others(p)) status = plan_together(p, what.bits, &rejected);
    }
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
    attn_heads_free(p->heads, &o);
    attn_runs_free(p);
    options_release(&o, p->memory);
    options_release(&o, p->numbers);
    options_release(&o, p);
}

/* ---- executing and describing ---- */

size_t attn_distributed_workspace_size(const attn_distributed_plan *plan) { return plan ? plan->workspace : 0; }

/* What an execution was given, in copies: the tensors have the call. */
typedef struct given {
    attn_tensors tensors;
    attn_call call;
} given;

static attn_status check_call(const attn_distributed_plan *p, const attn_tensors *tensors, given *copy, void *workspace,
                              size_t size, attn_error *error)
{
    CHECK(tensors, ATTN_ERR_ARGUMENT, "tensors is NULL");
    TRY(slots_read(&copy->tensors, sizeof copy->tensors, sizeof copy->tensors, tensors, "attn_tensors", error));
    TRY(attn_bounds_read_call(&copy->call, &copy->tensors, error));
    copy->tensors.call = &copy->call;
    TRY(attn_bounds_check_call(&p->cells.call, &copy->call, p->cells.problem.op, error));
    TRY(attn_origin_check(&p->cells, &copy->call, error));
    copy->call.origin = p->cells.call.origin;
    CHECK(size >= p->workspace, ATTN_ERR_MEMORY, "workspace_size is %zu; this plan needs %zu", size, p->workspace);
    CHECK(workspace, ATTN_ERR_ARGUMENT, "workspace is NULL");
    const attn_scratch scratch = {workspace, p->workspace};
    return attn_bounds_check(&p->cells.bounds, &p->cells.planned, &copy->tensors, scratch, error);
}

attn_status attn_distributed_execute(const attn_distributed_plan *plan, const attn_tensors *tensors, void *workspace,
                                     size_t workspace_size, attn_error *error)
{
    given mine = {.call.dropout_seed = 0};
    attn_error rejected = {.status = ATTN_OK};
    CHECK(plan, ATTN_ERR_ARGUMENT, "plan is NULL");
    attn_status status = check_call(plan, tensors, &mine, workspace, workspace_size, &rejected);
    attn_digest dropout = attn_digest_begin();
    attn_digest_add(&dropout, &mine.call.dropout_seed, sizeof mine.call.dropout_seed);
    attn_digest_number(&dropout, mine.call.dropout_offset);
    if (plan->ranks > 1)
        status = attn_agree(&plan->transport, status,
                            &(attn_asking){.asked = dropout.value,
                                           .differs = "distributed: ranks disagree about call.dropout_seed or dropout_offset"},
                            &rejected);
    if (status == ATTN_OK) {
        status = plan->heads ? attn_heads_run(plan, &mine.tensors, workspace, &rejected)
                             : attn_runs_execute(plan, &mine.tensors, workspace, &rejected);
        if (plan->ranks > 1 && status != ATTN_ERR_IO)
            status = attn_agree(&plan->transport, status, &(attn_asking){.asked = 0}, &rejected);
    }
    if (error) *error = rejected;
    return status == ATTN_OK ? succeed(error) : status;
}

attn_status attn_distributed_describe(const attn_distributed_plan *plan, attn_distributed_description *description,
                                      attn_error *error)
{
    CHECK(plan, ATTN_ERR_ARGUMENT, "plan is NULL");
    CHECK(description, ATTN_ERR_ARGUMENT, "description is NULL");
    const attn_grid *g = &plan->cells.grid;
    attn_distributed_description d = {.struct_size = sizeof d,
                                      .parts_q = g->q.count,
                                      .parts_kv = g->kv.count,
                                      .queries = plan->queries,
                                      .keys = plan->keys,
                                      .cells = plan->needs.cells,
                                      .cells_most = plan->cells_most,
                                      .cells_total = plan->cells_total,
                                      .messages = plan->needs.messages,
                                      .bytes = plan->needs.bytes,
                                      .row_nodes = plan->needs.slots[ATTN_NODE_ROW],
                                      .column_nodes = plan->needs.slots[ATTN_NODE_COLUMN],
                                      .shared_nodes = plan->needs.slots[ATTN_NODE_SHARED],
                                      .workspace_bytes = plan->workspace,
                                      .way = plan->way,
                                      .ranks = plan->ranks,
                                      .ranks_heads = plan->members,
                                      .seconds = plan->choice.predicted.seconds};
    memcpy(d.why, plan->choice.predicted.why, sizeof d.why);
    TRY(struct_write(description, &d, sizeof d, "attn_distributed_description", error));
    return succeed(error);
}
