/* SPDX-License-Identifier: MIT
 *
 * fixed_point_step.inc.c - i8 keys and values used as integers: queries and weights become integers too, of 24 bits relative to
 * their row's largest, cut into three limbs of 8 bits, so that every product and every sum is exact.  Included by
 * avx512/fixed_point_f32.c after decode.inc.c, for CPUs that sum products of bytes (vec/avx512_fixed_point.h).
 *
 * Three limbs per byte of a key take 3/4 of the instructions of products in f32, and nothing is converted (lab/decode/README.md).
 * The error of the results: docs/numerics.md.
 */
#ifdef VF_LANES

enum { LIMBS = ATTN_FIXED_POINT_LIMBS };

/* The head of a fixed-point row. */
typedef struct fixed_point_head {
    float unit;           /* of the integers: a power of 2 */
    int32_t start[LIMBS]; /* for queries: -128 times the sum of the limbs, since keys are read as key + 128 */
    char rest[ATTN_FIXED_POINT_HEAD - 16];
} fixed_point_head;

/* Returns 1 with *factor = 2^shift and its inverse in *unit, if a row whose largest absolute value has these bits can be such
 * integers; smaller ones would need factors beyond the range of f32. */
static int fixed_point_factor(uint32_t bits, int bits_of_max, float *factor, float *unit)
{
    const uint32_t infinite = UINT32_C(0x7f800000), tiny = UINT32_C(0x12000000); /* 2^-91 */
    if (bits >= infinite || (bits && bits < tiny)) return 0;
    const int shift = bits ? bits_of_max - 1 + 127 - (int)(bits >> 23) : 0;
    const uint32_t up = (uint32_t)(127 + shift) << 23, down = (uint32_t)(127 - shift) << 23;
    memcpy(factor, &up, sizeof up);
    memcpy(unit, &down, sizeof down);
    return 1;
}

/* ---- scores ---- */

/* The sums of the integers of each ATTN_BLOCK channels, for blocks. */
static int32_t *sums_of_query(int64_t dim, void *fixed)
{
    return (int32_t *)(void *)((char *)fixed + ATTN_FIXED_POINT_HEAD + LIMBS * ATTN_FIXED_POINT_PLANE(dim));
}

/* Limbs from -128 to 127, in groups of four channels: limb d of channel c at (c/4*3 + d)*4 + c%4. */
static int step_convert_query(int64_t dim, const void *Q, void *fixed)
{
    const int32_t largest_integer = 127 * 65536 + 127 * 256 + 127;
    const real *q = Q;
    fixed_point_head *head = fixed;
    char *at = (char *)fixed + ATTN_FIXED_POINT_HEAD;
    float factor, most;
    uint32_t bits = 0; /* of the largest absolute value; those of NaN are larger still */
    memset(fixed, 0, (size_t)ATTN_FIXED_POINT_BYTES(dim));
    for (int64_t c = 0; c < dim; c++) {
        uint32_t size;
        memcpy(&size, q + c, sizeof size);
        size &= UINT32_C(0x7fffffff);
        bits = size > bits ? size : bits;
    }
    memcpy(&most, &bits, sizeof most);
    if (!fixed_point_factor(bits, 23, &factor, &head->unit)) return 0;
    if (most * factor > (real)largest_integer) factor /= 2, head->unit *= 2;
    for (int64_t c = 0; c < dim; c++) {
        int32_t rest = (int32_t)rint((double)(q[c] * factor));
        sums_of_query(dim, fixed)[c / ATTN_BLOCK] += rest;
        for (int d = 0; d < LIMBS; d++) {
            const int32_t limb = ((rest + 128) & 255) - 128;
            at[(c / 4 * LIMBS + d) * 4 + c % 4] = (char)limb;
            head->start[d] -= 128 * limb;
            rest = (rest - limb) / 256; /* exact */
        }
    }
    return 1;
}

