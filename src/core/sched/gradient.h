/* SPDX-License-Identifier: MIT
 * gradient.h - the part that the walks of backward share: a query tile with what its rows need, and dS of one block. */
#ifndef ATTN_SCHED_GRADIENT_H
#define ATTN_SCHED_GRADIENT_H

#include "task.h"

typedef struct attn_gradient_tile {
    attn_tile tile;
    attn_interval keys;   /* that it visits */
    int dropped;          /* a key was dropped inside the last block */
    int careful_queries;  /* a row of Q or dO is not finite */
    const int32_t *empty; /* NULL, or the lanes that weigh all keys alike since they see none */
} attn_gradient_tile;

/*
 * Brings tile `number` into the worker's memory: Qt, dOt, Q_panels (scaled) and dO_panels, lse in m and delta = dO.O - dlse in l.
 * Without dO (forward mode) only Qt, Ot and lse.  Returns 0 if the tile has no rows.
 */
int attn_gradient_tile_open(const attn_task *task, int64_t number, attn_gradient_tile *tile);

/* The next run of keys that the tile visits, from run->high on; returns 0 behind the last one. */
int attn_gradient_next(const attn_task *task, const attn_gradient_tile *tile, attn_interval *run);

/* The block's weights after dropout in scratch.S, the gradient of its scores in scratch.dP, the softcap's derivative in
 * scratch.slope. */
void attn_gradient_block(const attn_task *task, attn_gradient_tile *tile, const attn_keys *keys);

/* 1 if several scores share an element of the bias. */
int attn_bias_is_broadcast(const attn_problem *problem);

/* A tile of a bias gradient (in the second order, of second_bias) that is not broadcast: zeros, in all rows of the tensor, then the
 * blocks that are visited. */
void attn_clear_bias_gradient(const attn_task *task, int64_t number);
void attn_store_bias_gradient(const attn_task *task, const attn_tile *tile, int64_t low, int64_t n, const void *dS);

#endif
