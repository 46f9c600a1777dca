/* SPDX-License-Identifier: MIT
 * cell.c - see cell.h. */
#include "cell.h"

#include "../common/slots.h"

static size_t round_64(size_t bytes) { return (bytes + 63) / 64 * 64; }

static int is_last(const attn_parts *p, int64_t n) { return attn_part_size(p, n) < p->part; }

static int is_result(const attn_bound *b, attn_spread spread) { return b->role == ATTN_ROLE_OUTPUT && b->spread == spread; }

static attn_spread spread_of(attn_node_kind kind)
{
    return kind == ATTN_NODE_ROW ? ATTN_SPREAD_QUERIES : kind == ATTN_NODE_COLUMN ? ATTN_SPREAD_KEYS : ATTN_SPREAD_SAME;
}

/* ---- layouts ---- */

/* Of a token of all heads and entries; 0 also if that does not fit, and there are no tokens. */
static size_t width_bytes(const attn_bound *b, size_t size)
{
    const int64_t sizes[] = {b->shape[0], b->shape[1], b->width};
    return sizes_fit((int64_t)size, sizes, 3) ? (size_t)sizes_product(sizes, 3) * size : 0;
}

/* Adds a result of `rows` rows to a node. */
static attn_status add_result(attn_cells *c, attn_node_kind kind, const attn_bound *b, int64_t rows, int64_t *at, attn_error *error)
{
    const int64_t size = (int64_t)attn_dtype_size(c->bounds.compute), sizes[] = {b->shape[0], b->shape[1], rows, b->width};
    CHECK(sizes_fit(4 * size, sizes, 4), ATTN_ERR_SHAPE, "distributed: %s of a part is too large: its bytes overflow 64 bits",
          b->name);
    *at = (int64_t)c->node[kind];
    c->node[kind] += round_64((size_t)(sizes_product(sizes, 4) * size));
    CHECK(c->node[kind] < SIZE_MAX / 64, ATTN_ERR_SHAPE,
          "distributed: the results of a part are too large: their bytes overflow 64 bits");
    return ATTN_OK;
}

static attn_status lay_out(attn_cells *c, attn_error *error)
{
    memset(c->node, 0, sizeof c->node);
    for (int k = 0; k < ATTN_NODE_KINDS; k++)
        for (int n = 0; n < c->bounds.count; n++) {
            const attn_node_kind kind = (attn_node_kind)k;
            const attn_bound *b = &c->bounds.all[n];
            if (!is_result(b, spread_of(kind))) continue;
            TRY(add_result(c, kind, b, attn_node_space(c, kind, b), &c->at[n], error));
            if (b->offset == offsetof(attn_tensors, lse)) c->at_lse = c->at[n];
        }
    if (c->problem.op != ATTN_FORWARD || c->planned.lse.data) return ATTN_OK;
    const attn_shape *s = &c->problem.shape;
    const attn_bound lse = {.shape = {s->batch, s->heads_q, 0, 1}, .width = 1, .name = "lse"};
    return add_result(c, ATTN_NODE_ROW, &lse, attn_part_most(&c->grid.q), &c->at_lse, error);
}

/* Calls for each tensor that travels with the keys, with its place in the message of a part of `keys` keys. */
#define EACH_KEY_TENSOR(b, at, cells, keys)                                                                                        \
    size_t at = 0;                                                                                                                 \
    for (const attn_bound *b = (cells)->bounds.all, *end_##b = b + (cells)->bounds.count; b < end_##b;                             \
         at += travels(b) ? round_64(width_bytes(b, attn_dtype_size(b->dtype)) * (size_t)(keys)) : 0, b++)                         \
        if (travels(b))

static int travels(const attn_bound *b) { return b->role == ATTN_ROLE_INPUT && b->spread == ATTN_SPREAD_KEYS; }

size_t attn_message_bytes(const attn_cells *c, int64_t keys)
{
    size_t bytes = 0;
    EACH_KEY_TENSOR(b, at, c, keys) bytes = at + round_64(width_bytes(b, attn_dtype_size(b->dtype)) * (size_t)keys);
    return bytes;
}

