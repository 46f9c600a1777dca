/* SPDX-License-Identifier: MIT
 * api_memory.c - tensors in blocks of exactly their bytes, filled with numbers and indices that fit the problem. */
#include "api_case.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- elements ---- */

void put_number(void *at, attn_dtype dtype, double x)
{
    const int8_t small = (int8_t)(fabs(x) < 2 ? x * 60 : 7);
    switch (dtype) {
    case ATTN_I8:
        memcpy(at, &small, 1);
        return;
    case ATTN_BOOL:
    case ATTN_U8:
        *(unsigned char *)at = x > -0.7 ? (unsigned char)(1 + (int)fmin(fabs(x) * 40, 200)) : 0;
        return;
    default:
        (void)attn_convert(1, &x, ATTN_F64, at, dtype, NULL);
    }
}

double get_number(const void *at, attn_dtype dtype)
{
    double x = 0;
    if (dtype == ATTN_I8) return *(const int8_t *)at;
    if (dtype == ATTN_BOOL || dtype == ATTN_U8) return *(const unsigned char *)at;
    (void)attn_convert(1, at, dtype, &x, ATTN_F64, NULL);
    return x;
}

static void put_index(const buffer *b, int64_t i, int64_t x)
{
    const int32_t narrow = (int32_t)x;
    if (b->dtype == ATTN_I32) memcpy(b->block + b->first + i * 4, &narrow, 4);
    else memcpy(b->block + b->first + i * 8, &x, 8);
}

int64_t get_index(const buffer *b, int64_t i)
{
    int32_t narrow;
    int64_t x;
    if (b->dtype == ATTN_I32) {
        memcpy(&narrow, b->block + b->first + i * 4, 4);
        return narrow;
    }
    memcpy(&x, b->block + b->first + i * 8, 8);
    return x;
}

unsigned char *case_at(const buffer *b, int64_t i0, int64_t i1, int64_t i2, int64_t i3)
{
    const int64_t i[4] = {i0, i1, i2, i3};
    int64_t at = 0;
    for (int axis = 0; axis < 4; axis++)
        if (i[axis] > 0 && b->shape[axis] > 0) at += i[axis] * b->stride[axis];
    return b->block + b->first + at * (int64_t)b->element;
}

/* ---- filling ---- */

static double number(api_case *c)
{
    static const double numbers[] = {NAN, INFINITY, -INFINITY, 1e38, -1e38, 1e-40, 0, -0.0, 65504, 70000, 1e300, 1e-310};
    const uint64_t word = draw_word(&c->from);
    if (c->special && word % 61 == 0) return numbers[word / 61 % 12];
    return (double)(int64_t)(word >> 11) / 4503599627370496.0 * 2 - 2;
}

static void fill_indices(api_case *c, const char *name, buffer *b)
{
    const attn_problem *p = &c->problem;
    const attn_shape *s = &p->shape;
    const int64_t count = (int64_t)(b->bytes / b->element);
    const int64_t before = b->first / (int64_t)b->element; /* elements before (0,0,0,0), from negative strides */
    const int bad = draw_one_in(&c->from, 40);
    int64_t sum = 0;
    if (!strcmp(name, "block_index")) {
        const int64_t rows = (s->len_q + p->mask.block_q - 1) / p->mask.block_q,
                      columns = (s->len_kv + p->mask.block_kv - 1) / p->mask.block_kv;
        int64_t at = 0;
        for (int64_t r = 0; r < rows; r++)
            for (int64_t j = r % 3; j < columns && at < count; j += 2) put_index(b, at++, j);
    } else {
        for (int64_t i = 0; i < count; i++) {
            int64_t x = 0;
            if (!strcmp(name, "lengths_q")) x = draw_below(&c->from, s->len_q + 1);
            else if (!strcmp(name, "lengths_kv")) x = draw_below(&c->from, s->len_kv + 1);
            else if (!strcmp(name, "offset_q"))
                x = draw_one_in(&c->from, 12) ? draw_hostile(&c->from) : draw_below(&c->from, 2 * s->len_kv + 3) - s->len_kv;
            else if (!strcmp(name, "ranges"))
                x = draw_word(&c->from) % 31 ? (int64_t)(draw_word(&c->from) % (uint64_t)(s->len_kv + 20)) - 10
                                             : draw_hostile(&c->from);
            else if (!strcmp(name, "page_table")) x = draw_below(&c->from, p->paging.pages);
            else if (!strcmp(name, "block_starts")) {
                const int64_t columns = (s->len_kv + p->mask.block_kv - 1) / p->mask.block_kv;
                x = sum;
                sum += columns > i % 3 ? (columns - i % 3 + 1) / 2 : 0;
            }
            put_index(b, i - before, x);
        }
    }
    if (!bad || count == 0) return;
    const int64_t at = draw_below(&c->from, count) - before;
    put_index(b, at, draw_hostile(&c->from));
}

