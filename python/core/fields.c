/* SPDX-License-Identifier: MIT
 * fields.c - numbers and choices of a call: every field of attn_problem, attn_options and attn_call that is not derived from the
 * arrays, by a keyword. */
#include "core.h"

typedef enum kind { REAL, SIZE, SWITCH, CHOICE, WORD64, WORD32, ADDRESS, OWN } kind;
typedef int own(call *c, PyObject *value);

typedef struct field {
    const char *name;
    kind kind;
    size_t offset;       /* in a call */
    const char *choices; /* of an enum, from 0 on, each followed by a space */
    own *set;
} field;

static int wrong(const char *name, const char *what, PyObject *value)
{
    PyErr_Format(PyExc_TypeError, "%s must be %s, not %R", name, what, value);
    return -1;
}

static int to_real(const char *name, PyObject *value, double *to)
{
    *to = PyFloat_AsDouble(value);
    if (*to != -1 || !PyErr_Occurred()) return 0;
    PyErr_Clear();
    return wrong(name, "a number", value);
}

static int to_size(const char *name, PyObject *value, int64_t *to)
{
    *to = PyLong_AsLongLong(value);
    if (*to != -1 || !PyErr_Occurred()) return 0;
    const int large = PyErr_ExceptionMatches(PyExc_OverflowError);
    PyErr_Clear();
    if (!large) return wrong(name, "an integer", value);
    PyErr_Format(PyExc_ValueError, "%s is %R, which does not fit in 64 bits", name, value);
    return -1;
}

/* The number of a choice; '-' and '_' are the same. */
static int to_choice(const char *name, const char *choices, PyObject *value, int *to)
{
    Py_ssize_t size;
    const char *text = PyUnicode_Check(value) ? PyUnicode_AsUTF8AndSize(value, &size) : NULL;
    if (!text) {
        PyErr_Clear();
        return wrong(name, "a string", value);
    }
    *to = 0;
    for (const char *at = choices, *end; (end = strchr(at, ' ')); at = end + 1, ++*to) {
        int same = end - at == size;
        for (Py_ssize_t i = 0; same && i < size; i++) same = text[i] == at[i] || (text[i] == '_' && at[i] == '-');
        if (same) return 0;
    }
    char known[160] = "";
    const size_t length = strlen(choices) - 1; /* without the last space */
    memcpy(known, choices, length < sizeof known ? length : sizeof known - 1);
    PyErr_Format(PyExc_ValueError, "%s is %R; known: %s", name, value, known);
    return -1;
}

static const char aligns[] = "top-left bottom-right ";

static int set_align(call *c, PyObject *value)
{
    int align;
    if (to_choice("align", aligns, value, &align)) return -1;
    c->problem.mask.align = (attn_align)align;
    c->align_given = 1;
    return 0;
}

/* causal: False, True, or the corner in which the mask's diagonal ends. */
static int set_causal(call *c, PyObject *value)
{
    int align;
    if (value == Py_True || value == Py_False) {
        c->problem.mask.causal = value == Py_True;
        return 0;
    }
    if (PyObject_HasAttrString(value, "dtype")) { /* a truth value of NumPy's */
        const int on = PyObject_IsTrue(value);
        c->problem.mask.causal = on > 0;
        return on < 0 ? -1 : 0;
    }
    if (!PyUnicode_Check(value)) return wrong("causal", "False, True, 'top-left' or 'bottom-right'", value);
    if (to_choice("causal", aligns, value, &align)) return -1;
    c->problem.mask.causal = 1;
    c->problem.mask.align = (attn_align)align;
    c->align_given = 1;
    return 0;
}

static int side(PyObject *value, int64_t *to)
{
    *to = -1;
    return value == Py_None ? 0 : to_size("window", value, to);
}

