/* SPDX-License-Identifier: MIT
 *
 * decoder.c - see decoder.h.  rows = batch * length; a tensor of states is [batch][length][width], so step i of all sequences is a
 * matrix with row stride length * width. */
#include "decoder.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attn/product.h"

/* Pointers to the parameters in the array of all. */
typedef struct parameters {
    float *input_tokens, *input_places;   /* E_x [vocabulary][width], P_x [length][width] */
    float *output_tokens, *output_places; /* E_y [vocabulary + 1][width], P_y */
    float *recurrent;                     /* U [width][width] */
    float *query, *key;                   /* W, V [hidden][width] */
    float *score;                         /* w, b [2][hidden] */
    float *out, *out_bias;                /* O [vocabulary][2 width], b_o */
} parameters;

struct decoder {
    decoder_sizes s;
    int64_t rows;
    learner learner;
    parameters p, g;
    float *h, *st, *q, *k, *c, *lse, *weights, *logits;
    float *dh, *ds, *dq, *dk, *dc, *step; /* step [batch][width] */
    attn_problem problem;
    attn_plan *forward, *backward, *look; /* look writes the weights too */
    void *workspace;
    size_t workspace_size;
    int *best;
};

/* ---- memory ---- */

/* Sets pointers into `base`: declares the tensors first if it is NULL. */
static void place(decoder *d, parameters *p, float *base)
{
    const int64_t E = d->s.width, V = d->s.vocabulary, N = d->s.length, A = d->s.hidden;
    const struct {
        float **pointer;
        const char *name;
        int64_t rows, columns;
    } places[] = {{&p->input_tokens, "input_tokens", V, E},
                  {&p->input_places, "input_places", N, E},
                  {&p->output_tokens, "output_tokens", V + 1, E},
                  {&p->output_places, "output_places", N, E},
                  {&p->recurrent, "recurrent", E, E},
                  {&p->query, "attention.query", A, E},
                  {&p->key, "attention.key", A, E},
                  {&p->score, "attention.score", 2, A},
                  {&p->out, "out", V, 2 * E},
                  {&p->out_bias, "out_bias", V, 0}};
    for (int k = 0; k < (int)(sizeof places / sizeof *places); k++) {
        if (!base) (void)learn_tensor_add(&d->learner, places[k].name, places[k].rows, places[k].columns);
        else *places[k].pointer = base + d->learner.tensors[k].at;
    }
}

/* Forward; look: the weights too. */
static attn_tensors attention_tensors(const decoder *d, int look)
{
    attn_tensors t = {.struct_size = sizeof t,
                      .q = attn_in(d->q),
                      .k = attn_in(d->k),
                      .v = attn_in(d->h),
                      .score_matrix = attn_in(d->p.score),
                      .o = attn_out(d->c),
                      .lse = attn_out(d->lse)};
    if (look) t.weights = attn_out(d->weights);
    return t;
}

static attn_tensors backward_tensors_of(const decoder *d)
{
    attn_tensors t = attention_tensors(d, 0);
    t.grad_o = attn_in(d->dc);
    t.grad_q = attn_out(d->dq), t.grad_k = attn_out(d->dk), t.grad_v = attn_out(d->dh);
    t.grad_score_matrix = attn_out(d->g.score);
    return t;
}

