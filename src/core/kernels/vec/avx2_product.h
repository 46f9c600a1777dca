/* SPDX-License-Identifier: MIT
 *
 * avx2_product.h - the three register tiles of the products on AVX2, each as one asm statement.  They need all 16 registers, where
 * gcc 12 spills sums or folds a load into every use, at half the speed.
 *
 *      acc[i][v] = sum_k A[i*row + k*step] * B[k][v]        one chain of fused multiply-adds from 0, k ascending
 *
 * A row of B is VF_VECTORS vectors.  Every 4 steps one line is prefetched at *fetch, which then moves on by fetch_step bytes.  The
 * _rows forms take rows of B that are ldb elements apart, and prefetch nothing.
 */
#ifndef ATTN_KERNELS_VEC_AVX2_PRODUCT_H
#define ATTN_KERNELS_VEC_AVX2_PRODUCT_H

#if REAL_BITS == 32
#define PRODUCT_PACKED     "ps"
#define PRODUCT_SINGLE     "ss"
#define PRODUCT_CHAIN_ROWS "768" /* bytes of VF_CHAINS rows of B */
#else
#define PRODUCT_PACKED     "pd"
#define PRODUCT_SINGLE     "sd"
#define PRODUCT_CHAIN_ROWS "384"
#endif

/* clang-format off */ /* asm lines follow the shape of the tile */
#define PRODUCT_ZERO(sum)          "vxorps %x[" sum "], %x[" sum "], %x[" sum "]\n"
#define PRODUCT_VECTOR(offset, to) "vmovu" PRODUCT_PACKED " " offset "(%[b]), %%" to "\n"
#define PRODUCT_SCALAR(from)       "vbroadcast" PRODUCT_SINGLE " " from ", %%ymm15\n"
#define PRODUCT_FMA(vector, sum)   "vfmadd231" PRODUCT_PACKED " %%" vector ", %%ymm15, %[" sum "]\n"

/* Four steps per iteration, then one at a time.  STEP(o0, o1, o2) is one step with the vectors of B at these offsets. */
#define PRODUCT_LOOP(STEP)                                                                                                         \
    "test %[quads], %[quads]\n jz 2f\n .p2align 5\n"                                                                               \
    "1: prefetcht0 (%[fetch])\n add %[hop], %[fetch]\n"                                                                            \
    STEP("0", "32", "64") STEP("96", "128", "160") STEP("192", "224", "256") STEP("288", "320", "352")                             \
    "add $384, %[b]\n dec %[quads]\n jnz 1b\n"                                                                                     \
    "2: test %[rest], %[rest]\n jz 4f\n"                                                                                           \
    "3:\n" STEP("0", "32", "64")                                                                                                   \
    "add $96, %[b]\n dec %[rest]\n jnz 3b\n"                                                                                       \
    "4:\n"

#define PRODUCT_ROWS_STEP(STEP) STEP("0", "32", "64") "add %[ldb], %[b]\n"
#define PRODUCT_ROWS_LOOP(STEP)                                                                                                    \
    "test %[quads], %[quads]\n jz 2f\n .p2align 5\n1:\n"                                                                          \
    PRODUCT_ROWS_STEP(STEP) PRODUCT_ROWS_STEP(STEP) PRODUCT_ROWS_STEP(STEP) PRODUCT_ROWS_STEP(STEP)                                \
    "dec %[quads]\n jnz 1b\n"                                                                                                      \
    "2: test %[rest], %[rest]\n jz 4f\n"                                                                                           \
    "3:\n" PRODUCT_ROWS_STEP(STEP) "dec %[rest]\n jnz 3b\n"                                                                        \
    "4:\n"

/* As PRODUCT_LOOP, over every VF_CHAINS-th row of B; PRODUCT_JOIN then adds the result to the sums. */
#define PRODUCT_CHAIN_STEP(STEP) STEP("0", "32", "64") "add $" PRODUCT_CHAIN_ROWS ", %[b]\n"
#define PRODUCT_CHAIN_LOOP(STEP)                                                                                                   \
    "test %[quads], %[quads]\n jz 2f\n .p2align 5\n"                                                                               \
    "1: prefetcht0 (%[fetch])\n add %[hop], %[fetch]\n"                                                                            \
    PRODUCT_CHAIN_STEP(STEP) PRODUCT_CHAIN_STEP(STEP) PRODUCT_CHAIN_STEP(STEP) PRODUCT_CHAIN_STEP(STEP)                                \
    "dec %[quads]\n jnz 1b\n"                                                                                                      \
    "2: test %[rest], %[rest]\n jz 4f\n"                                                                                           \
    "3:\n" PRODUCT_CHAIN_STEP(STEP) "dec %[rest]\n jnz 3b\n"                                                                        \
    "4:\n"
