/* SPDX-License-Identifier: MIT
 *
 * tree.h - sums of numbered terms in a binary tree, added in any order: node (level, number) is the sum of nodes (level - 1, 2
 * number) and (level - 1, 2 number + 1), or is the only one of them that exists.  The nodes that wait for their sibling lie in
 * slots of equal size, which all trees of a pool share. */
#ifndef ATTN_DISTRIBUTED_TREE_H
#define ATTN_DISTRIBUTED_TREE_H

#include <stddef.h>
#include <stdint.h>

typedef struct attn_tree_slot {
    int64_t number;
    int64_t next; /* waiting slot of the same tree, or free slot; -1: the last */
    int level;
} attn_tree_slot;

/* Slots and, unless it only counts how many are needed, their memory. */
typedef struct attn_tree_pool {
    attn_tree_slot *slots;
    int64_t capacity, used; /* the first `used` have been taken at least once: so many suffice */
    int64_t free;           /* first of a list; -1: none */
    char *memory;           /* NULL: counts */
    size_t bytes;           /* of a slot */
} attn_tree_pool;

/* left = left + right. */
typedef void attn_tree_add(void *context, char *left, const char *right);

typedef struct attn_tree {
    int64_t waiting; /* first of a list; -1: none */
} attn_tree;

/* Slots in the order in which they were pushed. */
typedef struct attn_tree_queue {
    int64_t first, last; /* -1: empty */
} attn_tree_queue;
void attn_tree_push(attn_tree_queue *queue, attn_tree_pool *pool, int64_t slot);
int64_t attn_tree_pop(attn_tree_queue *queue, const attn_tree_pool *pool); /* -1: empty */

/* What trees of one kind have in common. */
typedef struct attn_tree_kind {
    attn_tree_pool *pool;
    int64_t terms;
    attn_tree_add *add;
    void *context;
} attn_tree_kind;

/* 1 if some of the terms first .. end - 1 of a tree exist. */
typedef int attn_tree_exists(const void *of, int64_t tree, int64_t first, int64_t end);

/* -1: all slots are taken (in a pool that counts, all that there can be). */
int64_t attn_tree_take(attn_tree_pool *pool);
void attn_tree_give(attn_tree_pool *pool, int64_t slot);
static inline char *attn_tree_memory(const attn_tree_pool *pool, int64_t slot)
{
    return pool->memory ? pool->memory + (size_t)slot * pool->bytes : NULL;
}

/* Adds node (level, number), which lies in `slot` and belongs to the tree from now on. */
void attn_tree_insert(attn_tree *tree, const attn_tree_kind *kind, attn_tree_exists *exists, const void *of, int64_t which,
                      int level, int64_t number, int64_t slot);

/* Removes and returns the slot of a node that waits; -1: it does not. */
int64_t attn_tree_remove(attn_tree *tree, const attn_tree_pool *pool, int level, int64_t number);

/* The level of the root: 2^level is at least the number of terms. */
int attn_tree_top(int64_t terms);

#endif
