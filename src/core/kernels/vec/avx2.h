/* SPDX-License-Identifier: MIT
 *
 * avx2.h - the SIMD layer (see common.h) for AVX2 with FMA and F16C.  Opens a target pragma, which end.h closes, so that no
 * compiler flag is needed.
 */
#ifndef ATTN_KERNELS_VEC_AVX2_H
#define ATTN_KERNELS_VEC_AVX2_H

#include "common.h"

#include <immintrin.h>

#define VF_TARGET
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")
#endif

/* Register tiles of the products: with 16 registers, 4 rows x 3 vectors (12 sums, 3 loads, 1 broadcast) take 7 loads for 12
 * multiply-adds, the best that fits; 6 x 2 take 8; 12 x 1 take 13 and are load-bound. */
#define VF_VECTORS     3
#define VF_ROWS(width) ((width) == 3 ? 4 : (width) == 2 ? 6 : 12)
#define VF_MAX_ROWS    12
/* Decode: 8 dot products at a time, and strips of 2 vectors of values for 4 rows. */
#define VF_DOT_SUMS 8
#define VF_STRIP    2
/* A block of scores of a full tile, 96 bytes a key, within 24 KB of the level 1 cache. */
#define VF_BLOCK_KV(dim_qk, dim_v) ((dim_qk) <= 64 && (dim_v) <= 64 ? 256 : 128)
#define VF_FUSED                   1
#define VF_PIN(v)                  __asm__("" : "+x"(v))

#include "chains.h"

/* Read from index 8 - count on: the first `count` of 8 lanes are set. */
static const int32_t lane_masks[16] = {-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0};

#if REAL_BITS == 32

typedef __m256 vf;
typedef __m256 vm;
#define VF_LANES 8

VF_INLINE __m256i part_mask(int64_t count) { return _mm256_loadu_si256((const __m256i *)(lane_masks + 8 - count)); }

VF_INLINE vf vf_zero(void) { return _mm256_setzero_ps(); }
VF_INLINE vf vf_set(real x) { return _mm256_set1_ps(x); }
VF_INLINE vf vf_load(const real *p) { return _mm256_loadu_ps(p); }
VF_INLINE void vf_store(real *p, vf v) { _mm256_storeu_ps(p, v); }
VF_INLINE vf vf_load_part(const real *p, int64_t count) { return _mm256_maskload_ps(p, part_mask(count)); }
VF_INLINE void vf_store_part(real *p, vf v, int64_t count) { _mm256_maskstore_ps(p, part_mask(count), v); }

VF_INLINE vf vf_add(vf a, vf b) { return _mm256_add_ps(a, b); }
VF_INLINE vf vf_sub(vf a, vf b) { return _mm256_sub_ps(a, b); }
VF_INLINE vf vf_mul(vf a, vf b) { return _mm256_mul_ps(a, b); }
VF_INLINE vf vf_div(vf a, vf b) { return _mm256_div_ps(a, b); }
VF_INLINE vf vf_max(vf a, vf b) { return _mm256_max_ps(a, b); }
VF_INLINE vf vf_min(vf a, vf b) { return _mm256_min_ps(a, b); }
VF_INLINE vf vf_fma(vf a, vf b, vf c) { return _mm256_fmadd_ps(a, b, c); }
VF_INLINE vf vf_power(vf t)
{
    __m256i n = _mm256_castps_si256(t), corrections = _mm256_loadu_si256((const __m256i *)(const void *)power_corrections);
    __m256i correction = _mm256_permutevar8x32_epi32(corrections, n); /* by the lowest three bits */
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_slli_epi32(n, POWER_SHIFT), correction));
}

