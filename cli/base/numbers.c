/* SPDX-License-Identifier: MIT
 * numbers.c - see numbers.h. */
#include "numbers.h"

#include <float.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "testing/text/failure.h"

static const char ends_word[] = " \t\r\n,;[]{}:\"#";

attn_status numbers_fail(const char *text, size_t at, attn_status status, attn_error *error, const char *format, ...)
{
    char message[300];
    size_t line = 1, column = 1;
    va_list list;
    va_start(list, format);
    vsnprintf(message, sizeof message, format, list);
    va_end(list);
    for (size_t k = 0; k < at; k++) {
        if (text[k] == '\n' || (text[k] == '\r' && text[k + 1] != '\n')) line++, column = 1;
        else column += ((unsigned char)text[k] & 0xc0) != 0x80; /* of a character in UTF-8, the first byte */
    }
    return failure(error, status, "line %zu, column %zu: %s", line, column, message);
}

/* ---- one number ---- */

static size_t word_length(const char *text, size_t at, size_t to)
{
    size_t length = 0;
    while (at + length < to && text[at + length] && !strchr(ends_word, text[at + length])) length++;
    return length;
}

static const struct {
    const char *word;
    double value;
    int boolean;
} words[] = {{"true", 1, 1},  {"false", 0, 1},  {"inf", INFINITY, 0},      {"+inf", INFINITY, 0},      {"-inf", -INFINITY, 0},
             {"nan", NAN, 0}, {"-nan", NAN, 0}, {"infinity", INFINITY, 0}, {"+infinity", INFINITY, 0}, {"-infinity", -INFINITY, 0}};

/* 1 if the word is a number; 0 if it is none, -1 if it is beyond a double. */
static int read_word(const char *word, size_t length, double *value, int *boolean)
{
    char copy[400], *end;
    *boolean = 0;
    for (size_t k = 0; k < sizeof words / sizeof *words; k++)
        if (strlen(words[k].word) == length && strncasecmp(words[k].word, word, length) == 0) {
            *value = words[k].value, *boolean = words[k].boolean;
            return 1;
        }
    if (length == 0 || length >= sizeof copy) return 0;
    memcpy(copy, word, length);
    copy[length] = 0;
    if (strspn(copy, "0123456789+-.eE") != length) return 0;
    *value = strtod(copy, &end);
    return *end ? 0 : isfinite(*value) ? 1 : -1;
}

static attn_status read_number(number_text *n, const char *text, size_t *at, size_t to, attn_error *error)
{
    const size_t length = word_length(text, *at, to);
    double value = 0;
    int boolean;
    const int is_number = read_word(text + *at, length, &value, &boolean);
    if (!is_number) {
        const int names = n->count == 0 && length && memchr(text + *at, '\n', to - *at); /* those of columns, perhaps */
        return numbers_fail(text, *at, ATTN_ERR_FORMAT, error, "'%.*s' is not a number%s",
                            length ? (int)(length < 40 ? length : 40) : 1, text + *at,
                            names ? "; with a '#' before it, a line of names is a comment" : "");
    }
    if (is_number < 0)
        return numbers_fail(text, *at, ATTN_ERR_FORMAT, error, "%.*s is beyond the range of a double",
                            (int)(length < 40 ? length : 40), text + *at);
    if (n->count == n->capacity) {
        const int64_t capacity = n->capacity ? 2 * n->capacity : 64;
        double *values = need_memory(capacity, sizeof *values);
        size_t *places = need_memory(capacity, sizeof *places);
        if (n->count) memcpy(values, n->value, (size_t)n->count * sizeof *values);
        if (n->count) memcpy(places, n->at, (size_t)n->count * sizeof *places);
        numbers_free(&(number_text){.value = n->value, .at = n->at});
        n->value = values, n->at = places, n->capacity = capacity;
    }
    n->booleans &= boolean;
    n->at[n->count] = *at;
    n->value[n->count++] = value;
    *at += length;
    return ATTN_OK;
}

/* ---- rows ---- */

