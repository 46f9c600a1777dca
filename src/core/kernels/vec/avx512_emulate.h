/* SPDX-License-Identifier: MIT
 *
 * avx512_emulate.h - AVX-512 intrinsics in plain C, for tests on CPUs that lack it: SIMDe's, plus those missing from its release
 * 0.7.4.
 */
#ifndef ATTN_KERNELS_VEC_AVX512_EMULATE_H
#define ATTN_KERNELS_VEC_AVX512_EMULATE_H

#define SIMDE_ENABLE_NATIVE_ALIASES
#define SIMDE_NO_INLINE
#pragma GCC diagnostic ignored "-Wpsabi" /* wide vectors as arguments, but only of functions of this file */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wshadow"
#pragma GCC diagnostic ignored "-Wsign-conversion"
#include <simde/x86/avx512.h>
#pragma GCC diagnostic pop

/* out_type name(in_type x): converts n elements from type `from` to type `to`. */
#define EMULATE(name, in_type, from, out_type, to, n, convert)                                                                     \
    VF_INLINE out_type emulate_##name(in_type x)                                                                                   \
    {                                                                                                                              \
        from in[n];                                                                                                                \
        to out[n];                                                                                                                 \
        out_type result;                                                                                                           \
        memcpy(in, &x, sizeof in);                                                                                                 \
        for (int i = 0; i < (n); i++) out[i] = (to)convert(in[i]);                                                                 \
        memcpy(&result, out, sizeof result);                                                                                       \
        return result;                                                                                                             \
    }

EMULATE(cvtepi32_ps, __m512i, int32_t, __m512, float, 16, )
EMULATE(cvtepu16_epi32, __m256i, uint16_t, __m512i, int32_t, 16, )
EMULATE(cvtepu8_epi32, __m128i, uint8_t, __m512i, int32_t, 16, )
EMULATE(cvtepi8_epi32, __m128i, int8_t, __m512i, int32_t, 16, )
EMULATE(cvtepu32_epi64, __m256i, uint32_t, __m512i, int64_t, 8, )
EMULATE(cvtepi32_epi16, __m512i, int32_t, __m256i, int16_t, 16, )
EMULATE(cvtph_ps, __m256i, uint16_t, __m512, float, 16, attn_f32_of_f16)
EMULATE(cvtps_ph, __m512, float, __m256i, uint16_t, 16, attn_f16_of_f64)
EMULATE(cvtpd_ps, __m512d, double, __m256, float, 8, )
EMULATE(cvtps_pd, __m256, float, __m512d, double, 8, )
EMULATE(cvtepi32_pd, __m256i, int32_t, __m512d, double, 8, )
EMULATE(cvtps_epi32, __m512, float, __m512i, int32_t, 16, (int32_t)rintf)
EMULATE(cvtepi32_epi8, __m512i, int32_t, __m128i, int8_t, 16, )
EMULATE(cvtph_ps_half, __m128i, uint16_t, __m256, float, 8, attn_f32_of_f16)

VF_INLINE __m512i emulate_cvtepu8_epi64(__m128i x)
{
    uint8_t in[16];
    int64_t out[8];
    __m512i result;
    memcpy(in, &x, sizeof in);
    for (int i = 0; i < 8; i++) out[i] = in[i];
    memcpy(&result, out, sizeof result);
    return result;
}

/* Anything below the smallest normal number becomes 0, with its sign. */
VF_INLINE float emulate_flush(float x) { return fabsf(x) < FLT_MIN ? copysignf(0, x) : x; }

/* In each lane the odd product is added first.  The operands are passed as vectors of floats. */
VF_INLINE __m512 emulate_dpbf16_ps(__m512 sums, __m512 a, __m512 b)
{
    uint16_t x[32], y[32];
    float sum[16];
    __m512 result;
    memcpy(x, &a, sizeof x);
    memcpy(y, &b, sizeof y);
    memcpy(sum, &sums, sizeof sum);
    for (int i = 0; i < 32; i++) {
        const int k = i ^ 1;
        const float p = emulate_flush(attn_f32_of_bf16(x[k])), q = emulate_flush(attn_f32_of_bf16(y[k]));
        sum[i / 2] = emulate_flush(fmaf(p, q, emulate_flush(sum[i / 2])));
    }
    memcpy(&result, sum, sizeof result);
    return result;
}

