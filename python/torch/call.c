/* SPDX-License-Identifier: MIT
 * call.c - one call of the library, with the tensors of PyTorch as they are. */
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "../common/plans.h"
#include "shim.h"

/* How the axes of a tensor of PyTorch relate to the four of a slot, by what attn_tensor_describe says. */
typedef enum rule {
    ROWS,     /* in the order of the layout */
    ROWS_ONE, /* the same without the last axis: lse */
    PARTS     /* the axes that count something; missing ones in front broadcast */
} rule;

static struct row {
    attn_tensor_description about;
    rule rule;
    int core[4], cores;
} rows[TENSORS];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void make_rows(void)
{
    for (int n = 0; n < TENSORS; n++) {
        struct row *row = &rows[n];
        row->about.struct_size = sizeof row->about;
        attn_tensor_describe(ATTN_FAMILY_ATTENTION, n, &row->about, NULL);
        const attn_axis *axes = row->about.axes;
        for (int axis = 0; axis < 4; axis++)
            if (axes[axis] != ATTN_AXIS_ONE) row->core[row->cores++] = axis;
        const int by_row = axes[2] == ATTN_AXIS_QUERY || axes[2] == ATTN_AXIS_KEY;
        row->rule = !by_row || axes[3] == ATTN_AXIS_LIST || axes[3] == ATTN_AXIS_KEY ? PARTS
                    : axes[3] == ATTN_AXIS_ONE                                       ? ROWS_ONE
                                                                                     : ROWS;
    }
}

int call_fail(call *c, attn_status status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    c->error->status = status;
    vsnprintf(c->error->message, sizeof c->error->message, format, arguments);
    va_end(arguments);
    return -1;
}

void call_begin(call *c, attn_error *error)
{
    uint32_t threads = 1;
    pthread_once(&once, make_rows);
    memset(c, 0, sizeof *c);
    c->problem.struct_size = sizeof c->problem;
    c->options.struct_size = sizeof c->options;
    c->more.struct_size = sizeof c->more;
    c->tensors.struct_size = sizeof c->tensors;
    c->error = error;
    torch.torch_get_num_threads(&threads);
    c->options.threads = threads < 1 ? 1 : threads > 1024 ? 1024 : (int)threads;
}

void call_end(call *c)
{
    for (int i = 0; i < c->copies; i++) view_drop(c->copy[i]);
}

/* ---- axes ------------------------------------------------------------------------------------------------------ */

static int max_axes(const struct row *row, layout l)
{
    return row->rule == PARTS ? row->cores : (l == LAYOUT_THD ? 3 : 4) - (row->rule == ROWS_ONE);
}

static layout layout_of(const call *c, int number)
{
    const struct row *row = &rows[number];
    return c->ragged && row->rule != PARTS && row->about.axes[2] == ATTN_AXIS_KEY ? LAYOUT_BSHD : c->layout;
}

/* axes[i]: the slot's axis of axis i. */
static int axes_of(const call *c, int number, int ndim, int axes[4])
{
    static const int order[LAYOUTS][4] = {{0, 1, 2, 3}, {0, 2, 1, 3}, {2, 1, 3, 0}};
    const struct row *row = &rows[number];
    const layout l = layout_of(c, number);
    const int most = max_axes(row, l);
    if (ndim > most || (l == LAYOUT_THD && row->rule != PARTS && ndim < most)) return -1;
    for (int i = 0; i < ndim; i++) axes[i] = row->rule == PARTS ? row->core[most - ndim + i] : order[l][most - ndim + i];
    return 0;
}

static attn_output slot_of(const call *c, int number, const view *v)
{
    attn_output slot = {v->data, v->dtype, {0, 0, 0, 0}};
    int axes[4] = {0, 1, 2, 3}, steps = 0;
    int64_t size = 1;
    axes_of(c, number, v->ndim, axes);
    for (int i = 0; i < v->ndim; i++) {
        size *= v->size[i];
        slot.stride[axes[i]] = v->size[i] == 1 ? 0 : v->stride[i];
        steps |= slot.stride[axes[i]] != 0;
    }
    if (!size) return (attn_output){ATTN_EMPTY, v->dtype, {0, 0, 0, 0}};
    if (!steps && rows[number].cores > 1) slot.stride[0] = ATTN_BROADCAST; /* four zeros would mean dense */
    return slot;
}

