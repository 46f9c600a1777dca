/* SPDX-License-Identifier: MIT
 * layers_reference.c - checks layers against loops and differences in double, f32 against f64, and decoding against forward. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "attn_ref.h"
#include "layers_case.h"
#include "testing/memory/format.h"

/* The error of some thousand roundings in sums of numbers of about 1, as in tests/layers. */
static double allowed(attn_dtype dtype) { return 4e3 * (dtype == ATTN_F64 ? 0x1p-53 : 0x1p-24); }

static double weight_at(const layers_case *c, int w, int64_t i1, int64_t i2, int64_t i3)
{
    return c->blocks[Y_WEIGHTS + w].name ? block_get(&c->blocks[Y_WEIGHTS + w], 0, i1, i2, i3) : 0;
}

/* Returns [heads][tokens + more][dim]: a projection of entry e's tokens, then the extra key if `more` is 1. */
static double *project(const layers_case *c, int64_t e, int input, int w, int64_t heads, int64_t dim, int64_t tokens, int more)
{
    const block *x = &c->blocks[input];
    double *to = calloc((size_t)(heads * (tokens + more) * dim) + 1, sizeof *to);
    if (!to) abort();
    for (int64_t h = 0; h < heads; h++)
        for (int64_t t = 0; t < tokens + more; t++)
            for (int64_t i = 0; i < dim; i++) {
                double *at = &to[(h * (tokens + more) + t) * dim + i];
                *at = t < tokens ? weight_at(c, 4 + w, h, i, 0) : weight_at(c, 7 + w, h, i, 0);
                for (int64_t m = 0; t < tokens && m < x->shape[3]; m++) *at += block_get(x, e, 0, t, m) * weight_at(c, w, h, i, m);
            }
    return to;
}

/* Rotates rows [heads][tokens][dim] at positions 0, 1, ...; `stride`: rows per head in memory. */
static void rotate(const layers_case *c, double *rows, int64_t heads, int64_t tokens, int64_t stride, int64_t dim)
{
    if (!c->layer.rope) return;
    for (int64_t h = 0; h < heads; h++)
        for (int64_t t = 0; t < tokens; t++)
            for (int64_t i = 0; i < dim / 2; i++) {
                double *row = rows + (h * stride + t) * dim, angle = (double)t * pow(10000, -2 * (double)i / (double)dim);
                const int64_t a = c->rope.pairs == ATTN_ROPE_PAIRS_HALVES ? i : 2 * i,
                              b = c->rope.pairs == ATTN_ROPE_PAIRS_HALVES ? i + dim / 2 : a + 1;
                const double x = row[a], y = row[b];
                row[a] = x * cos(angle) - y * sin(angle), row[b] = x * sin(angle) + y * cos(angle);
            }
}

