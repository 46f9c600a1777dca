/* SPDX-License-Identifier: MIT
 *
 * product_step.inc.c - the one product primitive, in register tiles, and scores (S = K Q^T).  Included by forward.inc.c.
 */
#ifdef VF_LANES

#ifndef VF_ELEMENT
#define VF_ELEMENT(p) vf_set(*(p))
#endif

enum { TILE = VF_LANES * VF_VECTORS }; /* lanes of a full tile: the row length of every tile buffer */

/*
 * Prefetching while a product runs: n rows of next_ld elements from `next` on will be read soon.  If there are no wide gaps between
 * the rows, the product itself prefetches them, a line or less every few steps, so as to finish with them; else they are prefetched
 * row by row between its tiles.
 */
typedef struct prefetch_stream {
    uintptr_t at; /* an integer, since it may run past the array */
    int64_t hop;  /* bytes from one line to the next, or 0 */
    uintptr_t rows;
    int64_t ld, dim;
    /* And another block, from memory (step_score_beside). */
    attn_prefetch_hint beside;
    int64_t keys, lines, due; /* lines are spread evenly over the keys; due counts in units of a line per key */
    int64_t row, byte;        /* the next line */
} prefetch_stream;

VF_INLINE prefetch_stream prefetch_stream_of(const void *next, int64_t ld, int64_t dim)
{
    prefetch_stream p = {.at = (uintptr_t)next, .rows = (uintptr_t)next, .ld = ld, .dim = dim};
    if (ld == dim) p.hop = 64;
    else if (ld > dim && ld < 2 * dim) p.hop = 64 * ld / dim;
    return p;
}

VF_INLINE void prefetch_stream_beside(prefetch_stream *p, int64_t count)
{
    if (!p->lines) return;
    for (p->due += count * p->lines; p->due >= p->keys; p->due -= p->keys) {
        __builtin_prefetch((const void *)((uintptr_t)p->beside.base + (uintptr_t)(p->row * p->beside.stride + p->byte)));
        p->byte += 64;
        if (p->byte >= p->beside.bytes) p->byte = 0, p->row++;
    }
}

VF_INLINE void prefetch_stream_rows(const prefetch_stream *p, int64_t from, int64_t to)
{
    if (p->hop) return;
    for (int64_t j = from; j < to; j++)
        for (int64_t byte = 0; byte < p->dim * (int64_t)sizeof(real); byte += 64)
            __builtin_prefetch((const void *)(p->rows + (uintptr_t)(j * p->ld * (int64_t)sizeof(real) + byte)));
}

/* a b + c; if numbers are pairs of bf16 (bf16_step.inc.c), both of their products are added. */
VF_INLINE vf multiply_add(const int pairs, vf a, vf b, vf c)
{
#ifdef VF_PAIRS
    if (pairs) return vf_fma_pairs(a, b, c);
#endif
    (void)pairs;
    return vf_fma(a, b, c);
}

/* acc[i][v] += sum_k A[i*row + k*step] * B[k*ldb + lanes of v] for first <= v < last: one chain each, k ascending.  All parameters
 * but steps and the strides are constants. */
VF_INLINE void product_chains(const int pairs, const int rows, const int first, const int last, int64_t steps, const real *A,
                              int64_t row, int64_t step, const real *B, const int64_t ldb, prefetch_stream *next,
                              vf (*acc)[VF_VECTORS])
{
    enum { TURN = 4 };
    const int lines = (rows * TURN * (int)sizeof(real) + 63) / 64; /* prefetches as much as `rows` rows of A read */
    int64_t k = 0;
#ifdef VF_ASM_PRODUCT_MORE
    if (!pairs && VF_ASM_PRODUCT_MORE(rows, first, last, steps, A, row, step, B, ldb, &next->at, next->hop, acc)) return;
#endif
    VF_ROLLED
    for (; k + TURN <= steps; k += TURN) {
        VF_UNROLL
        for (int u = 0; u < lines; u++) __builtin_prefetch((const void *)(next->at + (uintptr_t)(u * next->hop)));
        next->at += (uintptr_t)(lines * next->hop);
        VF_UNROLL
        for (int u = 0; u < TURN; u++) {
            vf b[VF_VECTORS];
            VF_UNROLL
            for (int v = first; v < last; v++) {
                b[v] = vf_load(B + u * ldb + v * VF_LANES);
                VF_PIN(b[v]);
            }
            VF_UNROLL
            for (int i = 0; i < rows; i++) {
                vf a = VF_ELEMENT(A + i * row + u * step);
                VF_UNROLL
                for (int v = first; v < last; v++) acc[i][v] = multiply_add(pairs, a, b[v], acc[i][v]);
            }
        }
        A += TURN * step;
        B += TURN * ldb;
    }
    VF_ROLLED
    for (; k < steps; k++) {
        VF_UNROLL
        for (int i = 0; i < rows; i++) {
            vf a = VF_ELEMENT(A + i * row);
            VF_UNROLL
            for (int v = first; v < last; v++) acc[i][v] = multiply_add(pairs, a, vf_load(B + v * VF_LANES), acc[i][v]);
        }
        A += step;
        B += ldb;
    }
}

