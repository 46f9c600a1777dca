/* SPDX-License-Identifier: MIT
 *
 * tokens.c - the recurrent walk of linear attention: the loop at the top of attn/linear.h, token by token, for every rule
 * and decay.  Features, values and decays are loaded chunk by chunk; the state is the caller's own memory if its layout allows.
 */
#include <math.h>
#include <string.h>

#include "../../base/checked.h"
#include "../../base/names.h"
#include "tokens.h"

static int64_t size_of(const attn_linear_walk *w) { return (int64_t)attn_dtype_bytes(w->compute); }

attn_linear_run attn_linear_run_at(const attn_linear_head *head, int64_t first, int64_t n)
{
    const attn_linear_walk *w = head->walk;
    const attn_linear_resolved *p = &w->problem;
    attn_linear_run r = {.first = first, .n = n, .Kf = attn_linear_part(head, w->scratch.Kf)};
    attn_linear_key_features(head, first, n, r.Kf);
    r.V = attn_linear_values(head, first, n, attn_linear_part(head, w->scratch.V), &r.ldv);
    for (int64_t k = 0; k < w->group; k++)
        attn_linear_query_features(head, head->g * w->group + k, first, n,
                                   (char *)attn_linear_part(head, w->scratch.Qf) + k * w->chunk * w->ld_f * size_of(w));
    if (!p->has.decay) return r;
    r.gates = attn_linear_part(head, w->scratch.gates);
    r.gate_channels = attn_decays_channels(p);
    if (r.gate_channels) {
        attn_linear_gates(head, first, n, r.gates);
        return r;
    }
    for (int64_t j = 0; j < n; j++) attn_real_put(r.gates, w->compute, j, exp(attn_linear_log(head, first + j, 0)));
    return r;
}

attn_token attn_linear_token_at(const attn_linear_head *head, const attn_linear_run *r, int64_t j, void *S, int64_t ld)
{
    const attn_linear_walk *w = head->walk;
    const attn_linear_resolved *p = &w->problem;
    const int64_t size = size_of(w);
    char *own = attn_linear_part(head, w->scratch.token);
    attn_token t = {.dim_k = w->dim_f,
                    .dim_v = p->shape.dim_v,
                    .ld = ld,
                    .S = S,
                    .before = S,
                    .ld_before = ld,
                    .stored = w->compute,
                    .y = own,
                    .u = own + w->ld_v * size};
    t.k = (const char *)r->Kf + j * w->ld_f * size;
    t.q = w->group ? attn_linear_run_query(head, 0, j) : t.k; /* without queries, y is not read */
    t.v = (const char *)r->V + j * r->ldv * size;
    t.gate_channels = r->gate_channels;
    if (r->gates) t.gate = (const char *)r->gates + j * (r->gate_channels ? w->ld_f : 1) * size;
    t.delta = p->rule == ATTN_LINEAR_RULE_DELTA;
    if (t.delta) t.beta = attn_linear_beta(head, r->first + j);
    return t;
}

attn_linear_pair attn_linear_pair_at(const attn_linear_head *head, int64_t token, attn_token *second)
{
    const attn_linear_walk *w = head->walk;
    const attn_linear_resolved *p = &w->problem;
    const int64_t size = size_of(w);
    char *own = (char *)attn_linear_part(head, w->scratch.token) + (2 * w->ld_v + w->ld_f) * size; /* after y, u and dlog */
    void *write = own, *recalled = own + 2 * w->ld_f * size;
    attn_linear_pair pair = {.first = *second, .erase = own + w->ld_f * size};
    w->kernel.storage->load_rows(1, w->dim_f, attn_linear_row(head, head->args->write, &p->at.write, head->g, token),
                                 p->at.write.dtype, 0, write, w->ld_f);
    w->kernel.storage->load_rows(1, w->dim_f, attn_linear_row(head, head->args->erase, &p->at.erase, head->g, token),
                                 p->at.erase.dtype, 0, pair.erase, w->ld_f);
    w->kernel.token->recall(w->dim_f, p->shape.dim_v, pair.erase, second->S, second->ld, recalled);
    pair.first.k = write;
    pair.first.v = recalled;
    second->gate = NULL;
    return pair;
}

void attn_linear_take(const attn_linear_head *head, int64_t token, attn_token *t)
{
    if (head->walk->problem.rule == ATTN_LINEAR_RULE_LOW_RANK) {
        const attn_linear_pair pair = attn_linear_pair_at(head, token, t);
        head->walk->kernel.token->step(&pair.first);
    }
    head->walk->kernel.token->step(t);
}

/* Stores token j's outputs of every query head; the state is after it, and its sum moves past it: with the first of these heads, or
 * by itself if there are none. */
