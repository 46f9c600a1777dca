/* SPDX-License-Identifier: MIT
 * model.c - attn_split_predict: the time of ranks that exchange keys while they compute, from what model_count.c counts. */
#include <math.h>

#include "../common/options.h"
#include "../common/slots.h"
#include "index.h"
#include "model_count.h"
#include "origin.h"
#include "split.h"

/* ---- reading ---- */

static attn_status read_machine(attn_split_machine *m, const attn_split_machine *caller, attn_error *error)
{
    CHECK(caller, ATTN_ERR_ARGUMENT, "machine is NULL");
    TRY(struct_read(m, sizeof *m, sizeof *m, caller, "attn_split_machine", error));
    CHECK(isfinite(m->flops_per_second) && m->flops_per_second > 0, ATTN_ERR_ARGUMENT,
          "machine.flops_per_second is %g; it must be above 0", m->flops_per_second);
    CHECK(isfinite(m->bytes_per_second) && m->bytes_per_second > 0, ATTN_ERR_ARGUMENT,
          "machine.bytes_per_second is %g; it must be above 0", m->bytes_per_second);
    CHECK(isfinite(m->seconds_per_message) && m->seconds_per_message >= 0, ATTN_ERR_ARGUMENT,
          "machine.seconds_per_message is %g; it must be at least 0", m->seconds_per_message);
    CHECK(isfinite(m->seconds_per_sum) && m->seconds_per_sum >= 0, ATTN_ERR_ARGUMENT,
          "machine.seconds_per_sum is %g; it must be at least 0", m->seconds_per_sum);
    for (size_t n = 0; n < sizeof m->reserved / sizeof *m->reserved; n++)
        CHECK(m->reserved[n] == 0, ATTN_ERR_ARGUMENT, "machine.reserved[%zu] is %" PRId64 "; it must be 0", n, m->reserved[n]);
    return ATTN_OK;
}

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

/* Operations of a pair of a query and a key, of all heads of the batch: those of problem_flops (cli/measure/work.c). */
static double flops_of_pair(const attn_problem *p)
{
    const double keys = (double)(p->score.dim_k ? p->score.dim_k : p->shape.dim_qk), values = (double)p->shape.dim_v,
                 products = p->op == ATTN_BACKWARD ? 2.5 * (keys + values)
                            : p->op == ATTN_JVP    ? 3 * keys + 2 * values
                                                   : keys + values;
    return 2 * products * (double)p->shape.heads_q;
}

/* Nodes of one kind go in messages that nothing hides: `rounds` after one another. */
static double seconds_of_nodes(const attn_model *m, attn_node_kind kind, const attn_split_machine *machine, double rounds)
{
    double most = 0;
    for (int r = 0; r < m->ranks; r++) most = fmax(most, m->nodes_sent[ATTN_NODE_KINDS * (int64_t)r + (int64_t)kind]);
    return most > 0 ? rounds * machine->seconds_per_message + most * (double)m->cells.node[kind] / machine->bytes_per_second : 0;
}

/* What rank 0 gathers, one rank after another, and what then goes to all along a tree; `times`, for each part of queries. */
static double seconds_through_first(const attn_model *m, attn_node_kind kind, const attn_split_machine *machine, double times)
{
    const double message = machine->seconds_per_message, bytes = (double)m->cells.node[kind];
    double gathered = 0;
    for (int r = 1; r < m->ranks; r++) gathered += m->nodes_sent[ATTN_NODE_KINDS * (int64_t)r + (int64_t)kind];
    if (m->ranks < 2 || !m->cells.node[kind]) return 0;
    const double depth = ceil(log2((double)m->ranks));
    for (int64_t r = 1; r < m->ranks; r++) /* which hands on what it gets: not part of the gathering */
        for (int64_t bit = 1; bit < m->ranks && !(r & bit); bit *= 2)
            if (r + bit < m->ranks) gathered -= times;
    return times * (m->ranks - 1) * message + fmax(gathered, 0) * bytes / machine->bytes_per_second +
           times * depth * (message + bytes / machine->bytes_per_second);
}