void attn_message_fill(const attn_cells *c, const attn_tensors *mine, int64_t j, char *message)
{
    const int64_t keys = attn_part_size(&c->grid.kv, j), first = c->grid.kv.local[j];
    EACH_KEY_TENSOR(b, at, c, keys)
    {
        const size_t size = attn_dtype_size(b->dtype), row = (size_t)b->width * size;
        const char *from = attn_bound_slot(b, mine).data;
        char *to = message + at;
        for (int64_t x = 0; x < b->shape[0]; x++)
            for (int64_t g = 0; g < b->shape[1]; g++)
                for (int64_t t = 0; t < keys; t++, to += row)
                    memcpy(to, from + (x * b->stride[0] + g * b->stride[1] + (first + t) * b->stride[2]) * (int64_t)size, row);
    }
}

/* ---- the tensors of a cell ---- */

static attn_input *slot_in(attn_tensors *t, const attn_bound *b) { return (attn_input *)(void *)((char *)t + b->offset); }

/* From row `row` on, and from column `column` of each row on. */
static void place(attn_input *slot, const attn_bound *b, const void *data, int64_t row, int64_t column)
{
    slot->data = data;
    if (data != ATTN_LATER && data != ATTN_EMPTY && b->has_elements)
        slot->data = (const char *)data + (row * b->stride[2] + column * b->stride[3]) * (int64_t)attn_dtype_size(b->dtype);
    slot->dtype = b->dtype;
    memcpy(slot->stride, b->stride, sizeof slot->stride);
    for (int axis = 0; axis < 4; axis++)
        if (b->shape[axis] > 1 && !slot->stride[axis] && !slot->stride[0] && !slot->stride[1] && !slot->stride[2] &&
            !slot->stride[3])
            slot->stride[axis] = ATTN_BROADCAST; /* on every axis: not dense */
}

/* A dense tensor of b->width numbers for each token, with space for `tokens` of them. */
static void place_dense(attn_input *slot, const attn_bound *b, attn_dtype dtype, int64_t tokens, const char *data)
{
    *slot = (attn_input){data, dtype, {0, 0, 0, 0}};
    const int64_t sizes[] = {b->shape[0], b->shape[1], tokens, b->width};
    if (!sizes_product(sizes, 4)) return; /* any strides do */
    const int64_t stride[4] = {b->shape[1] * tokens * b->width, tokens * b->width, b->width, 1};
    memcpy(slot->stride, stride, sizeof stride);
}

typedef struct call {
    attn_problem problem;
    attn_tensors tensors;
    attn_call call;
    attn_origin origin;
} call;

static int64_t clip(int64_t x, int64_t most) { return x < 0 ? 0 : x < most ? x : most; }

/* lengths: space for 2 batch numbers. */
static void place_index(const attn_cells *c, const attn_cell *cell, int64_t *lengths, call *x)
{
    const int64_t batch = c->problem.shape.batch, size_q = x->problem.shape.len_q, size_kv = x->problem.shape.len_kv;
    int64_t *const of_q = lengths, *const of_kv = lengths + batch;
    for (int64_t b = 0; b < batch && lengths; b++) {
        if (c->index.lengths_q) of_q[b] = clip(c->index.lengths_q[b] - x->origin.q, size_q);
        if (c->index.lengths_kv) of_kv[b] = cell->j < 0 ? 0 : clip(c->index.lengths_kv[b] - x->origin.kv, size_kv);
    }
    if (c->index.lengths_q) x->tensors.lengths_q = attn_in(lengths ? of_q : ATTN_LATER);
    if (c->index.lengths_kv) x->tensors.lengths_kv = attn_in(lengths ? of_kv : ATTN_LATER);
    if (c->index.offset_q) x->tensors.offset_q = attn_in(c->index.offset_q);
}

