/* SPDX-License-Identifier: MIT
 * piece.c - see piece.h. */
#include "piece.h"

#include "../common/slots.h"
#include "uniform.h"
#include "weights.h"

/* ---- slots ---- */

/* From row `row` of entry `entry` on, and from column `column` of each row on. */
static void place(attn_input *slot, const attn_bound *b, const void *data, int64_t entry, int64_t row, int64_t column)
{
    const int64_t first = entry * b->stride[0] + row * b->stride[2] + column * b->stride[3];
    slot->data = data;
    if (data != ATTN_LATER && data != ATTN_EMPTY && b->has_elements)
        slot->data = (const char *)data + first * (int64_t)attn_dtype_size(b->dtype);
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

/* ---- pieces ---- */

/* The first `band` queries of a piece, if they come in bands. */
static void take_band(const attn_cells *c, attn_piece *p)
{
    if (c->band > 0) p->queries = attn_min(p->queries, c->band);
}

/* Moves on within queries that end at `end`. */
static int next_band(const attn_cells *c, int64_t end, attn_piece *p)
{
    const int64_t queries = p->queries;
    if (p->entry < 0 || p->first_q + queries >= end) return 0;
    p->first_q += queries, p->origin_q += queries;
    p->queries = end - p->first_q;
    take_band(c, p);
    return 1;
}

/* The first sequence that ends behind `token`. */
static int64_t first_document(const int64_t *starts, int64_t count, int64_t token)
{
    int64_t low = 0, high = count;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (starts[middle + 1] > token) high = middle;
        else low = middle + 1;
    }
    return low;
}

int attn_piece_next(const attn_cells *c, const attn_cell *cell, attn_piece *p)
{
    const attn_parts *q = &c->grid.q, *kv = &c->grid.kv;
    const int64_t first_q = attn_part_first(q, cell->i), end_q = first_q + attn_part_size(q, cell->i);
    const int64_t first_kv = cell->j < 0 ? 0 : attn_part_first(kv, cell->j),
                  end_kv = cell->j < 0 ? 0 : first_kv + attn_part_size(kv, cell->j);
    if (!c->documents || cell->j < 0) {
        if (p->entry >= 0) return next_band(c, end_q, p);
        *p = (attn_piece){0, first_q, end_q - first_q, first_kv, end_kv - first_kv, first_q, first_kv};
        take_band(c, p);
        return 1;
    }
    const int64_t *const starts_q = c->index.starts_q, *const starts_kv = c->index.starts_kv;
    if (p->entry >= 0 && next_band(c, attn_min(starts_q[p->entry + 1], end_q), p)) return 1;
    int64_t b = p->entry < 0 ? first_document(starts_q, c->documents, first_q) : p->entry + 1;
    for (; b < c->documents && starts_q[b] < end_q; b++) {
        const int64_t from_q = attn_max(starts_q[b], first_q), to_q = attn_min(starts_q[b + 1], end_q);
        const int64_t from_kv = attn_max(starts_kv[b], first_kv), to_kv = attn_min(starts_kv[b + 1], end_kv);
        *p = (attn_piece){b, from_q, to_q - from_q, from_kv, to_kv - from_kv, from_q - starts_q[b], from_kv - starts_kv[b]};
        if (p->queries <= 0 || p->keys <= 0) continue;
        take_band(c, p);
        return 1;
    }
    return 0;
}

void attn_piece_skip(const attn_cells *c, const attn_cell *cell, attn_piece *p)
{
    const int64_t end = attn_part_first(&c->grid.q, cell->i) + attn_part_size(&c->grid.q, cell->i);
    if (c->documents || c->band <= 0) return;
    const int64_t more = attn_max((end - p->first_q - 1) / c->band - 1, 0) * c->band;
    p->first_q += more, p->origin_q += more;
}

/* ---- the call of a piece ---- */

/* Where its rows begin in the nodes and the message of the cell. */
typedef struct inside {
    int64_t q, kv;
} inside;

static inside inside_of(const attn_cells *c, const attn_cell *cell, const attn_piece *p)
{
    return (inside){p->first_q - attn_part_first(&c->grid.q, cell->i),
                    cell->j < 0 ? 0 : p->first_kv - attn_part_first(&c->grid.kv, cell->j)};
}

/* lengths: space for 2 batch numbers. */
static void place_index(const attn_cells *c, const attn_piece *p, int64_t *lengths, attn_piece_call *x)
{
    const int64_t batch = c->problem.shape.batch;
    int64_t *const of_q = lengths, *const of_kv = lengths + batch;
    for (int64_t b = 0; b < batch && lengths; b++) {
        if (c->index.lengths_q) of_q[b] = attn_max(0, attn_min(c->index.lengths_q[b] - p->origin_q, p->queries));
        if (c->index.lengths_kv) of_kv[b] = attn_max(0, attn_min(c->index.lengths_kv[b] - p->origin_kv, p->keys));
    }
    if (c->index.lengths_q) x->tensors.lengths_q = attn_in(lengths ? of_q : ATTN_LATER);
    if (c->index.lengths_kv) x->tensors.lengths_kv = attn_in(lengths ? of_kv : ATTN_LATER);
    if (c->index.offset_q) x->tensors.offset_q = attn_in(c->index.offset_q + p->entry);
}

