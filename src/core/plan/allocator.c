/* SPDX-License-Identifier: MIT
 * allocator.c - memory where the caller has none of his own. */
#include <stdlib.h>

#include "plan.h"

static void *allocate_default(void *context, size_t bytes)
{
    (void)context;
    return aligned_alloc(64, (bytes + 63) & ~(size_t)63);
}

static void release_default(void *context, void *memory)
{
    (void)context;
    free(memory);
}

attn_allocator attn_allocator_or_default(const attn_allocator *given)
{
    const attn_allocator ours = {allocate_default, release_default, NULL};
    return given->allocate ? *given : ours;
}
