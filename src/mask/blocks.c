/* SPDX-License-Identifier: MIT
 * blocks.c - block masks as lists: from a map, or BigBird's with its random blocks. */
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
