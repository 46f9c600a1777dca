/* SPDX-License-Identifier: MIT
 *
 * avx512.h - the SIMD layer (see common.h) for AVX-512 F, BW, DQ and VL.  Opens a target pragma, which end.h closes, so that no
 * compiler flag is needed.  With ATTN_EMULATE_AVX512 the intrinsics are SIMDe's, which run on any CPU: a build for tests.
 */
#ifndef ATTN_KERNELS_VEC_AVX512_H
#define ATTN_KERNELS_VEC_AVX512_H

#include "common.h"

#if defined(ATTN_EMULATE_AVX512)
#include "avx512_emulate.h"
#else
#include <immintrin.h>
#define VF_TARGET
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")
#endif
#endif

/* Register tiles of the products: with 32 registers, 8 rows x 3 vectors or 12 x 2 (24 sums). */
#define VF_VECTORS     3
#define VF_ROWS(width) ((width) == 3 ? 8 : 12)
#define VF_MAX_ROWS    12
/* Decode: 16 dot products at a time, and strips of 4 vectors of values for 4 rows. */
#define VF_DOT_SUMS 16
#define VF_STRIP    4
/* A block of scores of a full tile, 192 bytes a key, is 24 KB. */
#define VF_BLOCK_KV(dim_qk, dim_v) ((void)(dim_qk), (void)(dim_v), 128)
#if defined(ATTN_EMULATE_AVX512)
#define VF_PIN(v) (void)(v)
#define VF_FUSED  0
#else
#define VF_PIN(v) __asm__("" : "+v"(v))
#define VF_FUSED  1
#endif

VF_INLINE __m256i load_32_bytes(const void *p) { return _mm256_loadu_si256((const __m256i *)p); }
VF_INLINE __m128i load_16_bytes(const void *p) { return _mm_loadu_si128((const __m128i *)p); }
VF_INLINE __m128i load_8_bytes(const void *p) { return _mm_loadl_epi64((const __m128i *)p); }

#include "chains.h"

#if REAL_BITS == 32

typedef __m512 vf;
typedef __mmask16 vm;
#define VF_LANES 16

VF_INLINE vm part_mask(int64_t count) { return (vm)((1u << count) - 1); }

VF_INLINE vf vf_zero(void) { return _mm512_setzero_ps(); }
VF_INLINE vf vf_set(real x) { return _mm512_set1_ps(x); }
VF_INLINE vf vf_load(const real *p) { return _mm512_loadu_ps(p); }
VF_INLINE void vf_store(real *p, vf v) { _mm512_storeu_ps(p, v); }
VF_INLINE vf vf_load_part(const real *p, int64_t count) { return _mm512_maskz_loadu_ps(part_mask(count), p); }
VF_INLINE void vf_store_part(real *p, vf v, int64_t count) { _mm512_mask_storeu_ps(p, part_mask(count), v); }

VF_INLINE vf vf_add(vf a, vf b) { return _mm512_add_ps(a, b); }
VF_INLINE vf vf_sub(vf a, vf b) { return _mm512_sub_ps(a, b); }
VF_INLINE vf vf_mul(vf a, vf b) { return _mm512_mul_ps(a, b); }
VF_INLINE vf vf_div(vf a, vf b) { return _mm512_div_ps(a, b); }
VF_INLINE vf vf_max(vf a, vf b) { return _mm512_max_ps(a, b); }
VF_INLINE vf vf_min(vf a, vf b) { return _mm512_min_ps(a, b); }
VF_INLINE vf vf_fma(vf a, vf b, vf c) { return _mm512_fmadd_ps(a, b, c); }
VF_INLINE vf vf_power(vf t)
{
    __m512i n = _mm512_castps_si512(t); /* the lowest four bits select a lane; the table holds its eight entries twice */
    __m512i corrections = _mm512_broadcast_i64x4(_mm256_loadu_si256((const __m256i *)(const void *)power_corrections));
    __m512i correction = _mm512_permutexvar_epi32(n, corrections);
    return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_slli_epi32(n, POWER_SHIFT), correction));
}

/* Only for kernels that require AVX512_BF16; as asm, so that the compiler uses the feature nowhere else. */
#define VF_PAIRS
VF_INLINE vf vf_fma_pairs(vf a, vf b, vf c)
{
#if defined(ATTN_EMULATE_AVX512)
    return emulate_dpbf16_ps(c, a, b);
#else
    __asm__("vdpbf16ps %2, %1, %0" : "+v"(c) : "v"(b), "v"(a));
    return c;
#endif
}

