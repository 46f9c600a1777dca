/* SPDX-License-Identifier: MIT
 *
 * difference.h - what was computed, against tensors of the same names that somebody else computed. */
#ifndef ATTN_CLI_INPUT_DIFFERENCE_H
#define ATTN_CLI_INPUT_DIFFERENCE_H

#include "attn/io.h"

/* Of one tensor: the largest |ours - theirs|, and where; NaN where one of the two is NaN and the other is not. */
typedef struct difference {
    const char *name;
    double largest;
    int64_t index[ATTN_MAX_RANK];
} difference;

/* Fills list, which has room for every tensor of `ours`, with those that `theirs` has too.  ATTN_ERR_ARGUMENT if there is none,
 * ATTN_ERR_SHAPE if one has another shape there. */
attn_status differences_find(const attn_archive *ours, const attn_archive *theirs, difference *list, int *count, attn_error *error);

#endif
