/* SPDX-License-Identifier: MIT
 * read.c - the metric of a file, and its vectors. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli/input/small_tensor.h"
#include "metric.h"
#include "testing/text/failure.h"

attn_status metric_numbers(const metric_work *w, const char *name, int rank, int64_t *shape, const char *axes, double **numbers,
                           attn_error *error)
{
    const attn_archive_tensor *t;
    *numbers = NULL;
    if (!attn_archive_find(w->file, name)) return ATTN_OK;
    const attn_status status = small_tensor_find_shape(w->file, name, rank, shape, axes, &t, error);
    if (status != ATTN_OK) return status;
    memcpy(shape, t->shape, (size_t)rank * sizeof *shape);
    *numbers = small_tensor_read(t);
    return ATTN_OK;
}

/* Which metric there is: exactly one of g, w, diagonal, --scaled and --inner. */
static attn_status choose(metric_work *w, attn_error *error)
{
    const struct {
        const char *name;
        metric_kind kind;
        int there;
    } kinds[] = {{"g", METRIC_GIVEN, attn_archive_find(w->file, "g") != NULL},
                 {"w", METRIC_LEARNED, attn_archive_find(w->file, "w") != NULL},
                 {"diagonal", METRIC_DIAGONAL, attn_archive_find(w->file, "diagonal") != NULL},
                 {"--scaled", METRIC_SCALED, w->settings->scaled >= 0},
                 {"--inner", METRIC_INNER, w->settings->inner != NULL}};
    const char *first = NULL;
    for (size_t n = 0; n < sizeof kinds / sizeof *kinds; n++) {
        if (!kinds[n].there) continue;
        if (first) return failure(error, ATTN_ERR_ARGUMENT, "%s and %s are two metrics; there must be one", first, kinds[n].name);
        first = kinds[n].name;
        w->kind = kinds[n].kind;
    }
    if (first) return ATTN_OK;
    return failure(error, ATTN_ERR_ARGUMENT, "no metric: no tensor 'g', 'w' or 'diagonal', and no --scaled or --inner");
}

/* Vectors [n, dim]; dim is set by the first of them if nothing else has. */
static attn_status read_vectors(metric_work *w, const char *name, int64_t count, double **numbers, int64_t *found,
                                attn_error *error)
{
    int64_t shape[2] = {count ? count : -1, w->dim ? w->dim : -1};
    const attn_status status = metric_numbers(w, name, 2, shape, "[vector, channel]", numbers, error);
    if (status == ATTN_OK && *numbers) *found = shape[0], w->dim = shape[1];
    return status;
}

static attn_status make_metric(metric_work *w, attn_error *error)
{
    const double *m = w->made;
    if (w->kind == METRIC_INNER) return ATTN_OK;
    if (!w->dim) return failure(error, ATTN_ERR_ARGUMENT, "--scaled needs vectors, which say how many channels there are");
    if (!w->g) w->g = need_memory(w->dim * w->dim, sizeof *w->g);
    return w->kind == METRIC_LEARNED    ? attn_metric_learned(w->rows, w->dim, m, w->g, error)
           : w->kind == METRIC_DIAGONAL ? attn_metric_diagonal(w->dim, m, w->g, error)
           : w->kind == METRIC_SCALED   ? attn_metric_scaled(w->dim, w->settings->scaled, w->g, error)
                                        : ATTN_OK;
}

attn_status metric_read(metric_work *w, attn_error *error)
{
    int64_t shape[2] = {-1, -1};
    attn_status status = choose(w, error);
    if (status == ATTN_OK && w->kind == METRIC_GIVEN) {
        status = metric_numbers(w, "g", 2, shape, "[channel, channel]", &w->g, error);
        if (status == ATTN_OK && shape[0] != shape[1])
            status = failure(error, ATTN_ERR_SHAPE, "tensor 'g' has %" PRId64 " rows and %" PRId64 " columns; a metric has as many",
                             shape[0], shape[1]);
        w->dim = shape[0];
    } else if (status == ATTN_OK && w->kind == METRIC_LEARNED) {
        status = metric_numbers(w, "w", 2, shape, "[row, channel]", &w->made, error);
        w->rows = shape[0], w->dim = shape[1];
    } else if (status == ATTN_OK && w->kind == METRIC_DIAGONAL) {
        status = metric_numbers(w, "diagonal", 1, shape, "[channel]", &w->made, error);
        w->dim = shape[0];
    }
    if (status == ATTN_OK) status = read_vectors(w, "v", 0, &w->v, &w->vectors, error);
    if (status == ATTN_OK) status = read_vectors(w, "u", w->vectors, &w->u, &w->vectors, error);
    if (status == ATTN_OK) status = read_vectors(w, "q", 0, &w->q, &w->queries, error);
    if (status == ATTN_OK) status = read_vectors(w, "k", 0, &w->k, &w->keys, error);
    if (status == ATTN_OK && (w->u && !w->v)) status = failure(error, ATTN_ERR_ARGUMENT, "tensor 'u' needs a tensor 'v'");
    if (status == ATTN_OK && !w->q != !w->k)
        status = failure(error, ATTN_ERR_ARGUMENT, "tensor '%s' needs a tensor '%s'", w->q ? "q" : "k", w->q ? "k" : "q");
    if (status == ATTN_OK && w->kind == METRIC_INNER && !w->u)
        status = failure(error, ATTN_ERR_ARGUMENT, "--inner needs the tensors 'u' and 'v'");
    return status == ATTN_OK ? make_metric(w, error) : status;
}
