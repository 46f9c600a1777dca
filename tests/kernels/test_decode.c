/* SPDX-License-Identifier: MIT
 *
 * test_decode.c - the steps of decode: queries stay in rows, and keys and values are read in place.
 */
#include <math.h>
#include <string.h>

#include "kernel_test.h"

static const int64_t dims[] = {0, 1, 3, 8, 17, 33, 64, 65, 100, 130};
static const int64_t lengths[] = {1, 2, 3, 5, 8, 15, 16, 17, 33, 40};
static const int64_t counts[] = {1, 2, 3, 4, 5, 6, 9};
enum { DIMS = 10, LENGTHS = 10, COUNTS = 7 };

static int64_t rounded_up(int64_t n, int64_t step) { return (n + step - 1) / step * step; }
static int64_t size(void) { return size_of(it.compute); }
static void *at(void *p, int64_t i) { return (char *)p + i * size(); }

static int types(attn_dtype list[4])
{
    list[0] = it.compute, list[1] = ATTN_F16, list[2] = ATTN_BF16, list[3] = ATTN_I8;
    return it.compute == ATTN_F64 ? 1 : 4;
}

static void *zeros(int64_t n)
{
    void *p = output(n * size());
    memset(p, 0, (size_t)(n * size()));
    return p;
}

/* The order in which the channels of a row are read in a storage type, found by packing their indices. */
static void *order_of(attn_dtype type, int64_t dim)
{
    void *numbers = input(dim * size()), *order = zeros(rounded_up(dim, it.lanes) + it.lanes);
    for (int64_t c = 0; c < dim; c++) put(it.compute, numbers, c, (double)c);
    it.decode->pack_rows(1, dim, numbers, it.compute, dim, 1, type, order, dim);
    return order;
}

void test_dots(void **state)
{
    attn_dtype list[4];
    (void)state;
    for (int t = types(list) - 1; t >= 0; t--)
        for (int r = 0; r < COUNTS; r++)
            for (int d = 0; d < DIMS; d++) {
                const int64_t rows = counts[r], all = rounded_up(rows, 4), dim = dims[d], n = lengths[(r * 3 + d) % LENGTHS];
                const int64_t ldq = rounded_up(dim, it.lanes) + it.lanes, ldk = dim + d % 2 * 3, lds = n + 3;
                void *q = random_input(it.compute, rows * dim, 1), *K = random_input(list[t], n * ldk - (ldk - dim), 1);
                void *Q = zeros(all * ldq), *S = output(all * lds * size());
                it.decode->pack_rows(rows, dim, q, it.compute, dim, 0.5, list[t], Q, ldq);
                it.decode->dots(rows, n, dim, Q, ldq, K, list[t], ldk, S, lds, 64, (int)(n & 1));
                for (int64_t i = 0; i < rows; i++) {
                    for (int64_t j = 0; j < n; j++) {
                        double sum = 0, sizes = 0, found = get(it.compute, S, i * lds + j);
                        for (int64_t c = 0; c < dim; c++) {
                            double product = real(0.5 * get(it.compute, q, i * dim + c)) * get(list[t], K, j * ldk + c);
                            sum += product, sizes += fabs(product);
                        }
                        assert_true(fabs(found - sum) <= (double)(dim + 2) * it.unit * sizes);
                    }
                    assert_true(untouched(at(S, i * lds + n), 3 * size()));
                }
                release_all();
            }
}

static void check_dots(int64_t rows, attn_dtype keys)
{
    enum { MOST = 12, N = 37, DIM = 75, LD = 128 };
    void *q = random_input(it.compute, rows * DIM, 1), *K = random_input(keys, N * DIM, 1), *Q = zeros(MOST * LD);
    void *S = output(MOST * N * size()), *one = output(4 * size());
    it.decode->pack_rows(rows, DIM, q, it.compute, DIM, 1, keys, Q, LD);
    it.decode->dots(rows, N, DIM, Q, LD, K, keys, DIM, S, N, 0, 0);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < N; j++) {
            const char *key = (const char *)K + j * DIM * size_of(keys);
            it.decode->dots(1, 1, DIM, at(Q, i * LD), LD, key, keys, DIM, one, 1, 0, 0);
            assert_memory_equal(one, at(S, i * N + j), (size_t)size());
        }
    release_all();
}

