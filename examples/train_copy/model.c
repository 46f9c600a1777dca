/* SPDX-License-Identifier: MIT
 *
 * model.c - forward and backward through the whole model.  Letters: x [rows][width] is the residual stream, h its norm, f the
 * hidden layer; rows = batch * length. */
#include "model.h"

#include <math.h>
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
    float *mean;                  /* weights, averaged over heads */
    void *saved;                  /* of the attention layer */
} trace;

struct model {
    sizes s;
    int64_t rows, count, steps;
    float *weights, *grads, *moment1, *moment2; /* [count] */
    float *tokens, *tokens_grad, *places, *places_grad, *norm, *norm_grad, *out, *out_grad;
    block *blocks, *grad_blocks;
    trace *traces;
    float *x, *h, *logits, *dx, *dh, *df, *scratch;
    attn_problem causal;
    attn_layer layer;
};

/* ---- memory ---- */

static float *next(float **at, int64_t count)
{
    float *here = *at;
    *at += count;
    return here;
}

/* Sets pointers into the array of all parameters; returns their number. */
static int64_t place(const sizes *s, float *base, float **tokens, float **places, float **norm, float **out, block *blocks)
{
    float *at = base;
    const int64_t E = s->width, F = s->hidden;
    *tokens = next(&at, s->vocabulary * E);
    *places = next(&at, s->length * E);
    *norm = next(&at, 2 * E);
    *out = next(&at, s->vocabulary * E);
    for (int64_t n = 0; n < s->blocks; n++) {
        block *b = &blocks[n];
        b->norm1 = next(&at, 2 * E);
        b->wq = next(&at, E * E), b->wk = next(&at, E * E), b->wv = next(&at, E * E), b->wo = next(&at, E * E);
        b->bo = next(&at, E);
        b->norm2 = next(&at, 2 * E);
        b->w1 = next(&at, F * E), b->b1 = next(&at, F);
        b->w2 = next(&at, E * F), b->b2 = next(&at, E);
    }
    return at - base;
}

