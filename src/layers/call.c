/* SPDX-License-Identifier: MIT
 * call.c - the beginning and end of a forward or backward call. */
#include "call.h"

#include <inttypes.h>
#include <string.h>

#include "../common/options.h"

attn_status attn_call_sizes(const attn_layer_tensors *a, attn_error *error)
{
    const struct {
        const char *name;
        int64_t value;
    } sizes[] = {{"batch", a->batch}, {"len_q", a->len_q}, {"len_kv", a->len_kv}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        CHECK(sizes[i].value >= 0, ATTN_ERR_SHAPE, "layer: %s (%" PRId64 ") is negative", sizes[i].name, sizes[i].value);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) /* also beside a 0, since strides are products of these */
        CHECK(sizes[i].value <= INT32_MAX, ATTN_ERR_SHAPE, "layer: %s (%" PRId64 ") is more than 2147483647", sizes[i].name,
              sizes[i].value);
    return ATTN_OK;
}

static attn_status check_lengths(attn_layer_tensors *a, attn_error *error)
{
    TRY(attn_call_sizes(a, error));
    if (a->only_cached) a->len_kv = 0;
    if (a->key.data || a->only_cached) return ATTN_OK;
    CHECK(!a->len_kv || a->len_kv == a->len_q, ATTN_ERR_SHAPE,
          "layer: len_kv (%" PRId64 ") is not len_q (%" PRId64 "), but the key is the query", a->len_kv, a->len_q);
    a->len_kv = a->len_q;
    return ATTN_OK;
}

/* Positions of packed sequences, starting at 0 in each, unless the caller passes them. */
static attn_status fill_positions(call *c, attn_error *error)
{
    const extent *e = &c->extent;
    const attn_layer_tensors *a = c->args;
    const void *given_q, *given_kv;
    TRY(attn_layer_dense(ATTN_I64, &a->positions_q, "positions_q", e->tokens_q > 0, &given_q, error));
    TRY(attn_layer_dense(ATTN_I64, &a->positions_kv, "positions_kv", e->tokens_kv > 0, &given_kv, error));
    c->positions_q = given_q;
    c->positions_kv = given_kv;
    if (!e->packed) return ATTN_OK;
    TRY(attn_memory_acquire(c->args->options, (e->tokens_q + e->tokens_kv) * (int64_t)sizeof(int64_t), &c->positions, error));
    int64_t *const q = (int64_t *)c->positions, *const kv = q + e->tokens_q;
    for (int64_t b = 0, t = 0; t < e->tokens_q; t++) {
        while (b + 1 < e->batch && t >= attn_layer_index_at(e->begin_q, b + 1)) b++;
        q[t] = t - attn_layer_index_at(e->begin_q, b);
    }
    for (int64_t b = 0, t = 0; t < e->tokens_kv; t++) {
        while (b + 1 < e->batch && t >= attn_layer_index_at(e->begin_kv, b + 1)) b++;
        kv[t] = t - attn_layer_index_at(e->begin_kv, b);
    }
    if (!given_q) c->positions_q = q;
    if (!given_kv) c->positions_kv = kv;
    return ATTN_OK;
}

attn_status attn_call_read(attn_layer_tensors *copy, attn_options *options, const attn_layer_tensors *given, attn_error *error)
{
    attn_options alone = {0};
    attn_options *const to = options ? options : &alone;
    CHECK(given, ATTN_ERR_ARGUMENT, "layer: tensors is NULL");
    TRY(slots_read(copy, sizeof *copy, sizeof *copy, given, "attn_layer_tensors", error));
    if (!copy->options) return ATTN_OK;
    /* The core checks options too, but only after memory has been acquired with them. */
    TRY(options_read(to, copy->options, error));
    if (options) copy->options = options;
    return ATTN_OK;
}

