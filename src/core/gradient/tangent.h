/* SPDX-License-Identifier: MIT
 * tangent.h - forward mode of one query tile: what jvp.c stores, and what the second order starts from. */
#ifndef ATTN_GRADIENT_TANGENT_H
#define ATTN_GRADIENT_TANGENT_H

#include "gradient.h"

/* Of a tile that attn_gradient_tile_open opened: the tangents of its queries in scratch.Qdt. */
void attn_tangent_open(const attn_task *task, const attn_gradient_tile *tile);

/* The tangents of a block's scores in scratch.Sd: of the scores that attn_task_score left, whose softcap's derivative is in
 * scratch.slope.  before: NULL, or room like Sd for the tangents before softcap and bias. */
void attn_tangent_scores(const attn_task *task, const attn_gradient_tile *tile, const attn_keys *keys, const attn_keys *tangents,
                         void *before);

/* The walk over all keys that the tile sees.  Leaves the tangents of its lse in scratch.mu and of its rows of O in scratch.At. */
void attn_tangent_walk(const attn_task *task, attn_gradient_tile *tile);

/* Stores them: like o, and (unless NULL) like lse. */
void attn_tangent_store(const attn_task *task, const attn_gradient_tile *tile, const attn_layout *layout, void *o,
                        const attn_layout *lse_layout, void *lse);

#endif
