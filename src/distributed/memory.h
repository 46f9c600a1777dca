/* SPDX-License-Identifier: MIT
 *
 * memory.h - how a workspace is divided: pieces at multiples of 64 bytes, one after another.
 */
#ifndef ATTN_DISTRIBUTED_MEMORY_H
#define ATTN_DISTRIBUTED_MEMORY_H

#include <stddef.h>
#include <stdint.h>

/* What a workspace of any alignment has more than its pieces. */
enum { ATTN_ALIGNING = 63 };

static inline size_t attn_round_64_up(size_t bytes) { return (bytes + 63) / 64 * 64; }

/* The first piece of a workspace; NULL for NULL. */
static inline char *attn_align_64_up(void *workspace)
{
    return workspace ? (char *)workspace + (64 - (uintptr_t)workspace % 64) % 64 : NULL;
}

/* The next piece, of so many bytes, behind the *used ones; NULL if only their number matters. */
static inline void *attn_take(char *first, size_t *used, size_t bytes)
{
    const size_t start = *used;
    *used = start + attn_round_64_up(bytes);
    return first ? first + start : NULL;
}

#endif
