/* SPDX-License-Identifier: MIT
 * attend.c - attention over doubles, for tests of properties. */
#include "attend.h"

#include <math.h>

int all_variants(variant list[16], int half)
{
    static const struct {
        attn_dtype dtype;
        double rtol;
    } types[] = {{ATTN_F32, 4e-6}, {ATTN_F64, 1e-14}, {ATTN_F16, 2e-3}, {ATTN_BF16, 1.6e-2}};
    int count = 0;
    attn_kernel_description about = {.struct_size = sizeof about};
    for (int i = 0; attn_kernel_describe(i, &about, NULL) == ATTN_OK; i++) {
        if (about.op != ATTN_FORWARD || about.decode || !about.usable)
            continue; /* decode is chosen automatically for few queries */
        for (int t = 0; t < (half ? 4 : 2); t++)
            if (about.compute == (types[t].dtype == ATTN_F64 ? ATTN_F64 : ATTN_F32) && count < 16)
                list[count++] = (variant){about.isa, types[t].dtype, types[t].rtol};
    }
    return count;
}

static attn_dtype compute_of(const attend *a) { return a->tensors.q.dtype == ATTN_F64 ? ATTN_F64 : ATTN_F32; }

static attn_dtype dtype_of(const attend *a, part which)
{
    if (which == O && a->tensors.o.dtype) return a->tensors.o.dtype;
    return which == LSE || which == WEIGHTS || which == BIAS ? compute_of(a) : a->tensors.q.dtype;
}

void size_of(const attend *a, part which, int64_t size[4])
{
    const attn_shape *s = &a->problem.shape;
    const int keys = which == K || which == V;
    size[0] = s->batch;
    size[1] = keys ? s->heads_kv : s->heads_q;
    size[2] = keys ? s->len_kv : s->len_q;
    size[3] = which == Q || which == K            ? s->dim_qk
              : which == V || which == O          ? s->dim_v
              : which == WEIGHTS || which == BIAS ? s->len_kv
                                                  : 1;
}

static int64_t count_of(const attend *a, part which)
{
    int64_t size[4];
    size_of(a, which, size);
    return size[0] * size[1] * size[2] * size[3];
}

static char **array_of(attend *a, part which)
{
    char **arrays[] = {
        [Q] = &a->q, [K] = &a->k, [V] = &a->v, [O] = &a->o, [LSE] = &a->lse, [WEIGHTS] = &a->weights, [BIAS] = &a->bias};
    return arrays[which];
}

static void *element(const attend *a, part which, int64_t b, int64_t h, int64_t i, int64_t c)
{
    int64_t size[4];
    size_of(a, which, size);
    const int64_t at = ((b * size[1] + h) * size[2] + i) * size[3] + c;
    return *array_of((attend *)a, which) + (size_t)at * attn_dtype_size(dtype_of(a, which));
}

double get(const attend *a, part which, int64_t b, int64_t h, int64_t i, int64_t c)
{
    return element_read(dtype_of(a, which), element(a, which, b, h, i, c));
}

void put(attend *a, part which, int64_t b, int64_t h, int64_t i, int64_t c, double x)
{
    element_write(dtype_of(a, which), element(a, which, b, h, i, c), x);
}

unsigned char *mask_at(attend *a, int64_t b, int64_t h, int64_t i, int64_t j)
{
    const attn_shape *s = &a->problem.shape;
    return a->mask + ((b * s->heads_q + h) * s->len_q + i) * s->len_kv + j;
}

const void *row_of(const attend *a, part which, int64_t b, int64_t h, int64_t i) { return element(a, which, b, h, i, 0); }

size_t row_bytes(const attend *a, part which)
{
    int64_t size[4];
    size_of(a, which, size);
    return (size_t)size[3] * attn_dtype_size(dtype_of(a, which));
}

void copy_row(attend *a, int64_t b2, int64_t h2, int64_t i2, const attend *from, part which, int64_t b, int64_t h, int64_t i)
{
    assert_int_equal(row_bytes(a, which), row_bytes(from, which));
    memcpy(element(a, which, b2, h2, i2, 0), row_of(from, which, b, h, i), row_bytes(from, which));
}

static void *need(size_t bytes)
{
    void *memory = calloc(bytes + 1, 1);
    assert_non_null(memory);
    return memory;
}

static void allocate(attend *a)
{
    for (int which = Q; which <= BIAS; which++)
        *array_of(a, (part)which) = need((size_t)count_of(a, (part)which) * attn_dtype_size(dtype_of(a, (part)which)));
    a->mask = need((size_t)count_of(a, WEIGHTS));
}

