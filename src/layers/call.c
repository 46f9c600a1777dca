/* SPDX-License-Identifier: MIT
 * call.c - what forward and backward begin and end with. */
#include "call.h"

#include <inttypes.h>
#include <string.h>

static attn_status check_lengths(attn_layer_args *a, attn_error *error)
{
    const struct {
        const char *name;
        int64_t value;
    } sizes[] = {{"batch", a->batch}, {"len_q", a->len_q}, {"len_kv", a->len_kv}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        CHECK(sizes[i].value >= 0, ATTN_ERR_SHAPE, "layer: %s (%" PRId64 ") is negative", sizes[i].name, sizes[i].value);
    if (a->only_cached) a->len_kv = 0;
    if (a->key.data || a->only_cached) return ATTN_OK;
    CHECK(!a->len_kv || a->len_kv == a->len_q, ATTN_ERR_SHAPE,
          "layer: len_kv (%" PRId64 ") is not len_q (%" PRId64 "), and the key is the query", a->len_kv, a->len_q);
    a->len_kv = a->len_q;
    return ATTN_OK;
}

/* Positions of packed sequences, which begin at 0 in each, where the caller has said none. */
static attn_status fill_positions(call *c, attn_error *error)
{
    const extent *e = &c->extent;
    if (!e->packed) return ATTN_OK;
    TRY(memory_take(c->args->options, (e->tokens_q + e->tokens_kv) * (int64_t)sizeof(int64_t), &c->positions, error));
    int64_t *const q = (int64_t *)c->positions, *const kv = q + e->tokens_q;
    for (int64_t b = 0, t = 0; t < e->tokens_q; t++) {
        while (b + 1 < e->batch && t >= index_at(e->begin_q, e->index_dtype, b + 1)) b++;
        q[t] = t - index_at(e->begin_q, e->index_dtype, b);
    }
    for (int64_t b = 0, t = 0; t < e->tokens_kv; t++) {
        while (b + 1 < e->batch && t >= index_at(e->begin_kv, e->index_dtype, b + 1)) b++;
        kv[t] = t - index_at(e->begin_kv, e->index_dtype, b);
    }
    if (!c->resolved.positions_q) c->resolved.positions_q = q;
    if (!c->resolved.positions_kv) c->resolved.positions_kv = kv;
    return ATTN_OK;
}

attn_status call_check(call *c, int rotated, const attn_layer_args *args, attn_error *error)
{
    int64_t pairs;
    CHECK(args, ATTN_ERR_ARGUMENT, "layer: args is NULL");
    CHECK(args->struct_size == sizeof *args, ATTN_ERR_ARGUMENT, "layer: args.struct_size is %zu; set it to sizeof(attn_layer_args)",
          args->struct_size);
    c->resolved = *args;
    c->args = &c->resolved;
    TRY(check_lengths(&c->resolved, error));
    TRY(extent_of(&c->l, c->args, &c->extent, error));
    TRY(layer_bytes(c->l.size, args->batch, args->len_q, c->resolved.len_kv, &pairs, error));
    return rotated ? fill_positions(c, error) : ATTN_OK;
}

attn_status call_begin(call *c, const attn_layer *given, const attn_layer_weights *weights, const attn_layer_args *args,
                       attn_error *error)
{
    static const char *const names[] = {"query", "key", "value"};
    memset(c, 0, sizeof *c);
    TRY(layer_resolve(given, &c->l, error));
    TRY(layer_bind(&c->l, weights, 1, error));
    TRY(call_check(c, c->l.rope != NULL, args, error));
    const extent *e = &c->extent;
    const attn_sequence *given_rows[3] = {&args->query, args->key.data ? &args->key : &args->query, &args->value};
    if (!args->value.data) given_rows[VALUE] = given_rows[KEY];
    for (int i = QUERY; i <= (args->only_cached ? QUERY : VALUE); i++) {
        const int shared = i > QUERY && given_rows[i] == given_rows[i - 1];
        CHECK(!shared || c->l.inputs[i] == c->l.inputs[i - 1], ATTN_ERR_SHAPE,
              "layer: the %s input is the %s input, and has %" PRId64 " channels instead of %" PRId64, names[i], names[i - 1],
              c->l.inputs[i], c->l.inputs[i - 1]);
        TRY(layer_rows(given_rows[i], names[i], e->entries, i == QUERY ? e->tokens_q : e->tokens_kv, c->l.inputs[i], 1, &c->in[i],
                       error));
    }
    TRY(saved_layout(&c->l, e->entries, e->tokens_q, e->tokens_kv, args->saved, &c->saved, error));
    return middle_rotate(&c->l, NULL, 1, 0, 0, NULL, 0, error); /* its rules, before anything is written */
}

attn_status call_refuse_cached(const call *c, attn_error *error)
{
    CHECK(!c->args->only_cached && !c->args->len_of_entry, ATTN_ERR_ARGUMENT, "layer: args.%s is set; it is attn_layer_decode's",
          c->args->only_cached ? "only_cached" : "len_of_entry");
    return ATTN_OK;
}

attn_status call_save(call *c, attn_error *error)
{
    const extent *e = &c->extent;
    TRY(saved_layout(&c->l, e->entries, e->tokens_q, e->tokens_kv, NULL, &c->saved, error));
    TRY(memory_take(c->args->options, c->saved.bytes, &c->taken, error));
    return saved_layout(&c->l, e->entries, e->tokens_q, e->tokens_kv, c->taken, &c->saved, error);
}

/* Of OpenBLAS, where that is the BLAS: 1 if its threads are its own, and how many there are. */
extern int openblas_get_parallel(void) __attribute__((weak));
extern int openblas_get_num_threads(void) __attribute__((weak));

/* Threads that have done their share look out for more, at full speed, for some milliseconds: those of OpenMP and those of OpenBLAS
 * take the cores from each other. Measured on two, an attention in threads between two products costs 8 ms more than it saves, so
 * one that is short stays on the calling thread, unless the caller says how many. */
static int is_short(const attn_options *options, const attn_problem *p)
{
    const attn_shape *s = &p->shape;
    const double pairs = (double)s->batch * (double)s->heads_q * (double)s->len_q * (double)s->len_kv,
                 work = (p->op == ATTN_BACKWARD ? 5 : 2) * pairs * (double)(s->dim_qk + s->dim_v);
    if (options && (options->threads || options->parallel_for)) return 0;
    return work < 1e9 && openblas_get_parallel && openblas_get_num_threads && openblas_get_parallel() == 1 &&
           openblas_get_num_threads() > 1;
}

attn_status call_plan(call *c, const attn_problem *problem, attn_error *error)
{
    attn_options options = {.struct_size = sizeof options};
    const attn_options *given = c->args->options;
    const int alone = is_short(given, problem);
    if (alone && given) options = *given;
    if (alone) options.threads = 1;
    TRY(attn_plan_create(&c->plan, problem, alone ? &options : given, error));
    c->workspace_size = attn_plan_workspace_size(c->plan);
    return memory_take(c->args->options, (int64_t)c->workspace_size, &c->workspace, error);
}

attn_status call_execute(call *c, const attn_args *core, attn_error *error)
{
    return attn_execute(c->plan, core, c->workspace, c->workspace_size, error);
}

void call_end(call *c)
{
    if (!c->args) return;
    memory_give(c->args->options, c->workspace);
    memory_give(c->args->options, c->taken);
    memory_give(c->args->options, c->positions);
    attn_plan_destroy(c->plan);
}

sequence dense_rows(char *data, int64_t batch, int64_t tokens, int64_t channels)
{
    return (sequence){data, batch, tokens, channels, tokens * channels, channels};
}

void move_rows(const layer *l, const sequence *from, const sequence *to, int add)
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