/* Where the numbers of a piece begin in a sum that has those of all entries, queries and keys, or of one on some of these axes. */
static int64_t first_in_sum(const attn_bound *b, const attn_piece *p)
{
    const int64_t entry = b->shape[0] > 1 ? p->entry : 0, row = b->spread == ATTN_SPREAD_SAME && b->shape[2] > 1 ? p->origin_q : 0;
    return (entry * b->shape[1] * b->shape[2] + row) * b->width + (b->shape[3] > 1 ? p->origin_kv : 0);
}

static void place_result(const attn_cells *c, int n, const attn_cell *cell, inside at, const attn_piece *p, attn_piece_call *x)
{
    const attn_bound *b = &c->bounds.all[n];
    for (int k = 0; k < ATTN_NODE_KINDS; k++) {
        const attn_node_kind kind = (attn_node_kind)k;
        const int64_t row = kind == ATTN_NODE_ROW ? at.q : kind == ATTN_NODE_COLUMN ? at.kv : 0;
        const char *node = cell->node[k];
        if (b->spread != attn_spread_of(kind)) continue;
        const int64_t first = row * b->width + (b->in_ranges ? first_in_sum(b, p) : 0);
        if (node) node += c->at[n] + first * (int64_t)attn_dtype_size(attn_node_dtype(c, b));
        place_dense(attn_slot_in(&x->tensors, b), b, attn_node_dtype(c, b), attn_node_space(c, kind, b), node ? node : ATTN_LATER);
    }
}

void attn_call_make(const attn_cells *c, const attn_tensors *mine, const attn_cell *cell, const attn_piece *p, int away,
                    int64_t *lengths, attn_piece_call *x)
{
    const int has_keys = cell->j >= 0;
    const inside in = inside_of(c, cell, p);
    const int64_t space = has_keys ? attn_part_size(&c->grid.kv, cell->j) : 0, local_q = c->grid.q.local[cell->i] + in.q;
    const attn_mask *m = &c->problem.mask;
    x->problem = c->problem;
    x->problem.shape.len_q = p->queries;
    x->problem.shape.len_kv = p->keys;
    x->origin = c->origin;
    x->origin.batch += p->entry;
    x->origin.head += cell->head;
    x->origin.q += p->origin_q, x->origin.kv += p->origin_kv;
    if (!x->origin.heads) x->origin.heads = c->problem.shape.heads_q;
    x->call = mine->call ? *mine->call : (attn_call){.struct_size = sizeof x->call};
    x->call.origin = &x->origin;
    x->tensors = (attn_tensors){.struct_size = sizeof x->tensors, .call = &x->call};
    if (has_keys && c->problem.score.normaliser == ATTN_NORMALISER_SOFTMAX_ONE)
        x->problem.score.normaliser = ATTN_NORMALISER_SOFTMAX;
    size_t at = 0;
    for (int n = 0; n < c->bounds.count; n++) {
        const attn_bound *b = &c->bounds.all[n];
        const attn_input given = attn_bound_slot(b, mine);
        attn_input *slot = attn_slot_in(&x->tensors, b);
        const int is_sink = b->offset == offsetof(attn_tensors, sink) || b->offset == offsetof(attn_tensors, grad_sink);
        const int needs_keys = b->spread == ATTN_SPREAD_KEYS || b->spread == ATTN_SPREAD_PAIRS || b->spread == ATTN_SPREAD_BLOCKS;
        const int64_t entry = c->documents && b->shape[0] > 1 ? p->entry : 0;
        const int is_of_pairs = b->role == ATTN_ROLE_OUTPUT && (b->in_ranges || b->spread == ATTN_SPREAD_PAIRS);
        if (is_sink && has_keys) continue; /* it is a term of its own */
        if ((is_of_pairs || b->spread == ATTN_SPREAD_ENTRIES) && !has_keys) continue;
        if (needs_keys && !has_keys) {
            *slot = (attn_input){.data = ATTN_EMPTY, .dtype = b->dtype};
            continue;
        }
        if (b->role == ATTN_ROLE_OUTPUT && b->spread != ATTN_SPREAD_PAIRS) {
            place_result(c, n, cell, in, p, x);
            continue;
        }
        switch (b->spread) {
        case ATTN_SPREAD_SAME:
            place(slot, b, given.data, entry, 0, 0);
            break;
        case ATTN_SPREAD_QUERIES:
            place(slot, b, given.data, 0, local_q, 0);
            break;
        case ATTN_SPREAD_KEYS:
            if (!away) place(slot, b, given.data, 0, c->grid.kv.local[cell->j] + in.kv, 0);
            else {
                const size_t before = at + (size_t)(in.kv * b->width) * attn_dtype_size(b->dtype);
                place_dense(slot, b, b->dtype, space, cell->message ? cell->message + before : ATTN_LATER);
            }
            at += attn_round_64_up(attn_tokens_bytes(b, attn_dtype_size(b->dtype), space));
            break;
        case ATTN_SPREAD_PAIRS:
            place(slot, b, given.data, 0, local_q, p->origin_kv);
            break;
        case ATTN_SPREAD_BLOCKS:
            place(slot, b, given.data, 0, local_q / m->block_q, p->origin_kv / m->block_kv);
            break;
        case ATTN_SPREAD_ENTRIES:
            place(slot, b, given.data, entry, p->origin_q, b->offset == offsetof(attn_tensors, ranges) ? 0 : p->origin_kv);
            break;
        case ATTN_SPREAD_INDEX:
            break;
        }
    }
    place_index(c, p, lengths, x);
    if (c->of_weights) attn_weights_place(c, cell, p, x);
    attn_uniform_place(c, cell, p, x);
}
