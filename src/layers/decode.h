/* SPDX-License-Identifier: MIT
 * decode.h - decoding, shared by layers whatever they keep in their cache. */
#ifndef ATTN_LAYERS_DECODE_H
#define ATTN_LAYERS_DECODE_H

#include "call.h"

typedef struct decoding {
    attn_cache cache;
    int64_t *positions[2]; /* of queries and of keys */
    int64_t *appended;     /* [batch]: tokens appended to each entry */
    char *memory;
} decoding;

/* Checks the cache against the inner attention, and acquires memory.  Call attn_decoding_end afterwards, even on failure. */
attn_status attn_decoding_begin(decoding *d, const call *c, const attn_cache *cache, attn_error *error);
/* Plans the attention of the queries in c->saved to the cache as it is after appending. */
attn_status attn_decoding_plan(decoding *d, call *c, attn_problem *problem, attn_tensors *core, attn_call *of_core,
                               attn_error *error);
/* Appends tokens stored as [entry, token, head, channel]; a no-op if args->only_cached.  v NULL: the cache's values are the first
 * channels of its keys. */
attn_status attn_decoding_append(const decoding *d, const call *c, const attn_input *k, const attn_input *v, attn_error *error);
/* Attends; on failure, removes what was appended. */
attn_status attn_decoding_attend(decoding *d, call *c, const attn_problem *problem, const attn_tensors *core, attn_error *error);
void attn_decoding_end(decoding *d, const call *c);

#endif
