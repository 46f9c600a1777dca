/* SPDX-License-Identifier: MIT
 * differ.c - how far the tensors of two files are from each other. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/input/input.h"
#include "show.h"
#include "testing/memory/element.h"
#include "testing/text/failure.h"
#include "testing/text/nearest.h"
#include "testing/text/shown.h"

/* ---- one tensor ---- */

/* The bits of its fraction with the one before them, and the exponent of its smallest number; 0: it is no float type. */
static int digits_of(attn_dtype dtype, int *least)
{
    *least = dtype == ATTN_F64 ? -1074 : dtype == ATTN_F16 ? -24 : dtype == ATTN_BF16 ? -133 : -149;
    return dtype == ATTN_F64 ? 53 : dtype == ATTN_F32 ? 24 : dtype == ATTN_F16 ? 11 : dtype == ATTN_BF16 ? 8 : 0;
}

/* The unit in the last place of x in a type of so many digits. */
static double unit_of(double x, int digits, int least)
{
    int exponent = least;
    if (x != 0) (void)frexp(x, &exponent);
    exponent -= x != 0 ? digits : 0;
    return ldexp(1, exponent > least ? exponent : least);
}

static void keep_worst(worst *w, double error, int64_t at)
{
    if (w->at < 0 || error > w->error || (isnan(error) && !isnan(w->error))) *w = (worst){error, at};
}

/* Integers of 64 bits, whose difference a double would not have. */
static int same_bits(const tensor_view *one, const tensor_view *other, int64_t a, int64_t b)
{
    const size_t size = attn_dtype_size(one->tensor->dtype);
    return one->tensor->dtype == other->tensor->dtype && memcmp((const char *)one->tensor->data + (size_t)a * size,
                                                                (const char *)other->tensor->data + (size_t)b * size, size) == 0;
}

static void compare_numbers(difference_of *d)
{
    int least, other_least;
    const int digits = digits_of(d->one.tensor->dtype, &least), other_digits = digits_of(d->other.tensor->dtype, &other_least);
    const int fewer = !digits || !other_digits ? 0 : digits < other_digits ? digits : other_digits;
    if (other_digits < digits) least = other_least;
    for (int64_t n = 0; n < tensor_view_count(&d->one); n++) {
        const int64_t a = tensor_view_at(&d->one, n, NULL), b = tensor_view_at(&d->other, n, NULL);
        const double x = tensor_view_number(d->one.tensor, a), y = tensor_view_number(d->other.tensor, b);
        if (same_bits(&d->one, &d->other, a, b) || (isnan(x) && isnan(y))) continue;
        if (x == y && (fewer || fabs(x) < 0x1p53)) continue; /* also 0 and -0 */
        const double error = isnan(x) || isnan(y) ? NAN : fabs(x - y);
        d->differ++;
        keep_worst(&d->absolute, error, n);
        keep_worst(&d->relative, error / fabs(y), n);
        if (fewer) keep_worst(&d->units, error / unit_of(fmax(fabs(x), fabs(y)), fewer, least), n);
    }
}

difference_of compare_views(const char *name, const tensor_view *one, const tensor_view *other)
{
    difference_of d = {.name = name, .absolute = {0, -1}, .relative = {0, -1}, .units = {0, -1}};
    if (one) d.one = *one;
    if (other) d.other = *other;
    d.agreement = !one ? AGREE_ADDED : !other ? AGREE_MISSING : AGREE_SAME;
    if (d.agreement) return d;
    if (one->rank != other->rank || memcmp(one->shape, other->shape, (size_t)one->rank * sizeof *one->shape) != 0) {
        d.agreement = AGREE_SHAPE;
        return d;
    }
    compare_numbers(&d);
    if (d.differ) d.agreement = AGREE_NUMBERS;
    if (one->tensor->dtype != other->tensor->dtype) d.agreement = AGREE_TYPE;
    return d;
}

/* ---- printing ---- */

static const char *place(char text[SHAPE_TEXT], const tensor_view *v, int64_t n)
{
    int64_t index[ATTN_MAX_RANK];
    (void)tensor_view_at(v, n, index);
    return shape_text(text, v->rank, index);
}

/* Both numbers; with all digits if they look the same, as 0.1 does in f32 and f64. */
static void put_both(char x[VIEW_NUMBER], char y[VIEW_NUMBER], const difference_of *d, int64_t n)
{
    const int64_t a = tensor_view_at(&d->one, n, NULL), b = tensor_view_at(&d->other, n, NULL);
    tensor_view_exact(x, d->one.tensor, a);
    tensor_view_exact(y, d->other.tensor, b);
    if (strcmp(x, y) != 0) return;
    snprintf(x, VIEW_NUMBER, "%.17g", tensor_view_number(d->one.tensor, a));
    snprintf(y, VIEW_NUMBER, "%.17g", tensor_view_number(d->other.tensor, b));
}