VF_INLINE void product_more(const int rows, const int first, const int last, int64_t steps, const real *A, int64_t row,
                            int64_t step, const real *B, const int64_t ldb, prefetch_stream *next, vf (*acc)[VF_VECTORS])
{
    product_chains(0, rows, first, last, steps, A, row, step, B, ldb, next, acc);
}

VF_INLINE void product_zero(const int rows, const int width, vf (*acc)[VF_VECTORS])
{
    VF_UNROLL
    for (int i = 0; i < rows; i++) {
        VF_UNROLL
        for (int v = 0; v < width; v++) acc[i][v] = vf_zero();
    }
}

/*
 * acc[i][v] = sum_k A[i*row + k*step] * B[k][lanes of v], for i < rows and v < width, which are constants: chains from 0 with k
 * ascending. One of row and step is 1.
 */
VF_INLINE void product(const int rows, const int width, int64_t steps, const real *A, int64_t row, int64_t step, const real *B,
                       prefetch_stream *next, vf (*acc)[VF_VECTORS])
{
#ifdef VF_ASM_PRODUCT
    if (VF_ASM_PRODUCT(rows, width, steps, A, row, step, B, &next->at, next->hop, acc)) return;
#endif
    product_zero(rows, width, acc);
    product_more(rows, 0, width, steps, A, row, step, B, TILE, next, acc);
}

/* The same with rows of B in place, ldb elements apart. */
VF_INLINE void product_rows(const int rows, const int width, int64_t steps, const real *A, int64_t row, int64_t step, const real *B,
                            int64_t ldb, vf (*acc)[VF_VECTORS])
{
#ifdef VF_ASM_PRODUCT_ROWS
    if (VF_ASM_PRODUCT_ROWS(rows, width, steps, A, row, step, B, ldb, acc)) return;
#endif
    prefetch_stream none = {.at = (uintptr_t)A};
    product_zero(rows, width, acc);
    product_more(rows, 0, width, steps, A, row, step, B, ldb, &none, acc);
}

/* ---- scores ---- */

/*
 * In order (options.invariant) a score has VF_CHAINS chains, of the channels c mod VF_CHAINS (of pairs p, with bf16 pairs), whose
 * ends are added to 0 in ascending order (so that no -0 is left, which would reveal what follows the last channel).  Decode has
 * these chains in its lanes; here they cost a few more sums.  Sums and chains together must fit the registers.
 */
#ifndef VF_ORDERED_ROWS
#define VF_ORDERED_ROWS(width) (VF_CHAINS == 1 ? VF_ROWS(width) : (width) == 3 ? 4 : (width) == 2 ? 6 : 12)
#endif

VF_INLINE void product_in_order(const int pairs, const int rows, const int width, int64_t dim, const real *A, int64_t row,
                                const real *B, prefetch_stream *next, vf (*sum)[VF_VECTORS])
{
    product_zero(rows, width, sum);
    VF_ROLLED
    for (int chain = 0; chain < VF_CHAINS; chain++) {
        const int64_t steps = (dim - chain + VF_CHAINS - 1) / VF_CHAINS;
        vf acc[VF_MAX_ROWS][VF_VECTORS];
#ifdef VF_ASM_PRODUCT_CHAIN
        if (!pairs && VF_ASM_PRODUCT_CHAIN(rows, width, steps, A + chain, row, B + chain * TILE, &next->at, next->hop, sum))
            continue;
#endif
        product_zero(rows, width, acc);
        product_chains(pairs, rows, 0, width, steps, A + chain, row, VF_CHAINS, B + chain * TILE, VF_CHAINS * TILE, next, acc);
        VF_UNROLL
        for (int i = 0; i < rows; i++) {
            VF_UNROLL
            for (int v = 0; v < width; v++) sum[i][v] = vf_add(sum[i][v], acc[i][v]);
        }
    }
}

