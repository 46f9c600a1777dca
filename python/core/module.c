/* SPDX-License-Identifier: MIT
 * module.c - the module libattn._core and what it keeps: the table of tensors, the types of NumPy, functions of libattn._arrays. */
#include "core.h"

static int from(const char *module, const char *name, PyObject **to)
{
    PyObject *m = PyImport_ImportModule(module);
    *to = m ? PyObject_GetAttrString(m, name) : NULL;
    Py_XDECREF(m);
    return *to ? 0 : -1;
}

static int read_tensors(state *s)
{
    attn_error error;
    for (int n = 0; n < TENSORS; n++) {
        tensor_row *row = &s->rows_of[n];
        row->about.struct_size = sizeof row->about;
        if (attn_tensor_describe(ATTN_FAMILY_ATTENTION, n, &row->about, &error)) return core_fail(s, &error, 0), -1;
        axes_make(row);
    }
    return 0;
}

static int read_dtypes(state *s)
{
    PyObject *all, *dtype, *number;
    Py_ssize_t at = 0;
    if (from("libattn._blocks", "Blocks", &s->blocks) || from("libattn._blocks", "FORMATS", &s->block_formats)) return -1;
    while (PyDict_Next(s->block_formats, &at, &dtype, &number)) {
        const long n = PyLong_AsLong(number);
        if (n < OF_NUMPY || n >= DTYPES) continue;
        Py_INCREF(dtype);
        s->dtypes[n] = dtype;
    }
    at = 0;
    if (from("libattn._arrays", "TYPES", &all)) return -1;
    while (PyDict_Next(all, &at, &dtype, &number)) {
        const long n = PyLong_AsLong(number);
        if (n <= 0 || n >= OF_NUMPY) continue;
        Py_INCREF(dtype);
        s->dtypes[n] = dtype;
    }
    Py_DECREF(all);
    return 0;
}

static int start(PyObject *module)
{
    state *s = PyModule_GetState(module);
    if (from("libattn._native", "EXCEPTIONS", &s->exceptions) || from("libattn._names", "ELSEWHERE", &s->elsewhere) ||
        read_tensors(s) || read_dtypes(s))
        return -1;
    if (from("numpy", "ndarray", &s->ndarray) || from("numpy", "empty", &s->empty)) return -1;
    if (from("libattn._arrays", "asarray", &s->asarray) || from("libattn._arrays", "like", &s->like)) return -1;
    s->dtype_word = PyUnicode_InternFromString("dtype");
    return s->dtype_word ? names_make(s) : -1;
}

/* Everything that is kept is visited or cleared here. */
static int each(state *s, int (*visit)(PyObject **, visitproc, void *), visitproc function, void *context)
{
    PyObject **all[] = {&s->ndarray,       &s->empty,      &s->asarray,   &s->like,  &s->blocks,
                        &s->block_formats, &s->exceptions, &s->elsewhere, &s->index, &s->dtype_word};
    int stop = 0;
    for (size_t i = 0; !stop && i < sizeof all / sizeof *all; i++) stop = visit(all[i], function, context);
    for (int i = 0; !stop && i < DTYPES; i++) stop = visit(&s->dtypes[i], function, context);
    for (int i = 0; !stop && i < WORDS; i++) stop = visit(&s->words[i].names, function, context);
    return stop;
}

static int visit_one(PyObject **at, visitproc visit, void *arg)
{
    Py_VISIT(*at);
    return 0;
}

static int clear_one(PyObject **at, visitproc visit, void *arg)
{
    (void)visit, (void)arg;
    Py_CLEAR(*at);
    return 0;
}

static int traverse(PyObject *module, visitproc visit, void *arg)
{
    state *s = PyModule_GetState(module);
    return s ? each(s, visit_one, visit, arg) : 0;
}

static int clear(PyObject *module)
{
    state *s = PyModule_GetState(module);
    return s ? each(s, clear_one, NULL, NULL) : 0;
}

static void finish(void *module)
{
    state *s = PyModule_GetState(module);
    clear(module);
    for (int i = 0; s && i < WORDS; i++) PyMem_Free(s->words[i].at);
}

static PyMethodDef methods[] = {
    {"compute", (PyCFunction)(void (*)(void))core_compute, METH_FASTCALL,
     "compute(op, layout, more, names, *values): an operation of attn.h over arrays"},
    {"describe", (PyCFunction)(void (*)(void))core_describe, METH_FASTCALL,
     "describe(op, layout, more, names, *values): the plan of compute, where (shape, dtype) may stand for an array"},
    {"schedule", (PyCFunction)(void (*)(void))core_schedule, METH_FASTCALL,
     "schedule(options, op, layout, more, names, *values): the schedule of a step, in a capsule"},
    {"sentence", core_sentence, METH_O,
     "sentence(text): an error's sentence of the library with the names of Python (common/words.def)"},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[] = {{Py_mod_exec, (void *)(uintptr_t)start}, {0, NULL}};

static PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    "libattn._core",
    "Attention over arrays: what libattn.attention and its like call.",
    sizeof(state),
    methods,
    slots,
    traverse,
    clear,
    finish,
};

PyMODINIT_FUNC PyInit__core(void) { return PyModuleDef_Init(&definition); }
