/* SPDX-License-Identifier: MIT
 *
 * test_storage.c - conversion between callers' rows and tiles: queries, keys, values in, outputs and weights out.
 */
#include <math.h>
#include <string.h>

#include "kernel_test.h"

static const attn_dtype types[] = {ATTN_F32, ATTN_F64, ATTN_F16, ATTN_BF16};
static const int64_t dims[] = {0, 1, 3, 8, 31, 40, 64, 100};
enum { TYPES = 4, DIMS = 8 };

static int64_t clamped(int64_t i, int64_t rows) { return i < rows ? i : rows - 1; }

/* Row counts that make a tile of this width: the remainders around its last vector. */
static int64_t rows_of(int width, int which)
{
    int64_t full = (int64_t)width * it.lanes, rows[4] = {full, full - 1, full - it.lanes + 1, 1};
    return rows[which] < 1 ? 1 : rows[which];
}

void test_pack_query(void **state)
{
    (void)state;
    for (int t = 0; t < TYPES; t++)
        for (int d = 0; d < DIMS; d++)
            for (int width = 1; width <= it.vectors; width++)
                for (int which = 0; which < 4; which++) {
                    int64_t dim = dims[d], rows = rows_of(width, which), gap = which == 1 ? 3 : 0, stride = dim + gap;
                    int64_t used = (int64_t)width * it.lanes, size = size_of(it.compute);
                    double scale = which == 2 ? -0.3 : 0.125;
                    char *q = random_input(types[t], rows * stride - gap, 2);
                    char *first = q, *Qt = output((dim * it.tile + 1) * size);
                    if (which == 3) stride = 0;
                    if (which == 2) first = q + (rows - 1) * stride * size_of(types[t]), stride = -stride; /* rows run backwards */
                    it.kernel.storage->pack_query(width, rows, dim, first, types[t], stride, scale, Qt);
                    for (int64_t c = 0; c < dim; c++) {
                        for (int64_t i = 0; i < used; i++) {
                            double x = get(types[t], first, clamped(i, rows) * stride + c);
                            assert_true(get(it.compute, Qt, c * it.tile + i) == real(real(scale) * real(x)));
                        }
                        assert_true(untouched(Qt + (c * it.tile + used) * size, (it.tile - used) * size));
                    }
                    release_all();
                }
}

void test_load_rows(void **state)
{
    (void)state;
    for (int t = 0; t < TYPES; t++)
        for (int d = 0; d < DIMS; d++) {
            int64_t n = 5, dim = dims[d], stride = dim + 2, ld = dim + 1, size = size_of(it.compute);
            void *src = random_input(types[t], n * stride - 2, 100);
            char *dst = output(n * ld * size);
            it.kernel.storage->load_rows(n, dim, src, types[t], stride, dst, ld);
            for (int64_t i = 0; i < n; i++) {
                for (int64_t c = 0; c < dim; c++)
                    assert_true(get(it.compute, dst, i * ld + c) == real(get(types[t], src, i * stride + c)));
                assert_true(untouched(dst + (i * ld + dim) * size, size));
            }
            release_all();
        }
    /* int8, which only kernels of f32 read, and rows times their scales. */
    for (int d = 0; d < DIMS; d++) {
        const int64_t n = 3, dim = dims[d], ld = dim + 1, size = size_of(it.compute);
        void *src = random_input(ATTN_I8, n * dim, 1), *factors = random_input(it.compute, n * 2 - 1, 1);
        char *dst = output(n * ld * size);
        if (it.compute == ATTN_F32) it.kernel.storage->load_rows(n, dim, src, ATTN_I8, dim, dst, ld);
        for (int64_t i = 0; i < n * dim; i++) {
            char *at = dst + (i / dim * ld + i % dim) * size;
            if (it.compute == ATTN_F32) assert_true(get(ATTN_F32, at, 0) == get(ATTN_I8, src, i));
            put(it.compute, at, 0, get(ATTN_I8, src, i));
        }
        it.kernel.storage->scale_rows(n, dim, factors, 2, dst, ld);
        for (int64_t i = 0; i < n; i++) {
            for (int64_t c = 0; c < dim; c++)
                assert_true(get(it.compute, dst, i * ld + c) ==
                            real(get(it.compute, factors, 2 * i) * get(ATTN_I8, src, i * dim + c)));
            assert_true(untouched(dst + (i * ld + dim) * size, size));
        }
        release_all();
    }
    /* Every pattern of the 16-bit types, NaNs and infinities too. */
    for (int t = 2; t < TYPES; t++) {
        uint16_t *src = input(65536 * 2);
        void *dst = output(65536 * size_of(it.compute));
        for (int i = 0; i < 65536; i++) src[i] = (uint16_t)i;
        it.kernel.storage->load_rows(1, 65536, src, types[t], 0, dst, 65536);
        for (int i = 0; i < 65536; i++) {
            double expected = get(types[t], src, i), found = get(it.compute, dst, i);
            assert_true(isnan(expected) ? isnan(found) : expected == found && !signbit(expected) == !signbit(found));
        }
        release_all();
    }
}

