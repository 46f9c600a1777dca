/* SPDX-License-Identifier: MIT
 * plan.c - how sums over queries are divided into tasks, and the memory they need. */
#include "plan.h"

#include "../base/checked.h"
#include "../base/names.h"
#include "gradient.h"
#include "relative_sums.h"

/* Tiles of a group that share each block of keys: as many as fit in the cache beside it, while there are enough groups for all
 * tasks.  If tables have gradients, each group has its own sums, so the number must follow from the head sizes alone; otherwise
 * results do not depend on it. */
static int64_t tiles_of_group(const attn_walk *walk, int64_t most, int64_t tiles, int threads)
{
    const attn_shape *shape = &walk->problem.shape;
    const int tables = attn_grads_relative(&walk->problem);
    double tile_bytes =
        2.5 * (double)(shape->dim_qk + shape->dim_v) * (double)walk->tile_q * (double)attn_dtype_bytes(walk->compute);
    while (most > 1 && tile_bytes * (double)most > (tables ? 512 << 10 : 128 << 10)) most /= 2;
    if (tables) return most;
    if (shape->len_kv <= walk->block_kv) return 1;
    return attn_clamp(tiles / (4 * threads), 1, most);
}

/* Tasks that share key heads: 1 (no sharing) if key heads divide about evenly among the workers. */
static int64_t tasks_at_once(const attn_walk *walk, const attn_setting *setting, int64_t key_heads, int64_t tiles)
{
    const int threads = setting->threads;
    const int64_t rounds = attn_ceil_div(key_heads, threads), blocks = attn_ceil_div(walk->problem.shape.len_kv, walk->block_kv);
    if (attn_is_serial(&walk->problem) || tiles == 0) return 1;
    if ((double)key_heads >= 0.9 * (double)rounds * threads && !setting->saves_memory) return 1;
    return attn_clamp(attn_min(threads, blocks), 1, tiles);
}

static int64_t padded(const attn_walk *walk, int64_t dim) { return attn_ceil_div(dim, walk->kernel.lanes) * walk->kernel.lanes; }

/* 1 if sums can accumulate in the caller's dK and dV: the compute type, contiguous rows of whole vectors. */
static int can_sum_in_place(const attn_sum_walk *plan, const attn_layout *dK, const attn_layout *dV)
{
    const attn_walk *walk = &plan->gradient.tiles.walk;
    const attn_shape *s = &walk->problem.shape;
    return dK->dtype == walk->compute && dV->dtype == walk->compute && plan->ld_dK == s->dim_qk && plan->ld_dV == s->dim_v &&
           dK->stride[2] == plan->ld_dK && dV->stride[2] == plan->ld_dV;
}

int attn_sums_deal(attn_sum_walk *plan, const attn_setting *setting, const attn_layout *dK, const attn_layout *dV, int64_t most)
{
    attn_tile_walk *of_tiles = &plan->gradient.tiles;
    attn_walk *walk = &of_tiles->walk;
    const attn_resolved *p = &walk->problem;
    const attn_shape *shape = &p->shape;
    int64_t key_heads, tiles; /* tiles: per key head */
    if (!p->has.grad_bias && !p->has.second_bias && !p->reproducible)
        walk->tiling = ATTN_TILING_SEQUENCE; /* bias gradients need tiles on a grid */
    plan->ld_dK = padded(walk, shape->dim_qk);
    plan->ld_dV = padded(walk, shape->dim_v);
    plan->sums_in_place = can_sum_in_place(plan, dK, dV);
    if (!attn_mul(shape->batch, shape->heads_kv, &key_heads)) return 0;
    if (!attn_mul(shape->heads_kv ? shape->heads_q / shape->heads_kv : 0, walk->tiles, &tiles)) return 0;
    plan->at_once = tasks_at_once(walk, setting, key_heads, tiles);
    of_tiles->group = tiles_of_group(walk, most, tiles, plan->at_once > 1 ? setting->threads : 1);
    plan->joined = 1;
    if (shape->len_kv <= walk->block_kv) { /* one block of keys: sums are in the order of tiles for any grouping */
        plan->joined = of_tiles->group;
        of_tiles->group = 1;
    }
    walk->tasks = plan->at_once > 1 ? plan->at_once : key_heads;
    walk->workers = attn_is_serial(p) ? 1 : (int)attn_clamp(walk->tasks, 1, setting->threads);
    return 1;
}