VF_INLINE vm vf_gt(vf a, vf b) { return _mm256_cmp_ps(a, b, _CMP_GT_OQ); }
VF_INLINE vm vf_ge(vf a, vf b) { return _mm256_cmp_ps(a, b, _CMP_GE_OQ); }
VF_INLINE vm vf_eq(vf a, vf b) { return _mm256_cmp_ps(a, b, _CMP_EQ_OQ); }
VF_INLINE vm vf_bits(vf v)
{
    __m256i none = _mm256_cmpeq_epi32(_mm256_castps_si256(v), _mm256_setzero_si256());
    return _mm256_castsi256_ps(_mm256_xor_si256(none, _mm256_set1_epi32(-1)));
}
VF_INLINE vm vm_and(vm a, vm b) { return _mm256_and_ps(a, b); }
VF_INLINE vm vm_or(vm a, vm b) { return _mm256_or_ps(a, b); }
VF_INLINE int vm_any(vm a) { return _mm256_movemask_ps(a) != 0; }
VF_INLINE int vm_all(vm a) { return _mm256_movemask_ps(a) == 0xff; }
VF_INLINE vf vf_select(vm mask, vf yes, vf no) { return _mm256_blendv_ps(no, yes, mask); }
VF_INLINE vm vf_at_least(const uint32_t *p, uint32_t t)
{
    __m256i x = _mm256_loadu_si256((const __m256i *)p);
    return _mm256_castsi256_ps(_mm256_cmpeq_epi32(_mm256_max_epu32(x, _mm256_set1_epi32((int32_t)t)), x));
}
VF_INLINE vf vf_of_i32(const int32_t *p) { return _mm256_cvtepi32_ps(_mm256_loadu_si256((const __m256i *)p)); }
VF_INLINE vf vf_of_half(uint16_t h) { return _mm256_cvtph_ps(_mm_set1_epi16((int16_t)h)); }
VF_INLINE vf vf_of_nibbles(const uint8_t *p, int upper)
{
    const __m256i x = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p));
    return _mm256_cvtepi32_ps(upper ? _mm256_srli_epi32(x, 4) : _mm256_and_si256(x, _mm256_set1_epi32(15)));
}

/* Four doubles as floats; finite values stay finite. */
VF_INLINE __m128 narrow(const double *p)
{
    const __m256d top = _mm256_set1_pd(FLT_MAX), sign = _mm256_set1_pd(-0.0);
    __m256d x = _mm256_loadu_pd(p), near = _mm256_max_pd(_mm256_sub_pd(_mm256_setzero_pd(), top), _mm256_min_pd(top, x));
    __m256d infinite = _mm256_cmp_pd(_mm256_andnot_pd(sign, x), _mm256_set1_pd(INFINITY), _CMP_EQ_OQ);
    return _mm256_cvtpd_ps(_mm256_blendv_pd(near, x, infinite));
}

VF_INLINE vf vf_load_as(attn_dtype dtype, const void *base, int64_t index)
{
    const char *p = (const char *)base + index * bytes_of(dtype);
    switch (dtype) {
    case ATTN_F32:
    case ATTN_F16:
    case ATTN_BF16:
    case ATTN_I8:
    case ATTN_F8_E4M3:
    case ATTN_F8_E5M2:
        return hf_load_as(dtype, base, index);
    case ATTN_F64:
        return _mm256_set_m128(narrow((const double *)(const void *)(p + 32)), narrow((const double *)(const void *)p));
    default:
        return _mm256_castsi256_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p)));
    }
}

/* bf16: one shift and one mask for 16 elements. */
#define VF_SPLITS(dtype) ((dtype) == ATTN_BF16)
VF_INLINE void vf_split(vf pairs, vf *x)
{
    __m256i both = _mm256_castps_si256(pairs);
    x[0] = _mm256_castsi256_ps(_mm256_slli_epi32(both, 16));
    x[1] = _mm256_castsi256_ps(_mm256_and_si256(both, _mm256_set1_epi32(-65536)));
}
VF_INLINE void vf_load_two(attn_dtype dtype, const void *base, int64_t index, vf *x)
{
    if (dtype == ATTN_BF16) {
        vf_split(_mm256_loadu_ps((const float *)(const void *)((const char *)base + 2 * index)), x);
    } else {
        x[0] = vf_load_as(dtype, base, index);
        x[1] = vf_load_as(dtype, base, index + VF_LANES);
    }
}

VF_INLINE vf vf_sums(const vf *x)
{
    vf a[2];
    VF_UNROLL
    for (int i = 0; i < 2; i++) {
        const vf *r = x + 4 * i;
        vf low = _mm256_add_ps(_mm256_unpacklo_ps(r[0], r[1]), _mm256_unpackhi_ps(r[0], r[1]));
        vf high = _mm256_add_ps(_mm256_unpacklo_ps(r[2], r[3]), _mm256_unpackhi_ps(r[2], r[3]));
        a[i] = _mm256_add_ps(_mm256_shuffle_ps(low, high, 0x44), _mm256_shuffle_ps(low, high, 0xee));
    }
    return _mm256_add_ps(_mm256_permute2f128_ps(a[0], a[1], 0x20), _mm256_permute2f128_ps(a[0], a[1], 0x31));
}

