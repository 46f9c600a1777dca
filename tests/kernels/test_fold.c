/* SPDX-License-Identifier: MIT
 *
 * test_fold.c - the online softmax.
 */
#include <float.h>
#include <math.h>
#include <string.h>

#include "kernel_test.h"

static const int64_t dims[] = {0, 1, 3, 8, 31, 40, 64, 100};
enum { DIMS = 8, MAX_KEYS = 320 };

/* Running state of one tile. */
typedef struct running {
    void *m, *l, *Ot, *S, *block_max;
} running;

static running fresh(int width, int64_t n, int64_t dim_v)
{
    int64_t size = size_of(it.compute);
    running r = {output(it.tile * size), output(it.tile * size), output(dim_v * it.tile * size), output(n * it.tile * size),
                 output(it.tile * size)};
    it.kernel.softmax->start(width, dim_v, -INFINITY, r.m, r.l, r.Ot);
    return r;
}

/* Absorbs n keys whose scores are scores[j][lane]. */
static void absorb(const running *r, int width, int64_t n, int64_t dim_v, const double *scores, const void *V, int nan_safe)
{
    for (int64_t j = 0; j < n; j++)
        for (int i = 0; i < width * it.lanes; i++) put(it.compute, r->S, j * it.tile + i, scores[j * it.tile + i]);
    it.kernel.modify->block_max(width, n, r->S, r->block_max);
    fold(width, n, dim_v, r->S, r->block_max, V, r->m, r->l, r->Ot, NULL, NULL, nan_safe);
}

static void *value_at(void *V, int64_t j, int64_t dim_v) { return (char *)V + j * dim_v * size_of(it.compute); }

void test_clear(void **state)
{
    (void)state;
    for (int width = 1; width <= it.vectors; width++) {
        int64_t size = size_of(it.compute), used = (int64_t)width * it.lanes;
        running r = fresh(width, 1, 5);
        for (int64_t i = 0; i < used; i++) {
            assert_true(get(it.compute, r.m, i) == it.lowest && get(it.compute, r.l, i) == 0);
            for (int64_t c = 0; c < 5; c++) assert_true(get(it.compute, r.Ot, c * it.tile + i) == 0);
        }
        for (int64_t c = 0; c < 5; c++) assert_true(untouched((char *)r.Ot + (c * it.tile + used) * size, (it.tile - used) * size));
        assert_true(untouched((char *)r.m + used * size, (it.tile - used) * size));
        assert_true(untouched((char *)r.l + used * size, (it.tile - used) * size));
        release_all();
    }
}

/* exp() as the fold computes it: scores <= 0, with a maximum of 0. */
void test_exp(void **state)
{
    const int f32 = it.compute == ATTN_F32, n = 100, turns = f32 ? 200 : 100;
    const double least = f32 ? -87.3 : -708.3, flushed = f32 ? -88.1 : -709.2;
    double worst = 0;
    (void)state;
    running r = fresh(it.vectors, n, 0);
    for (int turn = 0; turn < turns; turn++) {
        double scores[128 * MAX_LANES] = {0};
        for (int at = 0; at < n * it.tile; at++) {
            double u = fabs(uniform());
            scores[at] = real(turn % 2 ? u * least : -ldexp(u, (int)(uniform() * 20) - 17)); /* uniform, or concentrated near 0 */
        }
        for (int i = 0; i < it.tile; i++) scores[i] = 0; /* the maximum */
        absorb(&r, it.vectors, n, 0, scores, r.S, 0);
        for (int at = 0; at < n * it.tile; at++) {
            long double exact = expl((long double)scores[at]);
            int exponent;
            frexpl(exact, &exponent);
            double ulp = ldexp(1, exponent - (f32 ? 24 : 53));
            double error = (double)fabsl((long double)get(it.compute, r.S, at) - exact) / ulp;
            error -= (f32 ? 0.05 : 0.13) * fabs(scores[at]); /* what the rounding of the constant adds */
            if (error > worst) worst = error;
        }
        for (int i = 0; i < it.tile; i++) assert_true(get(it.compute, r.S, i) == 1);
    }
    if (worst > (f32 ? 1.2 : 1)) print_message("exp: %.3f units in the last place\n", worst);
    assert_true(worst <= (f32 ? 1.2 : 1));
    /* Below the normal range: at most the smallest normal number, and exactly 0 further down. */
    const double normal = f32 ? FLT_MIN : DBL_MIN;
    double low[MAX_LANES * 3];
    for (int at = 0; at < it.tile; at++) {
        low[at] = 0;
        low[it.tile + at] = real(log(normal) + (flushed - log(normal)) * ((double)at / it.tile));
        low[2 * it.tile + at] = at % 3 ? flushed * (1 + at) : it.lowest;
    }
    absorb(&r, it.vectors, 3, 0, low, r.S, 0);
    for (int i = 0; i < it.tile; i++) {
        const double small = get(it.compute, r.S, it.tile + i);
        assert_true(small >= 0 && small <= 1.0001 * normal);
        assert_true(get(it.compute, r.S, 2 * it.tile + i) == 0);
    }
    release_all();
}

