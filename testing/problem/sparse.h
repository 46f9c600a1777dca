/* SPDX-License-Identifier: MIT
 *
 * sparse.h - the masks that sparse= names, "longformer/256/16+prefix/4": as fields and tensors of a problem wherever attention has
 * some for them, so that it skips what they hide, and else as a matrix.
 */
#ifndef ATTN_TESTING_PROBLEM_SPARSE_H
#define ATTN_TESTING_PROBLEM_SPARSE_H

#include "pattern.h"
#include "problem.h"

enum { SPARSE_MOST = 8 }; /* masks of a word */

/* The masks of a word in their order; not to be copied. */
typedef struct sparse_masks {
    named_pattern named[SPARSE_MOST];
    int count;
} sparse_masks;

/* ATTN_ERR_ARGUMENT: an unknown name, numbers that a mask does not have, or one that has a word of its own. */
attn_status sparse_parse(const char *text, uint64_t seed, sparse_masks *masks, attn_error *error);

/* What the masks of a spec are for the library, with its causal mask, window and chunk, which may be one with them. */
typedef struct sparse_mask {
    attn_pattern_set *set; /* owns what the slots point to */
    attn_mask fields;
    attn_tensors slots;                  /* ranges, block_starts and block_index, i64; the others are absent */
    int64_t rows;                        /* of keep: 0 (there is none), 1 (the same for all queries) or those of the problem */
    unsigned char *keep;                 /* [rows][keys], for the slot `mask`; NULL after sparse_plan */
    const char *matrix[SPARSE_MOST + 1]; /* the names of those that need a matrix; NULL after the last */
    char names[SPEC_SPARSE];             /* what `matrix` points to */
} sparse_mask;

/* *mask is empty if the spec has no sparse=.  sparse_plan leaves out what takes memory of queries x keys.  ATTN_ERR_ARGUMENT:
 * numbers that do not fit the problem; ATTN_ERR_UNSUPPORTED: a mask by positions that each entry has its own of.  Release with
 * sparse_free, also after a failure. */
attn_status sparse_plan(sparse_mask *mask, const problem_spec *spec, attn_error *error);
attn_status sparse_make(sparse_mask *mask, const problem_spec *spec, attn_error *error);
void sparse_free(sparse_mask *mask);

/* ATTN_ERR_UNSUPPORTED if the masks need more than fields, relative to positions: for problems of which each of several processes
 * has a part. */
attn_status sparse_check_fields(const problem_spec *spec, attn_error *error);

/* Puts fields and slots into a problem that has no such yet; slots are ATTN_LATER with `later`, else the data of *mask.  The mask
 * that the spec draws or a file has (spec->mask) gets an axis of queries and keys where `keep` needs it. */
attn_status sparse_put(const sparse_mask *mask, const problem_spec *spec, int later, attn_problem *problem, attn_tensors *tensors,
                       attn_error *error);

/* Clears the bytes of a dense mask [...][rows][keys] where `keep` hides a key. */
void sparse_hide(const sparse_mask *mask, int64_t keys, int64_t count, unsigned char *bytes);

#endif
