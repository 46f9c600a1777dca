/* SPDX-License-Identifier: MIT
 * run.c - see run.h. */
#include "run.h"

#include "../common/slots.h"
#include "steps.h"

/* ---- which terms exist ---- */

static int row_exists(const void *of, int64_t i, int64_t first, int64_t end) { return attn_row_exists(of, i, first, end); }
static int column_exists(const void *of, int64_t j, int64_t first, int64_t end) { return attn_column_exists(of, j, first, end); }

/* Of the sum over parts of queries. */
static int total_exists(const void *of, int64_t unused, int64_t first, int64_t end)
{
    const attn_cells *c = of;
    (void)unused;
    for (int64_t i = first; i < end && i < c->grid.q.count; i++)
        if (c->has_sink || attn_row_exists(&c->grid, i, 0, c->grid.kv.count)) return 1;
    return 0;
}

/* ---- nodes ---- */

typedef struct adding {
    const attn_cells *cells;
    attn_node_kind kind;
    int64_t tokens;
} adding;

static void add(void *context, char *left, const char *right)
{
    const adding *a = context;
    attn_node_add(a->cells, a->kind, a->tokens, left, right);
}

static int64_t take(attn_running *r, attn_node_kind kind)
{
    attn_tree_pool *pool = &r->pool[kind];
    if (!pool->bytes) return -1; /* there are no such results */
    const int64_t slot = attn_tree_take(pool);
    if (pool->used > r->needs.slots[kind]) r->needs.slots[kind] = pool->used;
    if (slot < 0) r->enough = 0;
    return slot;
}

static void give(attn_running *r, attn_node_kind kind, int64_t slot)
{
    if (slot >= 0) attn_tree_give(&r->pool[kind], slot);
}

static char *memory_of(const attn_running *r, attn_node_kind kind, int64_t slot)
{
    return slot < 0 ? NULL : attn_tree_memory(&r->pool[kind], slot);
}

static void insert(attn_running *r, attn_node_kind kind, attn_tree *tree, int64_t which, int is_total, int level, int64_t number,
                   int64_t slot)
{
    const attn_cells *c = &r->plan->cells;
    const int over_keys = kind == ATTN_NODE_ROW || (kind == ATTN_NODE_SHARED && !is_total);
    adding a = {c, kind, 0};
    if (kind == ATTN_NODE_ROW) a.tokens = attn_part_size(&c->grid.q, which);
    if (kind == ATTN_NODE_COLUMN) a.tokens = attn_part_size(&c->grid.kv, which);
    const attn_tree_kind k = {&r->pool[kind], over_keys ? c->grid.kv.count : c->grid.q.count, add, &a};
    if (slot < 0) return;
    attn_tree_insert(tree, &k,
                     is_total    ? total_exists
                     : over_keys ? row_exists
                                 : column_exists,
                     is_total ? (const void *)c : &c->grid, which, level, number, slot);
}

/* Removes and returns the root, if the tree is complete; -1 otherwise. */
static int64_t root_of(attn_running *r, attn_node_kind kind, attn_tree *tree, int64_t terms)
{
    const int64_t slot = tree->waiting;
    if (slot < 0 || r->pool[kind].slots[slot].level < attn_tree_top(terms)) return -1;
    tree->waiting = r->pool[kind].slots[slot].next;
    return slot;
}

/* ---- the end of a row, and of a column ---- */

static void run_cell(attn_running *r, const attn_cell *cell)
{
    const attn_cells *c = &r->plan->cells;
    if (cell->j >= 0) r->needs.cells++;
    if (!r->mine || r->status != ATTN_OK) return;
    if (r->failed == ATTN_OK) r->failed = attn_cell_run(c, r->mine, cell, r->workspace, r->error);
    for (int kind = 0; kind < ATTN_NODE_KINDS && r->failed != ATTN_OK; kind++)
        if (cell->node[kind]) memset(cell->node[kind], 0, c->node[kind]);
    attn_steps_progress(r);
}

/* Stores the results of a row; -1: there is none of a kind.  A cell without keys is its last one: the sink, or all there is of a
 * row that sees no part. */
