/* SPDX-License-Identifier: MIT
 * halving.c - see halving.h. */
#include "halving.h"

#include <string.h>

#include "exchange.h"
#include "piece.h"
#include "sums.h"

/* ---- units ---- */

static int is_result(const attn_bound *b) { return b->role == ATTN_ROLE_OUTPUT && b->spread == attn_spread_of(ATTN_NODE_ROW); }

/* Bytes of a result of one unit. */
static size_t unit_of(const attn_cells *c, const attn_bound *b)
{
    return (size_t)(attn_node_space(c, ATTN_NODE_ROW, b) * b->width) * attn_dtype_size(attn_node_dtype(c, b));
}

size_t attn_halving_bytes(const attn_cells *c, int64_t units)
{
    size_t bytes = 0;
    for (const attn_bound *b = c->bounds.all; b < c->bounds.all + c->bounds.count; b++)
        if (is_result(b)) bytes += (size_t)units * unit_of(c, b);
    return bytes;
}

/* What is combined of nodes, in place: a batch of one entry, with these units as its heads. */
static void take_units(const attn_cells *c, attn_range units, attn_cells *some)
{
    *some = *c;
    some->problem.shape.batch = 1;
    some->problem.shape.heads_q = units.end - units.first;
    for (int n = 0; n < c->bounds.count; n++) {
        attn_bound *b = &some->bounds.all[n];
        if (!is_result(b)) continue;
        some->at[n] += units.first * (int64_t)unit_of(c, b);
        b->shape[0] = 1;
        b->shape[1] = units.end - units.first;
    }
}

static void pack(const attn_cells *c, attn_range units, const char *node, char *message)
{
    for (int n = 0; n < c->bounds.count; n++) {
        const attn_bound *b = &c->bounds.all[n];
        if (!is_result(b)) continue;
        const size_t unit = unit_of(c, b), bytes = (size_t)(units.end - units.first) * unit;
        memcpy(message, node + c->at[n] + (size_t)units.first * unit, bytes);
        message += bytes;
    }
}

/* The message may lie at the beginning of the node: from the last result on, none is moved to where another one still is. */
static void unpack(const attn_cells *c, attn_range units, char *node, const char *message)
{
    message += attn_halving_bytes(c, units.end - units.first);
    for (int n = c->bounds.count - 1; n >= 0; n--) {
        const attn_bound *b = &c->bounds.all[n];
        if (!is_result(b)) continue;
        const size_t unit = unit_of(c, b), bytes = (size_t)(units.end - units.first) * unit;
        message -= bytes;
        memmove(node + c->at[n] + (size_t)units.first * unit, message, bytes);
    }
}

/* Of all units, those of a seat after so many rounds: the lower half where its number has a 0. */
static attn_range units_of(int64_t units, int64_t seat, int rounds)
{
    attn_range u = {0, units};
    for (int round = 0; round < rounds; round++) {
        const int64_t middle = u.first + (u.end - u.first + 1) / 2;
        if (seat >> round & 1) u.first = middle;
        else u.end = middle;
    }
    return u;
}

/* The ranks of a seat's group after so many rounds. */
static attn_range group_of(const attn_halving *h, int64_t seat, int rounds)
{
    const int64_t first = seat >> rounds << rounds;
    return (attn_range){attn_halving_rank(h, first), attn_halving_rank(h, first + (INT64_C(1) << rounds))};
}

/* ---- giving and getting ---- */

static int is_some(attn_range x) { return x.first < x.end; }
static int goes_on(const attn_running *r) { return r->status == ATTN_OK && r->enough && !r->lost; }

static int64_t send_packed(attn_running *r, int to, attn_range units, int64_t node)
{
    const attn_cells *c = &r->plan->cells;
    const int64_t slot = attn_sum_take(r, ATTN_NODE_ROW);
    if (slot < 0) return slot;
    char *const message = attn_sum_memory(r, ATTN_NODE_ROW, slot);
    if (r->mine) pack(c, units, attn_sum_memory(r, ATTN_NODE_ROW, node), message);
    attn_steps_send(r, to, ATTN_TAG_ROWS, message, attn_halving_bytes(c, units.end - units.first));
    return slot;
}

static int64_t receive_packed(attn_running *r, int from, attn_range units)
{
    const int64_t slot = attn_sum_take(r, ATTN_NODE_ROW);
    if (slot < 0) return slot;
    attn_steps_receive(r, from, ATTN_TAG_ROWS, attn_sum_memory(r, ATTN_NODE_ROW, slot),
                       attn_halving_bytes(&r->plan->cells, units.end - units.first));
    return slot;
}

/* The node stays: its other units are still needed, or it is given back later. */
static void give_units(attn_running *r, const attn_visited *v)
{
    attn_tree_pool *pool = &r->pool[ATTN_NODE_ROW];
    attn_tree *tree = v->sum->tree;
    const int64_t node = attn_exchange_remove(r, v);
    if (node < 0) {
        r->lost = 1;
        return;
    }
    pool->slots[node].next = tree->waiting;
    tree->waiting = node;
    const int64_t slot = send_packed(r, v->with, v->units, node);
    if (slot >= 0) attn_tree_push(&r->going, pool, slot);
}

