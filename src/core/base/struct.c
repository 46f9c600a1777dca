/* SPDX-License-Identifier: MIT
 * struct.c - extensible structs, for the core. */
#include "struct.h"

#include "../../common/struct.h"

attn_status attn_struct_check(size_t given, size_t least, const char *name, attn_error *error)
{
    return struct_size_check(STRUCT_OF_FIELDS, given, least, least, name, error);
}

attn_status attn_slots_check(const void *callers, size_t size, size_t least, const char *name, attn_error *error)
{
    return struct_check(STRUCT_OF_SLOTS, callers, size, least, name, error);
}

attn_status attn_fields_check(const void *callers, size_t size, size_t least, const char *name, attn_error *error)
{
    return struct_check(STRUCT_OF_FIELDS, callers, size, least, name, error);
}

attn_status attn_struct_read(void *copy, size_t size, size_t least, const void *callers, const char *name, attn_error *error)
{
    return struct_read_as(STRUCT_OF_FIELDS, copy, size, least, callers, name, error);
}

void attn_struct_write(void *callers, const void *copy, size_t size) { struct_fill(callers, copy, size); }
