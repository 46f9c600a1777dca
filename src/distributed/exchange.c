/* SPDX-License-Identifier: MIT
 * exchange.c - see exchange.h. */
#include "exchange.h"

#include "sums.h"

typedef void each_node(attn_running *r, const attn_visited *node);

/* The terms that a sum may have. */
static attn_range terms_of(const attn_running *r, const attn_sum *s)
{
    const attn_grid *g = &r->plan->cells.grid;
    return s->kind == ATTN_SUM_COLUMN ? g->rows[s->which] : (attn_range){0, attn_sum_terms(r, s)};
}

static void visit_below(attn_running *r, const attn_visited *node, each_node *call)
{
    const attn_grid *g = &r->plan->cells.grid;
    const int32_t *owner = attn_sum_over_keys(node->sum) ? g->kv.owner : g->q.owner;
    const attn_range terms = terms_of(r, node->sum);
    const int64_t first = attn_max(terms.first, node->number << node->level),
                  end = attn_min(terms.end, (node->number + 1) << node->level);
    int some = 0, all = 1;
    for (int64_t n = first; n < end; n++) {
        if (!attn_sum_exists(r, node->sum, n, n + 1)) continue;
        if (owner[n] >= node->ranks.first && owner[n] < node->ranks.end) some = 1;
        else all = 0;
    }
    if (!some || !r->enough) return;
    if (all) {
        call(r, node);
        return;
    }
    for (int half = 0; half < 2; half++) {
        attn_visited child = *node;
        child.level--;
        child.number = 2 * node->number + half;
        visit_below(r, &child, call);
    }
}

/* With any_order, all that these ranks have are one node. */
static void visit_all(attn_running *r, const attn_visited *of, each_node *call)
{
    const attn_grid *g = &r->plan->cells.grid;
    const int32_t *owner = attn_sum_over_keys(of->sum) ? g->kv.owner : g->q.owner;
    const attn_range terms = terms_of(r, of->sum);
    attn_visited node = *of;
    node.level = 0, node.number = 0;
    for (int64_t n = terms.first; n < terms.end; n++)
        if (owner[n] >= of->ranks.first && owner[n] < of->ranks.end) node.number += attn_sum_exists(r, of->sum, n, n + 1);
    if (node.number > 0 && r->enough) call(r, &node);
}

void attn_exchange_visit(attn_running *r, const attn_visited *of, each_node *call)
{
    attn_visited top = *of;
    if (r->plan->cells.any_order) {
        visit_all(r, of, call);
        return;
    }
    top.level = attn_tree_top(attn_sum_terms(r, of->sum));
    top.number = 0;
    visit_below(r, &top, call);
}

int64_t attn_exchange_remove(attn_running *r, const attn_visited *node)
{
    if (r->plan->cells.any_order) return attn_sum_root(r, node->sum);
    return attn_tree_remove(node->sum->tree, &r->pool[attn_sum_node(node->sum)], node->level, node->number);
}

/* Those of one rank. */
static void visit(attn_running *r, const attn_sum *sum, int rank, int with, each_node *call)
{
    attn_exchange_visit(r, &(attn_visited){.sum = sum, .ranks = {rank, rank + 1}, .with = with}, call);
}

static int tag_of(attn_node_kind kind)
{
    static const int tags[ATTN_NODE_KINDS] = {ATTN_TAG_ROWS, ATTN_TAG_COLUMNS, ATTN_TAG_SHARED};
    return tags[kind];
}

static void receive_node(attn_running *r, const attn_visited *node)
{
    const attn_node_kind kind = attn_sum_node(node->sum);
    const int64_t slot = attn_sum_take(r, kind);
    if (slot < 0) return;
    attn_tree_push(&r->coming, &r->pool[kind], slot);
    attn_steps_receive(r, node->with, tag_of(kind), attn_sum_memory(r, kind, slot), r->pool[kind].bytes);
}

static void insert_node(attn_running *r, const attn_visited *node)
{
    const attn_node_kind kind = attn_sum_node(node->sum);
    if (r->plan->cells.any_order && kind == ATTN_NODE_COLUMN) r->left_kv[node->sum->tree - r->columns] -= node->number;
    attn_sum_insert(r, node->sum, node->level, node->number, attn_tree_pop(&r->coming, &r->pool[kind]));
}

/* Begins to send a node, and keeps it until all of these have been sent. */
static void send_node(attn_running *r, const attn_visited *node)
{
    const attn_node_kind kind = attn_sum_node(node->sum);
    attn_tree_pool *pool = &r->pool[kind];
    const int64_t slot = attn_exchange_remove(r, node);
    if (slot < 0) {
        r->lost = 1;
        return;
    }
    attn_tree_push(&r->going, pool, slot);
    attn_steps_send(r, node->with, tag_of(kind), attn_sum_memory(r, kind, slot), pool->bytes);
}

void attn_exchange_wait(attn_running *r, attn_node_kind kind)
{
    attn_steps_wait(r);
    for (int64_t slot; (slot = attn_tree_pop(&r->going, &r->pool[kind])) >= 0;) attn_sum_give(r, kind, slot);
}

