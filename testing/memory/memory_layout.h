/* SPDX-License-Identifier: MIT
 * memory_layout.h - type and strides of a tensor, without its address. */
#ifndef ATTN_TESTING_MEMORY_MEMORY_LAYOUT_H
#define ATTN_TESTING_MEMORY_MEMORY_LAYOUT_H

#include "attn/types.h"

typedef struct memory_layout {
    attn_dtype dtype;
    int64_t stride[4]; /* elements */
} memory_layout;

#endif
