/* SPDX-License-Identifier: MIT
 *
 * merge.c - merges rows tile by tile: the weights of their parts, then each row as a weighted sum of rows.  Up to MAX_PARTS parts
 * get their weights together; with more, the lse comes first, row by row, and they are added MAX_PARTS at a time.
 */
#include "merge.h"

#include <math.h>
#include <string.h>

#include "../../base/checked.h"
#include "../../base/element.h"
#include "../../base/names.h"
#include "../../threads/threads.h"

enum { ROWS = 32, MAX_PARTS = 32, CHANNELS = 256 };

/* The serial threshold, in numbers read and written: 0.1 ms of one thread's work. */
static const double SERIAL = 1 << 19;

typedef struct tile {
    const attn_merge_call *call;
    int64_t b, h, first, rows;
    int64_t part, parts;            /* the parts whose weights are in W */
    double W[MAX_PARTS * ROWS];     /* of the compute type, [part][ROWS] */
    double most[ROWS], total[ROWS]; /* of the compute type, if all parts get their weights together */
    const char *row[MAX_PARTS];     /* of O of each of these parts, row 0, */
    int64_t step[MAX_PARTS];        /* and bytes from row to row */
    double lse[ROWS];               /* of all parts */
} tile;

void attn_merge_strides(const attn_merge_call *c, const int64_t given[4], int64_t dim, int64_t stride[4])
{
    const int64_t shape[4] = {c->batch, c->heads, c->len_q, dim};
    const int implied = !given[0] && !given[1] && !given[2] && !given[3];
    int64_t dense = 1;
    for (int axis = 3; axis >= 0; axis--) {
        stride[axis] = implied ? dense : given[axis] == ATTN_BROADCAST ? 0 : given[axis];
        if (shape[axis] == 1 || dim == 0) stride[axis] = 0;         /* unused, and may be anything */
        dense = (int64_t)((uint64_t)dense * (uint64_t)shape[axis]); /* may overflow for a tensor without elements */
    }
}

/* Row `row` of the tile in a tensor. */
static char *row_at(const tile *t, const void *data, const int64_t stride[4], attn_dtype dtype, int64_t row)
{
    /* Unsigned: without elements, strides may be anything and there is no address to count from. */
    const uint64_t at = (uint64_t)t->b * (uint64_t)stride[0] + (uint64_t)t->h * (uint64_t)stride[1] +
                        (uint64_t)(t->first + row) * (uint64_t)stride[2];
    return (char *)((uintptr_t)data + (uintptr_t)(at * attn_dtype_bytes(dtype)));
}

static char *row_of_slot(const tile *t, const attn_merge_slot *slot, attn_dtype dtype, int64_t row)
{
    return row_at(t, slot->data, slot->stride, dtype, row);
}

static char *row_of_part(const tile *t, const void *data, const int64_t given[4], int64_t dim, attn_dtype dtype, int64_t row)
{
    int64_t stride[4];
    attn_merge_strides(t->call, given, dim, stride);
    return row_at(t, data, stride, dtype, row);
}

/* Addresses of the rows of parts t->part and on. */
static void place_parts(tile *t)
{
    const attn_merge_call *c = t->call;
    for (int64_t p = 0; p < t->parts; p++) {
        const attn_input *slot = &c->o_parts[t->part + p];
        int64_t stride[4];
        attn_merge_strides(c, slot->stride, c->dim_v, stride);
        t->row[p] = row_at(t, slot->data, stride, c->dtype, 0);
        t->step[p] = (int64_t)((uint64_t)stride[2] * attn_dtype_bytes(c->dtype));
    }
}

/* The lse of parts part .. part+parts-1 in rows first .. end-1, into W. */
static void load_lse(tile *t, int64_t part, int64_t parts, int64_t first, int64_t end)
{
    const attn_merge_call *c = t->call;
    const size_t size = attn_dtype_bytes(c->compute);
    t->part = part;
    t->parts = parts;
    place_parts(t);
    for (int64_t p = 0; p < parts; p++) {
        const attn_input *slot = &c->lse_parts[part + p];
        int64_t stride[4];
        attn_merge_strides(c, slot->stride, 1, stride);
        char *to = (char *)t->W + (size_t)(p * ROWS) * size;
        for (int64_t r = first; r < end; r++)
            memcpy(to + (size_t)r * size, (const char *)row_at(t, slot->data, stride, c->compute, r), size);
    }
}

