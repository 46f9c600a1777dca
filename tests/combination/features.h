/* SPDX-License-Identifier: MIT
 * features.h - combinations that use some bits of features.def and no others. */
#ifndef ATTN_TESTS_COMBINATION_FEATURES_H
#define ATTN_TESTS_COMBINATION_FEATURES_H

#include "base/features.h"

#include "combination.h"

/* A way to switch a bit on. */
typedef struct feature_way {
    int bit;                 /* ATTN_FEATURE_NUMBER_ */
    attn_feature_set brings; /* what cannot be without other bits */
    const char *words;       /* of problem strings; steps of combinations; >tensors that are wanted; and those in features.c */
    const char *names;       /* what an error calls it, beside the sentence of its bit */
} feature_way;

/* "CAUSAL". */
const char *feature_name(int bit);
int feature_ways(int bit);
const feature_way *feature_at(int bit, int n);

/* Sizes, of a problem string: with as many query heads as key heads, and with more. */
typedef struct feature_sizes {
    const char *plain, *grouped;
} feature_sizes;

/* A combination of these ways alone.  Returns 0 where no problem has all of them, with the reason in the error. */
int feature_combination(combination *c, const feature_sizes *sizes, attn_dtype dtype, const feature_way *const *ways, int count,
                        uint64_t seed, attn_error *error);

#endif
