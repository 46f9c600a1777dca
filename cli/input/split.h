/* SPDX-License-Identifier: MIT
 *
 * split.h - the flags that divide a problem among ranks, and which rows a rank has. */
#ifndef ATTN_CLI_INPUT_SPLIT_H
#define ATTN_CLI_INPUT_SPLIT_H

#include "attn/distributed.h"
#include "share.h"

/* What predictions are about; zeros: not given. */
typedef struct machine_settings {
    double network; /* bytes a second */
    int has_latency;
    double latency; /* microseconds */
    double flops;   /* 10^12 a second */
} machine_settings;

typedef struct split_settings {
    int64_t part; /* 0: the library's default */
    int has_layout;
    attn_layout layout;
    attn_way way;
    int64_t ranks_heads; /* 0: the library's choice */
    int any_order;
    machine_settings machine;
    problem_spec *spec; /* of which --layout=bshd is an option too; NULL: it is not a flag here */
} split_settings;

/* --part --layout --way --ranks-heads --any-order; the target is a split_settings. */
extern const option_row split_options[];

/* The split of these flags for a problem; its machine is NULL. */
attn_split split_of(const split_settings *settings, const problem_spec *spec);

/* ATTN_ERR_ARGUMENT: --ranks-heads beside a way that it says nothing about. */
attn_status split_check(const split_settings *settings, attn_error *error);
const char *split_layout_name(attn_layout layout);
const char *split_way_name(attn_way way);

/* --network --latency --flops; the target is a machine_settings. */
extern const option_row machine_options[];

/* With the assumptions of the library for what was not given. */
attn_split_machine machine_of(const machine_settings *settings);
/* The name of one of these that was given; NULL: none was. */
const char *machine_given(const machine_settings *settings);

/* The rows of a rank. */
typedef struct split_rank {
    attn_split split;
    int rank, ranks;
    token_range *ranges[2];
} split_rank;

/* An input_choose; the context is a split_rank, which is given as zeros behind `ranks`.  Release with split_rank_free. */
attn_status split_choose(void *context, int64_t queries, int64_t keys, input_share *share, attn_error *error);
void split_rank_free(split_rank *of);

#endif
