/* SPDX-License-Identifier: MIT
 * steps.c - see steps.h. */
#include "steps.h"

#include <string.h>

#include "../common/slots.h"

/* ---- messages ---- */

/* rank -1: no one in particular. */
static void check(attn_running *r, int failed, const char *what, int rank)
{
    if (!failed || r->status != ATTN_OK) return;
    const attn_transport *t = &r->plan->transport;
    if (rank >= 0)
        r->status = fail(r->error, ATTN_ERR_IO, "distributed: the transport failed (%d) while it %s rank %d", failed, what, rank);
    else r->status = fail(r->error, ATTN_ERR_IO, "distributed: the transport failed (%d) while it %s", failed, what);
    if (r->waiting > 0) (void)t->wait(t->context, r->waiting, r->requests); /* their memory is the caller's again */
    r->waiting = 0;
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
    r->needs.bytes = attn_bytes_sent(r->needs.bytes, bytes);
    if (!r->mine || !request || r->status != ATTN_OK) return;
    *request = NULL;
    to = attn_rank_of_transport(r->plan, to);
    check(r, t->send(t->context, to, tag, data, bytes, request), "sent to", to);
}

void attn_steps_receive(attn_running *r, int from, int tag, void *data, size_t bytes)
{
    const attn_transport *t = &r->plan->transport;
    void **request = next_request(r);
    if (!r->mine || !request || r->status != ATTN_OK) return;
    *request = NULL;
    from = attn_rank_of_transport(r->plan, from);
    check(r, t->receive(t->context, from, tag, data, bytes, request), "received from", from);
}

void attn_steps_wait(attn_running *r)
{
    const attn_transport *t = &r->plan->transport;
    const int64_t count = r->waiting;
    r->waiting = 0; /* whether or not `wait` fails, nothing is left to wait for */
    if (r->mine && count > 0 && r->status == ATTN_OK) check(r, t->wait(t->context, count, r->requests), "waited for messages", -1);
}

void attn_steps_progress(attn_running *r)
{
    const attn_transport *t = &r->plan->transport;
    if (r->plan->ranks > 1 && t->progress && r->status == ATTN_OK) check(r, t->progress(t->context), "made progress", -1);
}

/* ---- the keys of a step ---- */

void attn_steps_mark(const attn_distributed_plan *p, int rank, int32_t *seen)
{
    const attn_grid *g = &p->cells.grid;
    if (p->way == ATTN_WAY_RING) return; /* all come by */
    memset(seen, 0, ((size_t)g->kv.count + 1) * sizeof *seen);
    for (int64_t i = 0; i < g->q.count; i++)
        for (const attn_range *x = &g->seen[ATTN_SEEN_RANGES * i]; x < &g->seen[ATTN_SEEN_RANGES * (i + 1)]; x++)
            if (g->q.owner[i] == rank && x->first < x->end) seen[x->first]++, seen[x->end]--;
    for (int64_t j = 1; j < g->kv.count; j++) seen[j] += seen[j - 1];
}

/* 1 if part j arrives at the rank whose marks these are, unless it is that rank's own. */
static int arrives(const attn_distributed_plan *p, const int32_t *seen, int64_t j)
{
    return p->way == ATTN_WAY_RING || seen[j] > 0;
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
    attn_steps_mark(p, p->me, r->seen_here);
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
        if (kv->owner[j] != from || !arrives(p, r->seen_here, j)) continue;
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
    attn_steps_mark(p, to, r->seen_there);
    for (int64_t j = 0; j < kv->count; j++) {
        if (kv->owner[j] != of) continue;
        if (arrives(p, r->seen_there, j)) attn_steps_send(r, to, ATTN_TAG_KEYS, r->mine ? base + at : NULL, bytes_of(p, j));
        at += bytes_of(p, j);
    }
}

void attn_steps_post(attn_running *r, int step)
{
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
        if (kv->owner[j] == from && (from == p->me || arrives(p, r->seen_here, j))) {
            r->from_at[r->from_count] = step ? r->from_count * (int64_t)bytes_of(p, 0) : -1; /* (only the last may be smaller) */
            r->from[r->from_count++] = j;
        }
    r->here = r->arrived[step & 1];
}

const char *attn_steps_message(const attn_running *r, int64_t n)
{
    return r->mine && r->from_at[n] >= 0 ? r->here + r->from_at[n] : NULL;
}

attn_tree *attn_steps_column(attn_running *r, int64_t n)
{
    return r->from_at[n] >= 0 ? &r->away[n] : &r->columns[attn_own_number(r->plan, r->from[n])];
}
