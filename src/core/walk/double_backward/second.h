/* SPDX-License-Identifier: MIT
 * second.h - the part that the walks of the second order share: a query tile with what its rows need, and R of one block. */
#ifndef ATTN_WALK_DOUBLE_BACKWARD_SECOND_H
#define ATTN_WALK_DOUBLE_BACKWARD_SECOND_H

#include "../../gradient/tangent.h"

/*
 * Of a tile whose row numbers are known already: as attn_gradient_tile_open and attn_tangent_open, and mu and kappa from shared
 * memory. Returns 0 if the tile has no rows.
 */
int attn_second_tile_reopen(const attn_task *task, int64_t number, attn_gradient_tile *tile, const char *shared);

/* The block's T = W (Sd - mu) in scratch.S, dS in scratch.dP, R in scratch.Sd; the softcap's derivatives in scratch.slope and
 * scratch.bend, and the tangents of the scores before it in scratch.before. */
void attn_second_block(const attn_task *task, attn_gradient_tile *tile, const attn_keys *keys, const attn_keys *tangents);

#endif
