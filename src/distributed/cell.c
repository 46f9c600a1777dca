/* SPDX-License-Identifier: MIT
 * cell.c - see cell.h. */
#include "cell.h"

#include "../common/options.h"
#include "piece.h"
#include "rows.h"
#include "uniform.h"
#include "weights.h"

static int is_result(const attn_bound *b, attn_spread spread) { return b->role == ATTN_ROLE_OUTPUT && b->spread == spread; }

/* ---- layouts ---- */

/* Adds a result of `rows` rows to a node. */
static attn_status add_result(attn_cells *c, attn_node_kind kind, const attn_bound *b, int64_t rows, int64_t *at, attn_error *error)
{
    const int64_t size = (int64_t)attn_dtype_size(attn_node_dtype(c, b)), sizes[] = {b->shape[0], b->shape[1], rows, b->width};
    CHECK(sizes_fit(4 * size, sizes, 4), ATTN_ERR_SHAPE, "distributed: %s of a part is too large: its bytes overflow 64 bits",
          b->name);
    *at = (int64_t)c->node[kind];
    c->node[kind] += attn_round_64_up((size_t)(sizes_product(sizes, 4) * size));
    CHECK(c->node[kind] < SIZE_MAX / 64, ATTN_ERR_SHAPE,
          "distributed: the results of a part are too large: their bytes overflow 64 bits");
    return ATTN_OK;
}

attn_status attn_cells_lay_out(attn_cells *c, attn_error *error)
{
    memset(c->node, 0, sizeof c->node);
    if (c->of_weights) TRY(attn_weights_fit(c, error));
    TRY(attn_uniform_fit(c, error));
    c->has_sink = c->problem.op == ATTN_FORWARD ? c->planned.sink.data || c->problem.score.normaliser == ATTN_NORMALISER_SOFTMAX_ONE
                                                : c->problem.op == ATTN_BACKWARD && c->planned.grad_sink.data;
    for (const attn_bound *b = c->bounds.all; b < c->bounds.all + c->bounds.count; b++) {
        const int64_t sizes[] = {b->shape[0], b->shape[1], attn_part_most(&c->grid.kv), b->width};
        CHECK(b->spread != ATTN_SPREAD_KEYS || sizes_fit(ATTN_BOUND * 8, sizes, 4), ATTN_ERR_SHAPE,
              "distributed: %s of a part is too large: its bytes overflow 64 bits", b->name);
    }
    for (int k = 0; k < ATTN_NODE_KINDS; k++)
        for (int n = 0; n < c->bounds.count; n++) {
            const attn_node_kind kind = (attn_node_kind)k;
            const attn_bound *b = &c->bounds.all[n];
            if (!is_result(b, attn_spread_of(kind))) continue;
            TRY(add_result(c, kind, b, attn_node_space(c, kind, b), &c->at[n], error));
        }
    return ATTN_OK;
}

/* Calls for each tensor that travels with the keys, with its place in the message of a part of `keys` keys. */
#define EACH_KEY_TENSOR(b, at, cells, keys)                                                                                        \
    size_t at = 0;                                                                                                                 \
    for (const attn_bound *b = (cells)->bounds.all, *end_##b = b + (cells)->bounds.count; b < end_##b;                             \
         at += travels(b) ? attn_round_64_up(attn_tokens_bytes(b, attn_dtype_size(b->dtype), keys)) : 0, b++)                      \
        if (travels(b))

static int travels(const attn_bound *b) { return b->role == ATTN_ROLE_INPUT && b->spread == ATTN_SPREAD_KEYS; }

size_t attn_message_bytes(const attn_cells *c, int64_t keys)
{
    size_t bytes = 0;
    EACH_KEY_TENSOR(b, at, c, keys) bytes = at + attn_round_64_up(attn_tokens_bytes(b, attn_dtype_size(b->dtype), keys));
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
        if (row == 0) continue; /* `from` may be ATTN_EMPTY */
        for (int64_t x = 0; x < b->shape[0]; x++)
            for (int64_t g = 0; g < b->shape[1]; g++)
                for (int64_t t = 0; t < keys; t++, to += row)
                    memcpy(to, from + (x * b->stride[0] + g * b->stride[1] + (first + t) * b->stride[2]) * (int64_t)size, row);
    }
}

/* ---- plans ---- */

static int64_t compare(const attn_cell_plan *a, const attn_cell_plan *b)
{
    return a->queries != b->queries ? a->queries - b->queries : a->keys != b->keys ? a->keys - b->keys : a->space - b->space;
}

