/* SPDX-License-Identifier: MIT
 * steps.c - attention step by step, forward and backward, through the core's own outputs. */
#include <math.h>

#include "../common/decoding.h"
#include "attn/analysis.h"
#include "steps.h"

/* Drops all outputs but o. */
static void make_plain(attn_problem *p, attn_tensors *t)
{
    static const attn_output none;
    const attn_outputs nothing = {0};
    p->outputs = nothing;
    t->lse = t->weights = t->scores = t->dropout_keep = t->row_max = t->entropy = t->effective_keys = t->column_sum = none;
    t->topk_index = t->topk_weight = none;
}

attn_status attn_analysis_check(const attn_problem *problem, const attn_tensors *tensors, const attn_options *options,
                                attn_problem *p, attn_tensors *t, attn_options *o, analysis_sizes *n, attn_error *error)
{
    CHECK(problem && tensors, ATTN_ERR_ARGUMENT, "%s is NULL", problem ? "tensors" : "problem");
    TRY(options_read(o, options, error));
    TRY(struct_read(p, sizeof *p, sizeof *p, problem, "attn_problem", error));
    TRY(slots_read(t, sizeof *t, sizeof *t, tensors, "attn_tensors", error));
    CHECK(p->op == ATTN_FORWARD, ATTN_ERR_ARGUMENT, "op is not ATTN_FORWARD; the analysis runs the other passes itself");
    CHECK(t->q.dtype == ATTN_F64, ATTN_ERR_UNSUPPORTED, "q is %s; the analysis needs f64", attn_dtype_name(t->q.dtype));
    CHECK(!t->cu_seqlens_q.data && !t->cu_seqlens_kv.data, ATTN_ERR_UNSUPPORTED,
          "cu_seqlens_q is set; the analysis takes padded sequences only");
    make_plain(p, t);
    const attn_shape *s = &p->shape;
    attn_plan *plan; /* planning checks every rule of the core */
    attn_tensors with_weights = *t;
    with_weights.weights = attn_out(ATTN_LATER);
    with_weights.grad_o = (attn_input){NULL, ATTN_DTYPE_DEFAULT, {0, 0, 0, 0}};
    TRY(attn_plan_create(&plan, p, &with_weights, o, error));
    attn_plan_destroy(plan);
    const int64_t rows[3] = {s->batch, s->heads_q, s->len_q}, keys[3] = {s->batch, s->heads_kv, s->len_kv};
    const struct {
        const char *name;
        const int64_t *axes;
        int64_t each, *count;
    } arrays[] = {{"lse", rows, 1, &n->rows},   {"weights", rows, s->len_kv, &n->pairs}, {"q", rows, s->dim_qk, &n->q},
                  {"o", rows, s->dim_v, &n->o}, {"k", keys, s->dim_qk, &n->k},           {"v", keys, s->dim_v, &n->v}};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) {
        const int64_t sizes[4] = {arrays[i].axes[0], arrays[i].axes[1], arrays[i].axes[2], arrays[i].each};
        CHECK(sizes_fit((int64_t)sizeof(double), sizes, 4), ATTN_ERR_SHAPE, "%s is too large: its bytes overflow 64 bits",
              arrays[i].name);
        *arrays[i].count = sizes_product(sizes, 4);
    }
    return ATTN_OK;
}

/* Dense f64; absent if data is NULL. */
static attn_output output_of(double *data) { return (attn_output){data, data ? ATTN_F64 : ATTN_DTYPE_DEFAULT, {0, 0, 0, 0}}; }

static const attn_input no_input;

/* The caller's arrays beside the core's tensors. */
typedef struct array {
    const char *name;
    double *data;
    int64_t count;
} array;

/* The arrays overlap neither each other nor any tensor. */
static attn_status check_no_overlap(const attn_plan *plan, const attn_tensors *t, const array *arrays, int count,
                                    const attn_input *grad_o, int64_t grad_o_count, attn_error *error)
{
    places all = {.count = 0};
    places_add_attention(&all, "", plan, t, 0);
    all.size = sizeof(double);
    for (int i = 0; i < count; i++)
        places_add_bytes(&all, arrays[i].name, arrays[i].data, arrays[i].count * (int64_t)sizeof(double), 1);
    if (slot_is_address(grad_o)) places_add_bytes(&all, "grad_o", grad_o->data, grad_o_count * (int64_t)sizeof(double), 0);
    return places_check(&all, "analysis", error);
}

