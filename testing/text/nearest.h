/* SPDX-License-Identifier: MIT
 *
 * nearest.h - "did you mean": the known words closest to one that is not known, by edit distance. */
#ifndef ATTN_TESTING_TEXT_NEAREST_H
#define ATTN_TESTING_TEXT_NEAREST_H

#include <stddef.h>

/* How many letters to insert, delete, replace or swap with their neighbour to make b of a (capital letters count as small ones);
 * words longer than 63 letters are cut to that. */
int edit_distance(const char *a, const char *b);

/* Collects candidates one by one and keeps the nearest. */
enum { NEAREST_COUNT = 3 };
typedef struct nearest {
    const char *word;
    const char *found[NEAREST_COUNT]; /* nearest first; NULL where there is none */
    int distance[NEAREST_COUNT];
} nearest;

void nearest_init(nearest *n, const char *word);
/* `candidate` is borrowed until nearest_print. */
void nearest_offer(nearest *n, const char *candidate);
/* Writes " (nearest: PREFIXa, PREFIXb)" into text; "" if nothing was offered.  Keeps those at the smallest distance and at most one
 * more edit. */
void nearest_print(const nearest *n, const char *prefix, char *text, size_t size);

#endif
