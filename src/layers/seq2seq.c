/* SPDX-License-Identifier: MIT
 *
 * seq2seq.c - sequence-to-sequence modules, forward, backward and step by step: a layer of one head whose values are the memory as
 * it is, and for an output of its own one matrix and a tanh behind it.
 */
#include "seq2seq.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* One call.  Arrays behind the layer's own: [context; state] and y of each row, where there is an output. */
typedef struct reading {
    module m;
    attn_args pointers;
    attn_layer_args args;               /* of the layer between */
    sequence joined, y, states, output; /* output: the caller's */
    char *memory;
    int64_t layer_bytes;
} reading;

static attn_status reading_begin(reading *r, const attn_seq2seq *given, const attn_seq2seq_weights *weights,
                                 const attn_layer_args *args, attn_error *error)
{
    module *m = &r->m;
    attn_layer_counts counts = {.struct_size = sizeof counts};
    memset(r, 0, sizeof *r);
    TRY(module_resolve(given, m, error));
    TRY(module_bind(m, weights, 1, error));
    CHECK(args, ATTN_ERR_ARGUMENT, "layer: args is NULL");
    CHECK(args->struct_size == sizeof *args, ATTN_ERR_ARGUMENT, "layer: args.struct_size is %zu; set it to sizeof(attn_layer_args)",
          args->struct_size);
    CHECK(!args->value.data, ATTN_ERR_ARGUMENT, "seq2seq: value.data is given; the memory is key and value");
    CHECK(!args->attention || args->attention->struct_size == sizeof r->pointers, ATTN_ERR_ARGUMENT,
          "layer: args.attention.struct_size is %zu; set it to sizeof(attn_args)",
          args->attention ? args->attention->struct_size : 0);
    r->args = *args;
    r->pointers = args->attention ? *args->attention : (attn_args){.struct_size = sizeof r->pointers};
    r->pointers.w = m->w[SCORE_WEIGHT];
    r->args.attention = &r->pointers;
    TRY(attn_layer_count(&m->between, NULL, args->batch, args->len_q, args->len_kv, &counts, error));
    r->layer_bytes = counts.saved_bytes;
    return layer_rows(&args->query, "query", args->batch, args->len_q, m->state, 1, &r->states, error);
}

/* Names what lies behind the layer's own part of `saved`, which is memory of ours where keep is NULL. */
static attn_status reading_place(reading *r, char *keep, attn_error *error)
{
    const module *m = &r->m;
    int64_t joined, y;
    TRY(module_bytes(m, r->args.batch, r->args.len_q, &joined, &y, error));
    if (!keep) TRY(memory_take(r->args.options, r->layer_bytes + joined + y, &r->memory, error));
    if (!keep) keep = r->memory;
    r->joined = dense_rows(keep + r->layer_bytes, r->args.batch, r->args.len_q, m->memory + m->state);
    r->y = dense_rows(keep + r->layer_bytes + joined, r->args.batch, r->args.len_q, m->output);
    return ATTN_OK;
}

static layer type_of(const module *m) { return (layer){.dtype = m->dtype, .size = (int64_t)attn_dtype_size(m->dtype)}; }

static projection combine_of(const module *m)
{
    const int64_t wide = m->memory + m->state;
    return (projection){"", {m->w[COMBINE], NULL, m->output * wide, wide, 1}, 1, m->output, wide, 0, 0};
}

/* y = tanh(combine [context; state]), to the caller too. */
static void combine(const reading *r)
{
    const module *m = &r->m;
    const layer l = type_of(m);
    const projection p = combine_of(m);
    sequence behind = r->joined;
    behind.data += m->memory * l.size;
    behind.channels = m->state;
    move_rows(&l, &r->states, &behind, 0);
    project_to_heads(&l, &p, &r->joined, &r->y);
    for (int64_t n = 0; n < r->y.batch * r->y.tokens * m->output; n++)
        number_put(&l, r->y.data, n, tanh(number_get(&l, r->y.data, n)));
    move_rows(&l, &r->y, &r->output, 0);
}

/* Where the layer puts its context: into [context; state], or right to the caller. */
static attn_status aim(reading *r, const attn_layer_args *args, attn_error *error)
{
    const module *m = &r->m;
    TRY(layer_rows(&args->output, "output", args->batch, args->len_q, m->output ? m->output : m->memory, 1, &r->output, error));
    if (m->output) r->args.output = (attn_sequence){r->joined.data, r->joined.stride_batch, r->joined.stride_token};
    return ATTN_OK;
}

attn_status attn_seq2seq_forward(const attn_seq2seq *given, const attn_seq2seq_weights *weights, const attn_layer_args *args,
                                 attn_error *error)
{
    reading r;
    attn_status status = reading_begin(&r, given, weights, args, error);
    if (status == ATTN_OK && !args->key.data)
        status = fail(error, ATTN_ERR_ARGUMENT, "seq2seq: key.data is NULL; it is the memory");
    if (status == ATTN_OK) status = reading_place(&r, args->saved, error);
    if (status == ATTN_OK) status = aim(&r, args, error);
    const attn_layer_weights between = module_weights(&r.m);
    if (status == ATTN_OK) status = attn_layer_forward(&r.m.between, &between, &r.args, error);
    if (status == ATTN_OK && r.m.output) combine(&r);
    if (r.memory) memory_give(args->options, r.memory);
    return status;
}

/* ---- backward ---- */