/* Rejects what the caller sets although the layer fills it in. */
static attn_status check_options(const attn_tensors *t, attn_error *error)
{
    const attn_input o = slot_of(&t->o), grad_q = slot_of(&t->grad_q), grad_k = slot_of(&t->grad_k), grad_v = slot_of(&t->grad_v);
    const struct {
        const char *name;
        const attn_input *slot;
    } filled[] = {{"q", &t->q},
                  {"k", &t->k},
                  {"v", &t->v},
                  {"o", &o},
                  {"grad_o", &t->grad_o},
                  {"grad_q", &grad_q},
                  {"grad_k", &grad_k},
                  {"grad_v", &grad_v},
                  {"page_table", &t->page_table},
                  {"page_starts", &t->page_starts},
                  {"page_index", &t->page_index},
                  {"lengths_last_page", &t->lengths_last_page},
                  {"k_scale", &t->k_scale},
                  {"v_scale", &t->v_scale},
                  {"k_tail", &t->k_tail}};
    for (size_t i = 0; i < sizeof filled / sizeof *filled; i++)
        CHECK(slot_is_absent(filled[i].slot), ATTN_ERR_ARGUMENT, "layer: attention.%s is set; the layer fills it in",
              filled[i].name);
    const attn_input lse = slot_of(&t->lse);
    CHECK(slot_is_dense(&lse), ATTN_ERR_STRIDE, "layer: attention.lse has strides; it must be dense, [batch, heads_q, len_q]");
    CHECK(slot_is_dense(&t->grad_lse), ATTN_ERR_STRIDE, "layer: attention.grad_lse has strides; it must be dense, like lse");
    CHECK(!t->call, ATTN_ERR_ARGUMENT, "layer: attention.call is set; use the call of attn_layer_tensors");
    return ATTN_OK;
}

attn_status attn_call_check(call *c, int rotated, const attn_layer_tensors *args, attn_error *error)
{
    int64_t pairs;
    const void *lengths, *mean;
    TRY(attn_call_read(&c->resolved, &c->options, args, error));
    c->args = args = &c->resolved;
    for (int i = 0; i < 7; i++) CHECK(args->reserved[i] == 0, ATTN_ERR_ARGUMENT, "layer: tensors.reserved[%d] is not 0", i);
    CHECK(args->only_cached == 0 || args->only_cached == 1, ATTN_ERR_ARGUMENT, "layer: only_cached is %d; it must be 0 or 1",
          args->only_cached);
    if (args->attention) {
        TRY(slots_read(&c->attention, sizeof c->attention, sizeof c->attention, args->attention, "attn_tensors", error));
        c->resolved.attention = &c->attention;
        TRY(check_options(&c->attention, error));
    }
    TRY(slot_check(&args->key, "layer: key", 0, error));
    TRY(slot_check(&args->value, "layer: value", 0, error));
    const attn_input weights_mean = slot_of(&args->weights_mean);
    TRY(attn_layer_dense(c->l.dtype, &weights_mean, "weights_mean", args->batch > 0 && args->len_q > 0, &mean, error));
    TRY(attn_layer_dense(ATTN_I64, &args->lengths_q, "lengths_q", args->batch > 0, &lengths, error));
    c->weights_mean = (void *)(uintptr_t)mean;
    c->lengths_q = lengths;
    TRY(check_lengths(&c->resolved, error));
    TRY(attn_extent_of(&c->l, c->args, &c->extent, error));
    TRY(attn_layer_bytes(c->l.size, args->batch, args->len_q, c->resolved.len_kv, &pairs, error));
    if (rotated) return fill_positions(c, error);
    CHECK(slot_is_absent(&args->positions_q) && slot_is_absent(&args->positions_kv), ATTN_ERR_ARGUMENT,
          "layer: %s is set; nothing is rotated without a rope",
          slot_is_absent(&args->positions_q) ? "positions_kv" : "positions_q");
    return ATTN_OK;
}

/* The most rows of a product. */
static int64_t call_rows(const call *c)
{
    const extent *e = &c->extent;
    return e->entries * (e->tokens_q > e->tokens_kv ? e->tokens_q : e->tokens_kv);
}

