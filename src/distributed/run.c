/* SPDX-License-Identifier: MIT
 * run.c - see run.h. */
#include "run.h"

#include "../common/slots.h"
#include "exchange.h"
#include "gather.h"
#include "halving.h"
#include "rows.h"
#include "sums.h"

/* ---- the end of a row, and of a column ---- */

static void run_cell(attn_running *r, const attn_cell *cell)
{
    const attn_cells *c = &r->plan->cells;
    if (cell->j >= 0 && !c->idle) r->needs.cells++;
    if (!r->mine || r->status != ATTN_OK) return;
    if (r->failed == ATTN_OK) r->failed = attn_cell_run(c, r->mine, cell, r->workspace, r->error);
    for (int kind = 0; kind < ATTN_NODE_KINDS && r->failed != ATTN_OK; kind++)
        if (cell->node[kind]) memset(cell->node[kind], 0, c->node[kind]);
    attn_steps_progress(r);
}

/* A cell without keys is the last one of a row, the sink, or all there is of a row that sees no part.  *row and *shared: slots with
 * what the row has got, -1: nothing of that kind. */
static void add_last_cell(attn_running *r, int64_t i, int64_t *row, int64_t *shared)
{
    const attn_cells *c = &r->plan->cells;
    const int is_forward = c->problem.op == ATTN_FORWARD && !c->of_weights;
    if (!c->has_sink && !(is_forward && attn_row_cells(&c->grid, i) == 0)) return;
    const int64_t slots[] = {attn_sum_take(r, ATTN_NODE_ROW), -1, attn_sum_take(r, ATTN_NODE_SHARED)};
    attn_cell cell = {.i = i, .j = -1, .head = r->head};
    for (int kind = 0; kind < ATTN_NODE_KINDS; kind++) cell.node[kind] = attn_sum_memory(r, (attn_node_kind)kind, slots[kind]);
    if (!r->enough) return;
    run_cell(r, &cell);
    if (r->mine && *row >= 0 && is_forward)
        attn_node_add(c, ATTN_NODE_ROW, attn_part_size(&c->grid.q, i), attn_sum_memory(r, ATTN_NODE_ROW, *row),
                      cell.node[ATTN_NODE_ROW]);
    if (r->mine && *shared >= 0)
        attn_node_add(c, ATTN_NODE_SHARED, 0, attn_sum_memory(r, ATTN_NODE_SHARED, *shared), cell.node[ATTN_NODE_SHARED]);
    if (*row >= 0) attn_sum_give(r, ATTN_NODE_ROW, slots[ATTN_NODE_ROW]);
    else *row = slots[ATTN_NODE_ROW];
    if (*shared >= 0) attn_sum_give(r, ATTN_NODE_SHARED, slots[ATTN_NODE_SHARED]);
    else *shared = slots[ATTN_NODE_SHARED];
}

static void store_row(attn_running *r, int64_t i, int64_t row)
{
    const attn_cells *c = &r->plan->cells;
    char *const node = attn_sum_memory(r, ATTN_NODE_ROW, row);
    const int64_t tokens = attn_part_size(&c->grid.q, i);
    if (r->mine && r->status == ATTN_OK) {
        attn_rows_finish(c, tokens, node);
        attn_node_store(c, ATTN_NODE_ROW, r->mine, c->grid.q.local[i], tokens, node);
    }
    attn_sum_give(r, ATTN_NODE_ROW, row);
}

/* Of a part of queries whose cells are all on this rank. */
static void end_row(attn_running *r, int64_t i, int64_t row, int64_t shared)
{
    add_last_cell(r, i, &row, &shared);
    if (!r->enough) return;
    store_row(r, i, row);
    attn_sum_insert(r, &(attn_sum){ATTN_SUM_SHARED, 0, &r->total}, 0, i, shared);
}

