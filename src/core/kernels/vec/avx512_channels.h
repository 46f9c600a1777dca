/* SPDX-License-Identifier: MIT
 *
 * avx512_channels.h - for keys by channel, what avx512.h has better instructions for than channels_step.inc.c: the 16 numbers that
 * 4 bits can stand for are looked up, and the heads of blocks gathered.  Included after avx512.h.
 */
#ifndef ATTN_KERNELS_VEC_AVX512_CHANNELS_H
#define ATTN_KERNELS_VEC_AVX512_CHANNELS_H

#if !defined(ATTN_EMULATE_AVX512)
#define VF_OF_STEPS

/* d * q + m of the lower and of the upper bits of VF_LANES bytes. */
VF_INLINE void vf_of_steps(const uint8_t *p, vf d, vf m, vf *x)
{
    const vf numbers = vf_fma(d, _mm512_set_ps(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0), m);
    const __m512i bytes = _mm512_cvtepu8_epi32(load_16_bytes(p));
    x[0] = _mm512_permutexvar_ps(bytes, numbers); /* by the lowest four bits */
    x[1] = _mm512_permutexvar_ps(_mm512_srli_epi32(bytes, 4), numbers);
}

/* The scales and the minima of 16 blocks of 20 bytes. */
VF_INLINE void vf_load_heads(const uint8_t *block, real *d, real *m)
{
    const __m512i places = _mm512_set_epi32(300, 280, 260, 240, 220, 200, 180, 160, 140, 120, 100, 80, 60, 40, 20, 0);
    const __m512i heads = _mm512_i32gather_epi32(places, block, 1);
    vf_store(d, _mm512_cvtph_ps(_mm512_cvtepi32_epi16(heads)));
    vf_store(m, _mm512_cvtph_ps(_mm512_cvtepi32_epi16(_mm512_srli_epi32(heads, 16))));
}
#endif

#endif
