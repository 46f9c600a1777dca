/* SPDX-License-Identifier: MIT
 *
 * formula.h - the formula of the weights of a problem in one line, such as "softmax(0.125 q kᵀ + bias), causal". */
#ifndef ATTN_CLI_VIEW_FORMULA_H
#define ATTN_CLI_VIEW_FORMULA_H

#include "cli/input/input.h"

enum { FORMULA_TEXT = 512 };

/* Writes the formula, cut off at `size` bytes with the final 0. */
void formula_print(const attention_input *input, char *text, size_t size);

#endif