VF_INLINE void fixed_point_dot_tile(const int rows, const int full, int64_t keys, int64_t dim, const char *fixed, int64_t ldd,
                                    const char *K, int64_t ldk, real *S, int64_t lds, uintptr_t fetch)
{
    const int dense = ldk == dim;
    const prefetch_order next = {.distance = fetch};
    vi acc[4][LIMBS];
    VF_UNROLL
    for (int r = 0; r < rows; r++) {
        VF_UNROLL
        for (int d = 0; d < LIMBS; d++) acc[r][d] = vi_set(((const fixed_point_head *)(const void *)(fixed + r * ldd))->start[d]);
    }
    const char *at = fixed + ATTN_FIXED_POINT_HEAD;
    VF_ROLLED
    for (int64_t c = 0; c < dim; c += FIXED_POINT_CHANNELS, at += FIXED_POINT_CHANNELS * LIMBS) {
        vi x[4];
        if (full && dim - c >= FIXED_POINT_CHANNELS) load_keys(1, K + c, ldk, keys, FIXED_POINT_CHANNELS, x);
        else load_keys(0, K + c, ldk, keys, least(dim - c, FIXED_POINT_CHANNELS), x);
        if (dense) {
            prefetch(&next, (uintptr_t)(K + c * FIXED_POINT_KEYS), FIXED_POINT_KEYS * FIXED_POINT_CHANNELS);
        } else { /* one line of each of four keys, the same line for four steps */
            VF_UNROLL
            for (int k = 0; k < 4; k++)
                prefetch(&next, (uintptr_t)(K + (c / FIXED_POINT_CHANNELS % 4 * 4 + k) * ldk + c / LINE * LINE), LINE);
        }
        VF_UNROLL
        for (int i = 0; i < 4; i++) {
            VF_UNROLL
            for (int r = 0; r < rows; r++) {
                VF_UNROLL
                for (int d = 0; d < LIMBS; d++)
                    acc[r][d] = vi_dot(acc[r][d], x[i], vi_set_bytes(at + r * ldd + (i * LIMBS + d) * 4));
            }
        }
    }
    VF_UNROLL
    for (int r = 0; r < rows; r++) {
        const vf unit = vf_set(((const fixed_point_head *)(const void *)(fixed + r * ldd))->unit);
        vf_store_part(S + r * lds, vf_mul(vi_value(acc[r]), unit), full ? FIXED_POINT_KEYS : keys);
    }
}

VF_INLINE void fixed_point_dot_rows(const int rows, int64_t first, int64_t n, int64_t dim, const char *fixed, int64_t ldd,
                                    const char *K, int64_t ldk, real *S, int64_t lds, uintptr_t fetch)
{
    int64_t j = 0;
    fixed += first * ldd;
    S += first * lds;
    VF_ROLLED
    for (; j + FIXED_POINT_KEYS <= n; j += FIXED_POINT_KEYS)
        fixed_point_dot_tile(rows, 1, FIXED_POINT_KEYS, dim, fixed, ldd, K + j * ldk, ldk, S + j, lds, fetch);
    if (j < n) fixed_point_dot_tile(rows, 0, n - j, dim, fixed, ldd, K + j * ldk, ldk, S + j, lds, fetch);
}

static void step_fixed_point_dots(int64_t rows, int64_t n, int64_t dim, const void *fixed, int64_t ldd, const void *K, int64_t ldk,
                                  void *S, int64_t lds, int64_t fetch)
{
    EACH_ROWS(fixed_point_dot_rows, rows, n, dim, fixed, ldd, K, ldk, S, lds, (uintptr_t)fetch);
}

/* ---- values ---- */

/* Limbs from 0 to 255: limb d of key j at d * plane + j. */
static int64_t plane_of(int64_t ldd) { return (ldd - ATTN_FIXED_POINT_HEAD) / LIMBS / 64 * 64; }

static int step_convert_weights(int64_t n, const void *P, void *fixed, int64_t ldd)
{
    const real *p = P;
    const int64_t plane = plane_of(ldd);
    char *at = (char *)fixed + ATTN_FIXED_POINT_HEAD;
    float factor;
    if (!fixed_point_factor(max_bits(p, n), 24, &factor, &((fixed_point_head *)fixed)->unit))
        return 0; /* a sign is the highest bit */
    for (int64_t j = 0; j < n; j += VF_LANES)
        store_limbs(at + j, plane, vf_mul(vf_load_part(p + j, least(n - j, VF_LANES)), vf_set(factor)));
    return 1;
}