static int64_t count_parameters(const sizes *s)
{
    const int64_t E = s->width, F = s->hidden, of_block = 4 * E + 4 * E * E + E + 2 * E * F + F + E;
    return 2 * s->vocabulary * E + s->length * E + 2 * E + s->blocks * of_block;
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

/* Uniform numbers for the matrices outside of attention, from a 64-bit generator (Knuth's MMIX). */
static void draw(float *w, int64_t count, double reach, uint64_t *state)
{
    for (int64_t i = 0; i < count; i++) {
        *state = *state * 6364136223846793005u + 1442695040888963407u;
        w[i] = (float)(reach * ((double)(int64_t)(*state >> 33) / (1 << 30) - 1));
    }
}

static attn_status initialise(model *m, uint64_t seed)
{
    const sizes *s = &m->s;
    uint64_t state = seed + 1;
    draw(m->tokens, s->vocabulary * s->width, 0.05, &state);
    draw(m->places, s->length * s->width, 0.05, &state);
    draw(m->out, s->vocabulary * s->width, 1 / sqrt((double)s->width), &state);
    for (int64_t i = 0; i < s->width; i++) m->norm[i] = 1;
    for (int64_t n = 0; n < s->blocks; n++) {
        block *b = &m->blocks[n];
        attn_layer_weights weights = layer_weights(b);
        attn_status status = attn_layer_initialise(&m->layer, ATTN_INIT_XAVIER, seed + (uint64_t)n, &weights, NULL);
        if (status != ATTN_OK) return status;
        for (int64_t i = 0; i < s->width; i++) b->norm1[i] = b->norm2[i] = 1;
        draw(b->w1, s->hidden * s->width, sqrt(6.0 / (double)(s->hidden + s->width)), &state);
        draw(b->w2, s->hidden * s->width, sqrt(6.0 / (double)(s->hidden + s->width)), &state);
    }
    return ATTN_OK;
}

static float *floats(int64_t count, int *failed)
{
    float *memory = calloc((size_t)count, sizeof *memory);
    if (!memory) *failed = 1;
    return memory;
}

model *model_create(const sizes *s, uint64_t seed)
{
    model *m = calloc(1, sizeof *m);
    int failed = 0;
    if (!m) return NULL;
    m->s = *s;
    m->rows = s->batch * s->length;
    m->count = count_parameters(s);
    m->causal = (attn_problem){.struct_size = sizeof m->causal};
    m->causal.mask.causal = 1;
    m->layer = (attn_layer){.struct_size = sizeof m->layer, .dim_model = s->width, .heads_q = s->heads, .attention = &m->causal};
    attn_layer_counts counts = {.struct_size = sizeof counts};
    if (attn_layer_count(&m->layer, s->batch, s->length, s->length, NULL, &counts, NULL) != ATTN_OK) failed = 1;

    float **parameters[] = {&m->weights, &m->grads, &m->moment1, &m->moment2};
    for (int i = 0; i < 4; i++) *parameters[i] = floats(m->count, &failed);
    float **streams[] = {&m->x, &m->h, &m->dx, &m->dh, &m->scratch};
    for (int i = 0; i < 5; i++) *streams[i] = floats(m->rows * s->width, &failed);
    m->logits = floats(m->rows * s->vocabulary, &failed);
    m->df = floats(m->rows * s->hidden, &failed);
    m->blocks = calloc((size_t)s->blocks, sizeof *m->blocks);
    m->grad_blocks = calloc((size_t)s->blocks, sizeof *m->grad_blocks);
    m->traces = calloc((size_t)s->blocks, sizeof *m->traces);
    failed |= !m->blocks || !m->grad_blocks || !m->traces;
    for (int64_t n = 0; n < s->blocks && m->traces; n++) {
        trace *t = &m->traces[n];
        float **parts[] = {&t->x1, &t->h1, &t->x2, &t->h2};
        for (int i = 0; i < 4; i++) *parts[i] = floats(m->rows * s->width, &failed);
        t->f = floats(m->rows * s->hidden, &failed);
        t->mean = floats(m->rows * s->length, &failed);
        t->saved = aligned_alloc(64, (size_t)counts.saved_bytes + 64 - (size_t)counts.saved_bytes % 64);
        failed |= !t->saved;
    }
    if (!failed) {
        (void)place(s, m->weights, &m->tokens, &m->places, &m->norm, &m->out, m->blocks);
        (void)place(s, m->grads, &m->tokens_grad, &m->places_grad, &m->norm_grad, &m->out_grad, m->grad_blocks);
        failed = initialise(m, seed) != ATTN_OK;
    }
    if (!failed) return m;
    model_destroy(m);
    return NULL;
}

void model_destroy(model *m)
{
    if (!m) return;
    for (int64_t n = 0; n < m->s.blocks && m->traces; n++) {
        trace *t = &m->traces[n];
        free(t->x1), free(t->h1), free(t->x2), free(t->h2), free(t->f), free(t->mean), free(t->saved);
    }
    free(m->weights), free(m->grads), free(m->moment1), free(m->moment2);
    free(m->x), free(m->h), free(m->dx), free(m->dh), free(m->scratch), free(m->logits), free(m->df);
    free(m->blocks), free(m->grad_blocks), free(m->traces);
    free(m);
}

int64_t model_parameters(const model *m) { return m->count; }

const float *model_attention(const model *m, int64_t n) { return m->traces[n].mean; }

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

/* C [rows][columns] = A B, or += with add.  It can only fail for lack of memory. */
static void multiply(int64_t rows, int64_t columns, int64_t inner, attn_input a, attn_input b, float *c, int add)
{
    const attn_product_problem p = {.struct_size = sizeof p, .rows = rows, .columns = columns, .inner = inner, .add = add};
    const attn_product_tensors t = {.struct_size = sizeof t, .a = a, .b = b, .c = attn_out(c)};
    attn_error error;
    if (attn_product(&p, &t, NULL, &error) == ATTN_OK) return;
    (void)fprintf(stderr, "%s\n", error.message);
    exit(1);
}

/* y [rows][out] = x [rows][in] w^T + b (b may be NULL), or += with add. */
static void linear(const float *x, const float *w, const float *b, int64_t rows, int64_t in, int64_t out, float *y, int add)
{
    multiply(rows, out, in, attn_in(x), attn_transposed(w, in), y, add);
    for (int64_t r = 0; b && r < rows; r++)
        for (int64_t c = 0; c < out; c++) y[r * out + c] += b[c];
}

/* dx (overwritten), dw and db (added to; db may be NULL) from dy. */
static void linear_backward(const float *x, const float *w, const float *dy, int64_t rows, int64_t in, int64_t out, float *dx,
                            float *dw, float *db)
{
    multiply(rows, in, out, attn_in(dy), attn_in(w), dx, 0);
    multiply(out, in, rows, attn_transposed(dy, out), attn_in(x), dw, 1);
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
                                .saved = t->saved};
}

static attn_status block_forward(model *m, int64_t n, int look, attn_error *error)
{
    const sizes *s = &m->s;
    const block *b = &m->blocks[n];
    trace *t = &m->traces[n];
    const int64_t E = s->width, size = m->rows * E;
    attn_layer_tensors args = layer_args(m, t);
    const attn_layer_weights weights = layer_weights(b);
    args.output.data = m->scratch;
    if (look) args.weights_mean = attn_out(t->mean);
    memcpy(t->x1, m->x, (size_t)size * sizeof *m->x);
    norm(t->x1, b->norm1, m->rows, E, t->h1);
    attn_status status = attn_layer_forward(&m->layer, &weights, &args, error);
    if (status != ATTN_OK) return status;
    for (int64_t i = 0; i < size; i++) m->x[i] += m->scratch[i];

    memcpy(t->x2, m->x, (size_t)size * sizeof *m->x);
    norm(t->x2, b->norm2, m->rows, E, t->h2);
    linear(t->h2, b->w1, b->b1, m->rows, E, s->hidden, t->f, 0);
    for (int64_t i = 0; i < m->rows * s->hidden; i++) t->f[i] = t->f[i] > 0 ? t->f[i] : 0;
    linear(t->f, b->w2, NULL, m->rows, s->hidden, E, m->x, 1);
    for (int64_t i = 0; i < size; i++) m->x[i] += b->b2[i % E];
    return ATTN_OK;
}

