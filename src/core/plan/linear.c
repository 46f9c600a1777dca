/* SPDX-License-Identifier: MIT
 * linear.c - every rule that a problem of linear attention and its tensors must satisfy.  Each has a row with its exact message in
 * tests/unit/test_linear_rejected.c. */
#include "linear.h"

#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "../base/checked.h"
#include "../base/error.h"
#include "../base/inference.h"
#include "../base/names.h"
#include "plan.h"
#include "sequences.h"

static int has_sum(const attn_linear_resolved *p) { return p->denominator != ATTN_DENOMINATOR_NONE; }

static attn_status check_enums(const attn_linear_resolved *p, attn_error *error)
{
    CHECK(p->op == ATTN_FORWARD || p->op == ATTN_BACKWARD, ATTN_ERR_ARGUMENT, "op is %d; known: 0 (forward), 1 (backward)",
          (int)p->op);
    CHECK(ATTN_TRAINS || p->op == ATTN_FORWARD, ATTN_ERR_UNSUPPORTED, "op is %d (backward)" ATTN_LEFT_OUT, (int)p->op);
    CHECK(p->features >= ATTN_FEATURES_ELU1 && p->features <= ATTN_FEATURES_TRIGONOMETRIC, ATTN_ERR_ARGUMENT,
          "features is %d; known: 0 (elu1), 1 (identity), 2 (relu), 3 (softmax), 4 (favor), 5 (fourier), 6 (trigonometric)",
          (int)p->features);
    CHECK(p->scale_kind == ATTN_SCALE_DEFAULT || p->scale_kind == ATTN_SCALE_VALUE, ATTN_ERR_ARGUMENT,
          "scale_kind is %d; known: 0 (default), 1 (value)", (int)p->scale_kind);
    CHECK(p->denominator >= ATTN_DENOMINATOR_CLAMP && p->denominator <= ATTN_DENOMINATOR_NONE, ATTN_ERR_ARGUMENT,
          "denominator is %d; known: 0 (clamp), 1 (add), 2 (none)", (int)p->denominator);
    CHECK(p->rule >= ATTN_LINEAR_RULE_ADD && p->rule <= ATTN_LINEAR_RULE_LOW_RANK, ATTN_ERR_ARGUMENT,
          "rule is %d; known: 0 (add), 1 (delta), 2 (low rank)", (int)p->rule);
    CHECK(p->decay_kind == ATTN_DECAY_HEAD || p->decay_kind == ATTN_DECAY_CHANNEL, ATTN_ERR_ARGUMENT,
          "decay_kind is %d; known: 0 (per head), 1 (per channel)", (int)p->decay_kind);
    CHECK_TENSOR(p->has.decay || p->decay_kind == ATTN_DECAY_HEAD, ATTN_LINEAR_SLOT_decay, ATTN_ERR_ARGUMENT,
                 "decay_kind is %d and decay is not set", (int)p->decay_kind);
    CHECK(p->form >= ATTN_LINEAR_FORM_AUTO && p->form <= ATTN_LINEAR_FORM_QUADRATIC, ATTN_ERR_ARGUMENT,
          "form is %d; known: 0 (auto), 1 (chunked), 2 (recurrent), 3 (quadratic)", (int)p->form);
    CHECK(p->causal == 0 || p->causal == 1, ATTN_ERR_ARGUMENT, "causal is %d; it must be 0 or 1", p->causal);
    return ATTN_OK;
}

