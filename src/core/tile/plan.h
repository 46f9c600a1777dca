/* SPDX-License-Identifier: MIT
 * plan.h - the common head of the plans of walks over tiles. */
#ifndef ATTN_TILE_PLAN_H
#define ATTN_TILE_PLAN_H

#include "../task/walk.h"
#include "tables.h"

/* Upper bound on the tiles that share a block of keys. */
enum { ATTN_MAX_TILES = 8 };

/* Relative keys and values (relative.h). */
typedef struct attn_relatives {
    int two;                  /* with u or v: content and position scores use different queries */
    int64_t tables, pad;      /* tables: one for each query head, or one in all; pad: extra rows at both ends of each */
    int64_t keys, values;     /* offsets in bytes: [tables][pad + rows + pad][dim] of the compute type */
    int64_t QU, QV, dQU, dQV; /* q + u and q + v, laid out like the walk's q, and in backward their gradients */
    int64_t bytes;            /* of the workspace, after those of the bias by distance */
    int64_t Qrt;              /* bytes from a place's Qt to its Qt for positions; 0 if they are the same */
} attn_relatives;

/* One worker's memory: offsets in bytes, all multiples of 64.  Parts that a problem does not use have no bytes. */
typedef struct attn_tile_scratch {
    int64_t Qt, Qt_bytes;              /* queries, transposed, of each place of a group */
    int64_t lane_bytes;                /* of a number for each query of a tile */
    int64_t S, block_max;              /* of the tile and block at hand */
    int64_t low, high;                 /* int32_t: keys of the block that each query sees */
    int64_t modifiers;                 /* scratch for score modifiers */
    int64_t expanded;                  /* an expanded mask, one byte per pair */
    int64_t K, V;                      /* keys and values, if they must be copied into compact rows of the compute type */
    int64_t K_pairs;                   /* keys in pairs for bf16 scores; then K is for backward only */
    int64_t band;                      /* relative terms: a row of lanes, and products with rows of a table */
    int64_t reused_rows, reused_bytes; /* for each place and each side, the band rows that the next keys reuse */
    int64_t unmodified;                /* scores before the caller's modifier, if its slopes are needed */
} attn_tile_scratch;

typedef struct attn_tile_walk {
    attn_walk walk;
    int64_t group;            /* slots for tiles in a worker's memory: the tiles that share each block of keys and values */
    int compact_k, compact_v; /* copy a block into compact rows before use */
    attn_tables tables;
    attn_relatives relative;
    attn_tile_scratch scratch;
} attn_tile_walk;

/* The plan of a walk over tiles that begins with this one. */
static inline const attn_tile_walk *attn_tiles_of(const attn_walk *walk) { return (const attn_tile_walk *)walk; }

/* Sets the grid of tiles and blocks, and what is copied, from walk->problem. */
void attn_tiles_begin(attn_tile_walk *plan);
/* 1 if blocks of a key tensor must be copied into compact rows. */
int attn_must_compact(const attn_walk *walk, const attn_layout *layout, int64_t dim);

/* Sizes the per-place buffers; the plan's relative tables must be set.  Returns 0 if a size overflows. */
int attn_tiles_measure(attn_tile_walk *plan);
/* Lays out a worker's memory, with the walk's own parts beside Qt and after the score buffers.  Returns 0 if a size overflows. */
int attn_tiles_lay_out(attn_tile_walk *plan, const attn_part_of *beside, size_t n_beside, const attn_part_of *after,
                       size_t n_after);

#endif
