/* SPDX-License-Identifier: MIT
 *
 * attention.c - see attention.h. */
#include "attention.h"

#include <stdlib.h>
#include <string.h>

static attn_status fail_memory(attn_error *error)
{
    *error = (attn_error){.status = ATTN_ERR_MEMORY, .message = "cannot allocate memory"};
    return ATTN_ERR_MEMORY;
}

void attention_free(attention *a)
{
    attn_plan_destroy(a->plan);
    free(a->numbers);
    free(a->schedule_memory);
    free(a->workspace);
    free(a->rotated);
    *a = (attention){.plan = NULL};
}

/* Where each new token stands in its sequence. */
static int list_tokens(attention *a, const pages *p, const int64_t *counts)
{
    int64_t rows = 0;
    for (int64_t b = 0; b < a->count; b++) rows += counts[b];
    a->rows = rows;
    free(a->numbers);
    a->numbers = malloc((size_t)(3 * a->count + 1 + rows) * sizeof *a->numbers);
    if (!a->numbers) return 0;
    a->starts = a->numbers, a->lengths = a->starts + a->count + 1;
    a->held = a->lengths + a->count, a->positions = a->held + a->count;
    a->table = p->table + a->first * p->row;
    a->starts[0] = rows = 0;
    for (int64_t b = 0; b < a->count; b++) {
        const int64_t before = pages_length(p, a->first + b);
        for (int64_t t = before; t < before + counts[b]; t++) a->positions[rows++] = t;
        a->starts[b + 1] = rows;
        a->lengths[b] = before + counts[b];
    }
    return 1;
}

/* The tails of the step's sequences. */
static uint16_t *tail_of(const attention *a, const attn_cache *c)
{
    return (uint16_t *)c->k_tail.data + a->first * c->heads_kv * ATTN_TAIL * c->dim_qk;
}

/* Appends the new tokens of every sequence to a layer's cache.  Appending adds to lengths, which other layers have yet to read. */
static attn_status append(const attention *a, const pages *p, attn_cache cache, attn_input k, attn_input v, attn_error *error)
{
    const attn_cache_tokens tokens = {
        .struct_size = sizeof tokens, .len = a->rows, .options = a->options, .k = k, .v = v, .cu_seqlens = attn_in(a->starts)};
    for (int64_t b = 0; b < a->count; b++) a->held[b] = pages_length(p, a->first + b);
    cache.batch = a->count;
    cache.lengths = attn_out(a->held);
    cache.page_table = (attn_input){.data = a->table, .stride = {p->row, 0, 0, 1}};
    if (cache.k.dtype == ATTN_Q4_1C) cache.k_tail = attn_out(tail_of(a, &cache));
    return attn_cache_append(&cache, &tokens, error);
}

/* The tensors of a layer; without a cache, for planning. */
static attn_tensors tensors_of(const attention *a, const pages *p, const attn_cache *c, const float *q, float *o)
{
    attn_tensors t = {.struct_size = sizeof t};
    t.q = attn_in(q), t.o = attn_out(o);
    t.k = (attn_input){.data = c->k.data, .dtype = c->k.dtype};
    t.v = (attn_input){.data = c->v.data, .dtype = c->v.dtype};
    if (c->k.dtype == ATTN_I8) t.k_scale = attn_in(c->k_scale.data);
    if (c->v.dtype == ATTN_I8) t.v_scale = attn_in(c->v_scale.data);
    if (c->k.dtype == ATTN_Q4_1C) t.k_tail = attn_in(tail_of(a, c));
    t.cu_seqlens_q = attn_in(a->starts);
    t.lengths_kv = attn_in(a->lengths);
    t.page_table = (attn_input){.data = a->table, .stride = {p->row, 0, 0, 1}};
    return t;
}

attn_status attention_begin(attention *a, const pages *p, int64_t first, int64_t count, const int64_t *counts, int64_t heads,
                            const attn_options *options, attn_error *error)
{
    const attn_cache *c = &p->caches[0];
    int64_t longest = 0;
    a->options = options;
    a->first = first, a->count = count;
    a->heads = heads, a->heads_kv = c->heads_kv, a->dim = c->dim_qk;
    for (int64_t b = 0; b < count; b++) longest = counts[b] > longest ? counts[b] : longest;
    if (!list_tokens(a, p, counts)) return fail_memory(error);
    if (p->hadamard) {
        free(a->rotated);
        a->rotated = malloc((size_t)((2 * a->heads_kv + heads) * a->rows * a->dim) * sizeof *a->rotated);
        if (!a->rotated) return fail_memory(error);
    }
    const attn_problem problem = {.struct_size = sizeof problem,
                                  .shape = {count, heads, a->heads_kv, longest, p->row * p->page_size, a->dim, a->dim},
                                  .mask = {.causal = 1, .align = ATTN_ALIGN_BOTTOM_RIGHT},
                                  .paging = {.page_size = p->page_size, .pages = c->pages}};
    const attn_tensors tensors = tensors_of(a, p, c, ATTN_LATER, ATTN_LATER);
    attn_plan_destroy(a->plan);
    attn_status status = attn_plan_create(&a->plan, &problem, &tensors, options, error);
    if (status != ATTN_OK) return status;
    const size_t size = attn_schedule_size(a->plan);
    free(a->schedule_memory);
    a->schedule_memory = malloc(size);
    if (!a->schedule_memory) return fail_memory(error);
    status = attn_schedule_make(&a->schedule, a->plan, &tensors, a->schedule_memory, size, NULL, error);
    if (status != ATTN_OK || attn_schedule_workspace_size(a->schedule) <= a->workspace_bytes) return status;
    free(a->workspace);
    a->workspace_bytes = attn_schedule_workspace_size(a->schedule);
    a->workspace = malloc(a->workspace_bytes);
    if (!a->workspace) return a->workspace_bytes = 0, fail_memory(error);
    return ATTN_OK;
}