#define PRODUCT_JOIN(offset, sum)                                                                                                  \
    "vadd" PRODUCT_PACKED " " offset "(%[sums]), %[" sum "], %[" sum "]\n vmovu" PRODUCT_PACKED " %[" sum "], " offset "(%[sums])\n"

#define PRODUCT_STEP_4X3(o0, o1, o2)                                                                                               \
    PRODUCT_VECTOR(o0, "ymm12") PRODUCT_VECTOR(o1, "ymm13") PRODUCT_VECTOR(o2, "ymm14")                                            \
    PRODUCT_SCALAR("(%[a])") PRODUCT_FMA("ymm12", "c00") PRODUCT_FMA("ymm13", "c01") PRODUCT_FMA("ymm14", "c02")                   \
    PRODUCT_SCALAR("(%[a],%[row])") PRODUCT_FMA("ymm12", "c10") PRODUCT_FMA("ymm13", "c11") PRODUCT_FMA("ymm14", "c12")            \
    PRODUCT_SCALAR("(%[a],%[row],2)") PRODUCT_FMA("ymm12", "c20") PRODUCT_FMA("ymm13", "c21") PRODUCT_FMA("ymm14", "c22")          \
    PRODUCT_SCALAR("(%[a],%[row3])") PRODUCT_FMA("ymm12", "c30") PRODUCT_FMA("ymm13", "c31") PRODUCT_FMA("ymm14", "c32")           \
    "add %[step], %[a]\n"

#define PRODUCT_STEP_6X2(o0, o1, o2)                                                                                               \
    PRODUCT_VECTOR(o0, "ymm13") PRODUCT_VECTOR(o1, "ymm14")                                                                        \
    PRODUCT_SCALAR("(%[a])") PRODUCT_FMA("ymm13", "c00") PRODUCT_FMA("ymm14", "c01")                                               \
    PRODUCT_SCALAR("(%[a],%[row])") PRODUCT_FMA("ymm13", "c10") PRODUCT_FMA("ymm14", "c11")                                        \
    PRODUCT_SCALAR("(%[a],%[row],2)") PRODUCT_FMA("ymm13", "c20") PRODUCT_FMA("ymm14", "c21")                                      \
    PRODUCT_SCALAR("(%[a],%[row3])") PRODUCT_FMA("ymm13", "c30") PRODUCT_FMA("ymm14", "c31")                                       \
    PRODUCT_SCALAR("(%[a],%[row],4)") PRODUCT_FMA("ymm13", "c40") PRODUCT_FMA("ymm14", "c41")                                      \
    PRODUCT_SCALAR("(%[a],%[row5])") PRODUCT_FMA("ymm13", "c50") PRODUCT_FMA("ymm14", "c51")                                       \
    "add %[step], %[a]\n"

#define PRODUCT_STEP_12X1(o0, o1, o2)                                                                                              \
    PRODUCT_VECTOR(o0, "ymm14")                                                                                                    \
    PRODUCT_SCALAR("(%[a])") PRODUCT_FMA("ymm14", "c00") PRODUCT_SCALAR("(%[a],%[row])") PRODUCT_FMA("ymm14", "c10")               \
    PRODUCT_SCALAR("(%[a],%[row],2)") PRODUCT_FMA("ymm14", "c20") PRODUCT_SCALAR("(%[a],%[row3])") PRODUCT_FMA("ymm14", "c30")     \
    PRODUCT_SCALAR("(%[a],%[row],4)") PRODUCT_FMA("ymm14", "c40") PRODUCT_SCALAR("(%[a],%[row5])") PRODUCT_FMA("ymm14", "c50")     \
    PRODUCT_SCALAR("(%[lower])") PRODUCT_FMA("ymm14", "c60") PRODUCT_SCALAR("(%[lower],%[row])") PRODUCT_FMA("ymm14", "c70")       \
    PRODUCT_SCALAR("(%[lower],%[row],2)") PRODUCT_FMA("ymm14", "c80") PRODUCT_SCALAR("(%[lower],%[row3])") PRODUCT_FMA("ymm14", "c90")\
    PRODUCT_SCALAR("(%[lower],%[row],4)") PRODUCT_FMA("ymm14", "c100") PRODUCT_SCALAR("(%[lower],%[row5])") PRODUCT_FMA("ymm14", "c110")\
    "add %[step], %[a]\n add %[step], %[lower]\n"

