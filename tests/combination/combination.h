/* SPDX-License-Identifier: MIT
 *
 * combination.h - a problem string with random numbers in its tensors: for the library, and the same for ref/.  Every tensor has an
 * order of axes of its own.
 */
#ifndef ATTN_TESTS_COMBINATION_H
#define ATTN_TESTS_COMBINATION_H

#include "attn_ref.h"
#include "tensor.h"
#include "testing/problem/problem.h"
#include "testing/problem/tensors.h"

typedef struct combination {
    char text[400]; /* the problem string, for messages */
    attn_problem problem;
    attn_tensors tensors; /* of all operations: each takes those that it has a use for */
    attn_call call;
    attn_origin origin;
    ref_problem ref;
    int64_t *start_q, *start_kv; /* packed */
    int64_t *offset, *offset_of_ref, *length_q, *length_kv;
    int64_t *ranges, *ranges_of_ref, *block_starts, *block_index;
    unsigned char *keep;
    double *Z;
    void *paged[4]; /* k, v and their scales in pages */
    int64_t *page_table;
    tensor of[TENSORS]; /* by number: what is drawn, whether its slot is filled in or not, o and lse */
    int statistics;     /* 1: outcomes of forward have weights and statistics too */
    int invariant;      /* attn_options.invariant of forward */
    int reproducible;   /* attn_options.reproducible */
    int chooses;        /* 1: of the outputs that may be left out, outcomes have only the wanted ones */
    unsigned char wanted[TENSORS];
    int visits; /* 1, with `chooses`: outcomes of forward have the rows that visit_rows shows */
} combination;

/* Fills in the slot of tensor t, or takes it away. */
void combination_give(combination *c, int t);
void combination_drop(combination *c, int t);

/* A random combination of all options and sizes. */
void random_problem(problem_spec *spec, uint64_t seed, attn_dtype dtype);

/* FINITE: nothing is poisoned; else what no query may see is NaN.  MORE: with options that problem strings have no words for.
 * KIND: with the score kind that the seed says.  TABLE: with a bias by distance.
 * MODIFY: with a modifier.  RELATIVE: with relative keys and values, and u and v (not with KIND).
 * FULL: of a ragged batch, the first sequence is as long as the tensors.  One at a time what MORE draws: DILATION, GLOBAL, RANGES,
 * LISTS of blocks, a GIVEN dropout mask.  DISTANT: keys have a least distance.  PART: the call has an origin.  INTEGERS: keys,
 * values or both are of 8 bits.  PAGES: keys and values lie in pages.  TYPES: k, v, o, grad_o and bias have drawn types of 32 and
 * 16 bits. STRIDED: tensors of tokens have gaps. */
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
    DISTANT = 131072
};

/* The flag of a step by its name in the text of a combination; 0: there is none. */
int combination_step(const char *name);

/* Numbers are drawn from spec->seed.  q, k, v, o, bias and their gradients and tangents are of its type. */
void combination_of(combination *c, const problem_spec *spec, int flags);
/* A problem string, and behind spaces the names of steps: "bwd:f64:sq9:d8:seed=7 more kind table". */
void combination_parse(combination *c, const char *text, int flags);
/* Any problem, with MORE. */
void combination_draw(combination *c, uint64_t seed, attn_dtype dtype, int finite);

extern const char combination_with_more[];
/* Adds a word to the text of a combination. */
void combination_say(combination *c, const char *name);
/* The steps of MORE, and what they need. */
void combination_more(combination *c, random_state *random);
void combination_ranges(combination *c, random_state *random);
void combination_block_lists(combination *c, random_state *random);
void combination_given(combination *c, random_state *random);
/* Those of PART: draws the origin; brings it into what ref/ has. */
void combination_origin(combination *c, random_state *random);
void combination_place(combination *c);
/* Those of INTEGERS and PAGES, when all tensors are drawn. */
void combination_integers(combination *c, random_state *random);
void combination_pages(combination *c, random_state *random);
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

/* The type that numbers for each head, and lse, have. */
attn_dtype combination_compute(const combination *c);
/* The rounding unit of o where it has 16 bits; 0 for other types. */
double combination_storage_unit(const combination *c);

/* Another tensor of the same shape, type and layout. */
tensor combination_like(const tensor *t);

/* Plans `op` on the tensors that it has a use for; and those of `others`, which may be NULL, by number. */
attn_status combination_plan(combination *c, attn_op op, attn_isa isa, int threads, const unsigned char *others, attn_plan **plan,
                             attn_error *error);

/* Runs `op` on the tensors that it has a use for.  Fails the test on any error, and where bytes behind the workspace change.
 * Returns 0 where this CPU lacks the instruction set. */
int combination_run(combination *c, attn_op op, attn_isa isa, int threads);

/* o and lse by the library's own forward. */
int combination_forward(combination *c, attn_isa isa);

/* What flows in as ref/ wants it: NULL where it is not given. */
const double *combination_flow(const combination *c, int t);

#endif
