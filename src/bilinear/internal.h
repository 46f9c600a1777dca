/* SPDX-License-Identifier: MIT
 * internal.h - argument checks shared by the functions of attn/bilinear.h. */
#ifndef ATTN_BILINEAR_INTERNAL_H
#define ATTN_BILINEAR_INTERNAL_H

#include <inttypes.h>

#include "../common/places.h"
#include "../common/slots.h"
#include "attn/bilinear.h"

/* dim is at least 1, count at least 0, and arrays of count * dim and dim * dim doubles take at most PTRDIFF_MAX bytes; so neither
 * dim * (dim + 4) nor count * dim + 1 doubles, which functions allocate, wrap a size_t of twice that. */
static inline attn_status bilinear_check_sizes(int64_t count, int64_t dim, attn_error *error)
{
    CHECK(dim >= 1, ATTN_ERR_SHAPE, "dim is %" PRId64 "; it must be at least 1", dim);
    CHECK(count >= 0, ATTN_ERR_SHAPE, "count (%" PRId64 ") is negative", count);
    CHECK(dim <= PTRDIFF_MAX / 8 / dim && count <= PTRDIFF_MAX / 8 / dim, ATTN_ERR_SHAPE,
          "count %" PRId64 " and dim %" PRId64 " exceed the address space", count, dim);
    return ATTN_OK;
}

/* An array argument, [rows][columns]; data NULL: absent. */
typedef struct bilinear_array {
    const char *name;
    const double *data;
    int64_t rows, columns;
    int output;
} bilinear_array;

/* Outputs overlap no other array. */
static inline attn_status bilinear_no_overlap(const bilinear_array *arrays, size_t count, attn_error *error)
{
    places all = {.size = sizeof(double)};
    for (size_t i = 0; i < count; i++)
        places_add_numbers(&all, arrays[i].name, arrays[i].data, 1, arrays[i].rows, arrays[i].columns, arrays[i].output);
    return places_check(&all, "bilinear", error);
}
#define IN(name, rows, columns)                                                                                                    \
    {                                                                                                                              \
#name, name, rows, columns, 0                                                                                              \
    }
#define OUT(name, rows, columns)                                                                                                   \
    {                                                                                                                              \
#name, name, rows, columns, 1                                                                                              \
    }
#define CHECK_NO_OVERLAP(...)                                                                                                      \
    do {                                                                                                                           \
        const bilinear_array arrays[] = {__VA_ARGS__};                                                                             \
        TRY(bilinear_no_overlap(arrays, sizeof arrays / sizeof *arrays, error));                                                   \
    } while (0)

/* A pointer that must not be NULL. */
#define CHECK_POINTER(name) CHECK(name, ATTN_ERR_ARGUMENT, #name " is NULL")

#endif
