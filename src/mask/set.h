/* SPDX-License-Identifier: MIT
 * set.h - a set of patterns: its rules, and the document numbers and block lists made from them. */
#ifndef ATTN_MASK_SET_H
#define ATTN_MASK_SET_H

#include "attn/mask.h"

/* A block mask as lists: the blocks of row n are columns[rows[n]] .. columns[rows[n+1] - 1], ascending. */
typedef struct block_lists {
    int64_t block_q, block_kv, count_q, count_kv;
    int64_t *rows, *columns;
} block_lists;

/* One pattern and what is derived from it. */
typedef struct rule {
    attn_pattern pattern;
    int64_t *document_q, *document_kv; /* the document number of each query and key, -1 after the last document */
    block_lists blocks;                /* BIGBIRD and BLOCK_MAP; FIXED, without rows if lists cannot express it */
} rule;

struct attn_pattern_set {
    int64_t len_q, len_kv, offset, count;
    int bottom_right;
    rule *rules;

    /* What attn_pattern_set_apply puts into the problem and tensors. */
    attn_mask mask;
    int64_t *ranges;        /* [len_q][2] or NULL */
    unsigned char *columns; /* [len_kv] or NULL */
    const block_lists *lists;
    block_lists made; /* what `columns` has become, or several lists together */
    int dense;        /* 1 + index of the first pattern that needs a mask of len_q x len_kv; 0: none */
};

/* 1 if rule r lets query i see key j. */
int attn_rule_sees(const attn_pattern_set *set, const rule *r, int64_t i, int64_t j);

/* The lists of a BIGBIRD or BLOCK_MAP pattern; returns 0 if memory is short. */
int attn_block_lists_make(block_lists *lists, const attn_pattern *pattern, int64_t len_q, int64_t len_kv);
/* The lists of a FIXED pattern whose first query has the position of key `offset`; left empty if its blocks of queries do not begin
 * at a multiple of the stride, or would be too many.  Returns 0 if memory is short. */
int attn_block_lists_make_fixed(block_lists *lists, const attn_pattern *pattern, int64_t offset, int64_t len_q, int64_t len_kv);
/* The blocks of both a and b, cut to a size that divides those of both; *fits: 0 if they are too many.  Returns 0 if memory is
 * short. */
int attn_block_lists_intersect(block_lists *lists, const block_lists *a, const block_lists *b, int64_t len_q, int64_t len_kv,
                               int *fits);
/* One list of the keys that are kept, for all queries.  Returns 0 if memory is short. */
int attn_block_lists_make_columns(block_lists *lists, const unsigned char *columns, int64_t len_q, int64_t len_kv);
void attn_block_lists_free(block_lists *lists);
/* 1 if row n has block k. */
int attn_block_lists_has(const block_lists *lists, int64_t n, int64_t k);

/* Finds the fields of attn_mask equivalent to the set, or the first pattern without any; returns 0 if memory is short. */
int attn_pattern_set_fuse(attn_pattern_set *set);

#endif
