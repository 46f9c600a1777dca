/* SPDX-License-Identifier: MIT
 *
 * roles.c - sums over the rows of a head, and the same sums over uniform rows, which are the baseline. */
#include "roles.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "attn/analysis.h"
#include "cli/input/labels.h"
#include "testing/text/failure.h"

/* "most": more than half of the weight of the rows where such a key exists, our own bound; that of sinks is of its source. */
static const double most = 0.5;

const head_role_about head_role_table[HEAD_ROLES] = {
    [HEAD_PREVIOUS] = {"previous", "previous", "weight on the token before", "Voita et al. 2019", most},
    [HEAD_NEXT] = {"next", "next", "weight on the token after", "Voita et al. 2019", most},
    [HEAD_SELF] = {"self", "self", "weight on the token itself", "Clark et al. 2019", most},
    [HEAD_FIRST] = {"first", "first", "weight on the first token, of the tokens after it", "Clark et al. 2019", most},
    [HEAD_SEPARATOR] = {"separator", "separator", "weight on special tokens and punctuation", "Clark et al. 2019", most},
    [HEAD_DUPLICATE] = {"duplicate", "duplicate", "weight on earlier occurrences of the same token", "Wang et al. 2022", most},
    [HEAD_INDUCTION] = {"induction", "induction", "weight on the tokens that followed these", "Olsson et al. 2022", most},
    [HEAD_SINK] = {"sink", "sink", "largest mean weight on one key", "Gu et al. 2024", 0.3},
    [HEAD_ENTROPY] = {"entropy_share", "entropy", "entropy over the logarithm of the visible keys", "Clark et al. 2019", 0},
    [HEAD_POSITIONAL] = {"positional", "positional", "share of the variance that the distance explains", "own definition", most},
};

/* ---- texts ---- */

typedef struct placed_word {
    const char *word;
    int64_t place;
} placed_word;

static int by_word(const void *one, const void *two)
{
    const placed_word *a = one, *b = two;
    const int order = strcmp(a->word, b->word);
    return order ? order : (a->place > b->place) - (a->place < b->place);
}

void head_text_words(head_text *text, const char *const *words)
{
    placed_word *sorted = need_memory(text->keys, sizeof *sorted);
    int64_t count = 0;
    text->before = need_memory(text->keys, sizeof *text->before);
    text->special = need_memory(text->keys, 1);
    for (int64_t j = 0; j < text->keys; j++) {
        text->before[j] = -1;
        text->special[j] = (uint8_t)(words[j] && label_is_special(words[j]));
        if (words[j]) sorted[count++] = (placed_word){words[j], j};
    }
    if (count) qsort(sorted, (size_t)count, sizeof *sorted, by_word);
    for (int64_t k = 1; k < count; k++)
        if (strcmp(sorted[k].word, sorted[k - 1].word) == 0) text->before[sorted[k].place] = sorted[k - 1].place;
    free(sorted);
}

void head_text_end(head_text *text)
{
    free(text->before);
    free(text->special);
    text->before = NULL;
    text->special = NULL;
}

/* ---- sums ---- */

/* Of a kind of rows. */
typedef struct row_sums {
    double role[HEAD_ROLES];
    double *column;             /* [keys] */
    double *distance, *squares; /* [queries + keys] of the weights of pairs at a distance */
} row_sums;

enum { MEASURED, UNIFORM, KINDS };

struct head_sums {
    const head_text *text;
    row_sums kind[KINDS];
    int64_t rows[HEAD_ROLES];
    int64_t *seen;  /* [keys] rows that see the key */
    int64_t *pairs; /* [queries + keys] at a distance */
    uint8_t *used;  /* [keys] of this row */
    double *row[KINDS];
};

head_sums *head_sums_make(const head_text *text)
{
    head_sums *s = need_memory(1, sizeof *s);
    const int64_t distances = text->queries + text->keys;
    *s = (head_sums){.text = text};
    s->seen = need_memory(text->keys, sizeof *s->seen);
    s->pairs = need_memory(distances, sizeof *s->pairs);
    s->used = need_memory(text->keys, 1);
    for (int k = 0; k < KINDS; k++) {
        s->kind[k].column = need_memory(text->keys, sizeof(double));
        s->kind[k].distance = need_memory(distances, sizeof(double));
        s->kind[k].squares = need_memory(distances, sizeof(double));
        s->row[k] = need_memory(text->keys, sizeof(double));
    }
    head_sums_clear(s);
    return s;
}

