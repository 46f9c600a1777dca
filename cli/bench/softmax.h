/* SPDX-License-Identifier: MIT
 *
 * softmax.h - the softmax of rows in memory, as the way over a matrix of scores needs it. */
#ifndef ATTN_CLI_BENCH_SOFTMAX_H
#define ATTN_CLI_BENCH_SOFTMAX_H

#include <stdint.h>

#include "attn/attn.h"

/* row[j] = exp(scale (row[j] - max)) / sum for j < seen, and 0 from there to `length`; all 0 if seen is 0.  An exponential is
 * within 2^-22 of its value, relatively, and 0 below 2^-126.  scale is above 0; in vectors of this instruction set. */
void softmax_row(attn_isa isa, int64_t seen, int64_t length, float scale, float *row);

#endif
