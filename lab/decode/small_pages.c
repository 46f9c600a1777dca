/* SPDX-License-Identifier: MIT
 *
 * small_pages.c - how fast memory delivers rows of one key head in pages of one token, whose tokens are anywhere: the ceiling of
 * decode over such pages, in the order head by head, and block by block with all heads of a block in turn.
 *
 *      cc -O2 -march=native lab/decode/small_pages.c && taskset -c 0 ./a.out
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { HEADS = 8, ROW = 256, TOKENS = 65536, AHEAD = 64, RUNS = 15, ORDERS = 5 };

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static const char *row_at(const char *keys, const int *place, int64_t token, int64_t head)
{
    return keys + ((int64_t)place[token] * HEADS + head) * ROW;
}

/* All rows, in blocks of `block` tokens, each head in turn within a block. */
static double read_all(const char *keys, const int *place, int64_t block, uint64_t *sum)
{
    const double start = seconds();
    uint64_t x[8] = {0};
    for (int64_t b = 0; b < TOKENS; b += block)
        for (int64_t h = 0; h < HEADS; h++)
            for (int64_t i = b; i < b + block; i++) {
                int64_t token = i + AHEAD, head = h;
                if (token >= b + block) head = (h + 1) % HEADS, token -= h + 1 < HEADS ? block : 0;
                if (token < TOKENS)
                    for (int64_t at = 0; at < ROW; at += 64) __builtin_prefetch(row_at(keys, place, token, head) + at, 0, 3);
                for (int64_t at = 0; at < ROW; at += 64) {
                    uint64_t line[8];
                    memcpy(line, row_at(keys, place, i, h) + at, sizeof line);
                    for (int k = 0; k < 8; k++) x[k] += line[k];
                }
            }
    for (int k = 0; k < 8; k++) *sum += x[k];
    return seconds() - start;
}

int main(void)
{
    static const char *const names[ORDERS] = {"tokens in a row, all heads of a token", "tokens in a row, head by head",
                                              "tokens anywhere, head by head", "tokens anywhere, blocks of 512",
                                              "tokens anywhere, blocks of 64"};
    static const int64_t blocks[ORDERS] = {1, TOKENS, TOKENS, 512, 64};
    const size_t bytes = (size_t)TOKENS * HEADS * ROW;
    char *keys = aligned_alloc(4096, bytes);
    int *in_order = malloc(TOKENS * sizeof *in_order), *anywhere = malloc(TOKENS * sizeof *anywhere);
    double best[ORDERS] = {1e9, 1e9, 1e9, 1e9, 1e9};
    uint64_t sum = 0;
    if (!keys || !in_order || !anywhere) return 1;
    memset(keys, 1, bytes);
    for (int i = 0; i < TOKENS; i++) in_order[i] = anywhere[i] = i;
    for (int i = TOKENS - 1; i > 0; i--) {
        const int k = rand() % (i + 1), was = anywhere[i];
        anywhere[i] = anywhere[k], anywhere[k] = was;
    }
    for (int r = 0; r < RUNS; r++)
        for (int n = 0; n < ORDERS; n++) {
            const double t = read_all(keys, n < 2 ? in_order : anywhere, blocks[n], &sum);
            if (t < best[n]) best[n] = t;
        }
    for (int n = 0; n < ORDERS; n++)
        printf("%-40s %5.1f GB/s, %3.0f %%\n", names[n], (double)bytes / best[n] / 1e9, 100 * best[0] / best[n]);
    return sum == 0;
}
