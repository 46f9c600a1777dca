/* SPDX-License-Identifier: MIT
 *
 * call.h - a check case with its data: everything that a call of the library takes, in guarded memory.
 */
#ifndef ATTN_CLI_CHECK_CALL_H
#define ATTN_CLI_CHECK_CALL_H

#include "case.h"
#include "expect.h"
#include "tensor.h"

typedef struct check_call {
    attn_problem problem;
    attn_args args; /* inputs; check_outputs_create sets the outputs */
    tensor q, k, v, mask, bias;
    guarded lengths_q, lengths_kv, offset;
    expectation expected;
} check_call;

/* Draws the data from the seed of the case, computes what is expected of it, poisons what no query may see, and makes the inputs
 * read-only.  Returns ATTN_ERR_UNSUPPORTED where this version of the library has no such problem, ATTN_ERR_MEMORY. */
attn_status check_call_create(check_call *call, const check_case *c, attn_error *error);
void check_call_destroy(check_call *call);

typedef struct check_outputs {
    tensor o, lse, weights; /* the last two only where the problem wants them */
    double *O, *L, *P;      /* after check_outputs_take; NULL where the problem does not want them */
} check_outputs;

/* Memory for the outputs, laid out as the case says; sets args->o and the rest.  0 where memory is out. */
int check_outputs_create(check_outputs *out, check_call *call, const check_case *c);
/* Reads the outputs.  Returns NULL, or which of them had something written beside its elements ("o", "lse", "weights"). */
const char *check_outputs_take(check_outputs *out);
void check_outputs_destroy(check_outputs *out);

#endif
