/* SPDX-License-Identifier: MIT
 * walk.c - how a problem is cut into tiles, tasks and workers, and what memory a worker needs. */
#include "../task/walk.h"

#include <stdlib.h>

#include "../base/checked.h"
#include "../base/names.h"
#include "../task/tile.h"
#include "../tile/relative.h"
#include "../tile/tables.h"
#include "../visible/visible.h"
#include "small/short.h"

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

/* Waking threads costs some microseconds: work below about ten of them stays on the calling thread. */
static int is_brief(const attn_walk *walk)
{
    const attn_shape *s = &walk->problem.shape;
    double pairs = (double)s->batch * (double)s->heads_q * (double)s->len_q * (double)s->len_kv;
    return 2.0 * pairs * (double)(s->dim_qk + s->dim_v) < 1e6;
}

/* 1 if its size is no overflow. */
static int whole_workspace(const attn_walk *walk)
{
    int64_t bytes;
    return attn_mul(walk->scratch.bytes, walk->workers, &bytes) && attn_add(bytes, walk->shared.bytes, &bytes) &&
           attn_add(bytes, walk->tables.bytes, &bytes) && attn_add(bytes, walk->relative.bytes, &bytes) && bytes <= INT64_MAX - 64;
}

/* Decode: blocks of a key head's keys are dealt to tasks, several blocks each while there are enough tasks for all workers. */
static int decode_init(attn_walk *walk, int threads)
{
    const attn_shape *shape = &walk->problem.shape;
    const int64_t lanes = walk->decode->lanes, most = 8;
    int64_t key_heads;
    walk->tile_q = walk->kernel->lanes * walk->kernel->vectors; /* a tile has them all: plan/parts.c */
    walk->tiles = 1;
    walk->block_kv = walk->decode->block_kv(shape->dim_qk, shape->dim_v);
    walk->decode_ldq = attn_ceil_div(attn_max(shape->dim_qk, 1), lanes) * lanes;
    walk->decode_ldo = attn_ceil_div(attn_max(shape->dim_v, 1), lanes) * lanes;
    walk->digit_keys = walk->decode->digits && walk->problem.at.k.dtype == ATTN_I8 && shape->dim_qk <= ATTN_MOST_DIGIT_CHANNELS;
    walk->digit_values = walk->decode->digits && walk->problem.at.v.dtype == ATTN_I8 && shape->dim_v <= ATTN_MOST_DIGIT_CHANNELS;
    walk->parts = attn_max(1, attn_ceil_div(shape->len_kv, walk->block_kv));
    if (!attn_mul(shape->batch, shape->heads_kv, &key_heads)) return 0;
    walk->group = 1;
    walk->by_heads = llabs(walk->problem.at.k.stride[2]) > llabs(walk->problem.at.k.stride[1]) && shape->heads_kv > 1;
    while (!walk->by_heads && walk->group < most && (double)key_heads * (double)walk->parts > 16.0 * threads * (double)walk->group)
        walk->group *= 2;
    if (!attn_mul(key_heads, attn_ceil_div(walk->parts, walk->group), &walk->tasks)) return 0;
    walk->workers = is_brief(walk) ? 1 : (int)attn_clamp(walk->tasks, 1, threads);
    return attn_tables_init(walk) && attn_decode_scratch_init(walk) && whole_workspace(walk);
}

int attn_walk_init(attn_walk *walk, int threads)
{
    if (walk->decode) return decode_init(walk, threads);
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

    walk->is_brief = is_brief(walk);
    walk->even_tiles = has_even_tiles(p);
    walk->own_tiles = attn_walk_sums(walk) && !p->has.grad_bias && !p->has.second_bias; /* a bias is summed over tiles on a grid */
    const attn_resolved *want = p;
    walk->outputs = want->has.weights || want->has.scores || want->has.rows || want->has.row_max || want->has.entropy ||
                    want->has.effective_keys || want->has.column_sum || want->outputs.topk > 0;
    if (walk->short_heads)
        return attn_short_init(walk, heads, threads) && attn_tables_init(walk) && attn_relative_init(walk) && whole_workspace(walk);
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

    if (!attn_tables_init(walk) || !attn_relative_init(walk) || !attn_scratch_init(walk) || !attn_shared_init(walk)) return 0;
    return whole_workspace(walk);
}

int64_t attn_walk_bytes(const attn_walk *walk)
{
    return walk->tables.bytes + walk->relative.bytes + walk->scratch.bytes * walk->workers + walk->shared.bytes;
}

