/* SPDX-License-Identifier: MIT
 * steps.c - one attention step by step, forward and backward, through the core's own outputs. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "../common/decoding.h"
#include "attn/analysis.h"
#include "steps.h"

attn_status attn_analysis_check(const attn_problem *problem, const attn_tensors *tensors, attn_problem *p, attn_tensors *t,
                                analysis_sizes *n, attn_error *error)
{
    CHECK(problem && tensors, ATTN_ERR_ARGUMENT, "%s is NULL", problem ? "tensors" : "problem");
    TRY(struct_read(p, sizeof *p, sizeof *p, problem, "attn_problem", error));
    TRY(slots_read(t, sizeof *t, sizeof *t, tensors, "attn_tensors", error));
    CHECK(p->op == ATTN_FORWARD, ATTN_ERR_ARGUMENT, "op is not ATTN_FORWARD; the analysis makes the other passes itself");
    CHECK(t->q.dtype == ATTN_F64, ATTN_ERR_UNSUPPORTED, "q is %s; the analysis is in f64", attn_dtype_name(t->q.dtype));
    CHECK(!t->cu_seqlens_q.data && !t->cu_seqlens_kv.data, ATTN_ERR_UNSUPPORTED,
          "cu_seqlens_q is there; the analysis takes padded sequences");
    attn_analysis_plain(p, t);
    const attn_shape *s = &p->shape;
    attn_plan *plan; /* every rule of the core */
    attn_tensors with_weights = *t;
    with_weights.weights = attn_out(ATTN_LATER);
    with_weights.grad_o = (attn_input){NULL, ATTN_DTYPE_DEFAULT, {0, 0, 0, 0}};
    TRY(attn_plan_create(&plan, p, &with_weights, NULL, error));
    attn_plan_destroy(plan);
    n->rows = s->batch * s->heads_q * s->len_q;
    n->pairs = n->rows * s->len_kv;
    n->q = n->rows * s->dim_qk;
    n->o = n->rows * s->dim_v;
    n->k = s->batch * s->heads_kv * s->len_kv * s->dim_qk;
    n->v = s->batch * s->heads_kv * s->len_kv * s->dim_v;
    return ATTN_OK;
}

void attn_analysis_plain(attn_problem *p, attn_tensors *t)
{
    static const attn_output none;
    const attn_outputs nothing = {0};
    p->outputs = nothing;
    t->lse = t->weights = t->scores = t->dropout_keep = t->row_max = t->entropy = t->effective_keys = t->column_sum = none;
    t->topk_index = t->topk_weight = none;
}

/* Dense, of f64; with no elements where the size is 0. */
static attn_output output_of(double *data) { return (attn_output){data, data ? ATTN_F64 : ATTN_DTYPE_DEFAULT, {0, 0, 0, 0}}; }

static const attn_input no_input;

/* Arrays of the caller's beside the tensors of the core. */
typedef struct array {
    const char *name;
    double *data;
    int64_t count;
} array;

/* Everything that a forward call can refuse, and that arrays share elements with nothing, before any of them is written.  An
 * execution looks at its workspace last, and one of no bytes is the one thing that is wrong here. */
static attn_status check_written(const attn_problem *p, const attn_tensors *t, const array *arrays, int count,
                                 const attn_input *grad_o, int64_t grad_o_count, attn_error *error)
{
    attn_plan *plan;
    attn_error refused;
    char nothing[1];
    places all = {.count = 0};
    TRY(attn_plan_create(&plan, p, t, NULL, error));
    attn_status status = attn_plan_workspace_size(plan) ? attn_execute(plan, t, nothing, 0, &refused) : ATTN_OK;
    if (status == ATTN_ERR_MEMORY) status = ATTN_OK;
    if (status != ATTN_OK && error) *error = refused;
    if (status == ATTN_OK) {
        places_add_attention(&all, "", plan, t, 0);
        all.size = sizeof(double);
        for (int i = 0; i < count; i++)
            places_add_bytes(&all, arrays[i].name, arrays[i].data, arrays[i].count * (int64_t)sizeof(double), 1);
        if (slot_is_address(grad_o)) places_add_bytes(&all, "grad_o", grad_o->data, grad_o_count * (int64_t)sizeof(double), 0);
        status = places_check(&all, "analysis", error);
    }
    attn_plan_destroy(plan);
    return status;
}