/* A score has the same bits whatever rows and keys it is computed with: rows come four, two and one at a time. */
void test_dots_same_bits(void **state)
{
    attn_dtype list[4];
    (void)state;
    for (int t = types(list) - 1; t >= 0; t--)
        for (int64_t rows = 8; rows < 12; rows++) check_dots(rows, list[t]);
}

void test_weigh_row(void **state)
{
    (void)state;
    for (int k = 0; k < LENGTHS; k++)
        for (int hostile = 0; hostile < 4; hostile++) {
            const int64_t n = lengths[k], padded = rounded_up(n, it.lanes);
            void *S = output(padded * size()), *m = output(size()), *l = output(size());
            double most = -(double)INFINITY, sum = 0, scores[64];
            for (int64_t j = 0; j < n; j++) {
                scores[j] = real(uniform() * 20);
                if (hostile == 1 && j % 3 == 1) scores[j] = -(double)INFINITY;
                if (hostile == 2) scores[j] = -(double)INFINITY;
                if (hostile == 3) scores[j] = j == n / 2 ? it.lowest : -(double)INFINITY;
                put(it.compute, S, j, scores[j]);
                most = fmax(most, scores[j]);
            }
            it.decode->exponentiate_row(n, S, m, l);
            if (most == -(double)INFINITY) most = it.lowest;
            assert_true(get(it.compute, m, 0) == most);
            for (int64_t j = 0; j < n; j++) {
                double weight = exp(scores[j] - most), found = get(it.compute, S, j);
                if (scores[j] == -(double)INFINITY) assert_true(found == 0);
                else assert_true(fabs(found - weight) <= it.unit * weight * (5 + 1.2 * (most - scores[j])));
                sum += found;
            }
            for (int64_t j = n; j < padded; j++) assert_true(get(it.compute, S, j) == 0);
            assert_true(fabs(get(it.compute, l, 0) - sum) <= (double)n * it.unit * sum);
            release_all();
        }
    void *S = output(it.lanes * size()), *m = output(size()), *l = output(size());
    put(it.compute, S, 0, NAN);
    it.decode->exponentiate_row(1, S, m, l);
    assert_true(isnan(get(it.compute, l, 0)));
    release_all();
}

void test_add_values(void **state)
{
    attn_dtype list[4];
    (void)state;
    for (int t = types(list) - 1; t >= 0; t--)
        for (int r = 0; r < COUNTS; r++)
            for (int d = 0; d < DIMS; d++) {
                const int64_t rows = counts[r], all = rounded_up(rows, 4), dim = dims[d], n = lengths[(r * 7 + d) % LENGTHS];
                const int64_t ldo = rounded_up(dim, it.lanes), ldv = dim + d % 2 * 3;
                void *V = random_input(list[t], n * ldv - (ldv - dim), 1), *P = zeros(all * n), *order = order_of(list[t], dim);
                void *O = zeros(all * ldo), *again = zeros(all * ldo);
                for (int64_t i = 0; i < rows * n; i++) put(it.compute, P, i, fabs(uniform()));
                it.decode->add_values(rows, n, dim, P, n, V, list[t], ldv, O, ldo, 64, (int)(n & 1));
                for (int64_t i = 0; i < rows; i++)
                    for (int64_t c = 0; c < dim; c++) {
                        const int64_t channel = (int64_t)get(it.compute, order, c);
                        double sum = 0, sizes = 0;
                        for (int64_t j = 0; j < n; j++) {
                            double product = get(it.compute, P, i * n + j) * get(list[t], V, j * ldv + channel);
                            sum += product, sizes += fabs(product);
                        }
                        assert_true(fabs(get(it.compute, O, i * ldo + c) - sum) <= (double)(n + 2) * it.unit * sizes);
                    }
                /* In two calls, and row by row, the same bits. */
                const int64_t part = n / 2;
                for (int64_t i = 0; i < rows; i++) {
                    if (part) it.decode->add_values(1, part, dim, at(P, i * n), n, V, list[t], ldv, at(again, i * ldo), ldo, 0, 1);
                    const char *rest = (const char *)V + part * ldv * size_of(list[t]);
                    it.decode->add_values(1, n - part, dim, at(P, i * n + part), n, rest, list[t], ldv, at(again, i * ldo), ldo, 0,
                                          1);
                }
                assert_memory_equal(O, again, (size_t)(rows * ldo * size()));
                /* If no key is dropped, the NaN-safe step has them too. */
                memset(again, 0, (size_t)(ldo * size()));
                it.decode->add_values_nan_safe(n, dim, P, P, V, list[t], ldv, again);
                assert_memory_equal(O, again, (size_t)(ldo * size()));
                release_all();
            }
}

