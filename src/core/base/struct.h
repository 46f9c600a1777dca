/* SPDX-License-Identifier: MIT
 * struct.h - structs of the caller's that may grow: struct_size, which is their first field, tells what they have
 * (src/common/struct.h). */
#ifndef ATTN_BASE_STRUCT_H
#define ATTN_BASE_STRUCT_H

#include "attn/attn.h"

/*
 * Copies a caller's struct of `given` bytes (its struct_size) into ours of `size` bytes.  One that is older, and has at least the
 * `least` bytes of version 1.0, is extended by zeros; a newer one is accepted while what we do not know of it is zero.  `name` is
 * for the message.
 */
attn_status attn_struct_read(void *ours, size_t size, size_t least, const void *theirs, const char *name, attn_error *error);

/* Whether that can be the struct_size of a struct that has at least `least` bytes. */
attn_status attn_struct_check(size_t given, size_t least, const char *name, attn_error *error);

/* The same of a struct that ends in slots, before they are read one by one: also that those behind our `size` bytes are not set. */
attn_status attn_slots_check(const void *theirs, size_t size, size_t least, const char *name, attn_error *error);

/* The other way: fills as much of the caller's struct as it has. */
void attn_struct_write(void *theirs, const void *ours, size_t size);

#endif
