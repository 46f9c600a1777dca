/* SPDX-License-Identifier: MIT
 * struct.c - structs that may grow, for the core. */
#include "struct.h"

#include "../../common/struct.h"

attn_status attn_struct_check(size_t given, size_t least, const char *name, attn_error *error)
{
    return struct_size_check(STRUCT_OF_FIELDS, given, least, least, name, error);
}

attn_status attn_slots_check(const void *theirs, size_t size, size_t least, const char *name, attn_error *error)
{
    return struct_check(STRUCT_OF_SLOTS, theirs, size, least, name, error);
}

attn_status attn_struct_read(void *ours, size_t size, size_t least, const void *theirs, const char *name, attn_error *error)
{
    return struct_read_as(STRUCT_OF_FIELDS, ours, size, least, theirs, name, error);
}

void attn_struct_write(void *theirs, const void *ours, size_t size) { struct_fill(theirs, ours, size); }
