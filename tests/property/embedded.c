/* SPDX-License-Identifier: MIT
 * embedded.c - the layouts of sequences, and the content of their tensors. */
#include "embedded.h"

#include "testing/random/random.h"

#include <math.h>

const tensor_kind kinds[TENSORS] = {
    [Q] = {0, D, 1},
    [K] = {1, D, 1},
    [V] = {1, DV, 1},
    [O] = {0, DV, 0},
    [LSE] = {0, 1, 0},
    [GRAD_O] = {0, DV, 1},
    [GRAD_LSE] = {0, 1, 1},
    [GRAD_Q] = {0, D, 0},
    [GRAD_K] = {1, D, 0},
    [GRAD_V] = {1, DV, 0},
    [TAN_Q] = {0, D, 1},
    [TAN_K] = {1, D, 1},
    [TAN_V] = {1, DV, 1},
    [TAN_O] = {0, DV, 0},
    [TAN_LSE] = {0, 1, 0},
    [SECOND_GRAD_O] = {0, DV, 0},
    [SECOND_GRAD_LSE] = {0, 1, 0},
    [SECOND_Q] = {0, D, 0},
    [SECOND_K] = {1, D, 0},
    [SECOND_V] = {1, DV, 0},
};

const char *const place_names[PLACES] = {"exact", "plain", "longer", "padded", "packed", "paged"};

/* A number in -1 .. 1 that depends only on the arguments. */
static float drawn(uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e)
{
    random_state r = random_from((((a * 1000003 + b) * 1000003 + c) * 1000003 + d) * 1000003 + e);
    return (float)random_signed(&r);
}

static void draw_all(float *to, int count, uint64_t number)
{
    for (int n = 0; n < count; n++) to[n] = drawn(number, 7, 7, 7, (uint64_t)n);
}

attn_dtype type_of(const embedded *e, int t)
{
    if (e->dtype == ATTN_F64) return ATTN_F64;
    return kinds[t].dim == 1 ? ATTN_F32 : e->dtype;
}

int dim_of(const embedded *e, int t) { return kinds[t].dim == DV ? (int)e->of.dim_v : kinds[t].dim; }
int64_t heads_of(const embedded *e, int t) { return kinds[t].keys ? e->of.heads_kv : e->of.heads_q; }
const int64_t *lengths_of(const embedded *e, int t) { return kinds[t].keys ? e->len_kv : e->len_q; }

memory_layout layout_of(const embedded *e, int t)
{
    const int64_t dim = dim_of(e, t), heads = heads_of(e, t);
    const int keys = kinds[t].keys;
    const int64_t rows = keys ? e->long_kv : e->long_q, all = keys ? e->cu_kv[e->batch] : e->cu_q[e->batch];
    if (e->where == PACKED) return (memory_layout){type_of(e, t), {0, all * dim, dim, 1}};
    if (e->where == PAGED && keys) return (memory_layout){type_of(e, t), {heads * PAGE * dim, PAGE * dim, dim, 1}};
    return (memory_layout){type_of(e, t), {heads * rows * dim, rows * dim, dim, 1}};
}

int64_t pages_of(const embedded *e) { return (e->long_kv + PAGE - 1) / PAGE; }

char *row_at(const embedded *e, int t, int64_t b, int64_t h, int64_t i)
{
    const memory_layout layout = layout_of(e, t);
    const int64_t *s = layout.stride, first = kinds[t].keys ? e->cu_kv[b] : e->cu_q[b];
    int64_t at = b * s[0] + h * s[1] + i * s[2];
    if (e->where == PACKED) at = h * s[1] + (first + i) * s[2];
    if (e->where == PAGED && kinds[t].keys) at = e->pages[b * pages_of(e) + i / PAGE] * s[0] + h * s[1] + i % PAGE * s[2];
    return e->data[t] + at * (int64_t)attn_dtype_size(layout.dtype);
}

static int64_t elements(const embedded *e, int t)
{
    return e->batch * ((kinds[t].keys ? e->long_kv : e->long_q) + PAGE) * heads_of(e, t) * dim_of(e, t);
}

/* Fills sequences with numbers, and everything else with NaN. */
static void fill(embedded *e, int t)
{
    const int64_t count = elements(e, t), size = (int64_t)attn_dtype_size(type_of(e, t));
    e->data[t] = malloc((size_t)(count * size));
    assert_non_null(e->data[t]);
    const float nan = NAN;
    if (count) (void)attn_convert(1, &nan, ATTN_F32, e->data[t], type_of(e, t), NULL);
    for (int64_t n = 1; n < count; n++) memcpy(e->data[t] + n * size, e->data[t], (size_t)size);
    for (int64_t b = 0; b < e->batch && kinds[t].read; b++)
        for (int64_t h = 0; h < heads_of(e, t); h++)
            for (int64_t i = 0; i < lengths_of(e, t)[b]; i++) {
                float row[DV];
                for (int c = 0; c < dim_of(e, t); c++)
                    row[c] = drawn((uint64_t)t, b == e->own ? 99 : (uint64_t)b, (uint64_t)h, (uint64_t)i, (uint64_t)c);
                (void)attn_convert(dim_of(e, t), row, ATTN_F32, row_at(e, t, b, h, i), type_of(e, t), NULL);
            }
}

