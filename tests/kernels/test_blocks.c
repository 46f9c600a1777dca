/* SPDX-License-Identifier: MIT
 *
 * test_blocks.c - keys and values of blocks: unpacked as attn/types.h defines them; scores in integers within the error of
 * fixed-point queries, and values with the bits of unpacked ones, whatever rows and keys they are computed with.
 */
#include "kernel_test.h"

#include <math.h>
#include <string.h>

static const attn_dtype formats[] = {ATTN_Q8_0, ATTN_Q4_0, ATTN_Q4_1};
static const int64_t dims[] = {0, 32, 64, 96, 160}, lengths[] = {1, 2, 15, 16, 17, 40}, counts[] = {1, 2, 3, 4, 5, 9};
enum { FORMATS = 3, DIMS = 5, LENGTHS = 6, COUNTS = 6 };

static int64_t rounded_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

/* The bytes of a format, and of its scale and minimum. */
static int64_t bytes_of_block(attn_dtype dtype) { return dtype == ATTN_Q8_0 ? 34 : dtype == ATTN_Q4_0 ? 18 : 20; }
static int64_t head_of(attn_dtype dtype) { return dtype == ATTN_Q4_1 ? 4 : 2; }

/* n rows of blocks, `stride` blocks apart, that end where memory does. */
static unsigned char *random_blocks(attn_dtype dtype, int64_t n, int64_t dim, int64_t stride)
{
    const int64_t size = bytes_of_block(dtype), blocks = (n - 1) * stride + dim / ATTN_BLOCK;
    unsigned char *p = input(blocks * size);
    for (int64_t b = 0; b < blocks; b++) {
        for (int64_t i = 0; i < size; i++) p[b * size + i] = (unsigned char)(int)floor(128 + 128 * uniform());
        put(ATTN_F16, p + b * size, 0, b % 5 == 4 ? 0x1p-20 * uniform() : uniform());
        if (dtype == ATTN_Q4_1) put(ATTN_F16, p + b * size, 1, 4 * uniform());
    }
    return p;
}

static double value_of(attn_dtype dtype, const unsigned char *row, int64_t c)
{
    const unsigned char *block = row + c / ATTN_BLOCK * bytes_of_block(dtype), *q = block + head_of(dtype);
    const int64_t at = c % ATTN_BLOCK;
    const double d = get(ATTN_F16, block, 0);
    if (dtype == ATTN_Q8_0) return d * (double)(signed char)q[at];
    const int step = at < 16 ? q[at] & 15 : q[at - 16] >> 4;
    return dtype == ATTN_Q4_0 ? d * (step - 8) : rounded(ATTN_F32, d * step + get(ATTN_F16, block, 1));
}

void test_unpacked_blocks(void **state)
{
    (void)state;
    for (int f = 0; it.compute == ATTN_F32 && f < FORMATS; f++)
        for (int d = 0; d < DIMS; d++) {
            const int64_t n = lengths[d], dim = dims[d], stride = dim / ATTN_BLOCK + d % 2, ld = dim + 1;
            const unsigned char *src = random_blocks(formats[f], n, dim, stride);
            float *dst = output(n * ld * 4);
            it.kernel.storage->load_rows(n, dim, src, formats[f], stride, dst, ld);
            for (int64_t i = 0; i < n; i++) {
                for (int64_t c = 0; c < dim; c++)
                    assert_true((double)dst[i * ld + c] == value_of(formats[f], src + i * stride * bytes_of_block(formats[f]), c));
                assert_true(untouched(dst + i * ld + dim, 4));
            }
            release_all();
        }
}

/* Every byte of f8. */
void test_unpacked_f8(void **state)
{
    (void)state;
    for (int f = 0; it.compute == ATTN_F32 && f < 2; f++)
        for (int64_t n = 1; n <= 256; n += 51) { /* one row of n bytes, down from the last */
            unsigned char *src = input(n);
            float *dst = output(n * 4);
            for (int64_t i = 0; i < n; i++) src[i] = (unsigned char)(256 - n + i);
            it.kernel.storage->load_rows(1, n, src, f ? ATTN_F8_E5M2 : ATTN_F8_E4M3, n, dst, n);
            for (int64_t i = 0; i < n; i++) {
                const int bits = f ? 2 : 3, bias = f ? 15 : 7, exponent = (src[i] & 0x7f) >> bits,
                          fraction = src[i] & ((1 << bits) - 1);
                const double sign = src[i] & 0x80 ? -1 : 1;
                double x = sign * ldexp(exponent ? (1 << bits) + fraction : fraction, (exponent ? exponent : 1) - bias - bits);
                if (f && exponent == 31) x = fraction ? (double)NAN : sign * (double)INFINITY;
                if (!f && (src[i] & 0x7f) == 0x7f) x = (double)NAN;
                assert_true(isnan(x) ? isnan((double)dst[i]) : (double)dst[i] == x);
            }
            release_all();
        }
}

