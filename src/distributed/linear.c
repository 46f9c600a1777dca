/* SPDX-License-Identifier: MIT
 * linear.c - the public functions of attn/distributed_linear.h. */
#include "../common/options.h"
#include "../common/overlap.h"
#include "agree.h"
#include "grid.h"
#include "linear_run.h"
#include "link.h"
#include "split.h"

#define MODULE "distributed"

/* ---- planning ---- */

static attn_status check_split(const attn_split *split, const attn_linear_problem *problem, attn_error *error)
{
    const attn_shape *s = &problem->shape;
    CHECK(split->layout == ATTN_LAYOUT_CONTIGUOUS, ATTN_ERR_UNSUPPORTED,
          MODULE ": split.layout is %d; linear attention has 0 (contiguous) only, since states move from rank to rank",
          (int)split->layout);
    CHECK(!split->any_order, ATTN_ERR_UNSUPPORTED, MODULE ": split.any_order is 1; linear attention adds along the tokens");
    CHECK(split->way <= ATTN_WAY_DIRECT, ATTN_ERR_UNSUPPORTED,
          MODULE ": split.way is %d; linear attention has 0 (auto), 1 (ring: a chain) and 2 (direct: a scan)", (int)split->way);
    TRY(attn_split_check(split, s->len_q, ATTN_AXIS_QUERY, "len_q", error));
    TRY(attn_split_check(split, s->len_kv, ATTN_AXIS_KEY, "len_kv", error));
    CHECK(!problem->causal || s->len_q == s->len_kv, ATTN_ERR_SHAPE,
          "causal needs len_q (%" PRId64 ") equal to len_kv (%" PRId64 ")", s->len_q, s->len_kv);
    return ATTN_OK;
}

static attn_input *slot_at(attn_linear_tensors *t, size_t offset) { return (attn_input *)(void *)((char *)t + offset); }

/* The rank's tokens as one problem, whose plan knows its tensors. */
static attn_status plan_own(attn_distributed_linear_plan *p, attn_error *error)
{
    attn_linear_passes *x = &p->passes;
    attn_linear_problem own = x->problem;
    own.shape.len_q = x->q.tokens;
    own.shape.len_kv = x->kv.tokens;
    attn_options options = x->options;
    options.workspace_limit = 0; /* it does not run */
    for (int n = 0; n < ATTN_LINEAR_BOUNDS; n++) {
        attn_linear_bound *b = &x->bound[n];
        b->about.struct_size = sizeof b->about;
        TRY(attn_tensor_describe(ATTN_FAMILY_LINEAR, n, &b->about, error));
    }
    TRY(attn_linear_plan_create(&p->own, &own, &x->planned, &options, error));
    for (int n = 0; n < ATTN_LINEAR_BOUNDS; n++) {
        attn_linear_bound *b = &x->bound[n];
        b->plan.struct_size = sizeof b->plan;
        TRY(attn_linear_plan_tensor(p->own, n, &b->plan, error));
        attn_input *slot = slot_at(&x->planned, b->about.offset);
        if (slot->data) slot->data = ATTN_LATER;
    }
    return ATTN_OK;
}

/* The number nearest to `chunk` that divides `part`, from half of it to twice of it; a small part itself; `chunk` if none does. */
static int64_t fitting_chunk(int64_t chunk, int64_t part)
{
    if (part < chunk) return part;
    for (int64_t distance = 0; distance <= chunk; distance++) {
        if (part % (chunk + distance) == 0) return chunk + distance;
        if (2 * distance <= chunk && distance < chunk && part % (chunk - distance) == 0) return chunk - distance;
    }
    return chunk;
}

