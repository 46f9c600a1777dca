/* SPDX-License-Identifier: MIT
 * allocator.c - the default allocator, and workspaces. */
#include <stdlib.h>

#include "../base/error.h"
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
    const attn_allocator fallback = {allocate_default, release_default, NULL};
    return given->allocate ? *given : fallback;
}

attn_status attn_workspace_acquire(const attn_allocator *allocator, size_t need, void **workspace, attn_error *error)
{
    *workspace = need ? allocator->allocate(allocator->context, need) : NULL;
    CHECK(!need || *workspace, ATTN_ERR_MEMORY, "cannot allocate a workspace of %zu bytes", need);
    return ATTN_OK;
}

void attn_workspace_release(const attn_allocator *allocator, void *workspace)
{
    if (workspace) allocator->release(allocator->context, workspace);
}

void *attn_workspace_align(void *workspace)
{
    static const _Alignas(64) char nothing[64]; /* neither read nor written */
    if (!workspace) return (void *)(uintptr_t)nothing;
    return (void *)(((uintptr_t)workspace + 63) & ~(uintptr_t)63);
}
