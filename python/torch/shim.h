/* SPDX-License-Identifier: MIT
 *
 * shim.h - libattn as operators of PyTorch.  The files, in the order of a call:
 *
 *      library.c   loading, the operators' schemas, enable and disable, counters
 *      boxed.c     arguments from PyTorch's stack, results onto it, errors as exceptions
 *      attention.c libattn::attention and its derivatives
 *      aten.c      the same for the operators of PyTorch's own that enable() replaces
 *      call.c      one call: tensors to slots, sizes, a kept plan, results
 *      view.c      a tensor as memory, type, sizes and strides
 *      stable.c    PyTorch's functions
 *
 * A kernel writes its results into `results` and returns 0; on failure it returns -1 with call.error, and boxed.c throws.
 */
#ifndef ATTN_PYTHON_TORCH_SHIM_H
#define ATTN_PYTHON_TORCH_SHIM_H

#include <attn/attn.h>

#include "stable.h"

/* ---- view.c ---------------------------------------------------------------------------------------------------- */

typedef struct view {
    AtenTensorHandle handle; /* NULL: absent */
    void *data;
    int64_t size[4], stride[4];
    int ndim;
    attn_dtype dtype;
} view;

void view_types(void); /* once */
/* 0, or -1 with *error: more than four axes, another device, an unknown type. */
int view_of(AtenTensorHandle tensor, const char *name, view *v, attn_error *error);
/* A new tensor; its view, or -1. */
int view_new(view *v, int ndim, const int64_t size[4], const int64_t stride[4], attn_dtype dtype, attn_error *error);
/* Strides of a dense tensor of this size, contiguous but that axes ndim-3 and ndim-2 lie in memory as those of `like` do. */
void view_dense(int ndim, const int64_t size[4], const view *like, int64_t stride[4]);
/* v's last axis is contiguous, or becomes so in a copy, which *copy then owns. */
int view_rows(view *v, AtenTensorHandle *copy, attn_error *error);
void view_drop(AtenTensorHandle tensor);

/* ---- boxed.c --------------------------------------------------------------------------------------------------- */

enum { MAX_ARGUMENTS = 64, MAX_RESULTS = 13 };

typedef struct argument {
    int given; /* 0: None, or an undefined tensor */
    AtenTensorHandle tensor;
    int64_t integer; /* also bool */
    double real;
} argument;

typedef int kernel(const argument *a, AtenTensorHandle *results, attn_error *error);

/* One letter for each argument: T a tensor, t Tensor?, i int, j int?, f float, g float?, b bool. */
void boxed_call(const char *kinds, kernel *run, StableIValue *stack, uint64_t arguments, uint64_t results);
/* The last failure of this thread, for Python, which makes an exception of its status. */
extern _Thread_local attn_error boxed_error;

/* ---- call.c ---------------------------------------------------------------------------------------------------- */

#define TENSOR(name) ((int)((offsetof(attn_tensors, name) - offsetof(attn_tensors, q)) / sizeof(attn_input)))
enum { TENSORS = (sizeof(attn_tensors) - offsetof(attn_tensors, q)) / sizeof(attn_input), MAX_VIEWS = 48 };

typedef enum layout { LAYOUT_BHSD, LAYOUT_BSHD, LAYOUT_THD, LAYOUTS } layout;

typedef struct call {
    attn_problem problem;
    attn_options options;
    attn_call more;
    attn_tensors tensors;
    layout layout;
    int ragged; /* layout thd of queries alone: keys have the axes of bshd */
    int count;
    struct {
        int number;
        int written;
        view view;
    } views[MAX_VIEWS];
    int place[TENSORS]; /* 1 + index into views */
    int copies;
    AtenTensorHandle copy[MAX_VIEWS]; /* tensors of this call, dropped at its end */
    attn_error *error;
} call;

void call_begin(call *c, attn_error *error);
int call_input(call *c, int number, const argument *a);
/* A tensor that is a result: like view `like`, whose axis ndim-1 gets size `last` unless that is negative. */
int call_result(call *c, int number, const view *like, int64_t last, attn_dtype dtype, AtenTensorHandle *result);
/* A result of the size of an input, contiguous: its gradient. */
int call_like(call *c, int number, const view *like, AtenTensorHandle *result);
/* Another tensor in place of an input. */
void call_replace(call *c, int number, const view *v);
/* A result with strides of the caller's. */
int call_output(call *c, int number, int ndim, const int64_t size[4], const int64_t stride[4], attn_dtype dtype,
                AtenTensorHandle *result);
int call_sizes(call *c); /* problem.shape from the tensors */
int call_run(call *c);
void call_end(call *c);
const view *call_view(const call *c, int number); /* NULL: absent */
attn_dtype call_compute(const call *c);
int call_fail(call *c, attn_status status, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* ---- attention.c, aten.c --------------------------------------------------------------------------------------- */

typedef struct operator_row {
    const char *name;
    BoxedKernel kernel;
} operator_row;

extern const operator_row attention_operators[]; /* ends with NULL */
extern const operator_row aten_operators[];
extern const char *const attention_schemas[];
extern int64_t aten_calls[2]; /* forward, backward: how often aten.c's have run; atomic */

#endif
