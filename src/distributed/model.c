/* SPDX-License-Identifier: MIT
 * model.c - see predict.h: the time of ranks that exchange keys while they compute, from what model_count.c counts. */
#include <math.h>

#include "../common/options.h"
#include "../common/slots.h"
#include "gather.h"
#include "model_heads.h"
#include "predict.h"
#include "runs.h"

/* A model, and what ranks are beyond its groups. */
typedef struct outlook {
    attn_model model;
    attn_cells whole; /* with all heads, and the grid of all ranks */
    int ranks, members;
    attn_model_rank *each; /* of all ranks */
    void *memory[4];       /* released at the end */
    int blocks;
    int runs; /* of an execution */
} outlook;

/* ---- time ---- */

static double least_one(double x) { return x > 1 ? x : 1; }

static int busiest(const double *of_rank, int ranks)
{
    int most = 0;
    for (int r = 1; r < ranks; r++)
        if (of_rank[r] > of_rank[most]) most = r;
    return most;
}

static double sum(const double *x, int64_t count)
{
    double all = 0;
    for (int64_t n = 0; n < count; n++) all += x[n];
    return all;
}

/* Operations of a pair of a query and a key, of all heads of the batch, in one run: those of problem_flops (cli/measure/work.c),
 * which counts both runs of double backward. */
static double flops_of_pair(const attn_problem *p)
{
    const double keys = (double)(p->score.dim_k ? p->score.dim_k : p->shape.dim_qk), values = (double)p->shape.dim_v,
                 products = p->op == ATTN_BACKWARD          ? 2.5 * (keys + values)
                            : p->op == ATTN_JVP             ? 3 * keys + 2 * values
                            : p->op == ATTN_DOUBLE_BACKWARD ? 4 * keys + 3 * values
                                                            : keys + values;
    return 2 * products * (double)p->shape.heads_q;
}

/* Nodes of one kind go in messages that nothing hides: `rounds` after one another. */
static double seconds_of_nodes(const attn_model *m, attn_node_kind kind, const attn_split_machine *machine, double rounds)
{
    double most = 0;
    for (int r = 0; r < m->ranks; r++) most = fmax(most, m->nodes_sent[ATTN_NODE_KINDS * (int64_t)r + (int64_t)kind]);
    return most > 0 && m->cells.node[kind]
               ? rounds * machine->seconds_per_message + most * (double)m->cells.node[kind] / machine->bytes_per_second
               : 0;
}

/* What rank 0 gathers, one rank after another, and what then goes to all along a tree. */
static double seconds_of_shared(const attn_model *m, const attn_split_machine *machine)
{
    const double message = machine->seconds_per_message, bytes = (double)m->cells.node[ATTN_NODE_SHARED];
    double gathered = 0;
    for (int r = 1; r < m->ranks; r++) gathered += m->nodes_sent[ATTN_NODE_KINDS * (int64_t)r + ATTN_NODE_SHARED];
    if (m->ranks < 2 || bytes == 0) return 0;
    const double depth = ceil(log2((double)m->ranks));
    for (int64_t r = 1; r < m->ranks; r++) /* which hands on what it gets: not part of the gathering */
        for (int64_t bit = 1; bit < m->ranks && !(r & bit); bit *= 2)
            if (r + bit < m->ranks) gathered--;
    return (m->ranks - 1) * message + fmax(gathered, 0) * bytes / machine->bytes_per_second +
           depth * (message + bytes / machine->bytes_per_second);
}

/* Rounds of halving.h, of the rank that sends the most. */
static double seconds_of_rows(const attn_model *m, const attn_split_machine *machine)
{
    double messages = m->row_rounds, bytes = 0;
    for (int r = 0; r < m->ranks; r++) {
        messages = fmax(messages, m->nodes_sent[ATTN_NODE_KINDS * (int64_t)r + ATTN_NODE_ROW]);
        bytes = fmax(bytes, m->row_bytes[r]);
    }
    return messages * machine->seconds_per_message + bytes / machine->bytes_per_second;
}

/* What goes between the owners of tokens and those of heads, of the rank that sends the most. */
static double seconds_of_swaps(const outlook *o, const attn_split_machine *machine)
{
    double messages = 0, bytes = 0;
    for (int r = 0; r < o->ranks; r++) messages = fmax(messages, o->each[r].messages), bytes = fmax(bytes, o->each[r].bytes);
    return messages * machine->seconds_per_message + bytes / machine->bytes_per_second;
}