/* ---- columns: to the owner of the keys ---- */

/* What own keys got on rank `there`. */
static void receive_columns(attn_running *r, int there)
{
    const attn_distributed_plan *p = r->plan;
    for (int64_t n = 0; n < p->own.count_kv; n++) {
        const attn_sum sum = {ATTN_SUM_COLUMN, p->own.kv[n], &r->columns[n]};
        visit(r, &sum, there, there, receive_node);
    }
}

static void insert_columns(attn_running *r, int there)
{
    const attn_distributed_plan *p = r->plan;
    for (int64_t n = 0; n < p->own.count_kv; n++) {
        const attn_sum sum = {ATTN_SUM_COLUMN, p->own.kv[n], &r->columns[n]};
        visit(r, &sum, there, there, insert_node);
        attn_sum_end_column(r, n);
    }
}

/* What the keys of the list got here. */
static void send_columns(attn_running *r)
{
    const attn_distributed_plan *p = r->plan;
    for (int64_t n = 0; n < r->from_count; n++) {
        const attn_sum sum = {ATTN_SUM_COLUMN, r->from[n], &r->away[n]};
        if (r->from_at[n] >= 0) visit(r, &sum, p->me, p->cells.grid.kv.owner[r->from[n]], send_node);
    }
}

void attn_exchange_columns(attn_running *r, int step)
{
    const int there = attn_rank_at(r->plan, step);
    if (step == 0 || !r->pool[ATTN_NODE_COLUMN].bytes) return;
    receive_columns(r, there);
    send_columns(r);
    attn_exchange_wait(r, ATTN_NODE_COLUMN);
    if (r->status == ATTN_OK) insert_columns(r, there);
}

void attn_exchange_all_columns(attn_running *r)
{
    const attn_distributed_plan *p = r->plan;
    if (!r->pool[ATTN_NODE_COLUMN].bytes) return;
    for (int step = 1; step < p->ranks; step++) receive_columns(r, attn_rank_at(p, step));
    send_columns(r);
    attn_exchange_wait(r, ATTN_NODE_COLUMN);
    for (int step = 1; step < p->ranks && r->status == ATTN_OK; step++) insert_columns(r, attn_rank_at(p, step));
}

/* ---- to rank 0, and from there to all ---- */

/* Rank 0 adds up the nodes of all ranks, one rank after another.  Returns the slot of the sum; -1 on other ranks, and if there
 * are no such results. */
static int64_t gather(attn_running *r, const attn_sum *sum)
{
    const attn_distributed_plan *p = r->plan;
    if (!r->pool[attn_sum_node(sum)].bytes) return -1;
    if (p->me != 0) {
        visit(r, sum, p->me, 0, send_node);
        attn_exchange_wait(r, attn_sum_node(sum));
        return -1;
    }
    for (int from = 1; from < p->ranks && r->status == ATTN_OK && r->enough; from++) {
        visit(r, sum, from, from, receive_node);
        attn_steps_wait(r);
        if (r->status == ATTN_OK) visit(r, sum, from, from, insert_node);
    }
    return r->status == ATTN_OK && r->enough ? attn_sum_complete(r, sum) : -1;
}

/* Along a binomial tree: each rank hears from the one without its lowest bit. */
static int64_t spread(attn_running *r, attn_node_kind kind, int64_t slot)
{
    const attn_distributed_plan *p = r->plan;
    const size_t bytes = r->pool[kind].bytes;
    int64_t bit = 1;
    if (r->status != ATTN_OK || !r->enough || r->lost || !bytes) return slot;
    while (bit < p->ranks && !(p->me & bit)) bit *= 2;
    if (p->me != 0) {
        slot = attn_sum_take(r, kind);
        if (slot < 0) return slot;
        attn_steps_receive(r, (int)(p->me - bit), tag_of(kind), attn_sum_memory(r, kind, slot), bytes);
        attn_steps_wait(r);
    }
    for (bit /= 2; bit > 0; bit /= 2)
        if (p->me + bit < p->ranks) attn_steps_send(r, (int)(p->me + bit), tag_of(kind), attn_sum_memory(r, kind, slot), bytes);
    attn_steps_wait(r);
    return slot;
}

void attn_exchange_shared(attn_running *r)
{
    const attn_distributed_plan *p = r->plan;
    const attn_sum sum = {ATTN_SUM_SHARED, 0, &r->total};
    int64_t root = -1;
    if (!r->pool[ATTN_NODE_SHARED].bytes) return;
    if (attn_sum_exists(r, &sum, 0, p->cells.grid.q.count)) {
        root = spread(r, ATTN_NODE_SHARED, gather(r, &sum));
        if (r->status != ATTN_OK || !r->enough || root < 0) return;
    }
    if (r->mine) attn_node_store(&p->cells, ATTN_NODE_SHARED, r->mine, 0, 0, attn_sum_memory(r, ATTN_NODE_SHARED, root));
    attn_sum_give(r, ATTN_NODE_SHARED, root);
}
