/* SPDX-License-Identifier: MIT
 * number.h - numbers of the compute type, f64 or f32. */
#ifndef ATTN_DISTRIBUTED_NUMBER_H
#define ATTN_DISTRIBUTED_NUMBER_H

#include <stdint.h>

#include "attn/attn.h"

static inline double attn_number_get(attn_dtype compute, const void *numbers, int64_t at)
{
    return compute == ATTN_F64 ? ((const double *)numbers)[at] : (double)((const float *)numbers)[at];
}

static inline void attn_number_put(attn_dtype compute, void *numbers, int64_t at, double x)
{
    if (compute == ATTN_F64) ((double *)numbers)[at] = x;
    else ((float *)numbers)[at] = (float)x;
}

#endif
