/* SPDX-License-Identifier: MIT
 * call.c - one run of a kernel: the runtime's values as slots, a kept plan, the runtime's threads. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/plans.h"
#include "common/sentence.h"
#include "shim.h"

ort_status *fail(int code, const char *format, ...)
{
    char message[400];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    return ort->create_status(code, message);
}

/* ---- values ---------------------------------------------------------------------------------------------------- */

attn_dtype type_of(int type)
{
    switch (type) {
    case ORT_FLOAT:
        return ATTN_F32;
    case ORT_FLOAT16:
        return ATTN_F16;
    case ORT_BFLOAT16:
        return ATTN_BF16;
    case ORT_DOUBLE:
        return ATTN_F64;
    case ORT_BOOL:
        return ATTN_BOOL;
    case ORT_INT32:
        return ATTN_I32;
    case ORT_INT64:
        return ATTN_I64;
    default:
        return ATTN_DTYPE_DEFAULT;
    }
}

static int64_t count_of(const value *v)
{
    int64_t count = 1;
    for (int axis = 0; axis < v->rank; axis++) count *= v->size[axis];
    return count;
}

static ort_status *read_value(const ort_value *tensor, value *v)
{
    const int64_t *size;
    size_t rank;
    TRY(ort->type_and_sizes(tensor, &v->type, &size, &rank));
    if (rank > MAX_AXES) return fail(ORT_INVALID_ARGUMENT, "%s has %zu axes; it must have at most %d", v->name, rank, MAX_AXES);
    v->rank = (int)rank;
    if (rank) memcpy(v->size, size, rank * sizeof *size);
    TRY(ort->tensor_data((ort_value *)(uintptr_t)tensor, &v->data));
    if (!count_of(v)) v->data = ATTN_EMPTY;
    return NULL;
}

ort_status *call_input(call *c, size_t index, const char *name, value *v)
{
    const ort_value *tensor = NULL;
    *v = (value){.name = name};
    if (index < c->inputs) TRY(ort->input(c->context, index, &tensor));
    return tensor ? read_value(tensor, v) : NULL;
}

ort_status *call_output(call *c, size_t index, const char *name, int rank, const int64_t *size, int type, value *v)
{
    ort_value *tensor = NULL;
    *v = (value){.name = name};
    if (index < c->outputs) TRY(ort->output(c->context, index, size, (size_t)rank, &tensor));
    if (!tensor) return NULL;
    TRY(read_value(tensor, v));
    return !type || v->type == type ? NULL : fail(ORT_INVALID_ARGUMENT, "%s has another element type than its input", name);
}

ort_status *expect(const value *v, int rank, const int64_t *size)
{
    char have[120] = "", want[120] = "";
    int fits = v->rank == rank;
    for (int axis = 0; axis < rank; axis++) fits = fits && v->size[axis] == size[axis];
    if (fits) return NULL;
    for (int axis = 0, at = 0; axis < v->rank; axis++)
        at += snprintf(have + at, sizeof have - (size_t)at, axis ? ", %lld" : "%lld", (long long)v->size[axis]);
    for (int axis = 0, at = 0; axis < rank; axis++)
        at += snprintf(want + at, sizeof want - (size_t)at, axis ? ", %lld" : "%lld", (long long)size[axis]);
    return fail(ORT_INVALID_ARGUMENT, "%s has the shape [%s]; it must be [%s]", v->name, have, want);
}

/* ---- slots ----------------------------------------------------------------------------------------------------- */

attn_input dense(void *data, attn_dtype dtype, const int64_t sizes[4])
{
    return (attn_input){data, dtype, {sizes[1] * sizes[2] * sizes[3], sizes[2] * sizes[3], sizes[3], 1}};
}

attn_output written(attn_input slot)
{
    attn_output out;
    _Static_assert(sizeof out == sizeof slot, "an output is laid out like an input");
    memcpy(&out, &slot, sizeof out);
    return out;
}

