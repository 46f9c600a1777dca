/* SPDX-License-Identifier: MIT
 *
 * test_scores.c - scores and the steps that modify them.
 */
#include <math.h>
#include <string.h>

#include "kernel_test.h"

static const int64_t dims[] = {0, 1, 3, 8, 31, 40, 64, 100};
static const int64_t lengths[] = {1, 2, 3, 4, 5, 7, 8, 9, 11, 12, 13, 17, 25, 31};
enum { DIMS = 8, LENGTHS = 14, MAX_KEYS = 40 };

/* A tile buffer of n rows with random numbers in the lanes in use. */
static void *random_tile(int width, int64_t n, double size)
{
    void *p = output(n * it.tile * size_of(it.compute));
    for (int64_t j = 0; j < n; j++)
        for (int i = 0; i < width * it.lanes; i++) put(it.compute, p, j * it.tile + i, uniform() * size);
    return p;
}

static void other_lanes_untouched(int width, int64_t n, const void *tile)
{
    int64_t size = size_of(it.compute), used = (int64_t)width * it.lanes;
    for (int64_t j = 0; j < n; j++)
        assert_true(untouched((const char *)tile + (j * it.tile + used) * size, (it.tile - used) * size));
}

static int same(double a, double b) { return a == b || (isnan(a) && isnan(b)); }

void test_score(void **state)
{
    (void)state;
    for (int width = 1; width <= it.vectors; width++)
        for (int d = 0; d < DIMS; d++)
            for (int k = 0; k < LENGTHS; k++) {
                int64_t n = lengths[k], dim = dims[d], ldk = dim + (k % 3) * 5, size = size_of(it.compute);
                void *Qt = random_tile(width, dim, 1), *K = random_input(it.compute, n * ldk - (ldk - dim), 1);
                void *S = output(n * it.tile * size), *block_max = output(it.tile * size);
                it.kernel.product->score(width, n, dim, Qt, K, ldk, S, block_max, K, ldk);
                for (int i = 0; i < width * it.lanes; i++) {
                    double most = -(double)INFINITY;
                    for (int64_t j = 0; j < n; j++) {
                        double sum = 0, size_sum = 0, found = get(it.compute, S, j * it.tile + i);
                        for (int64_t c = 0; c < dim; c++) {
                            double product = get(it.compute, K, j * ldk + c) * get(it.compute, Qt, c * it.tile + i);
                            sum += product, size_sum += fabs(product);
                        }
                        assert_true(fabs(found - sum) <= (double)(dim + 2) * it.unit * size_sum);
                        if (found > most) most = found;
                    }
                    assert_true(get(it.compute, block_max, i) == most);
                }
                other_lanes_untouched(width, n, S);
                other_lanes_untouched(width, 1, block_max);
                release_all();
            }
}

/* The same bits in blocks of any length and in narrower tiles. */
void test_score_same_bits(void **state)
{
    (void)state;
    for (int d = 0; d < DIMS; d++) {
        int64_t n = 31, dim = dims[d], size = size_of(it.compute);
        void *Qt = random_tile(it.vectors, dim, 1), *block_max = output(it.tile * size);
        char *K = random_input(it.compute, n * dim, 1), *S = output(n * it.tile * size);
        it.kernel.product->score(it.vectors, n, dim, Qt, K, dim, S, block_max, K, dim);
        for (int width = 1; width <= it.vectors; width++)
            for (int64_t part = 1; part <= n; part += 3) {
                char *again = output(n * it.tile * size);
                for (int64_t j = 0; j < n; j += part)
                    it.kernel.product->score(width, n - j < part ? n - j : part, dim, Qt, K + j * dim * size, dim,
                                             again + j * it.tile * size, block_max, K, dim + 1);
                for (int64_t j = 0; j < n; j++)
                    assert_memory_equal(again + j * it.tile * size, S + j * it.tile * size, (size_t)(width * it.lanes * size));
            }
        release_all();
    }
}

