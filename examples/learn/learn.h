/* SPDX-License-Identifier: MIT
 *
 * learn.h - what small models that learn share: named parameters with their gradients, Adam (Kingma and Ba 2015), matrix products,
 * the loss, random numbers.  The models are ../train_copy/model.h and ../seq2seq_additive/decoder.h; `attn train` trains both.
 */
#ifndef LEARN_H
#define LEARN_H

#include <stdint.h>

#include "attn/attn.h"

enum { LEARN_TENSORS = 64, LEARN_NAME = 32 };

/* One tensor of the parameters. */
typedef struct learn_tensor {
    char name[LEARN_NAME];
    int rank; /* 1 or 2 */
    int64_t shape[2];
    int64_t at; /* of its first number among all parameters */
} learn_tensor;

/* All parameters, and all that a further step depends on. */
typedef struct learner {
    learn_tensor tensors[LEARN_TENSORS];
    int tensor_count;
    int64_t count;                             /* of all numbers */
    int64_t steps;                             /* done */
    float *values, *grads, *moment1, *moment2; /* [count] */
    double decay1, decay2, epsilon;            /* of Adam */
    const attn_options *options;               /* of all products; borrowed, may be NULL */
    attn_status status;                        /* of the first product that failed, for lack of memory or of a kernel */
    attn_error error;
} learner;

/* Declares a tensor, of rank 1 if columns is 0; returns its place.  learn_begin allocates zeros for all of them, or returns 0. */
int64_t learn_tensor_add(learner *l, const char *name, int64_t rows, int64_t columns);
int learn_begin(learner *l);
void learn_end(learner *l);

/* A step of Adam along the gradients. */
void learn_step(learner *l, double rate);

/* The rate of a step (the first is 1) of so many that are planned: linear warm-up over the first tenth, then cosine decay to a
 * fiftieth of `top`, at which later steps stay.  So it does not depend on how many steps follow. */
double learn_rate(int64_t step, int64_t planned, double top);

/* C [rows][columns] = A B, or += with add.  A failure is kept in `status`. */
void learn_multiply(learner *l, int64_t rows, int64_t columns, int64_t inner, attn_input a, attn_input b, attn_output c, int add);

/*
 * The loss of rows of logits [rows][kinds]: the sum of -log p(target) over the rows with a target (>= 0; there are `wanted` in the
 * mean).  The logits become the gradient of its mean, 0 without a target; best[r] is the most likely.
 */
double learn_loss(float *logits, const int *targets, int64_t rows, int64_t kinds, int64_t wanted, int *best);
int learn_most_likely(const float *logits, int64_t kinds);

/* Random numbers: a 64-bit generator (Knuth's MMIX), from any state.  31 bits. */
uint64_t learn_random(uint64_t *state);
/* Uniform in [-reach, reach). */
void learn_draw(float *w, int64_t count, double reach, uint64_t *state);

/* count zeros, or NULL and *failed = 1. */
float *learn_floats(int64_t count, int *failed);

#endif
