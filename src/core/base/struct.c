/* SPDX-License-Identifier: MIT
 * struct.c - structs that may grow: struct_size tells which version of them the caller was compiled with. */
#include "struct.h"

#include <string.h>

#include "error.h"

/* No struct is so large, and each is a whole number of words: other numbers are none. */
enum { MOST_BYTES = 1 << 20 };

attn_status attn_struct_check(size_t given, size_t least, const char *name, attn_error *error)
{
    CHECK(given >= least && given <= MOST_BYTES && given % sizeof given == 0, ATTN_ERR_ARGUMENT,
          "%s.struct_size is %zu; set it to sizeof(%s)", name, given, name);
    return ATTN_OK;
}

attn_status attn_struct_read(void *ours, size_t size, size_t least, const void *theirs, const char *name, attn_error *error)
{
    const unsigned char *bytes = theirs;
    size_t given;
    memcpy(&given, theirs, sizeof given);
    TRY(attn_struct_check(given, least, name, error));
    for (size_t i = size; i < given; i++)
        CHECK(bytes[i] == 0, ATTN_ERR_UNSUPPORTED,
              "%s.struct_size is %zu and a field after byte %zu is set: this library is older than the header it was compiled with",
              name, given, size);
    if (given < size) memset(ours, 0, size);
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
