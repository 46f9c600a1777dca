/* SPDX-License-Identifier: MIT
 * decode.h - what decoding has in common, whatever the layer keeps in its cache. */
#ifndef ATTN_LAYERS_DECODE_H
#define ATTN_LAYERS_DECODE_H

#include "call.h"

typedef struct decoding {
    attn_cache cache;
    int64_t *positions[2]; /* of queries and of keys */
    int64_t *appended;     /* [batch] */
    char *memory;
} decoding;

/* Checks the cache against the layer between the projections, and takes memory; decoding_end follows, also if it fails. */
attn_status decoding_begin(decoding *d, const call *c, const attn_cache *cache, attn_error *error);
/* The attention of the queries in c->saved to the cache as it will be, planned. */
attn_status decoding_plan(decoding *d, call *c, attn_problem *problem, attn_tensors *core, attn_call *of_core, attn_error *error);
/* Appends tokens that lie as [entry, token, head, channel], unless nothing is to be appended. */
attn_status decoding_append(const decoding *d, const call *c, const attn_input *k, const attn_input *v, attn_error *error);
/* Attends; if that fails, what was appended is taken back. */
attn_status decoding_attend(decoding *d, call *c, const attn_problem *problem, const attn_tensors *core, attn_error *error);
void decoding_end(decoding *d, const call *c);

#endif
