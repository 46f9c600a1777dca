/* SPDX-License-Identifier: MIT
 * rows.h - tensors of any float type as rows of doubles, for functions of positions: their rules, and their elements. */
#ifndef ATTN_COMMON_ROWS_H
#define ATTN_COMMON_ROWS_H

#include "attn/position.h"
#include "places.h"
#include "slots.h"

/* 1 for f32, f64, f16 and bf16. */
static inline int attn_rows_is_float(attn_dtype dtype) { return dtype >= ATTN_F32 && dtype <= ATTN_BF16; }

/* Element c of a row as a double, and back. */
static inline double attn_rows_get(const void *row, attn_dtype dtype, int64_t c)
{
    double value;
    (void)attn_convert(1, (const char *)row + c * (int64_t)attn_dtype_size(dtype), dtype, &value, ATTN_F64, NULL);
    return value;
}

static inline void attn_rows_put(void *row, attn_dtype dtype, int64_t c, double value)
{
    (void)attn_convert(1, &value, ATTN_F64, (char *)row + c * (int64_t)attn_dtype_size(dtype), dtype, NULL);
}

/* Fills in dense strides and the default type, `natural`; name is for messages. */
static inline attn_status attn_rows_resolve(attn_input *slot, const char *name, const int64_t shape[4], attn_dtype natural,
                                            attn_error *error)
{
    TRY(slot_resolve(slot, name, shape, natural, error));
    CHECK(attn_rows_is_float(slot->dtype), ATTN_ERR_UNSUPPORTED, "%s is %s; it must be f32, f64, f16 or bf16", name,
          attn_dtype_name(slot->dtype));
    CHECK(slot->stride[3] == 1 || shape[3] <= 1, ATTN_ERR_STRIDE,
          "%s.stride[3] is %" PRId64 "; the last axis must be contiguous (1)", name, slot->stride[3]);
    return ATTN_OK;
}

/* The positions of tokens, [batch, 1, tokens, 1]: checked and filled in.  If given is NULL or a slot of zeros, so is resolved. */
static inline attn_status attn_rows_positions(attn_input *resolved, const attn_input *given, const char *name, int64_t batch,
                                              int64_t tokens, attn_error *error)
{
    const int64_t shape[4] = {batch, 1, tokens, 1};
    *resolved = given ? *given : (attn_input){.data = NULL};
    TRY(slot_check(resolved, name, batch > 0 && tokens > 0, error));
    if (!resolved->data) return ATTN_OK;
    TRY(slot_resolve(resolved, name, shape, ATTN_I64, error));
    CHECK(resolved->dtype == ATTN_I64 || resolved->dtype == ATTN_I32, ATTN_ERR_UNSUPPORTED, "%s is %s; it must be i64 or i32", name,
          attn_dtype_name(resolved->dtype));
    return ATTN_OK;
}

/* The position of token t of entry b. */
static inline int64_t attn_rows_position(const attn_input *positions, int64_t b, int64_t t)
{
    if (!positions->data) return t;
    const int64_t at = b * positions->stride[0] + t * positions->stride[2];
    return positions->dtype == ATTN_I32 ? ((const int32_t *)positions->data)[at] : ((const int64_t *)positions->data)[at];
}

/* A slot as given; one that is invalid is skipped, since the function that owns it rejects it with its own message. */
static inline void places_add_slot(places *p, const char *owner, const char *name, const attn_input *slot, const int64_t shape[4],
                                   attn_dtype natural, int output)
{
    const size_t size = p->size;
    attn_input s = *slot;
    if (slot_resolve(&s, name, shape, natural, NULL) != ATTN_OK || !slot_is_address(&s)) return;
    p->size = attn_dtype_size(s.dtype);
    if (p->size) places_add(p, owner, name, s.data, shape, s.stride, output);
    p->size = size;
}

/* The arrays that a rotation of `channels` reads. */
static inline void places_add_rope(places *p, const attn_rope *rope, int64_t channels)
{
    const int64_t pairs = (rope->dim_rotary ? rope->dim_rotary : channels) / 2;
    const int64_t table[4] = {1, 1, rope->table_rows, pairs}, one[4] = {1, 1, 1, pairs}, dense[4] = {0, 0, pairs, 1};
    const size_t size = p->size;
    places_add_slot(p, "rope", "cos_table", &rope->cos_table, table, ATTN_F32, 0);
    places_add_slot(p, "rope", "sin_table", &rope->sin_table, table, ATTN_F32, 0);
    p->size = sizeof(double);
    if (rope->table_rows > 0 && pairs > 0) {
        places_add(p, "rope", "cosines", rope->cosines, table, dense, 0);
        places_add(p, "rope", "sines", rope->sines, table, dense, 0);
    }
    if (pairs > 0) places_add(p, "rope", "frequencies", rope->frequencies, one, dense, 0);
    p->size = size;
}

/* y may coincide with x (NULL: absent) element for element; otherwise it overlaps neither x nor anything else that is read. */
typedef struct attn_rows_places {
    const attn_input *y, *x, *table;
    const int64_t *shape, *shape_x; /* of y and of x */
    int64_t rows, channels;         /* of the table */
    const attn_input *positions;    /* of the tokens of x, or of y if there is no x */
    const attn_rope *rope;          /* NULL: none */
} attn_rows_places;

static inline void attn_rows_add(places *p, const char *name, const attn_input *slot, const int64_t shape[4], int output)
{
    if (!slot) return;
    p->size = attn_dtype_size(slot->dtype);
    places_add(p, "", name, slot->data, shape, slot->stride, output);
}

static inline attn_status attn_rows_no_overlap(const attn_rows_places *given, const char *module, const char *y, const char *x,
                                               attn_error *error)
{
    const int64_t *const tokens = given->x ? given->shape_x : given->shape;
    const int64_t table[4] = {1, 1, given->rows, given->channels}, positions[4] = {tokens[0], 1, tokens[2], 1};
    const attn_elements to = {given->y->data, given->shape, given->y->stride, attn_dtype_size(given->y->dtype)};
    places p = {.count = 0};
    int64_t span;
    const int axis = elements_self_overlap(given->shape, given->y->stride, &span);
    CHECK(axis < 0, ATTN_ERR_STRIDE,
          "%s: %s overlaps itself: stride[%d] is %" PRId64 " and the axes with smaller strides span %" PRId64 " elements", module,
          y, axis, given->y->stride[axis < 0 ? 0 : axis], span);
    attn_rows_add(&p, y, given->y, given->shape, 1);
    if (given->x) {
        const attn_elements from = {given->x->data, given->shape_x, given->x->stride, attn_dtype_size(given->x->dtype)};
        if (given->x->dtype != given->y->dtype || !elements_coincide(&to, &from)) attn_rows_add(&p, x, given->x, given->shape_x, 0);
    }
    attn_rows_add(&p, "table", given->table, table, 0);
    if (given->positions->data) attn_rows_add(&p, "positions", given->positions, positions, 0);
    if (given->rope) places_add_rope(&p, given->rope, given->shape[3]);
    return places_check(&p, module, error);
}

#endif
