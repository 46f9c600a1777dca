/* SPDX-License-Identifier: MIT
 * layers_draw.c - random valid layers, and ways to make one invalid. */
#include <math.h>
#include <string.h>

#include "layers_case.h"

static void make(layers_case *c, int at, block b)
{
    c->blocks[at] = b;
    c->blocks[at].output = at >= Y_GRADIENTS || at == Y_Y || at == Y_MEAN;
    if (!block_allocate(&c->blocks[at])) finding("%s is too large", b.name);
}

/* Rows with gaps. */
static block rows_of(layers_case *c, const char *name, int64_t tokens, int64_t channels)
{
    block b = block_of(name, c->dtype, 0, c->batch, 1, tokens, channels);
    if (!draw_one_in(c->from, 3)) return b;
    b.stride[2] += draw_below(c->from, 5);
    b.stride[0] = b.stride[1] = b.stride[2] * tokens + draw_below(c->from, 5);
    return b;
}

/* A matrix [1, i1, i2, i3]; `turn`: which axes may be permuted, 0 for always dense. */
static block matrix(layers_case *c, const char *name, int64_t i1, int64_t i2, int64_t i3, int turn)
{
    block b = block_of(name, c->dtype, 0, 1, i1, i2, i3);
    if (!turn || !draw_one_in(c->from, 3)) return b;
    if (turn == 1) b.stride[2] = 1, b.stride[1] = i2, b.stride[3] = i1 * i2; /* [model][head][channel] */
    if (turn == 2) b.stride[1] = 1, b.stride[3] = i1, b.stride[2] = i3 * i1; /* [head][channel][model] */
    return b;
}

/* A weight and its gradient. */
static void weight(layers_case *c, int at, const char *name, int64_t i1, int64_t i2, int64_t i3, int turn, int64_t in)
{
    const double most = 1.7 / sqrt((double)(in > 0 ? in : 1));
    make(c, Y_WEIGHTS + at, matrix(c, name, i1, i2, i3, turn));
    block_fill(&c->blocks[Y_WEIGHTS + at], c->from, -most, most, 0);
    make(c, Y_GRADIENTS + Y_WEIGHTS + at, matrix(c, name, i1, i2, i3, turn));
}

static int64_t draw_dim(draws *d) { return 1 + draw_below(d, draw_one_in(d, 4) ? 40 : 9); }

static void draw_heads(layers_case *c)
{
    draws *d = c->from;
    attn_layer *l = &c->layer;
    const int64_t heads = 1 + draw_below(d, 2), group = 1 + draw_below(d, 3);
    *l = (attn_layer){.struct_size = sizeof *l, .dtype = c->dtype, .attention = &c->attention};
    l->heads_kv = heads, l->heads_q = heads * group, l->head_dim = draw_dim(d), l->head_dim_v = draw_dim(d);
    l->dim_model = c->dim_q = draw_dim(d);
    l->dim_key = c->dim_kv = c->len_kv ? draw_dim(d) : c->dim_q;
    l->dim_value = c->dim_v = c->blocks[Y_VALUE].name ? draw_dim(d) : c->dim_kv;
    l->dim_output = c->dim_out = draw_dim(d);
    if (l->head_dim % 2 == 0 && draw_one_in(d, 3)) l->rope = &c->rope;
    c->extra = draw_one_in(d, 5);
    c->weight_count = 10;
    weight(c, 0, "query", l->heads_q, l->head_dim, c->dim_q, 1, c->dim_q);
    weight(c, 1, "key", heads, l->head_dim, c->dim_kv, 1, c->dim_kv);
    weight(c, 2, "value", heads, l->head_dim_v, c->dim_v, 1, c->dim_v);
    weight(c, 3, "output", c->dim_out, l->heads_q, l->head_dim_v, 2, l->heads_q * l->head_dim_v);
    if (draw_one_in(d, 2)) weight(c, 4, "query_bias", l->heads_q, l->head_dim, 1, 0, 4);
    if (draw_one_in(d, 2)) weight(c, 5, "key_bias", heads, l->head_dim, 1, 0, 4);
    if (draw_one_in(d, 2)) weight(c, 6, "value_bias", heads, l->head_dim_v, 1, 0, 4);
    if (draw_one_in(d, 2)) weight(c, 7, "output_bias", 1, 1, c->dim_out, 0, 4);
    if (c->extra)
        weight(c, 8, "extra_key", heads, l->head_dim, 1, 0, 4), weight(c, 9, "extra_value", heads, l->head_dim_v, 1, 0, 4);
}

