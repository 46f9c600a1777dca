/* SPDX-License-Identifier: MIT
 *
 * tensor.h - a tensor in two forms: with some type and layout for the library, and dense in double for ref/.
 */
#ifndef ATTN_TESTS_COMBINATION_TENSOR_H
#define ATTN_TESTS_COMBINATION_TENSOR_H

#include "attn/attn.h"

#include "testing/memory/memory_layout.h"
#include "testing/random/random.h"

typedef struct tensor {
    int64_t shape[4];     /* [batch, head, token, channel] */
    memory_layout layout; /* strides spelled out */
    const int64_t *start; /* [batch + 1], packed: first token of each entry; else NULL */
    int64_t count;        /* elements in memory */
    void *memory;
    double *value; /* dense, of the full shape; 0 for tokens that a packed tensor lacks */
} tensor;

/* Axis order in memory. */
typedef enum axis_order { BY_HEAD, BY_TOKEN } axis_order;

/* Zeros.  broadcast: a bit set of axes to broadcast over; start: of a packed tensor, else NULL. */
tensor tensor_make(attn_dtype dtype, const int64_t shape[4], axis_order order, unsigned broadcast, const int64_t *start);
void tensor_free(tensor *t);

/* 1 if (b, token) exists. */
int tensor_has(const tensor *t, int64_t b, int64_t token);
/* The offset of an element, in elements. */
int64_t tensor_at(const tensor *t, int64_t b, int64_t h, int64_t token, int64_t c);

double tensor_get(const tensor *t, int64_t at);
void tensor_set(tensor *t, int64_t at, double x);

/* Adds gaps after tokens, heads and entries, filled with bytes 0xff, which are NaN. */
void tensor_with_gaps(tensor *t, random_state *random);
/* 1 if the gaps still hold these bytes. */
int tensor_gaps_hold(const tensor *t);

void tensor_draw(tensor *t, random_state *random, double size);
void tensor_fill_bytes(tensor *t, int byte);
/* Sets value from memory. */
void tensor_read(tensor *t);

/* Another tensor of the same shape, type and layout. */
tensor tensor_like(const tensor *t);

#endif
