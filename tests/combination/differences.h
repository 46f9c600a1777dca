/* SPDX-License-Identifier: MIT
 * differences.h - backward against central differences of the library's own forward, along a random direction in all tensors that
 * have a gradient, or in one of them. */
#ifndef ATTN_TESTS_COMBINATION_DIFFERENCES_H
#define ATTN_TESTS_COMBINATION_DIFFERENCES_H

#include "combination.h"

enum { DIFFERENCES_ALL = -1 };

/* The error of backward as a fraction of what rounding explains; negative if tensor number `only` is missing, has no gradient or is
 * not f64, so that a step would be rounded away.  c is f64 and FINITE; its tensors are changed and restored. */
double differences_off_by(combination *c, uint64_t seed, int only);

#endif