VF_INLINE hf hf_fma_pairs(hf a, hf b, hf c)
{
#if defined(ATTN_EMULATE_AVX512)
    return _mm512_castps512_ps256(
        emulate_dpbf16_ps(_mm512_castps256_ps512(c), _mm512_castps256_ps512(a), _mm512_castps256_ps512(b)));
#else
    __asm__("vdpbf16ps %2, %1, %0" : "+v"(c) : "v"(b), "v"(a));
    return c;
#endif
}

VF_INLINE vm vf_gt(vf a, vf b) { return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ); }
VF_INLINE vm vf_ge(vf a, vf b) { return _mm512_cmp_ps_mask(a, b, _CMP_GE_OQ); }
VF_INLINE vm vf_eq(vf a, vf b) { return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ); }
VF_INLINE vm vf_bits(vf v) { return _mm512_test_epi32_mask(_mm512_castps_si512(v), _mm512_castps_si512(v)); }
VF_INLINE vf vf_select(vm mask, vf yes, vf no) { return _mm512_mask_blend_ps(mask, no, yes); }
VF_INLINE vm vf_at_least(const uint32_t *p, uint32_t t)
{
    return _mm512_cmpge_epu32_mask(_mm512_loadu_si512(p), _mm512_set1_epi32((int32_t)t));
}
VF_INLINE vf vf_of_i32(const int32_t *p) { return _mm512_cvtepi32_ps(_mm512_loadu_si512(p)); }
VF_INLINE vf vf_of_half(uint16_t h) { return _mm512_cvtph_ps(_mm256_set1_epi16((int16_t)h)); }
VF_INLINE vf vf_of_nibbles(const uint8_t *p, int upper)
{
    const __m512i x = _mm512_cvtepu8_epi32(load_16_bytes(p));
    return _mm512_cvtepi32_ps(upper ? _mm512_srli_epi32(x, 4) : _mm512_and_si512(x, _mm512_set1_epi32(15)));
}

/* Eight doubles as floats; finite values stay finite. */
VF_INLINE __m256 narrow(const void *p)
{
    const __m512d top = _mm512_set1_pd(FLT_MAX), bottom = _mm512_set1_pd(-FLT_MAX);
    __m512d x = _mm512_loadu_pd(p), near = _mm512_max_pd(bottom, _mm512_min_pd(top, x));
    near = _mm512_mask_blend_pd(_mm512_cmp_pd_mask(x, _mm512_set1_pd(INFINITY), _CMP_EQ_OQ), near, x);
    near = _mm512_mask_blend_pd(_mm512_cmp_pd_mask(x, _mm512_set1_pd(-INFINITY), _CMP_EQ_OQ), near, x);
    return _mm512_cvtpd_ps(near);
}

/* half_of_f8 for 16 bytes. */
VF_INLINE __m256i halves_of_16_f8(attn_dtype dtype, __m128i bytes)
{
    const __m256i x = _mm256_cvtepi8_epi16(bytes), size = _mm256_and_si256(x, _mm256_set1_epi16(0x7f));
    if (dtype == ATTN_F8_E5M2) return _mm256_slli_epi16(x, 8);
    const __m256i nan = _mm256_and_si256(_mm256_add_epi16(size, _mm256_set1_epi16(1)), _mm256_set1_epi16(0x80));
    const __m256i sign = _mm256_and_si256(x, _mm256_set1_epi16(-32768));
    return _mm256_or_si256(sign, _mm256_slli_epi16(_mm256_or_si256(size, nan), 7));
}

VF_INLINE vf vf_load_as(attn_dtype dtype, const void *base, int64_t index)
{
    const char *p = (const char *)base + index * bytes_of(dtype);
    switch (dtype) {
    case ATTN_F32:
        return _mm512_loadu_ps(p);
    case ATTN_F16:
        return _mm512_cvtph_ps(load_32_bytes(p));
    case ATTN_BF16:
        return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(load_32_bytes(p)), 16));
    case ATTN_F64: {
        __m512d low = _mm512_castps_pd(_mm512_castps256_ps512(narrow(p)));
        return _mm512_castpd_ps(_mm512_insertf64x4(low, _mm256_castps_pd(narrow(p + 64)), 1));
    }
    case ATTN_I8:
        return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(load_16_bytes(p)));
    case ATTN_F8_E4M3:
    case ATTN_F8_E5M2:
        return _mm512_mul_ps(_mm512_cvtph_ps(halves_of_16_f8(dtype, load_16_bytes(p))), _mm512_set1_ps(f8_factor(dtype)));
    default:
        return _mm512_castsi512_ps(_mm512_cvtepu8_epi32(load_16_bytes(p)));
    }
}