static void draw_latents(layers_case *c)
{
    draws *d = c->from;
    attn_latent *l = &c->latent;
    *l = (attn_latent){.struct_size = sizeof *l, .dtype = c->dtype, .attention = &c->attention};
    l->heads = 1 + draw_below(d, 4), l->head_dim = draw_dim(d), l->head_dim_v = draw_dim(d), l->rank = draw_dim(d);
    l->rank_query = draw_one_in(d, 2) ? draw_dim(d) : 0, l->dim_rotary = draw_one_in(d, 2) ? 2 * draw_below(d, 5) : 0;
    l->dim_model = c->dim_q = c->dim_kv = c->dim_v = draw_dim(d), l->dim_output = c->dim_out = draw_dim(d);
    c->weight_count = 7;
    const int64_t into = l->rank_query ? l->rank_query : c->dim_q;
    if (l->rank_query) weight(c, 0, "query_down", 1, l->rank_query, c->dim_q, 0, c->dim_q);
    weight(c, 1, "query", l->heads, l->head_dim + l->dim_rotary, into, 0, into);
    weight(c, 2, "down", 1, l->rank + l->dim_rotary, c->dim_q, 0, c->dim_q);
    weight(c, 3, "up", l->heads, l->head_dim + l->head_dim_v, l->rank, 0, l->rank);
    weight(c, 4, "output", c->dim_out, l->heads, l->head_dim_v, 0, l->heads * l->head_dim_v);
    /* A norm of few channels may divide by nearly 0. */
    if (l->rank_query > 3 && draw_one_in(d, 2)) weight(c, 5, "query_norm", 1, 1, l->rank_query, 0, 2);
    if (l->rank > 3 && draw_one_in(d, 2)) weight(c, 6, "norm", 1, 1, l->rank, 0, 2);
}

static void draw_memory(layers_case *c)
{
    draws *d = c->from;
    attn_seq2seq *m = &c->module;
    static const attn_score_kind kinds[] = {ATTN_SCORE_DOT, ATTN_SCORE_GENERAL, ATTN_SCORE_ADDITIVE};
    *m = (attn_seq2seq){.struct_size = sizeof *m, .dtype = c->dtype, .score = kinds[draw_below(d, 3)], .attention = &c->attention};
    m->dim_state = c->dim_q = draw_dim(d), m->dim_memory = c->dim_kv = m->score == ATTN_SCORE_DOT ? c->dim_q : draw_dim(d);
    m->dim_hidden = m->score == ATTN_SCORE_ADDITIVE ? draw_dim(d) : 0, m->dim_output = draw_one_in(d, 2) ? draw_dim(d) : 0;
    c->dim_v = c->dim_kv, c->dim_out = m->dim_output ? m->dim_output : c->dim_kv;
    c->weight_count = 5;
    if (m->score == ATTN_SCORE_GENERAL) weight(c, 0, "w", 1, c->dim_q, c->dim_kv, 0, c->dim_q * c->dim_kv);
    if (m->score == ATTN_SCORE_ADDITIVE) {
        weight(c, 0, "w", 1, 1, m->dim_hidden, 0, m->dim_hidden);
        weight(c, 1, "state", 1, m->dim_hidden, c->dim_q, 0, c->dim_q);
        weight(c, 2, "memory", 1, m->dim_hidden, c->dim_kv, 0, c->dim_kv);
        if (draw_one_in(d, 2)) weight(c, 3, "bias", 1, 1, m->dim_hidden, 0, 4);
    }
    if (m->dim_output) weight(c, 4, "combine", 1, c->dim_out, c->dim_kv + c->dim_q, 0, c->dim_kv + c->dim_q);
}

