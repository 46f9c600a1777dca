/* SPDX-License-Identifier: MIT
 * tile.h - the grid: the queries of a tile, and the ends of key blocks. */
#ifndef ATTN_TASK_TILE_H
#define ATTN_TASK_TILE_H

#include "../base/checked.h"
#include "../visible/visible.h"
#include "walk.h"

typedef struct attn_tile {
    int64_t first, rows;          /* queries first .. first+rows-1 */
    int width;                    /* vectors in use */
    int64_t place;                /* slot in the worker's memory, 0 .. group-1 */
    attn_tile_visibility visible; /* the keys that they see: set by attn_tile_find_keys */
} attn_tile;

/* Tile t of `tiles`, among which `vectors` vectors of queries are dealt evenly, so that no tile gets a single vector if avoidable:
 * a narrow tile is load-bound (13 vectors as 3,3,3,2,2 run at 74 % of the ceiling, as 3,3,3,3,1 at 70).  end: one past the last
 * query; first: the first vector of all. */
static inline attn_tile attn_tile_dealt(const attn_walk *walk, int64_t t, int64_t tiles, int64_t vectors, int64_t first,
                                        int64_t end)
{
    const int64_t lanes = walk->kernel.lanes;
    int64_t each = vectors, more = 0; /* divisions show in the time of short heads */
    if (tiles > 1) each = vectors / tiles, more = vectors % tiles;
    attn_tile tile = {0};
    tile.width = (int)(each + (t < more));
    tile.first = (first + t * each + attn_min(t, more)) * lanes;
    tile.rows = attn_clamp(end - tile.first, 0, tile.width * lanes);
    return tile;
}

/* Tile t of `tiles`, the last of which has the few queries after whole vectors. */
static inline attn_tile attn_tile_before_four(const attn_walk *walk, int64_t t, int64_t tiles, int64_t len_q)
{
    const int64_t lanes = walk->kernel.lanes, vectors = len_q / lanes;
    if (t == tiles - 1) return (attn_tile){.first = vectors * lanes, .rows = len_q - vectors * lanes, .width = 1};
    return attn_tile_dealt(walk, t, tiles - 1, vectors, 0, len_q);
}

/* Tile t of a head. */
static inline attn_tile attn_tile_at(const attn_walk *walk, int64_t t)
{
    const int64_t len_q = walk->problem.shape.len_q, lanes = walk->kernel.lanes, vectors = attn_ceil_div(len_q, lanes);
    if (walk->tiling == ATTN_TILING_FOUR) return attn_tile_before_four(walk, t, walk->tiles, len_q);
    if (walk->tiling == ATTN_TILING_EVEN) return attn_tile_dealt(walk, t, walk->tiles, vectors, 0, len_q);
    const int64_t width = attn_clamp(vectors - t * walk->kernel.vectors, 0, walk->kernel.vectors);
    return (attn_tile){.first = t * walk->tile_q, .rows = attn_min(len_q - t * walk->tile_q, width * lanes), .width = (int)width};
}

/* Tiles of a head when summing over queries: one more may be needed if a sequence ends before its tensor. */
static inline int64_t attn_tiles_of_sums(const attn_walk *walk)
{
    return walk->tiles + (walk->tiles > 0 && walk->tiling == ATTN_TILING_SEQUENCE && walk->problem.has.lengths_q);
}

/* Tile t of a sequence: its own queries are dealt evenly, and the padding after them comes last. */
static inline attn_tile attn_tile_of(const attn_walk *walk, const attn_visibility *visibility, int64_t t)
{
    if (walk->tiling != ATTN_TILING_SEQUENCE) return attn_tile_at(walk, t);
    const int64_t lanes = walk->kernel.lanes, len_q = walk->problem.shape.len_q, len = attn_clamp(visibility->len_q, 0, len_q);
    const int64_t vectors = attn_ceil_div(len, lanes), tiles = attn_ceil_div(vectors, walk->kernel.vectors);
    if (t < tiles) return attn_tile_dealt(walk, t, tiles, vectors, 0, walk->problem.has.cu_seqlens_q ? len : len_q);
    if (!walk->problem.has.lengths_q) return (attn_tile){0};
    return attn_tile_dealt(walk, t - tiles, attn_tiles_of_sums(walk) - tiles, attn_ceil_div(len_q, lanes) - vectors, vectors,
                           len_q);
}

/* Finds the keys that the tile's queries see; returns the range from the first to one past the last key that any of them sees. */
static inline attn_interval attn_tile_find_keys(const attn_visibility *visibility, attn_tile *tile)
{
    tile->visible = attn_visibility_of_tile(visibility, tile->first, tile->rows);
    return attn_keys_of_tile(&tile->visible);
}

/* The end of the block that contains key j, at most `high`. */
static inline int64_t attn_block_end(const attn_walk *walk, int64_t j, int64_t high)
{
    return attn_min(high, j < walk->block_kv ? walk->block_kv : (j / walk->block_kv + 1) * walk->block_kv);
}

/* Forward: keys are summed in parts, which are merged in order.  A part is long enough that merging is cheap (1 / 300 of it), and
 * begins at a key that does not depend on lengths, queries or threads, since sums depend on it. */
static inline int64_t attn_keys_of_part(int64_t block_kv)
{
    const int64_t part = 1024;
    return attn_max(1, part / block_kv) * block_kv;
}

#endif
