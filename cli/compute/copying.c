/* SPDX-License-Identifier: MIT
 *
 * copying.c - the OV circuits of a file with a layer's weights. */
#include "copying.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "cli/base/tensor_view.h"
#include "testing/text/failure.h"

double copying_of(int64_t dim, int64_t model, const double *value, const double *output)
{
    double *product = need_memory(dim * dim, sizeof *product), sum = 0, size = 0;
    double complex *values = need_memory(dim, sizeof *values);
    for (int64_t c = 0; c < dim; c++)
        for (int64_t e = 0; e < model; e++)
            for (int64_t d = 0; d < dim; d++) product[c * dim + d] += value[c * model + e] * output[e * dim + d];
    if (matrix_eigenvalues(dim, product, values))
        for (int64_t c = 0; c < dim; c++) sum += creal(values[c]), size += cabs(values[c]);
    free(product), free(values);
    return size > 0 ? sum / size : NAN;
}

static const attn_archive_tensor *find(const attn_archive *file, const char *const *names)
{
    const attn_archive_tensor *t = NULL;
    for (; !t && *names; names++) t = attn_archive_find(file, *names);
    return t;
}

static int is_matrix(const attn_archive_tensor *t, int64_t layers)
{
    return t->dtype >= ATTN_F32 && t->dtype <= ATTN_BF16 && (t->rank == 2 ? layers == 1 : t->rank == 3 && t->shape[0] == layers);
}

void ov_find(ov_weights *w, const attention_input *input, const labels *l)
{
    static const char *const value_names[] = {"wv", "v_proj.weight", NULL};
    static const char *const output_names[] = {"wo", "out_proj.weight", "o_proj.weight", NULL};
    const int64_t heads = input->problem.shape.heads_q;
    const attn_archive_tensor *v = input->file ? find(input->file, value_names) : NULL,
                              *o = input->file ? find(input->file, output_names) : NULL;
    *w = (ov_weights){0};
    snprintf(w->reason, sizeof w->reason,
             "copying cannot be computed from queries, keys and weights: it needs wv and wo of the layer");
    if (!v || !o) return;
    snprintf(w->reason, sizeof w->reason,
             "copying cannot be computed: '%.40s' and '%.40s' are not [out, in] of %" PRId64 " heads and %" PRId64 " layers",
             v->name, o->name, heads, l->layers);
    if (!is_matrix(v, l->layers) || !is_matrix(o, l->layers)) return;
    const int64_t rows = v->shape[v->rank - 2], inner = o->shape[o->rank - 1], dim = heads ? inner / heads : 0;
    w->model = v->shape[v->rank - 1];
    if (dim == 0 || inner % heads || rows == 0 || rows % dim || heads % (rows / dim) || o->shape[o->rank - 2] != w->model) return;
    w->dim = dim;
    w->group = heads / (rows / dim);
    w->value = v;
    w->output = o;
}

/* Rows and columns of one layer's matrix as dense doubles. */
static double *read(const attn_archive_tensor *t, int64_t layer, int64_t row, int64_t rows, int64_t column, int64_t columns)
{
    const int64_t width = t->shape[t->rank - 1], first = (layer * t->shape[t->rank - 2] + row) * width + column;
    double *to = need_memory(rows * columns, sizeof *to);
    for (int64_t k = 0; k < rows * columns; k++) to[k] = tensor_view_number(t, first + k / columns * width + k % columns);
    return to;
}

double ov_copying(const ov_weights *w, int64_t layer, int64_t head)
{
    if (!w->value) return NAN;
    double *value = read(w->value, layer, head / w->group * w->dim, w->dim, 0, w->model);
    double *output = read(w->output, layer, 0, w->model, head * w->dim, w->dim);
    const double result = copying_of(w->dim, w->model, value, output);
    free(value), free(output);
    return result;
}
