/* SPDX-License-Identifier: MIT
 * struct.h - the caller's extensible structs: struct_size, their first field, tells which fields they have
 * (src/common/struct.h). */
#ifndef ATTN_BASE_STRUCT_H
#define ATTN_BASE_STRUCT_H

#include "attn/attn.h"

/*
 * Copies a caller's struct of `given` bytes (its struct_size) into a copy of `size` bytes.  An older one, of at least the `least`
 * bytes of version 1.0, is extended by zeros; a newer one is accepted as long as the fields we do not know are zero.  `name` is for
 * the message.
 */
attn_status attn_struct_read(void *copy, size_t size, size_t least, const void *callers, const char *name, attn_error *error);

/* Checks that `given` is a valid struct_size of a struct that has at least `least` bytes. */
attn_status attn_struct_check(size_t given, size_t least, const char *name, attn_error *error);

/* The same for a struct that ends in slots, before they are read one by one: also that slots after our `size` bytes are not set. */
attn_status attn_slots_check(const void *callers, size_t size, size_t least, const char *name, attn_error *error);

/* The same for one that ends in fields, some of which other threads may write meanwhile. */
attn_status attn_fields_check(const void *callers, size_t size, size_t least, const char *name, attn_error *error);

/* The reverse: fills as much as the caller's struct has. */
void attn_struct_write(void *callers, const void *copy, size_t size);

#endif