static float *pairs(const embedded *e, int64_t number)
{
    const size_t count = (size_t)(e->batch * e->long_q * e->long_kv);
    float *bias = malloc(count * sizeof *bias);
    assert_non_null(bias);
    for (size_t n = 0; n < count; n++) bias[n] = NAN;
    for (int64_t b = 0; b < e->batch && number; b++)
        for (int64_t i = 0; i < e->len_q[b]; i++)
            for (int64_t j = 0; j < e->len_kv[b]; j++)
                bias[(b * e->long_q + i) * e->long_kv + j] =
                    drawn((uint64_t)number, b == e->own ? 99 : 0, 0, (uint64_t)i, (uint64_t)j);
    return bias;
}

static int64_t any_of(const int64_t *list, int count, uint64_t number, int64_t b)
{
    return list[(int)((drawn(number, 8, 8, 8, (uint64_t)b) + 1) / 2 * (float)count) % count];
}

static void lay_out(embedded *e, place where, attn_dtype dtype, const sizes *of)
{
    static const int64_t more_q[] = {-1, 0, 61}, more_kv[] = {-40, 0, 700};
    static const int64_t any_q[] = {0, 1, 2, 4, 5, 8, 16, 31, 63, 64, 65, 80, 200, 300};
    static const int64_t any_kv[] = {0, 1, 30, 64, 100, 129, 200, 256, 400, 1100};
    const int beside = where == PADDED || where == PACKED || where == PAGED;
    e->where = where;
    e->dtype = dtype;
    e->of = *of;
    e->batch = !beside ? 1 : of->mixed ? MAX_BATCH : where == PAGED ? 2 : 3;
    e->own = e->batch == 1 ? 0 : of->mixed ? (int64_t)(of->mixed % MAX_BATCH) : 1;
    for (int64_t b = 0; b < e->batch; b++) {
        const int64_t kind = e->batch == 1 ? 1 : b;
        const int drawn_ones = of->mixed && b != e->own;
        e->len_q[b] = drawn_ones ? any_of(any_q, 14, of->mixed, b) : of->len_q + (of->mixed ? 0 : more_q[kind]);
        e->len_kv[b] = drawn_ones ? any_of(any_kv, 10, of->mixed + 1000, b) : of->len_kv + (of->mixed ? 0 : more_kv[kind]);
        e->narrow_q[b] = (int32_t)e->len_q[b];
        e->narrow_kv[b] = (int32_t)e->len_kv[b];
        e->cu_q[b + 1] = e->cu_q[b] + e->len_q[b];
        e->cu_kv[b + 1] = e->cu_kv[b] + e->len_kv[b];
        e->long_q = e->len_q[b] > e->long_q ? e->len_q[b] : e->long_q;
        e->long_kv = e->len_kv[b] > e->long_kv ? e->len_kv[b] : e->long_kv;
    }
    if (where == LONGER || (where == PAGED && !of->mixed)) e->long_q = of->len_q + 61, e->long_kv = of->len_kv + 700;
    const int64_t pages = e->batch * pages_of(e);
    e->pages = malloc((size_t)(pages + 1) * sizeof *e->pages);
    assert_non_null(e->pages);
    for (int64_t n = 0; where == PAGED && n < pages; n++) e->pages[n] = (int32_t)(n % 2 ? n : pages - 1 - (pages - 1) % 2 - n);
}

embedded *embed(place where, attn_dtype dtype, const sizes *of)
{
    embedded *e = calloc(1, sizeof *e);
    assert_non_null(e);
    lay_out(e, where, dtype, of);
    for (int t = 0; t < TENSORS; t++) fill(e, t);
    e->bias = pairs(e, 50);
    e->tan_bias = pairs(e, 51);
    e->grad_bias = pairs(e, 0);
    e->second_bias = pairs(e, 0);
    draw_all(e->slopes, MAX_HEADS, 60);
    draw_all(e->sink, MAX_HEADS, 61);
    draw_all(e->w, 2 * D * D, 62);
    draw_all(e->table, MAX_HEADS * ROWS, 63);
    draw_all(e->u, MAX_HEADS * D, 64);
    draw_all(e->v, MAX_HEADS * D, 65);
    draw_all(e->relative_keys, MAX_HEADS * ROWS * D, 66);
    draw_all(e->relative_values, MAX_HEADS * ROWS * DV, 67);
    attn_problem *p = &e->problem;
    p->struct_size = sizeof *p;
    p->shape = (attn_shape){e->batch, of->heads_q, of->heads_kv, e->long_q, e->long_kv, D, of->dim_v};
    if (where == PAGED) p->paging = (attn_paging){.page_size = PAGE, .pages = e->batch * pages_of(e)};
    return e;
}

void destroy(embedded *e)
{
    for (int t = 0; t < TENSORS; t++) free(e->data[t]);
    free(e->bias);
    free(e->grad_bias);
    free(e->tan_bias);
    free(e->second_bias);
    free(e->pages);
    free(e);
}