static attn_status check_numbers(const attn_linear_resolved *p, attn_error *error)
{
    const int random = p->features >= ATTN_FEATURES_FAVOR;
    CHECK(!random || p->random_features >= 1, ATTN_ERR_ARGUMENT, "random_features is %" PRId64 "; this map needs at least 1",
          p->random_features);
    CHECK(random || p->random_features == 0, ATTN_ERR_ARGUMENT, "random_features is %" PRId64 "; only the random maps have them",
          p->random_features);
    CHECK(p->random_features <= ATTN_MAX_SIZE, ATTN_ERR_SHAPE,
          "random_features (%" PRId64 ") is more than 2^48, the most of any size", p->random_features);
    CHECK(isfinite(p->feature_scale), ATTN_ERR_ARGUMENT, "feature_scale is %g; it must be finite", p->feature_scale);
    CHECK(random || p->feature_scale == 0, ATTN_ERR_ARGUMENT, "feature_scale is %g; only the random maps have it",
          p->feature_scale);
    CHECK(isfinite(p->scale), ATTN_ERR_ARGUMENT, "scale is %g; it must be finite", p->scale);
    CHECK(p->scale_kind == ATTN_SCALE_VALUE || p->scale == 0, ATTN_ERR_ARGUMENT,
          "scale is %g but scale_kind is not ATTN_SCALE_VALUE", p->scale);
    CHECK(p->epsilon >= 0 && isfinite(p->epsilon), ATTN_ERR_ARGUMENT,
          "epsilon is %g; it must be at least 0 and finite (0 for the default, 1e-6)", p->epsilon);
    CHECK(p->chunk >= 0, ATTN_ERR_ARGUMENT, "chunk is %" PRId64 "; it must be at least 1, or 0 for the default", p->chunk);
    CHECK(p->pool >= 0 && p->pool <= ATTN_MAX_SIZE, ATTN_ERR_SHAPE, "pool is %" PRId64 "; it must be between 0 and 2^48", p->pool);
    CHECK_TENSORS(p->pool == 0 || p->has.initial_slots || p->has.final_slots, ATTN_LINEAR_SLOT_initial_slots,
                  ATTN_LINEAR_SLOT_final_slots, ATTN_ERR_ARGUMENT, "pool is %" PRId64 "; only initial_slots and final_slots use it",
                  p->pool);
    CHECK(p->snapshots >= 0 && p->snapshots <= ATTN_MAX_SIZE, ATTN_ERR_SHAPE,
          "snapshots is %" PRId64 "; it must be between 0 and 2^48", p->snapshots);
    return ATTN_OK;
}

static attn_status check_snapshots(const attn_linear_resolved *p, attn_error *error)
{
    if (p->snapshots <= 1) return ATTN_OK;
    CHECK_TENSOR(p->has.final_slots, ATTN_LINEAR_SLOT_final_slots, ATTN_ERR_ARGUMENT,
                 "final_slots is missing; snapshots (%" PRId64 ") needs it", p->snapshots);
    CHECK(p->causal, ATTN_ERR_UNSUPPORTED, "snapshots are causal; set causal");
    CHECK(p->form == ATTN_LINEAR_FORM_AUTO || p->form == ATTN_LINEAR_FORM_RECURRENT, ATTN_ERR_UNSUPPORTED,
          "snapshots (%" PRId64 ") have the recurrent form only", p->snapshots);
    return ATTN_OK;
}

