/* SPDX-License-Identifier: MIT
 * purse.h - an attn_allocator that has memory for so many allocations and counts those that were not given back. */
#ifndef ATTN_TESTS_PURSE_H
#define ATTN_TESTS_PURSE_H

#include <stddef.h>
#include <stdlib.h>

typedef struct purse {
    int left, held;
} purse;

static void *purse_take(void *context, size_t bytes)
{
    purse *p = context;
    if (p->left-- <= 0) return NULL;
    p->held++;
    return aligned_alloc(64, (bytes + 63) / 64 * 64 + 64);
}

static void purse_give(void *context, void *memory)
{
    ((purse *)context)->held--;
    free(memory);
}

#endif
