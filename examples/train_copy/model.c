/* SPDX-License-Identifier: MIT
 *
 * model.c - forward and backward through the whole model.  Letters: x [rows][width] is the residual stream, h its norm, f the
 * hidden layer; rows = batch * length. */
#include "model.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attn/product.h"

/* Pointers to the parameters of a block in the array of all. */
typedef struct block {
    float *norm1, *wq, *wk, *wv, *wo, *bo; /* a norm has its gains, then its shifts */
    float *norm2, *w1, *b1, *w2, *b2;
} block;

/* Saved by a block's forward for backward. */
typedef struct trace {
    float *x1, *h1, *x2, *h2, *f; /* x before each norm */
    float *weights;               /* of one sequence: [heads][length][length] */
    void *saved;                  /* of the attention layer */
} trace;

/* Pointers to all parameters, or to their gradients. */
enum { MAX_BLOCKS = 4 };
typedef struct parameters {
    float *tokens, *places, *norm, *out;
    block blocks[MAX_BLOCKS];
} parameters;

struct model {
    model_sizes s;
    int64_t rows;
    learner learner;
    parameters p, g;
    trace traces[MAX_BLOCKS];
    float *x, *h, *logits, *dx, *dh, *df, *scratch;
    int *best;
    attn_problem causal;
    attn_layer layer;
};

/* ---- memory ---- */

/* Where a tensor of the parameters is, and what it is called in a file; those of a block follow "blocks.N.". */
typedef struct place {
    size_t at; /* of the pointer, in parameters or in a block */
    const char *name;
    int64_t rows, columns;
} place;

/* Declares all tensors, or, when they are declared, sets pointers into `base`. */
static void place_all(model *m, const place *places, int count, int64_t n, char *pointers, float *base, int *next)
{
    for (int k = 0; k < count; k++) {
        char name[LEARN_NAME];
        (void)snprintf(name, sizeof name, "%s", places[k].name);
        if (n >= 0) (void)snprintf(name, sizeof name, "blocks.%lld.%s", (long long)n, places[k].name);
        if (!base) (void)learn_tensor_add(&m->learner, name, places[k].rows, places[k].columns);
        else *(float **)(void *)(pointers + places[k].at) = base + m->learner.tensors[(*next)++].at;
    }
}

static void place_parameters(model *m, parameters *p, float *base)
{
    const int64_t E = m->s.width, F = m->s.hidden, V = m->s.vocabulary;
    const place outer[] = {{offsetof(parameters, tokens), "token_embedding", V, E},
                           {offsetof(parameters, places), "position_embedding", m->s.length, E},
                           {offsetof(parameters, norm), "norm", 2, E},
                           {offsetof(parameters, out), "unembedding", V, E}};
    const place inner[] = {
        {offsetof(block, norm1), "norm1", 2, E}, {offsetof(block, wq), "wq", E, E}, {offsetof(block, wk), "wk", E, E},
        {offsetof(block, wv), "wv", E, E},       {offsetof(block, wo), "wo", E, E}, {offsetof(block, bo), "bo", E, 0},
        {offsetof(block, norm2), "norm2", 2, E}, {offsetof(block, w1), "w1", F, E}, {offsetof(block, b1), "b1", F, 0},
        {offsetof(block, w2), "w2", E, F},       {offsetof(block, b2), "b2", E, 0}};
    int next = 0;
    place_all(m, outer, sizeof outer / sizeof *outer, -1, (char *)p, base, &next);
    for (int64_t n = 0; n < m->s.blocks; n++)
        place_all(m, inner, sizeof inner / sizeof *inner, n, (char *)&p->blocks[n], base, &next);
}

static attn_layer_weights layer_weights(const block *b)
{
    return (attn_layer_weights){.struct_size = sizeof(attn_layer_weights),
                                .query = attn_out(b->wq),
                                .key = attn_out(b->wk),
                                .value = attn_out(b->wv),
                                .output = attn_out(b->wo),
                                .output_bias = attn_out(b->bo)};
}

