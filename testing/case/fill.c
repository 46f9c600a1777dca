/* SPDX-License-Identifier: MIT
 * fill.c - the data of a check case: ordinary numbers, hostile numbers, and poison where nothing may read. */
#include "fill.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "testing/memory/element.h"
#include "testing/memory/format.h"
#include "testing/problem/serving.h"
#include "testing/random/normal.h"
#include "testing/text/failure.h"

typedef enum role { ROLE_Q = TENSOR(q), ROLE_K = TENSOR(k), ROLE_V = TENSOR(v) } role;

/* The parameters of the numbers in q, k and v. */
typedef struct setting {
    case_fill fill;
    double amplitude;  /* of FILL_HUGE */
    double tiny;       /* smallest normal number of the storage type */
    double slope;      /* of FILL_RISING and FILL_FALLING: growth of the score per key */
    const double *one; /* FILL_EQUAL: the key that all keys equal */
    int64_t dim;
} setting;

static double smallest_normal(attn_dtype dtype)
{
    if (format_is_blocks(dtype) || dtype == ATTN_Q4_1C) return 0x1p-14; /* of their steps, which are f16 */
    return dtype == ATTN_F16 ? 0x1p-14 : dtype == ATTN_F64 ? DBL_MIN : (double)FLT_MIN;
}

/* Element c of token t. */
static double draw(const setting *s, role r, int64_t t, int64_t c, normal_run *run)
{
    const int next = normal_next(run);
    const double normal = run->normal[next], unit = run->unit[next];
    switch (s->fill) {
    case FILL_UNIFORM:
        return 2 * unit - 1;
    case FILL_HUGE:
        return r == ROLE_V ? normal * 1000 : normal * s->amplitude;
    case FILL_EQUAL:
        return r == ROLE_K ? s->one[c % 64] : normal;
    case FILL_ONEHOT:
        return r == ROLE_V ? normal : (t % s->dim == c ? 12 : 0);
    case FILL_ZERO:
        return unit < 0.5 ? 0.0 : -0.0;
    case FILL_DENORMAL:
        return normal * s->tiny * 0.3;
    case FILL_RISING:
    case FILL_FALLING:
        if (r == ROLE_V) return normal;
        if (c > 0) return normal * 0.1;
        return r == ROLE_Q ? 1 : (s->fill == FILL_RISING ? 1 : -1) * s->slope * (double)t;
    case FILL_SPREAD:
        return r == ROLE_V ? ldexp(normal, (int)(unit * 40) - 20) : normal;
    default:
        return normal;
    }
}

/* The number of distinct elements of an axis: 1 if it broadcasts. */
static int64_t distinct(const tensor *t, int axis) { return t->stride[axis] == 0 && t->size[axis] > 1 ? 1 : t->size[axis]; }

/* Visits every element of memory once: index 0 only on axes that broadcast. */
#define FOR_EACH_ELEMENT(t, b, h, i, c)                                                                                            \
    for (int64_t b = 0; b < distinct(t, 0); b++)                                                                                   \
        for (int64_t h = 0; h < distinct(t, 1); h++)                                                                               \
            for (int64_t i = 0; i < distinct(t, 2); i++)                                                                           \
                for (int64_t c = 0; c < distinct(t, 3); c++)

/* Gradients and tangents: normal numbers. */
static void fill_flows(check_call *call, random_state *random)
{
    normal_run run;
    normal_begin(&run, random, 0);
    for (int t = 0; t < TENSORS; t++) {
        const tensor *to = &call->in[t];
        if (!flow_in(&call->tensors, call->problem.op, t)) continue;
        FOR_EACH_ELEMENT(to, b, h, i, e)
        {
            const int next = normal_next(&run);
            element_write(to->layout.dtype, tensor_at(to, b, h, i, e), run.normal[next]);
        }
    }
    normal_end(&run);
}

/* Rows as i8 or f8 with their scales, or as blocks; scales: without memory if rows have none. */
static void fill_rows(const setting *s, role r, tensor *t, const tensor *scales, normal_run *run)
{
    enum { MOST = 1024 }; /* channels; more are repeated */
    double row[MOST];
    const attn_dtype dtype = t->layout.dtype;
    const int64_t width = format_is_blocks(dtype) ? ATTN_BLOCK : 1, all = t->size[3] * width, dim = all < MOST ? all : MOST;
    for (int64_t b = 0; b < distinct(t, 0); b++)
        for (int64_t h = 0; h < distinct(t, 1); h++)
            for (int64_t i = 0; i < t->size[2]; i++) {
                double most = 0;
                for (int64_t c = 0; c < dim; c++) most = fmax(most, fabs(row[c] = draw(s, r, i, c, run)));
                const double scale = scales->base ? format_scale(dtype, most) : 1;
                if (scales->base) element_write(ATTN_F32, tensor_at(scales, b, h, i, 0), scale);
                if (dtype == ATTN_I8) ref_quantise(dim, row, row);
                for (int64_t c = 0; c < all; c += width) {
                    void *to = tensor_at(t, b, h, i, c / width);
                    if (width > 1) format_put_block(to, dtype, row + c % MOST);
                    else element_write(dtype, to, dtype == ATTN_I8 ? row[c % MOST] : scale > 0 ? row[c % MOST] / scale : 0);
                }
            }
}

