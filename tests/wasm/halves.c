/* SPDX-License-Identifier: MIT
 * halves.c - conversions of vec/wasm128.h to and from 16 bits, against base/half.h: every f16 and bf16, and the floats on, next to
 * and between them. */
#define REAL_BITS 32
#include "kernels/vec/wasm128.h"

#include <stdio.h>

static int64_t failures, count;

/* Equal bits, or both NaN. */
static int same(float a, float b) { return memcmp(&a, &b, sizeof a) == 0; }

static void check_load(attn_dtype dtype, uint32_t first)
{
    uint16_t bits[4];
    float found[4];
    for (uint32_t i = 0; i < 4; i++) bits[i] = (uint16_t)(first + i);
    vf_store(found, vf_load_as(dtype, bits, 0));
    for (int i = 0; i < 4; i++) {
        const float expected = dtype == ATTN_F16 ? attn_f32_of_f16(bits[i]) : attn_f32_of_bf16(bits[i]);
        count++;
        if (same(found[i], expected) && (dtype != ATTN_F16 || same(wasm_f32x4_extract_lane(vf_of_half(bits[i]), 0), expected)))
            continue;
        if (failures++ < 5)
            printf("# %s 0x%04x: %g instead of %g\n", attn_dtype_name(dtype), bits[i], (double)found[i], (double)expected);
    }
}

static void check_store(attn_dtype dtype, uint32_t bits)
{
    const float x[4] = {attn_f32_of_bits(bits), attn_f32_of_bits(bits + 1), attn_f32_of_bits(bits - 1),
                        attn_f32_of_bits(bits ^ 0x80000000)};
    uint16_t found[4];
    vf_store_as(dtype, found, 0, vf_load(x));
    for (int i = 0; i < 4; i++) {
        const uint16_t expected = dtype == ATTN_F16 ? attn_f16_of_f64((double)x[i]) : attn_bf16_of_f64((double)x[i]);
        count++;
        if (found[i] == expected) continue;
        if (failures++ < 5)
            printf("# %g as %s: 0x%04x instead of 0x%04x\n", (double)x[i], attn_dtype_name(dtype), found[i], expected);
    }
}

int main(void)
{
    for (uint32_t h = 0; h < 0x10000; h += 4) {
        check_load(ATTN_F16, h);
        check_load(ATTN_BF16, h);
    }
    for (uint32_t h = 0; h < 0x8000; h++)
        for (uint32_t part = 0; part < 8; part++) { /* eighths of the way to the next one */
            uint32_t from, to;
            const float low = attn_f32_of_f16((uint16_t)h), high = attn_f32_of_f16((uint16_t)(h + 1));
            memcpy(&from, &low, sizeof from);
            memcpy(&to, &high, sizeof to);
            check_store(ATTN_F16, h < 0x7c00 ? from + (to - from) / 8 * part : from + (part << 10));
            check_store(ATTN_BF16, (h << 16) + (part << 13));
        }
    for (uint32_t x = 0x33000000 - 64; x < 0x33000000 + 64; x++) check_store(ATTN_F16, x); /* half of the least f16 */
    printf("%s 1 - conversions of 16 bits: %lld, %lld wrong\n1..1\n", failures ? "not ok" : "ok", (long long)count,
           (long long)failures);
    return failures != 0;
}