/* bf16: one shift and one mask for 32 elements. */
#define VF_SPLITS(dtype) ((dtype) == ATTN_BF16)
VF_INLINE void vf_split(vf pairs, vf *x)
{
    __m512i both = _mm512_castps_si512(pairs);
    x[0] = _mm512_castsi512_ps(_mm512_slli_epi32(both, 16));
    x[1] = _mm512_castsi512_ps(_mm512_and_si512(both, _mm512_set1_epi32(-65536)));
}
VF_INLINE void vf_load_two(attn_dtype dtype, const void *base, int64_t index, vf *x)
{
    if (dtype == ATTN_BF16) {
        vf_split(_mm512_loadu_ps((const char *)base + 2 * index), x);
    } else {
        x[0] = vf_load_as(dtype, base, index);
        x[1] = vf_load_as(dtype, base, index + VF_LANES);
    }
}

VF_INLINE vf vf_load_four(const real *p) { return _mm512_broadcast_f32x4(_mm_loadu_ps(p)); }
VF_INLINE vf vf_load_fours(const real *p, const int64_t *at)
{
    __m256 low = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(p + at[0])), _mm_loadu_ps(p + at[1]), 1);
    __m256 high = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(p + at[2])), _mm_loadu_ps(p + at[3]), 1);
    return _mm512_insertf32x8(_mm512_castps256_ps512(low), high, 1);
}
#define vf_of_fours(x, i) _mm512_shuffle_ps(x, x, 0x55 * (i))

VF_INLINE vf vf_sums(const vf *x)
{
    vf a[4], b[2];
    VF_UNROLL
    for (int i = 0; i < 4; i++) {
        const vf *r = x + 4 * i;
        __m512d low = _mm512_castps_pd(_mm512_add_ps(_mm512_unpacklo_ps(r[0], r[1]), _mm512_unpackhi_ps(r[0], r[1])));
        __m512d high = _mm512_castps_pd(_mm512_add_ps(_mm512_unpacklo_ps(r[2], r[3]), _mm512_unpackhi_ps(r[2], r[3])));
        a[i] = _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(low, high)), _mm512_castpd_ps(_mm512_unpackhi_pd(low, high)));
    }
    VF_UNROLL
    for (int i = 0; i < 2; i++)
        b[i] =
            _mm512_add_ps(_mm512_shuffle_f32x4(a[2 * i], a[2 * i + 1], 0x88), _mm512_shuffle_f32x4(a[2 * i], a[2 * i + 1], 0xdd));
    return _mm512_add_ps(_mm512_shuffle_f32x4(b[0], b[1], 0x88), _mm512_shuffle_f32x4(b[0], b[1], 0xdd));
}

VF_INLINE __m256i bf16_of(vf v)
{
    __m512i x = _mm512_castps_si512(v), upper = _mm512_srli_epi32(x, 16);
    __m512i odd = _mm512_and_si512(upper, _mm512_set1_epi32(1));
    __m512i near = _mm512_srli_epi32(_mm512_add_epi32(x, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff))), 16);
    __m512i quiet = _mm512_or_si512(upper, _mm512_set1_epi32(0x40));
    return _mm512_cvtepi32_epi16(_mm512_mask_blend_epi32(_mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q), near, quiet));
}

/* bf16 in the upper half of each lane. */
VF_INLINE __m512i upper_bf16_of(vf v)
{
    const __m512i x = _mm512_castps_si512(v), near = _mm512_add_epi32(x, _mm512_set1_epi32(0x7fff));
    const __m512i even =
        _mm512_mask_add_epi32(near, _mm512_test_epi32_mask(x, _mm512_set1_epi32(0x10000)), near, _mm512_set1_epi32(1));
    return _mm512_mask_or_epi32(even, _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q), x, _mm512_set1_epi32(0x400000));
}

