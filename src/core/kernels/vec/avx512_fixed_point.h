/* SPDX-License-Identifier: MIT
 *
 * avx512_fixed_point.h - the SIMD layer of fixed_point_step.inc.c for AVX-512 VNNI, on top of avx512.h: 8-bit integers whose
 * products are summed exactly in 32 bits.  Opens a target pragma, which end.h closes.
 */
#ifndef ATTN_KERNELS_VEC_AVX512_FIXED_POINT_H
#define ATTN_KERNELS_VEC_AVX512_FIXED_POINT_H

#include "avx512.h"

#if !defined(ATTN_EMULATE_AVX512)
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512vnni,avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c"))),               \
                             apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512vnni,avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")
#endif
#endif

/* Keys of a register tile of scores, one per lane; channels per step; channels of a strip of values. */
enum { FIXED_POINT_KEYS = 16, FIXED_POINT_CHANNELS = 16, FIXED_POINT_STRIP = 64 };

typedef __m512i vi;

VF_INLINE vi vi_set(int32_t x) { return _mm512_set1_epi32(x); }
VF_INLINE vi vi_load(const int32_t *p) { return _mm512_loadu_si512(p); }
VF_INLINE void vi_store(int32_t *p, vi v) { _mm512_storeu_si512(p, v); }

VF_INLINE int half_bits(const char *p)
{
    int16_t half;
    memcpy(&half, p, sizeof half);
    return half;
}

/* The same four bytes in each lane. */
VF_INLINE vi vi_set_bytes(const char *p)
{
    int32_t four;
    memcpy(&four, p, sizeof four);
    return vi_set(four);
}

/* Per lane: acc plus the sum of four products of an unsigned and a signed byte. */
VF_INLINE vi vi_dot(vi acc, vi without, vi with) { return _mm512_dpbusd_epi32(acc, without, with); }

/* 65536 x[2] + 256 x[1] + x[0], rounded twice. */
VF_INLINE vf vi_value(const vi *x)
{
    const vf base = vf_set(256);
    return vf_fma(vf_fma(_mm512_cvtepi32_ps(x[2]), base, _mm512_cvtepi32_ps(x[1])), base, _mm512_cvtepi32_ps(x[0]));
}
/* The same where 256 x[1] + x[0] fits 32 bits. */
VF_INLINE vf vi_whole(const vi *x)
{
    const vi lower = _mm512_add_epi32(_mm512_slli_epi32(x[1], 8), x[0]);
    return vf_fma(_mm512_cvtepi32_ps(x[2]), vf_set(65536), _mm512_cvtepi32_ps(lower));
}

/* The largest bit pattern of `count` elements, compared as unsigned integers. */
VF_INLINE uint32_t max_bits(const real *p, int64_t count)
{
    uint32_t lanes[VF_LANES], most = 0;
    vi all = vi_set(0);
    for (int64_t j = 0; j < count; j += VF_LANES)
        all = _mm512_max_epu32(all, _mm512_castps_si512(vf_load_part(p + j, least(count - j, VF_LANES))));
    _mm512_storeu_si512(lanes, all);
    for (int i = 0; i < VF_LANES; i++) most = lanes[i] > most ? lanes[i] : most;
    return most;
}

/* Stores the three bytes of VF_LANES numbers, rounded to integers from 0 to 2^24 - 1: byte d at p + d * plane. */
VF_INLINE void store_limbs(char *p, int64_t plane, vf x)
{
    const vi integers = _mm512_cvtps_epi32(x);
    _mm_storeu_si128((__m128i *)(void *)p, _mm512_cvtepi32_epi8(integers));
    _mm_storeu_si128((__m128i *)(void *)(p + plane), _mm512_cvtepi32_epi8(_mm512_srli_epi32(integers, 8)));
    _mm_storeu_si128((__m128i *)(void *)(p + 2 * plane), _mm512_cvtepi32_epi8(_mm512_srli_epi32(integers, 16)));
}

/* Lane k of x[i]: bytes 4i to 4i+3 of key k.  Reads `keys` keys and `channels` bytes. */
VF_INLINE void load_bytes(const int full, const char *K, int64_t ld, int64_t keys, int64_t channels, vi *x)
{
    const __mmask16 valid = (__mmask16)((1u << channels) - 1);
    vi rows[4];
#define KEY(k) (full ? load_16_bytes(K + (k)*ld) : _mm_maskz_loadu_epi8(valid, K + least(k, keys - 1) * ld))
    VF_UNROLL
    for (int a = 0; a < 4; a++) { /* key a + 4b in quarter b */
        const __m256i low = _mm256_inserti128_si256(_mm256_castsi128_si256(KEY(a)), KEY(a + 4), 1);
        const __m256i high = _mm256_inserti128_si256(_mm256_castsi128_si256(KEY(a + 8)), KEY(a + 12), 1);
        rows[a] = _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
    }
#undef KEY
    const vi low[2] = {_mm512_unpacklo_epi32(rows[0], rows[1]), _mm512_unpacklo_epi32(rows[2], rows[3])};
    const vi high[2] = {_mm512_unpackhi_epi32(rows[0], rows[1]), _mm512_unpackhi_epi32(rows[2], rows[3])};
    x[0] = _mm512_unpacklo_epi64(low[0], low[1]);
    x[1] = _mm512_unpackhi_epi64(low[0], low[1]);
    x[2] = _mm512_unpacklo_epi64(high[0], high[1]);
    x[3] = _mm512_unpackhi_epi64(high[0], high[1]);
}

