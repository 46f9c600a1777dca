/* SPDX-License-Identifier: MIT
 *
 * model.c - see model.h. */
#include "model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "attention.h"
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
    attention attention;
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

void model_close(model *m)
{
    if (!m) return;
    weights_close(&m->w);
    free_rows(m);
    attention_free(&m->attention);
    free(m->scratch);
    free(m);
}

const attn_archive *model_file(const model *m) { return m->w.file; }
int64_t model_words(const model *m) { return m->w.words; }
int64_t model_context(const model *m) { return m->w.context; }

int model_make_pages(const model *m, int64_t sequences, int64_t longest, int64_t count, int64_t page_size, attn_dtype keys,
                     attn_dtype values, pages *p)
{
    attn_cache like = {.struct_size = sizeof like,
                       .heads_kv = m->w.heads_kv,
                       .dim_qk = m->w.dim,
                       .dim_v = m->w.dim,
                       .page_size = page_size,
                       .rope = &m->rope};
    like.k.dtype = keys, like.v.dtype = values;
    return pages_make(p, m->w.layers, sequences, longest, count, page_size, &like);
}

static float *numbers(int64_t count) { return malloc((size_t)count * sizeof(float)); }

/* Room for `rows` tokens. */
static attn_status make_room(model *m, int64_t rows, attn_error *error)
{
    const weights *w = &m->w;
    const int64_t keys = w->heads_kv * w->dim;
    if (rows <= m->rows) return ATTN_OK;
    free_rows(m);
    m->rows = rows;
    m->x = numbers(rows * w->width), m->h = numbers(rows * w->width), m->q = numbers(rows * w->width);
    m->o = numbers(rows * w->width), m->k = numbers(rows * keys), m->v = numbers(rows * keys);
    m->gate = numbers(rows * w->hidden), m->up = numbers(rows * w->hidden);
    float *const all[] = {m->x, m->h, m->q, m->k, m->v, m->o, m->gate, m->up};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!all[i]) return m->rows = 0, fail_memory(error);
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

static attn_status run_layer(model *m, const pages *p, int64_t layer, int64_t rows, attn_error *error)
{
    const weights *w = &m->w;
    const layer_weights *l = &w->layer[layer];
    const int64_t E = w->width, F = w->hidden, keys = w->heads_kv * w->dim;
    norm(w, l->norm, m->x, rows, m->h);
    attn_status status = multiply(m, m->h, l->query, m->q, rows, E, E, 0, error);
    if (status == ATTN_OK) status = multiply(m, m->h, l->key, m->k, rows, keys, E, 0, error);
    if (status == ATTN_OK) status = multiply(m, m->h, l->value, m->v, rows, keys, E, 0, error);
    if (status == ATTN_OK) status = attention_layer(&m->attention, p, layer, m->q, m->k, m->v, m->o, error);
    if (status == ATTN_OK) status = multiply(m, m->o, l->output, m->x, rows, E, E, 1, error);
    if (status != ATTN_OK) return status;
    norm(w, l->norm_hidden, m->x, rows, m->h);
    status = multiply(m, m->h, l->gate, m->gate, rows, F, E, 0, error);
    if (status == ATTN_OK) status = multiply(m, m->h, l->up, m->up, rows, F, E, 0, error);
    for (int64_t i = 0; i < rows * F; i++) m->gate[i] = m->gate[i] / (1 + expf(-m->gate[i])) * m->up[i];
    return status == ATTN_OK ? multiply(m, m->gate, l->down, m->x, rows, E, F, 1, error) : status;
}

attn_status model_run(model *m, pages *p, int64_t first, int64_t count, const int *tokens, const int64_t *counts,
                      const int64_t *wanted, float *logits, attn_error *error)
{
    const weights *w = &m->w;
    int64_t rows = 0, last = 0;
    for (int64_t b = 0; b < count; b++) rows += counts[b];
    attn_status status = make_room(m, rows, error);
    if (status != ATTN_OK || rows == 0) return status;
    status = attention_begin(&m->attention, p, first, count, counts, w->heads, &m->options, error);
    if (status != ATTN_OK) return status;
    for (int64_t r = 0; r < rows; r++)
        memcpy(m->x + r * w->width, w->embedding + tokens[r] * w->width, (size_t)w->width * sizeof(float));
    for (int64_t l = 0; l < w->layers && status == ATTN_OK; l++) status = run_layer(m, p, l, rows, error);
    if (status != ATTN_OK) return status;
    attention_end(&m->attention, p);
    rows = 0;
    for (int64_t b = 0; b < count; b++) { /* the rows whose logits are wanted, one after the other */
        rows += counts[b];
        norm(w, w->norm, m->x + (rows - wanted[b]) * w->width, wanted[b], m->h + last * w->width);
        last += wanted[b];
    }
    return multiply(m, m->h, w->logits, logits, last, w->words, w->width, 0, error);
}
