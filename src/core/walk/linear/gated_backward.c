/* SPDX-License-Identifier: MIT
 *
 * gated_backward.c - the chunks of gated.h backward.  With A_i the gradient of what reader i got (of a key that
 * reads: -dW_i), and R that of the state after the chunk, Gamma_ij = prod_(j<m<=i) gate_m:
 *
 *      du_j     = R^T k_j prod_(m>j) gate_m + sum_readers sum_i P_ij A_i
 *                 (delta rule: dW_j = dv_j = beta_j du_j, dbeta_j = du_j.W_j)
 *      df(F_i)  = S A_i prod_(m<=i) gate_m + sum_j (A_i.u_j) k_j Gamma_ij
 *      df(k_j)  = R u_j prod_(m>j) gate_m + sum_readers sum_i (A_i.u_j) F_i Gamma_ij
 *      before     R = diag(prod gate) R + sum_readers sum_i (F_i prod_(m<=i) gate_m) A_i^T
 *
 * dW_j needs those of later keys: a triangular system, from the end.  With c_i the sum of logs up to token i of the chunk, its
 * gradient is sum_readers F_i df(F_i) - k_i df(k_i), that of the last one also R times the state after the chunk.
 *
 * The states before the chunks are needed from the last chunk back: as in tokens_backward.c they are kept before each segment
 * of about sqrt(chunks) chunks, and within the current one.
 */
#include <string.h>

#include "../../base/checked.h"
#include "../../base/element.h"
#include "../../base/names.h"
#include "gated.h"

static void *part(const attn_linear_head *head, int64_t offset, int64_t elements)
{
    return (char *)attn_linear_part(head, offset) + elements * (int64_t)attn_dtype_bytes(head->walk->compute);
}

/* One reader: its features and gradients, rows of the chunk. */
typedef struct reader {
    const void *F, *A;
    int strict;
} reader;

static const void *row(const attn_linear_walk *w, const void *rows, int64_t at, int64_t ld)
{
    return (const char *)rows + at * ld * (int64_t)attn_dtype_bytes(w->compute);
}

static int width_of(const attn_linear_walk *w, int64_t rows) { return (int)attn_ceil_div(rows, w->kernel.lanes); }

static reader query_reader(const attn_linear_head *head, int64_t k)
{
    const attn_linear_walk *w = head->walk;
    return (reader){part(head, w->scratch.Qf, k * w->chunk * w->ld_f), part(head, w->scratch.A, k * w->chunk * w->ld_v), 0};
}

static reader key_reader(const attn_linear_head *head, const attn_linear_gated *g)
{
    return (reader){g->chunk.Kf, part(head, head->walk->scratch.N, 0), 1};
}

static int64_t readers_of(const attn_linear_walk *w) { return w->group + (w->problem.rule == ATTN_LINEAR_RULE_DELTA); }

static reader reader_at(const attn_linear_head *head, const attn_linear_gated *g, int64_t k)
{
    return k < head->walk->group ? query_reader(head, k) : key_reader(head, g);
}

/* Multiplies a tile of pairs by the decay per head, and drops those that are not read. */
static void apply_head_decay(const attn_linear_head *head, const attn_linear_gated *g, int64_t at, int64_t rows, int64_t n,
                             int strict, int reverse, void *S)
{
    const attn_linear_walk *w = head->walk;
    void *logs = attn_linear_lanes(head, LANES_LOG);
    const void *row_logs = g->chunk.logs && reverse ? row(w, g->chunk.logs, at, 1) : g->chunk.logs;
    if (g->chunk.logs) attn_linear_broadcast(w, g->chunk.logs, at, rows, width_of(w, rows), logs, 0, 1, 0);
    w->kernel.chunk->apply_decay(width_of(w, rows), n, S, reverse ? strict : at - strict, reverse, NULL, NULL, logs, row_logs,
                                 NULL);
}

