/* SPDX-License-Identifier: MIT
 * loops.c - the ceilings' inner loops. */
#include "loops.h"

#if defined(__x86_64__)

#define REGISTERS "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13"

/* `text` for each of the registers 0 to 11. */
#define LOWER(text)  text("0") text("1") text("2") text("3") text("4") text("5")
#define UPPER(text)  text("6") text("7") text("8") text("9") text("10") text("11")
#define TWELVE(text) LOWER(text) UPPER(text)

#define CLEAR_VEX(r) "vxorps %%xmm" r ", %%xmm" r ", %%xmm" r "\n\t"
#define CLEAR_SSE(r) "xorps %%xmm" r ", %%xmm" r "\n\t"

/* sum += factor * factor, in each of twelve registers */
#define FMA_LOOP(function, wide, type, broadcast, FMA)                                                                             \
    static void function(int64_t rounds)                                                                                           \
    {                                                                                                                              \
        const type factor = (type)1e-3;                                                                                            \
        if (rounds <= 0) return;                                                                                                   \
        __asm__ volatile(broadcast " %1, %%" wide "12\n\t" broadcast " %1, %%" wide                                                \
                                   "13\n\t" TWELVE(CLEAR_VEX) "1:\n\t" TWELVE(FMA) "dec %0\n\tjnz 1b\n\tvzeroupper"                \
                         : "+r"(rounds)                                                                                            \
                         : "m"(factor)                                                                                             \
                         : "cc", REGISTERS);                                                                                       \
    }

#define FMA_YMM_F32(r) "vfmadd231ps %%ymm12, %%ymm13, %%ymm" r "\n\t"
#define FMA_YMM_F64(r) "vfmadd231pd %%ymm12, %%ymm13, %%ymm" r "\n\t"
#define FMA_ZMM_F32(r) "vfmadd231ps %%zmm12, %%zmm13, %%zmm" r "\n\t"
#define FMA_ZMM_F64(r) "vfmadd231pd %%zmm12, %%zmm13, %%zmm" r "\n\t"
FMA_LOOP(fma_f32_avx2, "ymm", float, "vbroadcastss", FMA_YMM_F32)
FMA_LOOP(fma_f64_avx2, "ymm", double, "vbroadcastsd", FMA_YMM_F64)
FMA_LOOP(fma_f32_avx512, "zmm", float, "vbroadcastss", FMA_ZMM_F32)
FMA_LOOP(fma_f64_avx512, "zmm", double, "vbroadcastsd", FMA_ZMM_F64)

/* Without fused instructions: six sums and six products, in the 128 bits that every x86-64 has. */
#define SSE_LOOP(function, ADD, MULTIPLY)                                                                                          \
    static void function(int64_t rounds)                                                                                           \
    {                                                                                                                              \
        if (rounds <= 0) return;                                                                                                   \
        __asm__ volatile(TWELVE(CLEAR_SSE) CLEAR_SSE("12") "1:\n\t" LOWER(ADD) UPPER(MULTIPLY) "dec %0\n\tjnz 1b"                  \
                         : "+r"(rounds)                                                                                            \
                         :                                                                                                         \
                         : "cc", REGISTERS);                                                                                       \
    }

#define ADD_F32(r)      "addps %%xmm12, %%xmm" r "\n\t"
#define ADD_F64(r)      "addpd %%xmm12, %%xmm" r "\n\t"
#define MULTIPLY_F32(r) "mulps %%xmm12, %%xmm" r "\n\t"
#define MULTIPLY_F64(r) "mulpd %%xmm12, %%xmm" r "\n\t"
SSE_LOOP(sums_f32_sse, ADD_F32, MULTIPLY_F32)
SSE_LOOP(sums_f64_sse, ADD_F64, MULTIPLY_F64)

static const fma_loop loops[] = {
    {ATTN_ISA_SCALAR, ATTN_F32, 12 * 4, sums_f32_sse},        {ATTN_ISA_SCALAR, ATTN_F64, 12 * 2, sums_f64_sse},
    {ATTN_ISA_AVX2, ATTN_F32, 12 * 8 * 2, fma_f32_avx2},      {ATTN_ISA_AVX2, ATTN_F64, 12 * 4 * 2, fma_f64_avx2},
    {ATTN_ISA_AVX512, ATTN_F32, 12 * 16 * 2, fma_f32_avx512}, {ATTN_ISA_AVX512, ATTN_F64, 12 * 8 * 2, fma_f64_avx512},
};

/* Loads that nothing uses, 256 bytes a round. */
#define READ_LOOP(function, LOADS, after)                                                                                          \
    static void function(const void *memory, size_t bytes)                                                                         \
    {                                                                                                                              \
        const char *at = memory, *end = at + bytes;                                                                                \
        if (!bytes) return;                                                                                                        \
        __asm__ volatile("1:\n\t" LOADS "add $256, %0\n\tcmp %1, %0\n\tjb 1b\n\t" after                                            \
                         : "+r"(at)                                                                                                \
                         : "r"(end)                                                                                                \
                         : "cc", "memory", REGISTERS);                                                                             \
    }