static attn_status end_row(number_text *n, const char *text, size_t at, int64_t in_row, attn_error *error)
{
    if (n->shape[0] && in_row != n->shape[1])
        return numbers_fail(text, at, ATTN_ERR_SHAPE, error, "row %lld has %lld number%s, and the rows before it have %lld",
                            (long long)n->shape[0] + 1, (long long)in_row, in_row == 1 ? "" : "s", (long long)n->shape[1]);
    n->shape[0]++;
    n->shape[1] = in_row;
    return ATTN_OK;
}

/* A carriage return alone ends a line too, as in files of old spreadsheets; before a line feed it ends an empty one. */
static attn_status read_rows(number_text *n, const char *text, size_t from, size_t to, attn_error *error)
{
    int64_t in_row = 0;
    size_t row = from, comma = to; /* where the row begins; where a comma is that a number must follow, `to` if there is none */
    int semicolons = 0, new_line = 0, begins[2] = {0, 0}; /* rows that begin within a line, and with one */
    attn_status status = ATTN_OK;
    for (size_t at = from; status == ATTN_OK;) {
        while (at < to && strchr(" \t", text[at])) at++;
        if (at < to && text[at] == '#') at += strcspn(text + at, "\r\n");
        if (at >= to || strchr("\r\n;", text[at])) {
            const int semicolon = at < to && text[at] == ';';
            if (comma < to) return numbers_fail(text, comma, ATTN_ERR_FORMAT, error, "no number follows this comma");
            if (semicolon && !in_row)
                return numbers_fail(text, at, ATTN_ERR_FORMAT, error, "no number is in the row before this ';'");
            if (in_row) status = end_row(n, text, row, in_row, error);
            semicolons += semicolon;
            new_line |= !semicolon;
            in_row = 0;
            if (at++ >= to) break;
        } else if (text[at] == ',') {
            if (comma < to || !in_row) return numbers_fail(text, at, ATTN_ERR_FORMAT, error, "no number precedes this comma");
            comma = at++;
        } else {
            if (!in_row++) {
                row = at;
                begins[new_line] += n->shape[0] > 0;
                new_line = 0;
                if (begins[0] && begins[1]) /* 1;2 in each line is one row elsewhere */
                    return numbers_fail(text, at, ATTN_ERR_FORMAT, error,
                                        "both a ';' and the end of a line end rows here; between the numbers of a row is a comma");
            }
            status = read_number(n, text, &at, to, error);
            comma = to;
        }
    }
    if (status == ATTN_OK && !n->shape[0]) return numbers_fail(text, from, ATTN_ERR_FORMAT, error, "there is no number");
    n->rank = n->shape[0] > 1 || semicolons ? 2 : 1;
    if (n->rank == 1) n->shape[0] = n->shape[1];
    return status;
}

/* ---- brackets ---- */

/* Lists within lists, whose lengths must agree. */
typedef struct nesting {
    int depth;
    int64_t count[ATTN_MAX_RANK]; /* elements so far of each open list */
    int64_t size[ATTN_MAX_RANK];  /* of the closed ones at this depth; -1: none is closed */
} nesting;

static attn_status close_list(number_text *n, nesting *s, const char *text, size_t at, attn_error *error)
{
    const int d = s->depth - 1;
    if (s->size[d] >= 0 && s->size[d] != s->count[d])
        return numbers_fail(text, at, ATTN_ERR_SHAPE, error,
                            "the list that ends here has %lld element%s, and those before it have %lld", (long long)s->count[d],
                            s->count[d] == 1 ? "" : "s", (long long)s->size[d]);
    if (!n->rank && !s->count[d]) n->rank = s->depth; /* an empty list has no number to tell how deep they are */
    s->size[d] = s->count[d];
    s->depth--;
    if (d > 0) s->count[d - 1]++;
    return ATTN_OK;
}

