/* SPDX-License-Identifier: MIT
 * layer.h - cases of layers with weights (layer_run.c describes how they are judged); none if libattn_layers is not built. */
#ifndef ATTN_TESTING_CONFORMANCE_LAYER_H
#define ATTN_TESTING_CONFORMANCE_LAYER_H

#include <cjson/cJSON.h>

#include "evaluate.h"

#if ATTN_TESTING_LAYERS
/* 1 if the case is one of these. */
int layer_case_is(const char *suite, const char *op);
void layer_case_evaluate(evaluation *result, const char *suite, const cJSON *json, const attn_archive *tensors,
                         const attn_options *options);
#else
static inline int layer_case_is(const char *suite, const char *op) { return (void)suite, (void)op, 0; }
static inline void layer_case_evaluate(evaluation *result, const char *suite, const cJSON *json, const attn_archive *tensors,
                                       const attn_options *options)
{
    (void)result, (void)suite, (void)json, (void)tensors, (void)options;
}
#endif

#endif
