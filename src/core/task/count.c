/* SPDX-License-Identifier: MIT
 * count.c - number of tiles of a problem, and how many are visited and modified: for attn_plan_describe. */
#include "../base/checked.h"
#include "../base/features.h"
#include "../base/names.h"
#include "tile.h"
#include "tree.h"
#include "walk.h"

/* Features that do not modify the scores of a tile whose pairs are all visible.  All others modify every tile. */
static const attn_feature_set LEAVE_FULL_TILES =
    ATTN_USES(INVARIANT) | ATTN_USES(REPRODUCIBLE) | ATTN_USES(FOLDED) | ATTN_USES(ADDITIVE) | ATTN_USES(PREPARED) |
    ATTN_USES(ELEMENTWISE) | ATTN_USES(DILATION) | ATTN_USES(GLOBAL) | ATTN_USES(UNIFORM) | ATTN_USES(PAIRS) | ATTN_USES(ROWS) |
    ATTN_USES(COLUMNS) | ATTN_USES(CAUSAL) | ATTN_USES(ALIGNED) | ATTN_USES(ORIGIN) | ATTN_USES(WINDOW) | ATTN_USES(CHUNK) |
    ATTN_USES(LENGTHS) | ATTN_USES(PACKED) | ATTN_USES(PAGED) | ATTN_USES(RANGES) | ATTN_USES(SINK) | ATTN_USES(SCALES) |
    ATTN_USES(QUANTISED) | ATTN_USES(GROUPS) | ATTN_USES(TREE) | ATTN_USES(CHOICES) | ATTN_USES(LSE_GRADIENT) |
    ATTN_USES(HEAD_GRADIENTS) | ATTN_USES(MATRIX_GRADIENT);

/* Clamps a count to int64_t. */
static int64_t countable(double count) { return count < 9e18 ? (int64_t)count : (int64_t)9e18; }

/* Blocks of the grid that overlap keys low .. high-1. */
static int64_t blocks_of(const attn_walk *walk, int64_t low, int64_t high)
{
    return low < high ? (high - 1) / walk->block_kv - low / walk->block_kv + 1 : 0;
}

/* Of these, the blocks whose keys are all within `all`.  The first and last block are clipped to the tile's keys, so they may count
 * without being full. */
static int64_t full_blocks(const attn_walk *walk, const attn_interval *keys, const attn_interval *all)
{
    int64_t n = walk->block_kv;
    if (all->low >= all->high || keys->low >= keys->high) return 0;
    int64_t first = keys->low >= all->low ? keys->low / n : attn_ceil_div(all->low, n);
    int64_t end = keys->high <= all->high ? attn_ceil_div(keys->high, n) : all->high / n;
    return attn_max(0, end - first);
}

/* Up to so many blocks of a tile are tested one by one for keys that a dilation leaves, as the walk does; beyond, all count as
 * visited. */
enum { MAX_TESTED = 1 << 12 };

/* Keys that have a bit in a tree are not seen by all. */
static attn_tile_visibility without_tree(const attn_walk *walk, attn_tile_visibility visible)
{
    const int64_t end = walk->problem.has.tree ? attn_tree_first(&walk->problem, walk->problem.shape.len_kv) : INT64_MAX;
    visible.all.local.high = attn_min(visible.all.local.high, end);
    visible.all.global.high = attn_min(visible.all.global.high, end);
    return visible;
}

/* Blocks that a tile visits, and those that are fully visible.  Global keys and the others may share a block. */
static void count_tile(const attn_walk *walk, const attn_visibility *visibility, attn_tile *tile, double *visited, double *full)
{
    attn_interval keys = attn_tile_find_keys(visibility, tile);
    const attn_tile_visibility visible = without_tree(walk, tile->visible);
    const attn_visible_keys *any = &visible.any, *all = &visible.all;
    if (any->global.low >= any->global.high || any->local.low / walk->block_kv <= (any->global.high - 1) / walk->block_kv) {
        if (visibility->dilation >= tile->rows + walk->block_kv && blocks_of(walk, keys.low, keys.high) < MAX_TESTED) {
            for (int64_t j = keys.low; j < keys.high; j = attn_block_end(walk, j, keys.high))
                *visited += !attn_tile_sees_none(visibility, &tile->visible, tile->first, tile->rows, j,
                                                 attn_block_end(walk, j, keys.high));
            return;
        }
        *visited += (double)blocks_of(walk, keys.low, keys.high);
        if (visibility->dilation == 1) *full += (double)full_blocks(walk, &keys, &all->local);
        return;
    }
    *visited +=
        (double)blocks_of(walk, any->global.low, any->global.high) + (double)blocks_of(walk, any->local.low, any->local.high);
    *full += visibility->dilation > 1
                 ? 0
                 : (double)full_blocks(walk, &any->global, &all->global) + (double)full_blocks(walk, &any->local, &all->local);
}

/* How many keys query i sees. */
static double count_keys(const attn_visibility *visibility, int64_t i)
{
    attn_visible_keys seen = attn_keys_of_query(visibility, i);
    return (double)(seen.global.high - seen.global.low) + (double)attn_count_local(visibility, &seen, i);
}

void attn_walk_count(const attn_walk *walk, attn_tile_count *count)
{
    enum { MAX_TILES = 1 << 18 }; /* tiles that are counted */
    const attn_resolved *p = &walk->problem;
    attn_visibility visibility;
    attn_visibility_of(p, NULL, 0, 0, &visibility);
    double visited = 0, full = 0, pairs = 0;
    int64_t sampled = attn_min(walk->tiles, MAX_TILES);

    for (int64_t n = 0; n < sampled; n++) {
        int64_t t = walk->tiles <= MAX_TILES ? n : (int64_t)((double)n * ((double)walk->tiles / (double)MAX_TILES));
        attn_tile tile = attn_tile_at(walk, t);
        for (int64_t i = tile.first; i < tile.first + tile.rows; i++) pairs += count_keys(&visibility, i);
        count_tile(walk, &visibility, &tile, &visited, &full);
    }
    if (attn_features_of(p) & ~LEAVE_FULL_TILES) full = 0;
    double heads = (double)p->shape.batch * (double)p->shape.heads_q;
    double scale = sampled ? heads * ((double)walk->tiles / (double)sampled) : 0;
    count->total = countable(heads * (double)walk->tiles * (double)attn_ceil_div(p->shape.len_kv, walk->block_kv));
    count->visited = countable(scale * visited);
    count->modified = countable(scale * (visited - full));
    count->pairs = scale * pairs;
}