static void prepare_one_pass(tile *t)
{
    const attn_merge_call *c = t->call;
    load_lse(t, 0, c->parts, 0, t->rows);
    c->kernel->weights(c->parts, t->rows, t->W, ROWS, t->most, t->total);
    for (int64_t r = 0; r < t->rows; r++) {
        const double total = attn_real_at(t->total, c->compute, r);
        t->lse[r] = total == 0 ? -INFINITY : attn_real_at(t->most, c->compute, r) + log(total);
    }
}

/* For any number of parts: a running sum relative to the largest lse so far. */
static void prepare_in_groups(tile *t)
{
    const attn_merge_call *c = t->call;
    double most[ROWS], sum[ROWS];
    for (int64_t r = 0; r < t->rows; r++) most[r] = -INFINITY, sum[r] = 0;
    for (int64_t part = 0; part < c->parts; part += MAX_PARTS) {
        load_lse(t, part, attn_min(MAX_PARTS, c->parts - part), 0, t->rows);
        for (int64_t p = 0; p < t->parts; p++)
            for (int64_t r = 0; r < t->rows; r++) {
                const double one = attn_real_at(t->W, c->compute, p * ROWS + r);
                if (one == -INFINITY) continue;
                if (one > most[r]) sum[r] = sum[r] * exp(most[r] - one) + 1, most[r] = one;
                else sum[r] += exp(one - most[r]);
            }
    }
    for (int64_t r = 0; r < t->rows; r++) t->lse[r] = sum[r] == 0 ? -INFINITY : most[r] + log(sum[r]);
}

static void prepare(tile *t)
{
    if (t->call->parts <= MAX_PARTS) prepare_one_pass(t);
    else prepare_in_groups(t);
}

/* The weights of parts from `part` on in rows first .. end-1 into W, unless they are there. */
static void weights_of(tile *t, int64_t part, int64_t first, int64_t end)
{
    const attn_merge_call *c = t->call;
    if (c->parts <= MAX_PARTS) return;
    load_lse(t, part, attn_min(MAX_PARTS, c->parts - part), first, end);
    for (int64_t p = 0; p < t->parts; p++)
        for (int64_t r = first; r < end; r++) {
            const double one = attn_real_at(t->W, c->compute, p * ROWS + r);
            attn_real_put(t->W, c->compute, p * ROWS + r, one == -INFINITY ? -0.0 : exp(one - t->lse[r]));
        }
}

static const void *weight_at(const tile *t, int64_t part, int64_t row)
{
    return (const char *)t->W + ((part - t->part) * ROWS + row) * (int64_t)attn_dtype_bytes(t->call->compute);
}

static void parts_of_row(const tile *t, int64_t row, int64_t channel, const void **rows)
{
    const uint64_t skip = (uint64_t)channel * attn_dtype_bytes(t->call->dtype);
    for (int64_t p = 0; p < t->parts; p++)
        rows[p] = (const void *)((uintptr_t)t->row[p] + (uintptr_t)((uint64_t)row * (uint64_t)t->step[p] + skip));
}

static void merge_one_pass(tile *t)
{
    const attn_merge_call *c = t->call;
    const void *rows[MAX_PARTS];
    for (int64_t r = 0; r < t->rows; r++) {
        parts_of_row(t, r, 0, rows);
        c->kernel->add(c->parts, c->dim_v, rows, c->dtype, weight_at(t, 0, r), ROWS, NULL, row_of_slot(t, &c->o, c->dtype, r), 1);
    }
}

/* More than MAX_PARTS parts: a row is merged in pieces of CHANNELS, whose sums are kept from one group of parts to the next. */
static void merge_in_groups(tile *t)
{
    const attn_merge_call *c = t->call;
    const void *rows[MAX_PARTS];
    double sums[CHANNELS];
    const int64_t size = (int64_t)attn_dtype_bytes(c->dtype);
    for (int64_t r = 0; r < t->rows; r++)
        for (int64_t first = 0; first < c->dim_v; first += CHANNELS) {
            const int64_t n = attn_min(CHANNELS, c->dim_v - first);
            for (int64_t part = 0; part < c->parts; part += MAX_PARTS) {
                const int last = part + MAX_PARTS >= c->parts;
                weights_of(t, part, r, r + 1);
                parts_of_row(t, r, first, rows);
                c->kernel->add(t->parts, n, rows, c->dtype, weight_at(t, part, r), ROWS, part ? sums : NULL,
                               last ? (void *)(row_of_slot(t, &c->o, c->dtype, r) + first * size) : sums, last);
            }
        }
}

