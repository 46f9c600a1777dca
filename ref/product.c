/* SPDX-License-Identifier: MIT
 * product.c - a matrix product by definition. */
#include "attn_ref.h"

void ref_product(const ref_matrices *p, const double *A, const double *B, double *C)
{
    for (int64_t i = 0; i < p->rows; i++)
        for (int64_t j = 0; j < p->columns; j++) {
            double sum = 0;
            for (int64_t k = 0; k < p->inner; k++)
                sum += (p->a_transposed ? A[k * p->stride_a + i] : A[i * p->stride_a + k]) *
                       (p->b_transposed ? B[j * p->stride_b + k] : B[k * p->stride_b + j]);
            C[i * p->stride_c + j] = p->add ? C[i * p->stride_c + j] + sum : sum;
        }
}
