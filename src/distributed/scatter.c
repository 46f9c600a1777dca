/* SPDX-License-Identifier: MIT
 * scatter.c - rows of a whole tensor, which rank 0 has, from there to their owners and back.
 *
 * The elements of a rank are numbered in the order of its own tensor, and travel in messages of so many that they fit a buffer,
 * whatever the strides at both ends. */
#include "attn/distributed.h"

#include "../common/bound.h"
#include "../common/options.h"
#include "agree.h"
#include "grid.h"
#include "link.h"
#include "split.h"

enum { MESSAGE_BYTES = 1 << 26 };

typedef struct moving {
    const attn_transport *transport;
    attn_options options;
    attn_split split;
    attn_axis axis;
    int64_t shape[4]; /* of the whole */
    attn_dtype dtype;
    bound_tensor whole, own; /* whole: of rank 0 alone */
    int64_t count;           /* parts of the whole */
    int64_t *parts;          /* all, those of one rank after those of another */
    int64_t *first;          /* of each rank among these, and the end */
    char *buffer;
    int64_t most; /* elements that it holds */
} moving;

/* What one rank has. */
typedef struct rows {
    const int64_t *parts;
    int64_t count, tokens; /* parts and tokens */
    int64_t elements;
} rows;

/* ---- preparing ---- */

/* Sorts the parts by their owners; what each rank has all of has none. */
static void list_parts(moving *m)
{
    const int ranks = m->transport->ranks, everywhere = attn_split_is_everywhere(&m->split, m->axis);
    for (int r = 0; r <= ranks; r++) m->first[r] = 0;
    for (int64_t n = 0; n < m->count && everywhere; n++) m->parts[n] = n;
    for (int64_t n = 0; n < m->count && !everywhere; n++) m->first[attn_split_owner(&m->split, m->axis, n, m->count, ranks) + 1]++;
    for (int r = 0; r < ranks; r++) m->first[r + 1] += m->first[r];
    for (int64_t n = 0; n < m->count && !everywhere; n++)
        m->parts[m->first[attn_split_owner(&m->split, m->axis, n, m->count, ranks)]++] = n;
    for (int r = ranks; r > 0; r--) m->first[r] = m->first[r - 1];
    m->first[0] = 0;
}

static rows rows_of(const moving *m, int rank)
{
    const attn_parts all = {.tokens = m->shape[2], .part = m->split.part};
    rows r = {.parts = m->parts, .count = m->count};
    if (!attn_split_is_everywhere(&m->split, m->axis)) {
        r.parts += m->first[rank];
        r.count = m->first[rank + 1] - m->first[rank];
    }
    if (r.count > 0) r.tokens = (r.count - 1) * all.part + attn_part_size(&all, r.parts[r.count - 1]); /* the others are full */
    r.elements = m->shape[0] * m->shape[1] * r.tokens * m->shape[3];
    return r;
}

static attn_status check_axis(moving *m, const int64_t shape[4], attn_axis axis, const attn_split *split, attn_error *error)
{
    static const char *const names[] = {"batch", "head", "token", "channel"};
    CHECK(shape, ATTN_ERR_ARGUMENT, "distributed: shape is NULL");
    CHECK(axis == ATTN_AXIS_QUERY || axis == ATTN_AXIS_KEY, ATTN_ERR_ARGUMENT, "axis is %d; it must be 4 (query) or 5 (key)",
          (int)axis);
    for (int n = 0; n < 4; n++)
        CHECK(shape[n] >= 0, ATTN_ERR_SHAPE, "distributed: shape[%d] (%s) is %" PRId64 "; it must not be negative", n, names[n],
              shape[n]);
    CHECK(sizes_fit(8, shape, 4), ATTN_ERR_SHAPE, "distributed: whole is too large: its bytes overflow 64 bits");
    memcpy(m->shape, shape, sizeof m->shape);
    m->axis = axis;
    TRY(attn_split_read(&m->split, split, error));
    TRY(attn_split_check(&m->split, shape[2], axis, "shape[2]", error));
    m->count = attn_parts_of(shape[2], m->split.part);
    for (int64_t n = 0; n < m->count; n++)
        TRY(attn_split_check_owner(attn_split_owner(&m->split, axis, n, m->count, m->transport->ranks), axis, n,
                                   m->transport->ranks, error));
    return ATTN_OK;
}

