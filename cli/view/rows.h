/* SPDX-License-Identifier: MIT
 *
 * rows.h - are these weights?  What the page says about rows that no softmax gives. */
#ifndef ATTN_CLI_VIEW_ROWS_H
#define ATTN_CLI_VIEW_ROWS_H

#include <stddef.h>
#include <stdint.h>

typedef enum row_kind { ROW_SOUND, ROW_NOT_FINITE, ROW_NEGATIVE, ROW_SUM, ROW_KINDS } row_kind;

typedef struct view_doubts {
    int normalised; /* rows sum to 1, but for those that see no key; else only NaN and infinities are counted */
    int64_t rows, count[ROW_KINDS];
} view_doubts;

void view_doubts_add(view_doubts *doubts, const float *row, int64_t keys);

enum { DOUBTS_TEXT = 200 };

/* "; 3 of 50 rows have numbers that are not finite, 1 has numbers below 0, 2 sum neither to 1 nor to 0"; "" if all is well. */
void view_doubts_print(const view_doubts *doubts, char text[DOUBTS_TEXT]);

#endif