void test_block_max(void **state)
{
    (void)state;
    for (int width = 1; width <= it.vectors; width++)
        for (int k = 0; k < LENGTHS; k++) {
            int64_t n = lengths[k], size = size_of(it.compute);
            void *S = random_tile(width, n, 7), *block_max = output(it.tile * size);
            for (int64_t j = 0; j < n; j += 3) put(it.compute, S, j * it.tile, -(double)INFINITY);
            it.kernel.modify->block_max(width, n, S, block_max);
            for (int i = 0; i < width * it.lanes; i++) {
                double most = -(double)INFINITY;
                for (int64_t j = 0; j < n; j++) most = fmax(most, get(it.compute, S, j * it.tile + i));
                assert_true(get(it.compute, block_max, i) == most);
            }
            other_lanes_untouched(width, 1, block_max);
            release_all();
        }
}

void test_keep_range(void **state)
{
    (void)state;
    for (int width = 1; width <= it.vectors; width++)
        for (int k = 0; k < LENGTHS; k++)
            for (int kind = 0; kind < 4; kind++) {
                int64_t n = lengths[k];
                int used = width * it.lanes;
                int32_t low[MAX_LANES], high[MAX_LANES];
                double before[MAX_KEYS * MAX_LANES];
                void *S = random_tile(width, n, 7), *rest = random_tile(width, n, 7), *most = random_tile(width, 1, 8);
                for (int i = 0; i < used; i++) { /* any; a causal band; all; none */
                    int a = (int)(fabs(uniform()) * (double)(n + 1)), b = (int)(fabs(uniform()) * (double)(n + 1));
                    low[i] = kind == 0 ? a : 0;
                    high[i] = kind == 0 ? b : kind == 1 ? (i + 1 < n ? i + 1 : (int)n) : kind == 2 ? (int)n : 0;
                }
                put(it.compute, S, 0, (double)NAN);
                for (int64_t at = 0; at < n * it.tile; at++) before[at] = get(it.compute, S, at);
                it.kernel.modify->keep_range(width, n, S, low, high);
                for (int64_t j = 0; j < n; j++)
                    for (int i = 0; i < used; i++)
                        assert_true(same(get(it.compute, S, j * it.tile + i),
                                         low[i] <= j && j < high[i] ? before[j * it.tile + i] : -(double)INFINITY));
                other_lanes_untouched(width, n, S);
                for (int64_t j = 0; j < n; j++)
                    for (int i = 0; i < used; i++) put(it.compute, rest, j * it.tile + i, before[j * it.tile + i]);
                it.kernel.modify->drop_range(width, n, rest, most, low, high);
                for (int i = 0; i < used; i++) {
                    double largest = -(double)INFINITY;
                    for (int64_t j = 0; j < n; j++) {
                        const double is = get(it.compute, rest, j * it.tile + i);
                        const int dropped = low[i] <= j && j < high[i];
                        assert_true(same(is, dropped ? -(double)INFINITY : before[j * it.tile + i]));
                        if (is > largest) largest = is;
                    }
                    if (i > 0) assert_true(same(get(it.compute, most, i), largest)); /* lane 0 may have a NaN */
                }
                other_lanes_untouched(width, n, rest);
                release_all();
            }
}

/* The visible range of each lane, which moves forward from lane to lane: causal, a window, chunks, causal in each vector, nothing.
 */
enum { BANDS = 5 };
static void segments(int which, int used, int64_t n, int32_t *low, int32_t *high)
{
    for (int i = 0; i < used; i++) {
        const int chunk = (i + 3) / 7 * 7 - 3;
        const int from[BANDS] = {0, i - 5, chunk, i / it.lanes * it.lanes, 0}, to[BANDS] = {i + 2, i + 3, chunk + 7, i + 1, 0};
        low[i] = (int32_t)(from[which] < 0 ? 0 : from[which] < n ? from[which] : n);
        high[i] = (int32_t)(to[which] < low[i] ? low[i] : to[which] < n ? to[which] : n);
    }
}

/* Scoring and folding only what is visible equals scoring all, dropping the rest, and folding all: in every bit, except that a 0 of
 * Ot may have another sign. */
