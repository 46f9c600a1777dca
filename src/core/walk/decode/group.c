/* SPDX-License-Identifier: MIT
 * group.c - decode: the rows of a key head, its keys piece by piece, and modifiers of scores. */
#include "group.h"

#include <string.h>

#include "../../base/checked.h"
#include "../../base/names.h"
#include "../../task/tree.h"

/* The keys of a piece take about so many bytes: the next piece is prefetched while the current one is processed, so memory has the
 * time of a whole piece, and the current piece is in the level 1 cache (lab/decode/README.md). */
enum { PIECE_BYTES = 16384, MIN_PIECE = 16 };

int64_t attn_decode_rows_of_piece(attn_dtype dtype, int64_t dim)
{
    const int64_t row = attn_row_bytes(dtype, dim);
    return attn_max(MIN_PIECE, PIECE_BYTES / attn_max(1, row) / MIN_PIECE * MIN_PIECE);
}

static attn_decode_source source_of(const attn_resolved *p, const void *base, const attn_layout *layout, int64_t dim)
{
    const int64_t size = (int64_t)attn_dtype_bytes(layout->dtype);
    /* Unsigned: without keys the stride may be any number. */
    const int64_t step = (int64_t)((uint64_t)layout->stride[2] * (uint64_t)size);
    attn_decode_source s = {base, layout, dim, attn_max(1, attn_row_bytes(layout->dtype, dim)), step, 0, layout->stride[2], 0, 0};
    s.piece = attn_decode_rows_of_piece(layout->dtype, dim);
    const int64_t page = attn_is_paged(p) ? p->paging.page_size : INT64_MAX,
                  together = attn_has_choices(p) ? attn_min(page, p->mask.block_kv) : page; /* rows */
    s.spread = together < s.piece && dim > 0;
    s.gathers = s.spread && together < MIN_PIECE;
    if (s.gathers) s.ld = attn_row_elements(layout->dtype, dim);
    return s;
}

int attn_decode_share(const attn_decode_walk *plan, int64_t blocks, int64_t rows, attn_decode_shared *shared, int64_t *bytes)
{
    const attn_shape *s = &plan->walk.problem.shape;
    const size_t size = attn_dtype_bytes(plan->walk.compute);
    int64_t numbers, key_heads;
    shared->O_bytes = rows == 1 ? plan->ldo * (int64_t)size : attn_step_bytes(rows, plan->ldo, size);
    if (shared->O_bytes < 0 || !attn_mul(s->batch, s->heads_kv, &key_heads) || !attn_mul(blocks, rows, &numbers)) return 0;
    const attn_part_of parts[] = {
        {&shared->O, blocks, shared->O_bytes, 1},
        {&shared->m, numbers, 1, size},
        {&shared->l, numbers, 1, size},
        {&shared->open_tasks, key_heads, 1, sizeof(int64_t)},
    };
    *bytes = 0;
    return attn_place(parts, sizeof parts / sizeof *parts, bytes);
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
    g->blocks = c->plan->blocks;
    g->skipped = 0;
    g->O_bytes = c->shared.O_bytes;
    g->first_O = number * g->blocks * g->O_bytes;
    g->first_number = number * g->max_rows * g->blocks;
    if (c->args->schedule) {
        const attn_scheduled_entry *entry = &c->args->schedule->entries[g->task->b];
        g->blocks = entry->pieces;
        g->skipped = entry->skipped;
        const int64_t rows = attn_ceil_div(g->rows, 4) * 4;
        g->O_bytes = rows * c->plan->ldo * (int64_t)attn_dtype_bytes(c->walk->compute);
        g->first_number = entry->before * s->heads_kv + g->task->g * g->blocks * rows;
        g->first_O = entry->before * s->heads_kv * (g->O_bytes / rows) + g->task->g * g->blocks * g->O_bytes;
    }
    g->ldq = c->plan->ldq;
    g->ldo = c->plan->ldo;
    g->lds = attn_decode_lds(c->plan);
    g->size = (int64_t)attn_dtype_bytes(c->walk->compute);
    g->keys = source_of(p, c->args->k, &p->at.k, s->dim_qk);
    g->values = source_of(p, c->args->v, &p->at.v, s->dim_v);
}

void *attn_decode_state(const attn_decode_group *g, int64_t block)
{
    return attn_decode_after_workers(g->call) + g->call->shared.O + g->first_O + block * g->O_bytes;
}

void *attn_decode_number(const attn_decode_group *g, int64_t offset, int64_t row)
{
    return attn_decode_at(g, attn_decode_after_workers(g->call) + offset, g->first_number + row * g->blocks);
}

/* ---- pieces ---- */