/* P_ij in S[i - at][lane j] for a tile of keys; leaves k_j prod_(m>j) gate_m in scratch.Qt if a decay is per channel. */
static void scores_of_keys(const attn_linear_head *head, const attn_linear_gated *g, const reader *r, int64_t at, int64_t rows)
{
    const attn_linear_walk *w = head->walk;
    const int64_t n = g->chunk.n - at;
    const int width = width_of(w, rows);
    void *Kt = part(head, w->scratch.Qt, 0), *S = part(head, w->scratch.S, 0);
    w->kernel.storage->pack_query(width, rows, w->dim_f, row(w, g->chunk.Kf, at, w->ld_f), w->compute, w->ld_f, 1, Kt);
    if (g->gates) {
        w->kernel.gate->score_gated(width, n, w->dim_f, Kt, row(w, r->F, at, w->ld_f), row(w, g->gates, at, w->ld_f), w->ld_f, 0,
                                    r->strict, 1, S);
        return;
    }
    w->kernel.product->score(width, n, w->dim_f, Kt, row(w, r->F, at, w->ld_f), w->ld_f, S, attn_linear_lanes(head, LANES_MAX),
                             row(w, r->A, at, w->ld_v), w->ld_v);
    apply_head_decay(head, g, at, rows, n, r->strict, 1, S);
}

/* du of a tile of keys, and by the delta rule -dW. */
static void write_gradient(const attn_linear_head *head, const attn_linear_gated *g, int64_t at, int64_t rows)
{
    const attn_linear_walk *w = head->walk;
    const int64_t n = g->chunk.n - at;
    const int width = width_of(w, rows);
    void *Kt = part(head, w->scratch.Qt, 0), *Ot = part(head, w->scratch.Ot, 0), *S = part(head, w->scratch.S, 0);
    void *dU = part(head, w->scratch.dU, at * w->ld_v);
    attn_prefetch none = {0};
    for (int64_t k = 0; k < readers_of(w); k++) {
        const reader r = reader_at(head, g, k);
        const int64_t known = r.strict ? rows : 0; /* those of this tile's keys are not known yet */
        scores_of_keys(head, g, &r, at, rows);
        if (k == 0) {
            w->kernel.chunk->read(width, w->dim_f, w->dim_u, Kt, part(head, w->scratch.grad_state, 0), w->ld_v, 0, Ot, &none);
            attn_linear_gated_lanes(head, g, at, rows, g->chunk.last, -1, w->dim_u, Ot);
        }
        if (n > known)
            w->kernel.product->add_values(width, n - known, w->dim_u, row(w, S, known, w->tile_q), row(w, r.A, at + known, w->ld_v),
                                          w->ld_v, Ot);
    }
    w->kernel.storage->store_columns(width, rows, w->dim_u, 1, Ot, dU, w->compute, w->ld_v);
    if (w->problem.rule == ATTN_LINEAR_RULE_DELTA)
        w->kernel.gate->solve_back(rows, w->dim_u, S, dU, row(w, g->beta, at, 1), part(head, w->scratch.N, at * w->ld_v), w->ld_v);
}

/* df(F) of a tile of a reader, as rows in scratch.G. */
static void read_gradient(const attn_linear_head *head, const attn_linear_gated *g, const reader *r, const void *state, int64_t at,
                          int64_t rows)
{
    const attn_linear_walk *w = head->walk;
    const int64_t seen = at + rows;
    const int width = width_of(w, rows);
    attn_prefetch none = {0};
    void *At = part(head, w->scratch.Vt, 0), *Gt = part(head, w->scratch.Gt, 0), *S = part(head, w->scratch.S, 0);
    w->kernel.storage->pack_query(width, rows, w->dim_u, row(w, r->A, at, w->ld_v), w->compute, w->ld_v, 1, At);
    w->kernel.chunk->pairs(width, w->dim_f, w->dim_u, At, state, w->ld_v, Gt, &none);
    attn_linear_gated_lanes(head, g, at, rows, 0, 1, w->dim_f, Gt);
    w->kernel.product->score(width, seen, w->dim_u, At, g->U, w->ld_v, S, attn_linear_lanes(head, LANES_MAX), g->chunk.Kf, w->ld_f);
    apply_head_decay(head, g, at, rows, seen, r->strict, 0, S);
    if (g->gates) w->kernel.gate->add_gated(width, seen, w->dim_f, S, g->chunk.Kf, g->gates, w->ld_f, at, 0, Gt);
    else w->kernel.product->add_values(width, seen, w->dim_f, S, g->chunk.Kf, w->ld_f, Gt);
    w->kernel.storage->store_columns(width, rows, w->dim_f, 1, Gt, part(head, w->scratch.G, 0), w->compute, w->ld_f);
}

