/* SPDX-License-Identifier: MIT
 *
 * evaluate.h - runs a translated case and holds it against the reference and against the suite's own numbers.
 *
 *  1. The reference in double, over the case's inputs, agrees with the expected numbers within the case's tolerance: so the
 *     translation means what the suite means.
 *  2. The library agrees with the reference within the derived bound, in f32 (16-bit cases: f32 inside) and in f64.
 *  3. The library agrees with the expected numbers: in f64 within twice the bound for double, where they were computed in double;
 *     else, while scores are moderate, o, lse and weights within rtol 1e-5 and atol 1e-6 where they are that exact, and all within
 *     the case's tolerance.
 *
 * That goes for every output of the case: o, lse, weights, scores, gradients, tangents and second gradients.
 */
#ifndef ATTN_TESTING_CONFORMANCE_EVALUATE_H
#define ATTN_TESTING_CONFORMANCE_EVALUATE_H

#include "evaluation.h"
#include "translate.h"

void evaluate(evaluation *result, translation *t, double rtol, double atol, const attn_options *options);

#endif
