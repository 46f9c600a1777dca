/* SPDX-License-Identifier: MIT
 *
 * flow.h - the tensors of gradients, tangents and second gradients: which an operation reads and writes, and what ought to stand in
 * them.
 */
#ifndef ATTN_CLI_CHECK_FLOW_H
#define ATTN_CLI_CHECK_FLOW_H

#include "compare.h"
#include "expect.h"

typedef enum flow {
    /* read */
    FLOW_GRAD_O,
    FLOW_GRAD_LSE,
    FLOW_TAN_Q,
    FLOW_TAN_K,
    FLOW_TAN_V,
    FLOW_TAN_BIAS,
    /* written by ATTN_BACKWARD */
    FLOW_GRAD_Q,
    FLOW_GRAD_K,
    FLOW_GRAD_V,
    FLOW_GRAD_BIAS,
    FLOW_GRAD_SLOPES,
    FLOW_GRAD_SINK,
    FLOW_GRAD_SCALE,
    FLOW_GRAD_W,
    FLOW_GRAD_BIAS_TABLE,
    FLOW_GRAD_RELATIVE_KEYS,
    FLOW_GRAD_RELATIVE_VALUES,
    FLOW_GRAD_RELATIVE_U,
    FLOW_GRAD_RELATIVE_V,
    /* by ATTN_JVP */
    FLOW_TAN_O,
    FLOW_TAN_LSE,
    /* by ATTN_DOUBLE_BACKWARD */
    FLOW_SECOND_GRAD_O,
    FLOW_SECOND_GRAD_LSE,
    FLOW_SECOND_Q,
    FLOW_SECOND_K,
    FLOW_SECOND_V,
    FLOW_SECOND_BIAS,
    FLOWS,
    FLOW_OUTPUTS = FLOW_GRAD_Q /* the first that is written */
} flow;

const char *flow_name(flow f); /* as in attn_args: "grad_q" */
/* The operation that writes it; ATTN_FORWARD for those that are read. */
attn_op flow_op(flow f);

/* 1 if the operation reads it where it is given. */
int flow_read_by(flow f, attn_op op);
/* 1 if problem->op reads or writes it, with the flags that the problem has. */
int flow_used(flow f, const attn_problem *problem);
/* Sets the flag that asks for it, if there is one. */
void flow_ask(flow f, attn_problem *problem);
/* Its shape [batch, head, token, channel]: that of a gradient of a bias is 1 where the bias broadcasts. */
void flow_size(flow f, const attn_problem *problem, int64_t size[4]);
/* Its layout in the problem; NULL: a dense array of the compute type. */
attn_layout *flow_layout(flow f, attn_problem *problem);
/* What ATTN_DTYPE_DEFAULT means there. */
attn_dtype flow_dtype(flow f, const attn_problem *problem);
/* Points the argument at data. */
void flow_point(flow f, attn_args *args, void *data);
const void *flow_data(flow f, const attn_args *args);
/* 1 if it has an axis of tokens, which packed sequences fold into that of the batch. */
int flow_has_tokens(flow f);
int flow_of_keys(flow f); /* 1 if these are tokens of keys */

/* Dense doubles of the shapes of flow_size; NULL: not used. */
typedef struct flows {
    double *in[FLOWS];    /* what is read */
    double *exact[FLOWS]; /* what ought to be written, */
    double *bound[FLOWS]; /* and how far it may be off before it is stored */
} flows;

/* Reads what flows in through the layouts of the problem, and runs the reference and its bound.  0 where memory is out. */
int flows_create(flows *all, const expectation *e, const attn_problem *problem, const attn_args *args);
void flows_destroy(flows *all);

/* Enters the output `got` into the comparison.  dtype: its storage. */
void flows_compare(comparison *c, const flows *all, flow f, const attn_problem *problem, const double *got, attn_dtype dtype);

#endif