static attn_status initialise(model *m, uint64_t seed)
{
    const model_sizes *s = &m->s;
    uint64_t state = seed + 1;
    learn_draw(m->p.tokens, s->vocabulary * s->width, 0.05, &state);
    learn_draw(m->p.places, s->length * s->width, 0.05, &state);
    learn_draw(m->p.out, s->vocabulary * s->width, 1 / sqrt((double)s->width), &state);
    for (int64_t i = 0; i < s->width; i++) m->p.norm[i] = 1;
    for (int64_t n = 0; n < s->blocks; n++) {
        const block *b = &m->p.blocks[n];
        attn_layer_weights weights = layer_weights(b);
        attn_status status = attn_layer_initialise(&m->layer, ATTN_INIT_XAVIER, seed + (uint64_t)n, &weights, NULL);
        if (status != ATTN_OK) return status;
        for (int64_t i = 0; i < s->width; i++) b->norm1[i] = b->norm2[i] = 1;
        learn_draw(b->w1, s->hidden * s->width, sqrt(6.0 / (double)(s->hidden + s->width)), &state);
        learn_draw(b->w2, s->hidden * s->width, sqrt(6.0 / (double)(s->hidden + s->width)), &state);
    }
    return ATTN_OK;
}

model *model_create(const model_sizes *s, uint64_t seed, const attn_options *options)
{
    model *m = calloc(1, sizeof *m);
    int failed = 0;
    if (!m) return NULL;
    m->s = *s;
    m->rows = s->batch * s->length;
    m->causal = (attn_problem){.struct_size = sizeof m->causal};
    m->causal.mask.causal = 1;
    m->layer = (attn_layer){.struct_size = sizeof m->layer, .dim_model = s->width, .heads_q = s->heads, .attention = &m->causal};
    attn_layer_counts counts = {.struct_size = sizeof counts};
    if (attn_layer_count(&m->layer, s->batch, s->length, s->length, NULL, &counts, NULL) != ATTN_OK) failed = 1;

    m->learner = (learner){.decay1 = 0.9, .decay2 = 0.99, .epsilon = 1e-8, .options = options};
    place_parameters(m, &m->p, NULL);
    failed |= !learn_begin(&m->learner);
    float **streams[] = {&m->x, &m->h, &m->dx, &m->dh, &m->scratch};
    for (int i = 0; i < 5; i++) *streams[i] = learn_floats(m->rows * s->width, &failed);
    m->logits = learn_floats(m->rows * s->vocabulary, &failed);
    m->df = learn_floats(m->rows * s->hidden, &failed);
    m->best = calloc((size_t)m->rows, sizeof *m->best);
    failed |= !m->best;
    for (int64_t n = 0; n < s->blocks; n++) {
        trace *t = &m->traces[n];
        float **parts[] = {&t->x1, &t->h1, &t->x2, &t->h2};
        for (int i = 0; i < 4; i++) *parts[i] = learn_floats(m->rows * s->width, &failed);
        t->f = learn_floats(m->rows * s->hidden, &failed);
        t->weights = learn_floats(s->heads * s->length * s->length, &failed);
        t->saved = aligned_alloc(64, (size_t)counts.saved_bytes + 64 - (size_t)counts.saved_bytes % 64);
        failed |= !t->saved;
    }
    if (!failed) {
        place_parameters(m, &m->p, m->learner.values);
        place_parameters(m, &m->g, m->learner.grads);
        failed = initialise(m, seed) != ATTN_OK;
    }
    if (!failed) return m;
    model_destroy(m);
    return NULL;
}

void model_destroy(model *m)
{
    if (!m) return;
    for (int64_t n = 0; n < m->s.blocks; n++) {
        trace *t = &m->traces[n];
        free(t->x1), free(t->h1), free(t->x2), free(t->h2), free(t->f), free(t->weights), free(t->saved);
    }
    learn_end(&m->learner);
    free(m->x), free(m->h), free(m->dx), free(m->dh), free(m->scratch), free(m->logits), free(m->df), free(m->best);
    free(m);
}

learner *model_learner(model *m) { return &m->learner; }

const float *model_attention(const model *m, int64_t n) { return m->traces[n].weights; }

/* ---- the parts that are not attention ---- */

/* h = (x - mean) / standard deviation * gain + shift, by rows. */
static void norm(const float *x, const float *gain, int64_t rows, int64_t E, float *h)
{
    for (int64_t r = 0; r < rows; r++, x += E, h += E) {
        double mean = 0, square = 0;
        for (int64_t c = 0; c < E; c++) mean += x[c];
        mean /= (double)E;
        for (int64_t c = 0; c < E; c++) square += (x[c] - mean) * (x[c] - mean);
        const double inverse = 1 / sqrt(square / (double)E + 1e-5);
        for (int64_t c = 0; c < E; c++) h[c] = (float)((x[c] - mean) * inverse) * gain[c] + gain[E + c];
    }
}

