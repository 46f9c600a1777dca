/* SPDX-License-Identifier: MIT
 *
 * common.h - what every SIMD layer header begins with.
 *
 * A SIMD layer names about 30 operations on `vf`, a vector of VF_LANES elements of type `real`.  They mean the same in every
 * header; kernels are written over them once.  The includer says REAL_BITS 32 or 64.
 *
 *      vf_zero vf_set vf_load vf_store            pointers need the alignment of an element only
 *      vf_load_part vf_store_part                 the first `count` lanes, 0 <= count <= VF_LANES; the others are 0, or not written
 *      vf_load_as vf_store_as                     element `index` on of a tensor of another type; ATTN_BOOL loads bits, for vf_bits
 *      vf_load_two(dtype, base, index, x)         2*VF_LANES elements as x[0] and x[1]: the even and the odd ones where
 *                                                 VF_SPLITS(dtype), else the first and the second half
 *      vf_add vf_sub vf_mul vf_div
 *      vf_fma(a, b, c)                            a*b + c; one rounding where VF_FUSED is 1
 *      vf_fma_pairs(a, b, c)                      where VF_PAIRS is defined: the same of pairs of bf16 in each lane, as
 *                                                 attn_pairs_part has it
 *      vf_max(a, b) vf_min(a, b)                  b where either is NaN
 *      vf_power(t)                                2^n, where 8 (n + bias) stands in the lowest bits of t; 0 where that is 0
 *      vf_gt vf_ge vf_eq vf_bits                  masks (`vm`): false where either is NaN; vf_bits: any bit set
 *      vm_and vm_or vm_any vm_all
 *      vf_select(mask, yes, no)
 *      vf_sums(x)                                 lane i is the sum of the lanes of x[i], by the same tree for each
 *      vf_load_four(p)                            where vectors have 16 lanes: the four elements at p, four times
 *      vf_load_fours(p, at)                       those at p + at[0], p + at[1], p + at[2] and p + at[3]
 *      vf_of_fours(x, i)                          the element i of each four lanes, in all of them; i is a constant
 *      vf_of_i32(p)                               VF_LANES integers
 *      vf_at_least(p, t)                          mask: which of VF_LANES integers without a sign are at least t
 *      vf_transpose(r)                            r[i][lane] becomes r[lane][i]
 *      hf_zero hf_load hf_store hf_add hf_fma hf_fma_pairs hf_load_as hf_transpose
 *                                                 the same of `hf`, VF_CHAINS elements, which are vf, half of it or two of it: the
 *                                                 chains of a score in order (product_step.inc.c)
 *      VF_ELEMENT(p)                              the element at p in all lanes
 *      VF_PIN(v) HF_PIN(v)                        keeps v in a register: else gcc folds one load into every use of it; HF_PIN is
 *                                                 VF_PIN, where a header has none
 *      vu_set vu_load vu_xor vu_multiply vu_upper vu_store_lower
 *                                                 VU_LANES words of 32 bits, each the lower half of 64, for random numbers; where a
 *                                                 header has none, those of dropout_step.inc.c
 *
 * and constants: VF_VECTORS, the vectors of a full tile; VF_ROWS(width), the rows of a register tile of that width;
 * for decode VF_DOT_SUMS, the sums of a register tile of scores, and VF_STRIP, the vectors of a strip of values.  Where a header
 * says so: VF_ORDERED_ROWS(width), the rows of a register tile of scores in order, and VF_CHAIN_SUMS, VF_DOT_SUMS in order.
 */
#ifndef ATTN_KERNELS_VEC_COMMON_H
#define ATTN_KERNELS_VEC_COMMON_H

#include <float.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "../../base/half.h"
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
#error "say REAL_BITS 32 or 64"
#endif

/* Emulated intrinsics are long functions, and so is everything that a sanitizer checks: a compiler that inlines and unrolls them
 * takes minutes.  And one that does not optimise makes nothing better by it. */
#if defined(ATTN_EMULATE_AVX512) || defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__OPTIMIZE__)
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

#define VF_APART __attribute__((noinline, unused)) /* a function whose registers are its own */

VF_INLINE int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* 2^(j/8) less 1 + j/8, j = 0 to 7, in units of the last place of numbers from 1 to 2. (j/8 stands below the exponent already, when
 * vf_power has moved it up there.) */
#if REAL_BITS == 32
#define POWER_BENDS(each)                                                                                                          \
    each(0), each(-289342), each(-509968), each(-655657), each(-719629), each(-694486), each(-572163), each(-343865)
typedef uint32_t power_bits;
#else
#define POWER_BENDS(each)                                                                                                          \
    each(0), each(-155339362315909), each(-273786814220523), each(-352003352548825), each(-386347768529971),                       \
        each(-372849295843109), each(-307177783110739), each(-184611166772089)
typedef uint64_t power_bits;
#endif
#define POWER_BEND(bend) (power_bits)(bend)
static const power_bits power_bends[8] = {POWER_BENDS(POWER_BEND)};
enum { POWER_SHIFT = REAL_BITS == 32 ? 20 : 49 }; /* from the lowest bit to the eighths below the exponent */

/* Bytes of an element of a caller's tensor. */
VF_INLINE int64_t bytes_of(attn_dtype dtype)
{
    return dtype == ATTN_F64 ? 8 : dtype == ATTN_F32 ? 4 : dtype == ATTN_F16 || dtype == ATTN_BF16 ? 2 : 1;
}

/* Element `index` of a caller's tensor as a real; an f64 that is finite stays finite in f32. */
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
    default:
        return *p != 0;
    }
}

/* Element `index` of a caller's tensor = x, rounded once. */
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