/* Plans, and checks everything that an execution can reject. */
static attn_status begin(execution *run, const attn_problem *p, const attn_tensors *t, const attn_options *options,
                         attn_error *error)
{
    TRY(execution_begin(run, p, t, options, error));
    return execution_try(run, t, error);
}

/* Plain dot products: scale 1, no temperature. */
static attn_status begin_raw(execution *run, const attn_problem *p, attn_tensors *t, double *raw, const attn_options *options,
                             attn_error *error)
{
    const attn_score dot = {.scale_kind = ATTN_SCALE_VALUE, .scale = 1};
    attn_problem products = *p;
    make_plain(&products, t);
    products.score = dot;
    products.outputs.scores_stage = ATTN_STAGE_RAW;
    t->scale = t->score_matrix = no_input;
    t->scores = output_of(raw);
    return begin(run, &products, t, options, error);
}

attn_status attn_decompose(const attn_problem *problem, const attn_tensors *tensors, const attn_steps *given,
                           const attn_options *options, attn_error *error)
{
    analysis_sizes n;
    attn_problem p;
    attn_tensors t;
    attn_options o;
    attn_steps copy;
    const attn_steps *const steps = &copy;
    TRY(attn_analysis_check(problem, tensors, options, &p, &t, &o, &n, error));
    CHECK(given, ATTN_ERR_ARGUMENT, "steps is NULL");
    TRY(struct_read(&copy, sizeof copy, sizeof copy, given, "attn_steps", error));
    t.grad_o = no_input;
    double *lse = steps->log_partition ? steps->log_partition : steps->partition;
    if (steps->scores) p.outputs.scores_stage = ATTN_STAGE_BIASED;
    t.scores = output_of(steps->scores);
    t.weights = output_of(steps->weights);
    t.lse = output_of(lse);
    const array arrays[] = {{"raw", steps->raw, n.pairs}, {"partition", lse == steps->partition ? NULL : steps->partition, n.rows}};
    execution all, raw = {.plan = NULL};
    attn_tensors r = t;
    attn_status status = begin(&all, &p, &t, &o, error);
    if (status == ATTN_OK) status = check_no_overlap(all.plan, &t, arrays, 2, &no_input, 0, error);
    if (status == ATTN_OK && steps->raw) status = begin_raw(&raw, &p, &r, steps->raw, &o, error);
    if (status == ATTN_OK && steps->raw) status = execution_run(&raw, &r, error); /* o is written again */
    if (status == ATTN_OK) status = execution_run(&all, &t, error);
    for (int64_t i = 0; status == ATTN_OK && steps->partition && i < n.rows; i++) steps->partition[i] = exp(lse[i]);
    execution_end(&all, &o);
    execution_end(&raw, &o);
    return status;
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

double *attn_analysis_acquire(const attn_options *options, int64_t n)
{
    return options_acquire(options, (size_t)n * sizeof(double));
}

static double norm(const double *x, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += x[i] * x[i];
    return sqrt(sum);
}

attn_status attn_analysis_begin(analysis_passes *passes, const attn_problem *problem, const attn_tensors *tensors, double *lse,
                                double *weights, const attn_options *options, attn_error *error)
{
    *passes = (analysis_passes){.forward_problem = *problem, .forward = *tensors};
    passes->forward.grad_o = no_input;
    passes->forward.lse = output_of(lse);
    passes->forward.weights = output_of(weights);
    return begin(&passes->run_forward, problem, &passes->forward, options, error);
}

attn_status attn_analysis_begin_backward(analysis_passes *passes, const attn_tensors *tensors, double *dq, double *dk, double *dv,
                                         const attn_options *options, attn_error *error)
{
    attn_problem p = passes->forward_problem;
    attn_tensors *const t = &passes->backward;
    p.op = ATTN_BACKWARD;
    *t = *tensors;
    t->lse = passes->forward.lse;
    t->grad_o = tensors->grad_o.data ? tensors->grad_o : slot_of(&t->o);
    t->grad_q = output_of(dq), t->grad_k = output_of(dk), t->grad_v = output_of(dv);
    return begin(&passes->run_backward, &p, t, options, error);
}

void attn_analysis_end(analysis_passes *passes, const attn_options *options)
{
    execution_end(&passes->run_backward, options);
    execution_end(&passes->run_forward, options);
}

/* dP and dS of every row from the weights; 0 in a fully masked row, which depends on nothing. */
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

/* The arrays of a gradient flow: the caller's, or allocated here where the caller passes none. */
enum { GRAD_WEIGHTS, GRAD_SCORES, GRAD_Q, GRAD_K, GRAD_V, WEIGHTS, LSE, ARRAYS };

static attn_status run_flow(analysis_passes *passes, const attn_problem *p, const attn_tensors *t, const analysis_sizes *n,
                            double *const *x, attn_flow *flow, attn_error *error)
{
    TRY(execution_run(&passes->run_forward, &passes->forward, error));
    TRY(execution_run(&passes->run_backward, &passes->backward, error));
    const double *dO = t->grad_o.data ? t->grad_o.data : t->o.data;
    grad_pairs(&p->shape, x[WEIGHTS], x[LSE], dO, t->v.data, x[GRAD_WEIGHTS], x[GRAD_SCORES]);
    flow->norm_grad_o = norm(dO, n->o);
    flow->norm_grad_weights = norm(x[GRAD_WEIGHTS], n->pairs);
    flow->norm_grad_scores = norm(x[GRAD_SCORES], n->pairs);
    flow->norm_grad_q = norm(x[GRAD_Q], n->q);
    flow->norm_grad_k = norm(x[GRAD_K], n->k);
    flow->norm_grad_v = norm(x[GRAD_V], n->v);
    return succeed(error);
}

attn_status attn_gradient_flow(const attn_problem *problem, const attn_tensors *tensors, attn_flow *given,
                               const attn_options *options, attn_error *error)
{
    analysis_sizes n;
    attn_problem p;
    attn_tensors t;
    attn_options o;
    attn_flow flow;
    TRY(attn_analysis_check(problem, tensors, options, &p, &t, &o, &n, error));
    TRY(attn_analysis_check_dense(&t, error));
    CHECK(given, ATTN_ERR_ARGUMENT, "flow is NULL");
    TRY(struct_read(&flow, sizeof flow, sizeof flow, given, "attn_flow", error));
    CHECK(!(p.dropout.probability > 0), ATTN_ERR_UNSUPPORTED, "dropout.probability is %g; gradient flow does not support dropout",
          p.dropout.probability);
    const array arrays[ARRAYS] = {{"grad_weights", flow.grad_weights, n.pairs},
                                  {"grad_scores", flow.grad_scores, n.pairs},
                                  {"grad_q", flow.grad_q, n.q},
                                  {"grad_k", flow.grad_k, n.k},
                                  {"grad_v", flow.grad_v, n.v},
                                  {"weights", NULL, n.pairs},
                                  {"lse", NULL, n.rows}};
    double *x[ARRAYS];
    analysis_passes passes = {.run_forward = {.plan = NULL}};
    TRY(slot_check(&t.grad_o, "grad_o", n.o > 0, error));
    TRY(slot_aligned(&t.grad_o, "grad_o", sizeof(double), error));
    attn_status status = ATTN_OK;
    for (int i = 0; i < ARRAYS; i++) {
        x[i] = arrays[i].data ? arrays[i].data : attn_analysis_acquire(&o, arrays[i].count);
        if (!x[i]) status = fail(error, ATTN_ERR_MEMORY, "cannot allocate %" PRId64 " weights and their gradients", n.pairs);
    }
    if (status == ATTN_OK) status = attn_analysis_begin(&passes, &p, &t, x[LSE], x[WEIGHTS], &o, error);
    if (status == ATTN_OK)
        status = check_no_overlap(passes.run_forward.plan, &passes.forward, arrays, ARRAYS, &t.grad_o, n.o, error);
    if (status == ATTN_OK) status = attn_analysis_begin_backward(&passes, &t, x[GRAD_Q], x[GRAD_K], x[GRAD_V], &o, error);
    if (status == ATTN_OK) status = run_flow(&passes, &p, &t, &n, x, &flow, error);
    if (status == ATTN_OK) struct_fill(given, &flow, sizeof flow);
    attn_analysis_end(&passes, &o);
    for (int i = 0; i < ARRAYS; i++)
        if (!arrays[i].data) options_release(&o, x[i]);
    return status;
}
