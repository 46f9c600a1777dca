/* SPDX-License-Identifier: MIT
 * product.h - the rules of a product of matrices. */
#ifndef ATTN_PLAN_PRODUCT_H
#define ATTN_PLAN_PRODUCT_H

#include "../walk/product/product.h"

/* Sizes and type, of which no default is left; matrices are as if dense. */
attn_status attn_product_resolve(const attn_product_problem *problem, attn_product_matrices *m, attn_error *error);
/* And how the matrices lie, and that they can be computed with. */
attn_status attn_product_lie(const attn_product_tensors *tensors, attn_product_matrices *m, attn_error *error);

#endif
