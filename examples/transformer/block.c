/* SPDX-License-Identifier: MIT
 *
 * block.c - see block.h.  A block is two or three parts, each with a norm; a part adds f(h) to the residual stream x:
 * pre-norm h = norm(x) and y = x + f, post-norm h = x and y = norm(x + f). */
#include "block.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attn/product.h"

enum { SELF, CROSS, HIDDEN, MAX_PARTS };
static const double epsilon = 1e-5; /* of norms */

/* Pointers into an array of parameters, or of their gradients. */
typedef struct part {
    int kind;
    real *gain, *shift;
    real *w[4], *bias[4]; /* attention: query, key, value, output, [out, in]; hidden: [hidden, width], [width, hidden] */
} part;

static real *next(real **at, int64_t count)
{
    real *here = *at;
    *at += count;
    return here;
}

/* Sets the pointers of the parts into an array of parameters; returns its length (NULL: only counts). */
static int64_t name_parts(const block *b, real *parameters, part parts[MAX_PARTS], int *count)
{
    static real none[1];
    real *const begin = parameters ? parameters : none;
    real *at = begin;
    *count = 0;
    for (int kind = SELF; kind <= HIDDEN; kind++) {
        part *p = &parts[*count];
        if (kind == CROSS && !b->decoder) continue;
        p->kind = kind;
        p->gain = next(&at, b->width), p->shift = next(&at, b->width);
        for (int i = 0; i < (kind == HIDDEN ? 2 : 4); i++) {
            p->w[i] = next(&at, b->width * (kind == HIDDEN ? b->hidden : b->width));
            p->bias[i] = next(&at, kind == HIDDEN && i == 0 ? b->hidden : b->width);
        }
        ++*count;
    }
    return at - begin;
}

int64_t block_parameters(const block *b)
{
    const int64_t E = b->width, F = b->hidden, attention = 2 * E + 4 * (E * E + E);
    return (b->decoder ? 2 : 1) * attention + 2 * E + 2 * E * F + F + E;
}

/* ---- the attention of a part ---- */

typedef struct attention {
    attn_problem options;
    attn_tensors pointers;
    attn_layer layer;
    attn_layer_weights weights;
    attn_layer_tensors args;
} attention;

static attn_layer_weights weights_of(const part *p)
{
    return (attn_layer_weights){.struct_size = sizeof(attn_layer_weights),
                                .query = attn_out(p->w[0]),
                                .query_bias = attn_out(p->bias[0]),
                                .key = attn_out(p->w[1]),
                                .key_bias = attn_out(p->bias[1]),
                                .value = attn_out(p->w[2]),
                                .value_bias = attn_out(p->bias[2]),
                                .output = attn_out(p->w[3]),
                                .output_bias = attn_out(p->bias[3])};
}

/* a must not be moved: its parts point to each other. */
static void set_attention(attention *a, const block *b, const block_data *d, const part *p)
{
    const int masked = p->kind == CROSS && d->lengths_memory;
    *a =
        (attention){.options.struct_size = sizeof a->options, .pointers.struct_size = sizeof a->pointers, .weights = weights_of(p)};
    a->options.mask.causal = p->kind == SELF && b->decoder;
    if (masked) a->pointers.lengths_kv = attn_in(d->lengths_memory);
    a->layer = (attn_layer){.struct_size = sizeof a->layer,
                            .dtype = sizeof(real) == sizeof(double) ? ATTN_F64 : ATTN_F32,
                            .dim_model = b->width,
                            .heads_q = b->heads,
                            .attention = &a->options};
    a->args = (attn_layer_tensors){.struct_size = sizeof a->args,
                                   .batch = d->batch,
                                   .len_q = d->len,
                                   .len_kv = p->kind == CROSS ? d->len_memory : d->len,
                                   .key.data = p->kind == CROSS ? (void *)(uintptr_t)d->memory : NULL,
                                   .attention = &a->pointers};
}

/* ---- memory ---- */

