/* SPDX-License-Identifier: MIT
 *
 * rows.c - conversions between the caller's tensors and the rows of features, values and states that the walks of linear attention
 * use.
 */
#include <string.h>

#include "../../base/checked.h"
#include "../../base/element.h"
#include "../../base/names.h"
#include "linear.h"

static int64_t offset_of(const attn_linear_head *head, const attn_layout *layout, int64_t h, int64_t t)
{
    int64_t elements = head->b * layout->stride[0] + h * layout->stride[1] + (head->first + t) * layout->stride[2];
    return elements * (int64_t)attn_dtype_bytes(layout->dtype);
}

const void *attn_linear_row(const attn_linear_head *head, const void *base, const attn_layout *layout, int64_t h, int64_t t)
{
    return (const char *)base + offset_of(head, layout, h, t);
}

void *attn_linear_row_out(const attn_linear_head *head, void *base, const attn_layout *layout, int64_t h, int64_t t)
{
    return (char *)base + offset_of(head, layout, h, t);
}

void *attn_linear_state_row(const attn_linear_head *head, int64_t row, const void *base, const attn_layout *layout)
{
    const int64_t elements = row * layout->stride[0] + head->g * layout->stride[1];
    return (char *)(uintptr_t)base + elements * (int64_t)attn_dtype_bytes(layout->dtype);
}

static int is_random(attn_features kind) { return kind >= ATTN_FEATURES_FAVOR; }

/* How many vectors hold `rows` lanes. */
static int width_of(const attn_linear_walk *w, int64_t rows) { return (int)attn_ceil_div(rows, w->kernel.lanes); }

/* A tile's omega.x, and then its features. */
static void random_tile(const attn_linear_head *head, const void *src, const attn_layout *layout, int64_t rows, char *F)
{
    const attn_linear_walk *w = head->walk;
    const attn_linear_resolved *p = &w->problem;
    const int width = width_of(w, rows);
    void *Xt = attn_linear_part(head, w->scratch.Xt), *X = attn_linear_part(head, w->scratch.X);
    void *Ut = attn_linear_part(head, w->scratch.Gt);
    w->kernel.storage->pack_query(width, rows, p->shape.dim_qk, src, layout->dtype, layout->stride[2], p->feature_scale, Xt);
    w->kernel.storage->store_columns(width, rows, p->shape.dim_qk, 1, Xt, X, w->compute, w->ld_x);
    w->kernel.product->score(width, p->random_features, p->shape.dim_qk, Xt, head->args->feature_matrix, p->shape.dim_qk, Ut,
                             attn_linear_lanes(head, LANES_MAX), head->args->feature_matrix, p->shape.dim_qk);
    w->kernel.storage->store_columns(width, rows, p->random_features, 1, Ut, F, w->compute, w->ld_f);
    w->kernel.features->random((int)p->features, rows, p->shape.dim_qk, p->random_features, X, w->ld_x, F, w->ld_f);
}

static void features(const attn_linear_head *head, const void *src, const attn_layout *layout, int64_t n, void *F)
{
    const attn_linear_walk *w = head->walk;
    const attn_linear_resolved *p = &w->problem;
    const int64_t size = (int64_t)attn_dtype_bytes(w->compute), stored = (int64_t)attn_dtype_bytes(layout->dtype);
    if (!is_random(p->features)) {
        w->kernel.storage->load_rows(n, w->dim_f, src, layout->dtype, layout->stride[2], F, w->ld_f);
        if (p->features != ATTN_FEATURES_IDENTITY) w->kernel.features->map((int)p->features, n, w->dim_f, F, w->ld_f);
        return;
    }
    for (int64_t i = 0; i < n; i += w->tile_q)
        random_tile(head, (const char *)src + i * layout->stride[2] * stored, layout, attn_min(w->tile_q, n - i),
                    (char *)F + i * w->ld_f * size);
}

void attn_linear_query_features(const attn_linear_head *head, int64_t h, int64_t first, int64_t n, void *F)
{
    const attn_layout *layout = &head->walk->problem.at.q;
    features(head, attn_linear_row(head, head->args->q, layout, h, first), layout, n, F);
}

void attn_linear_key_features(const attn_linear_head *head, int64_t first, int64_t n, void *F)
{
    const attn_layout *layout = &head->walk->problem.at.k;
    features(head, attn_linear_row(head, head->args->k, layout, head->g, first), layout, n, F);
}

