/* SPDX-License-Identifier: MIT
 * table_case.c - helpers shared by the files table_*.c. */
#include "table_case.h"

#include <math.h>
#include <string.h>

#include "testing/text/failure.h"

double case_param(const table_case *c, const char *name, double otherwise) { return number_in(c->params, name, otherwise); }
int case_flag(const table_case *c, const char *name) { return cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(c->params, name)); }

const char *case_text(const table_case *c, const char *name) { return text_in(c->params, name); }

view case_find(table_case *c, const char *name)
{
    for (int64_t t = 0; t < attn_archive_count(c->tensors); t++)
        if (strcmp(attn_archive_at(c->tensors, t)->name, name) == 0) c->known[t] = 1;
    return view_of(attn_archive_find(c->tensors, name));
}

view case_need(table_case *c, const char *name)
{
    const view v = case_find(c, name);
    if (!view_present(&v)) conclude(c->result, CHECK_FAILED, "tensor %s is missing", name);
    return v;
}

view case_need_rank(table_case *c, const char *name, int rank)
{
    view v = case_need(c, name);
    if (view_present(&v) && v.rank != rank) {
        conclude(c->result, CHECK_FAILED, "tensor %s has rank %d, not %d", name, v.rank, rank);
        v = (view){0};
    }
    return v;
}

double *case_doubles(table_case *c, const view *v)
{
    const int64_t n = view_count(v);
    double *x = pool_take(&c->pool, n, sizeof *x);
    for (int64_t i = 0; i < n; i++) x[i] = view_get(v, i);
    return x;
}

int64_t *case_ints(table_case *c, const view *v)
{
    const int64_t n = view_count(v);
    int64_t *x = pool_take(&c->pool, n, sizeof *x);
    for (int64_t i = 0; i < n; i++) x[i] = (int64_t)view_get(v, i);
    return x;
}

void *case_give(table_case *c, const double *x, int64_t count)
{
    void *to = case_scratch(c, count);
    (void)attn_convert(count, x, ATTN_F64, to, c->dtype, NULL);
    return to;
}

double *case_read(table_case *c, const void *x, int64_t count)
{
    double *to = pool_take(&c->pool, count, sizeof *to);
    (void)attn_convert(count, x, c->dtype, to, ATTN_F64, NULL);
    return to;
}

void *case_scratch(table_case *c, int64_t count) { return pool_take(&c->pool, count, attn_dtype_size(c->dtype)); }

attn_input case_slot(table_case *c, const double *x, int64_t count) { return (attn_input){case_give(c, x, count), c->dtype, {0}}; }
attn_output case_output(table_case *c, int64_t count) { return (attn_output){case_scratch(c, count), c->dtype, {0}}; }
double *case_taken(table_case *c, const attn_output *slot, int64_t count) { return case_read(c, slot->data, count); }

void case_turn(table_case *c, const attn_rope *rope, const int64_t shape[4], const int64_t stride[4], double *x,
               const int64_t *positions)
{
    attn_input from = {x, ATTN_F64, {0}};
    attn_output to = {x, ATTN_F64, {0}};
    const attn_input at = attn_in(positions);
    attn_error error;
    for (int axis = 0; stride && axis < 4; axis++) from.stride[axis] = to.stride[axis] = stride[axis];
    case_take(c, attn_rope_apply(rope, shape, &from, positions ? &at : NULL, &to, &error), &error);
}

double *case_project(table_case *c, const double *x, int64_t rows, int64_t dim, const double *w, int64_t stride, const double *b,
                     int64_t columns)
{
    double *y = pool_take(&c->pool, rows * columns, sizeof *y);
    for (int64_t n = 0; n < rows * columns; n++) {
        const int64_t row = n / columns, j = n % columns;
        double sum = b ? b[j] : 0;
        for (int64_t a = 0; a < dim; a++) sum += x[row * dim + a] * w[a * stride + j];
        y[n] = sum;
    }
    return y;
}

double *case_product(table_case *c, const double *x, int64_t rows, int64_t dim, const double *w, int64_t columns)
{
    return case_project(c, x, rows, dim, w, columns, NULL, columns);
}

void case_take(table_case *c, attn_status status, const attn_error *error)
{
    if (status == ATTN_OK) return;
    end_if_out_of_memory(error);
    conclude(c->result, CHECK_FAILED, "rejected: %.200s", error->message);
}

void case_compare(table_case *c, const char *name, const double *got, int64_t count)
{
    const view expected = case_need(c, name);
    if (!view_present(&expected)) return;
    if (view_count(&expected) != count) {
        conclude(c->result, CHECK_FAILED, "%s has %lld elements, not %lld", name, (long long)view_count(&expected),
                 (long long)count);
        return;
    }
    double size = 1; /* in f32, the error of sums that cancel scales with their terms */
    for (int64_t i = 0; i < count && c->dtype == ATTN_F32; i++)
        if (isfinite(view_get(&expected, i))) size = fmax(size, fabs(view_get(&expected, i)));
    for (int64_t i = 0; i < count; i++) {
        const double x = view_get(&expected, i), off = fabs(got[i] - x);
        if (got[i] == x) continue; /* infinities too */
        if (!(off <= c->result->max_error)) c->result->max_error = off;
        if (!(off <= c->atol * size + c->rtol * fabs(x)))
            conclude(c->result, CHECK_FAILED, "%s: %s[%lld] is %.9g, expected %.9g", attn_dtype_name(c->dtype), name, (long long)i,
                     got[i], x);
    }
}
