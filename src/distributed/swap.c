/* SPDX-License-Identifier: MIT
 * swap.c - see swap.h. */
#include "swap.h"

#include "../common/slots.h"
#include "piece.h"
#include "steps.h"

/* ---- sizes ---- */

int attn_swap_goes(const attn_bound *b, attn_swap way)
{
    if (way == ATTN_SWAP_TO_TOKENS) return b->role == ATTN_ROLE_OUTPUT && b->index >= 0; /* (what the caller wants) */
    return b->role == ATTN_ROLE_INPUT && !attn_bound_is_same(b) && b->spread != ATTN_SPREAD_INDEX;
}

/* How much of a tensor is stored: elements along axes that it does not share, and rows. */
typedef struct extent {
    int64_t entries, heads, rows;
    int64_t first_head;
    size_t row; /* bytes */
} extent;

static int64_t in_blocks(const attn_bound *b, const attn_mask *mask, int64_t tokens)
{
    return b->spread == ATTN_SPREAD_BLOCKS ? tokens / mask->block_q + (tokens % mask->block_q != 0) : tokens;
}

static extent extent_of(const attn_bound *b, const attn_mask *mask, attn_swap_rows rows, const attn_slice *s)
{
    const int keys = b->spread == ATTN_SPREAD_KEYS, shares_heads = (b->shares & 2) != 0;
    const int64_t heads = b->of_heads_kv ? s->count_kv : s->count_q, all = keys ? rows.kv : in_blocks(b, mask, rows.q);
    return (extent){.entries = b->shares & 1 ? attn_min(b->shape[0], 1) : b->shape[0],
                    .heads = shares_heads ? attn_min(heads, 1) : heads,
                    .rows = b->spread == ATTN_SPREAD_SAME ? b->shape[2]
                            : b->shares & 4               ? attn_min(all, 1)
                                                          : all,
                    .first_head = shares_heads     ? 0
                                  : b->of_heads_kv ? s->first_kv
                                                   : s->first_q,
                    .row = (size_t)(b->shares & 8 ? attn_min(b->shape[3], 1) : b->shape[3]) * attn_dtype_size(b->dtype)};
}

static size_t bytes_of(const extent *e)
{
    const int64_t sizes[] = {e->entries, e->heads, e->rows};
    return (size_t)sizes_product(sizes, 3) * e->row;
}

size_t attn_swap_tensor_bytes(const attn_bound *b, const attn_mask *mask, attn_swap_rows rows, const attn_slice *slice)
{
    const extent e = extent_of(b, mask, rows, slice);
    return bytes_of(&e);
}

/* Zeros for a tensor that does not go. */
static extent extent_of_going(const attn_cells *c, const attn_bound *b, attn_swap way, attn_swap_rows rows, const attn_slice *slice)
{
    return attn_swap_goes(b, way) ? extent_of(b, &c->problem.mask, rows, slice) : (extent){.rows = 0};
}

/* Calls for each tensor that goes, with its extent and its place in the message. */
#define EACH_TENSOR(b, e, at, cells, way, rows, slice)                                                                             \
    size_t at = 0;                                                                                                                 \
    extent e = {.rows = 0};                                                                                                        \
    for (const attn_bound *b = (cells)->bounds.all; b < (cells)->bounds.all + (cells)->bounds.count;                               \
         at += attn_round_64_up(bytes_of(&e)), b++)                                                                                \
        if (e = extent_of_going(cells, b, way, rows, slice), attn_swap_goes(b, way))

size_t attn_swap_bytes(const attn_cells *c, attn_swap way, attn_swap_rows rows, const attn_slice *slice)
{
    size_t bytes = 0;
    EACH_TENSOR(b, e, at, c, way, rows, slice) bytes = at + attn_round_64_up(bytes_of(&e));
    return bytes;
}

/* ---- messages ---- */

/* Between the caller's tensor and a message, which has row after row, of each all entries and heads. */
static void copy_strided(const attn_bound *b, const extent *e, char *data, char *message, int to_message)
{
    const int64_t size = (int64_t)attn_dtype_size(b->dtype);
    const int together = b->stride[3] == 1 || e->row == (size_t)size;
    if (bytes_of(e) == 0) return; /* data may be ATTN_EMPTY */
    for (int64_t t = 0; t < e->rows; t++)
        for (int64_t x = 0; x < e->entries; x++)
            for (int64_t h = 0; h < e->heads; h++, message += e->row) {
                char *row = data + (x * b->stride[0] + (e->first_head + h) * b->stride[1] + t * b->stride[2]) * size;
                if (together) memcpy(to_message ? message : row, to_message ? row : message, e->row);
                else
                    for (int64_t n = 0; n < b->shape[3]; n++, row += b->stride[3] * size)
                        memcpy(to_message ? message + n * size : row, to_message ? row : message + n * size, (size_t)size);
            }
}