/* Softmax of all scores at once, in double. */
static void check_against_definition(const running *r, int width, int64_t n, int64_t dim_v, const double *scores, const void *V)
{
    for (int i = 0; i < width * it.lanes; i++) {
        double most = -(double)INFINITY, sum = 0, weights[MAX_KEYS];
        double l = get(it.compute, r->l, i), m = get(it.compute, r->m, i), slack = (double)(n + 30) * it.unit;
        for (int64_t j = 0; j < n; j++) most = fmax(most, scores[j * it.tile + i]);
        if (most == -(double)INFINITY) {
            assert_true(l == 0 && m == it.lowest);
            for (int64_t c = 0; c < dim_v; c++) assert_true(get(it.compute, r->Ot, c * it.tile + i) == 0);
            continue;
        }
        for (int64_t j = 0; j < n; j++) sum += weights[j] = exp(scores[j * it.tile + i] - most);
        assert_true(m <= most && l >= 0.999);
        assert_true(fabs(m - most + log(l) - log(sum)) <= slack);
        for (int64_t c = 0; c < dim_v; c++) {
            double exact = 0, size = 0, found = get(it.compute, r->Ot, c * it.tile + i) / l;
            for (int64_t j = 0; j < n; j++) {
                double term = weights[j] / sum * get(it.compute, V, j * dim_v + c);
                exact += term, size += fabs(term);
            }
            assert_true(fabs(found - exact) <= slack * size);
        }
    }
}

void test_fold(void **state)
{
    /* Blocks whose maxima stay, grow a little (not rescaled) and grow much (rescaled), with some keys dropped. */
    static const int64_t blocks[] = {1, 2, 3, 7, 128, 5, 100};
    enum { BLOCKS = 7 };
    (void)state;
    for (int width = 1; width <= it.vectors; width++)
        for (int d = 0; d < DIMS; d++) {
            int64_t dim_v = dims[d], n = 0, size = size_of(it.compute), used = (int64_t)width * it.lanes;
            double scores[MAX_KEYS * MAX_LANES];
            running r = fresh(width, 128, dim_v);
            void *V = random_input(it.compute, 246 * dim_v, 3);
            for (int b = 0; b < BLOCKS; b++) {
                double *own = scores + n * it.tile;
                for (int64_t j = 0; j < blocks[b]; j++)
                    for (int i = 0; i < used; i++) {
                        double top = b == 3 ? 4 : b == 5 && i % 3 ? 40 : 0; /* some lanes only */
                        own[j * it.tile + i] =
                            i == 1 || (b == 0 && i % 2) || uniform() > 0.8 ? -(double)INFINITY : real(top + uniform() * 6);
                    }
                absorb(&r, width, blocks[b], dim_v, own, value_at(V, n, dim_v), 0);
                n += blocks[b];
            }
            check_against_definition(&r, width, n, dim_v, scores, V);
            for (int64_t c = 0; c < dim_v; c++)
                assert_true(untouched((char *)r.Ot + (c * it.tile + used) * size, (it.tile - used) * size));
            assert_true(untouched((char *)r.m + used * size, (it.tile - used) * size));
            assert_true(untouched((char *)r.l + used * size, (it.tile - used) * size));
            release_all();
        }
}

/* The running maximum is a score, and moves only if it grows by more than 5.5. */
void test_fold_maximum(void **state)
{
    const double steps[] = {2, 7, 7.5, 13.25, 13, -40, 900}, expected[] = {2, 2, 2, 13.25, 13.25, 13.25, 900};
    (void)state;
    running r = fresh(it.vectors, 1, 0);
    for (int b = 0; b < 7; b++) {
        double scores[MAX_LANES];
        for (int i = 0; i < it.tile; i++) scores[i] = i % 2 ? steps[b] : 1;
        absorb(&r, it.vectors, 1, 0, scores, r.S, 0);
        for (int i = 0; i < it.tile; i++) assert_true(get(it.compute, r.m, i) == (i % 2 ? expected[b] : 1));
    }
    release_all();
}

