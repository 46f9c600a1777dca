/* SPDX-License-Identifier: MIT
 * linear.c - see linear.h. */
#include "linear.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../check/random.h"
#include "../failure.h"
#include "memory.h"

enum { Q, K, V, O, N, OMEGA, STATE, SUM, DECAY, BETA, ERASE, WRITE, DO, DQ, DK, DV, DDECAY, DBETA, DERASE, DWRITE, BLOCKS };

struct linear_contender {
    attn_linear_problem problem;
    attn_linear_args args;
    attn_linear_plan *plan;
    void *block[BLOCKS];
    size_t bytes[BLOCKS];
};

int linear_problem_is(const problem_spec *spec) { return spec->op == SPEC_LINEAR || spec->op == SPEC_LINEAR_BACKWARD; }

/* "favor/256": the map, and how many rows of omega. */
static void set_map(attn_linear_problem *p, const char *phi)
{
    static const struct {
        const char *name;
        attn_features kind;
    } maps[] = {{"elu1", ATTN_FEATURES_ELU1},
                {"identity", ATTN_FEATURES_IDENTITY},
                {"relu", ATTN_FEATURES_RELU},
                {"softmax", ATTN_FEATURES_SOFTMAX},
                {"favor/", ATTN_FEATURES_FAVOR},
                {"fourier/", ATTN_FEATURES_FOURIER},
                {"trigonometric/", ATTN_FEATURES_TRIGONOMETRIC}};
    for (size_t k = 0; k < sizeof maps / sizeof *maps; k++)
        if (strncmp(phi, maps[k].name, strlen(maps[k].name)) == 0 && phi[0]) p->features = maps[k].kind;
    if (p->features >= ATTN_FEATURES_FAVOR) p->random_features = strtoll(strchr(phi, '/') + 1, NULL, 10);
    /* Features of either sign have no denominator. */
    if (p->features == ATTN_FEATURES_IDENTITY || p->features >= ATTN_FEATURES_FOURIER || p->rule)
        p->denominator = ATTN_DENOMINATOR_NONE;
}

attn_status linear_problem_build(const problem_spec *given, attn_linear_problem *problem, attn_error *error)
{
    problem_spec spec = *given, plain;
    char text[512], known[512];
    attn_status status = problem_check(&spec, error);
    if (status != ATTN_OK) return status;
    /* What linear attention has no use for is found by printing the string with and without it. */
    problem_init(&plain);
    plain.op = spec.op, plain.dtype = spec.dtype, plain.shape = spec.shape, plain.seed = spec.seed;
    plain.causal = spec.causal, plain.has_scale = spec.has_scale, plain.scale = spec.scale;
    plain.decay = spec.decay, plain.rule = spec.rule;
    plain.denominator = spec.denominator, plain.epsilon = spec.epsilon, plain.form = spec.form;
    memcpy(plain.phi, spec.phi, sizeof plain.phi);
    problem_print(&spec, text, sizeof text);
    problem_print(&plain, known, sizeof known);
    if (strcmp(text, known) != 0 || (spec.causal != SPEC_CAUSAL_NONE && spec.causal != SPEC_CAUSAL_TOP_LEFT))
        return failure(
            error, ATTN_ERR_UNSUPPORTED,
            "linear attention has sizes, causal, scale, phi, decay, rule, denominator, epsilon, form and seed, no other word");
    attn_linear_problem p = {.struct_size = sizeof p, .shape = spec.shape, .q.dtype = problem_dtype(&spec)};
    if (spec.dtype == SPEC_INT8) return failure(error, ATTN_ERR_UNSUPPORTED, "linear attention has no int8");
    p.op = spec.op == SPEC_LINEAR_BACKWARD ? ATTN_BACKWARD : ATTN_FORWARD;
    p.causal = spec.causal != SPEC_CAUSAL_NONE;
    if (spec.has_scale) p.scale_kind = ATTN_SCALE_VALUE, p.scale = spec.scale;
    p.decay = (attn_linear_decay)spec.decay;
    p.rule = (attn_linear_rule)spec.rule;
    set_map(&p, spec.phi);
    if (spec.denominator) p.denominator = (attn_denominator)(spec.denominator - 1);
    p.epsilon = spec.epsilon;
    p.form = (attn_linear_form)spec.form;
    /* One token decodes: its state is read and written in place. */
    if (p.causal && p.shape.len_kv == 1 && p.op == ATTN_FORWARD) p.initial_state = p.final_state = 1;
    *problem = p;
    return ATTN_OK;
}

