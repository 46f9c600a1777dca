/* SPDX-License-Identifier: MIT
 * rows.h - tensors of any float type as rows of doubles. */
#ifndef ATTN_POSITION_ROWS_H
#define ATTN_POSITION_ROWS_H

#include "attn/attn.h"

/* Fills in dense strides and the default type, `natural`; name is for messages. */
attn_status attn_rows_resolve(attn_input *slot, const char *name, const int64_t shape[4], attn_dtype natural, attn_error *error);

/* A dense array that is read; data NULL: none. */
typedef struct attn_rows_read {
    const char *name;
    const double *data;
    int64_t rows, columns;
} attn_rows_read;

/* The positions of tokens, [batch, 1, tokens, 1]: checked and filled in.  If given is NULL or a slot of zeros, so is resolved. */
attn_status attn_rows_positions(attn_input *resolved, const attn_input *given, const char *name, int64_t batch, int64_t tokens,
                                attn_error *error);

/* The position of token t of entry b. */
static inline int64_t attn_rows_position(const attn_input *positions, int64_t b, int64_t t)
{
    if (!positions->data) return t;
    const int64_t at = b * positions->stride[0] + t * positions->stride[2];
    return positions->dtype == ATTN_I32 ? ((const int32_t *)positions->data)[at] : ((const int64_t *)positions->data)[at];
}

/* y may coincide with x (NULL: absent) element for element; otherwise it overlaps neither x nor anything else that is read. */
typedef struct attn_rows_places {
    const attn_input *y, *x, *table;
    const int64_t *shape, *shape_x; /* of y and of x */
    int64_t rows, channels;         /* of the table */
    const attn_input *positions;    /* of the tokens of x, or of y if there is no x */
    attn_rows_read read[3];
} attn_rows_places;

attn_status attn_rows_no_overlap(const attn_rows_places *places, const char *module, const char *y, const char *x,
                                 attn_error *error);

/* 1 for f32, f64, f16 and bf16. */
static inline int attn_rows_is_float(attn_dtype dtype) { return dtype >= ATTN_F32 && dtype <= ATTN_BF16; }

/* Element c of a row as a double, and back. */
static inline double attn_rows_get(const void *row, attn_dtype dtype, int64_t c)
{
    double value;
    (void)attn_convert(1, (const char *)row + c * (int64_t)attn_dtype_size(dtype), dtype, &value, ATTN_F64, NULL);
    return value;
}

static inline void attn_rows_put(void *row, attn_dtype dtype, int64_t c, double value)
{
    (void)attn_convert(1, &value, ATTN_F64, (char *)row + c * (int64_t)attn_dtype_size(dtype), dtype, NULL);
}

#endif
