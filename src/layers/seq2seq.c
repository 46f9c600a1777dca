/* SPDX-License-Identifier: MIT
 *
 * seq2seq.c - sequence-to-sequence modules, forward, backward and step by step: a layer of one head whose values are the memory
 * itself, followed by a matrix and a tanh if the module has an output of its own.
 */
#include "seq2seq.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* One call.  If the module has an output, `joined` ([context; state] of each row) and y follow the layer's own part of `saved`. */
typedef struct reading {
    module m;
    attn_tensors attention;
    attn_layer_tensors args;                        /* of the inner layer */
    attn_options options;                           /* a copy of the caller's; args points to it */
    sequence joined, y, states, remembered, output; /* the last three are the caller's */
    places places;                                  /* the caller's tensors, not all of which the inner layer sees */
    char *memory;
    int64_t layer_bytes;
} reading;

/* Rejects what the caller sets although the module fills it in. */
static attn_status check_filled(const attn_tensors *t, attn_error *error)
{
    const struct {
        const char *name;
        const void *data;
    } filled[] = {{"score_matrix", t->score_matrix.data},
                  {"grad_score_matrix", t->grad_score_matrix.data},
                  {"cu_seqlens_q", t->cu_seqlens_q.data},
                  {"cu_seqlens_kv", t->cu_seqlens_kv.data}};
    for (size_t i = 0; i < sizeof filled / sizeof *filled; i++)
        CHECK(!filled[i].data, ATTN_ERR_ARGUMENT, "seq2seq: attention.%s is set; %s", filled[i].name,
              i < 2 ? "the module fills it in" : "states are [batch, token, channel]");
    return ATTN_OK;
}

static attn_status reading_begin(reading *r, const attn_seq2seq *given, const attn_seq2seq_weights *weights,
                                 const attn_layer_tensors *args, attn_error *error)
{
    module *m = &r->m;
    attn_layer_counts counts = {.struct_size = sizeof counts};
    memset(r, 0, sizeof *r);
    TRY(attn_module_resolve(given, m, error));
    TRY(attn_module_bind(m, "weights", weights, WEIGHTS_READ, error));
    TRY(attn_call_read(&r->args, &r->options, args, error));
    args = &r->args;
    CHECK(!args->value.data, ATTN_ERR_ARGUMENT, "seq2seq: value.data is set; the memory is both key and value");
    r->attention.struct_size = sizeof r->attention;
    if (args->attention) {
        TRY(slots_read(&r->attention, sizeof r->attention, sizeof r->attention, args->attention, "attn_tensors", error));
        TRY(check_filled(&r->attention, error));
    }
    if (m->w[SCORE_WEIGHT]) r->attention.score_matrix = (attn_input){m->w[SCORE_WEIGHT], m->dtype, {0, 0, 0, 0}};
    r->args.attention = &r->attention;
    TRY(attn_layer_count(&m->between, args->batch, args->len_q, args->len_kv, NULL, &counts, error));
    TRY(attn_call_sizes(args, error)); /* which the inner layer would check, but strides are computed before */
    r->layer_bytes = counts.saved_bytes;
    TRY(attn_layer_rows(m->dtype, &args->query, "query", args->batch, args->len_q, m->state, 1, &r->states, error));
    TRY(attn_layer_rows(m->dtype, &args->key, "key", args->batch, args->len_kv, m->memory, 0, &r->remembered, error));
    r->places.size = attn_dtype_size(m->dtype);
    attn_places_add_rows(&r->places, "query", &r->states, 0);
    attn_places_add_rows(&r->places, "key", &r->remembered, 0);
    attn_places_add_weights(&r->places, "weights", m->weights, MODULE_TENSORS, 0);
    return ATTN_OK;
}

