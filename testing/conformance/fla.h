/* SPDX-License-Identifier: MIT
 * fla.h - cases of fla_linear_attention that are no recurrence of attn/linear.h, but are made of it or of softmax attention. */
#ifndef ATTN_TESTING_CONFORMANCE_FLA_H
#define ATTN_TESTING_CONFORMANCE_FLA_H

#include <cjson/cJSON.h>

#include "evaluate.h"

int fla_case_is(const char *suite, const cJSON *json);

/* Runs it in f32 and in f64 and holds the outputs against the suite's within its tolerance. */
void fla_case_evaluate(evaluation *result, const cJSON *json, const attn_archive *tensors, const attn_options *options);

#endif
