/* SPDX-License-Identifier: MIT
 *
 * draft.h - guesses the next tokens of a text from the text itself (prompt lookup, Saxena 2023).
 */
#ifndef DRAFT_H
#define DRAFT_H

#include <stdint.h>

/* Where the last tokens (three of them, else two, else one) occurred before, the `most` tokens that followed there; the latest
 * place counts.  Returns how many were written to `draft`, perhaps 0. */
int64_t draft_tokens(const int *tokens, int64_t count, int64_t most, int *draft);

#endif
