/* SPDX-License-Identifier: MIT
 *
 * common.h - the common start of all SIMD layer headers.
 *
 * A SIMD layer defines about 30 operations on `vf`, a vector of VF_LANES elements of type `real`.  They mean the same in every
 * header, so that kernels are written once.  The includer defines REAL_BITS as 32 or 64.
 *
 *      vf_zero vf_set vf_load vf_store            pointers need only the alignment of an element
 *      vf_load_part vf_store_part                 the first `count` lanes, 0 <= count <= VF_LANES; others load as 0, are not stored
 *      vf_load_as vf_store_as                     from element `index` on, in another type; ATTN_BOOL loads bits, for vf_bits
 *      vf_load_two(dtype, base, index, x)         2*VF_LANES elements as x[0] and x[1]: the even and the odd ones if
 *                                                 VF_SPLITS(dtype), else the first and the second half
 *      vf_add vf_sub vf_mul vf_div
 *      vf_fma(a, b, c)                            a*b + c; rounded once if VF_FUSED is 1
 *      vf_fma_pairs(a, b, c)                      if VF_PAIRS is defined: the same for a pair of bf16 in each lane, as in
 *                                                 attn_pairs_part
 *      vf_max(a, b) vf_min(a, b)                  b if either is NaN
 *      vf_power(t)                                2^n, where the lowest bits of t hold 8 (n + bias); 0 where they are 0
 *      vf_gt vf_ge vf_eq vf_bits                  masks (`vm`), false if either is NaN; vf_bits: any bit set
 *      vm_and vm_or vm_any vm_all
 *      vf_select(mask, yes, no)
 *      vf_sums(x)                                 lane i is the sum of the lanes of x[i], by the same tree for each
 *      vf_load_four(p)                            vectors of 16 lanes only: the four elements at p, four times
 *      vf_load_fours(p, at)                       the four elements at each of p + at[0], p + at[1], p + at[2], p + at[3]
 *      vf_of_fours(x, i)                          element i of each group of four lanes, in all four; i is a constant
 *      vf_of_i32(p)                               VF_LANES integers, converted
 *      vf_of_half(h)                              f32 only: an f16 in all lanes
 *      vf_of_nibbles(p, upper)                    f32 only: the lower or the upper 4 bits of VF_LANES bytes
 *      vf_at_least(p, t)                          mask: which of VF_LANES unsigned integers are at least t
 *      vf_transpose(r)                            r[i][lane] becomes r[lane][i]
 *      hf_zero hf_load hf_store hf_add hf_fma hf_fma_pairs hf_load_as hf_transpose
 *                                                 the same for `hf`, VF_CHAINS elements (a vf, half of one, or two): the chains of
 *                                                 an ordered score (product_step.inc.c)
 *      VF_ELEMENT(p)                              the element at p in all lanes
 *      VF_PIN(v) HF_PIN(v)                        keeps v in a register: otherwise gcc folds its load into every use; HF_PIN
 *                                                 defaults to VF_PIN
 *      vu_set vu_load vu_xor vu_multiply vu_upper vu_store_lower
 *                                                 VU_LANES words of 32 bits, each the lower half of 64, for random numbers; the
 *                                                 default is in dropout_step.inc.c
 *
 * and constants: VF_VECTORS, the vectors of a full tile; VF_ROWS(width), the rows of a register tile of that width; for decode
 * VF_DOT_SUMS, the sums of a register tile of scores, and VF_STRIP, the vectors of a strip of values.  Optional, for ordered
 * scores: VF_ORDERED_ROWS(width), the rows of a register tile, and VF_CHAIN_SUMS, the sums of one in decode.
 */
#ifndef ATTN_KERNELS_VEC_COMMON_H
#define ATTN_KERNELS_VEC_COMMON_H

#include <float.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "../../base/half.h"
#include "../../base/inference.h"
#include "../kernel.h"

#if REAL_BITS == 32
typedef float real;
#define REAL_DTYPE  ATTN_F32
#define REAL_LOWEST (-FLT_MAX)
#elif REAL_BITS == 64
typedef double real;
#define REAL_DTYPE  ATTN_F64
#define REAL_LOWEST (-DBL_MAX)
#else
#error "define REAL_BITS as 32 or 64"
#endif

/* VF_SHORT_CODE: the layer wants small code rather than fast code.  Emulated intrinsics are long functions, and so is all sanitized
 * code: inlining and unrolling them takes a compiler minutes, and gains nothing without optimisation. */
#if defined(VF_SHORT_CODE) || defined(ATTN_EMULATE_AVX512) || defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) ||     \
    !defined(__OPTIMIZE__)
#define VF_INLINE static inline __attribute__((unused))
#define VF_UNROLL
#define VF_ROLLED
#else
#define VF_INLINE static inline __attribute__((always_inline, unused))
#if defined(__clang__)
#define VF_UNROLL _Pragma("clang loop unroll(full)")
#define VF_ROLLED _Pragma("clang loop unroll(disable)")
#else
#define VF_UNROLL _Pragma("GCC unroll 32")
#define VF_ROLLED _Pragma("GCC unroll 1")
#endif
#endif

