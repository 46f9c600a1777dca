/* SPDX-License-Identifier: MIT
 * ragged_case.h - a ragged batch of linear attention with random tensors, as one call and as a call for each sequence, in the same
 * memory. */
#ifndef ATTN_TESTS_RAGGED_CASE_H
#define ATTN_TESTS_RAGGED_CASE_H

#include "test.h"

#include "attn/linear.h"

enum { RAGGED_TENSORS = 40, RAGGED_SEQUENCES = 8 };

typedef struct ragged_case {
    attn_linear_problem problem; /* what to compute: all but shape.batch and the lengths, which follow from `starts` */
    int decays, states;          /* 1: there is a decay, of problem.decay_kind; states are given, and asked for */
    int slots;                   /* 1: of a pool, read and written in rows of their own; 2: in the same rows */
    attn_dtype dtype, stored;    /* of q, and of the states; 0: the default */
    int64_t count, starts[RAGGED_SEQUENCES + 1];
    attn_tensor_description about[RAGGED_TENSORS];
    attn_tensor_plan plan[RAGGED_TENSORS];
    int tensors;
    unsigned char *data[RAGGED_TENSORS], *kept[RAGGED_TENSORS]; /* outputs: those of the whole batch */
    size_t bytes[RAGGED_TENSORS];
    attn_linear_tensors args;
} ragged_case;

/* Allocates the tensors of c->problem for sequences of these lengths and draws the inputs. */
void ragged_open(ragged_case *c, int64_t count, const int64_t *lengths, uint64_t seed);
void ragged_close(ragged_case *c);

/* The slot of tensor number t, or of a name. */
attn_output *ragged_slot(const ragged_case *c, attn_linear_tensors *tensors, int t);

/* Runs the batch and keeps its outputs. */
void ragged_run(ragged_case *c, int threads);
/* Runs any tensors of the case's problem. */
void ragged_execute(const attn_linear_problem *problem, const attn_linear_tensors *tensors, int threads);
/* Runs each sequence by itself, without cu_seqlens (packed: as a batch of one), without slots and with states of the compute type,
 * rounded afterwards; and, for snapshots, once more for each with fewer tokens.  Compares the bits of all outputs with those kept.
 */
void ragged_compare(ragged_case *c, int packed, const char *what);

/* The number of a tensor; row `row` of a tensor of states, and its bytes; entry i of a list of slots. */
int ragged_number(const ragged_case *c, const char *name);
unsigned char *ragged_row(const ragged_case *c, int t, int64_t row);
size_t ragged_row_bytes(const ragged_case *c, int t);
int64_t ragged_slot_of(const ragged_case *c, const char *list, int64_t i);

#endif
