/* SPDX-License-Identifier: MIT
 * rows_backward.c - the gradients of queries and keys, from those of their features. */
#include <string.h>

#include "../../base/checked.h"
#include "../../base/names.h"
#include "linear.h"

/* dx = feature_scale (sum_m G_m omega_m + sums x), with x scaled. */
static void store_random_gradient(const attn_linear_head *head, const void *src, const attn_layout *layout, int64_t rows,
                                  const void *F, void *G, void *dst, const attn_layout *to)
{
    const attn_linear_walk *w = head->walk;
    const attn_linear_resolved *p = &w->problem;
    const int width = (int)attn_ceil_div(rows, w->kernel.lanes);
    const int64_t dim = p->shape.dim_qk, bytes = dim * w->tile_q * (int64_t)attn_dtype_bytes(w->compute);
    void *Xt = attn_linear_part(head, w->scratch.Xt), *dXt = attn_linear_part(head, w->scratch.dXt);
    void *Gt = attn_linear_part(head, w->scratch.Gt), *sums = attn_linear_lanes(head, LANES_MAX);
    memset(Xt, 0, (size_t)bytes);
    memset(dXt, 0, (size_t)bytes);
    memset(sums, 0, (size_t)w->tile_q * attn_dtype_bytes(w->compute));
    w->kernel.features->random_backward((int)p->features, rows, p->random_features, F, G, w->ld_f, sums);
    w->kernel.storage->pack_query(width, rows, p->random_features, G, w->compute, w->ld_f, 1, Gt);
    w->kernel.product->add_values(width, p->random_features, dim, Gt, head->args->feature_matrix, dim, dXt);
    w->kernel.storage->pack_query(width, rows, dim, src, layout->dtype, layout->stride[2], p->feature_scale, Xt);
    w->kernel.chunk->scale_lanes(width, dim, sums, Xt);
    w->kernel.outer->add(dim * w->tile_q, Xt, dXt);
    w->kernel.storage->store_columns(width, rows, dim, p->feature_scale, dXt, dst, to->dtype, to->stride[2]);
}

static void store_gradient(const attn_linear_head *head, const void *src, const attn_layout *layout, int64_t n, const void *F,
                           void *G, void *dst, const attn_layout *to)
{
    const attn_linear_walk *w = head->walk;
    const attn_linear_resolved *p = &w->problem;
    if (p->features >= ATTN_FEATURES_FAVOR) {
        store_random_gradient(head, src, layout, n, F, G, dst, to);
        return;
    }
    if (p->features != ATTN_FEATURES_IDENTITY) w->kernel.features->map_backward((int)p->features, n, w->dim_f, F, G, w->ld_f);
    w->kernel.storage->store_rows(n, w->dim_f, 1, G, w->ld_f, dst, to->dtype, to->stride[2]);
}

void attn_linear_store_query_gradient(const attn_linear_head *head, int64_t h, int64_t first, int64_t n, const void *F, void *G)
{
    const attn_linear_resolved *p = &head->walk->problem;
    store_gradient(head, attn_linear_row(head, head->args->q, &p->at.q, h, first), &p->at.q, n, F, G,
                   attn_linear_row_out(head, head->args->grad_q, &p->at.grad_q, h, first), &p->at.grad_q);
}

void attn_linear_store_key_gradient(const attn_linear_head *head, int64_t first, int64_t n, const void *F, void *G)
{
    const attn_linear_resolved *p = &head->walk->problem;
    store_gradient(head, attn_linear_row(head, head->args->k, &p->at.k, head->g, first), &p->at.k, n, F, G,
                   attn_linear_row_out(head, head->args->grad_k, &p->at.grad_k, head->g, first), &p->at.grad_k);
}
