/* SPDX-License-Identifier: MIT
 * sizes_layers.c - layers of vast sizes: their counts, packed sequences, batches without tokens and tokens without batches, and
 * decoding over caches of any capacity. */
#include "sizes_case.h"

#include <string.h>

#include "attn/latent.h"
#include "attn/layers.h"
#include "attn/seq2seq.h"

/* ---- counts and weights, which no memory stands behind ---- */

/* A size that a layer accepts, more often than not: below 2^31, or as most modules want it, of a few channels. */
static int64_t narrow(draws *d, int64_t size) { return draw_one_in(d, 8) ? size : size % ((int64_t)1 << 31); }
static int64_t few(draws *d, int64_t size) { return draw_one_in(d, 8) ? size : 1 + size % 6; }

static void check_counts(const attn_layer_counts *n)
{
    if (n->parameters < 0 || n->cache_per_token < 0 || n->saved_bytes < 0 || !(n->flops >= 0)) finding("a count is negative");
}

void sizes_counts(draws *d)
{
    const int64_t *s = sizes.values;
    attn_problem attention = {.struct_size = sizeof attention};
    attn_layer_counts n = {.struct_size = sizeof n};
    const attn_layer layer = {.struct_size = sizeof layer,
                              .dtype = draw_one_in(d, 2) ? ATTN_F64 : ATTN_F32,
                              .dim_model = narrow(d, s[0]),
                              .dim_key = narrow(d, s[1]),
                              .dim_output = narrow(d, s[2]),
                              .heads_q = narrow(d, s[3]),
                              .heads_kv = draw_one_in(d, 2) ? narrow(d, s[3]) : 1,
                              .head_dim = narrow(d, s[4]),
                              .head_dim_v = narrow(d, s[5]),
                              .attention = &attention};
    if (draw_one_in(d, 2)) attention.score.kind = ATTN_SCORE_GENERAL, attention.score.dim_k = narrow(d, s[6]);
    CALL(attn_layer_count(&layer, s[7], s[8], s[9], NULL, &n, &error));
    check_counts(&n);
    const attn_output none = attn_out(ATTN_EMPTY);
    const attn_layer_weights weights = {.struct_size = sizeof weights, .query = none, .key = none, .value = none, .output = none};
    CALL(attn_layer_initialise(&layer, (attn_init)draw_below(d, 4), 1, &weights, &error));
    CALL(attn_layer_group_heads(&layer, s[6], &weights, &weights, &error));
    const attn_latent latent = {.struct_size = sizeof latent,
                                .dtype = layer.dtype,
                                .dim_model = few(d, s[0]),
                                .dim_output = few(d, s[1]),
                                .heads = few(d, s[3]),
                                .head_dim = few(d, s[4]),
                                .head_dim_v = few(d, s[5]),
                                .rank = few(d, s[6]),
                                .rank_query = few(d, s[2]),
                                .dim_rotary = draw_one_in(d, 2) ? 0 : 2};
    CALL(attn_latent_count(&latent, s[7], s[8], s[9], NULL, &n, &error));
    check_counts(&n);
    const attn_latent_weights of_latents = {
        .struct_size = sizeof of_latents, .query_down = none, .query = none, .down = none, .up = none, .output = none};
    CALL(attn_latent_initialise(&latent, (attn_init)draw_below(d, 4), 1, &of_latents, &error));
    const attn_seq2seq module = {.struct_size = sizeof module,
                                 .dtype = layer.dtype,
                                 .score = ATTN_SCORE_ADDITIVE,
                                 .dim_state = few(d, s[0]),
                                 .dim_memory = few(d, s[1]),
                                 .dim_hidden = few(d, s[2]),
                                 .dim_output = few(d, s[4])};
    CALL(attn_seq2seq_count(&module, s[7], s[8], s[9], NULL, &n, &error));
    check_counts(&n);
    const attn_seq2seq_weights of_module = {
        .struct_size = sizeof of_module, .w = none, .state = none, .memory = none, .combine = none};
    CALL(attn_seq2seq_initialise(&module, (attn_init)draw_below(d, 4), 1, &of_module, &error));
}

/* ---- layers over packed sequences: small weights, and offsets that are wrong or in memory ---- */

enum { MODEL = 4, TOKENS = 6 };

static int64_t offset(draws *d)
{
    const int64_t size = draw_one_in(d, 2) ? draw_below(d, TOKENS + 1) : draw_one_in(d, 4) ? draw_hostile(d) : draw_vast(d);
    return size > TOKENS && size < (int64_t)1 << 31 ? TOKENS : size; /* those between may be valid, but have no memory here */
}

