/* SPDX-License-Identifier: MIT
 * element.c - numbers of every storage type to and from double, by the definition of the formats. */
#include "element.h"

#include <math.h>
#include <string.h>

/* A binary format: bits of the exponent and of the fraction. */
typedef struct format {
    int exponent, fraction;
} format;

static const format half = {5, 10}, bfloat = {8, 7}, e4m3 = {4, 3}, e5m2 = {5, 2};

static double decode(format f, uint16_t bits)
{
    const int bias = (1 << (f.exponent - 1)) - 1;
    const int exponent = (bits >> f.fraction) & ((1 << f.exponent) - 1);
    const int fraction = bits & ((1 << f.fraction) - 1);
    const double sign = bits & 0x8000 ? -1 : 1;
    if (exponent == (1 << f.exponent) - 1) return fraction ? NAN : sign * INFINITY;
    if (exponent == 0) return sign * ldexp(fraction, 1 - bias - f.fraction);
    return sign * ldexp((1 << f.fraction) + fraction, exponent - bias - f.fraction);
}

static uint16_t encode(format f, double x)
{
    const int bias = (1 << (f.exponent - 1)) - 1;
    const int infinity = ((1 << f.exponent) - 1) << f.fraction;
    const int sign = signbit(x) ? 0x8000 : 0;
    if (isnan(x)) return (uint16_t)(sign | infinity | 1 << (f.fraction - 1));
    if (isinf(x)) return (uint16_t)(sign | infinity);
    if (x == 0) return (uint16_t)sign;

    int e;
    (void)frexp(x, &e); /* |x| in [2^(e-1), 2^e) */
    int exponent = e - 1 + bias;
    if (exponent < 1) exponent = 1; /* denormal: the spacing of the least normal numbers */
    /* In units of the last place; nearbyint rounds ties to even, and a carry correctly increments the exponent. */
    const long units = lround(nearbyint(ldexp(fabs(x), f.fraction - (exponent - bias))));
    const long bits = units + ((long)(exponent - 1) << f.fraction);
    return (uint16_t)(sign | (bits < infinity ? (int)bits : infinity));
}

/* An f8: the byte has the bits that encode leaves in the low ones, and its sign in the highest; numbers saturate. */
static double decode_f8(attn_dtype dtype, uint8_t byte)
{
    const uint16_t bits = (uint16_t)((byte & 0x80) << 8 | (byte & 0x7f));
    if (dtype == ATTN_F8_E5M2) return decode(e5m2, bits);
    if ((byte & 0x7f) == 0x7f) return NAN;
    if ((byte & 0x7f) >= 0x78) return (byte & 0x80 ? -1 : 1) * ldexp(8 + (byte & 7), 5); /* where others have infinity and NaN */
    return decode(e4m3, bits);
}

static uint8_t encode_f8(attn_dtype dtype, double x)
{
    const double most = dtype == ATTN_F8_E4M3 ? 448 : 57344, bounded = fmin(fmax(x, -most), most);
    const int sign = signbit(x) ? 0x80 : 0;
    if (isnan(x) || (isinf(x) && dtype == ATTN_F8_E4M3)) return (uint8_t)(sign | 0x7f);
    if (isinf(x)) return (uint8_t)(sign | 0x7c);
    if (dtype == ATTN_F8_E5M2) return (uint8_t)(sign | (encode(e5m2, fabs(bounded)) & 0x7f));
    if (fabs(bounded) < 256) return (uint8_t)(sign | (encode(e4m3, fabs(bounded)) & 0x7f));
    return (uint8_t)(sign | (int)(0x70 + nearbyint(fabs(bounded) / 32)));
}

double element_read(attn_dtype dtype, const void *src)
{
    union {
        float f32;
        double f64;
        uint16_t u16;
        int16_t i16;
        int32_t i32;
        uint32_t u32;
        int64_t i64;
        uint64_t u64;
        uint8_t u8;
        int8_t i8;
    } x = {0};
    memcpy(&x, src, attn_dtype_size(dtype));
    switch (dtype) {
    case ATTN_F32:
        return (double)x.f32;
    case ATTN_F64:
        return x.f64;
    case ATTN_F16:
        return decode(half, x.u16);
    case ATTN_BF16:
        return decode(bfloat, x.u16);
    case ATTN_BOOL:
        return x.u8 != 0;
    case ATTN_U8:
        return x.u8;
    case ATTN_I8:
        return x.i8;
    case ATTN_F8_E4M3:
    case ATTN_F8_E5M2:
        return decode_f8(dtype, x.u8);
    case ATTN_I16:
        return x.i16;
    case ATTN_U16:
        return x.u16;
    case ATTN_I32:
        return x.i32;
    case ATTN_U32:
        return x.u32;
    case ATTN_I64:
        return (double)x.i64;
    case ATTN_U64:
        return (double)x.u64;
    default:
        return NAN;
    }
}

void element_write(attn_dtype dtype, void *dst, double value)
{
    const float f32 = (float)value;
    const int8_t whole = (int8_t)(dtype == ATTN_I8 ? value : 0);
    const uint16_t bits = dtype == ATTN_F16 ? encode(half, value) : dtype == ATTN_BF16 ? encode(bfloat, value) : 0;
    switch (dtype) {
    case ATTN_F32:
        memcpy(dst, &f32, sizeof f32);
        break;
    case ATTN_F64:
        memcpy(dst, &value, sizeof value);
        break;
    case ATTN_F16:
    case ATTN_BF16:
        memcpy(dst, &bits, sizeof bits);
        break;
    case ATTN_I8:
        memcpy(dst, &whole, sizeof whole);
        break;
    case ATTN_F8_E4M3:
    case ATTN_F8_E5M2:
        *(uint8_t *)dst = encode_f8(dtype, value);
        break;
    default:
        break;
    }
}

void element_write_index(attn_dtype dtype, void *dst, int64_t value)
{
    const int32_t narrow = (int32_t)value;
    if (dtype == ATTN_I32) memcpy(dst, &narrow, sizeof narrow);
    else memcpy(dst, &value, sizeof value);
}

double element_round(attn_dtype dtype, double value)
{
    double bytes = 0;
    element_write(dtype, &bytes, value);
    return element_read(dtype, &bytes);
}
