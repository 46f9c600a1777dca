/* SPDX-License-Identifier: MIT
 * features.h - combinations that use exactly a given set of features of features.def. */
#ifndef ATTN_TESTS_COMBINATION_FEATURES_H
#define ATTN_TESTS_COMBINATION_FEATURES_H

#include "base/features.h"

#include "combination.h"

/* A way to use a feature. */
typedef struct feature_way {
    int bit;                 /* ATTN_FEATURE_NUMBER_ */
    attn_feature_set brings; /* bits that the words switch on besides `bit` */
    const char *words;       /* words of problem strings; steps of combinations; >OUTPUT; words of features.c */
    const char *names;       /* how an error may name it, besides the sentence in features.def */
} feature_way;

/* "CAUSAL". */
const char *feature_name(int bit);
int feature_ways(int bit);
const feature_way *feature_at(int bit, int n);

/* Sizes of a problem string: with as many query heads as key heads, and with more. */
typedef struct feature_sizes {
    const char *plain, *grouped;
} feature_sizes;

/* A combination of exactly these ways.  Returns 0, and the reason in `error`, if no problem can have all of them. */
int feature_combination(combination *c, const feature_sizes *sizes, attn_dtype dtype, const feature_way *const *ways, int count,
                        uint64_t seed, attn_error *error);

#endif
