/* SPDX-License-Identifier: MIT
 *
 * numbers.h - a tensor in text: rows as "1 0; 0 1" or the lines of a CSV file, or lists in brackets, "[[1, 0], [0, 1]]", as JSON
 * has them and NumPy prints them.  Messages begin with the line and column. */
#ifndef ATTN_CLI_BASE_NUMBERS_H
#define ATTN_CLI_BASE_NUMBERS_H

#include "attn/io.h"

typedef struct number_text {
    int rank; /* of rows: 1 if there is one row, without a semicolon after it; else 2 */
    int64_t shape[ATTN_MAX_RANK];
    int64_t count;
    double *value;
    size_t *at;   /* where each is in the text */
    int in_rows;  /* 1: rows; 0: brackets, or one number alone in JSON */
    int booleans; /* 1: all are true or false */
    /* private */
    int64_t capacity;
} number_text;

/* Reads text[from .. to-1].  Numbers are decimal, inf, -inf, nan, true or false; blanks or a comma lie between two; a line after
 * '#' is a comment.  Release with numbers_free, also after a failure. */
attn_status numbers_read(number_text *n, const char *text, size_t from, size_t to, attn_error *error);
void numbers_free(number_text *n);

/* Adds them to an archive, as this type: bool (0 and 1), i64, f32 or f64.  Text is that which they were read from. */
attn_status numbers_add(attn_archive *archive, const char *name, const number_text *n, attn_dtype dtype, const char *text,
                        attn_error *error);

/* 1 if a word of the command line is meant as such a text: it begins as a number or a list does. */
int numbers_begin(const char *text);

/* Fails with "line L, column C: " and the message. */
__attribute__((format(printf, 5, 6))) attn_status numbers_fail(const char *text, size_t at, attn_status status, attn_error *error,
                                                               const char *format, ...);

#endif
