/* SPDX-License-Identifier: MIT
 * bounds.h - what attn_page_bounds and attn_page_scores share: a cache with the bounds of its blocks. */
#ifndef ATTN_API_BOUNDS_H
#define ATTN_API_BOUNDS_H

#include "../kernels/kernel.h"
#include "../threads/threads.h"
#include "attn/choose.h"
#include "cache.h"

enum { ATTN_BOUNDED_CHANNELS = 1024 };

typedef struct attn_bounded {
    attn_append append;               /* the cache as read */
    attn_output rows;                 /* with type and strides */
    int64_t block;                    /* tokens of a block */
    int64_t blocks;                   /* of an entry's capacity */
    const attn_storage_part *storage; /* reads quantised keys */
    attn_options options;
    int threads;
} attn_bounded;

/* Checks the cache and the slot of its bounds, which shares no memory with `first` (of attn_page_bounds; else NULL). */
attn_status attn_bounded_read(attn_bounded *b, const attn_cache *cache, const attn_bounds *bounds, const attn_input *first,
                              attn_error *error);

/* The pages of an entry's keys from token `from` on exist. */
attn_status attn_bounded_check_pages(const attn_bounded *b, int64_t entry, int64_t from, attn_error *error);

/* The bounds of block n of an entry, for key head g: 2 * dim_qk numbers. */
char *attn_bounded_row(const attn_bounded *b, int64_t entry, int64_t g, int64_t n);

static inline int64_t attn_bounded_length(const attn_bounded *b, int64_t entry)
{
    return attn_cache_lengths(&b->append.cache)[entry];
}

#endif
