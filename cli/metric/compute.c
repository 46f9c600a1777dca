/* SPDX-License-Identifier: MIT
 * compute.c - what a metric does to vectors, and the gradients of that. */
#include <stdlib.h>

#include "cli/input/small_tensor.h"
#include "metric.h"
#include "testing/text/failure.h"

/* Adds a tensor of f64 of zeros to the output. */
static attn_status add(const metric_work *w, const char *name, int rank, int64_t rows, int64_t columns, double **data,
                       attn_error *error)
{
    void *memory;
    const attn_status status = attn_archive_allocate(w->out, name, ATTN_F64, rank, (int64_t[2]){rows, columns}, &memory, error);
    *data = status == ATTN_OK ? memory : NULL;
    return status;
}

/* ---- forward ---- */

static attn_status of_metric(metric_work *w, attn_error *error)
{
    double *g;
    attn_status status = attn_metric_check(w->dim, w->settings->tolerance, w->g, &w->properties, error);
    if (status == ATTN_OK && w->kind != METRIC_GIVEN) {
        status = add(w, "g", 2, w->dim, w->dim, &g, error);
        for (int64_t i = 0; status == ATTN_OK && i < w->dim * w->dim; i++) g[i] = w->g[i];
    }
    if (status != ATTN_OK || !w->settings->inverse) return status;
    status = add(w, "inverse", 2, w->dim, w->dim, &w->inverse, error);
    return status == ATTN_OK ? attn_metric_inverse(w->dim, w->g, w->inverse, error) : status;
}

static attn_status of_vectors(metric_work *w, attn_error *error)
{
    const int64_t n = w->vectors, dim = w->dim;
    double *made;
    attn_status status = add(w, "lowered", 2, n, dim, &made, error);
    if (status == ATTN_OK) status = attn_index_lower(n, dim, w->v, w->g, made, error);
    if (status == ATTN_OK) status = add(w, "quadratic", 1, n, 0, &made, error);
    if (status == ATTN_OK) status = attn_quadratic_form(n, dim, w->v, w->g, made, error);
    if (status == ATTN_OK && w->inverse) {
        status = add(w, "raised", 2, n, dim, &made, error);
        if (status == ATTN_OK) status = attn_index_raise(n, dim, w->v, w->inverse, made, error);
    }
    return status;
}

attn_status metric_compute(metric_work *w, attn_error *error)
{
    double *made;
    attn_status status = w->kind == METRIC_INNER ? ATTN_OK : of_metric(w, error);
    if (status == ATTN_OK && w->v && w->g) status = of_vectors(w, error);
    if (status == ATTN_OK && w->u) {
        status = add(w, "form", 1, w->vectors, 0, &made, error);
        if (status == ATTN_OK)
            status = w->g ? attn_bilinear_form(w->vectors, w->dim, w->u, w->v, w->g, made, error)
                          : attn_inner_product(w->vectors, w->dim, w->u, w->v, w->settings->inner, made, error);
    }
    if (status == ATTN_OK && w->q && w->g) {
        status = add(w, "scores", 2, w->queries, w->keys, &made, error);
        if (status == ATTN_OK) status = attn_bilinear_form_batch(w->queries, w->keys, w->dim, w->q, w->k, w->g, made, error);
    }
    return status;
}

/* ---- backward ---- */

static void accumulate(double *sum, const double *more, int64_t count)
{
    for (int64_t i = 0; i < count; i++) sum[i] += more[i];
}

/* dv and dg, or with `inverse` the gradient of the inverse, from that of lowered or raised vectors. */
static attn_status index_backward(metric_work *w, const char *name, const double *matrix, double *dv, double *dmatrix, int *any,
                                  attn_error *error)
{
    int64_t shape[2] = {w->vectors, w->dim};
    const int64_t size = w->vectors * w->dim;
    double *grad;
    attn_status status = metric_numbers(w, name, 2, shape, "[vector, channel]", &grad, error);
    if (status != ATTN_OK || !grad) return status;
    double *of_v = need_memory(size, sizeof *of_v), *of_matrix = need_memory(w->dim * w->dim, sizeof *of_matrix);
    status = attn_index_backward(w->vectors, w->dim, w->v, matrix, grad, of_v, of_matrix, error);
    accumulate(dv, of_v, size);
    accumulate(dmatrix, of_matrix, w->dim * w->dim);
    *any = 1;
    free(grad), free(of_v), free(of_matrix);
    return status;
}