static void entry_by_loops(const layers_case *c, int64_t e)
{
    const attn_layer *l = &c->layer;
    const int64_t keys = c->len_kv ? c->len_kv : c->len_q, all = keys + c->extra, length = c->masked ? c->lengths[e] : keys;
    const int key = c->blocks[Y_KEY].name ? Y_KEY : Y_X, value = c->blocks[Y_VALUE].name ? Y_VALUE : key;
    double *q = project(c, e, Y_X, 0, l->heads_q, l->head_dim, c->len_q, 0),
           *k = project(c, e, key, 1, l->heads_kv, l->head_dim, keys, c->extra),
           *v = project(c, e, value, 2, l->heads_kv, l->head_dim_v, keys, c->extra),
           *a = calloc((size_t)(l->heads_q * l->head_dim_v), sizeof *a), *w = calloc((size_t)all + 1, sizeof *w);
    if (!a || !w) abort();
    rotate(c, q, l->heads_q, c->len_q, c->len_q, l->head_dim);
    rotate(c, k, l->heads_kv, keys, all, l->head_dim);
    for (int64_t i = 0; i < c->len_q; i++) {
        for (int64_t h = 0; h < l->heads_q; h++) {
            const int64_t g = h / (l->heads_q / l->heads_kv);
            double sum = 0, most = -INFINITY;
            for (int64_t j = 0; j < all; j++) {
                w[j] = -INFINITY;
                if (j < keys && (j >= length || (c->attention.mask.causal && j > i))) continue;
                double s = 0;
                for (int64_t x = 0; x < l->head_dim; x++)
                    s += q[(h * c->len_q + i) * l->head_dim + x] * k[(g * all + j) * l->head_dim + x];
                s /= sqrt((double)l->head_dim);
                if (c->attention.score.softcap > 0) s = c->attention.score.softcap * tanh(s / c->attention.score.softcap);
                most = fmax(most, w[j] = s);
            }
            for (int64_t j = 0; j < all; j++) sum += w[j] = w[j] == -INFINITY ? 0 : exp(w[j] - most);
            for (int64_t x = 0; x < l->head_dim_v; x++) {
                double o = 0;
                for (int64_t j = 0; j < all; j++) o += sum > 0 ? w[j] / sum * v[(g * all + j) * l->head_dim_v + x] : 0;
                a[h * l->head_dim_v + x] = o;
            }
        }
        for (int64_t m = 0; m < c->dim_out; m++) {
            double y = weight_at(c, 7, 0, 0, m);
            for (int64_t h = 0; h < l->heads_q; h++)
                for (int64_t x = 0; x < l->head_dim_v; x++) y += a[h * l->head_dim_v + x] * weight_at(c, 3, m, h, x);
            const double got = block_get(&c->blocks[Y_Y], e, 0, i, m);
            if (!(fabs(got - y) <= allowed(c->dtype) * (1 + fabs(y))))
                finding("loops: output[%d,%d,%d] is %.12g, should be %.12g", (int)e, (int)i, (int)m, got, y);
        }
    }
    free(q), free(k), free(v), free(a), free(w);
}

void layers_by_loops(const layers_case *c)
{
    for (int64_t e = 0; e < c->batch && c->attention.dropout.probability == 0; e++) entry_by_loops(c, e);
}

/* ---- copies ---- */

/* Copies the case to new memory, all of it in `dtype`. */
static void copy(layers_case *to, const layers_case *c, attn_dtype dtype)
{
    *to = *c;
    to->dtype = to->layer.dtype = to->latent.dtype = to->module.dtype = dtype;
    to->layer.attention = to->latent.attention = to->module.attention = &to->attention;
    if (c->layer.rope) to->layer.rope = &to->rope;
    for (int t = 0; t < Y_BLOCKS; t++) {
        const block *from = &c->blocks[t];
        block *b = &to->blocks[t];
        const int64_t *n = from->shape;
        if (!from->name) continue;
        *b = block_of(from->name, dtype, from->output, n[0], n[1], n[2], n[3]);
        if (!block_allocate(b)) abort();
        for (int64_t i = 0; i < n[0]; i++)
            for (int64_t h = 0; h < n[1]; h++)
                for (int64_t k = 0; k < n[2]; k++)
                    for (int64_t x = 0; x < n[3]; x++) block_put(b, i, h, k, x, block_get(from, i, h, k, x));
    }
    layers_place(to, 0, to->batch);
    to->saved = malloc(2 * c->saved_bytes + 64); /* f64 may need twice the bytes of f32 */
    if (!to->saved) abort();
    to->tensors.saved = to->saved;
}

static void drop(layers_case *c)
{
    free(c->saved);
    blocks_free(c->blocks, Y_BLOCKS);
}

static double largest(const block *b)
{
    double most = 0;
    for (int64_t i = 0; i < b->shape[0]; i++)
        for (int64_t h = 0; h < b->shape[1]; h++)
            for (int64_t k = 0; k < b->shape[2]; k++)
                for (int64_t x = 0; x < b->shape[3]; x++) most = fmax(most, fabs(block_get(b, i, h, k, x)));
    return most;
}

/* Compares two blocks of one shape within `bound` of the largest number. */
static void near(const block *is, const block *should, double bound, const char *what)
{
    bound *= 1 + largest(should);
    for (int64_t i = 0; i < is->shape[0]; i++)
        for (int64_t h = 0; h < is->shape[1]; h++)
            for (int64_t k = 0; k < is->shape[2]; k++)
                for (int64_t x = 0; x < is->shape[3]; x++)
                    if (!(fabs(block_get(is, i, h, k, x) - block_get(should, i, h, k, x)) <= bound))
                        finding("%s: %s[%d,%d,%d,%d] is %.12g, should be %.12g, bound %.3g", what, is->name, (int)i, (int)h, (int)k,
                                (int)x, block_get(is, i, h, k, x), block_get(should, i, h, k, x), bound);
}