void attn_linear_query_tile(const attn_linear_head *head, int64_t h, int64_t first, int64_t rows, void *Xt)
{
    const attn_linear_walk *w = head->walk;
    const attn_linear_resolved *p = &w->problem;
    const int width = width_of(w, rows);
    if (is_random(p->features) || p->features == ATTN_FEATURES_SOFTMAX) {
        void *F = attn_linear_part(head, w->scratch.Qf);
        attn_linear_query_features(head, h, first, rows, F);
        w->kernel.storage->pack_query(width, rows, w->dim_f, F, w->compute, w->ld_f, 1, Xt);
        return;
    }
    w->kernel.storage->pack_query(width, rows, w->dim_f, attn_linear_row(head, head->args->q, &p->at.q, h, first), p->at.q.dtype,
                                  p->at.q.stride[2], 1, Xt);
    if (p->features != ATTN_FEATURES_IDENTITY) w->kernel.features->map_lanes((int)p->features, width, w->dim_f, Xt);
}

void attn_linear_prefetch(const attn_linear_head *head, const void *base, const attn_layout *layout, int64_t h, int64_t first,
                          int64_t len, int64_t dim, attn_prefetch *prefetch)
{
    const int64_t n = attn_min(head->walk->chunk, len - first), size = (int64_t)attn_dtype_bytes(layout->dtype);
    if (first < 0 || n <= 0 || dim == 0) return;
    prefetch->list[prefetch->count++] = (struct attn_prefetch_rows){(uintptr_t)attn_linear_row(head, base, layout, h, first), n,
                                                                    dim * size, layout->stride[2] * size};
}

void attn_linear_prefetch_keys(const attn_linear_head *head, int64_t first, attn_prefetch *prefetch)
{
    const attn_linear_resolved *p = &head->walk->problem;
    attn_linear_prefetch(head, head->args->k, &p->at.k, head->g, first, head->len_kv, p->shape.dim_qk, prefetch);
    attn_linear_prefetch(head, head->args->v, &p->at.v, head->g, first, head->len_kv, p->shape.dim_v, prefetch);
}

void attn_linear_prefetch_queries(const attn_linear_head *head, int64_t h, int64_t first, attn_prefetch *prefetch)
{
    const attn_linear_resolved *p = &head->walk->problem;
    attn_linear_prefetch(head, head->args->q, &p->at.q, h, first, head->len_q, p->shape.dim_qk, prefetch);
    attn_linear_prefetch(head, head->args->o, &p->at.o, h, first, head->len_q, p->shape.dim_v, prefetch);
}

const void *attn_linear_values(const attn_linear_head *head, int64_t first, int64_t n, void *buffer, int64_t *ld)
{
    const attn_linear_walk *w = head->walk;
    const attn_layout *layout = &w->problem.at.v;
    const void *src = attn_linear_row(head, head->args->v, layout, head->g, first);
    *ld = layout->stride[2];
    if (layout->dtype == w->compute && *ld >= w->problem.shape.dim_v && *ld <= w->ld_v) return src;
    *ld = w->ld_v;
    w->kernel.storage->load_rows(n, w->problem.shape.dim_v, src, layout->dtype, layout->stride[2], buffer, w->ld_v);
    return buffer;
}

/* Copies one number per feature between the caller's sums and scratch. */
static void copy_sum(const attn_linear_walk *w, void *to, int64_t to_stride, const void *from, int64_t from_stride)
{
    const int64_t size = (int64_t)attn_dtype_bytes(w->compute);
    if (to_stride == 1 && from_stride == 1) {
        memcpy(to, from, (size_t)(w->dim_f * size));
        return;
    }
    for (int64_t c = 0; c < w->dim_f; c++)
        memcpy((char *)to + c * to_stride * size, (const char *)from + c * from_stride * size, (size_t)size);
}

/* Between the compute type and another one, or of the same type. */
static void copy_rows(const attn_linear_walk *w, void *to, attn_dtype to_type, int64_t to_ld, const void *from,
                      attn_dtype from_type, int64_t from_ld)
{
    const int64_t size = (int64_t)attn_dtype_bytes(w->compute), row = w->problem.shape.dim_v * size;
    if (row == 0) return;                       /* no values: the stride between rows can be anything */
    if (to == from && to_ld == from_ld) return; /* the state is the caller's own memory */
    if (from_type != w->compute) {
        w->kernel.storage->load_rows(w->dim_f, w->problem.shape.dim_v, from, from_type, from_ld, to, to_ld);
        return;
    }
    if (to_type != w->compute) {
        w->kernel.storage->store_rows(w->dim_f, w->problem.shape.dim_v, 1, from, from_ld, to, to_type, to_ld);
        return;
    }
    for (int64_t c = 0; c < w->dim_f; c++)
        memcpy((char *)to + c * to_ld * size, (const char *)from + c * from_ld * size, (size_t)row);
}

