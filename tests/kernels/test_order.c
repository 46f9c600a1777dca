/* SPDX-License-Identifier: MIT
 *
 * test_order.c - decode in the order of tiles: every step has the same bits as the tile step that it replaces.
 */
#include <math.h>
#include <string.h>

#include "kernel_test.h"

enum { KEYS = 75, FIRST = 43, PART = 56 }; /* two blocks, and a separate part */

static int64_t rounded_up(int64_t n, int64_t step) { return (n + step - 1) / step * step; }
static int64_t size(void) { return size_of(it.compute); }
static void *at(void *p, int64_t i) { return (char *)p + i * size(); }

static void *zeros(int64_t n)
{
    void *p = output(n * size());
    memset(p, 0, (size_t)(n * size()));
    return p;
}

typedef struct softmax {
    void *m, *l, *O;
} softmax;

/* `rows` queries, with keys and values in a storage type. */
typedef struct sample {
    attn_dtype dtype;
    int64_t rows, dim, dim_v, ldk, ldv, ldq, ldo, lds;
    void *q, *k, *v;
} sample;

static int in_pairs(const sample *s) { return it.kernel.decode_pairs && s->dtype == ATTN_BF16; }
static attn_dtype type_of_queries(const sample *s) { return in_pairs(s) ? ATTN_BF16 : it.compute; }
static char *key(const sample *s, int64_t j) { return (char *)s->k + j * s->ldk * size_of(s->dtype); }
static char *value(const sample *s, int64_t j) { return (char *)s->v + j * s->ldv * size_of(s->dtype); }

/* Scores of keys low .. high-1, [key][tile], of the single query i, in each lane of a tile of varying width. */
static void score_tile(const sample *s, int64_t i, int64_t low, int64_t high, void *S, void *block_max)
{
    const int64_t n = high - low;
    const int width = 1 + (int)(i + n) % it.vectors;
    const char *q = (const char *)s->q + i * s->dim * size_of(type_of_queries(s));
    void *Qt = zeros((s->dim + 1) * it.tile), *K = zeros(n * s->dim + 1);
    const attn_prefetch_hint nothing = {0};
    if (in_pairs(s)) {
        it.kernel.pairs->pack_query(width, 1, s->dim, q, s->dim, Qt);
        it.kernel.pairs->load_rows(n, s->dim, key(s, low), s->ldk, K);
        it.kernel.pairs->score_in_order(width, n, s->dim, Qt, K, 0.3, S, block_max, K, s->dim, &nothing);
        return;
    }
    it.kernel.storage->pack_query(width, 1, s->dim, q, it.compute, s->dim, 0.3, Qt);
    it.kernel.storage->load_rows(n, s->dim, key(s, low), s->dtype, s->ldk, K, s->dim);
    it.kernel.product->score_beside_in_order(width, n, s->dim, Qt, K, s->dim, S, block_max, K, s->dim, &nothing);
}

static void fold_tile(const sample *s, int64_t i, int64_t low, int64_t high, const softmax *to)
{
    const int64_t n = high - low;
    void *S = zeros(n * it.tile), *block_max = zeros(it.tile), *V = zeros(n * s->dim_v + 1);
    score_tile(s, i, low, high, S, block_max);
    it.kernel.storage->load_rows(n, s->dim_v, value(s, low), s->dtype, s->ldv, V, s->dim_v);
    fold(1, n, s->dim_v, S, block_max, V, to->m, to->l, to->O, NULL, NULL, 0);
}

static void *queries(const sample *s)
{
    void *Q = zeros(rounded_up(s->rows, 4) * s->ldq);
    if (in_pairs(s)) it.kernel.decode_pairs->pack_rows(s->rows, s->dim, s->q, s->dim, Q, s->ldq);
    else it.decode->pack_rows(s->rows, s->dim, s->q, it.compute, s->dim, 0.3, it.compute, Q, s->ldq);
    /* NaN after the vectors that a row fills: no score may depend on it. */
    for (int64_t row = 0; row < s->rows && !in_pairs(s); row++)
        for (int64_t c = rounded_up(s->dim, it.lanes); c < s->ldq; c++) put(it.compute, Q, row * s->ldq + c, NAN);
    return Q;
}

