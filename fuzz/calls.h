/* SPDX-License-Identifier: MIT
 * calls.h - what targets of small functions share: a drawn call with its blocks, run again and again.  Each run checks that no
 * input is written, and that a rejection touches no output. */
#ifndef ATTN_FUZZ_CALLS_H
#define ATTN_FUZZ_CALLS_H

#include "block.h"
#include "target.h"

typedef struct calls {
    block *of;
    int count;
    attn_status (*call)(attn_error *error); /* with sizes, slots and pointers as the case has them now */
    void (*place)(void);                    /* makes slots and pointers of the blocks, and sizes as they were drawn */
} calls;

extern attn_error calls_last; /* of the last run */

/* How a block's strides are drawn. */
enum { CALLS_DENSE, CALLS_ANY, CALLS_ROWS /* the last axis stays contiguous */ };
void calls_make(block *b, draws *d, block like, int strides);

/* 1 where it ran. */
int calls_run(const calls *c, unsigned char canary);
/* The first run, which has to succeed and is kept. */
void calls_first(const calls *c);
/* A call that ran runs again, to the same bits. */
void calls_again(const calls *c, unsigned char canary, const char *what);
/* The same, with all blocks elsewhere; of 1, 2 ... 15 elements. */
void calls_elsewhere(const calls *c, draws *d);
/* What was spoiled does not run; NULL: whatever comes, outputs are whole or untouched.  Places all again. */
void calls_rejected(const calls *c, const char *must);
/* With 1 to 3 threads. */
void calls_threads(const calls *c, attn_options *options);
/* With memory for 0, 1 ... allocations: rejected without a touch and a leak, until there is enough. */
void calls_without_memory(const calls *c, attn_options *options);
/* What a case that ran meets besides: other threads and short memory (options NULL: it has none; allocates 0: it takes none), other
 * addresses, and what has to be rejected. */
void calls_vary(const calls *c, draws *d, attn_options *options, int allocates, void (*reject)(void));

/* Threads and an instruction set that this CPU has. */
attn_options calls_options(draws *d);

/* Makes something of a slot that no function takes, and says what; `b` is its block.  `needed`: it has to be there; `shared`: an
 * input that it must not be, or NULL.  NULL: nothing that must be rejected. */
const char *calls_spoil(attn_output *slot, const block *b, draws *d, int needed, const block *shared);
/* The same of an input, through its slot's bytes. */
const char *calls_spoil_input(attn_input *slot, const block *b, draws *d, int needed);
/* A size that cannot be: negative, or so large that addresses overflow. */
int64_t calls_bad_size(draws *d);

#endif
