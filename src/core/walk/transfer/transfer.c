/* SPDX-License-Identifier: MIT
 * transfer.c - see transfer.h.  The angles of a token are computed once for all heads. */
#include "transfer.h"

#include <math.h>
#include <string.h>

#include "../../base/checked.h"
#include "../../base/element.h"
#include "../../base/names.h"
#include "../../threads/threads.h"
#include "formats.h"

/* What a worker keeps from token to token: the frequencies of the pairs from `first_frequency` on, and the angles of the pairs from
 * `first` on from position `was` (0: not yet rotated) to `position`; -1: of none. */
typedef struct scratch {
    double frequencies[ATTN_ROTATED_PAIRS], cosines[ATTN_ROTATED_PAIRS], sines[ATTN_ROTATED_PAIRS];
    int64_t first_frequency, first, position, was;
    int again;
    float rotated[ATTN_ROTATED_CHANNELS];
} scratch;

/* i steps and k steps further.  In words, which may wrap: where there are no elements, data may be NULL and strides anything. */
static void *moved_by(const void *data, attn_dtype dtype, int64_t i, int64_t step, int64_t k, int64_t other_step)
{
    const uintptr_t elements = (uintptr_t)i * (uintptr_t)step + (uintptr_t)k * (uintptr_t)other_step;
    return (void *)((uintptr_t)data + elements * attn_dtype_bytes(dtype));
}

/* The rows of a token, one for each head. */
static attn_transfer_rows rows_at(const void *data, attn_dtype dtype, const int64_t stride[4], int64_t entry, int64_t token)
{
    return (attn_transfer_rows){moved_by(data, dtype, entry, stride[0], token, stride[2]), dtype, stride[1]};
}

static attn_transfer_rows rows_from(attn_transfer_rows rows, int64_t head, int64_t channel)
{
    rows.data = moved_by(rows.data, rows.dtype, head, rows.stride, channel, 1);
    return rows;
}

static const double *frequencies_of(const attn_rope *rope, int64_t pairs, int64_t first, int64_t n, scratch *s)
{
    if (rope->frequencies) return rope->frequencies + first;
    if (s->first_frequency != first) {
        const double base = rope->base > 0 ? rope->base : 10000;
        for (int64_t i = 0; i < n; i++) s->frequencies[i] = pow(base, -2.0 * (double)(first + i) / (double)(2 * pairs));
        s->first_frequency = first;
    }
    return s->frequencies;
}

/* A row of a table, which may be of any type and strides. */
static void read_table(const attn_transfer_part *kernel, const attn_input *table, int64_t row, int64_t first, int64_t n, double *x)
{
    void *at = moved_by(table->data, table->dtype, row, table->stride[2], first, table->stride[3]);
    if (table->stride[3] == 1) {
        const attn_transfer_rows from = {at, table->dtype, 0}, to = {x, ATTN_F64, 0};
        kernel->convert(1, n, from, to);
        return;
    }
    for (int64_t i = 0; i < n; i++) x[i] = attn_element_get(at, table->dtype, i * table->stride[3]);
}

/* The row of both tables. */
static void read_tables(const attn_transfer_part *kernel, const attn_rope *rope, int64_t pairs, int64_t row, int64_t first,
                        int64_t n, double *cosines, double *sines)
{
    const attn_input c = {rope->cosines, ATTN_F64, {0, 0, pairs, 1}}, s = {rope->sines, ATTN_F64, {0, 0, pairs, 1}};
    read_table(kernel, rope->cosines ? &c : &rope->cos_table, row, first, n, cosines);
    read_table(kernel, rope->cosines ? &s : &rope->sin_table, row, first, n, sines);
}

/* c + i s over c_was + i s_was: the rotation from one row of the tables to another. */
static void divide(int64_t n, double *c, double *s, const double *c_was, const double *s_was)
{
    for (int64_t i = 0; i < n; i++) {
        const double x = c[i], y = s[i], size = c_was[i] * c_was[i] + s_was[i] * s_was[i];
        c[i] = (x * c_was[i] + y * s_was[i]) / size;
        s[i] = (y * c_was[i] - x * s_was[i]) / size;
    }
}

