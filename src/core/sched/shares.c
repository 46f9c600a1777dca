/* SPDX-License-Identifier: MIT
 * shares.c - tasks that each have a share of a key head's queries, and the sum of their shares. */
#include "shares.h"

#include <string.h>

#include "../base/names.h"
#include "relative.h"
#include "tables.h"
#include "threads.h"

typedef struct call {
    const attn_walk *walk;
    const attn_args *args;
    char *workers, *shared;
    attn_run_tiles *run_tiles;
    const attn_shares_target *target;
    int64_t first_split;    /* of those that run at once */
    int64_t first_key_head; /* likewise, where the gradients of tables are summed round by round */
} call;

attn_head_sums *attn_head_sums_at(const attn_walk *walk, char *shared, int64_t head, int64_t split)
{
    return (attn_head_sums *)(void *)(shared + walk->shared.sums) + head * walk->splits + split;
}

double *attn_weight_sums_at(const attn_walk *walk, char *shared, int64_t head, int64_t split)
{
    if (!attn_sums_weights(&walk->problem)) return NULL;
    return (double *)(void *)(shared + walk->shared.dw) + (head * walk->splits + split) * 2 * walk->problem.shape.dim_qk;
}

void attn_shares_store(const attn_task *task, const attn_shares_target *target, const void *dK, const void *dV)
{
    const attn_walk *w = task->walk;
    const attn_problem *p = &w->problem;
    const attn_layout *k = target->k_layout, *v = target->v_layout;
    int64_t rows = p->mask.packed ? task->sight.len_kv : p->shape.len_kv;
    w->backward->store_rows(rows, p->shape.dim_qk, 1, dK, w->ld_dK, attn_key_row(task, target->k, k, 0), k->dtype, k->stride[2]);
    w->backward->store_rows(rows, p->shape.dim_v, 1, dV, w->ld_dV, attn_key_row(task, target->v, v, 0), v->dtype, v->stride[2]);
}

/* Everything that one split of a key head's queries adds up to: zero at first. */
static void run_split(const call *c, char *memory, int64_t key_head, int64_t split, int64_t place, void *dK, void *dV)
{
    const attn_walk *w = c->walk;
    const attn_shape *shape = &w->problem.shape;
    const int64_t heads = shape->heads_q / shape->heads_kv, size = (int64_t)attn_dtype_bytes(w->compute);
    attn_shares to = {dK, dV, NULL, NULL, NULL};
    memset(to.dK, 0, (size_t)(shape->len_kv * w->ld_dK * size));
    memset(to.dV, 0, (size_t)(shape->len_kv * w->ld_dV * size));

    /* Tiles are dealt round, from one head to the next, since under a causal mask the later ones cost more. */
    int64_t first = split;
    for (int64_t h = 0; h < heads; h++) {
        int64_t head = key_head * heads + h;
        attn_head_sums none = {0, 0, 0};
        attn_task task = attn_task_of_head(w, c->args, memory, head);
        to.sums = attn_head_sums_at(w, c->shared, head, split);
        *to.sums = none;
        if (w->problem.gradients.relative) to.relative = attn_relative_sums_at(w, c->shared, place, h);
        if (w->problem.gradients.bias_table) attn_table_sums_begin(w, head, split, c->shared), attn_table_sums_clear(&task);
        to.dw = attn_weight_sums_at(w, c->shared, head, split);
        if (to.dw) memset(to.dw, 0, (size_t)(2 * shape->dim_qk) * sizeof(double));
        for (; first < w->tiles; first += w->group * w->splits)
            c->run_tiles(&task, first, attn_min(w->group, attn_ceil_div(w->tiles - first, w->splits)), &to, c->shared);
        if (w->problem.gradients.bias_table) attn_table_sums_keep(&task, split, c->shared);
        first = (first - w->tiles) % w->splits;
    }
}

static void add(const attn_walk *w, const void *dK, const void *dV, void *all_dK, void *all_dV)
{
    w->backward->add(w->problem.shape.len_kv * w->ld_dK, dK, all_dK);
    w->backward->add(w->problem.shape.len_kv * w->ld_dV, dV, all_dV);
}

static attn_task task_of(const call *c, char *memory, int64_t key_head)
{
    return attn_task_of_key_head(c->walk, c->args, memory, key_head);
}

/* Many key heads: a task goes through all splits of one, in order. */
static void run_key_head(void *context, int64_t worker, int64_t place)
{
    const call *c = context;
    const attn_walk *w = c->walk;
    const int64_t key_head = c->first_key_head + place;
    if (w->problem.gradients.relative) attn_relative_sums_clear(w, c->shared, place);
    char *memory = c->workers + worker * w->scratch.bytes;
    attn_task task = task_of(c, memory, key_head);
    if (w->sums_in_place) {
        run_split(c, memory, key_head, 0, place, attn_key_row(&task, c->target->k, c->target->k_layout, 0),
                  attn_key_row(&task, c->target->v, c->target->v_layout, 0));
        return;
    }
    void *dK = memory + w->scratch.dK, *dV = memory + w->scratch.dV;
    void *part_dK = memory + w->scratch.part_dK, *part_dV = memory + w->scratch.part_dV;
    run_split(c, memory, key_head, 0, place, dK, dV);
    for (int64_t split = 1; split < w->splits; split++) {
        run_split(c, memory, key_head, split, place, part_dK, part_dV);
        add(w, part_dK, part_dV, dK, dV);
    }
    attn_shares_store(&task, c->target, dK, dV);
}