/* ---- pairs of bf16 ---- */

/* Scores of bf16 queries and keys, with the same bits whatever rows and keys they are computed with; scaled afterwards. */
void test_pair_dots(void **state)
{
    const attn_decode_pairs_part *bf16 = it.kernel.decode_pairs;
    (void)state;
    for (int r = 0; bf16 && r < COUNTS; r++)
        for (int d = 0; d < DIMS; d++) {
            const int64_t rows = counts[r], all = rounded_up(rows, 4), dim = dims[d], n = lengths[(r * 3 + d) % LENGTHS];
            const int64_t ldq = rounded_up(dim, it.lanes), stride = dim + r % 2, ldk = dim + d % 2 * 3, lds = n + 3;
            void *q = random_input(ATTN_BF16, rows * stride - (stride - dim), 1);
            char *K = random_input(ATTN_BF16, n * ldk - (ldk - dim), 1);
            void *Q = zeros(all * ldq), *S = output(all * lds * size()), *one = output(4 * size());
            bf16->pack_rows(rows, dim, q, stride, Q, ldq);
            bf16->dots(rows, n, dim, Q, ldq, K, ldk, S, lds, 64, (int)(n % 2));
            for (int64_t i = 0; i < rows; i++) {
                for (int64_t j = 0; j < n; j++) {
                    double sum = 0, sizes = 0;
                    for (int64_t c = 0; c < dim; c++) {
                        double product = get(ATTN_BF16, q, i * stride + c) * get(ATTN_BF16, K, j * ldk + c);
                        sum += product, sizes += fabs(product);
                    }
                    assert_true(fabs(get(it.compute, S, i * lds + j) - sum) <= (double)(dim + 2) * it.unit * sizes);
                    bf16->dots(1, 1, dim, at(Q, i * ldq), ldq, K + 2 * j * ldk, ldk, one, 1, 0, 0);
                    assert_memory_equal(one, at(S, i * lds + j), (size_t)size());
                }
                void *scaled = output(n * size());
                memcpy(scaled, at(S, i * lds), (size_t)(n * size()));
                bf16->scale_row(n, scaled, -0.3);
                for (int64_t j = 0; j < n; j++)
                    assert_true(get(it.compute, scaled, j) == real(real(-0.3) * get(it.compute, S, i * lds + j)));
                assert_true(untouched(at(S, i * lds + n), 3 * size()));
            }
            release_all();
        }
}

/* ---- fixed-point int8 ---- */

/* Rows padded to a multiple of 4; one row in three has a number far larger than its others. */
static void *uneven_rows(int64_t rows, int64_t n, int64_t ld, int positive)
{
    void *x = zeros(rounded_up(rows, 4) * ld + it.lanes);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < n; j++) {
            const double some = (i % 3 == 1 && j == n / 2 ? 1000 : 1) * uniform();
            put(it.compute, x, i * ld + j, positive ? fabs(some) : some);
        }
    return x;
}

static double max_of(const void *row, int64_t n)
{
    double most = 0;
    for (int64_t c = 0; c < n; c++) most = fmax(most, fabs(get(it.compute, row, c)));
    return most;
}

static void *bytes_at(void *p, int64_t i) { return (char *)p + i; }

/* Scores of int8 keys: within the error of fixed-point queries, with the same bits whatever rows and keys they are computed with.
 */
