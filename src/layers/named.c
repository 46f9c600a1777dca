/* SPDX-License-Identifier: MIT
 * named.c - tensors of a file as weights: finding, checking, adding. */
#include "named.h"

#include <inttypes.h>
#include <string.h>

attn_status attn_named_full(char name[NAMED], const char *prefix, const char *end, attn_error *error)
{
    CHECK(strlen(prefix) + strlen(end) < NAMED, ATTN_ERR_ARGUMENT, "layer: the prefix has %zu bytes; at most %zu fit",
          strlen(prefix), NAMED - strlen(end) - 1);
    memcpy(name, prefix, strlen(prefix));
    memcpy(name + strlen(prefix), end, strlen(end) + 1);
    return ATTN_OK;
}

attn_status attn_named_check(const layer *l, const attn_archive_tensor *t, int64_t rows, int64_t columns, attn_error *error)
{
    const int rank = columns ? 2 : 1;
    char expected[60], found[200] = "[";
    size_t at = 1;
    if (columns) (void)snprintf(expected, sizeof expected, "[%" PRId64 ", %" PRId64 "]", rows, columns);
    else (void)snprintf(expected, sizeof expected, "[%" PRId64 "]", rows);
    for (int i = 0; i < t->rank && at < sizeof found - 24; i++)
        at += (size_t)snprintf(found + at, sizeof found - at, "%s%" PRId64, i ? ", " : "", t->shape[i]);
    (void)snprintf(found + at, sizeof found - at, "]");
    CHECK(t->rank == rank && t->shape[0] == rows && (rank == 1 || t->shape[1] == columns), ATTN_ERR_SHAPE,
          "layer: tensor '%s' has shape %s; the layer has %s", t->name, found, expected);
    CHECK(t->dtype == l->dtype, ATTN_ERR_UNSUPPORTED, "layer: tensor '%s' is %s; the layer is %s", t->name,
          attn_dtype_name(t->dtype), attn_dtype_name(l->dtype));
    const int64_t count = rows * (columns ? columns : 1);
    for (int64_t i = 0; i < count; i++) {
        const double x = l->dtype == ATTN_F64 ? ((const double *)t->data)[i] : (double)((const float *)t->data)[i];
        CHECK(x == x, ATTN_ERR_ARGUMENT, "layer: tensor '%s' has a NaN at element %" PRId64, t->name, i);
    }
    return ATTN_OK;
}

attn_status attn_named_find(const layer *l, const attn_archive *tensors, const char *prefix, const char *end, int64_t rows,
                            int64_t columns, int needed, char **data, attn_error *error)
{
    char name[NAMED];
    TRY(attn_named_full(name, prefix ? prefix : "", end, error));
    const attn_archive_tensor *t = attn_archive_find(tensors, name);
    CHECK(t || !needed, ATTN_ERR_ARGUMENT, "layer: no tensor '%s'", name);
    *data = NULL;
    if (!t) return ATTN_OK;
    TRY(attn_named_check(l, t, rows, columns, error));
    *data = (char *)(uintptr_t)t->data;
    return ATTN_OK;
}

attn_status attn_named_allocate(const layer *l, named_new *to, const char *end, int rank, const int64_t *shape, char **data,
                                attn_error *error)
{
    char name[NAMED];
    void *memory;
    TRY(attn_named_full(name, to->prefix ? to->prefix : "", end, error));
    TRY(attn_archive_allocate(to->tensors, name, l->dtype, rank, shape, &memory, error));
    to->ends[to->count++] = end;
    *data = memory;
    return ATTN_OK;
}

attn_status attn_named_add(const layer *l, named_new *to, const char *end, int64_t rows, int64_t columns, char **data,
                           attn_error *error)
{
    const int64_t shape[2] = {rows, columns};
    return attn_named_allocate(l, to, end, columns ? 2 : 1, shape, data, error);
}

attn_status attn_named_end(const named_new *to, attn_status status, attn_error *error)
{
    if (status == ATTN_OK) return succeed(error);
    for (int i = 0; i < to->count; i++) {
        char name[NAMED];
        (void)attn_named_full(name, to->prefix ? to->prefix : "", to->ends[i], NULL); /* it fitted before */
        (void)attn_archive_remove(to->tensors, name, NULL);                           /* and is there */
    }
    return status;
}
