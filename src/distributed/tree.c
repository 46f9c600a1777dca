/* SPDX-License-Identifier: MIT
 * tree.c - see tree.h. */
#include "tree.h"

int64_t attn_tree_take(attn_tree_pool *pool)
{
    const int64_t slot = pool->free;
    if (slot >= 0) {
        pool->free = pool->slots[slot].next;
        return slot;
    }
    return pool->used < pool->capacity ? pool->used++ : -1;
}

void attn_tree_give(attn_tree_pool *pool, int64_t slot)
{
    pool->slots[slot].next = pool->free;
    pool->free = slot;
}

void attn_tree_push(attn_tree_queue *queue, attn_tree_pool *pool, int64_t slot)
{
    pool->slots[slot].next = -1;
    if (queue->first < 0) queue->first = slot;
    else pool->slots[queue->last].next = slot;
    queue->last = slot;
}

int64_t attn_tree_pop(attn_tree_queue *queue, const attn_tree_pool *pool)
{
    const int64_t slot = queue->first;
    if (slot >= 0) queue->first = pool->slots[slot].next;
    return slot;
}

int attn_tree_top(int64_t terms)
{
    int level = 0;
    while (INT64_C(1) << level < terms) level++;
    return level;
}

int64_t attn_tree_remove(attn_tree *tree, const attn_tree_pool *pool, int level, int64_t number)
{
    int64_t *at = &tree->waiting;
    for (int64_t slot = *at; slot >= 0; at = &pool->slots[slot].next, slot = *at) {
        if (pool->slots[slot].level != level || pool->slots[slot].number != number) continue;
        *at = pool->slots[slot].next;
        return slot;
    }
    return -1;
}

void attn_tree_insert(attn_tree *tree, const attn_tree_kind *kind, attn_tree_exists *exists, const void *of, int64_t which,
                      int level, int64_t number, int64_t slot)
{
    attn_tree_pool *pool = kind->pool;
    for (const int top = attn_tree_top(kind->terms); level < top; level++, number >>= 1) {
        const int64_t sibling = number ^ 1;
        if (!exists(of, which, sibling << level, (sibling + 1) << level)) continue;
        const int64_t other = attn_tree_remove(tree, pool, level, sibling);
        if (other < 0) break;
        const int64_t left = number & 1 ? other : slot, right = number & 1 ? slot : other;
        if (pool->memory) kind->add(kind->context, attn_tree_memory(pool, left), attn_tree_memory(pool, right));
        attn_tree_give(pool, right);
        slot = left;
    }
    pool->slots[slot] = (attn_tree_slot){.number = number, .next = tree->waiting, .level = level};
    tree->waiting = slot;
}