static attn_status make_plans(decoder *d, attn_error *error)
{
    const decoder_sizes *s = &d->s;
    d->problem = (attn_problem){.struct_size = sizeof d->problem, .score = {.kind = ATTN_SCORE_ADDITIVE, .additive_bias = 1}};
    d->problem.shape = (attn_shape){s->batch, 1, 1, s->length, s->length, s->hidden, s->width};
    attn_problem backward = d->problem;
    backward.op = ATTN_BACKWARD;
    const attn_tensors forward_tensors = attention_tensors(d, 0), look_tensors = attention_tensors(d, 1),
                       backward_tensors = backward_tensors_of(d);
    /* so small a step is done before other threads wake up */
    attn_options options = {.struct_size = sizeof options};
    if (d->learner.options) options = *d->learner.options;
    options.threads = 1;
    attn_status status = attn_plan_create(&d->forward, &d->problem, &forward_tensors, &options, error);
    if (status == ATTN_OK) status = attn_plan_create(&d->look, &d->problem, &look_tensors, &options, error);
    if (status == ATTN_OK) status = attn_plan_create(&d->backward, &backward, &backward_tensors, &options, error);
    const attn_plan *const plans[] = {d->forward, d->look, d->backward};
    for (int n = 0; n < 3 && status == ATTN_OK; n++)
        if (attn_plan_workspace_size(plans[n]) > d->workspace_size) d->workspace_size = attn_plan_workspace_size(plans[n]);
    d->workspace_size += 64 - d->workspace_size % 64;
    return status;
}

decoder *decoder_create(const decoder_sizes *s, uint64_t seed, const attn_options *options, attn_error *error)
{
    decoder *d = calloc(1, sizeof *d);
    int failed = 0;
    *error = (attn_error){.status = ATTN_ERR_MEMORY, .tensor = -1, .other = -1, .message = "no memory"};
    if (!d) return NULL;
    d->s = *s;
    d->rows = s->batch * s->length;
    d->learner = (learner){.decay1 = 0.9, .decay2 = 0.98, .epsilon = 1e-9, .options = options};
    place(d, &d->p, NULL);
    failed |= !learn_begin(&d->learner);
    float **states[] = {&d->h, &d->st, &d->c, &d->dh, &d->ds, &d->dc};
    for (int n = 0; n < 6; n++) *states[n] = learn_floats(d->rows * s->width, &failed);
    float **projected[] = {&d->q, &d->k, &d->dq, &d->dk};
    for (int n = 0; n < 4; n++) *projected[n] = learn_floats(d->rows * s->hidden, &failed);
    d->lse = learn_floats(d->rows, &failed);
    d->weights = learn_floats(d->rows * s->length, &failed);
    d->logits = learn_floats(d->rows * s->vocabulary, &failed);
    d->step = learn_floats(s->batch * s->width, &failed);
    d->best = calloc((size_t)d->rows, sizeof *d->best);
    failed |= !d->best;
    if (!failed) place(d, &d->p, d->learner.values), place(d, &d->g, d->learner.grads);
    if (failed || make_plans(d, error) != ATTN_OK || !(d->workspace = aligned_alloc(64, d->workspace_size))) {
        decoder_destroy(d);
        return NULL;
    }
    uint64_t state = seed + 1;
    learn_draw(d->learner.values, d->learner.count, 1 / sqrt((double)s->width), &state);
    memset(d->p.out_bias, 0, (size_t)s->vocabulary * sizeof *d->p.out_bias);
    return d;
}

void decoder_destroy(decoder *d)
{
    if (!d) return;
    float *const owned[] = {d->h, d->st, d->c,  d->dh,  d->ds,      d->dc,     d->q,
                            d->k, d->dq, d->dk, d->lse, d->weights, d->logits, d->step};
    for (size_t n = 0; n < sizeof owned / sizeof *owned; n++) free(owned[n]);
    attn_plan_destroy(d->forward), attn_plan_destroy(d->look), attn_plan_destroy(d->backward);
    learn_end(&d->learner);
    free(d->workspace), free(d->best);
    free(d);
}

learner *decoder_learner(decoder *d) { return &d->learner; }
const float *decoder_weights(const decoder *d) { return d->weights; }

/* ---- matrices ---- */

/* Matrices with the given row stride. */
static attn_input by_rows(const float *x, int64_t row) { return (attn_input){x, ATTN_F32, {0, 0, row, 1}}; }
static attn_output written(float *x, int64_t row) { return (attn_output){x, ATTN_F32, {0, 0, row, 1}}; }

/* y [rows][out] (+)= x [rows][in] w^T, with the row strides of x, w and y. */
static void multiply(decoder *d, const float *x, int64_t x_row, const float *w, int64_t w_row, int64_t rows, int64_t in,
                     int64_t out, float *y, int64_t y_row, int add)
{
    learn_multiply(&d->learner, rows, out, in, by_rows(x, x_row), attn_transposed(w, w_row), written(y, y_row), add);
}

