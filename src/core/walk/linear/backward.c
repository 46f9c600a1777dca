/* SPDX-License-Identifier: MIT
 *
 * backward.c - the chunked walk backward.  With a_i = scale dO_i / n_i and e_i = -a_i.o_i (0 where n_i is clamped), it is
 * the forward walk three times, with the operands exchanged:
 *
 *      chunks in order, the state S = sum_j f(k_j) v_j^T as in forward:
 *          df(q_i) = S a_i + e_i z + sum_j (a_i.v_j + e_i) f(k_j)
 *      chunks in reverse, the state R = sum_i f(q_i) a_i^T, r = sum_i e_i f(q_i):
 *          df(k_j) = R v_j + r + sum_i (a_i.v_j + e_i) f(q_i)
 *          dv_j    = R^T f(k_j) + sum_i (f(q_i).f(k_j)) a_i
 *
 * R starts as the gradient of the final state and ends as that of the initial one; it serves both products, read by rows for the
 * one and by columns for the other.  With a decay, the gradient of c_t is f(q_t).df(q_t) - f(k_t).df(k_t) (Yang et al. 2023,
 * section 4.3), and that of log(decay_t) the sum of those from t on.
 */
#include <string.h>

#include "../../base/checked.h"
#include "../../base/element.h"
#include "../../base/names.h"
#include "chunk.h"

static void *part(const attn_linear_head *head, int64_t offset, int64_t elements)
{
    return (char *)attn_linear_part(head, offset) + elements * (int64_t)attn_dtype_bytes(head->walk->compute);
}

/* Adds the inner products of tile rows to the gradient of c_t. */
static void note_decay(const attn_linear_head *head, int64_t first, int64_t rows, int width, const void *Xt, const void *Yt,
                       double sign)
{
    const attn_linear_walk *w = head->walk;
    void *sums = attn_linear_lanes(head, LANES_MAX);
    w->kernel.chunk->inner_lanes(width, w->dim_f, Xt, Yt, sums);
    for (int64_t i = 0; i < rows; i++) head->decay[first + i] += sign * attn_real_at(sums, w->compute, i);
}

/* df(q) of one tile. */
static void query_tile(const attn_linear_head *head, int64_t h, int64_t in_group, const attn_linear_chunk *chunk, int64_t first,
                       int64_t at, int64_t rows, attn_prefetch *prefetch)
{
    const attn_linear_walk *w = head->walk;
    const attn_linear_resolved *p = &w->problem;
    const int64_t dv = p->shape.dim_v, seen = at + rows;
    const int width = (int)attn_ceil_div(rows, w->kernel.lanes);
    void *At = part(head, w->scratch.Vt, 0), *Gt = part(head, w->scratch.Gt, 0), *S = part(head, w->scratch.S, 0);
    void *G = part(head, w->scratch.G, 0), *F = part(head, w->scratch.Qf, at * w->ld_f), *terms = NULL;

    w->kernel.storage->pack_query(width, rows, dv, part(head, w->scratch.A, at * w->ld_v), w->compute, w->ld_v, 1, At);
    w->kernel.chunk->pairs(width, w->dim_f, dv, At, part(head, w->scratch.state, 0), w->ld_v, Gt, prefetch);
    if (w->normalised) {
        terms = attn_linear_lanes(head, LANES_TERM);
        attn_linear_broadcast(w, part(head, w->scratch.terms, in_group * w->chunk), at, rows, width, terms, 0, 1, 0);
        w->kernel.chunk->add_lanes(width, w->dim_f, part(head, w->scratch.sum, 0), terms, Gt);
    }
    if (chunk) {
        void *logs = attn_linear_lanes(head, LANES_LOG), *factors = attn_linear_lanes(head, LANES_FACTOR);
        if (chunk->logs) {
            attn_linear_broadcast(w, chunk->logs, at, rows, width, logs, 0, 1, 0);
            attn_linear_broadcast(w, chunk->logs, at, rows, width, factors, 0, 1, 1);
            w->kernel.chunk->scale_lanes(width, w->dim_f, factors, Gt);
        }
        w->kernel.chunk->pairs(width, seen, dv, At, chunk->V, w->ld_v, S, prefetch);
        w->kernel.chunk->apply_decay(width, seen, S, at, 0, terms, NULL, logs, chunk->logs, NULL);
        w->kernel.chunk->read(width, seen, w->dim_f, S, chunk->Kf, w->ld_f, 1, Gt, prefetch);
    }
    if (p->has.decay) {
        void *Qt = part(head, w->scratch.Qt, 0);
        w->kernel.storage->pack_query(width, rows, w->dim_f, F, w->compute, w->ld_f, 1, Qt);
        note_decay(head, first + at, rows, width, Qt, Gt, 1);
    }
    w->kernel.storage->store_columns(width, rows, w->dim_f, 1, Gt, G, w->compute, w->ld_f);
    attn_linear_store_query_gradient(head, h, first + at, rows, F, G);
}

