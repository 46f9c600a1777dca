/* SPDX-License-Identifier: MIT
 * pattern.c - masks by name, from text: the words of `attn mask` and of sparse=. */
#include "pattern.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "testing/text/failure.h"
#include "testing/text/nearest.h"

typedef struct row {
    pattern_word word;
    attn_pattern_kind kind;
    int least, most; /* how many numbers */
} row;

/* clang-format off */
static const row rows[] = {
    {{"causal", "", "no later keys; the first query is at the first key"}, ATTN_PATTERN_CAUSAL, 0, 0},
    {{"bottom-right", "", "causal; the last query is at the last key"}, ATTN_PATTERN_CAUSAL_BOTTOM_RIGHT, 0, 0},
    {{"window", "LEFT/RIGHT", "keys from LEFT before the query to RIGHT after it; -1: no bound"}, ATTN_PATTERN_WINDOW, 2, 2},
    {{"sliding", "KEYS", "causal, KEYS keys including the query's own (Mistral)"}, ATTN_PATTERN_SLIDING_WINDOW, 1, 1},
    {{"radius", "R", "keys at a distance of at most R"}, ATTN_PATTERN_RADIUS, 1, 1},
    {{"local", "WIDTH", "keys at a distance of at most WIDTH/2 (Longformer's window)"}, ATTN_PATTERN_LOCAL, 1, 1},
    {{"diagonal", "SIZE", "keys of the same block of SIZE (chunks)"}, ATTN_PATTERN_BLOCK_DIAGONAL, 1, 1},
    {{"strided", "S", "keys at a multiple of S from the query"}, ATTN_PATTERN_STRIDED, 1, 1},
    {{"columns", "S", "keys 0, S, 2S, ... for all queries"}, ATTN_PATTERN_COLUMNS, 1, 1},
    {{"dilated", "R/D", "R keys on either side, D apart"}, ATTN_PATTERN_DILATED, 2, 2},
    {{"fixed", "S/C", "the same block of S, and the last C keys of each (Sparse Transformers)"}, ATTN_PATTERN_FIXED, 2, 2},
    {{"longformer", "WIDTH/G", "local, and G global tokens"}, ATTN_PATTERN_GLOBAL_LOCAL, 2, 2},
    {{"bigbird", "B/W/G/R", "blocks of B: a window of W, G global, R random ones (--seed)"}, ATTN_PATTERN_BIGBIRD, 4, 4},
    {{"prefix", "P", "causal, but all see the first P keys"}, ATTN_PATTERN_PREFIX, 1, 1},
    {{"lengths", "Q/K", "Q queries and K keys; the others are padding"}, ATTN_PATTERN_LENGTHS, 2, 2},
    {{"map", "Q/K", "where --map is 1, in blocks of Q queries and K keys"}, ATTN_PATTERN_BLOCK_MAP, 2, 2},
    {{"documents", "N/N/...", "documents of these lengths, which do not see each other"}, ATTN_PATTERN_DOCUMENTS, 1, PATTERN_DOCUMENTS},
};
/* clang-format on */
enum { ROWS = sizeof rows / sizeof *rows };

const pattern_word *pattern_word_at(int index) { return index >= 0 && index < ROWS ? &rows[index].word : NULL; }

static attn_status unknown(const char *name, attn_error *error)
{
    char hint[160];
    nearest near;
    nearest_init(&near, name);
    for (int r = 0; r < ROWS; r++) nearest_offer(&near, rows[r].word.name);
    nearest_print(&near, "", hint, sizeof hint);
    return failure(error, ATTN_ERR_ARGUMENT, "unknown mask '%.40s'%s", name, hint);
}

attn_status pattern_parse(const char *text, uint64_t seed, named_pattern *out, attn_error *error)
{
    char name[41];
    const row *found = NULL;
    int count = 0;
    (void)snprintf(name, sizeof name, "%.*s", (int)strcspn(text, "/="), text);
    for (int r = 0; r < ROWS; r++)
        if (strcmp(rows[r].word.name, name) == 0) found = &rows[r];
    if (!found) return unknown(name, error);

    for (const char *at = text + strlen(name); *at;) {
        char *end;
        errno = 0;
        long long number = strtoll(at + 1, &end, 10);
        if (end == at + 1 || errno || (*end && !strchr("/,", *end)) || !strchr("-0123456789", at[1]))
            return failure(error, ATTN_ERR_ARGUMENT, "%s: '%.40s' is not an integer", name, at + 1);
        if (count == found->most)
            return failure(error, ATTN_ERR_ARGUMENT, "%s: too many numbers (at most %d); expected %s%s%s", name, found->most, name,
                           found->word.sizes[0] ? "/" : "", found->word.sizes);
        out->lengths[count++] = number;
        at = end;
    }
    if (count < found->least)
        return failure(error, ATTN_ERR_ARGUMENT, "%s: too few numbers; expected %s/%s", name, name, found->word.sizes);
    memset(&out->pattern, 0, sizeof out->pattern);
    out->pattern.kind = found->kind;
    out->pattern.seed = seed;
    if (found->kind == ATTN_PATTERN_DOCUMENTS) {
        out->pattern.lengths_q = out->lengths;
        out->pattern.count = count;
    } else {
        memcpy(out->pattern.size, out->lengths, (size_t)count * sizeof *out->lengths);
    }
    return ATTN_OK;
}
