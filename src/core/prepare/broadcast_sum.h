/* SPDX-License-Identifier: MIT
 * broadcast_sum.h - the gradient of a table that broadcasts over heads, rows or columns: the sum over them. */
#ifndef ATTN_PREPARE_BROADCAST_SUM_H
#define ATTN_PREPARE_BROADCAST_SUM_H

#include "../base/problem.h"

/* The gradient of element (h, r, k) if nothing were shared. */
typedef double attn_table_gradient(const void *context, int64_t h, int64_t r, int64_t k);

/* Stores the gradient of heads x rows x columns elements, added by ascending h, r and k.  An axis is shared if its stride is 0, or
 * for heads if !per_head; a shared axis of size 0 still has one element, the empty sum 0. */
void attn_broadcast_sum(const attn_layout *layout, void *gradient, int per_head, const int64_t size[3],
                        attn_table_gradient *element, const void *context);

#endif