/* slot: of `shape`, but for its tokens. */
static attn_status add(const moving *m, bound_call *call, const char *name, int64_t tokens, const attn_input *slot, int output,
                       bound_tensor *t, attn_error *error)
{
    const bound_rule rule = {
        .name = name, .shape = {m->shape[0], m->shape[1], tokens, m->shape[3]}, .natural = ATTN_F32, .types = INT32_MAX};
    CHECK(slot, ATTN_ERR_ARGUMENT, "distributed: %s is NULL", name);
    CHECK(!slot->dtype || attn_dtype_size(slot->dtype), ATTN_ERR_UNSUPPORTED, "distributed: %s has type %d, which is unknown", name,
          (int)slot->dtype);
    return bound_add(call, &rule, slot, output, t, error);
}

static attn_status prepare(moving *m, const int64_t shape[4], attn_axis axis, const attn_input *whole, const attn_input *own,
                           const attn_split *split, int gathers, attn_error *error)
{
    bound_call call = {.module = "distributed", .places.count = 0};
    const int rank = m->transport->rank;
    TRY(check_axis(m, shape, axis, split, error));
    m->parts = options_acquire(&m->options, ((size_t)m->count + (size_t)m->transport->ranks + 1) * sizeof *m->parts);
    CHECK(m->parts, ATTN_ERR_MEMORY, "cannot allocate a list of %" PRId64 " parts", m->count);
    m->first = m->parts + m->count;
    list_parts(m);
    const rows mine = rows_of(m, rank);
    TRY(add(m, &call, "own", mine.tokens, own, !gathers, &m->own, error));
    if (rank == 0) {
        TRY(add(m, &call, "whole", shape[2], whole, gathers, &m->whole, error));
        CHECK(m->whole.dtype == m->own.dtype, ATTN_ERR_ARGUMENT, "distributed: whole is %s and own is %s; they must have one type",
              attn_dtype_name(m->whole.dtype), attn_dtype_name(m->own.dtype));
        TRY(bound_no_overlap(&call, error));
    }
    const int64_t size = (int64_t)attn_dtype_size(m->own.dtype);
    const int64_t all = rank == 0 ? shape[0] * shape[1] * shape[2] * shape[3] : mine.elements;
    m->most = MESSAGE_BYTES / size;
    m->buffer = options_acquire(&m->options, (size_t)(attn_min(all, m->most) * size));
    CHECK(m->buffer, ATTN_ERR_MEMORY, "cannot allocate the %" PRId64 " bytes of a message", attn_min(all, m->most) * size);
    return ATTN_OK;
}

static uint64_t digest_of(const moving *m, int gathers)
{
    attn_digest d = attn_digest_begin();
    const int64_t numbers[] = {gathers, m->axis, m->own.dtype, m->split.part, attn_split_is_everywhere(&m->split, m->axis)};
    attn_digest_add(&d, numbers, sizeof numbers);
    attn_digest_add(&d, m->shape, sizeof m->shape);
    for (int64_t n = 0; n < m->count; n++)
        attn_digest_number(&d, attn_split_owner(&m->split, m->axis, n, m->count, m->transport->ranks));
    return d.value;
}

/* ---- moving ---- */

/* `count` elements from number `first` on of a rank's rows, between the buffer and the rank's tensor, or the whole one. */
static void copy(const moving *m, const rows *r, int of_whole, int to_buffer, int64_t first, int64_t count)
{
    const bound_tensor *t = of_whole ? &m->whole : &m->own;
    const int64_t size = (int64_t)attn_dtype_size(t->dtype), width = m->shape[3], part = m->split.part;
    char *buffer = m->buffer;
    for (int64_t n; count > 0; first += n, count -= n) {
        const int64_t row = first / width, channel = first % width, local = row % r->tokens, pair = row / r->tokens;
        const int64_t token = of_whole ? r->parts[local / part] * part + local % part : local; /* (all but the last are full) */
        const int64_t step = t->stride[3] * size;
        char *at = (char *)t->data + bound_at(t, pair / m->shape[1], pair % m->shape[1], token, channel) * size;
        n = attn_min(width - channel, count);
        const int64_t run = step == size ? n : 1; /* elements that lie side by side */
        for (int64_t x = 0; x < n; x += run, buffer += run * size) {
            char *element = at + x * step;
            memcpy(to_buffer ? buffer : element, to_buffer ? element : buffer, (size_t)(run * size));
        }
    }
}

