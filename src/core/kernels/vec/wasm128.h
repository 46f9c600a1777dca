/* SPDX-License-Identifier: MIT
 *
 * wasm128.h - the SIMD layer (see common.h) for WebAssembly with SIMD128 (-msimd128): four floats or two doubles.
 *
 * There is no fused multiply-add, so a product is rounded before it is added, as in scalar.h; and no conversion of f16, which goes
 * by integers.  f32x4.max and min return NaN if either operand is NaN: not what vf_max and vf_min promise, and slower than pmax and
 * pmin.
 */
#ifndef ATTN_KERNELS_VEC_WASM128_H
#define ATTN_KERNELS_VEC_WASM128_H

#include "common.h"

#include <wasm_simd128.h>

/* Engines map these vectors to 16 registers on x86-64 and 32 on AArch64: 4 rows x 3 vectors (12 sums), 6 x 2 or 8 x 1. */
#define VF_VECTORS     3
#define VF_ROWS(width) ((width) == 3 ? 4 : (width) == 2 ? 6 : 8)
#define VF_MAX_ROWS    8
#define VF_DOT_SUMS    8
#define VF_CHAIN_SUMS  8
#define VF_STRIP       2
/* A block of scores of a full tile, 48 bytes a key, is 12 KB of the 32 KB of a level 1 cache. */
#define VF_BLOCK_KV(dim_qk, dim_v) ((void)(dim_qk), (void)(dim_v), 256)
#define VF_FUSED                   0
#define VF_PIN(v)                  (void)(v)
#define HF_PIN(x)                  (void)(x)

typedef v128_t vf;
typedef v128_t vm;

VF_INLINE vf vf_zero(void) { return wasm_i32x4_const_splat(0); }
VF_INLINE vf vf_load(const real *p) { return wasm_v128_load(p); }
VF_INLINE void vf_store(real *p, vf v) { wasm_v128_store(p, v); }
VF_INLINE vm vm_and(vm a, vm b) { return wasm_v128_and(a, b); }
VF_INLINE vm vm_or(vm a, vm b) { return wasm_v128_or(a, b); }
VF_INLINE int vm_any(vm a) { return wasm_v128_any_true(a); }
VF_INLINE vf vf_select(vm mask, vf yes, vf no) { return wasm_v128_bitselect(yes, no, mask); }

#if REAL_BITS == 32

#define VF_LANES 4

VF_INLINE vf vf_set(real x) { return wasm_f32x4_splat(x); }
VF_INLINE vf vf_load_part(const real *p, int64_t count)
{
    if (count >= VF_LANES) return wasm_v128_load(p);
    if (count <= 0) return vf_zero();
    if (count == 1) return wasm_v128_load32_zero(p);
    const v128_t low = wasm_v128_load64_zero(p);
    return count == 2 ? low : wasm_v128_load32_lane(p + 2, low, 2);
}
VF_INLINE void vf_store_part(real *p, vf v, int64_t count)
{
    if (count >= VF_LANES) {
        wasm_v128_store(p, v);
        return;
    }
    if (count >= 2) wasm_v128_store64_lane(p, v, 0);
    if (count == 1) wasm_v128_store32_lane(p, v, 0);
    if (count == 3) wasm_v128_store32_lane(p + 2, v, 2);
}

