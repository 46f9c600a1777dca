/* SPDX-License-Identifier: MIT
 * fnv.h - a checksum of bytes: FNV-1a of 64 bits (Fowler, Noll and Vo 1991). */
#ifndef ATTN_TESTS_FNV_H
#define ATTN_TESTS_FNV_H

#include <stddef.h>
#include <stdint.h>

#define FNV_START 0xCBF29CE484222325u /* the checksum of no bytes */

static inline uint64_t fnv_add(uint64_t sum, const void *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++) sum = (sum ^ ((const unsigned char *)bytes)[i]) * 0x100000001B3u;
    return sum;
}

#endif