#define EMULATE_BYTES(bits, type, n)                                                                                               \
    VF_INLINE type emulate_maskz_loadu_epi8_##bits(uint64_t mask, const void *p)                                                   \
    {                                                                                                                              \
        char out[n];                                                                                                               \
        type result;                                                                                                               \
        for (int i = 0; i < (n); i++) out[i] = (char)(mask >> i & 1 ? ((const char *)p)[i] : 0);                                   \
        memcpy(&result, out, sizeof result);                                                                                       \
        return result;                                                                                                             \
    }
#define EMULATE_PARTS(suffix, type, element, n)                                                                                    \
    VF_INLINE type emulate_maskz_loadu_##suffix(unsigned mask, const element *p)                                                   \
    {                                                                                                                              \
        element out[n];                                                                                                            \
        type result;                                                                                                               \
        for (int i = 0; i < (n); i++) out[i] = mask >> i & 1 ? p[i] : 0;                                                           \
        memcpy(&result, out, sizeof result);                                                                                       \
        return result;                                                                                                             \
    }                                                                                                                              \
    VF_INLINE void emulate_mask_storeu_##suffix(element *p, unsigned mask, type x)                                                 \
    {                                                                                                                              \
        element in[n];                                                                                                             \
        memcpy(in, &x, sizeof in);                                                                                                 \
        for (int i = 0; i < (n); i++)                                                                                              \
            if (mask >> i & 1) p[i] = in[i];                                                                                       \
    }
EMULATE_PARTS(ps, __m512, float, 16)
EMULATE_BYTES(512, __m512i, 64)
EMULATE_BYTES(128, __m128i, 16)
EMULATE_PARTS(pd, __m512d, double, 8)

#define _mm512_cvtepi32_ps    emulate_cvtepi32_ps
#define _mm512_cvtepu16_epi32 emulate_cvtepu16_epi32
#define _mm512_cvtepu8_epi32  emulate_cvtepu8_epi32
#define _mm512_cvtepi8_epi32  emulate_cvtepi8_epi32
#define _mm512_cvtepu32_epi64 emulate_cvtepu32_epi64
#define _mm512_cvtepu8_epi64  emulate_cvtepu8_epi64
#define _mm512_cvtepi32_epi16 emulate_cvtepi32_epi16
#define _mm512_cvtph_ps       emulate_cvtph_ps
#define __mmask8              simde__mmask8
#define __mmask16             simde__mmask16
#define _mm512_shuffle_f32x4  simde_mm512_shuffle_f32x4
#define _mm512_shuffle_f64x2  simde_mm512_shuffle_f64x2
#undef _mm512_maskz_cvtps_ph
#define _mm512_maskz_cvtps_ph(mask, x, rounding) emulate_cvtps_ph(x)
#define _mm512_cvtpd_ps                          emulate_cvtpd_ps
#define _mm512_cvtps_pd                          emulate_cvtps_pd
#define _mm512_cvtepi32_pd                       emulate_cvtepi32_pd
#undef _mm256_cvtph_ps
#define _mm256_cvtph_ps         emulate_cvtph_ps_half
#define _mm512_maskz_loadu_ps   emulate_maskz_loadu_ps
#define _mm512_maskz_loadu_pd   emulate_maskz_loadu_pd
#define _mm512_cvtps_epi32      emulate_cvtps_epi32
#define _mm512_cvtepi32_epi8    emulate_cvtepi32_epi8
#define _mm512_maskz_loadu_epi8 emulate_maskz_loadu_epi8_512
#define _mm_maskz_loadu_epi8    emulate_maskz_loadu_epi8_128
#define __mmask64               simde__mmask64
#define _mm512_mask_storeu_ps   emulate_mask_storeu_ps
#define _mm512_mask_storeu_pd   emulate_mask_storeu_pd

#endif
