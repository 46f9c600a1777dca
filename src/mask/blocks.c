/* SPDX-License-Identifier: MIT
 * blocks.c - block masks as lists: from a map, BigBird's with its random blocks, and fixed ones. */
#include <stdlib.h>

#include "set.h"

/* The first word of Philox4x32-10 (Salmon et al. 2011, section 3.3) with counter (0, n, t, 0). */
static uint32_t philox(uint64_t seed, uint32_t n, uint32_t t)
{
    uint32_t x[4] = {0, n, t, 0}, k[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    for (int round = 0; round < 10; round++) {
        uint64_t a = (uint64_t)0xD2511F53u * x[0], b = (uint64_t)0xCD9E8D57u * x[2];
        x[0] = (uint32_t)(b >> 32) ^ x[1] ^ k[0];
        x[1] = (uint32_t)b;
        x[2] = (uint32_t)(a >> 32) ^ x[3] ^ k[1];
        x[3] = (uint32_t)a;
        k[0] += 0x9E3779B9u;
        k[1] += 0xBB67AE85u;
    }
    return x[0];
}

/* Marks the blocks of keys that block row n keeps, `count` blocks in a row. */
static void mark_map(const attn_pattern *p, int64_t n, int64_t count, unsigned char *marked)
{
    for (int64_t k = 0; k < count; k++) marked[k] = p->blocks[n * count + k] != 0;
}

static void mark_bigbird(const attn_pattern *p, int64_t n, int64_t count, unsigned char *marked)
{
    const int64_t reach = p->size[1] / 2, global = p->size[2];
    int64_t left = 0;
    for (int64_t k = 0; k < count; k++) {
        marked[k] = llabs(n - k) <= reach || k < global || n < global;
        left += !marked[k];
    }
    for (int64_t t = 0; t < p->size[3] && left > 0; t++, left--) {
        int64_t number = (int64_t)(((uint64_t)philox(p->seed, (uint32_t)n, (uint32_t)t) * (uint64_t)left) >> 32), k = 0;
        while (marked[k] || number-- > 0) k++;
        marked[k] = 1;
    }
}

static void mark(const attn_pattern *p, int64_t n, int64_t count, unsigned char *marked)
{
    (p->kind == ATTN_PATTERN_BIGBIRD ? mark_bigbird : mark_map)(p, n, count, marked);
}

static int64_t ceil_div(int64_t a, int64_t b) { return a / b + (a % b != 0); }

/* Memory for n + 1 elements; NULL if memory is short. */
static void *allocate(int64_t n, size_t size) { return (uint64_t)n < SIZE_MAX / size - 1 ? malloc(((size_t)n + 1) * size) : NULL; }

/* Counts the entries; also writes them unless `columns` is NULL. */
static int64_t walk_rows(block_lists *l, const attn_pattern *p, unsigned char *marked)
{
    int64_t entries = 0;
    for (int64_t n = 0; n < l->count_q; n++) {
        l->rows[n] = entries;
        mark(p, n, l->count_kv, marked);
        for (int64_t k = 0; k < l->count_kv; k++) {
            if (!marked[k]) continue;
            if (l->columns) l->columns[entries] = k;
            entries++;
        }
    }
    l->rows[l->count_q] = entries;
    return entries;
}

int attn_block_lists_make(block_lists *l, const attn_pattern *p, int64_t len_q, int64_t len_kv)
{
    l->block_q = p->size[0];
    l->block_kv = p->kind == ATTN_PATTERN_BIGBIRD ? p->size[0] : p->size[1];
    l->count_q = ceil_div(len_q, l->block_q);
    l->count_kv = ceil_div(len_kv, l->block_kv);
    unsigned char *marked = allocate(l->count_kv, 1);
    l->rows = allocate(l->count_q, sizeof *l->rows);
    if (marked && l->rows) {
        int64_t entries = walk_rows(l, p, marked);
        l->columns = allocate(entries, sizeof *l->columns);
        if (l->columns) walk_rows(l, p, marked);
    }
    free(marked);
    return l->columns != NULL;
}

static int64_t common_divisor(int64_t a, int64_t b) { return b ? common_divisor(b, a % b) : a; }

/* Blocks of row n of a fixed pattern: all of its own stride, the last `columns` of each other one.  Counts them; also writes them
 * unless `to` is NULL. */
static int64_t walk_fixed(const block_lists *l, int64_t own, int64_t of_stride, int64_t columns, int64_t *to)
{
    int64_t entries = 0;
    for (int64_t m = 0; m * of_stride < l->count_kv; m++)
        for (int64_t k = m == own ? 0 : of_stride - columns; k < of_stride && m * of_stride + k < l->count_kv; k++, entries++)
            if (to) to[entries] = m * of_stride + k;
    return entries;
}

/* More entries than this would be more memory than a matrix of many a problem. */
static const double MAX_ENTRIES = 1 << 28;

int attn_block_lists_make_fixed(block_lists *l, const attn_pattern *p, int64_t offset, int64_t len_q, int64_t len_kv)
{
    const int64_t stride = p->size[0], unit = common_divisor(stride, p->size[1]), of_stride = stride / unit;
    const double rows = (double)len_q / (double)stride + 1, strides = (double)len_kv / (double)stride + 1;
    if (offset % stride || rows * ((double)of_stride + strides * (double)(p->size[1] / unit)) > MAX_ENTRIES) return 1;
    l->block_q = stride;
    l->block_kv = unit;
    l->count_q = ceil_div(len_q, stride);
    l->count_kv = ceil_div(len_kv, unit);
    int64_t entries = 0;
    for (int64_t n = 0; n < l->count_q; n++) entries += walk_fixed(l, n + offset / stride, of_stride, p->size[1] / unit, NULL);
    l->rows = allocate(l->count_q, sizeof *l->rows);
    l->columns = allocate(entries, sizeof *l->columns);
    if (!l->rows || !l->columns) return 0;
    entries = 0;
    for (int64_t n = 0; n < l->count_q; n++) {
        l->rows[n] = entries;
        entries += walk_fixed(l, n + offset / stride, of_stride, p->size[1] / unit, l->columns + entries);
    }
    l->rows[l->count_q] = entries;
    return 1;
}

/* Blocks low .. high-1 of a list, in the units of the common refinement. */
typedef struct run {
    int64_t low, high;
} run;

static run run_at(const block_lists *from, const block_lists *unit, int64_t entry)
{
    const int64_t times = from->block_kv / unit->block_kv, low = from->columns[entry] * times;
    return (run){low, low + times < unit->count_kv ? low + times : unit->count_kv};
}

/* Blocks of row n that both lists have; also writes them unless `to` is NULL. */
static int64_t walk_both(const block_lists *l, const block_lists *a, const block_lists *b, int64_t n, int64_t *to)
{
    const int64_t row_a = n * l->block_q / a->block_q, row_b = n * l->block_q / b->block_q;
    int64_t i = a->rows[row_a], j = b->rows[row_b], entries = 0;
    while (i < a->rows[row_a + 1] && j < b->rows[row_b + 1]) {
        const run x = run_at(a, l, i), y = run_at(b, l, j);
        const int64_t high = x.high < y.high ? x.high : y.high;
        for (int64_t k = x.low > y.low ? x.low : y.low; k < high; k++, entries++)
            if (to) to[entries] = k;
        if (x.high <= y.high) i++;
        else j++;
    }
    return entries;
}

int attn_block_lists_intersect(block_lists *l, const block_lists *a, const block_lists *b, int64_t len_q, int64_t len_kv, int *fits)
{
    double most = 0;
    *l = (block_lists){.block_q = common_divisor(a->block_q, b->block_q), .block_kv = common_divisor(a->block_kv, b->block_kv)};
    l->count_q = ceil_div(len_q, l->block_q);
    l->count_kv = ceil_div(len_kv, l->block_kv);
    for (int64_t n = 0; n < a->count_q; n++) /* of each row of a as many as it has, in as many rows as it becomes */
        most += (double)(a->rows[n + 1] - a->rows[n]) * (double)(a->block_q / l->block_q) * (double)(a->block_kv / l->block_kv);
    *fits = most <= MAX_ENTRIES && (double)l->count_q <= MAX_ENTRIES;
    if (!*fits) return 1;
    int64_t entries = 0;
    for (int64_t n = 0; n < l->count_q; n++) entries += walk_both(l, a, b, n, NULL);
    l->rows = allocate(l->count_q, sizeof *l->rows);
    l->columns = allocate(entries, sizeof *l->columns);
    if (!l->rows || !l->columns) return 0;
    entries = 0;
    for (int64_t n = 0; n < l->count_q; n++) {
        l->rows[n] = entries;
        entries += walk_both(l, a, b, n, l->columns + entries);
    }
    l->rows[l->count_q] = entries;
    return 1;
}

int attn_block_lists_make_columns(block_lists *l, const unsigned char *columns, int64_t len_q, int64_t len_kv)
{
    int64_t entries = 0;
    for (int64_t j = 0; j < len_kv; j++) entries += columns[j];
    *l = (block_lists){len_q, 1, 1, len_kv, allocate(1, sizeof *l->rows), allocate(entries, sizeof *l->columns)};
    if (!l->rows || !l->columns) return 0;
    l->rows[0] = 0;
    l->rows[1] = entries;
    entries = 0;
    for (int64_t j = 0; j < len_kv; j++)
        if (columns[j]) l->columns[entries++] = j;
    return 1;
}

void attn_block_lists_free(block_lists *l)
{
    free(l->rows);
    free(l->columns);
}

int attn_block_lists_has(const block_lists *l, int64_t n, int64_t k)
{
    int64_t low = l->rows[n], high = l->rows[n + 1];
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (l->columns[middle] == k) return 1;
        if (l->columns[middle] < k) low = middle + 1;
        else high = middle;
    }
    return 0;
}
