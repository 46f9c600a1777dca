/* SPDX-License-Identifier: MIT
 *
 * bf16_step.inc.c - scores of queries and keys that are stored in bf16, two channels at a time: a lane, or a number of a row of
 * keys, is a pair of neighbouring channels, moved as 32 bits that only vf_fma_pairs interprets.  Included after forward.inc.c.
 */
#ifdef VF_PAIRS

static void step_pack_pairs(int width, int64_t rows, int64_t dim, const void *q, int64_t stride, void *Qt)
{
    const int64_t pairs = attn_bf16_pairs(dim);
    for (int v = 0; v < width; v++)
        for (int64_t p = 0; p < pairs; p += VF_LANES) {
            vf r[VF_LANES];
            VF_UNROLL
            for (int i = 0; i < VF_LANES; i++)
                r[i] = load_pairs((const char *)q + 2 * least(v * VF_LANES + i, rows - 1) * stride, dim, p);
            vf_transpose(r);
            real *to = (real *)Qt + p * TILE + v * VF_LANES;
            for (int i = 0; i < least(pairs - p, VF_LANES); i++) vf_store(to + i * TILE, r[i]);
        }
}

static void step_load_pairs(int64_t n, int64_t dim, const void *src, int64_t stride, void *dst)
{
    const int64_t pairs = attn_bf16_pairs(dim), whole = dim / 2 / VF_LANES * VF_LANES;
    for (int64_t i = 0; i < n; i++) {
        const char *row = (const char *)src + 2 * i * stride;
        real *to = (real *)dst + i * pairs;
        for (int64_t p = 0; p < whole; p += VF_LANES) vf_store(to + p, vf_load_as(ATTN_F32, row, p));
        if (whole < pairs) vf_store_part(to + whole, load_pairs(row, dim, whole), pairs - whole);
    }
}

static void step_score_pairs(int width, int64_t n, int64_t dim, const void *Qt, const void *K, double scale, void *S,
                             void *block_max, const void *next, int64_t next_ld, const attn_prefetch_hint *beside)
{
    const int64_t pairs = attn_bf16_pairs(dim);
    score_beside(0, 1, width, n, pairs, Qt, K, pairs, scale, S, block_max, next, next_ld, beside);
}

static void step_score_pairs_seen(int width, int64_t n, int64_t dim, const void *Qt, const void *K, double scale, void *S,
                                  void *block_max, const int32_t *low, const int32_t *high, const void *next, int64_t next_ld)
{
    const int64_t pairs = attn_bf16_pairs(dim);
    score_band(0, 1, width, n, pairs, Qt, K, pairs, scale, S, block_max, low, high, next, next_ld);
}

static void step_score_pairs_in_order(int width, int64_t n, int64_t dim, const void *Qt, const void *K, double scale, void *S,
                                      void *block_max, const void *next, int64_t next_ld, const attn_prefetch_hint *beside)
{
    const int64_t pairs = attn_bf16_pairs(dim);
    score_beside(1, 1, width, n, pairs, Qt, K, pairs, scale, S, block_max, next, next_ld, beside);
}

static void step_score_pairs_seen_in_order(int width, int64_t n, int64_t dim, const void *Qt, const void *K, double scale, void *S,
                                           void *block_max, const int32_t *low, const int32_t *high, const void *next,
                                           int64_t next_ld)
{
    const int64_t pairs = attn_bf16_pairs(dim);
    score_band(1, 1, width, n, pairs, Qt, K, pairs, scale, S, block_max, low, high, next, next_ld);
}

#define ATTN_PAIRS_PART                                                                                                            \
    {                                                                                                                              \
        ATTN_TILE_SHAPE, step_pack_pairs, step_load_pairs, step_score_pairs, step_score_pairs_seen, step_score_pairs_in_order,     \
            step_score_pairs_seen_in_order                                                                                         \
    }

#endif
