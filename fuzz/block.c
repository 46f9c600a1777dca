/* SPDX-License-Identifier: MIT
 * block.c - see block.h. */
#include "block.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../tests/fnv.h"
#include "target.h"
#include "testing/memory/format.h"

#if defined(__SANITIZE_ADDRESS__)
enum { GUARD = 0 };
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
enum { GUARD = 0 };
#else
enum { GUARD = 64 };
#endif
#else
enum { GUARD = 64 };
#endif
enum { GUARD_BYTE = 0xC9 };

static unsigned char *take(size_t bytes)
{
    unsigned char *memory = malloc(bytes + 2 * GUARD + (bytes + GUARD == 0));
    if (!memory) abort();
    memset(memory, GUARD_BYTE, GUARD);
    memset(memory + GUARD + bytes, GUARD_BYTE, GUARD);
    return memory + GUARD;
}

static void release(const block *b)
{
    for (int i = 0; b->memory && i < GUARD; i++)
        if (b->memory[i - GUARD] != GUARD_BYTE || b->memory[b->bytes + (size_t)i] != GUARD_BYTE)
            finding("%s: written outside its memory", b->name);
    if (b->memory) free(b->memory - GUARD);
}

block block_of(const char *name, attn_dtype dtype, int output, int64_t i0, int64_t i1, int64_t i2, int64_t i3)
{
    block b = {.name = name, .dtype = dtype, .output = output, .shape = {i0, i1, i2, i3}, .element = attn_dtype_size(dtype)};
    int64_t dense = 1;
    for (int axis = 3; axis >= 0; axis--) {
        b.stride[axis] = dense;
        if (dense < MAX_BLOCK_BYTES) dense *= b.shape[axis] > 0 ? b.shape[axis] : 1;
    }
    return b;
}

void block_draw_strides(block *b, draws *d, int last)
{
    int order[4] = {0, 1, 2, 3};
    for (int i = last ? 2 : 3; i > 0; i--) {
        const int j = (int)draw_below(d, i + 1), swap = order[i];
        order[i] = order[j], order[j] = swap;
    }
    int64_t run = 1;
    for (int i = 3; i >= 0; i--) {
        const int axis = order[i];
        b->stride[axis] = run;
        if (run < MAX_BLOCK_BYTES) run *= b->shape[axis] > 0 ? b->shape[axis] : 1;
        if (draw_one_in(d, 3)) run += draw_below(d, 5);
    }
    for (int axis = 0; axis < 4; axis++) {
        if (axis == 3 && last) continue;
        if (draw_one_in(d, 7)) b->stride[axis] = -b->stride[axis];
        if (!b->output && draw_one_in(d, 7)) b->stride[axis] = 0;
    }
    for (int axis = 0; axis < 4; axis++)
        if (b->shape[axis] == 1 && draw_one_in(d, 4)) b->stride[axis] = draw_hostile(d);
}

/* The effective stride: 0 for axes of size 1 and broadcast axes. */
static int64_t step(const block *b, int axis)
{
    return b->shape[axis] > 1 && b->stride[axis] != ATTN_BROADCAST ? b->stride[axis] : 0;
}

int block_allocate(block *b)
{
    int64_t low = 0, high = 0;
    b->first = 0, b->bytes = 0;
    for (int axis = 0; axis < 4; axis++) {
        int64_t reach;
        if (b->shape[axis] < 0) return 0;
        if (__builtin_mul_overflow(b->shape[axis] - 1, step(b, axis), &reach)) return 0;
        if (reach > MAX_BLOCK_BYTES || reach < -MAX_BLOCK_BYTES) return 0;
        *(reach < 0 ? &low : &high) += reach;
    }
    if (b->shape[0] && b->shape[1] && b->shape[2] && b->shape[3]) {
        b->bytes = (size_t)(high - low + 1) * b->element;
        b->first = (ptrdiff_t)-low * (ptrdiff_t)b->element;
    }
    if (b->bytes > MAX_BLOCK_BYTES) return 0;
    b->memory = take(b->bytes);
    return 1;
}