/* The cosines and sines of pairs first .. first+n-1 of a token. */
static void find_angles(const attn_transfer_part *kernel, const attn_rope *rope, int64_t pairs, const attn_transfer_token *t,
                        int64_t first, int64_t n, scratch *s)
{
    if (s->first == first && s->position == t->position && s->again == t->again && (!t->again || s->was == t->was)) return;
    s->first = first;
    s->position = t->position;
    s->again = t->again;
    s->was = t->was;
    if (rope->cosines || rope->cos_table.data) {
        read_tables(kernel, rope, pairs, t->position, first, n, s->cosines, s->sines);
        if (t->again) {
            double cosines[ATTN_ROTATED_PAIRS], sines[ATTN_ROTATED_PAIRS];
            read_tables(kernel, rope, pairs, t->was, first, n, cosines, sines);
            divide(n, s->cosines, s->sines, cosines, sines);
        }
    } else {
        const double stretch = rope->stretch > 0 ? rope->stretch : 1, magnitude = rope->magnitude > 0 ? rope->magnitude : 1;
        const double *const frequencies = frequencies_of(rope, pairs, first, n, s);
        if (t->again) kernel->angles(n, (double)(t->position - t->was) / stretch, frequencies, 1, s->cosines, s->sines);
        else kernel->angles(n, (double)t->position / stretch, frequencies, magnitude, s->cosines, s->sines);
    }
    for (int64_t i = 0; rope->inverse && i < n; i++) s->sines[i] = -s->sines[i];
}

/* Rows of `heads` heads at one position. */
static void rotate(const attn_transfer_part *kernel, const attn_rope *rope, const attn_transfer_token *t, int64_t heads,
                   int64_t dim, attn_transfer_rows from, attn_transfer_rows to, scratch *s)
{
    const int64_t rotary = rope->dim_rotary ? rope->dim_rotary : dim, pairs = rotary / 2;
    const int interleaved = rope->pairs == ATTN_ROPE_PAIRS_INTERLEAVED;
    for (int64_t first = 0; first < pairs; first += ATTN_ROTATED_PAIRS) {
        const int64_t n = attn_min(pairs - first, ATTN_ROTATED_PAIRS), channel = interleaved ? 2 * first : first;
        find_angles(kernel, rope, pairs, t, first, n, s);
        kernel->rotate(heads, n, interleaved ? 1 : pairs, s->cosines, s->sines, rows_from(from, 0, channel),
                       rows_from(to, 0, channel));
    }
    if (rotary < dim) kernel->convert(heads, dim - rotary, rows_from(from, 0, rotary), rows_from(to, 0, rotary));
}

/* ---- quantised rows ---- */

enum { SOME = 8 * ATTN_BLOCK }; /* channels at a time */

/* n channels of a row as f32, in place or in memory of SOME numbers. */
static const float *as_f32(const attn_transfer_part *kernel, attn_transfer_rows row, int64_t channel, int64_t n, float *memory)
{
    const attn_transfer_rows from = rows_from(row, 0, channel), to = {memory, ATTN_F32, 0};
    if (row.dtype == ATTN_F32) return from.data;
    kernel->convert(1, n, from, to);
    return memory;
}

/* The scale that makes the largest number of a row that of the f8 type; NaN if the row is not finite. */
static float f8_scale(const attn_transfer_part *kernel, attn_dtype dtype, int64_t dim, attn_transfer_rows row)
{
    float memory[SOME], most = 0, rest = 0;
    for (int64_t c = 0; c < dim; c += SOME) {
        const int64_t n = attn_min(dim - c, SOME);
        const float *x = as_f32(kernel, row, c, n, memory);
        for (int64_t i = 0; i < n; i++) {
            most = fabsf(x[i]) > most ? fabsf(x[i]) : most;
            rest += x[i] - x[i];
        }
    }
    return rest == 0 ? (float)((double)most / attn_f8_largest(dtype)) : NAN;
}

/* `scale`: NULL, or the row's, which is written unless it is given. */
static void quantise_row(const attn_transfer_part *kernel, int64_t dim, attn_transfer_rows from, attn_transfer_rows to,
                         float *scale, int given)
{
    float memory[SOME];
    double factor = 1;
    if (to.dtype == ATTN_I8) {
        kernel->quantise(dim, from.data, from.dtype, to.data, scale);
        return;
    }
    if (scale && !given) *scale = f8_scale(kernel, to.dtype, dim, from);
    if (scale) factor = *scale == 0 && !given ? 1 : (double)*scale; /* (all are 0) */
    for (int64_t c = 0; c < dim; c += SOME) {
        const int64_t n = attn_min(dim - c, SOME);
        const float *x = as_f32(kernel, from, c, n, memory);
        uint8_t *at = rows_from(to, 0, attn_row_elements(to.dtype, c)).data;
        if (attn_is_f8(to.dtype)) attn_f8_quantise(to.dtype, n, x, factor, at);
        else attn_blocks_quantise(to.dtype, n, x, at);
    }
}

