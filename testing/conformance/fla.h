/* SPDX-License-Identifier: MIT
 * fla.h - cases of fla_linear_attention that are not recurrences of attn/linear.h, but composed of it or of softmax attention. */
#ifndef ATTN_TESTING_CONFORMANCE_FLA_H
#define ATTN_TESTING_CONFORMANCE_FLA_H

#include <cjson/cJSON.h>

#include "evaluate.h"

int fla_case_is(const char *suite, const cJSON *json);

/* Runs the case in f32 and in f64 and compares the outputs with the suite's within its tolerance. */
void fla_case_evaluate(evaluation *result, const cJSON *json, const attn_archive *tensors, const attn_options *options);

#endif