/* du, dv and dg from that of a form of u and v; of a quadratic form, u is v and du may be dv. */
static attn_status form_backward(metric_work *w, const char *name, const double *u, double *du, double *dv, int *any,
                                 attn_error *error)
{
    int64_t shape[1] = {w->vectors};
    const int64_t size = w->vectors * w->dim;
    double *grad;
    attn_status status = metric_numbers(w, name, 1, shape, "[vector]", &grad, error);
    if (status != ATTN_OK || !grad) return status;
    double *of_u = need_memory(size, sizeof *of_u), *of_v = need_memory(size, sizeof *of_v);
    double *of_g = need_memory(w->dim * w->dim, sizeof *of_g);
    status = attn_bilinear_form_backward(w->vectors, w->dim, u, w->v, w->g, grad, of_u, of_v, of_g, error);
    accumulate(du, of_u, size);
    accumulate(dv, of_v, size);
    accumulate(w->dg, of_g, w->dim * w->dim);
    *any = 1;
    free(grad), free(of_u), free(of_v), free(of_g);
    return status;
}

static attn_status vectors_backward(metric_work *w, int *any, attn_error *error)
{
    double *du = NULL, *dv;
    attn_status status = add(w, "dv", 2, w->vectors, w->dim, &dv, error);
    if (status == ATTN_OK && w->u) status = add(w, "du", 2, w->vectors, w->dim, &du, error);
    if (status == ATTN_OK) status = index_backward(w, "dlowered", w->g, dv, w->dg, any, error);
    if (status == ATTN_OK && w->inverse) status = index_backward(w, "draised", w->inverse, dv, w->dinverse, any, error);
    if (status == ATTN_OK) status = form_backward(w, "dquadratic", w->v, dv, dv, any, error);
    return status == ATTN_OK && w->u ? form_backward(w, "dform", w->u, du, dv, any, error) : status;
}

static attn_status scores_backward(metric_work *w, int *any, attn_error *error)
{
    int64_t shape[2] = {w->queries, w->keys};
    double *grad, *dq, *dk;
    attn_status status = metric_numbers(w, "dscores", 2, shape, "[query, key]", &grad, error);
    if (status != ATTN_OK || !grad) return status;
    double *of_g = need_memory(w->dim * w->dim, sizeof *of_g);
    status = add(w, "dq", 2, w->queries, w->dim, &dq, error);
    if (status == ATTN_OK) status = add(w, "dk", 2, w->keys, w->dim, &dk, error);
    if (status == ATTN_OK)
        status = attn_bilinear_form_batch_backward(w->queries, w->keys, w->dim, w->q, w->k, w->g, grad, dq, dk, of_g, error);
    accumulate(w->dg, of_g, w->dim * w->dim);
    *any = 1;
    free(grad), free(of_g);
    return status;
}

/* From the inverse to g. */
static attn_status inverse_backward(metric_work *w, int *any, attn_error *error)
{
    int64_t shape[2] = {w->dim, w->dim};
    double *grad;
    attn_status status = metric_numbers(w, "dinverse", 2, shape, "[channel, channel]", &grad, error);
    if (status != ATTN_OK) return status;
    if (grad) accumulate(w->dinverse, grad, w->dim * w->dim), *any = 1;
    double *of_g = need_memory(w->dim * w->dim, sizeof *of_g);
    status = attn_metric_inverse_backward(w->dim, w->inverse, w->dinverse, of_g, error);
    accumulate(w->dg, of_g, w->dim * w->dim);
    free(grad), free(of_g);
    return status;
}

/* From g to what it is made from. */
static attn_status metric_made_backward(metric_work *w, attn_error *error)
{
    double *dmade;
    attn_status status = add(w, "dg", 2, w->dim, w->dim, &dmade, error);
    if (status != ATTN_OK) return status;
    accumulate(dmade, w->dg, w->dim * w->dim);
    if (w->kind == METRIC_LEARNED) {
        status = add(w, "dw", 2, w->rows, w->dim, &dmade, error);
        return status == ATTN_OK ? attn_metric_learned_backward(w->rows, w->dim, w->made, w->dg, dmade, error) : status;
    }
    if (w->kind != METRIC_DIAGONAL) return ATTN_OK;
    status = add(w, "ddiagonal", 1, w->dim, 0, &dmade, error);
    for (int64_t c = 0; status == ATTN_OK && c < w->dim; c++) dmade[c] = w->dg[c * w->dim + c];
    return status;
}

attn_status metric_backward(metric_work *w, attn_error *error)
{
    int any = 0;
    w->dg = need_memory(w->dim * w->dim, sizeof *w->dg);
    w->dinverse = need_memory(w->dim * w->dim, sizeof *w->dinverse);
    attn_status status = w->v ? vectors_backward(w, &any, error) : ATTN_OK;
    if (status == ATTN_OK && w->q) status = scores_backward(w, &any, error);
    if (status == ATTN_OK && w->inverse) status = inverse_backward(w, &any, error);
    if (status == ATTN_OK && !any)
        status = failure(error, ATTN_ERR_ARGUMENT, "--backward needs a gradient of a result, such as 'dscores' or 'dform'");
    return status == ATTN_OK ? metric_made_backward(w, error) : status;
}
