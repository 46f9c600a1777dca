/* SPDX-License-Identifier: MIT
 *
 * pages.h - the memory of keys and values of several sequences: one pool of pages for each layer, and one table for all of them,
 * whose pages are handed out as sequences grow and come back when they end.
 */
#ifndef PAGES_H
#define PAGES_H

#include "attn/cache.h"

typedef struct pages {
    int64_t layers, sequences, page_size;
    int64_t row;      /* pages that one sequence can have */
    int64_t *table;   /* [sequences][row] */
    int64_t *held;    /* [sequences]: pages of each */
    int64_t *lengths; /* [sequences]: tokens of each */
    int64_t *unused;  /* pages that no sequence has */
    int64_t unused_count;
    int hadamard;       /* 1: queries, keys and values are rotated by attn_hadamard, and outputs back */
    attn_cache *caches; /* [layers], of all sequences; their tables and lengths are those of a step */
} pages;

/* Makes `count` pages a layer, which sequences of at most `longest` tokens share.  0 without memory. */
int pages_make(pages *p, int64_t layers, int64_t sequences, int64_t longest, int64_t count, int64_t page_size,
               const attn_cache *like);
void pages_free(pages *p);

int64_t pages_length(const pages *p, int64_t sequence);

/* Gives a sequence the pages for `tokens` more tokens.  0 if there are not enough. */
int pages_reserve(pages *p, int64_t sequence, int64_t tokens);

/* The sequence now has `length` tokens, in pages that it has. */
void pages_grow(pages *p, int64_t sequence, int64_t length);

/* Forgets all tokens of a sequence but the first `length`, and the pages that are then empty. */
void pages_keep(pages *p, int64_t sequence, int64_t length);

#endif
