/* SPDX-License-Identifier: MIT
 * describe.c - the plan of a call as a dictionary: what attn_plan_describe says, and the arrays that the call takes and gives. */
#include "core.h"

static PyObject *tuple_of(const int64_t *numbers, int count)
{
    PyObject *made = PyTuple_New(count);
    for (int i = 0; made && i < count; i++) PyTuple_SetItem(made, i, PyLong_FromLongLong(numbers[i]));
    return made;
}

/* A name, whether it is written, a type, a shape and strides. */
static PyObject *describe_view(const call *c, const view *v, const attn_plan *plan)
{
    attn_tensor_plan of = {.struct_size = sizeof of};
    attn_error error;
    if (attn_plan_tensor(plan, v->number, &of, &error)) return call_fail(c, &error);
    PyObject *shape = tuple_of(v->shape, v->ndim), *stride = tuple_of(v->stride, v->ndim);
    if (shape && stride)
        return Py_BuildValue("(siiNN)", c->state->rows_of[v->number].about.name, v->written, (int)of.dtype, shape, stride);
    Py_XDECREF(shape);
    Py_XDECREF(stride);
    return NULL;
}

static PyObject *describe_views(const call *c, const attn_plan *plan)
{
    PyObject *all = PyList_New(c->count);
    for (int i = 0; all && i < c->count; i++) {
        PyObject *one = describe_view(c, &c->views[i], plan);
        if (!one) {
            Py_DECREF(all);
            return NULL;
        }
        PyList_SetItem(all, i, one);
    }
    return all;
}

static PyObject *describe(call *c)
{
    char allocated[TENSORS] = {0};
    attn_plan_description of = {.struct_size = sizeof of};
    attn_error error;
    for (int i = 0; i < c->count; i++) allocated[i] = c->views[i].ndim < 0;
    attn_plan *plan = sizes_make(c) ? NULL : call_plan(c, allocated);
    if (!plan) return NULL;
    PyObject *made = NULL, *views = describe_views(c, plan);
    const int failed = attn_plan_describe(plan, &of, &error) != ATTN_OK;
    if (failed) call_fail(c, &error);
    if (failed) Py_CLEAR(views);
    if (views)
        made = Py_BuildValue("{sssssisisisLsLsLsLsLsnsdsN}", "kernel", of.kernel, "why", of.why, "isa", (int)of.isa, "compute",
                             (int)of.compute, "threads", of.threads, "tile_q", (long long)of.tile_q, "block_kv",
                             (long long)of.block_kv, "tiles_total", (long long)of.tiles_total, "tiles_visited",
                             (long long)of.tiles_visited, "tiles_modified", (long long)of.tiles_modified, "workspace_bytes",
                             (Py_ssize_t)of.workspace_bytes, "flops", of.flops, "arrays", views);
    attn_plan_destroy(plan);
    return made;
}

PyObject *core_describe(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    call c;
    c.count = 0;
    c.held = NULL;
    PyObject *made = call_parse(&c, module, args, count, 1) ? NULL : describe(&c);
    views_release(&c);
    return made;
}