/* The waiting of a run that takes one head after another, whose work is `work`; comes: 1 if keys come from other ranks. */
static double seconds_of_rounds(const attn_model *m, const attn_split_machine *machine, double work, int comes)
{
    const double rounds = (double)m->rounds, got = m->bytes_got[busiest(m->bytes_got, m->ranks)],
                 message = comes ? machine->seconds_per_message + got / machine->bytes_per_second : 0,
                 sums = seconds_of_nodes(m, ATTN_NODE_COLUMN, machine, 1) + seconds_of_shared(m, machine);
    return rounds > 0 ? message + (rounds - 1) * fmax(message - work / rounds, 0) + rounds * sums : 0;
}

/* Adds a run, of the ranks that have the most heads, which the model is of. */
static void add_run(const outlook *o, attn_model *m, const attn_split_machine *machine, attn_split_prediction *d)
{
    const attn_cells *c = &m->cells;
    attn_problem undivided = c->problem;
    undivided.shape.heads_q = o->whole.problem.shape.heads_q, undivided.shape.heads_kv = o->whole.problem.shape.heads_kv;
    const double times = (double)m->rounds, flops = flops_of_pair(&c->problem) * times, of_all = flops_of_pair(&undivided),
                 all = sum(m->row_pairs, c->grid.q.count) * of_all, mean = sum(m->pairs, m->ranks) * of_all / o->ranks;
    const int most = busiest(m->pairs, m->ranks);
    const double computing = m->pairs[most] * flops / machine->flops_per_second,
                 combining = (double)m->cells_of[most] * times * (double)(c->node[ATTN_NODE_ROW] + c->node[ATTN_NODE_COLUMN]) /
                             (double)attn_dtype_size(c->bounds.compute) * machine->seconds_per_sum,
                 work = computing + combining;
    int64_t own, sources;
    d->flops += all;
    d->computing += computing, d->combining += combining;
    d->imbalance = mean > 0 ? m->pairs[most] * flops / mean : 1;
    attn_model_look(m, most, &own, &sources);
    if (m->bundles) {
        d->steps = sources;
        d->waiting += seconds_of_rounds(m, machine, work, sources > 0);
    } else if (c->keys_stay) {
        d->waiting += seconds_of_rows(m, machine);
    } else {
        const double steps = least_one((double)sources);
        const double got = m->bytes_got[busiest(m->bytes_got, m->ranks)],
                     message = sources > 0 ? machine->seconds_per_message + got / steps / machine->bytes_per_second : 0,
                     share = m->cells_of[most] > 0 ? (double)own / (double)m->cells_of[most] : 1, here = work * share,
                     step = (work - here) / steps;
        d->steps = sources;
        d->waiting += fmax(message - here, 0) + (steps - 1) * fmax(message - step, 0) +
                      seconds_of_nodes(m, ATTN_NODE_COLUMN, machine, (double)sources) + seconds_of_shared(m, machine);
    }
}

static int64_t whole(double x) { return x < 0x1p62 ? (int64_t)(x + 0.5) : INT64_C(1) << 62; }

/* What the ranks of a class send. */
typedef struct sent {
    double messages, bytes, messages_total, bytes_total;
} sent;

static void add_sent(const outlook *o, const attn_model_class *of, sent *s)
{
    for (int r = 0; r < o->ranks; r++) {
        const int member = r % o->members, group = r / o->members;
        if (member < of->first || member >= of->end) continue;
        const double messages = o->model.messages_sent[group] + o->each[r].messages,
                     bytes = o->model.bytes_sent[group] + o->each[r].bytes;
        s->messages = fmax(s->messages, messages), s->bytes = fmax(s->bytes, bytes);
        s->messages_total += messages, s->bytes_total += bytes;
    }
}

/* Keys of a head: the rank's own, and twice those that come. */
static double bytes_of_gathered(const attn_model *m)
{
    const double part = (double)attn_message_bytes(&m->cells, attn_part_most(&m->cells.grid.kv));
    double most = 0;
    for (int r = 0; r < m->ranks && m->ranks > 1; r++)
        most = fmax(most, (double)(m->kv.first[r + 1] - m->kv.first[r]) * part + 2 * m->bytes_got[r]);
    return most;
}

/* Memory for the keys of a run: the rank's own and those of two steps, and those that came from its group. */
static double bytes_of_keys(const outlook *o)
{
    const attn_model *m = &o->model;
    const double copies = (m->ranks == 1 || m->cells.keys_stay ? 0 : 3) + (o->members > 1);
    int64_t most = 0;
    if (m->bundles) return bytes_of_gathered(m);
    for (int r = 0; r < m->ranks; r++) most = attn_max(most, m->kv.first[r + 1] - m->kv.first[r]);
    return copies * (double)most * (double)attn_message_bytes(&m->cells, attn_part_most(&m->cells.grid.kv));
}