/* The bits of channel c of a bf16 row of `dim` channels; 0 past its end. */
static uint16_t channel(const void *row, int64_t dim, int64_t c)
{
    uint16_t bits = 0;
    if (c < dim) memcpy(&bits, (const char *)row + 2 * c, 2);
    return bits;
}

static void pair_is(const void *pair, const void *row, int64_t dim, int64_t p)
{
    assert_int_equal(channel(pair, 2, 0), channel(row, dim, 2 * p));
    assert_int_equal(channel(pair, 2, 1), channel(row, dim, 2 * p + 1));
}

/* Pairs of bf16: every bit is kept, of NaN and subnormal numbers too, at any even address. */
void test_pairs(void **state)
{
    const attn_pairs_part *bf16 = it.kernel.pairs;
    (void)state;
    for (int d = 0; d < DIMS; d++)
        for (int width = 1; width <= it.vectors; width++)
            for (int which = 0; which < 4; which++) {
                const int64_t dim = dims[d], pairs = attn_bf16_pairs(dim), rows = rows_of(width, which), gap = which;
                const int64_t used = (int64_t)width * it.lanes;
                int64_t stride = dim + gap;
                char *q = input(2 * (rows * stride - (stride ? gap : 0))), *first = q;
                for (int64_t i = 0; i < rows * stride - gap; i++)
                    ((uint16_t *)(void *)q)[i] = (uint16_t)(uniform() * 0x8000 + 0x8000);
                if (which == 2) first = q + 2 * (rows - 1) * stride, stride = -stride; /* rows run backwards */
                char *Qt = output((pairs * it.tile + 1) * 4), *dst = output(rows * pairs * 4);
                bf16->pack_query(width, rows, dim, first, stride, Qt);
                bf16->load_rows(rows, dim, first, stride, dst);
                for (int64_t p = 0; p < pairs; p++) {
                    for (int64_t i = 0; i < used; i++)
                        pair_is(Qt + (p * it.tile + i) * 4, first + 2 * clamped(i, rows) * stride, dim, p);
                    assert_true(untouched(Qt + (p * it.tile + used) * 4, (it.tile - used) * 4));
                    for (int64_t i = 0; i < rows; i++) pair_is(dst + (i * pairs + p) * 4, first + 2 * i * stride, dim, p);
                }
                release_all();
            }
}

/* 1 if `found` is x rounded to the type, with an error of up to `ulp` units of the compute type before that rounding. */
static int near(attn_dtype dtype, double found, double x, double ulp)
{
    double slack = fabs(x) * 2 * it.unit * ulp, low = rounded(dtype, x - slack), high = rounded(dtype, x + slack);
    return found >= low && found <= high;
}

void test_finish(void **state)
{
    (void)state;
    for (int t = 0; t < TYPES; t++)
        for (int d = 0; d < DIMS; d++)
            for (int width = 1; width <= it.vectors; width++)
                for (int which = 0; which < 4; which++) {
                    int64_t dim = dims[d], rows = rows_of(width, which), stride = dim + which, lse_stride = 1 + which;
                    int64_t size = size_of(it.compute), out = size_of(types[t]);
                    void *m = output(it.tile * size), *l = output(it.tile * size), *Ot = output(dim * it.tile * size);
                    char *o = output(rows * stride * out), *lse = output(rows * lse_stride * size);
                    for (int64_t i = 0; i < width * it.lanes; i++) {
                        int none = i % 5 == 2; /* a query that sees no key; its Ot may be anything */
                        put(it.compute, m, i, none ? it.lowest : uniform() * 30);
                        put(it.compute, l, i, none ? 0 : 1 + 40 * fabs(uniform()));
                        for (int64_t c = 0; c < dim; c++) put(it.compute, Ot, c * it.tile + i, none ? (double)NAN : uniform() * 9);
                    }
                    it.kernel.softmax->finish(width, rows, dim, 1, m, l, Ot, o, types[t], stride, which == 3 ? NULL : lse,
                                              lse_stride);
                    for (int64_t i = 0; i < rows; i++) {
                        double sum = get(it.compute, l, i), most = get(it.compute, m, i);
                        for (int64_t c = 0; c < dim; c++) {
                            double found = get(types[t], o, i * stride + c);
                            if (sum == 0) assert_true(found == 0);
                            else assert_true(near(types[t], found, get(it.compute, Ot, c * it.tile + i) / sum, 1.5));
                        }
                        assert_true(untouched(o + (i * stride + dim) * out, (stride - dim) * out));
                        if (which == 3) continue;
                        double found = get(it.compute, lse, i * lse_stride);
                        if (sum == 0) assert_true(found == -(double)INFINITY);
                        else assert_true(fabs(found - (most + log(sum))) <= 4 * it.unit * (fabs(most) + log(sum)));
                        assert_true(untouched(lse + (i * lse_stride + 1) * size, (lse_stride - 1) * size));
                    }
                    if (which == 3) assert_true(untouched(lse, rows * lse_stride * size));
                    release_all();
                }
}