attn_status attn_call_begin(call *c, const attn_layer *given, const attn_layer_weights *weights, const attn_layer_tensors *args,
                            attn_error *error)
{
    static const char *const names[] = {"query", "key", "value"};
    memset(c, 0, offsetof(call, l));
    TRY(attn_layer_resolve(given, &c->l, error));
    TRY(attn_layer_bind(&c->l, "weights", weights, WEIGHTS_READ, error));
    TRY(attn_call_check(c, c->l.rope != NULL, args, error));
    args = c->args;
    const extent *e = &c->extent;
    const attn_input *given_rows[3] = {&args->query, args->key.data ? &args->key : &args->query, &args->value};
    if (!args->value.data) given_rows[VALUE] = given_rows[KEY];
    for (int i = QUERY; i <= (args->only_cached ? QUERY : VALUE); i++) {
        const int shared = i > QUERY && given_rows[i] == given_rows[i - 1];
        CHECK(!shared || c->l.inputs[i] == c->l.inputs[i - 1], ATTN_ERR_SHAPE,
              "layer: the %s input is the %s input, but has %" PRId64 " channels instead of %" PRId64, names[i], names[i - 1],
              c->l.inputs[i], c->l.inputs[i - 1]);
        TRY(attn_layer_rows(c->l.dtype, given_rows[i], names[i], e->entries, i == QUERY ? e->tokens_q : e->tokens_kv,
                            c->l.inputs[i], 1, &c->in[i], error));
    }
    TRY(attn_saved_layout(&c->l, e->entries, e->tokens_q, e->tokens_kv, args->saved, &c->saved, error));
    TRY(attn_middle_rotate(&c->l, NULL, 1, 0, 0, NULL, 0, error)); /* checks the rope before anything is written */
    int64_t widest = 0;
    for (int i = 0; i < PROJECTIONS; i++) {
        const projection *p = &c->l.projections[i];
        const int64_t wide = p->heads * p->dim > p->model ? p->heads * p->dim : p->model;
        if (!p->none && wide > widest) widest = wide;
    }
    return attn_scratch_measure(&c->l, c->args->options, call_rows(c), widest, error);
}

void attn_call_place(call *c, const weight_slot *weights, int count, int64_t saved_bytes, int forward)
{
    static const char *const names[] = {"query", "key", "value"};
    c->places.count = c->places.group = 0;
    c->places.size = (size_t)c->l.size;
    for (int i = QUERY; i <= VALUE; i++) attn_places_add_rows(&c->places, names[i], &c->in[i], 0);
    attn_places_add_weights(&c->places, "weights", weights, count, 0);
    places_add_bytes(&c->places, "saved", c->args->saved, saved_bytes, forward);
    const extent *e = &c->extent;
    const struct {
        const char *name;
        const attn_input *slot;
        int64_t count;
    } numbers[] = {{"positions_q", &c->args->positions_q, e->entries * e->tokens_q},
                   {"positions_kv", &c->args->positions_kv, e->entries * e->tokens_kv},
                   {"lengths_q", &c->args->lengths_q, e->batch}};
    for (int i = 0; i < 3; i++)
        if (slot_is_address(numbers[i].slot))
            places_add_bytes(&c->places, numbers[i].name, numbers[i].slot->data, numbers[i].count * (int64_t)sizeof(int64_t), 0);
    if (c->l.rope) places_add_rope(&c->places, c->l.rope, c->l.head_dim);
}

attn_status attn_call_place_outputs(call *c, const char *module, attn_error *error)
{
    c->module = module;
    const int64_t columns = c->extent.len_kv + (c->l.extra_key != NULL);
    attn_places_add_rows(&c->places, "output", &c->output, 1);
    places_add_bytes(&c->places, "weights_mean", c->weights_mean, c->extent.batch * c->extent.len_q * columns * c->l.size, 1);
    return places_check(&c->places, module, error);
}