static attn_cell_plan sizes_of(const attn_cells *c, const attn_cell *cell, const attn_piece *p, int away)
{
    return (attn_cell_plan){p->queries, p->keys, away ? attn_part_size(&c->grid.kv, cell->j) : -1, NULL};
}

/* Where a plan is, or would be. */
static int64_t find_plan(const attn_cells *c, const attn_cell_plan *like)
{
    int64_t low = 0, high = c->plan_count;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (compare(&c->plans[middle], like) < 0) low = middle + 1;
        else high = middle;
    }
    return low;
}

static attn_status reserve_plan(attn_cells *c, attn_error *error)
{
    if (c->plan_count < c->plan_capacity) return ATTN_OK;
    const int64_t capacity = c->plan_capacity ? 2 * c->plan_capacity : 8;
    attn_cell_plan *more = options_acquire(&c->options, (size_t)capacity * sizeof *more);
    CHECK(more, ATTN_ERR_MEMORY, "cannot allocate a list of %" PRId64 " plans", capacity);
    if (c->plans) memcpy(more, c->plans, (size_t)c->plan_count * sizeof *more);
    options_release(&c->options, c->plans);
    c->plans = more;
    c->plan_capacity = capacity;
    return ATTN_OK;
}

/* Makes the plans of a cell's pieces that are not there yet. */
static attn_status plan_cell(attn_cells *c, const attn_tensors *later, int64_t i, int64_t j, int away, attn_error *error)
{
    const attn_cell cell = {.i = i, .j = j};
    for (attn_piece p = {.entry = -1}; attn_piece_next(c, &cell, &p); attn_piece_skip(c, &cell, &p)) {
        attn_cell_plan made = sizes_of(c, &cell, &p, away);
        const int64_t n = find_plan(c, &made);
        attn_piece_call x;
        if (n < c->plan_count && compare(&c->plans[n], &made) == 0) continue;
        TRY(reserve_plan(c, error));
        attn_call_make(c, later, &cell, &p, away, NULL, &x);
        TRY(attn_plan_create(&made.plan, &x.problem, &x.tensors, &c->options, error));
        memmove(&c->plans[n + 1], &c->plans[n], (size_t)(c->plan_count - n) * sizeof *c->plans);
        c->plans[n] = made;
        c->plan_count++;
        const size_t size = attn_plan_workspace_size(made.plan);
        if (size > c->workspace) c->workspace = size;
    }
    return ATTN_OK;
}

/* Without packed sequences, parts have two sizes: that of the first, and that of the last. */
static attn_status plan_row(attn_cells *c, const attn_tensors *later, int rank, int64_t i, attn_error *error)
{
    const attn_parts *kv = &c->grid.kv;
    if (!c->of_weights) TRY(plan_cell(c, later, i, -1, 0, error));
    for (int64_t j = 0; j < kv->count; j++) {
        const int own = kv->owner[j] == rank, like_another = !c->documents && j > 0 && j < kv->count - 1;
        if (like_another && kv->owner[j] == kv->owner[j - 1]) continue;
        if (!own && c->keys_stay) continue;
        if (!c->documents || attn_row_exists(&c->grid, i, j, j + 1)) TRY(plan_cell(c, later, i, j, !own, error));
    }
    return ATTN_OK;
}

attn_status attn_cells_plan(attn_cells *c, int rank, const attn_owned *own, attn_error *error)
{
    attn_tensors later = c->planned;
    for (int n = 0; n < c->bounds.count; n++) attn_slot_in(&later, &c->bounds.all[n])->data = ATTN_LATER;
    TRY(attn_cells_lay_out(c, error));
    c->workspace = 0;
    for (int64_t n = 0; n < own->count_q && !c->idle; n++)
        if (c->documents || n == 0 || n == own->count_q - 1) TRY(plan_row(c, &later, rank, own->q[n], error));
    c->workspace = attn_round_64_up(c->workspace) + 128 + attn_round_64_up(2 * (size_t)c->problem.shape.batch * sizeof(int64_t));
    if (c->documents) c->workspace += c->node[ATTN_NODE_SHARED];
    c->workspace += c->of_weights ? attn_weights_bytes(c) : attn_uniform_bytes(c);
    return ATTN_OK;
}

void attn_cells_free(attn_cells *c)
{
    for (int64_t n = 0; n < c->plan_count; n++) attn_plan_destroy(c->plans[n].plan);
    options_release(&c->options, c->plans);
}

/* ---- running ---- */

static size_t bytes_in_node(const attn_cells *c, attn_node_kind kind, const attn_bound *b)
{
    return attn_tokens_bytes(b, attn_dtype_size(attn_node_dtype(c, b)), attn_node_space(c, kind, b));
}

