/* SPDX-License-Identifier: MIT
 * hopfield.c - the modern Hopfield network by definition: one state x of N numbers, M patterns X. */
#include <math.h>

#include "attn_ref.h"

double ref_hopfield_update(int64_t M, int64_t N, double beta, const double *X, const double *x, double *p, double *updated)
{
    double most = -INFINITY, sum = 0, square = 0;
    for (int64_t m = 0; m < M; m++) {
        p[m] = 0;
        for (int64_t c = 0; c < N; c++) p[m] += beta * X[m * N + c] * x[c];
        most = fmax(most, p[m]);
    }
    for (int64_t m = 0; m < M; m++) sum += exp(p[m] - most);
    for (int64_t m = 0; m < M; m++) p[m] = exp(p[m] - most) / sum;
    for (int64_t c = 0; c < N; c++) {
        updated[c] = 0;
        for (int64_t m = 0; m < M; m++) updated[c] += p[m] * X[m * N + c];
        square += x[c] * x[c];
    }
    return square / 2 - (most + log(sum)) / beta;
}

void ref_hopfield_backward(int64_t M, int64_t N, double beta, const double *X, const double *x, const double *p,
                           const double *grad_updated, double grad_energy, double *grad_x, double *grad_X)
{
    double mean = 0;
    for (int64_t m = 0; m < M; m++)
        for (int64_t c = 0; c < N; c++) mean += p[m] * grad_updated[c] * X[m * N + c];
    for (int64_t c = 0; c < N; c++) grad_x[c] = grad_energy * x[c];
    for (int64_t m = 0; m < M; m++) {
        double through = 0;
        for (int64_t c = 0; c < N; c++) through += grad_updated[c] * X[m * N + c];
        const double score = p[m] * (through - mean) - grad_energy * p[m] / beta; /* the gradient of beta X_m.x */
        for (int64_t c = 0; c < N; c++) {
            grad_x[c] += score * beta * X[m * N + c];
            grad_X[m * N + c] += score * beta * x[c] + p[m] * grad_updated[c];
        }
    }
}
