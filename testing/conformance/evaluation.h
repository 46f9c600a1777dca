/* SPDX-License-Identifier: MIT
 *
 * evaluation.h - the result of a case, and lookups by name in its manifest entry. */
#ifndef ATTN_TESTING_CONFORMANCE_EVALUATION_H
#define ATTN_TESTING_CONFORMANCE_EVALUATION_H

#include <cjson/cJSON.h>

#include "testing/verdict/run.h"

typedef struct evaluation {
    check_status status;
    char reason[320];
    char problem[CASE_TEXT];
    double max_error;      /* of o, against the expected numbers, in the case's own type */
    double bound_fraction; /* the largest, of all runs */
} evaluation;

/* Sets status and reason; a case that has already failed or been skipped keeps its first reason. */
__attribute__((format(printf, 3, 4))) void conclude(evaluation *e, check_status status, const char *format, ...);

/* Members of an object, which may be NULL; text_in returns "" if the member is not a text. */
const char *text_in(const cJSON *object, const char *name);
double number_in(const cJSON *object, const char *name, double otherwise);

/* The case's tolerance, under either name. */
double tolerance_in(const cJSON *json, const char *name, const char *other, double otherwise);

/* The largest absolute value of n numbers. */
double largest_of(const double *x, int64_t n);

#endif
