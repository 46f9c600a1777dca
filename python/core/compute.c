/* SPDX-License-Identifier: MIT
 * compute.c - a call: compute(op, layout, more, names, *values), where `more` is a dict of further names and values or None.  (A
 * call of Python's with more than 15 keywords makes a dict of them, which takes longer than all else here.)  An output is requested
 * by True, and then allocated, or by the array that it is written to; all are returned, in the order of the keywords. */
#include "core.h"

#include "common/sentence.h"

enum { SMALL = 200000 }; /* floating-point operations up to which a call takes less time than releasing the GIL may */

/* What is kept with a plan. */
typedef struct note {
    int small;
    struct {
        attn_input slot; /* without the address, unless there are no elements */
        int ndim;        /* of the array */
        int64_t shape[4];
    } views[TENSORS];
} note;

/* What a plan depends on, followed by `count` tensors. */
typedef struct key {
    attn_problem problem;
    attn_options options;
    int32_t layout, functions, rank, count; /* functions: bits of what a call has */
    struct {
        int32_t number, dtype, ndim, written;
        int64_t shape[4], stride[4];
    } tensors[TENSORS];
} key;

PyObject *core_fail(state *s, attn_error *error, int forward)
{
    sentence_python(error->message, sizeof error->message, forward);
    PyObject *status = PyLong_FromLong(error->status), *kind = NULL;
    if (status) kind = PyDict_GetItemWithError(s->exceptions, status);
    Py_XDECREF(status);
    if (!PyErr_Occurred()) PyErr_SetString(kind ? kind : PyExc_RuntimeError, error->message);
    return NULL;
}

PyObject *call_fail(const call *c, attn_error *error) { return core_fail(c->state, error, c->problem.op == ATTN_FORWARD); }

PyObject *core_sentence(PyObject *module, PyObject *text)
{
    (void)module;
    char message[SENTENCE_MOST];
    Py_ssize_t size;
    const char *bytes = PyUnicode_AsUTF8AndSize(text, &size);
    if (!bytes) return NULL;
    if ((size_t)size >= sizeof message) {
        Py_INCREF(text);
        return text;
    }
    memcpy(message, bytes, (size_t)size + 1);
    sentence_python(message, sizeof message, 0);
    return PyUnicode_DecodeUTF8(message, (Py_ssize_t)strlen(message), "replace");
}

static int set(call *c, int number, PyObject *value)
{
    return number < NAME_FIELDS ? view_take(c, number, value) : field_set(c, number - NAME_FIELDS, value);
}

static int set_more(call *c, PyObject *more)
{
    PyObject *name, *value;
    Py_ssize_t at = 0;
    if (more == Py_None) return 0;
    if (!PyDict_Check(more)) return PyErr_SetString(PyExc_TypeError, "more must be a dict or None"), -1;
    while (PyDict_Next(more, &at, &name, &value)) {
        PyObject *number = PyDict_GetItemWithError(c->state->index, name);
        if (!number) return names_unknown(c->state, name);
        if (set(c, (int)PyLong_AsLong(number), value)) return -1;
    }
    return 0;
}

static int set_layout(call *c, PyObject *value)
{
    if (!PyUnicode_Check(value)) return PyErr_Format(PyExc_TypeError, "layout must be a string, not %R", value), -1;
    for (int i = 0; layout_name((axes_layout)i); i++)
        if (PyUnicode_CompareWithASCIIString(value, layout_name((axes_layout)i)) == 0) {
            c->layout = (axes_layout)i;
            return 0;
        }
    PyErr_Format(PyExc_ValueError, "layout is %R; known: bhsd bshd thd", value);
    return -1;
}

