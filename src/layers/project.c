/* SPDX-License-Identifier: MIT
 *
 * project.c - products between the rows of a layer and its weights: a single one if the heads are contiguous in the weights, else
 * one for each head.
 */
#include <string.h>

#include "attn/product.h"
#include "layer.h"

/* A matrix in memory, by rows. */
typedef struct matrix {
    const char *data;
    int64_t ld;
    int transposed;
} matrix;

static const matrix nowhere = {ATTN_EMPTY, 1, 0};

static attn_input slot_of_matrix(matrix m)
{
    return m.transposed ? attn_transposed(m.data, m.ld) : (attn_input){m.data, ATTN_DTYPE_DEFAULT, {0, 0, m.ld, 1}};
}

/* C[m, n] = A B; add: C += A B. */
static attn_status multiply(const layer *l, int64_t m, int64_t n, int64_t k, matrix a, matrix b, char *c, int64_t ldc, int add,
                            attn_error *error)
{
    const attn_product_problem p = {.struct_size = sizeof p, .dtype = l->dtype, .add = add, .rows = m, .columns = n, .inner = k};
    const attn_product_tensors t = {.struct_size = sizeof t,
                                    .a = slot_of_matrix(m && k ? a : nowhere),
                                    .b = slot_of_matrix(k && n ? b : nowhere),
                                    .c = {m && n ? c : ATTN_EMPTY, ATTN_DTYPE_DEFAULT, {0, 0, ldc > n ? ldc : n, 1}}};
    return attn_product_in(&p, &t, l->scratch.memory, (size_t)l->scratch.bytes, &l->scratch.options, error);
}

attn_status attn_scratch_measure(layer *l, const attn_options *options, int64_t rows, int64_t widest, attn_error *error)
{
    const int64_t most = rows > widest ? rows : widest;
    const attn_product_problem p = {.struct_size = sizeof p, .dtype = l->dtype, .rows = most, .columns = most, .inner = most};
    attn_options *const resolved = &l->scratch.options;
    size_t bytes;
    resolved->struct_size = sizeof *resolved;
    TRY(attn_options_resolve(options, resolved, error));
    TRY(attn_product_workspace_size(&p, &bytes, resolved, error));
    l->scratch.bytes = (int64_t)bytes;
    return ATTN_OK;
}

attn_status attn_scratch_acquire(layer *l, const attn_options *options, int64_t rows, int64_t widest, attn_error *error)
{
    TRY(attn_scratch_measure(l, options, rows, widest, error));
    return attn_memory_acquire(options, l->scratch.bytes, &l->scratch.memory, error);
}

void attn_scratch_release(const layer *l) { attn_memory_release(&l->scratch.options, l->scratch.memory); }

/* How many heads one product can take: all if one stride fits all their channels. */
static int64_t heads_at_once(const projection *p)
{
    return p->heads <= 1 || p->at.stride_head == p->dim * p->at.stride_channel ? p->heads : 1;
}

/* How many batch entries one product can take: all if one stride fits all their rows on both sides. */
static int64_t entries_at_once(const sequence *a, const sequence *b)
{
    const int together = a->stride_batch == a->tokens * a->stride_token && b->stride_batch == b->tokens * b->stride_token;
    return together && a->batch > 0 ? a->batch : 1;
}

/* The weights of heads from h on, as [channel, model]. */
static matrix weights_of(const layer *l, const projection *p, int64_t h)
{
    const char *data = (const char *)p->at.weight + h * p->at.stride_head * l->size;
    return p->at.stride_model == 1 ? (matrix){data, p->at.stride_channel, 0} : (matrix){data, p->at.stride_model, 1};
}

static matrix transposed(matrix a) { return (matrix){a.data, a.ld, !a.transposed}; }

typedef struct step {
    int64_t h, heads, b, n; /* heads h.., entries b..; n rows */
    matrix x, heads_side;   /* the rows of the model's side, and of the heads' */
} step;