typedef struct gradient {
    module wanted;
    sequence out, query;
    char *memory;
    sequence joined, y; /* their gradients */
} gradient;

static attn_status check_backward(const reading *r, const attn_layer_args *args, const attn_seq2seq_weights *gradients, gradient *g,
                                  attn_error *error)
{
    const module *m = &r->m;
    int64_t joined, y;
    CHECK(args->saved, ATTN_ERR_ARGUMENT, "seq2seq: args.saved is NULL; forward fills it for backward");
    CHECK(args->key.data, ATTN_ERR_ARGUMENT, "seq2seq: key.data is NULL; it is the memory");
    g->wanted = *m;
    TRY(module_bind(&g->wanted, gradients, 0, error));
    TRY(layer_rows(&args->grad_output, "grad_output", args->batch, args->len_q, m->output ? m->output : m->memory, 1, &g->out,
                   error));
    TRY(layer_rows(&args->grad_query, "grad_query", args->batch, args->len_q, m->state, 0, &g->query, error));
    if (!m->output) return ATTN_OK;
    TRY(module_bytes(m, args->batch, args->len_q, &joined, &y, error));
    TRY(memory_take(args->options, joined + y, &g->memory, error));
    g->joined = dense_rows(g->memory, args->batch, args->len_q, m->memory + m->state);
    g->y = dense_rows(g->memory + joined, args->batch, args->len_q, m->output);
    return ATTN_OK;
}

/* Through the tanh and the matrix, to the gradients of context and state. */
static void uncombine(const reading *r, gradient *g)
{
    const layer l = type_of(&r->m);
    const projection p = combine_of(&r->m), dp = combine_of(&g->wanted);
    move_rows(&l, &g->out, &g->y, 0);
    for (int64_t n = 0; n < g->y.batch * g->y.tokens * r->m.output; n++) {
        const double y = number_get(&l, r->y.data, n);
        number_put(&l, g->y.data, n, number_get(&l, g->y.data, n) * (1 - y * y));
    }
    if (dp.at.weight) project_gradient(&l, &dp, &g->y, &r->joined);
    project_to_model(&l, &p, &g->y, &g->joined, 0);
}

attn_status attn_seq2seq_backward(const attn_seq2seq *given, const attn_seq2seq_weights *weights, const attn_layer_args *args,
                                  const attn_seq2seq_weights *gradients, attn_error *error)
{
    reading r;
    gradient g;
    memset(&g, 0, sizeof g);
    attn_status status = reading_begin(&r, given, weights, args, error);
    if (status == ATTN_OK) status = check_backward(&r, args, gradients, &g, error);
    if (status == ATTN_OK) status = reading_place(&r, args->saved, error);
    if (status == ATTN_OK) {
        module *m = &r.m;
        const layer l = type_of(m);
        if (m->output) {
            uncombine(&r, &g);
            r.args.grad_output = (attn_sequence){g.joined.data, g.joined.stride_batch, g.joined.stride_token};
        }
        r.pointers.grad_w = g.wanted.w[SCORE_WEIGHT];
        m->attention.gradients.w = g.wanted.w[SCORE_WEIGHT] != NULL;
        if (m->attention.gradients.w) m->attention.gradients.grad_w.dtype = m->dtype;
        const attn_layer_weights between = module_weights(m), wanted = module_weights(&g.wanted);
        status = attn_layer_backward(&m->between, &between, &r.args, &wanted, error);
        if (status == ATTN_OK && m->output && g.query.data) {
            sequence behind = g.joined;
            behind.data += m->memory * l.size;
            behind.channels = m->state;
            move_rows(&l, &behind, &g.query, 1);
        }
    }
    if (g.memory) memory_give(args->options, g.memory);
    return status == ATTN_OK ? succeed(error) : status;
}

/* ---- step by step ---- */

attn_status attn_seq2seq_remember(const attn_seq2seq *given, const attn_seq2seq_weights *weights, const attn_cache *cache,
                                  const attn_layer_args *args, attn_error *error)
{
    reading r;
    CHECK(args, ATTN_ERR_ARGUMENT, "layer: args is NULL");
    attn_layer_args memory_alone = *args;
    memory_alone.len_q = 0;
    memory_alone.query.data = NULL;
    TRY(reading_begin(&r, given, weights, &memory_alone, error));
    CHECK(args->key.data, ATTN_ERR_ARGUMENT, "seq2seq: key.data is NULL; it is the memory");
    const attn_layer_weights between = module_weights(&r.m);
    return attn_layer_decode(&r.m.between, &between, cache, &r.args, error);
}

attn_status attn_seq2seq_step(const attn_seq2seq *given, const attn_seq2seq_weights *weights, const attn_cache *cache,
                              const attn_layer_args *args, attn_error *error)
{
    reading r;
    CHECK(args, ATTN_ERR_ARGUMENT, "layer: args is NULL");
    attn_layer_args states_alone = *args;
    states_alone.key.data = NULL;
    states_alone.len_kv = 0;
    states_alone.only_cached = 1;
    attn_status status = reading_begin(&r, given, weights, &states_alone, error);
    if (status == ATTN_OK) status = reading_place(&r, NULL, error);
    if (status == ATTN_OK) status = aim(&r, args, error);
    const attn_layer_weights between = module_weights(&r.m);
    if (status == ATTN_OK) status = attn_layer_decode(&r.m.between, &between, cache, &r.args, error);
    if (status == ATTN_OK && r.m.output) combine(&r);
    if (r.memory) memory_give(args->options, r.memory);
    return status;
}
