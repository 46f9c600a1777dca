/* SPDX-License-Identifier: MIT
 * philox.h - Philox4x32-10 (Salmon et al. 2011): four words of 32 random bits from a key and a counter. */
#ifndef ATTN_BASE_PHILOX_H
#define ATTN_BASE_PHILOX_H

#include <stdint.h>

static inline void attn_philox(uint64_t seed, const uint32_t counter[4], uint32_t out[4])
{
    uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    for (int i = 0; i < 4; i++) out[i] = counter[i];
    for (int round = 0; round < 10; round++) {
        const uint64_t a = (uint64_t)out[0] * 0xD2511F53u, b = (uint64_t)out[2] * 0xCD9E8D57u;
        const uint32_t next[4] = {(uint32_t)(b >> 32) ^ out[1] ^ key[0], (uint32_t)b, (uint32_t)(a >> 32) ^ out[3] ^ key[1],
                                  (uint32_t)a};
        for (int i = 0; i < 4; i++) out[i] = next[i];
        key[0] += 0x9E3779B9u;
        key[1] += 0xBB67AE85u;
    }
}

#endif
