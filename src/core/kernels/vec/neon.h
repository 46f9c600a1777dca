/* SPDX-License-Identifier: MIT
 *
 * neon.h - the SIMD layer (see common.h) for NEON, the Advanced SIMD of AArch64, which every such CPU has, so no target pragma is
 * opened.  128 bits: four floats or two doubles.
 */
#ifndef ATTN_KERNELS_VEC_NEON_H
#define ATTN_KERNELS_VEC_NEON_H

#include "common.h"

#include <arm_neon.h>

/* Register tiles of the products: with 32 registers, 4 rows x 6 vectors or 8 x 3 (24 sums).  Six vectors hold as many queries as a
 * tile on AVX2, so that sums over queries have the same order (options.reproducible). */
#define VF_VECTORS             6
#define VF_ROWS(width)         ((width) > 3 ? 4 : (width) > 1 ? 8 : 12)
#define VF_MAX_ROWS            12
#define VF_ORDERED_ROWS(width) VF_ROWS(width)
/* Decode: 16 dot products at a time, or 8 of ordered scores, which take two vectors each; strips of 4 value vectors for 4 rows. */
#define VF_DOT_SUMS   16
#define VF_CHAIN_SUMS 8
#define VF_STRIP      4
/* A block of scores of a full tile, 96 bytes a key, is 24 KB of the 64 KB that a level 1 cache has here. */
#define VF_BLOCK_KV(dim_qk, dim_v) ((void)(dim_qk), (void)(dim_v), 256)
#define VF_FUSED                   1
#define VF_PIN(v)                  __asm__("" : "+w"(v))
/* As in scalar.h: otherwise gcc 12 loads two strided doubles for two steps at once, and thus reads a row past the last one. */
#define VF_ELEMENT(p) vf_set(*(const volatile real *)(p))
#define HF_PIN(x)     __asm__("" : "+w"((x).half[0]), "+w"((x).half[1]))

#if REAL_BITS == 32

typedef float32x4_t vf;
typedef uint32x4_t vm;
#define VF_LANES 4

VF_INLINE vf vf_zero(void) { return vdupq_n_f32(0); }
VF_INLINE vf vf_set(real x) { return vdupq_n_f32(x); }
VF_INLINE vf vf_load(const real *p) { return vld1q_f32(p); }
VF_INLINE void vf_store(real *p, vf v) { vst1q_f32(p, v); }
VF_INLINE vf vf_load_part(const real *p, int64_t count)
{
    float32x2_t low = vdup_n_f32(0), high = low;
    if (count >= VF_LANES) return vld1q_f32(p);
    if (count >= 2) low = vld1_f32(p);
    if (count == 1) low = vld1_lane_f32(p, low, 0);
    if (count == 3) high = vld1_lane_f32(p + 2, high, 0);
    return vcombine_f32(low, high);
}
VF_INLINE void vf_store_part(real *p, vf v, int64_t count)
{
    if (count >= VF_LANES) {
        vst1q_f32(p, v);
        return;
    }
    if (count >= 2) vst1_f32(p, vget_low_f32(v));
    if (count == 1) vst1q_lane_f32(p, v, 0);
    if (count == 3) vst1q_lane_f32(p + 2, v, 2);
}