/* The most tokens of a sequence: all tiles of so many are visited, although sequences are shorter. */
static int64_t most(draws *d, int64_t size)
{
    return draw_one_in(d, 2) || (size > 1 << 12 && size <= (int64_t)1 << 48) ? TOKENS : size;
}

void sizes_packed_layer(draws *d)
{
    static float x[TOKENS * MODEL], w[64], y[TOKENS * MODEL], gradient[TOKENS * MODEL], weights_out[4][MODEL * MODEL];
    static char saved[4096];
    int64_t begin[2][4];
    for (int i = 0; i < 8; i++) begin[i / 4][i % 4] = i % 4 == 0 && !draw_one_in(d, 8) ? 0 : offset(d);
    if (draw_one_in(d, 2)) memcpy(begin[1], begin[0], sizeof begin[0]);
    attn_options options = {.struct_size = sizeof options, .threads = 1, .allocator = {sizes_allocate, sizes_release, NULL}};
    const attn_rope rope = {.struct_size = sizeof rope};
    const attn_layer layer = {
        .struct_size = sizeof layer, .dim_model = MODEL, .heads_q = 2, .rope = draw_one_in(d, 4) ? NULL : &rope};
    const attn_layer_weights weights = {.struct_size = sizeof weights,
                                        .query = attn_out(w),
                                        .key = attn_out(w),
                                        .value = attn_out(w),
                                        .output = attn_out(w)},
                             gradients = {.struct_size = sizeof gradients,
                                          .query = attn_out(weights_out[0]),
                                          .key = attn_out(weights_out[1]),
                                          .value = attn_out(weights_out[2]),
                                          .output = attn_out(weights_out[3])};
    const attn_latent latent = {
        .struct_size = sizeof latent, .dim_model = MODEL, .heads = 2, .head_dim = 2, .rank = 2, .dim_rotary = layer.rope ? 2 : 0};
    const attn_latent_weights small = {
        .struct_size = sizeof small, .query = attn_out(w), .down = attn_out(w), .up = attn_out(w), .output = attn_out(w)};
    const attn_tensors of_attention = {
        .struct_size = sizeof of_attention, .cu_seqlens_q = attn_in(begin[0]), .cu_seqlens_kv = attn_in(begin[1])};
    attn_layer_tensors t = {.struct_size = sizeof t,
                            .batch = 1 + draw_below(d, 3),
                            .len_q = most(d, sizes.values[0]),
                            .attention = &of_attention,
                            .options = &options,
                            .saved = draw_one_in(d, 2) ? saved : NULL,
                            .query = attn_in(x),
                            .output = attn_out(y)};
    if (draw_one_in(d, 2)) t.key = attn_in(x), t.len_kv = most(d, sizes.values[1]);
    CALL(attn_layer_forward(&layer, &weights, &t, &error));
    attn_layer_tensors of_latents = t;
    of_latents.saved = NULL;
    CALL(attn_latent_forward(&latent, &small, &of_latents, &error));
    t.saved = saved;
    t.grad_output = attn_in(x), t.grad_query = attn_out(gradient);
    CALL(attn_layer_backward(&layer, &weights, &t, &gradients, &error));
}

/* ---- batches: of no tokens, of tokens in memory, or of so many that they are rejected ---- */

enum { ENTRIES = 4, CACHED = 64 };

/* Memory of a call; what has no elements has no rows. */
static float rows_in[TOKENS * MODEL], rows_out[TOKENS * MODEL], grad_rows[2][TOKENS * MODEL], one_weight[64],
    grad_weights[5][MODEL * MODEL * 2];
static char saved_rows[8192];

static attn_output weight(int gradient) { return attn_out(gradient < 0 ? one_weight : grad_weights[gradient]); }

/* Beside `batch`: as many tokens as there is memory for, or so many that no memory is touched. */
static int64_t tokens_for(draws *d, int64_t batch, int64_t size)
{
    const int64_t rows = batch > 0 && size > INT64_MAX / batch ? INT64_MAX : batch * size;
    if (rows <= TOKENS || rows >= (int64_t)1 << 31) return size;
    return batch > TOKENS || draw_one_in(d, 2) ? 0 : TOKENS / (batch > 0 ? batch : 1);
}

static attn_layer_weights layer_weights(int gradient)
{
    return (attn_layer_weights){.struct_size = sizeof(attn_layer_weights),
                                .query = weight(gradient),
                                .key = weight(gradient < 0 ? -1 : 1),
                                .value = weight(gradient < 0 ? -1 : 2),
                                .output = weight(gradient < 0 ? -1 : 3)};
}

