/* SPDX-License-Identifier: MIT
 * block.h - a tensor of a fuzzer: of exactly the bytes that its strides reach, so that a sanitizer sees what leaves it; without
 * one, guards around it do. */
#ifndef ATTN_FUZZ_BLOCK_H
#define ATTN_FUZZ_BLOCK_H

#include "attn/attn.h"
#include "draws.h"

enum { BLOCK_BYTES_MOST = 1 << 22 };

typedef struct block {
    const char *name; /* NULL: the case has no such tensor */
    attn_dtype dtype;
    int output;
    int64_t shape[4], stride[4];
    size_t element, bytes;
    ptrdiff_t first;       /* of element (0,0,0,0), from memory on */
    unsigned char *memory; /* guards before and behind, where there is no sanitizer */
    unsigned char *kept;   /* block_keep: what was there, and which bytes are of an element */
    unsigned char *mine;
} block;

/* Dense. */
block block_of(const char *name, attn_dtype dtype, int output, int64_t i0, int64_t i1, int64_t i2, int64_t i3);
/* The axes in another order, with gaps, backwards, and where it is an input broadcast; `last`: that axis stays contiguous. */
void block_draw_strides(block *b, draws *d, int last);
/* 0 where that is too much. */
int block_allocate(block *b);
void block_free(block *b);
/* The same numbers in new memory, `elements` behind its begin. */
void block_move(block *b, size_t elements);
/* Elements are shared, or may be. */
int block_crowded(const block *b);

attn_input block_in(const block *b);   /* a slot; of zeros, where there is no such tensor */
attn_output block_out(const block *b); /* the same, also for inputs of structs that have outputs */

unsigned char *block_at(const block *b, int64_t i0, int64_t i1, int64_t i2, int64_t i3);
double block_get(const block *b, int64_t i0, int64_t i1, int64_t i2, int64_t i3);
void block_put(const block *b, int64_t i0, int64_t i1, int64_t i2, int64_t i3, double x);
/* Every byte an element's number within low .. high; `special`: with NaN, infinities and huge numbers among them. */
void block_fill(const block *b, draws *d, double low, double high, int special);
double draw_real(draws *d, double low, double high);

/* The rounding unit of a float type. */
double block_unit(attn_dtype dtype);
/* An element of an output that is there is `exact` within `bound`, and the rounding of its type. */
void block_hold(const block *b, int64_t i0, int64_t i1, int64_t i2, int64_t i3, double exact, double bound);

/* ---- of all tensors of a case ---- */

void blocks_free(block *of, int count);
void blocks_canary(const block *of, int count, unsigned char canary);
/* An error was returned: no byte of an output is touched. */
void blocks_untouched(const block *of, int count, unsigned char canary, const char *message);
void blocks_keep(block *of, int count);
/* Every element of an output as it was kept, and every other byte as the canary. */
void blocks_compare(const block *of, int count, unsigned char canary, const char *what);
/* The elements of one output within these bounds alone; `zeros`: of either sign are the same. */
void block_compare_part(const block *b, const int64_t begin[4], const int64_t end[4], int zeros, const char *what);
void blocks_print(const block *of, int count);

#endif
