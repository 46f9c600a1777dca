/* SPDX-License-Identifier: MIT
 *
 * tiles.h - the tiles that attention visits where ranges or lists of blocks say so: numbers that a plan, which sees no data, does
 * not know. */
#ifndef ATTN_CLI_MEASURE_TILES_H
#define ATTN_CLI_MEASURE_TILES_H

#include "attn/attn.h"

typedef struct tile_numbers {
    int64_t total, visited;
    int64_t full; /* of those visited, tiles whose pairs are all seen */
    double pairs; /* seen, of the whole problem */
} tile_numbers;

/* Of a problem at its full lengths, for tiles of tile_q queries and block_kv keys; beyond 2^27 pairs of a query and a block of
 * keys, estimated from a sample of tiles.  Ranges and lists as in seen.h. */
tile_numbers tiles_count(const attn_problem *problem, const attn_tensors *tensors, int64_t tile_q, int64_t block_kv);

#endif
