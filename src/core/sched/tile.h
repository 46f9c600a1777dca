/* SPDX-License-Identifier: MIT
 * tile.h - the grid: which queries a tile has, and where blocks of keys end. */
#ifndef ATTN_SCHED_TILE_H
#define ATTN_SCHED_TILE_H

#include "../base/checked.h"
#include "visible.h"
#include "walk.h"

typedef struct attn_tile {
    int64_t first, rows; /* queries first .. first+rows-1 */
    int width;           /* vectors in use */
    int64_t place;       /* in the worker's memory, 0 .. walk->group-1 */
    attn_view view;      /* the keys that they see: set by attn_tile_look */
} attn_tile;

/* Tile t of a head.  Vectors of queries are dealt out evenly, so that no tile is left with a single one where it can be helped:
 * a narrow tile is bound by loads (13 vectors as 3,3,3,2,2 run at 74 % of the ceiling, as 3,3,3,3,1 at 70).  What has_four leaves
 * comes last. */
static inline attn_tile attn_tile_at(const attn_walk *walk, int64_t t)
{
    const int64_t len_q = walk->problem.shape.len_q, lanes = walk->kernel->lanes, tiles = walk->tiles - walk->has_four;
    const int64_t vectors = walk->has_four ? len_q / lanes : attn_ceil_div(len_q, lanes);
    int64_t each = vectors, more = 0; /* divisions are seen where heads are short */
    if (t == tiles) return (attn_tile){.first = vectors * lanes, .rows = len_q - vectors * lanes, .width = 1};
    if (tiles > 1) each = vectors / tiles, more = vectors % tiles;
    attn_tile tile = {0};
    tile.width = (int)(each + (t < more));
    tile.first = (t * each + attn_min(t, more)) * lanes;
    tile.rows = attn_min(len_q - tile.first, tile.width * lanes);
    return tile;
}

/* Finds out what the tile's queries see; returns from the first to behind the last key that one of them does. */
static inline attn_interval attn_tile_look(const attn_sight *sight, attn_tile *tile)
{
    tile->view = attn_view_of_tile(sight, tile->first, tile->rows);
    return attn_keys_of_view(&tile->view);
}

/* The end of the block that holds key j, no further than `high`. */
static inline int64_t attn_block_end(const attn_walk *walk, int64_t j, int64_t high)
{
    return attn_min(high, j < walk->block_kv ? walk->block_kv : (j / walk->block_kv + 1) * walk->block_kv);
}

#endif
