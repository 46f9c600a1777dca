/* SPDX-License-Identifier: MIT
 * form.c - lowering and raising indices by a metric, bilinear forms and their gradients, attention scored by one. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../common/options.h"
#include "internal.h"

/* to[i] = factor[i] g x_i, or g^T x_i; factor may be NULL. */
static void times_matrix(int64_t count, int64_t dim, const double *x, const double *g, int transposed, const double *factor,
                         double *to)
{
    const int64_t down = transposed ? 1 : dim, across = transposed ? dim : 1;
    for (int64_t i = 0; i < count; i++)
        for (int64_t a = 0; a < dim; a++) {
            double sum = 0;
            for (int64_t b = 0; b < dim; b++) sum += g[a * down + b * across] * x[i * dim + b];
            to[i * dim + a] = factor ? factor[i] * sum : sum;
        }
}

/* to[a][b] = sum_i factor[i] x_i[a] y_i[b]; factor may be NULL. */
static void outer_sum(int64_t count, int64_t dim, const double *x, const double *y, const double *factor, double *to)
{
    memset(to, 0, (size_t)(dim * dim) * sizeof *to);
    for (int64_t i = 0; i < count; i++)
        for (int64_t a = 0; a < dim; a++)
            for (int64_t b = 0; b < dim; b++) to[a * dim + b] += (factor ? factor[i] : 1) * x[i * dim + a] * y[i * dim + b];
}

/* to[i] = sum_j m[i][j] x_j, or with m^T; m [rows][columns], to [rows][dim], or [columns][dim] if transposed. */
static void weighted_sums(int64_t rows, int64_t columns, int64_t dim, const double *m, const double *x, int transposed, double *to)
{
    const int64_t outer = transposed ? columns : rows, inner = transposed ? rows : columns;
    memset(to, 0, (size_t)(outer * dim) * sizeof *to);
    for (int64_t i = 0; i < outer; i++)
        for (int64_t j = 0; j < inner; j++)
            for (int64_t c = 0; c < dim; c++)
                to[i * dim + c] += (transposed ? m[j * columns + i] : m[i * columns + j]) * x[j * dim + c];
}

attn_status attn_index_lower(int64_t count, int64_t dim, const double *v, const double *g, double *lowered, attn_error *error)
{
    TRY(bilinear_check_sizes(count, dim, error));
    CHECK_POINTER(v);
    CHECK_POINTER(g);
    CHECK_POINTER(lowered);
    CHECK_NO_OVERLAP(OUT(lowered, count, dim), IN(v, count, dim), IN(g, dim, dim));
    times_matrix(count, dim, v, g, 0, NULL, lowered);
    return succeed(error);
}

attn_status attn_index_raise(int64_t count, int64_t dim, const double *v, const double *inverse, double *raised, attn_error *error)
{
    TRY(bilinear_check_sizes(count, dim, error));
    CHECK_POINTER(v);
    CHECK_POINTER(inverse);
    CHECK_POINTER(raised);
    CHECK_NO_OVERLAP(OUT(raised, count, dim), IN(v, count, dim), IN(inverse, dim, dim));
    times_matrix(count, dim, v, inverse, 0, NULL, raised);
    return succeed(error);
}

attn_status attn_index_backward(int64_t count, int64_t dim, const double *v, const double *g, const double *grad, double *grad_v,
                                double *grad_g, attn_error *error)
{
    TRY(bilinear_check_sizes(count, dim, error));
    CHECK_POINTER(v);
    CHECK_POINTER(g);
    CHECK_POINTER(grad);
    CHECK_NO_OVERLAP(OUT(grad_v, count, dim), OUT(grad_g, dim, dim), IN(v, count, dim), IN(g, dim, dim), IN(grad, count, dim));
    if (grad_v) times_matrix(count, dim, grad, g, 1, NULL, grad_v);
    if (grad_g) outer_sum(count, dim, grad, v, NULL, grad_g);
    return succeed(error);
}