/* The shared memory after the workers' memory. */
static int lay_out_shared(attn_sum_walk *plan, const attn_part_of *own, size_t n)
{
    const attn_relatives *relative = &plan->gradient.tiles.relative;
    const attn_tables *tables = &plan->gradient.tiles.tables;
    attn_walk *walk = &plan->gradient.tiles.walk;
    const attn_resolved *p = &walk->problem;
    const size_t size = attn_dtype_bytes(walk->compute);
    attn_sum_shared *s = &plan->shared;
    const int64_t sums = plan->at_once > 1 && !plan->sums_in_place ? p->shape.len_kv : 0;
    int64_t heads, places = 0;
    if (!attn_mul(p->shape.batch, p->shape.heads_q, &heads)) return 0;
    if (attn_grads_relative(p)) {
        plan->relative.places = plan->at_once == 1 ? walk->workers : 1;
        const int64_t of_key_head = attn_relative_shared(p) || !p->shape.heads_kv ? 1 : p->shape.heads_q / p->shape.heads_kv;
        if (!attn_mul(plan->relative.places, of_key_head, &places)) return 0;
    }
    const attn_part_of parts[] = {
        {&s->dK, sums, plan->ld_dK, size},
        {&s->dV, sums, plan->ld_dV, size},
        {&s->sums, heads, 1, sizeof(attn_head_sums)},
        {&s->relative_sums, places, ATTN_SUMS_HEAD + plan->relative.sum_bytes, 1},
        {&s->relative_totals, attn_grads_relative(p) ? relative->tables : 0, plan->relative.sum_bytes, 1},
        {&s->table_sums, p->has.grad_bias_table ? heads : 0, tables->length, sizeof(double)},
        {&s->table_totals, p->has.grad_bias_table ? tables->count : 0, tables->rule.buckets, sizeof(double)},
        {&s->dw, attn_sums_weights(p) ? heads : 0, 2 * p->shape.dim_qk, sizeof(double)},
        {&s->steps, plan->at_once > 1 ? plan->at_once : 0, 1, sizeof(int64_t)},
    };
    return attn_place(parts, sizeof parts / sizeof *parts, &walk->shared_bytes) && attn_place(own, n, &walk->shared_bytes);
}

int attn_gradient_lay_out(attn_gradient_walk *plan, int64_t channels, const attn_part_of *own, size_t n)
{
    attn_walk *walk = &plan->tiles.walk;
    attn_gradient_scratch *s = &plan->scratch;
    const int64_t q = walk->tile_q, group = plan->tiles.group, lane_bytes = plan->tiles.scratch.lane_bytes;
    const size_t size = attn_dtype_bytes(walk->compute);
    const attn_part_of beside[] = {
        {&s->O, channels, q, size},
        {&s->lse, lane_bytes, group, 1},
        {&s->delta, lane_bytes, group, 1},
        {&s->empty, group, q, sizeof(int32_t)},
    };
    const attn_part_of slope = {&s->slope, walk->problem.score.softcap > 0 ? walk->block_kv : 0, q, size};
    return attn_tiles_lay_out(&plan->tiles, beside, sizeof beside / sizeof *beside, own, n) &&
           attn_place(&slope, 1, &walk->worker_bytes);
}

int attn_sums_lay_out(attn_sum_walk *plan, const attn_part_of *own, size_t n, const attn_part_of *shared, size_t n_shared)
{
    attn_tile_walk *tiles = &plan->gradient.tiles;
    attn_walk *walk = &tiles->walk;
    const attn_resolved *p = &walk->problem;
    const int64_t lanes = walk->kernel.lanes, D = p->shape.dim_qk, Dv = p->shape.dim_v, block = walk->block_kv;
    const int64_t q = walk->tile_q, group = tiles->group, widest = attn_max(D, Dv);
    const int64_t own_rows = plan->at_once == 1 && !plan->sums_in_place ? p->shape.len_kv : 0;
    const size_t size = attn_dtype_bytes(walk->compute);
    const int table = p->has.grad_bias_table;
    plan->dOt_bytes = attn_step_bytes(widest, q, size);
    plan->panel_bytes = attn_step_bytes(attn_ceil_div(widest, q) * q, q, size);
    if (!attn_tiles_measure(tiles) || plan->dOt_bytes < 0 || plan->panel_bytes < 0) return 0;
    if (tiles->relative.two) { /* after each place's panels of q + u come those of q + v */
        plan->relative.Q_panels = plan->panel_bytes;
        if (!attn_add(plan->panel_bytes, plan->panel_bytes, &plan->panel_bytes)) return 0;
    }
    const attn_part_of parts[] = {
        {&plan->dOt, plan->dOt_bytes, group, 1},
        {&plan->dQt, tiles->scratch.Qt_bytes, group, 1},
        {&plan->dP, block, q, size},
        {&plan->Q_panels, plan->panel_bytes, group, 1},
        {&plan->dO_panels, plan->panel_bytes, group, 1},
        {&plan->diagonals, table ? lanes * (block + q + lanes) : 0, 1, size},
        {&plan->diagonal_sums, table ? tiles->tables.length : 0, group, sizeof(double)},
        {&plan->group, 1, 1, sizeof(attn_gradient_group)},
        {&plan->sums, group, 1, sizeof(attn_head_sums)},
        {&plan->dw, attn_sums_weights(p) ? 2 * group : 0, D, sizeof(double)},
        {&plan->relative_sums, attn_grads_relative(p), ATTN_SUMS_HEAD + plan->relative.sum_bytes, 1},
        {&plan->pairs, p->has.grad_bias || p->has.second_bias ? block : 0, q, size},
        {&plan->dK, own_rows, plan->ld_dK, size},
        {&plan->dV, own_rows, plan->ld_dV, size},
    };
    return attn_gradient_lay_out(&plan->gradient, widest, parts, sizeof parts / sizeof *parts) &&
           attn_place(own, n, &walk->worker_bytes) && lay_out_shared(plan, shared, n_shared);
}
