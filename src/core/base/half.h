/* SPDX-License-Identifier: MIT
 *
 * half.h - the 16-bit storage types in portable C: binary16 (f16) and the upper half of a binary32 (bf16).
 *
 * Widening is exact.  Narrowing rounds once, to nearest, ties to even; subnormals are handled, overflow gives infinity, and a NaN
 * stays a (quiet) NaN with its sign and the upper bits of its payload, like the conversion instructions of CPUs.
 */
#ifndef ATTN_BASE_HALF_H
#define ATTN_BASE_HALF_H

#include <stdint.h>
#include <string.h>

static inline float attn_f32_of_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline float attn_f32_of_bf16(uint16_t h) { return attn_f32_of_bits((uint32_t)h << 16); }

static inline float attn_f32_of_f16(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = h >> 10 & 31, mantissa = h & 0x3ff;
    if (exponent == 31) return attn_f32_of_bits(sign | 0x7f800000 | mantissa << 13 | (mantissa ? 0x400000 : 0));
    if (exponent) return attn_f32_of_bits(sign | (exponent + 112) << 23 | mantissa << 13);
    float tiny = (float)mantissa * 0x1p-24f;
    return sign ? -tiny : tiny;
}

/*
 * The value with `sign`, whose magnitude is the 64-bit integer `digits` times 2^low, rounded to a format with `bits` bits of
 * mantissa below the leading one, least exponent `least` of a normal number, and `top` = the pattern of infinity.  digits and low
 * come from a double, so there are always bits to drop: it has 53, or they lie below the format's last place.
 */
static inline uint16_t attn_half_round(int sign, uint64_t digits, int low, int bits, int least, uint32_t top)
{
    uint32_t out = 0;
    if (digits) {
        int length = 64;
        while (!(digits >> (length - 1))) length--;
        int exponent = low + length - 1;                /* of the leading bit */
        int unit = exponent < least ? least : exponent; /* subnormals share the least exponent */
        int drop = unit - bits - low;                   /* bits below the last place kept */
        uint64_t kept = 0; /* drop > 63: below half of the least subnormal, since digits has at most 53 bits */
        if (drop <= 63) {
            uint64_t rest = digits & ((UINT64_C(1) << drop) - 1), half = UINT64_C(1) << (drop - 1);
            kept = digits >> drop;
            kept += rest > half || (rest == half && (kept & 1));
        }
        /* A carry out of the mantissa correctly increments the exponent, also from subnormals and into infinity. */
        int64_t pattern = ((int64_t)(unit - least) << bits) + (int64_t)kept;
        out = pattern > (int64_t)top ? top : (uint32_t)pattern;
    }
    return (uint16_t)(out | (sign ? 0x8000u : 0u));
}

static inline uint16_t attn_half_of_f64(double x, int bits, int least, uint32_t top)
{
    uint64_t p;
    memcpy(&p, &x, sizeof p);
    int sign = (int)(p >> 63), exponent = (int)(p >> 52 & 2047);
    uint64_t mantissa = p & ((UINT64_C(1) << 52) - 1);
    if (exponent == 2047) {
        uint32_t payload = mantissa ? (uint32_t)(mantissa >> (52 - bits)) | 1u << (bits - 1) : 0;
        return (uint16_t)(top | payload | (sign ? 0x8000u : 0u));
    }
    if (exponent) return attn_half_round(sign, mantissa | UINT64_C(1) << 52, exponent - 1075, bits, least, top);
    return attn_half_round(sign, mantissa, -1074, bits, least, top);
}

/* Every f32 is exact in f64, so these round once from either. */
static inline uint16_t attn_f16_of_f64(double x) { return attn_half_of_f64(x, 10, -14, 0x7c00); }
static inline uint16_t attn_bf16_of_f64(double x) { return attn_half_of_f64(x, 7, -126, 0x7f80); }

#endif
