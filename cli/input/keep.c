/* SPDX-License-Identifier: MIT
 * keep.c - see keep.h. */
#include "keep.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/base/commands.h"
#include "cli/base/tensor_view.h"
#include "input.h"
#include "testing/text/failure.h"

/* ---- values ---- */

static int is_float(attn_dtype dtype) { return dtype == ATTN_F32 || dtype == ATTN_F64 || dtype == ATTN_F16 || dtype == ATTN_BF16; }

int keep_type_fits(attn_dtype dtype) { return is_float(dtype) || dtype == ATTN_BOOL || (dtype >= ATTN_I8 && dtype <= ATTN_U64); }

/* What hides when it is added: -infinity, the lowest number of a type, -1e9, -10000. */
static const double HIDING_SUM = -1000;

typedef struct values {
    int64_t other; /* the first that is neither 0 nor 1; -1: none */
    double at_other;
    int zeros_only, is_additive;
    double lowest;
} values;

static int64_t count_of(const attn_archive_tensor *t) { return (int64_t)(t->bytes / attn_dtype_size(t->dtype)); }

static values look_at(const attn_archive_tensor *t, int64_t count)
{
    values v = {.other = -1, .zeros_only = 1, .is_additive = 1};
    for (int64_t k = 0; k < count; k++) {
        const double x = tensor_view_number(t, k);
        const int zero = x == 0; /* not NaN */
        if (!zero) v.zeros_only = 0;
        if (!zero && !(x <= HIDING_SUM)) v.is_additive = 0;
        if (x < v.lowest) v.lowest = x;
        if (!zero && (x < 1 || x > 1 || isnan(x)) && v.other < 0) v.other = k, v.at_other = x;
    }
    return v;
}

/* "[0, 1, 3]": where element k is. */
static const char *place(char text[SHAPE_TEXT], const attn_archive_tensor *t, int64_t k)
{
    int64_t index[ATTN_MAX_RANK];
    for (int axis = t->rank - 1; axis >= 0; axis--) index[axis] = k % t->shape[axis], k /= t->shape[axis];
    return shape_text(text, t->rank, index);
}

static attn_status check_values(const attn_archive_tensor *t, const values *v, int drop, attn_error *error)
{
    char at[SHAPE_TEXT];
    const char *added = "";
    if (v->other < 0 && !(v->zeros_only && is_float(t->dtype) && t->bytes && !drop)) return ATTN_OK;
    if (v->other < 0)
        return failure(
            error, ATTN_ERR_ARGUMENT,
            "tensor '%.40s' is %s and all 0: as a mask it hides every key, and as numbers to be added it changes nothing; "
            "--ignore=%.40s leaves it out",
            t->name, attn_dtype_name(t->dtype), t->name);
    if (v->is_additive)
        added = is_float(t->dtype) ? "; without --mask-drop its numbers are added" : "; numbers to be added are of a float type";
    return failure(error, ATTN_ERR_ARGUMENT, "tensor '%.40s' is a mask and has %g at %.60s; expected 0 and 1%s", t->name,
                   v->at_other, place(at, t, v->other), added);
}

static attn_status read_values(keep_mask *mask, const attn_archive_tensor *from, int drop, attn_error *error)
{
    const int64_t count = count_of(from);
    *mask = (keep_mask){.tensor = *from};
    if (from->dtype == ATTN_BOOL && !drop) return ATTN_OK;
    const values v = look_at(from, count);
    if (v.other >= 0 && v.is_additive && is_float(from->dtype) && !drop) {
        mask->is_added = 1;
        command_warn("tensor '%.40s' is added to the scores, as a bias: it has 0 and %g, not 0 and 1", from->name, v.lowest);
        return ATTN_OK;
    }
    const attn_status status = check_values(from, &v, drop, error);
    if (status != ATTN_OK) return status;
    mask->bytes = need_memory(count > 0 ? count : 1, 1);
    for (int64_t k = 0; k < count; k++) mask->bytes[k] = (tensor_view_number(from, k) != 0) != drop;
    mask->tensor.data = mask->bytes;
    mask->tensor.dtype = ATTN_BOOL;
    mask->tensor.bytes = (size_t)count;
    return ATTN_OK;
}

/* ---- shapes ---- */

static int fits(int64_t have, int64_t size) { return have == size || have == 1; }

/* Puts `count` axes of size 1 after the first `first` ones. */
static void widen(attn_archive_tensor *t, int first, int count)
{
    memmove(t->shape + first + count, t->shape + first, (size_t)(t->rank - first) * sizeof *t->shape);
    for (int k = 0; k < count; k++) t->shape[first + k] = 1;
    t->rank += count;
}

