/* SPDX-License-Identifier: MIT
 * layout.c - checked offsets. */
#include "layout.h"

#include "../base/checked.h"

int attn_place(const attn_part_of *parts, size_t n, int64_t *end)
{
    for (size_t i = 0; i < n; i++) {
        int64_t bytes;
        *parts[i].at = *end;
        if (!attn_mul(parts[i].count, parts[i].each, &bytes) || !attn_mul(bytes, (int64_t)parts[i].size, &bytes)) return 0;
        if (bytes > INT64_MAX - 64 || !attn_add(*end, attn_round_64(bytes), end)) return 0;
    }
    return 1;
}

int64_t attn_step_bytes(int64_t count, int64_t each, size_t size)
{
    int64_t at, end = 0;
    attn_part_of one = {&at, count, each, size};
    return attn_place(&one, 1, &end) ? end : -1;
}
