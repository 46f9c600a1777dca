/* SPDX-License-Identifier: MIT
 *
 * halves.h - `hf` of layers with 128 bits, neon.h and wasm128.h: the chains of an ordered score, as many as on AVX2, in two
 * vectors.
 */
#ifndef ATTN_KERNELS_VEC_HALVES_H
#define ATTN_KERNELS_VEC_HALVES_H

typedef struct hf {
    vf half[2];
} hf;
#define VF_CHAINS (2 * VF_LANES)

VF_INLINE hf hf_zero(void) { return (hf){{vf_zero(), vf_zero()}}; }
VF_INLINE hf hf_load(const real *p) { return (hf){{vf_load(p), vf_load(p + VF_LANES)}}; }
VF_INLINE void hf_store(real *p, hf v)
{
    vf_store(p, v.half[0]);
    vf_store(p + VF_LANES, v.half[1]);
}
VF_INLINE hf hf_add(hf a, hf b) { return (hf){{vf_add(a.half[0], b.half[0]), vf_add(a.half[1], b.half[1])}}; }
VF_INLINE hf hf_fma(hf a, hf b, hf c)
{
    return (hf){{vf_fma(a.half[0], b.half[0], c.half[0]), vf_fma(a.half[1], b.half[1], c.half[1])}};
}
VF_INLINE hf hf_load_as(attn_dtype dtype, const void *base, int64_t index)
{
    return (hf){{vf_load_as(dtype, base, index), vf_load_as(dtype, base, index + VF_LANES)}};
}
/* Transposes the four quarters and swaps the two off the diagonal. */
VF_INLINE void hf_transpose(hf *r)
{
    vf q[2][2][VF_LANES];
    VF_UNROLL
    for (int i = 0; i < VF_CHAINS; i++) {
        VF_UNROLL
        for (int h = 0; h < 2; h++) q[i / VF_LANES][h][i % VF_LANES] = r[i].half[h];
    }
    VF_UNROLL
    for (int i = 0; i < 4; i++) vf_transpose(q[i / 2][i % 2]);
    VF_UNROLL
    for (int i = 0; i < VF_CHAINS; i++) {
        VF_UNROLL
        for (int h = 0; h < 2; h++) r[i].half[h] = q[h][i / VF_LANES][i % VF_LANES];
    }
}

#endif
