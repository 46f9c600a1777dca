/* SPDX-License-Identifier: MIT
 * formats.c - see formats.h.  A block with a NaN or an infinity, or whose scale is beyond f32, has a NaN for its scale, where
 * ggml's reference converts one to an integer, which C leaves undefined. */
#include "formats.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "../../base/half.h"

/* ---- f8 ---- */

typedef struct f8_format {
    int fraction, least; /* bits of the fraction; the exponent of the least normal number */
    double largest;
    uint8_t infinite, nan;
} f8_format;

static f8_format format_of(attn_dtype dtype)
{
    return dtype == ATTN_F8_E4M3 ? (f8_format){3, -6, 448, 0x7f, 0x7f} : (f8_format){2, -14, 57344, 0x7c, 0x7e};
}

double attn_f8_largest(attn_dtype dtype) { return format_of(dtype).largest; }

static uint64_t bits_of(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static uint8_t f8_of(f8_format f, double x)
{
    const double size = fabs(x), bounded = size > f.largest ? f.largest : size;
    const uint8_t sign = bits_of(x) >> 63 ? 0x80 : 0;
    if (!(size <= DBL_MAX)) return (uint8_t)(sign | (size != size ? f.nan : f.infinite));
    const int exponent = (int)(bits_of(bounded) >> 52) - 1023, unit = exponent < f.least ? f.least : exponent;
    const uint64_t up = (uint64_t)(1023 + f.fraction - unit) << 52;
    double factor;
    memcpy(&factor, &up, sizeof factor);
    const int kept = (int)(bounded * factor + 0x1.8p52 - 0x1.8p52); /* units in the last place; a carry raises the exponent */
    return (uint8_t)(sign | (((unit - f.least) << f.fraction) + kept));
}

void attn_f8_quantise(attn_dtype dtype, int64_t dim, const float *x, double scale, uint8_t *values)
{
    const f8_format f = format_of(dtype);
    for (int64_t c = 0; c < dim; c++) values[c] = f8_of(f, (double)x[c] / scale);
}

/* ---- blocks ---- */

static void put_half(uint8_t *to, float x)
{
    const uint16_t half = attn_f16_of_f64((double)x);
    memcpy(to, &half, sizeof half);
}

/* Returns 0 if the block has a NaN or an infinity. */
static int is_finite(const float *x)
{
    float rest = 0;
    for (int i = 0; i < ATTN_BLOCK; i++) rest += x[i] - x[i];
    return rest == 0;
}

/* 1 / d, or 0 if it has none: then every number is 0 in f16. */
static float inverse_of(float d)
{
    const float inverse = d != 0 ? 1.0f / d : 0;
    return fabsf(inverse) <= FLT_MAX ? inverse : 0;
}

/* roundf: halves away from zero. */
static int nearest(float x) { return (int)(x < 0 ? (double)x - 0.5 : (double)x + 0.5); }

static void quantise_q8_0(const float *x, uint8_t *block)
{
    float most = 0;
    for (int i = 0; i < ATTN_BLOCK; i++) most = fabsf(x[i]) > most ? fabsf(x[i]) : most;
    const float d = most / 127, inverse = inverse_of(d);
    put_half(block, d);
    for (int i = 0; i < ATTN_BLOCK; i++) block[2 + i] = (uint8_t)nearest(x[i] * inverse);
}

static uint8_t step_of(float x) { return x < 15 ? (uint8_t)x : 15; }

static void quantise_q4_0(const float *x, uint8_t *block)
{
    float most = 0, signed_most = 0;
    for (int i = 0; i < ATTN_BLOCK; i++)
        if (fabsf(x[i]) > most) most = fabsf(x[i]), signed_most = x[i];
    const float d = signed_most / -8, inverse = inverse_of(d);
    put_half(block, d);
    for (int i = 0; i < ATTN_BLOCK / 2; i++)
        block[2 + i] = (uint8_t)(step_of(x[i] * inverse + 8.5f) | step_of(x[i + ATTN_BLOCK / 2] * inverse + 8.5f) << 4);
}

static void quantise_q4_1(const float *x, uint8_t *block)
{
    float least = x[0], most = x[0];
    for (int i = 1; i < ATTN_BLOCK; i++) {
        least = x[i] < least ? x[i] : least;
        most = x[i] > most ? x[i] : most;
    }
    const float d = (most - least) / 15, inverse = inverse_of(d);
    put_half(block, d <= FLT_MAX ? d : NAN);
    put_half(block + 2, least);
    for (int i = 0; i < ATTN_BLOCK / 2; i++)
        block[4 + i] =
            (uint8_t)(step_of((x[i] - least) * inverse + 0.5f) | step_of((x[i + ATTN_BLOCK / 2] - least) * inverse + 0.5f) << 4);
}

void attn_blocks_quantise(attn_dtype dtype, int64_t dim, const float *x, uint8_t *blocks)
{
    const int64_t bytes = dtype == ATTN_Q8_0 ? 34 : dtype == ATTN_Q4_0 ? 18 : 20;
    for (int64_t c = 0; c < dim; c += ATTN_BLOCK, x += ATTN_BLOCK, blocks += bytes) {
        if (!is_finite(x)) {
            memset(blocks, 0, (size_t)bytes);
            put_half(blocks, NAN);
        } else if (dtype == ATTN_Q8_0) {
            quantise_q8_0(x, blocks);
        } else if (dtype == ATTN_Q4_0) {
            quantise_q4_0(x, blocks);
        } else {
            quantise_q4_1(x, blocks);
        }
    }
}
