/* SPDX-License-Identifier: MIT
 * names.c - keywords.  The tuple of keywords of a call in a Python function is always the same object, so what it means is found
 * once. */
#include "core.h"

static int add(PyObject *index, const char *name, int number)
{
    PyObject *value = PyLong_FromLong(number);
    const int failed = !value || PyDict_SetItemString(index, name, value);
    Py_XDECREF(value);
    return failed;
}

int names_make(state *s)
{
    s->index = PyDict_New();
    if (!s->index) return -1;
    for (int n = 0; n < TENSORS; n++)
        if (add(s->index, s->rows_of[n].about.name, n)) return -1;
    for (int n = 0; field_name(n); n++)
        if (add(s->index, field_name(n), NAME_FIELDS + n)) return -1;
    return 0;
}

int names_unknown(state *s, PyObject *name)
{
    PyObject *hint = PyErr_Occurred() ? NULL : PyDict_GetItemWithError(s->elsewhere, name);
    if (PyErr_Occurred()) return -1;
    if (hint) PyErr_Format(PyExc_TypeError, "%R is not an option or a tensor of attention; write %U", name, hint);
    else PyErr_Format(PyExc_TypeError, "%R is not an option or a tensor of attention", name);
    return -1;
}

static int find(state *s, PyObject *name, short *at)
{
    PyObject *number = PyDict_GetItemWithError(s->index, name);
    if (!number) return names_unknown(s, name);
    *at = (short)PyLong_AsLong(number);
    return 0;
}

const short *names_find(state *s, PyObject *names)
{
    for (int i = 0; i < WORDS; i++)
        if (s->words[i].names == names) return s->words[i].at;
    const Py_ssize_t count = PyTuple_Size(names);
    short *at = PyMem_Malloc((size_t)(count + 1) * sizeof *at);
    if (!at) return PyErr_NoMemory(), NULL;
    for (Py_ssize_t i = 0; i < count; i++)
        if (find(s, PyTuple_GetItem(names, i), &at[i])) {
            PyMem_Free(at);
            return NULL;
        }
    words *w = &s->words[s->next_word];
    s->next_word = (s->next_word + 1) % WORDS;
    PyMem_Free(w->at);
    Py_XDECREF(w->names);
    Py_INCREF(names);
    *w = (words){names, at};
    return at;
}