void layers_by_f64(layers_case *c)
{
    static layers_case wide;
    attn_error error;
    copy(&wide, c, ATTN_F64);
    if (layers_forward(&wide, &error) || layers_backward(&wide, &error)) finding("in f64: rejected: %s", error.message);
    for (int t = 0; t < Y_BLOCKS; t++)
        if (c->blocks[t].output) near(&c->blocks[t], &wide.blocks[t], 8 * allowed(ATTN_F32), "f64");
    drop(&wide);
}

/* ---- gradients ---- */

static double loss(const layers_case *c)
{
    attn_error error;
    double sum = 0;
    if (layers_forward(c, &error)) finding("differences: rejected: %s", error.message);
    for (int64_t e = 0; e < c->batch; e++)
        for (int64_t i = 0; i < c->len_q; i++)
            for (int64_t m = 0; m < c->dim_out; m++)
                sum += block_get(&c->blocks[Y_Y], e, 0, i, m) * block_get(&c->blocks[Y_DY], e, 0, i, m);
    return sum;
}

/* Moves all inputs and weights by `by` in a random direction of `seed`; returns the slope of `base`'s gradients along it. */
static double step(layers_case *c, const layers_case *base, uint64_t seed, double by, double *size)
{
    draws d = draws_from((const uint8_t *)&seed, sizeof seed);
    double slope = 0;
    *size = 1;
    for (int t = 0; t < Y_INPUTS; t++) {
        const block *b = &c->blocks[t];
        if (!b->name) continue;
        for (int64_t i = 0; i < b->shape[0]; i++)
            for (int64_t h = 0; h < b->shape[1]; h++)
                for (int64_t k = 0; k < b->shape[2]; k++)
                    for (int64_t x = 0; x < b->shape[3]; x++) {
                        const double direction = draw_real(&d, -1, 1),
                                     part = direction * block_get(&base->blocks[Y_GRADIENTS + t], i, h, k, x);
                        block_put(b, i, h, k, x, block_get(b, i, h, k, x) + by * direction);
                        slope += part, *size += fabs(part);
                    }
    }
    return slope;
}

void layers_by_differences(layers_case *c)
{
    static layers_case moved;
    const uint64_t seed = draw_word(c->from);
    const double e = 1e-6;
    double size;
    copy(&moved, c, ATTN_F64);
    moved.tensors.saved = NULL;
    const double slope = step(&moved, c, seed, e, &size), up = loss(&moved);
    (void)step(&moved, c, seed, -2 * e, &size);
    const double measured = (up - loss(&moved)) / (2 * e);
    if (!(fabs(slope - measured) <= 1e-6 * size))
        finding("differences: the gradients say %.12g, the outputs %.12g (of %g)", slope, measured, size);
    drop(&moved);
}

/* ---- decoding ---- */

/* Points the slots at `count` tokens from token `first` on. */
static void piece(layers_case *c, int64_t first, int64_t count)
{
    layers_place(c, 0, c->batch);
    attn_layer_tensors *t = &c->tensors;
    t->query.data = block_at(&c->blocks[Y_X], 0, 0, first, 0), t->output.data = block_at(&c->blocks[Y_Y], 0, 0, first, 0);
    t->len_q = t->len_kv = count;
    if (!c->len_kv) t->len_kv = 0;
    memset(&t->weights_mean, 0, sizeof t->weights_mean);
    memset(&t->grad_output, 0, sizeof t->grad_output);
    memset(&t->grad_query, 0, sizeof t->grad_query), memset(&t->grad_key, 0, sizeof t->grad_key);
    memset(&t->grad_value, 0, sizeof t->grad_value);
    t->attention = NULL, t->saved = NULL;
}

/* The type of a cache's keys or values: the layer's, or some format that its rows fit, and as many of their first channels. */
static attn_dtype draw_type(draws *d, attn_dtype dtype, int64_t dim, int64_t first)
{
    static const attn_dtype formats[] = {ATTN_I8, ATTN_F8_E4M3, ATTN_F8_E5M2, ATTN_Q8_0, ATTN_Q4_0, ATTN_Q4_1};
    return dtype != ATTN_F32 || !draw_one_in(d, 3) ? dtype : formats[draw_below(d, dim % ATTN_BLOCK || first % ATTN_BLOCK ? 3 : 6)];
}

