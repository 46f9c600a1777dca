/* SPDX-License-Identifier: MIT
 *
 * evaluate.h - runs a translated case and compares it with the reference and with the suite's own numbers.
 *
 *  1. The reference in double, over the case's inputs, agrees with the expected numbers within the case's tolerance: so the
 *     translation preserves the suite's meaning.
 *  2. The library agrees with the reference within the derived bound, in f32 (16-bit cases: computed in f32) and in f64.
 *  3. The library agrees with the expected numbers: in f64 within twice the bound for double, if they were computed in double;
 * else, if scores are moderate, o, lse and weights within rtol 1e-5 and atol 1e-6 if the expected numbers are that accurate, and
 * all within the case's tolerance.
 *
 * This applies to every output of the case: o, lse, weights, scores, gradients, tangents and double backward.
 */
#ifndef ATTN_TESTING_CONFORMANCE_EVALUATE_H
#define ATTN_TESTING_CONFORMANCE_EVALUATE_H

#include "evaluation.h"
#include "translate.h"

void evaluate(evaluation *result, translation *t, double rtol, double atol, const attn_options *options);

#endif
