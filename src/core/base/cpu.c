/* SPDX-License-Identifier: MIT
 *
 * cpu.c - CPU detection.  CPUID tells what the silicon has, XCR0 what the operating system saves on a context switch; a feature
 * needs both.  AMX state also needs the kernel's permission, which is requested here.
 */
#define _GNU_SOURCE /* syscall */
#include "cpu.h"

#include <stdatomic.h>
#include <string.h>

#if defined(__x86_64__) && defined(__GNUC__)
#define X86 1
#include <cpuid.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif
#else
#define X86 0
#endif

enum { CACHE_LEVELS = 3 };

static const struct {
    uint32_t bit;
    const char *name;
} feature_names[] = {
    {ATTN_CPU_AVX2, "avx2"},
    {ATTN_CPU_FMA, "fma"},
    {ATTN_CPU_F16C, "f16c"},
    {ATTN_CPU_AVX512F, "avx512f"},
    {ATTN_CPU_AVX512BW, "avx512bw"},
    {ATTN_CPU_AVX512DQ, "avx512dq"},
    {ATTN_CPU_AVX512VL, "avx512vl"},
    {ATTN_CPU_AVX512_BF16, "avx512_bf16"},
    {ATTN_CPU_AVX512_FP16, "avx512_fp16"},
    {ATTN_CPU_AVX512_VNNI, "avx512_vnni"},
    {ATTN_CPU_AMX_TILE, "amx_tile"},
    {ATTN_CPU_AMX_BF16, "amx_bf16"},
    {ATTN_CPU_AMX_INT8, "amx_int8"},
    {ATTN_CPU_NEON, "neon"},
    {ATTN_CPU_SIMD128, "simd128"},
};

#if X86
typedef struct leaf {
    uint32_t a, b, c, d;
} leaf;

/* All zero if the CPU has no such leaf. */
static leaf cpuid(uint32_t number, uint32_t sub)
{
    leaf r = {0, 0, 0, 0};
    if (!__get_cpuid_count(number, sub, &r.a, &r.b, &r.c, &r.d)) memset(&r, 0, sizeof r);
    return r;
}

static uint64_t xcr0(void)
{
    uint32_t low, high;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

static int amx_permitted(void)
{
#if defined(__linux__)
    enum { REQUEST_STATE = 0x1023, TILE_DATA = 18 }; /* ARCH_REQ_XCOMP_PERM and XFEATURE_XTILEDATA of Linux 5.16 */
    return syscall(SYS_arch_prctl, REQUEST_STATE, TILE_DATA) == 0;
#else
    return 0;
#endif
}

static uint32_t detect(void)
{
    enum { YMM = 0x6, ZMM = 0xe6, TILES = 0x60000 }; /* bits of XCR0 */
    leaf one = cpuid(1, 0), seven = cpuid(7, 0), seven_one = seven.a >= 1 ? cpuid(7, 1) : (leaf){0, 0, 0, 0};
    if (!(one.c >> 27 & 1)) return 0; /* OSXSAVE */
    uint64_t saved = xcr0();
    const struct {
        uint32_t has;
        uint64_t state;
        uint32_t bit;
    } rules[] = {
        {seven.b >> 5 & 1, YMM, ATTN_CPU_AVX2},         {one.c >> 12 & 1, YMM, ATTN_CPU_FMA},
        {one.c >> 29 & 1, YMM, ATTN_CPU_F16C},          {seven.b >> 16 & 1, ZMM, ATTN_CPU_AVX512F},
        {seven.b >> 30 & 1, ZMM, ATTN_CPU_AVX512BW},    {seven.b >> 17 & 1, ZMM, ATTN_CPU_AVX512DQ},
        {seven.b >> 31 & 1, ZMM, ATTN_CPU_AVX512VL},    {seven_one.a >> 5 & 1, ZMM, ATTN_CPU_AVX512_BF16},
        {seven.d >> 23 & 1, ZMM, ATTN_CPU_AVX512_FP16}, {seven.c >> 11 & 1, ZMM, ATTN_CPU_AVX512_VNNI},
        {seven.d >> 24 & 1, TILES, ATTN_CPU_AMX_TILE},  {seven.d >> 22 & 1, TILES, ATTN_CPU_AMX_BF16},
        {seven.d >> 25 & 1, TILES, ATTN_CPU_AMX_INT8},
    };
    const uint32_t amx = ATTN_CPU_AMX_TILE | ATTN_CPU_AMX_BF16 | ATTN_CPU_AMX_INT8;
    uint32_t features = 0;
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++)
        if (rules[i].has && (saved & rules[i].state) == rules[i].state) features |= rules[i].bit;
    if ((features & amx) && !amx_permitted()) features &= ~amx;
    return features;
}
#elif defined(__aarch64__)
static uint32_t detect(void) { return ATTN_CPU_NEON; } /* part of the base architecture, and compilers use it by default */
#elif defined(__wasm_simd128__)
static uint32_t detect(void) { return ATTN_CPU_SIMD128; } /* a module with such instructions loads only where they exist */
#else
static uint32_t detect(void) { return 0; }
#endif

