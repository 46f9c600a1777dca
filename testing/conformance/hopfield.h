/* SPDX-License-Identifier: MIT
 * hopfield.h - cases of mechanism_grad's modern Hopfield network. */
#ifndef ATTN_TESTING_CONFORMANCE_HOPFIELD_H
#define ATTN_TESTING_CONFORMANCE_HOPFIELD_H

#include <cjson/cJSON.h>

#include "evaluate.h"

int hopfield_case_is(const char *suite, const cJSON *json);

/* Compares update, energy and gradients in f32 and in f64: with the suite within its tolerance, and with the reference within
 * u (16 + patterns + channels) times the largest number that enters a sum. */
void hopfield_case_evaluate(evaluation *result, const cJSON *json, const attn_archive *tensors);

#endif
