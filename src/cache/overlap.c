/* SPDX-License-Identifier: MIT
 * overlap.c - what appending writes shares elements with nothing else of a call. */
#include <stdlib.h>
#include <string.h>

#include "../common/places.h"
#include "cache.h"

static void add(places *p, const char *of, const char *name, const attn_input *slot, const int64_t shape[4], int output)
{
    if (!slot->data || slot->data == ATTN_EMPTY) return;
    p->size = attn_dtype_size(slot->dtype);
    places_add(p, of, name, slot->data, shape, slot->stride, output);
}

static attn_status check_itself(const char *name, const attn_output *slot, const int64_t shape[4], attn_error *error)
{
    int64_t span;
    const int axis = slot->data ? elements_self_overlap(shape, slot->stride, &span) : -1;
    CHECK(axis < 0, ATTN_ERR_STRIDE, "cache: %s.stride[%d] is %" PRId64 "; its elements overlap", name, axis, slot->stride[axis]);
    return ATTN_OK;
}

/* v is k by another name: of latents, whose values are the first channels of the keys. */
static int is_shared(const attn_cache *c)
{
    return c->v.data == c->k.data && c->v.dtype == c->k.dtype && memcmp(c->v.stride, c->k.stride, sizeof c->k.stride) == 0;
}

/* The cache's own: k, v, their scales and lengths. */
static attn_status add_cache(places *p, const attn_cache *c, attn_error *error)
{
    const int paged = c->page_table.data != NULL;
    const int64_t entries = paged ? c->pages : c->batch, room = paged ? c->page_size : c->capacity;
    const int64_t k[4] = {entries, c->heads_kv, room, c->dim_qk}, v[4] = {entries, c->heads_kv, room, c->dim_v},
                  scale[4] = {entries, c->heads_kv, room, 1}, count[4] = {1, 1, 1, c->batch};
    const struct {
        const char *name;
        const attn_output *slot;
        const int64_t *shape;
    } own[] = {{"k", &c->k, k}, {"v", &c->v, v}, {"k_scale", &c->k_scale, scale}, {"v_scale", &c->v_scale, scale}};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
        const attn_input slot = slot_of(own[i].slot);
        TRY(check_itself(own[i].name, own[i].slot, own[i].shape, error));
        if (own[i].slot != &c->v || !is_shared(c)) add(p, "", own[i].name, &slot, own[i].shape, 1);
    }
    const attn_input lengths = {c->lengths.data, ATTN_I64, {0, 0, 0, 1}};
    add(p, "", "lengths", &lengths, count, 1);
    if (paged) {
        const int64_t table[4] = {c->batch, 1, 1, c->capacity / c->page_size + (c->capacity % c->page_size != 0)};
        add(p, "", "page_table", &c->page_table, table, 0);
    }
    return ATTN_OK;
}

attn_status attn_cache_check_append(const attn_cache *c, const attn_cache_tokens *t, attn_error *error)
{
    const int64_t k[4] = {c->batch, c->heads_kv, t->len, c->dim_qk}, v[4] = {c->batch, c->heads_kv, t->len, c->dim_v},
                  count[4] = {1, 1, 1, c->batch};
    attn_input lengths = t->lengths;
    places p = {.count = 0};
    TRY(add_cache(&p, c, error));
    lengths.stride[3] = 1;
    add(&p, "tokens", "k", &t->k, k, 0);
    add(&p, "tokens", "v", &t->v, v, 0);
    add(&p, "tokens", "lengths", &lengths, count, 0);
    return places_check(&p, "cache", error);
}

attn_status attn_cache_check_attend(const attn_cache *c, const attn_plan *plan, const attn_tensors *tensors, attn_error *error)
{
    attn_tensor_description about = {.struct_size = sizeof about};
    places p = {.count = 0};
    TRY(add_cache(&p, c, error));
    for (int i = 0; attn_tensor_describe(ATTN_FAMILY_ATTENTION, i, &about, NULL) == ATTN_OK; i++) {
        attn_tensor_plan planned = {.struct_size = sizeof planned};
        attn_input slot;
        memcpy(&slot, (const char *)tensors + about.offset, sizeof slot);
        TRY(attn_plan_tensor(plan, i, &planned, error));
        if (planned.role != ATTN_ROLE_OUTPUT) continue;
        slot.dtype = planned.dtype;
        memcpy(slot.stride, planned.stride, sizeof slot.stride);
        add(&p, "", about.name, &slot, planned.shape, 1);
    }
    return places_check(&p, "cache", error);
}