/* Stores what vf_load_two loads. */
#define VF_STORES_TWO 1
VF_INLINE void vf_store_two(void *base, int64_t index, const vf *x)
{
    const __m512i low = _mm512_srli_epi32(upper_bf16_of(x[0]), 16), high = upper_bf16_of(x[1]);
    _mm512_storeu_si512((char *)base + 2 * index, _mm512_mask_blend_epi16(0xaaaaaaaa, low, high));
}

VF_INLINE void vf_store_as(attn_dtype dtype, void *base, int64_t index, vf v)
{
    char *p = (char *)base + index * bytes_of(dtype);
    __m512d bits = _mm512_castps_pd(v);
    switch (dtype) {
    case ATTN_F32:
        _mm512_storeu_ps(p, v);
        break;
    case ATTN_F16:
        _mm256_storeu_si256((__m256i *)(void *)p, _mm512_maskz_cvtps_ph(0xffff, v, _MM_FROUND_TO_NEAREST_INT));
        break;
    case ATTN_BF16:
        _mm256_storeu_si256((__m256i *)(void *)p, bf16_of(v));
        break;
    default:
        _mm512_storeu_pd(p, _mm512_cvtps_pd(_mm256_castpd_ps(_mm512_extractf64x4_pd(bits, 0))));
        _mm512_storeu_pd(p + 64, _mm512_cvtps_pd(_mm256_castpd_ps(_mm512_extractf64x4_pd(bits, 1))));
        break;
    }
}

/* 4x4 blocks within the 128-bit quarters, by unpacking floats and then pairs of them; then the quarters themselves. */
VF_INLINE void vf_transpose(vf *r)
{
    __m512d a[16];
    vf b[16];
    VF_UNROLL
    for (int i = 0; i < 16; i += 2) {
        a[i] = _mm512_castps_pd(_mm512_unpacklo_ps(r[i], r[i + 1]));
        a[i + 1] = _mm512_castps_pd(_mm512_unpackhi_ps(r[i], r[i + 1]));
    }
    VF_UNROLL
    for (int i = 0; i < 16; i += 4) {
        b[i] = _mm512_castpd_ps(_mm512_unpacklo_pd(a[i], a[i + 2]));
        b[i + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a[i], a[i + 2]));
        b[i + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(a[i + 1], a[i + 3]));
        b[i + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(a[i + 1], a[i + 3]));
    }
    VF_UNROLL
    for (int i = 0; i < 4; i++) {
        vf low = _mm512_shuffle_f32x4(b[i], b[i + 4], 0x88), high = _mm512_shuffle_f32x4(b[i + 8], b[i + 12], 0x88);
        vf low2 = _mm512_shuffle_f32x4(b[i], b[i + 4], 0xdd), high2 = _mm512_shuffle_f32x4(b[i + 8], b[i + 12], 0xdd);
        r[i] = _mm512_shuffle_f32x4(low, high, 0x88);
        r[i + 4] = _mm512_shuffle_f32x4(low2, high2, 0x88);
        r[i + 8] = _mm512_shuffle_f32x4(low, high, 0xdd);
        r[i + 12] = _mm512_shuffle_f32x4(low2, high2, 0xdd);
    }
}

#else

typedef __m512d vf;
typedef __mmask8 vm;
#define VF_LANES 8

VF_INLINE vm part_mask(int64_t count) { return (vm)((1u << count) - 1); }

VF_INLINE vf vf_zero(void) { return _mm512_setzero_pd(); }
VF_INLINE vf vf_set(real x) { return _mm512_set1_pd(x); }
VF_INLINE vf vf_load(const real *p) { return _mm512_loadu_pd(p); }
VF_INLINE void vf_store(real *p, vf v) { _mm512_storeu_pd(p, v); }
VF_INLINE vf vf_load_part(const real *p, int64_t count) { return _mm512_maskz_loadu_pd(part_mask(count), p); }
VF_INLINE void vf_store_part(real *p, vf v, int64_t count) { _mm512_mask_storeu_pd(p, part_mask(count), v); }

VF_INLINE vf vf_add(vf a, vf b) { return _mm512_add_pd(a, b); }
VF_INLINE vf vf_sub(vf a, vf b) { return _mm512_sub_pd(a, b); }
VF_INLINE vf vf_mul(vf a, vf b) { return _mm512_mul_pd(a, b); }
VF_INLINE vf vf_div(vf a, vf b) { return _mm512_div_pd(a, b); }
VF_INLINE vf vf_max(vf a, vf b) { return _mm512_max_pd(a, b); }
VF_INLINE vf vf_min(vf a, vf b) { return _mm512_min_pd(a, b); }
VF_INLINE vf vf_fma(vf a, vf b, vf c) { return _mm512_fmadd_pd(a, b, c); }
VF_INLINE vf vf_power(vf t)
{
    __m512i n = _mm512_castpd_si512(t), correction = _mm512_permutexvar_epi64(n, _mm512_loadu_si512(power_corrections));
    return _mm512_castsi512_pd(_mm512_add_epi64(_mm512_slli_epi64(n, POWER_SHIFT), correction));
}

