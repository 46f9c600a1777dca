/* SPDX-License-Identifier: MIT
 * cache_case.h - a cache with the tokens of one step, and what must be in it.  fuzz_cache.c judges, cache_draw.c draws. */
#ifndef ATTN_FUZZ_CACHE_CASE_H
#define ATTN_FUZZ_CACHE_CASE_H

#include "attn/cache.h"
#include "block.h"
#include "target.h"

/* The blocks: those of the cache live through all steps, the others are those of one. */
enum {
    C_K,
    C_V,
    C_K_SCALE,
    C_V_SCALE,
    C_LENGTHS,
    C_TABLE,
    C_OWN,
    C_NEW_K = C_OWN,
    C_NEW_V,
    C_NEW_LENGTHS,
    C_Q,
    C_O,
    C_LSE,
    C_BLOCKS
};

enum { BATCH_MOST = 3, CAPACITY_MOST = 96, ROTARY_MOST = 64 };

typedef struct cache_case {
    draws *from;
    attn_cache cache;
    attn_cache_tokens tokens;
    attn_problem problem;
    attn_tensors tensors;
    attn_options options;
    attn_rope rope;
    double tables[2][CAPACITY_MOST * ROTARY_MOST / 2]; /* of the rope */
    int64_t lengths[BATCH_MOST], added[BATCH_MOST];    /* before a step, and in it */
    block of[C_BLOCKS];
    unsigned char *shadow[C_OWN]; /* what must be in memory */
} cache_case;

void cache_draw(cache_case *c);
/* len tokens, of which each entry gets as many as it likes and has room for; and queries. */
void cache_draw_step(cache_case *c);
/* Slots of the step's tokens from token `first` on, `count` of them. */
void cache_place(cache_case *c, int64_t first, int64_t count, const int64_t *added);
/* Makes something wrong, and says what must be rejected (`attend`: by attn_cache_attend alone); NULL: nothing found to spoil. */
const char *cache_spoil(cache_case *c, int *attend);

/* Where token j of entry b lies: its entry or page, and the token in it. */
void cache_where(const cache_case *c, int64_t b, int64_t j, int64_t at[2]);
/* What a step adds to the shadow. */
void cache_expect(cache_case *c);

#endif