int call_parse(call *c, PyObject *module, PyObject *const *args, Py_ssize_t count, int describes)
{
    memset(c, 0, offsetof(call, views));
    c->describes = describes;
    c->state = PyModule_GetState(module);
    c->problem.struct_size = sizeof c->problem;
    c->options.struct_size = sizeof c->options;
    c->more.struct_size = sizeof c->more;
    c->tensors.struct_size = sizeof c->tensors;
    if (count < 4 || !PyTuple_Check(args[3]) || PyTuple_Size(args[3]) != count - 4)
        return PyErr_SetString(PyExc_TypeError, "expected op, layout, more, names and as many values"), -1;
    const long op = PyLong_AsLong(args[0]);
    if (op < 0 || op >= ATTN_OPERATIONS) return PyErr_SetString(PyExc_ValueError, "op is not an operation"), -1;
    c->problem.op = (attn_op)op;
    if (set_layout(c, args[1])) return -1;
    const short *numbers = names_find(c->state, args[3]);
    if (!numbers) return -1;
    for (Py_ssize_t i = 4; i < count; i++)
        if (args[i] != Py_None && set(c, numbers[i - 4], args[i])) return -1;
    if (set_more(c, args[2])) return -1;
    if (c->more.dropout_seed || c->more.dropout_offset || c->more.origin || c->more.visit_rows || c->more.modify_scores ||
        c->more.modify_slopes || c->more.schedule)
        c->tensors.call = &c->more;
    return sizes_of_data(c);
}

/* Without schedules, and without the number of packed tokens, on which no plan depends: it differs from step to step. */
static size_t make_key(const call *c, key *k)
{
    memcpy(&k->problem, &c->problem, sizeof k->problem);
    memcpy(&k->options, &c->options, sizeof k->options);
    k->layout = (int32_t)c->layout;
    k->rank = c->rank;
    k->functions = (c->more.origin != NULL) | (c->more.visit_rows != NULL) << 1 | (c->more.modify_scores != NULL) << 2 |
                   (c->more.modify_slopes != NULL) << 3 | c->align_given << 4;
    k->count = c->count;
    for (int i = 0; i < c->count; i++) {
        const view *v = &c->views[i];
        k->tensors[i].number = v->number;
        k->tensors[i].dtype = (int32_t)v->dtype;
        k->tensors[i].ndim = v->ndim;
        k->tensors[i].written = v->written;
        memcpy(k->tensors[i].shape, v->shape, sizeof v->shape);
        if (axes_tokens(c, v->number) > 1) k->tensors[i].shape[0] = 2; /* one or none have other strides */
        memcpy(k->tensors[i].stride, v->stride, sizeof v->stride);
    }
    return offsetof(key, tensors) + (size_t)c->count * sizeof *k->tensors;
}

static void bind(call *c, const view *v, attn_input slot)
{
    memcpy((char *)&c->tensors + c->state->rows_of[v->number].about.offset, &slot, sizeof slot);
}

attn_plan *call_plan(call *c, const char *allocated)
{
    attn_plan *plan;
    attn_error error;
    for (int i = 0; i < c->count; i++) {
        if (allocated[i] ? sizes_of_output(c, &c->views[i]) : fit_output(c, &c->views[i])) return NULL;
        bind(c, &c->views[i], axes_slot(c, &c->views[i]));
    }
    if (attn_plan_create(&plan, &c->problem, &c->tensors, &c->options, &error)) return call_fail(c, &error), NULL;
    if (!fit_check(c, plan)) return plan;
    attn_plan_destroy(plan);
    return NULL;
}

static int note_make(const call *c, const attn_plan *plan, note *n)
{
    attn_plan_description about = {.struct_size = sizeof about};
    attn_error error;
    if (attn_plan_describe(plan, &about, &error)) return call_fail(c, &error), -1;
    n->small = about.flops < SMALL && !c->more.visit_rows && !c->more.modify_scores;
    for (int i = 0; i < c->count; i++) {
        const view *v = &c->views[i];
        attn_tensor_plan of = {.struct_size = sizeof of};
        if (attn_plan_tensor(plan, v->number, &of, &error)) return call_fail(c, &error), -1;
        n->views[i].slot = axes_slot(c, v);
        n->views[i].slot.dtype = of.dtype;
        n->views[i].ndim = v->ndim;
        memcpy(n->views[i].shape, v->shape, sizeof v->shape);
    }
    return 0;
}

/* A plan that is not kept yet. */
static kept_plan *plan_new(call *c, const key *k, size_t size)
{
    char allocated[TENSORS] = {0};
    for (int i = 0; i < c->count; i++) allocated[i] = c->views[i].ndim < 0;
    attn_plan *plan = sizes_make(c) ? NULL : call_plan(c, allocated);
    if (!plan) return NULL;
    kept_plan *kept = kept_add(k, size, plan, offsetof(note, views) + (size_t)c->count * sizeof *((note *)NULL)->views);
    if (!kept) return PyErr_NoMemory(), NULL;
    if (note_make(c, plan, kept->note)) return kept_drop(kept), NULL;
    for (int i = 0; i < c->count; i++)
        if (allocated[i]) c->views[i].ndim = -1;
    return kept;
}

