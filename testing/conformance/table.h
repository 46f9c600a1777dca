/* SPDX-License-Identifier: MIT
 * table.h - cases that the library answers with arrays: masks, positions, scores of other kinds, small models. */
#ifndef ATTN_TESTING_CONFORMANCE_TABLE_H
#define ATTN_TESTING_CONFORMANCE_TABLE_H

#include <cjson/cJSON.h>

#include "evaluate.h"

/* 1 if the case is one of these. */
int table_case_is(const char *suite, const char *op);

/* Makes the arrays of the case with the library and holds them against the suite's within its tolerance. */
void table_case_evaluate(evaluation *result, const char *suite, const cJSON *json, const attn_archive *tensors);

#endif
