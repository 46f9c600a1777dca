/* SPDX-License-Identifier: MIT
 *
 * kinds.c - the kinds of layers that `attn layer` knows: their sizes, from flags and the shapes of their weights, and the
 * functions that run them. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/input/input.h"
#include "layer.h"
#include "testing/text/failure.h"

static const char *prefix_of(const layer_work *w) { return w->match.root; }

static const attn_archive_tensor *weight_named(const layer_work *w, const char *end)
{
    char name[256];
    snprintf(name, sizeof name, "%s%s", prefix_of(w), end);
    return attn_archive_find(layer_weights_file(w), name);
}

/* The sizes of a matrix among the weights. */
static attn_status size_of(const layer_work *w, const char *end, int64_t *rows, int64_t *columns, attn_error *error)
{
    const attn_archive_tensor *t = weight_named(w, end);
    char shape[SHAPE_TEXT];
    if (!t) return failure(error, ATTN_ERR_ARGUMENT, "no tensor '%.100s%s'", prefix_of(w), end);
    if (t->rank != 2 || t->shape[0] < 1 || t->shape[1] < 1)
        return failure(error, ATTN_ERR_SHAPE, "tensor '%.80s' has shape %.100s; expected [out, in]", t->name,
                       shape_text(shape, t->rank, t->shape));
    *rows = t->shape[0];
    *columns = t->shape[1];
    return ATTN_OK;
}

/* A gradient in the shape of the weight of this name, named "d" and its name; NULL if the layer has no such weight. */
static attn_status add_gradient(layer_work *w, const char *end, attn_output *to, attn_error *error)
{
    const attn_archive_tensor *t = weight_named(w, end);
    char name[64];
    snprintf(name, sizeof name, "d%s", end);
    return t ? layer_add(w, name, t->rank, t->shape, &to->data, error) : ATTN_OK;
}

/* ---- multi-head ---- */

static attn_status multi_head_load(layer_work *w, int rotated, attn_error *error)
{
    const layer_sizes *sizes = &w->sizes;
    const int ends = w->match.family && w->match.family->end == FAMILY_MAY_END && !w->match.found[WEIGHT_OUTPUT];
    w->layer = (attn_layer){.struct_size = sizeof(attn_layer),
                            .dtype = w->x->dtype,
                            .dim_model = layer_width(w->x),
                            .dim_key = w->context ? layer_width(w->context) : 0,
                            .dim_value = w->value ? layer_width(w->value) : 0,
                            .heads_q = sizes->heads,
                            .heads_kv = sizes->heads_kv,
                            .head_dim = sizes->head_dim,
                            .head_dim_v = sizes->head_dim_v,
                            .no_output = w->settings->no_output || ends,
                            .rope = rotated ? &w->rope : NULL,
                            .attention = &w->attention};
    w->rotates = rotated;
    w->width = w->layer.no_output ? sizes->heads * sizes->head_dim_v : layer_output_width(w);
    if (!w->layer.no_output) w->layer.dim_output = w->width;
    const attn_status status = layer_bind_weights(w, error);
    w->extra = status == ATTN_OK && w->weights.extra_key.data;
    if (ends) layer_tell(w, "no output projection");
    return status;
}

static attn_status multi_head_count(layer_work *w, int64_t batch, int64_t len_q, int64_t len_kv, attn_error *error)
{
    return attn_layer_count(&w->layer, batch, len_q, len_kv, &w->weights, &w->counts, error);
}

static attn_status multi_head_forward(const layer_work *w, attn_error *error)
{
    return attn_layer_forward(&w->layer, &w->weights, &w->args, error);
}