static void merge_tile(tile *t)
{
    const attn_merge_call *c = t->call;
    prepare(t);
    if (c->parts <= MAX_PARTS) merge_one_pass(t);
    else merge_in_groups(t);
    for (int64_t r = 0; c->lse.data && r < t->rows; r++)
        attn_real_put(row_of_slot(t, &c->lse, c->compute, r), c->compute, 0, t->lse[r]);
}

/* Until the sum over the parts is known, grad_lse_p holds grad_o.o_p, or 0 if the part has weight 0 and is not read. */
static void backward_tile(tile *t)
{
    const attn_merge_call *c = t->call;
    const void *rows[MAX_PARTS];
    double all[ROWS] = {0};
    prepare(t);
    for (int64_t part = 0; part < c->parts; part += MAX_PARTS) {
        weights_of(t, part, 0, t->rows);
        for (int64_t r = 0; r < t->rows; r++) {
            const void *grad_o = row_of_slot(t, &c->grad_o, c->dtype, r);
            parts_of_row(t, r, 0, rows);
            for (int64_t p = 0; p < t->parts; p++) {
                const attn_output *slot = &c->grad_lse_parts[part + p];
                const double w = attn_real_at(weight_at(t, part + p, r), c->compute, 0),
                             inner = w == 0 ? 0 : c->kernel->inner(c->dim_v, grad_o, rows[p], c->dtype);
                all[r] += w * inner;
                attn_real_put(row_of_part(t, slot->data, slot->stride, 1, c->compute, r), c->compute, 0, inner);
            }
        }
    }
    for (int64_t part = 0; part < c->parts; part += MAX_PARTS) {
        weights_of(t, part, 0, t->rows);
        for (int64_t p = 0; p < t->parts; p++)
            for (int64_t r = 0; r < t->rows; r++) {
                const attn_output *lse = &c->grad_lse_parts[part + p], *o = &c->grad_o_parts[part + p];
                char *to = row_of_part(t, lse->data, lse->stride, 1, c->compute, r);
                const void *grad_o = row_of_slot(t, &c->grad_o, c->dtype, r);
                const double w = attn_real_at(weight_at(t, part + p, r), c->compute, 0),
                             up = c->grad_lse.data ? attn_real_at(row_of_slot(t, &c->grad_lse, c->compute, r), c->compute, 0) : 0;
                attn_real_put(to, c->compute, 0, w == 0 ? 0 : w * (attn_real_at(to, c->compute, 0) - all[r] + up));
                c->kernel->add(1, c->dim_v, &grad_o, c->dtype, weight_at(t, part + p, r), ROWS, NULL,
                               row_of_part(t, o->data, o->stride, c->dim_v, c->dtype, r), 1);
            }
    }
}

typedef struct job {
    const attn_merge_call *call;
    void (*run)(tile *t);
    int64_t tiles, tasks; /* a task is a range of tiles */
} job;

static void run_task(void *context, int64_t worker, int64_t task)
{
    const job *j = context;
    const attn_merge_call *c = j->call;
    const int64_t of_head = attn_ceil_div(c->len_q, ROWS), end = (task + 1) * j->tiles / j->tasks;
    (void)worker;
    for (int64_t n = task * j->tiles / j->tasks; n < end; n++) {
        tile t;
        t.call = c;
        t.b = n / of_head / c->heads;
        t.h = n / of_head % c->heads;
        t.first = n % of_head * ROWS;
        t.rows = attn_min(ROWS, c->len_q - t.first);
        j->run(&t);
    }
}

static void each_tile(const attn_merge_call *c, void (*run)(tile *t))
{
    if (c->batch == 0 || c->heads == 0 || c->len_q == 0) return; /* whatever the other sizes are */
    const double numbers = (double)c->batch * (double)c->heads * (double)c->len_q * (double)c->dim_v * (double)(c->parts + 1);
    job j = {c, run, c->batch * c->heads * attn_ceil_div(c->len_q, ROWS), 1};
    const int workers = numbers < SERIAL ? 1 : (int)attn_clamp(j.tiles, 1, c->threads);
    if (workers > 1) j.tasks = attn_min(j.tiles, 4 * (int64_t)workers);
    attn_threads_run(c->parallel_for, c->parallel_context, workers, j.tasks, run_task, &j);
}

void attn_run_merge(const attn_merge_call *call)
{
    if (call->dim_v > 0 || call->lse.data) each_tile(call, merge_tile); /* else no output has elements */
}

void attn_run_merge_backward(const attn_merge_call *call) { each_tile(call, backward_tile); }
