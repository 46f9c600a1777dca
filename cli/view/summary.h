/* SPDX-License-Identifier: MIT
 *
 * summary.h - what a page knows of a head before it computes any weight: the largest one, a number for each row and column, and
 * small pictures of the whole. */
#ifndef ATTN_CLI_VIEW_SUMMARY_H
#define ATTN_CLI_VIEW_SUMMARY_H

#include <stdint.h>

/* Weights pooled over an even partition of rows and columns: part y has the rows floor(y n / rows) to floor((y + 1) n / rows).  A
 * part that has a number that is not finite is NaN. */
typedef struct view_level {
    int64_t rows, columns; /* 0: there is none */
    float *most, *mean;
} view_level;

typedef struct view_summary {
    int64_t len_q, len_k;
    float largest; /* finite weight; 0 if there is none */
    float *spread; /* [len_q] the entropy of a row over the log of the number of keys that it sees; NaN where that has no meaning */
    float *received; /* [len_k] the mean weight of a key over all rows */
    view_level small, large;
    int any;         /* 1: there was a finite weight */
    double *sum;     /* while rows are added: of each key */
    int64_t *column; /* and its part in `small` and in `large` */
} view_summary;

/* A head of up to SUMMARY_PLAIN weights has no picture: the page computes it at once.  Larger ones have one of SUMMARY_SMALL rows
 * and columns, and those of more than SUMMARY_LONG queries or keys also one of SUMMARY_LARGE. */
enum { SUMMARY_PLAIN = 128 * 128, SUMMARY_SMALL = 80, SUMMARY_LARGE = 512, SUMMARY_LONG = 1024 };

/* The memory that the page keeps is owned by the summary: release with summary_free. */
void summary_begin(view_summary *s, int64_t len_q, int64_t len_k);
/* Rows are added in order.  visible: [len_k] 1 for a key that the row sees; NULL: those whose weight is not 0. */
void summary_add(view_summary *s, int64_t i, const float *weights, const uint8_t *visible);
void summary_end(view_summary *s);
void summary_free(view_summary *s);

#endif
