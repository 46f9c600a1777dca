/* SPDX-License-Identifier: MIT
 * pattern.h - masks by name as text: "longformer/256/16", "window/5/0", "documents/3/2/5". */
#ifndef ATTN_TESTING_PROBLEM_PATTERN_H
#define ATTN_TESTING_PROBLEM_PATTERN_H

#include "attn/mask.h"

enum { PATTERN_DOCUMENTS = 64 };

/* A pattern with the numbers that it points to; not to be copied. */
typedef struct named_pattern {
    attn_pattern pattern;
    int64_t lengths[PATTERN_DOCUMENTS];
} named_pattern;

/* One row of the table of names, for --help; NULL past the last. */
typedef struct pattern_word {
    const char *name;
    const char *sizes; /* "WIDTH/GLOBAL"; "" for none */
    const char *help;
} pattern_word;
const pattern_word *pattern_word_at(int index);

/* ATTN_ERR_ARGUMENT: an unknown name (the message lists the nearest known ones), or too few, too many or invalid numbers. */
attn_status pattern_parse(const char *text, uint64_t seed, named_pattern *pattern, attn_error *error);

#endif
