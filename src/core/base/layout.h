/* SPDX-License-Identifier: MIT
 * layout.h - how a tensor lies in memory, without where it is. */
#ifndef ATTN_BASE_LAYOUT_H
#define ATTN_BASE_LAYOUT_H

#include "attn/types.h"

typedef struct attn_layout {
    attn_dtype dtype;
    int64_t stride[4]; /* elements */
} attn_layout;

#endif