static int bind_all(call *c, const note *n)
{
    for (int i = 0; i < c->count; i++) {
        view *v = &c->views[i];
        attn_input slot = n->views[i].slot;
        if (v->ndim < 0) {
            v->ndim = n->views[i].ndim;
            v->dtype = slot.dtype;
            memcpy(v->shape, n->views[i].shape, sizeof v->shape);
            if (axes_tokens(c, v->number) >= 0) v->shape[0] = axes_tokens(c, v->number);
            if (view_allocate(c, v)) return -1;
        }
        if (slot.data != ATTN_EMPTY) slot.data = v->data;
        bind(c, v, slot);
    }
    return 0;
}

/* A plan that is kept is one of arrays that fit together, but for their tokens. */
static int fits(call *c, const kept_plan *kept)
{
    int same = 1;
    for (int i = 0; i < c->count; i++)
        same &= c->views[i].ndim < 0 || axes_tokens(c, c->views[i].number) < 0 ||
                c->views[i].shape[0] == axes_tokens(c, c->views[i].number);
    return same || !fit_check(c, kept_attention(kept));
}

kept_plan *call_kept(call *c)
{
    key k;
    const size_t size = make_key(c, &k);
    kept_plan *kept = kept_find(&k, size);
    if (!kept) return plan_new(c, &k, size);
    if (fits(c, kept)) return kept;
    kept_release(kept);
    return NULL;
}

static kept_plan *plan_of(call *c)
{
    kept_plan *kept = call_kept(c);
    if (!kept || !bind_all(c, kept->note)) return kept;
    kept_release(kept);
    return NULL;
}

void call_bind_later(call *c, const kept_plan *kept)
{
    const note *n = kept->note;
    for (int i = 0; i < c->count; i++) {
        attn_input slot = n->views[i].slot;
        if (slot.data != ATTN_EMPTY) slot.data = c->views[i].data ? c->views[i].data : ATTN_LATER;
        bind(c, &c->views[i], slot);
    }
}

/* What a caller gets for an output: the array that it passed, or one of the library that q comes from. */
static PyObject *result(call *c, const view *v)
{
    PyObject *q = c->views[c->place[TENSOR(q)] - 1].given;
    if (v->given != Py_True) {
        Py_INCREF(v->given);
        return v->given;
    }
    if (PyObject_TypeCheck(q, (PyTypeObject *)c->state->ndarray)) {
        Py_INCREF(v->owner);
        return v->owner;
    }
    return PyObject_CallFunctionObjArgs(c->state->like, v->owner, q, NULL);
}

static PyObject *results(call *c)
{
    int count = 0, at = 0;
    const view *last = NULL;
    for (int i = 0; i < c->count; i++)
        if (c->views[i].written) count++, last = &c->views[i];
    if (count == 1) return result(c, last);
    PyObject *all = PyTuple_New(count);
    for (int i = 0; all && i < c->count; i++) {
        if (!c->views[i].written) continue;
        PyObject *one = result(c, &c->views[i]);
        if (!one) {
            Py_DECREF(all);
            return NULL;
        }
        PyTuple_SetItem(all, at++, one);
    }
    return all;
}

static PyObject *run(call *c)
{
    attn_status status;
    attn_error error;
    kept_plan *kept = plan_of(c);
    if (!kept) return NULL;
    if (((const note *)kept->note)->small) status = kept_execute(kept, &c->tensors, &error);
    else {
        Py_BEGIN_ALLOW_THREADS;
        status = kept_execute(kept, &c->tensors, &error);
        Py_END_ALLOW_THREADS;
    }
    kept_release(kept);
    return status ? call_fail(c, &error) : results(c);
}

PyObject *core_compute(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    call c;
    c.count = 0;
    c.held = NULL;
    PyObject *made = call_parse(&c, module, args, count, 0) ? NULL : run(&c);
    views_release(&c);
    return made;
}
