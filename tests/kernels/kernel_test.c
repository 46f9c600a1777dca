/* SPDX-License-Identifier: MIT
 *
 * kernel_test.c - the helpers of kernel_test.h.
 */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
#include "kernel_test.h"

#include "testing/random/random.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

subject it;

int64_t size_of(attn_dtype dtype)
{
    switch (dtype) {
    case ATTN_F64:
        return 8;
    case ATTN_F32:
        return 4;
    case ATTN_BOOL:
    case ATTN_I8:
        return 1;
    default:
        return 2;
    }
}

/* 2^exponent, a normal double.  (ldexp takes a third of the time of these tests.) */
static double power_of_two(int exponent)
{
    uint64_t bits = (uint64_t)(1023 + exponent) << 52;
    double x;
    memcpy(&x, &bits, 8);
    return x;
}

/* The value of a 16-bit pattern, by the definition of its format. */
static double of_pattern(unsigned h, int bits, int bias)
{
    int exponent = (int)(h >> bits) & ((1 << (15 - bits)) - 1);
    double mantissa = h & ((1u << bits) - 1), x;
    if (exponent == (1 << (15 - bits)) - 1) x = mantissa != 0 ? (double)NAN : (double)INFINITY;
    else if (exponent == 0) x = mantissa * power_of_two(1 - bias - bits);
    else x = (mantissa + (1 << bits)) * power_of_two(exponent - bias - bits);
    return h & 0x8000 ? -x : x;
}

/* The pattern nearest to x: bisection over the patterns, which are ordered like their values; ties to even. */
static unsigned to_pattern(double x, int bits, int bias)
{
    unsigned infinity = (unsigned)((1 << (15 - bits)) - 1) << bits, low = 0, high = infinity;
    unsigned sign = signbit(x) ? 0x8000 : 0;
    if (isnan(x)) return sign | infinity | 1u << (bits - 1);
    x = fabs(x);
    if (isinf(x)) return sign | infinity;
    while (high - low > 1) {
        unsigned middle = (low + high) / 2;
        if (of_pattern(middle, bits, bias) <= x) low = middle;
        else high = middle;
    }
    /* Beyond the largest number the next value would be 2^(bias + 1). */
    double below = of_pattern(low, bits, bias), above = high == infinity ? power_of_two(bias + 1) : of_pattern(high, bits, bias);
    double half = below + (above - below) / 2;
    return sign | (x > half || (x == half && (low & 1)) ? high : low);
}

double get(attn_dtype dtype, const void *base, int64_t index)
{
    const char *p = (const char *)base + index * size_of(dtype);
    float single;
    double wide;
    uint16_t half;
    switch (dtype) {
    case ATTN_F64:
        memcpy(&wide, p, 8);
        return wide;
    case ATTN_F32:
        memcpy(&single, p, 4);
        return (double)single;
    case ATTN_F16:
        memcpy(&half, p, 2);
        return of_pattern(half, 10, 15);
    case ATTN_BF16:
        memcpy(&half, p, 2);
        return of_pattern(half, 7, 127);
    case ATTN_I8:
        return *(const signed char *)p;
    default:
        return *p;
    }
}

void put(attn_dtype dtype, void *base, int64_t index, double x)
{
    char *p = (char *)base + index * size_of(dtype);
    float single = (float)x;
    uint16_t half;
    switch (dtype) {
    case ATTN_F64:
        memcpy(p, &x, 8);
        break;
    case ATTN_F32:
        memcpy(p, &single, 4);
        break;
    case ATTN_BOOL:
    case ATTN_I8:
        *(signed char *)p = (signed char)x;
        break;
    default:
        half = (uint16_t)(dtype == ATTN_F16 ? to_pattern(x, 10, 15) : to_pattern(x, 7, 127));
        memcpy(p, &half, 2);
        break;
    }
}

double rounded(attn_dtype dtype, double x)
{
    double place;
    put(dtype, &place, 0, x);
    return get(dtype, &place, 0);
}

double real(double x) { return rounded(it.compute, x); }

/* ---- memory ---- */

enum { GUARD = 256, PATTERN = 0xa5, CAPACITY = 256 };

static struct {
    char *start;
    int64_t bytes, mapped; /* mapped 0: an output */
} held[CAPACITY];
static int holding;

void *input(int64_t bytes)
{
    int64_t page = sysconf(_SC_PAGESIZE), pages = (bytes + page) / page;
    assert_true(holding < CAPACITY);
    char *start = mmap(NULL, (size_t)((pages + 1) * page), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(start != MAP_FAILED);
    assert_int_equal(mprotect(start + pages * page, (size_t)page, PROT_NONE), 0);
    held[holding].start = start;
    held[holding].bytes = bytes;
    held[holding++].mapped = (pages + 1) * page;
    return start + pages * page - bytes;
}

void *output(int64_t bytes)
{
    assert_true(holding < CAPACITY);
    char *start = aligned_alloc(64, (size_t)((bytes + 2 * GUARD + 63) / 64 * 64));
    assert_non_null(start);
    memset(start, PATTERN, (size_t)(bytes + 2 * GUARD));
    held[holding].start = start;
    held[holding].bytes = bytes;
    held[holding++].mapped = 0;
    return start + GUARD;
}

int untouched(const void *p, int64_t bytes)
{
    for (int64_t i = 0; i < bytes; i++)
        if (((const unsigned char *)p)[i] != PATTERN) return 0;
    return 1;
}

void release_all(void)
{
    int broken = 0;
    for (int i = 0; i < holding; i++) {
        if (held[i].mapped) {
            munmap(held[i].start, (size_t)held[i].mapped);
        } else {
            broken |= !untouched(held[i].start, GUARD) || !untouched(held[i].start + GUARD + held[i].bytes, GUARD);
            free(held[i].start);
        }
    }
    holding = 0;
    assert_false(broken);
}

void fold(int width, int64_t n, int64_t dim_v, void *S, const void *block_max, const void *V, void *m, void *l, void *Ot,
          const int32_t *low, const int32_t *high, int nan_safe)
{
    const attn_product_part *product = it.kernel.product;
    const int64_t size = size_of(it.compute);
    void *factor = output(it.tile * size), *scores = nan_safe ? output(n * it.tile * size) : NULL;
    if (nan_safe) memcpy(scores, S, (size_t)(n * it.tile * size));
    it.kernel.softmax->exponentiate(width, n, S, block_max, NULL, m, l, factor);
    assert_true(untouched((char *)factor + width * it.lanes * size, (it.tile - width * it.lanes) * size));
    if (nan_safe) product->values_nan_safe(width, n, dim_v, S, scores, 0, V, dim_v, factor, Ot);
    else if (low) product->values_seen(width, n, dim_v, S, V, dim_v, factor, Ot, low, high, V, dim_v);
    else product->values(width, n, dim_v, S, V, dim_v, factor, Ot, V, dim_v);
}

/* ---- numbers ---- */

static random_state numbers;

void seed(uint64_t value) { numbers = random_from(value); }

double uniform(void) { return random_signed(&numbers); }

void *random_input(attn_dtype dtype, int64_t n, double size)
{
    void *p = input(n * size_of(dtype));
    if (dtype == ATTN_I8) size = 128; /* every integer of the type */
    for (int64_t i = 0; i < n; i++) put(dtype, p, i, dtype == ATTN_I8 ? floor(uniform() * size) : uniform() * size);
    return p;
}
