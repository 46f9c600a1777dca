/* SPDX-License-Identifier: MIT
 * cache_case.h - a cache, the tokens of one step, and the contents expected after it.  cache_draw.c draws, cache_format.c knows
 * types of 8 and 4 bits, fuzz_cache.c checks, and cache_shift.c what shifts and moves. */
#ifndef ATTN_FUZZ_CACHE_CASE_H
#define ATTN_FUZZ_CACHE_CASE_H

#include "attn/cache.h"
#include "block.h"
#include "target.h"
#include "testing/memory/format.h"

/* The blocks: those of the cache persist over all steps, the others belong to one step. */
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
    C_SLOTS,
    C_POSITIONS,
    C_Q,
    C_O,
    C_LSE,
    C_BLOCKS
};

enum { MAX_BATCH = 3, MAX_CAPACITY = 96, MAX_ROTARY = 64 };

typedef struct cache_case {
    draws *from;
    attn_cache cache;
    attn_cache_tokens tokens;
    attn_problem problem;
    attn_tensors tensors;
    attn_options options;
    attn_rope rope;
    double tables[2][MAX_CAPACITY * MAX_ROTARY / 2]; /* cosines and sines of the rope */
    int64_t lengths[MAX_BATCH], added[MAX_BATCH];    /* before the step; tokens that it adds */
    block blocks[C_BLOCKS];
    unsigned char *shadow[C_OWN]; /* the expected bytes */
} cache_case;

void cache_draw(cache_case *c);
/* Draws len tokens, of which each entry appends a random number that fits its capacity, and queries. */
void cache_draw_step(cache_case *c);
/* Sets the slots to the step's tokens of entry 0, packed: each with the slot of a random token of the cache, or none. */
void cache_draw_slots(cache_case *c);
/* The pages of entries without tokens become ones that do not exist, in the table and its shadow, until they are shown again:
 * nothing of these entries is looked at. */
unsigned char *cache_hide_pages(cache_case *c, const int64_t *tokens);
void cache_show_pages(cache_case *c, unsigned char *was);
/* Makes a call with slots invalid, as cache_corrupt. */
const char *cache_corrupt_slots(cache_case *c);
/* Sets the slots to `count` of the step's tokens, beginning with token `first`. */
void cache_place(cache_case *c, int64_t first, int64_t count, const int64_t *added);
/* Makes the call invalid and returns a description (`attend`: only attn_cache_attend must reject it); NULL: nothing was changed. */
const char *cache_corrupt(cache_case *c, int *attend);

/* Shifts the cache, or moves tokens in it, and checks every byte (cache_shift.c). */
void cache_rearrange(cache_case *c);
/* Bounds of its keys, scores from them, and lists of blocks (cache_choose.c). */
void cache_choose(cache_case *c);

/* ---- types of 8 and 4 bits (cache_format.c) ---- */

/* Whether the scales of C_K or C_V are the caller's, which appending reads. */
int cache_gives_scale(const cache_case *c, int which);
/* Channel x of a row of C_K or C_V, times its scale. */
double cache_number(const cache_case *c, int which, const int64_t at[2], int64_t h, int64_t x);
/* The scale of a row in f8, and the bytes that a row becomes in f8 (with a scale, or 1) or blocks; NaN of f8 are all 0xff. */
double cache_row_scale(attn_dtype dtype, int64_t dim, const double *x);
void cache_pack(attn_dtype dtype, int64_t dim, const double *x, double scale, unsigned char *to);
/* Checks attn_quantise and attn_hadamard on random rows. */
void cache_quantise(draws *d);

/* Where token j of entry b is stored: the entry or page, and the token within it. */
void cache_where(const cache_case *c, int64_t b, int64_t j, int64_t at[2]);
/* Adds the step, or the tokens with slots, to the shadow. */
void cache_expect(cache_case *c);
void cache_expect_slots(cache_case *c);

#endif