/* The form and chunk that the library chooses for the whole: of its lengths only those of few tokens matter. */
static attn_status choose_form(attn_distributed_linear_plan *p, attn_error *error)
{
    enum { ENOUGH = 1 << 12 };
    attn_linear_passes *x = &p->passes;
    attn_linear_problem like = x->problem;
    attn_linear_tensors dense = {.struct_size = sizeof dense};
    attn_linear_plan_description d = {.struct_size = sizeof d};
    attn_linear_plan *plan;
    const int64_t longest = attn_max(x->q.tokens_total, x->kv.tokens_total);
    like.shape.len_q = attn_min(like.shape.len_q, ENOUGH);
    like.shape.len_kv = attn_min(like.shape.len_kv, ENOUGH);
    like.shape.batch = attn_min(like.shape.batch, 1);
    for (int n = 0; n < ATTN_LINEAR_BOUNDS; n++) {
        const attn_linear_bound *b = &x->bound[n];
        if (b->plan.role != ATTN_ROLE_NONE)
            *slot_at(&dense, b->about.offset) = (attn_input){ATTN_LATER, b->plan.dtype, {0, 0, 0, 0}};
    }
    attn_options options = x->options;
    options.workspace_limit = 0;
    TRY(attn_linear_plan_create(&plan, &like, &dense, &options, error));
    const attn_status status = attn_linear_plan_describe(plan, &d, error);
    attn_linear_plan_destroy(plan);
    if (status != ATTN_OK) return status;
    const int64_t given = x->problem.chunk;
    x->problem.form = d.form;
    x->problem.chunk = given;
    p->isa = d.isa;
    x->compute = d.compute;
    x->dim_features = d.dim_features;
    if (d.form == ATTN_LINEAR_FORM_QUADRATIC) {
        x->problem.form = ATTN_LINEAR_FORM_CHUNKED;
        x->problem.chunk = x->part;
    } else if (d.form == ATTN_LINEAR_FORM_CHUNKED && !given) {
        x->problem.chunk = longest > x->part ? fitting_chunk(d.chunk, x->part) : d.chunk;
    }
    if (x->problem.chunk > 0) x->problem.chunk = attn_max(1, attn_min(x->problem.chunk, longest));
    return ATTN_OK;
}

static attn_status size_states(attn_linear_passes *x, attn_error *error)
{
    const attn_shape *s = &x->problem.shape;
    const int64_t size = (int64_t)attn_dtype_size(x->compute);
    const int64_t whole[] = {s->batch, s->heads_kv, x->dim_features, s->dim_v + 1};
    x->normalised = x->problem.denominator != ATTN_DENOMINATOR_NONE;
    const int has_decay = attn_linear_bound_at(x, offsetof(attn_linear_tensors, decay))->plan.role != ATTN_ROLE_NONE;
    x->map_width = x->problem.rule != ATTN_LINEAR_RULE_ADD ? x->dim_features : has_decay ? 1 : 0;
    const int64_t maps[] = {s->batch, s->heads_kv, x->dim_features, x->map_width};
    CHECK(!x->scans || sizes_fit(4 * size, maps, 4), ATTN_ERR_SHAPE,
          MODULE ": the maps of a scan are too large: their bytes overflow 64 bits");
    CHECK(s->dim_v < INT64_MAX && sizes_fit(4 * size, whole, 4), ATTN_ERR_SHAPE,
          MODULE ": the states are too large: their bytes overflow 64 bits");
    const int64_t states[] = {x->entries, x->heads, x->dim_features, s->dim_v}, sums[] = {x->entries, x->heads, x->dim_features};
    x->state = (size_t)(sizes_product(states, 4) * size);
    x->sum = x->normalised ? (size_t)(sizes_product(sums, 3) * size) : 0;
    x->group = x->state + x->sum;
    return ATTN_OK;
}

/* What is left of a limit when memory of this module is taken off. */
static attn_status limit_calls(attn_distributed_linear_plan *p, attn_error *error)
{
    attn_linear_memory m;
    const size_t limit = p->passes.options.workspace_limit, least = attn_linear_divide(p, NULL, &m);
    CHECK(!limit || least + 64 <= limit, ATTN_ERR_MEMORY,
          MODULE ": states take %zu bytes of the workspace and options.workspace_limit is %zu", least, limit);
    if (limit) p->passes.options.workspace_limit = (limit - least) / 64 * 64;
    return ATTN_OK;
}

/* What only one process serves. */
static attn_status check_whole(const attn_linear_passes *x, attn_error *error)
{
    const attn_linear_tensors *t = &x->planned;
    const attn_dtype q = t->q.dtype, compute = q == ATTN_F64 ? ATTN_F64 : ATTN_F32,
                     types[] = {t->initial_state.dtype, t->final_state.dtype};
    CHECK(!t->cu_seqlens.data, ATTN_ERR_UNSUPPORTED,
          MODULE ": cu_seqlens is set; ragged batches are not divided, batches with lengths are");
    CHECK(!t->initial_slots.data && !t->final_slots.data, ATTN_ERR_UNSUPPORTED,
          MODULE ": %s is set; states travel between ranks and are in no pool",
          t->initial_slots.data ? "initial_slots" : "final_slots");
    for (int i = 0; i < 2; i++)
        CHECK(types[i] == ATTN_DTYPE_DEFAULT || types[i] == compute || types[i] > ATTN_U64 || q > ATTN_U64, ATTN_ERR_UNSUPPORTED,
              MODULE ": %s is %s; states that travel between ranks are %s", i ? "final_state" : "initial_state",
              attn_dtype_name(types[i]), attn_dtype_name(compute));
    return ATTN_OK;
}