static void store_outputs(const attn_linear_head *head, const attn_token *t, int64_t token, int64_t j, void *z)
{
    const attn_linear_walk *w = head->walk;
    const attn_linear_resolved *p = &w->problem;
    if (!w->group && w->normalised) (void)w->kernel.token->sum(w->dim_f, t->k, t->k, t->gate, t->gate_channels, z);
    for (int64_t k = 0; k < w->group; k++) {
        const int64_t h = head->g * w->group + k;
        const void *q = attn_linear_run_query(head, k, j);
        int clamped;
        double n = 0;
        if (k) w->kernel.token->recall(w->dim_f, p->shape.dim_v, q, t->S, t->ld, t->y);
        if (w->normalised)
            n = p->scale * w->kernel.token->sum(w->dim_f, q, k ? NULL : t->k, k ? NULL : t->gate, t->gate_channels, z);
        if (p->has.denominators)
            attn_real_put(attn_linear_row_out(head, head->args->denominators, &p->at.denominators, h, token), w->compute, 0, n);
        w->kernel.storage->store_rows(1, p->shape.dim_v, p->scale / attn_linear_guard(p, n, &clamped), t->y, w->ld_v,
                                      attn_linear_row_out(head, head->args->o, &p->at.o, h, token), p->at.o.dtype,
                                      p->at.o.stride[2]);
    }
}

/* The state in the caller's memory, if rows there can be updated in place: of type `stored`; else NULL. */
static void *own_memory(const attn_linear_head *head, attn_dtype stored)
{
    const attn_linear_resolved *p = &head->walk->problem;
    const attn_layout *at = &p->at.final_state;
    const int64_t row = attn_linear_final_row(head, 0);
    if (row < 0 || at->dtype != stored || (at->stride[2] < p->shape.dim_v && head->walk->dim_f > 1)) return NULL;
    return attn_linear_state_row(head, row, head->args->final_state, at);
}

/* Where the worker's next head is likely to begin; NULL if there is none. */
static const void *next_state(const attn_linear_head *head)
{
    const attn_linear_resolved *p = &head->walk->problem;
    attn_linear_head next = *head;
    next.b = head->next / p->shape.heads_kv;
    next.g = head->next % p->shape.heads_kv;
    const int64_t row = next.b < p->shape.batch ? attn_linear_initial_row(&next) : -1;
    return row < 0 ? NULL : attn_linear_state_row(&next, row, head->args->initial_state, &p->at.initial_state);
}

/* A sequence of one token, as in decoding: its state goes from one row to another, or the same, in one pass, whatever its type.
 * Returns 0 if that is not possible. */
static int decode(const attn_linear_head *head, void *z)
{
    const attn_linear_walk *w = head->walk;
    const attn_linear_resolved *p = &w->problem;
    const attn_dtype stored = p->at.final_state.dtype;
    const int64_t row = attn_linear_initial_row(head);
    void *S = p->has.final_state ? own_memory(head, stored) : NULL;
    if (head->len_kv != 1 || !S || row < 0 || stored != p->at.initial_state.dtype) return 0;
    if (p->snapshots > 1 || p->rule == ATTN_LINEAR_RULE_LOW_RANK) return 0;
    if (w->group > 1 && stored != w->compute) return 0; /* the second query reads the state before it is rounded, too */
    const attn_linear_run r = attn_linear_run_at(head, 0, 1);
    attn_token t = attn_linear_token_at(head, &r, 0, S, p->at.final_state.stride[2]);
    t.before = attn_linear_state_row(head, row, head->args->initial_state, &p->at.initial_state);
    t.ld_before = p->at.initial_state.stride[2];
    t.stored = stored;
    t.next = next_state(head);
    attn_linear_load_sum(head, z);
    w->kernel.token->step(&t);
    store_outputs(head, &t, 0, 0, z);
    attn_linear_store_sum(head, z);
    return 1;
}

void attn_linear_forward_tokens(const attn_linear_head *head)
{
    const attn_linear_walk *w = head->walk;
    const attn_linear_resolved *p = &w->problem;
    void *S = own_memory(head, w->compute), *z = attn_linear_part(head, w->scratch.sum);
    const int64_t ld = S ? p->at.final_state.stride[2] : w->ld_v;
    if (decode(head, z)) return;
    if (!S) S = attn_linear_part(head, w->scratch.state);
    attn_linear_load_state(head, LINEAR_INITIAL, S, ld, z);
    if (head->len_kv > 0 && head->len_kv < p->snapshots) attn_linear_store_snapshot(head, head->len_kv, S, ld, z);
    for (int64_t first = 0; first < head->len_kv; first += w->chunk) {
        attn_linear_run r = attn_linear_run_at(head, first, attn_min(w->chunk, head->len_kv - first));
        for (int64_t j = 0; j < r.n; j++) {
            attn_token t = attn_linear_token_at(head, &r, j, S, ld);
            const int64_t left = head->len_kv - 1 - first - j;
            attn_linear_take(head, first + j, &t);
            store_outputs(head, &t, first + j, j, z);
            if (left > 0 && left < p->snapshots) attn_linear_store_snapshot(head, left, S, ld, z);
        }
    }
    attn_linear_store_state(head, S, ld, z, LINEAR_FINAL);
}
