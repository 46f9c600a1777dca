/* SPDX-License-Identifier: MIT
 *
 * model.c - see model.h. */
#include "model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "attn/product.h"
#include "weights.h"

struct model {
    weights w;
    attn_options options;
    attn_rope rope;
    void *scratch; /* of products */
    size_t scratch_bytes;
    int64_t rows; /* that the arrays below have room for */
    float *x, *h, *q, *k, *v, *o, *gate, *up;
    int64_t padded; /* the same of these, for sequences of different lengths side by side */
    float *pq, *pk, *pv, *po;
};

static attn_status fail_memory(attn_error *error)
{
    *error = (attn_error){.status = ATTN_ERR_MEMORY, .message = "cannot allocate memory"};
    return ATTN_ERR_MEMORY;
}

model *model_open(const char *path, int threads, attn_error *error)
{
    model *m = calloc(1, sizeof *m);
    if (!m) return (void)fail_memory(error), NULL;
    /* The same bits for tokens alone and in chunks. */
    const attn_options options = {.struct_size = sizeof options, .threads = threads, .invariant = 1};
    m->options.struct_size = sizeof m->options;
    if (weights_open(&m->w, path, error) && attn_options_resolve(&options, &m->options, error) == ATTN_OK) {
        m->rope = (attn_rope){.struct_size = sizeof m->rope, .dim_rotary = m->w.rotated, .base = m->w.base};
        return m;
    }
    model_close(m);
    return NULL;
}

static void free_rows(model *m)
{
    float *const all[] = {m->x, m->h, m->q, m->k, m->v, m->o, m->gate, m->up};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
}

static void free_padded(model *m)
{
    float *const all[] = {m->pq, m->pk, m->pv, m->po};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
}

void model_close(model *m)
{
    if (!m) return;
    weights_close(&m->w);
    free_rows(m);
    free_padded(m);
    free(m->scratch);
    free(m);
}

const attn_archive *model_file(const model *m) { return m->w.file; }
int64_t model_words(const model *m) { return m->w.words; }
int64_t model_context(const model *m) { return m->w.context; }

int model_make_pages(const model *m, int64_t sequences, int64_t longest, int64_t count, int64_t page_size, attn_dtype dtype,
                     pages *p)
{
    attn_cache like = {.struct_size = sizeof like,
                       .heads_kv = m->w.heads_kv,
                       .dim_qk = m->w.dim,
                       .dim_v = m->w.dim,
                       .page_size = page_size,
                       .rope = &m->rope};
    like.k.dtype = like.v.dtype = dtype;
    return pages_make(p, m->w.layers, sequences, longest, count, page_size, &like);
}

static float *numbers(int64_t count) { return malloc((size_t)count * sizeof(float)); }

/* Room for `rows` tokens, and, if `padded` is not 0, for that many with padding. */
static attn_status make_room(model *m, int64_t rows, int64_t padded, attn_error *error)
{
    const weights *w = &m->w;
    const int64_t keys = w->heads_kv * w->dim;
    if (rows > m->rows) {
        free_rows(m);
        m->rows = rows;
        m->x = numbers(rows * w->width), m->h = numbers(rows * w->width), m->q = numbers(rows * w->width);
        m->o = numbers(rows * w->width), m->k = numbers(rows * keys), m->v = numbers(rows * keys);
        m->gate = numbers(rows * w->hidden), m->up = numbers(rows * w->hidden);
    }
    if (padded > m->padded) {
        free_padded(m);
        m->padded = padded;
        m->pq = numbers(padded * w->width), m->po = numbers(padded * w->width);
        m->pk = numbers(padded * keys), m->pv = numbers(padded * keys);
    }
    float *const all[] = {m->x, m->h, m->q, m->k, m->v, m->o, m->gate, m->up, m->pq, m->pk, m->pv, m->po};
    for (size_t i = 0; i < (m->padded ? 12 : 8); i++)
        if (!all[i]) return m->rows = m->padded = 0, fail_memory(error);
    return ATTN_OK;
}

/* y[rows][out] = x[rows][in] w[in][out], added to y if `add`. */
static attn_status multiply(model *m, const float *x, const float *w, float *y, int64_t rows, int64_t out, int64_t in, int add,
                            attn_error *error)
{
    const attn_product_problem p = {.struct_size = sizeof p, .add = add, .rows = rows, .columns = out, .inner = in};
    const attn_product_tensors t = {.struct_size = sizeof t, .a = attn_in(x), .b = attn_in(w), .c = attn_out(y)};
    size_t bytes;
    attn_status status = attn_product_workspace_size(&p, &bytes, &m->options, error);
    if (status != ATTN_OK) return status;
    if (bytes > m->scratch_bytes) {
        free(m->scratch);
        m->scratch = malloc(bytes);
        m->scratch_bytes = m->scratch ? bytes : 0;
        if (!m->scratch) return fail_memory(error);
    }
    return attn_product_in(&p, &t, m->scratch, m->scratch_bytes, &m->options, error);
}

static void norm(const weights *w, const float *gain, const float *x, int64_t rows, float *y)
{
    for (int64_t r = 0; r < rows; r++, x += w->width, y += w->width) {
        double square = 0;
        for (int64_t i = 0; i < w->width; i++) square += (double)x[i] * (double)x[i];
        const float scale = (float)(1 / sqrt(square / (double)w->width + w->epsilon));
        for (int64_t i = 0; i < w->width; i++) y[i] = x[i] * scale * gain[i];
    }
}