/* Sets `joined` and y, which follow the layer's own part of `saved` (keep); acquires that memory if keep is NULL. */
static attn_status reading_place(reading *r, char *keep, int forward, attn_error *error)
{
    const module *m = &r->m;
    int64_t joined, y;
    TRY(attn_module_bytes(m, r->args.batch, r->args.len_q, &joined, &y, error));
    if (!keep) TRY(attn_memory_acquire(r->args.options, r->layer_bytes + joined + y, &r->memory, error));
    if (!keep) keep = r->memory;
    places_add_bytes(&r->places, "saved", r->memory ? NULL : keep, r->layer_bytes + joined + y, forward);
    r->joined = attn_layer_dense_rows(keep + r->layer_bytes, r->args.batch, r->args.len_q, m->memory + m->state);
    r->y = attn_layer_dense_rows(keep + r->layer_bytes + joined, r->args.batch, r->args.len_q, m->output);
    return ATTN_OK;
}

static layer type_of(const module *m) { return (layer){.dtype = m->dtype, .size = (int64_t)attn_dtype_size(m->dtype)}; }

/* Scratch for the products with the matrix after the layer. */
static attn_status combine_scratch(const reading *r, layer *l, attn_error *error)
{
    const int64_t wide = r->m.memory + r->m.state;
    return attn_scratch_acquire(l, r->args.options, r->args.batch * r->args.len_q, wide > r->m.output ? wide : r->m.output, error);
}

static projection combine_of(const module *m)
{
    const int64_t wide = m->memory + m->state;
    return (projection){"", {m->w[COMBINE], NULL, m->output * wide, wide, 1}, 1, m->output, wide, 0, 0};
}

/* y = tanh(combine [context; state]), also copied to the output. */
static attn_status combine(const reading *r, const layer *scratch, attn_error *error)
{
    const module *m = &r->m;
    const projection p = combine_of(m);
    const layer l = *scratch;
    sequence after_memory = r->joined;
    after_memory.data += m->memory * l.size;
    after_memory.channels = m->state;
    attn_move_rows(&l, &r->states, &after_memory, 0);
    TRY(attn_project_to_heads(&l, &p, &r->joined, &r->y, error));
    for (int64_t n = 0; n < r->y.batch * r->y.tokens * m->output; n++)
        number_put(&l, r->y.data, n, tanh(number_get(&l, r->y.data, n)));
    attn_move_rows(&l, &r->y, &r->output, 0);
    return ATTN_OK;
}

/* Directs the layer's context into [context; state], or straight to the caller's output. */
static attn_status aim(reading *r, const attn_layer_tensors *args, attn_error *error)
{
    const module *m = &r->m;
    TRY(attn_layer_rows_out(m->dtype, &args->output, "output", args->batch, args->len_q, m->output ? m->output : m->memory, 1,
                            &r->output, error));
    attn_places_add_rows(&r->places, "output", &r->output, 1);
    TRY(places_check(&r->places, "seq2seq", error));
    if (m->output) r->args.output = (attn_output){r->joined.data, m->dtype, {r->joined.stride_batch, 0, r->joined.stride_token, 1}};
    return ATTN_OK;
}

attn_status attn_seq2seq_forward(const attn_seq2seq *given, const attn_seq2seq_weights *weights, const attn_layer_tensors *args,
                                 attn_error *error)
{
    reading r;
    attn_layer_tensors copy;
    TRY(attn_call_read(&copy, NULL, args, error));
    args = &copy;
    attn_status status = reading_begin(&r, given, weights, args, error);
    if (status == ATTN_OK && !args->key.data)
        status = fail(error, ATTN_ERR_ARGUMENT, "seq2seq: key.data is NULL; it must hold the memory");
    if (status == ATTN_OK) status = reading_place(&r, args->saved, 1, error);
    if (status == ATTN_OK) status = aim(&r, args, error);
    layer scratch = {0}; /* taken before the first output is written */
    if (status == ATTN_OK && r.m.output) scratch = type_of(&r.m), status = combine_scratch(&r, &scratch, error);
    const attn_layer_weights between = attn_module_weights(&r.m);
    if (status == ATTN_OK) status = attn_layer_forward(&r.m.between, &between, &r.args, error);
    if (status == ATTN_OK && r.m.output) status = combine(&r, &scratch, error);
    attn_scratch_release(&scratch);
    if (r.memory) attn_memory_release(r.args.options, r.memory);
    return status;
}