VF_INLINE vm vf_gt(vf a, vf b) { return _mm512_cmp_pd_mask(a, b, _CMP_GT_OQ); }
VF_INLINE vm vf_ge(vf a, vf b) { return _mm512_cmp_pd_mask(a, b, _CMP_GE_OQ); }
VF_INLINE vm vf_eq(vf a, vf b) { return _mm512_cmp_pd_mask(a, b, _CMP_EQ_OQ); }
VF_INLINE vm vf_bits(vf v) { return _mm512_test_epi64_mask(_mm512_castpd_si512(v), _mm512_castpd_si512(v)); }
VF_INLINE vf vf_select(vm mask, vf yes, vf no) { return _mm512_mask_blend_pd(mask, no, yes); }
VF_INLINE vm vf_at_least(const uint32_t *p, uint32_t t)
{
    return _mm512_cmpge_epu64_mask(_mm512_cvtepu32_epi64(_mm256_loadu_si256((const __m256i *)p)), _mm512_set1_epi64(t));
}
VF_INLINE vf vf_of_i32(const int32_t *p) { return _mm512_cvtepi32_pd(load_32_bytes(p)); }

VF_INLINE vf vf_load_as(attn_dtype dtype, const void *base, int64_t index)
{
    const char *p = (const char *)base + index * bytes_of(dtype);
    switch (dtype) {
    case ATTN_F64:
        return _mm512_loadu_pd(p);
    case ATTN_F32:
        return _mm512_cvtps_pd(_mm256_loadu_ps((const float *)(const void *)p));
    case ATTN_F16:
        return _mm512_cvtps_pd(_mm256_cvtph_ps(load_16_bytes(p)));
    case ATTN_BF16:
        return _mm512_cvtps_pd(_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load_16_bytes(p)), 16)));
    default:
        return _mm512_castsi512_pd(_mm512_cvtepu8_epi64(load_8_bytes(p)));
    }
}

#define VF_SPLITS(dtype) ((void)(dtype), 0)
VF_INLINE void vf_load_two(attn_dtype dtype, const void *base, int64_t index, vf *x)
{
    x[0] = vf_load_as(dtype, base, index);
    x[1] = vf_load_as(dtype, base, index + VF_LANES);
}

VF_INLINE vf vf_sums(const vf *x)
{
    vf a[4], b[2];
    VF_UNROLL
    for (int i = 0; i < 4; i++)
        a[i] = _mm512_add_pd(_mm512_unpacklo_pd(x[2 * i], x[2 * i + 1]), _mm512_unpackhi_pd(x[2 * i], x[2 * i + 1]));
    VF_UNROLL
    for (int i = 0; i < 2; i++)
        b[i] =
            _mm512_add_pd(_mm512_shuffle_f64x2(a[2 * i], a[2 * i + 1], 0x88), _mm512_shuffle_f64x2(a[2 * i], a[2 * i + 1], 0xdd));
    return _mm512_add_pd(_mm512_shuffle_f64x2(b[0], b[1], 0x88), _mm512_shuffle_f64x2(b[0], b[1], 0xdd));
}

#if !defined(ATTN_EMULATE_AVX512)
/* Floats rounded to odd: rounding them to 16 bits equals rounding the doubles once.  The nearest float is moved across an inexact
 * double if it is even. */
VF_INLINE __m256 round_to_odd(vf v)
{
    const __m256 near = _mm512_cvtpd_ps(v);
    const vf back = _mm512_cvtps_pd(near), none = _mm512_setzero_pd();
    const vf size = _mm512_max_pd(v, _mm512_sub_pd(none, v)), size_near = _mm512_max_pd(back, _mm512_sub_pd(none, back));
    const __m256i bits = _mm256_castps_si256(near), one = _mm256_set1_epi32(1),
                  odd = _mm256_cmpeq_epi32(_mm256_and_si256(bits, one), one);
    const __m256i below = _mm256_movm_epi32(_mm512_cmp_pd_mask(size_near, size, _CMP_LT_OQ)),
                  above = _mm256_movm_epi32(_mm512_cmp_pd_mask(size_near, size, _CMP_GT_OQ));
    return _mm256_castsi256_ps(
        _mm256_add_epi32(_mm256_sub_epi32(bits, _mm256_andnot_si256(odd, below)), _mm256_andnot_si256(odd, above)));
}