VF_INLINE void fixed_point_value_strip(const int rows, const int full, int64_t n, int64_t channels, const char *fixed, int64_t ldd,
                                       const char *V, int64_t ldv, int32_t *sums, int64_t lds, const prefetch_order *next,
                                       uintptr_t next_at, int lines)
{
    const int64_t plane = plane_of(ldd);
    vi acc[2][LIMBS][4];
    VF_UNROLL
    for (int r = 0; r < rows; r++) {
        VF_UNROLL
        for (int d = 0; d < LIMBS; d++) {
            VF_UNROLL
            for (int i = 0; i < 4; i++) acc[r][d][i] = vi_load(sums + (r * LIMBS + d) * lds + i * VF_LANES);
        }
    }
    VF_ROLLED
    for (int64_t j = 0; j < n; j += 4) {
        vi x[4];
        if (full && n - j >= 4) load_values(1, V + j * ldv, ldv, 4, FIXED_POINT_STRIP, x);
        else load_values(0, V + j * ldv, ldv, n - j, channels, x);
        VF_UNROLL
        for (int k = 0; k < lines; k++) prefetch(next, next_at + (uintptr_t)((j * lines / 4 + k) * next->ld), LINE);
        VF_UNROLL
        for (int r = 0; r < rows; r++) {
            VF_UNROLL
            for (int d = 0; d < LIMBS; d++) {
                const vi p = vi_set_bytes(fixed + r * ldd + d * plane + j);
                VF_UNROLL
                for (int i = 0; i < 4; i++) acc[r][d][i] = vi_dot(acc[r][d][i], p, x[i]);
            }
        }
    }
    VF_UNROLL
    for (int r = 0; r < rows; r++) {
        VF_UNROLL
        for (int d = 0; d < LIMBS; d++) {
            VF_UNROLL
            for (int i = 0; i < 4; i++) vi_store(sums + (r * LIMBS + d) * lds + i * VF_LANES, acc[r][d][i]);
        }
    }
}

static void step_fixed_point_values(int64_t rows, int64_t n, int64_t dim_v, const void *fixed, int64_t ldd, int64_t first,
                                    const void *V, int64_t ldv, void *sums, int64_t fetch)
{
    const int64_t lds = (dim_v + FIXED_POINT_STRIP - 1) / FIXED_POINT_STRIP * FIXED_POINT_STRIP;
    const int dense = ldv == dim_v;
    const prefetch_order next = {.distance = (uintptr_t)fetch, .ld = dense ? LINE : ldv};
    const int64_t passes = (rows + 1) / 2;
    for (int64_t c = 0; c < dim_v; c += FIXED_POINT_STRIP)
        for (int64_t pass = 0; pass < passes; pass++) {
            const int64_t r = 2 * pass;
            const char *at = (const char *)fixed + ATTN_FIXED_POINT_HEAD + r * ldd + first, *v = (const char *)V + c;
            int32_t *s = (int32_t *)sums + r * LIMBS * lds + c;
            /* The passes over a strip share its prefetches: `lines` lines for each four keys. */
            const int lines = passes == 1 ? 4 : passes == 2 ? 2 : pass < 4;
            const uintptr_t next_at = (uintptr_t)V + (uintptr_t)(dense ? c * n : c) + (uintptr_t)(pass * n * lines / 4 * next.ld);
#define STRIP(rows, full, lines) fixed_point_value_strip(rows, full, n, dim_v - c, at, ldd, v, ldv, s, lds, &next, next_at, lines)
            if (rows - r == 1) STRIP(1, 0, lines);
            else if (dim_v - c < FIXED_POINT_STRIP) STRIP(2, 0, lines);
            else if (passes == 2) STRIP(2, 1, 2);
            else STRIP(2, 1, lines);
#undef STRIP
        }
}

static void step_fixed_point_output(int64_t dim_v, const void *fixed, const void *sums, void *O, int64_t ldo)
{
    const int64_t lds = (dim_v + FIXED_POINT_STRIP - 1) / FIXED_POINT_STRIP * FIXED_POINT_STRIP;
    const vf unit = vf_set(((const fixed_point_head *)fixed)->unit);
    for (int64_t c = 0; c < dim_v; c += FIXED_POINT_STRIP) {
        vf x[4];
        VF_UNROLL
        for (int i = 0; i < 4; i++) {
            vi each[LIMBS];
            VF_UNROLL
            for (int d = 0; d < LIMBS; d++) each[d] = vi_load((const int32_t *)sums + d * lds + c + i * VF_LANES);
            x[i] = vf_mul(vi_value(each), unit);
        }
        in_order(x);
        VF_UNROLL
        for (int i = 0; i < 4; i++)
            if (c + i * VF_LANES < ldo) vf_store((real *)O + c + i * VF_LANES, x[i]);
    }
}

#define ATTN_FIXED_POINT_PART                                                                                                      \
    {                                                                                                                              \
        .shape = ATTN_TILE_SHAPE, .convert_query = step_convert_query, .dots = step_fixed_point_dots,                              \
        .block_dots = step_block_dots, .block_values = step_block_values, .convert_weights = step_convert_weights,                 \
        .add_values = step_fixed_point_values, .output = step_fixed_point_output,                                                  \
    }

#endif
