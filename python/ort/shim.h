/* SPDX-License-Identifier: MIT
 *
 * shim.h - libattn as an execution provider of ONNX Runtime.  The files, in the order of a session:
 *
 *      provider.c  loading, the provider, which nodes of a graph it takes
 *      operators.c the table of operators; attributes, from a node or from a kernel
 *      attention.c ai.onnx Attention
 *      multihead.c com.microsoft MultiHeadAttention
 *      grouped.c   com.microsoft GroupQueryAttention, with rotary.c
 *      linear.c    LinearAttention of both domains
 *      cache.c     past and new keys as one tensor; where queries stand among them
 *      call.c      one run: inputs and outputs as slots, a kept plan, the runtime's threads
 *      counts.c    what was computed, and what was left to the runtime and why
 *
 * What cannot be computed is not taken: the node is then the runtime's own.  A function returns a status of the runtime's, NULL for
 * success; TRY passes a failure on.
 */
#ifndef ATTN_PYTHON_ORT_SHIM_H
#define ATTN_PYTHON_ORT_SHIM_H

#include <attn/attn.h>
#include <attn/linear.h>

#include "api.h"

#define TRY(expression)                                                                                                            \
    do {                                                                                                                           \
        ort_status *status_ = (expression);                                                                                        \
        if (status_) return status_;                                                                                               \
    } while (0)

/* The runtime's functions, from the time that it loads this. */
extern const ort_api *ort;
extern const ort_ep_api *ort_ep;

/* ---- operators.c ----------------------------------------------------------------------------------------------- */

enum { MAX_INPUTS = 20, MAX_OUTPUTS = 8 };

#define HAS(bits, number) ((bits) >> (number)&1)

/* A node of a graph: which inputs and outputs it has (bits), and of each input the type (0: none, or not known) and the number of
 * axes
 * (-1: not known). */
typedef struct shape_of_node {
    unsigned inputs, outputs;
    int type[MAX_INPUTS], rank[MAX_INPUTS];
} shape_of_node;

/* Attributes of all operators; 0 where an operator lacks one. */
typedef struct attributes {
    int64_t heads_q, heads_kv; /* 0: the tensors have an axis of heads */
    int causal;
    double scale; /* 0: the default */
    double softcap;
    int scores_stage;
    int64_t window_left, window_right; /* -1: no bound */
    int softmax_type;                  /* 0: not said */
    double hidden;                     /* what is added to the score of a padding key */
    int rotary, interleaved;           /* GroupQueryAttention */
    int smooth;
    int gated, delta; /* LinearAttention */
} attributes;

/* Where attributes are read: a node while a graph is split, a kernel while it is made. */
typedef struct source {
    const ort_node *node;
    const ort_kernel_info *kernel;
} source;

int64_t source_int(const source *s, const char *name, int64_t otherwise);
double source_float(const source *s, const char *name, double otherwise);
/* "" if there is none, or it does not fit. */
void source_string(const source *s, const char *name, char *text, size_t size);

typedef struct call call;

/* A name of a type constraint in the operator's schema, and a bit 1 << type for each type that is taken. */
typedef struct types {
    const char *name;
    unsigned allowed;
} types;

typedef struct operator
{
    const char *domain, *name;
    int first, last; /* versions of the operator */
    types types[4];
    /* Fills in *a, whose fields are 0.  NULL, or why it is left to the runtime. */
    const char *(*read)(const source *s, attributes *a);
    const char *(*refuse)(const shape_of_node *node, const attributes *a);
    ort_status *(*compute)(const attributes *a, call *c);
}
operator;

extern const operator operators[];
extern const int operator_count;

/* ---- counts.c -------------------------------------------------------------------------------------------------- */

void count_run(const operator* o);
void count_left(const operator* o, const char *reason); /* a string constant */

/* ---- call.c ---------------------------------------------------------------------------------------------------- */

enum { MAX_AXES = 5, MAX_SCRATCH = 20 };