/* window: how many keys to both sides of a query's own position it sees, or (left, right); -1 or None: all. */
static int set_window(call *c, PyObject *value)
{
    attn_mask *m = &c->problem.mask;
    const int pair = PyTuple_Check(value) || PyList_Check(value);
    if (pair && PySequence_Size(value) != 2) return wrong("window", "an integer or (left, right)", value);
    for (int i = 0; i < 2; i++) {
        PyObject *one = pair ? PySequence_GetItem(value, i) : value;
        const int failed = !one || side(one, i ? &m->window_right : &m->window_left);
        if (pair) Py_XDECREF(one);
        if (failed) return -1;
    }
    m->window = 1;
    if (m->window_left != -1 || m->window_right != -1) return 0;
    m->window = 0;
    m->window_left = m->window_right = 0;
    return 0;
}

/* scale: one number, or an array with one for each head. */
static int set_scale(call *c, PyObject *value)
{
    if (!PyFloat_Check(value) && !PyLong_Check(value)) {
        PyObject *axes = PyObject_GetAttrString(value, "ndim");
        const long long ndim = axes ? PyLong_AsLongLong(axes) : 1; /* a list has one */
        Py_XDECREF(axes);
        PyErr_Clear();
        if (ndim) return view_take(c, TENSOR(scale), value);
    }
    c->problem.score.scale_kind = ATTN_SCALE_VALUE;
    return to_real("scale", value, &c->problem.score.scale);
}

static int set_origin(call *c, PyObject *value)
{
    int64_t *to[] = {&c->origin.batch, &c->origin.head, &c->origin.heads, &c->origin.q, &c->origin.kv};
    if (!PyTuple_Check(value) || PyTuple_Size(value) != 5) return wrong("origin", "(batch, head, heads, q, kv)", value);
    for (int i = 0; i < 5; i++)
        if (to_size("origin", PyTuple_GetItem(value, i), to[i])) return -1;
    c->more.origin = &c->origin;
    return 0;
}

#define AT(kind, name, at)                                                                                                         \
    {                                                                                                                              \
        name, kind, offsetof(call, at), NULL, NULL                                                                                 \
    }
#define ONE_OF(name, at, choices)                                                                                                  \
    {                                                                                                                              \
        name, CHOICE, offsetof(call, at), choices, NULL                                                                            \
    }
#define SPECIAL(name, set)                                                                                                         \
    {                                                                                                                              \
        name, OWN, 0, NULL, set                                                                                                    \
    }
static const char stages[] = "raw capped biased weights ";

