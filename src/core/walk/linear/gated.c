/* SPDX-License-Identifier: MIT
 * gated.c - forward, and functions shared with backward; see gated.h. */
#include "gated.h"

#include <math.h>
#include <string.h>

#include "../../base/checked.h"
#include "../../base/names.h"
#include "tokens.h"

static void *part(const attn_linear_head *head, int64_t offset, int64_t elements)
{
    return (char *)attn_linear_part(head, offset) + elements * (int64_t)attn_dtype_bytes(head->walk->compute);
}

/* Values, each followed by a one if there is a denominator. */
static void *values(const attn_linear_head *head, int64_t first, int64_t n)
{
    const attn_linear_walk *w = head->walk;
    const attn_linear_resolved *p = &w->problem;
    char *V = attn_linear_part(head, w->scratch.V);
    w->kernel.storage->load_rows(n, p->shape.dim_v, attn_linear_row(head, head->args->v, &p->at.v, head->g, first), p->at.v.dtype,
                                 p->at.v.stride[2], V, w->ld_v);
    for (int64_t j = 0; w->normalised && j < n; j++) attn_real_put(V, w->compute, j * w->ld_v + p->shape.dim_v, 1);
    return V;
}

attn_linear_gated attn_linear_gated_at(const attn_linear_head *head, int64_t first, int64_t n)
{
    const attn_linear_walk *w = head->walk;
    const attn_linear_resolved *p = &w->problem;
    attn_linear_gated g = {.chunk = {.first = first, .n = n, .Kf = part(head, w->scratch.Kf, 0)}};
    attn_linear_key_features(head, first, n, g.chunk.Kf);
    g.U = g.chunk.V = values(head, first, n);
    if (attn_decays_heads(p)) attn_linear_chunk_logs(head, &g.chunk);
    if (attn_decays_channels(p)) {
        g.gates = part(head, w->scratch.gates, 0);
        attn_linear_gates(head, first, n, g.gates);
    }
    if (p->rule != ATTN_LINEAR_RULE_DELTA) return g;
    g.W = part(head, w->scratch.W, 0), g.U = part(head, w->scratch.U, 0);
    g.beta = part(head, w->scratch.beta, 0);
    for (int64_t j = 0; j < n; j++) attn_real_put(g.beta, w->compute, j, attn_linear_beta(head, first + j));
    return g;
}

void attn_linear_gated_lanes(const attn_linear_head *head, const attn_linear_gated *g, int64_t at, int64_t rows, double shift,
                             double sign, int64_t dim, void *X)
{
    const attn_linear_walk *w = head->walk;
    const int width = (int)attn_ceil_div(rows, w->kernel.lanes);
    void *factors = attn_linear_lanes(head, LANES_FACTOR);
    if (!g->chunk.logs) return;
    attn_linear_broadcast(w, g->chunk.logs, at, rows, width, factors, shift, sign, 1);
    w->kernel.chunk->scale_lanes(width, dim, factors, X);
}

/* What a tile of readers gets from the state and from the first `keys` keys, in scratch.Ot; P^T stays in scratch.S.  nan_safe:
 * pairs of weight 0 add nothing, even if the value is NaN or infinite. */
static void read_tile(const attn_linear_head *head, const attn_linear_gated *g, const void *state, const void *F, int64_t at,
                      int64_t rows, int strict, int64_t keys, int nan_safe)
{
    const attn_linear_walk *w = head->walk;
    const int64_t size = (int64_t)attn_dtype_bytes(w->compute), seen = at + rows;
    const int width = (int)attn_ceil_div(rows, w->kernel.lanes);
    void *Xt = part(head, w->scratch.Qt, 0), *Ot = part(head, w->scratch.Ot, 0), *S = part(head, w->scratch.S, 0);
    attn_prefetch none = {0};
    w->kernel.storage->pack_query(width, rows, w->dim_f, (const char *)F + at * w->ld_f * size, w->compute, w->ld_f, 1, Xt);
    if (g->gates) {
        w->kernel.gate->score_gated(width, seen, w->dim_f, Xt, g->chunk.Kf, g->gates, w->ld_f, at, strict, 0, S);
    } else {
        void *logs = attn_linear_lanes(head, LANES_LOG);
        if (g->chunk.logs) attn_linear_broadcast(w, g->chunk.logs, at, rows, width, logs, 0, 1, 0);
        w->kernel.product->score(width, seen, w->dim_f, Xt, g->chunk.Kf, w->ld_f, S, attn_linear_lanes(head, LANES_MAX), g->U,
                                 w->ld_v);
        w->kernel.chunk->apply_decay(width, seen, S, at - strict, 0, NULL, NULL, logs, g->chunk.logs, NULL);
    }
    w->kernel.chunk->read(width, w->dim_f, w->dim_u, Xt, state, w->ld_v, 0, Ot, &none);
    attn_linear_gated_lanes(head, g, at, rows, 0, 1, w->dim_u, Ot);
    (nan_safe ? w->kernel.product->add_values_nan_safe : w->kernel.product->add_values)(width, keys, w->dim_u, S, g->U, w->ld_v,
                                                                                        Ot);
}

