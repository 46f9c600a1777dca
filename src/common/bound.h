/* SPDX-License-Identifier: MIT
 * bound.h - tensors of a function that takes a few slots: each is checked, its type and strides are filled in, and outputs must
 * share elements with nothing. */
#ifndef ATTN_COMMON_BOUND_H
#define ATTN_COMMON_BOUND_H

#include "places.h"
#include "slots.h"

typedef struct bound_tensor {
    void *data; /* NULL: absent; never written for an input */
    attn_dtype dtype;
    int64_t stride[4]; /* all 0 if there are no elements */
} bound_tensor;

/* Types that a tensor may have. */
enum {
    BOUND_REAL = 1 << ATTN_F32 | 1 << ATTN_F64,
    BOUND_FLOAT = BOUND_REAL | 1 << ATTN_F16 | 1 << ATTN_BF16,
    BOUND_F32 = 1 << ATTN_F32,
    BOUND_F64 = 1 << ATTN_F64,
    BOUND_NARROW = BOUND_F32 | 1 << ATTN_F16 | 1 << ATTN_BF16,
    BOUND_INDEX = 1 << ATTN_I64 | 1 << ATTN_I32,
    BOUND_QUANTISED =
        1 << ATTN_I8 | 1 << ATTN_F8_E4M3 | 1 << ATTN_F8_E5M2 | 1 << ATTN_Q8_0 | 1 << ATTN_Q4_0 | 1 << ATTN_Q4_1 | 1 << ATTN_Q4_1C,
    BOUND_MASK = 1 << ATTN_BOOL | 1 << ATTN_U8
};

/* The requirements on a tensor. */
typedef struct bound_rule {
    const char *name;
    int64_t shape[4];
    attn_dtype natural;
    int types;
    int optional;
    int contiguous; /* the last axis must be */
} bound_rule;

typedef struct bound_call {
    const char *module; /* prefix of messages */
    places places;
} bound_call;

static inline const char *bound_types(int types)
{
    return types == BOUND_REAL        ? "f32 or f64"
           : types == BOUND_F32       ? "f32"
           : types == BOUND_F64       ? "f64"
           : types == BOUND_NARROW    ? "f32, f16 or bf16"
           : types == BOUND_QUANTISED ? "i8, f8 or blocks"
           : types == BOUND_INDEX     ? "i64 or i32"
           : types == BOUND_MASK      ? "bool or u8"
                                      : "f32, f64, f16 or bf16";
}

/* *t must be empty before. */
static inline attn_status bound_add(bound_call *call, const bound_rule *must, const attn_input *given, int output, bound_tensor *t,
                                    attn_error *error)
{
    const int64_t *const shape = must->shape;
    const int some = shape[0] > 0 && shape[1] > 0 && shape[2] > 0 && shape[3] > 0;
    char label[64];
    int64_t span;
    attn_input slot = *given;
    text_join(label, sizeof label, call->module, ": ", must->name);
    TRY(slot_check(&slot, label, some, error));
    CHECK(slot.data || must->optional, ATTN_ERR_ARGUMENT, "%s is missing", label);
    if (!slot.data) return ATTN_OK;
    TRY(slot_resolve(&slot, label, shape, must->natural, error));
    CHECK(slot.dtype > 0 && slot.dtype < 31 && (must->types >> slot.dtype & 1), ATTN_ERR_UNSUPPORTED, "%s is %s; it must be %s",
          label, attn_dtype_name(slot.dtype), bound_types(must->types));
    CHECK(!must->contiguous || shape[3] <= 1 || slot.stride[3] == 1, ATTN_ERR_STRIDE,
          "%s.stride[3] is %" PRId64 "; the last axis must be contiguous (1)", label, slot.stride[3]);
    const int axis = output ? elements_self_overlap(shape, slot.stride, &span) : -1;
    CHECK(axis < 0, ATTN_ERR_STRIDE,
          "%s overlaps itself: stride[%d] is %" PRId64 " and the axes with smaller strides span %" PRId64 " elements", label, axis,
          slot.stride[axis < 0 ? 0 : axis], span);
    t->data = slot_written(&slot);
    t->dtype = slot.dtype;
    if (!some) return ATTN_OK;
    memcpy(t->stride, slot.stride, sizeof t->stride);
    call->places.size = attn_dtype_size(slot.dtype);
    places_add(&call->places, "", must->name, slot.data, shape, slot.stride, output);
    return ATTN_OK;
}

static inline attn_status bound_input(bound_call *call, bound_rule must, const attn_input *given, bound_tensor *t,
                                      attn_error *error)
{
    *t = (bound_tensor){.data = NULL};
    CHECK(given, ATTN_ERR_ARGUMENT, "%s: %s is NULL", call->module, must.name);
    return bound_add(call, &must, given, 0, t, error);
}

static inline attn_status bound_output(bound_call *call, bound_rule must, const attn_output *given, bound_tensor *t,
                                       attn_error *error)
{
    *t = (bound_tensor){.data = NULL};
    CHECK(given, ATTN_ERR_ARGUMENT, "%s: %s is NULL", call->module, must.name);
    const attn_input slot = slot_of(given);
    return bound_add(call, &must, &slot, 1, t, error);
}

/* Call after the last of these, before anything is written. */
static inline attn_status bound_no_overlap(const bound_call *call, attn_error *error)
{
    return places_check(&call->places, call->module, error);
}

/* Offset of an element, in elements. */
static inline int64_t bound_at(const bound_tensor *t, int64_t b, int64_t h, int64_t i, int64_t c)
{
    return b * t->stride[0] + h * t->stride[1] + i * t->stride[2] + c * t->stride[3];
}

/* Element `at` of a tensor of a float type. */
static inline double bound_get(const bound_tensor *t, int64_t at)
{
    double x = 0;
    if (t->dtype == ATTN_F64) return ((const double *)t->data)[at];
    if (t->dtype == ATTN_F32) return (double)((const float *)t->data)[at];
    (void)attn_convert(1, (const char *)t->data + at * (int64_t)attn_dtype_size(t->dtype), t->dtype, &x, ATTN_F64, NULL);
    return x;
}

/* Rounds once. */
static inline void bound_put(const bound_tensor *t, int64_t at, double x)
{
    if (t->dtype == ATTN_F64) ((double *)t->data)[at] = x;
    else if (t->dtype == ATTN_F32) ((float *)t->data)[at] = (float)x;
    else (void)attn_convert(1, &x, ATTN_F64, (char *)t->data + at * (int64_t)attn_dtype_size(t->dtype), t->dtype, NULL);
}

#endif