void test_fixed_point_dots(void **state)
{
    const attn_fixed_point_part *fixed_point = it.kernel.fixed_point;
    (void)state;
    for (int r = 0; fixed_point && r < COUNTS; r++)
        for (int d = 0; d < DIMS; d++) {
            const int64_t rows = counts[r], dim = dims[d], n = lengths[(r * 3 + d) % LENGTHS], ldk = dim + d % 2 * 3, lds = n + 3;
            const int64_t bytes = ATTN_FIXED_POINT_BYTES(dim), all = rounded_up(rows, 4);
            void *Q = uneven_rows(rows, dim, dim, 0), *K = random_input(ATTN_I8, n * ldk - (ldk - dim), 127);
            void *cut = output(all * bytes), *S = output(all * lds * size()), *one = output(4 * size());
            if (dim) put(ATTN_I8, K, 0, -128);
            for (int64_t i = 0; i < all; i++)
                assert_true(fixed_point->convert_query(dim, at(Q, i * dim), bytes_at(cut, i * bytes)));
            fixed_point->dots(rows, n, dim, cut, bytes, K, ldk, S, lds, 64);
            for (int64_t i = 0; i < rows; i++) {
                const double most = max_of(at(Q, i * dim), dim);
                for (int64_t j = 0; j < n; j++) {
                    double sum = 0, whole = 0;
                    for (int64_t c = 0; c < dim; c++) {
                        const double k = get(ATTN_I8, K, j * ldk + c);
                        sum += get(it.compute, Q, i * dim + c) * k, whole += fabs(k);
                    }
                    assert_true(fabs(get(it.compute, S, i * lds + j) - sum) <= it.unit * (2.01 * most * whole + 2 * fabs(sum)));
                    fixed_point->dots(1, 1, dim, bytes_at(cut, i * bytes), bytes, bytes_at(K, j * ldk), ldk, one, 1, 0);
                    assert_memory_equal(one, at(S, i * lds + j), (size_t)size());
                }
                assert_true(untouched(at(S, i * lds + n), 3 * size()));
            }
            release_all();
        }
}

void test_fixed_point_values(void **state)
{
    const attn_fixed_point_part *fixed_point = it.kernel.fixed_point;
    (void)state;
    for (int r = 0; fixed_point && r < COUNTS; r++)
        for (int d = 0; d < DIMS; d++) {
            const int64_t rows = counts[r], dim = dims[d], n = lengths[(r * 7 + d) % LENGTHS], ldv = dim + d % 2 * 3, part = n / 2;
            const int64_t bytes = ATTN_FIXED_POINT_BYTES(n), sums = ATTN_FIXED_POINT_SUMS(dim), ldo = rounded_up(dim, it.lanes);
            void *P = uneven_rows(rows, n, n, 1), *V = random_input(ATTN_I8, n * ldv - (ldv - dim), 127);
            void *cut = output(rows * bytes), *whole = output(rows * sums * 4 + 1), *again = output(sums * 4 + 1);
            void *O = output(rows * ldo * size() + 1), *other = output(ldo * size() + 1);
            if (dim) put(ATTN_I8, V, 0, -128);
            for (int64_t i = 0; i < rows; i++)
                assert_true(fixed_point->convert_weights(n, at(P, i * n), bytes_at(cut, i * bytes), bytes));
            memset(whole, 0, (size_t)(rows * sums * 4));
            fixed_point->add_values(rows, n, dim, cut, bytes, 0, V, ldv, whole, 64);
            for (int64_t i = 0; i < rows; i++) {
                fixed_point->output(dim, bytes_at(cut, i * bytes), bytes_at(whole, i * sums * 4), at(O, i * ldo), ldo);
                const double most = max_of(at(P, i * n), n);
                for (int64_t c = 0; c < dim; c++) {
                    double sum = 0, sizes = 0;
                    for (int64_t j = 0; j < n; j++) {
                        const double v = get(ATTN_I8, V, j * ldv + c);
                        sum += get(it.compute, P, i * n + j) * v, sizes += fabs(v);
                    }
                    assert_true(fabs(get(it.compute, O, i * ldo + c) - sum) <= it.unit * (1.01 * most * sizes + 2 * fabs(sum)));
                }
                /* One row, in two calls: the same bits. */
                memset(again, 0, (size_t)(sums * 4));
                if (part) fixed_point->add_values(1, part, dim, bytes_at(cut, i * bytes), bytes, 0, V, ldv, again, 0);
                fixed_point->add_values(1, n - part, dim, bytes_at(cut, i * bytes), bytes, part, bytes_at(V, part * ldv), ldv,
                                        again, 0);
                fixed_point->output(dim, bytes_at(cut, i * bytes), again, other, ldo);
                assert_memory_equal(other, at(O, i * ldo), (size_t)(ldo * size()));
            }
            release_all();
        }
}

