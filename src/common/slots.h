/* SPDX-License-Identifier: MIT
 * slots.h - how a module outside the core reads the structs that it is given, and the slots of tensors in them. */
#ifndef ATTN_COMMON_SLOTS_H
#define ATTN_COMMON_SLOTS_H

#include <inttypes.h>

#include "sizes.h"
#include "struct.h"

/* Structs that end in fields, and those that end in slots: attn_tensors and all others that are not of words to their end. */
static inline attn_status struct_read(void *ours, size_t size, size_t least, const void *theirs, const char *name,
                                      attn_error *error)
{
    return struct_read_as(STRUCT_OF_FIELDS, ours, size, least, theirs, name, error);
}

static inline attn_status slots_read(void *ours, size_t size, size_t least, const void *theirs, const char *name, attn_error *error)
{
    return struct_read_as(STRUCT_OF_SLOTS, ours, size, least, theirs, name, error);
}

/* A struct of the caller's is one that struct_fill can write; asked before anything is computed. */
static inline attn_status struct_writable(const void *theirs, size_t size, const char *name, attn_error *error)
{
    size_t given;
    memcpy(&given, theirs, sizeof given);
    return struct_size_check(STRUCT_OF_FIELDS, given, size, size, name, error);
}

/* Both at once. */
static inline attn_status struct_write(void *theirs, const void *ours, size_t size, const char *name, attn_error *error)
{
    TRY(struct_writable(theirs, size, name, error));
    struct_fill(theirs, ours, size);
    return ATTN_OK;
}

/* An output as something to read the layout of; its memory is still the caller's to be written. */
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

/* 1 if slot_check has nothing to say: who joins a name for it need not. */
static inline int slot_is_address(const attn_input *slot)
{
    return slot->data && slot->data != ATTN_MISSING && slot->data != ATTN_LATER && slot->data != ATTN_EMPTY;
}

/* That what stands in a slot can be meant; `elements`: it has some, so that its memory is needed.  A slot that is not there passes.
 */
static inline attn_status slot_check(const attn_input *slot, const char *name, int elements, attn_error *error)
{
    CHECK(slot->data || slot_is_blank(slot), ATTN_ERR_ARGUMENT,
          "%s is NULL and has a type or a stride; a tensor that is not there is a slot of zeros", name);
    CHECK(slot->data != ATTN_MISSING, ATTN_ERR_ARGUMENT, "%s is NULL", name);
    CHECK(slot->data != ATTN_LATER, ATTN_ERR_ARGUMENT, "%s is ATTN_LATER, and this call computes", name);
    CHECK(slot->data != ATTN_EMPTY || !elements, ATTN_ERR_ARGUMENT, "%s is ATTN_EMPTY and has elements", name);
    return ATTN_OK;
}

/* Its memory can be read as elements of `size` bytes.  A tensor that is not there, or has no elements, passes. */
static inline attn_status slot_aligned(const attn_input *slot, const char *name, size_t size, attn_error *error)
{
    CHECK(slot->data == ATTN_EMPTY || !size || (uintptr_t)slot->data % size == 0, ATTN_ERR_ARGUMENT,
          "%s is not aligned to its elements of %zu bytes", name, size);
    return ATTN_OK;
}

/* slot_check, and the default type and strides filled in; natural 0: there is none. */
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
        CHECK(shape[axis] == 0 || dense <= INT64_MAX / 8 / shape[axis], ATTN_ERR_SHAPE, "%s has more bytes than 64 bits count",
              name);
        dense *= shape[axis];
    }
    const size_t size = attn_dtype_size(slot->dtype);
    TRY(slot_aligned(slot, name, size, error));
    const int beyond = strides_beyond(size ? (int64_t)size : 8, shape, slot->stride);
    CHECK(beyond < 0, ATTN_ERR_SHAPE, "%s.stride[%d] (%" PRId64 ") times its size (%" PRId64 ") overflows 64-bit addresses", name,
          beyond, slot->stride[beyond < 0 ? 0 : beyond], shape[beyond < 0 ? 0 : beyond]);
    return ATTN_OK;
}

/* A slot that the function fills in itself, or has no use for. */
static inline attn_status slot_absent(const attn_input *slot, const char *name, const char *who, attn_error *error)
{
    CHECK(slot_is_absent(slot), ATTN_ERR_ARGUMENT, "%s is there; %s has no such tensor of the caller's", name, who);
    return ATTN_OK;
}

#endif
