/* SPDX-License-Identifier: MIT
 *
 * difference.c - the largest differences between tensors of the same names. */
#include "difference.h"

#include <math.h>
#include <string.h>

#include "cli/base/tensor_view.h"
#include "find.h"
#include "input.h"
#include "testing/text/failure.h"

static double difference_at(const attn_archive_tensor *a, const attn_archive_tensor *b, int64_t i)
{
    const double x = tensor_view_number(a, i), y = tensor_view_number(b, i);
    if (x == y || (isnan(x) && isnan(y))) return 0; /* infinities too */
    return fabs(x - y);
}

static void largest_of(const attn_archive_tensor *a, const attn_archive_tensor *b, difference *d)
{
    int64_t count = (int64_t)(a->bytes / attn_dtype_size(a->dtype)), at = 0;
    d->name = a->name;
    d->largest = 0;
    for (int64_t i = 0; i < count && !isnan(d->largest); i++) {
        double here = difference_at(a, b, i);
        if (!(here > d->largest) && !isnan(here)) continue;
        d->largest = here;
        at = i;
    }
    for (int axis = a->rank - 1; axis >= 0; axis--) {
        int64_t size = a->shape[axis] > 0 ? a->shape[axis] : 1;
        d->index[axis] = at % size;
        at /= size;
    }
}

attn_status differences_find(const attn_archive *archive, const attn_archive *reference, difference *list, int *count,
                             attn_error *error)
{
    *count = 0;
    for (int64_t i = 0; i < attn_archive_count(archive); i++) {
        char archive_shape[SHAPE_TEXT], reference_shape[SHAPE_TEXT];
        const attn_archive_tensor *a = attn_archive_at(archive, i), *b = attn_archive_find(reference, a->name);
        if (!b) continue;
        if (a->rank != b->rank || memcmp(a->shape, b->shape, (size_t)a->rank * sizeof *a->shape) != 0)
            return failure(error, ATTN_ERR_SHAPE, "tensor '%s' to compare with has the shape %.60s, and the result %.60s", a->name,
                           shape_text(reference_shape, b->rank, b->shape), shape_text(archive_shape, a->rank, a->shape));
        largest_of(a, b, &list[(*count)++]);
    }
    if (*count) return ATTN_OK;
    char names[100];
    input_list(archive, names, sizeof names);
    return failure(error, ATTN_ERR_ARGUMENT, "it has none of the results, which --compare would compare with its own: %s", names);
}