static attn_status plan_alone(attn_distributed_linear_plan *p, const attn_linear_problem *problem,
                              const attn_linear_tensors *tensors, const attn_split *caller, attn_error *error)
{
    attn_linear_passes *x = &p->passes;
    attn_split split;
    CHECK(problem, ATTN_ERR_ARGUMENT, "problem is NULL");
    CHECK(tensors, ATTN_ERR_ARGUMENT, "tensors is NULL");
    TRY(struct_read(&x->problem, sizeof x->problem, sizeof x->problem, problem, "attn_linear_problem", error));
    TRY(slots_read(&x->planned, sizeof x->planned, sizeof x->planned, tensors, "attn_linear_tensors", error));
    TRY(check_whole(x, error));
    TRY(attn_split_read(&split, caller, error));
    TRY(check_split(&split, &x->problem, error));
    x->part = split.part;
    x->scans = split.way == ATTN_WAY_DIRECT;
    x->q = attn_stretch_of(x->problem.shape.len_q, x->part, p->me, p->ranks);
    x->kv = attn_stretch_of(x->problem.shape.len_kv, x->part, p->me, p->ranks);
    TRY(plan_own(p, error));
    TRY(choose_form(p, error));
    attn_linear_passes_divide(x, p->ranks);
    TRY(size_states(x, error));
    p->needs = attn_linear_count(p);
    CHECK(attn_linear_fits(p), ATTN_ERR_SHAPE, MODULE ": the workspace of a plan is too large: its bytes overflow 64 bits");
    TRY(limit_calls(p, error));
    TRY(attn_linear_passes_plan(x, error));
    CHECK(attn_linear_fits(p), ATTN_ERR_SHAPE, MODULE ": the workspace of a plan is too large: its bytes overflow 64 bits");
    const int agreements = 2 * attn_agree_messages(&p->transport); /* before and after the run */
    p->needs.messages += agreements;
    p->needs.bytes += agreements * (int64_t)sizeof(attn_verdict);
    attn_linear_memory m;
    p->workspace = attn_linear_divide(p, NULL, &m);
    return ATTN_OK;
}

/* Of all that must be the same on all ranks. */
static uint64_t digest_of(const attn_distributed_linear_plan *p)
{
    const attn_linear_passes *x = &p->passes;
    const attn_linear_problem *q = &x->problem;
    attn_digest d = attn_digest_begin();
    const int64_t numbers[] = {p->ranks,           q->op,         q->form,   q->features, q->denominator,
                               q->random_features, q->scale_kind, q->causal, q->rule,     q->decay_kind,
                               q->chunk,           x->scans,      x->part,   p->isa,      x->compute};
    const double reals[] = {q->feature_scale, q->scale, q->epsilon};
    attn_digest_add(&d, numbers, sizeof numbers);
    attn_digest_add(&d, reals, sizeof reals);
    attn_digest_add(&d, &q->shape, sizeof q->shape);
    for (int n = 0; n < ATTN_LINEAR_BOUNDS; n++) {
        attn_digest_number(&d, x->bound[n].plan.role);
        attn_digest_number(&d, x->bound[n].plan.dtype);
    }
    return d.value;
}

/* Plans on this rank; *plan is set if there is anything to destroy, also after a failure. */
static attn_status plan_here(attn_distributed_linear_plan **plan, const attn_linear_problem *problem,
                             const attn_linear_tensors *tensors, const attn_split *split, const attn_transport *transport,
                             const attn_options *options, attn_error *error)
{
    attn_options o;
    TRY(attn_transport_check(transport, error));
    TRY(options_read(&o, options, error));
    attn_distributed_linear_plan *p = options_acquire(&o, sizeof *p);
    CHECK(p, ATTN_ERR_MEMORY, "cannot allocate the %zu bytes of a plan", sizeof *p);
    *p = (attn_distributed_linear_plan){
        .transport = *transport, .me = transport->rank, .ranks = transport->ranks, .passes.options = o};
    *plan = p;
    return plan_alone(p, problem, tensors, split, error);
}

