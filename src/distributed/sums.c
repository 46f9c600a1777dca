/* SPDX-License-Identifier: MIT
 * sums.c - see sums.h. */
#include "sums.h"

attn_node_kind attn_sum_node(const attn_sum *s)
{
    return s->kind == ATTN_SUM_ROW ? ATTN_NODE_ROW : s->kind == ATTN_SUM_COLUMN ? ATTN_NODE_COLUMN : ATTN_NODE_SHARED;
}

int attn_sum_over_keys(const attn_sum *s) { return s->kind == ATTN_SUM_ROW || s->kind == ATTN_SUM_ROW_SHARED; }

int64_t attn_sum_terms(const attn_running *r, const attn_sum *s)
{
    const attn_grid *g = &r->plan->cells.grid;
    return attn_sum_over_keys(s) ? g->kv.count : g->q.count;
}

/* ---- which terms exist ---- */

static int row_exists(const void *of, int64_t i, int64_t first, int64_t end) { return attn_row_exists(of, i, first, end); }
static int column_exists(const void *of, int64_t j, int64_t first, int64_t end) { return attn_column_exists(of, j, first, end); }

static int shared_exists(const void *of, int64_t unused, int64_t first, int64_t end)
{
    const attn_cells *c = of;
    (void)unused;
    for (int64_t i = first; i < end && i < c->grid.q.count; i++)
        if (c->has_sink || attn_row_cells(&c->grid, i) > 0) return 1;
    return 0;
}

static attn_tree_exists *exists_of(const attn_sum *s)
{
    return s->kind == ATTN_SUM_SHARED ? shared_exists : s->kind == ATTN_SUM_COLUMN ? column_exists : row_exists;
}

static const void *context_of(const attn_running *r, const attn_sum *s)
{
    const attn_cells *c = &r->plan->cells;
    return s->kind == ATTN_SUM_SHARED ? (const void *)c : &c->grid;
}

int attn_sum_exists(const attn_running *r, const attn_sum *s, int64_t first, int64_t end)
{
    return exists_of(s)(context_of(r, s), s->which, first, end);
}

/* ---- nodes ---- */

int64_t attn_sum_take(attn_running *r, attn_node_kind kind)
{
    attn_tree_pool *pool = &r->pool[kind];
    if (!pool->bytes) return -1;
    const int64_t slot = attn_tree_take(pool);
    if (pool->used > r->needs.slots[kind]) r->needs.slots[kind] = pool->used;
    if (slot < 0) r->enough = 0;
    return slot;
}

void attn_sum_give(attn_running *r, attn_node_kind kind, int64_t slot)
{
    if (slot >= 0) attn_tree_give(&r->pool[kind], slot);
}

char *attn_sum_memory(const attn_running *r, attn_node_kind kind, int64_t slot)
{
    return slot < 0 ? NULL : attn_tree_memory(&r->pool[kind], slot);
}

typedef struct adding {
    const attn_cells *cells;
    attn_node_kind kind;
    int64_t tokens;
} adding;

static void add(void *context, char *left, const char *right)
{
    const adding *a = context;
    attn_node_add(a->cells, a->kind, a->tokens, left, right);
}

/* To what there is already. */
static void add_next(attn_running *r, const attn_sum *s, adding *a, int64_t slot)
{
    attn_tree_pool *pool = &r->pool[a->kind];
    const int64_t sum = s->tree->waiting;
    if (sum < 0) {
        pool->slots[slot] = (attn_tree_slot){.next = -1};
        s->tree->waiting = slot;
        return;
    }
    if (pool->memory) add(a, attn_tree_memory(pool, sum), attn_tree_memory(pool, slot));
    attn_tree_give(pool, slot);
}

void attn_sum_insert(attn_running *r, const attn_sum *s, int level, int64_t number, int64_t slot)
{
    const attn_cells *c = &r->plan->cells;
    adding a = {r->has_some ? &r->some : c, attn_sum_node(s), 0};
    if (slot < 0) return;
    if (a.kind == ATTN_NODE_ROW) a.tokens = attn_part_size(&c->grid.q, s->which);
    if (a.kind == ATTN_NODE_COLUMN) a.tokens = attn_part_size(&c->grid.kv, s->which);
    if (c->any_order) {
        add_next(r, s, &a, slot);
        return;
    }
    const attn_tree_kind k = {&r->pool[a.kind], attn_sum_terms(r, s), add, &a};
    attn_tree_insert(s->tree, &k, exists_of(s), context_of(r, s), s->which, level, number, slot);
}

int64_t attn_sum_root(attn_running *r, const attn_sum *s)
{
    const attn_tree_pool *pool = &r->pool[attn_sum_node(s)];
    const int64_t slot = s->tree->waiting;
    if (slot < 0) return -1;
    if (!r->plan->cells.any_order && pool->slots[slot].level < attn_tree_top(attn_sum_terms(r, s))) return -1;
    s->tree->waiting = pool->slots[slot].next;
    return slot;
}

int64_t attn_sum_complete(attn_running *r, const attn_sum *s)
{
    if (!r->pool[attn_sum_node(s)].bytes) return -1;
    const int64_t root = attn_sum_root(r, s);
    if (root < 0) r->lost = 1;
    return root;
}

void attn_sum_end_column(attn_running *r, int64_t n)
{
    const attn_cells *c = &r->plan->cells;
    if (c->any_order && r->left_kv[n] > 0) return;
    const int64_t j = r->plan->own.kv[n], slot = attn_sum_root(r, &(attn_sum){ATTN_SUM_COLUMN, j, &r->columns[n]});
    if (slot < 0) return;
    if (r->mine && r->status == ATTN_OK)
        attn_node_store(c, ATTN_NODE_COLUMN, r->mine, c->grid.kv.local[j], attn_part_size(&c->grid.kv, j),
                        attn_sum_memory(r, ATTN_NODE_COLUMN, slot));
    attn_sum_give(r, ATTN_NODE_COLUMN, slot);
}
