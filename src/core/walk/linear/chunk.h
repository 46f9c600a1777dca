/* SPDX-License-Identifier: MIT
 * chunk.h - a chunk of keys and values that enters the state; shared by the chunked walks. */
#ifndef ATTN_WALK_LINEAR_CHUNK_H
#define ATTN_WALK_LINEAR_CHUNK_H

#include "linear.h"

typedef struct attn_linear_chunk {
    int64_t first, n;
    void *Kf;    /* [n][ld_f] */
    void *V;     /* [n][ld_v], after the state's rows */
    int finite;  /* all values are finite */
    void *logs;  /* [n]: sums of log(decay) from the chunk's first token on; NULL without decay */
    double last; /* the last of them */
} attn_linear_chunk;

/* Loads a chunk: features of keys, values, sums of logs; or only these sums. */
attn_linear_chunk attn_linear_chunk_at(const attn_linear_head *head, int64_t first, int64_t n);
void attn_linear_chunk_logs(const attn_linear_head *head, attn_linear_chunk *chunk);

/* [n]: exp of the logs up to each token, or (after) of those after it. */
const void *attn_linear_weights(const attn_linear_head *head, const attn_linear_chunk *chunk, int after);

/* Moves the state and its sum past the chunk: times exp(last). */
void attn_linear_decay_state(const attn_linear_head *head, const attn_linear_chunk *chunk, void *state, void *sum);

/* Adds the chunk's keys to the state; those of all chunks, in order. */
void attn_linear_absorb(const attn_linear_head *head, const attn_linear_chunk *chunk, attn_prefetch *prefetch);
void attn_linear_absorb_all(const attn_linear_head *head);

/* Stores O / l of a tile of queries, from scratch.Ot and the lanes LANES_L, and the denominators n. */
void attn_linear_finish(const attn_linear_head *head, int64_t h, int64_t first, int64_t rows, int width);

/* lanes[i] = x, or exp(x), with x = shift + sign * array[at + i], for `rows` lanes; those past them repeat the last. */
void attn_linear_broadcast(const attn_linear_walk *w, const void *array, int64_t at, int64_t rows, int width, void *lanes,
                           double shift, double sign, int exponential);

#endif