void test_block_dots(void **state)
{
    const attn_fixed_point_part *kernel = it.kernel.fixed_point;
    (void)state;
    for (int r = 0; kernel && r < COUNTS; r++)
        for (int d = 0; d < DIMS; d++) {
            const attn_dtype dtype = formats[(r + d) % FORMATS];
            const int64_t rows = counts[r], dim = dims[d], n = lengths[(r * 3 + d) % LENGTHS], ldk = dim / ATTN_BLOCK + d % 2,
                          lds = n + 3;
            const int64_t bytes = ATTN_FIXED_POINT_BYTES(dim), all = rounded_up(rows, 4), row = ldk * bytes_of_block(dtype);
            float *Q = output(all * dim * 4 + 4), *S = output(all * lds * 4), *one = output(16);
            char *cut = output(all * bytes);
            for (int64_t i = 0; i < all * dim; i++) Q[i] = (float)(uniform() * (i % 37 == 0 ? 100 : 1));
            const unsigned char *K = random_blocks(dtype, n, dim, ldk);
            for (int64_t i = 0; i < all; i++) assert_true(kernel->convert_query(dim, Q + i * dim, cut + i * bytes));
            kernel->block_dots(rows, n, dim, cut, bytes, K, dtype, ldk, S, lds, 64);
            for (int64_t i = 0; i < rows; i++) {
                double most = 0;
                for (int64_t c = 0; c < dim; c++) most = fmax(most, fabs((double)Q[i * dim + c]));
                for (int64_t j = 0; j < n; j++) {
                    double sum = 0, whole = 0, terms = 0;
                    for (int64_t c = 0; c < dim; c++) {
                        const double q = (double)Q[i * dim + c], k = value_of(dtype, K + j * row, c);
                        const unsigned char *block = K + j * row + c / ATTN_BLOCK * bytes_of_block(dtype);
                        const double m = dtype == ATTN_Q4_1 ? get(ATTN_F16, block, 1) : 0;
                        sum += q * k, whole += fabs(k), terms += fabs(q) * (fabs(k - m) + fabs(m));
                    }
                    const double most_roundings = 4 * (double)(dim / ATTN_BLOCK) + 4;
                    assert_true(fabs((double)S[i * lds + j] - sum) <= it.unit * (2.01 * most * whole + most_roundings * terms));
                    kernel->block_dots(1, 1, dim, cut + i * bytes, bytes, K + j * row, dtype, ldk, one, 1, 0);
                    assert_memory_equal(one, S + i * lds + j, 4);
                }
                assert_true(untouched(S + i * lds + n, 12));
            }
            release_all();
        }
}

void test_block_values(void **state)
{
    const attn_fixed_point_part *kernel = it.kernel.fixed_point;
    (void)state;
    for (int r = 0; kernel && it.decode && r < COUNTS; r++)
        for (int d = 1; d < DIMS; d++) {
            const attn_dtype dtype = formats[(r + d) % FORMATS];
            const int64_t rows = counts[r], dim = dims[d], n = lengths[(r * 5 + d) % LENGTHS], ldv = dim / ATTN_BLOCK + d % 2;
            const int64_t ldo = rounded_up(dim, it.lanes), all = rounded_up(rows, 4), part = n / 2,
                          row = ldv * bytes_of_block(dtype);
            float *P = output(all * n * 4), *V = output(n * dim * 4), *O = output(all * ldo * 4), *expected = output(all * ldo * 4);
            for (int64_t i = 0; i < all * n; i++) P[i] = (float)fabs(uniform());
            const unsigned char *stored = random_blocks(dtype, n, dim, ldv);
            it.kernel.storage->load_rows(n, dim, stored, dtype, ldv, V, dim);
            memset(O, 0, (size_t)(all * ldo * 4));
            memset(expected, 0, (size_t)(all * ldo * 4));
            it.decode->add_values(rows, n, dim, P, n, V, ATTN_F32, dim, expected, ldo, 0, 0);
            if (part) kernel->block_values(rows, part, dim, P, n, stored, dtype, ldv, O, ldo, 64);
            kernel->block_values(rows, n - part, dim, P + part, n, stored + part * row, dtype, ldv, O, ldo, 64);
            assert_memory_equal(O, expected, (size_t)(rows * ldo * 4));
            release_all();
        }
}
