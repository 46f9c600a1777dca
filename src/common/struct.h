/* SPDX-License-Identifier: MIT
 *
 * struct.h - how the caller's extensible structs are read: the only place that knows, for the core and the modules outside it.
 * struct_size, the first field, tells which version of them the caller was compiled with.
 */
#ifndef ATTN_COMMON_STRUCT_H
#define ATTN_COMMON_STRUCT_H

#include <string.h>

#include "fail.h"

/* What a struct consists of at its end, where it grows.  Slots may have padding between their fields, with unspecified contents. */
typedef enum struct_tail { STRUCT_OF_FIELDS, STRUCT_OF_SLOTS } struct_tail;

static inline size_t struct_unit(struct_tail tail) { return tail == STRUCT_OF_SLOTS ? sizeof(attn_input) : sizeof(size_t); }

/* No struct is larger than 1 MiB, or smaller than the `least` bytes it has in version 1.0, and it differs from `size` by whole
 * words, or by whole slots. */
static inline attn_status struct_size_check(struct_tail tail, size_t given, size_t size, size_t least, const char *name,
                                            attn_error *error)
{
    const size_t unit = struct_unit(tail);
    CHECK(given >= least && given <= (size_t)1 << 20 && given % unit == size % unit, ATTN_ERR_ARGUMENT,
          "%s.struct_size is %zu; set it to sizeof(%s)", name, given, name);
    return ATTN_OK;
}

static inline int slot_is_blank(const attn_input *slot)
{
    const int64_t *s = slot->stride;
    return !slot->dtype && !s[0] && !s[1] && !s[2] && !s[3];
}

/* Checks that struct_size is valid, and that everything unknown to us, beyond our `size` bytes, is 0. */
static inline attn_status struct_check(struct_tail tail, const void *caller, size_t size, size_t least, const char *name,
                                       attn_error *error)
{
    size_t given;
    memcpy(&given, caller, sizeof given);
    TRY(struct_size_check(tail, given, size, least, name, error));
    for (size_t at = size; at < given; at += struct_unit(tail)) {
        attn_input slot = {NULL, ATTN_DTYPE_DEFAULT, {0, 0, 0, 0}};
        size_t word = 0;
        if (tail == STRUCT_OF_SLOTS) memcpy(&slot, (const char *)caller + at, sizeof slot);
        else memcpy(&word, (const char *)caller + at, sizeof word);
        CHECK(!word && !slot.data && slot_is_blank(&slot), ATTN_ERR_UNSUPPORTED,
              "%s.struct_size is %zu and a %s after byte %zu is set: this library is older than the header it was compiled with",
              name, given, tail == STRUCT_OF_SLOTS ? "slot" : "field", size);
    }
    return ATTN_OK;
}

/* Copies a caller's struct into our copy of `size` bytes: a shorter one, which is older, is extended by zeros; a longer one is
 * rejected unless the rest is zero. */
static inline attn_status struct_read_as(struct_tail tail, void *copy, size_t size, size_t least, const void *caller,
                                         const char *name, attn_error *error)
{
    size_t given;
    memcpy(&given, caller, sizeof given);
    if (given != size) TRY(struct_check(tail, caller, size, least, name, error));
    if (given < size) memset(copy, 0, size);
    memcpy(copy, caller, given < size ? given : size);
    memcpy(copy, &size, sizeof size);
    return ATTN_OK;
}

/* The reverse: fills as much as the caller's struct has, and zeroes what is beyond our copy.  struct_size stays the caller's. */
static inline void struct_fill(void *caller, const void *copy, size_t size)
{
    size_t given;
    memcpy(&given, caller, sizeof given);
    memcpy((char *)caller + sizeof given, (const char *)copy + sizeof given, (given < size ? given : size) - sizeof given);
    if (given > size) memset((char *)caller + size, 0, given - size);
}

#endif