static void predict_time(attn_model *m, const attn_split_machine *machine, attn_split_prediction *d)
{
    const attn_cells *c = &m->cells;
    const double flops = flops_of_pair(&c->problem), all = sum(m->row_pairs, c->grid.q.count) * flops,
                 mean = sum(m->pairs, m->ranks) / m->ranks;
    const int most = busiest(m->pairs, m->ranks);
    int64_t own, sources;
    d->flops = all;
    d->computing = m->pairs[most] * flops / machine->flops_per_second;
    d->combining = (double)m->cells_of[most] * (double)(c->node[ATTN_NODE_ROW] + c->node[ATTN_NODE_COLUMN]) /
                   (double)attn_dtype_size(c->bounds.compute) * machine->seconds_per_sum;
    d->imbalance = mean > 0 ? m->pairs[most] / mean : 1;
    attn_model_look(m, most, &own, &sources);
    const double work = d->computing + d->combining;
    if (c->keys_stay) {
        double rows = 0;
        for (int64_t i = 0; i < c->grid.q.count; i++) rows += attn_row_cells(&c->grid, i) > 0;
        d->waiting = seconds_through_first(m, ATTN_NODE_ROW, machine, rows);
    } else {
        const double steps = least_one((double)sources);
        const double got = m->bytes_got[busiest(m->bytes_got, m->ranks)],
                     message = sources > 0 ? machine->seconds_per_message + got / steps / machine->bytes_per_second : 0,
                     share = m->cells_of[most] > 0 ? (double)own / (double)m->cells_of[most] : 1, here = work * share,
                     step = (work - here) / steps;
        d->steps = sources;
        d->waiting = fmax(message - here, 0) + (steps - 1) * fmax(message - step, 0) +
                     seconds_of_nodes(m, ATTN_NODE_COLUMN, machine, (double)sources) +
                     seconds_through_first(m, ATTN_NODE_SHARED, machine, 1);
    }
    d->seconds = work + d->waiting;
    d->efficiency = d->seconds > 0 ? all / machine->flops_per_second / m->ranks / d->seconds : 1;
}

static int64_t whole(double x) { return x < 0x1p62 ? (int64_t)(x + 0.5) : INT64_C(1) << 62; }

static void fill(attn_model *m, const attn_split_machine *machine, attn_split_prediction *d)
{
    const attn_grid *g = &m->cells.grid;
    const double *messages = m->messages_sent, *bytes = m->bytes_sent;
    predict_time(m, machine, d);
    d->way = m->way;
    d->ranks = m->ranks;
    d->parts_q = g->q.count, d->parts_kv = g->kv.count;
    d->sampled = m->sampled;
    d->messages = whole(messages[busiest(messages, m->ranks)]);
    d->bytes = whole(bytes[busiest(bytes, m->ranks)]);
    d->messages_total = whole(sum(messages, m->ranks));
    d->bytes_total = whole(sum(bytes, m->ranks));
    int64_t most_kv = 0;
    for (int r = 0; r < m->ranks; r++) {
        d->cells_most = attn_max(d->cells_most, m->cells_of[r]);
        d->cells_total += m->cells_of[r];
        most_kv = attn_max(most_kv, m->kv.first[r + 1] - m->kv.first[r]);
    }
    const double copies = m->ranks == 1 || m->cells.keys_stay ? 0 : 3; /* its own, and those of two steps */
    d->key_bytes = whole(copies * (double)most_kv * (double)attn_message_bytes(&m->cells, attn_part_most(&g->kv)));
}

/* ---- public ---- */

