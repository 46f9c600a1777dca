/* SPDX-License-Identifier: MIT
 *
 * distributed_case.h - a case of api_case.h over ranks: the program (fuzz_distributed.c) draws it and runs it on one rank, and
 * distributed_ranks.c on several, which are threads. */
#ifndef ATTN_FUZZ_DISTRIBUTED_CASE_H
#define ATTN_FUZZ_DISTRIBUTED_CASE_H

#include "attn/distributed.h"

#include "api_case.h"

enum { PART_LISTS = 1 << 16 };

typedef struct ranks_case {
    api_case *whole; /* its blocks have copies (blocks_keep) of what one rank computed, if that ran */
    attn_split split;
    attn_status expected; /* of one rank, */
    attn_error error;     /* and its message */
    int ranks;
    uint64_t seed; /* of strides, threads and offsets of the ranks */
    int delays;    /* 1: messages come late */
    int near;      /* 1: with any_order, numbers are near those of one rank; 0: they need not be */
} ranks_case;

/* Tokens of all ranks: of queries (0), or of keys (1). */
int64_t ranks_tokens(const api_case *c, int keys);

/* How far numbers of an output, at b's elements, may be from those that are added in another order.  A bound is not derived; what
 * is wrong is further off by orders of magnitude.  Terms that cancel may be as large as what dropout multiplies them by. */
double ranks_near(const api_case *c, const block *b, const unsigned char *numbers);

/* Runs on x->ranks ranks and checks that all of them return what one rank returned, with the same bits, in their own memory. */
void ranks_judge(const ranks_case *x);

#endif