#define VF_NOINLINE __attribute__((noinline, unused)) /* a function with register allocation of its own */

/* What the last numbers of a row take: in an inference-only build functions for all their callers and types, and loops. */
#ifdef ATTN_INFERENCE_ONLY
#define VF_RARE        static VF_NOINLINE
#define VF_UNROLL_TAIL VF_ROLLED
#else
#define VF_RARE        VF_INLINE
#define VF_UNROLL_TAIL VF_UNROLL
#endif

VF_INLINE int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* 2^(j/8) - (1 + j/8) for j = 0 to 7, in units in the last place of numbers from 1 to 2.  (The shift of vf_power already puts j/8
 * just below the exponent.) */
#if REAL_BITS == 32
#define POWER_CORRECTIONS(each)                                                                                                    \
    each(0), each(-289342), each(-509968), each(-655657), each(-719629), each(-694486), each(-572163), each(-343865)
typedef uint32_t power_bits;
#else
#define POWER_CORRECTIONS(each)                                                                                                    \
    each(0), each(-155339362315909), each(-273786814220523), each(-352003352548825), each(-386347768529971),                       \
        each(-372849295843109), each(-307177783110739), each(-184611166772089)
typedef uint64_t power_bits;
#endif
#define POWER_CORRECTION(correction) (power_bits)(correction)
static const power_bits power_corrections[8] = {POWER_CORRECTIONS(POWER_CORRECTION)};
enum { POWER_SHIFT = REAL_BITS == 32 ? 20 : 49 }; /* from the lowest bit to the eighths below the exponent */

/* Bytes of an element of a caller's tensor, or of a block. */
VF_INLINE int64_t bytes_of(attn_dtype dtype)
{
    return dtype == ATTN_F64                         ? 8
           : dtype == ATTN_F32                       ? 4
           : dtype == ATTN_F16 || dtype == ATTN_BF16 ? 2
           : dtype == ATTN_Q8_0                      ? 34
           : dtype == ATTN_Q4_0                      ? 18
           : dtype == ATTN_Q4_1                      ? 20
           : dtype == ATTN_Q4_1C                     ? 20
                                                     : 1;
}

/* The bits of an f16 that is an f8, or, for e4m3, 2^-8 times it: the exponent moves to its place, and a NaN gets that of f16. */
VF_INLINE uint16_t half_of_f8(attn_dtype dtype, uint8_t bits)
{
    const unsigned size = bits & 0x7fu, nan = (size + 1) >> 7;
    return (uint16_t)(dtype == ATTN_F8_E5M2 ? (unsigned)bits << 8 : (bits & 0x80u) << 8 | nan << 14 | size << 7);
}
VF_INLINE float f8_factor(attn_dtype dtype) { return dtype == ATTN_F8_E4M3 ? 256 : 1; }

/* Element `index` of a caller's tensor as a real; a finite f64 stays finite in f32. */
VF_INLINE real real_at(attn_dtype dtype, const void *base, int64_t index)
{
    const char *p = (const char *)base + index * bytes_of(dtype);
    uint16_t half;
    float single;
    double wide;
    switch (dtype) {
    case ATTN_F32:
        memcpy(&single, p, sizeof single);
        return (real)single;
    case ATTN_F16:
        memcpy(&half, p, sizeof half);
        return (real)attn_f32_of_f16(half);
    case ATTN_BF16:
        memcpy(&half, p, sizeof half);
        return (real)attn_f32_of_bf16(half);
    case ATTN_F64:
        memcpy(&wide, p, sizeof wide);
        if (REAL_BITS == 32 && wide - wide == 0) return (real)(wide > FLT_MAX ? FLT_MAX : wide < -FLT_MAX ? -FLT_MAX : wide);
        return (real)wide;
    case ATTN_I8:
        return (real) * (const signed char *)p;
    case ATTN_F8_E4M3:
    case ATTN_F8_E5M2:
        return (real)attn_f32_of_f16(half_of_f8(dtype, *(const uint8_t *)p)) * (real)f8_factor(dtype);
    default:
        return *p != 0;
    }
}

/* Stores x, rounded once, as element `index` of a caller's tensor. */
VF_INLINE void put_real(attn_dtype dtype, void *base, int64_t index, real x)
{
    char *p = (char *)base + index * bytes_of(dtype);
    uint16_t half;
    float single = (float)x;
    double wide = (double)x;
    switch (dtype) {
    case ATTN_F32:
        memcpy(p, &single, sizeof single);
        break;
    case ATTN_F64:
        memcpy(p, &wide, sizeof wide);
        break;
    case ATTN_F16:
        half = attn_f16_of_f64(wide);
        memcpy(p, &half, sizeof half);
        break;
    default:
        half = attn_bf16_of_f64(wide);
        memcpy(p, &half, sizeof half);
        break;
    }
}

#endif
