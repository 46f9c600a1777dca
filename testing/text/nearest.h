/* SPDX-License-Identifier: MIT
 *
 * nearest.h - "did you mean": the known words closest to an unknown one, by edit distance. */
#ifndef ATTN_TESTING_TEXT_NEAREST_H
#define ATTN_TESTING_TEXT_NEAREST_H

#include <stddef.h>

/* The number of letters to insert, delete, replace or swap with a neighbour to turn a into b, ignoring case and all after 63. */
int edit_distance(const char *a, const char *b);

/* Collects candidates one by one and keeps the nearest. */
enum { NEAREST_COUNT = 3 };
typedef struct nearest {
    const char *word;
    const char *found[NEAREST_COUNT]; /* nearest first; NULL: none */
    int distance[NEAREST_COUNT];
} nearest;

void nearest_init(nearest *n, const char *word);
/* `candidate` is borrowed until nearest_print. */
void nearest_offer(nearest *n, const char *candidate);
/* Writes " (nearest: PREFIXa, PREFIXb)" into text, with candidates at most one edit beyond the smallest distance; "" if none. */
void nearest_print(const nearest *n, const char *prefix, char *text, size_t size);

#endif
