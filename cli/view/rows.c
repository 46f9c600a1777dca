/* SPDX-License-Identifier: MIT
 * rows.c - rows of weights that have NaN or infinities, numbers below 0, or a wrong sum. */
#include "rows.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static const double nearly = 0.01; /* weights in bf16 sum to 1 within 2^-8, and of f16 the smallest are lost */

static row_kind kind_of(const float *row, int64_t keys, int normalised)
{
    double sum = 0;
    int negative = 0;
    for (int64_t k = 0; k < keys; k++) {
        sum += (double)row[k]; /* infinite or NaN if one of them is, since a sum of floats does not overflow */
        negative |= row[k] < 0;
    }
    if (!isfinite(sum)) return ROW_NOT_FINITE;
    if (!normalised) return ROW_SOUND;
    return negative ? ROW_NEGATIVE : sum != 0 && fabs(sum - 1) > nearly ? ROW_SUM : ROW_SOUND;
}

void view_doubts_add(view_doubts *doubts, const float *row, int64_t keys)
{
    doubts->rows++;
    doubts->count[kind_of(row, keys, doubts->normalised)]++;
}

void view_doubts_print(const view_doubts *doubts, char text[DOUBTS_TEXT])
{
    static const char *const one[] = {"", "has numbers that are not finite", "has numbers below 0", "sums neither to 1 nor to 0"},
                             *const more[] = {"", "have numbers that are not finite", "have numbers below 0",
                                              "sum neither to 1 nor to 0"};
    size_t at = 0;
    text[0] = '\0';
    for (int kind = ROW_NOT_FINITE; kind < ROW_KINDS; kind++) {
        const int64_t count = doubts->count[kind];
        char of[40] = "";
        if (!count) continue;
        if (!at) snprintf(of, sizeof of, " of %" PRId64 " rows", doubts->rows);
        snprintf(text + at, DOUBTS_TEXT - at, "%s%" PRId64 "%s %s", at ? ", " : "; ", count, of, (count == 1 ? one : more)[kind]);
        at = strlen(text);
    }
}