/* Which rows can be converted to fixed point of 24 bits. */
void test_fixed_point_rows(void **state)
{
    static const struct {
        double number;
        int query, weight; /* 1 if a row with this number can be converted */
    } rows[] = {{0, 1, 1},
                {1, 1, 1},
                {-1, 1, 0},
                {0x1p-91, 1, 1},
                {0x1.fp-92, 0, 0},
                {0x1p127, 1, 1},
                {(double)NAN, 0, 0},
                {(double)INFINITY, 0, 0},
                {-(double)INFINITY, 0, 0},
                {0x1p-149, 0, 0}};
    enum { N = 21 };
    const attn_fixed_point_part *fixed_point = it.kernel.fixed_point;
    (void)state;
    for (size_t k = 0; fixed_point && k < sizeof rows / sizeof *rows; k++)
        for (int64_t place = 0; place < N; place += 10) {
            void *x = zeros(N), *cut = output(ATTN_FIXED_POINT_BYTES(N));
            put(it.compute, x, place, rows[k].number);
            assert_int_equal(fixed_point->convert_query(N, x, cut), rows[k].query);
            assert_int_equal(fixed_point->convert_weights(N, x, cut, ATTN_FIXED_POINT_BYTES(N)), rows[k].weight);
            release_all();
        }
}

void test_gathered(void **state)
{
    enum { N = 5 };
    static const int64_t bytes[] = {1, 34, 63, 64, 65, 128, 200, 256};
    (void)state;
    for (size_t b = 0; b < sizeof bytes / sizeof *bytes; b++) {
        unsigned char *from = input(N * bytes[b]), *to = output(N * bytes[b]);
        const char *rows[N];
        for (int64_t i = 0; i < N * bytes[b]; i++) from[i] = (unsigned char)(i * 37 + i / 256);
        for (int i = 0; i < N; i++) rows[i] = (const char *)from + i * 3 % N * bytes[b];
        it.decode->gather_rows(N, rows, bytes[b], (char *)to);
        for (int i = 0; i < N; i++) assert_memory_equal(to + i * bytes[b], rows[i], (size_t)bytes[b]);
        release_all();
    }
}

void test_nan_safe_row(void **state)
{
    enum { N = 5, DIM = 19 };
    (void)state;
    void *V = input(N * DIM * size()), *S = input(N * size()), *P = input(N * size()), *O = zeros(DIM);
    for (int64_t j = 0; j < N; j++) {
        put(it.compute, S, j, j == 2 ? -(double)INFINITY : 0);
        put(it.compute, P, j, j == 2 ? 0 : 1);
        for (int64_t c = 0; c < DIM; c++) put(it.compute, V, j * DIM + c, j == 2 ? (c % 2 ? (double)NAN : (double)INFINITY) : 2);
    }
    it.decode->add_values_nan_safe(N, DIM, S, P, V, it.compute, DIM, O);
    for (int64_t c = 0; c < DIM; c++) assert_true(get(it.compute, O, c) == 8);
    assert_false(it.decode->row_not_finite(DIM, O));
    put(it.compute, O, DIM - 1, NAN);
    assert_true(it.decode->row_not_finite(DIM, O));
    put(it.compute, O, DIM - 1, -(double)INFINITY);
    assert_true(it.decode->row_not_finite(DIM, O));
    release_all();
}