/* df(k) of a tile of keys that write, as rows in scratch.G. */
static void key_gradient(const attn_linear_head *head, const attn_linear_gated *g, int64_t at, int64_t rows)
{
    const attn_linear_walk *w = head->walk;
    const int64_t size = (int64_t)attn_dtype_bytes(w->compute), n = g->chunk.n - at, tile = w->dim_f * w->tile_q;
    const int width = width_of(w, rows);
    attn_prefetch none = {0};
    void *Ut = part(head, w->scratch.Vt, 0), *Gt = part(head, w->scratch.Gt, 0), *S = part(head, w->scratch.S, 0);
    void *one = part(head, w->scratch.Qt, 0); /* of one reader */
    w->kernel.storage->pack_query(width, rows, w->dim_u, row(w, g->U, at, w->ld_v), w->compute, w->ld_v, 1, Ut);
    w->kernel.chunk->pairs(width, w->dim_f, w->dim_u, Ut, part(head, w->scratch.grad_state, 0), w->ld_v, Gt, &none);
    attn_linear_gated_lanes(head, g, at, rows, g->chunk.last, -1, w->dim_f, Gt);
    for (int64_t k = 0; k < readers_of(w); k++) {
        const reader r = reader_at(head, g, k);
        const void *F = row(w, r.F, at, w->ld_f);
        w->kernel.product->score(width, n, w->dim_u, Ut, row(w, r.A, at, w->ld_v), w->ld_v, S, attn_linear_lanes(head, LANES_MAX),
                                 F, w->ld_f);
        apply_head_decay(head, g, at, rows, n, r.strict, 1, S);
        if (!g->gates) {
            w->kernel.product->add_values(width, n, w->dim_f, S, F, w->ld_f, Gt);
            continue;
        }
        if (k > 0) memset(one, 0, (size_t)(tile * size)); /* the state's share is in the first reader's */
        w->kernel.gate->add_gated(width, n, w->dim_f, S, F, row(w, g->gates, at, w->ld_f), w->ld_f, 0, 1, k > 0 ? one : Gt);
        if (k > 0) w->kernel.outer->add(tile, one, Gt);
    }
    w->kernel.storage->store_columns(width, rows, w->dim_f, 1, Gt, part(head, w->scratch.G, 0), w->compute, w->ld_f);
}

/* The gradient of c_i of rows `at` ..: plus or minus F times df(F). */
static void note_decay(const attn_linear_head *head, const void *F, int64_t at, int64_t rows, double sign)
{
    const attn_linear_walk *w = head->walk;
    if (w->problem.has.decay)
        w->kernel.gate->add_multiplied(rows, w->dim_f, sign, row(w, F, at, w->ld_f), w->ld_f, part(head, w->scratch.G, 0), w->ld_f,
                                       part(head, w->scratch.dlogs, at * w->ld_f), w->ld_f);
}

static void load_readers(const attn_linear_head *head, const attn_linear_gated *g)
{
    const attn_linear_walk *w = head->walk;
    for (int64_t k = 0; k < w->group; k++) {
        void *A = part(head, w->scratch.A, k * w->chunk * w->ld_v);
        attn_linear_query_features(head, head->g * w->group + k, g->chunk.first, g->chunk.n,
                                   part(head, w->scratch.Qf, k * w->chunk * w->ld_f));
        attn_linear_scaled_gradient(head, head->g * w->group + k, k, g->chunk.first, g->chunk.n, A);
        for (int64_t i = 0; w->normalised && i < g->chunk.n; i++)
            attn_real_put(A, w->compute, i * w->ld_v + w->problem.shape.dim_v,
                          attn_real_at(part(head, w->scratch.terms, k * w->chunk), w->compute, i));
    }
}

