/* SPDX-License-Identifier: MIT
 * pattern.c - masks by name, pair by pair, as their papers define them. */
#include "attn_ref.h"

#include <stdlib.h>

static int64_t floor_div(int64_t x, int64_t y) { return x / y - (x % y < 0); }
static int64_t rest(int64_t x, int64_t y) { return x - y * floor_div(x, y); }

/* 1 if block row n of BigBird sees block k of `count`: by its window, by a global block, or because n draws it. */
static int draws(const ref_pattern *r, int64_t n, int64_t k, int64_t count)
{
    const int64_t window = r->size[1], global = r->size[2], random = r->size[3];
    unsigned char *seen = calloc((size_t)count, 1);
    int64_t left = 0;
    if (!seen) abort();
    for (int64_t c = 0; c < count; c++) {
        seen[c] = 2 * llabs(n - c) <= window || c < global || n < global;
        left += !seen[c];
    }
    for (int64_t t = 0; t < random && left > 0; t++, left--) {
        uint32_t word[4] = {0, (uint32_t)n, (uint32_t)t, 0};
        ref_philox(r->seed, word);
        int64_t number = (int64_t)(((uint64_t)word[0] * (uint64_t)left) >> 32);
        for (int64_t c = 0; c < count; c++)
            if (!seen[c] && number-- == 0) {
                seen[c] = 1;
                break;
            }
    }
    const int sees = seen[k];
    free(seen);
    return sees;
}

/* The document of a token: how many end at or before it; -1 after the last. */
static int64_t document_of(const ref_pattern *r, int64_t token)
{
    int64_t end = 0;
    for (int64_t d = 0; d < r->count; d++)
        if (token < (end += r->lengths[d])) return d;
    return -1;
}

int ref_pattern_shows(const ref_pattern *r, int64_t keys, int64_t i, int64_t j, int64_t position)
{
    const int64_t a = r->size[0], b = r->size[1], before = position - j; /* how far before the query the key is */
    switch (r->kind) {
    case REF_WINDOW:
        return (a < 0 || before <= a) && (b < 0 || -before <= b);
    case REF_SLIDING:
        return before >= 0 && before < a;
    case REF_RADIUS:
        return before <= a && -before <= a;
    case REF_LOCAL:
        return 2 * llabs(before) <= a;
    case REF_DIAGONAL:
        return floor_div(position, a) == floor_div(j, a);
    case REF_STRIDED:
        return rest(before, a) == 0;
    case REF_COLUMNS:
        return rest(j, a) == 0;
    case REF_DILATED:
        for (int64_t m = -a; m <= a; m++)
            if (before == m * b) return 1;
        return 0;
    case REF_FIXED:
        return floor_div(position, a) == floor_div(j, a) || rest(j, a) >= a - b;
    case REF_LONGFORMER:
        return 2 * llabs(before) <= a || j < b || (position >= 0 && position < b);
    case REF_BIGBIRD:
        return draws(r, i / a, j / a, (keys + a - 1) / a);
    case REF_PREFIX:
        return before >= 0 || j < a;
    case REF_LENGTHS:
        return i < a && j < b;
    case REF_DOCUMENTS:
        return document_of(r, i) >= 0 && document_of(r, i) == document_of(r, j);
    }
    return 0;
}