/* A cell of row n is done. */
static void count_down(attn_running *r, int64_t n)
{
    const int64_t i = r->plan->own.q[n];
    if (r->plan->cells.keys_stay || --r->left[n] > 0) return;
    const int has_total = r->plan->cells.any_order; /* to which each cell has added */
    const int64_t row = attn_sum_complete(r, &(attn_sum){ATTN_SUM_ROW, i, &r->rows[n]}),
                  shared = has_total ? -1 : attn_sum_complete(r, &(attn_sum){ATTN_SUM_ROW_SHARED, i, &r->shared[n]});
    if (!r->lost) end_row(r, i, row, shared);
}

/* Rows whose cells are on several ranks: all get all of their results. */
static void end_divided_rows(attn_running *r)
{
    for (int64_t n = 0; n < r->plan->own.count_q && r->enough && !r->lost && r->status == ATTN_OK; n++) {
        const int64_t i = r->plan->own.q[n];
        int64_t shared = -1;
        if (attn_row_cells(&r->plan->cells.grid, i) == 0) continue;
        int64_t row = attn_halving_run(r, i, &r->rows[n]);
        if (row >= 0) add_last_cell(r, i, &row, &shared);
        if (r->enough && r->status == ATTN_OK) store_row(r, i, row);
    }
}

/* ---- the cells of a step ---- */

static void visit_cell(attn_running *r, int64_t row, int64_t column)
{
    const attn_distributed_plan *p = r->plan;
    const int64_t i = p->own.q[row], j = r->from[column];
    if (!r->enough || r->status != ATTN_OK || !attn_row_exists(&p->cells.grid, i, j, j + 1)) return;
    int64_t slots[ATTN_NODE_KINDS];
    attn_cell cell = {.i = i, .j = j, .head = r->head, .message = attn_steps_message(r, column)};
    for (int kind = 0; kind < ATTN_NODE_KINDS; kind++) {
        slots[kind] = attn_sum_take(r, (attn_node_kind)kind);
        cell.node[kind] = attn_sum_memory(r, (attn_node_kind)kind, slots[kind]);
    }
    if (!r->enough) return;
    run_cell(r, &cell);
    if (r->status != ATTN_OK) return;
    const attn_sum of_shared = {ATTN_SUM_ROW_SHARED, i, &r->shared[row]}, total = {ATTN_SUM_SHARED, 0, &r->total},
                   of_row = {ATTN_SUM_ROW, i, &r->rows[row]}, of_column = {ATTN_SUM_COLUMN, j, attn_steps_column(r, column)};
    const int own = r->from_at[column] < 0;
    attn_sum_insert(r, p->cells.any_order ? &total : &of_shared, 0, j, slots[ATTN_NODE_SHARED]);
    attn_sum_insert(r, &of_column, 0, i, slots[ATTN_NODE_COLUMN]);
    attn_sum_insert(r, &of_row, 0, j, slots[ATTN_NODE_ROW]);
    count_down(r, row);
    if (own && p->cells.any_order) r->left_kv[attn_own_number(p, j)]--;
    if (own && r->pool[ATTN_NODE_COLUMN].bytes) attn_sum_end_column(r, attn_own_number(p, j));
}

/* 1 if some of these may have a cell: the columns of the step are not all that lie between them. */
static int may_have_cells(const attn_running *r, attn_range rows, attn_range columns)
{
    const int64_t first = r->from[columns.first], end = r->from[columns.end - 1] + 1;
    for (int64_t n = rows.first; n < rows.end; n++)
        if (attn_row_exists(&r->plan->cells.grid, r->plan->own.q[n], first, end)) return 1;
    return 0;
}

/* In quarters of quarters: sums over rows and over columns are then complete soon, and few wait. */
static void visit(attn_running *r, attn_range rows, attn_range columns)
{
    const int64_t height = rows.end - rows.first, width = columns.end - columns.first;
    if (height <= 0 || width <= 0 || !r->enough || !may_have_cells(r, rows, columns)) return;
    if (height == 1 && width == 1) {
        visit_cell(r, rows.first, columns.first);
        return;
    }
    const int64_t middle_q = height > 1 ? rows.first + height / 2 : rows.end,
                  middle_kv = width > 1 ? columns.first + width / 2 : columns.end;
    const attn_range upper = {rows.first, middle_q}, lower = {middle_q, rows.end}, left = {columns.first, middle_kv},
                     right = {middle_kv, columns.end};
    visit(r, upper, left), visit(r, upper, right);
    visit(r, lower, left), visit(r, lower, right);
}

