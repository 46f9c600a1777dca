/* SPDX-License-Identifier: MIT
 *
 * gguf_block.c - ggml's blocks (github.com/ggml-org/ggml, src/ggml-common.h: block_q4_0 and so on; src/ggml-quants.c:
 * dequantize_row_*), one function each.  A number is scale * digit (+ minimum) in f32.  Scales are of f16, so that the products are
 * exact up to Q5_K, and every number is rounded at most once (in Q6_K, where scale * step * digit has 25 bits, in the last
 * product): the bits do not depend on the compiler.
 */
#include "gguf_block.h"

#include <string.h>

/* IEEE binary16. */
static float half(const unsigned char *bytes)
{
    const uint32_t h = (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8;
    const uint32_t exponent = h >> 10 & 31, fraction = h & 0x3FF;
    const float tiny = (float)fraction * 0x1p-24F;
    if (exponent == 0) return h & 0x8000 ? -tiny : tiny;
    const uint32_t bits = (h & 0x8000) << 16 | (exponent == 31 ? 255 : exponent + 112) << 23 | fraction << 13;
    float x = 0;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static void q8_0(const unsigned char *block, float *y)
{
    const float scale = half(block);
    for (int i = 0; i < 32; i++) y[i] = scale * (float)(int8_t)block[2 + i];
}

/* Numbers i and i + 16 are the halves of byte i. */
static void q4_0(const unsigned char *block, float *y)
{
    const float scale = half(block);
    for (int i = 0; i < 16; i++) {
        y[i] = scale * (float)((block[2 + i] & 15) - 8);
        y[i + 16] = scale * (float)((block[2 + i] >> 4) - 8);
    }
}

static void q4_1(const unsigned char *block, float *y)
{
    const float scale = half(block), minimum = half(block + 2);
    for (int i = 0; i < 16; i++) {
        y[i] = scale * (float)(block[4 + i] & 15) + minimum;
        y[i + 16] = scale * (float)(block[4 + i] >> 4) + minimum;
    }
}

/* Scale and minimum of run `run` of 32 numbers: 6 bits each, the upper 2 of the last four runs beside those of the first. */
static void step_of(const unsigned char *packed, int run, float *scale, float *minimum)
{
    int s, m;
    if (run < 4) {
        s = packed[run] & 63;
        m = packed[run + 4] & 63;
    } else {
        s = (packed[run + 4] & 15) | packed[run - 4] >> 6 << 4;
        m = packed[run + 4] >> 4 | packed[run] >> 6 << 4;
    }
    *scale = (float)s;
    *minimum = (float)m;
}

/* 8 runs of 32 numbers, of which two share 32 bytes. */
static void q4_k(const unsigned char *block, float *y)
{
    const float scales = half(block), minimums = half(block + 2);
    for (int run = 0; run < 8; run++) {
        const unsigned char *digits = block + 16 + run / 2 * 32;
        float scale, minimum;
        step_of(block + 4, run, &scale, &minimum);
        scale *= scales;
        minimum *= minimums;
        for (int i = 0; i < 32; i++) y[32 * run + i] = scale * (float)(digits[i] >> (run % 2 * 4) & 15) - minimum;
    }
}

/* 16 runs of 16 numbers with a step of 8 bits each.  Each half of the block has 64 bytes of lower 4 bits and 32 bytes of upper 2.
 */
static void q6_k(const unsigned char *block, float *y)
{
    const unsigned char *lower = block, *upper = block + 128, *steps = block + 192;
    const float scale = half(block + 208);
    for (int i = 0; i < 256; i++) {
        const int half_of = i / 128, quarter = i % 128 / 32, place = i % 32;
        const int low = lower[64 * half_of + quarter % 2 * 32 + place] >> (quarter / 2 * 4) & 15;
        const int high = upper[32 * half_of + place] >> (2 * quarter) & 3;
        y[i] = scale * (float)(int8_t)steps[i / 16] * (float)((low | high << 4) - 32);
    }
}

static const attn_io_gguf_type types[] = {
    {"F32", 0, ATTN_F32, 1, 4, NULL},       {"F16", 1, ATTN_F16, 1, 2, NULL},    {"Q4_0", 2, ATTN_F32, 32, 18, q4_0},
    {"Q4_1", 3, ATTN_F32, 32, 20, q4_1},    {"Q8_0", 8, ATTN_F32, 32, 34, q8_0}, {"Q4_K", 12, ATTN_F32, 256, 144, q4_k},
    {"Q6_K", 14, ATTN_F32, 256, 210, q6_k}, {"I8", 24, ATTN_I8, 1, 1, NULL},     {"I16", 25, ATTN_I16, 1, 2, NULL},
    {"I32", 26, ATTN_I32, 1, 4, NULL},      {"I64", 27, ATTN_I64, 1, 8, NULL},   {"F64", 28, ATTN_F64, 1, 8, NULL},
    {"BF16", 30, ATTN_BF16, 1, 2, NULL},
};

const char attn_io_gguf_types[] = "F64 F32 F16 BF16 I64 I32 I16 I8 Q8_0 Q6_K Q4_K Q4_1 Q4_0";

const attn_io_gguf_type *attn_io_gguf_type_of(uint32_t type)
{
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (types[i].type == type) return &types[i];
    return NULL;
}

const char *attn_io_gguf_type_name(uint32_t type)
{
    static const char *const others[] = {
        [6] = "Q5_0",     [7] = "Q5_1",    [9] = "Q8_1",     [10] = "Q2_K",  [11] = "Q3_K",   [13] = "Q5_K",  [15] = "Q8_K",
        [16] = "IQ2_XXS", [17] = "IQ2_XS", [18] = "IQ3_XXS", [19] = "IQ1_S", [20] = "IQ4_NL", [21] = "IQ3_S", [22] = "IQ2_S",
        [23] = "IQ4_XS",  [29] = "IQ1_M",  [34] = "TQ1_0",   [35] = "TQ2_0", [39] = "MXFP4"};
    const attn_io_gguf_type *known = attn_io_gguf_type_of(type);
    if (known) return known->name;
    return type < sizeof others / sizeof others[0] ? others[type] : NULL;
}