#define PRODUCT_SUM(i, v) [c##i##v] "=&x"(acc[i][v])
#define PRODUCT_CLEAR_4X3 \
    PRODUCT_ZERO("c00") PRODUCT_ZERO("c01") PRODUCT_ZERO("c02") PRODUCT_ZERO("c10") PRODUCT_ZERO("c11") PRODUCT_ZERO("c12") \
    PRODUCT_ZERO("c20") PRODUCT_ZERO("c21") PRODUCT_ZERO("c22") PRODUCT_ZERO("c30") PRODUCT_ZERO("c31") PRODUCT_ZERO("c32")
#define PRODUCT_SUMS_4X3 \
    PRODUCT_SUM(0, 0), PRODUCT_SUM(0, 1), PRODUCT_SUM(0, 2), PRODUCT_SUM(1, 0), PRODUCT_SUM(1, 1), PRODUCT_SUM(1, 2), \
    PRODUCT_SUM(2, 0), PRODUCT_SUM(2, 1), PRODUCT_SUM(2, 2), PRODUCT_SUM(3, 0), PRODUCT_SUM(3, 1), PRODUCT_SUM(3, 2)
#define PRODUCT_CLEAR_6X2 \
    PRODUCT_ZERO("c00") PRODUCT_ZERO("c01") PRODUCT_ZERO("c10") PRODUCT_ZERO("c11") PRODUCT_ZERO("c20") PRODUCT_ZERO("c21") \
    PRODUCT_ZERO("c30") PRODUCT_ZERO("c31") PRODUCT_ZERO("c40") PRODUCT_ZERO("c41") PRODUCT_ZERO("c50") PRODUCT_ZERO("c51")
#define PRODUCT_SUMS_6X2 \
    PRODUCT_SUM(0, 0), PRODUCT_SUM(0, 1), PRODUCT_SUM(1, 0), PRODUCT_SUM(1, 1), PRODUCT_SUM(2, 0), PRODUCT_SUM(2, 1), \
    PRODUCT_SUM(3, 0), PRODUCT_SUM(3, 1), PRODUCT_SUM(4, 0), PRODUCT_SUM(4, 1), PRODUCT_SUM(5, 0), PRODUCT_SUM(5, 1)
#define PRODUCT_CLEAR_12X1 \
    PRODUCT_ZERO("c00") PRODUCT_ZERO("c10") PRODUCT_ZERO("c20") PRODUCT_ZERO("c30") PRODUCT_ZERO("c40") PRODUCT_ZERO("c50") \
    PRODUCT_ZERO("c60") PRODUCT_ZERO("c70") PRODUCT_ZERO("c80") PRODUCT_ZERO("c90") PRODUCT_ZERO("c100") PRODUCT_ZERO("c110")
#define PRODUCT_SUMS_12X1 \
    PRODUCT_SUM(0, 0), PRODUCT_SUM(1, 0), PRODUCT_SUM(2, 0), PRODUCT_SUM(3, 0), PRODUCT_SUM(4, 0), PRODUCT_SUM(5, 0), \
    PRODUCT_SUM(6, 0), PRODUCT_SUM(7, 0), PRODUCT_SUM(8, 0), PRODUCT_SUM(9, 0), PRODUCT_SUM(10, 0), PRODUCT_SUM(11, 0)

#define PRODUCT_SUM_OF(chain) [chain] "=&x"(chain)
#define PRODUCT_CHAINS_4X3 \
    PRODUCT_SUM_OF(c00), PRODUCT_SUM_OF(c01), PRODUCT_SUM_OF(c02), PRODUCT_SUM_OF(c10), PRODUCT_SUM_OF(c11), PRODUCT_SUM_OF(c12), \
    PRODUCT_SUM_OF(c20), PRODUCT_SUM_OF(c21), PRODUCT_SUM_OF(c22), PRODUCT_SUM_OF(c30), PRODUCT_SUM_OF(c31), PRODUCT_SUM_OF(c32)
