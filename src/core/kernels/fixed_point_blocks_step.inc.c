/* SPDX-License-Identifier: MIT
 *
 * fixed_point_blocks_step.inc.c - decode over keys and values of blocks (attn/types.h): scores in integers, as those of i8 keys,
 * and values in f32.  Included by avx512/fixed_point_f32.c after fixed_point_step.inc.c.
 */
#ifdef VF_LANES

/* ---- scores of blocks ---- */

/* What place `place` of `places` prefetches of `bytes` bytes of each of FIXED_POINT_KEYS rows from p on. */
VF_INLINE void prefetch_share_of_rows(const prefetch_order *next, const char *p, int64_t stride, const int bytes, const int place,
                                      const int places)
{
    VF_UNROLL
    for (int k = place * FIXED_POINT_KEYS / places; k < (place + 1) * FIXED_POINT_KEYS / places; k++)
        prefetch(next, (uintptr_t)(p + k * stride), bytes);
}

/* The channels of a block have the same scale: their products are summed as integers, and the sums of the limbs converted once. */
VF_INLINE void block_dot_tile(const attn_dtype dtype, const int rows, const int full, int64_t keys, int64_t dim, const char *fixed,
                              int64_t ldd, const char *K, int64_t stride, real *S, int64_t lds, uintptr_t fetch)
{
    enum { KEYS = FIXED_POINT_KEYS };
    const int dense = stride == dim / ATTN_BLOCK * bytes_of(dtype), bytes = KEYS * (int)bytes_of(dtype);
    const prefetch_order next = {.distance = fetch};
    uintptr_t ahead = (uintptr_t)K;
    const int zero = dtype == ATTN_Q8_0 ? 128 : dtype == ATTN_Q4_0 ? 8 : 0; /* what is added to the steps of a key */
    const int64_t sums = LIMBS * ATTN_FIXED_POINT_PLANE(dim);
    const char *at = fixed + ATTN_FIXED_POINT_HEAD;
    vf sum[4];
    VF_UNROLL
    for (int r = 0; r < rows; r++) sum[r] = vf_zero();
    VF_ROLLED
    for (int64_t c = 0; c < dim; c += ATTN_BLOCK, K += bytes_of(dtype), at += LIMBS * ATTN_BLOCK) {
        vi x[8];
        load_blocks(dtype, full, K, stride, keys, x);
        const vf d = load_halves(full, K, stride, keys), m = dtype == ATTN_Q4_1 ? load_halves(full, K + 2, stride, keys) : d;
        VF_UNROLL
        for (int r = 0; r < rows; r++) {
            int32_t whole; /* below 2^28 */
            memcpy(&whole, fixed + r * ldd + ATTN_FIXED_POINT_HEAD + sums + c / ATTN_BLOCK * (int64_t)sizeof whole, sizeof whole);
            /* What was added to the steps is taken from the lower two limbs and from the upper one. */
            const int32_t upper = whole >> 16;
            vi acc[LIMBS] = {vi_set(-zero * (whole - upper * 65536)), vi_set(0), vi_set(-zero * upper)};
            VF_UNROLL
            for (int i = 0; i < 8; i++) {
                VF_UNROLL
                for (int l = 0; l < LIMBS; l++) acc[l] = vi_dot(acc[l], x[i], vi_set_bytes(at + r * ldd + (i * LIMBS + l) * 4));
            }
            sum[r] = vf_fma(d, vi_whole(acc), sum[r]);
            if (dense) prefetch_share(&next, ahead, bytes, r, rows);
            else prefetch_share_of_rows(&next, K, stride, (int)bytes_of(dtype), r, rows);
            if (dtype == ATTN_Q4_1) sum[r] = vf_fma(m, vf_set((real)whole), sum[r]);
        }
        ahead += (uintptr_t)bytes;
    }
    VF_UNROLL
    for (int r = 0; r < rows; r++) {
        const vf unit = vf_set(((const fixed_point_head *)(const void *)(fixed + r * ldd))->unit);
        vf_store_part(S + r * lds, vf_mul(sum[r], unit), full ? FIXED_POINT_KEYS : keys);
    }
}