VF_INLINE vf vf_add(vf a, vf b) { return wasm_f32x4_add(a, b); }
VF_INLINE vf vf_sub(vf a, vf b) { return wasm_f32x4_sub(a, b); }
VF_INLINE vf vf_mul(vf a, vf b) { return wasm_f32x4_mul(a, b); }
VF_INLINE vf vf_div(vf a, vf b) { return wasm_f32x4_div(a, b); }
VF_INLINE vf vf_max(vf a, vf b) { return wasm_f32x4_pmax(b, a); } /* pmax(b, a) is b < a ? a : b */
VF_INLINE vf vf_min(vf a, vf b) { return wasm_f32x4_pmin(b, a); }
VF_INLINE vf vf_fma(vf a, vf b, vf c) { return wasm_f32x4_add(wasm_f32x4_mul(a, b), c); }
VF_INLINE vf vf_power(vf n)
{
    /* Eight words are two tables of 16 bytes; an index beyond a table gives 0. */
    const v128_t at =
        wasm_i32x4_add(wasm_i32x4_mul(wasm_v128_and(n, wasm_i32x4_const_splat(7)), wasm_i32x4_const_splat(0x04040404)),
                       wasm_i32x4_const_splat(0x03020100));
    const v128_t low = wasm_i8x16_swizzle(wasm_v128_load(power_corrections), at);
    const v128_t high = wasm_i8x16_swizzle(wasm_v128_load(power_corrections + 4), wasm_i8x16_sub(at, wasm_i8x16_const_splat(16)));
    return wasm_i32x4_add(wasm_i32x4_shl(n, POWER_SHIFT), wasm_v128_or(low, high));
}

VF_INLINE vm vf_gt(vf a, vf b) { return wasm_f32x4_gt(a, b); }
VF_INLINE vm vf_ge(vf a, vf b) { return wasm_f32x4_ge(a, b); }
VF_INLINE vm vf_eq(vf a, vf b) { return wasm_f32x4_eq(a, b); }
VF_INLINE vm vf_bits(vf v) { return wasm_i32x4_ne(v, vf_zero()); }
VF_INLINE int vm_all(vm a) { return wasm_i32x4_all_true(a); }
VF_INLINE vm vf_at_least(const uint32_t *p, uint32_t t) { return wasm_u32x4_ge(wasm_v128_load(p), wasm_i32x4_splat((int32_t)t)); }
VF_INLINE vf vf_of_i32(const int32_t *p) { return wasm_f32x4_convert_i32x4(wasm_v128_load(p)); }
VF_INLINE vf vf_of_half(uint16_t h) { return wasm_f32x4_splat(attn_f32_of_f16(h)); }

/* Four bytes as words; the bits of an f32 that are a word's f16 (attn_f32_of_f16). */
VF_INLINE v128_t words_of_u8(const void *p)
{
    return wasm_u32x4_extend_low_u16x8(wasm_u16x8_extend_low_u8x16(wasm_v128_load32_zero(p)));
}
VF_INLINE vf of_f16(v128_t h)
{
    const v128_t size = wasm_v128_and(h, wasm_i32x4_const_splat(0x7fff)), shifted = wasm_i32x4_shl(size, 13);
    const v128_t sign = wasm_i32x4_shl(wasm_v128_xor(h, size), 16);
    const v128_t normal = wasm_i32x4_add(shifted, wasm_i32x4_const_splat(112 << 23));
    /* A subnormal is its integer times 2^-24: that many units in the last place above 0.5. */
    const v128_t tiny = wasm_f32x4_sub(wasm_v128_or(size, wasm_f32x4_const_splat(0.5f)), wasm_f32x4_const_splat(0.5f));
    const v128_t quiet = wasm_v128_and(wasm_i32x4_gt(size, wasm_i32x4_const_splat(0x7c00)), wasm_i32x4_const_splat(0x400000));
    const v128_t top = wasm_v128_or(wasm_v128_or(shifted, wasm_i32x4_const_splat(0x7f800000)), quiet);
    const v128_t finite = wasm_v128_bitselect(tiny, normal, wasm_i32x4_lt(size, wasm_i32x4_const_splat(0x400)));
    return wasm_v128_or(sign, wasm_v128_bitselect(top, finite, wasm_i32x4_ge(size, wasm_i32x4_const_splat(0x7c00))));
}

VF_INLINE vf vf_of_nibbles(const uint8_t *p, int upper)
{
    const v128_t x = words_of_u8(p);
    return wasm_f32x4_convert_i32x4(upper ? wasm_u32x4_shr(x, 4) : wasm_v128_and(x, wasm_i32x4_const_splat(15)));
}