static void print_worst(const char *what, const worst *w, const difference_of *d)
{
    char where[SHAPE_TEXT], x[VIEW_NUMBER], y[VIEW_NUMBER];
    if (w->at < 0) return;
    put_both(x, y, d, w->at);
    printf("  %-9s %-10.4g at %s: %s, %s\n", what, w->error, place(where, &d->one, w->at), x, y);
}

static void print_difference(const difference_of *d, const char *path, const char *other_path)
{
    static const char *const says[] = {"same", "differs", "type differs", "shape differs"};
    char shape[SHAPE_TEXT];
    put_shown(stdout, d->name);
    if (d->agreement >= AGREE_MISSING) {
        printf(": not in ");
        put_shown(stdout, d->agreement == AGREE_MISSING ? other_path : path);
        putchar('\n');
        return;
    }
    printf(" %s %s: %s", attn_dtype_name(d->one.tensor->dtype), shape_text(shape, d->one.rank, d->one.shape), says[d->agreement]);
    if (d->agreement == AGREE_TYPE) printf(", %s", attn_dtype_name(d->other.tensor->dtype));
    if (d->agreement == AGREE_SHAPE) printf(", %s", shape_text(shape, d->other.rank, d->other.shape));
    if (d->differ) printf(", %" PRId64 " of %" PRId64 " numbers", d->differ, tensor_view_count(&d->one));
    putchar('\n');
    print_worst("absolute", &d->absolute, d);
    print_worst("relative", &d->relative, d);
    print_worst("units", &d->units, d);
}

static void json_worst(cJSON *item, const char *name, const worst *w, const difference_of *d)
{
    char where[SHAPE_TEXT], x[VIEW_NUMBER], y[VIEW_NUMBER];
    if (w->at < 0) return;
    cJSON *object = json_object(item, name);
    json_number(object, "error", w->error);
    cJSON_AddRawToObject(object, "index", place(where, &d->one, w->at));
    put_both(x, y, d, w->at);
    json_text(object, "value", x);
    json_text(object, "other", y);
}

static void json_side(cJSON *item, const char *type, const char *name, const tensor_view *v)
{
    char shape[SHAPE_TEXT];
    if (!v->tensor) return;
    json_text(item, type, attn_dtype_name(v->tensor->dtype));
    cJSON_AddRawToObject(item, name, shape_text(shape, v->rank, v->shape));
}

static void json_difference(cJSON *list, const difference_of *d)
{
    static const char *const names[] = {"same", "differs", "type", "shape", "missing", "added"};
    cJSON *item = json_item(list);
    json_text(item, "name", d->name);
    json_text(item, "status", names[d->agreement]);
    json_side(item, "dtype", "shape", &d->one);
    json_side(item, "other_dtype", "other_shape", &d->other);
    json_int(item, "differ", d->differ);
    json_worst(item, "absolute", &d->absolute, d);
    json_worst(item, "relative", &d->relative, d);
    json_worst(item, "units", &d->units, d);
}

/* ---- two files ---- */

static attn_status cut(tensor_view *v, const attn_archive_tensor *t, const selection *chosen, const char *path, attn_error *error)
{
    if (!t) return ATTN_OK;
    *v = tensor_view_of(t);
    const attn_status status = slice_view(v, chosen->slice, error);
    return status == ATTN_OK ? status : failure_about(error, path);
}

int show_differences(const attn_archive *file, const attn_archive *other, const selection *chosen, const char *path,
                     const char *other_path, cJSON *object, attn_error *error)
{
    int different = 0, found = 0;
    cJSON *list = object ? json_list(object, "tensors") : NULL;
    for (int side = 0; side < 2; side++) { /* those of the file, then those of the other alone */
        const attn_archive *of = side ? other : file;
        for (int64_t k = 0; k < attn_archive_count(of); k++) {
            const char *name = attn_archive_at(of, k)->name;
            const attn_archive_tensor *a = attn_archive_find(file, name), *b = attn_archive_find(other, name);
            tensor_view one, two;
            if ((side && a) || (chosen->name && strcmp(name, chosen->name) != 0)) continue;
            if (cut(&one, a, chosen, path, error) != ATTN_OK || cut(&two, b, chosen, other_path, error) != ATTN_OK) return -1;
            const difference_of d = compare_views(name, a ? &one : NULL, b ? &two : NULL);
            found++;
            different += d.agreement != AGREE_SAME;
            if (list) json_difference(list, &d);
            else print_difference(&d, path, other_path);
        }
    }
    if (found || !chosen->name) return different;
    failure(error, ATTN_ERR_ARGUMENT, "no tensor '%.60s' in %.100s, nor in %.100s", chosen->name, path, other_path);
    return -1;
}
