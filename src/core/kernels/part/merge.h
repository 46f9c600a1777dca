/* SPDX-License-Identifier: MIT
 *
 * merge.h - a part of a kernel: combines results over disjoint keys.  It shares no buffers with the others.
 */
#ifndef ATTN_KERNELS_PART_MERGE_H
#define ATTN_KERNELS_PART_MERGE_H

#include "tile.h"

/* Results of the same queries over disjoint keys: for each query, `parts` rows of `dim` numbers of any storage type. */
typedef struct attn_merge_part {
    /* L [part][ld], the lse of `rows` rows, becomes weights, 0 where it is -infinity.  most is the largest lse and total the sum
     * that weights are divided by: the combined lse is most + log(total). */
    void (*weights)(int64_t parts, int64_t rows, void *L, int64_t ld, void *most, void *total);
    /* out = start (NULL: 0) + sum over parts of weights[part*ld] rows[part], rounded once; a part of weight 0 is not read.  out is
     * of dtype if `last`, else of T, like start.  It may be one of the rows. */
    void (*add)(int64_t parts, int64_t dim, const void *const *rows, attn_dtype dtype, const void *weights, int64_t ld,
                const void *start, void *out, int last);
    /* sum_c a[c] b[c]. */
    double (*inner)(int64_t dim, const void *a, const void *b, attn_dtype dtype);
} attn_merge_part;

#endif