/* ---- backward ---- */

typedef struct gradient {
    module requested;
    sequence out, query;
    char *memory;
    sequence joined, y; /* their gradients */
} gradient;

static attn_status check_backward(reading *r, const attn_layer_tensors *args, const attn_seq2seq_weights *gradients, gradient *g,
                                  attn_error *error)
{
    const module *m = &r->m;
    int64_t joined, y;
    CHECK(args->saved, ATTN_ERR_ARGUMENT, "seq2seq: tensors.saved is NULL; forward fills it for backward");
    CHECK(args->key.data, ATTN_ERR_ARGUMENT, "seq2seq: key.data is NULL; it must hold the memory");
    g->requested = *m;
    TRY(attn_module_bind(&g->requested, "gradients", gradients, WEIGHTS_OPTIONAL, error));
    TRY(attn_layer_rows(m->dtype, &args->grad_output, "grad_output", args->batch, args->len_q, m->output ? m->output : m->memory, 1,
                        &g->out, error));
    TRY(attn_layer_rows_out(m->dtype, &args->grad_query, "grad_query", args->batch, args->len_q, m->state, 0, &g->query, error));
    attn_places_add_rows(&r->places, "grad_output", &g->out, 0);
    attn_places_add_rows(&r->places, "grad_query", &g->query, 1);
    sequence grad_key;
    TRY(attn_layer_rows_out(m->dtype, &args->grad_key, "grad_key", args->batch, args->len_kv, m->memory, 0, &grad_key, error));
    attn_places_add_rows(&r->places, "grad_key", &grad_key, 1);
    attn_places_add_weights(&r->places, "gradients", g->requested.weights, MODULE_TENSORS, 1);
    TRY(places_check(&r->places, "seq2seq", error));
    if (!m->output) return ATTN_OK;
    TRY(attn_module_bytes(m, args->batch, args->len_q, &joined, &y, error));
    TRY(attn_memory_acquire(r->args.options, joined + y, &g->memory, error));
    g->joined = attn_layer_dense_rows(g->memory, args->batch, args->len_q, m->memory + m->state);
    g->y = attn_layer_dense_rows(g->memory + joined, args->batch, args->len_q, m->output);
    return ATTN_OK;
}

/* Back through the tanh and the matrix to the gradients of context and state. */
static attn_status uncombine(const reading *r, const layer *l, gradient *g, attn_error *error)
{
    const projection p = combine_of(&r->m);
    attn_move_rows(l, &g->out, &g->y, 0);
    for (int64_t n = 0; n < g->y.batch * g->y.tokens * r->m.output; n++) {
        const double y = number_get(l, r->y.data, n);
        number_put(l, g->y.data, n, number_get(l, g->y.data, n) * (1 - y * y));
    }
    return attn_project_to_model(l, &p, &g->y, &g->joined, 0, error);
}

