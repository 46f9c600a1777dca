/* SPDX-License-Identifier: MIT
 * linear_numbers.h - the inputs of a check of linear attention. */
#ifndef ATTN_TESTING_CASE_LINEAR_NUMBERS_H
#define ATTN_TESTING_CASE_LINEAR_NUMBERS_H

#include "testing/problem/linear_tensors.h"
#include "testing/random/random.h"

/* Requests, in addition to the problem's tensors, the initial and final states, and in backward their gradients. */
void linear_request_states(const attn_linear_problem *problem, attn_linear_tensors *tensors);

/* A number of tensor t, within +-1: decays are below 0, and keys of rules other than add are short enough that the state stays
 * bounded.  Those of random features are standard normal, the same bits on every machine (attn_random_features has log and cos of
 * the C library). */
double linear_number(const attn_linear_problem *problem, int t, random_state *random);

#endif