/* The buffer goes to another rank, or comes from it. */
static attn_status pass(const moving *m, int sends, int other, size_t bytes, attn_error *error)
{
    const attn_transport *t = m->transport;
    void *request = NULL;
    int failed = sends ? t->send(t->context, other, ATTN_TAG_MOVED, m->buffer, bytes, &request)
                       : t->receive(t->context, other, ATTN_TAG_MOVED, m->buffer, bytes, &request);
    const int late = t->wait(t->context, 1, &request);
    if (!failed) failed = late;
    CHECK(!failed, ATTN_ERR_IO, "distributed: the transport failed (%d) while it %s rank %d", failed,
          sends ? "sent to" : "received from", other);
    return ATTN_OK;
}

/* The rows of a rank, between it and rank 0; one of them is this one. */
static attn_status move_rows(const moving *m, int rank, int gathers, attn_error *error)
{
    const rows r = rows_of(m, rank);
    const int from = gathers ? rank : 0, to = gathers ? 0 : rank, me = m->transport->rank;
    for (int64_t first = 0; first < r.elements; first += m->most) {
        const int64_t count = attn_min(m->most, r.elements - first);
        if (me == from) copy(m, &r, !gathers, 1, first, count);
        if (from != to) TRY(pass(m, me == from, me == from ? to : from, (size_t)count * attn_dtype_size(m->own.dtype), error));
        if (me == to) copy(m, &r, gathers, 0, first, count);
    }
    return ATTN_OK;
}

static attn_status move(attn_axis axis, const int64_t shape[4], const attn_input *whole, const attn_input *own,
                        const attn_split *split, const attn_transport *transport, int gathers, attn_error *error)
{
    attn_transport t;
    attn_error rejected = {.status = ATTN_OK};
    moving m = {.transport = &t, .options.struct_size = sizeof m.options};
    TRY(attn_transport_read(&t, transport, error));
    attn_status status = attn_transport_check(&t, &rejected);
    if (status == ATTN_OK) status = prepare(&m, shape, axis, whole, own, split, gathers, &rejected);
    if (t.ranks > 1)
        status =
            attn_agree(&t, status,
                       &(attn_asking){.asked = status == ATTN_OK ? digest_of(&m, gathers) : 0,
                                      .differs = "distributed: ranks disagree about the shape, the axis, the type or the split"},
                       &rejected);
    /* What every rank has all of, rank 0 has, too. */
    const int ranks = gathers && attn_split_is_everywhere(&m.split, m.axis) ? 1 : t.ranks;
    for (int rank = 0; rank < ranks && status == ATTN_OK; rank++)
        if (t.rank == 0 || t.rank == rank) status = move_rows(&m, rank, gathers, &rejected);
    options_release(&m.options, m.buffer);
    options_release(&m.options, m.parts);
    if (status == ATTN_OK) return succeed(error);
    if (error) *error = rejected;
    return status;
}

/* ---- public ---- */

/* An output that may be NULL, as an input that has its layout. */
static const attn_input *layout_of(const attn_output *slot, attn_input *copy)
{
    if (!slot) return NULL;
    *copy = slot_of(slot);
    return copy;
}

attn_status attn_distributed_scatter(attn_axis axis, const int64_t shape[4], const attn_input *whole, const attn_split *split,
                                     const attn_transport *transport, const attn_output *own, attn_error *error)
{
    attn_input slot;
    return move(axis, shape, whole, layout_of(own, &slot), split, transport, 0, error);
}

attn_status attn_distributed_gather(attn_axis axis, const int64_t shape[4], const attn_input *own, const attn_split *split,
                                    const attn_transport *transport, const attn_output *whole, attn_error *error)
{
    attn_input slot;
    return move(axis, shape, layout_of(whole, &slot), own, split, transport, 1, error);
}
