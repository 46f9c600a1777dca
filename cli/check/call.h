/* SPDX-License-Identifier: MIT
 *
 * call.h - a check case with its data: everything that a call of the library takes, in guarded memory.
 */
#ifndef ATTN_CLI_CHECK_CALL_H
#define ATTN_CLI_CHECK_CALL_H

#include "case.h"
#include "expect.h"
#include "flow.h"
#include "tensor.h"

typedef struct check_call {
    attn_problem problem;
    attn_args args; /* inputs; check_outputs_create sets the outputs */
    tensor q, k, v, mask, blocks, bias;
    tensor k_scale, v_scale; /* of i8 */
    tensor flow[FLOWS];      /* what flows in */
    guarded lengths_q, lengths_kv, offset, begin_q, begin_kv;
    guarded slopes, sink, scale, w, bias_table, relative_keys, relative_values, relative_u, relative_v;
    expectation expected;
    flows flows; /* empty in forward */
} check_call;

/* Draws the data from the seed of the case, computes what is expected of it, poisons what no query may see, and makes the inputs
 * read-only.  Returns ATTN_ERR_UNSUPPORTED where this version of the library has no such problem, ATTN_ERR_MEMORY. */
attn_status check_call_create(check_call *call, const check_case *c, attn_error *error);
void check_call_destroy(check_call *call);

typedef struct check_outputs {
    tensor o, lse, weights; /* the last two only where the problem wants them; o and lse are inputs of what follows forward */
    tensor flow[FLOWS];
    double *O, *L, *P; /* after check_outputs_take; NULL where forward does not write them */
    double *flow_numbers[FLOWS];
} check_outputs;

/* Memory for the outputs, laid out as the case says; sets args->o and the rest.  0 where memory is out. */
int check_outputs_create(check_outputs *out, check_call *call, const check_case *c);
/* Reads the outputs.  Returns NULL, or which of them had something written beside its elements ("o", "lse", "grad_q"). */
const char *check_outputs_take(check_outputs *out, const check_call *call);
void check_outputs_destroy(check_outputs *out);

/* Where element (b, h, i, c) of a tensor with tokens lies: begin is NULL, or where each packed sequence begins; NULL behind its
 * end. */
void *token_at(const tensor *t, const int64_t *begin, int64_t b, int64_t h, int64_t i, int64_t c);

/* How a tensor lies under the case's kind of memory, which its number decides: see place.c. */
enum { T_Q, T_K, T_V, T_O, T_LSE, T_WEIGHTS, T_MASK, T_BIAS };
/* Creates it and tells the problem its layout: as zeros where it is the plain one, to test that too.  tokens: of all packed
 * sequences; -1: not packed, or no axis of tokens.  0 where memory is out. */
int place_tensor(tensor *t, attn_layout *layout, attn_dtype dtype, const int64_t size[4], const check_case *c, int which,
                 int64_t tokens);

#endif
