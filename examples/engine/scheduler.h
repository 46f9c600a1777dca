/* SPDX-License-Identifier: MIT
 *
 * scheduler.h - continuous batching (Yu et al. 2022, "Orca"): requests come and go while others run.  Each step runs, in one call
 * of the model, a token of every sequence that writes and chunks of prompts that are still being read, as far as a budget of tokens
 * goes; a request waits until there is a place and pages for it, and gives its pages up if an older one has none left.
 */
#ifndef SCHEDULER_H
#define SCHEDULER_H

#include "model.h"

typedef struct request {
    int *tokens; /* the prompt's, then those that were written; room for `most` */
    int64_t prompt, count, most;
    int64_t place; /* of its sequence in the pages; -1: it waits */
    int done;
} request;

typedef struct scheduler {
    model *m;
    pages p;
    request *all; /* in order of arrival */
    int64_t requests;
    int64_t places; /* sequences that run at once */
    int64_t budget; /* tokens of a step, of prompts beside those that write */
    int end;        /* the token that ends a text, or -1 */
    /* Of one step: of each place, and its tokens and logits. */
    int64_t *counts, *wanted, *holder; /* holder: the request of a place; -1: none */
    int *tokens;
    float *logits;
    /* What was done. */
    int64_t steps, read, written, evicted;
} scheduler;

/* Takes over `all`.  0 without memory. */
int scheduler_make(scheduler *s, model *m, request *all, int64_t requests, int64_t places, int64_t budget, int64_t page_count,
                   int64_t page_size, attn_dtype dtype);
void scheduler_free(scheduler *s);

/* Runs one step; *left: requests that are not done.  ATTN_ERR_MEMORY, too, if the pages are too few for a request alone. */
attn_status scheduler_step(scheduler *s, int64_t *left, attn_error *error);

#endif