/* pairs: dim counts pairs of bf16, and the queries are not scaled yet. */
VF_INLINE void score_rows(const int in_order, const int pairs, const int rows, const int width, int64_t dim, const real *Qt,
                          const real *K, int64_t ldk, real scale, real *S, real *block_max, prefetch_stream *next)
{
    vf acc[VF_MAX_ROWS][VF_VECTORS];
    if (in_order) {
        product_in_order(pairs, rows, width, dim, K, ldk, Qt, next, acc);
    } else if (pairs) {
        product_zero(rows, width, acc);
        product_chains(1, rows, 0, width, dim, K, ldk, 1, Qt, TILE, next, acc);
    } else {
        product(rows, width, dim, K, ldk, 1, Qt, next, acc);
    }
    VF_UNROLL
    for (int v = 0; v < width; v++) {
        vf most = vf_load(block_max + v * VF_LANES);
        VF_UNROLL
        for (int i = 0; i < rows; i++) {
            const vf s = pairs ? vf_mul(acc[i][v], vf_set(scale)) : acc[i][v];
            most = vf_max(s, most);
            vf_store(S + i * TILE + v * VF_LANES, s);
        }
        vf_store(block_max + v * VF_LANES, most);
    }
}

/* Raises block_max, which is already set. */
VF_INLINE void score_block(const int width, const int in_order, const int pairs, int64_t n, int64_t dim, const real *Qt,
                           const real *K, int64_t ldk, real scale, real *S, real *block_max, prefetch_stream *next)
{
    const int most = in_order ? VF_ORDERED_ROWS(width) : VF_ROWS(width);
    int64_t j = 0;
#define SCORE_ROWS(rows)                                                                                                           \
    do {                                                                                                                           \
        prefetch_stream_rows(next, j, j + (rows));                                                                                 \
        prefetch_stream_beside(next, rows);                                                                                        \
        score_rows(in_order, pairs, rows, width, dim, Qt, K + j * ldk, ldk, scale, S + j * TILE, block_max, next);                 \
        j += (rows);                                                                                                               \
    } while (0)
    while (j + most <= n && (most != 6 || n - j != 8)) SCORE_ROWS(most); /* 8 rows are 4 + 4 */
    if (VF_TAILS && most > 8 && n - j >= 8) SCORE_ROWS(8);
    while (most > 4 && n - j >= 4) SCORE_ROWS(4);
    if (VF_TAILS && n - j >= 2) SCORE_ROWS(2);
    while (n - j >= 1) SCORE_ROWS(1);
#undef SCORE_ROWS
}

#define SCORE_KEYS(name, in_order, pairs)                                                                                          \
    static void name(int width, int64_t n, int64_t dim, const real *Qt, const real *K, int64_t ldk, real scale, real *S,           \
                     real *block_max, prefetch_stream *next)                                                                       \
    {                                                                                                                              \
        VF_EACH_WIDTH(score_block, width, in_order, pairs, n, dim, Qt, K, ldk, scale, S, block_max, next);                         \
    }
SCORE_KEYS(score_keys, 0, 0)
SCORE_KEYS(score_keys_in_order, 1, 0)
#ifdef VF_PAIRS
SCORE_KEYS(score_pairs, 0, 1)
SCORE_KEYS(score_pairs_in_order, 1, 1)
#endif
#undef SCORE_KEYS

VF_INLINE void score_either(const int in_order, const int pairs, int width, int64_t n, int64_t dim, const void *Qt, const void *K,
                            int64_t ldk, double scale, void *S, void *block_max, prefetch_stream *next)
{
#ifdef VF_PAIRS
    if (pairs) {
        if (in_order) score_pairs_in_order(width, n, dim, Qt, K, ldk, (real)scale, S, block_max, next);
        else score_pairs(width, n, dim, Qt, K, ldk, (real)scale, S, block_max, next);
        return;
    }
#endif
    (void)pairs, (void)scale;
    if (in_order) score_keys_in_order(width, n, dim, Qt, K, ldk, 1, S, block_max, next);
    else score_keys(width, n, dim, Qt, K, ldk, 1, S, block_max, next);
}

static void start_max(int width, real *block_max)
{
    for (int v = 0; v < width; v++) vf_store(block_max + v * VF_LANES, vf_set(-(real)INFINITY));
}

static void step_score(int width, int64_t n, int64_t dim, const void *Qt, const void *K, int64_t ldk, void *S, void *block_max,
                       const void *next, int64_t next_ld)
{
    prefetch_stream next_rows = prefetch_stream_of(next, next_ld, dim);
    start_max(width, block_max);
    score_keys(width, n, dim, Qt, K, ldk, 1, S, block_max, &next_rows);
}

VF_INLINE void score_beside(const int in_order, const int pairs, int width, int64_t n, int64_t dim, const void *Qt, const void *K,
                            int64_t ldk, double scale, void *S, void *block_max, const void *next, int64_t next_ld,
                            const attn_prefetch_hint *beside)
{
    prefetch_stream next_rows = prefetch_stream_of(next, next_ld, pairs ? next_ld : dim);
    next_rows.beside = *beside;
    next_rows.keys = n;
    next_rows.lines = beside->rows * ((beside->bytes + 63) / 64);
    start_max(width, block_max);
    score_either(in_order, pairs, width, n, dim, Qt, K, ldk, scale, S, block_max, &next_rows);
}

