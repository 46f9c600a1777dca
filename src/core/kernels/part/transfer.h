/* SPDX-License-Identifier: MIT
 *
 * transfer.h - a part of a kernel: rows on their way from one tensor to another, rotated, converted or quantised.  Every number is
 * computed in double without fused operations and rounded once, so that it has the same bits whatever the instruction set and
 * wherever it lies in a vector.  It shares no buffers with the others.
 */
#ifndef ATTN_KERNELS_PART_TRANSFER_H
#define ATTN_KERNELS_PART_TRANSFER_H

#include <stdint.h>

#include "attn/types.h"

/* Rows of a tensor of any float type, `stride` elements apart. */
typedef struct attn_transfer_rows {
    void *data; /* not written if they are read */
    attn_dtype dtype;
    int64_t stride;
} attn_transfer_rows;

/* The most pairs of channels that are rotated at a time. */
enum { ATTN_ROTATED_PAIRS = 512 };

typedef struct attn_transfer_part {
    /* cosines[i] = magnitude cos(position * frequencies[i]), and sines likewise, for i < pairs. */
    void (*angles)(int64_t pairs, double position, const double *frequencies, double magnitude, double *cosines, double *sines);
    /* Rotates the first `pairs` pairs of channels of each row, at most ATTN_ROTATED_PAIRS, by the same angles.  `apart`: from a
     * pair's first channel to its second; if it is 1, pairs follow each other, else first channels do.  to may be from. */
    void (*rotate)(int64_t rows, int64_t pairs, int64_t apart, const double *cosines, const double *sines, attn_transfer_rows from,
                   attn_transfer_rows to);
    /* Copies the first dim channels of each row.  to may be from, if the types are equal. */
    void (*convert)(int64_t rows, int64_t dim, attn_transfer_rows from, attn_transfer_rows to);
    /* One row of attn_quantise, as i8. */
    void (*quantise)(int64_t dim, const void *row, attn_dtype dtype, int8_t *values, float *scale);
} attn_transfer_part;

#endif