/* half_of_f8 for four bytes in words. */
VF_INLINE v128_t halves_of_f8(attn_dtype dtype, v128_t x)
{
    if (dtype == ATTN_F8_E5M2) return wasm_i32x4_shl(x, 8);
    const v128_t size = wasm_v128_and(x, wasm_i32x4_const_splat(0x7f));
    const v128_t nan = wasm_v128_and(wasm_i32x4_add(size, wasm_i32x4_const_splat(1)), wasm_i32x4_const_splat(0x80));
    return wasm_v128_or(wasm_i32x4_shl(wasm_v128_xor(x, size), 8), wasm_i32x4_shl(wasm_v128_or(size, nan), 7));
}

VF_INLINE vf vf_load_as(attn_dtype dtype, const void *base, int64_t index)
{
    const char *p = (const char *)base + index * bytes_of(dtype);
    switch (dtype) {
    case ATTN_F32:
        return wasm_v128_load(p);
    case ATTN_F16:
        return of_f16(wasm_u32x4_load16x4(p));
    case ATTN_BF16:
        return wasm_i32x4_shl(wasm_u32x4_load16x4(p), 16);
    case ATTN_F64:
        return wasm_f32x4_make(real_at(dtype, p, 0), real_at(dtype, p, 1), real_at(dtype, p, 2), real_at(dtype, p, 3));
    case ATTN_F8_E4M3:
    case ATTN_F8_E5M2:
        return wasm_f32x4_mul(of_f16(halves_of_f8(dtype, words_of_u8(p))), wasm_f32x4_splat(f8_factor(dtype)));
    case ATTN_I8:
        return wasm_f32x4_convert_i32x4(wasm_i32x4_extend_low_i16x8(wasm_i16x8_extend_low_i8x16(wasm_v128_load32_zero(p))));
    default:
        return words_of_u8(p);
    }
}

/* bf16: one shift and one mask for 8 elements. */
#define VF_SPLITS(dtype) ((dtype) == ATTN_BF16)
VF_INLINE void vf_load_two(attn_dtype dtype, const void *base, int64_t index, vf *x)
{
    if (dtype == ATTN_BF16) {
        const v128_t both = wasm_v128_load((const uint16_t *)base + index);
        x[0] = wasm_i32x4_shl(both, 16);
        x[1] = wasm_v128_and(both, wasm_i32x4_const_splat((int32_t)0xffff0000));
    } else {
        x[0] = vf_load_as(dtype, base, index);
        x[1] = vf_load_as(dtype, base, index + VF_LANES);
    }
}

VF_INLINE vf even_and_odd(vf a, vf b)
{
    return wasm_f32x4_add(wasm_i32x4_shuffle(a, b, 0, 2, 4, 6), wasm_i32x4_shuffle(a, b, 1, 3, 5, 7));
}
VF_INLINE vf vf_sums(const vf *x) { return even_and_odd(even_and_odd(x[0], x[1]), even_and_odd(x[2], x[3])); }

/* The lower halves of words are the results. */
VF_INLINE v128_t bf16_of(vf x)
{
    const v128_t upper = wasm_u32x4_shr(x, 16), odd = wasm_v128_and(upper, wasm_i32x4_const_splat(1));
    const v128_t near = wasm_u32x4_shr(wasm_i32x4_add(x, wasm_i32x4_add(odd, wasm_i32x4_const_splat(0x7fff))), 16);
    return wasm_v128_bitselect(near, wasm_v128_or(upper, wasm_i32x4_const_splat(0x40)),
                               wasm_f32x4_eq(x, x)); /* NaN is not rounded */
}
VF_INLINE v128_t f16_of(vf x)
{
    const v128_t size = wasm_v128_and(x, wasm_i32x4_const_splat(0x7fffffff)), sign = wasm_u32x4_shr(wasm_v128_xor(x, size), 16);
    const v128_t odd = wasm_v128_and(wasm_u32x4_shr(size, 13), wasm_i32x4_const_splat(1));
    const v128_t near = wasm_u32x4_shr(wasm_i32x4_add(size, wasm_i32x4_add(odd, wasm_i32x4_const_splat(0xfff - (112 << 23)))), 13);
    /* The last place of numbers from 0.5 on is that of subnormals, and the sum is rounded as they are. */
    const v128_t half = wasm_f32x4_const_splat(0.5f), tiny = wasm_i32x4_sub(wasm_f32x4_add(size, half), half);
    const v128_t payload =
        wasm_v128_or(wasm_v128_and(wasm_u32x4_shr(size, 13), wasm_i32x4_const_splat(0x3ff)), wasm_i32x4_const_splat(0x200));
    const v128_t top = wasm_v128_or(wasm_i32x4_const_splat(0x7c00), wasm_v128_and(payload, wasm_f32x4_ne(x, x)));
    const v128_t finite = wasm_v128_bitselect(tiny, near, wasm_i32x4_lt(size, wasm_i32x4_const_splat(113 << 23)));       /* 2^-14 */
    return wasm_v128_or(sign, wasm_v128_bitselect(top, finite, wasm_i32x4_ge(size, wasm_i32x4_const_splat(143 << 23)))); /* 2^16 */
}

