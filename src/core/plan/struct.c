/* SPDX-License-Identifier: MIT
 * struct.c - structs that may grow: struct_size tells which version of them the caller was compiled with. */
#include <string.h>

#include "../base/error.h"
#include "plan.h"

attn_status attn_struct_read(void *ours, size_t size, const void *theirs, size_t given, const char *name, attn_error *error)
{
    const unsigned char *bytes = theirs;
    CHECK(given >= sizeof(size_t), ATTN_ERR_ARGUMENT, "%s.struct_size is %zu; set it to sizeof(%s)", name, given, name);
    for (size_t i = size; i < given; i++)
        CHECK(
            bytes[i] == 0, ATTN_ERR_UNSUPPORTED,
            "%s.struct_size is %zu and a field behind byte %zu is set: this library is older than the header it was compiled with",
            name, given, size);
    memset(ours, 0, size);
    memcpy(ours, theirs, given < size ? given : size);
    memcpy(ours, &size, sizeof size);
    return ATTN_OK;
}

void attn_struct_write(void *theirs, size_t given, const void *ours, size_t size)
{
    size_t head = sizeof(size_t); /* struct_size stays the caller's */
    size_t end = given < size ? given : size;
    memcpy((char *)theirs + head, (const char *)ours + head, end - head);
    if (given > size) memset((char *)theirs + size, 0, given - size);
}
