/* SPDX-License-Identifier: MIT
 *
 * matrix.c - attention as textbooks write it: all scores of all heads in memory, their softmax in place, then the sums of values.
 * Both products are the library's, with its threads; rows of the softmax are shared among the threads of the ceilings. */
#include <math.h>
#include <stdlib.h>

#include "attn/product.h"
#include "candidate.h"
#include "cli/measure/draw.h"
#include "cli/measure/work.h"
#include "softmax.h"
#include "testing/text/failure.h"
#include "workers.h"

enum { Q, K, V, O, BLOCKS, SCORES = BLOCKS };

typedef struct matrix_work {
    attn_options options;
    int causal, threads;
    attn_isa isa;
    float scale;
    attn_shape shape;
    float *block[BLOCKS + 1]; /* the last is the workspace of the candidate */
} matrix_work;

/* a[rows][inner] times b, of all heads. */
static attn_status multiply(const matrix_work *w, int64_t rows, int64_t columns, int64_t inner, int a, int b, int c,
                            attn_error *error)
{
    const attn_shape *s = &w->shape;
    const attn_product_problem p = {.struct_size = sizeof p, .rows = rows, .columns = columns, .inner = inner};
    attn_status status = ATTN_OK;
    for (int64_t head = 0; head < s->batch * s->heads_q && status == ATTN_OK; head++) {
        const int64_t key_head = head / (s->heads_q / s->heads_kv);
        const float *right = w->block[b] + key_head * inner * columns;
        const attn_product_tensors t = {.struct_size = sizeof t,
                                        .a = attn_in(w->block[a] + head * rows * inner),
                                        .b = b == K ? attn_transposed(right, inner) : attn_in(right),
                                        .c = attn_out(w->block[c] + head * rows * columns)};
        status = attn_product(&p, &t, &w->options, error);
    }
    return status;
}

static void softmax_rows(void *context, int thread)
{
    const matrix_work *w = context;
    const attn_shape *s = &w->shape;
    const int64_t rows = s->batch * s->heads_q * s->len_q, n = w->threads;
    for (int64_t r = thread; r < rows; r += n) { /* in turn, since rows of a causal mask differ */
        const int64_t seen = w->causal && r % s->len_q < s->len_kv ? r % s->len_q + 1 : s->len_kv;
        softmax_row(w->isa, seen, s->len_kv, w->scale, w->block[SCORES] + r * s->len_kv);
    }
}

static attn_status execute(candidate *c, attn_error *error)
{
    matrix_work *w = c->state;
    const attn_shape *s = &w->shape;
    w->block[SCORES] = c->workspace;
    attn_status status = multiply(w, s->len_q, s->len_kv, s->dim_qk, Q, K, SCORES, error);
    if (status != ATTN_OK) return status;
    workers_run(softmax_rows, w);
    return multiply(w, s->len_q, s->dim_v, s->len_kv, SCORES, V, O, error);
}

static attn_status check(const operand *o, attn_error *error)
{
    const problem_spec *spec = &o->spec;
    attn_problem problem;
    attn_tensors tensors;
    if (spec->causal > SPEC_CAUSAL_TOP_LEFT || spec->offset_kind || spec->scale_heads || (spec->has_scale && !(spec->scale > 0)))
        return failure(error, ATTN_ERR_ARGUMENT, "matrix takes causal and scale=X above 0, in no other form");
    return problem_build(spec, &problem, &tensors, error);
}

static attn_status create(candidate *c, const operand *o, const attn_options *options, attn_error *error)
{
    matrix_work *w = c->state = need_memory(1, sizeof *w);
    attn_tensors tensors;
    attn_plan *plan = NULL;
    attn_status status = problem_build(&o->spec, &c->problem, &tensors, error);
    if (status == ATTN_OK) status = attn_plan_create(&plan, &c->problem, &tensors, options, error);
    if (status == ATTN_OK) status = attn_plan_describe(plan, &c->plan_says, error);
    attn_plan_destroy(plan); /* which says what the attention would run on, and rejects what is wrong */
    if (status != ATTN_OK) return status;
    const attn_shape *s = &c->problem.shape;
    const int64_t queries = s->batch * s->heads_q * s->len_q, keys = s->batch * s->heads_kv * s->len_kv;
    const int64_t count[BLOCKS] = {queries * s->dim_qk, keys * s->dim_qk, keys * s->dim_v, queries * s->dim_v};
    random_state random = {2 * o->spec.seed + 1};
    w->options = *options;
    w->causal = c->problem.mask.causal;
    w->threads = workers_count();
    w->isa = c->plan_says.isa;
    w->shape = *s;
    w->scale = (float)(o->spec.has_scale ? o->spec.scale : 1 / sqrt((double)s->dim_qk));
    for (int k = 0; k < BLOCKS; k++) {
        const size_t bytes = (size_t)count[k] * sizeof(float);
        w->block[k] = data_keep(&c->data, bytes);
        if (k != O) draw_numbers(&random, ATTN_F32, w->block[k], bytes);
    }
    c->plan_says.kernel = "two products, softmax between them";
    c->plan_says.workspace_bytes = (size_t)(queries * s->len_kv) * sizeof(float);
    c->data.tokens = s->batch * s->len_q;
    c->flops = problem_flops(&c->problem, visible_pairs(&c->problem, NULL, NULL, NULL, NULL));
    return ATTN_OK;
}

static void destroy(candidate *c) { free(c->state); }

const candidate_kind matrix_kind = {check, create, NULL, execute, destroy};
