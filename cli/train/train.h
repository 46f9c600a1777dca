/* SPDX-License-Identifier: MIT
 *
 * train.h - `attn train`: what all tasks share, and what a task provides. */
#ifndef ATTN_CLI_TRAIN_TRAIN_H
#define ATTN_CLI_TRAIN_TRAIN_H

#include <cjson/cJSON.h>
#include <stdint.h>

#include "attn/io.h"
#include "cli/base/options.h"
#include "examples/learn/learn.h"
#include "examples/seq2seq_additive/decoder.h"
#include "examples/train_copy/model.h"

enum { TRAIN_BATCH = 64 };

typedef struct trainee trainee;

typedef struct train_task {
    const char *name;
    const char *help;
    int64_t steps;                                       /* that are planned: the rate decays over them */
    double rate;                                         /* the highest */
    int token;                                           /* of the tasks of tasks.h: that begins a sequence */
    int reads;                                           /* 1: it learns from a text */
    attn_status (*begin)(trainee *t, attn_error *error); /* makes the model */
    attn_status (*step)(trainee *t, double rate, double *loss, attn_error *error); /* draws numbers and learns from them */
    attn_status (*test)(trainee *t, attn_error *error);                            /* fills held_out and the weights */
} train_task;

extern const train_task train_copy, train_reverse, train_seq2seq, train_text;

/* What the model does with what it has not learned from. */
typedef struct train_test {
    int64_t tested, right; /* sequences, or characters of a text */
    double loss;           /* of a text: nats a character */
    char *sample;          /* of a text: what the model writes */
} train_test;

struct trainee {
    const train_task *task;
    const common_settings *common;
    attn_options options;
    uint64_t seed, random; /* random: the state of the generator */
    const char *path;      /* of the text */
    uint64_t digest;       /* of the text */
    int *text;             /* its characters as tokens */
    int64_t text_count;
    char (*characters)[5]; /* of each token, in UTF-8 */
    int64_t kinds;         /* of characters */

    model *model; /* one of these two */
    decoder *decoder;
    learner *learner;
    double *losses; /* of all steps */
    int64_t steps;  /* to be done in all */

    train_test held_out;
    int rank; /* of the weights */
    int64_t shape[4];
    float *weights; /* of what is held out */
    cJSON *labels;  /* of its tokens, or NULL */
};

/* ---- letters.c ---- */

/* The attention weights of all blocks and heads of the model for one sequence, into the trainee. */
attn_status train_look(trainee *t, const int *tokens, int64_t blocks, int64_t heads, int64_t length, attn_error *error);

/* ---- state.c ---- */

/* The whole state as a file: parameters by name, moments, losses, weights, labels, and the state of the generator. */
attn_status train_save(const trainee *t, const char *path, attn_error *error);
/* An archive with that; *out must be destroyed. */
attn_status train_compose(const trainee *t, attn_archive **out, attn_error *error);
/* From such a file, which the model must fit; `steps` of it are done.  train_peek reads only the seed and the steps. */
attn_status train_peek(trainee *t, const attn_archive *file, int64_t *steps, attn_error *error);
attn_status train_resume(trainee *t, const attn_archive *file, int64_t steps, attn_error *error);

#endif
