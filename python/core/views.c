/* SPDX-License-Identifier: MIT
 * views.c - arrays as memory.  NumPy's by the buffer protocol, with the type from the array's dtype, since that protocol has none
 * for bfloat16; all others become NumPy arrays over the same memory first (libattn._arrays.asarray).  Of Blocks the array is one of
 * bytes; sizes are those of the numbers, and strides count blocks. */
#include "core.h"

const char *tensor_name(const call *c, int number)
{
    if (c->problem.op == ATTN_FORWARD && number == TENSOR(o)) return "out";
    return c->state->rows_of[number].about.name;
}

static int dtype_number(state *s, PyObject *array, attn_dtype *dtype)
{
    PyObject *found = PyObject_GetAttr(array, s->dtype_word);
    int same = 0;
    if (!found) return -1;
    *dtype = ATTN_DTYPE_DEFAULT;
    for (int n = 1; n < OF_NUMPY && !*dtype; n++)
        if (s->dtypes[n] == found) *dtype = (attn_dtype)n;
    for (int n = 1; n < OF_NUMPY && !*dtype && same >= 0; n++) /* equal, but another object */
        if (s->dtypes[n] && (same = PyObject_RichCompareBool(found, s->dtypes[n], Py_EQ)) > 0) *dtype = (attn_dtype)n;
    Py_DECREF(found);
    return same < 0 ? -1 : 0;
}

/* Replaces the view's array by a NumPy array over the same memory, or with that type. */
static int asarray(call *c, view *v, attn_dtype dtype)
{
    state *s = c->state;
    PyObject *name = PyUnicode_FromString(tensor_name(c, v->number));
    PyObject *made = name ? PyObject_CallFunctionObjArgs(s->asarray, v->owner, name, dtype ? s->dtypes[dtype] : NULL, NULL) : NULL;
    Py_XDECREF(name);
    if (!made) return -1;
    Py_DECREF(v->owner);
    v->owner = made;
    return 0;
}

/* Small inputs whose type the library prescribes may be given in another: lists of numbers are float64 or int64. */
static attn_dtype prescribed(const call *c, const view *v)
{
    const unsigned types = c->state->rows_of[v->number].about.types;
    if (v->written) return ATTN_DTYPE_DEFAULT;
    if (types == 1u << ATTN_F32) return ATTN_F32;
    if (types != (1u << ATTN_F32 | 1u << ATTN_F64)) return ATTN_DTYPE_DEFAULT;
    return c->place[0] && c->views[c->place[0] - 1].dtype == ATTN_F64 ? ATTN_F64 : ATTN_F32;
}

/* A type that no problem takes for this tensor.  (Those that this problem does not take are the library's to reject.) */
static int check_dtype(const call *c, const view *v)
{
    const unsigned types = c->state->rows_of[v->number].about.types;
    const char *what = v->number == TENSOR(mask) ? "bool (what is added to the scores is the bias)"
                       : types & 1u << ATTN_BOOL ? "bool"
                       : types & 1u << ATTN_I64  ? "int64 or int32"
                       : types & 1u << ATTN_I8
                           ? "float32, float64, float16, bfloat16, float8_e4m3fn, float8_e5m2, int8 with scales, or cache.Blocks"
                       : types & 1u << ATTN_F16 ? "float32, float64, float16 or bfloat16"
                                                : "float32 or float64";
    if (types >> v->dtype & 1) return 0;
    PyErr_Format(PyExc_TypeError, "%s has type %S; it must be %s", tensor_name(c, v->number), c->state->dtypes[v->dtype], what);
    return -1;
}

