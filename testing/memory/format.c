/* SPDX-License-Identifier: MIT
 * format.c - see format.h. */
#include "format.h"

#include <string.h>

int format_is_f8(attn_dtype dtype) { return dtype == ATTN_F8_E4M3 || dtype == ATTN_F8_E5M2; }
int format_is_blocks(attn_dtype dtype) { return dtype >= ATTN_Q8_0 && dtype <= ATTN_Q4_1; }
int format_is_any(attn_dtype dtype) { return dtype == ATTN_I8 || format_is_f8(dtype) || format_is_blocks(dtype); }
int64_t format_elements(attn_dtype dtype, int64_t dim)
{
    return format_is_blocks(dtype) || dtype == ATTN_Q4_1C ? dim / REF_BLOCK : dim;
}
int64_t format_channel(int64_t dim, int64_t c, int64_t *key)
{
    *key = c / (dim / REF_BLOCK);
    return c % (dim / REF_BLOCK);
}

ref_format format_of(attn_dtype dtype)
{
    static const ref_format of[] = {REF_E4M3, REF_E5M2, REF_Q8_0, REF_Q4_0, REF_Q4_1, REF_Q4_1};
    return of[dtype - ATTN_F8_E4M3];
}

static double half_get(const void *at)
{
    double x = 0;
    (void)attn_convert(1, at, ATTN_F16, &x, ATTN_F64, NULL);
    return x;
}

/* Bytes before the steps of a block. */
static int head_of(attn_dtype dtype) { return dtype >= ATTN_Q4_1 ? 4 : 2; }

double format_get(const void *element, attn_dtype dtype, int64_t channel)
{
    const unsigned char *from = element, *steps = from + head_of(dtype);
    if (format_is_f8(dtype)) return ref_f8_value(format_of(dtype), *from);
    const int low = channel < REF_BLOCK / 2, step = dtype == ATTN_Q8_0 ? (signed char)steps[channel]
                                                    : low              ? steps[channel] & 15
                                                                       : steps[channel - REF_BLOCK / 2] >> 4;
    return ref_block_value(format_of(dtype), half_get(from), dtype >= ATTN_Q4_1 ? half_get(from + 2) : 0, step);
}

void format_put(void *element, attn_dtype dtype, double x)
{
    unsigned char *to = element;
    const double step = x / (dtype == ATTN_Q8_0 ? 128 : 8), least = -x;
    uint64_t word;
    if (format_is_f8(dtype)) {
        *to = (unsigned char)ref_f8_of(format_of(dtype), x);
        return;
    }
    memcpy(&word, &x, sizeof word);
    (void)attn_convert(1, &step, ATTN_F64, to, ATTN_F16, NULL);
    if (dtype >= ATTN_Q4_1) (void)attn_convert(1, &least, ATTN_F64, to + 2, ATTN_F16, NULL);
    for (size_t i = (size_t)head_of(dtype); i < attn_dtype_size(dtype); i++) {
        word = word * UINT64_C(0xd1342543de82ef95) + 0x2545f491;
        to[i] = (unsigned char)(word >> 56);
    }
}

void format_put_block(void *block, attn_dtype dtype, const double *x)
{
    unsigned char *to = block, *steps_to = to + head_of(dtype);
    int steps[REF_BLOCK];
    double d, m;
    ref_block_steps(format_of(dtype), x, steps, &d, &m);
    (void)attn_convert(1, &d, ATTN_F64, to, ATTN_F16, NULL);
    if (dtype >= ATTN_Q4_1) (void)attn_convert(1, &m, ATTN_F64, to + 2, ATTN_F16, NULL);
    for (int c = 0; c < REF_BLOCK / 2; c++) {
        const int low = steps[c], high = steps[c + REF_BLOCK / 2];
        if (dtype == ATTN_Q8_0) steps_to[c] = (unsigned char)low, steps_to[c + REF_BLOCK / 2] = (unsigned char)high;
        else steps_to[c] = (unsigned char)(low | high << 4);
    }
}

double format_scale(attn_dtype dtype, double most)
{
    const double largest = dtype == ATTN_I8 ? 127 : ref_f8_value(format_of(dtype), dtype == ATTN_F8_E4M3 ? 0x7e : 0x7b);
    return (double)(float)(most / largest);
}