void head_sums_free(head_sums *s)
{
    if (!s) return;
    for (int k = 0; k < KINDS; k++) free(s->kind[k].column), free(s->kind[k].distance), free(s->kind[k].squares), free(s->row[k]);
    free(s->seen), free(s->pairs), free(s->used), free(s);
}

void head_sums_clear(head_sums *s)
{
    const size_t keys = (size_t)s->text->keys, distances = keys + (size_t)s->text->queries;
    memset(s->rows, 0, sizeof s->rows);
    memset(s->seen, 0, keys * sizeof *s->seen);
    memset(s->pairs, 0, distances * sizeof *s->pairs);
    for (int k = 0; k < KINDS; k++) {
        memset(s->kind[k].role, 0, sizeof s->kind[k].role);
        memset(s->kind[k].column, 0, keys * sizeof(double));
        memset(s->kind[k].distance, 0, distances * sizeof(double));
        memset(s->kind[k].squares, 0, distances * sizeof(double));
    }
}

/* The place of query i among the keys, or -1. */
static int64_t place_of(const head_text *t, int64_t i)
{
    const int64_t place = i + t->offset;
    return t->aligned && place >= 0 && place < t->keys ? place : -1;
}

/* Adds the weights of both kinds on key j, if it is there and seen; returns 1 if so. */
static int add_key(head_sums *s, head_role role, int64_t j)
{
    if (j < 0 || j >= s->text->keys || !s->used[j]) return 0;
    for (int k = 0; k < KINDS; k++) s->kind[k].role[role] += s->row[k][j];
    return 1;
}

static void add_roles(head_sums *s, int64_t place)
{
    const head_text *t = s->text;
    if (t->special) {
        int any = 0;
        for (int64_t j = 0; j < t->keys; j++)
            if (t->special[j]) any |= add_key(s, HEAD_SEPARATOR, j);
        s->rows[HEAD_SEPARATOR] += any;
    }
    if (place < 0) return;
    s->rows[HEAD_PREVIOUS] += add_key(s, HEAD_PREVIOUS, place - 1);
    s->rows[HEAD_NEXT] += add_key(s, HEAD_NEXT, place + 1);
    s->rows[HEAD_SELF] += add_key(s, HEAD_SELF, place);
    if (place > 0) s->rows[HEAD_FIRST] += add_key(s, HEAD_FIRST, 0);
    if (!t->before) return;
    int duplicate = 0, induction = 0;
    for (int64_t j = t->before[place]; j >= 0; j = t->before[j]) {
        duplicate |= add_key(s, HEAD_DUPLICATE, j);
        induction |= add_key(s, HEAD_INDUCTION, j + 1);
    }
    s->rows[HEAD_DUPLICATE] += duplicate;
    s->rows[HEAD_INDUCTION] += induction;
}

void head_sums_add(head_sums *s, int64_t i, const float *weights, const uint8_t *visible)
{
    const head_text *t = s->text;
    const int64_t place = place_of(t, i);
    const int content = t->content && t->special;
    int64_t sees = 0, used = 0;
    double sum[KINDS] = {0};
    for (int64_t j = 0; j < t->keys; j++) sees += !visible || visible[j];
    if (sees == 0 || (content && place >= 0 && t->special[place])) return;
    for (int64_t j = 0; j < t->keys; j++) {
        s->used[j] = (uint8_t)((!visible || visible[j]) && !(content && t->special[j]));
        used += s->used[j];
        s->row[MEASURED][j] = s->used[j] ? (double)weights[j] : 0;
        s->row[UNIFORM][j] = s->used[j] ? (double)(1 / (float)sees) : 0; /* in f32, as weights come */
        for (int k = 0; k < KINDS; k++) sum[k] += s->row[k][j];
    }
    if (!(sum[MEASURED] > 0) || !isfinite(sum[MEASURED])) return;
    for (int k = 0; k < KINDS; k++) {
        if (content)
            for (int64_t j = 0; j < t->keys; j++) s->row[k][j] /= sum[k];
        if (used > 1) s->kind[k].role[HEAD_ENTROPY] += attn_entropy(t->keys, s->row[k]) / attn_max_entropy(used);
        for (int64_t j = 0; j < t->keys; j++) {
            if (!s->used[j]) continue;
            s->kind[k].column[j] += s->row[k][j];
            if (place < 0) continue;
            s->kind[k].distance[t->queries + j - i] += s->row[k][j];
            s->kind[k].squares[t->queries + j - i] += s->row[k][j] * s->row[k][j];
        }
    }
    s->rows[HEAD_ENTROPY] += used > 1;
    s->rows[HEAD_POSITIONAL] += place >= 0;
    for (int64_t j = 0; j < t->keys; j++) {
        s->seen[j] += s->used[j];
        if (place >= 0) s->pairs[t->queries + j - i] += s->used[j];
    }
    add_roles(s, place);
}