/* Heads, a few at a time through f32 if they are rotated. */
static void quantise(const attn_transfer_part *kernel, const attn_transfer_tensor *x, const attn_transfer_token *t,
                     attn_transfer_rows from, attn_transfer_rows to, attn_transfer_rows scale, scratch *s)
{
    const int rotated = x->rope && x->dim > 0 && !t->plain;
    const int64_t some = rotated ? ATTN_ROTATED_CHANNELS / x->dim : x->heads;
    for (int64_t head = 0, n; head < x->heads; head += n) {
        attn_transfer_rows rows = rows_from(from, head, 0);
        n = attn_min(x->heads - head, some);
        if (rotated) {
            const attn_transfer_rows half_way = {s->rotated, ATTN_F32, x->dim};
            rotate(kernel, x->rope, t, n, x->dim, rows, half_way, s);
            rows = half_way;
        }
        for (int64_t h = 0; h < n; h++)
            quantise_row(kernel, x->dim, rows_from(rows, h, 0), rows_from(to, head + h, 0),
                         x->scale.data ? rows_from(scale, head + h, 0).data : NULL, x->given);
    }
}

static void write_angles(const attn_transfer_part *kernel, const attn_transfer_tensor *x, const attn_transfer_token *t, scratch *s)
{
    const int64_t pairs = x->dim / 2;
    double *const to = rows_at(x->to.data, ATTN_F64, x->to.stride, t->to_entry, t->to_token).data;
    for (int64_t first = 0; first < pairs && !t->plain; first += ATTN_ROTATED_PAIRS) {
        const int64_t n = attn_min(pairs - first, ATTN_ROTATED_PAIRS);
        find_angles(kernel, x->rope, pairs, t, first, n, s);
        memcpy(to + first, s->cosines, (size_t)n * sizeof *to);
        memcpy(to + pairs + first, s->sines, (size_t)n * sizeof *to);
    }
}

static void move(const attn_transfer_part *kernel, const attn_transfer_tensor *x, const attn_transfer_token *t, scratch *s)
{
    if (x->angles) {
        write_angles(kernel, x, t, s);
        return;
    }
    const attn_transfer_rows from = rows_at(x->from.data, x->from.dtype, x->from.stride, t->entry, t->token),
                             to = rows_at(x->to.data, x->to.dtype, x->to.stride, t->to_entry, t->to_token);
    const attn_transfer_rows scale_from = rows_at(x->scale.data, ATTN_F32, x->scale.stride, t->entry, t->token),
                             scale = rows_at(x->scale.data, ATTN_F32, x->scale.stride, t->to_entry, t->to_token);
    if (attn_is_quantised(x->from.dtype)) {
        kernel->convert(x->heads, attn_row_elements(x->from.dtype, x->dim), from, to);
        if (x->scale.data && !x->given) kernel->convert(x->heads, 1, scale_from, scale);
    } else if (attn_is_quantised(x->to.dtype)) {
        quantise(kernel, x, t, from, to, scale, s);
    } else if (x->rope && !t->plain) {
        rotate(kernel, x->rope, t, x->heads, x->dim, from, to, s);
    } else {
        kernel->convert(x->heads, x->dim, from, to);
    }
}

/* A task is a range of tokens. */
typedef struct job {
    const attn_transfer_walk *walk;
    int64_t tasks;
} job;

static int64_t task_start(const job *j, int64_t task)
{
    return j->walk->tokens / j->tasks * task + attn_min(task, j->walk->tokens % j->tasks);
}

static void run_task(void *context, int64_t worker, int64_t task)
{
    const job *j = context;
    const attn_transfer_walk *w = j->walk;
    const int64_t end = task_start(j, task + 1);
    scratch s;
    (void)worker;
    s.first = s.first_frequency = -1;
    for (int64_t n = task_start(j, task); n < end; n++) {
        attn_transfer_token t;
        if (!w->find(w->context, n, &t)) continue;
        for (int i = 0; i < w->tensors; i++) move(w->kernel, &w->tensor[i], &t, &s);
    }
}

/* ---- keys by channel ---- */

