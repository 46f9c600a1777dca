/* SPDX-License-Identifier: MIT
 * memory.c - memory for a call, and indices of type i32 or i64. */
#include <stddef.h>

#include "../common/options.h"
#include "layer.h"

static const attn_options defaults;

attn_status attn_memory_acquire(const attn_options *options, int64_t bytes, char **memory, attn_error *error)
{
    const size_t size = bytes > 0 ? (size_t)bytes : 0;
    *memory = options_acquire(options ? options : &defaults, size);
    CHECK(*memory, ATTN_ERR_MEMORY, "layer: cannot allocate %zu bytes", size);
    return ATTN_OK;
}

void attn_memory_release(const attn_options *options, char *memory) { options_release(options ? options : &defaults, memory); }

int64_t attn_layer_index_at(const attn_input *array, int64_t i)
{
    return array->dtype == ATTN_I32 ? ((const int32_t *)array->data)[i] : ((const int64_t *)array->data)[i];
}