static attn_status complete_axes(keep_mask *mask, int64_t batch, int64_t heads, int64_t queries, int64_t keys, attn_error *error)
{
    attn_archive_tensor *t = &mask->tensor;
    char shape[SHAPE_TEXT];
    const int64_t *d = t->shape;
    const int rank = t->rank, of_keys = rank > 0 && d[rank - 1] == keys;
    if (rank == 1 && of_keys) widen(t, 0, 1);
    if ((rank != 2 && rank != 3) || batch < 2 || d[0] != batch) return ATTN_OK;
    const int by_entry = rank == 2 ? of_keys : fits(d[1], queries) && fits(d[2], keys);
    const int usual = rank == 2 ? fits(d[0], queries) && fits(d[1], keys) : fits(d[0], heads) && by_entry;
    if (by_entry && usual)
        return failure(
            error, ATTN_ERR_SHAPE,
            "tensor '%.40s' %.60s may be [batch, %s] or [%s]; an axis of size 1 in the place of each other one of [batch, "
            "head, query, key] says which",
            t->name, shape_text(shape, rank, t->shape), rank == 2 ? "key" : "query, key",
            rank == 2 ? "query, key" : "head, query, key");
    if (by_entry) widen(t, 1, rank == 2 ? 2 : 1);
    return ATTN_OK;
}

/* ---- both ---- */

attn_status keep_mask_read(keep_mask *mask, const attn_archive_tensor *from, const attn_archive_tensor *bias, int drop,
                           const int64_t size[4], attn_error *error)
{
    attn_status status = read_values(mask, from, drop, error);
    if (status == ATTN_OK) status = complete_axes(mask, size[0], size[1], size[2], size[3], error);
    if (status != ATTN_OK || !mask->is_added || !bias) return status;
    return failure(error, ATTN_ERR_ARGUMENT,
                   "tensor '%.40s' has numbers to be added to the scores, as '%.40s' has; make them one, or leave one out with "
                   "--ignore",
                   from->name, bias->name);
}

/* ---- doubts ---- */

void keep_bias_doubt(const attn_archive_tensor *t)
{
    const int64_t count = count_of(t);
    int64_t ones = 0, k = 0;
    for (double x = 0; k < count; k++) {
        x = tensor_view_number(t, k);
        if (x < 0 || x > 1 || (x > 0 && x < 1) || isnan(x)) break;
        ones += x > 0;
    }
    if (k == count && ones)
        command_warn("tensor '%.40s' is added to the scores and has 0 and 1 alone, as a mask has; --mask=%.40s takes it as one",
                     t->name, t->name);
}

/* 1 if the name ends so. */
static int ends_in(const char *name, const char *end)
{
    const size_t length = strlen(name), tail = strlen(end);
    return length >= tail && strcmp(name + length - tail, end) == 0;
}

void keep_name_doubt(const attn_archive *file, const attn_archive_tensor *used)
{
    for (int64_t n = 0; file && n < attn_archive_count(file); n++) {
        const attn_archive_tensor *t = attn_archive_at(file, n);
        const int padding = ends_in(t->name, "padding_mask"); /* PyTorch's: 1 hides */
        if (t == used || !(padding || ends_in(t->name, "attention_mask") || ends_in(t->name, "attn_mask"))) continue;
        command_warn("tensor '%.40s' is not used; --mask=%.40s%s takes it as the mask", t->name, t->name,
                     padding ? " --mask-drop" : "");
        return;
    }
}

/* The byte of a pair, whose axes in `one` have a single element. */
static int keeps(const unsigned char *bytes, const int64_t size[4], int one, const int64_t at[4])
{
    int64_t index = 0;
    for (int axis = 0; axis < 4; axis++)
        if (!(one >> axis & 1)) index = index * size[axis] + at[axis];
    return bytes[index] != 0;
}

/* The first batch entry of which no pair is kept; -1: none. */
static int64_t entry_without_keys(const unsigned char *bytes, const int64_t size[4], int one)
{
    int64_t each = 1;
    for (int axis = 1; axis < 4; axis++) each *= one >> axis & 1 ? 1 : size[axis];
    for (int64_t b = 0; each && b < (one & SPEC_ONE_B ? 1 : size[0]); b++) {
        int64_t n = 0;
        while (n < each && !bytes[b * each + n]) n++;
        if (n == each) return b;
    }
    return -1;
}

static int hides_own_keys(const unsigned char *bytes, const int64_t size[4], int one)
{
    if (size[2] != size[3] || size[2] < 2) return 0;
    for (int64_t b = 0; b < size[0]; b++)
        for (int64_t h = 0; h < size[1]; h++)
            for (int64_t i = 0; i < size[2]; i++)
                if (keeps(bytes, size, one, (const int64_t[4]){b, h, i, i})) return 0;
    return size[0] > 0 && size[1] > 0;
}

void keep_mask_doubt(const char *name, const unsigned char *bytes, const int64_t size[4], int one, int drop)
{
    const char *advice = drop ? "without --mask-drop, 1 = keep" : "--mask-drop takes it as one with 1 = hide";
    const int64_t entry = entry_without_keys(bytes, size, one);
    if (entry >= 0) command_warn("tensor '%.40s' hides all keys of batch entry %" PRId64 "; %s", name, entry, advice);
    else if (hides_own_keys(bytes, size, one))
        command_warn("tensor '%.40s' hides from every query the key at its own position; %s", name, advice);
}