VF_INLINE __m128i bf16_of(vf v)
{
    __m256i x = _mm256_castps_si256(v), upper = _mm256_srli_epi32(x, 16);
    __m256i odd = _mm256_and_si256(upper, _mm256_set1_epi32(1));
    __m256i near = _mm256_srli_epi32(_mm256_add_epi32(x, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff))), 16);
    __m256i quiet = _mm256_or_si256(upper, _mm256_set1_epi32(0x40));
    __m256i out = _mm256_blendv_epi8(near, quiet, _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q)));
    return _mm_packus_epi32(_mm256_castsi256_si128(out), _mm256_extracti128_si256(out, 1));
}

/* bf16 in the upper half of each lane. */
VF_INLINE __m256i upper_bf16_of(vf v)
{
    const __m256i x = _mm256_castps_si256(v), odd = _mm256_and_si256(_mm256_srli_epi32(x, 16), _mm256_set1_epi32(1));
    const __m256i near = _mm256_add_epi32(x, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    const __m256i quiet = _mm256_or_si256(x, _mm256_set1_epi32(0x400000));
    return _mm256_blendv_epi8(near, quiet, _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q)));
}

/* Stores what vf_load_two loads. */
#define VF_STORES_TWO 1
VF_INLINE void vf_store_two(void *base, int64_t index, const vf *x)
{
    const __m256i low = _mm256_srli_epi32(upper_bf16_of(x[0]), 16), high = upper_bf16_of(x[1]);
    _mm256_storeu_si256((__m256i *)(void *)((char *)base + 2 * index), _mm256_blend_epi16(low, high, 0xaa));
}