attn_status attn_distributed_linear_plan_create(attn_distributed_linear_plan **plan, const attn_linear_problem *problem,
                                                const attn_linear_tensors *tensors, const attn_split *split,
                                                const attn_transport *transport, const attn_options *options, attn_error *error)
{
    attn_transport t;
    attn_error rejected = {.status = ATTN_OK};
    attn_distributed_linear_plan *p = NULL;
    if (plan) *plan = NULL;
    TRY(attn_transport_read(&t, transport, error));
    attn_status status =
        plan ? plan_here(&p, problem, tensors, split, &t, options, &rejected) : fail(&rejected, ATTN_ERR_ARGUMENT, "plan is NULL");
    if (t.ranks > 1)
        status =
            attn_agree(&t, status,
                       &(attn_asking){.asked = status == ATTN_OK ? digest_of(p) : 0,
                                      .differs = MODULE ": ranks disagree about the problem, the split or the instruction set"},
                       &rejected);
    if (status != ATTN_OK) {
        attn_distributed_linear_plan_destroy(p);
        if (error) *error = rejected;
        return status;
    }
    *plan = p;
    return succeed(error);
}

void attn_distributed_linear_plan_destroy(attn_distributed_linear_plan *p)
{
    if (!p) return;
    const attn_options o = p->passes.options;
    attn_linear_passes_free(&p->passes);
    attn_linear_plan_destroy(p->own);
    options_release(&o, p);
}

/* ---- executing ---- */

size_t attn_distributed_linear_workspace_size(const attn_distributed_linear_plan *plan) { return plan ? plan->workspace : 0; }

static attn_elements elements_of(const attn_linear_bound *b, const attn_input *slot)
{
    return (attn_elements){slot->data, b->plan.shape, b->plan.stride, attn_dtype_size(b->plan.dtype)};
}

/* No tensor may share the workspace; and no output the lengths, of which the own plan sees a copy. */
static attn_status check_apart(const attn_linear_passes *x, attn_linear_tensors *t, const void *workspace, size_t size,
                               attn_error *error)
{
    const int64_t shape[4] = {1, 1, 1, (int64_t)size}, stride[4] = {0, 0, 0, 1};
    const attn_elements bytes = {workspace, shape, stride, 1};
    const attn_linear_bound *l = attn_linear_bound_at(x, offsetof(attn_linear_tensors, lengths));
    const attn_elements lengths = elements_of(l, &t->lengths);
    for (const attn_linear_bound *b = x->bound; b < x->bound + ATTN_LINEAR_BOUNDS; b++) {
        const attn_input *slot = slot_at(t, b->about.offset);
        if (b->plan.role == ATTN_ROLE_NONE || !slot_is_address(slot)) continue;
        const attn_elements own = elements_of(b, slot);
        CHECK(elements_meet(&own, &bytes) == 0, ATTN_ERR_ARGUMENT,
              MODULE ": %s and the workspace overlap, or its strides make it impossible to tell", b->about.name);
        CHECK(b->plan.role != ATTN_ROLE_OUTPUT || l->plan.role == ATTN_ROLE_NONE || !slot_is_address(&t->lengths) ||
                  elements_meet(&own, &lengths) == 0,
              ATTN_ERR_STRIDE, MODULE ": %s and lengths share elements; an output must not overlap another tensor", b->about.name);
    }
    return ATTN_OK;
}

static int64_t read_length(const attn_input *slot, attn_dtype dtype, int64_t entry)
{
    if (dtype == ATTN_I32) return ((const int32_t *)slot->data)[entry];
    return ((const int64_t *)slot->data)[entry];
}

/* Lengths of each part of the rank, and then of the rank; `slot` becomes the latter.  Also adds them to the digest. */
static attn_status cut_lengths(const attn_linear_passes *x, attn_input *slot, char *memory, attn_digest *digest, attn_error *error)
{
    const attn_linear_bound *b = attn_linear_bound_at(x, offsetof(attn_linear_tensors, lengths));
    const attn_dtype dtype = b->plan.dtype;
    const int64_t batch = x->problem.shape.batch, most = x->problem.shape.len_kv;
    if (b->plan.role == ATTN_ROLE_NONE || !slot_is_address(slot) || (uintptr_t)slot->data % attn_dtype_size(dtype) != 0)
        return ATTN_OK;
    for (int64_t e = 0; e < batch; e++) {
        const int64_t length = read_length(slot, dtype, e);
        CHECK(length >= 0 && length <= most, ATTN_ERR_ARGUMENT,
              "lengths[%" PRId64 "] is %" PRId64 "; it must be between 0 and %" PRId64, e, length, most);
        attn_digest_number(digest, length);
        for (int64_t n = 0; n <= x->kv.parts; n++) {
            const int is_rank = n == x->kv.parts;
            const int64_t first = x->kv.first + (is_rank ? 0 : n * x->part),
                          tokens = is_rank ? x->kv.tokens : attn_stretch_tokens(&x->kv, x->part, n),
                          own = attn_max(0, attn_min(length - first, tokens)), at = n * batch + e;
            if (dtype == ATTN_I32) ((int32_t *)(void *)memory)[at] = (int32_t)own;
            else ((int64_t *)(void *)memory)[at] = own;
        }
    }
    slot->data = memory + (size_t)(x->kv.parts * batch) * attn_dtype_size(dtype);
    return ATTN_OK;
}