static attn_status check_fit(const attn_linear_resolved *p, attn_error *error)
{
    const attn_shape *s = &p->shape;
    CHECK(!p->causal || s->len_q == s->len_kv, ATTN_ERR_SHAPE, "causal needs len_q (%" PRId64 ") equal to len_kv (%" PRId64 ")",
          s->len_q, s->len_kv);
    const char *rule = p->rule == ATTN_LINEAR_RULE_DELTA ? "delta" : "low-rank";
    CHECK(p->causal || p->rule == ATTN_LINEAR_RULE_ADD, ATTN_ERR_UNSUPPORTED, "the %s rule is causal; set causal", rule);
    CHECK_TENSOR(p->causal || !p->has.decay, ATTN_LINEAR_SLOT_decay, ATTN_ERR_UNSUPPORTED, "a decay is causal; set causal");
    CHECK(p->causal || p->form != ATTN_LINEAR_FORM_RECURRENT, ATTN_ERR_UNSUPPORTED, "the recurrent form is causal; set causal");
    CHECK(p->rule == ATTN_LINEAR_RULE_ADD || !has_sum(p), ATTN_ERR_UNSUPPORTED,
          "the %s rule has no denominator; set denominator to none", rule);
    CHECK_TENSOR(!p->has.cu_seqlens || s->len_q == s->len_kv, ATTN_LINEAR_SLOT_cu_seqlens, ATTN_ERR_SHAPE,
                 "cu_seqlens needs len_q (%" PRId64 ") equal to len_kv (%" PRId64 ")", s->len_q, s->len_kv);
    CHECK_TENSORS(!p->has.cu_seqlens || !p->has.lengths, ATTN_LINEAR_SLOT_cu_seqlens, ATTN_LINEAR_SLOT_lengths, ATTN_ERR_ARGUMENT,
                  "cu_seqlens and lengths are set; set only one of them");
    TRY(check_snapshots(p, error));
    const int chunked = p->form == ATTN_LINEAR_FORM_CHUNKED || p->form == ATTN_LINEAR_FORM_QUADRATIC;
    CHECK(!chunked || p->rule != ATTN_LINEAR_RULE_LOW_RANK, ATTN_ERR_UNSUPPORTED, "the low-rank rule has the recurrent form only");
    return ATTN_OK;
}

/* A tensor that only some choices of the problem use. */
typedef struct use {
    int slot, present;
    int used;   /* 0: it must be absent */
    int needed; /* 1: it must be present */
    const char *choice;
} use;

static attn_status check_uses(const use *uses, size_t count, attn_error *error)
{
    for (size_t i = 0; i < count; i++) {
        const use *u = &uses[i];
        const char *name = attn_linear_family.rows[u->slot].name;
        CHECK_TENSOR(!u->present || u->used, u->slot, ATTN_ERR_ARGUMENT, "%s is set; it is used only %s", name, u->choice);
        CHECK_TENSOR(u->present || !u->needed, u->slot, ATTN_ERR_ARGUMENT, "%s is missing; it is needed %s", name, u->choice);
    }
    return ATTN_OK;
}

/* Which choices need which tensors, beyond the table of operations. */
static attn_status check_presence(const attn_linear_resolved *p, attn_error *error)
{
    const attn_linear_presence *has = &p->has;
    const int backward = p->op == ATTN_BACKWARD, sum = has_sum(p), random = p->features >= ATTN_FEATURES_FAVOR,
              delta = p->rule == ATTN_LINEAR_RULE_DELTA, low = p->rule == ATTN_LINEAR_RULE_LOW_RANK;
    static const char *with_sum = "with a denominator", *with_delta = "with the delta rule", *with_low = "with the low-rank rule",
                      *both = "with its state, if there is a denominator";
#define SLOT(name) ATTN_LINEAR_SLOT_##name, has->name
    const use uses[] = {{SLOT(feature_matrix), random, random, "with the random maps"},
                        {SLOT(denominators), sum, sum && backward, with_sum},
                        {SLOT(beta), delta, delta, with_delta},
                        {SLOT(erase), low, low, with_low},
                        {SLOT(write), low, low, with_low},
                        {SLOT(initial_sum), sum && has->initial_state, sum && has->initial_state, both},
                        {SLOT(final_sum), sum && has->final_state, sum && has->final_state, both},
                        {SLOT(initial_slots), has->initial_state, 0, "with initial_state"},
                        {SLOT(final_slots), has->final_state, 0, "with final_state"}};
    const use in_backward[] = {{SLOT(o), sum, sum, with_sum},
                               {SLOT(grad_decay), has->decay, has->decay, "with decay"},
                               {SLOT(grad_beta), delta, delta, with_delta},
                               {SLOT(grad_erase), low, low, with_low},
                               {SLOT(grad_write), low, low, with_low},
                               {SLOT(grad_final_sum), sum && has->grad_final_state, sum && has->grad_final_state, both},
                               {SLOT(grad_initial_sum), sum && has->grad_initial_state, sum && has->grad_initial_state, both}};
#undef SLOT
    TRY(check_uses(uses, sizeof uses / sizeof *uses, error));
    return backward ? check_uses(in_backward, sizeof in_backward / sizeof *in_backward, error) : ATTN_OK;
}

