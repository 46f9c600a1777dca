/* SPDX-License-Identifier: MIT
 *
 * prefetch_bench.c - the fate of prefetches: how many misses a core has in flight, and which of the prefetched lines are in a cache
 * afterwards, by level, number and pace.
 *
 *      cc -O2 lab/decode/prefetch_bench.c && taskset -c 1 ./a.out
 *
 * x86 only.  A line counts as cached if its load takes less than half the time of a load from memory.  Prefetches into the L2 are
 * tried twice: of random lines all arrive or none, depending on what ran before (README.md).
 */
#define _DEFAULT_SOURCE /* madvise */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <sys/mman.h>
#include <x86intrin.h>

enum { LINE = 64, PAGE = 4096, CAPACITY = 8192, ROUNDS = 200 };

static const size_t bytes = (size_t)256 << 20;
static char *memory;
static double tick; /* ns of the time stamp counter */
static double memory_ns;

static uint64_t number(void)
{
    static uint64_t x = 88172645463325252u;
    x ^= x << 13, x ^= x >> 7, x ^= x << 17;
    return x;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e9 * (double)t.tv_sec + (double)t.tv_nsec;
}

static double stamp(void)
{
    unsigned cpu;
    _mm_lfence();
    double ns = (double)__rdtscp(&cpu) * tick;
    _mm_lfence();
    return ns;
}

static void wait(double ns)
{
    for (double begin = stamp(); stamp() - begin < ns;) _mm_pause();
}

static void shuffle(uint32_t *order, size_t n)
{
    for (size_t i = 0; i < n; i++) order[i] = (uint32_t)i;
    for (size_t i = n - 1; i > 0; i--) {
        size_t j = number() % (i + 1);
        uint32_t x = order[i];
        order[i] = order[j], order[j] = x;
    }
}

/* ns per step of `chains` chains through all lines of `span` bytes in random order. */
static double chase(size_t span, int chains)
{
    const size_t lines = span / LINE;
    const int steps = 400000 / chains;
    uint32_t *order = malloc(lines * sizeof *order);
    void **at[64];
    double best = 1e9;
    if (!order) exit(1);
    shuffle(order, lines);
    for (size_t i = 0; i < lines; i++) {
        char *next = memory + (size_t)order[(i + 1) % lines] * LINE;
        memcpy(memory + (size_t)order[i] * LINE, &next, sizeof next);
    }
    for (int c = 0; c < chains; c++) at[c] = (void **)(void *)(memory + (size_t)order[lines / (size_t)chains * (size_t)c] * LINE);
    free(order);
    for (int round = 0; round < 8; round++) {
        double begin = now();
        for (int i = 0; i < steps; i++)
            for (int c = 0; c < chains; c++) at[c] = *(void **volatile *)at[c];
        double ns = (now() - begin) / steps;
        if (ns < best) best = ns;
    }
    return best;
}

/* Prefetches n lines, with `pause` multiplications of 3 cycles after each; returns the ns per line. */
static double prefetch(char *const *lines, int n, int into_l1, int pause)
{
    uint64_t x = 3;
    double begin = stamp();
    for (int i = 0; i < n; i++) {
        if (into_l1) __builtin_prefetch(lines[i], 0, 3);
        else __builtin_prefetch(lines[i], 0, 2);
        for (int k = 0; k < pause; k++) __asm__ volatile("imul %0, %0" : "+r"(x));
    }
    return (stamp() - begin) / n;
}

/* Share of the lines that are in a cache 2 microseconds after their prefetch. */
static void came(const char *what, int n, int in_order, int into_l1, int pause)
{
    static char *lines[CAPACITY];
    static uint32_t order[CAPACITY];
    const int rounds = ROUNDS * 64 / (n > 64 ? n : 64) + 4;
    double there = 0, pace = 0;
    for (int round = 0; round < rounds; round++) {
        char *first = memory + number() % (bytes - CAPACITY * LINE) / PAGE * PAGE;
        for (int i = 0; i < n; i++) lines[i] = in_order ? first + i * LINE : memory + number() % bytes / LINE * LINE;
        for (int i = 0; i < n; i++) _mm_clflush(lines[i]); /* the translation stays */
        _mm_mfence();
        wait(2000);
        pace += prefetch(lines, n, into_l1, pause);
        wait(2000);
        shuffle(order, (size_t)n);
        for (int i = 0; i < n; i++) {
            double begin = stamp();
            *(volatile char *)lines[order[i]];
            there += stamp() - begin < memory_ns / 2;
        }
    }
    printf("%-9s %4d lines %-9s a line in %5.2f ns: %5.1f %% came\n", what, n, in_order ? "in order," : "anywhere,", pace / rounds,
           100 * there / n / rounds);
}

int main(void)
{
    static const int chains[] = {1, 4, 8, 16, 20, 22, 24, 28, 32, 48}, bursts[] = {16, 32, 64, 128}, pauses[] = {0, 1, 2, 3, 4};
    memory = aligned_alloc((size_t)2 << 20, bytes);
    if (!memory) return 1;
    madvise(memory, bytes, MADV_HUGEPAGE); /* so that translations do not count */
    memset(memory, 1, bytes);
    double begin = now(), first = (double)__rdtsc();
    while (now() - begin < 1e8) continue;
    tick = (now() - begin) / ((double)__rdtsc() - first);

    printf("a load takes %.1f ns from 512 KB, %.1f from 4 MB", chase((size_t)512 << 10, 1), chase((size_t)4 << 20, 1));
    memory_ns = chase(bytes, 1);
    printf(", %.1f from memory\n", memory_ns);
    for (size_t i = 0; i < sizeof chains / sizeof *chains; i++) {
        double ns = chase(bytes, chains[i]);
        printf("%2d at a time: %5.1f ns, %4.1f GB/s\n", chains[i], ns, LINE * chains[i] / ns);
    }
    for (int round = 0; round < 3; round++) { /* T1, T0, T1 */
        const int into_l1 = round == 1;
        const char *what = into_l1 ? "T0 (L1):" : "T1 (L2):";
        for (size_t i = 0; i < sizeof bursts / sizeof *bursts; i++) came(what, bursts[i], 0, into_l1, 0);
        for (size_t i = 0; i < sizeof pauses / sizeof *pauses; i++) came(what, CAPACITY, 1, into_l1, pauses[i]);
    }
    return 0;
}
