/* SPDX-License-Identifier: MIT
 * broadcast_sum.c - sums over heads, rows and columns that share an element of a table. */
#include "broadcast_sum.h"

#include "../base/element.h"

void attn_broadcast_sum(const attn_layout *layout, void *gradient, int per_head, const int64_t size[3],
                        attn_table_gradient *element, const void *context)
{
    const int64_t *stride = layout->stride;
    const int own[3] = {per_head, stride[2] != 0, stride[3] != 0};
    int64_t at[3], kept[3], low[3], high[3];
    for (int axis = 0; axis < 3; axis++) kept[axis] = own[axis] ? size[axis] : 1;
    for (at[0] = 0; at[0] < kept[0]; at[0]++)
        for (at[1] = 0; at[1] < kept[1]; at[1]++)
            for (at[2] = 0; at[2] < kept[2]; at[2]++) {
                double sum = 0;
                for (int axis = 0; axis < 3; axis++) {
                    low[axis] = own[axis] ? at[axis] : 0;
                    high[axis] = own[axis] ? at[axis] + 1 : size[axis];
                }
                for (int64_t h = low[0]; h < high[0]; h++)
                    for (int64_t r = low[1]; r < high[1]; r++)
                        for (int64_t k = low[2]; k < high[2]; k++) sum += element(context, h, r, k);
                attn_element_put(gradient, layout->dtype, at[0] * stride[1] + at[1] * stride[2] + at[2] * stride[3], sum);
            }
}