/* dx [rows][in] += dy [rows][out] w, dw [out][in] += dy^T x. */
static void multiply_backward(decoder *d, const float *x, int64_t x_row, const float *w, int64_t w_row, const float *dy,
                              int64_t dy_row, int64_t rows, int64_t in, int64_t out, float *dx, int64_t dx_row, float *dw)
{
    learn_multiply(&d->learner, rows, in, out, by_rows(dy, dy_row), by_rows(w, w_row), written(dx, dx_row), 1);
    learn_multiply(&d->learner, out, in, rows, attn_transposed(dy, dy_row), by_rows(x, x_row), written(dw, w_row), 1);
}

/* ---- forward ---- */

/* The token that step i of a sequence reads: the previous one, or the one that begins an output. */
static int read_token(const decoder *d, const int *outputs, int64_t b, int64_t i)
{
    return i ? outputs[b * d->s.length + i - 1] : (int)d->s.vocabulary;
}

static void encode(decoder *d, const int *inputs)
{
    const int64_t E = d->s.width, N = d->s.length;
    for (int64_t r = 0; r < d->rows; r++)
        for (int64_t c = 0; c < E; c++)
            d->h[r * E + c] = tanhf(d->p.input_tokens[inputs[r] * E + c] + d->p.input_places[r % N * E + c]);
    multiply(d, d->h, E, d->p.key, E, d->rows, E, d->s.hidden, d->k, d->s.hidden, 0);
}

/* The states of steps first .. last-1, from the previous one. */
static void step_states(decoder *d, const int *outputs, int64_t first, int64_t last)
{
    const int64_t E = d->s.width, N = d->s.length, B = d->s.batch;
    for (int64_t i = first; i < last; i++) {
        for (int64_t b = 0; b < B; b++)
            for (int64_t c = 0; c < E; c++)
                d->st[(b * N + i) * E + c] =
                    d->p.output_tokens[read_token(d, outputs, b, i) * E + c] + d->p.output_places[i * E + c];
        if (i) multiply(d, d->st + (i - 1) * E, N * E, d->p.recurrent, E, B, E, E, d->st + i * E, N * E, 1);
        for (int64_t b = 0; b < B; b++)
            for (int64_t c = 0; c < E; c++) d->st[(b * N + i) * E + c] = tanhf(d->st[(b * N + i) * E + c]);
    }
}

static attn_status attend(decoder *d, const attn_plan *plan, attn_error *error)
{
    const int64_t E = d->s.width, V = d->s.vocabulary;
    const attn_tensors tensors = attention_tensors(d, plan == d->look);
    multiply(d, d->st, E, d->p.query, E, d->rows, E, d->s.hidden, d->q, d->s.hidden, 0);
    const attn_status status = attn_execute(plan, &tensors, d->workspace, d->workspace_size, error);
    if (status != ATTN_OK) return status;
    for (int64_t r = 0; r < d->rows; r++) memcpy(d->logits + r * V, d->p.out_bias, (size_t)V * sizeof *d->logits);
    multiply(d, d->st, E, d->p.out, 2 * E, d->rows, E, V, d->logits, V, 1);
    multiply(d, d->c, E, d->p.out + E, 2 * E, d->rows, E, V, d->logits, V, 1);
    return ATTN_OK;
}

/* Products keep their error. */
static attn_status end(const decoder *d, attn_status status, attn_error *error)
{
    if (status != ATTN_OK || d->learner.status == ATTN_OK) return status;
    *error = d->learner.error;
    return d->learner.status;
}

