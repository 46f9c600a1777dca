/* SPDX-License-Identifier: MIT
 * ways.c - ways of exchange that the library does not have: times as if work were even on all ranks.  They are here to be compared
 * with those that it has. */
#include <math.h>

#include "ranks.h"

/* What the formulas are about; times in seconds. */
typedef struct even {
    const attn_problem *p;
    const attn_split_machine *machine;
    int is_backward;
    double ranks, computing, merging; /* of a rank */
    double keys, grads, rows;         /* bytes of a rank: of keys and values, of their gradients, of queries and outputs */
} even;

static double log2_up(double x) { return ceil(log2(x > 2 ? x : 2)); }

static double time_of_all(const even *e)
{
    return e->machine->seconds_per_message * log2_up(e->ranks) +
           (e->ranks - 1) * (e->keys + e->grads) / e->machine->bytes_per_second;
}

/* All keys of a head, then those of the next while it is computed. */
static double by_head(const even *e)
{
    const double heads = (double)e->p->shape.heads_kv, all = time_of_all(e);
    return fmax(e->computing, all + e->machine->seconds_per_message * heads * log2_up(e->ranks)) + all / heads;
}

/* `split` ranks have all tokens of some heads each; key heads are repeated where there are fewer. */
static double exchange_of_heads(const even *e, double split)
{
    const double heads_kv = (double)e->p->shape.heads_kv, repeated = heads_kv > split ? 1 : split / heads_kv,
                 passes = e->is_backward ? 2 : 1;
    return e->machine->seconds_per_message * (split - 1) * 4 * passes +
           (e->rows + repeated * e->keys) * (split - 1) / split * passes / e->machine->bytes_per_second;
}

/* A ring of groups, in which ranks have heads. */
static double heads_by_ring(const even *e, double split)
{
    const double ring = e->ranks / split, heads_kv = (double)e->p->shape.heads_kv,
                 repeated = heads_kv > split ? 1 : split / heads_kv, step = e->computing / ring + e->merging / 2,
                 message = e->machine->seconds_per_message * (e->is_backward ? 2 : 1) +
                           repeated * (e->keys + e->grads) / e->machine->bytes_per_second;
    return exchange_of_heads(e, split) + step + (ring - 1) * fmax(step, message);
}

static void add(way_row *rows, int *count, const even *e, const char *name, const char *what, double seconds)
{
    way_row *row = &rows[(*count)++];
    *row = (way_row){.name = name, .what = what};
    row->of.seconds = seconds;
    row->of.computing = e->computing;
    row->of.waiting = fmax(seconds - e->computing, 0);
    row->of.efficiency = e->computing / seconds;
    row->of.imbalance = 1;
}

int ways_elsewhere(const attn_problem *p, attn_dtype dtype, int ranks, const attn_split_machine *machine, double flops,
                   way_row *rows)
{
    const attn_shape *s = &p->shape;
    const double size = (double)attn_dtype_size(dtype), share = (double)s->batch / ranks,
                 keys = share * (double)s->heads_kv * (double)s->len_kv * (double)(s->dim_qk + s->dim_v),
                 queries = share * (double)s->heads_q * (double)s->len_q;
    const int is_backward = p->op == ATTN_BACKWARD;
    const even e = {.p = p,
                    .machine = machine,
                    .is_backward = is_backward,
                    .ranks = ranks,
                    .computing = flops / ranks / machine->flops_per_second,
                    .merging = queries * (double)s->dim_v * machine->seconds_per_sum * (is_backward ? 0.5 : 1),
                    .keys = keys * size,
                    .grads = is_backward ? keys * fmax(size, 4) : 0,
                    .rows = queries * (double)(s->dim_qk + s->dim_v) * size};
    int count = 0;
    if (ranks < 2 || e.computing <= 0) return 0;
    add(rows, &count, &e, "gather", "all keys to all ranks, then computing", e.computing + time_of_all(&e));
    add(rows, &count, &e, "gather by key head", "keys of a head while the one before is computed", by_head(&e));
    if (s->heads_q % ranks == 0)
        add(rows, &count, &e, "heads", "all tokens of some heads to each rank", e.computing + exchange_of_heads(&e, ranks));
    double best = INFINITY;
    for (int split = 2; split < ranks && split <= s->heads_q; split++)
        if (s->heads_q % split == 0 && ranks % split == 0) best = fmin(best, heads_by_ring(&e, split));
    if (best < INFINITY) add(rows, &count, &e, "heads x ring", "heads in groups of ranks, a ring of groups", best);
    return count;
}