void test_seen(void **state)
{
    (void)state;
    for (int width = 1; width <= it.vectors; width++)
        for (int k = 0; k < LENGTHS; k++)
            for (int which = 0; which < BANDS; which++) {
                const int64_t n = lengths[k], dim = 19, size = size_of(it.compute), used = (int64_t)width * it.lanes;
                int32_t low[MAX_LANES], high[MAX_LANES];
                void *Qt = random_tile(width, dim, 1), *K = random_input(it.compute, n * dim, 1);
                void *all = output(n * it.tile * size), *all_max = output(it.tile * size);
                void *seen = output(n * it.tile * size), *seen_max = output(it.tile * size);
                segments(which, (int)used, n, low, high);
                it.kernel.product->score(width, n, dim, Qt, K, dim, all, all_max, K, dim);
                it.kernel.modify->keep_range(width, n, all, low, high);
                it.kernel.modify->block_max(width, n, all, all_max);
                it.kernel.product->score_seen(width, n, dim, Qt, K, dim, seen, seen_max, low, high, K, dim);
                for (int64_t j = 0; j < n; j++)
                    assert_memory_equal((char *)seen + j * it.tile * size, (char *)all + j * it.tile * size, (size_t)(used * size));
                assert_memory_equal(seen_max, all_max, (size_t)(used * size));
                other_lanes_untouched(width, n, seen);

                void *m[2], *l[2], *Ot[2];
                for (int t = 0; t < 2; t++) {
                    m[t] = output(it.tile * size), l[t] = output(it.tile * size), Ot[t] = output(dim * it.tile * size);
                    it.kernel.softmax->start(width, dim, -INFINITY, m[t], l[t], Ot[t]);
                }
                fold(width, n, dim, all, all_max, K, m[0], l[0], Ot[0], NULL, NULL, 0);
                fold(width, n, dim, seen, seen_max, K, m[1], l[1], Ot[1], low, high, 0);
                assert_memory_equal(m[1], m[0], (size_t)(used * size));
                assert_memory_equal(l[1], l[0], (size_t)(used * size));
                for (int64_t c = 0; c < dim; c++)
                    for (int64_t i = 0; i < used; i++)
                        assert_true(get(it.compute, Ot[1], c * it.tile + i) == get(it.compute, Ot[0], c * it.tile + i));
                other_lanes_untouched(width, dim, Ot[1]);
                release_all();
            }
}

/* ---- scores of bf16 ---- */

static float flushed(float x) { return fabsf(x) < 0x1p-126f ? 0 : x; }

/* A bf16 number: the upper half of an f32.  (There are too many of them for get and put.) */
static float upper_half(const char *p)
{
    uint16_t half;
    memcpy(&half, p, 2);
    const uint32_t bits = (uint32_t)half << 16;
    float x;
    memcpy(&x, &bits, 4);
    return x;
}

/* The score by definition: one chain, the odd channel of a pair first; subnormal numbers are 0. */
static float chain_of_pairs(const char *Q, const char *K, int64_t dim)
{
    float sum = 0;
    for (int64_t n = 0; n < 2 * attn_bf16_pairs(dim); n++) {
        const int64_t c = n ^ 1;
        if (c >= dim) continue; /* 0 times 0 */
        sum = flushed(fmaf(flushed(upper_half(K + 2 * c)), flushed(upper_half(Q + 2 * c)), sum));
    }
    return sum;
}

/* Rows of bf16: ordinary numbers or, if kind is 2, numbers whose products are near the smallest normal one. */
static void *rows_of_bf16(int64_t n, int kind)
{
    char *p = input(2 * n);
    for (int64_t i = 0; i < n; i++) {
        const float x = (float)(kind == 2 ? uniform() * exp2(floor(uniform() * 75) - 63) : uniform() * 4);
        uint32_t bits;
        memcpy(&bits, &x, 4);
        const uint16_t half = (uint16_t)(bits >> 16);
        memcpy(p + 2 * i, &half, 2);
    }
    return p;
}