static int64_t size_at(const call *c, int number, int axis)
{
    const view *v = call_view(c, number);
    int axes[4] = {0};
    if (!v) return 0;
    axes_of(c, number, v->ndim, axes);
    for (int i = 0; i < v->ndim; i++)
        if (axes[i] == axis) return v->size[i];
    return 1;
}

/* ---- tensors --------------------------------------------------------------------------------------------------- */

const view *call_view(const call *c, int number) { return c->place[number] ? &c->views[c->place[number] - 1].view : NULL; }

attn_dtype call_compute(const call *c) { return call_view(c, TENSOR(q))->dtype == ATTN_F64 ? ATTN_F64 : ATTN_F32; }

static void set_slot(call *c, int number, const view *v)
{
    const attn_output slot = slot_of(c, number, v);
    memcpy((char *)&c->tensors.q + (size_t)number * sizeof slot, &slot, sizeof slot);
}

static void add(call *c, int number, const view *v, int written)
{
    set_slot(c, number, v);
    c->views[c->count].number = number;
    c->views[c->count].written = written;
    c->views[c->count].view = *v;
    c->place[number] = ++c->count;
}

void call_replace(call *c, int number, const view *v)
{
    set_slot(c, number, v);
    c->views[c->place[number] - 1].view = *v;
}

int call_input(call *c, int number, const argument *a)
{
    const struct row *row = &rows[number];
    view v = {0};
    int axes[4];
    if (!a->given) return 0;
    if (view_of(a->tensor, row->about.name, &v, c->error)) return -1;
    if (axes_of(c, number, v.ndim, axes))
        return call_fail(c, ATTN_ERR_SHAPE, "%s has %d axes; it must have %s%d", row->about.name, v.ndim,
                         layout_of(c, number) == LAYOUT_THD ? "" : "at most ", max_axes(row, layout_of(c, number)));
    if (view_rows(&v, &c->copy[c->copies], c->error)) return -1;
    c->copies += c->copy[c->copies] != NULL;
    add(c, number, &v, 0);
    return 0;
}

int call_output(call *c, int number, int ndim, const int64_t size[4], const int64_t stride[4], attn_dtype dtype,
                AtenTensorHandle *result)
{
    view v = {0};
    if (view_new(&v, ndim, size, stride, dtype, c->error)) return -1;
    *result = v.handle;
    add(c, number, &v, 1);
    return 0;
}

int call_result(call *c, int number, const view *like, int64_t last, attn_dtype dtype, AtenTensorHandle *result)
{
    int64_t size[4], stride[4];
    memcpy(size, like->size, sizeof size);
    if (last >= 0) size[like->ndim - 1] = last;
    view_dense(like->ndim, size, like, stride);
    return call_output(c, number, like->ndim, size, stride, dtype, result);
}

int call_like(call *c, int number, const view *like, AtenTensorHandle *result)
{
    int64_t stride[4];
    view_dense(like->ndim, like->size, NULL, stride);
    return call_output(c, number, like->ndim, like->size, stride, like->dtype, result);
}

/* ---- sizes ----------------------------------------------------------------------------------------------------- */

