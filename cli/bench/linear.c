/* SPDX-License-Identifier: MIT
 * linear.c - see linear.h. */
#include "linear.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../check/random.h"
#include "../failure.h"
#include "memory.h"

struct linear_contender {
    attn_linear_problem problem;
    attn_linear_tensors tensors; /* of forward and of backward, */
    attn_linear_tensors called;  /* and of the operation */
    attn_linear_plan *plan;
    void *block[LINEARS];
    size_t bytes[LINEARS];
    int blocks;
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

/* Which tensors there are. */
static attn_linear_tensors ask(const problem_spec *spec, const attn_linear_problem *p)
{
    attn_linear_tensors all = {.struct_size = sizeof all, .q.dtype = problem_dtype(spec)};
    const int backward = p->op == ATTN_BACKWARD, divided = p->denominator != ATTN_DENOMINATOR_NONE;
    const int delta = p->rule == ATTN_LINEAR_RULE_DELTA, low_rank = p->rule == ATTN_LINEAR_RULE_LOW_RANK;
    /* One token decodes: its state is read and written in place. */
    const int decodes = p->causal && p->shape.len_kv == 1 && !backward;
    const struct {
        int t, grad, there;
    } asked[] = {{LINEAR(q), LINEAR(grad_q), 1},
                 {LINEAR(k), LINEAR(grad_k), 1},
                 {LINEAR(v), LINEAR(grad_v), 1},
                 {LINEAR(o), LINEAR(grad_o), 1},
                 {LINEAR(decay), LINEAR(grad_decay), spec->decay},
                 {LINEAR(beta), LINEAR(grad_beta), delta},
                 {LINEAR(erase), LINEAR(grad_erase), low_rank},
                 {LINEAR(write), LINEAR(grad_write), low_rank},
                 {LINEAR(feature_matrix), -1, p->random_features > 0},
                 {LINEAR(denominators), -1, backward && divided},
                 {LINEAR(initial_state), -1, decodes},
                 {LINEAR(final_state), -1, decodes},
                 {LINEAR(initial_sum), -1, decodes && divided},
                 {LINEAR(final_sum), -1, decodes && divided}};
    for (size_t k = 0; k < sizeof asked / sizeof *asked; k++) {
        if (!asked[k].there) continue;
        linear_ask(&all, asked[k].t);
        if (backward && asked[k].grad >= 0) linear_ask(&all, asked[k].grad);
    }
    return all;
}

attn_status linear_problem_build(const problem_spec *given, attn_linear_problem *problem, attn_linear_tensors *tensors,
                                 attn_error *error)
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
    attn_linear_problem p = {.struct_size = sizeof p, .shape = spec.shape};
    if (spec.dtype == SPEC_INT8) return failure(error, ATTN_ERR_UNSUPPORTED, "linear attention has no int8");
    p.op = spec.op == SPEC_LINEAR_BACKWARD ? ATTN_BACKWARD : ATTN_FORWARD;
    p.causal = spec.causal != SPEC_CAUSAL_NONE;
    if (spec.has_scale) p.scale_kind = ATTN_SCALE_VALUE, p.scale = spec.scale;
    p.decay_kind = spec.decay == SPEC_DECAY_CHANNEL ? ATTN_DECAY_CHANNEL : ATTN_DECAY_HEAD;
    p.rule = (attn_linear_rule)spec.rule;
    set_map(&p, spec.phi);
    if (spec.denominator) p.denominator = (attn_denominator)(spec.denominator - 1);
    p.epsilon = spec.epsilon;
    p.form = (attn_linear_form)spec.form;
    *problem = p;
    *tensors = ask(&spec, &p);
    return ATTN_OK;
}

/* Normal numbers; decays below 0, betas within 0 and 1, and vectors of the low-rank rule that keep the state bounded. */
static void fill(const attn_linear_problem *p, int t, attn_dtype dtype, char *memory, size_t bytes, random_state *random)
{
    const size_t size = attn_dtype_size(dtype);
    for (size_t at = 0; at < bytes; at += size) {
        double x = random_normal(random);
        if (t == LINEAR(decay)) x = -fabs(x) / 16;
        if (t == LINEAR(beta)) x = 1 / (1 + exp(x));
        if (t == LINEAR(erase) || t == LINEAR(write)) x /= 8 * sqrt((double)p->shape.dim_qk + 1);
        if (t == LINEAR(k) && p->rule) x /= sqrt((double)p->shape.dim_qk + 1);
        (void)attn_convert(1, &x, ATTN_F64, memory + at, dtype, NULL);
    }
}

