/* SPDX-License-Identifier: MIT
 *
 * chains.h - `hf` of avx2.h and avx512.h: 256 bits, with one lane for each chain of an ordered score (common.h).  On AVX2 it is vf;
 * on AVX-512 half of one, since every chain costs a tile one more sum, and two operations of 256 bits take no longer than one of
 * 512 where it matters.
 */
#ifndef ATTN_KERNELS_VEC_CHAINS_H
#define ATTN_KERNELS_VEC_CHAINS_H

#if REAL_BITS == 32

typedef __m256 hf;
#define VF_CHAINS 8

VF_INLINE hf hf_zero(void) { return _mm256_setzero_ps(); }
VF_INLINE hf hf_load(const real *p) { return _mm256_loadu_ps(p); }
VF_INLINE void hf_store(real *p, hf v) { _mm256_storeu_ps(p, v); }
VF_INLINE hf hf_add(hf a, hf b) { return _mm256_add_ps(a, b); }
VF_INLINE hf hf_fma(hf a, hf b, hf c) { return _mm256_fmadd_ps(a, b, c); }
/* half_of_f8 for eight bytes. */
VF_INLINE __m128i halves_of_f8(attn_dtype dtype, __m128i bytes)
{
    if (dtype == ATTN_F8_E5M2) return _mm_unpacklo_epi8(_mm_setzero_si128(), bytes);
    const __m128i x = _mm_cvtepi8_epi16(bytes), size = _mm_and_si128(x, _mm_set1_epi16(0x7f));
    const __m128i nan = _mm_and_si128(_mm_add_epi16(size, _mm_set1_epi16(1)), _mm_set1_epi16(0x80));
    return _mm_or_si128(_mm_and_si128(x, _mm_set1_epi16(-32768)), _mm_slli_epi16(_mm_or_si128(size, nan), 7));
}

VF_INLINE hf hf_load_as(attn_dtype dtype, const void *base, int64_t index)
{
    const char *p = (const char *)base + index * bytes_of(dtype);
    switch (dtype) {
    case ATTN_F32:
        return _mm256_loadu_ps((const float *)(const void *)p);
    case ATTN_F16:
        return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p));
    case ATTN_BF16: {
        __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));
        return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
    }
    case ATTN_F8_E4M3:
    case ATTN_F8_E5M2:
        return _mm256_mul_ps(_mm256_cvtph_ps(halves_of_f8(dtype, _mm_loadl_epi64((const __m128i *)(const void *)p))),
                             _mm256_set1_ps(f8_factor(dtype)));
    default:
        return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p)));
    }
}

VF_INLINE void hf_transpose(hf *r)
{
    hf a[8], b[8];
    VF_UNROLL
    for (int i = 0; i < 8; i += 2) {
        a[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
        a[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
    VF_UNROLL
    for (int i = 0; i < 8; i += 4) {
        b[i] = _mm256_shuffle_ps(a[i], a[i + 2], 0x44);
        b[i + 1] = _mm256_shuffle_ps(a[i], a[i + 2], 0xee);
        b[i + 2] = _mm256_shuffle_ps(a[i + 1], a[i + 3], 0x44);
        b[i + 3] = _mm256_shuffle_ps(a[i + 1], a[i + 3], 0xee);
    }
    VF_UNROLL
    for (int i = 0; i < 4; i++) {
        r[i] = _mm256_permute2f128_ps(b[i], b[i + 4], 0x20);
        r[i + 4] = _mm256_permute2f128_ps(b[i], b[i + 4], 0x31);
    }
}

#else

typedef __m256d hf;
#define VF_CHAINS 4

VF_INLINE hf hf_zero(void) { return _mm256_setzero_pd(); }
VF_INLINE hf hf_load(const real *p) { return _mm256_loadu_pd(p); }
VF_INLINE void hf_store(real *p, hf v) { _mm256_storeu_pd(p, v); }
VF_INLINE hf hf_add(hf a, hf b) { return _mm256_add_pd(a, b); }
VF_INLINE hf hf_fma(hf a, hf b, hf c) { return _mm256_fmadd_pd(a, b, c); }
VF_INLINE hf hf_load_as(attn_dtype dtype, const void *base, int64_t index)
{
    (void)dtype; /* f64 */
    return _mm256_loadu_pd((const double *)base + index);
}

VF_INLINE void hf_transpose(hf *r)
{
    hf a = _mm256_unpacklo_pd(r[0], r[1]), b = _mm256_unpackhi_pd(r[0], r[1]);
    hf c = _mm256_unpacklo_pd(r[2], r[3]), d = _mm256_unpackhi_pd(r[2], r[3]);
    r[0] = _mm256_permute2f128_pd(a, c, 0x20);
    r[1] = _mm256_permute2f128_pd(b, d, 0x20);
    r[2] = _mm256_permute2f128_pd(a, c, 0x31);
    r[3] = _mm256_permute2f128_pd(b, d, 0x31);
}

#endif

#endif