void attn_linear_gated_solve(const attn_linear_head *head, attn_linear_gated *g, const void *state)
{
    const attn_linear_walk *w = head->walk;
    const int64_t size = (int64_t)attn_dtype_bytes(w->compute), dv = w->dim_u;
    void *X = part(head, w->scratch.Y, 0);
    if (w->problem.rule != ATTN_LINEAR_RULE_DELTA) return;
    for (int64_t at = 0; at < g->chunk.n; at += w->tile_q) {
        const int64_t rows = attn_min(w->tile_q, g->chunk.n - at);
        read_tile(head, g, state, g->chunk.Kf, at, rows, 1, at, 0);
        w->kernel.storage->store_columns((int)attn_ceil_div(rows, w->kernel.lanes), rows, dv, 1, part(head, w->scratch.Ot, 0), X,
                                         w->compute, w->ld_v);
        w->kernel.gate->solve(rows, dv, part(head, w->scratch.S, at * w->tile_q), X, (const char *)g->chunk.V + at * w->ld_v * size,
                              w->ld_v, (char *)g->beta + at * size, part(head, w->scratch.W, at * w->ld_v),
                              part(head, w->scratch.U, at * w->ld_v), w->ld_v);
    }
}

void attn_linear_gated_decay(const attn_linear_head *head, const attn_linear_gated *g, void *state)
{
    const attn_linear_walk *w = head->walk;
    if (g->gates) w->kernel.chunk->row_terms(w->dim_f, w->dim_u, state, w->ld_v, NULL, 0, part(head, w->scratch.total, 0), NULL);
    else if (g->chunk.logs)
        w->kernel.storage->store_rows(w->dim_f, w->ld_v, exp(g->chunk.last), state, w->ld_v, state, w->compute, w->ld_v);
}

void attn_linear_gated_absorb(const attn_linear_head *head, const attn_linear_gated *g, void *state)
{
    const attn_linear_walk *w = head->walk;
    const void *K = g->chunk.Kf, *weights = NULL;
    void *panels = part(head, w->scratch.panels, 0);
    attn_prefetch none = {0};
    if (g->gates) {
        void *decayed = part(head, w->scratch.decayed, 0);
        w->kernel.gate->decay_rows(g->chunk.n, w->dim_f, K, g->gates, w->ld_f, 1, decayed, part(head, w->scratch.total, 0));
        K = decayed;
    } else if (g->chunk.logs) {
        weights = attn_linear_weights(head, &g->chunk, 1);
    }
    attn_linear_gated_decay(head, g, state);
    w->kernel.chunk->pack_panels(g->chunk.n, w->dim_u, g->U, w->ld_v, weights, panels);
    w->kernel.chunk->update_state(g->chunk.n, w->dim_f, w->dim_u, K, w->ld_f, panels, state, w->ld_v, &none);
}

/* Copies the sum to the last channel of a state, or from it. */
static void move_sum(const attn_linear_head *head, void *S, int to_state)
{
    const attn_linear_walk *w = head->walk;
    void *sum = part(head, w->scratch.sum, 0);
    for (int64_t c = 0; w->normalised && c < w->dim_f; c++) {
        const int64_t at = c * w->ld_v + w->problem.shape.dim_v;
        if (to_state) attn_real_put(S, w->compute, at, attn_real_at(sum, w->compute, c));
        else attn_real_put(sum, w->compute, c, attn_real_at(S, w->compute, at));
    }
}

void attn_linear_gated_load(const attn_linear_head *head, int which, void *S)
{
    attn_linear_load_own_state(head, which, S, part(head, head->walk->scratch.sum, 0));
    move_sum(head, S, 1);
}

void attn_linear_gated_store(const attn_linear_head *head, const void *S, int which)
{
    move_sum(head, (void *)S, 0);
    attn_linear_store_state(head, S, head->walk->ld_v, part(head, head->walk->scratch.sum, 0), which);
}

void attn_linear_forward_gated(const attn_linear_head *head)
{
    const attn_linear_walk *w = head->walk;
    const attn_linear_resolved *p = &w->problem;
    void *state = part(head, w->scratch.state, 0), *F = part(head, w->scratch.Qf, 0);
    attn_linear_gated_load(head, LINEAR_INITIAL, state);
    for (int64_t first = 0; first < head->len_kv; first += w->chunk) {
        attn_linear_gated g = attn_linear_gated_at(head, first, attn_min(w->chunk, head->len_kv - first));
        attn_linear_gated_solve(head, &g, state);
        for (int64_t h = head->g * w->group; h < (head->g + 1) * w->group; h++) {
            attn_linear_query_features(head, h, first, g.chunk.n, F);
            for (int64_t at = 0; at < g.chunk.n; at += w->tile_q) {
                const int64_t rows = attn_min(w->tile_q, g.chunk.n - at);
                const int width = (int)attn_ceil_div(rows, w->kernel.lanes);
                read_tile(head, &g, state, F, at, rows, 0, at + rows, 0);
                /* The value that is not finite may come after the query. */
                if (w->kernel.softmax->not_finite(width, rows, p->shape.dim_v, part(head, w->scratch.Ot, 0)))
                    read_tile(head, &g, state, F, at, rows, 0, at + rows, 1);
                memcpy(attn_linear_lanes(head, LANES_L), part(head, w->scratch.Ot, (w->dim_u - 1) * w->tile_q),
                       (size_t)w->tile_q * attn_dtype_bytes(w->compute));
                attn_linear_finish(head, h, first + at, rows, width);
            }
        }
        attn_linear_gated_absorb(head, &g, state);
    }
    attn_linear_gated_store(head, state, LINEAR_FINAL);
}