attn_status decoder_write(decoder *d, const int *inputs, int *outputs, attn_error *error)
{
    const int64_t V = d->s.vocabulary, N = d->s.length;
    attn_status status = ATTN_OK;
    memset(d->st, 0, (size_t)(d->rows * d->s.width) * sizeof *d->st);
    encode(d, inputs);
    for (int64_t i = 0; i < N && status == ATTN_OK; i++) {
        step_states(d, outputs, i, i + 1);
        status = attend(d, d->look, error);
        for (int64_t b = 0; b < d->s.batch; b++) outputs[b * N + i] = learn_most_likely(d->logits + (b * N + i) * V, V);
    }
    return end(d, status, error);
}

/* ---- backward ---- */

/* From dc and the current ds to dh, ds and the gradients of the projections and the score. */
static attn_status attend_backward(decoder *d, attn_error *error)
{
    const int64_t E = d->s.width, A = d->s.hidden;
    const attn_tensors tensors = backward_tensors_of(d);
    const attn_status status = attn_execute(d->backward, &tensors, d->workspace, d->workspace_size, error); /* dh: as values */
    if (status != ATTN_OK) return status;
    multiply_backward(d, d->st, E, d->p.query, E, d->dq, A, d->rows, E, A, d->ds, E, d->g.query);
    multiply_backward(d, d->h, E, d->p.key, E, d->dk, A, d->rows, E, A, d->dh, E, d->g.key);
    return ATTN_OK;
}

/* Through the recurrence, the last step first. */
static void steps_backward(decoder *d, const int *outputs)
{
    const int64_t E = d->s.width, N = d->s.length, B = d->s.batch;
    for (int64_t i = N; i-- > 0;) {
        for (int64_t b = 0; b < B; b++)
            for (int64_t c = 0; c < E; c++) {
                const float s = d->st[(b * N + i) * E + c], dx = d->ds[(b * N + i) * E + c] * (1 - s * s);
                d->step[b * E + c] = dx;
                d->g.output_tokens[read_token(d, outputs, b, i) * E + c] += dx;
                d->g.output_places[i * E + c] += dx;
            }
        if (i)
            multiply_backward(d, d->st + (i - 1) * E, N * E, d->p.recurrent, E, d->step, E, B, E, E, d->ds + (i - 1) * E, N * E,
                              d->g.recurrent);
    }
}

static void encode_backward(decoder *d, const int *inputs)
{
    const int64_t E = d->s.width, N = d->s.length;
    for (int64_t r = 0; r < d->rows; r++)
        for (int64_t c = 0; c < E; c++) {
            const float h = d->h[r * E + c], dx = d->dh[r * E + c] * (1 - h * h);
            d->g.input_tokens[inputs[r] * E + c] += dx;
            d->g.input_places[r % N * E + c] += dx;
        }
}

attn_status decoder_learn(decoder *d, const int *inputs, const int *outputs, double rate, double *loss, attn_error *error)
{
    const int64_t E = d->s.width, V = d->s.vocabulary, size = d->rows * E;
    encode(d, inputs);
    step_states(d, outputs, 0, d->s.length);
    attn_status status = attend(d, d->forward, error);
    if (status != ATTN_OK) return status;
    *loss = learn_loss(d->logits, outputs, d->rows, V, d->rows, d->best) / (double)d->rows;
    memset(d->learner.grads, 0, (size_t)d->learner.count * sizeof *d->learner.grads);
    memset(d->ds, 0, (size_t)size * sizeof *d->ds);
    memset(d->dc, 0, (size_t)size * sizeof *d->dc);
    for (int64_t r = 0; r < d->rows; r++)
        for (int64_t v = 0; v < V; v++) d->g.out_bias[v] += d->logits[r * V + v];
    multiply_backward(d, d->st, E, d->p.out, 2 * E, d->logits, V, d->rows, E, V, d->ds, E, d->g.out);
    multiply_backward(d, d->c, E, d->p.out + E, 2 * E, d->logits, V, d->rows, E, V, d->dc, E, d->g.out + E);
    status = attend_backward(d, error);
    if (status != ATTN_OK) return status;
    steps_backward(d, outputs);
    encode_backward(d, inputs);
    if (d->learner.status == ATTN_OK) learn_step(&d->learner, rate);
    return end(d, ATTN_OK, error);
}
