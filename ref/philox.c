/* SPDX-License-Identifier: MIT
 *
 * philox.c - random words and the dropout mask, implemented independently of the kernels: Philox4x32-10 of Salmon, Moraes, Dror and
 * Shaw, "Parallel random numbers: as easy as 1, 2, 3" (SC 2011), section 3.3.
 */
#include "attn_ref.h"

static void one_round(uint32_t x[4], const uint32_t k[2])
{
    uint64_t a = (uint64_t)0xD2511F53u * x[0], b = (uint64_t)0xCD9E8D57u * x[2];
    uint32_t y0 = (uint32_t)(b >> 32) ^ x[1] ^ k[0], y2 = (uint32_t)(a >> 32) ^ x[3] ^ k[1];
    x[0] = y0;
    x[1] = (uint32_t)b;
    x[2] = y2;
    x[3] = (uint32_t)a;
}

void ref_philox(uint64_t seed, uint32_t word[4])
{
    uint32_t k[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    for (int round = 0; round < 10; round++) {
        one_round(word, k);
        k[0] += 0x9E3779B9u;
        k[1] += 0xBB67AE85u;
    }
}

int ref_dropout_keeps(uint64_t seed, uint32_t offset, int64_t head, int64_t i, int64_t j, double p)
{
    uint32_t x[4] = {offset, (uint32_t)head, (uint32_t)i, (uint32_t)(j / 4)};
    ref_philox(seed, x);
    return (double)x[j % 4] >= p * 4294967296.0;
}