attn_status attn_bilinear_form(int64_t count, int64_t dim, const double *u, const double *v, const double *g, double *form,
                               attn_error *error)
{
    TRY(bilinear_check_sizes(count, dim, error));
    CHECK_POINTER(u);
    CHECK_POINTER(v);
    CHECK_POINTER(g);
    CHECK_POINTER(form);
    CHECK_NO_OVERLAP(OUT(form, 1, count), IN(v, count, dim), IN(u, count, dim), IN(g, dim, dim));
    for (int64_t i = 0; i < count; i++) {
        form[i] = 0;
        for (int64_t a = 0; a < dim; a++)
            for (int64_t b = 0; b < dim; b++) form[i] += u[i * dim + a] * g[a * dim + b] * v[i * dim + b];
    }
    return succeed(error);
}

attn_status attn_bilinear_form_backward(int64_t count, int64_t dim, const double *u, const double *v, const double *g,
                                        const double *grad, double *grad_u, double *grad_v, double *grad_g, attn_error *error)
{
    TRY(bilinear_check_sizes(count, dim, error));
    CHECK_POINTER(u);
    CHECK_POINTER(v);
    CHECK_POINTER(g);
    CHECK_POINTER(grad);
    CHECK_NO_OVERLAP(OUT(grad_u, count, dim), OUT(grad_v, count, dim), OUT(grad_g, dim, dim), IN(u, count, dim), IN(v, count, dim),
                     IN(g, dim, dim), IN(grad, 1, count));
    if (grad_u) times_matrix(count, dim, v, g, 0, grad, grad_u);
    if (grad_v) times_matrix(count, dim, u, g, 1, grad, grad_v);
    if (grad_g) outer_sum(count, dim, u, v, grad, grad_g);
    return succeed(error);
}

static attn_status check_batch(int64_t len_q, int64_t len_kv, int64_t dim, attn_error *error)
{
    CHECK(len_q >= 0 && len_kv >= 0, ATTN_ERR_SHAPE, "%s (%" PRId64 ") is negative", len_q < 0 ? "len_q" : "len_kv",
          len_q < 0 ? len_q : len_kv);
    TRY(bilinear_check_sizes(len_q > len_kv ? len_q : len_kv, dim, error));
    CHECK(len_q == 0 || len_kv <= PTRDIFF_MAX / 8 / len_q, ATTN_ERR_SHAPE,
          "len_q %" PRId64 " times len_kv %" PRId64 " exceeds the address space", len_q, len_kv);
    return ATTN_OK;
}

attn_status attn_bilinear_form_batch(int64_t len_q, int64_t len_kv, int64_t dim, const double *q, const double *k, const double *g,
                                     double *scores, attn_error *error)
{
    TRY(check_batch(len_q, len_kv, dim, error));
    CHECK_POINTER(q);
    CHECK_POINTER(k);
    CHECK_POINTER(g);
    CHECK_POINTER(scores);
    CHECK_NO_OVERLAP(OUT(scores, len_q, len_kv), IN(q, len_q, dim), IN(k, len_kv, dim), IN(g, dim, dim));
    double *lowered =
        malloc((size_t)(len_q * dim + 1) * sizeof *lowered); /* g^T q, so that a score costs dim products, not dim^2 */
    CHECK(lowered, ATTN_ERR_MEMORY, "cannot allocate %" PRId64 " queries of dim %" PRId64, len_q, dim);
    times_matrix(len_q, dim, q, g, 1, NULL, lowered);
    for (int64_t i = 0; i < len_q; i++)
        for (int64_t j = 0; j < len_kv; j++) {
            double sum = 0;
            for (int64_t c = 0; c < dim; c++) sum += lowered[i * dim + c] * k[j * dim + c];
            scores[i * len_kv + j] = sum;
        }
    free(lowered);
    return succeed(error);
}

