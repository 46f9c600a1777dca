/* SPDX-License-Identifier: MIT
 * overlap.c - whether two tensors share elements, for the core (src/common/overlap.h). */
#include "tensors.h"

int attn_elements_coincide(const attn_elements *a, const attn_elements *b) { return elements_coincide(a, b); }

int attn_elements_meet(const attn_elements *a, const attn_elements *b) { return elements_meet(a, b); }
