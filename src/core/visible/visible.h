/* SPDX-License-Identifier: MIT
 *
 * visible.h - which keys a query sees by causality, windows, lengths, ranges and global tokens: one interval per query, and one
 * more before it if keys are global.  If a key head has a list of blocks, keys are counted along the list.  Without ranges and
 * global tokens intervals move forward with the query, so a tile's keys follow from its first and last query; otherwise they are
 * gathered once, when the tile is opened.
 */
#ifndef ATTN_VISIBLE_VISIBLE_H
#define ATTN_VISIBLE_VISIBLE_H

#include "../base/names.h"
#include "../base/problem.h"
#include "attn/attn.h"

/* One head of one batch entry. */
typedef struct attn_visibility {
    int64_t len_q, len_kv;
    int64_t all_kv;   /* keys of the sequence; those of len_kv are on the list, if there is one */
    const void *list; /* the list of the key head, ascending; NULL: none */
    attn_dtype list_dtype;
    int64_t listed, block;     /* blocks on the list that begin within the sequence; keys of one */
    int of_other_walk;         /* the sequence belongs to another walk and is not written: len_q is 0 */
    int64_t rows_of_query;     /* rows at the same position: row i belongs to query i / rows_of_query */
    int64_t first_q, first_kv; /* token 0 of this entry in packed tensors; 0 otherwise */
    int64_t origin_kv;         /* key j is key j + origin_kv of the whole problem */
    int64_t offset;            /* query i has the position of key i + offset */
    int64_t left, right;       /* keeps keys from i + offset - left to i + offset + right; INT64_MAX: no bound */
    int64_t chunk;             /* keeps keys of the same chunk; 0: no chunks */
    int causal;                /* then right is 0, for global tokens too */
    int64_t dilation;          /* at least 1 */
    int64_t global_q;          /* of the whole problem */
    int64_t global_kv;         /* of the part's keys */
    const void *ranges;        /* of query 0; NULL: none */
    attn_dtype ranges_dtype;
    int64_t ranges_stride, ranges_step; /* elements from query to query, and from a range's start to its end value */
} attn_visibility;

typedef struct attn_interval {
    int64_t low, high; /* keys low <= j < high; low == high: empty */
} attn_interval;

/* Keys of a query: `global` lies before `local`, with a gap between, and is nonempty only with global keys.  A dilation leaves only
 * some of the keys of `local`. */
typedef struct attn_visible_keys {
    attn_interval local, global;
} attn_visible_keys;

/* Keys of a tile: those that any of its queries sees, and those that all of them see. */
typedef struct attn_tile_visibility {
    attn_visible_keys any, all;
    int64_t global_rows;  /* how many of the first rows are global */
    attn_interval others; /* from the first to one past the last key that a row after these sees */
} attn_tile_visibility;

/* args may be NULL: then lengths are full, an explicit offset is 0 and ranges contain all keys. */
void attn_visibility_of(const attn_resolved *problem, const attn_args *args, int64_t b, int64_t h, attn_visibility *visibility);

/* Queries and keys of batch entry b, and where they start in packed tensors (else 0). */
typedef struct attn_tokens {
    int64_t len_q, len_kv, first_q, first_kv;
} attn_tokens;
attn_tokens attn_tokens_of(const attn_resolved *problem, const attn_args *args, int64_t b);

/* The page in k and v of page `number` of batch entry b. */
static inline int64_t attn_page_of(const attn_resolved *p, const attn_args *args, int64_t b, int64_t number)
{
    if (p->has.page_table) return attn_index_at(args->page_table, p->at.page_table.dtype, b * p->at.page_table.stride[0] + number);
    return attn_index_at(args->page_index, p->at.page_index.dtype,
                         attn_index_at(args->page_starts, p->at.page_starts.dtype, b) + number);
}

/* Key `t` of the list of a key head, as a key of its sequence; *count, if not NULL, is reduced to those that follow in its block.
 */
static inline int64_t attn_listed_key(const attn_visibility *v, int64_t t, int64_t *count)
{
    if (v->block == 1) {
        if (count) *count = 1;
        return attn_index_at(v->list, v->list_dtype, t);
    }
    const int64_t number = t / v->block, into = t - number * v->block;
    if (count && *count > v->block - into) *count = v->block - into;
    return attn_index_at(v->list, v->list_dtype, number) * v->block + into;
}

/* At least as many keys as the lists of a batch entry have; their blocks are not read. */
int64_t attn_most_listed(const attn_resolved *problem, const attn_args *args, int64_t b);

/* 1 if a sequence of these lengths belongs to the walk: all do, unless a plan has several parts. */
int attn_is_of_walk(const attn_resolved *problem, int64_t len_q, int64_t len_kv);
int attn_is_small(const attn_small *small, int64_t len_q, int64_t len_kv);

/* The same for batch entry b, whose lengths are read. */
int attn_has_entry(const attn_resolved *problem, const attn_args *args, int64_t b);

/* The keys that query i sees. */
attn_visible_keys attn_keys_of_query(const attn_visibility *visibility, int64_t i);

/* bytes[j - low] = 1 if query i, whose intervals are `seen`, sees key j, by the dilation too, else 0: for keys low .. high-1. */
void attn_query_mark(const attn_visibility *visibility, const attn_visible_keys *seen, int64_t i, int64_t low, int64_t high,
                     unsigned char *bytes);

/* How many keys of seen->local query i sees. */
int64_t attn_count_local(const attn_visibility *visibility, const attn_visible_keys *seen, int64_t i);

/* The keys that the queries first .. first+rows-1 see. */
attn_tile_visibility attn_visibility_of_tile(const attn_visibility *visibility, int64_t first, int64_t rows);

/* From the first to one past the last key that any of them sees. */
attn_interval attn_keys_of_tile(const attn_tile_visibility *visible);

/* 1 if none of these queries sees any of the keys low .. high-1. */
int attn_tile_sees_none(const attn_visibility *visibility, const attn_tile_visibility *visible, int64_t first, int64_t rows,
                        int64_t low, int64_t high);

/* 1 if each of these queries sees all of the keys low .. high-1. */
int attn_tile_sees_all(const attn_visibility *visibility, const attn_tile_visibility *visible, int64_t low, int64_t high);

#endif