static attn_status predict(attn_model *m, const attn_split *caller, attn_split_prediction *d, void **numbers, void **grid,
                           void **counts, const attn_split_machine *machine, attn_error *error)
{
    attn_cells *c = &m->cells;
    const attn_options *o = &c->options;
    attn_split split;
    attn_range tokens;
    TRY(attn_split_read(&split, caller, error));
    CHECK(m->ranks >= 1, ATTN_ERR_ARGUMENT, "ranks is %d; it must be at least 1", m->ranks);
    TRY(attn_bounds_read_call(&c->call, &c->planned, error));
    TRY(attn_bounds_check_call(&c->call, &c->call, c->problem.op, error));
    c->planned.call = &c->call;
    TRY(attn_index_check(&c->problem.shape, error));
    TRY(attn_origin_read(c, error));
    *numbers = options_acquire(o, attn_index_bytes(c->problem.shape.batch));
    CHECK(*numbers, ATTN_ERR_MEMORY, "cannot allocate the %zu bytes of lengths", attn_index_bytes(c->problem.shape.batch));
    TRY(attn_index_begin(&c->index, &c->planned, &c->problem, *numbers, &split, &tokens, error));
    m->way = attn_split_way(&split);
    c->keys_stay = m->way == ATTN_WAY_SPLIT_KEYS;
    TRY(attn_split_check_op(&split, c->problem.op, error));
    const size_t bytes = attn_grid_bytes(tokens, split.part, m->ranks);
    *grid = options_acquire(o, bytes);
    CHECK(*grid, ATTN_ERR_MEMORY, "cannot allocate the %zu bytes of the parts", bytes);
    TRY(attn_grid_fill(&c->grid, *grid, tokens, &c->problem, &c->index, &split, m->ranks, error));
    TRY(attn_bounds_fill(&c->bounds, &c->problem, &c->planned, split.part, tokens.first, tokens.end, NULL, error));
    if (c->index.starts_q) {
        c->documents = c->problem.shape.batch;
        c->problem.shape.batch = 1;
    }
    TRY(attn_cells_lay_out(c, error));
    const attn_range parts = {c->grid.q.count, c->grid.kv.count};
    *counts = options_acquire(o, attn_model_bytes(parts, m->ranks));
    CHECK(*counts, ATTN_ERR_MEMORY, "cannot allocate the %zu bytes of what ranks do", attn_model_bytes(parts, m->ranks));
    attn_model_carve(m, *counts, parts);
    attn_model_count(m);
    fill(m, machine, d);
    CHECK(isfinite(d->seconds), ATTN_ERR_ARGUMENT,
          "machine is too slow: %g operations and %g bytes a second, %g seconds a message; its seconds overflow",
          machine->flops_per_second, machine->bytes_per_second, machine->seconds_per_message);
    return ATTN_OK;
}

attn_status attn_split_predict(const attn_problem *problem, int ranks, const attn_tensors *tensors, const attn_split *split,
                               const attn_split_machine *machine, attn_split_prediction *prediction, attn_error *error)
{
    attn_split_machine of;
    attn_split_prediction d = {.struct_size = sizeof d};
    attn_model m = {.ranks = ranks, .cells.options.struct_size = sizeof m.cells.options};
    void *numbers = NULL, *grid = NULL, *counts = NULL;
    CHECK(problem, ATTN_ERR_ARGUMENT, "problem is NULL");
    CHECK(tensors, ATTN_ERR_ARGUMENT, "tensors is NULL");
    CHECK(prediction, ATTN_ERR_ARGUMENT, "prediction is NULL");
    TRY(struct_read(&m.cells.problem, sizeof m.cells.problem, sizeof m.cells.problem, problem, "attn_problem", error));
    TRY(slots_read(&m.cells.planned, sizeof m.cells.planned, sizeof m.cells.planned, tensors, "attn_tensors", error));
    TRY(read_machine(&of, machine, error));
    const attn_status status = predict(&m, split, &d, &numbers, &grid, &counts, &of, error);
    options_release(&m.cells.options, counts);
    options_release(&m.cells.options, grid);
    options_release(&m.cells.options, numbers);
    if (status != ATTN_OK) return status;
    TRY(struct_write(prediction, &d, sizeof d, "attn_split_prediction", error));
    return succeed(error);
}
