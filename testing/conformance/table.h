/* SPDX-License-Identifier: MIT
 * table.h - cases whose results are arrays: masks, positions, other kinds of scores, small models. */
#ifndef ATTN_TESTING_CONFORMANCE_TABLE_H
#define ATTN_TESTING_CONFORMANCE_TABLE_H

#include <cjson/cJSON.h>

#include "evaluate.h"

/* 1 if the case is one of these. */
int table_case_is(const char *suite, const char *op);

/* Computes the arrays of the case with the library and compares them with the suite's within its tolerance. */
void table_case_evaluate(evaluation *result, const char *suite, const cJSON *json, const attn_archive *tensors);

#endif
