/* SPDX-License-Identifier: MIT
 * calls.h - shared by the targets of small functions: a drawn call with its blocks, run repeatedly.  Each run checks that no input
 * is written and that a rejected call writes no output. */
#ifndef ATTN_FUZZ_CALLS_H
#define ATTN_FUZZ_CALLS_H

#include "block.h"
#include "target.h"

typedef struct calls {
    block *blocks;
    int count;
    attn_status (*call)(attn_error *error); /* with the case's current sizes, slots and pointers */
    void (*place)(void);                    /* resets slots and pointers from the blocks, and sizes to those drawn */
} calls;

extern attn_error calls_last; /* of the last run */

/* How a block's strides are drawn. */
enum { CALLS_DENSE, CALLS_ANY, CALLS_ROWS /* the last axis stays contiguous */ };
void calls_make(block *b, draws *d, block like, int strides);

/* Returns 1 if it ran. */
int calls_run(const calls *c, unsigned char canary);
/* The first run, which must succeed; its outputs are kept. */
void calls_first(const calls *c);
/* Runs the call again, which must give the same bits. */
void calls_again(const calls *c, unsigned char canary, const char *what);
/* The same with all blocks moved by 1 to 15 elements. */
void calls_elsewhere(const calls *c, draws *d);
/* A call made invalid must be rejected; `must` NULL: it may run, with outputs complete or untouched.  Calls place() afterwards. */
void calls_rejected(const calls *c, const char *must);
/* Runs again with 1 to 3 threads. */
void calls_threads(const calls *c, attn_options *options);
/* Runs with memory for 0, 1, ... allocations: rejected without a write or a leak until there is enough. */
void calls_without_memory(const calls *c, attn_options *options);
/* Variations of a case that ran: other threads and failing allocations (options NULL: the call has no options; allocates 0: it does
 * not allocate), other addresses, and invalid calls. */
void calls_vary(const calls *c, draws *d, attn_options *options, int allocates, void (*reject)(void));

/* Random threads and an instruction set that this CPU has. */
attn_options calls_options(draws *d);

/* Makes a slot invalid and returns a description; `b` is its block.  `needed`: the tensor is required; `shared`: an input that it
 * must not overlap, or NULL.  Returns NULL if nothing must be rejected. */
const char *calls_corrupt(attn_output *slot, const block *b, draws *d, int needed, const block *shared);
/* The same for an input slot. */
const char *calls_corrupt_input(attn_input *slot, const block *b, draws *d, int needed);
/* An invalid size: negative, or so large that addresses overflow. */
int64_t calls_bad_size(draws *d);

#endif
