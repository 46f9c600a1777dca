/* SPDX-License-Identifier: MIT
 * broadcast_sum.h - the gradient of a table whose elements heads, rows or columns share: the sum over those that do. */
#ifndef ATTN_PREPARE_BROADCAST_SUM_H
#define ATTN_PREPARE_BROADCAST_SUM_H

#include "../base/problem.h"

/* What element (h, r, k) of the table, were nothing shared, has as gradient. */
typedef double attn_table_gradient(const void *context, int64_t h, int64_t r, int64_t k);

/* Stores the gradient of heads x rows x columns elements, added by ascending h, r and k.  An axis is shared where its stride is 0,
 * or not per_head; one of size 0 that is shared has an element all the same, a sum of nothing: 0. */
void attn_broadcast_sum(const attn_layout *layout, void *gradient, int per_head, const int64_t size[3],
                        attn_table_gradient *element, const void *context);

#endif