/* Every bit of every score, in tiles of any width and blocks of any length: the instruction computes chain_of_pairs. */
void test_score_pairs(void **state)
{
    static const double scales[] = {0.125, 1, -0.3};
    const attn_pairs_part *bf16 = it.kernel.pairs;
    const attn_prefetch_hint nothing = {0};
    (void)state;
    for (int width = 1; width <= it.vectors; width++)
        for (int d = 0; d < DIMS; d++)
            for (int k = 0; k < LENGTHS; k++) {
                const int64_t n = lengths[k], dim = dims[d], pairs = attn_bf16_pairs(dim), rows = (int64_t)width * it.lanes - k % 3;
                const float scale = (float)scales[k % 3];
                char *Q = rows_of_bf16(rows * dim, k % 3), *K = rows_of_bf16(n * dim, k % 3);
                void *Qt = output(pairs * it.tile * 4), *Kp = output(n * pairs * 4);
                void *S = output(n * it.tile * 4), *block_max = output(it.tile * 4);
                bf16->pack_query(width, rows, dim, Q, dim, Qt);
                bf16->load_rows(n, dim, K, dim, Kp);
                bf16->score(width, n, dim, Qt, Kp, scales[k % 3], S, block_max, Kp, pairs, &nothing);
                for (int64_t i = 0; i < width * it.lanes; i++) {
                    double most = -(double)INFINITY;
                    for (int64_t j = 0; j < n; j++) {
                        const char *q = Q + 2 * dim * (i < rows ? i : rows - 1);
                        const float expected = scale * chain_of_pairs(q, K + 2 * dim * j, dim);
                        const double found = get(ATTN_F32, S, j * it.tile + i);
                        assert_true(found == (double)expected);
                        most = fmax(most, found);
                    }
                    assert_true(get(ATTN_F32, block_max, i) == most);
                }
                other_lanes_untouched(width, n, S);
                other_lanes_untouched(width, 1, block_max);
                release_all();
            }
}

/* Scoring only what is visible: the bits of scoring all and dropping the rest. */
void test_pairs_seen(void **state)
{
    const attn_pairs_part *bf16 = it.kernel.pairs;
    const attn_prefetch_hint nothing = {0};
    (void)state;
    for (int width = 1; width <= it.vectors; width++)
        for (int k = 0; k < LENGTHS; k++)
            for (int which = 0; which < BANDS; which++) {
                const int64_t n = lengths[k], dim = 19, pairs = attn_bf16_pairs(dim), used = (int64_t)width * it.lanes;
                int32_t low[MAX_LANES], high[MAX_LANES];
                void *Q = rows_of_bf16(used * dim, 0), *K = rows_of_bf16(n * dim, 0);
                void *Qt = output(pairs * it.tile * 4), *Kp = output(n * pairs * 4);
                void *all = output(n * it.tile * 4), *all_max = output(it.tile * 4);
                void *seen = output(n * it.tile * 4), *seen_max = output(it.tile * 4);
                put(ATTN_BF16, K, 3, (double)NAN); /* of the first key, which some lanes do not see */
                segments(which, (int)used, n, low, high);
                bf16->pack_query(width, used, dim, Q, dim, Qt);
                bf16->load_rows(n, dim, K, dim, Kp);
                bf16->score(width, n, dim, Qt, Kp, 0.5, all, all_max, Kp, pairs, &nothing);
                it.kernel.modify->keep_range(width, n, all, low, high);
                it.kernel.modify->block_max(width, n, all, all_max);
                bf16->score_seen(width, n, dim, Qt, Kp, 0.5, seen, seen_max, low, high, Kp, pairs);
                for (int64_t j = 0; j < n; j++)
                    for (int64_t i = 0; i < used; i++) {
                        const double s = get(ATTN_F32, seen, j * it.tile + i);
                        assert_true(same(s, get(ATTN_F32, all, j * it.tile + i)));
                        if (j < low[i] || j >= high[i]) assert_true(s == -(double)INFINITY);
                    }
                for (int64_t i = 0; i < used; i++)
                    if (low[i] > 0) assert_true(get(ATTN_F32, seen_max, i) == get(ATTN_F32, all_max, i));
                other_lanes_untouched(width, n, seen);
                other_lanes_untouched(width, 1, seen_max);
                release_all();
            }
}

/* Layouts of a caller's block: strides in elements for r rows and n keys. */
enum { LAYOUTS = 9 };
static attn_block layout(int which, attn_dtype dtype, int64_t r, int64_t n, int64_t *elements)
{
    const struct {
        int64_t q, k;
    } strides[LAYOUTS] = {{n, 1}, {n + 3, 1}, {0, 1}, {1, r}, {1, 0}, {0, 0}, {2 * n, 2}, {-n, 1}, {n, -1}};
    attn_block block = {NULL, dtype, strides[which].q, strides[which].k};
    *elements = 1;
    if (block.stride_q) *elements += (r - 1) * (block.stride_q < 0 ? -block.stride_q : block.stride_q);
    if (block.stride_k) *elements += (n - 1) * (block.stride_k < 0 ? -block.stride_k : block.stride_k);
    return block;
}