attn_status attn_linear_read(attn_linear_resolved *resolved, const attn_linear_problem *problem, const attn_linear_tensors *tensors,
                             attn_error *error)
{
    attn_linear_problem p;
    TRY(attn_struct_read(&p, sizeof p, sizeof p, problem, "attn_linear_problem", error));
    memset(resolved, 0, sizeof *resolved);
    resolved->op = p.op;
    resolved->shape = p.shape;
    resolved->features = p.features;
    resolved->random_features = p.random_features;
    resolved->feature_scale = p.feature_scale;
    resolved->scale_kind = p.scale_kind;
    resolved->scale = p.scale;
    resolved->denominator = p.denominator;
    resolved->epsilon = p.epsilon;
    resolved->causal = p.causal;
    resolved->rule = p.rule;
    resolved->decay_kind = p.decay_kind;
    resolved->form = p.form;
    resolved->chunk = p.chunk;
    resolved->pool = p.pool;
    resolved->snapshots = p.snapshots;
    for (size_t i = 0; i < sizeof p.reserved / sizeof *p.reserved; i++)
        CHECK(p.reserved[i] == 0, ATTN_ERR_ARGUMENT, "reserved[%zu] is %" PRId64 "; it must be 0", i, p.reserved[i]);
    _Static_assert(sizeof(attn_linear_presence) == ATTN_LINEAR_SLOTS, "one byte a tensor");
    TRY(attn_slots_presence(&attn_linear_family, tensors, (unsigned char *)&resolved->has, error));
    CHECK(!tensors->call, ATTN_ERR_ARGUMENT, "call is set; it must be NULL");
    return ATTN_OK;
}

attn_status attn_linear_resolve(attn_linear_resolved *p, const attn_linear_tensors *tensors, attn_planned_tensor *list, int *count,
                                attn_error *error)
{
    TRY(check_enums(p, error));
    TRY(attn_shape_validate(&p->shape, error));
    TRY(check_numbers(p, error));
    TRY(check_fit(p, error));
    if (p->epsilon == 0) p->epsilon = 1e-6;
    if (p->snapshots == 0) p->snapshots = 1;
    const double dim = p->shape.dim_qk > 0 ? (double)p->shape.dim_qk : 1;
    if (p->features >= ATTN_FEATURES_FAVOR && p->feature_scale == 0) p->feature_scale = 1 / sqrt(sqrt(dim));
    if (p->scale_kind == ATTN_SCALE_DEFAULT) p->scale = has_sum(p) ? 1 : 1 / sqrt(dim);
    const attn_dtype query = attn_slot_of(tensors, ATTN_LINEAR_SLOT_q).dtype;
    const attn_tensor_facts facts = {p->op, p->has.cu_seqlens, p->has.cu_seqlens, query, attn_linear_shape, p};
    TRY(attn_tensors_resolve(&attn_linear_family, &facts, tensors, (const unsigned char *)&p->has, list, count, error));
    TRY(check_presence(p, error));
    for (int i = 0; i < *count; i++) *attn_linear_layout_at(&p->at, list[i].number) = list[i].at;
    return ATTN_OK;
}