static attn_status read_brackets(number_text *n, const char *text, size_t from, size_t to, attn_error *error)
{
    nesting s = {0};
    attn_status status = ATTN_OK;
    size_t at = from, comma = to;
    for (int d = 0; d < ATTN_MAX_RANK; d++) s.size[d] = -1;
    do {
        while (at < to && strchr(" \t\r\n", text[at])) at++;
        if (at >= to) return numbers_fail(text, to, ATTN_ERR_FORMAT, error, "a ']' is missing");
        const char c = text[at];
        if (c == ',') {
            if (comma < to || !s.count[s.depth - 1])
                return numbers_fail(text, at, ATTN_ERR_FORMAT, error, "no number precedes this comma");
            comma = at++;
            continue;
        }
        if (c == ']' && comma < to) return numbers_fail(text, comma, ATTN_ERR_FORMAT, error, "no number follows this comma");
        comma = to;
        if (c == '[') {
            if (s.depth == ATTN_MAX_RANK)
                return numbers_fail(text, at, ATTN_ERR_FORMAT, error, "lists in more than %d levels", ATTN_MAX_RANK);
            if (n->rank && s.depth >= n->rank)
                return numbers_fail(text, at, ATTN_ERR_SHAPE, error, "a list begins where the lists before it have numbers");
            s.count[s.depth++] = 0;
            at++;
        } else if (c == ']') {
            status = close_list(n, &s, text, at++, error);
        } else {
            if (n->rank && s.depth != n->rank)
                return numbers_fail(text, at, ATTN_ERR_SHAPE, error, "a number is where the lists before it have lists");
            n->rank = s.depth;
            s.count[s.depth - 1]++;
            status = read_number(n, text, &at, to, error);
        }
    } while (status == ATTN_OK && s.depth > 0);
    while (at < to && strchr(" \t\r\n", text[at])) at++;
    if (status == ATTN_OK && at < to)
        return numbers_fail(text, at, ATTN_ERR_FORMAT, error, "'%c' is after the end of the list", text[at]);
    for (int d = 0; d < n->rank; d++) n->shape[d] = s.size[d] < 0 ? 0 : s.size[d];
    return status;
}

/* ---- a text ---- */

attn_status numbers_read(number_text *n, const char *text, size_t from, size_t to, attn_error *error)
{
    *n = (number_text){.booleans = 1};
    while (from < to && strchr(" \t\r\n", text[from])) from++;
    n->in_rows = !(from < to && text[from] == '[');
    const attn_status status = n->in_rows ? read_rows(n, text, from, to, error) : read_brackets(n, text, from, to, error);
    n->booleans &= n->count > 0;
    return status;
}

void numbers_free(number_text *n)
{
    free(n->value);
    free(n->at);
    *n = (number_text){0};
}

int numbers_begin(const char *text)
{
    double value;
    int boolean;
    text += strspn(text, " \t\r\n");
    if (*text == '[' || strspn(text, "+-.0123456789") > strspn(text, "+-.")) return 1;
    return read_word(text, strcspn(text, ends_word), &value, &boolean) == 1;
}

attn_status numbers_add(attn_archive *archive, const char *name, const number_text *n, attn_dtype dtype, const char *text,
                        attn_error *error)
{
    void *data;
    const attn_status status = attn_archive_allocate(archive, name, dtype, n->rank, n->shape, &data, error);
    if (status != ATTN_OK) return status;
    for (int64_t k = 0; k < n->count; k++) {
        const double x = n->value[k];
        const char *wrong = dtype == ATTN_BOOL && x < 0              ? "0 or 1 (1 = keep); --bias adds numbers to scores"
                            : dtype == ATTN_BOOL && x != 0 && x != 1 ? "0 or 1 (1 = keep)"
                            : dtype == ATTN_I64 && !(fabs(x) <= 0x1p53 && x == nearbyint(x)) ? "an integer"
                            : dtype == ATTN_F32 && isfinite(x) && fabs(x) > 0x1.ffffffp127
                                ? "in the range of f32; --dtype=f64 takes it"
                                : NULL;
        if (wrong) {
            (void)attn_archive_remove(archive, name, NULL);
            return numbers_fail(text, n->at[k], ATTN_ERR_ARGUMENT, error, "tensor '%.60s': %.*s is not %s", name,
                                (int)word_length(text, n->at[k], n->at[k] + 40), text + n->at[k], wrong);
        }
        if (dtype == ATTN_BOOL) ((unsigned char *)data)[k] = x != 0;
        else if (dtype == ATTN_I64) ((int64_t *)data)[k] = (int64_t)x;
        else if (dtype == ATTN_F32) ((float *)data)[k] = (float)x;
        else ((double *)data)[k] = x;
    }
    return ATTN_OK;
}