/* Rounding to the 16-bit types: the ties between all neighbouring patterns, and the numbers next to the ties; NaNs. */
void test_store_all_patterns(void **state)
{
    enum { SHIFTS = 3 };
    const double shifts[SHIFTS] = {0, 1, -1};
    int64_t n = 0x7f80, size = size_of(it.compute);
    (void)state;
    for (int t = 2; t < TYPES; t++) {
        for (int s = 0; s < SHIFTS; s++) {
            uint16_t pattern[2];
            void *m = output(it.tile * size), *l = output(it.tile * size), *Ot = output(n * it.tile * size);
            char *o = output(n * 2);
            for (int i = 0; i < it.lanes; i++) put(it.compute, m, i, 0), put(it.compute, l, i, 1);
            for (int i = 0; i < n; i++) {
                pattern[0] = (uint16_t)i, pattern[1] = (uint16_t)(i + 1);
                double x = get(types[t], pattern, 0), next = get(types[t], pattern, 1);
                double middle = isfinite(next) ? x + (next - x) / 2 : x;
                middle += shifts[s] * ldexp(fabs(middle), it.compute == ATTN_F64 ? -52 : -23);
                for (int lane = 0; lane < it.lanes; lane++)
                    put(it.compute, Ot, (int64_t)i * it.tile + lane, i & 1 ? -middle : middle);
            }
            it.kernel.softmax->finish(1, 1, n, 1, m, l, Ot, o, types[t], n, NULL, 0);
            for (int i = 0; i < n; i++) {
                double x = get(it.compute, Ot, (int64_t)i * it.tile), expected = rounded(types[t], x), found = get(types[t], o, i);
                assert_true(isnan(expected) ? isnan(found) && !signbit(x) == !signbit(found) : found == expected);
            }
            release_all();
        }
        /* A NaN with its payload in the discarded bits only must not become infinity, nor one of all ones round up to 0. */
        for (int k = 0; k < 4; k++) {
            const uint64_t wide = (k & 1 ? UINT64_MAX >> 1 : 0x7ff0000000000001u) | (uint64_t)(k / 2) << 63;
            const uint32_t single = (k & 1 ? UINT32_MAX >> 1 : 0x7f800001u) | (uint32_t)(k / 2) << 31;
            void *m = output(it.tile * size), *l = output(it.tile * size);
            char *Ot = output(it.tile * size), *o = output(2 * it.lanes);
            for (int i = 0; i < it.lanes; i++) {
                put(it.compute, m, i, 0), put(it.compute, l, i, 1);
                memcpy(Ot + i * size, size == 8 ? (const void *)&wide : (const void *)&single, (size_t)size);
            }
            it.kernel.softmax->finish(1, it.lanes, 1, 1, m, l, Ot, o, types[t], 1, NULL, 0);
            for (int i = 0; i < it.lanes; i++) assert_true(isnan(get(types[t], o, i)));
            release_all();
        }
    }
}

void test_weigh(void **state)
{
    static const int64_t lengths[] = {1, 2, 7, 8, 16, 31, 100};
    (void)state;
    for (int t = 0; t < TYPES; t++)
        for (size_t k = 0; k < sizeof lengths / sizeof lengths[0]; k++)
            for (int width = 1; width <= it.vectors; width++) {
                int64_t n = lengths[k], rows = rows_of(width, (int)k % 4), stride = n + (int64_t)k, out = size_of(types[t]);
                int64_t size = size_of(it.compute);
                void *S = output(n * it.tile * size), *m = output(it.tile * size), *l = output(it.tile * size);
                double scores[128 * MAX_LANES];
                char *w = output(rows * stride * out);
                for (int64_t i = 0; i < width * it.lanes; i++) {
                    put(it.compute, m, i, 3), put(it.compute, l, i, i == 1 ? 0 : 5 + uniform());
                    for (int64_t j = 0; j < n; j++) {
                        put(it.compute, S, j * it.tile + i, i == 1 || j % 7 == 3 ? -(double)INFINITY : 3 + uniform() * 5);
                        scores[j * it.tile + i] = get(it.compute, S, j * it.tile + i);
                    }
                }
                it.kernel.outputs->normalise(width, n, S, m, l);
                it.kernel.storage->store_columns(width, rows, n, 1, S, w, types[t], stride);
                for (int64_t i = 0; i < rows; i++) {
                    for (int64_t j = 0; j < n; j++) {
                        double sum = get(it.compute, l, i), score = scores[j * it.tile + i],
                               found = get(types[t], w, i * stride + j);
                        if (sum == 0 || isinf(score)) assert_true(found == 0);
                        else assert_true(near(types[t], found, exp(score - 3) / sum, 5));
                    }
                    assert_true(untouched(w + (i * stride + n) * out, (stride - n) * out));
                }
                release_all();
            }
}