/* The element (0, 0) of a block whose strides may be negative. */
static const void *origin(const attn_block *block, const void *memory, int64_t r, int64_t n)
{
    int64_t at = (block->stride_q < 0 ? -block->stride_q * (r - 1) : 0) + (block->stride_k < 0 ? -block->stride_k * (n - 1) : 0);
    return (const char *)memory + at * size_of(block->dtype);
}

/* Runs the modifier for all widths, lengths and layouts; fill writes the caller's tensor, expected computes one score. */
static void each_block(attn_dtype dtype, void (*fill)(attn_dtype dtype, void *p, int64_t n), double (*expected)(double s, double b))
{
    for (int width = 1; width <= it.vectors; width++)
        for (int k = 0; k < LENGTHS; k++)
            for (int which = 0; which < LAYOUTS; which++) {
                int64_t n = lengths[k], used = (int64_t)width * it.lanes, rows = used - (k % 2 ? it.lanes / 2 : 0), elements;
                int64_t padded = (n + it.lanes - 1) / it.lanes * it.lanes;
                double before[MAX_KEYS * MAX_LANES];
                attn_block block = layout(which, dtype, rows, n, &elements);
                void *S = random_tile(width, n, 7), *memory = input(elements * size_of(dtype));
                void *scratch = output(it.tile * padded * size_of(it.compute));
                void *block_max = output(it.tile * size_of(it.compute));
                put(it.compute, S, 0, (double)NAN);
                put(it.compute, S, it.lanes - 1, -(double)INFINITY);
                fill(dtype, memory, elements);
                block.base = origin(&block, memory, rows, n);
                for (int64_t at = 0; at < n * it.tile; at++) before[at] = get(it.compute, S, at);
                if (dtype == ATTN_BOOL) it.kernel.modify->keep_mask(width, rows, n, S, block_max, &block, scratch);
                else it.kernel.modify->add_bias(width, rows, n, S, block_max, &block, scratch);
                for (int64_t j = 0; j < n; j++)
                    for (int64_t i = 0; i < used; i++) {
                        int64_t row = i < rows ? i : rows - 1;
                        double b = get(dtype, block.base, row * block.stride_q + j * block.stride_k);
                        assert_true(same(get(it.compute, S, j * it.tile + i), expected(before[j * it.tile + i], b)));
                    }
                for (int64_t i = 0; i < used; i++) {
                    double most = -(double)INFINITY, found = get(it.compute, block_max, i);
                    int any_nan = 0;
                    for (int64_t j = 0; j < n; j++) {
                        double s = get(it.compute, S, j * it.tile + i);
                        any_nan |= isnan(s);
                        if (s > most) most = s;
                    }
                    assert_true(any_nan || found == most); /* a NaN may enter, or hide what was before it */
                }
                other_lanes_untouched(width, n, S);
                other_lanes_untouched(width, 1, block_max);
                release_all();
            }
}

static void fill_mask(attn_dtype dtype, void *p, int64_t n)
{
    static const signed char values[] = {0, 1, -128, 0, 2, 127, -1, 0};
    (void)dtype;
    for (int64_t i = 0; i < n; i++) ((signed char *)p)[i] = values[(int)(fabs(uniform()) * 8)];
}
static double masked(double s, double keep) { return keep != 0 ? s : -(double)INFINITY; }

void test_keep_mask(void **state)
{
    (void)state;
    each_block(ATTN_BOOL, fill_mask, masked);
}

static void fill_bias(attn_dtype dtype, void *p, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        double x = uniform();
        put(dtype, p, i, x > 0.9 ? -(double)INFINITY : x < -0.95 ? (double)NAN : x * 4);
    }
}
/* Only finite numbers, which take a shorter path. */
static void fill_numbers(attn_dtype dtype, void *p, int64_t n)
{
    for (int64_t i = 0; i < n; i++) put(dtype, p, i, uniform() * 4);
}
static double biased(double s, double b)
{
    if (isinf(s) || isinf(b)) return -(double)INFINITY;
    return real(s + real(b));
}

