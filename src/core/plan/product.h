/* SPDX-License-Identifier: MIT
 * product.h - the rules of a matrix product. */
#ifndef ATTN_PLAN_PRODUCT_H
#define ATTN_PLAN_PRODUCT_H

#include "../../common/overlap.h"
#include "../walk/product/product.h"

/* Sizes and type, with defaults resolved; strides are set to dense. */
attn_status attn_product_resolve(const attn_product_problem *problem, attn_product_matrices *m, attn_error *error);
/* Then the layout of the matrices, checked. */
attn_status attn_product_lay_out(const attn_product_tensors *tensors, attn_product_matrices *m, attn_error *error);

/* That none of them shares memory with the workspace. */
attn_status attn_product_check_workspace(const attn_product_matrices *m, attn_bytes workspace, attn_error *error);

#endif
