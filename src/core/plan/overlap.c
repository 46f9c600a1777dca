/* SPDX-License-Identifier: MIT
 * overlap.c - whether two tensors share elements, for the core (src/common/overlap.h). */
#include "tensors.h"

int attn_elements_coincide(const attn_elements *a, const attn_elements *b) { return elements_coincide(a, b); }

int attn_elements_meet(const attn_elements *a, const attn_elements *b) { return elements_meet(a, b); }

int attn_elements_meet_bytes(const attn_elements *a, attn_bytes memory)
{
    const int64_t shape[4] = {1, 1, 1, (int64_t)memory.count}, stride[4] = {0, 0, 0, 1};
    return elements_meet(a, &(attn_elements){memory.base, shape, stride, 1});
}