attn_status attn_seq2seq_backward(const attn_seq2seq *given, const attn_seq2seq_weights *weights, const attn_layer_tensors *args,
                                  const attn_seq2seq_weights *gradients, attn_error *error)
{
    reading r;
    gradient g;
    attn_layer_tensors copy;
    memset(&g, 0, sizeof g);
    TRY(attn_call_read(&copy, NULL, args, error));
    args = &copy;
    attn_status status = reading_begin(&r, given, weights, args, error);
    if (status == ATTN_OK && args->saved) status = reading_place(&r, args->saved, 0, error);
    if (status == ATTN_OK) status = check_backward(&r, args, gradients, &g, error);
    if (status == ATTN_OK) {
        module *m = &r.m;
        layer l = type_of(m);
        if (m->output) { /* memory is acquired before the first gradient is written */
            status = combine_scratch(&r, &l, error);
            if (status == ATTN_OK) status = uncombine(&r, &l, &g, error);
            r.args.grad_output = (attn_input){g.joined.data, m->dtype, {g.joined.stride_batch, 0, g.joined.stride_token, 1}};
        }
        if (g.requested.w[SCORE_WEIGHT])
            r.attention.grad_score_matrix = (attn_output){g.requested.w[SCORE_WEIGHT], m->dtype, {0, 0, 0, 0}};
        const attn_layer_weights between = attn_module_weights(m), requested = attn_module_weights(&g.requested);
        if (status == ATTN_OK) status = attn_layer_backward(&m->between, &between, &r.args, &requested, error);
        const projection dp = combine_of(&g.requested);
        if (status == ATTN_OK && m->output && dp.at.weight) status = attn_project_gradient(&l, &dp, &g.y, &r.joined, error);
        if (status == ATTN_OK && m->output && g.query.data) {
            sequence after_memory = g.joined;
            after_memory.data += m->memory * l.size;
            after_memory.channels = m->state;
            attn_move_rows(&l, &after_memory, &g.query, 1);
        }
        attn_scratch_release(&l);
    }
    if (g.memory) attn_memory_release(r.args.options, g.memory);
    return status == ATTN_OK ? succeed(error) : status;
}

/* ---- step by step ---- */

static const attn_input no_input;

/* Adds the caller's cache to the places; the inner layer reports its errors. */
static void place_cache(reading *r, const attn_cache *given, int written)
{
    attn_cache cache;
    if (given && slots_read(&cache, sizeof cache, sizeof cache, given, "attn_cache", NULL) == ATTN_OK)
        places_add_cache(&r->places, "cache", &cache, written);
}

attn_status attn_seq2seq_remember(const attn_seq2seq *given, const attn_seq2seq_weights *weights, const attn_cache *cache,
                                  const attn_layer_tensors *args, attn_error *error)
{
    reading r;
    attn_layer_tensors memory_only;
    TRY(attn_call_read(&memory_only, NULL, args, error));
    memory_only.len_q = 0;
    memory_only.query = no_input;
    TRY(reading_begin(&r, given, weights, &memory_only, error));
    CHECK(memory_only.key.data, ATTN_ERR_ARGUMENT, "seq2seq: key.data is NULL; it must hold the memory");
    place_cache(&r, cache, 1);
    TRY(places_check(&r.places, "seq2seq", error));
    const attn_layer_weights between = attn_module_weights(&r.m);
    return attn_layer_decode(&r.m.between, &between, cache, &r.args, error);
}

attn_status attn_seq2seq_step(const attn_seq2seq *given, const attn_seq2seq_weights *weights, const attn_cache *cache,
                              const attn_layer_tensors *args, attn_error *error)
{
    reading r;
    attn_layer_tensors states_only;
    TRY(attn_call_read(&states_only, NULL, args, error));
    states_only.key = no_input;
    states_only.len_kv = 0;
    states_only.only_cached = 1;
    attn_status status = reading_begin(&r, given, weights, &states_only, error);
    if (status == ATTN_OK) status = reading_place(&r, NULL, 1, error);
    if (status == ATTN_OK) place_cache(&r, cache, 0);
    if (status == ATTN_OK) status = aim(&r, &states_only, error);
    layer scratch = {0}; /* taken before the first output is written */
    if (status == ATTN_OK && r.m.output) scratch = type_of(&r.m), status = combine_scratch(&r, &scratch, error);
    const attn_layer_weights between = attn_module_weights(&r.m);
    if (status == ATTN_OK) status = attn_layer_decode(&r.m.between, &between, cache, &r.args, error);
    if (status == ATTN_OK && r.m.output) status = combine(&r, &scratch, error);
    attn_scratch_release(&scratch);
    if (r.memory) attn_memory_release(r.args.options, r.memory);
    return status;
}