/* Address of key or value j; *count, at least 1, is cut to the rows that follow it there. */
static const char *run_at(const attn_decode_group *g, const attn_decode_source *s, int64_t j, int64_t *count)
{
    return attn_key_run(g->task, s->base, s->layout, j, count);
}

static const char *row_at(const attn_decode_group *g, const attn_decode_next *at)
{
    int64_t one = 1;
    return run_at(g, at->source, at->j, &one);
}

/* Prefetches a line of each page of a piece, before the kernels prefetch all of them, to start the translations of its addresses (3
 * to 6 ns a key of f32, lab/decode/README.md).  Always inlined: gcc considers a function that only prefetches to be without
 * effects, and at -O2 drops its calls. */
static inline __attribute__((always_inline)) void prefetch_pages_of_piece(const attn_decode_source *s, const char *rows)
{
    if (s->stride != s->row) return; /* each row may have a page of its own */
    for (int64_t at = 0; at < s->piece * s->row; at += ATTN_PAGE) __builtin_prefetch(rows + at, 0, 3);
}

/* ---- pieces on several pages ---- */

enum { LINE = 64, AHEAD = 64, RING = 128 }; /* AHEAD: rows; RING: a power of 2 and of MIN_PIECE, more than AHEAD + MIN_PIECE */

/* Addresses of rows, each computed once: those of rows j .. end-1 are at place[j % RING]. */
typedef struct addresses {
    const char *place[RING];
} addresses;

/* Rows j .. end-1 of a list of blocks, from place[first % RING] on. */
static void find_listed_rows(const attn_task *task, const attn_decode_source *s, int64_t j, int64_t end, int64_t first,
                             addresses *to)
{
    for (int64_t n; j < end; j += n) {
        n = end - j;
        const char *rows = attn_key_run(task, s->base, s->layout, j, &n);
        for (int64_t i = 0; i < n; i++) to->place[first++ % RING] = rows + i * s->stride;
    }
}

/* Rows j .. end-1, from place[first % RING] on; what attn_key_run does for one of them. */
static void find_rows(const attn_decode_group *g, const attn_decode_source *s, int64_t j, int64_t end, int64_t first, addresses *to)
{
    const attn_resolved *p = &g->call->walk->problem;
    const attn_args *args = g->call->args;
    const attn_task *task = g->task;
    if (task->visibility.list) {
        find_listed_rows(task, s, j, end, first, to);
        return;
    }
    const int lists = p->has.page_index;
    const attn_dtype dtype = lists ? p->at.page_index.dtype : p->at.page_table.dtype;
    const void *pages = lists ? args->page_index : args->page_table;
    const int64_t row =
        lists ? attn_index_at(args->page_starts, p->at.page_starts.dtype, task->b) : task->b * p->at.page_table.stride[0];
    const int64_t size = p->paging.page_size, element = (int64_t)attn_dtype_bytes(s->layout->dtype);
    const char *head = (const char *)s->base + task->g * s->layout->stride[1] * element;
    const int64_t apart = s->layout->stride[0] * element;
    if (size == 1) {
        for (; j < end; j++) to->place[first++ % RING] = head + attn_index_at(pages, dtype, row + j) * apart;
        return;
    }
    for (int64_t number = j / size, into = j % size; j < end; number++, into = 0) {
        const int64_t n = attn_min(size - into, end - j);
        const char *rows = head + attn_index_at(pages, dtype, row + number) * apart + into * s->stride;
        for (int64_t i = 0; i < n; i++, j++) to->place[first++ % RING] = rows + i * s->stride;
    }
}

static inline __attribute__((always_inline)) void prefetch_rows(const addresses *a, int64_t first, int64_t n, int64_t row)
{
    for (int64_t i = first; i < first + n; i++)
        for (int64_t at = 0; at < row; at += LINE) __builtin_prefetch(a->place[i % RING] + at, 0, 2);
}

/* Copies at most MIN_PIECE rows together, so that kernels see several; first is a multiple of that.  Not of keys by channel, which
 * attn_channels_at finds: the last ones are not here but in the tail. */
static const char *gather(const attn_decode_group *g, const attn_decode_source *s, const addresses *a, int64_t first, int64_t n)
{
    char *const all = attn_part(g->task, g->call->plan->scratch.rows);
    if (!attn_is_by_channel(s->layout->dtype)) g->call->walk->kernel.decode->gather_rows(n, a->place + first % RING, s->row, all);
    return all;
}