void test_add_bias(void **state)
{
    static const attn_dtype types[] = {ATTN_F32, ATTN_F64, ATTN_F16, ATTN_BF16};
    (void)state;
    for (int t = 0; t < 4; t++) {
        each_block(types[t], fill_bias, biased);
        each_block(types[t], fill_numbers, biased);
    }
}

/* Only a bias of exactly -infinity drops; any finite one is a number, however low, and whatever its type. */
void test_bias_overflow(void **state)
{
    const double huge[] = {-0x1.fffffep+127, -0x1p+127, -1e300, 1e300};
    (void)state;
    for (int h = 0; h < 4; h++)
        for (int t = 0; t < 2; t++) {
            attn_dtype dtype = t ? ATTN_F64 : ATTN_F32;
            int64_t n = 2 * it.lanes + 1;
            if (!t && fabs(huge[h]) > 0x1.fffffep+127) continue;
            for (int layout_k = 1; layout_k <= 2; layout_k++) {
                void *S = output(n * it.tile * size_of(it.compute)), *memory = input(n * it.lanes * 2 * size_of(dtype));
                attn_block block = {memory, dtype, 2 * n, layout_k};
                for (int64_t at = 0; at < n * it.tile; at++) put(it.compute, S, at, real(it.lowest));
                for (int64_t at = 0; at < n * it.lanes * 2; at++) put(dtype, memory, at, huge[h]);
                void *block_max = output(it.tile * size_of(it.compute));
                it.kernel.modify->add_bias(1, it.lanes, n, S, block_max, &block,
                                           output(it.tile * (n + it.lanes) * size_of(it.compute)));
                for (int64_t j = 0; j < n; j++)
                    for (int i = 0; i < it.lanes; i++) {
                        double found = get(it.compute, S, j * it.tile + i);
                        assert_true(isfinite(found));
                        assert_true(huge[h] > 0 ? found > it.lowest || fabs(huge[h]) < -it.lowest : found == it.lowest);
                    }
                release_all();
            }
        }
}

/* tanh keeps its relative error at every size, whatever the other lanes hold. */
void test_softcap(void **state)
{
    const double cap = 30;
    (void)state;
    for (int width = 1; width <= it.vectors; width++)
        for (int mixed = 0; mixed < 2; mixed++) {
            const int64_t n = 41;
            void *S = random_tile(width, n, 1), *block_max = output(it.tile * size_of(it.compute));
            void *slope = output(n * it.tile * size_of(it.compute)), *curvature = output(n * it.tile * size_of(it.compute));
            double before[41 * MAX_LANES], most[MAX_LANES];
            for (int64_t at = 0; at < n * it.tile; at++) {
                /* |s / cap| from 1e-6 to 0.6, and where mixed up to 60 */
                double size = pow(10, -6 + 5.75 * fabs(uniform())) * (mixed && uniform() > 0.5 ? 100 : 1);
                put(it.compute, S, at, uniform() < 0 ? -cap * size : cap * size);
                before[at] = get(it.compute, S, at);
            }
            if (mixed) {
                put(it.compute, S, 0, before[0] = (double)NAN);
                put(it.compute, S, it.tile, before[it.tile] = (double)INFINITY);
                put(it.compute, S, it.tile + width * it.lanes - 1, before[it.tile + width * it.lanes - 1] = 0);
            }
            it.kernel.modify->softcap(width, n, S, block_max, cap, slope, curvature);
            for (int64_t i = 0; i < width * it.lanes; i++) {
                most[i] = -(double)INFINITY;
                for (int64_t j = 0; j < n; j++) {
                    int64_t at = j * it.tile + i;
                    double t = tanh(before[at] / cap), s = get(it.compute, S, at);
                    if (isnan(t)) {
                        assert_true(isnan(s));
                        continue;
                    }
                    if (s > most[i]) most[i] = s;
                    assert_true(fabs(s - cap * t) <= 8 * it.unit * fabs(cap * t));
                    assert_true(fabs(get(it.compute, slope, at) - (1 - t * t)) <= 16 * it.unit);
                    assert_true(fabs(get(it.compute, curvature, at) + 2 / cap * t * (1 - t * t)) <= 16 * it.unit);
                }
                assert_true(mixed && i == 0 ? 1 : get(it.compute, block_max, i) == most[i]);
            }
            release_all();
        }
}
