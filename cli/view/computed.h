/* SPDX-License-Identifier: MIT
 *
 * computed.h - queries and keys in place of weights: rounded to what the page holds, with the lse of each row. */
#ifndef ATTN_CLI_VIEW_COMPUTED_H
#define ATTN_CLI_VIEW_COMPUTED_H

#include "chosen.h"

/* 1 if the page can compute the weights of a file, which has been read and chosen from, and its queries and keys fit. */
int computed_can(const shown *s);

/* Fills in rule, data and summary of the sequences, doubts and difference. */
attn_status computed_take(shown *s, const input_settings *in, attn_error *error);

#endif