VF_INLINE void vf_store_as(attn_dtype dtype, void *base, int64_t index, vf v)
{
    char *p = (char *)base + index * bytes_of(dtype);
    switch (dtype) {
    case ATTN_F32:
        wasm_v128_store(p, v);
        break;
    case ATTN_F16:
    case ATTN_BF16: {
        const v128_t words = dtype == ATTN_F16 ? f16_of(v) : bf16_of(v);
        wasm_v128_store64_lane(p, wasm_u16x8_narrow_i32x4(words, words), 0);
        break;
    }
    default:
        wasm_v128_store(p, wasm_f64x2_promote_low_f32x4(v));
        wasm_v128_store(p + 16, wasm_f64x2_promote_low_f32x4(wasm_i64x2_shuffle(v, v, 1, 1)));
        break;
    }
}

VF_INLINE void vf_transpose(vf *r)
{
    const v128_t a = wasm_i32x4_shuffle(r[0], r[1], 0, 4, 2, 6), b = wasm_i32x4_shuffle(r[0], r[1], 1, 5, 3, 7);
    const v128_t c = wasm_i32x4_shuffle(r[2], r[3], 0, 4, 2, 6), d = wasm_i32x4_shuffle(r[2], r[3], 1, 5, 3, 7);
    r[0] = wasm_i64x2_shuffle(a, c, 0, 2);
    r[1] = wasm_i64x2_shuffle(b, d, 0, 2);
    r[2] = wasm_i64x2_shuffle(a, c, 1, 3);
    r[3] = wasm_i64x2_shuffle(b, d, 1, 3);
}

#else

#define VF_LANES 2

VF_INLINE vf vf_set(real x) { return wasm_f64x2_splat(x); }
VF_INLINE vf vf_load_part(const real *p, int64_t count)
{
    if (count >= VF_LANES) return wasm_v128_load(p);
    return count ? wasm_v128_load64_zero(p) : vf_zero();
}
VF_INLINE void vf_store_part(real *p, vf v, int64_t count)
{
    if (count >= VF_LANES) wasm_v128_store(p, v);
    else if (count) wasm_v128_store64_lane(p, v, 0);
}

VF_INLINE vf vf_add(vf a, vf b) { return wasm_f64x2_add(a, b); }
VF_INLINE vf vf_sub(vf a, vf b) { return wasm_f64x2_sub(a, b); }
VF_INLINE vf vf_mul(vf a, vf b) { return wasm_f64x2_mul(a, b); }
VF_INLINE vf vf_div(vf a, vf b) { return wasm_f64x2_div(a, b); }
VF_INLINE vf vf_max(vf a, vf b) { return wasm_f64x2_pmax(b, a); }
VF_INLINE vf vf_min(vf a, vf b) { return wasm_f64x2_pmin(b, a); }
VF_INLINE vf vf_fma(vf a, vf b, vf c) { return wasm_f64x2_add(wasm_f64x2_mul(a, b), c); }
VF_INLINE vf vf_power(vf n)
{
    const int64_t i = wasm_i64x2_extract_lane(n, 0) & 7, j = wasm_i64x2_extract_lane(n, 1) & 7;
    const v128_t corrections = wasm_v128_load64_lane(power_corrections + j, wasm_v128_load64_zero(power_corrections + i), 1);
    return wasm_i64x2_add(wasm_i64x2_shl(n, POWER_SHIFT), corrections);
}

