/* SPDX-License-Identifier: MIT
 * gather.c - see gather.h. */
#include "gather.h"

#include "piece.h"

void attn_gather_take(attn_cells *c)
{
    attn_shape *s = &c->problem.shape;
    const int64_t some = attn_min(s->heads_kv, 1), ratio = some ? s->heads_q / s->heads_kv : 0;
    c->idle = !some;
    if (!c->origin.heads) c->origin.heads = s->heads_q;
    s->heads_q = ratio, s->heads_kv = some;
    for (attn_bound *b = c->bounds.all; b < c->bounds.all + c->bounds.count; b++)
        if (b->spread != ATTN_SPREAD_INDEX) b->shape[1] = b->of_heads_kv ? some : ratio;
}

/* ---- the tensors of a head ---- */

static void place_tensors(const attn_distributed_plan *p, const attn_tensors *all, int64_t head, attn_tensors *to)
{
    const int64_t ratio = p->cells.problem.shape.heads_q;
    *to = *all;
    for (const attn_bound *b = p->cells.bounds.all; b < p->cells.bounds.all + p->cells.bounds.count; b++) {
        attn_input *slot = attn_slot_in(to, b);
        const int64_t first = b->of_heads_kv ? head : head * ratio;
        if (b->spread == ATTN_SPREAD_INDEX || !b->has_elements) continue;
        slot->data = (const char *)slot->data + first * b->stride[1] * (int64_t)attn_dtype_size(b->dtype);
    }
}

/* ---- the keys of a head ---- */

/* Of one owner: the parts that lie among parts first .. end - 1, all of which a rank sees. */
typedef struct bundle {
    int64_t first, end;
    size_t bytes;
} bundle;

static size_t bytes_of(const attn_distributed_plan *p, int64_t j)
{
    return attn_message_bytes(&p->cells, attn_part_size(&p->cells.grid.kv, j));
}

/* Moves to the next message from an owner to the rank that sees these parts; *b begins with zeros.  Returns 0 behind the last. */
static int bundle_next(const attn_distributed_plan *p, int owner, const int32_t *seen, bundle *b)
{
    const attn_parts *kv = &p->cells.grid.kv;
    int64_t j = b->end;
    while (j < kv->count && (kv->owner[j] != owner || seen[j] <= 0)) j++;
    *b = (bundle){.first = j};
    for (; j < kv->count && seen[j] > 0; j++)
        if (kv->owner[j] == owner) b->bytes += bytes_of(p, j);
    b->end = j;
    return b->first < kv->count;
}

/* Own parts, and those that come: of one owner after another, its parts in rising order. */
static void list(attn_running *r)
{
    const attn_distributed_plan *p = r->plan;
    const attn_parts *kv = &p->cells.grid.kv;
    int64_t at = 0;
    attn_steps_mark(p, p->me, r->seen_here);
    r->from_count = 0;
    for (int64_t j = 0; j < kv->count; j++)
        if (kv->owner[j] == p->me || r->seen_here[j] > 0) {
            r->from_at[r->from_count] = -1;
            r->from[r->from_count++] = j;
        }
    for (int step = 1; step < p->ranks; step++)
        for (int64_t n = 0; n < r->from_count; n++) {
            if (kv->owner[r->from[n]] != attn_rank_at(p, -step)) continue;
            r->from_at[n] = at;
            at += (int64_t)bytes_of(p, r->from[n]);
        }
    r->needs.arriving = (size_t)at;
}

/* Begins the exchange of the keys of a head; mine: the tensors of this head, NULL: counts. */
static void post(attn_running *r, const attn_tensors *mine, int64_t head)
{
    const attn_distributed_plan *p = r->plan;
    size_t at = 0;
    if (p->ranks == 1) return;
    for (int64_t n = 0; n < p->own.count_kv; n++) {
        if (mine) attn_message_fill(&p->cells, mine, p->own.kv[n], r->home + at);
        at += bytes_of(p, p->own.kv[n]);
    }
    r->needs.home = at;
    at = 0;
    for (int step = 1; step < p->ranks; step++) {
        const int from = attn_rank_at(p, -step);
        for (bundle b = {0}; bundle_next(p, from, r->seen_here, &b); at += b.bytes)
            attn_steps_receive(r, from, ATTN_TAG_KEYS, mine ? r->arrived[head & 1] + at : NULL, b.bytes);
    }
    for (int step = 1; step < p->ranks; step++) {
        const int to = attn_rank_at(p, step);
        attn_steps_mark(p, to, r->seen_there);
        for (bundle b = {0}; bundle_next(p, p->me, r->seen_there, &b);) {
            const size_t before = (size_t)attn_own_number(p, b.first) * bytes_of(p, 0);
            attn_steps_send(r, to, ATTN_TAG_KEYS, mine ? r->home + before : NULL, b.bytes);
        }
    }
}

/* ---- the rounds ---- */

static int goes_on(const attn_running *r) { return r->enough && r->status == ATTN_OK; }

void attn_gather_rounds(attn_running *r, attn_gather_pass *pass)
{
    const attn_distributed_plan *p = r->plan;
    const attn_tensors *const all = r->mine;
    const int64_t rounds = all ? p->rounds : attn_min(p->rounds, 1); /* all are alike */
    attn_tensors heads[2];                                           /* of this round and of the next */
    list(r);
    for (int64_t n = 0; n <= rounds && goes_on(r); n++) {
        attn_tensors *const next = all ? &heads[n & 1] : NULL;
        if (next && n < rounds) place_tensors(p, all, n, next);
        if (n < rounds) post(r, next, n);
        if (n == 0) attn_steps_wait(r);
        if (n == 0 || !goes_on(r)) continue;
        if (all) r->mine = &heads[(n - 1) & 1];
        r->head = (n - 1) * p->cells.problem.shape.heads_q;
        r->here = r->arrived[(n - 1) & 1];
        pass(r);
    }
    r->mine = all;
}