/* R and the state after the chunk give the gradient of its last c; that of a token's log is the sum of those of c from it on. */
static void store_decay(const attn_linear_head *head, const attn_linear_gated *g, const void *state_after)
{
    const attn_linear_walk *w = head->walk;
    const attn_layout *layout = &w->problem.at.grad_decay;
    void *last = part(head, w->scratch.total, 0), *dlogs = part(head, w->scratch.dlogs, 0);
    if (!w->problem.has.decay) return;
    w->kernel.chunk->row_terms(w->dim_f, w->dim_u, part(head, w->scratch.grad_state, 0), w->ld_v, state_after, w->ld_v, NULL, last);
    w->kernel.storage->store_rows(1, w->dim_f, -1, last, w->ld_f, last, w->compute, w->ld_f); /* terms have the other sign */
    w->kernel.gate->sums_from(g->chunk.n, w->dim_f, last, dlogs, w->ld_f);
    for (int64_t i = 0; i < g->chunk.n; i++) {
        void *to = attn_linear_row_out(head, head->args->grad_decay, layout, head->g, g->chunk.first + i);
        double sum = 0;
        for (int64_t c = 0; c < w->dim_f; c++) {
            const double x = attn_real_at(part(head, w->scratch.dlogs, i * w->ld_f), w->compute, c);
            if (g->gates) attn_element_put(to, layout->dtype, c * layout->stride[3], x);
            sum += x;
        }
        if (!g->gates) attn_element_put(to, layout->dtype, 0, sum);
    }
}

static void store_values(const attn_linear_head *head, const attn_linear_gated *g)
{
    const attn_linear_walk *w = head->walk;
    const attn_linear_resolved *p = &w->problem;
    const int delta = p->rule == ATTN_LINEAR_RULE_DELTA;
    const void *dU = part(head, w->scratch.dU, 0);
    w->kernel.storage->store_rows(g->chunk.n, p->shape.dim_v, delta ? -1 : 1, delta ? part(head, w->scratch.N, 0) : dU, w->ld_v,
                                  attn_linear_row_out(head, head->args->grad_v, &p->at.grad_v, head->g, g->chunk.first),
                                  p->at.grad_v.dtype, p->at.grad_v.stride[2]);
    if (!delta) return;
    w->kernel.chunk->row_terms(g->chunk.n, p->shape.dim_v, part(head, w->scratch.dU, 0), w->ld_v, g->W, w->ld_v, NULL, g->beta);
    for (int64_t j = 0; j < g->chunk.n; j++)
        attn_element_put(attn_linear_row_out(head, head->args->grad_beta, &p->at.grad_beta, head->g, g->chunk.first + j),
                         p->at.grad_beta.dtype, 0, -attn_real_at(g->beta, w->compute, j));
}

/* Moves R to before the chunk. */
static void absorb_readers(const attn_linear_head *head, const attn_linear_gated *g)
{
    const attn_linear_walk *w = head->walk;
    void *R = part(head, w->scratch.grad_state, 0), *panels = part(head, w->scratch.panels, 0);
    void *decayed = part(head, w->scratch.decayed, 0);
    const void *weights = NULL;
    attn_prefetch none = {0};
    for (int64_t k = 0; k < readers_of(w); k++) {
        const reader r = reader_at(head, g, k);
        if (g->gates)
            w->kernel.gate->decay_rows(g->chunk.n, w->dim_f, r.F, g->gates, w->ld_f, 0, decayed, part(head, w->scratch.total, 0));
        if (k == 0) attn_linear_gated_decay(head, g, R);
        if (g->chunk.logs) weights = attn_linear_weights(head, &g->chunk, 0);
        w->kernel.chunk->pack_panels(g->chunk.n, w->dim_u, r.A, w->ld_v, weights, panels);
        w->kernel.chunk->update_state(g->chunk.n, w->dim_f, w->dim_u, g->gates ? decayed : r.F, w->ld_f, panels, R, w->ld_v, &none);
    }
}

