/* SPDX-License-Identifier: MIT
 * linear_numbers.c - see linear_numbers.h. */
#include "linear_numbers.h"

#include <math.h>

#include "testing/random/normal.h"

void linear_request_states(const attn_linear_problem *problem, attn_linear_tensors *tensors)
{
    const int divided = problem->denominator != ATTN_DENOMINATOR_NONE, backward = problem->op == ATTN_BACKWARD;
    const struct {
        int t, present;
    } requests[] = {{LINEAR(initial_state), 1},
                    {LINEAR(final_state), 1},
                    {LINEAR(grad_final_state), backward},
                    {LINEAR(grad_initial_state), backward},
                    {LINEAR(denominators), divided},
                    {LINEAR(initial_sum), divided},
                    {LINEAR(final_sum), divided},
                    {LINEAR(grad_final_sum), backward && divided},
                    {LINEAR(grad_initial_sum), backward && divided}};
    for (size_t k = 0; k < sizeof requests / sizeof *requests; k++)
        if (requests[k].present) linear_request(tensors, requests[k].t);
}

double linear_number(const attn_linear_problem *problem, int t, random_state *random)
{
    if (t == LINEAR(feature_matrix)) return random_normal(random);
    const double x = 2 * random_unit(random) - 1, width = sqrt((double)problem->shape.dim_qk + 1);
    if (t == LINEAR(decay)) return -0.5 * (1 + x);
    if (t == LINEAR(beta)) return 0.5 * (1 + x);
    if (t == LINEAR(initial_sum)) return 1 + x;
    if (t == LINEAR(erase) || t == LINEAR(write) || (t == LINEAR(k) && problem->rule)) return x / width;
    return x;
}
