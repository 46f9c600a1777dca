/* SPDX-License-Identifier: MIT
 *
 * requests.h - requests of a serving engine, with all their numbers drawn in advance: a request has queries, keys and values of
 * each of its tokens, and its keys and values lie both in rows of its own and in pages that all requests share.
 */
#ifndef ATTN_TESTS_SCHEDULE_REQUESTS_H
#define ATTN_TESTS_SCHEDULE_REQUESTS_H

#include "attn/schedule.h"
#include "testing/random/random.h"

enum { MOST_REQUESTS = 32 };

/* What all requests of a run have in common. */
typedef struct serving {
    int heads_q, heads_kv, dim, window, sink;
    attn_dtype dtype; /* of keys and values; queries are f32 unless it is f64 */
    double softcap;
    int page_size, token_major; /* token_major: pages of [token, head, channel], else [head, token, channel] */
    int lists;                  /* pages by lists, else by a table */
    int joined;                 /* K and V of a page one after the other, in one tensor */
    int64_t capacity;           /* tokens of the longest request */
    int invariant;
    int dim_v; /* not 0: latents, whose first dim_v channels are the values */
    int alibi;
    int cross; /* all keys are there from the beginning, and all queries see them */
} serving;

typedef struct requests {
    serving how;
    int count;
    int64_t tokens[MOST_REQUESTS];                          /* of each request */
    char *q[MOST_REQUESTS];                                 /* [token, head, channel] */
    char *k[MOST_REQUESTS], *v[MOST_REQUESTS];              /* likewise, not in pages */
    float *k_scale[MOST_REQUESTS], *v_scale[MOST_REQUESTS]; /* [token, head]; NULL unless i8 */
    char *o[MOST_REQUESTS];                                 /* results, as q */
    char *pages_k, *pages_v;
    float *pages_k_scale, *pages_v_scale;
    int64_t pages;
    int32_t *table[MOST_REQUESTS]; /* of each request: its pages */
    float sinks[64], slopes[64];
} requests;

/* A step: so many queries of each request, after so many tokens that it has already. */
typedef struct step {
    int64_t first[MOST_REQUESTS], count[MOST_REQUESTS];
} step;

void requests_draw(requests *r, const serving *how, int count, random_state *random);
void requests_free(requests *r);

/* Runs some tokens of one request alone, over keys in rows. */
void requests_run_alone(requests *r, int n, int64_t first, int64_t count, int threads);
/* Runs a step of all requests in one call, over pages, with a schedule or without. */
void requests_run_step(requests *r, const step *s, int scheduled, int threads, random_state *random);

/* Bytes of the results of a request. */
size_t requests_bytes(const requests *r, int n);

#endif