/* The steps of a product, starting from {0}: over entries, then heads within them.  Without entries, steps of no rows, since a sum
 * over nothing is 0.  Returns 0 after the last. */
static int next_step(const layer *l, const projection *p, const sequence *x, const sequence *heads_side, step *s)
{
    const int64_t heads = heads_at_once(p), entries = entries_at_once(x, heads_side);
    if (s->heads > 0 && (s->h += heads) >= p->heads) s->h = 0, s->b += entries;
    if (s->b > 0 && s->b >= x->batch) return 0;
    s->heads = heads;
    s->n = x->batch == 0 ? 0 : entries * x->tokens;
    s->x = (matrix){x->data + s->b * x->stride_batch * l->size, x->stride_token, 0};
    s->heads_side =
        (matrix){heads_side->data + (s->b * heads_side->stride_batch + s->h * p->dim) * l->size, heads_side->stride_token, 0};
    return 1;
}

static char *written(matrix m) { return (char *)(uintptr_t)m.data; }

attn_status attn_project_to_heads(const layer *l, const projection *p, const sequence *x, const sequence *heads_side,
                                  attn_error *error)
{
    step s = {0};
    while (next_step(l, p, x, heads_side, &s))
        TRY(multiply(l, s.n, s.heads * p->dim, p->model, s.x, transposed(weights_of(l, p, s.h)), written(s.heads_side),
                     s.heads_side.ld, 0, error));
    return ATTN_OK;
}

attn_status attn_project_to_model(const layer *l, const projection *p, const sequence *heads_side, const sequence *y, int add,
                                  attn_error *error)
{
    step s = {0};
    while (next_step(l, p, y, heads_side, &s))
        TRY(multiply(l, s.n, p->model, s.heads * p->dim, s.heads_side, weights_of(l, p, s.h), written(s.x), s.x.ld, add || s.h > 0,
                     error));
    return ATTN_OK;
}

attn_status attn_project_gradient(const layer *l, const projection *p, const sequence *heads_side, const sequence *x,
                                  attn_error *error)
{
    step s = {0};
    while (next_step(l, p, x, heads_side, &s)) {
        const matrix w = weights_of(l, p, s.h);
        const int64_t channels = s.heads * p->dim;
        if (w.transposed)
            TRY(multiply(l, p->model, channels, s.n, transposed(s.x), s.heads_side, written(w), w.ld, s.b > 0, error));
        else TRY(multiply(l, channels, p->model, s.n, transposed(s.heads_side), s.x, written(w), w.ld, s.b > 0, error));
    }
    return ATTN_OK;
}

static char *row_of(const layer *l, const sequence *r, int64_t b, int64_t t)
{
    return r->data + (b * r->stride_batch + t * r->stride_token) * l->size;
}

void attn_bias_add(const layer *l, const void *bias, const sequence *y)
{
    for (int64_t b = 0; b < y->batch; b++)
        for (int64_t t = 0; t < y->tokens; t++) {
            void *row = row_of(l, y, b, t);
            if (l->dtype == ATTN_F64)
                for (int64_t c = 0; c < y->channels; c++) ((double *)row)[c] += ((const double *)bias)[c];
            else
                for (int64_t c = 0; c < y->channels; c++) ((float *)row)[c] += ((const float *)bias)[c];
        }
}

void attn_bias_gradient(const layer *l, void *bias, const sequence *dy)
{
    memset(bias, 0, (size_t)(dy->channels * l->size));
    for (int64_t b = 0; b < dy->batch; b++)
        for (int64_t t = 0; t < dy->tokens; t++) {
            const void *row = row_of(l, dy, b, t);
            if (l->dtype == ATTN_F64)
                for (int64_t c = 0; c < dy->channels; c++) ((double *)bias)[c] += ((const double *)row)[c];
            else
                for (int64_t c = 0; c < dy->channels; c++) ((float *)bias)[c] += ((const float *)row)[c];
        }
}
