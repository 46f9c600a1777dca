/* SPDX-License-Identifier: MIT
 *
 * draw.h - a random attention problem with a random combination of options, for both the library and the reference. */
#ifndef ATTN_TESTS_OUTPUTS_DRAW_H
#define ATTN_TESTS_OUTPUTS_DRAW_H

#include "../test.h"

#include "attn/attn.h"
#include "attn_ref.h"
#include "testing/random/random.h"

typedef struct drawn {
    attn_problem problem;
    attn_tensors tensors; /* inputs; no outputs yet */
    attn_call call;       /* tensors.call */
    ref_problem ref;
    attn_dtype compute;
    random_state random; /* for further draws by the test */
    char text[256];      /* the options, for messages */
    void *owned[64];
    int owned_count;
} drawn;

/* storage: the type of q, k and v.  A seed draws the same sizes and options for every type. */
void draw(drawn *d, uint64_t seed, attn_dtype storage);
void drawn_free(drawn *d);

/* Sets only the sizes of structs. */
void drawn_clear(drawn *d);

/* Uniform in 0 .. n-1. */
int64_t draw_below(drawn *d, int64_t n);
/* Zeroed memory that drawn_free frees. */
void *draw_memory(drawn *d, int64_t count, size_t size);

/* Element i of a tensor of f32, f64, f16, bf16 or an index type, converted without the library. */
double element_at(attn_dtype dtype, const void *base, int64_t i);

#endif