attend *attend_create(const variant *v, attn_shape shape, uint64_t seed)
{
    attend *a = need(sizeof *a);
    random_state random = {seed};
    assert_true(shape.batch <= 16);
    a->problem = (attn_problem){.struct_size = sizeof a->problem, .shape = shape};
    a->tensors = (attn_tensors){.struct_size = sizeof a->tensors, .q = {.dtype = v->dtype}};
    a->tensors.q.data = a->tensors.k.data = a->tensors.v.data = ATTN_LATER;
    a->tensors.o.data = a->tensors.lse.data = a->tensors.weights.data = ATTN_LATER;
    a->options = (attn_options){.struct_size = sizeof a->options, .isa = v->isa, .threads = 1};
    allocate(a);
    for (int which = Q; which <= V; which++)
        for (int64_t n = 0; n < count_of(a, (part)which); n++)
            element_write(v->dtype, *array_of(a, (part)which) + (size_t)n * attn_dtype_size(v->dtype), random_bell(&random));
    memset(a->mask, 1, (size_t)count_of(a, WEIGHTS));
    for (int b = 0; b < 16; b++) a->lengths_q[b] = shape.len_q, a->lengths_kv[b] = shape.len_kv;
    return a;
}

attend *attend_copy(const attend *from)
{
    attend *a = need(sizeof *a);
    *a = *from;
    allocate(a);
    for (int which = Q; which <= BIAS; which++)
        memcpy(*array_of(a, (part)which), *array_of((attend *)from, (part)which),
               (size_t)count_of(a, (part)which) * attn_dtype_size(dtype_of(a, (part)which)));
    memcpy(a->mask, from->mask, (size_t)count_of(a, WEIGHTS));
    return a;
}

void attend_store_wide(attend *a)
{
    a->tensors.o.dtype = compute_of(a);
    free(a->o);
    a->o = need((size_t)count_of(a, O) * attn_dtype_size(a->tensors.o.dtype));
}

void attend_destroy(attend *a)
{
    for (int which = Q; which <= BIAS; which++) free(*array_of(a, (part)which));
    free(a->mask);
    free(a);
}

attn_tensors attend_tensors(const attend *a)
{
    attn_tensors t = a->tensors;
    const struct {
        attn_input *slot;
        const void *data;
    } inputs[] = {{&t.q, a->q},
                  {&t.k, a->k},
                  {&t.v, a->v},
                  {&t.mask, a->mask},
                  {&t.bias, a->bias},
                  {&t.lengths_q, a->lengths_q},
                  {&t.lengths_kv, a->lengths_kv},
                  {&t.offset_q, a->offset}};
    const struct {
        attn_output *slot;
        void *data;
    } outputs[] = {{&t.o, a->o}, {&t.lse, a->lse}, {&t.weights, a->weights}};
    for (size_t n = 0; n < sizeof inputs / sizeof *inputs; n++)
        if (inputs[n].slot->data) inputs[n].slot->data = inputs[n].data;
    for (size_t n = 0; n < sizeof outputs / sizeof *outputs; n++)
        if (outputs[n].slot->data) outputs[n].slot->data = outputs[n].data;
    return t;
}

void attend_run(attend *a)
{
    attn_error error;
    attn_plan *plan = NULL;
    const attn_tensors tensors = attend_tensors(a);
    attn_status status = attn_plan_create(&plan, &a->problem, &a->tensors, &a->options, &error);
    if (status != ATTN_OK) fail_msg("%s", error.message);
    const size_t bytes = attn_plan_workspace_size(plan);
    char *workspace = need(bytes);
    status = attn_execute(plan, &tensors, workspace, bytes, &error);
    free(workspace);
    attn_plan_destroy(plan);
    if (status != ATTN_OK) fail_msg("%s", error.message);
}

void assert_close(double x, double y, double rtol, double scale)
{
    if (!(fabs(x - y) <= rtol * scale)) fail_msg("%.17g and %.17g differ by %.3g, more than %.3g", x, y, fabs(x - y), rtol * scale);
}

void assert_same_row(const attend *x, const attend *y, part which, int64_t b, int64_t h, int64_t i, int64_t b2, int64_t h2,
                     int64_t i2)
{
    assert_int_equal(row_bytes(x, which), row_bytes(y, which));
    assert_memory_equal(row_of(x, which, b, h, i), row_of(y, which, b2, h2, i2), row_bytes(x, which));
}

void assert_same_bits(const attend *x, const attend *y)
{
    for (int which = O; which <= WEIGHTS; which++) {
        const size_t bytes = (size_t)count_of(x, (part)which) * attn_dtype_size(dtype_of(x, (part)which));
        assert_int_equal(count_of(x, (part)which), count_of(y, (part)which));
        if (bytes) assert_memory_equal(*array_of((attend *)x, (part)which), *array_of((attend *)y, (part)which), bytes);
    }
}

void assert_same_numbers(const attend *x, const attend *y, double rtol)
{
    for (int which = O; which <= WEIGHTS; which++) {
        int64_t size[4];
        size_of(x, (part)which, size);
        for (int64_t b = 0; b < size[0]; b++)
            for (int64_t h = 0; h < size[1]; h++)
                for (int64_t i = 0; i < size[2]; i++)
                    for (int64_t c = 0; c < size[3]; c++) {
                        const double a = get(x, (part)which, b, h, i, c), d = get(y, (part)which, b, h, i, c);
                        if (isinf(a) && a == d) continue;
                        assert_close(a, d, rtol, 1 + fabs(d));
                    }
    }
}
