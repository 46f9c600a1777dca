/* SPDX-License-Identifier: MIT
 *
 * features.h - the single answer to "which features does this problem use?", as a set of bits.  A walk gets a problem only if it
 * supports every bit, so a fast path cannot ignore an option that it does not know.
 */
#ifndef ATTN_BASE_FEATURES_H
#define ATTN_BASE_FEATURES_H

#include "problem.h"

enum {
#define FEATURE(name, used, sentence) ATTN_FEATURE_NUMBER_##name,
#include "features.def"
#undef FEATURE
    ATTN_FEATURES
};

typedef uint64_t attn_feature_set;
#define ATTN_USES(name) ((attn_feature_set)1 << ATTN_FEATURE_NUMBER_##name)

attn_feature_set attn_features_of(const attn_resolved *p);

/* The sentence of the first bit of `used` that is not in `supported`; NULL if there is none. */
const char *attn_feature_missing(attn_feature_set used, attn_feature_set supported);

#endif