#define PRODUCT_CHAINS_6X2 \
    PRODUCT_SUM_OF(c00), PRODUCT_SUM_OF(c01), PRODUCT_SUM_OF(c10), PRODUCT_SUM_OF(c11), PRODUCT_SUM_OF(c20), PRODUCT_SUM_OF(c21), \
    PRODUCT_SUM_OF(c30), PRODUCT_SUM_OF(c31), PRODUCT_SUM_OF(c40), PRODUCT_SUM_OF(c41), PRODUCT_SUM_OF(c50), PRODUCT_SUM_OF(c51)
#define PRODUCT_CHAINS_12X1 \
    PRODUCT_SUM_OF(c00), PRODUCT_SUM_OF(c10), PRODUCT_SUM_OF(c20), PRODUCT_SUM_OF(c30), PRODUCT_SUM_OF(c40), PRODUCT_SUM_OF(c50), \
    PRODUCT_SUM_OF(c60), PRODUCT_SUM_OF(c70), PRODUCT_SUM_OF(c80), PRODUCT_SUM_OF(c90), PRODUCT_SUM_OF(c100), PRODUCT_SUM_OF(c110)
#define PRODUCT_JOIN_4X3 \
    PRODUCT_JOIN("0", "c00") PRODUCT_JOIN("32", "c01") PRODUCT_JOIN("64", "c02") \
    PRODUCT_JOIN("96", "c10") PRODUCT_JOIN("128", "c11") PRODUCT_JOIN("160", "c12") \
    PRODUCT_JOIN("192", "c20") PRODUCT_JOIN("224", "c21") PRODUCT_JOIN("256", "c22") \
    PRODUCT_JOIN("288", "c30") PRODUCT_JOIN("320", "c31") PRODUCT_JOIN("352", "c32")
#define PRODUCT_JOIN_6X2 \
    PRODUCT_JOIN("0", "c00") PRODUCT_JOIN("32", "c01") PRODUCT_JOIN("96", "c10") PRODUCT_JOIN("128", "c11") \
    PRODUCT_JOIN("192", "c20") PRODUCT_JOIN("224", "c21") PRODUCT_JOIN("288", "c30") PRODUCT_JOIN("320", "c31") \
    PRODUCT_JOIN("384", "c40") PRODUCT_JOIN("416", "c41") PRODUCT_JOIN("480", "c50") PRODUCT_JOIN("512", "c51")
#define PRODUCT_JOIN_12X1 \
    PRODUCT_JOIN("0", "c00") PRODUCT_JOIN("96", "c10") PRODUCT_JOIN("192", "c20") PRODUCT_JOIN("288", "c30") \
    PRODUCT_JOIN("384", "c40") PRODUCT_JOIN("480", "c50") PRODUCT_JOIN("576", "c60") PRODUCT_JOIN("672", "c70") \
    PRODUCT_JOIN("768", "c80") PRODUCT_JOIN("864", "c90") PRODUCT_JOIN("960", "c100") PRODUCT_JOIN("1056", "c110")

#define PRODUCT_COUNTS int64_t quads = steps / 4, rest = steps % 4, size = (int64_t)sizeof(real)
#define PRODUCT_INPUTS [row] "r"(row * size), [row3] "r"(3 * row * size), [step] "r"(step * size)

VF_INLINE void vf_product_4x3(int64_t steps, const real *a, int64_t row, int64_t step, const real *b, uintptr_t *fetch,
                              int64_t fetch_step, vf (*acc)[VF_VECTORS])
{
    PRODUCT_COUNTS;
    __asm__(PRODUCT_CLEAR_4X3 PRODUCT_LOOP(PRODUCT_STEP_4X3)
            : PRODUCT_SUMS_4X3, [a] "+r"(a), [b] "+r"(b), [quads] "+r"(quads), [rest] "+r"(rest), [fetch] "+r"(*fetch)
            : PRODUCT_INPUTS, [hop] "r"(fetch_step)
            : "xmm12", "xmm13", "xmm14", "xmm15", "memory", "cc");
}

VF_INLINE void vf_product_6x2(int64_t steps, const real *a, int64_t row, int64_t step, const real *b, uintptr_t *fetch,
                              int64_t fetch_step, vf (*acc)[VF_VECTORS])
{
    PRODUCT_COUNTS;
    __asm__(PRODUCT_CLEAR_6X2 PRODUCT_LOOP(PRODUCT_STEP_6X2)
            : PRODUCT_SUMS_6X2, [a] "+r"(a), [b] "+r"(b), [quads] "+r"(quads), [rest] "+r"(rest), [fetch] "+r"(*fetch)
            : PRODUCT_INPUTS, [row5] "r"(5 * row * size), [hop] "r"(fetch_step)
            : "xmm13", "xmm14", "xmm15", "memory", "cc");
}