/* dx += the gradient of x; dgain, and dshift after it, are added to. */
static void norm_backward(const float *x, const float *gain, const float *dh, int64_t rows, int64_t E, float *dx, float *dgain)
{
    for (int64_t r = 0; r < rows; r++, x += E, dh += E, dx += E) {
        double mean = 0, square = 0, sum = 0, along = 0;
        for (int64_t c = 0; c < E; c++) mean += x[c];
        mean /= (double)E;
        for (int64_t c = 0; c < E; c++) square += (x[c] - mean) * (x[c] - mean);
        const double inverse = 1 / sqrt(square / (double)E + 1e-5);
        for (int64_t c = 0; c < E; c++) {
            const double z = (x[c] - mean) * inverse, dz = (double)dh[c] * gain[c];
            sum += dz;
            along += dz * z;
            dgain[c] += (float)(dh[c] * z);
            dgain[E + c] += dh[c];
        }
        for (int64_t c = 0; c < E; c++) {
            const double z = (x[c] - mean) * inverse, dz = (double)dh[c] * gain[c];
            dx[c] += (float)(inverse * (dz - sum / (double)E - z * along / (double)E));
        }
    }
}

/* y [rows][out] = x [rows][in] w^T + b (b may be NULL), or += with add. */
static void linear(model *m, const float *x, const float *w, const float *b, int64_t rows, int64_t in, int64_t out, float *y,
                   int add)
{
    learn_multiply(&m->learner, rows, out, in, attn_in(x), attn_transposed(w, in), attn_out(y), add);
    for (int64_t r = 0; b && r < rows; r++)
        for (int64_t c = 0; c < out; c++) y[r * out + c] += b[c];
}

/* dx (overwritten), dw and db (added to; db may be NULL) from dy. */
static void linear_backward(model *m, const float *x, const float *w, const float *dy, int64_t rows, int64_t in, int64_t out,
                            float *dx, float *dw, float *db)
{
    learn_multiply(&m->learner, rows, in, out, attn_in(dy), attn_in(w), attn_out(dx), 0);
    learn_multiply(&m->learner, out, in, rows, attn_transposed(dy, out), attn_in(x), attn_out(dw), 1);
    for (int64_t r = 0; db && r < rows; r++)
        for (int64_t c = 0; c < out; c++) db[c] += dy[r * out + c];
}

/* ---- a block ---- */

static attn_layer_tensors layer_args(const model *m, const trace *t)
{
    return (attn_layer_tensors){.struct_size = sizeof(attn_layer_tensors),
                                .batch = m->s.batch,
                                .len_q = m->s.length,
                                .query = {.data = t->h1},
                                .options = m->learner.options,
                                .saved = t->saved};
}

static attn_status block_forward(model *m, int64_t n, int look, attn_error *error)
{
    const model_sizes *s = &m->s;
    const block *b = &m->p.blocks[n];
    trace *t = &m->traces[n];
    const int64_t E = s->width, size = m->rows * E;
    attn_layer_tensors args = layer_args(m, t);
    const attn_layer_weights weights = layer_weights(b);
    const attn_tensors looked = {.struct_size = sizeof looked, .weights = attn_out(t->weights)};
    args.output.data = m->scratch;
    if (look) args.attention = &looked;
    memcpy(t->x1, m->x, (size_t)size * sizeof *m->x);
    norm(t->x1, b->norm1, m->rows, E, t->h1);
    attn_status status = attn_layer_forward(&m->layer, &weights, &args, error);
    if (status != ATTN_OK) return status;
    for (int64_t i = 0; i < size; i++) m->x[i] += m->scratch[i];

    memcpy(t->x2, m->x, (size_t)size * sizeof *m->x);
    norm(t->x2, b->norm2, m->rows, E, t->h2);
    linear(m, t->h2, b->w1, b->b1, m->rows, E, s->hidden, t->f, 0);
    for (int64_t i = 0; i < m->rows * s->hidden; i++) t->f[i] = t->f[i] > 0 ? t->f[i] : 0;
    linear(m, t->f, b->w2, NULL, m->rows, s->hidden, E, m->x, 1);
    for (int64_t i = 0; i < size; i++) m->x[i] += b->b2[i % E];
    return ATTN_OK;
}

