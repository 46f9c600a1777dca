/* SPDX-License-Identifier: MIT
 *
 * tile.h - what all parts of a kernel share: the tile that they work on, and small structs that they are given.
 */
#ifndef ATTN_KERNELS_PART_TILE_H
#define ATTN_KERNELS_PART_TILE_H

#include "attn/attn.h"
#include <stdint.h>

/*
 * All but decode and short heads work on a tile of queries in the transposed form: queries lie in the lanes of vectors, so that
 * maxima, sums, rescaling and masks are vertical, and keys and values are read by broadcast from their natural rows.
 *
 *      lane       0 .. tile_q-1, one query each.  tile_q = lanes * vectors is the row length of every tile buffer
 *      width      how many vectors of the tile are in use, 1 .. vectors.  Lanes past width*lanes are neither read nor written
 *      rows       how many queries are real, 1 .. width*lanes.  Lanes rows .. width*lanes-1 repeat the last real query: they are
 *                 computed and never stored, so they need no masks
 *
 *      Qt [dim_qk][tile_q]    queries, scaled, transposed
 *      S  [n][tile_q]         scores of n keys, which become unnormalised weights
 *      Ot [dim_v][tile_q]     output accumulator, transposed
 *      m, l, block_max, ... [tile_q]
 *
 * Tile buffers are 64-byte aligned.  Keys, values and every caller's tensor are aligned to their element only.
 *
 * Same bits: what a lane computes depends on its query and its keys, not on width, rows, n's position in the walk or the other
 * lanes.  So a score is one chain of fused multiply-adds over the channels in ascending order, starting at 0; a block's part of
 * O is one such chain over its keys; l gets the sum of a block in ascending key order.  What comes "in order" (options.invariant)
 * differs in its scores alone: with N the lanes of 256 bits (1 of plain C) a score is N such chains, of the channels c mod N, whose
 * ends are added in ascending order, which is what decode can have as well.
 *
 * Kernels cannot fail, allocate nothing, and write what their comment names and nothing else.
 */

/* What parts have to agree on to work on each other's buffers, and for the same bits of the same sums: every part says it first. */
typedef struct attn_tile_shape {
    int lanes;   /* elements of T in a vector */
    int vectors; /* vectors in a full tile */
    int fused;   /* 1: what is multiplied and added is rounded once, as by fma(); 0: twice */
} attn_tile_shape;

enum { ATTN_MOST_LANES = 64, ATTN_MOST_VECTORS = 6 }; /* of a tile */

enum { ATTN_LINE = 64, ATTN_PAGE = 4096 }; /* bytes that come at once, and that lie together, as far as prefetching goes */

/* A block of a caller's mask or bias: element (i, j) of the tile at base + (i*stride_q + j*stride_k) elements. */
typedef struct attn_block {
    const void *base;
    attn_dtype dtype;
    int64_t stride_q;
    int64_t stride_k;
} attn_block;

/* What will be read soon: rows of `bytes` bytes, `stride` bytes apart. */
typedef struct attn_prefetch_hint {
    const void *base;
    int64_t rows, bytes, stride;
} attn_prefetch_hint;

/* Which weights dropout drops: those whose word of Philox4x32-10 with key = seed and counter = (offset, head, query, key/4) is
 * below the threshold; or those where the caller's mask has 0. */
typedef struct attn_drop {
    attn_block given; /* base NULL: drawn */
    uint64_t seed;
    uint32_t offset;
    uint32_t head;      /* b * heads_q + h */
    uint64_t threshold; /* 0 .. 2^32 */
    int64_t first_q;    /* query of lane 0 */
    int64_t rows;
    int64_t first_kv; /* key of row 0 */
} attn_drop;

/*
 * Memory that the caller will use soon, in rows: a product that runs long prefetches a few lines of it now and then.  Addresses are
 * integers, since they are hints that may lie past an array.
 */
enum { ATTN_MOST_PREFETCH = 8 };
typedef struct attn_prefetch {
    struct attn_prefetch_rows {
        uintptr_t at;
        int64_t rows, bytes, stride; /* stride in bytes */
    } list[ATTN_MOST_PREFETCH];
    int count, next; /* of the list */
    int begun;
    int64_t byte; /* of the row at hand */
} attn_prefetch;

#endif
