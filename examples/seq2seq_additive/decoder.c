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
    sizes s;
    int64_t rows, count, steps;
    float *all, *grads, *moment1, *moment2; /* [count] */
    parameters p, g;
    float *h, *st, *q, *k, *c, *lse, *weights, *logits;
    float *dh, *ds, *dq, *dk, *dc, *step; /* step [batch][width] */
    attn_problem problem;
    attn_plan *forward, *backward, *look; /* look writes the weights too */
    void *workspace;
    size_t workspace_size;
};

/* ---- memory ---- */

static float *next(float **at, int64_t count)
{
    float *here = *at;
    *at += count;
    return here;
}

static void place(const sizes *s, float *at, parameters *p)
{
    const int64_t E = s->width;
    p->input_tokens = next(&at, s->vocabulary * E), p->input_places = next(&at, s->length * E);
    p->output_tokens = next(&at, (s->vocabulary + 1) * E), p->output_places = next(&at, s->length * E);
    p->recurrent = next(&at, E * E);
    p->query = next(&at, s->hidden * E), p->key = next(&at, s->hidden * E);
    p->score = next(&at, 2 * s->hidden);
    p->out = next(&at, s->vocabulary * 2 * E), p->out_bias = next(&at, s->vocabulary);
}

static int64_t count_parameters(const sizes *s)
{
    const int64_t E = s->width;
    return (2 * s->vocabulary + 1 + 2 * s->length + E + 2 * s->hidden + 2 * s->vocabulary) * E + 2 * s->hidden + s->vocabulary;
}

/* Uniform numbers from a 64-bit generator (Knuth's MMIX). */
static void draw(float *w, int64_t count, double reach, uint64_t *state)
{
    for (int64_t i = 0; i < count; i++) {
        *state = *state * 6364136223846793005u + 1442695040888963407u;
        w[i] = (float)(reach * ((double)(int64_t)(*state >> 33) / (1 << 30) - 1));
    }
}

static float *floats(int64_t count, int *failed)
{
    float *memory = calloc((size_t)count, sizeof *memory);
    if (!memory) *failed = 1;
    return memory;
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
    const sizes *s = &d->s;
    d->problem = (attn_problem){.struct_size = sizeof d->problem, .score = {.kind = ATTN_SCORE_ADDITIVE, .additive_bias = 1}};
    d->problem.shape = (attn_shape){s->batch, 1, 1, s->length, s->length, s->hidden, s->width};
    attn_problem backward = d->problem;
    backward.op = ATTN_BACKWARD;
    const attn_tensors forward_tensors = attention_tensors(d, 0), look_tensors = attention_tensors(d, 1),
                       backward_tensors = backward_tensors_of(d);
    /* so small a step is done before other threads wake up */
    const attn_options options = {.struct_size = sizeof options, .threads = 1};
    attn_status status = attn_plan_create(&d->forward, &d->problem, &forward_tensors, &options, error);
    if (status == ATTN_OK) status = attn_plan_create(&d->look, &d->problem, &look_tensors, &options, error);
    if (status == ATTN_OK) status = attn_plan_create(&d->backward, &backward, &backward_tensors, &options, error);
    const attn_plan *const plans[] = {d->forward, d->look, d->backward};
    for (int n = 0; n < 3 && status == ATTN_OK; n++)
        if (attn_plan_workspace_size(plans[n]) > d->workspace_size) d->workspace_size = attn_plan_workspace_size(plans[n]);
    d->workspace_size += 64 - d->workspace_size % 64;
    return status;
}

decoder *decoder_create(const sizes *s, uint64_t seed, attn_error *error)
{
    decoder *d = calloc(1, sizeof *d);
    int failed = 0;
    *error = (attn_error){.status = ATTN_ERR_MEMORY, .tensor = -1, .other = -1, .message = "no memory"};
    if (!d) return NULL;
    d->s = *s;
    d->rows = s->batch * s->length;
    d->count = count_parameters(s);
    float **of_parameters[] = {&d->all, &d->grads, &d->moment1, &d->moment2};
    for (int n = 0; n < 4; n++) *of_parameters[n] = floats(d->count, &failed);
    float **states[] = {&d->h, &d->st, &d->c, &d->dh, &d->ds, &d->dc};
    for (int n = 0; n < 6; n++) *states[n] = floats(d->rows * s->width, &failed);
    float **projected[] = {&d->q, &d->k, &d->dq, &d->dk};
    for (int n = 0; n < 4; n++) *projected[n] = floats(d->rows * s->hidden, &failed);
    d->lse = floats(d->rows, &failed);
    d->weights = floats(d->rows * s->length, &failed);
    d->logits = floats(d->rows * s->vocabulary, &failed);
    d->step = floats(s->batch * s->width, &failed);
    if (!failed) place(s, d->all, &d->p), place(s, d->grads, &d->g);
    if (failed || make_plans(d, error) != ATTN_OK || !(d->workspace = aligned_alloc(64, d->workspace_size))) {
        decoder_destroy(d);
        return NULL;
    }
    uint64_t state = seed + 1;
    draw(d->all, d->count, 1 / sqrt((double)s->width), &state);
    memset(d->p.out_bias, 0, (size_t)s->vocabulary * sizeof *d->all);
    return d;
}

