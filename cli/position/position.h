/* SPDX-License-Identifier: MIT
 *
 * position.h - `attn position`: the functions of attn/position.h over the tensors of a file. */
#ifndef ATTN_CLI_POSITION_POSITION_H
#define ATTN_CLI_POSITION_POSITION_H

#include "attn/io.h"
#include "attn/position.h"
#include "cli/base/options.h"

/* Numbers are 0 if they are not given. */
typedef struct position_settings {
    const char *output;
    int64_t tokens, keys, channels, heads, offset;
    double base;
    attn_dtype dtype;
    attn_rope_pairs pairs;
    int pairs_given, backward;
    attn_rope_scaling scaling; /* struct_size 0: not given */
    problem_spec spec;         /* t5 and clipped */
    common_settings common;
} position_settings;

typedef struct position_work {
    const position_settings *settings;
    attn_archive *file, *out; /* file: NULL if the kind reads none */
} position_work;

typedef attn_status position_run(position_work *w, attn_error *error);

typedef struct position_kind {
    const char *name;
    const char *help;
    const char *reads; /* tensors of the file; NULL: none */
    const char *needs; /* flags, as in options_has_word */
    const char *takes; /* other flags, "backward" among them if there are gradients */
    position_run *run;
} position_kind;

/* tables.c: made from sizes alone. */
position_run position_sinusoidal, position_slopes, position_frequencies, position_buckets;

/* transforms.c: of tensors. */
position_run position_rotate, position_add, position_resize, position_bias, position_gate;

/* ---- shared ---- */

/* The frequencies of --base and --scaling for pairs of `channels`; *magnitude may be other than 1. */
attn_status position_frequencies_of(const position_work *w, int64_t channels, double *frequencies, double *magnitude,
                                    attn_error *error);

/* The rule of --t5 or --clipped over --tokens queries and --keys keys. */
attn_status position_rule(const position_work *w, int64_t heads, attn_distance_bias *rule, attn_error *error);

/* The tensor `positions` of the file, dense integers of i64 or i32, [token] or, for more than one entry, [batch, token]; absent if
 * the file has none. */
attn_status position_list(const position_work *w, int64_t batch, int64_t tokens, attn_input *slot, attn_error *error);

#endif
