/* SPDX-License-Identifier: MIT
 * cache_format.c - formats of keys and values by their definitions in ref/: what a row becomes, and the numbers of one; and
 * attn_quantise and attn_hadamard, each against its definition. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cache_case.h"

static attn_error last;

int cache_gives_scale(const cache_case *c, int which)
{
    const block *scale = &c->blocks[which + C_K_SCALE - C_K];
    return scale->name && scale->stride[2] == 0;
}

double cache_number(const cache_case *c, int which, const int64_t at[2], int64_t h, int64_t x)
{
    const block *b = &c->blocks[which], *scale = &c->blocks[which + C_K_SCALE - C_K];
    if (!format_is_any(b->dtype)) return block_get(b, at[0], h, at[1], x);
    if (format_is_blocks(b->dtype)) return format_get(block_at(b, at[0], h, at[1], x / REF_BLOCK), b->dtype, x % REF_BLOCK);
    const unsigned char *stored = block_at(b, at[0], h, at[1], x);
    const double number = number_get(stored, b->dtype);
    return scale->name ? number * block_get(scale, at[0], h, at[1], 0) : number;
}

double cache_row_scale(attn_dtype dtype, int64_t dim, const double *x)
{
    double most = 0;
    for (int64_t i = 0; i < dim; i++) most = isfinite(x[i]) && !isnan(most) ? fmax(most, fabs(x[i])) : (double)NAN;
    return (double)(float)(most / (dtype == ATTN_F8_E4M3 ? 448 : 57344));
}

void cache_pack(attn_dtype dtype, int64_t dim, const double *x, double scale, unsigned char *to)
{
    const ref_format format = format_of(dtype);
    const int head = dtype == ATTN_Q4_1 ? 4 : 2;
    for (int64_t i = 0; i < dim && !format_is_blocks(dtype); i++) {
        const int byte = ref_f8_of(format, x[i] / (scale == 0 ? 1 : scale));
        to[i] = isnan(ref_f8_value(format, byte)) ? 0xff : (unsigned char)byte;
    }
    for (int64_t i = 0; i < dim && format_is_blocks(dtype); i += REF_BLOCK, to += attn_dtype_size(dtype)) {
        int steps[REF_BLOCK];
        double d, m;
        ref_block_steps(format, x + i, steps, &d, &m);
        number_put(to, ATTN_F16, d);
        if (head == 4) number_put(to + 2, ATTN_F16, m);
        for (int k = 0; k < REF_BLOCK / 2; k++) {
            to[head + k] = (unsigned char)(dtype == ATTN_Q8_0 ? steps[k] : steps[k] | steps[k + 16] << 4);
            if (dtype == ATTN_Q8_0) to[head + k + 16] = (unsigned char)steps[k + 16];
        }
    }
}

/* Checks attn_quantise to f8 and blocks on random rows, some with NaN and infinities. */
static void quantise_formats(draws *d)
{
    static const attn_dtype sources[] = {ATTN_F32, ATTN_F16, ATTN_BF16};
    static const attn_dtype formats[] = {ATTN_F8_E4M3, ATTN_F8_E5M2, ATTN_Q8_0, ATTN_Q4_0, ATTN_Q4_1};
    const attn_dtype dtype = formats[draw_below(d, 5)];
    const int blocks = format_is_blocks(dtype), scaled = !blocks && draw_one_in(d, 2);
    const int64_t rows = draw_below(d, 4), dim = blocks ? REF_BLOCK * draw_below(d, 3) : draw_below(d, 70);
    const int64_t elements = format_elements(dtype, dim), bytes = elements * (int64_t)attn_dtype_size(dtype);
    block from = block_of("src", sources[draw_below(d, 3)], 0, 1, 1, rows, dim),
          whole = block_of("values", dtype, 1, 1, 1, rows, elements), scales = block_of("scales", ATTN_F32, 1, 1, 1, rows, 1);
    double x[80];
    unsigned char expected[160];
    if (!block_allocate(&from) || !block_allocate(&whole) || !block_allocate(&scales)) abort();
    block_fill(&from, d, -3, 3, draw_one_in(d, 3));
    const attn_input src = block_in(&from);
    const attn_output to = block_out(&whole), to_scales = block_out(&scales);
    const attn_status status = attn_quantise(rows, dim, &src, &to, scaled ? &to_scales : NULL, &last);
    check_error(status, &last);
    if (status != ATTN_OK) finding("attn_quantise to %s rejects: %s", attn_dtype_name(dtype), last.message);
    for (int64_t i = 0; i < rows && dim > 0; i++) {
        for (int64_t k = 0; k < dim; k++) x[k] = block_get(&from, 0, 0, i, k);
        const double scale = scaled ? cache_row_scale(dtype, dim, x) : 1, got = scaled ? block_get(&scales, 0, 0, i, 0) : 1;
        if (got != scale && !(isnan(got) && isnan(scale))) finding("the scale of row %d is %g, not %g", (int)i, got, scale);
        cache_pack(dtype, dim, x, scale, expected);
        for (int64_t k = 0; k < bytes; k++) {
            unsigned char byte = block_at(&whole, 0, 0, i, 0)[k];
            if (!blocks && isnan(ref_f8_value(format_of(dtype), byte))) byte = 0xff;
            if (byte != expected[k])
                finding("byte %d of row %d in %s is %d, not %d (%a / %a)", (int)k, (int)i, attn_dtype_name(dtype), byte,
                        expected[k], blocks ? 0 : x[k], scale);
        }
    }
    block_free(&from), block_free(&whole), block_free(&scales);
}