static const field fields[] = {
    SPECIAL("causal", set_causal),
    SPECIAL("align", set_align),
    SPECIAL("window", set_window),
    SPECIAL("scale", set_scale),
    SPECIAL("origin", set_origin),
    SPECIAL("schedule", schedule_take),
    AT(REAL, "softcap", problem.score.softcap),
    AT(REAL, "dropout", problem.dropout.probability),
    AT(WORD64, "seed", more.dropout_seed),
    AT(WORD32, "dropout_offset", more.dropout_offset),
    AT(SIZE, "threads", options.threads),
    AT(SIZE, "len_q", problem.shape.len_q),
    AT(SIZE, "len_kv", problem.shape.len_kv),
    ONE_OF("score", problem.score.kind, "dot general metric cosine distance additive "),
    AT(REAL, "temperature", problem.score.temperature),
    ONE_OF("normaliser", problem.score.normaliser, "softmax softmax-one sigmoid relu "),
    AT(REAL, "shift", problem.score.shift),
    ONE_OF("empty", problem.mask.empty, "zero uniform "),
    AT(SIZE, "chunk", problem.mask.chunk),
    AT(SIZE, "dilation", problem.mask.dilation),
    AT(SIZE, "global_q", problem.mask.global_q),
    AT(SIZE, "global_kv", problem.mask.global_kv),
    AT(SIZE, "block_q", problem.mask.block_q),
    AT(SIZE, "block_kv", problem.mask.block_kv),
    AT(SIZE, "least_distance", problem.mask.least_distance),
    AT(SIZE, "block_heads", problem.mask.block_heads),
    AT(SIZE, "tree_keys", problem.mask.tree_keys),
    AT(SWITCH, "after_dropout", problem.outputs.after_dropout),
    ONE_OF("scores_stage", problem.outputs.scores_stage, stages),
    ONE_OF("rows_stage", problem.outputs.rows_stage, stages),
    ONE_OF("column_heads", problem.outputs.column_heads, "each group all "),
    AT(SIZE, "column_queries", problem.outputs.column_queries),
    AT(SIZE, "topk", problem.outputs.topk),
    ONE_OF("bias_table_kind", problem.bias_table.kind, "t5 clipped "),
    AT(SIZE, "bias_table_max_distance", problem.bias_table.max_distance),
    AT(SWITCH, "bias_table_causal", problem.bias_table.causal),
    AT(SIZE, "relative_first", problem.relative.first),
    ONE_OF("isa", options.isa, "default scalar avx2 avx512 neon wasm128 "),
    AT(SWITCH, "invariant", options.invariant),
    AT(SWITCH, "reproducible", options.reproducible),
    AT(WORD64, "workspace_limit", options.workspace_limit),
    AT(ADDRESS, "visit_rows", more.visit_rows),
    AT(ADDRESS, "modify_scores", more.modify_scores),
    AT(ADDRESS, "modify_slopes", more.modify_slopes),
};
enum { MAX_THREADS = 1024 }; /* attn.h */
enum { FIELDS = sizeof fields / sizeof *fields };
_Static_assert(sizeof(size_t) == 8 && sizeof(attn_isa) == sizeof(int) && sizeof(attn_stage) == sizeof(int), "fields are words");

const char *field_name(int n) { return n < FIELDS ? fields[n].name : NULL; }

static int set_word(const field *f, PyObject *value, void *to)
{
    const unsigned long long word = PyLong_Check(value) ? PyLong_AsUnsignedLongLong(value) : 0;
    if (!PyLong_Check(value)) return wrong(f->name, "an integer", value);
    if (PyErr_Occurred() || (f->kind == WORD32 && word >> 32)) {
        PyErr_Clear();
        PyErr_Format(PyExc_ValueError, "%s is %R; it must be at least 0 and below 2^%d", f->name, value,
                     f->kind == WORD32 ? 32 : 64);
        return -1;
    }
    if (f->kind == WORD32) *(uint32_t *)to = (uint32_t)word;
    else *(uint64_t *)to = word;
    return 0;
}

/* A small integer, also where the field is an int: threads. */
static int set_size(const field *f, PyObject *value, void *to)
{
    int64_t size;
    if (to_size(f->name, value, &size)) return -1;
    if (f->offset != offsetof(call, options.threads)) {
        *(int64_t *)to = size;
        return 0;
    }
    if (size < 1 || size > MAX_THREADS) {
        PyErr_Format(PyExc_ValueError, "threads is %R; it must be between 1 and %d, or None", value, MAX_THREADS);
        return -1;
    }
    *(int *)to = (int)size;
    return 0;
}

int field_set(call *c, int number, PyObject *value)
{
    const field *f = &fields[number];
    void *to = (char *)c + f->offset;
    if (value == Py_None) return 0;
    switch (f->kind) {
    case REAL:
        return to_real(f->name, value, to);
    case SIZE:
        return set_size(f, value, to);
    case CHOICE:
        return to_choice(f->name, f->choices, value, to);
    case WORD32:
    case WORD64:
        return set_word(f, value, to);
    case ADDRESS: {
        void *address = PyLong_AsVoidPtr(value);
        if (PyErr_Occurred()) return -1;
        memcpy(to, &address, sizeof address);
        return 0;
    }
    case SWITCH: {
        const int on = PyObject_IsTrue(value);
        *(int *)to = on;
        return on < 0 ? -1 : 0;
    }
    case OWN:
        break;
    }
    return f->set(c, value);
}