/* Bytes of each block; 0 where it is not used. */
static attn_status measure(struct linear_contender *l, attn_error *error)
{
    const attn_linear_problem *p = &l->problem;
    const attn_shape *s = &p->shape;
    const int64_t features = attn_features_count(p->features, s->dim_qk, p->random_features);
    const int64_t of_decay = p->decay == ATTN_DECAY_NONE ? 0 : p->decay == ATTN_DECAY_CHANNEL ? features : 1;
    const int64_t of_beta = p->rule == ATTN_RULE_DELTA, of_erase = p->rule == ATTN_RULE_LOW_RANK ? features : 0;
    const int backward = p->op == ATTN_BACKWARD, sum = p->denominator != ATTN_DENOMINATOR_NONE;
    const size_t stored = attn_dtype_size(p->q.dtype), wide = p->q.dtype == ATTN_F64 ? 8 : 4;
    const int64_t sizes[BLOCKS][4] = {[Q] = {s->batch, s->heads_q, s->len_q, s->dim_qk},
                                      [K] = {s->batch, s->heads_kv, s->len_kv, s->dim_qk},
                                      [V] = {s->batch, s->heads_kv, s->len_kv, s->dim_v},
                                      [O] = {s->batch, s->heads_q, s->len_q, s->dim_v},
                                      [N] = {s->batch, s->heads_q, s->len_q, sum && backward},
                                      [OMEGA] = {1, 1, p->random_features, s->dim_qk},
                                      [STATE] = {s->batch, s->heads_kv, features, p->final_state ? s->dim_v : 0},
                                      [SUM] = {s->batch, s->heads_kv, features, p->final_state},
                                      [DECAY] = {s->batch, s->heads_kv, s->len_kv, of_decay},
                                      [BETA] = {s->batch, s->heads_kv, s->len_kv, of_beta},
                                      [ERASE] = {s->batch, s->heads_kv, s->len_kv, of_erase},
                                      [WRITE] = {s->batch, s->heads_kv, s->len_kv, of_erase},
                                      [DDECAY] = {s->batch, s->heads_kv, s->len_kv, backward ? of_decay : 0},
                                      [DBETA] = {s->batch, s->heads_kv, s->len_kv, backward ? of_beta : 0},
                                      [DERASE] = {s->batch, s->heads_kv, s->len_kv, backward ? of_erase : 0},
                                      [DWRITE] = {s->batch, s->heads_kv, s->len_kv, backward ? of_erase : 0},
                                      [DO] = {s->batch, s->heads_q, s->len_q, backward ? s->dim_v : 0},
                                      [DQ] = {s->batch, s->heads_q, s->len_q, backward ? s->dim_qk : 0},
                                      [DK] = {s->batch, s->heads_kv, s->len_kv, backward ? s->dim_qk : 0},
                                      [DV] = {s->batch, s->heads_kv, s->len_kv, backward ? s->dim_v : 0}};
    for (int k = 0; k < BLOCKS; k++) {
        int64_t bytes = (k >= N && k <= WRITE) || k >= DDECAY ? (int64_t)wide : (int64_t)stored;
        for (int axis = 0; axis < 4; axis++)
            if (__builtin_mul_overflow(bytes, sizes[k][axis], &bytes))
                return failure(error, ATTN_ERR_SHAPE, "a tensor is too large");
        l->bytes[k] = (size_t)bytes;
    }
    return ATTN_OK;
}

/* Normal numbers; decays below 0, betas within 0 and 1, and vectors of the low-rank rule that keep the state bounded. */
static void fill(struct linear_contender *l, int block, attn_dtype dtype, random_state *random)
{
    const size_t size = attn_dtype_size(dtype);
    for (size_t at = 0; at < l->bytes[block]; at += size) {
        double x = random_normal(random);
        if (block == DECAY) x = -fabs(x) / 16;
        if (block == BETA) x = 1 / (1 + exp(x));
        if (block == ERASE || block == WRITE) x /= 8 * sqrt((double)l->problem.shape.dim_qk + 1);
        if (block == K && l->problem.rule) x /= sqrt((double)l->problem.shape.dim_qk + 1);
        attn_convert((char *)l->block[block] + at, dtype, &x, ATTN_F64, 1);
    }
}

