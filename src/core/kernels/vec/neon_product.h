/* SPDX-License-Identifier: MIT
 *
 * neon_product.h - the register tiles of the products on NEON.
 *
 *      acc[i][v] = or += sum_k A[i*row + k*step] * B[k*ldb + lanes of v]    one chain of fused multiply-adds each, k ascending
 *
 * A multiply-add can take one element of a register as a factor.  So each number of A is loaded into the lowest lane of a register,
 * which costs the multiply-add pipes nothing, whereas a broadcast takes the slot of a multiply-add (a third of all slots with
 * intrinsics).  24 sums, a row of B and two numbers of A fill all 32 registers; gcc 12 always spills some, so full tiles are asm.
 * They are functions shared by all callers, and their sums go through memory: one load and one store for as many multiply-adds as
 * there are steps.
 */
#ifndef ATTN_KERNELS_VEC_NEON_PRODUCT_H
#define ATTN_KERNELS_VEC_NEON_PRODUCT_H

typedef struct product_operands {
    int64_t steps;
    const real *a;
    int64_t row, step;
    const real *b;
    int64_t ldb;
    uintptr_t *fetch; /* every 4 steps, prefetches as many lines from here on as the tile's numbers of A fill */
    int64_t hop;      /* bytes from one line to the next */
    int go_on;        /* 0: chains start at 0 */
    vf *acc;          /* rows of VF_VECTORS */
} product_operands;

/* clang-format off */ /* asm lines follow the shape of the tile */
#if REAL_BITS == 32
#define PRODUCT_FMA(sum, b, a)    "fmla v" #sum ".4s, v" #b ".4s, v" #a ".s[0]\n"
#define PRODUCT_NUMBER(a, at)     "ldr s" #a ", [%[" at "]]\n"
#define PRODUCT_NUMBER_AT(a, at, row) "ldr s" #a ", [%[" at "], %[" row "]]\n"
#define PRODUCT_LINES(four_rows)  four_rows
#else
#define PRODUCT_FMA(sum, b, a)    "fmla v" #sum ".2d, v" #b ".2d, v" #a ".d[0]\n"
#define PRODUCT_NUMBER(a, at)     "ldr d" #a ", [%[" at "]]\n"
#define PRODUCT_NUMBER_AT(a, at, row) "ldr d" #a ", [%[" at "], %[" row "]]\n"
#define PRODUCT_LINES(four_rows)  four_rows four_rows
#endif

/* A row of B, in v24 and up. */
#define PRODUCT_B1 "ldr q24, [%[b]]\n"
#define PRODUCT_B2 "ldp q24, q25, [%[b]]\n"
#define PRODUCT_B3 PRODUCT_B2 "ldr q26, [%[b], #32]\n"
#define PRODUCT_B4 PRODUCT_B2 "ldp q26, q27, [%[b], #32]\n"
#define PRODUCT_B5 PRODUCT_B4 "ldr q28, [%[b], #64]\n"
#define PRODUCT_B6 PRODUCT_B4 "ldp q28, q29, [%[b], #64]\n"

/* A row of sums. */
#define PRODUCT_ROW1(a, c0)                     PRODUCT_FMA(c0, 24, a)
#define PRODUCT_ROW2(a, c0, c1)                 PRODUCT_ROW1(a, c0) PRODUCT_FMA(c1, 25, a)
#define PRODUCT_ROW3(a, c0, c1, c2)             PRODUCT_ROW2(a, c0, c1) PRODUCT_FMA(c2, 26, a)
#define PRODUCT_ROW4(a, c0, c1, c2, c3)         PRODUCT_ROW3(a, c0, c1, c2) PRODUCT_FMA(c3, 27, a)
#define PRODUCT_ROW5(a, c0, c1, c2, c3, c4)     PRODUCT_ROW4(a, c0, c1, c2, c3) PRODUCT_FMA(c4, 28, a)
#define PRODUCT_ROW6(a, c0, c1, c2, c3, c4, c5) PRODUCT_ROW5(a, c0, c1, c2, c3, c4) PRODUCT_FMA(c5, 29, a)

/* Four rows with their numbers of A at `at`. */
#define PRODUCT_4_ROWS(at, row0, row1, row2, row3)                                                                                 \
    PRODUCT_NUMBER(30, at) PRODUCT_NUMBER_AT(31, at, "row") row0 row1                                                              \
    PRODUCT_NUMBER_AT(30, at, "row2") PRODUCT_NUMBER_AT(31, at, "row3") row2 row3                                                  \
    "add %[" at "], %[" at "], %[step]\n"

