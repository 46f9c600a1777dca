/* SPDX-License-Identifier: MIT
 * weights.c - see weights.h. */
#include "weights.h"

#include <math.h>

#include "../common/slots.h"
#include "number.h"
#include "uniform.h"

enum { BAND = 64 }; /* queries whose weights a cell has at a time */

/* ---- which results ---- */

static int is_of_weights(const attn_cells *c, const attn_bound *b)
{
    if (b->offset == offsetof(attn_tensors, scores)) return c->problem.outputs.scores_stage == ATTN_STAGE_WEIGHTS;
    return b->offset == offsetof(attn_tensors, weights) || b->offset == offsetof(attn_tensors, column_sum);
}

int attn_weights_wanted(const attn_cells *c)
{
    for (const attn_bound *b = c->bounds.all; b < c->bounds.all + c->bounds.count && c->problem.op == ATTN_FORWARD; b++)
        if (is_of_weights(c, b)) return 1;
    return 0;
}

attn_status attn_weights_check(const attn_cells *c, attn_error *error)
{
    for (const attn_bound *b = c->bounds.all; b < c->bounds.all + c->bounds.count && c->keys_stay; b++)
        CHECK(b->role != ATTN_ROLE_OUTPUT || b->spread != ATTN_SPREAD_PAIRS, ATTN_ERR_UNSUPPORTED,
              "distributed: %s is set and split.way is %d (split keys); a rank has its own keys alone, and not whole rows", b->name,
              (int)ATTN_WAY_SPLIT_KEYS);
    return ATTN_OK;
}

/* 1 if weights are stored after dropout. */
static int drops(const attn_cells *c)
{
    const attn_bound *scores = attn_bound_find(&c->bounds, offsetof(attn_tensors, scores));
    const int stored = attn_bound_find(&c->bounds, offsetof(attn_tensors, weights)) || (scores && is_of_weights(c, scores));
    return stored && c->problem.outputs.after_dropout &&
           (c->problem.dropout.probability > 0 || attn_bound_find(&c->bounds, offsetof(attn_tensors, dropout_given)));
}

/* ---- the tensors of a run ---- */

/* What forward reads and the weights do not: values; the sink, which is a cell of its own; dropout, as the case may be. */
static int is_unused(const attn_bound *b, int with_dropout)
{
    static const size_t unused[] = {offsetof(attn_tensors, v), offsetof(attn_tensors, v_scale), offsetof(attn_tensors, sink),
                                    offsetof(attn_tensors, relative_values)};
    for (size_t n = 0; n < sizeof unused / sizeof *unused; n++)
        if (b->offset == unused[n]) return 1;
    return b->offset == offsetof(attn_tensors, dropout_given) && !with_dropout;
}

static void take_weights(attn_cells *c)
{
    const int count = c->bounds.count, with_dropout = drops(c);
    const int64_t unit = attn_bound_find(&c->bounds, offsetof(attn_tensors, block_mask)) ? c->problem.mask.block_q : 1;
    c->bounds.count = 0;
    for (int n = 0; n < count; n++) {
        attn_bound b = c->bounds.all[n];
        if (b.offset == offsetof(attn_tensors, lse)) b.role = ATTN_ROLE_INPUT;
        if (b.role == ATTN_ROLE_OUTPUT ? is_of_weights(c, &b) : !is_unused(&b, with_dropout)) c->bounds.all[c->bounds.count++] = b;
    }
    c->of_weights = 1;
    c->band = attn_max(BAND / unit, 1) * unit;
    c->problem.shape.dim_v = 0;
    c->planned.sink.data = NULL;
    if (c->problem.score.normaliser == ATTN_NORMALISER_SOFTMAX_ONE) c->problem.score.normaliser = ATTN_NORMALISER_SOFTMAX;
    if (!with_dropout) c->problem.dropout.probability = 0;
    if (!attn_bound_find(&c->bounds, offsetof(attn_tensors, relative_keys)))
        memset(&c->problem.relative, 0, sizeof c->problem.relative);
}

void attn_weights_take(attn_cells *c, int second)
{
    const int count = c->bounds.count;
    if (second) {
        take_weights(c);
        return;
    }
    c->bounds.count = 0;
    for (int n = 0; n < count; n++)
        if (!is_of_weights(c, &c->bounds.all[n])) c->bounds.all[c->bounds.count++] = c->bounds.all[n];
}

/* ---- memory ---- */

/* Where the results of a piece lie in the workspace of its cell: weights, lse and keep of a band, dense; sums of all keys. */
typedef struct scratch {
    char *weights, *lse;
    unsigned char *keep;
    double *sums;
    size_t bytes;
} scratch;

static int64_t column_heads(const attn_cells *c)
{
    const attn_bound *b = attn_bound_find(&c->bounds, offsetof(attn_tensors, column_sum));
    return b ? b->shape[1] : 0;
}

