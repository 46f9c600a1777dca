/* SPDX-License-Identifier: MIT
 * fill.h - the data of a check case. */
#ifndef ATTN_TESTING_CASE_FILL_H
#define ATTN_TESTING_CASE_FILL_H

#include "call.h"
#include "testing/random/random.h"

/* Writes q, k and v, and the incoming gradients and tangents. */
void fill_tensors(check_call *call, const check_case *c, random_state *random);
/* Writes the mask (zero with probability `drop`) and the bias (some -infinity, some very negative numbers). */
void fill_mask(tensor *mask, double drop, random_state *random);
void fill_bias(tensor *bias, const check_case *c, random_state *random);
/* Draws a tree of drafts for each sequence. */
void fill_tree(check_call *call, const check_case *c, random_state *random);
/* Gives all sequences the first keys and values of the first one, as many as they share. */
void fill_prefix(check_call *call, const check_case *c);
/* Puts a few NaN into the input that c->plant names, before the reference runs. */
void fill_plant(check_call *call, const check_case *c, random_state *random);
/* Overwrites everything that no query may read, after the reference has run. */
void fill_poison(check_call *call, const check_case *c);

#endif
