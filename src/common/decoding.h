/* SPDX-License-Identifier: MIT
 *
 * decoding.h - overlap checks for calls that combine an attention, a cache and a rope: nothing that the call writes may share
 * elements with another tensor.  Invalid slots are skipped here, since the function that owns them rejects them with its own
 * message.
 */
#ifndef ATTN_COMMON_DECODING_H
#define ATTN_COMMON_DECODING_H

#include "attn/cache.h"
#include "rows.h"

/* Whether tokens share scales, which are then the caller's and only read: k or v is f8, and the stride of its scales over tokens is
 * 0 (not because all four are, which means dense). */
static inline int attn_cache_gives_scale(const attn_output *rows, const attn_output *scale)
{
    const attn_input s = slot_of(scale);
    return attn_is_f8(rows->dtype) && (s.stride[2] == 0 || s.stride[2] == ATTN_BROADCAST) && !slot_is_dense(&s);
}

/* Whether values are the first channels of the keys: v is the slot of k, as given or resolved. */
static inline int attn_cache_has_values_in_keys(const attn_cache *c)
{
    const attn_dtype k = c->k.dtype ? c->k.dtype : ATTN_F32, v = c->v.dtype ? c->v.dtype : k;
    return c->v.data && c->v.data != ATTN_EMPTY && c->v.data == c->k.data && v == k &&
           memcmp(c->v.stride, c->k.stride, sizeof c->k.stride) == 0;
}

/* A cache as given, or resolved; `written`: it is appended to.  Values that are the first channels of the keys count as one tensor
 * with them. */
static inline void places_add_cache(places *p, const char *owner, const attn_cache *c, int written)
{
    const int paged = c->page_table.data != NULL || c->page_size > 0, has_pages = c->page_table.data && c->page_size > 0;
    const int64_t entries = paged ? c->pages : c->batch, tokens = paged ? c->page_size : c->capacity,
                  columns = has_pages ? c->capacity / c->page_size + (c->capacity % c->page_size != 0) : 0;
    const attn_dtype type = c->k.dtype ? c->k.dtype : ATTN_F32, v_type = c->v.dtype ? c->v.dtype : type;
    const int64_t k[4] = {entries, c->heads_kv, tokens, attn_row_elements(type, c->dim_qk)},
                  v[4] = {entries, c->heads_kv, tokens, attn_row_elements(v_type, c->dim_v)},
                  tail[4] = {c->batch, c->heads_kv, ATTN_TAIL, c->dim_qk}, rows[4] = {entries, c->heads_kv, tokens, 1},
                  each[4] = {c->batch, 1, 1, 1}, table[4] = {c->batch, 1, 1, columns};
    const attn_input slots[] = {slot_of(&c->k),       slot_of(&c->v),       slot_of(&c->lengths),
                                slot_of(&c->k_scale), slot_of(&c->v_scale), slot_of(&c->k_tail)};
    const int shared = attn_cache_has_values_in_keys(c);
    attn_input lengths = slots[2];
    if (slot_is_dense(&lengths)) lengths.stride[0] = 1;
    places_add_slot(p, owner, "k", &slots[0], k, ATTN_F32, written);
    if (!shared) places_add_slot(p, owner, "v", &slots[1], v, type, written);
    places_add_slot(p, owner, "lengths", &lengths, each, ATTN_I64, written);
    places_add_slot(p, owner, "k_scale", &slots[3], rows, ATTN_F32, written && !attn_cache_gives_scale(&c->k, &c->k_scale));
    if (!shared || slots[4].data != slots[3].data)
        places_add_slot(p, owner, "v_scale", &slots[4], rows, ATTN_F32, written && !attn_cache_gives_scale(&c->v, &c->v_scale));
    places_add_slot(p, owner, "k_tail", &slots[5], tail, ATTN_F16, written);
    if (columns > 0) places_add_slot(p, owner, "page_table", &c->page_table, table, ATTN_I64, 0);
}

/* The tensors of `t` that the plan has, except those that a cache supplies; an execution checks them against each other. */
static inline void places_add_attention(places *p, const char *owner, const attn_plan *plan, const attn_tensors *t, int has_cache)
{
    const size_t first = offsetof(attn_tensors, q);
    const size_t cached[] = {offsetof(attn_tensors, k),          offsetof(attn_tensors, v),
                             offsetof(attn_tensors, k_scale),    offsetof(attn_tensors, v_scale),
                             offsetof(attn_tensors, page_table), offsetof(attn_tensors, lengths_kv),
                             offsetof(attn_tensors, k_tail)};
    const size_t size = p->size;
    p->group = 1;
    for (size_t at = first; at < sizeof *t; at += sizeof(attn_input)) {
        attn_input s;
        attn_tensor_plan planned = {.struct_size = sizeof planned};
        attn_tensor_description about = {.struct_size = sizeof about};
        const int index = (int)((at - first) / sizeof s);
        int skip = 0;
        memcpy(&s, (const char *)t + at, sizeof s);
        for (size_t i = 0; i < sizeof cached / sizeof *cached; i++) skip |= has_cache && at == cached[i];
        if (skip || !slot_is_address(&s) || attn_plan_tensor(plan, index, &planned, NULL) != ATTN_OK ||
            planned.role == ATTN_ROLE_NONE || attn_tensor_describe(ATTN_FAMILY_ATTENTION, index, &about, NULL) != ATTN_OK)
            continue;
        /* Skips what forward left for backward, which may be here too. */
        if (planned.role == ATTN_ROLE_INPUT && about.role[ATTN_FORWARD] == ATTN_ROLE_OUTPUT) continue;
        p->size = attn_dtype_size(planned.dtype);
        places_add(p, owner, about.name, s.data, planned.shape, planned.stride, planned.role == ATTN_ROLE_OUTPUT);
    }
    p->group = 0;
    p->size = size;
}

#endif