VF_INLINE void vf_product_12x1(int64_t steps, const real *a, int64_t row, int64_t step, const real *b, uintptr_t *fetch,
                               int64_t fetch_step, vf (*acc)[VF_VECTORS])
{
    PRODUCT_COUNTS;
    const real *lower = a + 6 * row;
    __asm__(PRODUCT_CLEAR_12X1 PRODUCT_LOOP(PRODUCT_STEP_12X1)
            : PRODUCT_SUMS_12X1, [a] "+r"(a), [lower] "+r"(lower), [b] "+r"(b), [quads] "+r"(quads), [rest] "+r"(rest),
              [fetch] "+r"(*fetch)
            : PRODUCT_INPUTS, [row5] "r"(5 * row * size), [hop] "r"(fetch_step)
            : "xmm14", "xmm15", "memory", "cc");
}

VF_INLINE void vf_product_rows_4x3(int64_t steps, const real *a, int64_t row, int64_t step, const real *b, int64_t ldb,
                                   vf (*acc)[VF_VECTORS])
{
    PRODUCT_COUNTS;
    __asm__(PRODUCT_CLEAR_4X3 PRODUCT_ROWS_LOOP(PRODUCT_STEP_4X3)
            : PRODUCT_SUMS_4X3, [a] "+r"(a), [b] "+r"(b), [quads] "+r"(quads), [rest] "+r"(rest)
            : PRODUCT_INPUTS, [ldb] "r"(ldb * size)
            : "xmm12", "xmm13", "xmm14", "xmm15", "memory", "cc");
}

VF_INLINE void vf_product_rows_6x2(int64_t steps, const real *a, int64_t row, int64_t step, const real *b, int64_t ldb,
                                   vf (*acc)[VF_VECTORS])
{
    PRODUCT_COUNTS;
    __asm__(PRODUCT_CLEAR_6X2 PRODUCT_ROWS_LOOP(PRODUCT_STEP_6X2)
            : PRODUCT_SUMS_6X2, [a] "+r"(a), [b] "+r"(b), [quads] "+r"(quads), [rest] "+r"(rest)
            : PRODUCT_INPUTS, [row5] "r"(5 * row * size), [ldb] "r"(ldb * size)
            : "xmm13", "xmm14", "xmm15", "memory", "cc");
}

VF_INLINE void vf_product_rows_12x1(int64_t steps, const real *a, int64_t row, int64_t step, const real *b, int64_t ldb,
                                    vf (*acc)[VF_VECTORS])
{
    PRODUCT_COUNTS;
    const real *lower = a + 6 * row;
    __asm__(PRODUCT_CLEAR_12X1 PRODUCT_ROWS_LOOP(PRODUCT_STEP_12X1)
            : PRODUCT_SUMS_12X1, [a] "+r"(a), [lower] "+r"(lower), [b] "+r"(b), [quads] "+r"(quads), [rest] "+r"(rest)
            : PRODUCT_INPUTS, [row5] "r"(5 * row * size), [ldb] "r"(ldb * size)
            : "xmm14", "xmm15", "memory", "cc");
}

/* sums[i][v] += sum_k A[i*row + k*VF_CHAINS] * B[k*VF_CHAINS][v], each sum_k a chain of its own. */
#define PRODUCT_CHAIN_INPUTS                                                                                                       \
    [row] "r"(row * size), [row3] "r"(3 * row * size), [step] "i"(VF_CHAINS * sizeof(real)), [hop] "r"(fetch_step), [sums] "r"(sums)
VF_INLINE void vf_product_chain_4x3(int64_t steps, const real *a, int64_t row, const real *b, uintptr_t *fetch, int64_t fetch_step,
                                    vf (*sums)[VF_VECTORS])
{
    PRODUCT_COUNTS;
    vf c00, c01, c02, c10, c11, c12, c20, c21, c22, c30, c31, c32; /* unused afterwards */
    __asm__ volatile(PRODUCT_CLEAR_4X3 PRODUCT_CHAIN_LOOP(PRODUCT_STEP_4X3) PRODUCT_JOIN_4X3
            : PRODUCT_CHAINS_4X3, [a] "+r"(a), [b] "+r"(b), [quads] "+r"(quads), [rest] "+r"(rest), [fetch] "+r"(*fetch)
            : PRODUCT_CHAIN_INPUTS
            : "xmm12", "xmm13", "xmm14", "xmm15", "memory", "cc");
}

