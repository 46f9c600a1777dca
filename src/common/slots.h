/* SPDX-License-Identifier: MIT
 * slots.h - how a module outside the core reads structs that may grow, and the slots of tensors in them. */
#ifndef ATTN_COMMON_SLOTS_H
#define ATTN_COMMON_SLOTS_H

#include <inttypes.h>
#include <string.h>

#include "fail.h"

/* No struct is larger than 1 MiB, and each is a whole number of words: other numbers are none. */
static inline int struct_size_can_be(size_t given, size_t least)
{
    return given >= least && given <= (size_t)1 << 20 && given % sizeof given == 0;
}

/* Copies a struct of the caller's, which begins with its struct_size, into ours of `size` bytes: a shorter, older one, which has at
 * least the `least` bytes of version 1.0, is extended by zeros; what a longer one has beyond is zero, or refused.  The same rules
 * as attn_struct_read of the core, which is not seen from here. */
static inline attn_status struct_read(void *ours, size_t size, size_t least, const void *theirs, const char *name,
                                      attn_error *error)
{
    size_t given;
    memcpy(&given, theirs, sizeof given);
    CHECK(struct_size_can_be(given, least), ATTN_ERR_ARGUMENT, "%s.struct_size is %zu; set it to sizeof(%s)", name, given, name);
    for (size_t i = size; i < given; i++)
        CHECK(((const unsigned char *)theirs)[i] == 0, ATTN_ERR_UNSUPPORTED,
              "%s.struct_size is %zu and a field after byte %zu is set: this library is older than the header it was compiled with",
              name, given, size);
    memset(ours, 0, size);
    memcpy(ours, theirs, given < size ? given : size);
    memcpy(ours, &size, sizeof size);
    return ATTN_OK;
}

/* The other way: fills as much of the caller's struct as it has, and zeros what is beyond ours.  struct_size stays the caller's. */
static inline attn_status struct_write(void *theirs, const void *ours, size_t size, const char *name, attn_error *error)
{
    size_t given;
    memcpy(&given, theirs, sizeof given);
    CHECK(struct_size_can_be(given, size), ATTN_ERR_ARGUMENT, "%s.struct_size is %zu; set it to sizeof(%s)", name, given, name);
    memcpy((char *)theirs + sizeof given, (const char *)ours + sizeof given, (given < size ? given : size) - sizeof given);
    if (given > size) memset((char *)theirs + size, 0, given - size);
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

/* That what stands in a slot can be meant; `elements`: it has some, so that its memory is needed.  A slot that is not there passes.
 */
static inline attn_status slot_check(const attn_input *slot, const char *name, int elements, attn_error *error)
{
    CHECK(slot->data || (slot_is_dense(slot) && !slot->dtype), ATTN_ERR_ARGUMENT,
          "%s is NULL and has a type or a stride; a tensor that is not there is a slot of zeros", name);
    CHECK(slot->data != ATTN_MISSING, ATTN_ERR_ARGUMENT, "%s is NULL", name);
    CHECK(slot->data != ATTN_LATER, ATTN_ERR_ARGUMENT, "%s is ATTN_LATER, and this call computes", name);
    CHECK(slot->data != ATTN_EMPTY || !elements, ATTN_ERR_ARGUMENT, "%s is ATTN_EMPTY and has elements", name);
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
    return ATTN_OK;
}

/* A slot that the function fills in itself, or has no use for. */
static inline attn_status slot_absent(const attn_input *slot, const char *name, const char *who, attn_error *error)
{
    CHECK(!slot->data && slot_is_dense(slot) && !slot->dtype, ATTN_ERR_ARGUMENT,
          "%s is there; %s has no such tensor of the caller's", name, who);
    return ATTN_OK;
}

#endif
