/* SPDX-License-Identifier: MIT
 * tasks.c - see tasks.h. */
#include "tasks.h"

#include "learn.h"

enum { N = TASK_LETTERS };

void task_draw(uint64_t *state, int task, int64_t batch, int *tokens, int *targets)
{
    for (int64_t b = 0; b < batch; b++, tokens += TASK_LENGTH, targets += TASK_LENGTH) {
        int word[2 * N];
        const int which = task ? task : learn_random(state) % 2 ? TASK_REVERSE : TASK_COPY;
        for (int i = 0; i < N; i++) word[i] = (int)(learn_random(state) % TASK_KINDS);
        for (int i = 0; i < N; i++) word[N + i] = which == TASK_COPY ? word[i] : word[N - 1 - i];
        tokens[0] = which;
        for (int i = 1; i < TASK_LENGTH; i++) tokens[i] = word[i - 1];
        for (int i = 0; i < TASK_LENGTH; i++) targets[i] = i < N ? -1 : word[i];
    }
}

void task_draw_pairs(uint64_t *state, int64_t batch, int *inputs, int *outputs)
{
    for (int64_t b = 0; b < batch; b++)
        for (int i = 0; i < N; i++) inputs[b * N + i] = outputs[b * N + N - 1 - i] = (int)(learn_random(state) % TASK_KINDS);
}
