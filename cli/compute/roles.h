/* SPDX-License-Identifier: MIT
 *
 * roles.h - what a head of attention does, in numbers: how much of its weights goes to the previous token, to earlier occurrences
 * of the same token, to separators ...  docs/mechanisms/analysis.md has the definitions and their sources.
 *
 * A number is a mean over its eligible rows: queries for which such a key exists.  Its baseline is what a head gets whose rows are
 * uniform over the keys that each query sees, by the same sums.  A role describes weights; it does not explain a model. */
#ifndef ATTN_CLI_COMPUTE_ROLES_H
#define ATTN_CLI_COMPUTE_ROLES_H

#include <stdint.h>

typedef enum head_role {
    HEAD_PREVIOUS,
    HEAD_NEXT,
    HEAD_SELF,
    HEAD_FIRST,
    HEAD_SEPARATOR,
    HEAD_DUPLICATE,
    HEAD_INDUCTION,
    HEAD_SINK,
    HEAD_ENTROPY,
    HEAD_POSITIONAL,
    HEAD_ROLES
} head_role;

/* One row of the table of roles. */
typedef struct head_role_about {
    const char *name;    /* in JSON */
    const char *heading; /* of a column */
    const char *line;    /* what the number is */
    const char *source;
    double badge; /* a head has this role from this score on; 0: a number, and no role */
} head_role_about;

extern const head_role_about head_role_table[HEAD_ROLES];

/* No badge for fewer rows: a mean over few rows is chance. */
enum { HEAD_ROLE_ROWS = 8 };

/* The tokens of a sequence, shared by its heads. */
typedef struct head_text {
    int64_t queries, keys;
    int aligned; /* 1: queries are tokens of the same text as keys, query i at the place of key i + offset */
    int64_t offset;
    int content;      /* 1: as if separators were not there, as queries and as keys; rows are divided by what is left of them */
    int64_t *before;  /* [keys] the last earlier key with the same token, -1: none; NULL: tokens are not known */
    uint8_t *special; /* [keys] 1: a separator */
} head_text;

/* Fills in before and special from a word for each key (NULL: none, which equals no other).  Release with head_text_end. */
void head_text_words(head_text *text, const char *const *words);
void head_text_end(head_text *text);

typedef struct head_number {
    double score, baseline; /* NaN without eligible rows */
    int64_t rows;           /* eligible ones */
} head_number;

typedef struct head_roles {
    head_number number[HEAD_ROLES];
    int64_t sink_key; /* the key of HEAD_SINK; -1: none */
} head_roles;

/* 1 if the head has the role: enough rows, at least the table's score and more than the baseline. */
int head_role_badge(const head_roles *roles, head_role role);

/* Sums over the rows of one head. */
typedef struct head_sums head_sums;
head_sums *head_sums_make(const head_text *text); /* borrows the text */
void head_sums_clear(head_sums *sums);
/* weights: [keys] of query i; visible: [keys], 1 for a key that it sees (NULL: all).  A row without weight is not eligible. */
void head_sums_add(head_sums *sums, int64_t i, const float *weights, const uint8_t *visible);
void head_sums_finish(const head_sums *sums, head_roles *roles);
void head_sums_free(head_sums *sums);

/* All at once: weights [queries][keys], visible the same (NULL: all). */
void head_roles_of(const head_text *text, const float *weights, const uint8_t *visible, head_roles *roles);

#endif