attn_status attn_decompose(const attn_problem *problem, const attn_tensors *tensors, const attn_steps *given, attn_error *error)
{
    analysis_sizes n;
    attn_problem p;
    attn_tensors t;
    attn_steps copy;
    const attn_steps *const steps = &copy;
    TRY(attn_analysis_check(problem, tensors, &p, &t, &n, error));
    CHECK(given, ATTN_ERR_ARGUMENT, "steps is NULL");
    TRY(struct_read(&copy, sizeof copy, sizeof copy, given, "attn_steps", error));
    t.grad_o = no_input;
    double *lse = steps->log_partition ? steps->log_partition : steps->partition;
    if (steps->scores) p.outputs.scores_stage = ATTN_STAGE_BIASED;
    t.scores = output_of(steps->scores);
    t.weights = output_of(steps->weights);
    t.lse = output_of(lse);
    const array arrays[] = {{"raw", steps->raw, n.pairs}, {"partition", lse == steps->partition ? NULL : steps->partition, n.rows}};
    TRY(check_written(&p, &t, arrays, 2, &no_input, 0, error));
    if (steps->raw) { /* with scale 1 and no temperature; o is written again below */
        attn_problem raw = p;
        attn_tensors r = t;
        attn_analysis_plain(&raw, &r);
        const attn_score dot = {.scale_kind = ATTN_SCALE_VALUE, .scale = 1};
        raw.score = dot;
        raw.outputs.scores_stage = ATTN_STAGE_RAW;
        r.scale = r.score_matrix = no_input;
        r.scores = output_of(steps->raw);
        TRY(attn_compute(&raw, &r, error));
    }
    TRY(attn_compute(&p, &t, error));
    for (int64_t i = 0; steps->partition && i < n.rows; i++) steps->partition[i] = exp(lse[i]);
    return succeed(error);
}

/* ---- backward ---- */

attn_status attn_analysis_check_dense(const attn_tensors *t, attn_error *error)
{
    const attn_input o = slot_of(&t->o);
    const struct {
        const char *name;
        const attn_input *slot;
    } tensors[] = {{"q", &t->q}, {"k", &t->k}, {"v", &t->v}, {"o", &o}, {"grad_o", &t->grad_o}};
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++)
        CHECK(slot_is_dense(tensors[i].slot), ATTN_ERR_UNSUPPORTED, "%s has strides; gradient analysis takes dense tensors (all 0)",
              tensors[i].name);
    return ATTN_OK;
}

double *attn_analysis_room(int64_t n) { return malloc(((size_t)n + 1) * sizeof(double)); }

static double norm(const double *x, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += x[i] * x[i];
    return sqrt(sum);
}

attn_status attn_analysis_backward(const attn_problem *problem, const attn_tensors *tensors, double *lse, double *dq, double *dk,
                                   double *dv, attn_error *error)
{
    attn_problem p = *problem;
    attn_tensors t = *tensors;
    t.grad_o = no_input;
    t.lse = output_of(lse);
    TRY(attn_compute(&p, &t, error));
    p.op = ATTN_BACKWARD;
    t.grad_o = tensors->grad_o.data ? tensors->grad_o : slot_of(&t.o);
    t.grad_q = output_of(dq), t.grad_k = output_of(dk), t.grad_v = output_of(dv);
    return attn_compute(&p, &t, error);
}

