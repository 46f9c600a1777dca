/* SPDX-License-Identifier: MIT
 *
 * forward.c - the chunked walk of linear attention (Hua et al. 2022, section 3.3; Sun et al. 2023, equation 7):
 *
 *      for each chunk of tokens:
 *          for each tile of its queries:
 *              O = f(Q) S + (f(Q) f(K)^T, keys after the query dropped) V      l likewise, with z and ones for S and V
 *              store O / l
 *          S += f(K)^T V,  z += sum of f(K)
 *
 * With a decay, c_j = the sum of log(decay) from the chunk's first token to token j: S is read times exp(c_i), a pair weighs
 * exp(c_i - c_j), and a key enters S times exp(c_last - c_j).  Not causal: all chunks enter S first.
 */
#include <math.h>
#include <string.h>

#include "../../base/checked.h"
#include "../../base/names.h"
#include "chunk.h"

void attn_linear_chunk_logs(const attn_linear_head *head, attn_linear_chunk *c)
{
    const attn_linear_walk *w = head->walk;
    c->logs = attn_linear_part(head, w->scratch.logs);
    for (int64_t j = 0; j < c->n; j++) {
        c->last += attn_linear_log(head, c->first + j, 0);
        attn_real_put(c->logs, w->compute, j, c->last);
    }
}

const void *attn_linear_weights(const attn_linear_head *head, const attn_linear_chunk *chunk, int after)
{
    const attn_linear_walk *w = head->walk;
    void *weights = attn_linear_part(head, w->scratch.weights);
    for (int64_t j = 0; j < chunk->n; j++) {
        const double log = attn_real_at(chunk->logs, w->compute, j);
        attn_real_put(weights, w->compute, j, exp(after ? chunk->last - log : log));
    }
    return weights;
}

attn_linear_chunk attn_linear_chunk_at(const attn_linear_head *head, int64_t first, int64_t n)
{
    const attn_linear_walk *w = head->walk;
    const attn_layout *v = &w->problem.at.v;
    attn_linear_chunk c = {.first = first, .n = n, .Kf = attn_linear_part(head, w->scratch.Kf)};
    attn_linear_key_features(head, first, n, c.Kf);
    c.V = attn_linear_part(head, w->scratch.V);
    c.finite = w->kernel.chunk->take_rows(n, w->problem.shape.dim_v, attn_linear_row(head, head->args->v, v, head->g, first),
                                          v->dtype, v->stride[2], c.V, w->ld_v);
    if (w->problem.has.decay) attn_linear_chunk_logs(head, &c);
    return c;
}

void attn_linear_decay_state(const attn_linear_head *head, const attn_linear_chunk *chunk, void *state, void *sum)
{
    const attn_linear_walk *w = head->walk;
    if (!w->problem.has.decay) return;
    const double factor = exp(chunk->last);
    w->kernel.storage->store_rows(w->dim_f, w->ld_v, factor, state, w->ld_v, state, w->compute, w->ld_v);
    if (w->normalised) w->kernel.storage->store_rows(1, w->dim_f, factor, sum, w->dim_f, sum, w->compute, w->dim_f);
}

void attn_linear_absorb(const attn_linear_head *head, const attn_linear_chunk *chunk, attn_prefetch *prefetch)
{
    const attn_linear_walk *w = head->walk;
    const int64_t dv = w->problem.shape.dim_v;
    void *state = attn_linear_part(head, w->scratch.state), *sum = attn_linear_part(head, w->scratch.sum);
    void *panels = attn_linear_part(head, w->scratch.panels);
    const void *weights = chunk->logs ? attn_linear_weights(head, chunk, 1) : NULL;
    attn_linear_decay_state(head, chunk, state, sum);
    w->kernel.chunk->pack_panels(chunk->n, dv, chunk->V, w->ld_v, weights, panels);
    w->kernel.chunk->update_state(chunk->n, w->dim_f, dv, chunk->Kf, w->ld_f, panels, state, w->ld_v, prefetch);
    if (w->normalised) w->kernel.chunk->add_columns(chunk->n, w->dim_f, chunk->Kf, w->ld_f, weights, sum);
}

void attn_linear_absorb_all(const attn_linear_head *head)
{
    const attn_linear_walk *w = head->walk;
    for (int64_t first = 0; first < head->len_kv; first += w->chunk) {
        attn_linear_chunk chunk = attn_linear_chunk_at(head, first, attn_min(w->chunk, head->len_kv - first));
        attn_prefetch prefetch = {0};
        attn_linear_prefetch_keys(head, first + w->chunk, &prefetch);
        attn_linear_absorb(head, &chunk, &prefetch);
    }
}

void attn_linear_broadcast(const attn_linear_walk *w, const void *rows_of, int64_t at, int64_t rows, int width, void *lanes,
                           double shift, double sign, int exponential)
{
    for (int64_t i = 0; i < (int64_t)width * w->kernel.lanes; i++) {
        double x = shift + sign * attn_real_at(rows_of, w->compute, at + attn_min(i, rows - 1));
        attn_real_put(lanes, w->compute, i, exponential ? exp(x) : x);
    }
}