VF_INLINE vm vf_gt(vf a, vf b) { return wasm_f64x2_gt(a, b); }
VF_INLINE vm vf_ge(vf a, vf b) { return wasm_f64x2_ge(a, b); }
VF_INLINE vm vf_eq(vf a, vf b) { return wasm_f64x2_eq(a, b); }
VF_INLINE vm vf_bits(vf v) { return wasm_i64x2_ne(v, vf_zero()); }
VF_INLINE int vm_all(vm a) { return wasm_i64x2_all_true(a); }
VF_INLINE vm vf_at_least(const uint32_t *p, uint32_t t)
{
    return wasm_i64x2_ge(wasm_u64x2_load32x2(p), wasm_i64x2_splat((int64_t)t));
}
VF_INLINE vf vf_of_i32(const int32_t *p) { return wasm_f64x2_convert_low_i32x4(wasm_v128_load64_zero(p)); }

VF_INLINE vf vf_load_as(attn_dtype dtype, const void *base, int64_t index)
{
    const char *p = (const char *)base + index * bytes_of(dtype);
    switch (dtype) {
    case ATTN_F64:
        return wasm_v128_load(p);
    case ATTN_F32:
        return wasm_f64x2_promote_low_f32x4(wasm_v128_load64_zero(p));
    case ATTN_F16:
    case ATTN_BF16:
        return wasm_f64x2_make(real_at(dtype, p, 0), real_at(dtype, p, 1));
    default:
        return wasm_i64x2_make((uint8_t)p[0], (uint8_t)p[1]);
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
    return wasm_f64x2_add(wasm_i64x2_shuffle(x[0], x[1], 0, 2), wasm_i64x2_shuffle(x[0], x[1], 1, 3));
}

/* The 16-bit types go element by element: through f32 they would round twice. */
VF_INLINE void vf_store_as(attn_dtype dtype, void *base, int64_t index, vf v)
{
    if (dtype == ATTN_F64) {
        wasm_v128_store((double *)base + index, v);
    } else if (dtype == ATTN_F32) {
        wasm_v128_store64_lane((float *)base + index, wasm_f32x4_demote_f64x2_zero(v), 0);
    } else {
        put_real(dtype, base, index, wasm_f64x2_extract_lane(v, 0));
        put_real(dtype, base, index + 1, wasm_f64x2_extract_lane(v, 1));
    }
}

VF_INLINE void vf_transpose(vf *r)
{
    const vf a = wasm_i64x2_shuffle(r[0], r[1], 0, 2);
    r[1] = wasm_i64x2_shuffle(r[0], r[1], 1, 3);
    r[0] = a;
}

#endif

#include "halves.h"

#define VU_LANES 2
typedef v128_t vu;
VF_INLINE vu vu_set(uint64_t x) { return wasm_i64x2_splat((int64_t)x); }
VF_INLINE vu vu_load(const uint64_t *p) { return wasm_v128_load(p); }
VF_INLINE vu vu_xor(vu a, vu b) { return wasm_v128_xor(a, b); }
VF_INLINE v128_t lower_words(vu a) { return wasm_i32x4_shuffle(a, a, 0, 2, 0, 2); }
VF_INLINE vu vu_multiply(vu a, vu b) { return wasm_u64x2_extmul_low_u32x4(lower_words(a), lower_words(b)); }
VF_INLINE vu vu_upper(vu a) { return wasm_u64x2_shr(a, 32); }
VF_INLINE void vu_store_lower(uint32_t *p, vu a) { wasm_v128_store64_lane(p, lower_words(a), 0); }

#endif
