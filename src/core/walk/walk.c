/* SPDX-License-Identifier: MIT
 * walk.c - how a problem is cut into tiles, tasks and workers, and what memory a worker needs. */
#include "../task/walk.h"

#include "../base/checked.h"
#include "../base/names.h"
#include "../task/tile.h"
#include "../tile/relative.h"
#include "../tile/tables.h"
#include "../visible/visible.h"

/* Keys and values of this shape are read in place only while they lie close together: rows that are strided apart touch a page
 * and a cache set each (measured: 75 % of the ceiling at a row stride of 8*dim, 85 % at dim, S2048 D64). */
enum { SHORT_ENOUGH_FOR_STRIDES = 256 };

static int must_compact(const attn_walk *walk, const attn_layout *layout, int64_t dim)
{
    if (layout->dtype != walk->compute || walk->problem.has.page_table) return 1;
    return layout->stride[2] != dim && layout->stride[2] != 0 && walk->problem.shape.len_kv > SHORT_ENOUGH_FOR_STRIDES;
}

/* Forward: a task's tiles share each block of keys and values.  That pays where blocks are copied, and costs balance and cache.
 * Results do not depend on it. */
static int64_t tiles_of_task(const attn_walk *walk, int64_t heads, int threads)
{
    const attn_shape *shape = &walk->problem.shape;
    const int copied = walk->compact_k || walk->compact_v;
    int64_t most = copied ? ATTN_MOST_TILES : shape->len_kv > walk->block_kv ? 2 : 1;
    double tile_bytes = (double)(shape->dim_qk + shape->dim_v) * (double)walk->tile_q * (double)attn_dtype_bytes(walk->compute);
    while (most > 1 && tile_bytes * (double)most > 256 << 10) most /= 2;
    while (most > 1 && (double)heads * (double)walk->tiles / (double)most < 4.0 * threads) most /= 2;
    return most;
}

/* Forward: a task has a whole head where that is short, with a single block of keys, and heads are many.  The head's rows are then
 * fetched by one core, and while they are at work those of its next head are on their way. */
static int takes_whole_heads(const attn_walk *walk, int64_t heads, int threads)
{
    return !walk->by_heads && walk->problem.shape.len_kv <= walk->block_kv && heads / threads >= 8;
}

/* Backward: tiles of a group that share each block of keys, as many as stay in the cache beside it, while there are enough groups
 * for all tasks.  Where tables have gradients each group has sums for itself, so there it follows from the head sizes alone;
 * elsewhere results do not depend on it. */
static int64_t tiles_of_group(const attn_walk *walk, int64_t tiles, int threads)
{
    const attn_shape *shape = &walk->problem.shape;
    const int tables = attn_grads_relative(&walk->problem);
    int64_t most = ATTN_MOST_TILES;
    double tile_bytes =
        2.5 * (double)(shape->dim_qk + shape->dim_v) * (double)walk->tile_q * (double)attn_dtype_bytes(walk->compute);
    while (most > 1 && tile_bytes * (double)most > (tables ? 512 << 10 : 128 << 10)) most /= 2;
    if (tables || walk->problem.op != ATTN_BACKWARD) return tables ? most : 1;
    if (shape->len_kv <= walk->block_kv) return 1;
    return attn_clamp(tiles / (4 * threads), 1, most);
}

/* Tasks that share key heads: none where each worker has one of its own, and about as many as the others. */
static int64_t tasks_at_once(const attn_walk *walk, int64_t key_heads, int64_t tiles, int threads)
{
    const int64_t rounds = attn_ceil_div(key_heads, threads), blocks = attn_ceil_div(walk->problem.shape.len_kv, walk->block_kv);
    if (walk->is_brief || tiles == 0) return 1;
    if ((double)key_heads >= 0.9 * (double)rounds * threads && !walk->one_sum) return 1;
    return attn_clamp(attn_min(threads, blocks), 1, tiles);
}

/* Where the caller's dK and dV can be what the sums are added in: the same type, rows of whole vectors one after the other. */
static int can_sum_in_place(const attn_walk *walk)
{
    const attn_resolved *p = &walk->problem;
    const int second = p->op == ATTN_DOUBLE_BACKWARD;
    const attn_layout *k = second ? &p->at.second_k : &p->at.grad_k;
    const attn_layout *v = second ? &p->at.second_v : &p->at.grad_v;
    return k->dtype == walk->compute && v->dtype == walk->compute && walk->ld_dK == p->shape.dim_qk &&
           walk->ld_dV == p->shape.dim_v && k->stride[2] == walk->ld_dK && v->stride[2] == walk->ld_dV;
}

/* How a problem is dealt to tasks whose queries add to the same dK and dV.  Returns 0 if a size overflows. */
static int deal_sums(attn_walk *walk, int64_t key_heads, int threads)
{
    const attn_shape *shape = &walk->problem.shape;
    int64_t tiles; /* of a key head */
    if (!attn_mul(shape->heads_kv ? shape->heads_q / shape->heads_kv : 0, walk->tiles, &tiles)) return 0;
    walk->at_once = tasks_at_once(walk, key_heads, tiles, threads);
    walk->group = tiles_of_group(walk, tiles, walk->at_once > 1 ? threads : 1);
    walk->joined = 1;
    if (shape->len_kv <= walk->block_kv) { /* one block of keys: the order of sums is that of tiles in any group */
        walk->joined = walk->group;
        walk->group = 1;
    }
    walk->sums_in_place = can_sum_in_place(walk);
    walk->tasks = walk->at_once > 1 ? walk->at_once : key_heads;
    return 1;
}

