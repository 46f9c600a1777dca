/* SPDX-License-Identifier: MIT
 *
 * candidate.h - one problem, planned, with its data and a workspace, ready to be timed repeatedly.
 */
#ifndef ATTN_CLI_BENCH_CANDIDATE_H
#define ATTN_CLI_BENCH_CANDIDATE_H

#include "cli/base/options.h"
#include "cli/measure/statistics.h"
#include "data.h"
#include "operand.h"

typedef struct candidate candidate;

/* What is timed: attention by a plan, decoding over a cache, linear attention, attention over a matrix, a layer. */
typedef struct candidate_kind {
    attn_status (*check)(const operand *o, attn_error *error); /* before anything is created; NULL: nothing */
    /* Draws the data.  Fills in op and shape of `problem`, `data.bytes`, `data.tokens`, `flops`, `moved` if it is not data.bytes,
     * and `plan_says` as far as it is known before there is a plan. */
    attn_status (*create)(candidate *c, const operand *o, const attn_options *options, attn_error *error);
    /* Plans, with an allocator that counts; NULL: nothing is planned beforehand. */
    attn_status (*plan)(candidate *c, const operand *o, const attn_options *options, attn_error *error);
    attn_status (*execute)(candidate *c, attn_error *error); /* one call */
    void (*destroy)(candidate *c);                           /* also after a create that failed */
} candidate_kind;

/* ---- the kinds, each in its file ---- */
extern const candidate_kind attention_kind, decode_kind, linear_kind, matrix_kind;
#if ATTN_CLI_LAYERS
extern const candidate_kind layer_kind;
#endif

struct candidate {
    const char *name; /* of the registry; NULL: a string */
    char text[512];   /* the problem string, in its shortest form */
    const candidate_kind *kind;
    void *state; /* of the kind */
    attn_problem problem;
    data data;
    attn_plan *plan;
    attn_plan_description plan_says;
    void *workspace, *schedule; /* schedule: of the lengths of the data, NULL: none */
    size_t schedule_bytes;
    double flops;
    double moved; /* bytes that a call reads and writes, each once; 0: data.bytes */

    int64_t calls;  /* in one sample */
    int warm;       /* 1: as many untimed calls precede each sample */
    series seconds; /* of one call, a mean over the calls of each sample */
    series
        stream; /* bytes per second of plain reads of the tensors, one before each sample, if memory traffic matters; else empty */
    double spent; /* seconds in all samples */

    size_t plan_bytes;
    size_t call_bytes;   /* what a call allocates itself, at most at one time */
    int64_t extra_bytes; /* memory that the first call took besides the tensors, as the operating system counts it; -1: unknown */
    int64_t peak_bytes;  /* of the whole process, tensors and program included; -1: unknown */
};

/* How samples are taken. */
typedef struct sampling {
    int single;     /* 1: a sample is one call */
    int64_t warmup; /* untimed calls before all others; -1: one, or as many as it takes to find how long a call takes */
} sampling;

/* What candidate_create would reject, without memory for it: decoding, a matrix, a layer. */
attn_status candidate_check(const operand *o, attn_error *error);

/* Draws the data, plans, runs once to measure memory, and finds how many calls make a sample. */
attn_status candidate_create(candidate *c, const operand *o, const common_settings *settings, const sampling *how,
                             attn_error *error);
void candidate_destroy(candidate *c);

/* Takes one sample. */
void candidate_sample(candidate *c);

#endif