VF_INLINE vf vf_add(vf a, vf b) { return vaddq_f32(a, b); }
VF_INLINE vf vf_sub(vf a, vf b) { return vsubq_f32(a, b); }
VF_INLINE vf vf_mul(vf a, vf b) { return vmulq_f32(a, b); }
VF_INLINE vf vf_div(vf a, vf b) { return vdivq_f32(a, b); }
/* Not FMAX or FMAXNM: if either operand is NaN, the first returns NaN and the second the number. */
VF_INLINE vf vf_max(vf a, vf b) { return vbslq_f32(vcgtq_f32(a, b), a, b); }
VF_INLINE vf vf_min(vf a, vf b) { return vbslq_f32(vcltq_f32(a, b), a, b); }
VF_INLINE vf vf_fma(vf a, vf b, vf c) { return vfmaq_f32(c, a, b); }
VF_INLINE vf vf_power(vf t)
{
    const uint8_t *bytes = (const uint8_t *)power_corrections; /* eight words are a table of 32 bytes */
    const uint8x16x2_t corrections = {{vld1q_u8(bytes), vld1q_u8(bytes + 16)}};
    uint32x4_t n = vreinterpretq_u32_f32(t);
    uint32x4_t at = vmlaq_u32(vdupq_n_u32(0x03020100), vandq_u32(n, vdupq_n_u32(7)), vdupq_n_u32(0x04040404));
    uint32x4_t correction = vreinterpretq_u32_u8(vqtbl2q_u8(corrections, vreinterpretq_u8_u32(at)));
    return vreinterpretq_f32_u32(vaddq_u32(vshlq_n_u32(n, POWER_SHIFT), correction));
}

VF_INLINE vm vf_gt(vf a, vf b) { return vcgtq_f32(a, b); }
VF_INLINE vm vf_ge(vf a, vf b) { return vcgeq_f32(a, b); }
VF_INLINE vm vf_eq(vf a, vf b) { return vceqq_f32(a, b); }
VF_INLINE vm vf_bits(vf v) { return vtstq_u32(vreinterpretq_u32_f32(v), vreinterpretq_u32_f32(v)); }
VF_INLINE vm vm_and(vm a, vm b) { return vandq_u32(a, b); }
VF_INLINE vm vm_or(vm a, vm b) { return vorrq_u32(a, b); }
VF_INLINE int vm_any(vm a) { return vmaxvq_u32(a) != 0; }
VF_INLINE int vm_all(vm a) { return vminvq_u32(a) != 0; }
VF_INLINE vf vf_select(vm mask, vf yes, vf no) { return vbslq_f32(mask, yes, no); }
VF_INLINE vm vf_at_least(const uint32_t *p, uint32_t t) { return vcgeq_u32(vld1q_u32(p), vdupq_n_u32(t)); }
VF_INLINE vf vf_of_i32(const int32_t *p) { return vcvtq_f32_s32(vld1q_s32(p)); }
VF_INLINE vf vf_of_half(uint16_t h) { return vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16(h))); }
VF_INLINE vf vf_of_nibbles(const uint8_t *p, int upper)
{
    uint32_t bytes; /* four */
    memcpy(&bytes, p, sizeof bytes);
    const uint8x8_t x = vreinterpret_u8_u32(vdup_n_u32(bytes)), steps = upper ? vshr_n_u8(x, 4) : vand_u8(x, vdup_n_u8(15));
    return vcvtq_f32_u32(vmovl_u16(vget_low_u16(vmovl_u8(steps))));
}

/* half_of_f8 for the first four bytes. */
VF_INLINE uint16x4_t halves_of_f8(attn_dtype dtype, uint32x2_t bytes)
{
    const uint16x4_t x = vget_low_u16(vmovl_u8(vreinterpret_u8_u32(bytes))), size = vand_u16(x, vdup_n_u16(0x7f));
    if (dtype == ATTN_F8_E5M2) return vshl_n_u16(x, 8);
    const uint16x4_t nan = vshl_n_u16(vand_u16(vadd_u16(size, vdup_n_u16(1)), vdup_n_u16(0x80)), 7);
    return vorr_u16(vorr_u16(vshl_n_u16(vand_u16(x, vdup_n_u16(0x80)), 8), nan), vshl_n_u16(size, 7));
}

/* Two doubles as floats; finite values stay finite. */
VF_INLINE float32x2_t narrow(const double *p)
{
    const float64x2_t top = vdupq_n_f64(FLT_MAX), x = vld1q_f64(p);
    const float64x2_t near = vmaxq_f64(vnegq_f64(top), vminq_f64(top, x)); /* NaN stays NaN */
    return vcvt_f32_f64(vbslq_f64(vceqq_f64(vabsq_f64(x), vdupq_n_f64(INFINITY)), x, near));
}