/* What a call does not write, or writes a range of. */
static void clear_ranges(const attn_cells *c, const attn_cell *cell)
{
    for (int n = 0; n < c->bounds.count; n++) {
        const attn_bound *b = &c->bounds.all[n];
        const attn_node_kind kind = b->spread == ATTN_SPREAD_SAME ? ATTN_NODE_SHARED : ATTN_NODE_ROW;
        if (b->in_ranges && cell->node[kind] && (kind == ATTN_NODE_SHARED || cell->j < 0))
            memset(cell->node[kind] + c->at[n], 0, bytes_in_node(c, kind, b));
    }
}

/* The results of pieces without any. */
static void clear_nodes(const attn_cells *c, const attn_cell *cell)
{
    for (int kind = 0; kind < ATTN_NODE_KINDS; kind++)
        if (cell->node[kind]) memset(cell->node[kind], 0, c->node[kind]);
    if (c->problem.op == ATTN_FORWARD) attn_rows_clear(c, cell->node[ATTN_NODE_ROW]);
}

static attn_status run_piece(const attn_cells *c, const attn_tensors *mine, const attn_cell *cell, const attn_piece *p,
                             char *workspace, size_t size, attn_error *error)
{
    attn_piece_call x;
    const size_t lengths = attn_round_64_up(2 * (size_t)c->problem.shape.batch * sizeof(int64_t));
    const int away = cell->message != NULL;
    const attn_cell_plan like = sizes_of(c, cell, p, away);
    const int64_t n = find_plan(c, &like);
    CHECK(n < c->plan_count && compare(&c->plans[n], &like) == 0, ATTN_ERR_ARGUMENT,
          "distributed: there is no plan for %" PRId64 " queries with %" PRId64 " keys", p->queries, p->keys);
    attn_call_make(c, mine, cell, p, away, (int64_t *)(void *)workspace, &x);
    return attn_execute(c->plans[n].plan, &x.tensors, workspace + lengths, size - lengths, error);
}

static attn_status run_weights(const attn_cells *c, const attn_tensors *mine, const attn_cell *cell, char *workspace,
                               attn_error *error)
{
    attn_cell one = *cell;
    one.scratch = attn_align_64_up(workspace);
    char *const rest = one.scratch + attn_weights_bytes(c);
    attn_weights_begin(c, &one);
    for (attn_piece p = {.entry = -1}; attn_piece_next(c, cell, &p);) {
        TRY(run_piece(c, mine, &one, &p, rest, (size_t)(workspace + c->workspace - rest), error));
        attn_weights_use(c, mine, &one, &p);
    }
    attn_weights_end(c, &one);
    return ATTN_OK;
}

attn_status attn_cell_run(const attn_cells *c, const attn_tensors *mine, const attn_cell *cell, void *workspace, attn_error *error)
{
    char *at = attn_align_64_up(workspace);
    attn_cell one = *cell;
    one.scratch = at, at += attn_uniform_bytes(c);
    if (c->idle) return ATTN_OK;
    if (c->of_weights) return run_weights(c, mine, cell, workspace, error);
    if (c->documents && cell->j >= 0) {
        clear_nodes(c, cell);
        if (cell->node[ATTN_NODE_SHARED]) one.node[ATTN_NODE_SHARED] = at, at += c->node[ATTN_NODE_SHARED];
    }
    for (attn_piece p = {.entry = -1}; attn_piece_next(c, cell, &p);) {
        clear_ranges(c, &one);
        attn_uniform_begin(c, mine, &one, &p);
        TRY(run_piece(c, mine, &one, &p, at, (size_t)((char *)workspace + c->workspace - at), error));
        attn_uniform_end(c, mine, &one, &p);
        attn_rows_place(c, cell, &p);
        for (int n = 0; n < c->bounds.count && cell->j >= 0 && one.node[ATTN_NODE_SHARED]; n++)
            if (c->bounds.all[n].offset == offsetof(attn_tensors, grad_sink)) /* which only the term of its own writes */
                memset(one.node[ATTN_NODE_SHARED] + c->at[n], 0, bytes_in_node(c, ATTN_NODE_SHARED, &c->bounds.all[n]));
        if (one.node[ATTN_NODE_SHARED] != cell->node[ATTN_NODE_SHARED])
            attn_node_add(c, ATTN_NODE_SHARED, 0, cell->node[ATTN_NODE_SHARED], one.node[ATTN_NODE_SHARED]);
    }
    return ATTN_OK;
}
