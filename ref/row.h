/* SPDX-License-Identifier: MIT
 * row.h - the parts of one query's attention shared by forward, backward and forward mode. */
#ifndef ATTN_REF_ROW_H
#define ATTN_REF_ROW_H

#include "attn_ref.h"

/* One query and its rows. */
typedef struct row {
    int64_t b, h, g, i;      /* batch entry, query head, key head, query */
    int64_t index;           /* of the query among all queries; times D, Dv or Skv gives its row */
    int64_t position;        /* its position among the keys */
    const double *q, *K, *V; /* its query; the keys and values of its head */
    double scale;            /* over the temperature */
} row;
row row_at(const ref_problem *p, int64_t b, int64_t h, int64_t i);

static inline double dot(const double *x, const double *y, int64_t n)
{
    double sum = 0;
    for (int64_t c = 0; c < n; c++) sum += x[c] * y[c];
    return sum;
}

/* Channels of a key. */
static inline int64_t dim_k(const ref_problem *p) { return p->Dk ? p->Dk : p->D; }
/* Numbers in W, for one head. */
int64_t weights_of_head(const ref_problem *p);

/* The score of query and key j before scale, softcap and bias, by kind. */
double row_raw_score(const ref_problem *p, const row *r, int64_t j);
/* Adds what dx, the gradient of that score, contributes to the gradients of its inputs. */
void row_raw_gradient(const ref_problem *p, const ref_gradients *G, const row *r, int64_t j, double dx);

/* Index in bias_table of head h and distance d. */
int64_t bias_table_at(const ref_problem *p, int64_t h, int64_t d);

/* The row of the relative tables for the query and key j, counted over all tables. */
int64_t relative_row(const ref_problem *p, const row *r, int64_t j);
/* Channel c of the value of key j as seen by the query, with its relative value. */
static inline double row_value(const ref_problem *p, const row *r, int64_t j, int64_t c)
{
    double value = r->V[j * p->Dv + c];
    if (p->relative_values) value += p->relative_values[relative_row(p, r, j) * p->Dv + c];
    return value;
}

/* 1 if the query is real: rows after a sequence's end are padding. */
int row_is_live(const ref_problem *p, const row *r);

/* 1 if the query sees any key. */
int row_sees_any(const ref_problem *p, const row *r);

/* 1 if its weights are uniform: it sees no key and the problem has `uniform`. */
int row_is_uniform(const ref_problem *p, const row *r);

/* What scale, softcap and modifier make of the raw score of key j; *slope = the derivative of the last two there. */
double row_capped(const ref_problem *p, const row *r, int64_t j, double raw, double *slope);

/* That derivative alone. */
double row_slope(const ref_problem *p, const row *r, int64_t j);

/* The score of key j, which must be visible: that with all that is added to it. */
double row_score(const ref_problem *p, const row *r, int64_t j);

/* Scores and weights of all keys [Skv]; returns lse. */
double row_weights(const ref_problem *p, const row *r, double *s, double *w);

#endif