/* Few key heads: some splits at once, each with sums of its own, which are added in order before the next ones. */
static void *sum_of(const call *c, int64_t offset, int64_t bytes, int64_t key_head, int64_t place)
{
    return c->shared + offset + (key_head * (c->walk->at_once + 1) + place) * bytes; /* place 0 has the sum */
}

static void run_share(void *context, int64_t worker, int64_t number)
{
    const call *c = context;
    const attn_walk *w = c->walk;
    int64_t key_head = number / w->at_once, place = number % w->at_once, split = c->first_split + place;
    if (split >= w->splits) return;
    int64_t at = split == 0 ? 0 : place + 1;
    if (w->problem.gradients.relative) attn_relative_sums_clear(w, c->shared, number);
    run_split(c, c->workers + worker * w->scratch.bytes, key_head, split, number,
              sum_of(c, w->shared.dK, w->shared.dK_bytes, key_head, at), sum_of(c, w->shared.dV, w->shared.dV_bytes, key_head, at));
}

static void run_sum(void *context, int64_t worker, int64_t key_head)
{
    const call *c = context;
    const attn_walk *w = c->walk;
    void *dK = sum_of(c, w->shared.dK, w->shared.dK_bytes, key_head, 0),
         *dV = sum_of(c, w->shared.dV, w->shared.dV_bytes, key_head, 0);
    int64_t end = attn_min(c->first_split + w->at_once, w->splits);
    for (int64_t split = attn_max(1, c->first_split); split < end; split++) {
        int64_t place = split - c->first_split + 1;
        add(w, sum_of(c, w->shared.dK, w->shared.dK_bytes, key_head, place),
            sum_of(c, w->shared.dV, w->shared.dV_bytes, key_head, place), dK, dV);
    }
    if (end < w->splits) return;
    attn_task task = task_of(c, c->workers + worker * w->scratch.bytes, key_head);
    attn_shares_store(&task, c->target, dK, dV);
}

static void run(const call *c, int64_t tasks, void (*task)(void *context, int64_t worker, int64_t task))
{
    call copy = *c;
    attn_threads_run(c->walk->parallel_for, c->walk->parallel_context, c->walk->workers, tasks, task, &copy);
}

/* What a round of places adds to one table: in the order of key heads and splits. */
static void add_round(void *context, int64_t worker, int64_t table)
{
    const call *c = context;
    const attn_walk *w = c->walk;
    const int64_t key_heads = w->problem.shape.batch * w->problem.shape.heads_kv,
                  splits = attn_min(w->at_once, w->splits - c->first_split);
    (void)worker;
    if (w->at_once == 1) {
        const int64_t count = attn_min(w->relative.places, key_heads - c->first_key_head);
        for (int64_t place = 0; place < count; place++)
            attn_relative_totals_add(w, c->shared, table, place, c->first_key_head + place);
    } else {
        for (int64_t key_head = 0; key_head < key_heads; key_head++)
            for (int64_t s = 0; s < splits; s++) attn_relative_totals_add(w, c->shared, table, key_head * w->at_once + s, key_head);
    }
}

/* Many key heads with tables: as many at once as there are places for the sums of their tables, which are then added in order. */
static void run_rounds(call *c, int64_t key_heads)
{
    const attn_relatives *r = &c->walk->relative;
    for (; c->first_key_head < key_heads; c->first_key_head += r->places) {
        run(c, attn_min(r->places, key_heads - c->first_key_head), run_key_head);
        run(c, r->tables, add_round);
    }
}

void attn_shares_run(const attn_walk *walk, const attn_args *args, void *workspace, attn_run_tiles *run_tiles,
                     const attn_shares_target *target)
{
    int64_t key_heads = walk->problem.shape.batch * walk->problem.shape.heads_kv;
    call c = {walk, args, workspace, attn_shared_of(walk, workspace), run_tiles, target, 0, 0};
    const int tables = walk->problem.gradients.relative;
    if (tables && walk->tasks > 0) attn_relative_totals_clear(walk, c.shared);
    if (walk->at_once == 1) {
        if (tables) run_rounds(&c, key_heads);
        else run(&c, key_heads, run_key_head);
        return;
    }
    for (; c.first_split < walk->splits; c.first_split += walk->at_once) {
        run(&c, key_heads * walk->at_once, run_share);
        run(&c, key_heads, run_sum);
        if (tables) run(&c, walk->relative.tables, add_round);
    }
}