VF_INLINE void vf_store_as(attn_dtype dtype, void *base, int64_t index, vf v)
{
    char *p = (char *)base + index * bytes_of(dtype);
    switch (dtype) {
    case ATTN_F32:
        _mm256_storeu_ps((float *)(void *)p, v);
        break;
    case ATTN_F16:
        _mm_storeu_si128((__m128i *)(void *)p, _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
        break;
    case ATTN_BF16:
        _mm_storeu_si128((__m128i *)(void *)p, bf16_of(v));
        break;
    default:
        _mm256_storeu_pd((double *)(void *)p, _mm256_cvtps_pd(_mm256_castps256_ps128(v)));
        _mm256_storeu_pd((double *)(void *)(p + 32), _mm256_cvtps_pd(_mm256_extractf128_ps(v, 1)));
        break;
    }
}

VF_INLINE void vf_transpose(vf *r) { hf_transpose(r); }

#else

typedef __m256d vf;
typedef __m256d vm;
#define VF_LANES                4

VF_INLINE __m256i part_mask(int64_t count)
{
    return _mm256_cvtepi32_epi64(_mm_loadu_si128((const __m128i *)(lane_masks + 8 - count)));
}

VF_INLINE vf vf_zero(void) { return _mm256_setzero_pd(); }
VF_INLINE vf vf_set(real x) { return _mm256_set1_pd(x); }
VF_INLINE vf vf_load(const real *p) { return _mm256_loadu_pd(p); }
VF_INLINE void vf_store(real *p, vf v) { _mm256_storeu_pd(p, v); }
VF_INLINE vf vf_load_part(const real *p, int64_t count) { return _mm256_maskload_pd(p, part_mask(count)); }
VF_INLINE void vf_store_part(real *p, vf v, int64_t count) { _mm256_maskstore_pd(p, part_mask(count), v); }

VF_INLINE vf vf_add(vf a, vf b) { return _mm256_add_pd(a, b); }
VF_INLINE vf vf_sub(vf a, vf b) { return _mm256_sub_pd(a, b); }
VF_INLINE vf vf_mul(vf a, vf b) { return _mm256_mul_pd(a, b); }
VF_INLINE vf vf_div(vf a, vf b) { return _mm256_div_pd(a, b); }
VF_INLINE vf vf_max(vf a, vf b) { return _mm256_max_pd(a, b); }
VF_INLINE vf vf_min(vf a, vf b) { return _mm256_min_pd(a, b); }
VF_INLINE vf vf_fma(vf a, vf b, vf c) { return _mm256_fmadd_pd(a, b, c); }

/* An eight-lane permutation selects 32-bit words: the lower and the upper halves of the corrections, each for both halves of a
 * lane. */
#define POWER_LOWER(correction) (int32_t)(uint32_t)((uint64_t)(correction)&0xffffffff)
#define POWER_UPPER(correction) (int32_t)(uint32_t)((uint64_t)(correction) >> 32)
static const int32_t power_lower[8] = {POWER_CORRECTIONS(POWER_LOWER)}, power_upper[8] = {POWER_CORRECTIONS(POWER_UPPER)};
VF_INLINE vf vf_power(vf t)
{
    __m256i n = _mm256_castpd_si256(t), which = _mm256_castps_si256(_mm256_moveldup_ps(_mm256_castpd_ps(t)));
    __m256i lower = _mm256_permutevar8x32_epi32(_mm256_loadu_si256((const __m256i *)(const void *)power_lower), which);
    __m256i upper = _mm256_permutevar8x32_epi32(_mm256_loadu_si256((const __m256i *)(const void *)power_upper), which);
    return _mm256_castsi256_pd(_mm256_add_epi64(_mm256_slli_epi64(n, POWER_SHIFT), _mm256_blend_epi32(lower, upper, 0xaa)));
}

VF_INLINE vm vf_gt(vf a, vf b) { return _mm256_cmp_pd(a, b, _CMP_GT_OQ); }
VF_INLINE vm vf_ge(vf a, vf b) { return _mm256_cmp_pd(a, b, _CMP_GE_OQ); }
VF_INLINE vm vf_eq(vf a, vf b) { return _mm256_cmp_pd(a, b, _CMP_EQ_OQ); }
VF_INLINE vm vf_bits(vf v)
{
    __m256i none = _mm256_cmpeq_epi64(_mm256_castpd_si256(v), _mm256_setzero_si256());
    return _mm256_castsi256_pd(_mm256_xor_si256(none, _mm256_set1_epi32(-1)));
}
VF_INLINE vm vm_and(vm a, vm b) { return _mm256_and_pd(a, b); }
VF_INLINE vm vm_or(vm a, vm b) { return _mm256_or_pd(a, b); }
VF_INLINE int vm_any(vm a) { return _mm256_movemask_pd(a) != 0; }
VF_INLINE int vm_all(vm a) { return _mm256_movemask_pd(a) == 0xf; }
VF_INLINE vf vf_select(vm mask, vf yes, vf no) { return _mm256_blendv_pd(no, yes, mask); }
VF_INLINE vm vf_at_least(const uint32_t *p, uint32_t t)
{
    __m128i x = _mm_loadu_si128((const __m128i *)p), min_kept = _mm_set1_epi32((int32_t)t);
    return _mm256_castsi256_pd(_mm256_cvtepi32_epi64(_mm_cmpeq_epi32(_mm_max_epu32(x, min_kept), x)));
}
VF_INLINE vf vf_of_i32(const int32_t *p) { return _mm256_cvtepi32_pd(_mm_loadu_si128((const __m128i *)p)); }

VF_INLINE vf vf_load_as(attn_dtype dtype, const void *base, int64_t index)
{
    const char *p = (const char *)base + index * bytes_of(dtype);
    int32_t bytes;
    switch (dtype) {
    case ATTN_F64:
        return _mm256_loadu_pd((const double *)(const void *)p);
    case ATTN_F32:
        return _mm256_cvtps_pd(_mm_loadu_ps((const float *)(const void *)p));
    case ATTN_F16:
        return _mm256_cvtps_pd(_mm_cvtph_ps(_mm_loadl_epi64((const __m128i *)(const void *)p)));
    case ATTN_BF16: {
        __m128i wide = _mm_cvtepu16_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p));
        return _mm256_cvtps_pd(_mm_castsi128_ps(_mm_slli_epi32(wide, 16)));
    }
    default:
        memcpy(&bytes, p, sizeof bytes);
        return _mm256_castsi256_pd(_mm256_cvtepu8_epi64(_mm_cvtsi32_si128(bytes)));
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
    vf a = _mm256_add_pd(_mm256_unpacklo_pd(x[0], x[1]), _mm256_unpackhi_pd(x[0], x[1]));
    vf b = _mm256_add_pd(_mm256_unpacklo_pd(x[2], x[3]), _mm256_unpackhi_pd(x[2], x[3]));
    return _mm256_add_pd(_mm256_permute2f128_pd(a, b, 0x20), _mm256_permute2f128_pd(a, b, 0x31));
}