static attn_status block_backward(model *m, int64_t n, attn_error *error)
{
    const sizes *s = &m->s;
    const block *b = &m->blocks[n], *g = &m->grad_blocks[n];
    const trace *t = &m->traces[n];
    const int64_t E = s->width;
    linear_backward(t->f, b->w2, m->dx, m->rows, s->hidden, E, m->df, g->w2, g->b2);
    for (int64_t i = 0; i < m->rows * s->hidden; i++) m->df[i] = t->f[i] > 0 ? m->df[i] : 0;
    linear_backward(t->h2, b->w1, m->df, m->rows, E, s->hidden, m->dh, g->w1, g->b1);
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

/* Softmax and loss; the logits are replaced by their gradient. */
static outcome judge(model *m, const int *targets)
{
    const int64_t V = m->s.vocabulary;
    outcome result = {0, 0};
    int64_t wanted = 0;
    for (int64_t r = 0; r < m->rows; r++) wanted += targets[r] >= 0;
    for (int64_t b = 0; b < m->s.batch; b++) {
        int right = 1;
        for (int64_t i = 0; i < m->s.length; i++) {
            const int64_t r = b * m->s.length + i;
            float *z = m->logits + r * V;
            int64_t best = 0;
            double sum = 0;
            if (targets[r] < 0) {
                memset(z, 0, (size_t)V * sizeof *z);
                continue;
            }
            for (int64_t c = 1; c < V; c++) best = z[c] > z[best] ? c : best;
            const double top = z[best];
            for (int64_t c = 0; c < V; c++) sum += exp(z[c] - top);
            result.loss += (log(sum) + top - z[targets[r]]) / (double)wanted;
            right &= best == targets[r];
            for (int64_t c = 0; c < V; c++) z[c] = (float)((exp(z[c] - top) / sum - (c == targets[r] ? 1 : 0)) / (double)wanted);
        }
        result.sequences_right += right;
    }
    return result;
}

static void adam(model *m, double rate)
{
    const double b1 = 0.9, b2 = 0.99;
    m->steps++;
    const double scale1 = 1 / (1 - pow(b1, (double)m->steps)), scale2 = 1 / (1 - pow(b2, (double)m->steps));
    for (int64_t i = 0; i < m->count; i++) {
        const double g = m->grads[i];
        m->moment1[i] = (float)(b1 * m->moment1[i] + (1 - b1) * g);
        m->moment2[i] = (float)(b2 * m->moment2[i] + (1 - b2) * g * g);
        m->weights[i] -= (float)(rate * m->moment1[i] * scale1 / (sqrt(m->moment2[i] * scale2) + 1e-8));
    }
}

static attn_status learn(model *m, const int *tokens, double rate, attn_error *error)
{
    const sizes *s = &m->s;
    const int64_t E = s->width;
    memset(m->grads, 0, (size_t)m->count * sizeof *m->grads);
    memset(m->dx, 0, (size_t)(m->rows * E) * sizeof *m->dx);
    linear_backward(m->h, m->out, m->logits, m->rows, E, s->vocabulary, m->dh, m->out_grad, NULL);
    norm_backward(m->x, m->norm, m->dh, m->rows, E, m->dx, m->norm_grad);
    for (int64_t n = s->blocks - 1; n >= 0; n--) {
        attn_status status = block_backward(m, n, error);
        if (status != ATTN_OK) return status;
    }
    for (int64_t r = 0; r < m->rows; r++)
        for (int64_t c = 0; c < E; c++) {
            m->tokens_grad[tokens[r] * E + c] += m->dx[r * E + c];
            m->places_grad[r % s->length * E + c] += m->dx[r * E + c];
        }
    adam(m, rate);
    return ATTN_OK;
}

attn_status model_run(model *m, const int *tokens, const int *targets, double rate, outcome *result, attn_error *error)
{
    const sizes *s = &m->s;
    const int64_t E = s->width;
    for (int64_t r = 0; r < m->rows; r++)
        for (int64_t c = 0; c < E; c++) m->x[r * E + c] = m->tokens[tokens[r] * E + c] + m->places[r % s->length * E + c];
    for (int64_t n = 0; n < s->blocks; n++) {
        attn_status status = block_forward(m, n, rate <= 0, error);
        if (status != ATTN_OK) return status;
    }
    norm(m->x, m->norm, m->rows, E, m->h);
    linear(m->h, m->out, NULL, m->rows, E, s->vocabulary, m->logits, 0);
    *result = judge(m, targets);
    return rate > 0 ? learn(m, tokens, rate, error) : ATTN_OK;
}