void layers_place(layers_case *c, int64_t e, int64_t batch)
{
    attn_layer_tensors *t = &c->tensors;
    attn_output slot[Y_BLOCKS];
    for (int i = 0; i < Y_BLOCKS; i++) {
        const block *b = &c->blocks[i];
        slot[i] = block_out(b);
        if (b->bytes && b->shape[0] > 1) slot[i].data = block_at(b, e, 0, 0, 0);
        if (i == Y_MEAN) memset(slot[i].stride, 0, sizeof slot[i].stride);
    }
    *t = (attn_layer_tensors){.struct_size = sizeof *t,
                              .call = &c->call,
                              .batch = batch,
                              .len_q = c->len_q,
                              .len_kv = c->len_kv,
                              .options = &c->options,
                              .output = slot[Y_Y],
                              .weights_mean = slot[Y_MEAN],
                              .grad_query = slot[Y_GRADIENTS + Y_X],
                              .grad_key = slot[Y_GRADIENTS + Y_KEY],
                              .grad_value = slot[Y_GRADIENTS + Y_VALUE]};
    memcpy(&t->query, &slot[Y_X], sizeof slot[0]), memcpy(&t->key, &slot[Y_KEY], sizeof slot[0]);
    memcpy(&t->value, &slot[Y_VALUE], sizeof slot[0]), memcpy(&t->grad_output, &slot[Y_DY], sizeof slot[0]);
    c->core = (attn_tensors){.struct_size = sizeof c->core};
    if (c->masked) c->core.lengths_kv = attn_in(c->lengths + e);
    t->attention = &c->core;
    c->weights.struct_size = c->gradients.struct_size = sizeof(size_t) + (size_t)c->weight_count * sizeof(attn_output);
    for (int i = 0; i < MAX_WEIGHTS; i++) {
        c->weights.slot[i] = slot[Y_WEIGHTS + i], c->gradients.slot[i] = slot[Y_GRADIENTS + Y_WEIGHTS + i];
        /* Biases, and all weights of other kinds, are dense. */
        if (c->kind == OF_HEADS && i < 4) continue;
        memset(c->weights.slot[i].stride, 0, sizeof slot[0].stride), memset(c->gradients.slot[i].stride, 0, sizeof slot[0].stride);
    }
}

void layers_draw(layers_case *c)
{
    draws *d = c->from;
    c->kind = (int)draw_below(d, LAYER_KINDS), c->dtype = draw_one_in(d, 2) ? ATTN_F64 : ATTN_F32;
    c->batch = 1 + draw_below(d, 3), c->len_q = 1 + draw_below(d, draw_one_in(d, 4) ? 40 : 12);
    c->len_kv = c->kind == OF_A_MEMORY || draw_one_in(d, 3) ? 1 + draw_below(d, draw_one_in(d, 4) ? 40 : 12) : 0;
    c->options = (attn_options){.struct_size = sizeof c->options, .threads = 1 + (int)draw_below(d, 3)};
    c->call = (attn_call){.struct_size = sizeof c->call, .dropout_seed = draw_word(d)};
    c->rope = (attn_rope){.struct_size = sizeof c->rope,
                          .pairs = draw_one_in(d, 2) ? ATTN_ROPE_PAIRS_HALVES : ATTN_ROPE_PAIRS_INTERLEAVED};
    c->attention = (attn_problem){.struct_size = sizeof c->attention};
    c->attention.mask.causal = c->kind != OF_A_MEMORY && draw_one_in(d, 2);
    if (draw_one_in(d, 5)) c->attention.score.softcap = 4;
    if (draw_one_in(d, 6)) c->attention.dropout.probability = 0.3;
    c->masked = draw_one_in(d, 3);
    if (c->kind == OF_HEADS && c->len_kv && draw_one_in(d, 2)) c->blocks[Y_VALUE].name = "value";
    if (c->kind == OF_HEADS) draw_heads(c);
    else if (c->kind == OF_LATENTS) draw_latents(c);
    else draw_memory(c);
    const int64_t keys = c->len_kv ? c->len_kv : c->len_q;
    for (int64_t e = 0; e < c->batch; e++) c->lengths[e] = draw_below(d, keys + 1);
    const int value = c->blocks[Y_VALUE].name != NULL;
    make(c, Y_X, rows_of(c, "query", c->len_q, c->dim_q));
    if (c->len_kv) make(c, Y_KEY, rows_of(c, "key", c->len_kv, c->dim_kv));
    if (value) make(c, Y_VALUE, rows_of(c, "value", c->len_kv, c->dim_v));
    make(c, Y_Y, rows_of(c, "output", c->len_q, c->dim_out)), make(c, Y_DY, rows_of(c, "grad_output", c->len_q, c->dim_out));
    if (draw_one_in(d, 3)) make(c, Y_MEAN, block_of("weights_mean", c->dtype, 1, c->batch, 1, c->len_q, keys + c->extra));
    make(c, Y_GRADIENTS + Y_X, rows_of(c, "grad_query", c->len_q, c->dim_q));
    if (c->len_kv) make(c, Y_GRADIENTS + Y_KEY, rows_of(c, "grad_key", c->len_kv, c->dim_kv));
    if (value) make(c, Y_GRADIENTS + Y_VALUE, rows_of(c, "grad_value", c->len_kv, c->dim_v));
    for (int t = Y_X; t <= Y_VALUE; t++) block_fill(&c->blocks[t], d, -1.5, 1.5, 0);
    block_fill(&c->blocks[Y_DY], d, -1, 1, 0);
    layers_place(c, 0, c->batch);
}

