/* SPDX-License-Identifier: MIT
 *
 * sums.h - the sums of a run, each of which is formed in a binary tree (or, with any_order, one term after another, as they come; a
 * tree then has one node at most): of a part of queries over the parts of keys (its results,
 * and what it adds to shared ones), of a part of keys over those of queries, and of shared results over all parts of queries. */
#ifndef ATTN_DISTRIBUTED_SUMS_H
#define ATTN_DISTRIBUTED_SUMS_H

#include "steps.h"

typedef enum attn_sum_kind {
    ATTN_SUM_ROW,        /* results of part `which` of queries */
    ATTN_SUM_COLUMN,     /* results of part `which` of keys */
    ATTN_SUM_ROW_SHARED, /* what part `which` of queries adds to shared results */
    ATTN_SUM_SHARED      /* shared results */
} attn_sum_kind;

typedef struct attn_sum {
    attn_sum_kind kind;
    int64_t which;
    attn_tree *tree;
} attn_sum;

attn_node_kind attn_sum_node(const attn_sum *sum);
/* 1 if the terms are parts of keys, 0 if they are parts of queries; and how many there are. */
int attn_sum_over_keys(const attn_sum *sum);
int64_t attn_sum_terms(const attn_running *r, const attn_sum *sum);
/* 1 if some of the terms first .. end - 1 exist. */
int attn_sum_exists(const attn_running *r, const attn_sum *sum, int64_t first, int64_t end);

/* Adds node (level, number), in `slot`; -1: there are no such results.  With any_order it is the next term, whatever its number. */
void attn_sum_insert(attn_running *r, const attn_sum *sum, int level, int64_t number, int64_t slot);
/* Removes and returns the root, if the sum is complete; -1 otherwise.  With any_order: what there is. */
int64_t attn_sum_root(attn_running *r, const attn_sum *sum);
/* The root of a sum that must be complete, or else r->lost; -1 also if there are no such results. */
int64_t attn_sum_complete(attn_running *r, const attn_sum *sum);

/* A slot for a node; -1: there are no such results, or not enough slots. */
int64_t attn_sum_take(attn_running *r, attn_node_kind kind);
void attn_sum_give(attn_running *r, attn_node_kind kind, int64_t slot);
char *attn_sum_memory(const attn_running *r, attn_node_kind kind, int64_t slot);

/* Stores the results of own part n of keys, if they are complete. */
void attn_sum_end_column(attn_running *r, int64_t n);

#endif