void attn_transfer_group(const attn_transfer_part *kernel, int64_t dim, attn_transfer_rows rows, uint8_t *key, int64_t stride)
{
    enum { SIDE = ATTN_BLOCK, BYTES = 20 };
    const int64_t blocks = dim / ATTN_BLOCK;
    uint16_t halves[SIDE * SIDE] = {0};
    float x[SIDE * SIDE] = {0}, channels[SIDE * SIDE];
    uint8_t square[SIDE * BYTES];
    for (int64_t c = 0, at = 0, of_key = 0; c < dim; c += SIDE) {
        attn_transfer_rows part = rows_from(rows, 0, c);
        const attn_transfer_rows half = {halves, ATTN_F16, SIDE}, wide = {x, ATTN_F32, SIDE};
        if (rows.dtype != ATTN_F16) {
            kernel->convert(SIDE, SIDE, part, half);
            part = half;
        }
        kernel->convert(SIDE, SIDE, part, wide);
        for (int t = 0; t < SIDE; t++)
            for (int i = 0; i < SIDE; i++) channels[i * SIDE + t] = x[t * SIDE + i];
        attn_blocks_quantise(ATTN_Q4_1, SIDE * SIDE, channels, square);
        for (int i = 0; i < SIDE; i++, of_key++) {
            if (of_key == blocks) of_key = 0, at += stride;
            memcpy(key + (at + of_key) * BYTES, square + i * BYTES, BYTES);
        }
    }
}

/* A task is an entry, or some heads of one. */
typedef struct group_job {
    const attn_transfer_walk *walk;
    int64_t parts; /* of an entry's heads */
} group_job;

static void run_groups_task(void *context, int64_t worker, int64_t task)
{
    const group_job *j = context;
    const attn_transfer_walk *w = j->walk;
    const attn_transfer_groups *g = &w->groups;
    const attn_transfer_tensor *x = &g->keys;
    const int64_t b = task / j->parts, part = task % j->parts;
    const int64_t head = x->heads * part / j->parts, heads = x->heads * (part + 1) / j->parts - head;
    scratch s;
    (void)worker;
    s.first = s.first_frequency = -1;
    for (int64_t n = 0; n < g->each; n++) {
        attn_transfer_token t;
        if (!w->find(w->context, b * g->each + n, &t)) break;
        const int64_t row = t.position % ATTN_TAIL, before = t.position % ATTN_BLOCK; /* of its group */
        const attn_transfer_rows from = rows_from(rows_at(x->from.data, x->from.dtype, x->from.stride, t.entry, t.token), head, 0),
                                 tail = rows_from(rows_at(g->tail.data, ATTN_F16, g->tail.stride, b, row), head, 0);
        if (x->rope) rotate(w->kernel, x->rope, &t, heads, x->dim, from, tail, &s);
        else w->kernel->convert(heads, x->dim, from, tail);
        if (before < ATTN_BLOCK - 1) continue;
        for (int64_t h = head; h < head + heads; h++) {
            const attn_transfer_rows group = rows_from(rows_at(g->tail.data, ATTN_F16, g->tail.stride, b, row - before), h, 0),
                                     to = rows_at(x->to.data, x->to.dtype, x->to.stride, t.to_entry, t.to_token - before);
            attn_transfer_group(w->kernel, x->dim, (attn_transfer_rows){group.data, ATTN_F16, g->tail.stride[2]},
                                rows_from(to, h, 0).data, x->to.stride[2]);
        }
    }
}

static void run_groups(const attn_transfer_walk *w)
{
    const attn_transfer_groups *g = &w->groups;
    if (g->entries == 0 || g->each == 0 || g->keys.heads == 0 || g->keys.dim == 0) return;
    const int64_t most = w->threads > 1 ? g->keys.heads : 1; /* each part computes the angles again */
    group_job j = {w, attn_clamp(attn_ceil_div(2 * (int64_t)w->threads, g->entries), 1, most)};
    const int64_t tasks = g->entries * j.parts;
    attn_threads_run(w->parallel_for, w->parallel_context, (int)attn_clamp(tasks, 1, w->threads), tasks, run_groups_task, &j);
}

double attn_transfer_size(const attn_transfer_walk *w)
{
    double size = 0;
    for (int i = 0; i < w->tensors; i++) size += (double)w->tokens * (double)w->tensor[i].heads * (double)w->tensor[i].dim;
    return size + (double)w->groups.entries * (double)w->groups.each * (double)w->groups.keys.heads * (double)w->groups.keys.dim;
}

static void run_tokens(const attn_transfer_walk *w)
{
    job j = {w, 1};
    int written = 0;
    for (int i = 0; i < w->tensors; i++) written |= w->tensor[i].heads > 0 && (w->tensor[i].dim > 0 || w->tensor[i].scale.data);
    if (!written || w->tokens == 0) return; /* whatever the other sizes are */
    const int workers = (int)attn_clamp(w->tokens, 1, w->threads);
    if (workers > 1) j.tasks = attn_min(w->tokens, 4 * (int64_t)workers);
    attn_threads_run(w->parallel_for, w->parallel_context, workers, j.tasks, run_task, &j);
}

void attn_run_transfer(const attn_transfer_walk *w)
{
    run_tokens(w);
    run_groups(w);
}