static attn_status multi_head_add_gradients(layer_work *w, attn_error *error)
{
    static const char *const names[2][4] = {{"dwq", "dwk", "dwv", "dwo"}, {"dbq", "dbk", "dbv", "dbo"}};
    const attn_layer_weights *from = &w->weights;
    attn_layer_weights *g = &w->gradients;
    const attn_output *biases[] = {&from->query_bias, &from->key_bias, &from->value_bias, &from->output_bias};
    attn_output *to[2][4] = {{&g->query, &g->key, &g->value, &g->output},
                             {&g->query_bias, &g->key_bias, &g->value_bias, &g->output_bias}};
    const attn_layer *l = &w->layer;
    const int64_t key = l->dim_key ? l->dim_key : l->dim_model, value = l->dim_value ? l->dim_value : key,
                  key_dim = w->attention.score.dim_k ? w->attention.score.dim_k : l->head_dim, keys = l->heads_kv * key_dim,
                  values = l->heads_kv * l->head_dim_v,
                  shape[4][2] = {{l->heads_q * l->head_dim, l->dim_model},
                                 {keys, key},
                                 {values, value},
                                 {w->width, l->heads_q * l->head_dim_v}};
    attn_status status = ATTN_OK;
    w->gradients = (attn_layer_weights){.struct_size = sizeof w->gradients};
    for (int i = 0; i < 4 - l->no_output && status == ATTN_OK; i++) {
        status = layer_add(w, names[0][i], 2, shape[i], &to[0][i]->data, error);
        if (status == ATTN_OK && biases[i]->data) status = layer_add(w, names[1][i], 1, shape[i], &to[1][i]->data, error);
    }
    if (!w->weights.extra_key.data) return status;
    if (status == ATTN_OK) status = layer_add(w, "dbias_k", 1, &keys, &w->gradients.extra_key.data, error);
    return status == ATTN_OK ? layer_add(w, "dbias_v", 1, &values, &w->gradients.extra_value.data, error) : status;
}

static attn_status multi_head_backward(const layer_work *w, attn_error *error)
{
    return attn_layer_backward(&w->layer, &w->weights, &w->args, &w->gradients, error);
}

static void multi_head_cache(const layer_work *w, attn_cache *cache)
{
    cache->heads_kv = w->layer.heads_kv;
    cache->dim_qk = w->attention.score.dim_k ? w->attention.score.dim_k : w->layer.head_dim;
    cache->dim_v = w->layer.head_dim_v;
}

static attn_status multi_head_decode(const layer_work *w, const attn_cache *cache, const attn_layer_tensors *args,
                                     attn_error *error)
{
    return attn_layer_decode(&w->layer, &w->weights, cache, args, error);
}

/* ---- latent ---- */

static attn_status latent_load(layer_work *w, int rotated, attn_error *error)
{
    static const char down[] = "kv_a_proj_with_mqa.weight", up[] = "kv_b_proj.weight", out[] = "o_proj.weight";
    const int low = weight_named(w, "q_b_proj.weight") != NULL;
    const char *query = low ? "q_b_proj.weight" : "q_proj.weight";
    const int64_t heads = w->sizes.heads;
    int64_t queries, query_in, wide, model, both, rank, output, values;
    attn_latent *m = &w->latent;
    attn_status status = size_of(w, query, &queries, &query_in, error);
    if (status == ATTN_OK) status = size_of(w, down, &wide, &model, error);
    if (status == ATTN_OK) status = size_of(w, up, &both, &rank, error);
    if (status == ATTN_OK) status = size_of(w, out, &output, &values, error);
    if (status != ATTN_OK) return status;
    if (w->settings->heads_kv || w->settings->head_dim || w->settings->head_dim_v)
        return failure(
            error, ATTN_ERR_ARGUMENT,
            "--heads-kv, --head-dim and --head-dim-v are for multi-head layers; the weights of a latent layer determine them");
    if (rotated)
        return failure(error, ATTN_ERR_ARGUMENT,
                       "--rope is for multi-head layers; the weights of a latent layer determine what is rotated");
    if (queries % heads || both % heads)
        return failure(error, ATTN_ERR_SHAPE,
                       "%s has %" PRId64 " rows and %s %" PRId64 "; both must be multiples of --heads (%" PRId64 ")", query,
                       queries, up, both, heads);
    /* of each head, rows of `query` are its channels and the rotated ones, rows of `up` its channels and its values */
    const int64_t rotary = wide - rank, dim = queries / heads - rotary, dim_v = both / heads - dim;
    if (rotary < 0 || dim < 1 || dim_v < 1)
        return failure(error, ATTN_ERR_SHAPE,
                       "%s has %" PRId64 " rows, %s %" PRId64 " and %s is [%" PRId64 ", %" PRId64 "]: of %" PRId64
                       " heads, no channels are left for the %s",
                       query, queries, down, wide, up, both, rank, heads,
                       rotary < 0 ? "rotated key"
                       : dim < 1  ? "queries"
                                  : "values");
    *m = (attn_latent){.struct_size = sizeof *m,
                       .dtype = w->x->dtype,
                       .dim_model = layer_width(w->x),
                       .dim_output = output,
                       .heads = heads,
                       .head_dim = dim,
                       .head_dim_v = dim_v,
                       .rank = rank,
                       .rank_query = low ? query_in : 0,
                       .dim_rotary = rotary,
                       .rope = rotary ? &w->rope : NULL,
                       .attention = &w->attention};
    w->width = output;
    w->rotates = rotary > 0;
    w->latent_weights.struct_size = sizeof w->latent_weights;
    status = layer_convert_weights(w, error);
    return status == ATTN_OK ? attn_latent_load(m, w->converted, prefix_of(w), &w->latent_weights, error) : status;
}