/* ---- numbers ---- */

/* The largest mean weight on a key that enough rows see: on one that a single row sees it would say nothing. */
static double sink_of(const head_sums *s, const row_sums *sums, int64_t *key)
{
    int64_t enough = 0;
    double largest = NAN;
    for (int64_t j = 0; j < s->text->keys; j++)
        if (s->seen[j] > enough) enough = s->seen[j];
    if (enough > HEAD_ROLE_ROWS) enough = HEAD_ROLE_ROWS;
    for (int64_t j = 0; j < s->text->keys; j++) {
        const double mean = sums->column[j] / (double)s->seen[j];
        if (s->seen[j] < enough || enough == 0 || mean <= largest) continue;
        largest = mean;
        *key = j;
    }
    return largest;
}

/*
 * How much of the variance of the weights the distance alone explains: 1 - (within / (pairs - distances)) / (all / (pairs - 1)),
 * the adjusted R^2 of a mean for each distance, which is 0 in the mean where weights do not depend on it.  Distances that fewer
 * than HEAD_ROLE_ROWS pairs have are left out; one distance has no other to differ from.  0 if there is no variance beyond the
 * rounding of its sum.
 */
static double positional_of(const head_sums *s, const row_sums *sums)
{
    double within = 0, squares = 0, sum = 0, pairs = 0, distances = 0;
    for (int64_t d = 0; d < s->text->queries + s->text->keys; d++) {
        const double n = (double)s->pairs[d];
        if (s->pairs[d] < HEAD_ROLE_ROWS) continue;
        within += sums->squares[d] - sums->distance[d] * sums->distance[d] / n;
        squares += sums->squares[d];
        sum += sums->distance[d];
        pairs += n;
        distances += 1;
    }
    const double all = squares - sum * sum / pairs;
    if (!(distances > 1 && pairs > distances)) return NAN;
    if (!(all > pairs * 0x1p-53 * squares)) return 0;
    return 1 - within / (pairs - distances) / (all / (pairs - 1));
}

void head_sums_finish(const head_sums *s, head_roles *roles)
{
    *roles = (head_roles){.sink_key = -1};
    for (int r = 0; r < HEAD_ROLES; r++) {
        head_number *n = &roles->number[r];
        n->rows = s->rows[r];
        n->score = s->kind[MEASURED].role[r] / (double)n->rows;
        n->baseline = s->kind[UNIFORM].role[r] / (double)n->rows;
    }
    int64_t unused = -1;
    head_number *sink = &roles->number[HEAD_SINK], *positional = &roles->number[HEAD_POSITIONAL];
    sink->score = sink_of(s, &s->kind[MEASURED], &roles->sink_key);
    sink->baseline = sink_of(s, &s->kind[UNIFORM], &unused);
    sink->rows = roles->sink_key >= 0 ? s->seen[roles->sink_key] : 0;
    positional->score = positional_of(s, &s->kind[MEASURED]);
    positional->baseline = positional_of(s, &s->kind[UNIFORM]);
    if (isnan(positional->score)) positional->rows = 0;
}

int head_role_badge(const head_roles *roles, head_role role)
{
    const head_number *n = &roles->number[role];
    const double least = head_role_table[role].badge;
    return least > 0 && n->rows >= HEAD_ROLE_ROWS && n->score >= least && n->score > n->baseline;
}

void head_roles_of(const head_text *text, const float *weights, const uint8_t *visible, head_roles *roles)
{
    head_sums *s = head_sums_make(text);
    for (int64_t i = 0; i < text->queries; i++)
        head_sums_add(s, i, weights + i * text->keys, visible ? visible + i * text->keys : NULL);
    head_sums_finish(s, roles);
    head_sums_free(s);
}