/* Groups of keys by channel; the last one, if it is not full, is not read. */
static void fill_channels(const setting *s, tensor *t, normal_run *run)
{
    const int64_t dim = t->size[3] * ATTN_BLOCK;
    double x[ATTN_BLOCK];
    for (int64_t b = 0; b < distinct(t, 0); b++)
        for (int64_t h = 0; h < distinct(t, 1); h++)
            for (int64_t first = 0; first + ATTN_BLOCK <= t->size[2]; first += ATTN_BLOCK)
                for (int64_t c = 0; c < dim; c++) {
                    int64_t key;
                    const int64_t block = format_channel(dim, c, &key);
                    for (int64_t j = 0; j < ATTN_BLOCK; j++) x[j] = draw(s, ROLE_K, first + j, c, run);
                    format_put_block(tensor_at(t, b, h, first + key, block), ATTN_Q4_1C, x);
                }
}

static void fill_numbers(const setting *s, role r, tensor *t, normal_run *run)
{
    FOR_EACH_ELEMENT(t, b, h, i, e) { element_write(t->layout.dtype, tensor_at(t, b, h, i, e), draw(s, r, i, e, run)); }
}

void fill_tensors(check_call *call, const check_case *c, random_state *random)
{
    const attn_shape *shape = &call->problem.shape;
    const double scale = expected_scale(&call->problem), dim = shape->dim_qk > 0 ? (double)shape->dim_qk : 1;
    double one[64];
    for (int i = 0; i < 64; i++) one[i] = random_normal(random);
    const double deviation = fabs(scale) * sqrt(dim);
    setting s = {.fill = c->fill, .one = one, .dim = (int64_t)dim};
    s.amplitude = deviation > 0 ? fmin(sqrt(400 / deviation), 30) : 20;
    s.slope = scale != 0 ? 60 / fabs(scale) / fmax((double)shape->len_kv, 8) : 1;
    normal_run run;
    normal_begin(&run, random, 1);
    for (int r = 0; r < 3; r++) {
        tensor *t = &call->in[r];
        s.tiny = smallest_normal(t->layout.dtype);
        if (r != ROLE_Q && format_is_any(t->layout.dtype)) {
            fill_rows(&s, (role)r, t, &call->in[r == ROLE_K ? TENSOR(k_scale) : TENSOR(v_scale)], &run);
            continue;
        }
        if (t->layout.dtype == ATTN_Q4_1C) {
            fill_channels(&s, t, &run);
            t = &call->in[TENSOR(k_tail)];
        }
        fill_numbers(&s, (role)r, t, &run);
    }
    normal_end(&run);
    fill_flows(call, random);
}

void fill_mask(tensor *mask, double drop, random_state *random)
{
    FOR_EACH_ELEMENT(mask, b, h, i, j)
    {
        /* Any nonzero byte keeps. */
        const uint64_t bits = random_bits(random);
        const unsigned char keep = (bits & 3) ? 1 : (unsigned char)((bits >> 8) | 1);
        *(unsigned char *)tensor_at(mask, b, h, i, j) = random_unit(random) < drop ? 0 : keep;
    }
}

void fill_bias(tensor *bias, const check_case *c, random_state *random)
{
    const double very_negative = bias->layout.dtype == ATTN_F16 ? -6e4 : -1e9;
    normal_run run;
    normal_begin(&run, random, 1);
    FOR_EACH_ELEMENT(bias, b, h, i, j)
    {
        const int next = normal_next(&run);
        const double normal = run.normal[next], unit = run.unit[next];
        double x = c->fill == FILL_HUGE ? 500 * normal : c->fill == FILL_ZERO ? copysign(0, normal) : 2 * normal;
        if (unit < 0.10) x = -INFINITY;
        if (unit > 0.95) x = very_negative;
        element_write(bias->layout.dtype, tensor_at(bias, b, h, i, j), x);
    }
    normal_end(&run);
}