static void place_result(const attn_cells *c, int n, const attn_cell *cell, call *x)
{
    const attn_bound *b = &c->bounds.all[n];
    attn_input *slot = slot_in(&x->tensors, b);
    for (int kind = 0; kind < ATTN_NODE_KINDS; kind++)
        if (b->spread == spread_of((attn_node_kind)kind))
            place_dense(slot, b, c->bounds.compute, attn_node_space(c, (attn_node_kind)kind, b),
                        cell->node[kind] ? cell->node[kind] + c->at[n] : ATTN_LATER);
}

/* Without a message, keys are the caller's. */
static void make_call(const attn_cells *c, const attn_tensors *mine, const attn_cell *cell, int with_message, int64_t *lengths,
                      call *x)
{
    const attn_grid *g = &c->grid;
    const int has_keys = cell->j >= 0;
    const int64_t keys = has_keys ? attn_part_size(&g->kv, cell->j) : 0, first_q = g->q.local[cell->i];
    x->problem = c->problem;
    x->problem.shape.len_q = attn_part_size(&g->q, cell->i);
    x->problem.shape.len_kv = keys;
    x->origin = (attn_origin){.heads = c->problem.shape.heads_q,
                              .q = attn_part_first(&g->q, cell->i),
                              .kv = has_keys ? attn_part_first(&g->kv, cell->j) : 0};
    x->call = mine->call ? *mine->call : (attn_call){.struct_size = sizeof x->call};
    x->call.origin = &x->origin;
    x->tensors = (attn_tensors){.struct_size = sizeof x->tensors, .call = &x->call};
    if (has_keys && c->problem.score.normaliser == ATTN_NORMALISER_SOFTMAX_ONE)
        x->problem.score.normaliser = ATTN_NORMALISER_SOFTMAX;
    size_t at = 0;
    for (int n = 0; n < c->bounds.count; n++) {
        const attn_bound *b = &c->bounds.all[n];
        const attn_input given = attn_bound_slot(b, mine);
        attn_input *slot = slot_in(&x->tensors, b);
        const int is_sink = b->offset == offsetof(attn_tensors, sink) || b->offset == offsetof(attn_tensors, grad_sink);
        const int needs_keys = b->spread == ATTN_SPREAD_KEYS || b->spread == ATTN_SPREAD_PAIRS || b->spread == ATTN_SPREAD_BLOCKS;
        if (is_sink && has_keys) continue; /* it is a term of its own */
        if (needs_keys && !has_keys) {
            *slot = (attn_input){.data = ATTN_EMPTY, .dtype = b->dtype};
            continue;
        }
        if (b->role == ATTN_ROLE_OUTPUT && b->spread != ATTN_SPREAD_PAIRS) {
            place_result(c, n, cell, x);
            continue;
        }
        switch (b->spread) {
        case ATTN_SPREAD_SAME:
            place(slot, b, given.data, 0, 0);
            break;
        case ATTN_SPREAD_QUERIES:
            place(slot, b, given.data, first_q, 0);
            break;
        case ATTN_SPREAD_KEYS:
            if (with_message) place_dense(slot, b, b->dtype, keys, cell->message ? cell->message + at : ATTN_LATER);
            else place(slot, b, given.data, g->kv.local[cell->j], 0);
            at += round_64(width_bytes(b, attn_dtype_size(b->dtype)) * (size_t)keys);
            break;
        case ATTN_SPREAD_PAIRS:
            place(slot, b, given.data, first_q, x->origin.kv);
            break;
        case ATTN_SPREAD_BLOCKS:
            place(slot, b, given.data, first_q / c->problem.mask.block_q, x->origin.kv / c->problem.mask.block_kv);
            break;
        case ATTN_SPREAD_INDEX:
            break;
        }
    }
    if (c->problem.op == ATTN_FORWARD && !c->planned.lse.data) {
        const int64_t most = attn_part_most(&g->q), heads = c->problem.shape.heads_q;
        x->tensors.lse = (attn_output){cell->node[ATTN_NODE_ROW] ? cell->node[ATTN_NODE_ROW] + c->at_lse : ATTN_LATER,
                                       c->bounds.compute,
                                       {heads * most, most, 1, 1}};
    }
    place_index(c, cell, lengths, x);
}

/* ---- plans ---- */