/* A row of a caller's states; NULL if there is none. */
typedef struct outer {
    void *state, *sum;
    const attn_layout *state_at, *sum_at;
} outer;

static outer outer_of(const attn_linear_head *head, int which, int64_t column)
{
    const attn_linear_args *a = head->args;
    const attn_linear_layouts *at = &head->walk->problem.at;
    const outer all[] = {
        [LINEAR_INITIAL] = {(void *)(uintptr_t)a->initial_state, (void *)(uintptr_t)a->initial_sum, &at->initial_state,
                            &at->initial_sum},
        [LINEAR_FINAL] = {a->final_state, a->final_sum, &at->final_state, &at->final_sum},
        [LINEAR_GRAD_FINAL] = {(void *)(uintptr_t)a->grad_final_state, (void *)(uintptr_t)a->grad_final_sum, &at->grad_final_state,
                               &at->grad_final_sum},
        [LINEAR_GRAD_INITIAL] = {a->grad_initial_state, a->grad_initial_sum, &at->grad_initial_state, &at->grad_initial_sum}};
    outer o = all[which];
    const int64_t row = which == LINEAR_INITIAL ? attn_linear_initial_row(head)
                        : which == LINEAR_FINAL ? attn_linear_final_row(head, column)
                                                : head->b;
    o.state = o.state && row >= 0 ? attn_linear_state_row(head, row, o.state, o.state_at) : NULL;
    o.sum = o.sum && row >= 0 ? attn_linear_state_row(head, row, o.sum, o.sum_at) : NULL;
    return o;
}

static void load_sum(const attn_linear_walk *w, const outer *o, void *z)
{
    if (!w->normalised) return;
    if (o->sum) copy_sum(w, z, 1, o->sum, o->sum_at->stride[2]);
    else memset(z, 0, (size_t)w->dim_f * attn_dtype_bytes(w->compute));
}

void attn_linear_load_state(const attn_linear_head *head, int which, void *S, int64_t ld, void *z)
{
    const attn_linear_walk *w = head->walk;
    const attn_linear_resolved *p = &w->problem;
    const outer o = outer_of(head, which, 0);
    const int64_t size = (int64_t)attn_dtype_bytes(w->compute);
    if (o.state) copy_rows(w, S, w->compute, ld, o.state, o.state_at->dtype, o.state_at->stride[2]);
    for (int64_t c = 0; !o.state && c < w->dim_f; c++) memset((char *)S + c * ld * size, 0, (size_t)(p->shape.dim_v * size));
    load_sum(w, &o, z);
}

void attn_linear_load_sum(const attn_linear_head *head, void *z)
{
    const outer o = outer_of(head, LINEAR_INITIAL, 0);
    load_sum(head->walk, &o, z);
}

void attn_linear_load_own_state(const attn_linear_head *head, int which, void *S, void *z)
{
    const attn_linear_walk *w = head->walk;
    memset(S, 0, (size_t)(w->dim_f * w->ld_v) * attn_dtype_bytes(w->compute)); /* the padding too */
    attn_linear_load_state(head, which, S, w->ld_v, z);
}

static void store_sum(const attn_linear_walk *w, const outer *o, const void *z)
{
    if (w->normalised && o->sum) copy_sum(w, o->sum, o->sum_at->stride[2], z, 1);
}

static void store(const attn_linear_head *head, const void *S, int64_t ld, const void *z, const outer *o)
{
    const attn_linear_walk *w = head->walk;
    if (o->state) copy_rows(w, o->state, o->state_at->dtype, o->state_at->stride[2], S, w->compute, ld);
    store_sum(w, o, z);
}

void attn_linear_store_sum(const attn_linear_head *head, const void *z)
{
    const outer o = outer_of(head, LINEAR_FINAL, 0);
    store_sum(head->walk, &o, z);
}

void attn_linear_store_state(const attn_linear_head *head, const void *S, int64_t ld, const void *z, int which)
{
    const outer o = outer_of(head, which, 0);
    store(head, S, ld, z, &o);
}