static attn_status latent_count(layer_work *w, int64_t batch, int64_t len_q, int64_t len_kv, attn_error *error)
{
    return attn_latent_count(&w->latent, batch, len_q, len_kv, &w->latent_weights, &w->counts, error);
}

static attn_status latent_forward(const layer_work *w, attn_error *error)
{
    return attn_latent_forward(&w->latent, &w->latent_weights, &w->args, error);
}

static attn_status latent_add_gradients(layer_work *w, attn_error *error)
{
    attn_latent_weights *g = &w->latent_gradients;
    const int low = w->latent.rank_query != 0;
    *g = (attn_latent_weights){.struct_size = sizeof *g};
    attn_status status = add_gradient(w, low ? "q_b_proj.weight" : "q_proj.weight", &g->query, error);
    if (status == ATTN_OK && low) status = add_gradient(w, "q_a_proj.weight", &g->query_down, error);
    if (status == ATTN_OK && low) status = add_gradient(w, "q_a_layernorm.weight", &g->query_norm, error);
    if (status == ATTN_OK) status = add_gradient(w, "kv_a_proj_with_mqa.weight", &g->down, error);
    if (status == ATTN_OK) status = add_gradient(w, "kv_a_layernorm.weight", &g->norm, error);
    if (status == ATTN_OK) status = add_gradient(w, "kv_b_proj.weight", &g->up, error);
    return status == ATTN_OK ? add_gradient(w, "o_proj.weight", &g->output, error) : status;
}

static attn_status latent_backward(const layer_work *w, attn_error *error)
{
    return attn_latent_backward(&w->latent, &w->latent_weights, &w->args, &w->latent_gradients, error);
}

static void latent_cache(const layer_work *w, attn_cache *cache)
{
    cache->heads_kv = 1;
    cache->dim_qk = w->latent.rank + w->latent.dim_rotary;
    cache->dim_v = w->latent.rank;
}

static attn_status latent_decode(const layer_work *w, const attn_cache *cache, const attn_layer_tensors *args, attn_error *error)
{
    attn_cache latents = *cache; /* the values are the first channels of the keys */
    latents.v = (attn_output){0};
    return attn_latent_decode(&w->latent, &w->latent_weights, &latents, args, error);
}

/* ---- a decoder and its memory ---- */

static attn_status module_load(layer_work *w, attn_score_kind score, int rotated, attn_error *error)
{
    const layer_settings *s = w->settings;
    int64_t hidden = 0, output = 0, in;
    attn_status status = ATTN_OK;
    if (s->heads || s->heads_kv || s->head_dim || s->head_dim_v || rotated)
        status = failure(error, ATTN_ERR_ARGUMENT,
                         "--heads, --heads-kv, --head-dim, --head-dim-v and --rope are not for layers of kind %s", w->kind->name);
    const int native = !w->match.family || w->match.family->native;
    if (status == ATTN_OK && native && score == ATTN_SCORE_ADDITIVE) status = size_of(w, "state.weight", &hidden, &in, error);
    if (status == ATTN_OK && native && weight_named(w, "combine.weight"))
        status = size_of(w, "combine.weight", &output, &in, error);
    w->module = (attn_seq2seq){.struct_size = sizeof w->module,
                               .dtype = w->x->dtype,
                               .score = score,
                               .dim_state = layer_width(w->x),
                               .dim_memory = layer_width(w->context),
                               .dim_hidden = hidden,
                               .dim_output = output,
                               .attention = &w->attention};
    w->module_weights.struct_size = sizeof w->module_weights;
    if (status == ATTN_OK) status = native ? layer_convert_weights(w, error) : layer_bind_module(w, error);
    if (status == ATTN_OK && native) status = attn_seq2seq_load(&w->module, w->converted, prefix_of(w), &w->module_weights, error);
    w->width = w->module.dim_output ? w->module.dim_output : layer_width(w->context);
    return status;
}