static int export(call *c, view *v)
{
    const char *name = tensor_name(c, v->number);
    const tensor_row *row = &c->state->rows_of[v->number];
    if (PyObject_GetBuffer(v->owner, &v->buffer, v->written ? PyBUF_STRIDES | PyBUF_WRITABLE : PyBUF_STRIDES)) {
        v->buffer.obj = NULL;
        if (!v->written || !PyErr_ExceptionMatches(PyExc_ValueError)) return -1;
        PyErr_Format(PyExc_ValueError, "%s is read-only; the result is written there", name);
        return -1;
    }
    if (v->buffer.ndim > 4 || v->buffer.ndim > axes_most(c, row)) {
        PyErr_Format(PyExc_ValueError, "%s has %d axes; with layout %s it has at most %d", name, v->buffer.ndim,
                     layout_name(c->layout), axes_most(c, row));
        return -1;
    }
    v->ndim = v->buffer.ndim;
    v->data = v->buffer.buf;
    return 0;
}

/* measure for blocks, whose bytes are the last axis. */
static int measure_blocks(view *v)
{
    const Py_buffer *b = &v->buffer;
    const Py_ssize_t size = (Py_ssize_t)attn_dtype_size(v->dtype);
    const int last = v->ndim - 1;
    int whole = 1, empty = 0;
    for (int i = 0; i <= last; i++) {
        v->shape[i] = b->shape[i];
        v->stride[i] = b->strides[i] / size;
        whole &= i == last ? b->shape[i] <= 1 || b->strides[i] == 1 : b->shape[i] <= 1 || b->strides[i] % size == 0;
        empty |= b->shape[i] == 0;
    }
    v->shape[last] = b->shape[last] / size * ATTN_BLOCK;
    v->stride[last] = 1;
    return !whole && !empty;
}

/* The view's sizes and strides; 1 if memory must be copied for the library to read it. */
static int measure(const call *c, view *v)
{
    if ((int)v->dtype >= OF_NUMPY) return measure_blocks(v);
    const tensor_row *row = &c->state->rows_of[v->number];
    const Py_buffer *b = &v->buffer;
    const int shift = __builtin_ctzll((unsigned long long)b->itemsize); /* sizes are powers of 2, and divisions slow */
    const Py_ssize_t item = b->itemsize;
    int whole = 1, dense = 1, empty = 0;
    Py_ssize_t step = 1;
    for (int i = v->ndim - 1; i >= 0; i--) {
        v->shape[i] = b->shape[i];
        v->stride[i] = b->strides[i] >> shift;
        empty |= b->shape[i] == 0;
        whole &= (b->strides[i] & (item - 1)) == 0;
        dense &= b->shape[i] <= 1 || v->stride[i] == step;
        step *= b->shape[i];
    }
    if (empty) return 0;
    if ((uintptr_t)b->buf & (size_t)(item - 1)) whole = 0;
    if (row->rule == AXES_PAIR) return !whole;
    if (row->rule == AXES_OTHER) return !whole || !dense;
    return !whole || (row->rule == AXES_ROWS && v->shape[v->ndim - 1] > 1 && v->stride[v->ndim - 1] != 1);
}

static int copy(call *c, view *v)
{
    if (v->written) {
        PyErr_Format(PyExc_ValueError,
                     "%s has strides or an address that elements of its type cannot have, or its last axis is not contiguous",
                     tensor_name(c, v->number));
        return -1;
    }
    PyObject *made = PyObject_CallMethod(v->owner, "copy", NULL);
    if (!made) return -1;
    PyBuffer_Release(&v->buffer);
    Py_DECREF(v->owner);
    v->owner = made;
    if (export(c, v)) return -1;
    measure(c, v);
    return 0;
}

/* What NumPy takes for a type, "float32" too, or the name of a format of blocks. */
static attn_dtype dtype_named(const state *s, PyObject *dtype)
{
    for (int n = OF_NUMPY; n < DTYPES && PyUnicode_Check(dtype); n++)
        if (PyObject_RichCompareBool(dtype, s->dtypes[n], Py_EQ) > 0) return (attn_dtype)n;
    for (int n = 1; n < OF_NUMPY; n++)
        if (s->dtypes[n] && PyObject_RichCompareBool(dtype, s->dtypes[n], Py_EQ) > 0) return (attn_dtype)n;
    return ATTN_DTYPE_DEFAULT;
}