static attn_status check_call(const attn_distributed_linear_plan *p, const attn_linear_tensors *tensors, attn_linear_tensors *copy,
                              void *workspace, size_t size, attn_linear_memory *memory, attn_digest *digest, attn_error *error)
{
    CHECK(tensors, ATTN_ERR_ARGUMENT, "tensors is NULL");
    TRY(slots_read(copy, sizeof *copy, sizeof *copy, tensors, "attn_linear_tensors", error));
    CHECK(size >= p->workspace, ATTN_ERR_MEMORY, "workspace_size is %zu; this plan needs %zu", size, p->workspace);
    CHECK(workspace, ATTN_ERR_ARGUMENT, "workspace is NULL");
    TRY(check_apart(&p->passes, copy, workspace, p->workspace, error));
    (void)attn_linear_divide(p, workspace, memory);
    TRY(cut_lengths(&p->passes, &copy->lengths, memory->lengths, digest, error));
    /* An execution checks its workspace last; one that needs none writes nothing. */
    attn_error rejected;
    const attn_status status = attn_linear_execute(p->own, copy, workspace, 0, &rejected);
    if (status == ATTN_OK || status == ATTN_ERR_MEMORY) return ATTN_OK;
    if (error) *error = rejected;
    return status;
}

attn_status attn_distributed_linear_execute(const attn_distributed_linear_plan *plan, const attn_linear_tensors *tensors,
                                            void *workspace, size_t workspace_size, attn_error *error)
{
    attn_linear_tensors mine;
    attn_linear_memory memory;
    attn_error rejected = {.status = ATTN_OK};
    attn_digest lengths = attn_digest_begin();
    CHECK(plan, ATTN_ERR_ARGUMENT, "plan is NULL");
    const attn_transport *t = &plan->transport;
    attn_status status = check_call(plan, tensors, &mine, workspace, workspace_size, &memory, &lengths, &rejected);
    if (plan->ranks > 1)
        status = attn_agree(t, status, &(attn_asking){.asked = lengths.value, .differs = MODULE ": ranks disagree about lengths"},
                            &rejected);
    if (status == ATTN_OK) {
        status = attn_linear_run(plan, &mine, &memory, &rejected);
        if (plan->ranks > 1 && status != ATTN_ERR_IO) status = attn_agree(t, status, &(attn_asking){.asked = 0}, &rejected);
    }
    if (error) *error = rejected;
    return status == ATTN_OK ? succeed(error) : status;
}

/* ---- describing ---- */

attn_status attn_distributed_linear_describe(const attn_distributed_linear_plan *plan,
                                             attn_distributed_linear_description *description, attn_error *error)
{
    CHECK(plan, ATTN_ERR_ARGUMENT, "plan is NULL");
    CHECK(description, ATTN_ERR_ARGUMENT, "description is NULL");
    const attn_linear_passes *x = &plan->passes;
    const attn_distributed_linear_description d = {
        .struct_size = sizeof d,
        .parts_q = x->q.parts_total,
        .parts_kv = x->kv.parts_total,
        .queries = x->q.tokens,
        .keys = x->kv.tokens,
        .groups = x->groups,
        .calls = plan->needs.calls,
        .messages = plan->needs.messages,
        .bytes = plan->needs.bytes,
        .state_bytes = (int64_t)((size_t)x->groups * x->group),
        .chunk = x->problem.form == ATTN_LINEAR_FORM_RECURRENT ? 1 : x->problem.chunk,
        .workspace_bytes = plan->workspace,
        .form = x->problem.form,
        .way = x->scans ? ATTN_WAY_DIRECT : ATTN_WAY_RING,
        .ranks = plan->ranks,
    };
    TRY(struct_write(description, &d, sizeof d, "attn_distributed_linear_description", error));
    return succeed(error);
}