/* Prefetches the queries of the chunk at `first`, and the inputs of their scaled gradients. */
static void prefetch_queries(const attn_linear_head *head, int64_t h, int64_t first, attn_prefetch *prefetch)
{
    const attn_linear_resolved *p = &head->walk->problem;
    attn_linear_prefetch(head, head->args->q, &p->at.q, h, first, head->len_q, p->shape.dim_qk, prefetch);
    attn_linear_prefetch(head, head->args->grad_o, &p->at.grad_o, h, first, head->len_q, p->shape.dim_v, prefetch);
    if (head->walk->normalised)
        attn_linear_prefetch(head, head->args->o, &p->at.o, h, first, head->len_q, p->shape.dim_v, prefetch);
}

static void query_gradients(const attn_linear_head *head, const attn_linear_chunk *chunk, int64_t first, int64_t n,
                            attn_prefetch *prefetch)
{
    const attn_linear_walk *w = head->walk;
    const attn_linear_resolved *p = &w->problem;
    for (int64_t k = 0; k < w->group; k++) {
        const int64_t h = head->g * w->group + k;
        const int last = k + 1 == w->group;
        const int64_t next = last ? first + w->chunk : first, next_head = last ? head->g * w->group : h + 1;
        *prefetch = (attn_prefetch){0};
        if (chunk && last) attn_linear_prefetch_keys(head, next, prefetch);
        prefetch_queries(head, next_head, next, prefetch);
        attn_linear_prefetch(head, head->args->grad_q, &p->at.grad_q, next_head, next, head->len_q, p->shape.dim_qk, prefetch);
        attn_linear_query_features(head, h, first, n, part(head, w->scratch.Qf, 0));
        attn_linear_scaled_gradient(head, h, k, first, n, part(head, w->scratch.A, 0));
        for (int64_t at = 0; at < n; at += w->tile_q)
            query_tile(head, h, k, chunk, first, at, attn_min(w->tile_q, n - at), prefetch);
    }
}