/* A lane's bits depend neither on the width nor on what the other lanes hold (their maxima may force a rescale). */
void test_fold_same_bits(void **state)
{
    (void)state;
    for (int d = 0; d < DIMS; d++) {
        int64_t n = 33, dim_v = dims[d], size = size_of(it.compute);
        double scores[3][40 * MAX_LANES];
        void *V = random_input(it.compute, 3 * n * dim_v, 1);
        running all = fresh(it.vectors, n, dim_v);
        for (int b = 0; b < 3; b++)
            for (int at = 0; at < n * it.tile; at++) scores[b][at] = real(uniform() * 3);
        for (int b = 0; b < 3; b++) absorb(&all, it.vectors, n, dim_v, scores[b], value_at(V, b * n, dim_v), 0);
        for (int width = 1; width <= it.vectors; width++)
            for (int nan_safe = 0; nan_safe < 2; nan_safe++) {
                running one = fresh(width, n, dim_v);
                for (int b = 0; b < 3; b++) {
                    double own[40 * MAX_LANES];
                    memcpy(own, scores[b], sizeof own);
                    for (int64_t j = 0; j < n; j++) /* every lane but 0 grows in each block */
                        for (int i = 1; i < width * it.lanes; i++) own[j * it.tile + i] = real(own[j * it.tile + i] + 30 * b);
                    absorb(&one, width, n, dim_v, own, value_at(V, b * n, dim_v), nan_safe);
                }
                assert_memory_equal(one.m, all.m, (size_t)size);
                assert_memory_equal(one.l, all.l, (size_t)size);
                for (int64_t c = 0; c < dim_v; c++)
                    assert_memory_equal((char *)one.Ot + c * it.tile * size, (char *)all.Ot + c * it.tile * size, (size_t)size);
            }
        release_all();
    }
}

static void put_payload(void *base, int64_t index, uint64_t payload, int negative)
{
    if (it.compute == ATTN_F64) {
        uint64_t bits = 0x7ff0000000000000u | payload | (uint64_t)negative << 63;
        memcpy((char *)base + index * 8, &bits, 8);
    } else {
        uint32_t bits = 0x7f800000u | (uint32_t)payload | (uint32_t)negative << 31;
        memcpy((char *)base + index * 4, &bits, 4);
    }
}

void test_fold_hostile(void **state)
{
    const double top = -it.lowest, scores[] = {it.lowest, -0.75 * top, 0.5 * top, 1e30, -1e30, 3e9, -3e9, 1e5, 0, -1e-40};
    (void)state;
    for (int width = 1; width <= it.vectors; width++) {
        /* Equal scores of any size have equal weights, even if a second block repeats them. */
        for (size_t k = 0; k < sizeof scores / sizeof scores[0]; k++) {
            enum { KEYS = 6 };
            double all[2 * KEYS * MAX_LANES];
            void *V = random_input(it.compute, 2 * KEYS * 3, 1);
            running r = fresh(width, KEYS, 3);
            for (int at = 0; at < 2 * KEYS * it.tile; at++) all[at] = real(scores[k]);
            absorb(&r, width, KEYS, 3, all, V, 0);
            absorb(&r, width, KEYS, 3, all, value_at(V, KEYS, 3), 0);
            check_against_definition(&r, width, 2 * KEYS, 3, all, V);
            for (int i = 0; i < width * it.lanes; i++) assert_true(get(it.compute, r.l, i) == 2 * KEYS);
            release_all();
        }
        /* From the lowest to the highest and far below again: only the highest counts. */
        {
            double steps[3 * MAX_LANES];
            void *V = random_input(it.compute, 3, 1);
            running r = fresh(width, 1, 1);
            for (int at = 0; at < 3 * it.tile; at++) steps[at] = at / it.tile == 1 ? 0.9 * top : it.lowest;
            for (int64_t b = 0; b < 3; b++) absorb(&r, width, 1, 1, steps + b * it.tile, value_at(V, b, 1), 0);
            for (int i = 0; i < width * it.lanes; i++) {
                assert_true(get(it.compute, r.l, i) == 1);
                assert_true(get(it.compute, r.Ot, i) == get(it.compute, V, 1));
            }
            release_all();
        }
        /* A NaN score, whatever its payload and sign, makes l and Ot of its lane NaN, and of no other lane. */
        static const uint64_t payloads[] = {1, 0x1234, 0x400000, 0x3fffff, 0x7fffff};
        for (size_t p = 0; p < sizeof payloads / sizeof payloads[0]; p++)
            for (int negative = 0; negative < 2; negative++)
                for (int64_t j = 0; j < 5; j++) {
                    int64_t n = 5;
                    void *V = random_input(it.compute, n * 2, 1);
                    running r = fresh(width, n, 2);
                    for (int at = 0; at < n * it.tile; at++) put(it.compute, r.S, at, uniform());
                    put_payload(r.S, j * it.tile, payloads[p], negative);
                    it.kernel.modify->block_max(width, n, r.S, r.block_max);
                    fold(width, n, 2, r.S, r.block_max, V, r.m, r.l, r.Ot, NULL, NULL, 0);
                    for (int i = 0; i < width * it.lanes; i++) {
                        assert_int_equal(!!isnan(get(it.compute, r.l, i)), i == 0);
                        assert_int_equal(!!isnan(get(it.compute, r.Ot, i)), i == 0);
                        assert_int_equal(!!isnan(get(it.compute, r.Ot, it.tile + i)), i == 0);
                    }
                    release_all();
                }
    }
}