/* The longest of packed sequences. */
static int longest(call *c, int number, int64_t tokens, int64_t *length)
{
    const view *v = call_view(c, number);
    const char *name = rows[number].about.name;
    int64_t before = 0;
    if (!v) return call_fail(c, ATTN_ERR_ARGUMENT, "%s is missing; the layout thd needs it", name);
    if (v->ndim != 1 || v->size[0] < 1 || (v->dtype != ATTN_I64 && v->dtype != ATTN_I32))
        return call_fail(c, ATTN_ERR_SHAPE, "%s must have one axis, at least one element, and the type int64 or int32", name);
    *length = 0;
    for (int64_t i = 0; i < v->size[0]; i++) {
        const int64_t at = v->dtype == ATTN_I64 ? ((const int64_t *)v->data)[i] : ((const int32_t *)v->data)[i];
        if (at < before || at > tokens)
            return call_fail(c, ATTN_ERR_ARGUMENT, "%s[%lld] (%lld) is not between %lld and %lld", name, (long long)i,
                             (long long)at, (long long)before, (long long)tokens);
        if (i && at - before > *length) *length = at - before;
        before = at;
    }
    if (before != tokens)
        return call_fail(c, ATTN_ERR_ARGUMENT, "%s ends at %lld, but there are %lld tokens", name, (long long)before,
                         (long long)tokens);
    return 0;
}

int call_sizes(call *c)
{
    static const int three[] = {TENSOR(q), TENSOR(k), TENSOR(v)};
    attn_shape *shape = &c->problem.shape;
    const int paged = c->place[TENSOR(page_table)] != 0;
    for (int i = 0; i < 3; i++) {
        const int ndim = call_view(c, three[i])->ndim, want = i && (paged || c->ragged) ? 4 : call_view(c, TENSOR(q))->ndim;
        if (ndim != want || ndim < 2)
            return call_fail(c, ATTN_ERR_SHAPE, "%s has %d axes; it must have %d", rows[three[i]].about.name, ndim,
                             want < 2 ? 2 : want);
    }
    shape->heads_q = size_at(c, TENSOR(q), 1);
    shape->heads_kv = size_at(c, TENSOR(k), 1);
    shape->dim_qk = size_at(c, TENSOR(q), 3);
    shape->dim_v = size_at(c, TENSOR(v), 3);
    if (c->layout == LAYOUT_THD) {
        if (longest(c, TENSOR(cu_seqlens_q), size_at(c, TENSOR(q), 2), &shape->len_q)) return -1;
        shape->batch = call_view(c, TENSOR(cu_seqlens_q))->size[0] - 1;
        if (!c->ragged) return longest(c, TENSOR(cu_seqlens_kv), size_at(c, TENSOR(k), 2), &shape->len_kv);
    } else {
        if (c->place[TENSOR(cu_seqlens_q)] || c->place[TENSOR(cu_seqlens_kv)])
            return call_fail(c, ATTN_ERR_SHAPE, "cu_seqlens_q and cu_seqlens_kv need the layout thd, [tokens, heads, dim]");
        shape->batch = size_at(c, TENSOR(q), 0);
        shape->len_q = size_at(c, TENSOR(q), 2);
    }
    shape->len_kv = size_at(c, TENSOR(k), 2);
    if (!paged) return 0;
    c->problem.paging.pages = size_at(c, TENSOR(k), 0);
    c->problem.paging.page_size = shape->len_kv;
    if (__builtin_mul_overflow(shape->len_kv, size_at(c, TENSOR(page_table), 3), &shape->len_kv))
        return call_fail(c, ATTN_ERR_SHAPE, "page_table has too many pages");
    return 0;
}

static void text_of(const int64_t *size, int count, char *text, size_t room)
{
    size_t at = 1;
    snprintf(text, room, "[");
    for (int i = 0; i < count && at < room; i++)
        at += (size_t)snprintf(text + at, room - at, i ? ", %lld" : "%lld", (long long)size[i]);
    if (at < room) snprintf(text + at, room - at, "]");
}

