/* SPDX-License-Identifier: MIT
 *
 * nearest.c - "did you mean", by Damerau's edit distance (1964) with adjacent swaps. */
#include "nearest.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { WORD_MAX = 63 };

static int min_int(int a, int b) { return a < b ? a : b; }

static char lower(char c) { return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c; }

int edit_distance(const char *a, const char *b)
{
    int len_a = (int)strnlen(a, WORD_MAX), len_b = (int)strnlen(b, WORD_MAX);
    int row[3][WORD_MAX + 1]; /* the rows i, i-1 and i-2 of the table, in turn */
    for (int j = 0; j <= len_b; j++) row[0][j] = j;
    for (int i = 1; i <= len_a; i++) {
        int *now = row[i % 3], *last = row[(i + 2) % 3], *before = row[(i + 1) % 3];
        now[0] = i;
        for (int j = 1; j <= len_b; j++) {
            int replace = last[j - 1] + (lower(a[i - 1]) != lower(b[j - 1]));
            now[j] = min_int(replace, min_int(last[j], now[j - 1]) + 1);
            int swap = i > 1 && j > 1 && lower(a[i - 1]) == lower(b[j - 2]) && lower(a[i - 2]) == lower(b[j - 1]);
            if (swap) now[j] = min_int(now[j], before[j - 2] + 1);
        }
    }
    return row[len_a % 3][len_b];
}

void nearest_init(nearest *n, const char *word) { *n = (nearest){.word = word}; }

void nearest_offer(nearest *n, const char *candidate)
{
    for (int k = 0; k < NEAREST_COUNT && n->found[k]; k++)
        if (strcmp(n->found[k], candidate) == 0) return;
    int distance = edit_distance(n->word, candidate);
    /* A candidate that starts with the unknown word (`soft`, `softcap`) is likely meant, however long the rest is. */
    if (strlen(n->word) > 1 && strncasecmp(n->word, candidate, strlen(n->word)) == 0) distance = 1;
    int at = NEAREST_COUNT;
    while (at > 0 && (!n->found[at - 1] || distance < n->distance[at - 1])) at--;
    for (int k = NEAREST_COUNT - 1; k > at; k--) {
        n->found[k] = n->found[k - 1];
        n->distance[k] = n->distance[k - 1];
    }
    if (at < NEAREST_COUNT) {
        n->found[at] = candidate;
        n->distance[at] = distance;
    }
}

void nearest_print(const nearest *n, const char *prefix, char *text, size_t size)
{
    size_t used = 0;
    if (size) text[0] = 0;
    for (int k = 0; k < NEAREST_COUNT && n->found[k] && n->distance[k] <= n->distance[0] + 1; k++) {
        int wrote = snprintf(text + used, size - used, "%s%s%.60s", k ? ", " : " (nearest: ", prefix, n->found[k]);
        if (wrote < 0 || (size_t)wrote + 1 >= size - used) break; /* no space for the parenthesis */
        used += (size_t)wrote;
    }
    if (used) snprintf(text + used, size - used, ")");
}
