/* SPDX-License-Identifier: MIT
 *
 * tokens_backward.c - the recurrent walk backward.  It needs the state before and after every token, from the last one back:
 * the first pass keeps the state before each segment of about sqrt(n) tokens, and each segment, the last one first, is run again
 * with all of its states kept (Chen et al. 2016).  Memory: 2 sqrt(n) states.
 */
#include <string.h>

#include "../../base/checked.h"
#include "tokens.h"

static void *part(const attn_linear_head *head, int64_t offset, int64_t elements)
{
    return (char *)attn_linear_part(head, offset) + elements * (int64_t)attn_dtype_bytes(head->walk->compute);
}

static int64_t state_elements(const attn_linear_walk *w) { return w->dim_f * w->ld_v; }

static void copy(const attn_linear_walk *w, void *to, const void *from, int64_t elements)
{
    memcpy(to, from, (size_t)elements * attn_dtype_bytes(w->compute));
}

/* Moves the state and its sum past token j of a run. */
static void advance(const attn_linear_head *head, const attn_linear_run *r, int64_t j, void *S, void *z)
{
    const attn_linear_walk *w = head->walk;
    attn_token t = attn_linear_token_at(head, r, j, S, w->ld_v);
    attn_linear_take(head, r->first + j, &t);
    if (w->normalised) (void)w->kernel.token->sum(w->dim_f, t.q, t.k, t.gate, t.gate_channels, z);
}

static attn_linear_run segment_run(const attn_linear_head *head, int64_t number)
{
    const int64_t first = number * head->walk->segment;
    return attn_linear_run_at(head, first, attn_min(head->walk->segment, head->len_kv - first));
}

/* Keeps the states before each segment. */
static void keep_checkpoints(const attn_linear_head *head, int64_t segments)
{
    const attn_linear_walk *w = head->walk;
    void *S = part(head, w->scratch.state, 0), *z = part(head, w->scratch.sum, 0);
    for (int64_t number = 0; number < segments; number++) {
        attn_linear_run r = segment_run(head, number);
        copy(w, part(head, w->scratch.checkpoints, number * state_elements(w)), S, state_elements(w));
        if (w->normalised) copy(w, part(head, w->scratch.checkpoint_sums, number * w->dim_f), z, w->dim_f);
        for (int64_t j = 0; j < r.n; j++) advance(head, &r, j, S, z);
    }
}

/* Keeps the state before token j of the segment at index j of scratch.states, and after them the state after its last. */
static void keep_states(const attn_linear_head *head, const attn_linear_run *r, int64_t number)
{
    const attn_linear_walk *w = head->walk;
    const int64_t state = state_elements(w);
    copy(w, part(head, w->scratch.states, 0), part(head, w->scratch.checkpoints, number * state), state);
    if (w->normalised) copy(w, part(head, w->scratch.sums, 0), part(head, w->scratch.checkpoint_sums, number * w->dim_f), w->dim_f);
    for (int64_t j = 0; j < r->n; j++) {
        void *S = part(head, w->scratch.states, (j + 1) * state), *z = part(head, w->scratch.sums, (j + 1) * w->dim_f);
        copy(w, S, part(head, w->scratch.states, j * state), state);
        if (w->normalised) copy(w, z, part(head, w->scratch.sums, j * w->dim_f), w->dim_f);
        advance(head, r, j, S, z);
    }
}

/* dq of every query head at token j, and what they add to the gradient of the state after it. */
static void query_gradients(const attn_linear_head *head, const attn_linear_run *r, int64_t j)
{
    const attn_linear_walk *w = head->walk;
    const attn_linear_resolved *p = &w->problem;
    const void *S = part(head, w->scratch.states, (j + 1) * state_elements(w)),
               *z = part(head, w->scratch.sums, (j + 1) * w->dim_f);
    void *R = part(head, w->scratch.grad_state, 0), *sum = part(head, w->scratch.grad_sum, 0), *G = part(head, w->scratch.G, 0);
    for (int64_t k = 0; k < w->group; k++) {
        const void *q = attn_linear_run_query(head, k, j);
        w->kernel.token->recall_backward(w->dim_f, p->shape.dim_v, q, part(head, w->scratch.A, (k * w->chunk + j) * w->ld_v), S,
                                         w->ld_v, R, G);
        if (w->normalised) {
            const double e = attn_real_at(part(head, w->scratch.terms, k * w->chunk), w->compute, j);
            for (int64_t c = 0; c < w->dim_f; c++) {
                attn_real_put(G, w->compute, c, attn_real_at(G, w->compute, c) + e * attn_real_at(z, w->compute, c));
                attn_real_put(sum, w->compute, c, attn_real_at(sum, w->compute, c) + e * attn_real_at(q, w->compute, c));
            }
        }
        attn_linear_store_query_gradient(head, head->g * w->group + k, r->first + j, 1, q, G);
    }
}