/* The library sees addresses and strides only: do the tensors have the sizes that the plan expects? */
static int check(call *c, const attn_plan *plan, int index)
{
    const int number = c->views[index].number;
    const view *v = &c->views[index].view;
    const struct row *row = &rows[number];
    const int free = row->rule == PARTS && row->cores > 1 && row->about.gradient_of < 0; /* to broadcast */
    attn_tensor_plan planned = {.struct_size = sizeof planned};
    int64_t wanted[4] = {0};
    int axes[4], fits = 1;
    if (row->rule == PARTS && row->about.gradient_of >= 0) return 0; /* of a tensor that has been checked */
    if (attn_plan_tensor(plan, number, &planned, c->error)) return -1;
    if (layout_of(c, number) == LAYOUT_THD && row->rule != PARTS) {
        planned.shape[0] = 1;
        planned.shape[2] = size_at(c, row->about.axes[2] == ATTN_AXIS_KEY ? TENSOR(k) : TENSOR(q), 2);
    }
    const int most = row->rule == PARTS ? row->cores : v->ndim;
    axes_of(c, number, most, axes);
    for (int i = 0; i < most; i++) {
        const int at = i - (most - v->ndim);
        wanted[i] = planned.shape[axes[i]];
        fits &= at < 0 ? free || wanted[i] == 1 : v->size[at] == wanted[i] || (free && v->size[at] == 1);
    }
    /* Without a batch axis there is one batch entry, and so on. */
    for (int axis = 0; row->rule != PARTS && layout_of(c, number) != LAYOUT_THD && axis < 4; axis++) {
        int found = row->rule == ROWS_ONE && axis == 3;
        for (int i = 0; i < most; i++) found |= axes[i] == axis;
        fits &= found || planned.shape[axis] == 1;
    }
    if (fits) return 0;
    char have_text[100], want_text[100];
    text_of(v->size, v->ndim, have_text, sizeof have_text);
    text_of(wanted, most, want_text, sizeof want_text);
    return call_fail(c, ATTN_ERR_SHAPE, "%s has the shape %s; it must be %s%s", row->about.name, have_text, want_text,
                     free ? ", or 1 on axes that broadcast" : "");
}

/* ---- running --------------------------------------------------------------------------------------------------- */

typedef struct body {
    void (*run)(void *, int64_t);
    void *context;
} body;

static void run_some(int64_t begin, int64_t end, void *context)
{
    const body *b = context;
    for (int64_t i = begin; i < end; i++) b->run(b->context, i);
}

/* PyTorch's threads. */
static void parallel_for(void *context, int64_t n, void (*run)(void *, int64_t), void *run_context)
{
    body b = {run, run_context};
    (void)context;
    if (n > 0) torch.torch_parallel_for(0, n, 1, run_some, &b);
}

typedef struct key {
    attn_problem problem;
    int64_t threads, layout, count;
    struct {
        int64_t number, type_ndim, size[4], stride[4];
    } tensor[MAX_VIEWS];
} key;

static size_t key_of(const call *c, key *k)
{
    memcpy(&k->problem, &c->problem, sizeof k->problem);
    k->threads = c->options.threads;
    k->layout = c->layout;
    k->count = c->count;
    for (int i = 0; i < c->count; i++) {
        const view *v = &c->views[i].view;
        k->tensor[i].number = c->views[i].number;
        k->tensor[i].type_ndim = (int64_t)v->dtype * 8 + v->ndim;
        for (int axis = 0; axis < 4; axis++) {
            k->tensor[i].size[axis] = axis < v->ndim ? v->size[axis] : 0;
            k->tensor[i].stride[axis] = axis < v->ndim ? v->stride[axis] : 0;
        }
    }
    return offsetof(key, tensor) + (size_t)c->count * sizeof k->tensor[0];
}

int call_run(call *c)
{
    key k;
    const size_t size = key_of(c, &k);
    c->tensors.call = &c->more;
    c->options.parallel_for = parallel_for;
    kept_plan *kept = kept_find(&k, size);
    if (!kept) {
        attn_plan *plan;
        if (attn_plan_create(&plan, &c->problem, &c->tensors, &c->options, c->error)) return -1;
        for (int i = 0; i < c->count; i++)
            if (check(c, plan, i)) {
                attn_plan_destroy(plan);
                return -1;
            }
        kept = kept_add(&k, size, plan, 0);
        if (!kept) return call_fail(c, ATTN_ERR_MEMORY, "cannot allocate the memory of a plan");
    }
    const attn_status status = kept_execute(kept, &c->tensors, c->error);
    kept_release(kept);
    return status ? -1 : 0;
}