static attn_latent_weights latent_weights(int gradient)
{
    return (attn_latent_weights){.struct_size = sizeof(attn_latent_weights),
                                 .query = weight(gradient),
                                 .down = weight(gradient < 0 ? -1 : 1),
                                 .up = weight(gradient < 0 ? -1 : 2),
                                 .output = weight(gradient < 0 ? -1 : 3)};
}

static attn_seq2seq_weights module_weights(const attn_seq2seq *m, int gradient)
{
    attn_seq2seq_weights w = {.struct_size = sizeof w};
    if (m->score != ATTN_SCORE_DOT) w.w = weight(gradient);
    if (m->score == ATTN_SCORE_ADDITIVE) w.state = weight(gradient < 0 ? -1 : 1), w.memory = weight(gradient < 0 ? -1 : 2);
    if (m->dim_output) w.combine = weight(gradient < 0 ? -1 : 3);
    return w;
}

static attn_seq2seq draw_module(draws *d)
{
    attn_seq2seq m = {.struct_size = sizeof m, .dim_state = MODEL, .dim_memory = MODEL};
    m.score = draw_one_in(d, 3) ? ATTN_SCORE_GENERAL : draw_one_in(d, 2) ? ATTN_SCORE_ADDITIVE : ATTN_SCORE_DOT;
    if (m.score == ATTN_SCORE_ADDITIVE) m.dim_hidden = MODEL;
    if (draw_one_in(d, 2)) m.dim_output = MODEL;
    return m;
}

static attn_options call_options(draws *d)
{
    return (attn_options){.struct_size = sizeof(attn_options),
                          .threads = 1 + (int)draw_below(d, 3),
                          .allocator = {sizes_allocate, sizes_release, NULL}};
}

/* The sizes and rows of a call; `options` and `attention` outlive it.  one: a batch in memory has one entry. */
static attn_layer_tensors draw_call(draws *d, const attn_options *options, const attn_tensors *attention, int one)
{
    attn_layer_tensors t = {.struct_size = sizeof t,
                            .options = options,
                            .attention = draw_one_in(d, 4) ? attention : NULL,
                            .batch = draw_one_in(d, 2) ? sizes.values[0] : draw_below(d, 3),
                            .query = attn_in(rows_in),
                            .output = attn_out(rows_out)};
    if (one && t.batch > 1 && t.batch < (int64_t)1 << 31) t.batch = 1;
    t.len_q = tokens_for(d, t.batch, draw_one_in(d, 3) ? 0 : sizes.values[1]);
    if (draw_one_in(d, 2)) t.key = attn_in(rows_in), t.len_kv = tokens_for(d, t.batch, draw_one_in(d, 3) ? 0 : sizes.values[2]);
    return t;
}

static void ask_for_gradients(attn_layer_tensors *t)
{
    t->saved = saved_rows;
    t->grad_output = attn_in(rows_in);
    t->grad_query = attn_out(grad_rows[0]);
    if (t->key.data) t->grad_key = attn_out(grad_rows[1]);
}

void sizes_modules(draws *d)
{
    const attn_options options = call_options(d);
    const attn_tensors attention = {.struct_size = sizeof attention, .alibi_slopes = attn_in(rows_in)};
    const attn_rope rope = {.struct_size = sizeof rope};
    const attn_layer layer = {
        .struct_size = sizeof layer, .dim_model = MODEL, .heads_q = 2, .rope = draw_one_in(d, 2) ? &rope : NULL};
    const attn_latent latent = {
        .struct_size = sizeof latent, .dim_model = MODEL, .heads = 2, .head_dim = 2, .rank = 2, .dim_rotary = layer.rope ? 2 : 0};
    const attn_seq2seq module = draw_module(d);
    const attn_layer_weights weights = layer_weights(-1), gradients = layer_weights(0);
    const attn_latent_weights of_latents = latent_weights(-1), grad_latents = latent_weights(0);
    const attn_seq2seq_weights of_module = module_weights(&module, -1), grad_module = module_weights(&module, 0);
    attn_layer_tensors t = draw_call(d, &options, &attention, 0);
    const int keep = draw_one_in(d, 2);
    t.saved = keep ? saved_rows : NULL;
    attn_layer_weights more = weights;
    if (draw_one_in(d, 4)) more.extra_key = more.extra_value = weight(-1), t.attention = NULL;
    if (draw_one_in(d, 4)) more.query_bias = more.output_bias = weight(-1);
    CALL(attn_layer_forward(&layer, &more, &t, &error));
    CALL(attn_latent_forward(&latent, &of_latents, &t, &error));
    attn_layer_tensors of_memory = t;
    of_memory.key = attn_in(rows_in);
    if (!t.key.data) of_memory.len_kv = tokens_for(d, t.batch, sizes.values[3]);
    CALL(attn_seq2seq_forward(&module, &of_module, &of_memory, &error));
    ask_for_gradients(&t), ask_for_gradients(&of_memory);
    CALL(attn_layer_backward(&layer, &weights, &t, &gradients, &error));
    CALL(attn_latent_backward(&latent, &of_latents, &t, &grad_latents, &error));
    CALL(attn_seq2seq_backward(&module, &of_module, &of_memory, &grad_module, &error));
}

