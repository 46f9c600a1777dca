/* SPDX-License-Identifier: MIT
 *
 * grid.h - the parts of queries and keys of a problem: their owners, and which cells exist.  A cell exists if the rules of
 * positions (causal, window, chunk, lengths, documents) leave it a visible pair, or seem to: all of them are known to every rank,
 * unlike masks and biases. */
#ifndef ATTN_DISTRIBUTED_GRID_H
#define ATTN_DISTRIBUTED_GRID_H

#include "attn/distributed.h"

typedef struct attn_range {
    int64_t first, end;
} attn_range;

/* The parts of queries, or of keys. */
typedef struct attn_parts {
    int64_t tokens, part, count;
    int32_t *owner;
    int64_t *local; /* first token in the tensors of its owner */
} attn_parts;

/* Index tensors of the whole problem, as 64-bit numbers; NULL: absent. */
typedef struct attn_grid_index {
    int64_t entries; /* of the batch; of packed sequences, their number */
    const int64_t *lengths_q, *lengths_kv, *offset_q, *starts_q, *starts_kv;
    int64_t origin_q, origin_kv; /* positions of the first query and key */
    int all_pairs;               /* 1: a result has a number for each pair, visible or not, and all cells exist */
} attn_grid_index;

enum { ATTN_SEEN_RANGES = 2 };

typedef struct attn_grid {
    attn_parts q, kv;
    attn_range *seen; /* of part i of queries: parts of keys within its window, and global ones, at ATTN_SEEN_RANGES i */
    attn_range
        *rows; /* of part j of keys: the first part of queries that sees it, and the end of the last; others may lie between */
} attn_grid;

static inline int64_t attn_min(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t attn_max(int64_t a, int64_t b) { return a > b ? a : b; }

/* What is sent, and `more`: a count that does not overflow, and ends at 2^62. */
static inline int64_t attn_bytes_sent(int64_t bytes, size_t more)
{
    const int64_t most = INT64_C(1) << 62;
    return more < (size_t)(most - bytes) ? bytes + (int64_t)more : most;
}

/* A count, of each of so many. */
static inline int64_t attn_times(int64_t count, int64_t times)
{
    const int64_t most = INT64_C(1) << 62;
    return times > 0 && count > most / times ? most : count * times;
}

static inline int64_t attn_parts_of(int64_t tokens, int64_t part) { return tokens / part + (tokens % part != 0); }
static inline int64_t attn_part_first(const attn_parts *p, int64_t n) { return n * p->part; }
static inline int64_t attn_part_size(const attn_parts *p, int64_t n) { return attn_min(p->tokens - n * p->part, p->part); }

/* Of the largest part. */
static inline int64_t attn_part_most(const attn_parts *p) { return attn_min(p->tokens, p->part); }

/* How many entries are looked at: all others are like the first one. */
static inline int64_t attn_entries_apart(const attn_grid_index *x)
{
    const int differ = x->lengths_q || x->lengths_kv || x->offset_q || x->starts_q || x->starts_kv;
    return differ ? x->entries : attn_min(x->entries, 1);
}

/* The queries and the keys of an entry of the batch, and where the first query is among the keys. */
typedef struct attn_entry {
    int64_t first_q, queries, first_kv, keys; /* tokens of the whole, of packed sequences */
    int64_t offset;
} attn_entry;
attn_entry attn_entry_at(const attn_grid_index *index, const attn_shape *shape, int64_t b);

/* The tokens that `rank` owns. */
int64_t attn_parts_tokens(const attn_parts *p, int rank);

/* Bytes of the arrays of a grid, a multiple of 8, which attn_grid_fill takes from `memory`.  tokens: queries (first) and keys
 * (end). */
size_t attn_grid_bytes(attn_range tokens, int64_t part, int ranks);
/* A grid of the same parts whose ranks are groups of `members` ranks after one another; it refers to `from`, and has its arrays in
 * attn_grid_join_bytes of memory. */
size_t attn_grid_join_bytes(const attn_grid *from, int ranks);
void attn_grid_join(attn_grid *grid, void *memory, const attn_grid *from, int ranks, int members);
attn_status attn_grid_fill(attn_grid *grid, void *memory, attn_range tokens, const attn_problem *problem,
                           const attn_grid_index *index, const attn_split *split, int ranks, attn_error *error);

/* The keys that queries at positions first .. last of a sequence of `keys` keys may see: in the window, and global ones, as far as
 * ranges go. */
void attn_keys_seen(const attn_mask *mask, int64_t first, int64_t last, int64_t keys, attn_range seen[ATTN_SEEN_RANGES]);

/* How many keys the query at a position sees. */
double attn_keys_count(const attn_mask *mask, int64_t position, int64_t keys);

/* 1 if there is a cell. */
int attn_grid_has_cells(const attn_grid *grid);
/* How many cells part i of queries has. */
int64_t attn_row_cells(const attn_grid *grid, int64_t i);
/* And part j of keys. */
int64_t attn_column_cells(const attn_grid *grid, int64_t j);
/* 1 if part i of queries has a cell with one of the parts first .. end - 1 of keys; and the reverse. */
int attn_row_exists(const attn_grid *grid, int64_t i, int64_t first, int64_t end);
int attn_column_exists(const attn_grid *grid, int64_t j, int64_t first, int64_t end);

#endif