/* Takes up the heads of a class, in a run. */
static attn_status take_run(outlook *o, const attn_model_class *of, int run, attn_error *error)
{
    attn_cells *c = &o->model.cells;
    const attn_grid grid = c->grid;
    *c = o->whole;
    c->grid = grid;
    if (o->model.bundles) attn_gather_take(c);
    if (o->members > 1) attn_slice_take(c, &of->slice, 0, 0); /* (of rows of ranks nothing is asked) */
    if (o->runs > 1) attn_runs_take(c, (attn_runs_of)run);
    return attn_cells_lay_out(c, error);
}

static attn_status fill(outlook *o, const attn_split_machine *machine, attn_split_prediction *d, attn_error *error)
{
    attn_model *m = &o->model;
    attn_model_class classes[2];
    sent s = {.messages = 0};
    m->rounds = m->bundles ? o->whole.problem.shape.heads_kv : 1;
    const int count = attn_model_classes(&o->whole.problem.shape, o->members, classes);
    o->runs = attn_runs_are_two(&o->whole) ? ATTN_RUNS : 1;
    for (int n = 0; n < count; n++) {
        for (int run = 0; run < o->runs; run++) {
            TRY(take_run(o, &classes[n], run, error));
            attn_model_count(m, run);
            if (n > 0) continue;
            add_run(o, m, machine, d);
            d->key_bytes = attn_max(d->key_bytes, whole(bytes_of_keys(o)));
        }
        add_sent(o, &classes[n], &s);
    }
    d->waiting += seconds_of_swaps(o, machine);
    d->seconds = d->computing + d->combining + d->waiting;
    d->efficiency = d->seconds > 0 ? d->flops / machine->flops_per_second / o->ranks / d->seconds : 1;
    d->way = m->way;
    d->ranks = o->ranks;
    d->ranks_heads = o->members;
    d->parts_q = m->cells.grid.q.count, d->parts_kv = m->cells.grid.kv.count;
    d->sampled = m->sampled;
    d->messages = whole(s.messages), d->messages_total = whole(s.messages_total);
    d->bytes = whole(s.bytes), d->bytes_total = whole(s.bytes_total);
    const int64_t busy = o->members > 1 ? attn_slices_busy(&o->whole.problem.shape, o->members) : m->rounds;
    for (int r = 0; r < m->ranks && busy > 0; r++) {
        d->cells_most = attn_max(d->cells_most, attn_times(m->cells_of[r], m->rounds));
        d->cells_total += attn_times(m->cells_of[r], busy);
    }
    return ATTN_OK;
}

/* ---- a way ---- */

static attn_status reserve(outlook *o, size_t bytes, const char *what, void **memory, attn_error *error)
{
    *memory = o->memory[o->blocks++] = options_acquire(&o->whole.options, bytes);
    CHECK(*memory, ATTN_ERR_MEMORY, "cannot allocate the %zu bytes of %s", bytes, what);
    return ATTN_OK;
}

static attn_status predict(outlook *o, attn_split_prediction *d, const attn_split_machine *machine, attn_error *error)
{
    const attn_cells *c = &o->whole;
    attn_model *m = &o->model;
    void *memory;
    TRY(reserve(o, (size_t)o->ranks * sizeof *o->each, "ranks", &memory, error));
    o->each = memory;
    attn_model_swaps(c, o->ranks, o->members, o->each);
    TRY(reserve(o, attn_grid_join_bytes(&c->grid, o->ranks), "the parts of groups", &memory, error));
    attn_grid_join(&m->cells.grid, memory, &c->grid, o->ranks, o->members);
    m->ranks = o->ranks / o->members;
    m->agreeing = o->ranks;
    const attn_range parts = {c->grid.q.count, c->grid.kv.count};
    TRY(reserve(o, attn_model_bytes(parts, m->ranks), "what ranks do", &memory, error));
    attn_model_carve(m, memory, parts);
    if (m->way == ATTN_WAY_GATHER && attn_grid_has_cells(&c->grid)) {
        TRY(reserve(o, attn_model_bundles_bytes(parts, m->ranks), "messages", &memory, error));
        m->bundles = memory;
    }
    TRY(fill(o, machine, d, error));
    CHECK(isfinite(d->seconds), ATTN_ERR_ARGUMENT,
          "machine is too slow: %g operations and %g bytes a second, %g seconds a message; its seconds overflow",
          machine->flops_per_second, machine->bytes_per_second, machine->seconds_per_message);
    return ATTN_OK;
}

attn_status attn_predict_way(attn_split_prediction *d, const attn_cells *cells, attn_way way, int ranks, int members,
                             const attn_split_machine *machine, attn_error *error)
{
    outlook o = {.ranks = ranks, .members = members, .whole = *cells, .model.way = way};
    *d = (attn_split_prediction){.struct_size = sizeof *d};
    const attn_status status = predict(&o, d, machine, error);
    while (o.blocks > 0) options_release(&o.whole.options, o.memory[--o.blocks]);
    return status;
}