/* The low-rank rule: both of its tokens, the second first. */
static void low_rank_gradients(const attn_linear_head *head, int64_t token, attn_token *t, const void *before, void *dk, void *dv,
                               void *dlog)
{
    const attn_linear_walk *w = head->walk;
    const attn_linear_resolved *p = &w->problem;
    const attn_linear_args *a = head->args;
    void *between = part(head, w->scratch.state, 0), *R = part(head, w->scratch.grad_state, 0);
    void *derase = part(head, w->scratch.token, 2 * w->ld_v + 3 * w->ld_f + w->ld_v); /* after what a pair uses */
    void *dwrite = part(head, w->scratch.token, 2 * w->ld_v + 4 * w->ld_f + w->ld_v);
    void *dy = part(head, w->scratch.token, 3 * w->ld_v + 5 * w->ld_f);
    double none;
    copy(w, between, before, state_elements(w));
    t->S = between;
    t->before = between;
    const attn_linear_pair pair = attn_linear_pair_at(head, token, t);
    w->kernel.token->step(&pair.first);
    w->kernel.token->backward(t, between, R, dk, dv, &none, dlog);
    w->kernel.token->backward(&pair.first, before, R, dwrite, dy, &none, dlog);
    w->kernel.token->recall_backward(w->dim_f, p->shape.dim_v, pair.erase, dy, before, w->ld_v, R, derase);
    w->kernel.storage->store_rows(1, w->dim_f, 1, dwrite, w->ld_f,
                                  attn_linear_row_out(head, a->grad_write, &p->at.grad_write, head->g, token),
                                  p->at.grad_write.dtype, 0);
    w->kernel.storage->store_rows(1, w->dim_f, 1, derase, w->ld_f,
                                  attn_linear_row_out(head, a->grad_erase, &p->at.grad_erase, head->g, token),
                                  p->at.grad_erase.dtype, 0);
}

/* dk, dv and the gradients of beta and decay at token j; moves the gradients of the state and its sum to before it. */
static void key_gradients(const attn_linear_head *head, const attn_linear_run *r, int64_t j)
{
    const attn_linear_walk *w = head->walk;
    const attn_linear_resolved *p = &w->problem;
    const attn_linear_args *a = head->args;
    const int64_t token = r->first + j;
    const void *z = part(head, w->scratch.sums, j * w->dim_f);
    void *sum = part(head, w->scratch.grad_sum, 0), *dk = part(head, w->scratch.G, 0), *dv = part(head, w->scratch.Y, 0);
    void *dlog = part(head, w->scratch.token, 2 * w->ld_v);
    const void *before = part(head, w->scratch.states, j * state_elements(w));
    double dbeta = 0, whole = 0;
    attn_token t = attn_linear_token_at(head, r, j, NULL, w->ld_v);

    if (p->rule == ATTN_LINEAR_RULE_LOW_RANK) low_rank_gradients(head, token, &t, before, dk, dv, dlog);
    else w->kernel.token->backward(&t, before, part(head, w->scratch.grad_state, 0), dk, dv, &dbeta, dlog);
    for (int64_t c = 0; c < w->dim_f; c++) {
        double x = attn_real_at(dlog, w->compute, c);
        if (w->normalised) {
            const double g = attn_real_at(sum, w->compute, c);
            const double gate = t.gate ? attn_real_at(t.gate, w->compute, t.gate_channels ? c : 0) : 1;
            attn_real_put(dk, w->compute, c, attn_real_at(dk, w->compute, c) + g);
            x += g * gate * attn_real_at(z, w->compute, c);
            attn_real_put(sum, w->compute, c, gate * g);
        }
        whole += x;
        if (attn_decays_channels(p))
            attn_element_put(attn_linear_row_out(head, a->grad_decay, &p->at.grad_decay, head->g, token), p->at.grad_decay.dtype,
                             c * p->at.grad_decay.stride[3], x);
    }
    if (attn_decays_heads(p))
        attn_element_put(attn_linear_row_out(head, a->grad_decay, &p->at.grad_decay, head->g, token), p->at.grad_decay.dtype, 0,
                         whole);
    if (t.delta)
        attn_element_put(attn_linear_row_out(head, a->grad_beta, &p->at.grad_beta, head->g, token), p->at.grad_beta.dtype, 0,
                         dbeta);
    w->kernel.storage->store_rows(1, p->shape.dim_v, 1, dv, w->ld_v,
                                  attn_linear_row_out(head, a->grad_v, &p->at.grad_v, head->g, token), p->at.grad_v.dtype,
                                  p->at.grad_v.stride[2]);
    attn_linear_store_key_gradient(head, token, 1, t.k, dk);
}

void attn_linear_backward_tokens(const attn_linear_head *head)
{
    const attn_linear_walk *w = head->walk;
    const int64_t segments = attn_ceil_div(head->len_kv, w->segment);
    void *S = part(head, w->scratch.state, 0), *z = part(head, w->scratch.sum, 0);
    void *R = part(head, w->scratch.grad_state, 0), *r = part(head, w->scratch.grad_sum, 0);

    attn_linear_load_own_state(head, LINEAR_INITIAL, S, z);
    attn_linear_load_own_state(head, LINEAR_GRAD_FINAL, R, r);
    keep_checkpoints(head, segments);
    for (int64_t number = segments; number-- > 0;) {
        attn_linear_run run = segment_run(head, number);
        for (int64_t k = 0; k < w->group; k++)
            attn_linear_scaled_gradient(head, head->g * w->group + k, k, run.first, run.n,
                                        part(head, w->scratch.A, k * w->chunk * w->ld_v));
        keep_states(head, &run, number);
        for (int64_t j = run.n; j-- > 0;) {
            query_gradients(head, &run, j);
            key_gradients(head, &run, j);
        }
    }
    attn_linear_store_state(head, R, w->ld_v, r, LINEAR_GRAD_INITIAL);
}