/* A shape and a dtype in place of an array, where no data is needed; its strides are those of a dense one, or a third tuple. */
static int take_shape(call *c, view *v, PyObject *x)
{
    PyObject *shape = PyTuple_GetItem(x, 0), *dtype = PyTuple_GetItem(x, 1);
    v->ndim = (int)PyTuple_Size(shape);
    if (v->ndim > axes_most(c, &c->state->rows_of[v->number])) {
        PyErr_Format(PyExc_ValueError, "%s has %d axes; with layout %s it has at most %d", tensor_name(c, v->number), v->ndim,
                     layout_name(c->layout), axes_most(c, &c->state->rows_of[v->number]));
        return -1;
    }
    int64_t step = 1;
    for (int i = v->ndim - 1; i >= 0; i--) {
        v->shape[i] = PyLong_AsLongLong(PyTuple_GetItem(shape, i));
        if (PyErr_Occurred()) return -1;
        v->stride[i] = step;
        if (v->shape[i] < 0 || __builtin_mul_overflow(step, v->shape[i], &step)) {
            PyErr_Format(PyExc_ValueError, "%s has a shape whose size overflows", tensor_name(c, v->number));
            return -1;
        }
    }
    v->dtype = dtype_named(c->state, dtype);
    if ((int)v->dtype >= OF_NUMPY) {
        const int64_t channels = v->ndim ? v->shape[v->ndim - 1] : 1;
        if (channels % ATTN_BLOCK) {
            PyErr_Format(PyExc_ValueError, "%s is of %S and has %lld channels; blocks need a multiple of %d",
                         tensor_name(c, v->number), dtype, (long long)channels, ATTN_BLOCK);
            return -1;
        }
        for (int i = 0; i < v->ndim - 1; i++) v->stride[i] /= ATTN_BLOCK;
    }
    for (int i = 0; PyTuple_Size(x) == 3 && i < v->ndim; i++) {
        v->stride[i] = PyLong_AsLongLong(PyTuple_GetItem(PyTuple_GetItem(x, 2), i));
        if (PyErr_Occurred()) return -1;
    }
    if (v->dtype) return check_dtype(c, v);
    PyErr_Format(PyExc_TypeError, "%s has a type that libattn does not know", tensor_name(c, v->number));
    return -1;
}

static int is_shape(PyObject *x)
{
    const Py_ssize_t size = PyTuple_Check(x) ? PyTuple_Size(x) : 0;
    if ((size != 2 && size != 3) || !PyTuple_Check(PyTuple_GetItem(x, 0)) || PyLong_Check(PyTuple_GetItem(x, 1)) ||
        PyTuple_Check(PyTuple_GetItem(x, 1)))
        return 0;
    return size == 2 ||
           (PyTuple_Check(PyTuple_GetItem(x, 2)) && PyTuple_Size(PyTuple_GetItem(x, 2)) == PyTuple_Size(PyTuple_GetItem(x, 0)));
}

/* The bytes of Blocks, and their format as the view's type. */
static int take_blocks(call *c, view *v, PyObject *x)
{
    state *s = c->state;
    PyObject *format = PyObject_GetAttrString(x, "format");
    PyObject *number = format ? PyDict_GetItemWithError(s->block_formats, format) : NULL; /* borrowed */
    attn_dtype of_bytes;
    v->dtype = number ? (attn_dtype)PyLong_AsLong(number) : ATTN_DTYPE_DEFAULT;
    Py_XDECREF(format);
    v->owner = number ? PyObject_GetAttrString(x, "data") : NULL;
    if (!v->owner) return -1;
    if (check_dtype(c, v)) return -1;
    if (Py_TYPE(v->owner) != (PyTypeObject *)s->ndarray && asarray(c, v, ATTN_DTYPE_DEFAULT)) return -1;
    if (dtype_number(s, v->owner, &of_bytes) || export(c, v)) return -1;
    const Py_ssize_t size = (Py_ssize_t)attn_dtype_size(v->dtype);
    if (of_bytes != ATTN_U8 || v->ndim < 1 || v->buffer.shape[v->ndim - 1] % size) { /* changed since they were made */
        PyErr_Format(PyExc_ValueError, "%s is no array of whole blocks of %zd bytes, of uint8", tensor_name(c, v->number), size);
        return -1;
    }
    return measure(c, v) ? copy(c, v) : 0;
}

