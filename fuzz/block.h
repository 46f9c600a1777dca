/* SPDX-License-Identifier: MIT
 * block.h - a fuzzer's tensor in exactly the bytes that its strides reach, so that a sanitizer catches any access outside; without
 * a sanitizer, guard bytes around it catch writes. */
#ifndef ATTN_FUZZ_BLOCK_H
#define ATTN_FUZZ_BLOCK_H

#include "attn/attn.h"
#include "draws.h"

enum { MAX_BLOCK_BYTES = 1 << 23 };

typedef struct block {
    const char *name; /* NULL: the case has no such tensor */
    attn_dtype dtype;
    int output;
    int64_t shape[4], stride[4];
    size_t element, bytes;
    ptrdiff_t first;       /* offset of element (0,0,0,0) from memory */
    unsigned char *memory; /* between guard bytes, without a sanitizer */
    unsigned char *copy;   /* blocks_keep: a copy, and a map (is_element) of the bytes that belong to elements */
    unsigned char *is_element;
} block;

/* A dense block, without memory yet. */
block block_of(const char *name, attn_dtype dtype, int output, int64_t i0, int64_t i1, int64_t i2, int64_t i3);
/* Permuted axes, gaps, negative strides and, for inputs, broadcast axes; `last`: the last axis stays contiguous. */
void block_draw_strides(block *b, draws *d, int last);
/* Returns 0 if that is too much. */
int block_allocate(block *b);
void block_free(block *b);
/* Moves the block to new memory, `elements` elements after its start. */
void block_move(block *b, size_t elements);
/* Whether elements may overlap. */
int block_may_overlap(const block *b);

attn_input block_in(const block *b);   /* its slot; zeros if the case has no such tensor */
attn_output block_out(const block *b); /* the same as an output; also for inputs in structs whose slots are attn_output */

/* An element of any type; i64 as the nearest double. */
double number_get(const void *at, attn_dtype dtype);
void number_put(void *at, attn_dtype dtype, double x);

unsigned char *block_at(const block *b, int64_t i0, int64_t i1, int64_t i2, int64_t i3);
double block_get(const block *b, int64_t i0, int64_t i1, int64_t i2, int64_t i3);
void block_put(const block *b, int64_t i0, int64_t i1, int64_t i2, int64_t i3, double x);
/* Fills with numbers in low .. high; `special`: NaN, infinities and huge numbers are among them. */
void block_fill(const block *b, draws *d, double low, double high, int special);
double draw_real(draws *d, double low, double high);

/* The rounding unit of a float type. */
double block_unit(attn_dtype dtype);
/* Checks that an element is `exact` within `bound` and the rounding of its type; absent blocks pass. */
void block_check(const block *b, int64_t i0, int64_t i1, int64_t i2, int64_t i3, double exact, double bound);

/* ---- all tensors of a case ---- */

void blocks_free(block *blocks, int count);
void blocks_canary(const block *blocks, int count, unsigned char canary);
/* After an error: no byte of an output may be written. */
void blocks_untouched(const block *blocks, int count, unsigned char canary, const char *message);
void blocks_keep(block *blocks, int count);
/* Every element of an output must be as copied, every other byte the canary. */
void blocks_compare(const block *blocks, int count, unsigned char canary, const char *what);
/* The same for the elements of one output in [begin, end); `zeros`: zeros of either sign are equal. */
void block_compare_part(const block *b, const int64_t begin[4], const int64_t end[4], int zeros, const char *what);
/* A checksum of all outputs; every NaN counts as the same, since its bits are unspecified. */
uint64_t blocks_checksum(const block *blocks, int count);
void blocks_print(const block *blocks, int count);

#endif