static attn_cell_keys keys_of(const attn_cells *c, int64_t j)
{
    return j < 0 ? ATTN_KEYS_NONE : is_last(&c->grid.kv, j) ? ATTN_KEYS_LAST : ATTN_KEYS_FULL;
}

static attn_status plan_cell(attn_cells *c, const attn_tensors *later, int64_t i, int64_t j, int with_message, attn_error *error)
{
    const attn_cell cell = {.i = i, .j = j};
    call x;
    attn_plan **plan = &c->plans[is_last(&c->grid.q, i)][keys_of(c, j)][with_message];
    if (*plan) return ATTN_OK;
    make_call(c, later, &cell, with_message, NULL, &x);
    TRY(attn_plan_create(plan, &x.problem, &x.tensors, &c->options, error));
    const size_t size = attn_plan_workspace_size(*plan);
    if (size > c->workspace) c->workspace = size;
    return ATTN_OK;
}

/* Parts of each size there is: the first and the last. */
static attn_status plan_row(attn_cells *c, const attn_tensors *later, const attn_owned *own, int64_t i, attn_error *error)
{
    const int64_t columns = c->grid.kv.count;
    TRY(plan_cell(c, later, i, -1, 0, error));
    if (own->count_kv > 0) {
        TRY(plan_cell(c, later, i, own->kv[0], 0, error));
        TRY(plan_cell(c, later, i, own->kv[own->count_kv - 1], 0, error));
    }
    if (columns == 0 || c->grid.ranks == 1) return ATTN_OK;
    TRY(plan_cell(c, later, i, 0, 1, error));
    return plan_cell(c, later, i, columns - 1, 1, error);
}

attn_status attn_cells_plan(attn_cells *c, const attn_owned *own, attn_error *error)
{
    attn_tensors later = c->planned;
    for (int n = 0; n < c->bounds.count; n++) slot_in(&later, &c->bounds.all[n])->data = ATTN_LATER;
    memset(c->plans, 0, sizeof c->plans);
    TRY(lay_out(c, error));
    c->workspace = 0;
    c->has_sink = c->problem.op == ATTN_FORWARD ? c->planned.sink.data || c->problem.score.normaliser == ATTN_NORMALISER_SOFTMAX_ONE
                                                : c->problem.op == ATTN_BACKWARD && c->planned.grad_sink.data;
    if (own->count_q > 0) {
        TRY(plan_row(c, &later, own, own->q[0], error));
        TRY(plan_row(c, &later, own, own->q[own->count_q - 1], error));
    }
    c->workspace = round_64(c->workspace) + 128 + round_64(2 * (size_t)c->problem.shape.batch * sizeof(int64_t));
    return ATTN_OK;
}

void attn_cells_free(attn_cells *c)
{
    for (size_t n = 0; n < sizeof c->plans / sizeof(attn_plan *); n++) attn_plan_destroy((&c->plans[0][0][0])[n]);
}

/* ---- running ---- */

static char *align_64(char *p) { return p + (64 - (uintptr_t)p % 64) % 64; }

attn_status attn_cell_run(const attn_cells *c, const attn_tensors *mine, const attn_cell *cell, void *workspace, attn_error *error)
{
    call x;
    char *const lengths = align_64(workspace), *const rest =
                                                   lengths + round_64(2 * (size_t)c->problem.shape.batch * sizeof(int64_t));
    const int with_message = cell->message != NULL;
    make_call(c, mine, cell, with_message, (int64_t *)(void *)lengths, &x);
    const attn_plan *plan = c->plans[is_last(&c->grid.q, cell->i)][keys_of(c, cell->j)][with_message];
    TRY(attn_execute(plan, &x.tensors, rest, c->workspace - (size_t)(rest - (char *)workspace), error));
    for (int n = 0; n < c->bounds.count && cell->j >= 0; n++) /* which only the term of its own writes */
        if (c->bounds.all[n].offset == offsetof(attn_tensors, grad_sink))
            memset(cell->node[ATTN_NODE_SHARED] + c->at[n], 0, width_bytes(&c->bounds.all[n], attn_dtype_size(c->bounds.compute)));
    return ATTN_OK;
}
