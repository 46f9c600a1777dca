/* SPDX-License-Identifier: MIT
 *
 * relative.h - relative keys and values inside the walk.  A tile of queries and a block of keys need the rows of a table between
 * their smallest and largest distance: a band.  The band is multiplied by the queries as usual, and the product is added to the
 * tile with a relative shift; if all distances are beyond an end of the table, one row serves all keys.  Tables are expanded in the
 * compute type, with their end rows repeated, so that a band never leaves them.
 */
#ifndef ATTN_TILE_RELATIVE_H
#define ATTN_TILE_RELATIVE_H

#include "steps.h"

enum { ATTN_REUSED_HEAD = 64 }; /* bytes of header before the kept rows of a band */

typedef enum attn_relative_side { ATTN_RELATIVE_KEYS, ATTN_RELATIVE_VALUES } attn_relative_side;

/* S[j][i] += x_i . row(distance), for the tile Xt of queries or of dO; block_max becomes that of S.  Bands of neighbouring keys
 * have rows in common, which are kept from one to the next until attn_relative_forget, called when the tile gets other queries. */
void attn_relative_add(const attn_task *task, const attn_tile *tile, const attn_keys *keys, attn_relative_side side, const void *Xt,
                       void *S);
void attn_relative_forget(const attn_task *task, const attn_tile *tile);

/* A tile and a block of keys relative to a table. */
typedef struct attn_band {
    const attn_walk *w;
    const attn_tile_walk *tiles;
    int width;
    int64_t lanes, n, dim;
    int64_t base;      /* the distance of lane 0 and key 0 */
    int64_t near, far; /* keys before `near` are beyond the last row for all lanes, keys from `far` on beyond the first */
    const char *rows;  /* of the head's table, with padding */
    char *stale, *band;
} attn_band;

attn_band attn_band_of(const attn_task *task, const attn_tile *tile, const attn_keys *keys, attn_relative_side side);

/* For each band, and each end where one row serves all keys: calls use(...) with X shifted into the band, or summed over keys in
 * its first row.  row, count: rows of the table. */
typedef void attn_use_band(const attn_band *v, int64_t row, int64_t count, void *context);
void attn_each_band(const attn_band *v, const void *X, attn_use_band *use, void *context);

/* Yt[c][i] += sum_j X[j][i] row(distance)[c].  nan_safe: rows for which X is 0 are not read. */
void attn_relative_absorb(const attn_task *task, const attn_tile *tile, const attn_keys *keys, attn_relative_side side,
                          const void *X, int nan_safe, void *Yt);

#endif
