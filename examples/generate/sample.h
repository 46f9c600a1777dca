/* SPDX-License-Identifier: MIT
 *
 * sample.h - which token comes next.
 */
#ifndef SAMPLE_H
#define SAMPLE_H

#include <stdint.h>

typedef struct sampling {
    double temperature; /* 0: the most likely token, the first of equals */
    int64_t top_k;      /* 0, or from this many most likely tokens alone */
    double top_p;       /* from the most likely tokens that together have this probability (Holtzman et al. 2020); 1: all */
    uint64_t seed;
} sampling;

/* The token at a position of its sequence: a function of these arguments alone, so that it does not matter in which order positions
 * and sequences are drawn.  -1 without memory. */
int sample_token(const sampling *s, const float *logits, int64_t words, int64_t position);

#endif
