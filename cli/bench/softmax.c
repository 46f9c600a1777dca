/* SPDX-License-Identifier: MIT
 *
 * softmax.c - one body over vectors of LANES numbers, which compilers split into those of an instruction set. */
#include "softmax.h"

#include <string.h>

enum { LANES = 16 };

typedef float lanes __attribute__((vector_size(LANES * sizeof(float)), aligned(sizeof(float)), may_alias));
typedef int32_t whole_lanes __attribute__((vector_size(LANES * sizeof(int32_t))));

static const float least = -87; /* exp(x) is 0 below */

/* exp(scale (x - most)), at most 1: 2^n e^r, |r| <= log(2) / 2, e^r by its series. */
static inline __attribute__((always_inline)) void exponentials(lanes *row, float most, float scale)
{
    const lanes x = scale * (*row - most), lowest = (lanes){0} + least;
    const whole_lanes is_above = x > lowest;
    const lanes bounded = (lanes)(((whole_lanes)x & is_above) | ((whole_lanes)lowest & ~is_above));
    const whole_lanes n = __builtin_convertvector(bounded * 1.44269504f - 0.5f, whole_lanes); /* towards 0, so to nearest */
    const lanes times = __builtin_convertvector(n, lanes), r = bounded - times * 0.693359375f + times * 2.12194440e-4f;
    lanes sum = r * (1.0f / 5040) + 1.0f / 720;
    sum = sum * r + 1.0f / 120;
    sum = sum * r + 1.0f / 24;
    sum = sum * r + 1.0f / 6;
    sum = sum * r + 0.5f;
    sum = sum * r + 1.0f;
    sum = sum * r + 1.0f;
    *row = (lanes)((whole_lanes)(sum * (lanes)((n + 127) << 23)) & is_above);
}

static inline __attribute__((always_inline)) void softmax_body(int64_t seen, int64_t length, float scale, float *row)
{
    float last[LANES]; /* what is left of a row, then numbers that do not matter */
    lanes highest, total;
    const int64_t whole = seen - seen % LANES, left = seen - whole;
    float most, sum = 0;
    for (int c = 0; c < LANES; c++) last[c] = c < left ? row[whole + c] : -__builtin_inff();
    memcpy(&highest, last, sizeof last);
    for (int64_t j = 0; j < whole; j += LANES) {
        const lanes x = *(const lanes *)(const void *)(row + j);
        const whole_lanes is_higher = x > highest;
        highest = (lanes)(((whole_lanes)x & is_higher) | ((whole_lanes)highest & ~is_higher));
    }
    most = highest[0];
    for (int c = 1; c < LANES; c++) most = highest[c] > most ? highest[c] : most;

    exponentials((lanes *)(void *)last, most, scale);
    memcpy(&total, last, sizeof last);
    for (int64_t j = 0; j < whole; j += LANES) {
        lanes *x = (lanes *)(void *)(row + j);
        exponentials(x, most, scale);
        total += *x;
    }
    for (int c = 0; c < LANES; c++) sum += total[c];

    const float factor = sum > 0 ? 1 / sum : 0;
    for (int64_t j = 0; j < whole; j += LANES) *(lanes *)(void *)(row + j) *= factor;
    for (int c = 0; c < left; c++) row[whole + c] = last[c] * factor;
    memset(row + seen, 0, (size_t)(length - seen) * sizeof *row);
}

#ifdef __x86_64__
__attribute__((target("avx2,fma"))) static void softmax_avx2(int64_t seen, int64_t length, float scale, float *row)
{
    softmax_body(seen, length, scale, row);
}

__attribute__((target("avx512f,avx2,fma"))) static void softmax_avx512(int64_t seen, int64_t length, float scale, float *row)
{
    softmax_body(seen, length, scale, row);
}
#endif

void softmax_row(attn_isa isa, int64_t seen, int64_t length, float scale, float *row)
{
#ifdef __x86_64__
    if (isa == ATTN_ISA_AVX2) softmax_avx2(seen, length, scale, row);
    if (isa == ATTN_ISA_AVX512) softmax_avx512(seen, length, scale, row);
    if (isa == ATTN_ISA_AVX2 || isa == ATTN_ISA_AVX512) return;
#endif
    (void)isa;
    softmax_body(seen, length, scale, row);
}
