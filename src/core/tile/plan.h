/* SPDX-License-Identifier: MIT
 * plan.h - what the plans of walks over tiles begin with. */
#ifndef ATTN_TILE_PLAN_H
#define ATTN_TILE_PLAN_H

#include "../task/walk.h"
#include "tables.h"

/* The most tiles that share a block of keys. */
enum { ATTN_MOST_TILES = 8 };

/* Relative keys and values (relative.h). */
typedef struct attn_relatives {
    int two;                  /* with u or v, keys and positions have queries of their own */
    int64_t tables, pad;      /* tables: one for each query head, or one; rows that each has more at both ends */
    int64_t keys, values;     /* offsets in bytes: [tables][pad + rows + pad][dim] of the compute type */
    int64_t QU, QV, dQU, dQV; /* q + u and q + v, laid out as the walk's q, and in backward their gradients */
    int64_t bytes;            /* of the workspace, after those of the bias by distance */
    int64_t Qrt;              /* bytes from a place's Qt to that of positions; 0 where they are the same */
} attn_relatives;

/* One worker's memory: offsets in bytes, all multiples of 64.  A part that a problem does not use has no bytes. */
typedef struct attn_tile_scratch {
    int64_t Qt, Qt_bytes;     /* queries, transposed, of each place of a group */
    int64_t lane_bytes;       /* of a number for each query of a tile */
    int64_t S, block_max;     /* of the tile and block at hand */
    int64_t low, high;        /* int32_t: keys of the block that each query sees */
    int64_t modifiers;        /* room for what modifies scores */
    int64_t expanded;         /* a mask, one byte a pair */
    int64_t K, V;             /* keys and values, where they must be brought into compact rows of the compute type */
    int64_t K_pairs;          /* keys as scores of bf16 take them; then K is for backward alone */
    int64_t band;             /* relative terms: a row of lanes, and products with rows of a table */
    int64_t kept, kept_bytes; /* of them, for each place and each side, what the next keys need too */
    int64_t unmodified;       /* scores as the caller's modifier was given them, where its slopes are needed */
} attn_tile_scratch;

typedef struct attn_tile_walk {
    attn_walk walk;
    int64_t group;            /* places for tiles in a worker's memory: those that share each block of keys and values */
    int compact_k, compact_v; /* copy a block into compact rows before use */
    attn_tables tables;
    attn_relatives relative;
    attn_tile_scratch scratch;
} attn_tile_walk;

/* The plan of a walk over tiles that begins with this one. */
static inline const attn_tile_walk *attn_tiles_of(const attn_walk *walk) { return (const attn_tile_walk *)walk; }

/* The grid of tiles and blocks, and what is copied: of walk->problem. */
void attn_tiles_begin(attn_tile_walk *plan);
/* 1 if blocks of a tensor of keys are copied into compact rows. */
int attn_must_compact(const attn_walk *walk, const attn_layout *layout, int64_t dim);

/* Bytes of what there is one of for each place; plan: with its relative tables.  Returns 0 if a size overflows. */
int attn_tiles_measure(attn_tile_walk *plan);
/* Lays out a worker's memory, with parts of a walk's own beside Qt, and after what scores need.  Returns 0 if a size overflows. */
int attn_tiles_lay_out(attn_tile_walk *plan, const attn_part_of *beside, size_t n_beside, const attn_part_of *after,
                       size_t n_after);

#endif