void fill_tree(check_call *call, const check_case *c, random_state *random)
{
    const tensor *tree = &call->in[TENSOR(tree)], *begins = &call->in[TENSOR(cu_seqlens_q)];
    const int64_t words = tree->size[3];
    for (int64_t b = 0; b < call->problem.shape.batch; b++) {
        int64_t at[2] = {0, call->problem.shape.len_q};
        for (int64_t n = 0; begins->base && n < 2; n++)
            at[n] = (int64_t)element_read(begins->layout.dtype,
                                          (char *)begins->base + (size_t)(b + n) * attn_dtype_size(begins->layout.dtype));
        const int64_t queries = at[1] - at[0];
        uint64_t *rows = need_memory(queries * words, sizeof *rows);
        serving_tree(c->spec.tree, queries, rows, random);
        for (int64_t i = 0; i < queries; i++)
            memcpy(tensor_at(tree, begins->base ? 0 : b, 0, at[0] + i, 0), rows + i * words, (size_t)words * sizeof *rows);
        free(rows);
    }
}

void fill_prefix(check_call *call, const check_case *c)
{
    static const int stored[] = {TENSOR(k), TENSOR(v), TENSOR(k_scale), TENSOR(v_scale)};
    for (size_t n = 0; n < sizeof stored / sizeof *stored; n++) {
        const tensor *t = &call->in[stored[n]];
        if (!t->base || t->stride[0] == 0) continue;
        for (int64_t b = 1; b < t->size[0]; b++)
            for (int64_t h = 0; h < t->size[1]; h++)
                for (int64_t j = 0; j < c->spec.prefix; j++)
                    for (int64_t e = 0; e < t->size[3]; e++)
                        memcpy(tensor_at(t, b, h, j, e), tensor_at(t, 0, h, j, e), attn_dtype_size(t->layout.dtype));
    }
}

static void plant_in(tensor *t, random_state *random)
{
    if (tensor_count(t->size) == 0) return;
    for (int n = 0; n < 3; n++) {
        int64_t at[4];
        for (int axis = 0; axis < 4; axis++) at[axis] = random_below(random, t->size[axis]);
        void *element = tensor_at(t, at[0], at[1], at[2], at[3]);
        if (format_is_blocks(t->layout.dtype) || t->layout.dtype == ATTN_Q4_1C) format_put(element, t->layout.dtype, NAN);
        else element_write(t->layout.dtype, element, NAN);
    }
}

void fill_plant(check_call *call, const check_case *c, random_state *random)
{
    if (c->plant == PLANT_Q) plant_in(&call->in[TENSOR(q)], random);
    if (c->plant == PLANT_K) plant_in(call->in[TENSOR(k_scale)].base ? &call->in[TENSOR(k_scale)] : &call->in[TENSOR(k)], random);
    if (c->plant == PLANT_V) plant_in(call->in[TENSOR(v_scale)].base ? &call->in[TENSOR(v_scale)] : &call->in[TENSOR(v)], random);
    if (c->plant == PLANT_BIAS && call->tensors.bias.data) plant_in(&call->in[TENSOR(bias)], random);
}

static void poison_element(const tensor *t, void *at, case_poison poison)
{
    static const uint16_t signal_f16 = 0x7c01;
    const attn_dtype dtype = t->layout.dtype;
    if (dtype == ATTN_I8) return; /* any byte is a valid number; its scale is poisoned instead */
    if ((format_is_blocks(dtype) || dtype == ATTN_Q4_1C) && poison != POISON_ONES) {
        format_put(at, dtype, poison == POISON_INF ? INFINITY : NAN);
        if (poison == POISON_SIGNAL) memcpy(at, &signal_f16, sizeof signal_f16); /* its steps */
        return;
    }
    if (poison == POISON_NAN) element_write(dtype, at, NAN);
    if (poison == POISON_INF) element_write(dtype, at, INFINITY);
    if (poison == POISON_ONES) memset(at, 0xff, attn_dtype_size(dtype));
    if (poison ==
        POISON_SIGNAL) { /* a signalling NaN: infinity with the lowest bit set, written as an integer so that nothing quiets it */
        const uint16_t half = dtype == ATTN_F16 ? signal_f16 : 0x7f81;
        const uint32_t single = 0x7f800001;
        const uint64_t wide = 0x7ff0000000000001;
        const void *bits = dtype == ATTN_F64   ? (const void *)&wide
                           : dtype == ATTN_F32 ? (const void *)&single
                                               : (const void *)&half;
        memcpy(at, bits, attn_dtype_size(dtype));
    }
}

static void poison_row(const tensor *t, const int64_t *begin, int64_t b, int64_t h, int64_t i, case_poison poison)
{
    for (int64_t c = 0; t->base && c < t->size[3]; c++) {
        void *at = token_at(t, begin, b, h, i, c);
        if (at) poison_element(t, at, poison);
    }
}

/* 1 if any query of the ranges [b0, b1) ... sees any key of [j0, j1). */
static int visible(const expectation *e, const int64_t low[4], const int64_t high[4])
{
    for (int64_t b = low[0]; b < high[0]; b++)
        for (int64_t h = low[1]; h < high[1]; h++)
            for (int64_t i = low[2]; i < high[2]; i++)
                for (int64_t j = low[3]; j < high[3]; j++)
                    if (ref_visible(&e->ref, b, h, i, j)) return 1;
    return 0;
}

