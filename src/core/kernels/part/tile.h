/* SPDX-License-Identifier: MIT
 *
 * tile.h - what all parts of a kernel share: the tile that they work on, and small structs of arguments.
 */
#ifndef ATTN_KERNELS_PART_TILE_H
#define ATTN_KERNELS_PART_TILE_H

#include "attn/attn.h"
#include <stdint.h>

/*
 * All parts but decode and short heads work on a transposed tile of queries: queries lie in the lanes of vectors, so that maxima,
 * sums, rescaling and masks are vertical, and keys and values are read by broadcast from their natural rows.
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
 * Tile buffers are 64-byte aligned.  Keys, values and every caller's tensor are only aligned to their element.
 *
 * Same bits: what a lane computes depends on its query and its keys, not on width, rows, n's position in the walk or the other
 * lanes.  So a score is one chain of fused multiply-adds over the channels in ascending order, starting at 0; a block's part of O
 * is one such chain over its keys; l gets the sum of a block in ascending key order.  "In order" (options.invariant) differs only
 * in its ordered scores: with N the lanes of 256 bits (1 in plain C), an ordered score is N such chains, of the channels c mod N,
 * whose ends are added in ascending order.  Decode can have this order too.
 *
 * Kernels cannot fail, allocate nothing, and write only what their comment names.
 */

/* What parts must agree on to work on each other's buffers and to give the same sums the same bits; the first member of every
 * part. */
typedef struct attn_tile_shape {
    int lanes;   /* elements of T in a vector */
    int vectors; /* vectors in a full tile */
    int fused;   /* 1: a multiply-add is rounded once, as by fma(); 0: twice */
} attn_tile_shape;

enum { ATTN_MAX_LANES = 64, ATTN_MAX_VECTORS = 6 }; /* of a tile */

enum { ATTN_LINE = 64, ATTN_PAGE = 4096 }; /* bytes of a cache line and of a page, for prefetching */

/* A block of a caller's mask or bias: element (i, j) of the tile at base + (i*stride_q + j*stride_k) elements. */
typedef struct attn_block {
    const void *base;
    attn_dtype dtype;
    int64_t stride_q;
    int64_t stride_k;
} attn_block;

/* A prefetch hint: rows of `bytes` bytes, `stride` bytes apart, that will be read soon. */
typedef struct attn_prefetch_hint {
    const void *base;
    int64_t rows, bytes, stride;
} attn_prefetch_hint;

/* Which weights dropout drops: those whose word of Philox4x32-10 with key = seed and counter = (offset, head, query, key/4) is
 * below the threshold; or those where the caller's mask is 0. */
typedef struct attn_drop {
    attn_block given; /* the caller's mask; base NULL: drawn */
    uint64_t seed;
    uint32_t offset;
    uint32_t head;      /* b * heads_q + h */
    uint64_t threshold; /* 0 .. 2^32 */
    int64_t first_q;    /* query of lane 0 */
    int64_t rows;
    int64_t first_kv; /* key of row 0 */
} attn_drop;

/*
 * Memory that the caller will use soon, in rows: a long product prefetches a few lines of it now and then.  Addresses are integers,
 * since hints may point past an array.
 */
enum { ATTN_MAX_PREFETCH = 8 };
typedef struct attn_prefetch {
    struct attn_prefetch_rows {
        uintptr_t at;
        int64_t rows, bytes, stride; /* stride in bytes */
    } list[ATTN_MAX_PREFETCH];
    int count, next; /* of list */
    int begun;
    int64_t byte; /* within the current row */
} attn_prefetch;

#endif
