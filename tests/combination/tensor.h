/* SPDX-License-Identifier: MIT
 *
 * tensor.h - a tensor twice: as the library sees it, of some type and layout, and as ref/ sees it, dense in double.
 */
#ifndef ATTN_TESTS_COMBINATION_TENSOR_H
#define ATTN_TESTS_COMBINATION_TENSOR_H

#include "attn/attn.h"

#include "testing/memory/memory_layout.h"
#include "testing/random/random.h"

typedef struct tensor {
    int64_t shape[4];     /* [batch, head, token, channel] */
    memory_layout layout; /* strides spelled out */
    const int64_t *start; /* [batch + 1], packed: where each entry's tokens begin; else NULL */
    int64_t count;        /* elements in memory */
    void *memory;
    double *value; /* dense, every element of shape; 0 where a packed tensor has none */
} tensor;

/* How the axes lie. */
typedef enum axis_order { BY_HEAD, BY_TOKEN } axis_order;

/* Broadcasts over the axes of the bit set `broadcast`.  start: NULL, or packed.  Memory and values are 0. */
tensor tensor_make(attn_dtype dtype, const int64_t shape[4], axis_order order, unsigned broadcast, const int64_t *start);
void tensor_free(tensor *t);

/* 1 if (b, token) exists. */
int tensor_has(const tensor *t, int64_t b, int64_t token);
/* Where an element lies, in elements. */
int64_t tensor_at(const tensor *t, int64_t b, int64_t h, int64_t token, int64_t c);

double tensor_get(const tensor *t, int64_t at);
void tensor_set(tensor *t, int64_t at, double x);

/* Lays it out again with gaps behind tokens, heads and entries, of bytes 0xff, which are NaN. */
void tensor_spread(tensor *t, random_state *random);
/* 1 if these bytes are still there. */
int tensor_gaps_hold(const tensor *t);

void tensor_draw(tensor *t, random_state *random, double size);
void tensor_fill_bytes(tensor *t, int byte);
/* Values from what memory holds. */
void tensor_read(tensor *t);

#endif
