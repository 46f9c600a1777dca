/* SPDX-License-Identifier: MIT
 * internal.h - what the functions of attn/hopfield.h share. */
#ifndef ATTN_HOPFIELD_INTERNAL_H
#define ATTN_HOPFIELD_INTERNAL_H

#include "../common/slots.h"
#include "attn/hopfield.h"

/* A copy with defaults filled in; every rule of a memory and of a count of states is checked. */
attn_status hopfield_resolve(const attn_hopfield *given, int64_t count, attn_hopfield *memory, attn_error *error);

static inline double number_at(attn_dtype dtype, const void *array, int64_t i)
{
    return dtype == ATTN_F64 ? ((const double *)array)[i] : (double)((const float *)array)[i];
}

static inline void put_number(attn_dtype dtype, void *array, int64_t i, double x)
{
    if (dtype == ATTN_F64) ((double *)array)[i] = x;
    else ((float *)array)[i] = (float)x;
}

#endif