static attn_status additive_load(layer_work *w, int rotated, attn_error *error)
{
    return module_load(w, ATTN_SCORE_ADDITIVE, rotated, error);
}

static attn_status general_load(layer_work *w, int rotated, attn_error *error)
{
    return module_load(w, ATTN_SCORE_GENERAL, rotated, error);
}

static attn_status dot_load(layer_work *w, int rotated, attn_error *error)
{
    return module_load(w, ATTN_SCORE_DOT, rotated, error);
}

static attn_status module_count(layer_work *w, int64_t batch, int64_t len_q, int64_t len_kv, attn_error *error)
{
    return attn_seq2seq_count(&w->module, batch, len_q, len_kv, &w->module_weights, &w->counts, error);
}

static attn_status module_forward(const layer_work *w, attn_error *error)
{
    return attn_seq2seq_forward(&w->module, &w->module_weights, &w->args, error);
}

static attn_status module_add_gradients(layer_work *w, attn_error *error)
{
    const attn_seq2seq *m = &w->module;
    const attn_seq2seq_weights *has = &w->module_weights;
    attn_seq2seq_weights *g = &w->module_gradients;
    const int general = m->score == ATTN_SCORE_GENERAL;
    const struct {
        const char *name;
        const attn_output *weight;
        int64_t shape[2]; /* 0: a vector */
        attn_output *to;
    } all[] = {{"dw", &has->w, {general ? m->dim_state : m->dim_hidden, general ? m->dim_memory : 0}, &g->w},
               {"dstate.weight", &has->state, {m->dim_hidden, m->dim_state}, &g->state},
               {"dmemory.weight", &has->memory, {m->dim_hidden, m->dim_memory}, &g->memory},
               {"dbias", &has->bias, {m->dim_hidden, 0}, &g->bias},
               {"dcombine.weight", &has->combine, {m->dim_output, m->dim_memory + m->dim_state}, &g->combine}};
    attn_status status = ATTN_OK;
    *g = (attn_seq2seq_weights){.struct_size = sizeof *g};
    for (size_t n = 0; n < sizeof all / sizeof *all && status == ATTN_OK; n++)
        if (all[n].weight->data) status = layer_add(w, all[n].name, all[n].shape[1] ? 2 : 1, all[n].shape, &all[n].to->data, error);
    return status;
}

static attn_status module_backward(const layer_work *w, attn_error *error)
{
    return attn_seq2seq_backward(&w->module, &w->module_weights, &w->args, &w->module_gradients, error);
}

static void module_cache(const layer_work *w, attn_cache *cache)
{
    cache->heads_kv = 1;
    cache->dim_qk = w->module.dim_hidden ? w->module.dim_hidden : w->module.dim_memory;
    cache->dim_v = w->module.dim_memory;
}

static attn_status module_remember(const layer_work *w, const attn_cache *cache, const attn_layer_tensors *args, attn_error *error)
{
    return attn_seq2seq_remember(&w->module, &w->module_weights, cache, args, error);
}

static attn_status module_step(const layer_work *w, const attn_cache *cache, const attn_layer_tensors *args, attn_error *error)
{
    return attn_seq2seq_step(&w->module, &w->module_weights, cache, args, error);
}

/* ---- the table ---- */

#define MODULE module_count, module_forward, module_add_gradients, module_backward, module_cache, module_remember, module_step
static const layer_kind kinds[] = {
    {"latent", 1, 0, 0, latent_load, latent_count, latent_forward, latent_add_gradients, latent_backward, latent_cache,
     latent_decode, latent_decode},
    {"additive", 0, 1, 0, additive_load, MODULE},
    {"multi-head", 1, 0, 1, multi_head_load, multi_head_count, multi_head_forward, multi_head_add_gradients, multi_head_backward,
     multi_head_cache, multi_head_decode, multi_head_decode},
    {"general", 0, 1, 0, general_load, MODULE},
    {"dot", 0, 1, 0, dot_load, MODULE},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

const char layer_kind_names[] = "multi-head, latent, additive, general or dot";

const layer_kind *layer_kind_named(const char *name)
{
    for (int k = 0; k < KINDS; k++)
        if (strcmp(name, kinds[k].name) == 0) return &kinds[k];
    return NULL;
}
