/* SPDX-License-Identifier: MIT
 * table.h - cases without queries and keys: masks, positions and a softmax alone, as tables that the library makes. */
#ifndef ATTN_CLI_CONFORMANCE_TABLE_H
#define ATTN_CLI_CONFORMANCE_TABLE_H

#include <cjson/cJSON.h>

#include "evaluate.h"

/* 1 if the case is one of these. */
int table_case_is(const char *suite, const char *op);

/* Makes the case's table with the library, in double, and holds it against the suite's within its tolerance. */
void table_case_evaluate(evaluation *result, const char *suite, const cJSON *json, const attn_tensors *tensors);

#endif
