/* SPDX-License-Identifier: MIT
 *
 * results.h - what the ranks compute: the rows of each in memory of its own, and all of it on rank 0, which writes the file. */
#ifndef ATTN_CLI_MPI_RESULTS_H
#define ATTN_CLI_MPI_RESULTS_H

#include "cli/input/share.h"
#include "cli/input/split.h"
#include "ranks.h"

/* A tensor of the output. */
typedef struct result {
    int is_shared; /* 1: each rank has some rows; 0: all have the same numbers */
    share_layout layout;
    size_t bytes;      /* of this rank */
    void *own, *whole; /* whole: of the archive; NULL on other ranks */
} result;

typedef struct results {
    result all[TENSORS];
    int count;
    void *lse; /* for a backward pass, if the output has none */
    /* The gradient of a bias that some batch entries share (shared_bias.h), and the result that has their sum. */
    void *expanded;
    const result *summed;
    attn_dtype summed_dtype;
} results;

/* Before planning: the types of tensors that the file has in another form. */
void results_prepare(const attention_input *input, attn_tensors *tensors);

/* Memory for what the operation writes and `tensors` does not have yet; on rank 0 also in the archive.  Release with results_free,
 * also after a failure. */
attn_status results_add(results *all, const attention_input *input, const attn_problem *problem, attn_tensors *tensors,
                        attn_archive *out, attn_error *error);

/* The same for one tensor of the file, which becomes the last of `all`; layout NULL: all ranks have all of it. */
attn_status results_take(results *all, const attention_input *input, const char *name, attn_dtype dtype, int rank,
                         const int64_t *shape, const share_layout *layout, attn_archive *out, attn_error *error);

/* After execution, before collecting: the sums of `expanded`. */
void results_sum(results *all, const attention_input *input);

/* Collective: rank 0 gets the rows of all ranks. */
attn_status results_collect(const results *all, const attention_input *input, const ranks *r, const attn_split *split,
                            attn_error *error);
void results_free(results *all);

#endif
