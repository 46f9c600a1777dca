/* SPDX-License-Identifier: MIT
 *
 * wanted.h - every output at once, with memory for it, in layouts that are drawn too. */
#ifndef ATTN_TESTS_OUTPUTS_WANTED_H
#define ATTN_TESTS_OUTPUTS_WANTED_H

#include "draw.h"

enum {
    WANT_O,
    WANT_LSE,
    WANT_WEIGHTS,
    WANT_SCORES,
    WANT_KEEP,
    WANT_ROW_MAX,
    WANT_ENTROPY,
    WANT_EFFECTIVE,
    WANT_COLUMNS,
    WANT_TOP_INDEX,
    WANT_TOP_WEIGHT,
    WANT_VIEW, /* what visit_rows showed, dense */
    WANTED
};

typedef struct memory_layout {
    attn_dtype dtype;
    int64_t stride[4];
} memory_layout;

typedef struct wanted_output {
    const char *name;
    memory_layout layout;
    int64_t shape[4];
    void *data;
    size_t bytes; /* behind them lies a guard */
} wanted_output;

typedef struct wanted {
    wanted_output outputs[WANTED];
    unsigned char *visits; /* of each row */
} wanted;

/* Asks for everything; dense: in dense layouts of the compute type. */
void wanted_init(wanted *w, drawn *d, int dense);
/* Fills the outputs with a pattern and runs; fails the test if it does not succeed, or writes past an output or the workspace. */
void wanted_run(wanted *w, drawn *d, attn_isa isa, int threads);
double wanted_at(const wanted *w, int which, int64_t b, int64_t h, int64_t t, int64_t c);
/* Fails where an output differs from dense numbers by more than tolerance * (1 + |number|). */
void wanted_compare(const wanted *w, int which, const double *expected, double tolerance, const char *text);
/* 1 if the CPU can run it. */
int can_run(attn_isa isa);

#endif