static void step_score_beside(int width, int64_t n, int64_t dim, const void *Qt, const void *K, int64_t ldk, void *S,
                              void *block_max, const void *next, int64_t next_ld, const attn_prefetch_hint *beside)
{
    score_beside(0, 0, width, n, dim, Qt, K, ldk, 1, S, block_max, next, next_ld, beside);
}

static void step_score_beside_in_order(int width, int64_t n, int64_t dim, const void *Qt, const void *K, int64_t ldk, void *S,
                                       void *block_max, const void *next, int64_t next_ld, const attn_prefetch_hint *beside)
{
    score_beside(1, 0, width, n, dim, Qt, K, ldk, 1, S, block_max, next, next_ld, beside);
}

/* Keys from .. end-1 of one vector, whose lanes keep low .. high-1; most: the largest score of the keys before them. */
VF_INLINE vf keep_lanes(int64_t from, int64_t end, real *S, const int32_t *low, const int32_t *high, vf most)
{
    const vf dropped = vf_set(-(real)INFINITY), first = vf_of_i32(low), last = vf_of_i32(high);
    for (int64_t j = from; j < end; j++) {
        vf key = vf_set((real)j), s = vf_load(S + j * TILE);
        s = vf_select(vm_and(vf_ge(key, first), vf_gt(last, key)), s, dropped);
        vf_store(S + j * TILE, s);
        most = vf_max(s, most);
    }
    return most;
}

static void drop_keys(int64_t from, int64_t end, real *S)
{
    for (int64_t j = from; j < end; j++) vf_store(S + j * TILE, vf_set(-(real)INFINITY));
}

/* Keys from j to the end of a segment, scored in the vectors that see it: cuts the lanes that see less.  before: the largest scores
 * of the keys before j. */
static void keep_segment(int width, const segment *at, int64_t j, const int32_t *low, const int32_t *high, const vf *before,
                         real *S, real *block_max)
{
    for (int v = 0; v < width; v++) {
        const int32_t *from = low + v * VF_LANES, *to = high + v * VF_LANES;
        real *column = S + v * VF_LANES;
        if (v < at->first || v >= at->last) drop_keys(j, at->end, column);
        else if (from[VF_LANES - 1] > j || to[0] < at->end)
            vf_store(block_max + v * VF_LANES, keep_lanes(j, at->end, column, from, to, before[v]));
    }
}

/* Each segment is scored in the vectors that see it; vectors cut by an edge get their maximum recomputed. */
VF_INLINE void score_band(const int in_order, const int pairs, int width, int64_t n, int64_t dim, const void *Qt, const void *K,
                          int64_t ldk, double scale, void *S, void *block_max, const int32_t *low, const int32_t *high,
                          const void *next, int64_t next_ld)
{
    prefetch_stream next_rows = prefetch_stream_of(next, next_ld, pairs ? next_ld : dim);
    segment segments[MAX_SEGMENTS];
    const int count = segments_of(width, n, low, high, segments);
    start_max(width, block_max);
    for (int64_t s = 0, j = 0; s < count; j = segments[s++].end) {
        const int first = segments[s].first, last = segments[s].last;
        const int64_t end = segments[s].end, lane = first * VF_LANES;
        vf before[VF_VECTORS];
        for (int v = first; v < last; v++) before[v] = vf_load((real *)block_max + v * VF_LANES);
        if (first < last)
            score_either(in_order, pairs, last - first, end - j, dim, (const real *)Qt + lane, (const real *)K + j * ldk, ldk,
                         scale, (real *)S + j * TILE + lane, (real *)block_max + lane, &next_rows);
        keep_segment(width, &segments[s], j, low, high, before, S, block_max);
    }
}

static void step_score_seen(int width, int64_t n, int64_t dim, const void *Qt, const void *K, int64_t ldk, void *S, void *block_max,
                            const int32_t *low, const int32_t *high, const void *next, int64_t next_ld)
{
    score_band(0, 0, width, n, dim, Qt, K, ldk, 1, S, block_max, low, high, next, next_ld);
}

static void step_score_seen_in_order(int width, int64_t n, int64_t dim, const void *Qt, const void *K, int64_t ldk, void *S,
                                     void *block_max, const int32_t *low, const int32_t *high, const void *next, int64_t next_ld)
{
    score_band(1, 0, width, n, dim, Qt, K, ldk, 1, S, block_max, low, high, next, next_ld);
}

#endif
