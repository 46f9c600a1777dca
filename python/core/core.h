/* SPDX-License-Identifier: MIT
 *
 * core.h - libattn._core: attention over arrays, by the buffer protocol, with kept plans.  The files, in the order of a call:
 *
 *      module.c    the module, and what it keeps of Python
 *      names.c     a keyword to what it sets, for all keywords of a call at once
 *      fields.c    numbers and choices of attn_problem, attn_options and attn_call
 *      views.c     an array as memory, type, sizes and strides
 *      axes.c      which axis of an array is which axis of its tensor, by layout
 *      sizes.c     attn_shape and other sizes from the arrays; what an output's array must be
 *      fit.c       do the arrays have the shapes that the plan expects?
 *      compute.c   one call, from keywords to arrays
 *      describe.c  the plan of a call as a dictionary
 *      schedule.c  the schedule of a step
 *
 * What tensors there are, in which operations, with which axes and types, is read from attn_tensor_describe, so every tensor of
 * attn.h can be passed, under its name there.
 */
#ifndef ATTN_PYTHON_CORE_H
#define ATTN_PYTHON_CORE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <string.h>

#include <attn/attn.h>
#include <attn/schedule.h>

#include "common/plans.h"

#define TENSOR(name) ((int)((offsetof(attn_tensors, name) - offsetof(attn_tensors, q)) / sizeof(attn_input)))
enum { TENSORS = (sizeof(attn_tensors) - offsetof(attn_tensors, q)) / sizeof(attn_input), WORDS = 8 };
enum { OF_NUMPY = ATTN_F8_E5M2 + 1, DTYPES = ATTN_Q4_1C + 1 }; /* NumPy has arrays of the types below OF_NUMPY */

/* How the axes of an array relate to those of its tensor (axes.c). */
typedef enum axes_layout { LAYOUT_BHSD, LAYOUT_BSHD, LAYOUT_THD } axes_layout;
typedef enum axes_rule {
    AXES_ROWS,     /* [batch, head, token, channel] in the order of the layout */
    AXES_ROWS_ONE, /* the same without the last axis: lse */
    AXES_PAIR,     /* [batch, head, query, key], aligned on the right: mask */
    AXES_OTHER     /* the axes that count something, aligned on the right */
} axes_rule;

typedef struct tensor_row {
    attn_tensor_description about;
    axes_rule rule;
    int core[4], cores; /* the axes that count something */
} tensor_row;

/* An array of a call, or an output that the call allocates. */
typedef struct view {
    int number; /* of the tensor */
    int written;
    int ndim; /* -1: to be allocated */
    attn_dtype dtype;
    int64_t shape[4];
    int64_t stride[4]; /* in elements */
    void *data;        /* NULL: not known, while a plan is described */
    PyObject *owner;   /* a reference to the array, or to what it became */
    PyObject *given;   /* borrowed: the caller's object */
    Py_buffer buffer;
} view;

/* What module.c keeps. */
typedef struct words {
    PyObject *names; /* a tuple of keywords */
    short *at;       /* the number of each */
} words;

typedef struct state {
    PyObject *ndarray, *empty, *asarray, *like;
    PyObject *blocks, *block_formats; /* libattn._blocks.Blocks, .FORMATS */
    PyObject *dtypes[DTYPES];         /* of NumPy, or the name of a format of blocks; NULL: none */
    PyObject *exceptions;             /* status: class */
    PyObject *elsewhere;              /* a keyword of other libraries: what to write */
    PyObject *index;                  /* keyword: number (names.c) */
    PyObject *dtype_word;
    words words[WORDS];
    int next_word;
    tensor_row rows_of[TENSORS];
} state;

/* One call. */
typedef struct call {
    state *state;
    attn_problem problem;
    attn_options options;
    attn_call more;
    attn_origin origin;
    attn_tensors tensors;
    axes_layout layout;
    int describes; /* only plans: a tuple of shape and dtype stands for an array */
    int align_given;
    int rank;                    /* of q */
    int64_t tokens_q, tokens_kv; /* packed sequences: of all of them */
    PyObject *held;              /* the memory of a schedule; a reference */
    int place[TENSORS];          /* 1 + the view of a tensor, or 0 */
    int count;
    view views[TENSORS];
} call;

/* names.c: what a keyword sets */
enum { NAME_FIELDS = TENSORS }; /* numbers below are tensors, others fields */
int names_make(state *s);
int names_unknown(state *s, PyObject *name); /* raises TypeError; -1 */
const short *names_find(state *s, PyObject *names);

/* fields.c: all return 0, or -1 with an exception */
int field_set(call *c, int field, PyObject *value);
const char *field_name(int field); /* NULL past the last */

/* views.c */
int view_take(call *c, int number, PyObject *x);
int view_allocate(call *c, view *v);
void views_release(call *c);
const char *tensor_name(const call *c, int number);

/* axes.c */
const char *layout_name(axes_layout layout); /* NULL past the last */
void axes_make(tensor_row *row);
/* axes[i]: the slot's axis of axis i of an array with `ndim` axes; 0 if a tensor cannot have that many. */
int axes_of(const tensor_row *row, axes_layout layout, int ndim, int axes[4]);
int axes_max(const tensor_row *row, axes_layout layout);
/* The layout of a tensor: that of the call, but keys beside packed queries that are not packed themselves have that of bshd. */
axes_layout axes_layout_of(const call *c, const tensor_row *row);
/* The most axes that an array may have, as long as it is not known whether keys are packed. */
int axes_most(const call *c, const tensor_row *row);
attn_input axes_slot(const call *c, const view *v);
/* Of a tensor whose first axis is that of packed tokens, as many as there are; -1 of others. */
int64_t axes_tokens(const call *c, int number);

/* sizes.c */
int sizes_of_data(call *c); /* what depends on numbers in arrays, so is found in every call and in the key of its plan */
int sizes_make(call *c);
int sizes_of_output(call *c, view *v);

/* fit.c */
int fit_output(call *c, const view *v); /* before there is a plan */
int fit_check(call *c, const attn_plan *plan);

/* compute.c */
PyObject *core_compute(PyObject *module, PyObject *const *args, Py_ssize_t count);
PyObject *core_describe(PyObject *module, PyObject *const *args, Py_ssize_t count);
/* Reads the arguments; describes: also shapes in place of arrays. */
int call_parse(call *c, PyObject *module, PyObject *const *args, Py_ssize_t count, int describes);
/* Plans, with the types and strides of all tensors, and checks all shapes.  allocated[i]: view i is to be allocated. */
attn_plan *call_plan(call *c, const char *allocated);
/* The plan that this thread keeps for such a call, held (kept_release). */
kept_plan *call_kept(call *c);
/* Fills in its tensors, those without memory as ones whose memory is not known. */
void call_bind_later(call *c, const kept_plan *kept);
PyObject *core_schedule(PyObject *module, PyObject *const *args, Py_ssize_t count);
int schedule_take(call *c, PyObject *value); /* the keyword schedule of an execution */
PyObject *core_sentence(PyObject *module, PyObject *text);
/* Raises the exception of an error, in the words of Python; forward: of attention, whose o is the keyword out. */
PyObject *core_fail(state *s, attn_error *error, int forward);
PyObject *call_fail(const call *c, attn_error *error);

#endif