void layers_by_steps(layers_case *c)
{
    static layers_case again;
    draws *d = c->from;
    attn_error error;
    const int memory = c->kind == OF_A_MEMORY, latent = c->kind == OF_LATENTS;
    if ((!memory && (c->len_kv || !c->attention.mask.causal || c->masked)) || c->attention.dropout.probability > 0) return;
    copy(&again, c, c->dtype);
    attn_cache cache = {.struct_size = sizeof cache, .batch = c->batch, .heads_kv = memory || latent ? 1 : c->layer.heads_kv};
    cache.capacity = memory ? c->len_kv : c->len_q;
    cache.dim_qk = memory   ? (c->module.dim_hidden ? c->module.dim_hidden : c->dim_kv)
                   : latent ? c->latent.rank + c->latent.dim_rotary
                            : c->layer.head_dim;
    cache.dim_v = memory ? c->dim_kv : latent ? c->latent.rank : c->layer.head_dim_v;
    const attn_dtype key = draw_type(d, c->dtype, cache.dim_qk, latent ? cache.dim_v : 0),
                     value = latent ? key : draw_type(d, c->dtype, cache.dim_v, 0);
    const int64_t heads = cache.heads_kv, tokens = cache.capacity;
    block of[] = {block_of("cache.k", key, 1, c->batch, heads, tokens, format_elements(key, cache.dim_qk)),
                  block_of("cache.v", value, 1, c->batch, heads, tokens, format_elements(value, cache.dim_v)),
                  block_of("cache.k_scale", ATTN_F32, 1, c->batch, heads, tokens, 1),
                  block_of("cache.v_scale", ATTN_F32, 1, c->batch, heads, tokens, 1)};
    int64_t lengths[4] = {0};
    for (int n = 0; n < 4; n++) {
        if (!block_allocate(&of[n])) abort();
        memset(of[n].memory, 0xFF, of[n].bytes);
    }
    cache.k = block_out(&of[0]), cache.lengths = attn_out(lengths);
    if (!latent) cache.v = block_out(&of[1]);
    if (key == ATTN_I8) cache.k_scale = block_out(&of[2]);
    if (value == ATTN_I8 && !latent) cache.v_scale = block_out(&of[3]);
    blocks_canary(again.blocks, Y_BLOCKS, 0xFF);
    if (memory) { /* the whole memory first, then the states piece by piece */
        piece(&again, 0, c->len_q);
        again.tensors.len_kv = c->len_kv;
        const attn_status status =
            attn_seq2seq_remember(&again.module, (const void *)&again.weights, &cache, &again.tensors, &error);
        check_error(status, &error);
        if (status != ATTN_OK) finding("remember: rejected: %s", error.message);
        for (int64_t e = 0; c->masked && e < c->batch; e++) lengths[e] = c->lengths[e];
    }
    for (int64_t first = 0, count; first < c->len_q; first += count) {
        count = 1 + draw_below(d, draw_one_in(d, 2) ? 1 : c->len_q - first);
        piece(&again, first, count);
        if (memory) memset(&again.tensors.key, 0, sizeof again.tensors.key), again.tensors.len_kv = 0;
        const void *w = &again.weights;
        const attn_status status = memory   ? attn_seq2seq_step(&again.module, w, &cache, &again.tensors, &error)
                                   : latent ? attn_latent_decode(&again.latent, w, &cache, &again.tensors, &error)
                                            : attn_layer_decode(&again.layer, w, &cache, &again.tensors, &error);
        check_error(status, &error);
        if (status != ATTN_OK) finding("decode: rejected: %s", error.message);
    }
    /* Over formats outputs are only numbers, in memory of their own. */
    if (key == c->dtype && value == c->dtype)
        near(&again.blocks[Y_Y], &c->blocks[Y_Y], (c->dtype == ATTN_F64 ? 1 : 8) * allowed(c->dtype), "decode");
    blocks_free(of, 4);
    drop(&again);
}