/* Copies the rows of each sequence between arrays without padding and arrays of `len` rows a sequence. */
static void pad(int back, int64_t count, const int64_t *counts, int64_t len, int64_t width, float *rows, float *padded)
{
    for (int64_t b = 0; b < count; b++, padded += len * width) {
        const size_t bytes = (size_t)(counts[b] * width) * sizeof *rows;
        if (back) memcpy(rows, padded, bytes);
        else memcpy(padded, rows, bytes);
        rows += counts[b] * width;
    }
}

/* Rows [batch][len][heads][dim]. */
static attn_input laid(const float *rows, int64_t len, int64_t heads, int64_t dim)
{
    const attn_input slot = {.data = rows, .stride = {len * heads * dim, dim, heads * dim, 1}};
    return slot;
}

/* Appends the keys and values of one layer to its cache and lets the queries attend to it. */
static attn_status attend(model *m, const attn_cache *cache, const int64_t *counts, int64_t len, attn_error *error)
{
    const weights *w = &m->w;
    const int64_t B = cache->batch, keys = w->heads_kv * w->dim;
    int64_t rows = 0;
    for (int64_t b = 0; b < B; b++) rows += counts[b];
    const int even = rows == B * len; /* there is no padding */
    if (!even) {
        pad(0, B, counts, len, w->width, m->q, m->pq);
        pad(0, B, counts, len, keys, m->k, m->pk);
        pad(0, B, counts, len, keys, m->v, m->pv);
    }
    const attn_cache_tokens tokens = {.struct_size = sizeof tokens,
                                      .len = len,
                                      .k = laid(even ? m->k : m->pk, len, w->heads_kv, w->dim),
                                      .v = laid(even ? m->v : m->pv, len, w->heads_kv, w->dim),
                                      .lengths = {.data = counts, .dtype = ATTN_I64}};
    const attn_problem problem = {.struct_size = sizeof problem, .shape.heads_q = w->heads};
    attn_tensors tensors = {.struct_size = sizeof tensors, .o = attn_out(even ? m->o : m->po)};
    tensors.q = laid(even ? m->q : m->pq, len, w->heads, w->dim);
    memcpy(tensors.o.stride, tensors.q.stride, sizeof tensors.o.stride);
    const attn_status status = attn_cache_attend(cache, &tokens, &problem, &tensors, &m->options, error);
    if (!even) pad(1, B, counts, len, w->width, m->o, m->po);
    return status;
}

static attn_status run_layer(model *m, const layer_weights *l, const attn_cache *cache, const int64_t *counts, int64_t len,
                             int64_t rows, attn_error *error)
{
    const weights *w = &m->w;
    const int64_t E = w->width, F = w->hidden, keys = w->heads_kv * w->dim;
    norm(w, l->norm, m->x, rows, m->h);
    attn_status status = multiply(m, m->h, l->query, m->q, rows, E, E, 0, error);
    if (status == ATTN_OK) status = multiply(m, m->h, l->key, m->k, rows, keys, E, 0, error);
    if (status == ATTN_OK) status = multiply(m, m->h, l->value, m->v, rows, keys, E, 0, error);
    if (status == ATTN_OK) status = attend(m, cache, counts, len, error);
    if (status == ATTN_OK) status = multiply(m, m->o, l->output, m->x, rows, E, E, 1, error);
    if (status != ATTN_OK) return status;
    norm(w, l->norm_hidden, m->x, rows, m->h);
    status = multiply(m, m->h, l->gate, m->gate, rows, F, E, 0, error);
    if (status == ATTN_OK) status = multiply(m, m->h, l->up, m->up, rows, F, E, 0, error);
    for (int64_t i = 0; i < rows * F; i++) m->gate[i] = m->gate[i] / (1 + expf(-m->gate[i])) * m->up[i];
    return status == ATTN_OK ? multiply(m, m->gate, l->down, m->x, rows, E, F, 1, error) : status;
}

attn_status model_run(model *m, const pages *p, int64_t first, int64_t count, const int *tokens, const int64_t *counts,
                      const int64_t *wanted, float *logits, attn_error *error)
{
    const weights *w = &m->w;
    int64_t rows = 0, len = 0, last = 0;
    for (int64_t b = 0; b < count; b++) {
        rows += counts[b];
        if (counts[b] > len) len = counts[b];
    }
    attn_status status = make_room(m, rows, rows < count * len ? count * len : 0, error);
    if (status != ATTN_OK || rows == 0) return status;
    for (int64_t r = 0; r < rows; r++)
        memcpy(m->x + r * w->width, w->embedding + tokens[r] * w->width, (size_t)w->width * sizeof(float));
    for (int64_t l = 0; l < w->layers && status == ATTN_OK; l++) {
        const attn_cache cache = pages_of(p, l, first, count);
        status = run_layer(m, &w->layer[l], &cache, counts, len, rows, error);
    }
    if (status != ATTN_OK) return status;
    rows = 0;
    for (int64_t b = 0; b < count; b++) { /* the rows whose logits are wanted, one after the other */
        rows += counts[b];
        norm(w, w->norm, m->x + (rows - wanted[b]) * w->width, wanted[b], m->h + last * w->width);
        last += wanted[b];
    }
    return multiply(m, m->h, w->logits, logits, last, w->words, w->width, 0, error);
}