static int64_t most_queries(const attn_cells *c) { return attn_min(c->band, attn_part_most(&c->grid.q)); }

static scratch carve(const attn_cells *c, char *base)
{
    const attn_shape *s = &c->problem.shape;
    const int64_t keys = attn_part_most(&c->grid.kv), rows[] = {s->batch, s->heads_q, most_queries(c)},
                  columns[] = {s->batch, column_heads(c), keys};
    const size_t size = attn_dtype_size(c->bounds.compute), each = (size_t)sizes_product(rows, 3), pairs = each * (size_t)keys;
    scratch x = {.bytes = 0};
    x.sums = attn_take(base, &x.bytes, (size_t)sizes_product(columns, 3) * sizeof(double));
    x.weights = attn_take(base, &x.bytes, pairs * size);
    x.lse = attn_take(base, &x.bytes, each * size);
    x.keep = attn_take(base, &x.bytes, drops(c) ? pairs : 0);
    return x;
}

size_t attn_weights_bytes(const attn_cells *c) { return carve(c, NULL).bytes; }

attn_status attn_weights_fit(const attn_cells *c, attn_error *error)
{
    const attn_shape *s = &c->problem.shape;
    const int64_t sizes[] = {s->batch, s->heads_q, most_queries(c), attn_part_most(&c->grid.kv)},
                  columns[] = {s->batch, s->heads_q, attn_part_most(&c->grid.kv), 1};
    CHECK(sizes_fit(64, sizes, 4) && sizes_fit(64, columns, 4), ATTN_ERR_SHAPE,
          "distributed: weights of a part are too large: their bytes overflow 64 bits");
    return ATTN_OK;
}

/* ---- the call ---- */

static attn_output dense(const attn_cells *c, const attn_piece *p, attn_dtype dtype, int64_t width, void *data)
{
    const int64_t head = p->queries * width;
    const int has = c->problem.shape.batch > 0 && c->problem.shape.heads_q > 0 && head > 0;
    if (!has) return (attn_output){ATTN_EMPTY, dtype, {0, 0, 0, 0}};
    return (attn_output){data ? data : ATTN_LATER, dtype, {c->problem.shape.heads_q * head, head, width, 1}};
}

void attn_weights_place(const attn_cells *c, const attn_cell *cell, const attn_piece *p, attn_piece_call *x)
{
    const scratch at = carve(c, cell->scratch);
    const attn_dtype compute = c->bounds.compute;
    attn_tensors *t = &x->tensors;
    x->problem.outputs = (attn_outputs){.topk = 0};
    t->v = (attn_input){ATTN_EMPTY, t->q.dtype, {0, 0, 0, 0}};
    t->o = (attn_output){ATTN_EMPTY, t->q.dtype, {0, 0, 0, 0}};
    t->scores = t->column_sum = (attn_output){.data = NULL};
    t->weights = dense(c, p, compute, p->keys, at.weights);
    t->lse = dense(c, p, compute, 1, at.lse);
    if (drops(c)) t->dropout_keep = dense(c, p, ATTN_BOOL, p->keys, at.keep);
}

/* ---- a cell ---- */

/* A row of the piece: query `row` of it, which is query `local` of the rank. */
typedef struct weights_row {
    int64_t entry, head, row, local;
    char *weights; /* of the piece's keys */
    const unsigned char *keep;
} weights_row;

/* The share that the cell's keys have of all weights of a query. */
static double share_of(const attn_cells *c, const attn_piece *p, const attn_bound *lse, const void *data, const weights_row *r,
                       double of_cell)
{
    const double all =
        attn_number_get(c->bounds.compute, data, r->entry * lse->stride[0] + r->head * lse->stride[1] + r->local * lse->stride[2]);
    if (of_cell > -(double)INFINITY || isnan(of_cell)) return exp(of_cell - all);
    if (all > -(double)INFINITY || isnan(all)) return 0;
    return attn_uniform_share(c, p); /* 0 are 0, uniform ones those of all keys */
}

/* What is 0 stays so: of a key that the query does not see, also where others make the share NaN. */
static void scale(const attn_cells *c, const attn_piece *p, const weights_row *r, double share)
{
    double *const f64 = (double *)(void *)r->weights;
    float *const f32 = (float *)(void *)r->weights;
    const int broken = isnan(share);
    for (int64_t j = 0; j < p->keys && broken; j++)
        if (attn_number_get(c->bounds.compute, r->weights, j) != 0) attn_number_put(c->bounds.compute, r->weights, j, share);
    if (broken) return;
    for (int64_t j = 0; j < p->keys && c->bounds.compute == ATTN_F64; j++) f64[j] *= share;
    for (int64_t j = 0; j < p->keys && c->bounds.compute == ATTN_F32; j++) f32[j] = (float)(f32[j] * share);
}

