/* SPDX-License-Identifier: MIT
 * features.c - the bit set of features.def. */
#include "features.h"

#include <stddef.h>

#include "names.h"

_Static_assert((int)ATTN_FEATURES <= 64, "one bit each");

attn_feature_set attn_features_of(const attn_resolved *p)
{
    attn_feature_set used = 0;
#define FEATURE(name, condition, sentence) used |= (attn_feature_set)((condition) != 0) << ATTN_FEATURE_NUMBER_##name;
#include "features.def"
#undef FEATURE
    return used;
}

static const char *const sentences[] = {
#define FEATURE(name, condition, sentence) sentence,
#include "features.def"
#undef FEATURE
};

const char *attn_feature_missing(attn_feature_set used, attn_feature_set supported)
{
    const attn_feature_set missing = used & ~supported;
    for (int n = 0; missing && n < ATTN_FEATURES; n++)
        if (missing & (attn_feature_set)1 << n) return sentences[n];
    return NULL;
}
