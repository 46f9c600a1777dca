/* SPDX-License-Identifier: MIT
 * convolution.c - how convolutions are divided into tasks. */
#include "convolution.h"

#include "../../base/checked.h"
#include "../../base/inference.h"
#include "../../base/names.h"
#include "../../threads/threads.h"

enum { MARGIN = CONVOLUTION_TOKENS + 2 * CONVOLUTION_BEFORE, WIDEST = CONVOLUTION_BEFORE + 1 };

void attn_convolution_walk_init(attn_convolution_walk *w, int threads)
{
    const attn_convolution_resolved *p = &w->problem;
    const int64_t row = CONVOLUTION_CHANNELS * (int64_t)attn_dtype_bytes(w->compute);
    const double work = (double)p->batch * (double)p->len * (double)p->channels * p->width;
    w->ld = CONVOLUTION_CHANNELS;
    w->tasks = attn_ceil_div(p->channels, CONVOLUTION_CHANNELS);
    w->workers = work < 1e5 ? 1 : (int)attn_clamp(w->tasks, 1, threads);
    w->weights = 0;
    w->bias = w->weights + WIDEST * row;
    w->X = w->bias + row;
    w->Y = w->X + MARGIN * row;
    w->dX = w->Y + (CONVOLUTION_TOKENS + CONVOLUTION_BEFORE) * row;
    w->dweights = w->dX + CONVOLUTION_TOKENS * row;
    w->dbias = w->dweights + WIDEST * row;
    w->raw = w->dbias + row;
    w->bytes = w->raw + CONVOLUTION_BEFORE * row;
}

typedef struct job {
    const attn_convolution_walk *walk;
    const attn_convolution_args *args;
    char *workspace;
} job;

static void run(void *context, int64_t worker, int64_t task)
{
    const job *j = context;
    const attn_convolution_walk *w = j->walk;
    const attn_convolution_resolved *p = &w->problem;
    attn_convolution_block block = {w, j->args, j->workspace + worker * w->bytes, task * CONVOLUTION_CHANNELS, 0};
    block.channels = attn_min(CONVOLUTION_CHANNELS, p->channels - block.channel);
    void *bias = attn_convolution_memory(&block, w->bias, 0);
    attn_convolution_load(&block, j->args->weight, &p->at.weight, 0, 0, p->width, attn_convolution_memory(&block, w->weights, 0));
    if (p->has.bias) attn_convolution_load(&block, j->args->bias, &p->at.bias, 0, 0, 1, bias);
    else attn_convolution_clear(&block, 1, bias);
    if (p->op == ATTN_BACKWARD) attn_convolution_clear(&block, WIDEST + 1, attn_convolution_memory(&block, w->dweights, 0));
    for (int64_t b = 0; b < p->batch; b++) {
        const attn_convolution_sequence s = attn_convolution_sequence_at(&block, b);
        if (ATTN_TRAINS && p->op == ATTN_BACKWARD) attn_convolution_backward(&block, &s);
        else attn_convolution_forward(&block, &s);
    }
    if (p->op != ATTN_BACKWARD) return;
    attn_convolution_store(&block, j->args->grad_weight, &p->at.grad_weight, 0, 0, p->width,
                           attn_convolution_memory(&block, w->dweights, 0));
    if (p->has.grad_bias)
        attn_convolution_store(&block, j->args->grad_bias, &p->at.grad_bias, 0, 0, 1, attn_convolution_memory(&block, w->dbias, 0));
}

void attn_run_convolution(const attn_convolution_walk *walk, const attn_convolution_args *args, void *workspace)
{
    job j = {walk, args, workspace};
    attn_threads_run(walk->parallel_for, walk->parallel_context, walk->workers, walk->tasks, run, &j);
}
