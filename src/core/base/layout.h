/* SPDX-License-Identifier: MIT
 * layout.h - the layout of a tensor in memory, without its address. */
#ifndef ATTN_BASE_LAYOUT_H
#define ATTN_BASE_LAYOUT_H

#include "attn/types.h"

typedef struct attn_layout {
    attn_dtype dtype;
    int64_t stride[4]; /* elements */
} attn_layout;

#endif