/* What is kept is divided by its probability. */
static void drop(const attn_cells *c, const attn_piece *p, const weights_row *r)
{
    const double probability = c->problem.dropout.probability, kept = probability < 1 ? 1 / (1 - probability) : 0;
    double *const f64 = (double *)(void *)r->weights;
    float *const f32 = (float *)(void *)r->weights, kept_f32 = (float)kept;
    for (int64_t j = 0; j < p->keys && c->bounds.compute == ATTN_F64; j++) f64[j] = r->keep[j] ? f64[j] * kept : 0;
    for (int64_t j = 0; j < p->keys && c->bounds.compute == ATTN_F32; j++) f32[j] = r->keep[j] ? f32[j] * kept_f32 : 0;
}

static void store(const attn_cells *c, const attn_piece *p, const attn_tensors *mine, size_t offset, const weights_row *r)
{
    const attn_bound *b = attn_bound_find(&c->bounds, offset);
    if (!b || !b->has_elements) return;
    const attn_input slot = attn_bound_slot(b, mine);
    const int64_t at = r->entry * b->stride[0] + r->head * b->stride[1] + r->local * b->stride[2] + p->origin_kv * b->stride[3];
    (void)attn_convert(p->keys, r->weights, c->bounds.compute,
                       (char *)slot_written(&slot) + at * (int64_t)attn_dtype_size(b->dtype), b->dtype, NULL);
}

/* 1 if a query of a sequence of the batch counts in column sums. */
static int counts(const attn_cells *c, const attn_piece *p, const weights_row *r)
{
    const attn_grid_index *x = &c->index;
    const int64_t b = x->starts_q ? p->entry : r->entry, last = c->problem.outputs.column_queries;
    const attn_entry e = {.queries = x->starts_q    ? x->starts_q[b + 1] - x->starts_q[b]
                                     : x->lengths_q ? x->lengths_q[b]
                                                    : c->problem.shape.len_q};
    return last == 0 || p->origin_q + r->row >= e.queries - last;
}

static void add(const attn_cells *c, const attn_cell *cell, const attn_piece *p, const weights_row *r, double *sums)
{
    const int64_t heads = column_heads(c), space = attn_part_most(&c->grid.kv), head = r->head / (c->problem.shape.heads_q / heads),
                  first = p->first_kv - attn_part_first(&c->grid.kv, cell->j);
    double *const of = sums + (r->entry * heads + head) * space + first;
    const double *const f64 = (const double *)(const void *)r->weights;
    const float *const f32 = (const float *)(const void *)r->weights;
    for (int64_t j = 0; j < p->keys && c->bounds.compute == ATTN_F64; j++) of[j] += f64[j];
    for (int64_t j = 0; j < p->keys && c->bounds.compute == ATTN_F32; j++) of[j] += (double)f32[j];
}

void attn_weights_begin(const attn_cells *c, const attn_cell *cell)
{
    const int64_t sums = c->problem.shape.batch * column_heads(c) * attn_part_most(&c->grid.kv);
    double *const of = carve(c, cell->scratch).sums;
    for (int64_t n = 0; n < sums; n++) of[n] = 0;
}

void attn_weights_end(const attn_cells *c, const attn_cell *cell)
{
    const int64_t sums = c->problem.shape.batch * column_heads(c) * attn_part_most(&c->grid.kv);
    const scratch at = carve(c, cell->scratch);
    for (int64_t n = 0; n < sums; n++) attn_number_put(c->bounds.compute, cell->node[ATTN_NODE_COLUMN], n, at.sums[n]);
}

void attn_weights_use(const attn_cells *c, const attn_tensors *mine, const attn_cell *cell, const attn_piece *p)
{
    const attn_bound *lse = attn_bound_get(&c->bounds, offsetof(attn_tensors, lse));
    const void *const data = attn_bound_slot(lse, mine).data;
    const scratch at = carve(c, cell->scratch);
    const int64_t size = (int64_t)attn_dtype_size(c->bounds.compute), first = p->first_q - attn_part_first(&c->grid.q, cell->i);
    const int sums = column_heads(c) > 0, after = drops(c);
    int64_t n = 0;
    for (int64_t b = 0; b < c->problem.shape.batch; b++)
        for (int64_t h = 0; h < c->problem.shape.heads_q; h++)
            for (int64_t i = 0; i < p->queries; i++, n++) {
                const weights_row r = {
                    b, h, i, c->grid.q.local[cell->i] + first + i, at.weights + n * p->keys * size, at.keep + n * p->keys};
                scale(c, p, &r, share_of(c, p, lse, data, &r, attn_number_get(c->bounds.compute, at.lse, n)));
                if (sums && counts(c, p, &r)) add(c, cell, p, &r, at.sums);
                if (after) drop(c, p, &r);
                store(c, p, mine, offsetof(attn_tensors, weights), &r);
                store(c, p, mine, offsetof(attn_tensors, scores), &r);
            }
}
