/* SPDX-License-Identifier: MIT
 * ways.c - ways of exchange that the library does not have: times as if work were even on all ranks.  They are here to be compared
 * with those that it has. */
#include <math.h>

#include "ranks.h"

/* What the formulas are about; times in seconds. */
typedef struct even {
    const attn_problem *p;
    const attn_split_machine *machine;
    double ranks, computing; /* of a rank */
    double keys, grads;      /* bytes of a rank: of keys and values, with their tangents, and of their gradients */
} even;

static double log2_up(double x) { return ceil(log2(x > 2 ? x : 2)); }

static double time_of_all(const even *e)
{
    return e->machine->seconds_per_message * log2_up(e->ranks) +
           (e->ranks - 1) * (e->keys + e->grads) / e->machine->bytes_per_second;
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
                 keys = share * (double)s->heads_kv * (double)s->len_kv * (double)(s->dim_qk + s->dim_v);
    const int has_tangents = p->op == ATTN_JVP || p->op == ATTN_DOUBLE_BACKWARD,
              has_gradients = p->op == ATTN_BACKWARD || p->op == ATTN_DOUBLE_BACKWARD;
    const even e = {.p = p,
                    .machine = machine,
                    .ranks = ranks,
                    .computing = flops / ranks / machine->flops_per_second,
                    .keys = keys * size * (has_tangents ? 2 : 1),
                    .grads = has_gradients ? keys * fmax(size, 4) : 0};
    int count = 0;
    if (ranks < 2 || e.computing <= 0) return 0;
    add(rows, &count, &e, "gather, whole", "all keys to all ranks, then computing", e.computing + time_of_all(&e));
    return count;
}
