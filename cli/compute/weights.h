/* SPDX-License-Identifier: MIT
 *
 * weights.h - the weights of some queries, computed from q and k: memory for these queries only. */
#ifndef ATTN_CLI_COMPUTE_WEIGHTS_H
#define ATTN_CLI_COMPUTE_WEIGHTS_H

#include "cli/input/input.h"
#include "compute.h"
#include "slice.h"

typedef struct weight_reader {
    slicer slicer;
    int64_t rows;
    computation computation;
    double *wide; /* if the compute type is f64 */
} weight_reader;

/* `rows` queries at a time.  Release with weights_end, also after a failure. */
attn_status weights_begin(weight_reader *reader, const attention_input *input, int64_t rows, const common_settings *common,
                          attn_error *error);
/* weights: [heads_q][rows][len_kv] of batch entry b for the queries first .. first+rows-1, as f32. */
attn_status weights_read(weight_reader *reader, int64_t b, int64_t first, float *weights, attn_error *error);
void weights_end(weight_reader *reader);

#endif