/* Or row after row, of which then one is begun and not yet complete. */
static void visit_rows(attn_running *r, attn_range rows, attn_range columns)
{
    if (!r->plan->cells.any_order) visit(r, rows, columns);
    for (int64_t n = rows.first; r->plan->cells.any_order && n < rows.end; n++) visit(r, (attn_range){n, n + 1}, columns);
}

/* ---- the run ---- */

/* Divides the workspace.  Returns its size, but for alignment. */
static size_t carve(attn_running *r, char *base, int counts)
{
    const attn_distributed_plan *p = r->plan;
    const attn_run_needs *needs = &p->needs;
    const size_t listed = (size_t)(p->gathers ? p->cells.grid.kv.count : p->most_kv);
    size_t used = 0;
    for (int kind = 0; kind < ATTN_NODE_KINDS; kind++) {
        attn_tree_pool *pool = &r->pool[kind];
        *pool = (attn_tree_pool){.capacity = needs->slots[kind], .free = -1, .bytes = p->cells.node[kind]};
        pool->slots = attn_take(base, &used, (size_t)needs->slots[kind] * sizeof *pool->slots);
        if (!counts) pool->memory = attn_take(base, &used, (size_t)needs->slots[kind] * pool->bytes);
    }
    r->rows = attn_take(base, &used, (size_t)p->own.count_q * sizeof *r->rows);
    r->shared = attn_take(base, &used, (size_t)p->own.count_q * sizeof *r->shared);
    r->left = attn_take(base, &used, (size_t)p->own.count_q * sizeof *r->left);
    r->columns = attn_take(base, &used, (size_t)p->own.count_kv * sizeof *r->columns);
    if (p->cells.any_order) r->left_kv = attn_take(base, &used, (size_t)p->own.count_kv * sizeof *r->left_kv);
    r->away = attn_take(base, &used, listed * sizeof *r->away);
    r->from = attn_take(base, &used, listed * sizeof *r->from);
    r->from_at = attn_take(base, &used, listed * sizeof *r->from_at);
    r->seen_here = attn_take(base, &used, (size_t)(p->cells.grid.kv.count + 1) * sizeof *r->seen_here);
    r->seen_there = attn_take(base, &used, (size_t)(p->cells.grid.kv.count + 1) * sizeof *r->seen_there);
    if (counts) return used;
    r->link.requests = attn_take(base, &used, (size_t)needs->requests * sizeof *r->link.requests);
    r->home = attn_take(base, &used, needs->home);
    for (int n = 0; n < 2; n++) r->arrived[n] = attn_take(base, &used, needs->arriving);
    r->workspace = attn_take(base, &used, p->cells.workspace);
    return used;
}

size_t attn_run_bytes(const attn_distributed_plan *plan, int counts)
{
    attn_running r = {.plan = plan};
    return carve(&r, NULL, counts) + ATTN_ALIGNING;
}

attn_status attn_run_fits(const attn_distributed_plan *plan, attn_error *error)
{
    const attn_run_needs *n = &plan->needs;
    double bytes = (double)plan->cells.workspace + (double)n->home + 2 * (double)n->arriving;
    for (int kind = 0; kind < ATTN_NODE_KINDS; kind++) bytes += (double)n->slots[kind] * (double)plan->cells.node[kind];
    CHECK(bytes < 0x1p62, ATTN_ERR_SHAPE, "distributed: the workspace of a plan is too large: its bytes overflow 64 bits");
    return ATTN_OK;
}

static void clear(attn_tree *trees, int64_t count)
{
    for (int64_t n = 0; n < count; n++) trees[n].waiting = -1;
}

