/* SPDX-License-Identifier: MIT
 * tensor.c - tensors of the random combinations. */
#include "test.h"

#include "tensor.h"

tensor tensor_make(attn_dtype dtype, const int64_t shape[4], axis_order order, unsigned broadcast, const int64_t *start)
{
    static const int nesting[2][4] = {{0, 1, 2, 3}, {0, 2, 1, 3}};
    tensor t = {.layout.dtype = dtype, .start = start, .count = 1};
    int64_t sizes[4];
    for (int axis = 0; axis < 4; axis++) sizes[axis] = t.shape[axis] = shape[axis];
    if (start) {
        sizes[0] = 1;
        sizes[2] = start[shape[0]];
    }
    for (int place = 3; place >= 0; place--) {
        int axis = nesting[order][place];
        t.layout.stride[axis] = t.count;
        if (broadcast >> axis & 1) t.layout.stride[axis] = ATTN_BROADCAST;
        else t.count *= sizes[axis];
    }
    t.memory = calloc((size_t)t.count + 1, attn_dtype_size(dtype));
    t.value = calloc((size_t)(shape[0] * shape[1] * shape[2] * shape[3]) + 1, sizeof(double));
    assert_true(t.memory && t.value);
    return t;
}

void tensor_free(tensor *t)
{
    free(t->memory);
    free(t->value);
}

int tensor_has(const tensor *t, int64_t b, int64_t token) { return !t->start || token < t->start[b + 1] - t->start[b]; }

int64_t tensor_at(const tensor *t, int64_t b, int64_t h, int64_t token, int64_t c)
{
    const int64_t index[4] = {t->start ? 0 : b, h, t->start ? t->start[b] + token : token, c};
    int64_t at = 0;
    for (int axis = 0; axis < 4; axis++)
        if (t->layout.stride[axis] != ATTN_BROADCAST) at += index[axis] * t->layout.stride[axis];
    return at;
}

/* A number of 16 bits, `mantissa` of them for the mantissa, by the definition of its format; least: the smallest above 0. */
static double of_bits(unsigned bits, int mantissa, int bias, double least)
{
    const unsigned exponent = (bits & 0x7fff) >> mantissa, most = (1u << (15 - mantissa)) - 1;
    const uint64_t fraction = bits & ((1u << mantissa) - 1);
    double x = (double)fraction * least;
    if (exponent != 0) {
        uint64_t wide = (uint64_t)((exponent == most ? 2047 : (int)exponent - bias + 1023)) << 52 | fraction << (52 - mantissa);
        memcpy(&x, &wide, sizeof x);
    }
    return bits & 0x8000 ? -x : x;
}

double tensor_get(const tensor *t, int64_t at)
{
    switch (t->layout.dtype) {
    case ATTN_F32:
        return (double)((const float *)t->memory)[at];
    case ATTN_F64:
        return ((const double *)t->memory)[at];
    case ATTN_F16:
        return of_bits(((const uint16_t *)t->memory)[at], 10, 15, 0x1p-24);
    case ATTN_BF16:
        return of_bits(((const uint16_t *)t->memory)[at], 7, 127, 0x1p-133);
    case ATTN_I8:
        return ((const signed char *)t->memory)[at];
    default:
        return ((const unsigned char *)t->memory)[at];
    }
}

void tensor_set(tensor *t, int64_t at, double x)
{
    switch (t->layout.dtype) {
    case ATTN_F32:
        ((float *)t->memory)[at] = (float)x;
        break;
    case ATTN_F64:
        ((double *)t->memory)[at] = x;
        break;
    case ATTN_F16:
    case ATTN_BF16: /* any rounding does: tensor_read sees what is stored */
        attn_convert((uint16_t *)t->memory + at, t->layout.dtype, &x, ATTN_F64, 1);
        break;
    case ATTN_I8: /* towards 0 */
        ((signed char *)t->memory)[at] = (signed char)x;
        break;
    default:
        ((unsigned char *)t->memory)[at] = x != 0;
    }
}

void tensor_draw(tensor *t, random_source *random, double size)
{
    for (int64_t i = 0; i < t->count; i++) tensor_set(t, i, size * random_signed(random));
    tensor_read(t);
}

void tensor_fill_bytes(tensor *t, int byte) { memset(t->memory, byte, (size_t)t->count * attn_dtype_size(t->layout.dtype)); }

void tensor_read(tensor *t)
{
    const int64_t *n = t->shape, step = t->layout.stride[3] == ATTN_BROADCAST ? 0 : t->layout.stride[3];
    double *to = t->value;
    for (int64_t b = 0; b < n[0]; b++)
        for (int64_t h = 0; h < n[1]; h++)
            for (int64_t i = 0; i < n[2]; i++, to += n[3]) {
                int has = tensor_has(t, b, i);
                int64_t from = has ? tensor_at(t, b, h, i, 0) : 0;
                for (int64_t c = 0; c < n[3]; c++) to[c] = has ? tensor_get(t, from + c * step) : 0;
            }
}