attn_status attn_bilinear_form_batch_backward(int64_t len_q, int64_t len_kv, int64_t dim, const double *q, const double *k,
                                              const double *g, const double *grad, double *grad_q, double *grad_k, double *grad_g,
                                              attn_error *error)
{
    TRY(check_batch(len_q, len_kv, dim, error));
    CHECK_POINTER(q);
    CHECK_POINTER(k);
    CHECK_POINTER(g);
    CHECK_POINTER(grad);
    CHECK_NO_OVERLAP(OUT(grad_q, len_q, dim), OUT(grad_k, len_kv, dim), OUT(grad_g, dim, dim), IN(q, len_q, dim),
                     IN(k, len_kv, dim), IN(g, dim, dim), IN(grad, len_q, len_kv));
    const int64_t longest = len_q > len_kv ? len_q : len_kv;
    double *sums = malloc((size_t)(longest * dim + 1) * sizeof *sums);
    CHECK(sums, ATTN_ERR_MEMORY, "cannot allocate %" PRId64 " vectors of dim %" PRId64, longest, dim);
    weighted_sums(len_q, len_kv, dim, grad, q, 1, sums);
    if (grad_k) times_matrix(len_kv, dim, sums, g, 1, NULL, grad_k);
    weighted_sums(len_q, len_kv, dim, grad, k, 0, sums);
    if (grad_q) times_matrix(len_q, dim, sums, g, 0, NULL, grad_q);
    if (grad_g) outer_sum(len_q, dim, q, sums, NULL, grad_g);
    free(sums);
    return succeed(error);
}

attn_status attn_quadratic_form(int64_t count, int64_t dim, const double *v, const double *g, double *form, attn_error *error)
{
    return attn_bilinear_form(count, dim, v, v, g, form, error);
}

attn_status attn_inner_product(int64_t count, int64_t dim, const double *u, const double *v, const char *metric, double *form,
                               attn_error *error)
{
    TRY(bilinear_check_sizes(count, dim, error));
    CHECK_POINTER(u);
    CHECK_POINTER(v);
    CHECK_POINTER(form);
    CHECK_NO_OVERLAP(OUT(form, 1, count), IN(u, count, dim), IN(v, count, dim));
    const int scaled = !metric || strcmp(metric, "scaled") == 0;
    CHECK(scaled || strcmp(metric, "euclidean") == 0, ATTN_ERR_ARGUMENT, "metric is %s; it must be euclidean or scaled", metric);
    for (int64_t i = 0; i < count; i++) {
        double sum = 0;
        for (int64_t c = 0; c < dim; c++) sum += u[i * dim + c] * v[i * dim + c];
        form[i] = scaled ? sum / sqrt((double)dim) : sum;
    }
    return succeed(error);
}

attn_status attn_bilinear_attention(const attn_problem *problem, const attn_tensors *tensors, const double *g,
                                    const attn_options *options, attn_error *error)
{
    attn_options o;
    attn_problem p;
    attn_tensors t;
    CHECK_POINTER(problem);
    CHECK_POINTER(tensors);
    CHECK_POINTER(g);
    TRY(options_read(&o, options, error));
    TRY(struct_read(&p, sizeof p, sizeof p, problem, "attn_problem", error));
    TRY(slots_read(&t, sizeof t, sizeof t, tensors, "attn_tensors", error));
    CHECK(p.score.kind == ATTN_SCORE_DOT && !p.score.dim_k, ATTN_ERR_ARGUMENT,
          "score has a kind or dim_k of its own; bilinear attention sets them");
    TRY(slot_absent(&t.score_matrix, "score_matrix", "bilinear attention", error));
    p.score.kind = ATTN_SCORE_GENERAL;
    t.score_matrix = (attn_input){g, ATTN_F64, {0, 0, 0, 0}};
    return options_compute(&p, &t, &o, error);
}