/* An input or output.  data is NULL if it is absent, and ATTN_EMPTY if it has no elements. */
typedef struct value {
    const char *name;
    void *data;
    int type, rank;
    int64_t size[MAX_AXES];
} value;

struct call {
    ort_context *context;
    int threads;
    size_t inputs, outputs;
    attn_problem problem;
    attn_tensors tensors;
    void *scratch[MAX_SCRATCH];
    int scratches;
};

ort_status *fail(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));

ort_status *call_begin(call *c, ort_context *context, int threads);
ort_status *call_input(call *c, size_t index, const char *name, value *v);
/* Absent if the node lacks this output.  A failure if it has another type; 0: any. */
ort_status *call_output(call *c, size_t index, const char *name, int rank, const int64_t *size, int type, value *v);
/* Memory until the call ends; never NULL without a failure. */
ort_status *call_scratch(call *c, int64_t count, size_t element, void **memory);
ort_status *call_run(call *c);
ort_status *call_run_linear(call *c, const attn_linear_problem *problem, const attn_linear_tensors *tensors);
void call_end(call *c);

attn_dtype type_of(int type); /* ATTN_DTYPE_DEFAULT: not one of the library's */
/* A failure unless the value has these sizes. */
ort_status *expect(const value *v, int rank, const int64_t *size);
/* [B, heads, T, D] as it is, or [B, T, heads * D]: the slot and sizes {B, heads, T, D}. */
ort_status *rows_of(const value *v, int64_t heads, attn_input *slot, int64_t sizes[4]);
/* A mask or bias over {B, Hq, Sq, Skv} with 1 to 4 axes, aligned at the last; axes of size 1 broadcast. */
ort_status *pairs_of(const value *v, const int64_t sizes[4], attn_input *slot);
/* Dense [a, b, c, d]. */
attn_input dense(void *data, attn_dtype dtype, const int64_t sizes[4]);
attn_output written(attn_input slot);

/* Sets the scale and the softcap. */
void set_score(call *c, const attributes *a);

/* ---- cache.c --------------------------------------------------------------------------------------------------- */

/* Fails unless a tensor with these sizes, which call_input does not know, has those that are expected. */
ort_status *expect_sizes(const char *name, const int64_t sizes[4], const int64_t want[4]);
/* The keys or values of past (or none) and now as one tensor, which is the output `index` if the node has it.  *slot and sizes are
 * those of now before, and of the whole after. */
ort_status *joined(call *c, const value *past, size_t index, const char *name, int type, attn_input *slot, int64_t sizes[4]);
/* Causal masks and windows: query 0 stands at key `before`, or, for -1, so that the last query stands at the last key of its
 * length. */
ort_status *set_position(call *c, int causal, int64_t left, int64_t right, int64_t before);

/* ---- rotary.c -------------------------------------------------------------------------------------------------- */

/* Tokens whose channels are rotated: [batch, heads, tokens, dim] from one slot to another, at positions[batch, tokens]. */
typedef struct rotation {
    const value *cosines, *sines; /* [positions, half the channels that are rotated] */
    const int64_t *positions;
    int64_t sizes[4];
    attn_input from, to;
    int interleaved;
} rotation;

ort_status *rotate(const call *c, const rotation *t);

/* ---- the operators --------------------------------------------------------------------------------------------- */

const char *attention_read(const source *s, attributes *a);
const char *attention_refuse(const shape_of_node *node, const attributes *a);
ort_status *attention_compute(const attributes *a, call *c);

const char *multihead_read(const source *s, attributes *a);
const char *multihead_refuse(const shape_of_node *node, const attributes *a);
ort_status *multihead_compute(const attributes *a, call *c);

const char *grouped_read(const source *s, attributes *a);
const char *grouped_refuse(const shape_of_node *node, const attributes *a);
ort_status *grouped_compute(const attributes *a, call *c);

const char *linear_read(const source *s, attributes *a);
const char *linear_refuse(const shape_of_node *node, const attributes *a);
ort_status *linear_compute(const attributes *a, call *c);

#endif