void decoder_destroy(decoder *d)
{
    if (!d) return;
    float *const owned[] = {d->all, d->grads, d->moment1, d->moment2, d->h,  d->st,  d->c,       d->dh,     d->ds,
                            d->dc,  d->q,     d->k,       d->dq,      d->dk, d->lse, d->weights, d->logits, d->step};
    for (size_t n = 0; n < sizeof owned / sizeof *owned; n++) free(owned[n]);
    attn_plan_destroy(d->forward), attn_plan_destroy(d->look), attn_plan_destroy(d->backward);
    free(d->workspace);
    free(d);
}

int64_t decoder_parameters(const decoder *d) { return d->count; }
const float *decoder_weights(const decoder *d) { return d->weights; }

/* ---- matrices ---- */

/* C [rows][columns] = A B, or += with add.  It can only fail for lack of memory. */
static void product(int64_t rows, int64_t columns, int64_t inner, attn_input a, attn_input b, attn_output c, int add)
{
    const attn_product_problem p = {.struct_size = sizeof p, .rows = rows, .columns = columns, .inner = inner, .add = add};
    const attn_product_tensors t = {.struct_size = sizeof t, .a = a, .b = b, .c = c};
    attn_error error;
    if (attn_product(&p, &t, NULL, &error) == ATTN_OK) return;
    (void)fprintf(stderr, "%s\n", error.message);
    exit(1);
}

/* Matrices with the given row stride. */
static attn_input by_rows(const float *x, int64_t row) { return (attn_input){x, ATTN_F32, {0, 0, row, 1}}; }
static attn_output written(float *x, int64_t row) { return (attn_output){x, ATTN_F32, {0, 0, row, 1}}; }

/* y [rows][out] (+)= x [rows][in] w^T, with the row strides of x, w and y. */
static void multiply(const float *x, int64_t x_row, const float *w, int64_t w_row, int64_t rows, int64_t in, int64_t out, float *y,
                     int64_t y_row, int add)
{
    product(rows, out, in, by_rows(x, x_row), attn_transposed(w, w_row), written(y, y_row), add);
}

/* dx [rows][in] += dy [rows][out] w, dw [out][in] += dy^T x. */
static void multiply_backward(const float *x, int64_t x_row, const float *w, int64_t w_row, const float *dy, int64_t dy_row,
                              int64_t rows, int64_t in, int64_t out, float *dx, int64_t dx_row, float *dw)
{
    product(rows, in, out, by_rows(dy, dy_row), by_rows(w, w_row), written(dx, dx_row), 1);
    product(out, in, rows, attn_transposed(dy, dy_row), by_rows(x, x_row), written(dw, w_row), 1);
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
    multiply(d->h, E, d->p.key, E, d->rows, E, d->s.hidden, d->k, d->s.hidden, 0);
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
        if (i) multiply(d->st + (i - 1) * E, N * E, d->p.recurrent, E, B, E, E, d->st + i * E, N * E, 1);
        for (int64_t b = 0; b < B; b++)
            for (int64_t c = 0; c < E; c++) d->st[(b * N + i) * E + c] = tanhf(d->st[(b * N + i) * E + c]);
    }
}