#define LOAD_XMM(at)                 "movups " at "(%0), %%xmm0\n\t"
#define LOAD_YMM(at)                 "vmovups " at "(%0), %%ymm0\n\t"
#define LOAD_ZMM(at)                 "vmovups " at "(%0), %%zmm0\n\t"
#define EVERY_64(load)               load("0") load("64") load("128") load("192")
#define TWO_EVERY_64(load)           load("0") load("32") load("64") load("96") load("128") load("160") load("192") load("224")
#define FOUR_OF_64(load, a, b, c, d) load(a) load(b) load(c) load(d)
READ_LOOP(read_sse,
          FOUR_OF_64(LOAD_XMM, "0", "16", "32", "48") FOUR_OF_64(LOAD_XMM, "64", "80", "96", "112")
              FOUR_OF_64(LOAD_XMM, "128", "144", "160", "176") FOUR_OF_64(LOAD_XMM, "192", "208", "224", "240"),
          "")
READ_LOOP(read_avx2, TWO_EVERY_64(LOAD_YMM), "vzeroupper")
READ_LOOP(read_avx512, EVERY_64(LOAD_ZMM), "vzeroupper")

void read_loop(attn_isa isa, const void *memory, size_t bytes)
{
    (isa >= ATTN_ISA_AVX512 ? read_avx512 : isa >= ATTN_ISA_AVX2 ? read_avx2 : read_sse)(memory, bytes);
}

#else

/* Elsewhere the compiler chooses the instructions; storing a result keeps it from dropping the loops. */
static volatile double kept;

#define PLAIN_LOOP(function, type)                                                                                                 \
    static void function(int64_t rounds)                                                                                           \
    {                                                                                                                              \
        type sum[48] = {0}, all = 0;                                                                                               \
        const type factor = (type)kept;                                                                                            \
        for (int64_t n = 0; n < rounds; n++)                                                                                       \
            for (int k = 0; k < 48; k++) sum[k] = sum[k] * factor + factor;                                                        \
        for (int k = 0; k < 48; k++) all += sum[k];                                                                                \
        kept = (double)all;                                                                                                        \
    }
PLAIN_LOOP(plain_f32, float)
PLAIN_LOOP(plain_f64, double)

#if defined(__aarch64__)

/* `text` for each of 24 registers: enough for four pipes of up to six cycles. */
#define EIGHT(text, tens)                                                                                                          \
    text(tens "0") text(tens "1") text(tens "2") text(tens "3") text(tens "4") text(tens "5") text(tens "6") text(tens "7")
#define ALL_24(text)                                                                                                               \
    EIGHT(text, "") text("8") text("9") EIGHT(text, "1") text("18") text("19") text("20") text("21") text("22") text("23")
#define CLEAR(r)   "movi v" r ".2d, #0\n\t"
#define FMA_F32(r) "fmla v" r ".4s, v24.4s, v25.s[0]\n\t"
#define FMA_F64(r) "fmla v" r ".2d, v24.2d, v25.d[0]\n\t"

#define NEON_LOOP(function, FMA)                                                                                                   \
    static void function(int64_t rounds)                                                                                           \
    {                                                                                                                              \
        if (rounds <= 0) return;                                                                                                   \
        __asm__ volatile(ALL_24(CLEAR) CLEAR("24") CLEAR("25") "1:\n\t" ALL_24(FMA) "subs %0, %0, #1\n\tb.ne 1b"                   \
                         : "+r"(rounds)                                                                                            \
                         :                                                                                                         \
                         : "cc", "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11", "v12", "v13", "v14",    \
                           "v15", "v16", "v17", "v18", "v19", "v20", "v21", "v22", "v23", "v24", "v25");                           \
    }
NEON_LOOP(fma_f32_neon, FMA_F32)
NEON_LOOP(fma_f64_neon, FMA_F64)
#define NEON_LOOPS {ATTN_ISA_NEON, ATTN_F32, 24 * 4 * 2, fma_f32_neon}, {ATTN_ISA_NEON, ATTN_F64, 24 * 2 * 2, fma_f64_neon},

static void read_neon(const void *memory, size_t bytes)
{
    const char *at = memory, *end = at + bytes;
    if (!bytes) return;
    __asm__ volatile("1: ldp q0, q1, [%0]\n\tldp q2, q3, [%0, #32]\n\tldp q4, q5, [%0, #64]\n\tldp q6, q7, [%0, #96]\n\t"
                     "ldp q0, q1, [%0, #128]\n\tldp q2, q3, [%0, #160]\n\tldp q4, q5, [%0, #192]\n\tldp q6, q7, [%0, #224]\n\t"
                     "add %0, %0, #256\n\tcmp %0, %1\n\tb.lo 1b"
                     : "+r"(at)
                     : "r"(end)
                     : "cc", "memory", "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7");
}

#else
#define NEON_LOOPS
#endif

static const fma_loop loops[] = {
    {ATTN_ISA_SCALAR, ATTN_F32, 48 * 2, plain_f32}, {ATTN_ISA_SCALAR, ATTN_F64, 48 * 2, plain_f64}, NEON_LOOPS};

void read_loop(attn_isa isa, const void *memory, size_t bytes)
{
    const uint64_t *word = memory;
    uint64_t all = 0;
#if defined(__aarch64__)
    if (isa == ATTN_ISA_NEON) {
        read_neon(memory, bytes);
        return;
    }
#endif
    (void)isa;
    for (size_t k = 0; k < bytes / sizeof *word; k++) all ^= word[k];
    kept = (double)(all & 1);
}

#endif

const fma_loop *fma_loop_of(attn_isa isa, attn_dtype compute)
{
    for (size_t k = 0; k < sizeof loops / sizeof *loops; k++)
        if (loops[k].isa == isa && loops[k].compute == compute) return &loops[k];
    return NULL;
}