/* Adds the queries of `chunk`, from token `at` on, to df(k) and dv of the tile of keys there. */
static void add_pairs(const attn_linear_head *head, const attn_linear_chunk *chunk, int64_t at, int width, const void *Kt,
                      const void *Vt, void *Gt, void *Ot, attn_prefetch *prefetch)
{
    const attn_linear_walk *w = head->walk;
    const attn_linear_resolved *p = &w->problem;
    const int64_t dv = p->shape.dim_v, n = chunk->n - at;
    void *S = part(head, w->scratch.S, 0), *dS = part(head, w->scratch.dS, 0);
    const void *logs = chunk->logs ? attn_linear_lanes(head, LANES_LOG) : NULL;
    const void *row_logs = chunk->logs ? part(head, w->scratch.logs, at) : NULL;
    for (int64_t k = 0; k < w->group; k++) {
        const void *F = part(head, w->scratch.Qf, (k * w->chunk + at) * w->ld_f);
        const void *A = part(head, w->scratch.A, (k * w->chunk + at) * w->ld_v);
        const void *terms = w->normalised ? part(head, w->scratch.terms, k * w->chunk + at) : NULL;
        w->kernel.chunk->pairs(width, n, w->dim_f, Kt, F, w->ld_f, S, prefetch);
        w->kernel.chunk->pairs(width, n, dv, Vt, A, w->ld_v, dS, prefetch);
        w->kernel.chunk->apply_decay(width, n, S, 0, 1, NULL, NULL, logs, row_logs, NULL);
        w->kernel.chunk->apply_decay(width, n, dS, 0, 1, NULL, terms, logs, row_logs, NULL);
        w->kernel.chunk->read(width, n, dv, S, A, w->ld_v, 1, Ot, prefetch);
        w->kernel.chunk->read(width, n, w->dim_f, dS, F, w->ld_f, 1, Gt, prefetch);
    }
}

/* df(k) and dv of one tile. */
static void key_tile(const attn_linear_head *head, const attn_linear_chunk *chunk, int64_t at, int64_t rows,
                     attn_prefetch *prefetch)
{
    const attn_linear_walk *w = head->walk;
    const attn_linear_resolved *p = &w->problem;
    const int64_t dv = p->shape.dim_v, size = (int64_t)attn_dtype_bytes(w->compute);
    const int width = (int)attn_ceil_div(rows, w->kernel.lanes);
    void *Kt = part(head, w->scratch.Qt, 0), *Vt = part(head, w->scratch.Vt, 0), *R = part(head, w->scratch.grad_state, 0);
    void *Gt = part(head, w->scratch.Gt, 0), *Ot = part(head, w->scratch.Ot, 0), *G = part(head, w->scratch.G, 0);
    void *F = (char *)chunk->Kf + at * w->ld_f * size;

    w->kernel.storage->pack_query(width, rows, w->dim_f, F, w->compute, w->ld_f, 1, Kt);
    w->kernel.storage->pack_query(width, rows, dv, (const char *)chunk->V + at * w->ld_v * size, w->compute, w->ld_v, 1, Vt);
    w->kernel.chunk->read(width, w->dim_f, dv, Kt, R, w->ld_v, 0, Ot, prefetch);
    w->kernel.chunk->pairs(width, w->dim_f, dv, Vt, R, w->ld_v, Gt, prefetch);
    if (w->normalised) w->kernel.chunk->add_lanes(width, w->dim_f, part(head, w->scratch.grad_sum, 0), NULL, Gt);
    if (chunk->logs) {
        void *factors = attn_linear_lanes(head, LANES_FACTOR);
        attn_linear_broadcast(w, chunk->logs, at, rows, width, factors, chunk->last, -1, 1);
        w->kernel.chunk->scale_lanes(width, dv, factors, Ot);
        w->kernel.chunk->scale_lanes(width, w->dim_f, factors, Gt);
        attn_linear_broadcast(w, chunk->logs, at, rows, width, attn_linear_lanes(head, LANES_LOG), 0, 1, 0);
    }
    if (p->causal) add_pairs(head, chunk, at, width, Kt, Vt, Gt, Ot, prefetch);
    if (p->has.decay) note_decay(head, chunk->first + at, rows, width, Kt, Gt, -1);
    w->kernel.storage->store_columns(width, rows, dv, 1, Ot,
                                     attn_linear_row_out(head, head->args->grad_v, &p->at.grad_v, head->g, chunk->first + at),
                                     p->at.grad_v.dtype, p->at.grad_v.stride[2]);
    w->kernel.storage->store_columns(width, rows, w->dim_f, 1, Gt, G, w->compute, w->ld_f);
    attn_linear_store_key_gradient(head, chunk->first + at, rows, F, G);
}