/* Forward: keys are summed in parts, which are merged in order.  A part is so long that merging costs nothing (1 / 300 of it), and
 * begins at a key that neither lengths nor queries nor threads have a say in: sums depend on it.  Where there are few tasks, parts
 * of a head are tasks of their own, some at once, since each needs a state. */
static int cut_keys(attn_walk *walk, int threads)
{
    const int64_t part = 1024, most = 16;
    walk->part_kv = attn_max(1, part / walk->block_kv) * walk->block_kv;
    walk->parts = attn_max(1, attn_ceil_div(walk->problem.shape.len_kv, walk->part_kv));
    if (walk->tiles == 1 && threads > 1 && !walk->is_brief && walk->tasks < 4 * (int64_t)threads)
        walk->at_once = attn_min(walk->parts, most);
    return attn_mul(walk->tasks, walk->at_once, &walk->tasks);
}

/* 1 if a row is the same in any tile: the keys that a tile visits are in one piece, and nothing is summed over its rows. */
static int has_even_tiles(const attn_resolved *p)
{
    const attn_mask *m = &p->mask;
    return (p->op == ATTN_FORWARD || p->op == ATTN_JVP) && !p->has.column_sum && !attn_has_relative(p) && !p->has.block_mask &&
           !p->has.block_starts && m->dilation <= 1 && m->global_q == 0 && m->global_kv == 0;
}

static int64_t padded(const attn_walk *walk, int64_t dim) { return attn_ceil_div(dim, walk->kernel->lanes) * walk->kernel->lanes; }

/* Returns 0 if it overflows. */
static int whole_workspace(attn_walk *walk)
{
    int64_t before;
    return attn_add(walk->tables.bytes, walk->relative.bytes, &before) && attn_walk_add_bytes(walk, before);
}

int attn_walk_init(attn_walk *walk, int threads)
{
    const attn_resolved *p = &walk->problem;
    const int64_t lanes = walk->kernel->lanes;
    int64_t heads, key_heads;

    walk->tile_q = lanes * walk->kernel->vectors;
    walk->block_kv = walk->kernel->block_kv(p->shape.dim_qk, p->shape.dim_v);
    walk->tiles = attn_ceil_div(attn_ceil_div(p->shape.len_q, lanes), walk->kernel->vectors);
    walk->compact_k = attn_is_additive(p) || must_compact(walk, &p->at.k, p->shape.dim_qk);
    walk->compact_v = must_compact(walk, &p->at.v, p->shape.dim_v);
    walk->compact_tan_k = p->has.tan_k && must_compact(walk, &p->at.tan_k, p->shape.dim_qk);
    walk->compact_tan_v = p->has.tan_v && must_compact(walk, &p->at.tan_v, p->shape.dim_v);
    walk->ld_dK = padded(walk, p->shape.dim_qk);
    walk->ld_dV = padded(walk, p->shape.dim_v);
    if (!attn_mul(p->shape.batch, p->shape.heads_q, &heads) || !attn_mul(p->shape.batch, p->shape.heads_kv, &key_heads)) return 0;

    walk->is_brief = attn_is_brief(p);
    walk->tiling = has_even_tiles(p) ? ATTN_TILING_EVEN : ATTN_TILING_GRID;
    /* A bias is summed over tiles on a grid. */
    if (attn_walk_sums(walk) && !p->has.grad_bias && !p->has.second_bias) walk->tiling = ATTN_TILING_SEQUENCE;
    const attn_resolved *want = p;
    walk->outputs = want->has.weights || want->has.scores || want->has.rows || want->has.row_max || want->has.entropy ||
                    want->has.effective_keys || want->has.column_sum || want->outputs.topk > 0;
    walk->group = walk->at_once = 1;
    walk->by_heads = walk->whole_heads = 0;
    walk->sums_in_place = 0;
    walk->parts = 1;
    if (attn_walk_sums(walk)) {
        if (!deal_sums(walk, key_heads, threads)) return 0;
    } else if (p->op == ATTN_JVP) {
        if (!attn_mul(heads, walk->tiles, &walk->tasks)) return 0;
    } else {
        int64_t of_group = p->shape.heads_kv ? p->shape.heads_q / p->shape.heads_kv : 1;
        walk->by_heads = walk->tiles == 1 && of_group > 1;
        walk->group = walk->by_heads ? attn_min(of_group, ATTN_MOST_TILES) : tiles_of_task(walk, heads, threads);
        if (walk->by_heads && !attn_mul(key_heads, attn_ceil_div(of_group, walk->group), &walk->tasks)) return 0;
        if (!walk->by_heads && !attn_mul(heads, attn_ceil_div(walk->tiles, walk->group), &walk->tasks)) return 0;
        walk->whole_heads = !walk->is_brief && walk->tasks > 0 && takes_whole_heads(walk, heads, threads);
        if (walk->whole_heads) walk->tasks = heads;
        if (!cut_keys(walk, threads)) return 0;
    }

    int64_t columns = 0;
    if (p->has.column_sum) { /* their walk has tasks of its own */
        int64_t blocks = attn_ceil_div(p->shape.len_kv, walk->block_kv);
        if (!attn_mul(p->shape.batch, attn_column_heads(p), &columns) || !attn_mul(columns, blocks, &columns)) return 0;
    }
    walk->workers = walk->is_brief ? 1 : (int)attn_clamp(attn_max(walk->tasks, columns), 1, threads);

    if (!attn_tables_init(&walk->tables, walk, walk->tile_q + walk->block_kv) || !attn_relative_init(walk) ||
        !attn_scratch_init(walk) || !attn_shared_init(walk))
        return 0;
    return whole_workspace(walk);
}
