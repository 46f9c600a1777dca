/* SPDX-License-Identifier: MIT
 *
 * weights.h - the weights of some queries, computed from q and k, with memory for these queries only; or those that the file has.
 */
#ifndef ATTN_CLI_COMPUTE_WEIGHTS_H
#define ATTN_CLI_COMPUTE_WEIGHTS_H

#include "cli/input/input.h"
#include "compute.h"
#include "slice.h"

typedef struct weight_reader {
    const attention_input *input;
    slicer slicer;
    int64_t rows;
    computation computation;
    double *wide;        /* if the compute type is f64 */
    void *scores;        /* with weights_begin_visible */
    int causal;          /* given weights: no head looks beyond its query's place */
    int64_t offset;      /* of these places */
    int64_t *given_keys; /* [batch] given weights: up to the last key that any query looks at */
} weight_reader;

/* `rows` queries at a time.  Release with weights_end, also after a failure. */
attn_status weights_begin(weight_reader *reader, const attention_input *input, int64_t rows, const common_settings *common,
                          attn_error *error);
/* The same for weights_visible.  The mask of given weights is not known and is inferred: queries see the keys up to their own place
 * if no head looks beyond it, else all; and none after the last that is looked at. */
attn_status weights_begin_visible(weight_reader *reader, const attention_input *input, int64_t rows, const common_settings *common,
                                  attn_error *error);
/* weights: [heads_q][rows][len_kv] of batch entry b for the queries first .. first+rows-1, as f32. */
attn_status weights_read(weight_reader *reader, int64_t b, int64_t first, float *weights, attn_error *error);
/* Of the rows that were read last: 1 for a key that the query sees, in the order of the weights. */
void weights_visible(const weight_reader *reader, int64_t b, int64_t first, uint8_t *visible);
void weights_end(weight_reader *reader);

/* 1 if the weights of every query that sees a key sum to 1: those of a softmax without a sink; given ones are added up. */
int weights_are_distributions(const attention_input *input);

#endif