/* Adds the n loaded queries of head k of the group to R and r, with the chunk's decay (NULL: none). */
static void absorb_queries(const attn_linear_head *head, int64_t k, int64_t n, const attn_linear_chunk *chunk,
                           attn_prefetch *prefetch)
{
    const attn_linear_walk *w = head->walk;
    const attn_linear_resolved *p = &w->problem;
    const void *F = part(head, w->scratch.Qf, k * w->chunk * w->ld_f), *A = part(head, w->scratch.A, k * w->chunk * w->ld_v);
    const int decayed = chunk && chunk->logs;
    void *panels = part(head, w->scratch.panels, 0);
    const void *weights = decayed ? attn_linear_weights(head, chunk, 0) : NULL;
    w->kernel.chunk->pack_panels(n, p->shape.dim_v, A, w->ld_v, weights, panels);
    w->kernel.chunk->update_state(n, w->dim_f, p->shape.dim_v, F, w->ld_f, panels, part(head, w->scratch.grad_state, 0), w->ld_v,
                                  prefetch);
    if (!w->normalised) return;
    const void *terms = part(head, w->scratch.terms, k * w->chunk);
    if (decayed) {
        void *both = part(head, w->scratch.weights, 0);
        for (int64_t i = 0; i < n; i++)
            attn_real_put(both, w->compute, i, attn_real_at(weights, w->compute, i) * attn_real_at(terms, w->compute, i));
        terms = both;
    }
    w->kernel.chunk->add_columns(n, w->dim_f, F, w->ld_f, terms, part(head, w->scratch.grad_sum, 0));
}

/* Features and scaled gradients of the queries of a chunk. */
static void load_queries(const attn_linear_head *head, int64_t first, int64_t n)
{
    const attn_linear_walk *w = head->walk;
    for (int64_t k = 0; k < w->group; k++) {
        const int64_t h = head->g * w->group + k;
        void *A = part(head, w->scratch.A, k * w->chunk * w->ld_v);
        attn_linear_query_features(head, h, first, n, part(head, w->scratch.Qf, k * w->chunk * w->ld_f));
        attn_linear_scaled_gradient(head, h, k, first, n, A);
    }
}

/* What the chunk of keys at `first` reads and writes; queries of as many heads as the list can hold. */
static attn_prefetch prefetch_of_keys(const attn_linear_head *head, int64_t first)
{
    const attn_linear_walk *w = head->walk;
    const attn_linear_resolved *p = &w->problem;
    attn_prefetch prefetch = {0};
    attn_linear_prefetch_keys(head, first, &prefetch);
    for (int64_t k = 0; p->causal && k < w->group && prefetch.count + 5 <= ATTN_MAX_PREFETCH; k++)
        prefetch_queries(head, head->g * w->group + k, first, &prefetch);
    attn_linear_prefetch(head, head->args->grad_k, &p->at.grad_k, head->g, first, head->len_kv, p->shape.dim_qk, &prefetch);
    attn_linear_prefetch(head, head->args->grad_v, &p->at.grad_v, head->g, first, head->len_kv, p->shape.dim_v, &prefetch);
    return prefetch;
}

static void keys_in_reverse(const attn_linear_head *head)
{
    const attn_linear_walk *w = head->walk;
    for (int64_t number = attn_ceil_div(head->len_kv, w->chunk); number-- > 0;) {
        const int64_t first = number * w->chunk;
        attn_prefetch prefetch = prefetch_of_keys(head, first - w->chunk);
        attn_linear_chunk chunk = attn_linear_chunk_at(head, first, attn_min(w->chunk, head->len_kv - first));
        if (w->problem.causal) load_queries(head, first, chunk.n);
        for (int64_t at = 0; at < chunk.n; at += w->tile_q)
            key_tile(head, &chunk, at, attn_min(w->tile_q, chunk.n - at), &prefetch);
        if (!w->problem.causal) continue;
        attn_linear_decay_state(head, &chunk, part(head, w->scratch.grad_state, 0), part(head, w->scratch.grad_sum, 0));
        for (int64_t k = 0; k < w->group; k++) absorb_queries(head, k, chunk.n, &chunk, &prefetch);
    }
}