static attn_status attend(decoder *d, const attn_plan *plan, attn_error *error)
{
    const int64_t E = d->s.width, V = d->s.vocabulary;
    const attn_tensors tensors = attention_tensors(d, plan == d->look);
    multiply(d->st, E, d->p.query, E, d->rows, E, d->s.hidden, d->q, d->s.hidden, 0);
    const attn_status status = attn_execute(plan, &tensors, d->workspace, d->workspace_size, error);
    if (status != ATTN_OK) return status;
    for (int64_t r = 0; r < d->rows; r++) memcpy(d->logits + r * V, d->p.out_bias, (size_t)V * sizeof *d->logits);
    multiply(d->st, E, d->p.out, 2 * E, d->rows, E, V, d->logits, V, 1);
    multiply(d->c, E, d->p.out + E, 2 * E, d->rows, E, V, d->logits, V, 1);
    return ATTN_OK;
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
        for (int64_t b = 0; b < d->s.batch; b++) {
            const float *z = d->logits + (b * N + i) * V;
            int best = 0;
            for (int v = 1; v < V; v++)
                if (z[v] > z[best]) best = v;
            outputs[b * N + i] = best;
        }
    }
    return status;
}

/* ---- backward ---- */

/* The mean loss; logits become its gradient. */
static double judge(decoder *d, const int *outputs)
{
    const int64_t V = d->s.vocabulary;
    double loss = 0;
    for (int64_t r = 0; r < d->rows; r++) {
        float *z = d->logits + r * V, most = z[0];
        double sum = 0;
        for (int64_t v = 1; v < V; v++) most = z[v] > most ? z[v] : most;
        for (int64_t v = 0; v < V; v++) sum += exp((double)(z[v] - most));
        loss += log(sum) - (double)(z[outputs[r]] - most);
        for (int64_t v = 0; v < V; v++) z[v] = (float)((exp((double)(z[v] - most)) / sum - (v == outputs[r])) / (double)d->rows);
    }
    return loss / (double)d->rows;
}

/* From dc and the current ds to dh, ds and the gradients of the projections and the score. */
static attn_status attend_backward(decoder *d, attn_error *error)
{
    const int64_t E = d->s.width, A = d->s.hidden;
    const attn_tensors tensors = backward_tensors_of(d);
    const attn_status status = attn_execute(d->backward, &tensors, d->workspace, d->workspace_size, error); /* dh: as values */
    if (status != ATTN_OK) return status;
    multiply_backward(d->st, E, d->p.query, E, d->dq, A, d->rows, E, A, d->ds, E, d->g.query);
    multiply_backward(d->h, E, d->p.key, E, d->dk, A, d->rows, E, A, d->dh, E, d->g.key);
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
            multiply_backward(d->st + (i - 1) * E, N * E, d->p.recurrent, E, d->step, E, B, E, E, d->ds + (i - 1) * E, N * E,
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

static void adam(decoder *d, double rate)
{
    const double decay1 = 0.9, decay2 = 0.98;
    d->steps++;
    const double scale1 = 1 / (1 - pow(decay1, (double)d->steps)), scale2 = 1 / (1 - pow(decay2, (double)d->steps));
    for (int64_t n = 0; n < d->count; n++) {
        const double g = (double)d->grads[n], m = decay1 * (double)d->moment1[n] + (1 - decay1) * g;
        const double v = decay2 * (double)d->moment2[n] + (1 - decay2) * g * g;
        d->moment1[n] = (float)m, d->moment2[n] = (float)v;
        d->all[n] -= (float)(rate * m * scale1 / (sqrt(v * scale2) + 1e-9));
    }
}

attn_status decoder_learn(decoder *d, const int *inputs, const int *outputs, double rate, double *loss, attn_error *error)
{
    const int64_t E = d->s.width, V = d->s.vocabulary, size = d->rows * E;
    encode(d, inputs);
    step_states(d, outputs, 0, d->s.length);
    attn_status status = attend(d, d->forward, error);
    if (status != ATTN_OK) return status;
    *loss = judge(d, outputs);
    memset(d->grads, 0, (size_t)d->count * sizeof *d->grads);
    memset(d->ds, 0, (size_t)size * sizeof *d->ds);
    memset(d->dc, 0, (size_t)size * sizeof *d->dc);
    for (int64_t r = 0; r < d->rows; r++)
        for (int64_t v = 0; v < V; v++) d->g.out_bias[v] += d->logits[r * V + v];
    multiply_backward(d->st, E, d->p.out, 2 * E, d->logits, V, d->rows, E, V, d->ds, E, d->g.out);
    multiply_backward(d->c, E, d->p.out + E, 2 * E, d->logits, V, d->rows, E, V, d->dc, E, d->g.out + E);
    status = attend_backward(d, error);
    if (status != ATTN_OK) return status;
    steps_backward(d, outputs);
    encode_backward(d, inputs);
    adam(d, rate);
    return ATTN_OK;
}
