/* SPDX-License-Identifier: MIT
 *
 * rollout.c - attention rollout: the product of the mixed weights of the layers. */
#include "rollout.h"

void rollout_mix(int64_t heads, int64_t n, const float *weights, double *mixed)
{
    for (int64_t i = 0; i < n; i++) {
        double *row = mixed + i * n, sum = 0;
        for (int64_t j = 0; j < n; j++) {
            row[j] = 0;
            for (int64_t h = 0; h < heads; h++) row[j] += (double)weights[(h * n + i) * n + j];
            row[j] /= (double)heads;
        }
        row[i] += 1;
        for (int64_t j = 0; j < n; j++) sum += row[j];
        for (int64_t j = 0; j < n; j++) row[j] /= sum;
    }
}

void rollout_multiply(int64_t n, const double *left, const double *right, double *product)
{
    for (int64_t i = 0; i < n; i++) {
        double *row = product + i * n;
        for (int64_t j = 0; j < n; j++) row[j] = 0;
        for (int64_t k = 0; k < n; k++)
            for (int64_t j = 0; j < n; j++) row[j] += left[i * n + k] * right[k * n + j];
    }
}
