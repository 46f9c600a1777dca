/* SPDX-License-Identifier: MIT
 * differences.h - backward against central differences of the library's own forward, along a random direction in all tensors that
 * have a gradient at once, or in one of them. */
#ifndef ATTN_TESTS_COMBINATION_DIFFERENCES_H
#define ATTN_TESTS_COMBINATION_DIFFERENCES_H

#include "combination.h"

enum { DIFFERENCES_ALL = -1 };

/* How far backward is off, as a fraction of what rounding explains; negative where the tensor number `only` is not there, has no
 * gradient or is not of f64, in which a step would be rounded away.  c is of f64 and FINITE; its tensors are moved and put back. */
double differences_off_by(combination *c, uint64_t seed, int only);

#endif
