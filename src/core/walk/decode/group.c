/* SPDX-License-Identifier: MIT
 * group.c - decode: the rows of a key head, its keys piece by piece, and modifiers of scores. */
#include "group.h"

#include "../../base/names.h"

/* The keys of a piece take about so many bytes: the next piece is prefetched while the current one is processed, so memory has the
 * time of a whole piece, and the current piece is in the level 1 cache (lab/decode/README.md). */
enum { PIECE_BYTES = 16384, MIN_PIECE = 16 };

static attn_decode_source source_of(const void *base, const attn_layout *layout, int64_t dim)
{
    const int64_t size = (int64_t)attn_dtype_bytes(layout->dtype);
    /* Unsigned: without keys the stride may be any number. */
    const int64_t step = (int64_t)((uint64_t)layout->stride[2] * (uint64_t)size);
    attn_decode_source s = {base, layout, dim, attn_max(1, dim * size), step, 0};
    s.piece = attn_max(MIN_PIECE, PIECE_BYTES / s.row / MIN_PIECE * MIN_PIECE);
    return s;
}

void attn_decode_group_at(attn_decode_group *g, const attn_decode_call *c, char *memory, int64_t number)
{
    const attn_resolved *p = &c->walk->problem;
    const attn_shape *s = &p->shape;
    g->call = c;
    g->number = number;
    g->heads = s->heads_q / s->heads_kv;
    for (int64_t k = 0; k < g->heads; k++) g->task[k] = attn_task_of_head(c->walk, c->args, memory, number * g->heads + k);
    g->queries = attn_clamp(g->task->visibility.len_q, 0, s->len_q);
    g->rows = g->heads * g->queries;
    g->max_rows = g->heads * s->len_q;
    g->ldq = c->plan->ldq;
    g->ldo = c->plan->ldo;
    g->lds = attn_decode_lds(c->plan);
    g->size = (int64_t)attn_dtype_bytes(c->walk->compute);
    g->keys = source_of(c->args->k, &p->at.k, s->dim_qk);
    g->values = source_of(c->args->v, &p->at.v, s->dim_v);
}

void *attn_decode_state(const attn_decode_group *g, int64_t block)
{
    const attn_decode_walk *plan = g->call->plan;
    return attn_decode_after_workers(g->call) + plan->shared.O + (g->number * plan->blocks + block) * plan->shared.O_bytes;
}

void *attn_decode_number(const attn_decode_group *g, int64_t offset, int64_t row)
{
    return attn_decode_at(g, attn_decode_after_workers(g->call) + offset, (g->number * g->max_rows + row) * g->call->plan->blocks);
}

/* ---- pieces ---- */

/* Address of key or value j; *count, at least 1, is cut to the rows that follow it there. */
static const char *run_at(const attn_decode_group *g, const attn_decode_source *s, int64_t j, int64_t *count)
{
    return attn_key_run(g->task, s->base, s->layout, j, count);
}

const char *attn_decode_row(const attn_decode_group *g, const attn_decode_source *s, int64_t j)
{
    int64_t one = 1;
    return run_at(g, s, j, &one);
}

/* Prefetches a line of each page of a piece, before the kernels prefetch all of them, to start the translations of its addresses (3
 * to 6 ns a key of f32, lab/decode/README.md).  Always inlined: gcc considers a function that only prefetches to be without
 * effects, and at -O2 drops its calls. */
static inline __attribute__((always_inline)) void prefetch_pages_of_piece(const attn_decode_source *s, const char *rows)
{
    if (s->stride != s->row) return; /* each row may have a page of its own */
    for (int64_t at = 0; at < s->piece * s->row; at += ATTN_PAGE) __builtin_prefetch(rows + at, 0, 3);
}

void attn_decode_pieces(const attn_decode_group *g, const attn_decode_source *s, int64_t low, int64_t high, const char *then,
                        attn_decode_piece *run, void *context)
{
    int64_t left = high - low, n; /* left: contiguous rows, from the piece on */
    const char *rows = run_at(g, s, low, &left);
    for (int64_t j = low; j < high; j += n) {
        n = attn_min(left, s->piece);
        left -= n;
        const char *next;
        if (j + n == high) {
            next = then ? then : rows;
        } else if (left > 0) {
            next = rows + n * s->stride;
        } else {
            left = high - j - n;
            next = run_at(g, s, j + n, &left);
        }
        if (next != rows) prefetch_pages_of_piece(s, next);
        run(g, s, j, n, rows, (int64_t)((uintptr_t)next - (uintptr_t)rows), context);
        rows = next;
    }
}

/* ---- scores ---- */

int attn_decode_modify(const attn_decode_group *g, const attn_task *task, int64_t i, const attn_decode_block *b,
                       const float *factors, void *S)
{
    const attn_walk *w = task->walk;
    const attn_resolved *p = &w->problem;
    const attn_decode_part *kernel = w->kernel.decode;
    const int64_t n = b->high - b->low;
    int cut = 0;
    if (w->kernel.decode_pairs) w->kernel.decode_pairs->scale_row(n, S, attn_task_scale(task));
    if (factors) kernel->scale_row(n, S, factors);
    if (p->score.softcap > 0) kernel->softcap_row(n, S, p->score.softcap);
    if (p->has.bias) {
        const attn_layout *bias = &p->at.bias;
        kernel->bias_row(n, S, attn_pair_at(task, task->args->bias, bias, i, b->low), bias->dtype, bias->stride[3]);
        cut = 1;
    }
    if (p->has.alibi_slopes)
        kernel->alibi_row(n, S, attn_task_slope(task), attn_add_saturate(i - b->low, task->visibility.offset));
    if (p->has.bias_table) {
        const int64_t position = attn_add_saturate(i, task->visibility.offset);
        const char *diagonals = attn_diagonals_at(&g->call->plan->tables, task, position, b->high - 1, n);
        const void *last = diagonals + (n - 1) * (int64_t)attn_dtype_bytes(w->compute);
        if (g->call->plan->tile_kv && !attn_tables_special(task)) kernel->order.add_diagonals_row(n, S, last);
        else kernel->bias_row(n, S, last, w->compute, -1);
        cut |= attn_tables_special(task);
    }
    if (p->has.mask) {
        const attn_layout *mask = &p->at.mask;
        kernel->keep_row(n, S, attn_pair_at(task, task->args->mask, mask, i, b->low), mask->stride[3]);
        cut = 1;
    }
    attn_interval seen = attn_keys_of_query(&task->visibility, i).local;
    if (seen.low > b->low || seen.high < b->high) {
        int64_t low = attn_clamp(seen.low, b->low, b->high), high = attn_clamp(seen.high, low, b->high);
        kernel->drop_outside(n, S, low - b->low, high - b->low);
        cut = 1;
    }
    return cut;
}
