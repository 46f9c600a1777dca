/* SPDX-License-Identifier: MIT
 *
 * copying.h - whether a head writes what it reads: the eigenvalues of its OV circuit (Elhage et al. 2021). */
#ifndef ATTN_CLI_COMPUTE_COPYING_H
#define ATTN_CLI_COMPUTE_COPYING_H

#include <complex.h>

#include "cli/input/labels.h"

/* The eigenvalues of a real matrix [n][n], which is overwritten, in any order.  Returns 0 if they do not converge, as with NaN. */
int matrix_eigenvalues(int64_t n, double *matrix, double complex *values);

/* sum(eigenvalues) / sum(|eigenvalues|) of value output, value [dim][model] and output [model][dim], in -1 .. 1; NaN if all are 0
 * or do not converge. */
double copying_of(int64_t dim, int64_t model, const double *value, const double *output);

/* The weights of a file's layers as [out, in]: wv and wo, or PyTorch's names; of several layers [layer, out, in]. */
typedef struct ov_weights {
    const attn_archive_tensor *value, *output;
    int64_t dim, model, group; /* channels of a value; query heads that share one */
    char reason[200];          /* why there are none, if value is NULL */
} ov_weights;

void ov_find(ov_weights *w, const attention_input *input, const labels *l);
/* Of a head; NaN if there are no weights. */
double ov_copying(const ov_weights *w, int64_t layer, int64_t head);

#endif
