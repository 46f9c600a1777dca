/* SPDX-License-Identifier: MIT
 *
 * unpack_step.inc.c - rows of the formats that only keys and values have (attn/types.h), as f32.  Included by storage_step.inc.c.
 */
#ifdef VF_LANES

/* The number of an f16.  Its bits moved to the place of f32's are 2^-112 times it. */
VF_INLINE real half_at(const uint8_t *p)
{
    uint16_t half;
    memcpy(&half, p, sizeof half);
    if ((half & 0x7c00) == 0x7c00) return (real)attn_f32_of_f16(half);
    return (real)attn_f32_of_bits((uint32_t)(half & 0x8000) << 16 | (uint32_t)(half & 0x7fff) << 13) * (real)0x1p112;
}

/* Each product is exact in f32, so that it does not matter whether the sum is fused; so is that of q4_0, d * q - d * 8. */
VF_INLINE void unpack_blocks(const attn_dtype dtype, int64_t dim, const uint8_t *x, real *to)
{
    const uint64_t low = UINT64_C(0x0f0f0f0f0f0f0f0f);
    for (int64_t c = 0; c < dim; c += ATTN_BLOCK, x += bytes_of(dtype), to += ATTN_BLOCK) {
        const real scale = half_at(x);
        const vf d = vf_set(scale), m = vf_set(dtype == ATTN_Q4_1 ? half_at(x + 2) : -8 * scale);
        uint64_t q[ATTN_BLOCK / 8];
        if (dtype == ATTN_Q8_0) {
            memcpy(q, x + 2, sizeof q);
        } else {
            uint64_t both[2];
            memcpy(both, x + bytes_of(dtype) - 16, sizeof both);
            for (int i = 0; i < 2; i++) q[i] = both[i] & low, q[i + 2] = both[i] >> 4 & low;
        }
        VF_UNROLL
        for (int i = 0; i < ATTN_BLOCK; i += VF_LANES) {
            const vf y = vf_mul(d, vf_load_as(ATTN_I8, q, i));
            vf_store(to + i, dtype == ATTN_Q8_0 ? y : vf_add(y, m));
        }
    }
}

/* Returns 0 if dtype is none of them. */
static int unpack_rows(int64_t n, int64_t dim, const void *src, attn_dtype dtype, int64_t stride, void *dst, int64_t ld)
{
    if (dtype == ATTN_I8 || dtype == ATTN_F8_E4M3 || dtype == ATTN_F8_E5M2) {
        if (dtype == ATTN_I8) load_rows_as(ATTN_I8, n, dim, src, stride, dst, ld);
        else if (dtype == ATTN_F8_E4M3) load_rows_as(ATTN_F8_E4M3, n, dim, src, stride, dst, ld);
        else load_rows_as(ATTN_F8_E5M2, n, dim, src, stride, dst, ld);
        return 1;
    }
    if (dtype < ATTN_Q8_0) return 0;
    for (int64_t i = 0; i < n; i++) {
        const uint8_t *const row = (const uint8_t *)src + i * stride * bytes_of(dtype);
        real *const to = (real *)dst + i * ld;
        if (dtype == ATTN_Q8_0) unpack_blocks(ATTN_Q8_0, dim, row, to);
        else if (dtype == ATTN_Q4_0) unpack_blocks(ATTN_Q4_0, dim, row, to);
        else unpack_blocks(ATTN_Q4_1, dim, row, to);
    }
    return 1;
}

#endif