static void end_row(attn_running *r, int64_t n, int64_t row, int64_t shared)
{
    const attn_cells *c = &r->plan->cells;
    const int64_t i = r->plan->own.q[n], tokens = attn_part_size(&c->grid.q, i);
    const int is_forward = c->problem.op == ATTN_FORWARD;
    if (c->has_sink || (is_forward && attn_row_cells(&c->grid, i) == 0)) {
        const int64_t slots[] = {take(r, ATTN_NODE_ROW), -1, take(r, ATTN_NODE_SHARED)};
        attn_cell cell = {.i = i, .j = -1};
        for (int kind = 0; kind < ATTN_NODE_KINDS; kind++) cell.node[kind] = memory_of(r, (attn_node_kind)kind, slots[kind]);
        if (!r->enough) return;
        run_cell(r, &cell);
        if (r->mine && row >= 0 && is_forward)
            attn_node_add(c, ATTN_NODE_ROW, tokens, memory_of(r, ATTN_NODE_ROW, row), cell.node[ATTN_NODE_ROW]);
        if (r->mine && shared >= 0)
            attn_node_add(c, ATTN_NODE_SHARED, 0, memory_of(r, ATTN_NODE_SHARED, shared), cell.node[ATTN_NODE_SHARED]);
        if (row >= 0) give(r, ATTN_NODE_ROW, slots[ATTN_NODE_ROW]);
        else row = slots[ATTN_NODE_ROW];
        if (shared >= 0) give(r, ATTN_NODE_SHARED, slots[ATTN_NODE_SHARED]);
        else shared = slots[ATTN_NODE_SHARED];
    }
    if (r->mine && r->status == ATTN_OK)
        attn_node_store(c, ATTN_NODE_ROW, r->mine, c->grid.q.local[i], tokens, memory_of(r, ATTN_NODE_ROW, row));
    give(r, ATTN_NODE_ROW, row);
    insert(r, ATTN_NODE_SHARED, &r->total, 0, 1, 0, i, shared);
}

/* The root of a tree, which is complete; -1: there are no such results. */
static int64_t complete_root(attn_running *r, attn_node_kind kind, attn_tree *tree, int64_t terms)
{
    const int64_t root = r->pool[kind].bytes ? root_of(r, kind, tree, terms) : -1;
    if (r->pool[kind].bytes && root < 0) r->lost = 1;
    return root;
}

/* A cell of row n is done. */
static void count_down(attn_running *r, int64_t n)
{
    const int64_t keys = r->plan->cells.grid.kv.count;
    if (--r->left[n] > 0) return;
    const int64_t row = complete_root(r, ATTN_NODE_ROW, &r->rows[n], keys),
                  shared = complete_root(r, ATTN_NODE_SHARED, &r->shared[n], keys);
    if (!r->lost) end_row(r, n, row, shared);
}

static void end_column(attn_running *r, int64_t n)
{
    const attn_cells *c = &r->plan->cells;
    const int64_t j = r->plan->own.kv[n], slot = root_of(r, ATTN_NODE_COLUMN, &r->columns[n], c->grid.q.count);
    if (slot < 0) return;
    if (r->mine && r->status == ATTN_OK)
        attn_node_store(c, ATTN_NODE_COLUMN, r->mine, c->grid.kv.local[j], attn_part_size(&c->grid.kv, j),
                        memory_of(r, ATTN_NODE_COLUMN, slot));
    give(r, ATTN_NODE_COLUMN, slot);
}

/* ---- the cells of a step ---- */