/* Pages of very few rows. */
static void gather_pieces(const attn_decode_group *g, const attn_decode_source *s, int64_t low, int64_t high, attn_decode_next then,
                          attn_decode_piece *run, void *context)
{
    const int64_t len = g->task->visibility.len_kv, after = then.source ? attn_min(AHEAD, len - then.j) : 0;
    addresses own, next;
    find_rows(g, s, low, attn_min(low + AHEAD, high), 0, &own);
    if (after > 0) find_rows(g, then.source, then.j, then.j + after, 0, &next);
    /* The first keys of a task, which nobody knew before. */
    if (s == &g->keys) prefetch_rows(&own, 0, attn_min(AHEAD, high - low), s->row);
    for (int64_t j = low, n; j < high; j += n) {
        n = attn_min(MIN_PIECE, high - j);
        const int64_t ahead = j + AHEAD, more = attn_clamp(high - ahead, 0, n), rest = ahead + more - high;
        const char *rows = gather(g, s, &own, j - low, n);
        find_rows(g, s, ahead, ahead + more, ahead - low, &own);
        prefetch_rows(&own, ahead - low, more, s->row);
        if (rest >= 0 && rest < after) prefetch_rows(&next, rest, attn_min(n - more, after - rest), then.source->row);
        run(g, s, j, n, rows, 0, context);
    }
}

/* What a worker reads one piece after row j; its source is NULL if that is unknown. */
static attn_decode_next one_piece_on(const attn_decode_group *g, const attn_decode_source *s, int64_t j, int64_t high,
                                     attn_decode_next then)
{
    attn_decode_next next = {s, j + s->piece};
    if (next.j < high) return next;
    next = (attn_decode_next){then.source, then.j + next.j - high};
    if (next.source && next.j >= g->task->visibility.len_kv) next.source = NULL;
    return next;
}

/* Prefetches a line at each end of n rows two pieces ahead, to start the translations of their addresses. */
static inline __attribute__((always_inline)) void prefetch_ends(const attn_decode_group *g, attn_decode_next at, int64_t n)
{
    if (!at.source || at.source->stride != at.source->row) return; /* of rows apart, more translations than this gains */
    const char *rows = row_at(g, &at);
    __builtin_prefetch(rows, 0, 3);
    __builtin_prefetch(rows + n * at.source->row - LINE, 0, 3);
}

/* Page by page; the rows that are prefetched meanwhile lie a piece ahead, on some other page. */
static void spread_pieces(const attn_decode_group *g, const attn_decode_source *s, int64_t low, int64_t high, attn_decode_next then,
                          attn_decode_piece *run, void *context)
{
    for (int64_t j = low, n; j < high; j += n) {
        const attn_decode_next next = one_piece_on(g, s, j, high, then);
        n = high - j;
        const char *rows = run_at(g, s, j, &n), *ahead = next.source ? row_at(g, &next) : rows;
        if (next.source == s) prefetch_ends(g, one_piece_on(g, s, next.j, high, then), n);
        run(g, s, j, n, rows, (int64_t)((uintptr_t)ahead - (uintptr_t)rows), context);
    }
}