void attn_linear_store_snapshot(const attn_linear_head *head, int64_t column, const void *S, int64_t ld, const void *z)
{
    const outer o = outer_of(head, LINEAR_FINAL, column);
    store(head, S, ld, z, &o);
}

/* Factors below exp(least) are 0 in the compute type anyway; the limit keeps sums of logs finite. */
double attn_linear_log(const attn_linear_head *head, int64_t t, int64_t c)
{
    const attn_linear_walk *w = head->walk;
    const attn_layout *layout = &w->problem.at.decay;
    const double least = w->compute == ATTN_F64 ? -750 : -110;
    double x = attn_element_get(attn_linear_row(head, head->args->decay, layout, head->g, t), layout->dtype, c * layout->stride[3]);
    return x < least ? least : x;
}

void attn_linear_gates(const attn_linear_head *head, int64_t first, int64_t n, void *gates)
{
    const attn_linear_walk *w = head->walk;
    const attn_layout *layout = &w->problem.at.decay;
    if (layout->stride[3] == 1) {
        w->kernel.storage->load_rows(n, w->dim_f, attn_linear_row(head, head->args->decay, layout, head->g, first), layout->dtype,
                                     layout->stride[2], gates, w->ld_f);
    } else {
        for (int64_t j = 0; j < n; j++)
            for (int64_t c = 0; c < w->dim_f; c++)
                attn_real_put(gates, w->compute, j * w->ld_f + c, attn_linear_log(head, first + j, c));
    }
    w->kernel.gate->gates(n, w->dim_f, gates, w->ld_f);
}

double attn_linear_guard(const attn_linear_resolved *problem, double n, int *clamped)
{
    *clamped = 0;
    if (problem->denominator == ATTN_DENOMINATOR_NONE) return 1;
    if (problem->denominator == ATTN_DENOMINATOR_ADD) return n + problem->epsilon;
    *clamped = n < problem->epsilon;
    return *clamped ? problem->epsilon : n;
}

void attn_linear_scaled_gradient(const attn_linear_head *head, int64_t h, int64_t in_group, int64_t first, int64_t n, void *A)
{
    const attn_linear_walk *w = head->walk;
    const attn_linear_resolved *p = &w->problem;
    const int64_t size = (int64_t)attn_dtype_bytes(w->compute), at = in_group * w->chunk;
    char *factors = (char *)attn_linear_part(head, w->scratch.factors) + at * size;
    char *terms = (char *)attn_linear_part(head, w->scratch.terms) + at * size, *Y = attn_linear_part(head, w->scratch.Y);
    const void *ns = head->args->denominators;
    int clamped = 0;
    for (int64_t i = 0; i < n; i++) {
        double d = 0;
        if (w->normalised) d = attn_real_at(attn_linear_row(head, ns, &p->at.denominators, h, first + i), w->compute, 0);
        attn_real_put(factors, w->compute, i, p->scale / attn_linear_guard(p, d, &clamped));
    }
    w->kernel.storage->load_rows(n, p->shape.dim_v, attn_linear_row(head, head->args->grad_o, &p->at.grad_o, h, first),
                                 p->at.grad_o.dtype, p->at.grad_o.stride[2], A, w->ld_v);
    if (w->normalised)
        w->kernel.storage->load_rows(n, p->shape.dim_v, attn_linear_row(head, head->args->o, &p->at.o, h, first), p->at.o.dtype,
                                     p->at.o.stride[2], Y, w->ld_v);
    w->kernel.chunk->row_terms(n, p->shape.dim_v, A, w->ld_v, Y, w->ld_v, factors, w->normalised ? terms : NULL);
    for (int64_t i = 0; w->normalised && i < n; i++) {
        (void)attn_linear_guard(p, attn_real_at(attn_linear_row(head, ns, &p->at.denominators, h, first + i), w->compute, 0),
                                &clamped);
        if (clamped) attn_real_put(terms, w->compute, i, 0);
    }
}

void attn_linear_clear(const attn_linear_head *head, void *base, const attn_layout *layout, int64_t h, int64_t first, int64_t end,
                       int64_t dim)
{
    for (int64_t t = first; t < end; t++) {
        void *row = attn_linear_row_out(head, base, layout, h, t);
        for (int64_t c = 0; c < dim; c++) attn_element_put(row, layout->dtype, c * layout->stride[3], 0);
    }
}
