/* SPDX-License-Identifier: MIT
 * outcome.h - every output of an operation on a combination: the library's result, that of ref/, and the bound of their difference.
 */
#ifndef ATTN_TESTS_COMBINATION_OUTCOME_H
#define ATTN_TESTS_COMBINATION_OUTCOME_H

#include "combination.h"

typedef struct output {
    int tensor; /* its number, or OUTCOME_ROWS: the rows passed to visit_rows */
    const char *name;
    tensor got;
    double *exact, *bound; /* dense, like got.value; the bound in units of the compute type's unit roundoff */
} output;

enum { OUTCOME_CAPACITY = 18, OUTCOME_ROWS = -1 };

typedef struct outcome {
    attn_op op;
    int count;
    output of[OUTCOME_CAPACITY];
    double unit; /* the compute type's unit roundoff */
    int bare;    /* 1: without results of ref/ */
} outcome;

/* Requests every output of `op` that the combination has, allocates them, and points the slots at them. */
outcome outcome_make(combination *c, attn_op op);
outcome outcome_make_bare(combination *c, attn_op op); /* without results of ref/, to plan or to compare bits */
void outcome_free(combination *c, outcome *out);

/* Adds an output, tensor t, and fills its slot.  Takes ownership of `got`. */
output *outcome_add(combination *c, outcome *out, int t, tensor got);
/* 1 if output t is requested: always, unless the combination `chooses`. */
int outcome_has(const combination *c, int t);
void outcome_visit(void *context, const attn_rows *rows); /* attn_call.visit_rows of a combination with `visits` */
/* Adds weights, row maxima, entropies and column sums, or those that the combination chooses, from the results of ref/ forward;
 * error: the bound of a score's error, in units of u. */
void outcome_expect_statistics(combination *c, outcome *out, const double *S, const double *P, const double *lse,
                               const double *error);

/* Runs `op`, after forward if `op` needs its results.  Returns 0 if this CPU lacks the instruction set. */
int outcome_run(combination *c, outcome *out, attn_isa isa, int threads);

/* Runs it again with each number of `thread_counts`; fails the test if any bit of an output changes. */
void outcome_compare_bits(combination *c, outcome *out, const int *thread_counts, int count);
/* The same with a schedule.  Returns 0, and runs nothing, if there is none for such a call. */
int outcome_compare_scheduled(combination *c, outcome *out, int threads);
/* Runs `op` with one thread and with each number of `thread_counts`; fails the test if the bits of an output differ. */
void outcome_same_bits(combination *c, attn_op op, const int *thread_counts, int count);

/* NULL if there is none of this name. */
const output *outcome_find(const outcome *out, const char *name);

/* The largest error as a fraction of the bound, and its output's name.  Elements that are NaN in ref/ depend on poison: skipped. */
double outcome_worst(const outcome *out, const char **name);

/* The maximum of outcome_worst over all instruction sets of this CPU; fails the test unless it is below 1. */
double outcome_worst_run(combination *c, outcome *out, int threads);
/* The same, with an outcome of its own. */
double outcome_fraction(combination *c, attn_op op, int threads);

/* outcome_fraction and outcome_same_bits of a combination drawn with combination_draw. */
double outcome_drawn_fraction(uint64_t seed, attn_dtype dtype, int flags, attn_op op, int threads);
void outcome_drawn_bits(uint64_t seed, attn_dtype dtype, int flags, attn_op op, const int *thread_counts, int count);

#endif
