/* SPDX-License-Identifier: MIT
 *
 * rows.h - are these weights?  What the page says about rows that no softmax gives. */
#ifndef ATTN_CLI_VIEW_ROWS_H
#define ATTN_CLI_VIEW_ROWS_H

#include <stddef.h>
#include <stdint.h>

enum { ROWS_TEXT = 200 };

/* "; 3 of 50 rows have numbers that are not finite, 1 has numbers below 0, 2 sum neither to 1 nor to 0", of weights [rows][keys];
 * "" if all is well.  normalised: rows sum to 1, but for those that see no key; else only NaN and infinities are counted. */
void view_rows_print(const float *weights, int64_t rows, int64_t keys, int normalised, char text[ROWS_TEXT]);

#endif