/* Saved by forward for backward of one part: x before it, h, intermediates of f; and scratch that both passes use. */
typedef struct trace {
    real *x, *h, *hidden, *sum;      /* sum: x + f, of post-norm */
    real *scratch[2], *wide_scratch; /* [rows][width] each, [rows][hidden] */
    void *saved;                     /* of the attention */
} trace;

static int64_t rounded(int64_t bytes) { return (bytes + 63) / 64 * 64; }

/* Bytes of all traces; sets the pointers of part n's if memory is not NULL.  -1 if the layer rejects the sizes. */
static int64_t name_trace(const block *b, const block_data *d, char *memory, int n, trace *t)
{
    const int64_t rows = d->batch * d->len, stream = rounded(rows * b->width * (int64_t)sizeof(real)),
                  hidden = rounded(rows * b->hidden * (int64_t)sizeof(real));
    static real none[1];
    part parts[MAX_PARTS];
    int count;
    int64_t bytes = 2 * stream + hidden;
    (void)name_parts(b, NULL, parts, &count);
    for (int i = 0; i < count; i++) {
        attention a;
        attn_layer_counts counts = {.struct_size = sizeof counts};
        const part empty = {.kind = parts[i].kind, .w = {none, none, none, none}};
        set_attention(&a, b, d, &empty);
        if (empty.kind != HIDDEN && attn_layer_count(&a.layer, d->batch, d->len, a.args.len_kv, NULL, &counts, NULL) != ATTN_OK)
            return -1;
        if (memory && i == n)
            *t = (trace){(real *)(memory + bytes),
                         (real *)(memory + bytes + stream),
                         (real *)(memory + bytes + 3 * stream),
                         (real *)(memory + bytes + 2 * stream),
                         {(real *)memory, (real *)(memory + stream)},
                         (real *)(memory + 2 * stream),
                         memory + bytes + 3 * stream};
        bytes += 3 * stream + (empty.kind == HIDDEN ? hidden : rounded(counts.saved_bytes));
    }
    return bytes;
}

int64_t block_trace_bytes(const block *b, const block_data *d)
{
    const int64_t bytes = name_trace(b, d, NULL, 0, NULL);
    return bytes < 0 ? 0 : bytes;
}

/* ---- parts of the arithmetic ---- */

/* C[m, n] = op(A) op(B) (+ C), for dense row-major matrices. */
static void multiply(int ta, int tb, int64_t m, int64_t n, int64_t k, const real *A, const real *B, real *C, int add)
{
    const attn_product_problem p = {.struct_size = sizeof p,
                                    .dtype = sizeof(real) == sizeof(double) ? ATTN_F64 : ATTN_F32,
                                    .add = add,
                                    .rows = m,
                                    .columns = n,
                                    .inner = k};
    const attn_product_tensors t = {.struct_size = sizeof t,
                                    .a = ta ? attn_transposed(A, m) : attn_in(A),
                                    .b = tb ? attn_transposed(B, k) : attn_in(B),
                                    .c = attn_out(C)};
    attn_error error;
    if (attn_product(&p, &t, NULL, &error) == ATTN_OK) return;
    (void)fprintf(stderr, "%s\n", error.message); /* it can only fail for lack of memory */
    exit(1);
}

static void add_to_rows(real *y, const real *bias, int64_t rows, int64_t width)
{
    for (int64_t n = 0; n < rows * width; n++) y[n] += bias[n % width];
}

static void sum_of_rows(const real *dy, int64_t rows, int64_t width, real *dbias)
{
    for (int64_t i = 0; i < width; i++) {
        double sum = 0;
        for (int64_t r = 0; r < rows; r++) sum += (double)dy[r * width + i];
        dbias[i] = (real)sum;
    }
}

/* Mean and 1 / standard deviation of a row. */
static void moments(const real *x, int64_t width, double *mean, double *scale)
{
    double square = 0;
    *mean = 0;
    for (int64_t i = 0; i < width; i++) *mean += (double)x[i] / (double)width;
    for (int64_t i = 0; i < width; i++) square += ((double)x[i] - *mean) * ((double)x[i] - *mean);
    *scale = 1 / sqrt(square / (double)width + epsilon);
}