static attn_status run(const attn_linear_problem *p, const attn_linear_args *args, const attn_options *options, attn_error *error)
{
    attn_linear_plan *plan;
    attn_status status = attn_linear_plan_create(&plan, p, options, error);
    if (status != ATTN_OK) return status;
    const size_t size = attn_linear_workspace_size(plan);
    void *workspace = fresh_memory(size);
    status = attn_linear_execute(plan, args, workspace, size, error);
    fresh_release(workspace, size);
    attn_linear_plan_destroy(plan);
    return status;
}

attn_status linear_contender_create(contender *c, const problem_spec *spec, const attn_options *options, attn_error *error)
{
    struct linear_contender *l = need_memory(1, sizeof *l);
    attn_linear_description says = {.struct_size = sizeof says};
    random_state random = {spec->seed};
    c->linear = l;
    attn_status status = linear_problem_build(spec, &l->problem, error);
    if (status == ATTN_OK) status = measure(l, error);
    if (status == ATTN_OK) status = attn_linear_plan_create(&l->plan, &l->problem, options, error);
    if (status == ATTN_OK) status = attn_linear_plan_describe(l->plan, &says, error);
    if (status != ATTN_OK) return status;
    for (int k = 0; k < BLOCKS; k++) {
        l->block[k] = fresh_memory(l->bytes[k]);
        c->data.bytes += (double)l->bytes[k];
    }
    const attn_dtype stored = l->problem.q.dtype, wide = stored == ATTN_F64 ? ATTN_F64 : ATTN_F32;
    fill(l, Q, stored, &random), fill(l, K, stored, &random), fill(l, V, stored, &random), fill(l, DO, stored, &random);
    for (int k = DECAY; k <= WRITE; k++) fill(l, k, wide, &random);
    if (l->bytes[OMEGA])
        status = attn_random_features(ATTN_ROWS_ORTHOGONAL, l->problem.random_features, l->problem.shape.dim_qk, spec->seed, 0,
                                      l->block[OMEGA], wide, error);
    l->args = (attn_linear_args){.struct_size = sizeof l->args,
                                 .q = l->block[Q],
                                 .k = l->block[K],
                                 .v = l->block[V],
                                 .o = l->block[O],
                                 .omega = l->block[OMEGA],
                                 .initial_state = l->block[STATE],
                                 .initial_sum = l->block[SUM],
                                 .final_state = l->block[STATE],
                                 .final_sum = l->block[SUM],
                                 .denominators = l->block[N],
                                 .decay = l->block[DECAY],
                                 .beta = l->block[BETA],
                                 .erase = l->block[ERASE],
                                 .write = l->block[WRITE],
                                 .grad_decay = l->block[DDECAY],
                                 .grad_beta = l->block[DBETA],
                                 .grad_erase = l->block[DERASE],
                                 .grad_write = l->block[DWRITE],
                                 .grad_o = l->block[DO],
                                 .grad_q = l->block[DQ],
                                 .grad_k = l->block[DK],
                                 .grad_v = l->block[DV]};
    attn_linear_problem forward = l->problem;
    forward.op = ATTN_FORWARD;
    forward.want_denominator = forward.denominator != ATTN_DENOMINATOR_NONE;
    if (status == ATTN_OK && l->problem.op == ATTN_BACKWARD) status = run(&forward, &l->args, options, error);
    c->problem.op = l->problem.op;
    c->problem.shape = l->problem.shape;
    c->data.tokens = l->problem.shape.batch * l->problem.shape.len_q;
    c->flops = says.flops;
    c->plan_says.kernel = says.kernel;
    c->plan_says.why = says.why;
    c->plan_says.isa = says.isa;
    c->plan_says.compute = says.compute;
    c->plan_says.threads = says.threads;
    c->plan_says.workspace_bytes = says.workspace_bytes;
    return status;
}

attn_status linear_contender_execute(contender *c, attn_error *error)
{
    return attn_linear_execute(c->linear->plan, &c->linear->args, c->workspace, c->plan_says.workspace_bytes, error);
}

void linear_contender_destroy(contender *c)
{
    if (!c->linear) return;
    for (int k = 0; k < BLOCKS; k++)
        if (c->linear->block[k]) fresh_release(c->linear->block[k], c->linear->bytes[k]);
    attn_linear_plan_destroy(c->linear->plan);
    free(c->linear);
}