/* A cache of one key head; only tokens at its beginning are in memory. */
void sizes_decoding(draws *d)
{
    static float k[2][CACHED], v[2][CACHED];
    int64_t lengths[2][ENTRIES];
    const int64_t pages[ENTRIES] = {0};
    const attn_options options = call_options(d);
    const attn_tensors attention = {.struct_size = sizeof attention, .alibi_slopes = attn_in(rows_in)};
    const attn_rope rope = {.struct_size = sizeof rope};
    const attn_layer layer = {
        .struct_size = sizeof layer, .dim_model = MODEL, .heads_q = 2, .heads_kv = 1, .rope = draw_one_in(d, 2) ? &rope : NULL};
    const attn_latent latent = {
        .struct_size = sizeof latent, .dim_model = MODEL, .heads = 2, .head_dim = 2, .rank = 2, .dim_rotary = layer.rope ? 2 : 0};
    const attn_seq2seq module = draw_module(d);
    const attn_layer_weights weights = layer_weights(-1);
    const attn_latent_weights of_latents = latent_weights(-1);
    const attn_seq2seq_weights of_module = module_weights(&module, -1);
    attn_layer_tensors t = draw_call(d, &options, &attention, 1); /* entry 1 of a vast capacity is not in memory */
    t.only_cached = draw_one_in(d, 3);
    const int64_t small = draw_one_in(d, 2) ? sizes.values[4] : 16, capacity = draw_one_in(d, 8) ? draw_hostile(d) : small;
    for (int i = 0; i < 2; i++)
        for (int b = 0; b < ENTRIES; b++) {
            const int64_t beyond = draw_one_in(d, 2) ? -1 : capacity < INT64_MAX ? capacity + 1 : INT64_MAX;
            lengths[i][b] = draw_one_in(d, 4) ? draw_one_in(d, 2) ? INT64_MAX : beyond : draw_below(d, 3);
        }
    if (draw_one_in(d, 4)) t.lengths_q = attn_in(lengths[1]);
    attn_cache cache = {.struct_size = sizeof cache,
                        .batch = t.batch,
                        .heads_kv = 1,
                        .capacity = capacity,
                        .dim_qk = 2,
                        .dim_v = 2,
                        .k = attn_out(k[0]),
                        .v = attn_out(v[0]),
                        .lengths = attn_out(lengths[0])};
    if (draw_one_in(d, 3)) {
        cache.page_table = attn_in(pages), cache.page_size = sizes.values[5] > 0 ? sizes.values[5] : 16,
        cache.pages = sizes.values[6];
        if (cache.capacity < 0 || cache.capacity / cache.page_size >= ENTRIES) cache.capacity = cache.page_size;
    }
    CALL(attn_layer_decode(&layer, &weights, &cache, &t, &error));
    attn_cache of_latent = cache;
    of_latent.dim_qk = latent.dim_rotary + 2, of_latent.v = (attn_output){0};
    for (int b = 0; b < ENTRIES; b++) lengths[0][b] = draw_one_in(d, 4) ? draw_hostile(d) < 0 ? -1 : INT64_MAX : draw_below(d, 3);
    CALL(attn_latent_decode(&latent, &of_latents, &of_latent, &t, &error));
    for (int b = 0; b < ENTRIES; b++) lengths[0][b] = draw_one_in(d, 4) ? draw_hostile(d) < 0 ? -1 : INT64_MAX : draw_below(d, 3);
    cache.dim_qk = module.dim_hidden ? module.dim_hidden : MODEL, cache.dim_v = MODEL;
    t.lengths_q = (attn_input){0}, t.only_cached = 0;
    attn_layer_tensors of_memory = t;
    of_memory.key = attn_in(rows_in);
    if (!t.key.data) of_memory.len_kv = tokens_for(d, t.batch, sizes.values[3]);
    CALL(attn_seq2seq_remember(&module, &of_module, &cache, &of_memory, &error));
    CALL(attn_seq2seq_step(&module, &of_module, &cache, &t, &error));
}
