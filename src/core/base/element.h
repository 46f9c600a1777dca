/* SPDX-License-Identifier: MIT
 * element.h - one element of a tensor of any float type, as a double.  For occasional elements; kernels have their own loads. */
#ifndef ATTN_BASE_ELEMENT_H
#define ATTN_BASE_ELEMENT_H

#include "attn/attn.h"
#include "half.h"

static inline int attn_is_float(attn_dtype dtype) { return dtype >= ATTN_F32 && dtype <= ATTN_BF16; }

static inline double attn_element_get(const void *base, attn_dtype dtype, int64_t i)
{
    switch (dtype) {
    case ATTN_F32:
        return (double)((const float *)base)[i];
    case ATTN_F16:
        return (double)attn_f32_of_f16(((const uint16_t *)base)[i]);
    case ATTN_BF16:
        return (double)attn_f32_of_bf16(((const uint16_t *)base)[i]);
    default:
        return ((const double *)base)[i];
    }
}

/* Rounds once, to nearest even. */
static inline void attn_element_put(void *base, attn_dtype dtype, int64_t i, double x)
{
    switch (dtype) {
    case ATTN_F32:
        ((float *)base)[i] = (float)x;
        break;
    case ATTN_F16:
        ((uint16_t *)base)[i] = attn_f16_of_f64(x);
        break;
    case ATTN_BF16:
        ((uint16_t *)base)[i] = attn_bf16_of_f64(x);
        break;
    default:
        ((double *)base)[i] = x;
        break;
    }
}

#endif
