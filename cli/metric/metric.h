/* SPDX-License-Identifier: MIT
 *
 * metric.h - what `attn metric` works on: a metric, and vectors of a file. */
#ifndef ATTN_CLI_METRIC_METRIC_H
#define ATTN_CLI_METRIC_METRIC_H

#include "attn/bilinear.h"
#include "attn/io.h"
#include "cli/base/options.h"

typedef struct metric_settings {
    const char *output, *inner; /* inner: "euclidean" or "scaled": no metric, only their form */
    double scaled, tolerance;   /* scaled: of the identity; below 0: not given */
    int inverse, backward;
    common_settings common;
} metric_settings;

typedef enum metric_kind { METRIC_GIVEN, METRIC_LEARNED, METRIC_DIAGONAL, METRIC_SCALED, METRIC_INNER } metric_kind;

typedef struct metric_work {
    const metric_settings *settings;
    attn_archive *file, *out;
    metric_kind kind;
    int64_t dim, rows;          /* rows of w */
    double *made, *g, *inverse; /* made: what g is made from: w or the diagonal */
    double *u, *v, *q, *k;      /* NULL: the file has none */
    int64_t vectors, queries, keys;
    double *dg, *dinverse; /* sums of all gradients */
    attn_metric_properties properties;
} metric_work;

/* read.c: the metric and the vectors. */
attn_status metric_read(metric_work *w, attn_error *error);

/* compute.c: everything that the file has tensors for, into out; gradients with --backward. */
attn_status metric_compute(metric_work *w, attn_error *error);
attn_status metric_backward(metric_work *w, attn_error *error);

/* The numbers of a tensor of this shape, -1 for any size; NULL if the file has none (then ATTN_OK too). */
attn_status metric_numbers(const metric_work *w, const char *name, int rank, int64_t *shape, const char *axes, double **numbers,
                           attn_error *error);

#endif
