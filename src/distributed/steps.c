/* SPDX-License-Identifier: MIT
 * steps.c - see steps.h. */
#include "steps.h"

#include <string.h>

#include "../common/slots.h"

/* ---- messages ---- */

static void follow(attn_running *r)
{
    if (r->link.status != ATTN_OK) r->status = r->link.status;
}

void attn_steps_send(attn_running *r, int to, int tag, const void *data, size_t bytes)
{
    (void)attn_link_send(&r->link, attn_rank_of_transport(r->plan, to), tag, data, bytes);
    follow(r);
}

void attn_steps_receive(attn_running *r, int from, int tag, void *data, size_t bytes)
{
    (void)attn_link_receive(&r->link, attn_rank_of_transport(r->plan, from), tag, data, bytes);
    follow(r);
}

void attn_steps_wait(attn_running *r)
{
    attn_link_wait_all(&r->link);
    follow(r);
}

void attn_steps_progress(attn_running *r)
{
    if (r->plan->ranks > 1) attn_link_progress(&r->link);
    follow(r);
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