/* Values of dropped keys may be anything; those of kept keys count, even NaN with a weight that underflows. */
void test_fold_nan_safe(void **state)
{
    (void)state;
    for (int width = 1; width <= it.vectors; width++) {
        enum { KEYS = 9, DIM = 5 };
        double scores[KEYS * MAX_LANES];
        void *V = random_input(it.compute, KEYS * DIM, 1);
        running r = fresh(width, KEYS, DIM);
        for (int at = 0; at < KEYS * it.tile; at++) scores[at] = real(uniform());
        for (int i = 0; i < it.tile; i++) scores[2 * it.tile + i] = scores[3 * it.tile + i] = -(double)INFINITY;
        scores[2 * it.tile] = -5000; /* lane 0 keeps key 2 with weight 0 */
        for (int c = 0; c < DIM; c++)
            put(it.compute, V, 2 * DIM + c, (double)NAN), put(it.compute, V, 3 * DIM + c, (double)INFINITY);
        absorb(&r, width, KEYS, DIM, scores, V, 1);
        for (int c = 0; c < DIM; c++) {
            assert_true(isnan(get(it.compute, r.Ot, c * it.tile)));
            put(it.compute, r.Ot, c * it.tile, 0);
            put(it.compute, V, 2 * DIM + c, 0), put(it.compute, V, 3 * DIM + c, 0);
        }
        running plain = fresh(width, KEYS, DIM);
        absorb(&plain, width, KEYS, DIM, scores, V, 0);
        for (int c = 0; c < DIM; c++)
            for (int i = 1; i < width * it.lanes; i++)
                assert_true(get(it.compute, r.Ot, c * it.tile + i) == get(it.compute, plain.Ot, c * it.tile + i));
        for (int i = 0; i < width * it.lanes; i++) assert_true(get(it.compute, r.l, i) == get(it.compute, plain.l, i));
        release_all();
    }
}

void test_not_finite(void **state)
{
    const double bad[] = {(double)NAN, (double)INFINITY, -(double)INFINITY};
    (void)state;
    for (int width = 1; width <= it.vectors; width++)
        for (int64_t rows = (width - 1) * it.lanes + 1; rows <= width * it.lanes; rows++) {
            running r = fresh(width, 1, 7);
            for (int64_t c = 0; c < 7; c++)
                for (int64_t i = 0; i < width * it.lanes; i++) put(it.compute, r.Ot, c * it.tile + i, real(uniform() * -it.lowest));
            assert_int_equal(it.kernel.softmax->not_finite(width, rows, 7, r.Ot), 0);
            assert_int_equal(it.kernel.softmax->not_finite(width, rows, 0, r.Ot), 0);
            for (int b = 0; b < 3; b++)
                for (int64_t c = 0; c < 7; c += 3) {
                    double kept = get(it.compute, r.Ot, c * it.tile + rows - 1);
                    put(it.compute, r.Ot, c * it.tile + rows - 1, bad[b]);
                    assert_int_equal(it.kernel.softmax->not_finite(width, rows, 7, r.Ot), 1);
                    put(it.compute, r.Ot, c * it.tile + rows - 1, kept);
                }
            if (rows < width * it.lanes) { /* a spare lane does not count */
                put(it.compute, r.Ot, rows, (double)NAN);
                assert_int_equal(it.kernel.softmax->not_finite(width, rows, 7, r.Ot), 0);
            }
            release_all();
        }
}
