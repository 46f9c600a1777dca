/* SPDX-License-Identifier: MIT
 * tensor_view.c - see tensor_view.h. */
#include "tensor_view.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "testing/memory/element.h"
#include "testing/text/shown.h"

/* What is shown of a large axis: its first and last elements. */
typedef struct shown {
    int64_t head, tail;
} shown;
enum { MATRICES, ROWS, COLUMNS };
static const shown most[] = {{3, 3}, {8, 4}, {6, 4}};

tensor_view tensor_view_of(const attn_archive_tensor *tensor)
{
    tensor_view v = {.tensor = tensor, .rank = tensor->rank, .dense = 1};
    int64_t step = 1;
    for (int axis = tensor->rank - 1; axis >= 0; axis--) {
        v.shape[axis] = tensor->shape[axis];
        v.step[axis] = step;
        step *= tensor->shape[axis];
    }
    return v;
}

int64_t tensor_view_count(const tensor_view *v)
{
    int64_t count = 1;
    for (int axis = 0; axis < v->rank; axis++) count *= v->shape[axis];
    return count;
}

int64_t tensor_view_at(const tensor_view *v, int64_t n, int64_t index[ATTN_MAX_RANK])
{
    int64_t at = v->first;
    if (v->dense && !index) return at + n;
    for (int axis = v->rank - 1; axis >= 0; axis--) {
        const int64_t i = n % v->shape[axis];
        if (index) index[axis] = i;
        at += i * v->step[axis];
        n /= v->shape[axis];
    }
    return at;
}

static const void *element(const attn_archive_tensor *t, int64_t at)
{
    return (const char *)t->data + (size_t)at * attn_dtype_size(t->dtype);
}

double tensor_view_number(const attn_archive_tensor *t, int64_t at) { return element_read(t->dtype, element(t, at)); }

static int is_real(attn_dtype dtype) { return dtype >= ATTN_F32 && dtype <= ATTN_BF16; }

/* Integers of 64 bits, which a double does not hold. */
static void put_integer(char text[VIEW_NUMBER], const attn_archive_tensor *t, int64_t at)
{
    int64_t x;
    memcpy(&x, element(t, at), sizeof x);
    if (t->dtype == ATTN_U64) snprintf(text, VIEW_NUMBER, "%" PRIu64, (uint64_t)x);
    else snprintf(text, VIEW_NUMBER, "%" PRId64, x);
}

static int is_wide(attn_dtype dtype) { return dtype == ATTN_I64 || dtype == ATTN_U64; }

/* Without the sign that NaN may have. */
static void put_real(char text[VIEW_NUMBER], const char *format, int decimals, double x)
{
    if (isnan(x)) snprintf(text, VIEW_NUMBER, "nan");
    else if (isinf(x)) snprintf(text, VIEW_NUMBER, x > 0 ? "inf" : "-inf");
    else snprintf(text, VIEW_NUMBER, format, decimals, x);
}

void tensor_view_exact(char text[VIEW_NUMBER], const attn_archive_tensor *t, int64_t at)
{
    const double x = is_wide(t->dtype) ? 0 : tensor_view_number(t, at);
    const int digits = t->dtype == ATTN_F64 ? 17 : 9;
    if (is_wide(t->dtype)) {
        put_integer(text, t, at);
    } else if (!is_real(t->dtype) || (fabs(x) < 1e9 && x == nearbyint(x))) {
        put_real(text, "%.*f", 0, x); /* 10 and not 1e+01; an i32 has more digits than an f32 */
    } else {
        for (int some = 1; some <= digits; some++) { /* the fewest that read back as the same */
            put_real(text, "%.*g", some, x);
            double back;
            if (!isfinite(x) || (sscanf(text, "%lf", &back) == 1 && (t->dtype == ATTN_F64 ? back == x : (float)back == (float)x)))
                break;
        }
    }
}

/* ---- columns ---- */

/* How the numbers of a view are written. */
typedef struct style {
    const char *format;
    int decimals;
    int width;
} style;

/* Whether element i of an axis of `size` is shown. */
static int is_shown(shown some, int all, int64_t size, int64_t i)
{
    return all || size <= some.head + some.tail || i < some.head || i >= size - some.tail;
}

/* The element after i that is shown. */
static int64_t next_shown(shown some, int all, int64_t size, int64_t i)
{
    return is_shown(some, all, size, i + 1) ? i + 1 : size - some.tail;
}

static void put_number(char text[VIEW_NUMBER], const style *s, const attn_archive_tensor *t, int64_t at)
{
    if (is_wide(t->dtype)) put_integer(text, t, at);
    else put_real(text, s->format, s->decimals, tensor_view_number(t, at));
}

/* Rows and columns are the last two axes. */
static int64_t size_of(const tensor_view *v, int back) { return v->rank >= back ? v->shape[v->rank - back] : 1; }
static int64_t step_of(const tensor_view *v, int back) { return v->rank >= back ? v->step[v->rank - back] : 0; }

static int64_t matrix_count(const tensor_view *v)
{
    int64_t count = 1;
    for (int axis = 0; axis < v->rank - 2; axis++) count *= v->shape[axis];
    return count;
}