/* Checks attn_quantise on random rows, some with NaN and infinities. */
static void quantise(draws *d)
{
    static const attn_dtype types[] = {ATTN_F32, ATTN_F64, ATTN_F16, ATTN_BF16};
    const int64_t rows = draw_below(d, 5), dim = draw_below(d, 70), stride = dim + draw_below(d, 4);
    block from = block_of("src", types[draw_below(d, 4)], 0, 1, 1, rows, dim),
          whole = block_of("values", ATTN_I8, 1, 1, 1, rows, dim), scales = block_of("scales", ATTN_F32, 1, 1, 1, rows, 1);
    double x[80], exact[80];
    from.stride[2] = stride;
    if (!block_allocate(&from) || !block_allocate(&whole) || !block_allocate(&scales)) abort();
    block_fill(&from, d, -3, 3, draw_one_in(d, 3));
    const attn_input src = block_in(&from);
    const attn_output to = block_out(&whole), to_scales = block_out(&scales);
    const attn_status status = attn_quantise(rows, dim, &src, &to, &to_scales, &last);
    check_error(status, &last);
    if (status != ATTN_OK) finding("attn_quantise rejects: %s", last.message);
    for (int64_t i = 0; i < rows && dim > 0; i++) {
        for (int64_t k = 0; k < dim; k++) x[k] = block_get(&from, 0, 0, i, k);
        const double scale = ref_quantise(dim, x, exact), got = block_get(&scales, 0, 0, i, 0);
        if (got != scale && !(isnan(got) && isnan(scale))) finding("the scale of row %d is %g, not %g", (int)i, got, scale);
        for (int64_t k = 0; k < dim && !isnan(scale); k++)
            if (block_get(&whole, 0, 0, i, k) != exact[k]) finding("element %d of row %d is quantised wrongly", (int)k, (int)i);
    }
    block_free(&from), block_free(&whole), block_free(&scales);
}

/* Checks attn_hadamard on random rows. */
static void hadamard(draws *d)
{
    static const attn_dtype types[] = {ATTN_F32, ATTN_F64, ATTN_F16, ATTN_BF16};
    const int64_t rows = draw_below(d, 4), dim = draw_below(d, 70);
    block from = block_of("src", types[draw_below(d, 4)], 0, 1, 1, rows, dim),
          to = block_of("dst", types[draw_below(d, 2)], 1, 1, 1, rows, dim);
    int64_t n = 1;
    double x[80], y[80];
    if (!block_allocate(&from) || !block_allocate(&to)) abort();
    block_fill(&from, d, -3, 3, 0);
    while (dim && dim % (2 * n) == 0) n *= 2;
    const attn_input src = block_in(&from);
    const attn_output dst = block_out(&to);
    const attn_status status = attn_hadamard(rows, dim, &src, &dst, &last);
    check_error(status, &last);
    if (status != ATTN_OK) finding("attn_hadamard rejects: %s", last.message);
    for (int64_t i = 0; i < rows; i++) {
        double most = 0;
        for (int64_t k = 0; k < dim; k++) x[k] = block_get(&from, 0, 0, i, k), most = fmax(most, fabs(x[k]));
        for (int64_t k = 0; k < dim; k += n) ref_hadamard(n, x + k, y + k);
        for (int64_t k = 0; k < dim; k++)
            if (!(fabs(block_get(&to, 0, 0, i, k) - y[k]) <= 0x1p-20 * most + (double)FLT_TRUE_MIN))
                finding("channel %d of row %d is rotated wrongly", (int)k, (int)i);
    }
    block_free(&from), block_free(&to);
}

void cache_quantise(draws *d)
{
    quantise(d);
    if (draw_one_in(d, 4)) quantise_formats(d);
    if (draw_one_in(d, 4)) hadamard(d);
}