/* No sum has anything yet. */
static void begin_pass(attn_running *r)
{
    const attn_distributed_plan *p = r->plan;
    clear(r->rows, p->own.count_q), clear(r->shared, p->own.count_q), clear(r->columns, p->own.count_kv), clear(&r->total, 1);
    for (int64_t n = 0; n < p->own.count_q; n++) r->left[n] = attn_row_cells(&p->cells.grid, p->own.q[n]);
    for (int64_t n = 0; n < p->own.count_kv && p->cells.any_order; n++)
        r->left_kv[n] = attn_column_cells(&p->cells.grid, p->own.kv[n]);
    if (r->mine) attn_cells_clear(&p->cells, r->mine);
}

/* The cells of all own queries with the keys of r->from. */
static void visit_listed(attn_running *r)
{
    clear(r->away, r->from_count);
    visit_rows(r, (attn_range){0, r->plan->own.count_q}, (attn_range){0, r->from_count});
}

/* What queries and keys without cells get, and what all ranks share. */
static void end_pass(attn_running *r)
{
    const attn_distributed_plan *p = r->plan;
    for (int64_t n = 0; n < p->own.count_q && r->enough && r->status == ATTN_OK; n++)
        if (attn_row_cells(&p->cells.grid, p->own.q[n]) == 0) end_row(r, p->own.q[n], -1, -1);
    for (int64_t n = 0; n < p->own.count_kv && r->mine && r->status == ATTN_OK; n++) {
        const int64_t j = p->own.kv[n];
        if (!attn_column_exists(&p->cells.grid, j, 0, p->cells.grid.q.count))
            attn_node_store(&p->cells, ATTN_NODE_COLUMN, r->mine, p->cells.grid.kv.local[j], attn_part_size(&p->cells.grid.kv, j),
                            NULL);
    }
    if (r->enough && r->status == ATTN_OK) attn_exchange_shared(r);
}

/* The keys of one rank after another. */
static void run_steps(attn_running *r)
{
    const attn_distributed_plan *p = r->plan;
    const int steps = p->cells.keys_stay || p->cells.idle ? 1 : p->ranks;
    begin_pass(r);
    if (steps > 1) attn_steps_begin(r);
    for (int step = 0; step < steps && r->status == ATTN_OK && r->enough; step++) {
        if (step + 1 < steps) attn_steps_post(r, step + 1);
        attn_steps_list(r, step);
        visit_listed(r);
        attn_steps_wait(r);
        attn_exchange_columns(r, step);
    }
    if (p->cells.keys_stay) end_divided_rows(r);
    end_pass(r);
}

/* All keys of a head, while those of the next one come. */
static void run_head(attn_running *r)
{
    begin_pass(r);
    visit_listed(r);
    attn_steps_wait(r);
    if (!r->enough || r->status != ATTN_OK) return;
    attn_exchange_all_columns(r);
    end_pass(r);
}

static void run(attn_running *r, char *workspace) /* (of any alignment) */
{
    r->link = (attn_link){.transport = &r->plan->transport, .error = r->error};
    (void)carve(r, attn_align_64_up(workspace), !r->mine);
    r->enough = 1;
    r->coming = r->going = (attn_tree_queue){-1, -1};
    if (r->plan->gathers) attn_gather_rounds(r, run_head);
    else run_steps(r);
}

attn_status attn_run(const attn_distributed_plan *plan, const attn_tensors *mine, void *workspace, attn_error *error)
{
    attn_running r = {.plan = plan->head ? plan->head : plan, .mine = mine, .error = error};
    run(&r, workspace);
    return r.status != ATTN_OK ? r.status : r.failed;
}

attn_status attn_run_count(const attn_distributed_plan *plan, void *workspace, attn_run_needs *needs, int *enough,
                           attn_error *error)
{
    attn_running r = {.plan = plan};
    run(&r, workspace);
    *needs = r.needs;
    needs->requests = r.link.requests_most;
    needs->messages = r.link.messages;
    needs->bytes = r.link.bytes;
    *enough = r.enough;
    CHECK(!r.lost, ATTN_ERR_UNSUPPORTED, "distributed: a sum over parts is not complete where another rank waits for it");
    return ATTN_OK;
}