/* The final state depends on every c_t through the last one. */
static void note_final_decay(const attn_linear_head *head)
{
    const attn_linear_walk *w = head->walk;
    double sum = 0;
    if (!w->problem.has.decay || !w->problem.has.grad_final_state || head->len_kv == 0) return;
    for (int64_t c = 0; c < w->dim_f; c++) {
        for (int64_t d = 0; d < w->problem.shape.dim_v; d++)
            sum += attn_real_at(part(head, w->scratch.state, c * w->ld_v), w->compute, d) *
                   attn_real_at(part(head, w->scratch.grad_state, c * w->ld_v), w->compute, d);
        if (w->normalised)
            sum += attn_real_at(part(head, w->scratch.sum, 0), w->compute, c) *
                   attn_real_at(part(head, w->scratch.grad_sum, 0), w->compute, c);
    }
    head->decay[head->len_kv - 1] += sum;
}

void attn_linear_backward_decay(const attn_linear_head *head, const double *queries, const double *keys)
{
    const attn_layout *layout = &head->walk->problem.at.grad_decay;
    double sum = 0;
    for (int64_t t = head->len_kv; t-- > 0;) {
        sum += keys ? queries[t] + keys[t] : queries[t];
        attn_element_put(attn_linear_row_out(head, head->args->grad_decay, layout, head->g, t), layout->dtype, 0, sum);
    }
}

static void queries_in_order(const attn_linear_head *head)
{
    const attn_linear_walk *w = head->walk;
    attn_prefetch prefetch = {0};
    if (!w->problem.causal) attn_linear_absorb_all(head);
    for (int64_t first = 0; first < head->len_q; first += w->chunk) {
        const int64_t n = attn_min(w->chunk, head->len_q - first);
        attn_linear_chunk chunk;
        if (w->problem.causal) chunk = attn_linear_chunk_at(head, first, n);
        query_gradients(head, w->problem.causal ? &chunk : NULL, first, n, &prefetch);
        if (w->problem.causal) attn_linear_absorb(head, &chunk, &prefetch);
    }
}

void attn_linear_backward_chunks(const attn_linear_head *head)
{
    const attn_linear_walk *w = head->walk;
    const attn_linear_resolved *p = &w->problem;
    void *state = part(head, w->scratch.state, 0), *sum = part(head, w->scratch.sum, 0);
    void *R = part(head, w->scratch.grad_state, 0), *r = part(head, w->scratch.grad_sum, 0);

    if (p->has.decay) memset(head->decay, 0, (size_t)head->len_kv * sizeof(double));
    attn_linear_load_own_state(head, LINEAR_INITIAL, state, sum);
    attn_linear_load_own_state(head, LINEAR_GRAD_FINAL, R, r);
    if (head->part != LINEAR_KEYS) {
        queries_in_order(head);
        note_final_decay(head);
    }
    if (head->part == LINEAR_QUERIES) return;
    for (int64_t first = 0; !p->causal && first < head->len_q; first += w->chunk) {
        const int64_t n = attn_min(w->chunk, head->len_q - first);
        attn_prefetch prefetch = {0};
        for (int64_t k = 0; k < w->group && prefetch.count + 3 <= ATTN_MAX_PREFETCH; k++)
            prefetch_queries(head, head->g * w->group + k, first + w->chunk, &prefetch);
        load_queries(head, first, n);
        for (int64_t k = 0; k < w->group; k++) absorb_queries(head, k, n, NULL, &prefetch);
    }
    keys_in_reverse(head);
    attn_linear_store_state(head, R, w->ld_v, r, LINEAR_GRAD_INITIAL);
}
