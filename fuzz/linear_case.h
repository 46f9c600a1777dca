/* SPDX-License-Identifier: MIT
 * linear_case.h - one drawn problem of linear attention with its tensors.  fuzz_linear.c checks, linear_draw.c draws,
 * linear_reference.c compares with ref/. */
#ifndef ATTN_FUZZ_LINEAR_CASE_H
#define ATTN_FUZZ_LINEAR_CASE_H

#include "attn/linear.h"
#include "block.h"
#include "draws.h"
#include "target.h"

/* The order of attn_tensor_describe, which linear_draw checks. */
enum {
    L_Q,
    L_K,
    L_V,
    L_O,
    L_N,
    L_OMEGA,
    L_DECAY,
    L_BETA,
    L_ERASE,
    L_WRITE,
    L_LENGTHS,
    L_S0,
    L_Z0,
    L_S1,
    L_Z1, /* clang-format off */
    L_DO, L_DS1, L_DZ1, L_DQ, L_DK, L_DV, L_DDECAY, L_DBETA, L_DERASE, L_DWRITE, L_DS0, L_DZ0, L_TENSORS /* clang-format on */
};

enum { L_MORE = 3 }; /* after them: cu_seqlens and the lists of slots, which linear_ragged.c sets */

typedef struct linear_case {
    draws *from;
    attn_tensor_description about[L_TENSORS];
    block blocks[L_TENSORS];
    attn_linear_problem problem;
    attn_linear_tensors tensors;
    attn_options options;
    int gentle;    /* sizes and numbers whose sums stay bounded: compared with ref/ */
    int special;   /* NaN, infinities and huge numbers are among the inputs */
    int hostile;   /* a field was replaced by an invalid or huge value */
    int plan_only; /* several sizes were: there is no memory for its tensors, and no time if they have no elements */
    int saved;     /* backward: o and denominators were computed by a forward */
} linear_case;

attn_output *linear_slot(attn_linear_tensors *tensors, const linear_case *c, int t);
static inline int linear_has(const linear_case *c, int t) { return c->blocks[t].name != NULL; }
/* The number of tokens of entry e. */
int64_t linear_length(const linear_case *c, int64_t e);

/* Draws the case, allocates and fills its tensors; returns the plan, or NULL if it was rejected or is too large. */
attn_linear_plan *linear_draw(linear_case *c);
attn_linear_plan *linear_plan(const linear_case *c, const attn_linear_problem *problem, const attn_linear_tensors *tensors,
                              const attn_options *options, attn_error *error);

/* After a run: the same case as a ragged batch. */
void linear_ragged(const linear_case *c, const attn_linear_plan *plan);

/* After a run: every output against ref/. */
void linear_reference(const linear_case *c);

#endif
