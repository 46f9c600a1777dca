/* SPDX-License-Identifier: MIT
 *
 * asked.h - what one rank asks for, in a problem with most options that fits on a page, so that a test can spoil it. */
#ifndef ATTN_TESTS_DISTRIBUTED_ASKED_H
#define ATTN_TESTS_DISTRIBUTED_ASKED_H

#include "attn/distributed.h"
#include "limited_allocator.h"

enum {
    ASKED_RANKS = 4,
    ASKED_PART = 8,
    ASKED_LEN = 64,
    ASKED_D = 4,
    ASKED_OWN = ASKED_LEN / ASKED_RANKS,
    ASKED_BATCH = 2,
    ASKED_HEADS = 2
};
enum { ASKED_ROWS = ASKED_BATCH * ASKED_HEADS * ASKED_OWN };

/* Copies and memory of one rank; pointers may be replaced.  Zigzag and ring, causal, dropout, lengths, slopes and a table; all
 * results of backward, and of forward those of rows and columns, which take two runs.  (Not for ATTN_JVP.) */
typedef struct asked {
    attn_problem problem;
    attn_call call;
    attn_tensors tensors;
    attn_split split;
    attn_transport transport;
    attn_options options;
    limited_allocator memory;
    attn_distributed_plan *plan, **to; /* to: &plan */
    char *workspace;
    size_t size; /* of the workspace */
    int64_t lengths[2 * ASKED_BATCH];
    float in[5][2 * ASKED_ROWS * ASKED_D]; /* q, k, v, grad_o, o of backward */
    float lse[ASKED_ROWS], slopes[ASKED_HEADS], table[9 * ASKED_HEADS];
    struct {
        float rows[4][ASKED_ROWS * ASKED_D]; /* o; or grad_q, grad_k, grad_v */
        float lse[ASKED_ROWS], columns[ASKED_ROWS], slopes[ASKED_HEADS], table[9 * ASKED_HEADS];
    } out;
} asked;

void asked_fill(asked *a, attn_op op, const attn_transport *transport);

/* What came of it. */
typedef struct asked_outcome {
    attn_status status;
    char message[sizeof((attn_error *)0)->message];
    int written, planned;
} asked_outcome;

/* Plans and executes.  spoil is called before each: with 0, and with 1; NULL: never. */
void asked_run(asked *a, void (*spoil)(asked *a, int executes), asked_outcome *outcome);

#endif
