/* SPDX-License-Identifier: MIT
 *
 * table_case.h - shared by the files table_*.c: a case whose results are arrays, which are compared with the suite's.
 *
 * Known are: every input that is read, every output that is compared, and every attribute that a row lists.  A case with any other
 * is skipped, so none passes with an output that was not compared.
 */
#ifndef ATTN_TESTING_CONFORMANCE_TABLE_CASE_H
#define ATTN_TESTING_CONFORMANCE_TABLE_CASE_H

#include <cjson/cJSON.h>

#include "attn/position.h"
#include "evaluate.h"

typedef struct table_case {
    evaluation *result;
    const char *op, *notes; /* the suite's; "" for none */
    view_pool pool;
    const cJSON *params;
    const attn_archive *tensors;
    unsigned char *known; /* for each tensor */
    double rtol, atol;
    attn_dtype dtype; /* the type of case_give: ATTN_F64; ATTN_F32 in a second run of `typed` rows */
} table_case;

typedef struct table_row {
    const char *suite, *op; /* op: the beginning of the operation's name */
    void (*make)(table_case *);
    const char *params; /* names of attributes, with a space before and after each */
    int typed;          /* 1: attention, run in f64 and in f32 */
} table_row;

/* Each ends with an empty row. */
extern const table_row table_mask_rows[], table_mechanism_rows[], table_model_rows[], table_position_rows[], table_score_rows[];

double case_param(const table_case *c, const char *name, double otherwise);
int case_flag(const table_case *c, const char *name);
const char *case_text(const table_case *c, const char *name); /* "" if it is not a text */

/* A tensor, or none. */
view case_find(table_case *c, const char *name);
/* A required tensor; without it, the case fails and the view is empty. */
view case_need(table_case *c, const char *name);
/* The same, with this rank. */
view case_need_rank(table_case *c, const char *name, int rank);

/* Arrays in the pool's memory: numbers as doubles, as integers, in the case's type and back; scratch. */
double *case_doubles(table_case *c, const view *v);
int64_t *case_ints(table_case *c, const view *v);
void *case_give(table_case *c, const double *x, int64_t count);
double *case_read(table_case *c, const void *x, int64_t count);
void *case_scratch(table_case *c, int64_t count);

/* y[row][j] = x[row] . w[:, j] + b[j]; w [dim][columns], its rows `stride` apart; b may be NULL. */
double *case_project(table_case *c, const double *x, int64_t rows, int64_t dim, const double *w, int64_t stride, const double *b,
                     int64_t columns);
/* The same with a dense w, without b. */
double *case_product(table_case *c, const double *x, int64_t rows, int64_t dim, const double *w, int64_t columns);

/* Numbers in the case's type, as a tensor. */
attn_input case_slot(table_case *c, const double *x, int64_t count);
attn_output case_output(table_case *c, int64_t count);
double *case_taken(table_case *c, const attn_output *slot, int64_t count);

/* Rotates doubles x [batch][head][token][channel] in place; stride NULL: dense. */
void case_turn(table_case *c, const attn_rope *rope, const int64_t shape[4], const int64_t stride[4], double *x,
               const int64_t *positions);

/* Fails the case if the library rejects the call. */
void case_take(table_case *c, attn_status status, const attn_error *error);

/* Compares the library's result with tensor `name`, element by element. */
void case_compare(table_case *c, const char *name, const double *got, int64_t count);

/* ---- attention over dense arrays in the case's type ---- */

typedef struct case_attention {
    attn_problem p; /* the caller sets shape and options; struct_size, types and outputs are filled in */
    attn_tensors a;
    double *o, *lse, *weights, *scores; /* results of case_attend; scores: of ATTN_STAGE_RAW */
} case_attention;

/* Fills in the tensors from p.shape (and p.score.dim_k); v NULL: ones. */
void case_attention_begin(table_case *c, case_attention *x, const double *q, const double *k, const double *v);
/* Runs forward.  Returns 0 if the library rejects the call; the case has then failed. */
int case_attend(table_case *c, case_attention *x);

#endif
