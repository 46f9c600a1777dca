/* SPDX-License-Identifier: MIT
 * schedule.c - the schedule of a step (attn/schedule.h), in a capsule that owns its memory.  It does not change once it is made, so
 * any number of threads may use it; a call holds a reference to the capsule as long as it runs. */
#include "core.h"

static const char capsule_name[] = "libattn.schedule";

static void release(PyObject *capsule) { PyMem_Free(PyCapsule_GetContext(capsule)); }

int schedule_take(call *c, PyObject *value)
{
    PyObject *capsule = PyObject_GetAttrString(value, "_capsule");
    if (!capsule || !PyCapsule_IsValid(capsule, capsule_name)) {
        Py_XDECREF(capsule);
        PyErr_Clear();
        PyErr_Format(PyExc_TypeError, "schedule must be a libattn.Schedule, not %R", value);
        return -1;
    }
    Py_XDECREF(c->held);
    c->held = capsule;
    c->more.schedule = PyCapsule_GetPointer(capsule, capsule_name);
    return 0;
}

/* In memory of its own, which the capsule takes over. */
static PyObject *make(call *c, const attn_plan *plan, const attn_schedule_options *options)
{
    const attn_schedule *schedule;
    attn_error error;
    const size_t size = attn_schedule_size(plan);
    void *memory = PyMem_Malloc(size ? size : 1); /* of a plan that cannot be scheduled: to be told why */
    if (!memory) return PyErr_NoMemory();
    PyObject *capsule = NULL;
    if (attn_schedule_make(&schedule, plan, &c->tensors, memory, size, options, &error)) call_fail(c, &error);
    else capsule = PyCapsule_New((void *)(uintptr_t)schedule, capsule_name, NULL);
    if (!capsule || PyCapsule_SetContext(capsule, memory) || PyCapsule_SetDestructor(capsule, release)) {
        PyMem_Free(memory);
        Py_CLEAR(capsule);
    }
    return capsule;
}

/* args: the address of attn_schedule_options, then those of compute. */
PyObject *core_schedule(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    call c;
    c.count = 0;
    c.held = NULL;
    if (count < 1) return PyErr_SetString(PyExc_TypeError, "expected options and the arguments of compute"), NULL;
    const attn_schedule_options *options = PyLong_AsVoidPtr(args[0]);
    if (PyErr_Occurred()) return NULL;
    PyObject *made = NULL;
    kept_plan *kept = call_parse(&c, module, args + 1, count - 1, 1) ? NULL : call_kept(&c);
    if (kept) {
        call_bind_later(&c, kept);
        made = make(&c, kept_attention(kept), options);
        kept_release(kept);
    }
    views_release(&c);
    return made;
}