static attn_status block_backward(model *m, int64_t n, attn_error *error)
{
    const model_sizes *s = &m->s;
    const block *b = &m->p.blocks[n], *g = &m->g.blocks[n];
    const trace *t = &m->traces[n];
    const int64_t E = s->width;
    linear_backward(m, t->f, b->w2, m->dx, m->rows, s->hidden, E, m->df, g->w2, g->b2);
    for (int64_t i = 0; i < m->rows * s->hidden; i++) m->df[i] = t->f[i] > 0 ? m->df[i] : 0;
    linear_backward(m, t->h2, b->w1, m->df, m->rows, E, s->hidden, m->dh, g->w1, g->b1);
    norm_backward(t->x2, b->norm2, m->dh, m->rows, E, m->dx, g->norm2);

    attn_layer_tensors args = layer_args(m, t);
    const attn_layer_weights weights = layer_weights(b), gradients = layer_weights(g);
    args.grad_output.data = m->dx;
    args.grad_query.data = m->dh;
    attn_status status = attn_layer_backward(&m->layer, &weights, &args, &gradients, error);
    if (status == ATTN_OK) norm_backward(t->x1, b->norm1, m->dh, m->rows, E, m->dx, g->norm1);
    return status;
}

/* ---- the whole ---- */

/* The loss; the logits are replaced by their gradient. */
static outcome judge(model *m, const int *targets)
{
    outcome result = {0};
    for (int64_t r = 0; r < m->rows; r++) result.targets += targets[r] >= 0;
    result.loss = learn_loss(m->logits, targets, m->rows, m->s.vocabulary, result.targets, m->best) / (double)result.targets;
    for (int64_t b = 0; b < m->s.batch; b++) {
        int all = 1;
        for (int64_t r = b * m->s.length; r < (b + 1) * m->s.length; r++) {
            const int right = m->best[r] == targets[r];
            result.right += right;
            all &= right || targets[r] < 0;
        }
        result.sequences_right += all;
    }
    return result;
}

static attn_status learn(model *m, const int *tokens, double rate, attn_error *error)
{
    const model_sizes *s = &m->s;
    const int64_t E = s->width;
    memset(m->learner.grads, 0, (size_t)m->learner.count * sizeof *m->learner.grads);
    memset(m->dx, 0, (size_t)(m->rows * E) * sizeof *m->dx);
    linear_backward(m, m->h, m->p.out, m->logits, m->rows, E, s->vocabulary, m->dh, m->g.out, NULL);
    norm_backward(m->x, m->p.norm, m->dh, m->rows, E, m->dx, m->g.norm);
    for (int64_t n = s->blocks - 1; n >= 0; n--) {
        attn_status status = block_backward(m, n, error);
        if (status != ATTN_OK) return status;
    }
    for (int64_t r = 0; r < m->rows; r++)
        for (int64_t c = 0; c < E; c++) {
            m->g.tokens[tokens[r] * E + c] += m->dx[r * E + c];
            m->g.places[r % s->length * E + c] += m->dx[r * E + c];
        }
    if (m->learner.status == ATTN_OK) learn_step(&m->learner, rate);
    return ATTN_OK;
}

/* From tokens to logits. */
static attn_status forward(model *m, const int *tokens, int look, attn_error *error)
{
    const model_sizes *s = &m->s;
    const int64_t E = s->width;
    for (int64_t r = 0; r < m->rows; r++)
        for (int64_t c = 0; c < E; c++) m->x[r * E + c] = m->p.tokens[tokens[r] * E + c] + m->p.places[r % s->length * E + c];
    for (int64_t n = 0; n < s->blocks; n++) {
        attn_status status = block_forward(m, n, look, error);
        if (status != ATTN_OK) return status;
    }
    norm(m->x, m->p.norm, m->rows, E, m->h);
    linear(m, m->h, m->p.out, NULL, m->rows, E, s->vocabulary, m->logits, 0);
    return ATTN_OK;
}

/* Products keep their error. */
static attn_status end(const model *m, attn_status status, attn_error *error)
{
    if (status != ATTN_OK || m->learner.status == ATTN_OK) return status;
    *error = m->learner.error;
    return m->learner.status;
}

attn_status model_run(model *m, const int *tokens, const int *targets, double rate, outcome *result, attn_error *error)
{
    attn_status status = forward(m, tokens, 0, error);
    if (status != ATTN_OK) return status;
    *result = judge(m, targets);
    if (rate > 0) status = learn(m, tokens, rate, error);
    return end(m, status, error);
}

attn_status model_read(model *m, const int *tokens, const float **logits, attn_error *error)
{
    const int64_t batch = m->s.batch;
    m->s.batch = 1, m->rows = m->s.length;
    const attn_status status = forward(m, tokens, 1, error);
    m->s.batch = batch, m->rows = batch * m->s.length;
    *logits = m->logits;
    return end(m, status, error);
}