static void chunk_backward(const attn_linear_head *head, int64_t first, int64_t n, const void *state, const void *state_after)
{
    const attn_linear_walk *w = head->walk;
    attn_linear_gated g = attn_linear_gated_at(head, first, n);
    const reader erase = key_reader(head, &g);
    const size_t size = attn_dtype_bytes(w->compute);
    void *G = part(head, w->scratch.G, 0), *dK = part(head, w->scratch.dK, 0);

    attn_linear_gated_solve(head, &g, state);
    load_readers(head, &g);
    if (w->problem.has.decay) memset(part(head, w->scratch.dlogs, 0), 0, (size_t)(n * w->ld_f) * size);
    for (int64_t tile = attn_ceil_div(n, w->tile_q); tile-- > 0;)
        write_gradient(head, &g, tile * w->tile_q, attn_min(w->tile_q, n - tile * w->tile_q));
    for (int64_t k = 0; k < w->group; k++)
        for (int64_t at = 0; at < n; at += w->tile_q) {
            const int64_t rows = attn_min(w->tile_q, n - at);
            const reader r = query_reader(head, k);
            read_gradient(head, &g, &r, state, at, rows);
            note_decay(head, r.F, at, rows, 1);
            attn_linear_store_query_gradient(head, head->g * w->group + k, first + at, rows, row(w, r.F, at, w->ld_f), G);
        }
    for (int64_t at = 0; at < n; at += w->tile_q) {
        const int64_t rows = attn_min(w->tile_q, n - at);
        key_gradient(head, &g, at, rows);
        note_decay(head, g.chunk.Kf, at, rows, -1);
        if (w->problem.rule == ATTN_LINEAR_RULE_DELTA) {
            memcpy(dK, G, (size_t)(rows * w->ld_f) * size);
            read_gradient(head, &g, &erase, state, at, rows);
            note_decay(head, g.chunk.Kf, at, rows, 1);
            w->kernel.outer->add(rows * w->ld_f, dK, G);
        }
        attn_linear_store_key_gradient(head, first + at, rows, row(w, g.chunk.Kf, at, w->ld_f), G);
    }
    store_values(head, &g);
    store_decay(head, &g, state_after);
    absorb_readers(head, &g);
}

/* Moves the state past chunk `number`. */
static void advance(const attn_linear_head *head, int64_t number, void *state)
{
    const attn_linear_walk *w = head->walk;
    const int64_t first = number * w->chunk;
    attn_linear_gated g = attn_linear_gated_at(head, first, attn_min(w->chunk, head->len_kv - first));
    attn_linear_gated_solve(head, &g, state);
    attn_linear_gated_absorb(head, &g, state);
}

void attn_linear_backward_gated(const attn_linear_head *head)
{
    const attn_linear_walk *w = head->walk;
    const int64_t chunks = attn_ceil_div(head->len_kv, w->chunk), state = w->dim_f * w->ld_v;
    const size_t bytes = (size_t)state * attn_dtype_bytes(w->compute);
    void *S = part(head, w->scratch.state, 0), *R = part(head, w->scratch.grad_state, 0);

    attn_linear_gated_load(head, LINEAR_GRAD_FINAL, R);
    attn_linear_gated_load(head, LINEAR_INITIAL, S);
    for (int64_t number = 0; number < chunks; number++) {
        if (number % w->segment == 0) memcpy(part(head, w->scratch.checkpoints, number / w->segment * state), S, bytes);
        advance(head, number, S);
    }
    for (int64_t segment = attn_ceil_div(chunks, w->segment); segment-- > 0;) {
        const int64_t from = segment * w->segment, n = attn_min(w->segment, chunks - from);
        memcpy(part(head, w->scratch.states, 0), part(head, w->scratch.checkpoints, segment * state), bytes);
        for (int64_t k = 0; k < n; k++) {
            void *next = part(head, w->scratch.states, (k + 1) * state);
            memcpy(next, part(head, w->scratch.states, k * state), bytes);
            advance(head, from + k, next);
        }
        for (int64_t k = n; k-- > 0;) {
            const int64_t first = (from + k) * w->chunk;
            chunk_backward(head, first, attn_min(w->chunk, head->len_kv - first), part(head, w->scratch.states, k * state),
                           part(head, w->scratch.states, (k + 1) * state));
        }
    }
    attn_linear_gated_store(head, R, LINEAR_GRAD_INITIAL);
}
