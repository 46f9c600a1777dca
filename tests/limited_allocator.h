/* SPDX-License-Identifier: MIT
 * limited_allocator.h - an attn_allocator that fails after `left` allocations and counts the blocks still held. */
#ifndef ATTN_TESTS_LIMITED_ALLOCATOR_H
#define ATTN_TESTS_LIMITED_ALLOCATOR_H

#include <stddef.h>
#include <stdlib.h>

enum { LIMITED_BYTES = 1 << 27 }; /* a larger block fails, too */

typedef struct limited_allocator {
    int left, held;
} limited_allocator;

static inline void *limited_acquire(void *context, size_t bytes)
{
    limited_allocator *p = context;
    void *memory = p->left-- > 0 && bytes <= LIMITED_BYTES ? aligned_alloc(64, (bytes + 63) / 64 * 64 + 64) : NULL;
    p->held += memory != NULL;
    return memory;
}

static inline void limited_release(void *context, void *memory)
{
    ((limited_allocator *)context)->held--;
    free(memory);
}

#endif