VF_INLINE vf vf_load_as(attn_dtype dtype, const void *base, int64_t index)
{
    const char *p = (const char *)base + index * bytes_of(dtype);
    uint32_t bytes; /* four */
    switch (dtype) {
    case ATTN_F32:
        return vld1q_f32((const float *)(const void *)p);
    case ATTN_F16:
        return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16((const uint16_t *)(const void *)p)));
    case ATTN_BF16:
        return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16((const uint16_t *)(const void *)p), 16));
    case ATTN_F64:
        return vcombine_f32(narrow((const double *)(const void *)p), narrow((const double *)(const void *)(p + 16)));
    case ATTN_F8_E4M3:
    case ATTN_F8_E5M2:
        memcpy(&bytes, p, sizeof bytes);
        return vmulq_n_f32(vcvt_f32_f16(vreinterpret_f16_u16(halves_of_f8(dtype, vdup_n_u32(bytes)))), f8_factor(dtype));
    case ATTN_I8:
        memcpy(&bytes, p, sizeof bytes);
        return vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(vreinterpret_s8_u32(vdup_n_u32(bytes))))));
    default:
        memcpy(&bytes, p, sizeof bytes);
        return vreinterpretq_f32_u32(vmovl_u16(vget_low_u16(vmovl_u8(vreinterpret_u8_u32(vdup_n_u32(bytes))))));
    }
}

/* bf16: one shift and one mask for 8 elements. */
#define VF_SPLITS(dtype) ((dtype) == ATTN_BF16)
VF_INLINE void vf_load_two(attn_dtype dtype, const void *base, int64_t index, vf *x)
{
    if (dtype == ATTN_BF16) {
        const uint32x4_t both = vreinterpretq_u32_u16(vld1q_u16((const uint16_t *)base + index));
        x[0] = vreinterpretq_f32_u32(vshlq_n_u32(both, 16));
        x[1] = vreinterpretq_f32_u32(vandq_u32(both, vdupq_n_u32(0xffff0000)));
    } else {
        x[0] = vf_load_as(dtype, base, index);
        x[1] = vf_load_as(dtype, base, index + VF_LANES);
    }
}

VF_INLINE vf vf_sums(const vf *x) { return vpaddq_f32(vpaddq_f32(x[0], x[1]), vpaddq_f32(x[2], x[3])); }

VF_INLINE uint16x4_t bf16_of(vf v)
{
    const uint32x4_t x = vreinterpretq_u32_f32(v), upper = vshrq_n_u32(x, 16), odd = vandq_u32(upper, vdupq_n_u32(1));
    const uint32x4_t near = vshrq_n_u32(vaddq_u32(x, vaddq_u32(odd, vdupq_n_u32(0x7fff))), 16);
    return vmovn_u32(vbslq_u32(vceqq_f32(v, v), near, vorrq_u32(upper, vdupq_n_u32(0x40)))); /* NaN is not rounded */
}

VF_INLINE void vf_store_as(attn_dtype dtype, void *base, int64_t index, vf v)
{
    char *p = (char *)base + index * bytes_of(dtype);
    switch (dtype) {
    case ATTN_F32:
        vst1q_f32((float *)(void *)p, v);
        break;
    case ATTN_F16:
        vst1_u16((uint16_t *)(void *)p, vreinterpret_u16_f16(vcvt_f16_f32(v)));
        break;
    case ATTN_BF16:
        vst1_u16((uint16_t *)(void *)p, bf16_of(v));
        break;
    default:
        vst1q_f64((double *)(void *)p, vcvt_f64_f32(vget_low_f32(v)));
        vst1q_f64((double *)(void *)(p + 16), vcvt_high_f64_f32(v));
        break;
    }
}