#define PRODUCT_STEP_4X6 PRODUCT_B6                                                                                                \
    PRODUCT_4_ROWS("a", PRODUCT_ROW6(30, 0, 1, 2, 3, 4, 5), PRODUCT_ROW6(31, 6, 7, 8, 9, 10, 11),                                  \
                   PRODUCT_ROW6(30, 12, 13, 14, 15, 16, 17), PRODUCT_ROW6(31, 18, 19, 20, 21, 22, 23))
#define PRODUCT_STEP_4X5 PRODUCT_B5                                                                                                \
    PRODUCT_4_ROWS("a", PRODUCT_ROW5(30, 0, 1, 2, 3, 4), PRODUCT_ROW5(31, 5, 6, 7, 8, 9),                                          \
                   PRODUCT_ROW5(30, 10, 11, 12, 13, 14), PRODUCT_ROW5(31, 15, 16, 17, 18, 19))
#define PRODUCT_STEP_4X4 PRODUCT_B4                                                                                                \
    PRODUCT_4_ROWS("a", PRODUCT_ROW4(30, 0, 1, 2, 3), PRODUCT_ROW4(31, 4, 5, 6, 7),                                                \
                   PRODUCT_ROW4(30, 8, 9, 10, 11), PRODUCT_ROW4(31, 12, 13, 14, 15))
#define PRODUCT_STEP_8X3 PRODUCT_B3                                                                                                \
    PRODUCT_4_ROWS("a", PRODUCT_ROW3(30, 0, 1, 2), PRODUCT_ROW3(31, 3, 4, 5),                                                      \
                   PRODUCT_ROW3(30, 6, 7, 8), PRODUCT_ROW3(31, 9, 10, 11))                                                         \
    PRODUCT_4_ROWS("a4", PRODUCT_ROW3(30, 12, 13, 14), PRODUCT_ROW3(31, 15, 16, 17),                                               \
                   PRODUCT_ROW3(30, 18, 19, 20), PRODUCT_ROW3(31, 21, 22, 23))
#define PRODUCT_STEP_8X2 PRODUCT_B2                                                                                                \
    PRODUCT_4_ROWS("a", PRODUCT_ROW2(30, 0, 1), PRODUCT_ROW2(31, 2, 3), PRODUCT_ROW2(30, 4, 5), PRODUCT_ROW2(31, 6, 7))            \
    PRODUCT_4_ROWS("a4", PRODUCT_ROW2(30, 8, 9), PRODUCT_ROW2(31, 10, 11), PRODUCT_ROW2(30, 12, 13), PRODUCT_ROW2(31, 14, 15))
#define PRODUCT_STEP_12X1 PRODUCT_B1                                                                                               \
    PRODUCT_4_ROWS("a", PRODUCT_ROW1(30, 0), PRODUCT_ROW1(31, 1), PRODUCT_ROW1(30, 2), PRODUCT_ROW1(31, 3))                        \
    PRODUCT_4_ROWS("a4", PRODUCT_ROW1(30, 4), PRODUCT_ROW1(31, 5), PRODUCT_ROW1(30, 6), PRODUCT_ROW1(31, 7))                       \
    PRODUCT_4_ROWS("a8", PRODUCT_ROW1(30, 8), PRODUCT_ROW1(31, 9), PRODUCT_ROW1(30, 10), PRODUCT_ROW1(31, 11))

#define PRODUCT_FETCH "prfm pldl1keep, [%[fetch]]\n add %[fetch], %[fetch], %[hop]\n"
#define PRODUCT_NEXT "add %[b], %[b], %[ldb]\n"

/* Four steps per iteration, then one at a time. */
#define PRODUCT_LOOP(LINES, STEP)                                                                                                  \
    "cbz %[quads], 2f\n .p2align 5\n"                                                                                              \
    "1:\n" PRODUCT_LINES(LINES) STEP PRODUCT_NEXT STEP PRODUCT_NEXT STEP PRODUCT_NEXT STEP PRODUCT_NEXT                            \
    "subs %[quads], %[quads], #1\n b.ne 1b\n"                                                                                      \
    "2: cbz %[rest], 4f\n"                                                                                                         \
    "3:\n" STEP PRODUCT_NEXT "subs %[rest], %[rest], #1\n b.ne 3b\n"                                                               \
    "4:\n"

