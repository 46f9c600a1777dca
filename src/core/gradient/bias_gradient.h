/* SPDX-License-Identifier: MIT
 * bias_gradient.h - the gradient of an additive bias: grad_bias of backward, and second_bias of double backward. */
#ifndef ATTN_GRADIENT_BIAS_GRADIENT_H
#define ATTN_GRADIENT_BIAS_GRADIENT_H

#include "gradient.h"
#include "split_sums.h"

/* 1 if several scores share an element of the bias. */
int attn_bias_is_broadcast(const attn_resolved *problem);

/* A bias gradient (second_bias in double backward) that is not broadcast: first zeros in all rows of a tile, then the visited
 * blocks. */
void attn_clear_bias_gradient(const attn_task *task, int64_t number);
void attn_store_bias_gradient(const attn_task *task, const attn_tile *tile, int64_t low, int64_t n, const void *dS);

/* Callbacks of a walk: open a tile (returns 0 if it has no rows), and derive the gradient of the scores of one block of keys. */
typedef struct attn_bias_steps {
    int (*open)(const attn_task *task, int64_t number, attn_gradient_tile *tile, const char *shared);
    const void *(*derive)(const attn_task *task, attn_gradient_tile *tile, int64_t low, int64_t high);
} attn_bias_steps;

/* A bias gradient that is broadcast: summed in a separate walk, in an order that does not depend on threads. */
void attn_sum_bias_gradient(const attn_walk *walk, const attn_args *args, char *workspace, const attn_bias_steps *steps);

#endif
