/* SPDX-License-Identifier: MIT
 *
 * difference.h - results compared with tensors of the same names from elsewhere. */
#ifndef ATTN_CLI_INPUT_DIFFERENCE_H
#define ATTN_CLI_INPUT_DIFFERENCE_H

#include "attn/io.h"

/* Of one tensor: the largest |archive - reference|, and where; NaN if exactly one of the two is NaN somewhere. */
typedef struct difference {
    const char *name;
    double largest;
    int64_t index[ATTN_MAX_RANK];
} difference;

/* Fills list, large enough for every tensor of `archive`, with those that `reference` has too.  ATTN_ERR_ARGUMENT if there is none,
 * ATTN_ERR_SHAPE if one has another shape there. */
attn_status differences_find(const attn_archive *archive, const attn_archive *reference, difference *list, int *count,
                             attn_error *error);

#endif