void block_free(block *b)
{
    release(b);
    free(b->copy), free(b->is_element);
    *b = (block){0};
}

void block_move(block *b, size_t elements)
{
    const size_t before_first = elements * b->element;
    if (!b->memory || b->bytes == 0) return;
    unsigned char *moved = take(b->bytes + before_first), *copy = b->copy ? calloc(b->bytes + before_first, 1) : NULL,
                  *is_element = b->is_element ? calloc(b->bytes + before_first, 1) : NULL;
    memset(moved, 0xEE, before_first);
    memcpy(moved + before_first, b->memory, b->bytes);
    if (copy && is_element)
        memcpy(copy + before_first, b->copy, b->bytes), memcpy(is_element + before_first, b->is_element, b->bytes);
    release(b);
    free(b->copy), free(b->is_element);
    b->memory = moved, b->copy = copy, b->is_element = is_element;
    b->bytes += before_first;
    b->first += (ptrdiff_t)before_first;
}

int block_may_overlap(const block *b)
{
    for (int i = 0; i < 4; i++) {
        if (b->shape[i] < 2) continue;
        if (step(b, i) == 0) return 1;
        for (int j = 0; j < 4; j++) {
            const int64_t x = llabs(step(b, i)), y = llabs(step(b, j));
            if (i != j && b->shape[j] > 1 && (x > y || (x == y && i < j)) && x < y * b->shape[j]) return 1;
        }
    }
    return 0;
}

attn_output block_out(const block *b)
{
    attn_output slot = {NULL, ATTN_DTYPE_DEFAULT, {0, 0, 0, 0}};
    if (!b->name) return slot;
    slot.data = b->bytes ? b->memory + b->first : ATTN_EMPTY;
    slot.dtype = b->dtype;
    memcpy(slot.stride, b->stride, sizeof slot.stride);
    if (!slot.stride[0] && !slot.stride[1] && !slot.stride[2] && !slot.stride[3]) slot.stride[0] = ATTN_BROADCAST;
    return slot;
}

attn_input block_in(const block *b)
{
    const attn_output slot = block_out(b);
    attn_input in;
    _Static_assert(sizeof in == sizeof slot, "slots are of one form");
    memcpy(&in, &slot, sizeof in);
    return in;
}

/* ---- elements ---- */

unsigned char *block_at(const block *b, int64_t i0, int64_t i1, int64_t i2, int64_t i3)
{
    return b->memory + b->first + (i0 * step(b, 0) + i1 * step(b, 1) + i2 * step(b, 2) + i3 * step(b, 3)) * (int64_t)b->element;
}

double number_get(const void *at, attn_dtype dtype)
{
    double x = 0;
    int32_t narrow;
    int64_t wide;
    switch (dtype) {
    case ATTN_I8:
        return *(const int8_t *)at;
    case ATTN_I32:
        memcpy(&narrow, at, 4);
        return narrow;
    case ATTN_I64:
        memcpy(&wide, at, 8);
        return (double)wide;
    case ATTN_BOOL:
    case ATTN_U8:
        return *(const unsigned char *)at;
    case ATTN_F8_E4M3:
    case ATTN_F8_E5M2:
        return format_get(at, dtype, 0);
    default:
        (void)attn_convert(1, at, dtype, &x, ATTN_F64, NULL);
        return x;
    }
}