/* By interleaving floats, then pairs of them. */
VF_INLINE void vf_transpose(vf *r)
{
    const float64x2_t a = vreinterpretq_f64_f32(vtrn1q_f32(r[0], r[1])), b = vreinterpretq_f64_f32(vtrn2q_f32(r[0], r[1]));
    const float64x2_t c = vreinterpretq_f64_f32(vtrn1q_f32(r[2], r[3])), d = vreinterpretq_f64_f32(vtrn2q_f32(r[2], r[3]));
    r[0] = vreinterpretq_f32_f64(vtrn1q_f64(a, c));
    r[1] = vreinterpretq_f32_f64(vtrn1q_f64(b, d));
    r[2] = vreinterpretq_f32_f64(vtrn2q_f64(a, c));
    r[3] = vreinterpretq_f32_f64(vtrn2q_f64(b, d));
}

#else

typedef float64x2_t vf;
typedef uint64x2_t vm;
#define VF_LANES 2

VF_INLINE vf vf_zero(void) { return vdupq_n_f64(0); }
VF_INLINE vf vf_set(real x) { return vdupq_n_f64(x); }
VF_INLINE vf vf_load(const real *p) { return vld1q_f64(p); }
VF_INLINE void vf_store(real *p, vf v) { vst1q_f64(p, v); }
VF_INLINE vf vf_load_part(const real *p, int64_t count)
{
    if (count >= VF_LANES) return vld1q_f64(p);
    return count ? vld1q_lane_f64(p, vdupq_n_f64(0), 0) : vdupq_n_f64(0);
}
VF_INLINE void vf_store_part(real *p, vf v, int64_t count)
{
    if (count >= VF_LANES) vst1q_f64(p, v);
    else if (count) vst1q_lane_f64(p, v, 0);
}

VF_INLINE vf vf_add(vf a, vf b) { return vaddq_f64(a, b); }
VF_INLINE vf vf_sub(vf a, vf b) { return vsubq_f64(a, b); }
VF_INLINE vf vf_mul(vf a, vf b) { return vmulq_f64(a, b); }
VF_INLINE vf vf_div(vf a, vf b) { return vdivq_f64(a, b); }
VF_INLINE vf vf_max(vf a, vf b) { return vbslq_f64(vcgtq_f64(a, b), a, b); }
VF_INLINE vf vf_min(vf a, vf b) { return vbslq_f64(vcltq_f64(a, b), a, b); }
VF_INLINE vf vf_fma(vf a, vf b, vf c) { return vfmaq_f64(c, a, b); }
VF_INLINE vf vf_power(vf t)
{
    const uint8_t *bytes = (const uint8_t *)power_corrections; /* eight words are a table of 64 bytes */
    const uint8x16x4_t corrections = {{vld1q_u8(bytes), vld1q_u8(bytes + 16), vld1q_u8(bytes + 32), vld1q_u8(bytes + 48)}};
    const uint64x2_t n = vreinterpretq_u64_f64(t), first = vshlq_n_u64(vandq_u64(n, vdupq_n_u64(7)), 3); /* byte of the word */
    const uint64x2_t repeated = vreinterpretq_u64_u8(vqtbl1q_u8(
        vreinterpretq_u8_u64(first), vreinterpretq_u8_u64(vcombine_u64(vcreate_u64(0), vcreate_u64(0x0808080808080808)))));
    const uint64x2_t at = vorrq_u64(repeated, vdupq_n_u64(0x0706050403020100));
    return vreinterpretq_f64_u64(
        vaddq_u64(vshlq_n_u64(n, POWER_SHIFT), vreinterpretq_u64_u8(vqtbl4q_u8(corrections, vreinterpretq_u8_u64(at)))));
}