/* Eight floats as bf16, rounded to nearest even. */
VF_INLINE __m128i bf16_of_eight(__m256 v)
{
    const __m256i x = _mm256_castps_si256(v), upper = _mm256_srli_epi32(x, 16);
    const __m256i odd = _mm256_and_si256(upper, _mm256_set1_epi32(1));
    const __m256i near = _mm256_srli_epi32(_mm256_add_epi32(x, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff))), 16);
    const __m256i quiet = _mm256_or_si256(upper, _mm256_set1_epi32(0x40)),
                  nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
    return _mm256_cvtepi32_epi16(_mm256_blendv_epi8(near, quiet, nan));
}
#endif

VF_INLINE void vf_store_as(attn_dtype dtype, void *base, int64_t index, vf v)
{
    if (dtype == ATTN_F64) {
        _mm512_storeu_pd((double *)base + index, v);
    } else if (dtype == ATTN_F32) {
        _mm256_storeu_ps((float *)base + index, _mm512_cvtpd_ps(v));
    } else {
#if defined(ATTN_EMULATE_AVX512)
        real lanes[VF_LANES];
        vf_store(lanes, v);
        for (int i = 0; i < VF_LANES; i++) put_real(dtype, base, index + i, lanes[i]);
#else
        const __m256 odd = round_to_odd(v);
        _mm_storeu_si128((__m128i *)(void *)((uint16_t *)base + index),
                         dtype == ATTN_F16 ? _mm256_cvtps_ph(odd, _MM_FROUND_TO_NEAREST_INT) : bf16_of_eight(odd));
#endif
    }
}

VF_INLINE void vf_transpose(vf *r)
{
    vf a[8];
    VF_UNROLL
    for (int i = 0; i < 8; i += 2) {
        a[i] = _mm512_unpacklo_pd(r[i], r[i + 1]);
        a[i + 1] = _mm512_unpackhi_pd(r[i], r[i + 1]);
    }
    VF_UNROLL
    for (int i = 0; i < 2; i++) {
        vf low = _mm512_shuffle_f64x2(a[i], a[i + 2], 0x88), high = _mm512_shuffle_f64x2(a[i + 4], a[i + 6], 0x88);
        vf low2 = _mm512_shuffle_f64x2(a[i], a[i + 2], 0xdd), high2 = _mm512_shuffle_f64x2(a[i + 4], a[i + 6], 0xdd);
        r[i] = _mm512_shuffle_f64x2(low, high, 0x88);
        r[i + 2] = _mm512_shuffle_f64x2(low2, high2, 0x88);
        r[i + 4] = _mm512_shuffle_f64x2(low, high, 0xdd);
        r[i + 6] = _mm512_shuffle_f64x2(low2, high2, 0xdd);
    }
}

#endif

#if !defined(ATTN_EMULATE_AVX512) /* the emulation uses the plain C versions of dropout_step.inc.c */
#define VU_LANES 8
typedef __m512i vu;
VF_INLINE vu vu_set(uint64_t x) { return _mm512_set1_epi64((long long)x); }
VF_INLINE vu vu_load(const uint64_t *p) { return _mm512_loadu_si512(p); }
VF_INLINE vu vu_xor(vu a, vu b) { return _mm512_xor_si512(a, b); }
VF_INLINE vu vu_multiply(vu a, vu b) { return _mm512_mul_epu32(a, b); }
VF_INLINE vu vu_upper(vu a) { return _mm512_srli_epi64(a, 32); }
VF_INLINE void vu_store_lower(uint32_t *p, vu a) { _mm256_storeu_si256((__m256i *)p, _mm512_cvtepi64_epi32(a)); }
#endif

VF_INLINE vm vm_and(vm a, vm b) { return (vm)(a & b); }
VF_INLINE vm vm_or(vm a, vm b) { return (vm)(a | b); }
VF_INLINE int vm_any(vm a) { return a != 0; }
VF_INLINE int vm_all(vm a) { return a == (1 << VF_LANES) - 1; }

#endif
