/* SPDX-License-Identifier: MIT
 *
 * matrix.h - a part of a kernel: matrix products.  It shares no buffers with the others: its packed rows and panels are its own.
 */
#ifndef ATTN_KERNELS_PART_MATRIX_H
#define ATTN_KERNELS_PART_MATRIX_H

#include <stdint.h>

/*
 * The steps of a matrix product, C = A B, or C += A B with `add`.  Rows of C are ldc apart, of B ldb; a(i, k) = A[i*row + k*step].
 * All but `dots` sum the terms of one call in one chain from 0, k ascending, so that any of them may compute any part of C.
 */
typedef struct attn_matrix_part {
    int lanes, vectors, group;
    /* packed[k][i] = X[k*ld + i], or transposed X[i*ld + k], for i < count and k < steps.  Rows of A: [steps][group]; a panel of B:
     * [steps][lanes * vectors].  Elements from `count` up to a multiple of lanes are 0, and later ones are not written. */
    void (*pack)(int panel, int64_t count, int64_t steps, const void *X, int64_t ld, int transposed, void *packed);
    /* A: consecutive groups of packed rows; B: a packed panel; columns <= lanes * vectors. */
    void (*multiply)(int64_t rows, int64_t columns, int64_t steps, const void *A, const void *B, int add, void *C, int64_t ldc);
    /* A and B not packed: reads B once for every few rows. */
    void (*in_place)(int64_t rows, int64_t columns, int64_t steps, const void *A, int64_t row, int64_t step, const void *B,
                     int64_t ldb, int add, void *C, int64_t ldc);
    /* Reads B once, ATTN_SWEEP_STEPS rows at a time, and C for each of these.  go_on: the chains continue from C.  add requires
     * steps <= ATTN_SWEEP_STEPS. */
    void (*sweep)(int64_t rows, int64_t columns, int64_t steps, const void *A, int64_t row, int64_t step, const void *B,
                  int64_t ldb, int go_on, int add, void *C, int64_t ldc);
    /* C = or += S. */
    void (*join)(int64_t count, const void *S, int add, void *C);
    /* With B transposed, b(k, j) = B[j*ldb + k], and rows of A lda apart: reads B once for 4 rows.  Each lane is a chain of every
     * lanes-th term, and a tree adds the lanes. */
    void (*dots)(int64_t rows, int64_t columns, int64_t steps, const void *A, int64_t lda, const void *B, int64_t ldb, int add,
                 void *C, int64_t ldc);
} attn_matrix_part;

enum { ATTN_SWEEP_STEPS = 8 };

#endif
