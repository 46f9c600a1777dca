/* SPDX-License-Identifier: MIT
 *
 * call.h - a check case with its data: all arguments of a library call, in guarded memory.
 */
#ifndef ATTN_TESTING_CASE_CALL_H
#define ATTN_TESTING_CASE_CALL_H

#include "case.h"
#include "testing/bound/expect.h"
#include "testing/bound/flow.h"
#include "testing/memory/tensor.h"
#include "testing/random/random.h"

typedef struct check_call {
    attn_problem problem;
    attn_tensors tensors; /* inputs; outputs once check_outputs_create has placed them */
    attn_call call;
    attn_paging paging; /* of the problem: its keys and values are drawn without pages, and then laid in them */
    tensor in[TENSORS]; /* the memory of the inputs, by number */
    expectation expected;
    flows flows; /* empty in forward */
} check_call;

/* Draws the inputs from the seed of the case, without pages, and no more; *random is then the state after them.  The drawing of
 * dropout has the case's seed, as `attn run` has it. */
attn_status check_inputs_create(check_call *call, const check_case *c, random_state *random, attn_error *error);

/* Draws the data from the seed of the case, computes the expected results, poisons what no query may see, and makes the inputs
 * read-only.  Returns ATTN_ERR_UNSUPPORTED if this version of the library has no such problem, ATTN_ERR_MEMORY. */
attn_status check_call_create(check_call *call, const check_case *c, attn_error *error);
void check_call_destroy(check_call *call);

/* Outputs by tensor number.  o and lse are included as inputs of the operations after forward. */
typedef struct check_outputs {
    tensor tensors[TENSORS];
    double *numbers[TENSORS]; /* after check_outputs_take, [batch][head][token][channel]; NULL: not written */
} check_outputs;

/* Allocates the outputs, laid out as the case requires, and puts them into call->tensors.  Returns 0 if out of memory. */
int check_outputs_create(check_outputs *out, check_call *call, const check_case *c);
/* Reads the outputs.  Returns NULL, or the name of one that was written outside its elements ("o", "lse", "grad_q"). */
const char *check_outputs_take(check_outputs *out, const check_call *call);
void check_outputs_destroy(check_outputs *out);

/* The address of element (b, h, i, c) of a tensor with tokens.  begin: the offsets of packed sequences, or NULL if not packed.
 * Returns NULL past the end of a sequence. */
void *token_at(const tensor *t, const int64_t *begin, int64_t b, int64_t h, int64_t i, int64_t c);

/* Lays tensor t out in guarded memory according to the case's `memory`, and fills in its slot; dense strides are given as zeros, to
 * test that, too.  tokens: of all packed sequences; -1: not packed.  Returns 0 if out of memory. */
int place_tensor(tensor *to, check_call *call, int t, const check_case *c, int64_t tokens);

#endif
