/* SPDX-License-Identifier: MIT
 * product.h - the rules of a product of matrices. */
#ifndef ATTN_PLAN_PRODUCT_H
#define ATTN_PLAN_PRODUCT_H

#include "attn/product.h"

/* On success no default type or stride is left. */
attn_status attn_product_resolve(attn_product_problem *problem, attn_error *error);
attn_status attn_product_pointers(const attn_product_problem *problem, const void *a, const void *b, const void *c,
                                  attn_error *error);

#endif