static void fill(api_case *c, int t)
{
    buffer *b = &c->of[t];
    if (!strncmp(c->about[t].name, "cu_", 3)) return;
    if (b->dtype == ATTN_I64 || b->dtype == ATTN_I32) {
        fill_indices(c, c->about[t].name, b);
        return;
    }
    const int holes = !strcmp(c->about[t].name, "bias") && draw_one_in(&c->from, 3);
    for (size_t at = 0; at < b->bytes; at += b->element)
        put_number(b->block + at, b->dtype, holes && draw_word(&c->from) % 4 == 0 ? -INFINITY : number(c));
}

void case_fill_outputs(api_case *c, unsigned char canary)
{
    for (int t = 0; t < c->count; t++)
        if (c->of[t].role == ATTN_ROLE_OUTPUT && c->of[t].block) memset(c->of[t].block, canary, c->of[t].bytes);
}

/* ---- blocks ---- */

static int allocate(buffer *b)
{
    int64_t low = 0, high = 0;
    for (int axis = 0; axis < 4; axis++) {
        if (b->shape[axis] == 0) {
            b->block = malloc(1), b->bytes = 0, b->first = 0;
            return 1;
        }
        if (b->shape[axis] < 2) continue;
        int64_t reach;
        if (__builtin_mul_overflow(b->shape[axis] - 1, b->stride[axis], &reach) || reach > BYTES_MOST || reach < -BYTES_MOST)
            return 0;
        if (reach < 0) low += reach;
        else high += reach;
    }
    b->bytes = (size_t)(high - low + 1) * b->element;
    b->first = (ptrdiff_t)-low * (ptrdiff_t)b->element;
    if (b->bytes > BYTES_MOST) return 0;
    b->block = malloc(b->bytes);
    return b->block != NULL;
}

static void cumulate(api_case *c, int side)
{
    buffer *b = &c->of[case_find(c, side ? "cu_seqlens_kv" : "cu_seqlens_q")];
    const int64_t most = side ? c->problem.shape.len_kv : c->problem.shape.len_q;
    int64_t sum = 0;
    put_index(b, 0, 0);
    for (int64_t i = 1; i < b->shape[0] * b->shape[1] * b->shape[2] * b->shape[3]; i++)
        put_index(b, i, sum += draw_below(&c->from, most + 1));
    c->tokens[side] = sum;
}

static int one(api_case *c, const attn_plan *plan, int t)
{
    buffer *b = &c->of[t];
    attn_output *slot = case_slot(&c->tensors, c, t);
    attn_tensor_plan about = {.struct_size = sizeof about};
    if (attn_plan_tensor(plan, t, &about, NULL)) case_fail(c, "attn_plan_tensor(%d) rejects", t);
    b->role = about.role;
    if (about.role == ATTN_ROLE_NONE) return 1;
    b->dtype = about.dtype;
    b->element = attn_dtype_size(about.dtype);
    memcpy(b->shape, about.shape, sizeof b->shape);
    memcpy(b->stride, about.stride, sizeof b->stride);
    for (int axis = 0; axis < 4; axis++) {
        if (about.shape[axis] < 0) case_fail(c, "%s has a negative size", c->about[t].name);
        if (b->stride[axis] == ATTN_BROADCAST) b->stride[axis] = 0;
        if (b->shape[axis] < 2) b->stride[axis] = 0;
    }
    if (case_has(c, "cu_seqlens_q") && case_packs(c, t)) {
        b->shape[0] = 1;
        b->stride[0] = 0;
        b->shape[2] = c->tokens[c->about[t].axes[2] == ATTN_AXIS_KEY];
        b->stride[2] = about.stride[2] == ATTN_BROADCAST ? 0 : about.stride[2];
    }
    if (!allocate(b)) return 0;
    slot->data = b->bytes ? b->block + b->first : ATTN_EMPTY;
    if (b->role == ATTN_ROLE_INPUT) fill(c, t);
    return 1;
}

int case_allocate(api_case *c, const attn_plan *plan)
{
    const int first[2] = {case_find(c, "cu_seqlens_q"), case_find(c, "cu_seqlens_kv")};
    for (int side = 0; side < 2; side++) {
        if (!one(c, plan, first[side])) return 0;
        if (c->of[first[side]].role != ATTN_ROLE_NONE) cumulate(c, side);
    }
    for (int t = 0; t < c->count; t++)
        if (t != first[0] && t != first[1] && !one(c, plan, t)) return 0;
    return 1;
}

static void release(buffer *b)
{
    free(b->block);
    b->block = NULL;
}

void case_free(api_case *c)
{
    for (int t = 0; t < c->count; t++) release(&c->of[t]);
}

void case_move(api_case *c, size_t elements_before)
{
    for (int t = 0; t < c->count; t++) {
        buffer *b = &c->of[t];
        if (!b->block || b->bytes == 0) continue;
        const size_t before_first = elements_before * b->element;
        unsigned char *moved = malloc(b->bytes + before_first);
        if (!moved) continue;
        memset(moved, 0xEE, before_first);
        memcpy(moved + before_first, b->block, b->bytes);
        free(b->block);
        b->block = moved;
        b->bytes += before_first;
        b->first += (ptrdiff_t)before_first;
        case_slot(&c->tensors, c, t)->data = b->block + b->first;
    }
}