/* Sums are in registers from v0 on; in memory, in rows of 96 bytes. */
#define PRODUCT_ZERO(sum)     "movi v" #sum ".2d, #0\n"
#define PRODUCT_LOAD(sum, at) "ldr q" #sum ", [%[acc], #" #at "]\n"
#define PRODUCT_STORE(sum, at) "str q" #sum ", [%[acc], #" #at "]\n"
#define PRODUCT_ZEROS_12                                                                                                           \
    PRODUCT_ZERO(0) PRODUCT_ZERO(1) PRODUCT_ZERO(2) PRODUCT_ZERO(3) PRODUCT_ZERO(4) PRODUCT_ZERO(5)                                \
    PRODUCT_ZERO(6) PRODUCT_ZERO(7) PRODUCT_ZERO(8) PRODUCT_ZERO(9) PRODUCT_ZERO(10) PRODUCT_ZERO(11)
#define PRODUCT_ZEROS_16 PRODUCT_ZEROS_12 PRODUCT_ZERO(12) PRODUCT_ZERO(13) PRODUCT_ZERO(14) PRODUCT_ZERO(15)
#define PRODUCT_ZEROS_20 PRODUCT_ZEROS_16 PRODUCT_ZERO(16) PRODUCT_ZERO(17) PRODUCT_ZERO(18) PRODUCT_ZERO(19)
#define PRODUCT_ZEROS_24 PRODUCT_ZEROS_20 PRODUCT_ZERO(20) PRODUCT_ZERO(21) PRODUCT_ZERO(22) PRODUCT_ZERO(23)
#define PRODUCT_SUMS_4X6(EACH)                                                                                                     \
    EACH(0, 0) EACH(1, 16) EACH(2, 32) EACH(3, 48) EACH(4, 64) EACH(5, 80)                                                         \
    EACH(6, 96) EACH(7, 112) EACH(8, 128) EACH(9, 144) EACH(10, 160) EACH(11, 176)                                                 \
    EACH(12, 192) EACH(13, 208) EACH(14, 224) EACH(15, 240) EACH(16, 256) EACH(17, 272)                                            \
    EACH(18, 288) EACH(19, 304) EACH(20, 320) EACH(21, 336) EACH(22, 352) EACH(23, 368)
#define PRODUCT_SUMS_4X5(EACH)                                                                                                     \
    EACH(0, 0) EACH(1, 16) EACH(2, 32) EACH(3, 48) EACH(4, 64) EACH(5, 96) EACH(6, 112) EACH(7, 128) EACH(8, 144) EACH(9, 160)     \
    EACH(10, 192) EACH(11, 208) EACH(12, 224) EACH(13, 240) EACH(14, 256)                                                          \
    EACH(15, 288) EACH(16, 304) EACH(17, 320) EACH(18, 336) EACH(19, 352)
#define PRODUCT_SUMS_4X4(EACH)                                                                                                     \
    EACH(0, 0) EACH(1, 16) EACH(2, 32) EACH(3, 48) EACH(4, 96) EACH(5, 112) EACH(6, 128) EACH(7, 144)                              \
    EACH(8, 192) EACH(9, 208) EACH(10, 224) EACH(11, 240) EACH(12, 288) EACH(13, 304) EACH(14, 320) EACH(15, 336)
#define PRODUCT_SUMS_8X3(EACH)                                                                                                     \
    EACH(0, 0) EACH(1, 16) EACH(2, 32) EACH(3, 96) EACH(4, 112) EACH(5, 128) EACH(6, 192) EACH(7, 208) EACH(8, 224)                \
    EACH(9, 288) EACH(10, 304) EACH(11, 320) EACH(12, 384) EACH(13, 400) EACH(14, 416) EACH(15, 480) EACH(16, 496) EACH(17, 512)   \
    EACH(18, 576) EACH(19, 592) EACH(20, 608) EACH(21, 672) EACH(22, 688) EACH(23, 704)
#define PRODUCT_SUMS_8X2(EACH)                                                                                                     \
    EACH(0, 0) EACH(1, 16) EACH(2, 96) EACH(3, 112) EACH(4, 192) EACH(5, 208) EACH(6, 288) EACH(7, 304)                            \
    EACH(8, 384) EACH(9, 400) EACH(10, 480) EACH(11, 496) EACH(12, 576) EACH(13, 592) EACH(14, 672) EACH(15, 688)
#define PRODUCT_SUMS_12X1(EACH)                                                                                                    \
    EACH(0, 0) EACH(1, 96) EACH(2, 192) EACH(3, 288) EACH(4, 384) EACH(5, 480)                                                     \
    EACH(6, 576) EACH(7, 672) EACH(8, 768) EACH(9, 864) EACH(10, 960) EACH(11, 1056)