/* Lanes of 64 bits, all ones or all zeros, as lanes of 32. */
VF_INLINE __m128i narrow_mask(__m256d mask)
{
    const __m128 low = _mm256_castps256_ps128(_mm256_castpd_ps(mask)), high = _mm256_extractf128_ps(_mm256_castpd_ps(mask), 1);
    return _mm_castps_si128(_mm_shuffle_ps(low, high, 0x88));
}

/* Floats rounded to odd: rounding them to 16 bits equals rounding the doubles once.  The nearest float is moved across an inexact
 * double if it is even. */
VF_INLINE __m128 round_to_odd(vf v)
{
    const __m128 near = _mm256_cvtpd_ps(v);
    const __m256d sign = _mm256_set1_pd(-0.0), size = _mm256_andnot_pd(sign, v),
                  size_near = _mm256_andnot_pd(sign, _mm256_cvtps_pd(near));
    const __m128i bits = _mm_castps_si128(near), one = _mm_set1_epi32(1), odd = _mm_cmpeq_epi32(_mm_and_si128(bits, one), one);
    const __m128i below = narrow_mask(_mm256_cmp_pd(size_near, size, _CMP_LT_OQ)),
                  above = narrow_mask(_mm256_cmp_pd(size_near, size, _CMP_GT_OQ));
    return _mm_castsi128_ps(_mm_add_epi32(_mm_sub_epi32(bits, _mm_andnot_si128(odd, below)), _mm_andnot_si128(odd, above)));
}

/* Four floats as bf16, rounded to nearest even. */
VF_INLINE __m128i bf16_of_four(__m128 v)
{
    const __m128i x = _mm_castps_si128(v), upper = _mm_srli_epi32(x, 16), odd = _mm_and_si128(upper, _mm_set1_epi32(1));
    const __m128i near = _mm_srli_epi32(_mm_add_epi32(x, _mm_add_epi32(odd, _mm_set1_epi32(0x7fff))), 16);
    const __m128i quiet = _mm_or_si128(upper, _mm_set1_epi32(0x40));
    return _mm_packus_epi32(_mm_blendv_epi8(near, quiet, _mm_castps_si128(_mm_cmpunord_ps(v, v))), _mm_setzero_si128());
}

VF_INLINE void vf_store_as(attn_dtype dtype, void *base, int64_t index, vf v)
{
    if (dtype == ATTN_F64) {
        _mm256_storeu_pd((double *)base + index, v);
    } else if (dtype == ATTN_F32) {
        _mm_storeu_ps((float *)base + index, _mm256_cvtpd_ps(v));
    } else {
        const __m128 odd = round_to_odd(v);
        _mm_storel_epi64((__m128i *)(void *)((uint16_t *)base + index),
                         dtype == ATTN_F16 ? _mm_cvtps_ph(odd, _MM_FROUND_TO_NEAREST_INT) : bf16_of_four(odd));
    }
}

VF_INLINE void vf_transpose(vf *r) { hf_transpose(r); }

#endif

#define VU_LANES 4
typedef __m256i vu;
VF_INLINE vu vu_set(uint64_t x) { return _mm256_set1_epi64x((long long)x); }
VF_INLINE vu vu_load(const uint64_t *p) { return _mm256_loadu_si256((const __m256i *)p); }
VF_INLINE vu vu_xor(vu a, vu b) { return _mm256_xor_si256(a, b); }
VF_INLINE vu vu_multiply(vu a, vu b) { return _mm256_mul_epu32(a, b); }
VF_INLINE vu vu_upper(vu a) { return _mm256_srli_epi64(a, 32); }
VF_INLINE void vu_store_lower(uint32_t *p, vu a)
{
    __m256i lower = _mm256_permutevar8x32_epi32(a, _mm256_setr_epi32(0, 2, 4, 6, 0, 2, 4, 6));
    _mm_storeu_si128((__m128i *)p, _mm256_castsi256_si128(lower));
}

#include "avx2_product.h"

#endif