attn_status attn_call_scratch(call *c, int64_t widest, attn_error *error)
{
    return attn_scratch_acquire(&c->l, c->args->options, call_rows(c), widest, error);
}

attn_status attn_call_reject_cached(const call *c, attn_error *error)
{
    CHECK(!c->args->only_cached && !c->lengths_q, ATTN_ERR_ARGUMENT, "layer: tensors.%s is set; it is only for attn_layer_decode",
          c->args->only_cached ? "only_cached" : "lengths_q");
    return ATTN_OK;
}

attn_status attn_call_save(call *c, attn_error *error)
{
    const extent *e = &c->extent;
    TRY(attn_saved_layout(&c->l, e->entries, e->tokens_q, e->tokens_kv, NULL, &c->saved, error));
    TRY(attn_memory_acquire(c->args->options, c->saved.bytes, &c->taken, error));
    return attn_saved_layout(&c->l, e->entries, e->tokens_q, e->tokens_kv, c->taken, &c->saved, error);
}

attn_status attn_call_choose(call *c, const attn_problem *problem, const attn_tensors *core, attn_error *error)
{
    TRY(attn_plan_create(&c->plan, problem, core, c->args->options, error));
    if (c->args->attention) {
        places_add_attention(&c->places, "attention", c->plan, c->args->attention, 1);
        TRY(places_check(&c->places, c->module, error));
    }
    c->workspace_size = attn_plan_workspace_size(c->plan);
    return ATTN_OK;
}

attn_status attn_call_take(call *c, int64_t bytes, char **more, attn_error *error)
{
    const int64_t most = INT64_MAX / 4, scratch = c->l.scratch.bytes, workspace = (int64_t)c->workspace_size; /* none exceeds it */
    const int64_t at[] = {scratch, workspace, bytes};
    int64_t all = 0;
    for (int i = 0; i < 3; i++) all += at[i] < most ? (at[i] + 63) / 64 * 64 : most;
    TRY(attn_memory_acquire(c->args->options, all, &c->memory, error));
    c->workspace = c->memory + (scratch + 63) / 64 * 64;
    c->l.scratch.memory = c->memory;
    if (more) *more = c->workspace + (workspace + 63) / 64 * 64;
    return ATTN_OK;
}

attn_status attn_call_plan(call *c, const attn_problem *problem, const attn_tensors *core, attn_error *error)
{
    TRY(attn_call_choose(c, problem, core, error));
    return attn_memory_acquire(c->args->options, (int64_t)c->workspace_size, &c->workspace, error);
}

attn_status attn_call_execute(call *c, const attn_tensors *core, attn_error *error)
{
    return attn_execute(c->plan, core, c->workspace, c->workspace_size, error);
}

void attn_call_end(call *c)
{
    if (!c->args) return;
    if (c->memory) attn_memory_release(c->args->options, c->memory);
    else {
        attn_memory_release(c->args->options, c->workspace);
        attn_scratch_release(&c->l);
    }
    attn_memory_release(c->args->options, c->taken);
    attn_memory_release(c->args->options, c->positions);
    attn_plan_destroy(c->plan);
}

sequence attn_layer_dense_rows(char *data, int64_t batch, int64_t tokens, int64_t channels)
{
    return (sequence){data, tokens > 0 ? batch : 0, tokens, channels, tokens * channels, channels};
}

void attn_move_rows(const layer *l, const sequence *from, const sequence *to, int add)
{
    const size_t row = (size_t)(to->channels * l->size);
    for (int64_t b = 0; b < to->batch; b++)
        for (int64_t t = 0; t < to->tokens; t++) {
            const char *x = from->data + (b * from->stride_batch + t * from->stride_token) * l->size;
            char *y = to->data + (b * to->stride_batch + t * to->stride_token) * l->size;
            if (!add) memcpy(y, x, row);
            for (int64_t c = 0; add && c < to->channels; c++) number_put(l, y, c, number_get(l, y, c) + number_get(l, x, c));
        }
}