/* Scores of all rows, in two pieces; the second overwrites what the first wrote past its end. */
static void score_rows(const sample *s, const void *Q, int64_t low, int64_t high, void *S)
{
    const int64_t n = high - low, piece = (n + 1) / 2;
    for (int64_t j = 0; j < n; j += piece) {
        const int64_t some = n - j < piece ? n - j : piece;
        if (in_pairs(s))
            it.kernel.decode_pairs->ordered_scores(s->rows, some, s->dim, Q, s->ldq, key(s, low + j), s->ldk, at(S, j), s->lds, 64,
                                                   (int)j & 1);
        else
            it.decode->order.scores(s->rows, some, s->dim, Q, s->ldq, key(s, low + j), s->dtype, s->ldk, at(S, j), s->lds, 64,
                                    (int)j & 1);
    }
    for (int64_t i = 0; in_pairs(s) && i < s->rows; i++) it.kernel.decode_pairs->scale_row(n, at(S, i * s->lds), 0.3);
}

static void fold_rows(const sample *s, const void *Q, int64_t low, int64_t high, const softmax *to)
{
    const int64_t n = high - low, all = rounded_up(s->rows, 4);
    void *S = zeros(all * s->lds), *O = zeros(all * s->ldo), *factors = zeros(s->rows);
    score_rows(s, Q, low, high, S);
    it.decode->order.absorb_rows(s->rows, n, S, s->lds, to->m, to->l, 2, factors);
    it.decode->add_values(s->rows, n, s->dim_v, S, s->lds, value(s, low), s->dtype, s->ldv, O, s->ldo, 64, 0);
    for (int64_t i = 0; i < s->rows; i++)
        it.decode->order.join_row(s->dim_v, at(factors, i), at(O, i * s->ldo), at(to->O, i * s->ldo));
}

static softmax tile_state(const sample *s, double sink)
{
    softmax made = {zeros(it.tile), zeros(it.tile), zeros((s->dim_v + 1) * it.tile)};
    it.kernel.softmax->start(1, s->dim_v, sink, made.m, made.l, made.O);
    return made;
}

/* m and l of consecutive rows are two numbers apart. */
static softmax row_state(const sample *s, double sink)
{
    softmax made = {zeros(2 * s->rows), zeros(2 * s->rows), zeros(rounded_up(s->rows, 4) * s->ldo)};
    for (int64_t i = 0; i < s->rows; i++) {
        put(it.compute, made.m, 2 * i, sink > -INFINITY ? sink : it.lowest);
        put(it.compute, made.l, 2 * i, sink > -INFINITY);
    }
    return made;
}

