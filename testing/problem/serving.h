/* SPDX-License-Identifier: MIT
 *
 * serving.h - what batches of inference engines have besides lengths: trees of drafts, and prefixes that sequences share. */
#ifndef ATTN_TESTING_PROBLEM_SERVING_H
#define ATTN_TESTING_PROBLEM_SERVING_H

#include "attn/schedule.h"
#include "problem.h"
#include "testing/random/random.h"

/* The rows of attn_tensors.tree for one sequence, [queries][ceil(drafts / 64)]: a random tree, each draft after its parent, if it
 * has one.  Query i is draft i - queries + drafts, and sees it and its ancestors; queries before the drafts see none of them. */
void serving_tree(int64_t drafts, int64_t queries, uint64_t *rows, random_state *random);

/* What a schedule of the problem may know; *prefix is the memory of the prefix that all sequences share. */
attn_schedule_options serving_options(const problem_spec *spec, attn_prefix *prefix);

/* Gives all sequences the same first pages: table [batch][pages of a sequence], whose numbers are those of `order`, in this order,
 * one for each page that there is; -1 past `lengths` (NULL: none are short).  Returns how many pages have keys. */
int64_t serving_pages(const problem_spec *spec, const int64_t *lengths, const int64_t *order, int64_t *table);

#endif