typedef struct drawing {
    struct linear_contender *l;
    random_state random;
    uint64_t seed;
} drawing;

/* Fresh memory; final states lie where the initial ones do. */
static void *take(void *context, int t, const attn_tensor_plan *about)
{
    drawing *d = context;
    struct linear_contender *l = d->l;
    const int state = t == LINEAR(initial_state) || t == LINEAR(initial_sum);
    if (t == LINEAR(final_state)) return (void *)(uintptr_t)l->tensors.initial_state.data;
    if (t == LINEAR(final_sum)) return (void *)(uintptr_t)l->tensors.initial_sum.data;
    const size_t bytes = (size_t)about->bytes;
    char *memory = fresh_memory(bytes);
    l->block[l->blocks] = memory;
    l->bytes[l->blocks++] = bytes;
    if (t == LINEAR(feature_matrix))
        (void)attn_random_features(ATTN_RANDOM_ROWS_ORTHOGONAL, l->problem.random_features, l->problem.shape.dim_qk, d->seed, 0,
                                   &(attn_output){memory, about->dtype, {0, 0, 0, 0}}, NULL);
    else if (about->role == ATTN_ROLE_INPUT && !state) fill(&l->problem, t, about->dtype, memory, bytes, &d->random);
    return memory;
}

static attn_status run(const attn_linear_plan *plan, const attn_linear_tensors *tensors, attn_error *error)
{
    const size_t size = attn_linear_plan_workspace_size(plan);
    void *workspace = fresh_memory(size);
    const attn_status status = attn_linear_execute(plan, tensors, workspace, size, error);
    fresh_release(workspace, size);
    return status;
}

/* What backward reads. */
static attn_status run_forward(struct linear_contender *l, drawing *d, const attn_options *options, attn_error *error)
{
    attn_linear_problem forward = l->problem;
    attn_linear_plan *plan = NULL;
    forward.op = ATTN_FORWARD;
    attn_status status = linear_plan(&plan, &forward, &l->tensors, options, take, d, error);
    const attn_linear_tensors tensors = linear_of_op(&forward, &l->tensors);
    if (status == ATTN_OK) status = run(plan, &tensors, error);
    attn_linear_plan_destroy(plan);
    return status;
}

attn_status linear_contender_create(contender *c, const problem_spec *spec, const attn_options *options, attn_error *error)
{
    struct linear_contender *l = need_memory(1, sizeof *l);
    attn_linear_plan_description says = {.struct_size = sizeof says};
    drawing d = {l, {spec->seed}, spec->seed};
    c->linear = l;
    attn_status status = linear_problem_build(spec, &l->problem, &l->tensors, error);
    if (status == ATTN_OK && l->problem.op == ATTN_BACKWARD) status = run_forward(l, &d, options, error);
    if (status == ATTN_OK) status = linear_plan(&l->plan, &l->problem, &l->tensors, options, take, &d, error);
    if (status == ATTN_OK) status = attn_linear_plan_describe(l->plan, &says, error);
    if (status != ATTN_OK) return status;
    l->called = linear_of_op(&l->problem, &l->tensors);
    for (int k = 0; k < l->blocks; k++) c->data.bytes += (double)l->bytes[k];
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
    return ATTN_OK;
}

attn_status linear_contender_execute(contender *c, attn_error *error)
{
    return attn_linear_execute(c->linear->plan, &c->linear->called, c->workspace, c->plan_says.workspace_bytes, error);
}

void linear_contender_destroy(contender *c)
{
    if (!c->linear) return;
    for (int k = 0; k < c->linear->blocks; k++) fresh_release(c->linear->block[k], c->linear->bytes[k]);
    attn_linear_plan_destroy(c->linear->plan);
    free(c->linear);
}
