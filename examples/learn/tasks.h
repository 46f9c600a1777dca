/* SPDX-License-Identifier: MIT
 *
 * tasks.h - sequences of letters that a model learns to copy or to reverse. */
#ifndef TASKS_H
#define TASKS_H

#include <stdint.h>

enum {
    TASK_LETTERS = 10,             /* N: of a sequence */
    TASK_KINDS = 16,               /* of letters: tokens 0 .. 15 */
    TASK_COPY = TASK_KINDS,        /* the token that asks for a copy */
    TASK_REVERSE,                  /* and for the sequence backwards */
    TASK_VOCABULARY,               /* number of tokens */
    TASK_LENGTH = 2 * TASK_LETTERS /* of a sequence with its output */
};

/* batch sequences [task, x_1 .. x_N, y_1 .. y_N-1]; the target of each position from x_N on is the next token, -1 before.  task is
 * TASK_COPY, TASK_REVERSE, or 0 for one of the two at random. */
void task_draw(uint64_t *state, int task, int64_t batch, int *tokens, int *targets);

/* batch inputs of N letters, and each backwards as output. */
void task_draw_pairs(uint64_t *state, int64_t batch, int *inputs, int *outputs);

#endif