VF_INLINE void vf_product_chain_6x2(int64_t steps, const real *a, int64_t row, const real *b, uintptr_t *fetch, int64_t fetch_step,
                                    vf (*sums)[VF_VECTORS])
{
    PRODUCT_COUNTS;
    vf c00, c01, c10, c11, c20, c21, c30, c31, c40, c41, c50, c51; /* unused afterwards */
    __asm__ volatile(PRODUCT_CLEAR_6X2 PRODUCT_CHAIN_LOOP(PRODUCT_STEP_6X2) PRODUCT_JOIN_6X2
            : PRODUCT_CHAINS_6X2, [a] "+r"(a), [b] "+r"(b), [quads] "+r"(quads), [rest] "+r"(rest), [fetch] "+r"(*fetch)
            : PRODUCT_CHAIN_INPUTS, [row5] "r"(5 * row * size)
            : "xmm13", "xmm14", "xmm15", "memory", "cc");
}

VF_INLINE void vf_product_chain_12x1(int64_t steps, const real *a, int64_t row, const real *b, uintptr_t *fetch, int64_t fetch_step,
                                     vf (*sums)[VF_VECTORS])
{
    PRODUCT_COUNTS;
    const real *lower = a + 6 * row;
    vf c00, c10, c20, c30, c40, c50, c60, c70, c80, c90, c100, c110; /* unused afterwards */
    __asm__ volatile(PRODUCT_CLEAR_12X1 PRODUCT_CHAIN_LOOP(PRODUCT_STEP_12X1) PRODUCT_JOIN_12X1
            : PRODUCT_CHAINS_12X1, [a] "+r"(a), [lower] "+r"(lower), [b] "+r"(b), [quads] "+r"(quads), [rest] "+r"(rest),
              [fetch] "+r"(*fetch)
            : PRODUCT_CHAIN_INPUTS, [row5] "r"(5 * row * size)
            : "xmm14", "xmm15", "memory", "cc");
}
/* clang-format on */

/* The tiles above; returns 0 for any other, which product_step.inc.c then computes in C. */
VF_INLINE int vf_product(const int rows, const int width, int64_t steps, const real *a, int64_t row, int64_t step, const real *b,
                         uintptr_t *fetch, int64_t fetch_step, vf (*acc)[VF_VECTORS])
{
    if (rows == 4 && width == 3) vf_product_4x3(steps, a, row, step, b, fetch, fetch_step, acc);
    else if (rows == 6 && width == 2) vf_product_6x2(steps, a, row, step, b, fetch, fetch_step, acc);
    else if (rows == 12 && width == 1) vf_product_12x1(steps, a, row, step, b, fetch, fetch_step, acc);
    else return 0;
    return 1;
}
#define VF_ASM_PRODUCT vf_product

VF_INLINE int vf_product_rows(const int rows, const int width, int64_t steps, const real *a, int64_t row, int64_t step,
                              const real *b, int64_t ldb, vf (*acc)[VF_VECTORS])
{
    if (rows == 4 && width == 3) vf_product_rows_4x3(steps, a, row, step, b, ldb, acc);
    else if (rows == 6 && width == 2) vf_product_rows_6x2(steps, a, row, step, b, ldb, acc);
    else if (rows == 12 && width == 1) vf_product_rows_12x1(steps, a, row, step, b, ldb, acc);
    else return 0;
    return 1;
}
#define VF_ASM_PRODUCT_ROWS vf_product_rows

VF_INLINE int vf_product_chain(const int rows, const int width, int64_t steps, const real *a, int64_t row, const real *b,
                               uintptr_t *fetch, int64_t fetch_step, vf (*sums)[VF_VECTORS])
{
    if (rows == 4 && width == 3) vf_product_chain_4x3(steps, a, row, b, fetch, fetch_step, sums);
    else if (rows == 6 && width == 2) vf_product_chain_6x2(steps, a, row, b, fetch, fetch_step, sums);
    else if (rows == 12 && width == 1) vf_product_chain_12x1(steps, a, row, b, fetch, fetch_step, sums);
    else return 0;
    return 1;
}
#define VF_ASM_PRODUCT_CHAIN vf_product_chain

#endif