/* Between the tensor of the group's tokens and the message of a rank, whose parts lie together in both. */
static void copy_parts(const attn_distributed_plan *p, const attn_bound *b, const extent *e, int rank, char *tensor, char *message,
                       int to_message)
{
    const int keys = b->spread == ATTN_SPREAD_KEYS;
    const attn_parts *mine = keys ? &p->cells.grid.kv : &p->cells.grid.q,
                     *joined = keys ? &p->heads->engine.cells.grid.kv : &p->heads->engine.cells.grid.q;
    const attn_mask *mask = &p->cells.problem.mask;
    const int64_t unit = b->spread == ATTN_SPREAD_BLOCKS ? mask->block_q : 1;
    if (bytes_of(e) == 0) return;
    const size_t row = (size_t)(e->entries * e->heads) * e->row;
    if (b->shares & 4) { /* one row, which all have that have any */
        memcpy(to_message ? message : tensor, to_message ? tensor : message, row);
        return;
    }
    for (int64_t n = 0; n < mine->count; n++) {
        const size_t bytes = (size_t)in_blocks(b, mask, attn_part_size(mine, n)) * row;
        char *there = tensor + (size_t)(joined->local[n] / unit) * row;
        if (mine->owner[n] != rank) continue;
        memcpy(to_message ? message : there, to_message ? there : message, bytes);
        message += bytes;
    }
}

/* A message between members: its rows are those of `tokens`, its heads those of `heads`.  One of them is this rank. */
typedef struct envelope {
    int tokens, heads;
} envelope;

static attn_swap_rows rows_of(const attn_distributed_plan *p, int member)
{
    if (member == p->heads->me) return (attn_swap_rows){p->queries, p->keys};
    return (attn_swap_rows){attn_parts_tokens(&p->cells.grid.q, p->heads->first + member),
                            attn_parts_tokens(&p->cells.grid.kv, p->heads->first + member)};
}

static size_t envelope_bytes(const attn_distributed_plan *p, attn_swap way, envelope v)
{
    const attn_slice slice = attn_slice_of(&p->cells.problem.shape, p->members, v.heads);
    return attn_swap_bytes(&p->cells, way, rows_of(p, v.tokens), &slice);
}

/* Fills a message, or reads it. */
static void copy(const attn_distributed_plan *p, attn_swap way, envelope v, const attn_tensors *mine, char *tensors, char *message,
                 int to_message)
{
    const attn_cells *c = &p->cells;
    const attn_slice slice = attn_slice_of(&c->problem.shape, p->members, v.heads);
    const attn_swap_rows rows = rows_of(p, v.tokens);
    const int in_tokens = (way == ATTN_SWAP_TO_HEADS) == to_message; /* the tensor is the caller's, by tokens */
    EACH_TENSOR(b, e, at, c, way, rows, &slice)
    {
        const attn_input slot = attn_bound_slot(b, mine);
        if (b->spread == ATTN_SPREAD_SAME && v.tokens == v.heads) continue; /* (the own heads are there) */
        if (in_tokens || b->spread == ATTN_SPREAD_SAME) copy_strided(b, &e, slot_written(&slot), message + at, to_message);
        else copy_parts(p, b, &e, p->heads->first + v.tokens, tensors + p->heads->at[b - c->bounds.all], message + at, to_message);
    }
}

/* ---- the exchange ---- */

/* What goes to a member, or comes from it. */
static envelope envelope_to(const attn_distributed_plan *p, attn_swap way, int member)
{
    return way == ATTN_SWAP_TO_HEADS ? (envelope){p->heads->me, member} : (envelope){member, p->heads->me};
}
static envelope envelope_from(const attn_distributed_plan *p, attn_swap way, int member)
{
    return way == ATTN_SWAP_TO_HEADS ? (envelope){member, p->heads->me} : (envelope){p->heads->me, member};
}

static attn_status exchange(const attn_distributed_plan *p, int to, size_t sent, int from, size_t got, char *const message[2],
                            attn_error *error)
{
    const attn_transport *t = &p->transport;
    void *requests[2] = {NULL, NULL};
    int failed = 0;
    to += p->heads->first, from += p->heads->first;
    if (got) failed = t->receive(t->context, from, ATTN_TAG_HEADS, message[1], got, &requests[0]);
    if (sent && !failed) failed = t->send(t->context, to, ATTN_TAG_HEADS, message[0], sent, &requests[1]);
    const int late = t->wait(t->context, 2, requests); /* also after a failure: the memory is the caller's */
    if (!failed) failed = late;
    CHECK(!failed, ATTN_ERR_IO, "distributed: the transport failed (%d) while rows went to rank %d and came from rank %d", failed,
          to, from);
    return ATTN_OK;
}

attn_status attn_swap_run(const attn_distributed_plan *p, attn_swap way, const attn_tensors *mine, char *tensors,
                          char *const message[2], attn_error *error)
{
    const int n = p->members, me = p->heads->me;
    for (int step = 0; step < n; step++) {
        const int to = (int)(((int64_t)me + step) % n), from = (int)(((int64_t)me - step + n) % n);
        const envelope out = envelope_to(p, way, to), in = envelope_from(p, way, from);
        copy(p, way, out, mine, tensors, message[0], 1);
        if (step > 0) TRY(exchange(p, to, envelope_bytes(p, way, out), from, envelope_bytes(p, way, in), message, error));
        copy(p, way, in, mine, tensors, message[step > 0], 0);
    }
    return ATTN_OK;
}

void attn_swap_count(const attn_distributed_plan *p, attn_swap way, attn_run_needs *needs, size_t message[2])
{
    for (int member = 0; member < p->members; member++) {
        const size_t sent = envelope_bytes(p, way, envelope_to(p, way, member)),
                     got = envelope_bytes(p, way, envelope_from(p, way, member));
        if (sent > message[0]) message[0] = sent;
        if (got > message[1]) message[1] = got;
        if (member == p->heads->me || sent == 0) continue;
        needs->messages++;
        needs->bytes = attn_bytes_sent(needs->bytes, sent);
    }
}
