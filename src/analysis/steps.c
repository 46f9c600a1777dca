/* SPDX-License-Identifier: MIT
 * steps.c - one attention step by step, forward and backward, through the core's own outputs. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "../common/fail.h"
#include "attn/analysis.h"
#include "steps.h"

attn_status attn_analysis_check(const attn_problem *p, const attn_args *args, analysis_sizes *n, attn_error *error)
{
    CHECK(p && args, ATTN_ERR_ARGUMENT, "%s is NULL", p ? "args" : "problem");
    CHECK(p->struct_size == sizeof *p, ATTN_ERR_ARGUMENT, "attn_problem.struct_size is %zu; set it to sizeof(attn_problem)",
          p->struct_size);
    CHECK(p->op == ATTN_FORWARD, ATTN_ERR_ARGUMENT, "op is not ATTN_FORWARD; the analysis makes the other passes itself");
    CHECK(p->q.dtype == ATTN_F64, ATTN_ERR_UNSUPPORTED, "q is %s; the analysis is in f64", attn_dtype_name(p->q.dtype));
    CHECK(!p->mask.packed, ATTN_ERR_UNSUPPORTED, "mask.packed is set; the analysis takes padded sequences");
    const attn_shape *s = &p->shape;
    attn_plan *plan; /* every rule of the core */
    attn_problem plain = *p;
    attn_want none = {0};
    plain.want = none;
    plain.want.weights = 1;
    TRY(attn_plan_create(&plan, &plain, NULL, error));
    attn_plan_destroy(plan);
    n->rows = s->batch * s->heads_q * s->len_q;
    n->pairs = n->rows * s->len_kv;
    n->q = n->rows * s->dim_qk;
    n->o = n->rows * s->dim_v;
    n->k = s->batch * s->heads_kv * s->len_kv * s->dim_qk;
    n->v = s->batch * s->heads_kv * s->len_kv * s->dim_v;
    return ATTN_OK;
}

attn_status attn_decompose(const attn_problem *problem, const attn_args *args, const attn_steps *steps, attn_error *error)
{
    analysis_sizes n;
    TRY(attn_analysis_check(problem, args, &n, error));
    CHECK(steps, ATTN_ERR_ARGUMENT, "steps is NULL");
    attn_problem p = *problem;
    attn_args a = *args;
    attn_want none = {0};
    if (steps->raw) { /* with scale 1 and no temperature; o is written again below */
        attn_score dot = {0};
        dot.scale_kind = ATTN_SCALE_VALUE;
        dot.scale = 1;
        p.score = dot;
        p.want = none;
        p.want.scores = 1;
        p.want.scores_stage = ATTN_STAGE_RAW;
        a.scores = steps->raw;
        TRY(attn_forward(&p, &a, error));
        p = *problem;
    }
    double *lse = steps->log_partition ? steps->log_partition : steps->partition;
    p.want = none;
    p.want.scores = steps->scores != NULL;
    p.want.scores_stage = ATTN_STAGE_BIASED;
    p.want.weights = steps->weights != NULL;
    p.want.lse = lse != NULL;
    a.scores = steps->scores;
    a.weights = steps->weights;
    a.lse = lse;
    TRY(attn_forward(&p, &a, error));
    for (int64_t i = 0; steps->partition && i < n.rows; i++) steps->partition[i] = exp(lse[i]);
    return succeed(error);
}

/* ---- backward ---- */

static int is_dense(const attn_layout *layout)
{
    const int64_t *s = layout->stride;
    return s[0] == 0 && s[1] == 0 && s[2] == 0 && s[3] == 0;
}

attn_status attn_analysis_check_dense(const attn_problem *p, const attn_args *args, attn_error *error)
{
    const struct {
        const char *name;
        const attn_layout *layout;
    } tensors[] = {{"q", &p->q}, {"k", &p->k}, {"v", &p->v}, {"o", &p->o}, {"grad_o", &p->gradients.grad_o}};
    for (size_t t = 0; t < sizeof tensors / sizeof *tensors; t++)
        CHECK(is_dense(tensors[t].layout), ATTN_ERR_UNSUPPORTED, "%s has strides; gradient analysis takes dense tensors (all 0)",
              tensors[t].name);
    CHECK(args->o, ATTN_ERR_ARGUMENT, "args.o is NULL");
    return ATTN_OK;
}

static double *room(int64_t n) { return malloc(((size_t)n + 1) * sizeof(double)); }

static double norm(const double *x, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += x[i] * x[i];
    return sqrt(sum);
}

attn_status attn_analysis_backward(const attn_problem *problem, const attn_args *args, double *lse, double *dq, double *dk,
                                   double *dv, attn_error *error)
{
    attn_problem p = *problem;
    attn_args a = *args;
    attn_want none = {0};
    p.want = none;
    p.want.lse = 1;
    a.lse = lse;
    TRY(attn_forward(&p, &a, error));
    p.op = ATTN_BACKWARD;
    if (!a.grad_o) a.grad_o = a.o;
    a.grad_q = dq, a.grad_k = dk, a.grad_v = dv;
    return attn_forward(&p, &a, error);
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

attn_status attn_gradient_flow(const attn_problem *problem, const attn_args *args, attn_flow *flow, attn_error *error)
{
    analysis_sizes n;
    TRY(attn_analysis_check(problem, args, &n, error));
    TRY(attn_analysis_check_dense(problem, args, error));
    CHECK(flow, ATTN_ERR_ARGUMENT, "flow is NULL");
    CHECK(!(problem->dropout.probability > 0), ATTN_ERR_UNSUPPORTED, "dropout.probability is %g; the flow is that without dropout",
          problem->dropout.probability);
    double *lse = room(n.rows), *weights = room(n.pairs), *dP = flow->grad_weights ? flow->grad_weights : room(n.pairs);
    double *dS = flow->grad_scores ? flow->grad_scores : room(n.pairs), *dq = flow->grad_q ? flow->grad_q : room(n.q);
    double *dk = flow->grad_k ? flow->grad_k : room(n.k), *dv = flow->grad_v ? flow->grad_v : room(n.v);
    attn_status status = lse && weights && dP && dS && dq && dk && dv
                             ? ATTN_OK
                             : fail(error, ATTN_ERR_MEMORY, "no memory for %" PRId64 " weights and their gradients", n.pairs);
    const attn_steps steps = {NULL, NULL, weights, NULL, NULL};
    if (status == ATTN_OK) status = attn_decompose(problem, args, &steps, error);
    if (status == ATTN_OK) status = attn_analysis_backward(problem, args, lse, dq, dk, dv, error);
    if (status == ATTN_OK) {
        const double *dO = args->grad_o ? args->grad_o : args->o;
        grad_pairs(&problem->shape, weights, lse, dO, args->v, dP, dS);
        flow->norm_grad_o = norm(dO, n.o);
        flow->norm_grad_weights = norm(dP, n.pairs);
        flow->norm_grad_scores = norm(dS, n.pairs);
        flow->norm_grad_q = norm(dq, n.q);
        flow->norm_grad_k = norm(dk, n.k);
        flow->norm_grad_v = norm(dv, n.v);
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
