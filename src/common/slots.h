/* SPDX-License-Identifier: MIT
 * slots.h - how a module outside the core reads the caller's structs, and the tensor slots in them. */
#ifndef ATTN_COMMON_SLOTS_H
#define ATTN_COMMON_SLOTS_H

#include <inttypes.h>

#include "formats.h"
#include "sizes.h"
#include "struct.h"

/* For structs that end in fields, and for those that end in slots: attn_tensors and all others that do not consist of whole
 * words. */
static inline attn_status struct_read(void *copy, size_t size, size_t least, const void *caller, const char *name,
                                      attn_error *error)
{
    return struct_read_as(STRUCT_OF_FIELDS, copy, size, least, caller, name, error);
}

static inline attn_status slots_read(void *copy, size_t size, size_t least, const void *caller, const char *name, attn_error *error)
{
    return struct_read_as(STRUCT_OF_SLOTS, copy, size, least, caller, name, error);
}

/* Checks that struct_fill can write a caller's struct, before anything is computed. */
static inline attn_status struct_writable(const void *caller, size_t size, const char *name, attn_error *error)
{
    size_t given;
    memcpy(&given, caller, sizeof given);
    return struct_size_check(STRUCT_OF_FIELDS, given, size, size, name, error);
}

/* Both at once. */
static inline attn_status struct_write(void *caller, const void *copy, size_t size, const char *name, attn_error *error)
{
    TRY(struct_writable(caller, size, name, error));
    struct_fill(caller, copy, size);
    return ATTN_OK;
}

/* An output slot as an input slot, to read its layout; its memory may still be written (slot_written). */
static inline attn_input slot_of(const attn_output *slot)
{
    attn_input s = {slot->data, slot->dtype, {slot->stride[0], slot->stride[1], slot->stride[2], slot->stride[3]}};
    return s;
}

static inline void *slot_written(const attn_input *slot) { return (void *)(uintptr_t)slot->data; }

static inline int slot_is_dense(const attn_input *slot)
{
    const int64_t *s = slot->stride;
    return !s[0] && !s[1] && !s[2] && !s[3];
}

/* A slot of zeros. */
static inline int slot_is_absent(const attn_input *slot) { return !slot->data && slot_is_blank(slot); }

/* 1 if slot_check would pass, so that building a name for it can be skipped. */
static inline int slot_is_address(const attn_input *slot)
{
    return slot->data && slot->data != ATTN_MISSING && slot->data != ATTN_LATER && slot->data != ATTN_EMPTY;
}

/* Checks that the contents of a slot are valid; `elements`: the tensor has some, so its memory is needed.  An absent slot
 * passes. */
static inline attn_status slot_check(const attn_input *slot, const char *name, int elements, attn_error *error)
{
    CHECK(slot->data || slot_is_blank(slot), ATTN_ERR_ARGUMENT,
          "%s is NULL and has a type or strides; a slot that is not set must be all 0", name);
    CHECK(slot->data != ATTN_MISSING, ATTN_ERR_ARGUMENT, "%s is NULL", name);
    CHECK(slot->data != ATTN_LATER, ATTN_ERR_ARGUMENT, "%s is ATTN_LATER; this call needs its pointer", name);
    CHECK(slot->data != ATTN_EMPTY || !elements, ATTN_ERR_ARGUMENT, "%s is ATTN_EMPTY and has elements", name);
    return ATTN_OK;
}

/* Checks that its memory is aligned to elements of `size` bytes.  A tensor that is absent, ATTN_EMPTY or of blocks passes. */
static inline attn_status slot_aligned(const attn_input *slot, const char *name, size_t size, attn_error *error)
{
    CHECK(slot->data == ATTN_EMPTY || !size || attn_is_blocks(slot->dtype) || (uintptr_t)slot->data % size == 0, ATTN_ERR_ARGUMENT,
          "%s is not aligned to its elements of %zu bytes", name, size);
    return ATTN_OK;
}

/* slot_check, then fills in the default type and strides; natural 0: no default type. */
static inline attn_status slot_resolve(attn_input *slot, const char *name, const int64_t shape[4], attn_dtype natural,
                                       attn_error *error)
{
    const int implied = slot_is_dense(slot);
    int64_t dense = 1;
    TRY(slot_check(slot, name, shape[0] > 0 && shape[1] > 0 && shape[2] > 0 && shape[3] > 0, error));
    if (slot->dtype == ATTN_DTYPE_DEFAULT) slot->dtype = natural;
    for (int axis = 3; axis >= 0; axis--) {
        if (implied) slot->stride[axis] = dense;
        if (slot->stride[axis] == ATTN_BROADCAST) slot->stride[axis] = 0;
        CHECK(shape[axis] == 0 || dense <= INT64_MAX / 8 / shape[axis], ATTN_ERR_SHAPE,
              "%s is too large: its bytes overflow 64 bits", name);
        dense *= shape[axis];
    }
    const size_t size = attn_dtype_size(slot->dtype);
    TRY(slot_aligned(slot, name, size, error));
    const int beyond = strides_beyond(size ? (int64_t)size : 8, shape, slot->stride);
    CHECK(beyond < 0, ATTN_ERR_SHAPE, "%s.stride[%d] (%" PRId64 ") times its size (%" PRId64 ") overflows 64-bit addresses", name,
          beyond, slot->stride[beyond < 0 ? 0 : beyond], shape[beyond < 0 ? 0 : beyond]);
    return ATTN_OK;
}

/* Checks that a slot is absent which function `who` fills in itself, or does not use. */
static inline attn_status slot_absent(const attn_input *slot, const char *name, const char *who, attn_error *error)
{
    CHECK(slot_is_absent(slot), ATTN_ERR_ARGUMENT, "%s is set; %s does not use it", name, who);
    return ATTN_OK;
}

#endif
