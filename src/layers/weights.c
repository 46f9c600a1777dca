/* SPDX-License-Identifier: MIT
 * weights.c - structs of weights: reading, checking and writing them. */
#include "weights.h"

#include <limits.h>

/* Any struct of weights. */
typedef struct weights_struct {
    size_t struct_size;
    attn_input slots[16];
} weights_struct;

/* The owner of the tensors, for messages: a label is composed only for an error, since a layer has ten tensors. */
typedef struct owner {
    const char *module, *what;
} owner;

#define LABEL          "%s: %s.%s"
#define LABELLED(o, w) (o)->module, (o)->what, (w)->name

static attn_status check_slot(const owner *o, const attn_input *slot, const weight_slot *w, attn_error *error)
{
    char label[80];
    if (slot_is_address(slot)) return ATTN_OK;
    (void)snprintf(label, sizeof label, LABEL, LABELLED(o, w));
    return slot_check(slot, label, 1, error);
}

static attn_status check_presence(const owner *o, const attn_input *slot, const weight_slot *w, weights_role role, int needed,
                                  attn_error *error)
{
    CHECK(w->need != ATTN_NEED_NEVER || slot_is_absent(slot), ATTN_ERR_ARGUMENT, LABEL " is set although %s", LABELLED(o, w),
          w->because);
    if (role == WEIGHTS_COUNTED && slot->data == ATTN_LATER) return ATTN_OK;
    TRY(check_slot(o, slot, w, error));
    CHECK(slot->data || !needed, ATTN_ERR_ARGUMENT, LABEL " is missing", LABELLED(o, w));
    return ATTN_OK;
}

static attn_status check_no_overlap(const owner *o, const weight_slot *w, attn_error *error)
{
    int64_t span;
    const int axis = elements_self_overlap(w->shape, w->stride, &span);
    CHECK(axis < 0, ATTN_ERR_STRIDE,
          LABEL " overlaps itself: stride[%d] is %" PRId64 " and the axes with smaller strides span %" PRId64 " elements",
          LABELLED(o, w), axis, w->stride[axis], span);
    return ATTN_OK;
}

static attn_status resolve(const owner *o, const attn_input *slot, weight_slot *w, attn_dtype dtype, attn_error *error)
{
    const int implied = slot_is_dense(slot);
    const size_t size = attn_dtype_size(dtype);
    int64_t dense = 1;
    CHECK(!slot->dtype || slot->dtype == dtype, ATTN_ERR_UNSUPPORTED, LABEL " is %s; the layer is %s", LABELLED(o, w),
          attn_dtype_name(slot->dtype), attn_dtype_name(dtype));
    for (int x = 3; x >= 0; x--) {
        w->stride[x] = implied || w->shape[x] <= 1 ? dense : slot->stride[x] == ATTN_BROADCAST ? 0 : slot->stride[x];
        CHECK(llabs(w->stride[x]) <= INT_MAX || implied, ATTN_ERR_STRIDE,
              LABEL ".stride[%d] is %" PRId64 "; its absolute value must be at most %d", LABELLED(o, w), x, w->stride[x], INT_MAX);
        CHECK(!w->dense || w->stride[x] == dense, ATTN_ERR_STRIDE, LABEL ".stride[%d] is %" PRId64 "; it must be dense, %" PRId64,
              LABELLED(o, w), x, w->stride[x], dense);
        dense *= w->shape[x];
    }
    CHECK(((uintptr_t)slot->data & (size - 1)) == 0, ATTN_ERR_ARGUMENT, LABEL " is not aligned to its elements of %zu bytes",
          LABELLED(o, w), size);
    w->data = slot_written(slot);
    return ATTN_OK;
}

attn_status attn_weights_read(const char *module, const char *what, weights_role role, const char *type, const void *given,
                              attn_dtype dtype, weight_slot *rows, int count, attn_error *error)
{
    weights_struct copy;
    const owner o = {module, what};
    const size_t size = offsetof(weights_struct, slots) + (size_t)count * sizeof *copy.slots;
    CHECK(given, ATTN_ERR_ARGUMENT, "%s: %s is NULL", module, what);
    TRY(slots_read(&copy, size, size, given, type, error));
    for (int i = 0; i < count; i++) {
        const attn_input *slot = &copy.slots[i];
        weight_slot *w = &rows[i];
        const int needed = (role == WEIGHTS_READ || role == WEIGHTS_STARTED) && w->need == ATTN_NEED_ALWAYS;
        w->data = NULL;
        if (slot_is_absent(slot) && !needed) continue;
        TRY(check_presence(&o, slot, w, role, needed, error));
        if (role == WEIGHTS_COUNTED) w->data = slot_written(slot);
        if (!slot->data || role == WEIGHTS_COUNTED) continue;
        TRY(resolve(&o, slot, w, dtype, error));
        if (role != WEIGHTS_READ) TRY(check_no_overlap(&o, w, error));
    }
    return ATTN_OK;
}

attn_status attn_weights_write(void *caller, const char *type, char *const *data, attn_dtype dtype, int count, attn_error *error)
{
    weights_struct copy = {0};
    size_t given;
    const size_t size = offsetof(weights_struct, slots) + (size_t)count * sizeof *copy.slots;
    memcpy(&given, caller, sizeof given);
    TRY(struct_size_check(STRUCT_OF_SLOTS, given, size, size, type, error));
    for (int i = 0; i < count; i++)
        if (data[i]) copy.slots[i] = (attn_input){data[i], dtype, {0, 0, 0, 0}};
    struct_fill(caller, &copy, size);
    return ATTN_OK;
}

void attn_places_add_weights(places *p, const char *what, const weight_slot *rows, int count, int output)
{
    for (int i = 0; i < count; i++) places_add(p, what, rows[i].name, rows[i].data, rows[i].shape, rows[i].stride, output);
}
