/* SPDX-License-Identifier: MIT
 * layer_forms.c - the two structs of libattn_layers that the layers of attn bench are: their sizes, weights and functions. */
#include "layer.h"

#include "cli/measure/draw.h"

void *layer_draw(layer_work *w, int64_t count)
{
    const attn_dtype dtype = problem_dtype(&w->o.spec);
    const size_t bytes = (size_t)count * attn_dtype_size(dtype);
    void *memory = data_keep(w->data, bytes);
    draw_numbers(&w->random, dtype, memory, bytes);
    return memory;
}

/* A slot of this many numbers, all heads, rows and columns. */
static attn_output weight(layer_work *w, int64_t count) { return attn_out(layer_draw(w, count)); }

static int is_cached(const layer_work *w) { return w->o.spec.op == SPEC_DECODE; }
static int is_backward(const layer_work *w) { return w->o.spec.op == SPEC_BACKWARD; }
static attn_dtype dtype_of(const layer_work *w) { return problem_dtype(&w->o.spec); }

/* ---- multi-head and grouped ---- */

static attn_status make_heads(layer_work *w, attn_error *error)
{
    const attn_shape *s = &w->o.spec.shape;
    const int64_t m = w->o.model;
    attn_layer_weights *const of[] = {&w->weights, &w->gradients};
    w->layer = (attn_layer){.struct_size = sizeof w->layer,
                            .dtype = dtype_of(w),
                            .dim_model = m,
                            .heads_q = s->heads_q,
                            .heads_kv = s->heads_kv,
                            .head_dim = s->dim_qk,
                            .head_dim_v = s->dim_v,
                            .rope = w->o.spec.rope ? &w->rope : NULL,
                            .attention = &w->attention};
    for (int k = 0; k < (is_backward(w) ? 2 : 1); k++)
        *of[k] = (attn_layer_weights){.struct_size = sizeof(attn_layer_weights),
                                      .query = weight(w, s->heads_q * s->dim_qk * m),
                                      .key = weight(w, s->heads_kv * s->dim_qk * m),
                                      .value = weight(w, s->heads_kv * s->dim_v * m),
                                      .output = weight(w, m * s->heads_q * s->dim_v)};
    attn_status status = attn_layer_initialise(&w->layer, ATTN_INIT_XAVIER, w->o.spec.seed, &w->weights, error);
    if (status == ATTN_OK) status = attn_layer_count(&w->layer, s->batch, s->len_q, s->len_q, &w->weights, &w->counts, error);
    return status;
}

static void size_heads(const layer_work *w, attn_cache *cache)
{
    cache->heads_kv = w->layer.heads_kv;
    cache->dim_qk = w->layer.head_dim;
    cache->dim_v = w->layer.head_dim_v;
}

static attn_shape heads_attend(const layer_work *w) { return w->o.spec.shape; }

static double project_heads(const layer_work *w)
{
    const attn_shape *s = &w->o.spec.shape;
    return w->counts.flops - 2.0 * (double)(s->batch * s->heads_q * s->len_q * s->len_q) * (double)(s->dim_qk + s->dim_v);
}

static attn_status forward_heads(const layer_work *w, attn_error *error)
{
    return attn_layer_forward(&w->layer, &w->weights, &w->args, error);
}

static attn_status backward_heads(const layer_work *w, attn_error *error)
{
    return attn_layer_backward(&w->layer, &w->weights, &w->args, &w->gradients, error);
}

static attn_status decode_heads(const layer_work *w, attn_error *error)
{
    return attn_layer_decode(&w->layer, &w->weights, &w->cache, &w->args, error);
}

/* ---- latent ---- */

static attn_status make_latent(layer_work *w, attn_error *error)
{
    const operand *o = &w->o;
    const attn_shape *s = &o->spec.shape;
    const int64_t m = o->model, H = s->heads_q, wide = o->rank + o->rotary, low = o->rank_query;
    attn_latent_weights *const of[] = {&w->latent_weights, &w->latent_gradients};
    w->latent = (attn_latent){.struct_size = sizeof w->latent,
                              .dtype = dtype_of(w),
                              .dim_model = m,
                              .heads = H,
                              .head_dim = s->dim_qk,
                              .head_dim_v = s->dim_v,
                              .rank = o->rank,
                              .rank_query = low,
                              .dim_rotary = o->rotary,
                              .attention = &w->attention};
    for (int k = 0; k < (is_backward(w) ? 2 : 1); k++)
        *of[k] = (attn_latent_weights){.struct_size = sizeof(attn_latent_weights),
                                       .query_down = low ? weight(w, low * m) : (attn_output){0},
                                       .query = weight(w, H * (s->dim_qk + o->rotary) * (low ? low : m)),
                                       .down = weight(w, wide * m),
                                       .up = weight(w, H * (s->dim_qk + s->dim_v) * o->rank),
                                       .output = weight(w, m * H * s->dim_v)};
    attn_status status = attn_latent_initialise(&w->latent, ATTN_INIT_XAVIER, o->spec.seed, &w->latent_weights, error);
    if (status == ATTN_OK)
        status = attn_latent_count(&w->latent, s->batch, s->len_q, s->len_q, &w->latent_weights, &w->counts, error);
    return status;
}

static void size_latents(const layer_work *w, attn_cache *cache)
{
    cache->heads_kv = 1;
    cache->dim_qk = w->latent.rank + w->latent.dim_rotary;
    cache->dim_v = w->latent.rank;
}

/* Over a cache of latents there is one key head, whose values are the first channels of its keys. */
static attn_shape latents_attend(const layer_work *w)
{
    attn_shape s = w->o.spec.shape;
    s.dim_qk += w->latent.dim_rotary;
    if (is_cached(w)) s.heads_kv = 1, s.dim_qk = w->latent.rank + w->latent.dim_rotary, s.dim_v = w->latent.rank;
    return s;
}

/* Over a cache, queries and sums are multiplied by a half of `up` each, instead of keys and values by both: as many operations for
 * a token, since these are all heads' too. */
static double project_latents(const layer_work *w)
{
    const attn_shape *s = &w->o.spec.shape;
    const int64_t pairs = s->batch * s->heads_q * s->len_q * s->len_q;
    return w->counts.flops - 2.0 * (double)pairs * (double)(s->dim_qk + w->latent.dim_rotary + s->dim_v);
}

static attn_status forward_latent(const layer_work *w, attn_error *error)
{
    return attn_latent_forward(&w->latent, &w->latent_weights, &w->args, error);
}

static attn_status backward_latent(const layer_work *w, attn_error *error)
{
    return attn_latent_backward(&w->latent, &w->latent_weights, &w->args, &w->latent_gradients, error);
}

static attn_status decode_latents(const layer_work *w, attn_error *error)
{
    return attn_latent_decode(&w->latent, &w->latent_weights, &w->cache, &w->args, error);
}

const layer_functions *layer_functions_of(layer_form form)
{
    static const layer_functions heads = {make_heads,    size_heads,     heads_attend, project_heads,
                                          forward_heads, backward_heads, decode_heads},
                                 latent = {make_latent,    size_latents,    latents_attend, project_latents,
                                           forward_latent, backward_latent, decode_latents};
    return form == LAYER_MLA ? &latent : &heads;
}
