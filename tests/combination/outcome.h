/* SPDX-License-Identifier: MIT
 * outcome.h - every output of an operation on a combination: what the library says, what ref/ says, and how far apart they may be.
 */
#ifndef ATTN_TESTS_COMBINATION_OUTCOME_H
#define ATTN_TESTS_COMBINATION_OUTCOME_H

#include "combination.h"

typedef struct output {
    int tensor; /* its number, or OUTCOME_ROWS: what visit_rows shows */
    const char *name;
    tensor got;
    double *exact, *bound; /* dense, like got.value; the bound in units of the compute type's rounding */
} output;

enum { OUTCOME_MOST = 18, OUTCOME_ROWS = -1 };

typedef struct outcome {
    attn_op op;
    int count;
    output of[OUTCOME_MOST];
    double unit; /* the compute type's rounding unit */
    int bare;    /* 1: without what ref/ says */
} outcome;

/* Wants every output of `op` that the combination has, from every input, with room that the arguments point to.  */
outcome outcome_make(combination *c, attn_op op);
outcome outcome_make_bare(combination *c, attn_op op); /* without what ref/ says, to plan or to compare bits */
void outcome_free(combination *c, outcome *out);

/* One more output: tensor t, whose slot is filled in.  Takes `got` over. */
output *outcome_add(combination *c, outcome *out, int t, tensor got);
/* 1 unless the combination chooses others. */
int outcome_wants(const combination *c, int t);
void outcome_visit(void *context, const attn_rows *rows); /* attn_call.visit_rows where the combination visits */
/* Weights, row maxima, entropies and column sums, or those that the combination chooses, from what ref/ says of a forward; error:
 * that of a score, in units of u. */
void outcome_want_statistics(combination *c, outcome *out, const double *S, const double *P, const double *lse,
                             const double *error);

/* Forward, where `op` needs its results, and `op`.  Returns 0 where this CPU lacks the instruction set. */
int outcome_run(combination *c, outcome *out, attn_isa isa, int threads);

/* Runs it again with each number of `thread_counts`, and fails the test where an output has other bits than now. */
void outcome_compare_bits(combination *c, outcome *out, const int *thread_counts, int count);
/* Runs `op` with one thread and with each number of `thread_counts`, and fails the test where an output has other bits. */
void outcome_same_bits(combination *c, attn_op op, const int *thread_counts, int count);

/* NULL if there is none of this name. */
const output *outcome_find(const outcome *out, const char *name);

/* The largest error as a fraction of the bound, and its output's name.  What is NaN in ref/ has seen poison, and is passed over. */
double outcome_worst(const outcome *out, const char **name);

/* The largest of these on all instruction sets of this CPU.  The test fails where one is not below 1. */
double outcome_worst_run(combination *c, outcome *out, int threads);
/* The same of an outcome that is made for it. */
double outcome_fraction(combination *c, attn_op op, int threads);

#endif
