/* SPDX-License-Identifier: MIT
 *
 * decode_pairs_step.inc.c - decode's scores of queries and keys that are stored in bf16, two channels at a time (vf_fma_pairs): a
 * lane is a pair of neighbouring channels, as in memory.  Included after decode.inc.c.
 */
#ifdef VF_PAIRS

static void step_pack_pair_rows(int64_t rows, int64_t dim, const void *q, int64_t stride, void *Q, int64_t ldq)
{
    const int64_t pairs = attn_bf16_pairs(dim);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t p = 0; p < pairs; p += VF_LANES)
            vf_store((real *)Q + i * ldq + p, load_pairs((const char *)q + 2 * i * stride, dim, p));
}

/* As dot_tile.  Keys that come from memory are prefetched in two pages at a time, and twice for few rows: there are so few
 * instructions between two lines that the address arithmetic pays off, which it does not if keys come from a cache. */
VF_INLINE void pair_tile(const int rows, const int whole, int64_t keys, int64_t dim, const real *Q, int64_t ldq, const char *K,
                         int64_t ldk, real *S, int64_t lds, uintptr_t fetch, const int streaming)
{
    const int n = VF_DOT_SUMS / rows;
    const prefetch_order next = prefetch_order_of(streaming, fetch, streaming && rows <= 2, ldk == dim, 2 * ldk);
    vf acc[VF_DOT_SUMS];
    VF_UNROLL
    for (int i = 0; i < VF_DOT_SUMS; i++) acc[i] = vf_zero();
#define KEY(k) (K + 2 * (whole ? (k) : least(k, keys - 1)) * ldk)
#define ADD(row_at, load)                                                                                                          \
    do {                                                                                                                           \
        vf y[4];                                                                                                                   \
        VF_UNROLL                                                                                                                  \
        for (int r = 0; r < rows; r++) y[r] = vf_load(Q + r * ldq + (row_at));                                                     \
        VF_UNROLL                                                                                                                  \
        for (int k = 0; k < n; k++) {                                                                                              \
            const vf x = (load);                                                                                                   \
            VF_UNROLL                                                                                                              \
            for (int r = 0; r < rows; r++) acc[r * n + k] = vf_fma_pairs(x, y[r], acc[r * n + k]);                                 \
        }                                                                                                                          \
    } while (0)
    int64_t p = 0;
    VF_ROLLED
    for (; 2 * (p + VF_LANES) <= dim; p += VF_LANES) {
        prefetch_in_step(&next, K, 4 * p, n, 4 * VF_LANES, 0, 1);
        ADD(p, vf_load_as(ATTN_F32, KEY(k), p));
    }
    if (2 * p < dim) ADD(p, load_pairs(KEY(k), dim, p));
#undef ADD
#undef KEY
    store_dots(rows, whole, keys, acc, S, lds);
}

VF_INLINE void pair_rows(const int rows, int64_t first, int64_t n, int64_t dim, const real *Q, int64_t ldq, const char *K,
                         int64_t ldk, real *S, int64_t lds, uintptr_t fetch, const int streaming)
{
    const int64_t each = VF_DOT_SUMS / rows;
    int64_t j = 0;
    if (ATTN_TRAINS) VF_ROLLED
    for (; j + each <= n; j += each)
        pair_tile(rows, 1, each, dim, Q + first * ldq, ldq, K + 2 * j * ldk, ldk, S + first * lds + j, lds, fetch, streaming);
    VF_ROLLED
    for (; j < n; j += each)
        pair_tile(rows, 0, least(n - j, each), dim, Q + first * ldq, ldq, K + 2 * j * ldk, ldk, S + first * lds + j, lds, fetch,
                  streaming);
}

static void step_pair_dots(int64_t rows, int64_t n, int64_t dim, const void *Q, int64_t ldq, const void *K, int64_t ldk, void *S,
                           int64_t lds, int64_t fetch, int streaming)
{
    EACH_ROWS_OF(pair_rows, streaming, rows, n, dim, Q, ldq, K, ldk, S, lds, (uintptr_t)fetch);
}

static void step_scale_pair_row(int64_t n, void *S, double scale)
{
    const vf factor = vf_set((real)scale);
    for (int64_t j = 0; j < n; j += VF_LANES) {
        const int64_t count = least(n - j, VF_LANES);
        real *s = (real *)S + j;
        vf_store_part(s, vf_mul(factor, vf_load_part(s, count)), count);
    }
}

static void step_ordered_pair_scores(int64_t rows, int64_t n, int64_t dim, const void *Q, int64_t ldq, const void *K, int64_t ldk,
                                     void *S, int64_t lds, int64_t fetch, int streaming)
{
    EACH_ROWS_OF(chain_tiles, streaming, rows, 1, ATTN_BF16, n, dim, Q, ldq, K, ldk, S, lds, (uintptr_t)fetch);
}

#define ATTN_DECODE_PAIRS_PART                                                                                                     \
    {                                                                                                                              \
        ATTN_TILE_SHAPE, step_pack_pair_rows, step_pair_dots, step_ordered_pair_scores, step_scale_pair_row                        \
    }

#endif
