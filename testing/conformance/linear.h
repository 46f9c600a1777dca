/* SPDX-License-Identifier: MIT
 * linear.h - cases of linear attention: mechanism_grad, ONNX LinearAttention, and those of fla with the same definition. */
#ifndef ATTN_TESTING_CONFORMANCE_LINEAR_H
#define ATTN_TESTING_CONFORMANCE_LINEAR_H

#include <cjson/cJSON.h>

#include "evaluate.h"

/* 1 if the case is one of linear attention.  Some of them are still skipped, with the reason. */
int linear_case_is(const char *suite, const cJSON *json);

/* Runs the case in f32 and in f64: the reference must agree with the suite within its tolerance, the library with the reference
 * within u (16 + features + tokens) times the tensor's largest number, and with the suite within its tolerance. */
void linear_case_evaluate(evaluation *result, const char *suite, const cJSON *json, const attn_archive *tensors,
                          const attn_options *options);

#endif
