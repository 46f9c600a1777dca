/* SPDX-License-Identifier: MIT
 *
 * struct.h - how structs of the caller's are read that may grow: the only place that knows, in the core and outside it.
 * struct_size, the first field, tells which version of them the caller was compiled with.
 */
#ifndef ATTN_COMMON_STRUCT_H
#define ATTN_COMMON_STRUCT_H

#include <string.h>

#include "fail.h"

/* What a struct is made of at its end, where it grows.  Between the fields of a slot there may be padding, which is nobody's. */
typedef enum struct_tail { STRUCT_OF_FIELDS, STRUCT_OF_SLOTS } struct_tail;

static inline size_t struct_unit(struct_tail tail) { return tail == STRUCT_OF_SLOTS ? sizeof(attn_input) : sizeof(size_t); }

/* No struct is larger than 1 MiB, or smaller than the `least` bytes that version 1.0 has of it, and each is a whole number of
 * words, or of slots behind those of `size`. */
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

/* struct_size is one that can be, and all that we do not know, behind our `size` bytes, is 0. */
static inline attn_status struct_check(struct_tail tail, const void *theirs, size_t size, size_t least, const char *name,
                                       attn_error *error)
{
    size_t given;
    memcpy(&given, theirs, sizeof given);
    TRY(struct_size_check(tail, given, size, least, name, error));
    for (size_t at = size; at < given; at += struct_unit(tail)) {
        attn_input slot = {NULL, ATTN_DTYPE_DEFAULT, {0, 0, 0, 0}};
        size_t word = 0;
        if (tail == STRUCT_OF_SLOTS) memcpy(&slot, (const char *)theirs + at, sizeof slot);
        else memcpy(&word, (const char *)theirs + at, sizeof word);
        CHECK(!word && !slot.data && slot_is_blank(&slot), ATTN_ERR_UNSUPPORTED,
              "%s.struct_size is %zu and a %s after byte %zu is set: this library is older than the header it was compiled with",
              name, given, tail == STRUCT_OF_SLOTS ? "slot" : "field", size);
    }
    return ATTN_OK;
}

/* Copies a struct of the caller's into ours of `size` bytes: one that is shorter, and so older, is extended by zeros; what a longer
 * one has beyond is zero, or rejected. */
static inline attn_status struct_read_as(struct_tail tail, void *ours, size_t size, size_t least, const void *theirs,
                                         const char *name, attn_error *error)
{
    size_t given;
    memcpy(&given, theirs, sizeof given);
    if (given != size) TRY(struct_check(tail, theirs, size, least, name, error));
    if (given < size) memset(ours, 0, size);
    memcpy(ours, theirs, given < size ? given : size);
    memcpy(ours, &size, sizeof size);
    return ATTN_OK;
}

/* The other way: fills as much of the caller's struct as it has, and zeros what is beyond ours.  struct_size stays the caller's. */
static inline void struct_fill(void *theirs, const void *ours, size_t size)
{
    size_t given;
    memcpy(&given, theirs, sizeof given);
    memcpy((char *)theirs + sizeof given, (const char *)ours + sizeof given, (given < size ? given : size) - sizeof given);
    if (given > size) memset((char *)theirs + size, 0, given - size);
}

#endif
