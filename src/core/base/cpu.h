/* SPDX-License-Identifier: MIT
 * cpu.h - CPU features that the operating system enables. */
#ifndef ATTN_BASE_CPU_H
#define ATTN_BASE_CPU_H

#include <stddef.h>
#include <stdint.h>

enum {
    ATTN_CPU_AVX2 = 1u << 0,
    ATTN_CPU_FMA = 1u << 1,
    ATTN_CPU_F16C = 1u << 2,
    ATTN_CPU_AVX512F = 1u << 3,
    ATTN_CPU_AVX512BW = 1u << 4,
    ATTN_CPU_AVX512DQ = 1u << 5,
    ATTN_CPU_AVX512VL = 1u << 6,
    ATTN_CPU_AVX512_BF16 = 1u << 7,
    ATTN_CPU_AVX512_FP16 = 1u << 8,
    ATTN_CPU_AVX512_VNNI = 1u << 9,
    ATTN_CPU_AMX_TILE = 1u << 10,
    ATTN_CPU_AMX_BF16 = 1u << 11,
    ATTN_CPU_AMX_INT8 = 1u << 12,
    ATTN_CPU_NEON = 1u << 13,
    ATTN_CPU_SIMD128 = 1u << 14
};

/* The usable ATTN_CPU_ bits: reported by CPUID and enabled in XCR0 (for AMX also permitted by the kernel). */
uint32_t attn_cpu_features(void);

/* Names of the bits in `features`, space-separated, into text of `size` bytes; always terminated. */
void attn_cpu_feature_names(uint32_t features, char *text, size_t size);

/* The CPU's own name; "unknown" if it has none. */
void attn_cpu_name(char *text, size_t size);

/* Bytes of the caches of level 1 (data), 2 and 3 of the first CPU that ran this; 0 if unknown. */
void attn_cpu_caches(size_t *l1d, size_t *l2, size_t *l3);

#endif