static int take(call *c, view *v, PyObject *x)
{
    state *s = c->state;
    if (c->describes && is_shape(x)) return take_shape(c, v, x);
    if (Py_TYPE(x) == (PyTypeObject *)s->blocks) return take_blocks(c, v, x);
    Py_INCREF(x);
    v->owner = x;
    if (Py_TYPE(x) != (PyTypeObject *)s->ndarray) { /* a subclass may mean more than its numbers */
        if (asarray(c, v, ATTN_DTYPE_DEFAULT)) return -1;
        if (v->written && !PyObject_HasAttrString(x, "__dlpack__") && !PyObject_CheckBuffer(x)) {
            PyErr_Format(PyExc_TypeError, "%s is of type %R, which has no memory to write to", tensor_name(c, v->number),
                         Py_TYPE(x));
            return -1;
        }
    }
    if (dtype_number(s, v->owner, &v->dtype)) return -1;
    const attn_dtype must = prescribed(c, v);
    if (!v->dtype || (must && must != v->dtype)) {
        if (asarray(c, v, must) || dtype_number(s, v->owner, &v->dtype)) return -1;
    }
    if (check_dtype(c, v) || export(c, v)) return -1;
    return measure(c, v) ? copy(c, v) : 0;
}

int view_take(call *c, int number, PyObject *x)
{
    const tensor_row *row = &c->state->rows_of[number];
    const int written = row->about.role[c->problem.op] == ATTN_ROLE_OUTPUT;
    if (x == Py_None || x == Py_False) return 0;
    if (c->place[number]) {
        PyErr_Format(PyExc_TypeError, "%s is given twice", tensor_name(c, number));
        return -1;
    }
    view *v = &c->views[c->count++];
    memset(v, 0, offsetof(view, buffer));
    v->buffer.obj = NULL;
    v->number = number;
    v->written = written;
    v->given = x;
    c->place[number] = c->count;
    if (x != Py_True) return take(c, v, x);
    v->ndim = -1;
    return 0;
}

int view_allocate(call *c, view *v)
{
    state *s = c->state;
    PyObject *shape = PyTuple_New(v->ndim);
    if (!shape) return -1;
    for (int i = 0; i < v->ndim; i++) PyTuple_SetItem(shape, i, PyLong_FromLongLong(v->shape[i]));
    PyObject *dtype = s->dtypes[v->dtype];
    if (!dtype) {
        Py_DECREF(shape);
        PyErr_SetString(PyExc_NotImplementedError, "arrays of bfloat16 and float8 need the package ml_dtypes");
        return -1;
    }
    v->owner = PyObject_CallFunctionObjArgs(s->empty, shape, dtype, NULL);
    Py_DECREF(shape);
    if (!v->owner || PyObject_GetBuffer(v->owner, &v->buffer, PyBUF_STRIDES | PyBUF_WRITABLE)) return -1;
    v->data = v->buffer.buf;
    return 0;
}

void views_release(call *c)
{
    for (int i = 0; i < c->count; i++) {
        if (c->views[i].buffer.obj) PyBuffer_Release(&c->views[i].buffer);
        Py_XDECREF(c->views[i].owner);
    }
    Py_XDECREF(c->held);
}