VF_INLINE void block_dot_rows(const int rows, int64_t first, const attn_dtype dtype, int64_t n, int64_t dim, const char *fixed,
                              int64_t ldd, const char *K, int64_t stride, real *S, int64_t lds, uintptr_t fetch)
{
    int64_t j = 0;
    fixed += first * ldd;
    S += first * lds;
#ifdef ATTN_INFERENCE_ONLY /* one version of the loop, 13 KB less */
    VF_ROLLED
    for (; j < n; j += FIXED_POINT_KEYS) {
        const int64_t some = least(n - j, FIXED_POINT_KEYS);
        block_dot_tile(dtype, rows, some == FIXED_POINT_KEYS, some, dim, fixed, ldd, K + j * stride, stride, S + j, lds, fetch);
    }
#else
    VF_ROLLED
    for (; j + FIXED_POINT_KEYS <= n; j += FIXED_POINT_KEYS)
        block_dot_tile(dtype, rows, 1, FIXED_POINT_KEYS, dim, fixed, ldd, K + j * stride, stride, S + j, lds, fetch);
    if (j < n) block_dot_tile(dtype, rows, 0, n - j, dim, fixed, ldd, K + j * stride, stride, S + j, lds, fetch);
#endif
}

/* A function for each format. */
#define BLOCK_DOTS(name, dtype)                                                                                                    \
    static VF_NOINLINE void name(int64_t rows, int64_t n, int64_t dim, const char *fixed, int64_t ldd, const char *K,              \
                                 int64_t stride, real *S, int64_t lds, uintptr_t fetch)                                            \
    {                                                                                                                              \
        EACH_ROWS(block_dot_rows, rows, dtype, n, dim, fixed, ldd, K, stride, S, lds, fetch);                                      \
    }
BLOCK_DOTS(dots_of_q8_0, ATTN_Q8_0)
BLOCK_DOTS(dots_of_q4_0, ATTN_Q4_0)
BLOCK_DOTS(dots_of_q4_1, ATTN_Q4_1)

static void step_block_dots(int64_t rows, int64_t n, int64_t dim, const void *fixed, int64_t ldd, const void *K, attn_dtype dtype,
                            int64_t ldk, void *S, int64_t lds, int64_t fetch)
{
    (dtype == ATTN_Q8_0   ? dots_of_q8_0
     : dtype == ATTN_Q4_0 ? dots_of_q4_0
                          : dots_of_q4_1)(rows, n, dim, fixed, ldd, K, ldk * bytes_of(dtype), S, lds, (uintptr_t)fetch);
}

/* ---- values of blocks, in f32 ---- */

/* One or two blocks of each of up to FIXED_POINT_KEYS values: chains over the keys, as in value_strip.  What is prefetched are the
 * bytes from `ahead` on, as many as are read, or those `ahead` bytes after each value. */
VF_INLINE void block_value_strip(const attn_dtype dtype, const int rows, const int blocks, const int full, int64_t n, const real *P,
                                 int64_t ldp, const char *V, int64_t stride, real *O, int64_t ldo, const int ahead_is_dense,
                                 uintptr_t ahead)
{
    enum { KEYS = FIXED_POINT_KEYS };
    const int bytes = blocks * (int)bytes_of(dtype), lines = (KEYS * bytes + LINE - 1) / LINE;
    const prefetch_order next = {.distance = ahead};
    real d[2][FIXED_POINT_KEYS], m[2][FIXED_POINT_KEYS];
    vf acc[4][4];
    VF_UNROLL
    for (int b = 0; b < blocks; b++) {
        vf_store(d[b], load_halves(full, V + b * bytes_of(dtype), stride, n));
        if (dtype == ATTN_Q4_1) vf_store(m[b], load_halves(full, V + b * bytes_of(dtype) + 2, stride, n));
    }
    VF_UNROLL
    for (int r = 0; r < rows; r++) {
        VF_UNROLL
        for (int w = 0; w < 2 * blocks; w++) acc[r][w] = vf_load(O + r * ldo + w * VF_LANES);
    }
    VF_ROLLED
    for (int64_t j = 0; j < n; j++) {
        vf x[4];
        if (!ahead_is_dense) prefetch(&next, (uintptr_t)(V + j * stride), bytes);
        else if (j < lines) prefetch(&next, (uintptr_t)(j * LINE), LINE);
        if (ahead_is_dense && j < lines - KEYS) prefetch(&next, (uintptr_t)((j + KEYS) * LINE), LINE);
        VF_UNROLL
        for (int b = 0; b < blocks; b++)
            values_of_block(dtype, V + j * stride + b * bytes_of(dtype), vf_set(d[b][j]),
                            dtype == ATTN_Q4_1 ? vf_set(m[b][j]) : vf_zero(), x + 2 * b);
        VF_UNROLL
        for (int r = 0; r < rows; r++) {
            const vf p = vf_set(P[r * ldp + j]);
            VF_UNROLL
            for (int w = 0; w < 2 * blocks; w++) acc[r][w] = vf_fma(p, x[w], acc[r][w]);
        }
    }
    VF_UNROLL
    for (int r = 0; r < rows; r++) {
        VF_UNROLL
        for (int w = 0; w < 2 * blocks; w++) vf_store(O + r * ldo + w * VF_LANES, acc[r][w]);
    }
}