/* dP and dS of every row from the weights; those of a row that sees nothing depend on nothing. */
static void grad_pairs(const attn_shape *s, const double *weights, const double *lse, const double *dO, const double *v, double *dP,
                       double *dS)
{
    const int64_t group = s->heads_kv ? s->heads_q / s->heads_kv : 1;
    for (int64_t row = 0; row < s->batch * s->heads_q * s->len_q; row++) {
        const int64_t head = row / s->len_q, b = head / s->heads_q, g = head % s->heads_q / group;
        const double *P = weights + row * s->len_kv, *values = v + (b * s->heads_kv + g) * s->len_kv * s->dim_v;
        double delta = 0;
        for (int64_t j = 0; j < s->len_kv; j++) {
            double sum = 0;
            for (int64_t c = 0; lse[row] > -INFINITY && P[j] > 0 && c < s->dim_v; c++)
                sum += dO[row * s->dim_v + c] * values[j * s->dim_v + c];
            dP[row * s->len_kv + j] = sum;
            delta += P[j] * sum;
        }
        for (int64_t j = 0; j < s->len_kv; j++)
            dS[row * s->len_kv + j] = lse[row] > -INFINITY && P[j] > 0 ? P[j] * (dP[row * s->len_kv + j] - delta) : 0;
    }
}

attn_status attn_gradient_flow(const attn_problem *problem, const attn_tensors *tensors, attn_flow *given, attn_error *error)
{
    analysis_sizes n;
    attn_problem p;
    attn_tensors t;
    attn_flow copy, *const flow = &copy;
    TRY(attn_analysis_check(problem, tensors, &p, &t, &n, error));
    TRY(attn_analysis_check_dense(&t, error));
    CHECK(given, ATTN_ERR_ARGUMENT, "flow is NULL");
    TRY(struct_read(&copy, sizeof copy, sizeof copy, given, "attn_flow", error));
    CHECK(!(p.dropout.probability > 0), ATTN_ERR_UNSUPPORTED, "dropout.probability is %g; the flow is that without dropout",
          p.dropout.probability);
    const array arrays[] = {{"grad_weights", flow->grad_weights, n.pairs},
                            {"grad_scores", flow->grad_scores, n.pairs},
                            {"grad_q", flow->grad_q, n.q},
                            {"grad_k", flow->grad_k, n.k},
                            {"grad_v", flow->grad_v, n.v}};
    attn_tensors forward = t;
    forward.grad_o = no_input;
    TRY(slot_check(&t.grad_o, "grad_o", n.o > 0, error));
    TRY(slot_aligned(&t.grad_o, "grad_o", sizeof(double), error));
    TRY(check_written(&p, &forward, arrays, 5, &t.grad_o, n.o, error));
    double *lse = attn_analysis_room(n.rows), *weights = attn_analysis_room(n.pairs),
           *dP = flow->grad_weights ? flow->grad_weights : attn_analysis_room(n.pairs);
    double *dS = flow->grad_scores ? flow->grad_scores : attn_analysis_room(n.pairs),
           *dq = flow->grad_q ? flow->grad_q : attn_analysis_room(n.q);
    double *dk = flow->grad_k ? flow->grad_k : attn_analysis_room(n.k), *dv = flow->grad_v ? flow->grad_v : attn_analysis_room(n.v);
    attn_status status = lse && weights && dP && dS && dq && dk && dv
                             ? ATTN_OK
                             : fail(error, ATTN_ERR_MEMORY, "no memory for %" PRId64 " weights and their gradients", n.pairs);
    const attn_steps steps = {.struct_size = sizeof steps, .weights = weights};
    if (status == ATTN_OK) status = attn_decompose(problem, tensors, &steps, error);
    if (status == ATTN_OK) status = attn_analysis_backward(&p, &t, lse, dq, dk, dv, error);
    if (status == ATTN_OK) {
        const double *dO = t.grad_o.data ? t.grad_o.data : t.o.data;
        grad_pairs(&p.shape, weights, lse, dO, t.v.data, dP, dS);
        flow->norm_grad_o = norm(dO, n.o);
        flow->norm_grad_weights = norm(dP, n.pairs);
        flow->norm_grad_scores = norm(dS, n.pairs);
        flow->norm_grad_q = norm(dq, n.q);
        flow->norm_grad_k = norm(dk, n.k);
        flow->norm_grad_v = norm(dv, n.v);
        struct_fill(given, flow, sizeof *flow);
    }
    free(lse);
    free(weights);
    if (dP != flow->grad_weights) free(dP);
    if (dS != flow->grad_scores) free(dS);
    if (dq != flow->grad_q) free(dq);
    if (dk != flow->grad_k) free(dk);
    if (dv != flow->grad_v) free(dv);
    return status;
}