/* A count that int64_t holds. */
static int64_t countable(double count) { return count < 9e18 ? (int64_t)count : (int64_t)9e18; }

/* Blocks of the grid that hold keys of low .. high-1. */
static int64_t blocks_of(const attn_walk *walk, int64_t low, int64_t high)
{
    return low < high ? (high - 1) / walk->block_kv - low / walk->block_kv + 1 : 0;
}

/* Of these, the ones whose keys are all within `all`.  The first and last block are cut to the tile's keys, so they may be whole
 * without being full. */
static int64_t whole_blocks(const attn_walk *walk, const attn_interval *keys, const attn_interval *all)
{
    int64_t n = walk->block_kv;
    if (all->low >= all->high || keys->low >= keys->high) return 0;
    int64_t first = keys->low >= all->low ? keys->low / n : attn_ceil_div(all->low, n);
    int64_t end = keys->high <= all->high ? attn_ceil_div(keys->high, n) : all->high / n;
    return attn_max(0, end - first);
}

/* Blocks of a tile that are asked one by one whether a dilation leaves any of their keys, as the walk does; more count as visited.
 */
enum { MOST_ASKED = 1 << 12 };

/* Blocks that a tile visits, and those of them that it sees whole.  Global keys and the others may share a block. */
static void count_tile(const attn_walk *walk, const attn_sight *sight, attn_tile *tile, double *visited, double *whole)
{
    attn_interval keys = attn_tile_look(sight, tile);
    const attn_seen *any = &tile->view.any, *all = &tile->view.all;
    if (any->far.low >= any->far.high || any->near.low / walk->block_kv <= (any->far.high - 1) / walk->block_kv) {
        if (sight->dilation >= tile->rows + walk->block_kv && blocks_of(walk, keys.low, keys.high) < MOST_ASKED) {
            for (int64_t j = keys.low; j < keys.high; j = attn_block_end(walk, j, keys.high))
                *visited += !attn_view_misses(sight, &tile->view, tile->first, tile->rows, j, attn_block_end(walk, j, keys.high));
            return;
        }
        *visited += (double)blocks_of(walk, keys.low, keys.high);
        if (sight->dilation == 1) *whole += (double)whole_blocks(walk, &keys, &all->near);
        return;
    }
    *visited += (double)blocks_of(walk, any->far.low, any->far.high) + (double)blocks_of(walk, any->near.low, any->near.high);
    *whole += sight->dilation > 1
                  ? 0
                  : (double)whole_blocks(walk, &any->far, &all->far) + (double)whole_blocks(walk, &any->near, &all->near);
}

/* How many keys query i sees. */
static double count_keys(const attn_sight *sight, int64_t i)
{
    attn_seen seen = attn_keys_of_query(sight, i);
    return (double)(seen.far.high - seen.far.low) + (double)attn_count_near(sight, &seen, i);
}

void attn_walk_count(const attn_walk *walk, attn_tile_count *count)
{
    enum { MOST = 1 << 18 }; /* tiles that are looked at */
    const attn_resolved *p = &walk->problem;
    attn_sight sight = attn_sight_of(p, NULL, 0, 0);
    double visited = 0, whole = 0, pairs = 0;
    int64_t looked = attn_min(walk->tiles, MOST);

    for (int64_t n = 0; n < looked; n++) {
        int64_t t = walk->tiles <= MOST ? n : (int64_t)((double)n * ((double)walk->tiles / (double)MOST));
        attn_tile tile = attn_tile_at(walk, t);
        for (int64_t i = tile.first; i < tile.first + tile.rows; i++) pairs += count_keys(&sight, i);
        count_tile(walk, &sight, &tile, &visited, &whole);
    }
    if (p->has.mask || p->has.block_mask || p->has.block_starts || p->has.bias || p->has.alibi_slopes || p->has.bias_table ||
        p->has.modifier || attn_has_relative(p) || p->score.softcap > 0 || attn_drops_weights(p))
        whole = 0;
    double heads = (double)p->shape.batch * (double)p->shape.heads_q;
    double scale = looked ? heads * ((double)walk->tiles / (double)looked) : 0;
    count->total = countable(heads * (double)walk->tiles * (double)attn_ceil_div(p->shape.len_kv, walk->block_kv));
    count->visited = countable(scale * visited);
    count->modified = countable(scale * (visited - whole));
    count->pairs = scale * pairs;
}