/* The same, of channels, plus 128 to make them unsigned. */
VF_INLINE void load_keys(const int full, const char *K, int64_t ld, int64_t keys, int64_t channels, vi *x)
{
    const vi sign = _mm512_set1_epi8(-128);
    load_bytes(full, K, ld, keys, channels, x);
    VF_UNROLL
    for (int i = 0; i < 4; i++) x[i] = _mm512_xor_si512(x[i], sign);
}

/* Lane k of x[i]: the unsigned steps of channels 4i to 4i+3 of a block of key k (those of q8_0 plus 128). */
VF_INLINE void load_blocks(attn_dtype dtype, const int full, const char *K, int64_t ld, int64_t keys, vi *x)
{
    if (dtype == ATTN_Q8_0) {
        load_keys(full, K + 2, ld, keys, 16, x);
        load_keys(full, K + 18, ld, keys, 16, x + 4);
        return;
    }
    const vi lower = _mm512_set1_epi8(15);
    vi both[4];
    load_bytes(full, K + (dtype == ATTN_Q4_1 ? 4 : 2), ld, keys, 16, both);
    VF_UNROLL
    for (int i = 0; i < 4; i++) {
        x[i] = _mm512_and_si512(both[i], lower);
        x[i + 4] = _mm512_and_si512(_mm512_srli_epi16(both[i], 4), lower);
    }
}

/* The channels of a block, two vectors, from its scale and minimum: as they are unpacked (unpack_step.inc.c).  A lane of a vector
 * of 4 bits selects one of its 16 numbers. */
VF_INLINE void values_of_block(attn_dtype dtype, const char *block, vf d, vf m, vf *x)
{
    if (dtype == ATTN_Q8_0) {
        x[0] = vf_mul(d, vf_load_as(ATTN_I8, block + 2, 0));
        x[1] = vf_mul(d, vf_load_as(ATTN_I8, block + 2, VF_LANES));
        return;
    }
    const float zero = dtype == ATTN_Q4_0 ? -8 : 0;
    const vf steps = vf_add(_mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15), vf_set(zero));
    const vi numbers = _mm512_castps_si512(dtype == ATTN_Q4_1 ? vf_fma(d, steps, m) : vf_mul(d, steps));
    const vi both = _mm512_cvtepu8_epi32(load_16_bytes(block + (dtype == ATTN_Q4_1 ? 4 : 2)));
    x[0] = _mm512_castsi512_ps(_mm512_permutexvar_epi32(both, numbers));
    x[1] = _mm512_castsi512_ps(_mm512_permutexvar_epi32(_mm512_srli_epi32(both, 4), numbers));
}

/* Lane k: the f16 at p of key k. */
VF_INLINE vf load_halves(const int full, const char *p, int64_t ld, int64_t keys)
{
    __m128i low = _mm_setzero_si128(), high = _mm_setzero_si128();
#define HALF(k) half_bits(p + (full ? (k) : least(k, keys - 1)) * ld)
#define BOTH(k) low = _mm_insert_epi16(low, HALF(k), k), high = _mm_insert_epi16(high, HALF((k) + 8), k)
    BOTH(0), BOTH(1), BOTH(2), BOTH(3), BOTH(4), BOTH(5), BOTH(6), BOTH(7);
#undef BOTH
#undef HALF
    return _mm512_cvtph_ps(_mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1));
}

/* Lane 4b + t of x[i]: channel 16b + 4i + t of four values.  Only `keys` of them and `channels` channels of the strip exist; the
 * rest is 0. */
VF_INLINE void load_values(const int full, const char *V, int64_t ld, int64_t keys, int64_t channels, vi *x)
{
    const __mmask64 valid = channels < FIXED_POINT_STRIP ? ((__mmask64)1 << channels) - 1 : ~(__mmask64)0;
    vi rows[4];
    VF_UNROLL
    for (int k = 0; k < 4; k++)
        rows[k] = full       ? _mm512_loadu_si512(V + k * ld)
                  : k < keys ? _mm512_maskz_loadu_epi8(valid, V + k * ld)
                             : _mm512_setzero_si512();
    const vi low[2] = {_mm512_unpacklo_epi8(rows[0], rows[1]), _mm512_unpacklo_epi8(rows[2], rows[3])};
    const vi high[2] = {_mm512_unpackhi_epi8(rows[0], rows[1]), _mm512_unpackhi_epi8(rows[2], rows[3])};
    x[0] = _mm512_unpacklo_epi16(low[0], low[1]);
    x[1] = _mm512_unpackhi_epi16(low[0], low[1]);
    x[2] = _mm512_unpacklo_epi16(high[0], high[1]);
    x[3] = _mm512_unpackhi_epi16(high[0], high[1]);
}

/* From the order of load_values to channel order. */
VF_INLINE void in_order(vf *x)
{
    const vf even[2] = {_mm512_shuffle_f32x4(x[0], x[1], 0x88), _mm512_shuffle_f32x4(x[2], x[3], 0x88)};
    const vf odd[2] = {_mm512_shuffle_f32x4(x[0], x[1], 0xdd), _mm512_shuffle_f32x4(x[2], x[3], 0xdd)};
    x[0] = _mm512_shuffle_f32x4(even[0], even[1], 0x88);
    x[1] = _mm512_shuffle_f32x4(odd[0], odd[1], 0x88);
    x[2] = _mm512_shuffle_f32x4(even[0], even[1], 0xdd);
    x[3] = _mm512_shuffle_f32x4(odd[0], odd[1], 0xdd);
}

#endif