/* Two blocks, a separate part that is merged into them, and the normalised output. */
static void try_sample(const sample *s, double sink)
{
    const attn_decode_order *order = &it.decode->order;
    const void *Q = queries(s);
    const softmax rows = row_state(s, sink), other = row_state(s, -INFINITY);
    fold_rows(s, Q, 0, FIRST, &rows);
    fold_rows(s, Q, FIRST, PART, &rows);
    fold_rows(s, Q, PART, KEYS, &other);
    for (int64_t i = 0; i < s->rows; i++) {
        const softmax tile = tile_state(s, sink), more = tile_state(s, -INFINITY);
        void *o = output(s->dim_v * size()), *lse = output(size()), *scratch = zeros(2 * s->ldo);
        void *expected_o = output(s->dim_v * size()), *expected_lse = output(size());
        fold_tile(s, i, 0, FIRST, &tile);
        fold_tile(s, i, FIRST, PART, &tile);
        fold_tile(s, i, PART, KEYS, &more);
        it.kernel.softmax->merge(1, s->dim_v, more.m, more.l, more.O, tile.m, tile.l, tile.O);
        it.kernel.softmax->finish(1, 1, s->dim_v, 1, tile.m, tile.l, tile.O, expected_o, it.compute, s->dim_v, expected_lse, 1);
        order->merge_row(s->dim_v, at(other.m, 2 * i), at(other.l, 2 * i), at(other.O, i * s->ldo), at(rows.m, 2 * i),
                         at(rows.l, 2 * i), at(rows.O, i * s->ldo));
        order->normalise_row(s->dim_v, at(rows.m, 2 * i), at(rows.l, 2 * i), at(rows.O, i * s->ldo), s->dtype, scratch, o,
                             it.compute, lse);
        assert_memory_equal(at(rows.m, 2 * i), tile.m, (size_t)size());
        assert_memory_equal(at(rows.l, 2 * i), tile.l, (size_t)size());
        assert_memory_equal(o, expected_o, (size_t)(s->dim_v * size()));
        assert_memory_equal(lse, expected_lse, (size_t)size());
    }
}

void test_order(void **state)
{
    static const int64_t dims[] = {0, 1, 3, 16, 33, 64, 65, 100}, counts[] = {1, 2, 3, 4, 5, 6};
    const attn_dtype types[] = {it.compute, ATTN_F16, ATTN_BF16};
    (void)state;
    for (int t = 0; t < (it.compute == ATTN_F64 ? 1 : 3); t++)
        for (int d = 0; d < 8; d++)
            for (int r = 0; r < 6; r++) {
                sample s = {.dtype = types[t], .rows = counts[r], .dim = dims[d], .dim_v = dims[(d + r) % 7 + 1]};
                if (it.kernel.decode_pairs && s.dtype != ATTN_BF16) continue; /* such a kernel runs only bf16 */
                s.ldk = s.dim + r % 2, s.ldv = s.dim_v + d % 2;
                s.ldq = rounded_up(s.dim, it.lanes) + it.lanes, s.ldo = rounded_up(s.dim_v, it.lanes) + it.lanes;
                s.lds = rounded_up(KEYS, it.lanes) + it.lanes;
                s.q = random_input(type_of_queries(&s), s.rows * s.dim, 3);
                s.k = random_input(s.dtype, KEYS * s.ldk - (s.ldk - s.dim), 3);
                s.v = random_input(s.dtype, KEYS * s.ldv - (s.ldv - s.dim_v), 1);
                try_sample(&s, r % 3 == 0 ? 0.5 : -(double)INFINITY);
                release_all();
            }
}

/* A row without keys gives 0, and bias diagonals are added in reverse order. */
void test_order_edges(void **state)
{
    enum { DIM = 5, N = 11 };
    const int64_t ldo = rounded_up(DIM, it.lanes) + it.lanes;
    void *m = zeros(1), *l = zeros(1), *O = zeros(ldo), *scratch = zeros(2 * ldo), *o = output(DIM * size()), *lse = output(size());
    void *S = output(N * size()), *strip = random_input(it.compute, N, 1);
    (void)state;
    put(it.compute, m, 0, it.lowest);
    for (int64_t c = 0; c < ldo; c++) put(it.compute, O, c, NAN);
    it.decode->order.normalise_row(DIM, m, l, O, it.compute, scratch, o, it.compute, lse);
    for (int64_t c = 0; c < DIM; c++) assert_true(get(it.compute, o, c) == 0);
    assert_true(get(it.compute, lse, 0) == -INFINITY);
    for (int64_t j = 0; j < N; j++) put(it.compute, S, j, (double)j);
    it.decode->order.add_diagonals_row(N, S, at(strip, N - 1));
    for (int64_t j = 0; j < N; j++) assert_true(get(it.compute, S, j) == real((double)j + get(it.compute, strip, N - 1 - j)));
    release_all();
}
