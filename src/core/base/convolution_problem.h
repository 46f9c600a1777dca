/* SPDX-License-Identifier: MIT
 * convolution_problem.h - the internal form of a convolution, as linear_problem.h has for linear attention. */
#ifndef ATTN_BASE_CONVOLUTION_PROBLEM_H
#define ATTN_BASE_CONVOLUTION_PROBLEM_H

#include "attn/convolution.h"
#include "layout.h"

enum {
#define INPUT(name)  ATTN_CONVOLUTION_SLOT_##name,
#define OUTPUT(name) ATTN_CONVOLUTION_SLOT_##name,
#include "convolution_slots.def"
#undef INPUT
#undef OUTPUT
    ATTN_CONVOLUTION_SLOTS
};

/* Types and strides, in the order of the slots; which are present; pointers to first elements. */
typedef struct attn_convolution_layouts {
#define INPUT(name)  attn_layout name;
#define OUTPUT(name) attn_layout name;
#include "convolution_slots.def"
#undef INPUT
#undef OUTPUT
} attn_convolution_layouts;

typedef struct attn_convolution_presence {
#define INPUT(name)  unsigned char name;
#define OUTPUT(name) unsigned char name;
#include "convolution_slots.def"
#undef INPUT
#undef OUTPUT
} attn_convolution_presence;

typedef struct attn_convolution_args {
#define INPUT(name)  const void *name;
#define OUTPUT(name) void *name;
#include "convolution_slots.def"
#undef INPUT
#undef OUTPUT
} attn_convolution_args;

/* With all defaults resolved. */
typedef struct attn_convolution_resolved {
    attn_op op;
    int width, silu;
    int64_t batch, len, channels, pool;
    int64_t snapshots; /* columns of final_slots, at least 1 */
    attn_convolution_presence has;
    attn_convolution_layouts at;
} attn_convolution_resolved;

#endif