VF_INLINE void block_value_rows(const int rows, int64_t first, const attn_dtype dtype, int64_t n, int64_t dim_v, const real *P,
                                int64_t ldp, const char *V, int64_t stride, real *O, int64_t ldo, uintptr_t fetch)
{
    const int64_t bytes = bytes_of(dtype);
    P += first * ldp;
    O += first * ldo;
    VF_ROLLED
    for (int64_t j = 0; j < n; j += FIXED_POINT_KEYS) {
        const int64_t some = least(n - j, FIXED_POINT_KEYS);
        const char *const v = V + j * stride;
        int64_t c = 0;
#define STRIP(blocks, full, dense, ahead)                                                                                          \
    block_value_strip(dtype, rows, blocks, full, some, P + j, ldp, v + c / ATTN_BLOCK * bytes, stride, O + c, ldo, dense, ahead)
        const int dense = some == FIXED_POINT_KEYS && stride == dim_v / ATTN_BLOCK * bytes;
#define AHEAD ((uintptr_t)v + fetch + (uintptr_t)(c / ATTN_BLOCK * bytes * FIXED_POINT_KEYS))
#ifdef ATTN_INFERENCE_ONLY
        VF_ROLLED
        for (; c + 2 * ATTN_BLOCK <= dim_v; c += 2 * ATTN_BLOCK) STRIP(2, dense, dense, dense ? AHEAD : fetch);
#else
        if (dense) VF_ROLLED
        for (; c + 2 * ATTN_BLOCK <= dim_v; c += 2 * ATTN_BLOCK) STRIP(2, 1, 1, AHEAD);
        VF_ROLLED
        for (; c + 2 * ATTN_BLOCK <= dim_v; c += 2 * ATTN_BLOCK) STRIP(2, 0, 0, fetch);
#endif
        if (c < dim_v) STRIP(1, 0, 0, fetch);
#undef AHEAD
#undef STRIP
    }
}

#define BLOCK_VALUES(name, dtype)                                                                                                  \
    static VF_NOINLINE void name(int64_t rows, int64_t n, int64_t dim_v, const real *P, int64_t ldp, const char *V,                \
                                 int64_t stride, real *O, int64_t ldo, uintptr_t fetch)                                            \
    {                                                                                                                              \
        EACH_ROWS(block_value_rows, rows, dtype, n, dim_v, P, ldp, V, stride, O, ldo, fetch);                                      \
    }
BLOCK_VALUES(values_of_q8_0, ATTN_Q8_0)
BLOCK_VALUES(values_of_q4_0, ATTN_Q4_0)
BLOCK_VALUES(values_of_q4_1, ATTN_Q4_1)

static void step_block_values(int64_t rows, int64_t n, int64_t dim_v, const void *P, int64_t ldp, const void *V, attn_dtype dtype,
                              int64_t ldv, void *O, int64_t ldo, int64_t fetch)
{
    (dtype == ATTN_Q8_0   ? values_of_q8_0
     : dtype == ATTN_Q4_0 ? values_of_q4_0
                          : values_of_q4_1)(rows, n, dim_v, P, ldp, V, ldv * bytes_of(dtype), O, ldo, (uintptr_t)fetch);
}

#endif
