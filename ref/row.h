/* SPDX-License-Identifier: MIT
 * row.h - the pieces of one query's attention that forward, backward and forward mode share. */
#ifndef ATTN_REF_ROW_H
#define ATTN_REF_ROW_H

#include "attn_ref.h"

/* One query: where its rows lie. */
typedef struct row {
    int64_t b, h, g, i;      /* batch entry, query head, key head, query */
    int64_t index;           /* of the query among all queries: times D, Dv or Skv gives its row */
    int64_t position;        /* where it stands among the keys */
    const double *q, *K, *V; /* its query; the keys and values of its head */
    double scale;            /* over the temperature */
} row;
row row_at(const ref_problem *p, int64_t b, int64_t h, int64_t i);

double dot(const double *x, const double *y, int64_t n);

/* Channels of a key. */
int64_t dim_k(const ref_problem *p);
/* Numbers in W, for one head. */
int64_t weights_of_head(const ref_problem *p);

/* The score of query and key j before scale, softcap and bias, by kind. */
double row_raw_score(const ref_problem *p, const row *r, int64_t j);
/* What dx, the gradient of that number, adds to those of all that it is made of. */
void row_raw_gradient(const ref_problem *p, const ref_gradients *G, const row *r, int64_t j, double dx);

/* Where the number of head h and distance d stands in bias_table. */
int64_t bias_table_at(const ref_problem *p, int64_t h, int64_t d);

/* Which row of the relative tables the query has for key j, among those of all tables. */
int64_t relative_row(const ref_problem *p, const row *r, int64_t j);
/* Channel c of the value that the query has of key j. */
double row_value(const ref_problem *p, const row *r, int64_t j, int64_t c);

/* 1 if the query is real: the rows behind a sequence's end are padding. */
int row_is_live(const ref_problem *p, const row *r);

/* 1 if the query sees any key. */
int row_sees_any(const ref_problem *p, const row *r);

/* 1 if it weighs all keys alike, since it sees none and the problem says so. */
int row_is_uniform(const ref_problem *p, const row *r);

/* The score of key j, which must be visible; *slope_of_cap (may be NULL) = the derivative of softcap and modifier there. */
double row_score(const ref_problem *p, const row *r, int64_t j, double *slope_of_cap);

/* Scores and weights of all keys [Skv]; returns lse. */
double row_weights(const ref_problem *p, const row *r, double *s, double *w);

#endif
