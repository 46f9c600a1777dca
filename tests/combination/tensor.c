/* SPDX-License-Identifier: MIT
 * tensor.c - tensors of random combinations. */
#include "test.h"

#include "tensor.h"

#include "testing/memory/format.h"

/* Channels of an element. */
static int64_t width_of(const tensor *t) { return format_is_blocks(t->layout.dtype) ? ATTN_BLOCK : 1; }

/* Axes from outermost to innermost. */
static const int nesting[2][4] = {{0, 1, 2, 3}, {0, 2, 1, 3}};

static void sizes_of(const tensor *t, int64_t sizes[4])
{
    memcpy(sizes, t->shape, sizeof t->shape);
    sizes[3] /= width_of(t);
    if (t->start) sizes[0] = 1, sizes[2] = t->start[t->shape[0]];
}

tensor tensor_make(attn_dtype dtype, const int64_t shape[4], axis_order order, unsigned broadcast, const int64_t *start)
{
    tensor t = {.layout.dtype = dtype, .start = start, .count = 1};
    int64_t sizes[4];
    memcpy(t.shape, shape, sizeof t.shape);
    sizes_of(&t, sizes);
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

void tensor_with_gaps(tensor *t, random_state *random)
{
    const int *nested = nesting[t->layout.stride[1] < t->layout.stride[2] ? BY_TOKEN : BY_HEAD];
    const size_t size = attn_dtype_size(t->layout.dtype);
    int64_t sizes[4], n[4];
    tensor gapped = *t;
    sizes_of(t, sizes);
    gapped.count = 1;
    for (int place = 3; place >= 0; place--) {
        const int axis = nested[place];
        if (t->layout.stride[axis] == ATTN_BROADCAST) continue;
        gapped.layout.stride[axis] = gapped.count;
        gapped.count = gapped.count * sizes[axis] + random_below(random, 9);
    }
    gapped.memory = malloc((size_t)(gapped.count + 1) * size);
    assert_non_null(gapped.memory);
    memset(gapped.memory, 0xff, (size_t)(gapped.count + 1) * size);
    for (n[0] = 0; n[0] < t->shape[0]; n[0]++)
        for (n[1] = 0; n[1] < t->shape[1]; n[1]++)
            for (n[2] = 0; n[2] < t->shape[2] && tensor_has(t, n[0], n[2]); n[2]++)
                for (n[3] = 0; n[3] < t->shape[3]; n[3]++)
                    memcpy((char *)gapped.memory + (size_t)tensor_at(&gapped, n[0], n[1], n[2], n[3]) * size,
                           (char *)t->memory + (size_t)tensor_at(t, n[0], n[1], n[2], n[3]) * size, size);
    free(t->memory);
    *t = gapped;
}

int tensor_gaps_hold(const tensor *t)
{
    const size_t size = attn_dtype_size(t->layout.dtype);
    unsigned char *is_element = calloc((size_t)t->count + 1, 1);
    int64_t n[4];
    int hold = 1;
    assert_non_null(is_element);
    for (n[0] = 0; n[0] < t->shape[0]; n[0]++)
        for (n[1] = 0; n[1] < t->shape[1]; n[1]++)
            for (n[2] = 0; n[2] < t->shape[2] && tensor_has(t, n[0], n[2]); n[2]++)
                for (n[3] = 0; n[3] < t->shape[3]; n[3]++) is_element[tensor_at(t, n[0], n[1], n[2], n[3])] = 1;
    for (int64_t i = 0; i < t->count; i++)
        for (size_t k = 0; !is_element[i] && k < size; k++) hold &= ((unsigned char *)t->memory)[(size_t)i * size + k] == 0xff;
    free(is_element);
    return hold;
}

void tensor_free(tensor *t)
{
    free(t->memory);
    free(t->value);
}

int tensor_has(const tensor *t, int64_t b, int64_t token) { return !t->start || token < t->start[b + 1] - t->start[b]; }

int64_t tensor_at(const tensor *t, int64_t b, int64_t h, int64_t token, int64_t c)
{
    const int64_t index[4] = {t->start ? 0 : b, h, t->start ? t->start[b] + token : token, c / width_of(t)};
    int64_t at = 0;
    for (int axis = 0; axis < 4; axis++)
        if (t->layout.stride[axis] != ATTN_BROADCAST) at += index[axis] * t->layout.stride[axis];
    return at;
}

/* Decodes a 16-bit float by definition.  mantissa: number of mantissa bits; least: the smallest positive number. */
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

/* Elements at, at + step, ... (the type is looked at once, as tests read and draw millions of elements) */
#define EACH(x)                                                                                                                    \
    for (int64_t n = 0; n < count; n++, at += step) to[n] = (x)

static void get(const tensor *t, int64_t at, int64_t step, int64_t count, double *to)
{
    const void *memory = t->memory;
    switch (t->layout.dtype) {
    case ATTN_F32:
        EACH((double)((const float *)memory)[at]);
        break;
    case ATTN_F64:
        EACH(((const double *)memory)[at]);
        break;
    case ATTN_F16:
        EACH(of_bits(((const uint16_t *)memory)[at], 10, 15, 0x1p-24));
        break;
    case ATTN_BF16:
        EACH(of_bits(((const uint16_t *)memory)[at], 7, 127, 0x1p-133));
        break;
    case ATTN_I8:
        EACH(((const signed char *)memory)[at]);
        break;
    case ATTN_F8_E5M2: /* the upper half of an f16 */
        EACH(of_bits((uint16_t)(((const unsigned char *)memory)[at] << 8), 10, 15, 0x1p-24));
        break;
    case ATTN_Q8_0:
    case ATTN_Q4_0:
    case ATTN_Q4_1: /* channels of `at` and the blocks behind it */
        for (int64_t n = 0; n < count; n++)
            to[n] = format_get((const char *)memory + (size_t)(at + n / ATTN_BLOCK * step) * attn_dtype_size(t->layout.dtype),
                               t->layout.dtype, n % ATTN_BLOCK);
        break;
    default:
        EACH(((const unsigned char *)memory)[at]);
    }
}

double tensor_get(const tensor *t, int64_t at)
{
    double x;
    get(t, at, 1, 1, &x);
    return x;
}

static void set(tensor *t, int64_t at, int64_t count, const double *x)
{
    void *memory = t->memory;
    switch (t->layout.dtype) {
    case ATTN_F32:
        for (int64_t n = 0; n < count; n++) ((float *)memory)[at + n] = (float)x[n];
        break;
    case ATTN_F64:
        memcpy((double *)memory + at, x, (size_t)count * sizeof *x);
        break;
    case ATTN_F16:
    case ATTN_BF16: /* any rounding will do: tensor_read reads the stored value back */
        (void)attn_convert(count, x, ATTN_F64, (uint16_t *)memory + at, t->layout.dtype, NULL);
        break;
    case ATTN_F8_E5M2:
        for (int64_t n = 0; n < count; n++) {
            uint16_t half;
            (void)attn_convert(1, x + n, ATTN_F64, &half, ATTN_F16, NULL);
            ((unsigned char *)memory)[at + n] = (unsigned char)(half >> 8);
        }
        break;
    case ATTN_I8: /* rounds towards 0 */
        for (int64_t n = 0; n < count; n++) ((signed char *)memory)[at + n] = (signed char)x[n];
        break;
    case ATTN_Q8_0:
    case ATTN_Q4_0:
    case ATTN_Q4_1: /* a block of steps that depend on x */
        for (int64_t n = 0; n < count; n++)
            format_put((char *)memory + (size_t)(at + n) * attn_dtype_size(t->layout.dtype), t->layout.dtype, x[n]);
        break;
    default:
        for (int64_t n = 0; n < count; n++) ((unsigned char *)memory)[at + n] = x[n] != 0;
    }
}

void tensor_set(tensor *t, int64_t at, double x) { set(t, at, 1, &x); }

void tensor_draw(tensor *t, random_state *random, double size)
{
    enum { BLOCK = 64 };
    double block[BLOCK];
    for (int64_t at = 0, count; at < t->count; at += count) {
        count = t->count - at < BLOCK ? t->count - at : BLOCK;
        for (int64_t n = 0; n < count; n++) block[n] = size * random_signed(random);
        set(t, at, count, block);
    }
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
                if (tensor_has(t, b, i)) get(t, tensor_at(t, b, h, i, 0), step, n[3], to);
                else memset(to, 0, (size_t)n[3] * sizeof *to);
            }
}

tensor tensor_like(const tensor *t)
{
    tensor made =
        tensor_make(t->layout.dtype, t->shape, t->layout.stride[1] < t->layout.stride[2] ? BY_TOKEN : BY_HEAD, 0, t->start);
    made.layout = t->layout;
    if (t->count > made.count) { /* with gaps */
        made.count = t->count;
        free(made.memory);
        made.memory = calloc((size_t)t->count + 1, attn_dtype_size(t->layout.dtype));
        assert_non_null(made.memory);
    }
    return made;
}