uint32_t attn_cpu_features(void)
{
    /* CPUID traps in virtual machines, so it is queried once.  Threads that race here store the same value. */
    static _Atomic uint32_t known;
    const uint32_t detected = UINT32_C(1) << 31;
    uint32_t features = atomic_load_explicit(&known, memory_order_relaxed);
    if (!features) {
        features = detect() | detected;
#if defined(ATTN_EMULATE_AVX512)
        features |= ATTN_CPU_AVX512F | ATTN_CPU_AVX512BW | ATTN_CPU_AVX512DQ | ATTN_CPU_AVX512VL | ATTN_CPU_AVX512_VNNI |
                    ATTN_CPU_AVX512_BF16;
#endif
        atomic_store_explicit(&known, features, memory_order_relaxed);
    }
    return features & ~detected;
}

void attn_cpu_feature_names(uint32_t features, char *text, size_t size)
{
    size_t used = 0;
    if (!size) return;
    text[0] = '\0';
    for (size_t i = 0; i < sizeof feature_names / sizeof feature_names[0]; i++) {
        size_t length = strlen(feature_names[i].name);
        if (!(features & feature_names[i].bit)) continue;
        if (used + (used > 0) + length + 1 > size) return;
        if (used) text[used++] = ' ';
        memcpy(text + used, feature_names[i].name, length + 1);
        used += length;
    }
}

void attn_cpu_name(char *text, size_t size)
{
    char name[49] = "";
#if X86
    if ((uint32_t)__get_cpuid_max(0x80000000, NULL) >= 0x80000004)
        for (uint32_t i = 0; i < 3; i++) {
            leaf part = cpuid(0x80000002 + i, 0);
            memcpy(name + 16 * i, &part, sizeof part);
        }
#endif
    char *start = name + strspn(name, " ");
    size_t length = strlen(start);
    while (length && start[length - 1] == ' ') length--;
    if (!length) {
        start = "unknown";
        length = strlen(start);
    }
    if (!size) return;
    if (length > size - 1) length = size - 1;
    memcpy(text, start, length);
    text[length] = '\0';
}

static void find_caches(size_t *level)
{
#if X86
    /* Intel describes its caches in leaf 4, AMD in 0x8000001D, in the same format. */
    uint32_t number = cpuid(4, 0).a & 31 ? 4 : 0x8000001d;
    for (uint32_t i = 0; i < 16; i++) {
        leaf r = cpuid(number, i);
        uint32_t kind = r.a & 31, which = r.a >> 5 & 7;
        if (!kind) break;
        if (kind == 2 || which < 1 || which > CACHE_LEVELS) continue; /* 2: instructions */
        level[which - 1] = (size_t)((r.b >> 22) + 1) * ((r.b >> 12 & 1023) + 1) * ((r.b & 4095) + 1) * ((size_t)r.c + 1);
    }
#else
    (void)level;
#endif
}

void attn_cpu_caches(size_t *l1d, size_t *l2, size_t *l3)
{
    /* Queried once, like features: 15 traps take longer than a small call.  All CPUs are assumed to equal the first one queried. */
    static atomic_size_t known_caches[CACHE_LEVELS + 1];
    size_t level[CACHE_LEVELS] = {0, 0, 0};
    if (atomic_load_explicit(&known_caches[CACHE_LEVELS], memory_order_acquire)) {
        for (int i = 0; i < CACHE_LEVELS; i++) level[i] = atomic_load_explicit(&known_caches[i], memory_order_relaxed);
    } else {
        find_caches(level);
        for (int i = 0; i < CACHE_LEVELS; i++) atomic_store_explicit(&known_caches[i], level[i], memory_order_relaxed);
        atomic_store_explicit(&known_caches[CACHE_LEVELS], 1, memory_order_release);
    }
    *l1d = level[0];
    *l2 = level[1];
    *l3 = level[2];
}