void attn_linear_finish(const attn_linear_head *head, int64_t h, int64_t first, int64_t rows, int width)
{
    const attn_linear_walk *w = head->walk;
    const attn_linear_resolved *p = &w->problem;
    void *l = attn_linear_lanes(head, LANES_L);
    for (int64_t i = 0; i < rows; i++) {
        int clamped;
        double n = p->scale * attn_real_at(l, w->compute, i);
        if (p->has.denominators)
            attn_real_put(attn_linear_row_out(head, head->args->denominators, &p->at.denominators, h, first + i), w->compute, 0, n);
        attn_real_put(l, w->compute, i, attn_linear_guard(p, n, &clamped));
    }
    w->kernel.softmax->finish(width, rows, p->shape.dim_v, p->scale, l, l, attn_linear_part(head, w->scratch.Ot),
                              attn_linear_row_out(head, head->args->o, &p->at.o, h, first), p->at.o.dtype, p->at.o.stride[2], NULL,
                              0);
}

/* What queries first + at .. of a chunk read, into scratch.Ot and the lanes LANES_L; chunk NULL: all keys are in the state already.
 * The state is a block of keys like any other, whose scores are the features themselves: in scratch the chunk's values follow its
 * rows, and the scores follow the features, so that one product covers both. */
static void read_tile(const attn_linear_head *head, int64_t h, const attn_linear_chunk *chunk, int64_t first, int64_t at,
                      int64_t rows, attn_prefetch *prefetch)
{
    const attn_linear_walk *w = head->walk;
    const int64_t dv = w->problem.shape.dim_v, seen = chunk ? at + rows : 0;
    const int width = (int)attn_ceil_div(rows, w->kernel.lanes), nan_safe = chunk && !chunk->finite;
    void *Qt = attn_linear_part(head, w->scratch.Qt), *S = attn_linear_part(head, w->scratch.S);
    void *Ot = attn_linear_part(head, w->scratch.Ot), *l = attn_linear_lanes(head, LANES_L);

    attn_linear_query_tile(head, h, first + at, rows, Qt);
    memset(l, 0, (size_t)w->tile_q * attn_dtype_bytes(w->compute));
    if (chunk) {
        void *logs = attn_linear_lanes(head, LANES_LOG), *factors = attn_linear_lanes(head, LANES_FACTOR);
        if (chunk->logs) attn_linear_broadcast(w, chunk->logs, at, rows, width, logs, 0, 1, 0);
        w->kernel.chunk->pairs(width, seen, w->dim_f, Qt, chunk->Kf, w->ld_f, S, prefetch);
        w->kernel.chunk->apply_decay(width, seen, S, at, 0, NULL, NULL, logs, chunk->logs, l);
        if (chunk->logs) {
            attn_linear_broadcast(w, chunk->logs, at, rows, width, factors, 0, 1, 1);
            w->kernel.chunk->scale_lanes(width, w->dim_f, factors, Qt);
        }
    }
    if (w->normalised) w->kernel.chunk->dot_lanes(width, w->dim_f, attn_linear_part(head, w->scratch.sum), Qt, l);
    w->kernel.chunk->read(width, w->dim_f + (nan_safe ? 0 : seen), dv, Qt, attn_linear_part(head, w->scratch.state), w->ld_v, 0, Ot,
                          prefetch);
    /* Pairs of weight 0 add nothing, even if the value is NaN or infinite: it may come after the query. */
    if (nan_safe) w->kernel.chunk->read_nan_safe(width, seen, dv, S, chunk->V, w->ld_v, Ot);
}

/* The queries first .. first+n-1 of every query head.  Meanwhile prefetches the rows of the next head, or after the last head those
 * of the next chunk; leaves in `prefetch` what remains of the latter. */
static void queries(const attn_linear_head *head, const attn_linear_chunk *chunk, int64_t first, int64_t n, attn_prefetch *prefetch)
{
    const attn_linear_walk *w = head->walk;
    const int64_t end = (head->g + 1) * w->group;
    for (int64_t h = head->g * w->group; h < end; h++) {
        const int last = h + 1 == end;
        *prefetch = (attn_prefetch){0};
        if (chunk && last) attn_linear_prefetch_keys(head, first + w->chunk, prefetch);
        attn_linear_prefetch_queries(head, last ? head->g * w->group : h + 1, last ? first + w->chunk : first, prefetch);
        for (int64_t at = 0; at < n; at += w->tile_q) {
            const int64_t rows = attn_min(w->tile_q, n - at);
            read_tile(head, h, chunk, first, at, rows, prefetch);
            attn_linear_finish(head, h, first + at, rows, (int)attn_ceil_div(rows, w->kernel.lanes));
        }
    }
}

void attn_linear_forward_chunks(const attn_linear_head *head)
{
    const attn_linear_walk *w = head->walk;
    const attn_linear_resolved *p = &w->problem;
    void *state = attn_linear_part(head, w->scratch.state), *sum = attn_linear_part(head, w->scratch.sum);
    attn_prefetch prefetch = {0};
    attn_linear_load_own_state(head, LINEAR_INITIAL, state, sum);
    if (p->causal) {
        for (int64_t first = 0; first < head->len_kv; first += w->chunk) {
            attn_linear_chunk chunk = attn_linear_chunk_at(head, first, attn_min(w->chunk, head->len_kv - first));
            queries(head, &chunk, first, chunk.n, &prefetch);
            attn_linear_absorb(head, &chunk, &prefetch);
        }
    } else {
        attn_linear_absorb_all(head);
        for (int64_t first = 0; first < head->len_q; first += w->chunk)
            queries(head, NULL, first, attn_min(w->chunk, head->len_q - first), &prefetch);
    }
    attn_linear_store_state(head, state, w->ld_v, sum, LINEAR_FINAL);
}