void number_put(void *at, attn_dtype dtype, double x)
{
    const int32_t narrow = dtype == ATTN_I32 ? (int32_t)x : 0;
    const int64_t wide = dtype == ATTN_I64 ? (int64_t)x : 0;
    switch (dtype) {
    case ATTN_I8:
        *(int8_t *)at = (int8_t)(fabs(x) < 2 ? x * 60 : 7);
        return;
    case ATTN_I32:
        memcpy(at, &narrow, 4);
        return;
    case ATTN_I64:
        memcpy(at, &wide, 8);
        return;
    case ATTN_BOOL:
    case ATTN_U8:
        *(unsigned char *)at = x > -0.7 ? (unsigned char)(1 + (int)fmin(fabs(x) * 40, 200)) : 0;
        return;
    case ATTN_F8_E4M3:
    case ATTN_F8_E5M2:
    case ATTN_Q8_0:
    case ATTN_Q4_0:
    case ATTN_Q4_1:
    case ATTN_Q4_1C:
        format_put(at, dtype, x);
        return;
    default:
        (void)attn_convert(1, &x, ATTN_F64, at, dtype, NULL);
    }
}

double block_get(const block *b, int64_t i0, int64_t i1, int64_t i2, int64_t i3)
{
    return number_get(block_at(b, i0, i1, i2, i3), b->dtype);
}

void block_put(const block *b, int64_t i0, int64_t i1, int64_t i2, int64_t i3, double x)
{
    number_put(block_at(b, i0, i1, i2, i3), b->dtype, x);
}

double draw_real(draws *d, double low, double high) { return low + (high - low) * ((double)(draw_word(d) >> 11) * 0x1p-53); }

void block_fill(const block *b, draws *d, double low, double high, int special)
{
    static const double numbers[] = {NAN, INFINITY, -INFINITY, 1e38, -1e38, 1e-40, 0, -0.0, 65504, 70000, 1e300, 1e-310};
    for (size_t at = 0; at < b->bytes; at += b->element) {
        double x = draw_real(d, low, high);
        if (special && draw_word(d) % 61 == 0) x = numbers[draw_word(d) % 12];
        number_put(b->memory + at, b->dtype, x);
    }
}

double block_unit(attn_dtype t) { return t == ATTN_F64 ? 0x1p-53 : t == ATTN_F16 ? 0x1p-11 : t == ATTN_BF16 ? 0x1p-8 : 0x1p-24; }

void block_check(const block *b, int64_t i0, int64_t i1, int64_t i2, int64_t i3, double exact, double bound)
{
    if (!b->name) return;
    const double got = block_get(b, i0, i1, i2, i3);
    const double most = bound + block_unit(b->dtype) * (fabs(exact) + bound) + (b->dtype == ATTN_F16 ? 0x1p-24 : 0x1p-126);
    const double largest = b->dtype == ATTN_F64 ? 0x1.fffffffffffffp1023 : b->dtype == ATTN_F16 ? 65520 : 0x1.fffffp127;
    if (got == exact || (isnan(got) && isnan(exact))) return;
    if (isinf(got) && fabs(exact) + bound >= largest && (got > 0) == (exact > 0)) return; /* beyond the range of the type */
    if (!(fabs(got - exact) <= most))
        finding("%s[%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 "] is %.17g, should be %.17g, off by %.3g, bound %.3g", b->name,
                i0, i1, i2, i3, got, exact, fabs(got - exact), most);
}

/* ---- all tensors of a case ---- */

void blocks_free(block *blocks, int count)
{
    for (int t = 0; t < count; t++) block_free(&blocks[t]);
}

void blocks_canary(const block *blocks, int count, unsigned char canary)
{
    for (int t = 0; t < count; t++)
        if (blocks[t].output && blocks[t].memory) memset(blocks[t].memory, canary, blocks[t].bytes);
}

void blocks_untouched(const block *blocks, int count, unsigned char canary, const char *message)
{
    for (int t = 0; t < count; t++)
        for (size_t i = 0; blocks[t].output && blocks[t].memory && i < blocks[t].bytes; i++)
            if (blocks[t].memory[i] != canary)
                finding("%s is written at byte %zu, but the call failed: %s", blocks[t].name, i, message);
}

