/* SPDX-License-Identifier: MIT
 * affine.c - see affine.h.  Sums are in the order of the features, in the compute type, whatever the instruction set. */
#include "affine.h"

#include <string.h>

static size_t size_of(const attn_affine *a) { return attn_dtype_size(a->compute); }

size_t attn_affine_map_bytes(const attn_affine *a) { return (size_t)(a->heads * a->features * a->width) * size_of(a); }

size_t attn_affine_state_bytes(const attn_affine *a)
{
    return (size_t)(a->heads * a->features * (a->dim_v + (a->normalised ? 1 : 0))) * size_of(a);
}

/* to [rows][columns] += A from, where A has `width` columns. */
#define ADD(type)                                                                                                                  \
    static void add_##type(int64_t rows, int64_t width, int64_t columns, const type *map, const type *from, type *to)              \
    {                                                                                                                              \
        for (int64_t f = 0; f < rows; f++)                                                                                         \
            for (int64_t g = 0; g < (width > 1 ? width : 1); g++) {                                                                \
                const type factor = width > 0 ? map[f * width + g] : 1, *row = from + (width > 1 ? g : f) * columns;               \
                for (int64_t c = 0; c < columns; c++) to[f * columns + c] += factor * row[c];                                      \
            }                                                                                                                      \
    }
ADD(float)
ADD(double)

/* The same for all heads. */
static void add_all(const attn_affine *a, const void *map, int64_t columns, const char *from, char *to)
{
    const size_t size = size_of(a);
    for (int64_t h = 0; h < a->heads; h++) {
        const size_t of_map = (size_t)(h * a->features * a->width) * size, at = (size_t)(h * a->features * columns) * size;
        const void *own = (const char *)map + of_map, *read = from + at;
        void *written = to + at;
        if (a->compute == ATTN_F64) add_double(a->features, a->width, columns, own, read, written);
        else add_float(a->features, a->width, columns, own, read, written);
    }
}

void attn_affine_add(const attn_affine *a, const void *map, const void *from, void *to)
{
    const size_t sums = (size_t)(a->heads * a->features * a->dim_v) * size_of(a);
    add_all(a, map, a->dim_v, from, to);
    if (a->normalised) add_all(a, map, 1, (const char *)from + sums, (char *)to + sums);
}

void attn_affine_multiply(const attn_affine *a, const void *later, const void *earlier, void *to)
{
    memset(to, 0, attn_affine_map_bytes(a));
    if (a->width > 0) add_all(a, later, a->width, earlier, to);
}

void attn_affine_transpose(const attn_affine *a, const void *map, void *to)
{
    const size_t size = size_of(a);
    const int64_t n = a->features;
    if (a->width <= 1) {
        memcpy(to, map, attn_affine_map_bytes(a));
        return;
    }
    for (int64_t h = 0; h < a->heads; h++)
        for (int64_t f = 0; f < n; f++)
            for (int64_t g = 0; g < n; g++)
                memcpy((char *)to + (size_t)((h * n + f) * n + g) * size, (const char *)map + (size_t)((h * n + g) * n + f) * size,
                       size);
}

void attn_affine_identity(const attn_affine *a, void *map)
{
    for (int64_t f = 0; f < a->features; f++)
        for (int64_t g = 0; g < a->width; g++) {
            const int one = a->width == 1 || f == g;
            if (a->compute == ATTN_F64) ((double *)map)[f * a->width + g] = one;
            else ((float *)map)[f * a->width + g] = (float)one;
        }
}
