/* SPDX-License-Identifier: MIT
 *
 * visible.h - which keys a query sees, as far as causality, windows, lengths, ranges and global tokens decide it: for each query an
 * interval, and one more before it where keys are global.  Without ranges and global tokens intervals move forward with the query,
 * so a tile's keys follow from its first and last query; otherwise they are gathered once, when the tile is opened.
 */
#ifndef ATTN_VISIBLE_VISIBLE_H
#define ATTN_VISIBLE_VISIBLE_H

#include "../base/problem.h"
#include "attn/attn.h"

/* One head of one batch entry. */
typedef struct attn_visibility {
    int64_t len_q, len_kv;
    int of_others;             /* the sequence is another walk's, and not written: len_q is 0 */
    int64_t rows_of_query;     /* rows that stand at the same place: row i is of query i / rows_of_query */
    int64_t first_q, first_kv; /* token 0 of this entry in packed tensors; 0 otherwise */
    int64_t origin_kv;         /* key j is key j + origin_kv of the whole problem */
    int64_t offset;            /* query i stands at key i + offset */
    int64_t left, right;       /* keeps keys from i + offset - left to i + offset + right; INT64_MAX is no bound */
    int64_t chunk;             /* keeps keys of the same chunk; 0 is none */
    int causal;                /* then right is 0, and binds global tokens too */
    int64_t dilation;          /* at least 1 */
    int64_t global_q;          /* of the whole problem */
    int64_t global_kv;         /* of these keys */
    const void *ranges;        /* of query 0; NULL is none */
    attn_dtype ranges_dtype;
    int64_t ranges_stride, ranges_step; /* elements from query to query, and from a range's start to its end */
} attn_visibility;

typedef struct attn_interval {
    int64_t low, high; /* keys low <= j < high; low == high where there is none */
} attn_interval;

/* Keys of a query: `far` lies before `near`, with a gap between, and is not empty unless there are global keys.  A dilation leaves
 * only some of the keys of `near`. */
typedef struct attn_visible_keys {
    attn_interval near, far;
} attn_visible_keys;

/* Keys of a tile: what one of its queries sees, and what all of them see. */
typedef struct attn_tile_visibility {
    attn_visible_keys any, all;
    int64_t global_rows;  /* the first ones, which are global */
    attn_interval others; /* from the first to after the last key that a row after these sees */
} attn_tile_visibility;

/* args may be NULL: then lengths are full, an explicit offset is 0 and ranges have all keys. */
void attn_visibility_of(const attn_resolved *problem, const attn_args *args, int64_t b, int64_t h, attn_visibility *visibility);

/* 1 if a sequence of so many tokens is the walk's: all are, unless a plan has several parts. */
int attn_is_of_walk(const attn_resolved *problem, int64_t len_q, int64_t len_kv);
int attn_is_small(const attn_small *small, int64_t len_q, int64_t len_kv);

/* The same of batch entry b, whose numbers of tokens are read. */
int attn_has_entry(const attn_resolved *problem, const attn_args *args, int64_t b);

/* The keys that query i sees. */
attn_visible_keys attn_keys_of_query(const attn_visibility *visibility, int64_t i);

/* 1 if query i, which sees the keys `seen`, sees key j: what is left of them after the dilation. */
int attn_query_sees(const attn_visibility *visibility, const attn_visible_keys *seen, int64_t i, int64_t j);

/* How many of the keys of seen->near query i sees. */
int64_t attn_count_near(const attn_visibility *visibility, const attn_visible_keys *seen, int64_t i);

/* The keys that the queries first .. first+rows-1 see. */
attn_tile_visibility attn_visibility_of_tile(const attn_visibility *visibility, int64_t first, int64_t rows);

/* From the first to after the last key that one of them sees. */
attn_interval attn_keys_of_tile(const attn_tile_visibility *visible);

/* 1 if none of these queries sees any of the keys low .. high-1. */
int attn_tile_sees_none(const attn_visibility *visibility, const attn_tile_visibility *visible, int64_t first, int64_t rows,
                        int64_t low, int64_t high);

/* 1 if each of these queries sees all of the keys low .. high-1. */
int attn_tile_sees_all(const attn_visibility *visibility, const attn_tile_visibility *visible, int64_t low, int64_t high);

#endif
