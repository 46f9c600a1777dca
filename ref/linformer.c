/* SPDX-License-Identifier: MIT
 * linformer.c - projections along the tokens by definition: y_r = sum_j E_jr x_j. */
#include "attn_ref.h"

static const double *row_of(const double *X, int64_t head, int64_t len, int64_t dim, int64_t j)
{
    return X + (head * len + j) * dim;
}

void ref_linformer(int64_t B, int64_t H, int64_t n, int64_t R, int64_t D, int shared, const double *E, const double *X, double *Y)
{
    for (int64_t head = 0; head < B * H; head++)
        for (int64_t r = 0; r < R; r++)
            for (int64_t c = 0; c < D; c++) {
                double sum = 0;
                for (int64_t j = 0; j < n; j++) sum += E[((shared ? 0 : head % H) * n + j) * R + r] * row_of(X, head, n, D, j)[c];
                Y[(head * R + r) * D + c] = sum;
            }
}

void ref_linformer_backward(int64_t B, int64_t H, int64_t n, int64_t R, int64_t D, int shared, const double *E, const double *X,
                            const double *dY, double *dX, double *dE)
{
    for (int64_t i = 0; i < (shared ? 1 : H) * n * R; i++) dE[i] = 0;
    for (int64_t head = 0; head < B * H; head++)
        for (int64_t j = 0; j < n; j++)
            for (int64_t c = 0; c < D; c++) {
                double *dx = &dX[(head * n + j) * D + c];
                *dx = 0;
                for (int64_t r = 0; r < R; r++) {
                    const int64_t at = ((shared ? 0 : head % H) * n + j) * R + r;
                    const double dy = row_of(dY, head, R, D, r)[c];
                    *dx += E[at] * dy;
                    dE[at] += row_of(X, head, n, D, j)[c] * dy;
                }
            }
}