/* Rows [rows][heads][dim], as heads of rows. */
static attn_input laid(const float *rows, int64_t heads, int64_t dim)
{
    const attn_input slot = {.data = rows, .stride = {0, dim, heads * dim, 1}};
    return slot;
}

/* to = the heads of `from`, by attn_hadamard. */
static attn_status rotate(const attention *a, int64_t heads, const float *from, float *to, attn_error *error)
{
    const attn_input src = attn_in(from);
    const attn_output dst = attn_out(to);
    return attn_hadamard(a->rows * heads, a->dim, &src, &dst, error);
}

/* As attention_layer, over a cache of rotated rows: keys get their positions first, so that appending only stores them. */
static attn_status rotated_layer(attention *a, const pages *p, int64_t layer, float *q, const float *k, const float *v, float *o,
                                 attn_error *error)
{
    attn_cache cache = p->caches[layer];
    const int64_t of_keys = a->rows * a->heads_kv * a->dim, of_queries = a->rows * a->heads * a->dim;
    float *own_k = a->rotated, *own_v = own_k + of_keys, *own_q = own_v + of_keys;
    const int64_t shape_k[4] = {1, a->heads_kv, a->rows, a->dim}, shape_q[4] = {1, a->heads, a->rows, a->dim};
    const attn_input keys = laid(k, a->heads_kv, a->dim), queries = laid(q, a->heads, a->dim), positions = attn_in(a->positions);
    const attn_output to_k = {.data = own_v, .stride = {0, a->dim, a->heads_kv * a->dim, 1}},
                      to_q = {.data = q, .stride = {0, a->dim, a->heads * a->dim, 1}};
    attn_status status = attn_rope_apply(cache.rope, shape_k, &keys, &positions, &to_k, error);
    if (status == ATTN_OK) status = rotate(a, a->heads_kv, own_v, own_k, error);
    if (status == ATTN_OK) status = rotate(a, a->heads_kv, v, own_v, error);
    if (status == ATTN_OK) status = attn_rope_apply(cache.rope, shape_q, &queries, &positions, &to_q, error);
    if (status == ATTN_OK) status = rotate(a, a->heads, q, own_q, error);
    if (status != ATTN_OK) return status;
    cache.rope = NULL;
    status = append(a, p, cache, laid(own_k, a->heads_kv, a->dim), laid(own_v, a->heads_kv, a->dim), error);
    if (status != ATTN_OK) return status;
    const attn_call call = {.struct_size = sizeof call, .schedule = a->schedule};
    attn_tensors tensors = tensors_of(a, p, &cache, own_q, o);
    tensors.call = &call;
    status = attn_execute(a->plan, &tensors, a->workspace, a->workspace_bytes, error);
    if (status != ATTN_OK) return status;
    memcpy(own_q, o, (size_t)of_queries * sizeof *o);
    return rotate(a, a->heads, own_q, o, error);
}

attn_status attention_layer(attention *a, const pages *p, int64_t layer, float *q, const float *k, const float *v, float *o,
                            attn_error *error)
{
    if (p->hadamard) return rotated_layer(a, p, layer, q, k, v, o, error);
    const attn_cache *cache = &p->caches[layer];
    attn_status status = append(a, p, *cache, laid(k, a->heads_kv, a->dim), laid(v, a->heads_kv, a->dim), error);
    if (status != ATTN_OK) return status;
    const int64_t shape[4] = {1, a->heads, a->rows, a->dim};
    const attn_input from = laid(q, a->heads, a->dim), positions = attn_in(a->positions);
    const attn_output to = {.data = q, .stride = {0, a->dim, a->heads * a->dim, 1}};
    status = attn_rope_apply(cache->rope, shape, &from, &positions, &to, error);
    if (status != ATTN_OK) return status;
    const attn_call call = {.struct_size = sizeof call, .schedule = a->schedule};
    attn_tensors tensors = tensors_of(a, p, cache, q, o);
    tensors.call = &call;
    return attn_execute(a->plan, &tensors, a->workspace, a->workspace_bytes, error);
}

void attention_end(attention *a, pages *p)
{
    for (int64_t b = 0; b < a->count; b++) pages_grow(p, a->first + b, a->lengths[b]);
}
