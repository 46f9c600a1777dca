/* SPDX-License-Identifier: MIT
 *
 * tensor.h - one tensor of a check: guarded memory, and any layout.
 */
#ifndef ATTN_TESTING_MEMORY_TENSOR_H
#define ATTN_TESTING_MEMORY_TENSOR_H

#include <stdint.h>

#include "attn/attn.h"
#include "guard.h"
#include "memory_layout.h"

typedef struct tensor {
    guarded block;
    memory_layout layout;
    int64_t size[4];
    int64_t stride[4]; /* those of layout, but 0 on axes that broadcast */
    void *base;        /* element (0, 0, 0, 0) */
} tensor;

/* How to lay a tensor out: from the innermost axis outwards, each followed by a gap. */
typedef struct tensor_plan {
    int order[4];     /* axes, outermost first */
    int64_t gap[4];   /* by axis: unused elements after it */
    int64_t inner;    /* distance of elements on the innermost axis, 1 or more */
    int backward[4];  /* 1: the axis has a negative stride */
    int broadcast[4]; /* 1: the axis broadcasts one element */
    guard_side side;
    int shift; /* elements between the data and the faulting page */
} tensor_plan;

/* Fills all bytes with GUARD_BYTE.  Returns 0 if out of memory. */
int tensor_create(tensor *t, attn_dtype dtype, const int64_t size[4], const tensor_plan *plan);
void tensor_destroy(tensor *t);

void *tensor_at(const tensor *t, int64_t b, int64_t h, int64_t i, int64_t c);

/* Moves the elements to a dense array and resets them to GUARD_BYTE.  Returns 1 if nothing but elements was written. */
int tensor_take(tensor *t, double *dst);

#endif