static attn_status check_lengths(const attn_linear_resolved *p, const attn_linear_args *args, attn_error *error)
{
    const attn_dtype dtype = p->at.lengths.dtype;
    for (int64_t b = 0; args->lengths && b < p->shape.batch; b++) {
        const int64_t length = attn_index_at(args->lengths, dtype, b);
        CHECK_TENSOR(length >= 0 && length <= p->shape.len_kv, ATTN_LINEAR_SLOT_lengths, ATTN_ERR_ARGUMENT,
                     "lengths[%" PRId64 "] is %" PRId64 "; it must be between 0 and %" PRId64 "%s", b, length, p->shape.len_kv,
                     attn_index_hint(dtype, length));
    }
    return ATTN_OK;
}

/* A row that is read for one sequence must not be written for another: neither a state nor its sum. */
static int in_place(const attn_linear_args *args)
{
    return (args->final_state && args->final_state == args->initial_state) ||
           (args->final_sum && args->final_sum == args->initial_sum);
}

static attn_state_lists lists_of(const attn_linear_resolved *p, const attn_linear_args *args)
{
    return (attn_state_lists){.batch = p->shape.batch,
                              .columns = p->snapshots,
                              .pool = p->pool,
                              .initial = args->initial_slots,
                              .final = args->final_slots,
                              .initial_type = p->at.initial_slots.dtype,
                              .final_type = p->at.final_slots.dtype,
                              .initial_number = ATTN_LINEAR_SLOT_initial_slots,
                              .final_number = ATTN_LINEAR_SLOT_final_slots,
                              .stores = args->final_state != NULL,
                              .in_place = in_place(args)};
}

attn_status attn_linear_slots_distinct(const attn_linear_resolved *p, const attn_linear_args *args, void *table, attn_error *error)
{
    const attn_state_lists lists = lists_of(p, args);
    return attn_state_lists_distinct(&lists, table, error);
}

attn_status attn_linear_args_read(const attn_linear_plan *plan, const attn_linear_tensors *tensors, attn_bytes workspace,
                                  attn_linear_args *args, attn_error *error)
{
    const attn_linear_resolved *p = &plan->walk.problem;
    void *pointers[ATTN_LINEAR_SLOTS] = {NULL};
    TRY(attn_tensors_bind(&attn_linear_family, plan->tensor, plan->tensors, tensors, pointers, error));
    CHECK(!tensors->call, ATTN_ERR_ARGUMENT, "call is set; it must be NULL");
    _Static_assert(sizeof pointers == sizeof *args, "one pointer a tensor");
    memcpy(args, pointers, sizeof pointers);
    const int same_state = args->final_state && args->final_state == args->initial_state;
    CHECK_TENSORS(!same_state || args->final_sum == args->initial_sum, ATTN_LINEAR_SLOT_final_sum, ATTN_LINEAR_SLOT_initial_sum,
                  ATTN_ERR_ARGUMENT, "final_state is initial_state, so final_sum must be initial_sum");
    CHECK_TENSORS(!same_state || p->at.final_state.dtype == p->at.initial_state.dtype, ATTN_LINEAR_SLOT_final_state,
                  ATTN_LINEAR_SLOT_initial_state, ATTN_ERR_ARGUMENT, "final_state is initial_state, and their types are %s and %s",
                  attn_dtype_text(p->at.final_state.dtype), attn_dtype_text(p->at.initial_state.dtype));
    if (args->cu_seqlens)
        TRY(attn_starts_check(args->cu_seqlens, p->at.cu_seqlens.dtype, p->shape.batch, p->shape.len_kv, "len_kv",
                              ATTN_LINEAR_SLOT_cu_seqlens, error));
    const int64_t tokens = args->cu_seqlens ? attn_index_at(args->cu_seqlens, p->at.cu_seqlens.dtype, p->shape.batch) : 0;
    TRY(attn_tensors_check_overlap(&attn_linear_family, plan->tensor, plan->tensors, pointers, tokens, tokens, workspace, error));
    TRY(check_lengths(p, args, error));
    const attn_state_lists lists = lists_of(p, args);
    return attn_state_lists_check(&lists, error);
}