/* Calls `use` for every number that is shown. */
typedef void use_number(void *context, const tensor_view *v, int64_t at);
static void for_each_shown(const tensor_view *v, int all, use_number *use, void *context)
{
    const int64_t matrices = matrix_count(v), rows = size_of(v, 2), columns = size_of(v, 1);
    tensor_view leading = *v;
    leading.rank = v->rank > 2 ? v->rank - 2 : 0;
    leading.dense = 0;
    for (int64_t m = 0; m < matrices && rows && columns; m = next_shown(most[MATRICES], all, matrices, m))
        for (int64_t i = 0; i < rows; i = next_shown(most[ROWS], all, rows, i))
            for (int64_t j = 0; j < columns; j = next_shown(most[COLUMNS], all, columns, j))
                use(context, v, tensor_view_at(&leading, m, NULL) + i * step_of(v, 2) + j * step_of(v, 1));
}

typedef struct range {
    double least, largest; /* of the finite numbers that are not 0, without their signs */
    int whole;             /* 1: all are integers */
} range;

static void use_range(void *context, const tensor_view *v, int64_t at)
{
    range *r = context;
    const double x = fabs(tensor_view_number(v->tensor, at));
    if (!isfinite(x)) return;
    r->whole &= x == nearbyint(x);
    if (x == 0) return;
    r->least = fmin(r->least, x);
    r->largest = fmax(r->largest, x);
}

static void use_width(void *context, const tensor_view *v, int64_t at)
{
    char text[VIEW_NUMBER];
    style *s = context;
    put_number(text, s, v->tensor, at);
    if ((int)strlen(text) > s->width) s->width = (int)strlen(text);
}

/* Seven digits in all where that shows every number, else powers of ten. */
static style style_of(const tensor_view *v, int all)
{
    range r = {INFINITY, 0, 1};
    style s = {"%.*f", 0, 0};
    if (is_real(v->tensor->dtype)) {
        for_each_shown(v, all, use_range, &r);
        int before = 1;
        while (before < 6 && r.largest >= pow(10, before)) before++;
        s.decimals = r.whole ? 0 : 7 - before;
        if (r.largest >= (r.whole ? 1e9 : 1e6) || (!r.whole && r.least < 1e-4)) s.format = "%.*e", s.decimals = 5;
    }
    for_each_shown(v, all, use_width, &s);
    return s;
}

static void print_matrix(FILE *out, const tensor_view *v, const style *s, int all, int64_t first)
{
    const int64_t rows = size_of(v, 2), columns = size_of(v, 1);
    for (int64_t i = 0; i < rows; i = next_shown(most[ROWS], all, rows, i)) {
        if (i && !is_shown(most[ROWS], all, rows, i - 1))
            fprintf(out, "  ...  %" PRId64 " more rows\n", rows - most[ROWS].head - most[ROWS].tail);
        for (int64_t j = 0; j < columns; j = next_shown(most[COLUMNS], all, columns, j)) {
            char number[VIEW_NUMBER];
            put_number(number, s, v->tensor, first + i * step_of(v, 2) + j * step_of(v, 1));
            if (j && !is_shown(most[COLUMNS], all, columns, j - 1)) fputs("  ...", out);
            fprintf(out, "  %*s", s->width, number);
        }
        putc('\n', out);
    }
}

void tensor_view_print(FILE *out, const tensor_view *v, int all)
{
    const int64_t matrices = matrix_count(v);
    const style s = style_of(v, all);
    tensor_view leading = *v;
    leading.rank = v->rank > 2 ? v->rank - 2 : 0;
    leading.dense = 0;
    if (tensor_view_count(v) == 0) fputs("  no numbers\n", out);
    for (int64_t m = 0; m < matrices && tensor_view_count(v); m = next_shown(most[MATRICES], all, matrices, m)) {
        int64_t index[ATTN_MAX_RANK];
        const int64_t first = tensor_view_at(&leading, m, index);
        if (m && !is_shown(most[MATRICES], all, matrices, m - 1))
            fprintf(out, "...  %" PRId64 " more matrices\n", matrices - most[MATRICES].head - most[MATRICES].tail);
        if (leading.rank > 0) putc('[', out);
        for (int axis = 0; axis < leading.rank; axis++) fprintf(out, "%s%" PRId64, axis ? ", " : "", index[axis]);
        if (leading.rank > 0) fputs("]\n", out);
        print_matrix(out, v, &s, all, first);
    }
}

void tensor_view_print_archive(FILE *out, const attn_archive *archive)
{
    for (int64_t k = 0; k < attn_archive_count(archive); k++) {
        const attn_archive_tensor *t = attn_archive_at(archive, k);
        const tensor_view v = tensor_view_of(t);
        if (k) putc('\n', out);
        put_shown(out, t->name);
        fprintf(out, " %s [", attn_dtype_name(t->dtype));
        for (int axis = 0; axis < t->rank; axis++) fprintf(out, "%s%" PRId64, axis ? ", " : "", t->shape[axis]);
        fputs("]\n", out);
        tensor_view_print(out, &v, 0);
    }
}
