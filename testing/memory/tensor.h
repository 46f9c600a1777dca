/* SPDX-License-Identifier: MIT
 *
 * tensor.h - one tensor of a check: guarded memory, and a layout that need not be a tidy one.
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
    int64_t stride[4]; /* as layout says, 0 where it broadcasts */
    void *base;        /* element (0, 0, 0, 0) */
} tensor;

/* How to lay a tensor out: from the innermost axis outwards, each with a gap behind it. */
typedef struct tensor_plan {
    int order[4];     /* axes, outermost first */
    int64_t gap[4];   /* elements left free behind each axis of the same number */
    int64_t inner;    /* distance of elements on the innermost axis, 1 or more */
    int backward[4];  /* 1: the axis has a negative stride */
    int broadcast[4]; /* 1: the axis has one element for all */
    guard_side side;
    int shift; /* elements between the data and the page that faults */
} tensor_plan;

/* 0 where memory is out.  All bytes are GUARD_BYTE. */
int tensor_create(tensor *t, attn_dtype dtype, const int64_t size[4], const tensor_plan *plan);
void tensor_destroy(tensor *t);

void *tensor_at(const tensor *t, int64_t b, int64_t h, int64_t i, int64_t c);

/* Takes the elements out into a dense array, leaving GUARD_BYTE behind.  Returns 1 if nothing but elements was written. */
int tensor_take(tensor *t, double *dst);

#endif