/* Layer normalisation (Ba et al. 2016). */
static void norm(const part *p, const real *x, int64_t rows, int64_t width, real *y)
{
    for (int64_t r = 0; r < rows; r++) {
        double mean, scale;
        moments(x + r * width, width, &mean, &scale);
        for (int64_t i = 0; i < width; i++)
            y[r * width + i] = (real)(((double)x[r * width + i] - mean) * scale * (double)p->gain[i] + (double)p->shift[i]);
    }
}

/* dx may be dy. */
static void norm_backward(const part *p, const part *g, const real *x, const real *dy, int64_t rows, int64_t width, real *dx)
{
    for (int64_t i = 0; i < 2 * width; i++) g->gain[i] = 0; /* and the shifts after them */
    for (int64_t r = 0; r < rows; r++) {
        double mean, scale, sum = 0, along = 0;
        moments(x + r * width, width, &mean, &scale);
        for (int64_t i = 0; i < width; i++) {
            const double up = (double)dy[r * width + i], unit = ((double)x[r * width + i] - mean) * scale;
            g->gain[i] += (real)(up * unit);
            g->shift[i] += (real)up;
            sum += up * (double)p->gain[i] / (double)width;
            along += up * (double)p->gain[i] * unit / (double)width;
        }
        for (int64_t i = 0; i < width; i++) {
            const double unit = ((double)x[r * width + i] - mean) * scale;
            dx[r * width + i] = (real)(scale * ((double)dy[r * width + i] * (double)p->gain[i] - sum - unit * along));
        }
    }
}

/* ---- f of a part ---- */

static attn_status apply(const block *b, const block_data *d, const part *p, const trace *t, real *f, attn_error *error)
{
    const int64_t rows = d->batch * d->len, E = b->width, F = b->hidden;
    if (p->kind != HIDDEN) {
        attention a;
        set_attention(&a, b, d, p);
        a.args.query.data = t->h;
        a.args.output.data = f;
        a.args.saved = t->saved;
        return attn_layer_forward(&a.layer, &a.weights, &a.args, error);
    }
    multiply(0, 1, rows, F, E, t->h, p->w[0], t->hidden, 0);
    add_to_rows(t->hidden, p->bias[0], rows, F);
    for (int64_t n = 0; n < rows * F; n++) t->hidden[n] = t->hidden[n] > 0 ? t->hidden[n] : 0;
    multiply(0, 1, rows, E, F, t->hidden, p->w[1], f, 0);
    add_to_rows(f, p->bias[1], rows, E);
    return ATTN_OK;
}

/* df to dh, and the gradients of the part's weights into g. */
static attn_status apply_backward(const block *b, const block_data *d, const part *p, const part *g, const trace *t, real *df,
                                  real *dh, attn_error *error)
{
    const int64_t rows = d->batch * d->len, E = b->width, F = b->hidden;
    if (p->kind != HIDDEN) {
        attention a;
        const attn_layer_weights gradients = weights_of(g);
        set_attention(&a, b, d, p);
        a.args.query.data = t->h;
        a.args.saved = t->saved;
        a.args.grad_output.data = df;
        a.args.grad_query.data = dh;
        a.args.grad_key.data = p->kind == CROSS ? d->dmemory : NULL;
        return attn_layer_backward(&a.layer, &a.weights, &a.args, &gradients, error);
    }
    multiply(1, 0, E, F, rows, df, t->hidden, g->w[1], 0);
    sum_of_rows(df, rows, E, g->bias[1]);
    multiply(0, 0, rows, F, E, df, p->w[1], t->wide_scratch, 0);
    for (int64_t n = 0; n < rows * F; n++) t->wide_scratch[n] = t->hidden[n] > 0 ? t->wide_scratch[n] : 0;
    multiply(1, 0, F, E, rows, t->wide_scratch, t->h, g->w[0], 0);
    sum_of_rows(t->wide_scratch, rows, F, g->bias[0]);
    multiply(0, 0, rows, E, F, t->wide_scratch, p->w[0], dh, 0);
    return ATTN_OK;
}

