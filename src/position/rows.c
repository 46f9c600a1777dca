/* SPDX-License-Identifier: MIT
 * rows.c - the rules of slots that hold rows. */
#include "rows.h"

#include "../common/places.h"
#include "../common/slots.h"

attn_status attn_rows_resolve(attn_input *slot, const char *name, const int64_t shape[4], attn_dtype natural, attn_error *error)
{
    TRY(slot_resolve(slot, name, shape, natural, error));
    CHECK(attn_rows_is_float(slot->dtype), ATTN_ERR_UNSUPPORTED, "%s is %s; it must be f32, f64, f16 or bf16", name,
          attn_dtype_name(slot->dtype));
    CHECK(slot->stride[3] == 1 || shape[3] <= 1, ATTN_ERR_STRIDE,
          "%s.stride[3] is %" PRId64 "; the last axis must be contiguous (1)", name, slot->stride[3]);
    return ATTN_OK;
}

attn_status attn_rows_positions(attn_input *resolved, const attn_input *given, const char *name, int64_t batch, int64_t tokens,
                                attn_error *error)
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

static void add(places *p, const char *name, const attn_input *slot, const int64_t shape[4], int output)
{
    if (!slot) return;
    p->size = attn_dtype_size(slot->dtype);
    places_add(p, "", name, slot->data, shape, slot->stride, output);
}

attn_status attn_rows_no_overlap(const attn_rows_places *given, const char *module, const char *y, const char *x, attn_error *error)
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
    add(&p, y, given->y, given->shape, 1);
    if (given->x) {
        const attn_elements from = {given->x->data, given->shape_x, given->x->stride, attn_dtype_size(given->x->dtype)};
        if (given->x->dtype != given->y->dtype || !elements_coincide(&to, &from)) add(&p, x, given->x, given->shape_x, 0);
    }
    add(&p, "table", given->table, table, 0);
    if (given->positions->data) add(&p, "positions", given->positions, positions, 0);
    p.size = sizeof(double);
    for (int i = 0; i < 3; i++) {
        const attn_rows_read *r = &given->read[i];
        const int64_t shape[4] = {1, 1, r->rows, r->columns}, stride[4] = {0, 0, r->columns, 1};
        if (r->rows > 0) places_add(&p, "", r->name, r->data, shape, stride, 0);
    }
    return places_check(&p, module, error);
}