static void keep(block *b)
{
    free(b->copy), free(b->is_element);
    b->copy = malloc(b->bytes + 1), b->is_element = calloc(b->bytes + 1, 1);
    if (!b->copy || !b->is_element) abort();
    memcpy(b->copy, b->memory, b->bytes);
    for (int64_t i = 0; b->bytes && i < b->shape[0]; i++)
        for (int64_t h = 0; h < b->shape[1]; h++)
            for (int64_t t = 0; t < b->shape[2]; t++)
                for (int64_t c = 0; c < b->shape[3]; c++)
                    memset(b->is_element + (block_at(b, i, h, t, c) - b->memory), 1, b->element);
}

void blocks_keep(block *blocks, int count)
{
    for (int t = 0; t < count; t++)
        if (blocks[t].output && blocks[t].memory) keep(&blocks[t]);
}

static int same(const void *x, const void *y, const block *b)
{
    if (!memcmp(x, y, b->element)) return 1;
    if (b->dtype < ATTN_F32 || b->dtype > ATTN_BF16) return 0;
    return isnan(number_get(x, b->dtype)) && isnan(number_get(y, b->dtype));
}

void blocks_compare(const block *blocks, int count, unsigned char canary, const char *what)
{
    for (int t = 0; t < count; t++) {
        const block *b = &blocks[t];
        if (!b->output || !b->copy) continue;
        for (size_t i = 0; i < b->bytes; i += b->element) {
            if (b->is_element[i] && !same(b->copy + i, b->memory + i, b))
                finding("%s: %s at element %zu of its memory is %.17g, was %.17g", what, b->name, i / b->element,
                        number_get(b->memory + i, b->dtype), number_get(b->copy + i, b->dtype));
            for (size_t k = 0; !b->is_element[i] && k < b->element; k++)
                if (b->memory[i + k] != canary) finding("%s: %s: byte %zu between elements is written", what, b->name, i + k);
        }
    }
}

void block_compare_part(const block *b, const int64_t begin[4], const int64_t end[4], int zeros, const char *what)
{
    for (int64_t i = begin[0]; b->bytes && i < end[0]; i++)
        for (int64_t h = begin[1]; h < end[1]; h++)
            for (int64_t t = begin[2]; t < end[2]; t++)
                for (int64_t c = begin[3]; c < end[3]; c++) {
                    const unsigned char *now = block_at(b, i, h, t, c), *was = b->copy + (now - b->memory);
                    if (zeros && number_get(now, b->dtype) == 0 && number_get(was, b->dtype) == 0) continue;
                    if (!same(now, was, b))
                        finding("%s: %s[%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 "] is %.17g, was %.17g", what, b->name, i, h,
                                t, c, number_get(now, b->dtype), number_get(was, b->dtype));
                }
}

uint64_t blocks_checksum(const block *blocks, int count)
{
    uint64_t sum = FNV_START;
    for (int t = 0; t < count; t++) {
        const block *b = &blocks[t];
        const int real = b->dtype >= ATTN_F32 && b->dtype <= ATTN_BF16;
        if (!b->output || !b->memory) continue;
        for (size_t at = 0; at + b->element <= b->bytes; at += b->element) {
            const int nan = real && isnan(number_get(b->memory + at, b->dtype));
            sum = nan ? fnv_add(sum, "nan", 3) : fnv_add(sum, b->memory + at, b->element);
        }
    }
    return sum;
}

void blocks_print(const block *blocks, int count)
{
    for (int t = 0; t < count; t++) {
        const block *b = &blocks[t];
        if (!b->name) continue;
        fprintf(stderr, "  %-18s %-4s [%" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 "] strides", b->name,
                attn_dtype_name(b->dtype), b->shape[0], b->shape[1], b->shape[2], b->shape[3]);
        for (int axis = 0; axis < 4; axis++) fprintf(stderr, " %" PRId64, b->stride[axis]);
        fprintf(stderr, ", %zu bytes", b->bytes);
        for (int64_t i = 0; (b->dtype == ATTN_I64 || b->dtype == ATTN_I32) && b->bytes && i < b->shape[0] && i < 8; i++)
            fprintf(stderr, " %.0f", block_get(b, i, 0, 0, 0));
        fputc('\n', stderr);
    }
}