void attn_decode_pieces(const attn_decode_group *g, const attn_decode_source *s, int64_t low, int64_t high, attn_decode_next then,
                        attn_decode_piece *run, void *context)
{
    if (s->spread) {
        (s->gathers ? gather_pieces : spread_pieces)(g, s, low, high, then, run, context);
        return;
    }
    int64_t left = high - low, n; /* left: contiguous rows, from the piece on */
    const char *rows = run_at(g, s, low, &left);
    for (int64_t j = low; j < high; j += n) {
        n = attn_min(left, s->piece);
        left -= n;
        const char *next;
        if (j + n == high) {
            next = then.source ? row_at(g, &then) : rows;
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

attn_decode_rows attn_decode_unpacked(const attn_decode_group *g, const attn_decode_source *s, int64_t j, int64_t n, const char *at,
                                      int64_t fetch)
{
    const attn_walk *w = g->call->walk;
    const attn_resolved *p = &w->problem;
    const attn_args *args = g->call->args;
    const int values = s == &g->values, scaled = values ? p->has.v_scale : p->has.k_scale;
    const attn_layout *layout = values ? &p->at.v_scale : &p->at.k_scale;
    void *to = attn_part(g->task, values ? g->call->plan->scratch.V : g->call->plan->scratch.K);
    attn_decode_prefetch(s, n, at, fetch);
    if (attn_is_by_channel(s->layout->dtype)) attn_load_channels(g->task, j, j + n, to, s->dim);
    else w->kernel.storage->load_rows(n, s->dim, at, s->layout->dtype, s->ld, to, s->dim);
    for (int64_t i = 0, run; scaled && i < n; i += run) {
        run = n - i;
        const void *factors = attn_key_run(g->task, values ? args->v_scale : args->k_scale, layout, j + i, &run);
        w->kernel.storage->scale_rows(run, s->dim, factors, layout->stride[2], attn_decode_at(g, to, i * s->dim), s->dim);
    }
    return (attn_decode_rows){to, w->compute, s->dim, 0};
}

/* ---- scores ---- */

/* Drops the last keys that a query's bits hide, a word at a time.  Returns 1 if there are any. */
static int drop_by_tree(const attn_task *task, int64_t i, int64_t low, int64_t high, void *S)
{
    enum { WORD = 64 };
    const attn_walk *w = task->walk;
    const uint64_t *words = attn_tree_words(task, i);
    const int64_t first = attn_tree_first(&w->problem, task->visibility.all_kv), size = (int64_t)attn_dtype_bytes(w->compute);
    unsigned char bytes[WORD];
    int cut = 0;
    for (int64_t j = attn_max(low, first), end; j < high; j = end) {
        end = attn_min(high, j + WORD);
        if (attn_tree_expand(words, first, j, end, bytes)) continue;
        w->kernel.decode->keep_row(end - j, (char *)S + (j - low) * size, bytes, 1);
        cut = 1;
    }
    return cut;
}

/* Modifiers of the scores of keys low .. high-1 of the sequence that depend on where these are.  Returns 1 if a key may have been
 * dropped. */
static int modify_run(const attn_decode_group *g, const attn_task *task, int64_t i, int64_t low, int64_t high, void *S)
{
    const attn_walk *w = task->walk;
    const attn_resolved *p = &w->problem;
    const attn_decode_part *kernel = w->kernel.decode;
    const int64_t n = high - low;
    int cut = 0;
    if (p->has.bias) {
        const attn_layout *bias = &p->at.bias;
        kernel->bias_row(n, S, attn_pair_at(task, task->args->bias, bias, i, low), bias->dtype, bias->stride[3]);
        cut = 1;
    }
    if (p->has.alibi_slopes) kernel->alibi_row(n, S, attn_task_slope(task), attn_add_saturate(i - low, task->visibility.offset));
    if (p->has.bias_table) {
        const int64_t position = attn_add_saturate(i, task->visibility.offset);
        const char *diagonals = attn_diagonals_at(&g->call->plan->tables, task, position, high - 1, n);
        const void *last = diagonals + (n - 1) * (int64_t)attn_dtype_bytes(w->compute);
        if (g->call->plan->tile_kv && !attn_tables_special(task)) kernel->order.add_diagonals_row(n, S, last);
        else kernel->bias_row(n, S, last, w->compute, -1);
        cut |= attn_tables_special(task);
    }
    if (p->has.mask) {
        const attn_layout *mask = &p->at.mask;
        kernel->keep_row(n, S, attn_pair_at(task, task->args->mask, mask, i, low), mask->stride[3]);
        cut = 1;
    }
    if (p->has.tree) cut |= drop_by_tree(task, i, low, high, S);
    return cut;
}

/* The same for a block, run by run if its keys are those of a list. */
static int modify_by_place(const attn_decode_group *g, const attn_task *task, int64_t i, const attn_decode_block *b, void *S)
{
    const attn_resolved *p = &task->walk->problem;
    int cut = 0;
    if (!p->has.bias && !p->has.alibi_slopes && !p->has.bias_table && !p->has.mask && !p->has.tree) return 0;
    if (!task->visibility.list) return modify_run(g, task, i, b->low, b->high, S);
    for (int64_t t = b->low, n; t < b->high; t += n) {
        n = b->high - t;
        const int64_t key = attn_listed_key(&task->visibility, t, &n);
        cut |= modify_run(g, task, i, key, key + n, attn_decode_at(g, S, t - b->low));
    }
    return cut;
}

int attn_decode_modify(const attn_decode_group *g, const attn_task *task, int64_t i, const attn_decode_block *b,
                       const float *factors, void *S)
{
    const attn_walk *w = task->walk;
    const attn_resolved *p = &w->problem;
    const attn_decode_part *kernel = w->kernel.decode;
    const int64_t n = b->high - b->low;
    if (w->kernel.decode_pairs) w->kernel.decode_pairs->scale_row(n, S, attn_task_scale(task));
    if (factors) kernel->scale_row(n, S, factors);
    if (p->score.softcap > 0) kernel->softcap_row(n, S, p->score.softcap);
    int cut = modify_by_place(g, task, i, b, S);
    attn_interval seen = attn_keys_of_query(&task->visibility, i).local;
    if (seen.low > b->low || seen.high < b->high) {
        int64_t low = attn_clamp(seen.low, b->low, b->high), high = attn_clamp(seen.high, low, b->high);
        kernel->drop_outside(n, S, low - b->low, high - b->low);
        cut = 1;
    }
    return cut;
}