void test_modify_row(void **state)
{
    (void)state;
    for (int k = 0; k < LENGTHS; k++)
        for (int64_t stride = 0; stride < 3; stride++) {
            const int64_t n = lengths[k];
            void *S = output(n * size()), *mask = input((n - 1) * stride + 1),
                 *bias = random_input(ATTN_F16, (n - 1) * stride + 1, 3);
            double before[64], lost = -(double)INFINITY;
            for (int64_t j = 0; j < n; j++)
                put(ATTN_BOOL, mask, j * stride, j % 3 != 1), put(it.compute, S, j, before[j] = real(uniform()));
            if (n > 2) put(ATTN_F16, bias, 2 * stride, lost);
            void *factors = random_input(it.compute, n, 3);
            it.decode->scale_row(n, S, factors);
            for (int64_t j = 0; j < n; j++) {
                assert_true(get(it.compute, S, j) == real(before[j] * get(it.compute, factors, j)));
                before[j] = get(it.compute, S, j);
            }
            it.decode->softcap_row(n, S, 0.5);
            for (int64_t j = 0; j < n; j++) {
                double capped = 0.5 * tanh(before[j] / 0.5), found = get(it.compute, S, j);
                assert_true(fabs(found - capped) <= 32 * it.unit * fabs(capped));
                before[j] = found;
            }
            it.decode->alibi_row(n, S, 0.25, 4);
            for (int64_t j = 0; j < n; j++) {
                double moved = before[j] - 0.25 * fabs(4 - (double)j), found = get(it.compute, S, j);
                assert_true(fabs(found - moved) <= it.unit * fabs(moved) * 2);
                before[j] = found;
            }
            it.decode->bias_row(n, S, bias, ATTN_F16, stride);
            for (int64_t j = 0; j < n; j++) {
                double with = before[j] + get(ATTN_F16, bias, j * stride), found = get(it.compute, S, j);
                assert_true(found == with || fabs(found - with) <= it.unit * fabs(with));
                before[j] = found;
            }
            it.decode->keep_row(n, S, mask, stride);
            for (int64_t j = 0; j < n; j++) {
                if (get(ATTN_BOOL, mask, j * stride) == 0) before[j] = lost;
                assert_true(get(it.compute, S, j) == before[j]);
            }
            it.decode->drop_outside(n, S, 1, n - 1);
            for (int64_t j = 0; j < n; j++) assert_true(get(it.compute, S, j) == (j >= 1 && j < n - 1 ? before[j] : lost));
            release_all();
        }
}

void test_finish_row(void **state)
{
    enum { MAX_PARTS = 19 };
    attn_dtype list[4];
    (void)state;
    for (int t = types(list) - 1; t >= 0; t--)
        for (int d = 1; d < DIMS; d++)
            for (int which = 0; which < 4; which++) {
                const int64_t dim = dims[d], ldo = rounded_up(dim, it.lanes) + it.lanes,
                              parts = 1 + (d * 5 + which * 3) % MAX_PARTS;
                const int sink = which == 1, none = which == 2;
                void *m = random_input(it.compute, parts, 4), *l = input(parts * size()), *O = zeros(parts * ldo);
                void *order = order_of(list[t], dim), *scratch = output(2 * rounded_up(dim, it.lanes) * size());
                void *o = output(dim * size()), *lse = output(size());
                for (int64_t p = 0; p < parts; p++) put(it.compute, l, p, none || (which == 3 && p % 2) ? 0 : 1 + fabs(uniform()));
                for (int64_t i = 0; i < parts * ldo; i++) put(it.compute, O, i, uniform());
                double most = sink ? 0.5 : it.lowest, total = 0;
                for (int64_t p = 0; p < parts; p++)
                    if (get(it.compute, l, p) != 0) most = fmax(most, get(it.compute, m, p));
                total = sink ? exp(0.5 - most) : 0;
                double expected[256] = {0}, sizes[256] = {0};
                for (int64_t p = 0; p < parts; p++) {
                    double factor = get(it.compute, l, p) != 0 ? exp(get(it.compute, m, p) - most) : 0;
                    total += factor * get(it.compute, l, p);
                    for (int64_t c = 0; c < dim; c++) {
                        int64_t channel = (int64_t)get(it.compute, order, c);
                        double term = factor * get(it.compute, O, p * ldo + c);
                        expected[channel] += term, sizes[channel] += fabs(term);
                    }
                }
                it.decode->finish_row(parts, dim, m, l, O, ldo, list[t], sink ? 0.5 : -(double)INFINITY, scratch, o, it.compute,
                                      lse);
                for (int64_t c = 0; c < dim; c++) {
                    double expected_c = none ? 0 : expected[c] / total,
                           max_off = none ? 0 : sizes[c] / total * it.unit * (double)(2 * parts + 16);
                    assert_true(fabs(get(it.compute, o, c) - expected_c) <= max_off);
                }
                if (none) assert_true(get(it.compute, lse, 0) == -(double)INFINITY);
                else
                    assert_true(fabs(get(it.compute, lse, 0) - (most + log(total))) <=
                                it.unit * (double)(2 * parts + 16) * (1 + fabs(most)));
                release_all();
            }
}
