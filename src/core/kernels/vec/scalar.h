/* SPDX-License-Identifier: MIT
 *
 * scalar.h - the SIMD layer (see common.h) in plain C: a vector is one element.  Runs everywhere.
 */
#ifndef ATTN_KERNELS_VEC_SCALAR_H
#define ATTN_KERNELS_VEC_SCALAR_H

/* An inference-only build has plain C only for CPUs that are too old for its vectors. */
#if defined(ATTN_INFERENCE_ONLY) && (defined(__x86_64__) || defined(__aarch64__)) && !defined(ATTN_SCALAR_ONLY)
#define VF_SHORT_CODE
#endif

#include "common.h"

typedef real vf;
typedef int vm;
#define VF_LANES                   1
#define VF_VECTORS                 4
#define VF_ROWS(width)             4
#define VF_MAX_ROWS                4
#define VF_DOT_SUMS                4
#define VF_STRIP                   4
#define VF_BLOCK_KV(dim_qk, dim_v) ((void)(dim_qk), (void)(dim_v), 256)
#define VF_PIN(v)                  (void)(v)

/* gcc 12 loads pairs of strided elements for two steps at once, and thus reads a row past the last one; it leaves a volatile read
 * alone. */
#define VF_ELEMENT(p) (*(const volatile real *)(p))

/* fma() is one instruction or a slow call, as the compiler tells.  Without the instruction a product is rounded separately. */
#if defined(FP_FAST_FMA) && defined(FP_FAST_FMAF)
#define VF_FUSED 1
#else
#define VF_FUSED 0
#endif

VF_INLINE vf vf_zero(void) { return 0; }
VF_INLINE vf vf_set(real x) { return x; }
VF_INLINE vf vf_load(const real *p) { return *p; }
VF_INLINE void vf_store(real *p, vf v) { *p = v; }
VF_INLINE vf vf_load_part(const real *p, int64_t count) { return count ? *p : 0; }
VF_INLINE void vf_store_part(real *p, vf v, int64_t count)
{
    if (count) *p = v;
}
VF_INLINE vf vf_load_as(attn_dtype dtype, const void *base, int64_t index) { return real_at(dtype, base, index); }
VF_INLINE void vf_store_as(attn_dtype dtype, void *base, int64_t index, vf v) { put_real(dtype, base, index, v); }

#define VF_SPLITS(dtype) ((void)(dtype), 0)
VF_INLINE void vf_load_two(attn_dtype dtype, const void *base, int64_t index, vf *x)
{
    x[0] = real_at(dtype, base, index);
    x[1] = real_at(dtype, base, index + 1);
}
VF_INLINE vf vf_sums(const vf *x) { return *x; }

VF_INLINE vf vf_add(vf a, vf b) { return a + b; }
VF_INLINE vf vf_sub(vf a, vf b) { return a - b; }
VF_INLINE vf vf_mul(vf a, vf b) { return a * b; }
VF_INLINE vf vf_div(vf a, vf b) { return a / b; }
VF_INLINE vf vf_max(vf a, vf b) { return a > b ? a : b; }
VF_INLINE vf vf_min(vf a, vf b) { return a < b ? a : b; }
VF_INLINE vf vf_fma(vf a, vf b, vf c)
{
#if !VF_FUSED
    return a * b + c;
#elif REAL_BITS == 32
    return fmaf(a, b, c);
#else
    return fma(a, b, c);
#endif
}

VF_INLINE vf vf_power(vf t)
{
    power_bits bits;
    memcpy(&bits, &t, sizeof bits);
    bits = (bits << POWER_SHIFT) + power_corrections[bits & 7];
    memcpy(&t, &bits, sizeof t);
    return t;
}

VF_INLINE vm vf_gt(vf a, vf b) { return a > b; }
VF_INLINE vm vf_ge(vf a, vf b) { return a >= b; }
VF_INLINE vm vf_eq(vf a, vf b) { return a == b; }
VF_INLINE vm vf_bits(vf v) { return v != 0; }
VF_INLINE vm vm_and(vm a, vm b) { return a & b; }
VF_INLINE vm vm_or(vm a, vm b) { return a | b; }
VF_INLINE int vm_any(vm a) { return a; }
VF_INLINE int vm_all(vm a) { return a; }
VF_INLINE vf vf_select(vm mask, vf yes, vf no) { return mask ? yes : no; }
VF_INLINE vm vf_at_least(const uint32_t *p, uint32_t t) { return *p >= t; }
VF_INLINE vf vf_of_i32(const int32_t *p) { return (real)*p; }
VF_INLINE vf vf_of_half(uint16_t h) { return (real)attn_f32_of_f16(h); }
VF_INLINE vf vf_of_nibbles(const uint8_t *p, int upper) { return (real)(upper ? *p >> 4 : *p & 15); }
VF_INLINE void vf_transpose(vf *r) { (void)r; }

typedef vf hf;
#define VF_CHAINS 1
VF_INLINE hf hf_zero(void) { return 0; }
VF_INLINE hf hf_load(const real *p) { return *p; }
VF_INLINE void hf_store(real *p, hf v) { *p = v; }
VF_INLINE hf hf_add(hf a, hf b) { return a + b; }
VF_INLINE hf hf_fma(hf a, hf b, hf c) { return vf_fma(a, b, c); }
VF_INLINE hf hf_load_as(attn_dtype dtype, const void *base, int64_t index) { return real_at(dtype, base, index); }
VF_INLINE void hf_transpose(hf *r) { (void)r; }

#endif