static void visit_cell(attn_running *r, int step, int64_t row, int64_t column)
{
    const attn_distributed_plan *p = r->plan;
    const int64_t i = p->own.q[row], j = r->from[column];
    if (!r->enough || r->status != ATTN_OK || !attn_row_exists(&p->cells.grid, i, j, j + 1)) return;
    int64_t slots[ATTN_NODE_KINDS];
    attn_cell cell = {.i = i, .j = j, .message = attn_steps_message(r, step, column)};
    for (int kind = 0; kind < ATTN_NODE_KINDS; kind++) {
        slots[kind] = take(r, (attn_node_kind)kind);
        cell.node[kind] = memory_of(r, (attn_node_kind)kind, slots[kind]);
    }
    if (!r->enough) return;
    run_cell(r, &cell);
    if (r->status != ATTN_OK) return;
    insert(r, ATTN_NODE_SHARED, &r->shared[row], i, 0, 0, j, slots[ATTN_NODE_SHARED]);
    insert(r, ATTN_NODE_COLUMN, step ? &r->away[column] : &r->columns[column], j, 0, 0, i, slots[ATTN_NODE_COLUMN]);
    insert(r, ATTN_NODE_ROW, &r->rows[row], i, 0, 0, j, slots[ATTN_NODE_ROW]);
    count_down(r, row);
    if (!step && r->pool[ATTN_NODE_COLUMN].bytes) end_column(r, column);
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
static void visit(attn_running *r, int step, attn_range rows, attn_range columns)
{
    const int64_t height = rows.end - rows.first, width = columns.end - columns.first;
    if (height <= 0 || width <= 0 || !r->enough || !may_have_cells(r, rows, columns)) return;
    if (height == 1 && width == 1) {
        visit_cell(r, step, rows.first, columns.first);
        return;
    }
    const int64_t middle_q = height > 1 ? rows.first + height / 2 : rows.end,
                  middle_kv = width > 1 ? columns.first + width / 2 : columns.end;
    const attn_range upper = {rows.first, middle_q}, lower = {middle_q, rows.end}, left = {columns.first, middle_kv},
                     right = {middle_kv, columns.end};
    visit(r, step, upper, left), visit(r, step, upper, right);
    visit(r, step, lower, left), visit(r, step, lower, right);
}

/* ---- nodes of other ranks ---- */

/* Whether term i of the sum of column j exists; j -1: of the sum over all parts of queries. */
static int term_exists(const attn_running *r, int64_t j, int64_t i)
{
    const attn_cells *c = &r->plan->cells;
    return j < 0 ? total_exists(c, 0, i, i + 1) : attn_row_exists(&c->grid, i, j, j + 1);
}

typedef struct visited {
    int64_t j, column; /* column: its number in a list */
    int level;
    int64_t number;
    int rank;
} visited;

typedef void each_node(attn_running *r, const visited *node);

/* Calls for the largest nodes whose terms all come from a rank, in an order that both ends of a message know. */
static void visit_nodes(attn_running *r, const visited *node, each_node *call)
{
    const attn_grid *g = &r->plan->cells.grid;
    int some = 0, all = 1;
    const attn_range seen = node->j < 0 ? (attn_range){0, g->q.count} : g->rows[node->j];
    const int64_t first = attn_max(seen.first, node->number << node->level),
                  end = attn_min(seen.end, (node->number + 1) << node->level);
    for (int64_t i = first; i < end; i++) {
        if (!term_exists(r, node->j, i)) continue;
        if (g->q.owner[i] == node->rank) some = 1;
        else all = 0;
    }
    if (!some || !r->enough) return;
    if (all) {
        call(r, node);
        return;
    }
    for (int half = 0; half < 2; half++) {
        const visited child = {node->j, node->column, node->level - 1, 2 * node->number + half, node->rank};
        visit_nodes(r, &child, call);
    }
}

static attn_node_kind kind_of(const visited *node) { return node->j < 0 ? ATTN_NODE_SHARED : ATTN_NODE_COLUMN; }

static void receive_node(attn_running *r, const visited *node)
{
    const attn_node_kind kind = kind_of(node);
    const int64_t slot = take(r, kind);
    if (slot < 0) return;
    attn_tree_push(&r->coming, &r->pool[kind], slot);
    attn_steps_receive(r, node->rank, kind == ATTN_NODE_SHARED ? ATTN_TAG_SHARED : ATTN_TAG_COLUMNS, memory_of(r, kind, slot),
                       r->pool[kind].bytes);
}

static void insert_node(attn_running *r, const visited *node)
{
    const attn_node_kind kind = kind_of(node);
    const int is_total = kind == ATTN_NODE_SHARED;
    insert(r, kind, is_total ? &r->total : &r->columns[node->column], node->j, is_total, node->level, node->number,
           attn_tree_pop(&r->coming, &r->pool[kind]));
}

/* Begins to send a node of a tree, and keeps it until all of these have been sent. */
static void send_from(attn_running *r, const visited *node, attn_tree *tree, int to, int tag)
{
    const attn_node_kind kind = kind_of(node);
    attn_tree_pool *pool = &r->pool[kind];
    const int64_t slot = attn_tree_remove(tree, pool, node->level, node->number);
    if (slot < 0) {
        r->lost = 1;
        return;
    }
    attn_tree_push(&r->going, pool, slot);
    attn_steps_send(r, to, tag, memory_of(r, kind, slot), pool->bytes);
}

static void wait_for_nodes(attn_running *r, attn_node_kind kind)
{
    attn_steps_wait(r);
    for (int64_t slot; (slot = attn_tree_pop(&r->going, &r->pool[kind])) >= 0;) give(r, kind, slot);
}

/* To the owner of the column, who is the rank of the step. */
static void send_column(attn_running *r, const visited *node)
{
    send_from(r, node, &r->away[node->column], r->plan->cells.grid.kv.owner[node->j], ATTN_TAG_COLUMNS);
}

/* After step `step`: what its keys got goes to their owner, and what this rank's keys got elsewhere comes. */
static void exchange_columns(attn_running *r, int step)
{
    const attn_distributed_plan *p = r->plan;
    const int top = attn_tree_top(p->cells.grid.q.count);
    if (step == 0 || !r->pool[ATTN_NODE_COLUMN].bytes) return;
    for (int64_t n = 0; n < p->own.count_kv; n++)
        visit_nodes(r, &(visited){p->own.kv[n], n, top, 0, attn_rank_at(p, step)}, receive_node);
    for (int64_t n = 0; n < r->from_count; n++) visit_nodes(r, &(visited){r->from[n], n, top, 0, p->me}, send_column);
    wait_for_nodes(r, ATTN_NODE_COLUMN);
    if (r->status != ATTN_OK) return;
    for (int64_t n = 0; n < p->own.count_kv; n++) {
        visit_nodes(r, &(visited){p->own.kv[n], n, top, 0, attn_rank_at(p, step)}, insert_node);
        end_column(r, n);
    }
}

/* To rank 0. */
static void send_shared(attn_running *r, const visited *node) { send_from(r, node, &r->total, 0, ATTN_TAG_SHARED); }

/* Rank 0 adds up the nodes of all ranks, one rank after another. */
static void gather_shared(attn_running *r)
{
    const attn_distributed_plan *p = r->plan;
    const int top = attn_tree_top(p->cells.grid.q.count);
    if (p->me != 0) {
        visit_nodes(r, &(visited){-1, 0, top, 0, p->me}, send_shared);
        wait_for_nodes(r, ATTN_NODE_SHARED);
    }
    for (int from = 1; from < p->ranks && p->me == 0 && r->status == ATTN_OK && r->enough; from++) {
        visit_nodes(r, &(visited){-1, 0, top, 0, from}, receive_node);
        attn_steps_wait(r);
        if (r->status == ATTN_OK) visit_nodes(r, &(visited){-1, 0, top, 0, from}, insert_node);
    }
}

/* From rank 0 to all, along a binomial tree: each rank hears from the one without its lowest bit. */
static void spread_shared(attn_running *r, char *root)
{
    const attn_distributed_plan *p = r->plan;
    const size_t bytes = r->pool[ATTN_NODE_SHARED].bytes;
    int64_t bit = 1;
    while (bit < p->ranks && !(p->me & bit)) bit *= 2;
    if (p->me != 0) {
        attn_steps_receive(r, (int)(p->me - bit), ATTN_TAG_SHARED, root, bytes);
        attn_steps_wait(r);
    }
    for (bit /= 2; bit > 0; bit /= 2)
        if (p->me + bit < p->ranks) attn_steps_send(r, (int)(p->me + bit), ATTN_TAG_SHARED, root, bytes);
    attn_steps_wait(r);
}

/* The sum over all parts of queries, which all ranks get. */
static void end_shared(attn_running *r)
{
    const attn_distributed_plan *p = r->plan;
    const int exists = total_exists(&p->cells, 0, 0, p->cells.grid.q.count);
    int64_t root = -1;
    if (!r->pool[ATTN_NODE_SHARED].bytes) return;
    if (exists) {
        gather_shared(r);
        if (r->status != ATTN_OK || !r->enough) return;
        root = p->me == 0 ? complete_root(r, ATTN_NODE_SHARED, &r->total, p->cells.grid.q.count) : take(r, ATTN_NODE_SHARED);
        if (root < 0) return; /* (lost, or not enough) */
        spread_shared(r, memory_of(r, ATTN_NODE_SHARED, root));
    }
    if (r->mine && r->status == ATTN_OK)
        attn_node_store(&p->cells, ATTN_NODE_SHARED, r->mine, 0, 0, memory_of(r, ATTN_NODE_SHARED, root));
    give(r, ATTN_NODE_SHARED, root);
}

/* ---- the run ---- */

/* `bytes` more of the workspace, of which *used are; NULL: only their number matters. */
static void *piece(char *workspace, size_t *used, size_t bytes)
{
    const size_t start = *used;
    *used = start + (bytes + 63) / 64 * 64;
    return workspace ? workspace + start : NULL;
}

/* Divides the workspace.  Returns its size, but for alignment. */
static size_t carve(attn_running *r, char *base, int counts)
{
    const attn_distributed_plan *p = r->plan;
    const attn_run_needs *needs = &p->needs;
    size_t used = 0;
    for (int kind = 0; kind < ATTN_NODE_KINDS; kind++) {
        attn_tree_pool *pool = &r->pool[kind];
        *pool = (attn_tree_pool){.capacity = needs->slots[kind], .free = -1, .bytes = p->cells.node[kind]};
        pool->slots = piece(base, &used, (size_t)needs->slots[kind] * sizeof *pool->slots);
        if (!counts) pool->memory = piece(base, &used, (size_t)needs->slots[kind] * pool->bytes);
    }
    r->rows = piece(base, &used, (size_t)p->own.count_q * sizeof *r->rows);
    r->shared = piece(base, &used, (size_t)p->own.count_q * sizeof *r->shared);
    r->left = piece(base, &used, (size_t)p->own.count_q * sizeof *r->left);
    r->columns = piece(base, &used, (size_t)p->own.count_kv * sizeof *r->columns);
    r->away = piece(base, &used, (size_t)p->most_kv * sizeof *r->away);
    r->from = piece(base, &used, (size_t)p->most_kv * sizeof *r->from);
    r->seen_here = piece(base, &used, (size_t)(p->cells.grid.kv.count + 1) * sizeof *r->seen_here);
    r->seen_there = piece(base, &used, (size_t)(p->cells.grid.kv.count + 1) * sizeof *r->seen_there);
    r->requests = piece(base, &used, (size_t)needs->requests * sizeof *r->requests);
    if (counts) return used;
    r->home = piece(base, &used, needs->home);
    for (int n = 0; n < 2; n++) r->arrived[n] = piece(base, &used, needs->arriving);
    r->workspace = piece(base, &used, p->cells.workspace);
    return used;
}

size_t attn_run_bytes(const attn_distributed_plan *plan, int counts)
{
    attn_running r = {.plan = plan};
    return carve(&r, NULL, counts) + 63;
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

static void run(attn_running *r, char *workspace) /* (of any alignment) */
{
    const attn_distributed_plan *p = r->plan;
    (void)carve(r, workspace + (64 - (uintptr_t)workspace % 64) % 64, !r->mine);
    r->enough = 1;
    clear(r->rows, p->own.count_q), clear(r->shared, p->own.count_q), clear(r->columns, p->own.count_kv), clear(&r->total, 1);
    r->coming = r->going = (attn_tree_queue){-1, -1};
    for (int64_t n = 0; n < p->own.count_q; n++) r->left[n] = attn_row_cells(&p->cells.grid, p->own.q[n]);
    if (r->mine) attn_cells_clear(&p->cells, r->mine);
    attn_steps_begin(r);
    for (int step = 0; step < p->ranks && r->status == ATTN_OK && r->enough; step++) {
        attn_steps_post(r, step + 1);
        attn_steps_list(r, step);
        clear(r->away, p->most_kv);
        visit(r, step, (attn_range){0, p->own.count_q}, (attn_range){0, r->from_count});
        attn_steps_wait(r);
        exchange_columns(r, step);
    }
    for (int64_t n = 0; n < p->own.count_q && r->enough && r->status == ATTN_OK; n++)
        if (attn_row_cells(&p->cells.grid, p->own.q[n]) == 0) end_row(r, n, -1, -1);
    for (int64_t n = 0; n < p->own.count_kv && r->mine && r->status == ATTN_OK; n++) {
        const int64_t j = p->own.kv[n];
        if (!attn_column_exists(&p->cells.grid, j, 0, p->cells.grid.q.count))
            attn_node_store(&p->cells, ATTN_NODE_COLUMN, r->mine, p->cells.grid.kv.local[j], attn_part_size(&p->cells.grid.kv, j),
                            NULL);
    }
    if (r->enough && r->status == ATTN_OK) end_shared(r);
}

attn_status attn_run(const attn_distributed_plan *plan, const attn_tensors *mine, void *workspace, attn_error *error)
{
    attn_running r = {.plan = plan, .mine = mine, .error = error};
    run(&r, workspace);
    return r.status != ATTN_OK ? r.status : r.failed;
}

attn_status attn_run_count(const attn_distributed_plan *plan, void *workspace, attn_run_needs *needs, int *enough,
                           attn_error *error)
{
    attn_running r = {.plan = plan};
    run(&r, workspace);
    *needs = r.needs;
    *enough = r.enough;
    CHECK(!r.lost, ATTN_ERR_UNSUPPORTED, "distributed: a sum over parts is not complete where another rank waits for it");
    return ATTN_OK;
}