ort_status *rows_of(const value *v, int64_t heads, attn_input *slot, int64_t sizes[4])
{
    if (v->rank == 4) {
        memcpy(sizes, v->size, 4 * sizeof *sizes);
        *slot = dense(v->data, type_of(v->type), sizes);
        return NULL;
    }
    if (v->rank != 3) return fail(ORT_INVALID_ARGUMENT, "%s has %d axes; it must have 3 or 4", v->name, v->rank);
    if (heads < 1) return fail(ORT_INVALID_ARGUMENT, "%s has 3 axes, and the node does not say how many heads it has", v->name);
    if (v->size[2] % heads)
        return fail(ORT_INVALID_ARGUMENT, "the last axis of %s (%lld) is not a multiple of its %lld heads", v->name,
                    (long long)v->size[2], (long long)heads);
    const int64_t all[4] = {v->size[0], heads, v->size[1], v->size[2] / heads};
    memcpy(sizes, all, sizeof all);
    *slot = (attn_input){v->data, type_of(v->type), {v->size[1] * v->size[2], all[3], v->size[2], 1}};
    return NULL;
}

ort_status *pairs_of(const value *v, const int64_t sizes[4], attn_input *slot)
{
    int64_t step = 1, any = 0;
    *slot = (attn_input){v->data, type_of(v->type), {0, 0, 0, 0}};
    for (int axis = 3, at = v->rank - 1; at >= 0; axis--, at--) {
        if (v->size[at] != 1 && (axis < 0 || v->size[at] != sizes[axis]))
            return fail(ORT_INVALID_ARGUMENT, "axis %d of %s has the size %lld; it must be %lld or 1", at, v->name,
                        (long long)v->size[at], axis < 0 ? 1 : (long long)sizes[axis]);
        if (v->size[at] != 1) slot->stride[axis] = step;
        if (axis >= 0) any |= slot->stride[axis];
        step *= v->size[at];
    }
    if (v->data == ATTN_EMPTY) *slot = (attn_input){ATTN_EMPTY, slot->dtype, {0, 0, 0, 0}};
    else if (!any) slot->stride[0] = ATTN_BROADCAST; /* four zeros would mean dense */
    return NULL;
}

void set_score(call *c, const attributes *a)
{
    c->problem.score.softcap = a->softcap;
    if (a->scale == 0) return;
    c->problem.score.scale_kind = ATTN_SCALE_VALUE;
    c->problem.score.scale = a->scale;
}

/* ---- a run ----------------------------------------------------------------------------------------------------- */

ort_status *call_begin(call *c, ort_context *context, int threads)
{
    memset(c, 0, sizeof *c);
    c->context = context;
    c->threads = threads;
    c->problem.struct_size = sizeof c->problem;
    c->tensors.struct_size = sizeof c->tensors;
    TRY(ort->input_count(context, &c->inputs));
    return ort->output_count(context, &c->outputs);
}

ort_status *call_scratch(call *c, int64_t count, size_t element, void **memory)
{
    size_t bytes;
    if (c->scratches == MAX_SCRATCH || __builtin_mul_overflow((size_t)count, element, &bytes) ||
        !(*memory = malloc(bytes ? bytes : 1)))
        return fail(ORT_FAIL, "cannot allocate %lld elements of scratch memory", (long long)count);
    c->scratch[c->scratches++] = *memory;
    return NULL;
}

void call_end(call *c)
{
    while (c->scratches) free(c->scratch[--c->scratches]);
}

/* The run that this thread is in, whose threads the library's loops use. */
static _Thread_local const ort_context *running;

typedef struct body {
    void (*run)(void *, int64_t);
    void *context;
} body;

static void run_one(void *context, size_t i)
{
    const body *b = context;
    b->run(b->context, (int64_t)i);
}

static void parallel_for(void *context, int64_t n, void (*run)(void *, int64_t), void *run_context)
{
    body b = {run, run_context};
    (void)context;
    if (n > 1 && running) {
        ort_status *status = ort->parallel_for(running, run_one, (size_t)n, 0, &b);
        if (!status) return;
        ort->release_status(status); /* it checks its arguments before it runs anything */
    }
    for (int64_t i = 0; i < n; i++) run(run_context, i);
}