#define PRODUCT_ASM(rows, width, ZEROS, LINES)                                                                                     \
    static VF_NOINLINE void product_##rows##x##width(const product_operands *p)                                                    \
    {                                                                                                                              \
        enum { SIZE = sizeof(real) };                                                                                              \
        const real *a = p->a, *a4 = a + (rows > 4 ? 4 : 0) * p->row, *a8 = a + (rows > 8 ? 8 : 0) * p->row, *b = p->b;             \
        int64_t quads = p->steps / 4, rest = p->steps % 4;                                                                         \
        uintptr_t fetch = *p->fetch;                                                                                               \
        __asm__ volatile("cbz %w[go_on], 5f\n" PRODUCT_SUMS_##rows##X##width(PRODUCT_LOAD) "b 6f\n"                                \
                         "5:\n" ZEROS "6:\n" PRODUCT_LOOP(LINES, PRODUCT_STEP_##rows##X##width)                                    \
                         PRODUCT_SUMS_##rows##X##width(PRODUCT_STORE)                                                              \
                         : [a] "+r"(a), [a4] "+r"(a4), [a8] "+r"(a8), [b] "+r"(b), [quads] "+r"(quads), [rest] "+r"(rest),         \
                           [fetch] "+r"(fetch)                                                                                     \
                         : [row] "r"(p->row * SIZE), [row2] "r"(2 * p->row * SIZE), [row3] "r"(3 * p->row * SIZE),                 \
                           [step] "r"(p->step * SIZE), [ldb] "r"(p->ldb * SIZE), [hop] "r"(p->hop), [go_on] "r"(p->go_on),         \
                           [acc] "r"(p->acc)                                                                                       \
                         : "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11", "v12", "v13", "v14", "v15",   \
                           "v16", "v17", "v18", "v19", "v20", "v21", "v22", "v23", "v24", "v25", "v26", "v27", "v28", "v29",       \
                           "v30", "v31", "memory", "cc");                                                                          \
        *p->fetch = fetch;                                                                                                         \
    }
/* clang-format on */
PRODUCT_ASM(4, 6, PRODUCT_ZEROS_24, PRODUCT_FETCH)
PRODUCT_ASM(4, 5, PRODUCT_ZEROS_20, PRODUCT_FETCH)
PRODUCT_ASM(4, 4, PRODUCT_ZEROS_16, PRODUCT_FETCH)
PRODUCT_ASM(8, 3, PRODUCT_ZEROS_24, PRODUCT_FETCH PRODUCT_FETCH)
PRODUCT_ASM(8, 2, PRODUCT_ZEROS_16, PRODUCT_FETCH PRODUCT_FETCH)
PRODUCT_ASM(12, 1, PRODUCT_ZEROS_12, PRODUCT_FETCH PRODUCT_FETCH PRODUCT_FETCH)

/* Any other tile, in C: the last rows of a block, and narrow tiles. */
VF_INLINE void product_rest(const int rows, const int width, const product_operands *p)
{
    const real *a = p->a, *b = p->b;
    vf sum[VF_MAX_ROWS][VF_VECTORS];
    VF_UNROLL
    for (int i = 0; i < rows; i++) {
        VF_UNROLL
        for (int v = 0; v < width; v++) sum[i][v] = p->go_on ? p->acc[i * VF_VECTORS + v] : vf_zero();
    }
    VF_ROLLED
    for (int64_t k = 0; k < p->steps; k++, a += p->step, b += p->ldb) {
        vf x[VF_VECTORS];
        if (k % 4 == 0) {
            __builtin_prefetch((const void *)*p->fetch);
            *p->fetch += (uintptr_t)p->hop;
        }
        VF_UNROLL
        for (int v = 0; v < width; v++) x[v] = vf_load(b + v * VF_LANES);
        VF_UNROLL
        for (int i = 0; i < rows; i++) {
            const vf y = VF_ELEMENT(a + i * p->row);
            VF_UNROLL
            for (int v = 0; v < width; v++) sum[i][v] = vf_fma(y, x[v], sum[i][v]);
        }
    }
    VF_UNROLL
    for (int i = 0; i < rows; i++) {
        VF_UNROLL
        for (int v = 0; v < width; v++) p->acc[i * VF_VECTORS + v] = sum[i][v];
    }
}

#define PRODUCT_REST(rows, width)                                                                                                  \
    static VF_NOINLINE void product_##rows##x##width(const product_operands *p) { product_rest(rows, width, p); }
PRODUCT_REST(1, 6)
PRODUCT_REST(2, 6)
PRODUCT_REST(1, 5)
PRODUCT_REST(2, 5)
PRODUCT_REST(1, 4)
PRODUCT_REST(2, 4)
PRODUCT_REST(1, 3)
PRODUCT_REST(2, 3)
PRODUCT_REST(4, 3)
PRODUCT_REST(6, 3)
PRODUCT_REST(1, 2)
PRODUCT_REST(2, 2)
PRODUCT_REST(4, 2)
PRODUCT_REST(6, 2)
PRODUCT_REST(1, 1)
PRODUCT_REST(2, 1)
PRODUCT_REST(4, 1)
PRODUCT_REST(6, 1)
PRODUCT_REST(8, 1)

/* Returns 0 if there is no such tile. */
VF_INLINE int product_any(const int rows, const int width, const product_operands *p)
{
#define PRODUCT_OF(r, w)                                                                                                           \
    if (rows == r && width == w) product_##r##x##w(p);                                                                             \
    else
    /* clang-format off */
    PRODUCT_OF(4, 6) PRODUCT_OF(2, 6) PRODUCT_OF(1, 6)
    PRODUCT_OF(4, 5) PRODUCT_OF(2, 5) PRODUCT_OF(1, 5)
    PRODUCT_OF(4, 4) PRODUCT_OF(2, 4) PRODUCT_OF(1, 4)
    PRODUCT_OF(8, 3) PRODUCT_OF(6, 3) PRODUCT_OF(4, 3) PRODUCT_OF(2, 3) PRODUCT_OF(1, 3)
    PRODUCT_OF(8, 2) PRODUCT_OF(6, 2) PRODUCT_OF(4, 2) PRODUCT_OF(2, 2) PRODUCT_OF(1, 2)
    PRODUCT_OF(12, 1) PRODUCT_OF(8, 1) PRODUCT_OF(6, 1) PRODUCT_OF(4, 1) PRODUCT_OF(2, 1) PRODUCT_OF(1, 1)
    return 0;
    /* clang-format on */
#undef PRODUCT_OF
    return 1;
}

/* ---- the interface of product_step.inc.c ---- */

VF_INLINE int vf_product(const int rows, const int width, int64_t steps, const real *a, int64_t row, int64_t step, const real *b,
                         uintptr_t *fetch, int64_t hop, vf (*acc)[VF_VECTORS])
{
    const product_operands p = {steps, a, row, step, b, VF_LANES * VF_VECTORS, fetch, hop, 0, acc[0]};
    return product_any(rows, width, &p);
}
#define VF_ASM_PRODUCT vf_product

VF_INLINE int vf_product_rows(const int rows, const int width, int64_t steps, const real *a, int64_t row, int64_t step,
                              const real *b, int64_t ldb, vf (*acc)[VF_VECTORS])
{
    uintptr_t at = (uintptr_t)a;
    const product_operands p = {steps, a, row, step, b, ldb, &at, 0, 0, acc[0]};
    return product_any(rows, width, &p);
}
#define VF_ASM_PRODUCT_ROWS vf_product_rows

VF_INLINE int vf_product_more(const int rows, const int first, const int last, int64_t steps, const real *a, int64_t row,
                              int64_t step, const real *b, int64_t ldb, uintptr_t *fetch, int64_t hop, vf (*acc)[VF_VECTORS])
{
    const product_operands p = {steps, a, row, step, b + first * VF_LANES, ldb, fetch, hop, 1, acc[0] + first};
    return product_any(rows, last - first, &p);
}
#define VF_ASM_PRODUCT_MORE vf_product_more

VF_INLINE int vf_product_chain(const int rows, const int width, int64_t steps, const real *a, int64_t row, const real *b,
                               uintptr_t *fetch, int64_t hop, vf (*sums)[VF_VECTORS])
{
    vf acc[VF_MAX_ROWS][VF_VECTORS];
    const product_operands p = {steps, a, row, VF_CHAINS, b, VF_CHAINS * VF_LANES * VF_VECTORS, fetch, hop, 0, acc[0]};
    if (!product_any(rows, width, &p)) return 0;
    VF_UNROLL
    for (int i = 0; i < rows; i++) {
        VF_UNROLL
        for (int v = 0; v < width; v++) sums[i][v] = vf_add(sums[i][v], acc[i][v]);
    }
    return 1;
}
#define VF_ASM_PRODUCT_CHAIN vf_product_chain

#endif