/* ---- the block ---- */

/* Uniform in [-reach, reach), from a 64-bit generator (Knuth's MMIX). */
static void draw(real *w, int64_t count, double reach, uint64_t state)
{
    for (int64_t i = 0; i < count; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        w[i] = (real)(reach * ((double)(int64_t)(state >> 33) / (1 << 30) - 1));
    }
}

attn_status block_initialise(const block *b, real *parameters, uint64_t seed, attn_error *error)
{
    const double reach = sqrt(6 / (double)(b->width + b->hidden));
    const block_data nothing = {0};
    part parts[MAX_PARTS];
    int count;
    memset(parameters, 0, (size_t)block_parameters(b) * sizeof *parameters);
    (void)name_parts(b, parameters, parts, &count);
    for (int n = 0; n < count; n++) {
        const part *p = &parts[n];
        attention a;
        attn_status status = ATTN_OK;
        for (int64_t i = 0; i < b->width; i++) p->gain[i] = 1;
        if (p->kind == HIDDEN) {
            for (int i = 0; i < 2; i++) draw(p->w[i], b->width * b->hidden, reach, seed + 2 + (uint64_t)i);
        } else {
            set_attention(&a, b, &nothing, p);
            status = attn_layer_initialise(&a.layer, ATTN_INIT_XAVIER, seed + (uint64_t)n, &a.weights, error);
        }
        if (status != ATTN_OK) return status;
    }
    return ATTN_OK;
}

attn_status block_forward(const block *b, const real *parameters, const block_data *d, attn_error *error)
{
    const int64_t rows = d->batch * d->len, size = rows * b->width;
    part parts[MAX_PARTS];
    int count;
    (void)name_parts(b, (real *)(uintptr_t)parameters, parts, &count);
    memcpy(d->y, d->x, (size_t)size * sizeof *d->y); /* the stream */
    for (int n = 0; n < count; n++) {
        const part *p = &parts[n];
        trace t;
        (void)name_trace(b, d, d->trace, n, &t);
        memcpy(t.x, d->y, (size_t)size * sizeof *t.x);
        if (b->post_norm) memcpy(t.h, t.x, (size_t)size * sizeof *t.h);
        else norm(p, t.x, rows, b->width, t.h);
        const attn_status status = apply(b, d, p, &t, t.sum, error);
        if (status != ATTN_OK) return status;
        for (int64_t i = 0; i < size; i++) t.sum[i] += t.x[i];
        if (b->post_norm) norm(p, t.sum, rows, b->width, d->y);
        else memcpy(d->y, t.sum, (size_t)size * sizeof *d->y);
    }
    return ATTN_OK;
}

attn_status block_backward(const block *b, const real *parameters, const block_data *d, real *dparameters, attn_error *error)
{
    const int64_t rows = d->batch * d->len, size = rows * b->width;
    part parts[MAX_PARTS], grads[MAX_PARTS];
    int count;
    (void)name_parts(b, (real *)(uintptr_t)parameters, parts, &count);
    (void)name_parts(b, dparameters, grads, &count);
    memcpy(d->dx, d->dy, (size_t)size * sizeof *d->dx); /* the gradient of the stream */
    for (int n = count - 1; n >= 0; n--) {
        trace t;
        (void)name_trace(b, d, d->trace, n, &t);
        real *const df = t.scratch[0], *const dh = t.scratch[1];
        memcpy(df, d->dx, (size_t)size * sizeof *df);
        if (b->post_norm) norm_backward(&parts[n], &grads[n], t.sum, d->dx, rows, b->width, df);
        const attn_status status = apply_backward(b, d, &parts[n], &grads[n], &t, df, dh, error);
        if (status != ATTN_OK) return status;
        if (!b->post_norm) norm_backward(&parts[n], &grads[n], t.x, dh, rows, b->width, dh);
        for (int64_t i = 0; i < size; i++) d->dx[i] = df[i] + dh[i];
    }
    return ATTN_OK;
}
