/* SPDX-License-Identifier: MIT
 *
 * scaling.h - what `attn-mpi bench` measures: a problem on 1, 2, 4, ... ranks, and what is printed of it. */
#ifndef ATTN_CLI_MPI_SCALING_H
#define ATTN_CLI_MPI_SCALING_H

#include "trial.h"

/* Strong: the same problem for any number of ranks.  Weak: each rank has as many tokens as the problem has. */
typedef enum scaling_kind { SCALING_STRONG, SCALING_WEAK } scaling_kind;

/* One problem on some of the ranks. */
typedef struct scaling_point {
    const char *problem; /* as it was given */
    char measured[512];  /* with more tokens, if scaling is weak */
    scaling_kind kind;
    attn_split split;
    int ranks;
    int64_t samples;
    double p10, median, p90; /* seconds of the slowest rank */
    double share;            /* of the time of all ranks, with messages; median */
    double flops;
    double speedup, efficiency, efficiency_best; /* against one rank: what it would have needed; the speed of a rank */
    int64_t messages, bytes;                     /* of all ranks in a call */
    int64_t cells, cells_most;
    attn_distributed_description about; /* of rank 0 */
    int64_t workspace_bytes;            /* of the rank that needs most */
} scaling_point;

/* Measures for `seconds`, on ranks 0 .. ranks-1 of r, while the others sleep.  Collective over r.  Only rank 0 has the figures. */
attn_status scaling_measure(scaling_point *p, const problem_spec *spec, const ranks *r, const split_settings *split,
                            const common_settings *common, double seconds, attn_error *error);

/* The spec of a point, and its name. */
problem_spec scaling_spec(scaling_point *p, const problem_spec *given);

/* speedup and efficiency, against the same problem on one rank. */
void scaling_compare(scaling_point *p, const scaling_point *one);

/* One JSON object on standard output; or tables. */
void scaling_print_json(const scaling_point *points, int count, const ranks *r, int threads, double seconds);
void scaling_print_text(const scaling_point *points, int count, const ranks *r, int threads);

#endif