/* Keys by channel: groups of which no key is seen, the last one that is not full, and of k_tail all but its keys that are seen. */
static void poison_groups(check_call *call, int64_t b, int64_t g, int64_t prefix, case_poison poison)
{
    const expectation *e = &call->expected;
    const int64_t heads = e->ref.Hq / e->ref.Hkv, Sq = e->ref.Sq, Skv = e->ref.Skv;
    const int64_t keys = e->len_kv ? e->len_kv[b] : Skv, exact = keys - keys % ATTN_BLOCK;
    for (int64_t first = prefix; first < Skv; first += ATTN_BLOCK) {
        const int64_t end = first + ATTN_BLOCK < Skv ? first + ATTN_BLOCK : Skv;
        const int64_t low[4] = {b, g * heads, 0, first}, high[4] = {b + 1, (g + 1) * heads, Sq, end};
        if (first < exact && visible(e, low, high)) continue;
        for (int64_t j = first; j < end; j++) poison_row(&call->in[TENSOR(k)], NULL, b, g, j, poison);
    }
    for (int64_t row = 0; row < ATTN_TAIL; row++) {
        const int64_t j =
            exact - exact % ATTN_TAIL + row + (row < exact % ATTN_TAIL ? ATTN_TAIL : 0); /* the next key in this row */
        const int64_t low[4] = {b, g * heads, 0, j}, high[4] = {b + 1, (g + 1) * heads, Sq, j + 1};
        if (j >= keys || !visible(e, low, high)) poison_row(&call->in[TENSOR(k_tail)], NULL, b, g, row, poison);
    }
}

void fill_poison(check_call *call, const check_case *c)
{
    const expectation *e = &call->expected;
    const ref_problem *r = &e->ref;
    const case_poison poison = c->poison;
    if (poison == POISON_NONE) return;

    const int64_t group = r->Hkv > 0 ? r->Hq / r->Hkv : 0;
    for (int64_t b = 0; b < r->B; b++)
        for (int64_t g = 0; g < r->Hkv && c->memory != MEMORY_BROADCAST; g++)
            for (int64_t j = c->spec.prefix; j < r->Skv; j++) { /* another sequence may see what all share */
                const int64_t low[4] = {b, g * group, 0, j}, high[4] = {b + 1, (g + 1) * group, r->Sq, j + 1};
                if (visible(e, low, high)) continue;
                if (!call->in[TENSOR(k_tail)].base) poison_row(&call->in[TENSOR(k)], e->begin_kv, b, g, j, poison);
                poison_row(&call->in[TENSOR(k_scale)], e->begin_kv, b, g, j, poison);
                poison_row(&call->in[TENSOR(tan_k)], e->begin_kv, b, g, j, poison);
                if (r->uniform) continue; /* fully masked rows read all values */
                poison_row(&call->in[TENSOR(v)], e->begin_kv, b, g, j, poison);
                poison_row(&call->in[TENSOR(v_scale)], e->begin_kv, b, g, j, poison);
                poison_row(&call->in[TENSOR(tan_v)], e->begin_kv, b, g, j, poison);
            }
    for (int64_t b = 0; b < r->B && call->in[TENSOR(k_tail)].base; b++)
        for (int64_t g = 0; g < r->Hkv && c->memory != MEMORY_BROADCAST; g++) poison_groups(call, b, g, c->spec.prefix, poison);
    for (int64_t b = 0; b < r->B; b++)
        for (int64_t h = 0; h < r->Hq; h++)
            for (int64_t i = 0; i < r->Sq; i++) {
                const int64_t low[4] = {b, h, i, 0}, high[4] = {b + 1, h + 1, i + 1, r->Skv};
                if (visible(e, low, high)) continue;
                poison_row(&call->in[TENSOR(q)], e->begin_q, b, h, i, poison);
                poison_row(&call->in[TENSOR(tan_q)], e->begin_q, b, h, i, poison);
                if (!r->uniform) poison_row(&call->in[TENSOR(grad_o)], e->begin_q, b, h, i, poison);
            }
    if (!e->ref.bias) return;
    const tensor *bias = &call->in[TENSOR(bias)];
    FOR_EACH_ELEMENT(bias, b, h, i, j)
    {
        const int64_t low[4] = {b, h, i, j};
        int64_t high[4];
        for (int axis = 0; axis < 4; axis++) high[axis] = distinct(bias, axis) == 1 ? bias->size[axis] : low[axis] + 1;
        void *at = tensor_at(bias, b, h, i, j);
        /* -infinity drops these pairs, so it stays. */
        if (!visible(e, low, high) && element_read(bias->layout.dtype, at) != -INFINITY) poison_element(bias, at, poison);
    }
}