const char *layers_corrupt(layers_case *c, int backward)
{
    static const int64_t bad[] = {-1, INT64_MIN, INT64_MAX, (int64_t)1 << 32, (int64_t)1 << 60, INT64_MAX / 2};
    draws *d = c->from;
    attn_layer_tensors *t = &c->tensors;
    int64_t *const dims[] = {&c->layer.dim_model, &c->latent.dim_model, &c->module.dim_state};
    int64_t *const reserved[] = {c->layer.reserved, c->latent.reserved, c->module.reserved};
    size_t *const sizes[] = {&c->layer.struct_size, &c->latent.struct_size, &c->module.struct_size};
    const int count = c->kind == OF_A_MEMORY ? 4 : 8, at = (int)draw_below(d, c->weight_count);
    attn_output *slot = &c->weights.slot[at];
    switch (draw_below(d, 12)) {
    case 0:
    case 1:
        dims[c->kind][draw_below(d, count)] = bad[draw_below(d, 6)];
        return "an invalid size";
    case 2:
        (&t->batch)[draw_below(d, 3)] = bad[draw_below(d, 6)];
        return "an invalid number of tokens";
    case 3:
        reserved[c->kind][draw_below(d, 4)] = 1;
        return "a reserved word";
    case 4:
        *(draw_one_in(d, 2)   ? sizes[c->kind]
          : draw_one_in(d, 2) ? &c->weights.struct_size
                              : &t->struct_size) = (size_t)draw_hostile(d) | 1 << 22;
        return "a struct of megabytes";
    case 5:
        if (!slot->data) return NULL;
        if (c->kind == OF_HEADS && at >= 4 && at < 8) return NULL; /* a layer may have no bias */
        if (c->kind == OF_LATENTS && at >= 5) return NULL;
        if (c->kind == OF_A_MEMORY && at == 3) return NULL;
        memset(slot, 0, sizeof *slot);
        return "a weight is missing";
    case 6:
        slot->data = draw_one_in(d, 2) ? ATTN_MISSING : ATTN_LATER;
        return "ATTN_MISSING or ATTN_LATER";
    case 7:
        if (!slot->data) return NULL;
        slot->dtype = c->dtype == ATTN_F64 ? ATTN_F32 : ATTN_BF16;
        return "a weight of another type";
    case 8:
        if (!c->masked || c->batch < 1) return NULL;
        c->lengths[draw_below(d, c->batch)] = draw_one_in(d, 2) ? -1 : (c->len_kv ? c->len_kv : c->len_q) + 1;
        return "a length beyond the keys";
    case 9:
        if (backward) t->grad_query.data = (void *)(uintptr_t)t->query.data;
        else t->output.data = (void *)(uintptr_t)t->query.data;
        return "an output overlaps the query";
    case 10:
        if (backward) memset(&t->grad_output, 0, sizeof t->grad_output);
        else memset(&t->output, 0, sizeof t->output);
        return "the output, or its gradient, is missing";
    default:
        memset(&t->query, 0, sizeof t->query);
        return "the query is missing";
    }
}
