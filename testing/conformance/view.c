/* SPDX-License-Identifier: MIT
 * view.c - arrays with strides. */
#include "view.h"

#include <stdlib.h>
#include <string.h>

#include "testing/memory/element.h"
#include "testing/text/failure.h"

void *pool_take(view_pool *pool, int64_t count, size_t size)
{
    if (pool->count == pool->capacity) {
        const int64_t capacity = 2 * pool->capacity + 16;
        void **more = need_memory(capacity, sizeof *more);
        if (pool->count) memcpy(more, pool->owned, (size_t)pool->count * sizeof *more);
        free(pool->owned);
        pool->owned = more;
        pool->capacity = capacity;
    }
    void *memory = need_memory(count > 0 ? count : 1, size);
    pool->owned[pool->count++] = memory;
    return memory;
}

void pool_empty(view_pool *pool)
{
    for (int64_t i = 0; i < pool->count; i++) free(pool->owned[i]);
    free(pool->owned);
    *pool = (view_pool){0};
}

static void set_dense(view *v)
{
    int64_t step = 1;
    for (int axis = v->rank - 1; axis >= 0; axis--) {
        v->stride[axis] = step;
        step *= v->size[axis];
    }
}

view view_of(const attn_archive_tensor *tensor)
{
    view v = {0};
    if (!tensor) return v;
    v.dtype = tensor->dtype;
    v.rank = tensor->rank;
    static const double nothing = 0; /* for tensors without elements */
    v.data = tensor->data ? tensor->data : &nothing;
    memcpy(v.size, tensor->shape, sizeof v.size);
    set_dense(&v);
    return v;
}

int view_present(const view *v) { return v->data != NULL; }

int64_t view_count(const view *v)
{
    int64_t n = 1;
    for (int axis = 0; axis < v->rank; axis++) n *= v->size[axis];
    return n;
}

static const void *element_at(const view *v, int64_t n)
{
    int64_t at = 0;
    for (int axis = v->rank - 1; axis >= 0; axis--) {
        at += n % v->size[axis] * v->stride[axis];
        n /= v->size[axis];
    }
    return (const char *)v->data + at * (int64_t)attn_dtype_size(v->dtype);
}

double view_get(const view *v, int64_t n) { return element_read(v->dtype, element_at(v, n)); }

/* A dense copy of the same type. */
static view copy(view_pool *pool, const view *v)
{
    const size_t bytes = attn_dtype_size(v->dtype);
    const int64_t n = view_count(v);
    view out = *v;
    char *data = pool_take(pool, n, bytes);
    for (int64_t i = 0; i < n; i++) memcpy(data + (size_t)i * bytes, element_at(v, i), bytes);
    out.data = data;
    set_dense(&out);
    return out;
}

view view_to_rank(view_pool *pool, const view *v, int rank)
{
    view out = *v;
    if (v->rank > rank) {
        out = copy(pool, v);
        const int extra = v->rank - rank;
        for (int axis = 1; axis <= extra; axis++) out.size[0] *= out.size[axis];
        memmove(out.size + 1, out.size + 1 + extra, (size_t)(rank - 1) * sizeof *out.size);
        out.rank = rank;
        set_dense(&out);
    }
    while (out.rank < rank) {
        memmove(out.size + 1, out.size, (size_t)out.rank * sizeof *out.size);
        memmove(out.stride + 1, out.stride, (size_t)out.rank * sizeof *out.stride);
        out.stride[0] = out.rank > 0 ? out.size[1] * out.stride[1] : 1;
        out.size[0] = 1;
        out.rank++;
    }
    return out;
}

view view_swap(const view *v, int a, int b)
{
    view out = *v;
    out.size[a] = v->size[b], out.size[b] = v->size[a];
    out.stride[a] = v->stride[b], out.stride[b] = v->stride[a];
    return out;
}

int view_split(const view *v, int64_t parts, view *out)
{
    const int last = v->rank - 1;
    if (parts < 1 || last < 0 || last + 2 > ATTN_MAX_RANK || v->size[last] % parts != 0) return 0;
    *out = *v;
    out->rank++;
    out->size[last + 1] = v->size[last] / parts;
    out->stride[last + 1] = v->stride[last];
    out->size[last] = parts;
    out->stride[last] = out->size[last + 1] * v->stride[last];
    return 1;
}

int view_expand(const view *v, const int64_t *size, view *out)
{
    *out = *v;
    for (int axis = 0; axis < v->rank; axis++) {
        if (v->size[axis] == size[axis]) continue;
        if (v->size[axis] != 1) return 0;
        out->size[axis] = size[axis];
        out->stride[axis] = 0;
    }
    return 1;
}

int view_join(view_pool *pool, const view *a, const view *b, int axis, view *out)
{
    if (a->rank != b->rank || a->dtype != b->dtype) return 0;
    for (int k = 0; k < a->rank; k++)
        if (k != axis && a->size[k] != b->size[k]) return 0;
    *out = *a;
    out->size[axis] += b->size[axis];
    set_dense(out);
    const size_t bytes = attn_dtype_size(a->dtype);
    char *data = pool_take(pool, view_count(out), bytes);
    out->data = data;
    const view *part[] = {a, b};
    for (int which = 0; which < 2; which++) {
        view place = *part[which]; /* its place in the result */
        memcpy(place.stride, out->stride, sizeof place.stride);
        place.data = data + (which ? (size_t)(a->size[axis] * out->stride[axis]) * bytes : 0);
        for (int64_t n = 0; n < view_count(&place); n++) memcpy((char *)element_at(&place, n), element_at(part[which], n), bytes);
    }
    return 1;
}

view view_pad(view_pool *pool, const view *v, int64_t size, double value)
{
    const int last = v->rank - 1;
    const int64_t old = v->size[last], rows = old > 0 ? view_count(v) / old : 0;
    const size_t bytes = attn_dtype_size(v->dtype);
    view out = *v;
    out.size[last] = size;
    set_dense(&out);
    char *data = pool_take(pool, view_count(&out), bytes);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t j = 0; j < size; j++) {
            char *at = data + (size_t)(r * size + j) * bytes;
            if (j < old) memcpy(at, element_at(v, r * old + j), bytes);
            else element_write(v->dtype, at, value); /* a boolean stays 0 */
        }
    out.data = data;
    return out;
}

view view_convert(view_pool *pool, const view *v, attn_dtype dtype)
{
    view out = *v;
    out.dtype = dtype;
    set_dense(&out);
    const size_t bytes = attn_dtype_size(dtype);
    char *data = pool_take(pool, view_count(v), bytes);
    for (int64_t n = 0; n < view_count(v); n++) element_write(dtype, data + (size_t)n * bytes, view_get(v, n));
    out.data = data;
    return out;
}

view view_scale(view_pool *pool, const view *v, double factor)
{
    view out = *v;
    set_dense(&out);
    const size_t bytes = attn_dtype_size(v->dtype);
    char *data = pool_take(pool, view_count(v), bytes);
    for (int64_t n = 0; n < view_count(v); n++) element_write(v->dtype, data + (size_t)n * bytes, factor * view_get(v, n));
    out.data = data;
    return out;
}

view view_made(attn_dtype dtype, int rank, const int64_t *size, const void *data)
{
    view out = {.dtype = dtype, .rank = rank, .data = data};
    memcpy(out.size, size, (size_t)rank * sizeof *size);
    set_dense(&out);
    return out;
}
