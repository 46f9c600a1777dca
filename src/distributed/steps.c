/* SPDX-License-Identifier: MIT
 * steps.c - see steps.h. */
#include "steps.h"

#include "../common/slots.h"

/* ---- messages ---- */

static int is_lost(attn_running *r, int failed, const char *what, int rank)
{
    if (failed && r->status == ATTN_OK)
        r->status = fail(r->error, ATTN_ERR_IO, "distributed: the transport failed (%d) while it %s rank %d", failed, what, rank);
    return r->status != ATTN_OK;
}

/* Where the next request goes; NULL: there is no space. */
static void **next_request(attn_running *r)
{
    if (r->waiting >= r->needs.requests) r->needs.requests = r->waiting + 1;
    if (r->waiting < r->plan->needs.requests) return &r->requests[r->waiting++];
    r->waiting++;
    r->enough = 0;
    return NULL;
}

void attn_steps_send(attn_running *r, int to, int tag, const void *data, size_t bytes)
{
    const attn_transport *t = &r->plan->transport;
    void **request = next_request(r);
    r->needs.messages++;
    r->needs.bytes += (int64_t)bytes;
    if (!r->mine || !request || r->status != ATTN_OK) return;
    *request = NULL;
    (void)is_lost(r, t->send(t->context, to, tag, data, bytes, request), "sent to", to);
}

void attn_steps_receive(attn_running *r, int from, int tag, void *data, size_t bytes)
{
    const attn_transport *t = &r->plan->transport;
    void **request = next_request(r);
    if (!r->mine || !request || r->status != ATTN_OK) return;
    *request = NULL;
    (void)is_lost(r, t->receive(t->context, from, tag, data, bytes, request), "received from", from);
}

void attn_steps_wait(attn_running *r)
{
    const attn_transport *t = &r->plan->transport;
    if (r->mine && r->waiting > 0 && r->status == ATTN_OK)
        (void)is_lost(r, t->wait(t->context, r->waiting, r->requests), "waited on", r->plan->me);
    r->waiting = 0;
}

/* ---- the keys of a step ---- */

/* 1 if queries of `rank` see part j of the keys. */
static int sees(const attn_grid *g, int rank, int64_t j)
{
    for (int64_t i = 0; i < g->q.count; i++)
        if (g->q.owner[i] == rank && attn_row_exists(g, i, j, j + 1)) return 1;
    return 0;
}

/* 1 if part j arrives at `rank`, if it is not its own. */
static int arrives(const attn_distributed_plan *p, int rank, int64_t j)
{
    return p->way == ATTN_WAY_RING || sees(&p->cells.grid, rank, j);
}

static size_t bytes_of(const attn_distributed_plan *p, int64_t j)
{
    return attn_message_bytes(&p->cells, attn_part_size(&p->cells.grid.kv, j));
}

void attn_steps_begin(attn_running *r)
{
    const attn_distributed_plan *p = r->plan;
    size_t at = 0;
    if (p->ranks == 1) return;
    for (int64_t n = 0; n < p->own.count_kv; n++) {
        if (r->mine) attn_message_fill(&p->cells, r->mine, p->own.kv[n], r->home + at);
        at += bytes_of(p, p->own.kv[n]);
    }
    r->needs.home = at;
}

static void receive_keys(attn_running *r, int step, int from)
{
    const attn_distributed_plan *p = r->plan;
    const attn_parts *kv = &p->cells.grid.kv;
    const int source = p->way == ATTN_WAY_RING ? attn_rank_at(p, -1) : from;
    size_t at = 0;
    for (int64_t j = 0; j < kv->count; j++) {
        if (kv->owner[j] != from || !arrives(p, p->me, j)) continue;
        attn_steps_receive(r, source, ATTN_TAG_KEYS, r->mine ? r->arrived[step & 1] + at : NULL, bytes_of(p, j));
        at += bytes_of(p, j);
    }
    if (at > r->needs.arriving) r->needs.arriving = at;
}

/* The ring passes on what this rank has in step - 1; otherwise the owner sends what is seen. */
static void send_keys(attn_running *r, int step)
{
    const attn_distributed_plan *p = r->plan;
    const attn_parts *kv = &p->cells.grid.kv;
    const int is_ring = p->way == ATTN_WAY_RING, to = attn_rank_at(p, is_ring ? 1 : step),
              of = is_ring ? attn_rank_at(p, 1 - step) : p->me;
    const char *base = of == p->me ? r->home : r->arrived[(step - 1) & 1];
    size_t at = 0;
    for (int64_t j = 0; j < kv->count; j++) {
        if (kv->owner[j] != of) continue;
        if (arrives(p, to, j)) attn_steps_send(r, to, ATTN_TAG_KEYS, r->mine ? base + at : NULL, bytes_of(p, j));
        at += bytes_of(p, j);
    }
}

void attn_steps_post(attn_running *r, int step)
{
    if (step >= r->plan->ranks) return;
    receive_keys(r, step, attn_rank_at(r->plan, -step));
    send_keys(r, step);
}

void attn_steps_list(attn_running *r, int step)
{
    const attn_distributed_plan *p = r->plan;
    const attn_parts *kv = &p->cells.grid.kv;
    const int from = attn_rank_at(p, -step);
    r->from_count = 0;
    for (int64_t j = 0; j < kv->count; j++)
        if (kv->owner[j] == from && (from == p->me || arrives(p, p->me, j))) r->from[r->from_count++] = j;
}

const char *attn_steps_message(const attn_running *r, int step, int64_t n)
{
    const char *at = r->arrived[step & 1];
    if (!r->mine || step == 0) return NULL;
    for (int64_t k = 0; k < n; k++) at += bytes_of(r->plan, r->from[k]);
    return at;
}
