/* SPDX-License-Identifier: MIT
 *
 * requested.h - requesting every output at once, with memory for them, in random layouts. */
#ifndef ATTN_TESTS_OUTPUTS_REQUESTED_H
#define ATTN_TESTS_OUTPUTS_REQUESTED_H

#include "draw.h"

enum {
    OUT_O,
    OUT_LSE,
    OUT_WEIGHTS,
    OUT_SCORES,
    OUT_KEEP,
    OUT_ROW_MAX,
    OUT_ENTROPY,
    OUT_EFFECTIVE,
    OUT_COLUMNS,
    OUT_TOP_INDEX,
    OUT_TOP_WEIGHT,
    OUT_VIEW, /* the rows that visit_rows got, dense */
    OUTS
};

typedef struct memory_layout {
    attn_dtype dtype;
    int64_t stride[4];
} memory_layout;

typedef struct requested_output {
    const char *name;
    memory_layout layout;
    int64_t shape[4];
    void *data;
    size_t bytes; /* followed by a guard zone */
} requested_output;

typedef struct requested {
    requested_output outputs[OUTS];
    unsigned char *visits; /* number of visits of each row */
} requested;

/* Requests every output; dense: in dense layouts of the compute type. */
void requested_init(requested *w, drawn *d, int dense);
/* Fills the outputs with a pattern and runs; fails the test if it does not succeed, or writes past an output or the workspace. */
void requested_run(requested *w, drawn *d, attn_isa isa, int threads);
double requested_at(const requested *w, int which, int64_t b, int64_t h, int64_t t, int64_t c);
/* Fails if an output differs from dense numbers by more than tolerance * (1 + |number|). */
void requested_compare(const requested *w, int which, const double *expected, double tolerance, const char *text);
/* 1 if the CPU can run it. */
int can_run(attn_isa isa);

#endif
