/* SPDX-License-Identifier: MIT
 *
 * combination.h - a problem string with random numbers in its tensors, for the library and for ref/.  The order of axes in memory
 * is drawn for each tensor.
 */
#ifndef ATTN_TESTS_COMBINATION_H
#define ATTN_TESTS_COMBINATION_H

#include "attn/schedule.h"
#include "attn_ref.h"
#include "tensor.h"
#include "testing/problem/problem.h"
#include "testing/problem/tensors.h"

typedef struct combination {
    char text[400]; /* the problem string, for messages */
    attn_problem problem;
    attn_tensors tensors; /* for all operations: each takes the ones it uses */
    attn_call call;
    attn_origin origin;
    ref_problem ref;
    int64_t *start_q, *start_kv; /* packed */
    int scheduled;               /* 1: forward runs with a schedule */
    int64_t *page_starts, *page_index, *last_page;
    int64_t *offset, *offset_of_ref, *length_q, *length_kv;
    int64_t *ranges, *ranges_of_ref, *block_starts, *block_index;
    unsigned char *keep;
    double *Z;
    void *paged[4]; /* k, v and their scales in pages */
    int64_t *page_table;
    uint64_t *tree, *tree_of_ref;
    tensor of[TENSORS]; /* by tensor number: all tensors drawn, with or without a slot; o and lse */
    int statistics;     /* 1: outcomes of forward include weights and statistics */
    int invariant;      /* attn_options.invariant of forward */
    int reproducible;   /* attn_options.reproducible */
    int chooses;        /* 1: of the optional outputs, outcomes have only the `requested` ones */
    unsigned char requested[TENSORS];
    int visits; /* 1, with `chooses`: outcomes of forward have the rows passed to visit_rows */
} combination;

/* Fills or clears the slot of tensor t. */
void combination_give(combination *c, int t);
void combination_drop(combination *c, int t);

/* A random combination of all options and sizes. */
void random_problem(problem_spec *spec, uint64_t seed, attn_dtype dtype);

/* FINITE: nothing is poisoned; without it, elements that no query may see are NaN.  MORE: random options that problem strings have
 * no words for.  KIND: the score kind that the seed chooses.  TABLE: a bias by distance.  MODIFY: a modifier.  RELATIVE: relative
 * keys and values, and u and v (not with KIND).  FULL: the first sequence of a ragged batch has the full length.  The options of
 * MORE one by one: DILATION, GLOBAL, RANGES, LISTS of blocks, a GIVEN dropout mask.  DISTANT: a least distance of keys.  PART: the
 * call has an origin.  INTEGERS: keys, values or both are i8 or f8, IN_BLOCKS: or blocks, if their channels fill them.  PAGES: keys
 * and values are paged, by a table, PAGE_LISTS: by lists.  TREE: a tree of drafts.  HEAD_LISTS: lists of blocks of each key head,
 * CHOICES: one for each of them.  TYPES: k, v, o, grad_o and bias have random types of 32 and 16 bits.  STRIDED: tensors of tokens
 * have gaps. */
enum {
    FINITE = 1,
    MORE = 2,
    KIND = 4,
    TABLE = 8,
    MODIFY = 16,
    RELATIVE = 32,
    FULL = 64,
    DILATION = 128,
    GLOBAL = 256,
    RANGES = 512,
    LISTS = 1024,
    GIVEN = 2048,
    PART = 4096,
    INTEGERS = 8192,
    PAGES = 16384,
    TYPES = 32768,
    STRIDED = 65536,
    DISTANT = 131072,
    PAGE_LISTS = 262144,
    TREE = 524288,
    HEAD_LISTS = 1048576,
    CHOICES = 2097152,
    IN_BLOCKS = 4194304
};

/* The flag of a step by its name in the text of a combination; 0 if there is none. */
int combination_step(const char *name);

/* Draws numbers from spec->seed.  q, k, v, o, bias and their gradients and tangents have the spec's type. */
void combination_of(combination *c, const problem_spec *spec, int flags);
/* text: a problem string, then names of steps after spaces: "bwd:f64:sq9:d8:seed=7 more kind table". */
void combination_parse(combination *c, const char *text, int flags);
/* A random problem, with MORE and `flags`. */
void combination_draw(combination *c, uint64_t seed, attn_dtype dtype, int flags);

extern const char combination_with_more[];
/* Appends a word to the text of a combination. */
void combination_say(combination *c, const char *name);
/* The steps of MORE. */
void combination_more(combination *c, random_state *random);
void combination_ranges(combination *c, random_state *random);
void combination_block_lists(combination *c, random_state *random);
void combination_given(combination *c, random_state *random);
void combination_tree(combination *c, random_state *random);
void combination_head_lists(combination *c, int one_each, random_state *random);
/* The steps of PART: draws the origin; translates it for ref/, which has none. */
void combination_origin(combination *c, random_state *random);
void combination_place(combination *c);
/* A schedule of a plan in exactly the memory that it asks for, which is *memory: free() it. */
const attn_schedule *combination_schedule(const combination *c, const attn_plan *plan, const attn_tensors *tensors, void **memory);

/* The steps of INTEGERS, IN_BLOCKS and PAGES, after all tensors are drawn. */
void combination_integers(combination *c, int blocks, random_state *random);
void combination_pages(combination *c, int lists, random_state *random);
/* The step of KIND. */
void combination_kind(combination *c, random_state *random, attn_score_kind kind);
/* The step of TABLE. */
void combination_table(combination *c, random_state *random, int finite);
/* The step of RELATIVE. */
void combination_relative(combination *c, random_state *random, int finite);
/* The step of MODIFY. */
void combination_modify(combination *c);
void combination_apply_mask(combination *c, const tensor *mask, int64_t block_q, int64_t block_kv);

void combination_free(combination *c);

/* The compute type: that of lse and of numbers per head. */
attn_dtype combination_compute(const combination *c);
/* The unit roundoff of o in a 16-bit type; 0 for other types. */
double combination_storage_unit(const combination *c);

/* Plans `op` on the tensors that it uses, and on those flagged in `others` by number, which may be NULL. */
attn_status combination_plan(combination *c, attn_op op, attn_isa isa, int threads, const unsigned char *others, attn_plan **plan,
                             attn_error *error);

/* Runs `op` on the tensors that it uses.  Fails the test on any error, and if bytes after the workspace change.  Returns 0 if this
 * CPU lacks the instruction set. */
int combination_run(combination *c, attn_op op, attn_isa isa, int threads);

/* The same over parts of so many queries and keys (attn/distributed.h), on one rank.  Returns 0 if parts do not have it. */
int combination_run_parts(combination *c, attn_op op, int64_t part, int any_order);

/* Computes o and lse by the library's forward. */
int combination_forward(combination *c, attn_isa isa);

/* The dense values of an incoming gradient or tangent, for ref/; NULL if it is not given. */
const double *combination_flow(const combination *c, int t);

#endif