VF_INLINE vm vf_gt(vf a, vf b) { return vcgtq_f64(a, b); }
VF_INLINE vm vf_ge(vf a, vf b) { return vcgeq_f64(a, b); }
VF_INLINE vm vf_eq(vf a, vf b) { return vceqq_f64(a, b); }
VF_INLINE vm vf_bits(vf v) { return vtstq_u64(vreinterpretq_u64_f64(v), vreinterpretq_u64_f64(v)); }
VF_INLINE vm vm_and(vm a, vm b) { return vandq_u64(a, b); }
VF_INLINE vm vm_or(vm a, vm b) { return vorrq_u64(a, b); }
VF_INLINE int vm_any(vm a) { return vmaxvq_u32(vreinterpretq_u32_u64(a)) != 0; }
VF_INLINE int vm_all(vm a) { return vminvq_u32(vreinterpretq_u32_u64(a)) != 0; }
VF_INLINE vf vf_select(vm mask, vf yes, vf no) { return vbslq_f64(mask, yes, no); }
VF_INLINE vm vf_at_least(const uint32_t *p, uint32_t t) { return vcgeq_u64(vmovl_u32(vld1_u32(p)), vdupq_n_u64(t)); }
VF_INLINE vf vf_of_i32(const int32_t *p) { return vcvtq_f64_s64(vmovl_s32(vld1_s32(p))); }

VF_INLINE vf vf_load_as(attn_dtype dtype, const void *base, int64_t index)
{
    const char *p = (const char *)base + index * bytes_of(dtype);
    uint32_t halves;
    uint64_t lanes[2];
    switch (dtype) {
    case ATTN_F64:
        return vld1q_f64((const double *)(const void *)p);
    case ATTN_F32:
        return vcvt_f64_f32(vld1_f32((const float *)(const void *)p));
    case ATTN_F16:
        memcpy(&halves, p, sizeof halves);
        return vcvt_f64_f32(vget_low_f32(vcvt_f32_f16(vreinterpret_f16_u32(vdup_n_u32(halves)))));
    case ATTN_BF16:
        memcpy(&halves, p, sizeof halves);
        return vcvt_f64_f32(vget_low_f32(vreinterpretq_f32_u32(vshll_n_u16(vreinterpret_u16_u32(vdup_n_u32(halves)), 16))));
    default:
        lanes[0] = (uint8_t)p[0];
        lanes[1] = (uint8_t)p[1];
        return vreinterpretq_f64_u64(vld1q_u64(lanes));
    }
}

#define VF_SPLITS(dtype) ((void)(dtype), 0)
VF_INLINE void vf_load_two(attn_dtype dtype, const void *base, int64_t index, vf *x)
{
    x[0] = vf_load_as(dtype, base, index);
    x[1] = vf_load_as(dtype, base, index + VF_LANES);
}

VF_INLINE vf vf_sums(const vf *x) { return vpaddq_f64(x[0], x[1]); }

/* The 16-bit types go element by element: through f32 they would round twice. */
VF_INLINE void vf_store_as(attn_dtype dtype, void *base, int64_t index, vf v)
{
    if (dtype == ATTN_F64) {
        vst1q_f64((double *)base + index, v);
    } else if (dtype == ATTN_F32) {
        vst1_f32((float *)base + index, vcvt_f32_f64(v));
    } else {
        put_real(dtype, base, index, vgetq_lane_f64(v, 0));
        put_real(dtype, base, index + 1, vgetq_lane_f64(v, 1));
    }
}

VF_INLINE void vf_transpose(vf *r)
{
    const vf a = vtrn1q_f64(r[0], r[1]);
    r[1] = vtrn2q_f64(r[0], r[1]);
    r[0] = a;
}

#endif

#include "halves.h"

#define VU_LANES 2
typedef uint64x2_t vu;
VF_INLINE vu vu_set(uint64_t x) { return vdupq_n_u64(x); }
VF_INLINE vu vu_load(const uint64_t *p) { return vld1q_u64(p); }
VF_INLINE vu vu_xor(vu a, vu b) { return veorq_u64(a, b); }
VF_INLINE vu vu_multiply(vu a, vu b) { return vmull_u32(vmovn_u64(a), vmovn_u64(b)); }
VF_INLINE vu vu_upper(vu a) { return vshrq_n_u64(a, 32); }
VF_INLINE void vu_store_lower(uint32_t *p, vu a) { vst1_u32(p, vmovn_u64(a)); }

#include "neon_product.h"

#endif