static void get_units(attn_running *r, const attn_visited *v)
{
    const int64_t slot = receive_packed(r, v->with, v->units);
    if (slot >= 0) attn_tree_push(&r->coming, &r->pool[ATTN_NODE_ROW], slot);
}

static void insert_units(attn_running *r, const attn_visited *v)
{
    const int64_t slot = attn_tree_pop(&r->coming, &r->pool[ATTN_NODE_ROW]);
    char *const node = attn_sum_memory(r, ATTN_NODE_ROW, slot);
    if (r->mine) unpack(&r->plan->cells, v->units, node, node);
    attn_sum_insert(r, v->sum, v->level, v->number, slot);
}

/* A rank, and what is between it and this one: units that go there, of the nodes of these ranks, and that come, of those. */
typedef struct partner {
    int rank;
    attn_range given, ours, got, theirs;
} partner;

static void combine(attn_running *r, const attn_sum *sum, const partner *p)
{
    if (is_some(p->got))
        attn_exchange_visit(r, &(attn_visited){sum, .ranks = p->theirs, .with = p->rank, .units = p->got}, get_units);
    if (is_some(p->given))
        attn_exchange_visit(r, &(attn_visited){sum, .ranks = p->ours, .with = p->rank, .units = p->given}, give_units);
    attn_exchange_wait(r, ATTN_NODE_ROW);
    if (!is_some(p->got) || !goes_on(r)) return;
    take_units(&r->plan->cells, p->got, &r->some);
    r->has_some = 1;
    attn_exchange_visit(r, &(attn_visited){sum, .ranks = p->theirs, .units = p->got}, insert_units);
    r->has_some = 0;
}

/* Complete units, of and to the node in `slot`. */
static void complete(attn_running *r, int64_t slot, int rank, attn_range given, attn_range got)
{
    const int64_t in = is_some(got) ? receive_packed(r, rank, got) : -1,
                  out = is_some(given) ? send_packed(r, rank, given, slot) : -1;
    attn_steps_wait(r);
    if (in >= 0 && r->mine && r->status == ATTN_OK)
        unpack(&r->plan->cells, got, attn_sum_memory(r, ATTN_NODE_ROW, slot), attn_sum_memory(r, ATTN_NODE_ROW, in));
    attn_sum_give(r, ATTN_NODE_ROW, in);
    attn_sum_give(r, ATTN_NODE_ROW, out);
}

/* ---- all of it ---- */

/* The node with the units that this rank has completed, or a new one.  Nodes of which it has given all away are free again. */
static int64_t take_result(attn_running *r, const attn_sum *sum, attn_range units)
{
    attn_tree_pool *pool = &r->pool[ATTN_NODE_ROW];
    if (is_some(units)) return attn_sum_complete(r, sum);
    while (sum->tree->waiting >= 0) {
        const int64_t slot = sum->tree->waiting;
        sum->tree->waiting = pool->slots[slot].next;
        attn_sum_give(r, ATTN_NODE_ROW, slot);
    }
    return attn_sum_take(r, ATTN_NODE_ROW);
}

int64_t attn_halving_run(attn_running *r, int64_t i, attn_tree *tree)
{
    const attn_distributed_plan *p = r->plan;
    const attn_sum sum = {ATTN_SUM_ROW, i, tree};
    const attn_halving h = attn_halving_of(p->ranks);
    const int64_t count = p->cells.problem.shape.batch * p->cells.problem.shape.heads_q, seat = attn_halving_seat(&h, p->me);
    const attn_range all = {0, count}, none = {0, 0};
    const int in_pair = p->me < 2 * h.pairs, is_second = in_pair && p->me % 2;
    const int rounds = is_second ? 0 : h.rounds, other = p->me + (is_second ? -1 : 1);
    if (!r->pool[ATTN_NODE_ROW].bytes) return -1;
    if (in_pair) {
        const partner second = {other, is_second ? all : none, {p->me, p->me + 1}, is_second ? none : all, {other, other + 1}};
        combine(r, &sum, &second);
    }
    for (int round = 0; round < rounds && goes_on(r); round++) {
        const int64_t there = seat ^ (INT64_C(1) << round);
        const partner x = {(int)attn_halving_rank(&h, there), units_of(count, there, round + 1), group_of(&h, seat, round),
                           units_of(count, seat, round + 1), group_of(&h, there, round)};
        combine(r, &sum, &x);
    }
    if (!goes_on(r)) return -1;
    const int64_t slot = take_result(r, &sum, is_second ? none : units_of(count, seat, rounds));
    for (int round = rounds - 1; round >= 0 && slot >= 0 && goes_on(r); round--) {
        const int64_t there = seat ^ (INT64_C(1) << round);
        complete(r, slot, (int)attn_halving_rank(&h, there), units_of(count, seat, round + 1), units_of(count, there, round + 1));
    }
    if (in_pair && slot >= 0 && goes_on(r)) complete(r, slot, other, is_second ? none : all, is_second ? all : none);
    return goes_on(r) ? slot : -1;
}