enum {
    SLOTS = (sizeof(attn_tensors) - offsetof(attn_tensors, q)) / sizeof(attn_input),
    LINEAR_SLOTS = (sizeof(attn_linear_tensors) - offsetof(attn_linear_tensors, q)) / sizeof(attn_input),
    MOST_SLOTS = 16
};

typedef struct key_slot {
    int64_t number, type, stride[4];
} key_slot;

/* All that a plan depends on. */
typedef struct key {
    attn_problem problem;
    int64_t threads;
    key_slot slot[MOST_SLOTS];
} key;

typedef struct linear_key {
    attn_linear_problem problem;
    int64_t threads;
    key_slot slot[MOST_SLOTS];
} linear_key;
_Static_assert(sizeof(attn_problem) != sizeof(attn_linear_problem), "struct_size tells keys apart");

/* The slots that are present; -1 if there are more than any operator has. */
static int key_slots(const attn_input *slots, int count, key_slot slot[MOST_SLOTS])
{
    int present = 0;
    for (int i = 0; i < count; i++) {
        if (!slots[i].data) continue;
        if (present == MOST_SLOTS) return -1;
        slot[present].number = i;
        slot[present].type = (int64_t)slots[i].dtype * 2 + (slots[i].data == ATTN_EMPTY);
        memcpy(slot[present++].stride, slots[i].stride, sizeof slots[i].stride);
    }
    return present;
}

static ort_status *failed(attn_error *error)
{
    sentence_python(error->message, sizeof error->message, 0);
    return fail(error->status == ATTN_ERR_UNSUPPORTED ? ORT_NOT_IMPLEMENTED
                : error->status == ATTN_ERR_MEMORY    ? ORT_FAIL
                                                      : ORT_INVALID_ARGUMENT,
                "%s", error->message);
}

static ort_status *run(call *c, kept_plan *kept, const attn_linear_tensors *linear)
{
    attn_error error;
    if (!kept) return fail(ORT_FAIL, "cannot allocate the memory of a plan");
    running = c->context;
    const attn_status status = linear ? kept_execute_linear(kept, linear, &error) : kept_execute(kept, &c->tensors, &error);
    running = NULL;
    kept_release(kept);
    return status ? failed(&error) : NULL;
}

ort_status *call_run(call *c)
{
    key k;
    attn_plan *plan;
    attn_error error;
    memcpy(&k.problem, &c->problem, sizeof k.problem);
    k.threads = c->threads;
    const int count = key_slots(&c->tensors.q, SLOTS, k.slot);
    if (count < 0) return fail(ORT_FAIL, "libattn's provider has more tensors than it expects");
    const size_t size = offsetof(key, slot) + (size_t)count * sizeof k.slot[0];
    kept_plan *kept = kept_find(&k, size);
    if (kept) return run(c, kept, NULL);
    const attn_options options = {.struct_size = sizeof options, .threads = c->threads, .parallel_for = parallel_for};
    if (attn_plan_create(&plan, &c->problem, &c->tensors, &options, &error)) return failed(&error);
    return run(c, kept_add(&k, size, plan, 0), NULL);
}

ort_status *call_run_linear(call *c, const attn_linear_problem *problem, const attn_linear_tensors *tensors)
{
    linear_key k;
    attn_linear_plan *plan;
    attn_error error;
    memcpy(&k.problem, problem, sizeof k.problem);
    k.threads = c->threads;
    const int count = key_slots(&tensors->q, LINEAR_SLOTS, k.slot);
    if (count < 0) return fail(ORT_FAIL, "libattn's provider has more tensors than it expects");
    const size_t size = offsetof(linear_key, slot) + (size_t)count * sizeof k.slot[0];
    kept_plan *kept = kept_find(&k, size);
    if (kept) return run(c, kept, tensors);
    const attn_options options = {.struct_size = sizeof options, .threads = c->threads, .parallel_for = parallel_for};
    if (attn_linear_plan_create(&plan, problem, tensors, &options, &error)) return failed(&error);
    return run(c, kept_add_linear(&k, size, plan, 0), tensors);
}
