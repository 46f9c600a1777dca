/* SPDX-License-Identifier: MIT
 * bias_gradient.h - the gradient of an additive bias: of backward, and second_bias of double backward. */
#ifndef ATTN_GRADIENT_BIAS_GRADIENT_H
#define ATTN_GRADIENT_BIAS_GRADIENT_H

#include "gradient.h"
#include "split_sums.h"

/* 1 if several scores share an element of the bias. */
int attn_bias_is_broadcast(const attn_resolved *problem);

/* A tile of a bias gradient (in the second order, of second_bias) that is not broadcast: zeros, in all rows of the tensor, then the
 * blocks that are visited. */
void attn_clear_bias_gradient(const attn_task *task, int64_t number);
void attn_store_bias_gradient(const attn_task *task, const attn_tile *tile, int64_t low, int64_t n, const void *dS);

/* What a walk has of one tile, and the derivatives of the scores of one block of keys.  open returns 0 if the tile has no rows. */
typedef struct attn_bias_steps {
    int (*open)(const attn_task *task, int64_t number, attn_gradient_tile *tile, const char *shared);
    const void *(*derive)(const attn_task *task, attn_gradient_tile *tile, int64_t low, int64_t high);
} attn_bias_steps;

/* One that is broadcast: summed in a walk of its own, in an order that threads do not change. */
void attn_sum_bias_gradient(const attn_walk *walk, const attn_args *args, char *workspace, const attn_bias_steps *steps);

#endif
