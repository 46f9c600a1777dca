/* SPDX-License-Identifier: MIT
 * sizes.h - whether the byte count of a caller's array fits 64 bits.  (src/core has base/checked.h.) */
#ifndef ATTN_COMMON_SIZES_H
#define ATTN_COMMON_SIZES_H

#include <stdint.h>

/* 1 if their product is certain to fit: tested first, since a division takes as long as the rest of a rule. */
static inline int sizes_are_small(int64_t a, int64_t b) { return (uint64_t)(a | b) >> 31 == 0; }

/* For sizes that are not negative; `bytes`: of one number. */
static inline int sizes_fit(int64_t bytes, const int64_t *sizes, int count)
{
    int64_t product = bytes;
    for (int n = 0; n < count; n++)
        if (sizes[n] == 0) return 1;
    for (int n = 0; n < count; n++) {
        if (!sizes_are_small(product, sizes[n]) && sizes[n] > INT64_MAX / product) return 0;
        product *= sizes[n];
    }
    return 1;
}

/* Their product, which fits; 0 if one is 0, even if the product of the others does not fit. */
static inline int64_t sizes_product(const int64_t *sizes, int count)
{
    int64_t product = 1;
    for (int n = 0; n < count; n++)
        if (sizes[n] == 0) return 0;
    for (int n = 0; n < count; n++) product *= sizes[n];
    return product;
}

/* The axis with which a tensor exceeds the address range; -1: none. */
static inline int strides_beyond(int64_t bytes, const int64_t shape[4], const int64_t stride[4])
{
    const int64_t most = INT64_MAX / bytes - 1;
    int64_t span = 0;
    for (int axis = 0; axis < 4; axis++)
        if (shape[axis] == 0) return -1;
    for (int axis = 0; axis < 4; axis++) {
        if (shape[axis] == 1 || stride[axis] == 0) continue;
        if (stride[axis] < -most || stride[axis] > most) return axis;
        const int64_t step = stride[axis] < 0 ? -stride[axis] : stride[axis];
        const int64_t last = shape[axis] - 1;
        if (sizes_are_small(last, step) ? last * step > most - span : last > (most - span) / step) return axis;
        span += last * step;
    }
    return -1;
}

#endif
