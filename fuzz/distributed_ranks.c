/* SPDX-License-Identifier: MIT
 * distributed_ranks.c - see distributed_case.h. */
#include "distributed_case.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "testing/ranks/ranks.h"

enum { CANARY = 0x3C, GUARD_BYTES = 64, GUARD = 0xEE };

/* How a tensor is spread over ranks. */
typedef enum spread { SAME, QUERIES, KEYS, BLOCKS, SPREADS } spread;

typedef struct rank_case {
    block blocks[MAX_TENSORS];
    attn_tensors tensors;
    int64_t *rows[SPREADS], count[SPREADS]; /* for each row of its tensors, that of the whole */
    attn_status status;
    attn_error error;
    attn_distributed_description about; /* if it was planned */
} rank_case;

typedef struct job {
    const ranks_case *x;
    rank_case of[MAX_RANKS];
} job;

int64_t ranks_tokens(const api_case *c, int keys)
{
    if (case_has(c, "cu_seqlens_q")) return c->tokens[keys];
    return keys ? c->problem.shape.len_kv : c->problem.shape.len_q;
}

static spread spread_of(const api_case *c, int t)
{
    const attn_axis axis = c->about[t].axes[2];
    if (case_has(c, "page_table") || case_has(c, "page_index")) return SAME; /* (ranks reject them) */
    if (case_has(c, "cu_seqlens_q") && !case_packs(c, t)) return SAME;
    const int is_bias = !strcmp(c->about[t].name, "grad_bias") || !strcmp(c->about[t].name, "second_bias");
    if (is_bias && c->blocks[t].shape[2] == 1 && c->problem.shape.len_q != 1) return SAME; /* a sum */
    return axis == ATTN_AXIS_BLOCK_Q ? BLOCKS : axis == ATTN_AXIS_QUERY ? QUERIES : axis == ATTN_AXIS_KEY ? KEYS : SAME;
}

/* ---- what a rank has ---- */

static void list_rows(const ranks_case *x, rank_case *mine, int rank, spread s)
{
    const api_case *c = x->whole;
    const attn_axis axis = s == KEYS ? ATTN_AXIS_KEY : ATTN_AXIS_QUERY;
    const int64_t tokens = ranks_tokens(c, s == KEYS), unit = s == BLOCKS ? c->problem.mask.block_q : 1;
    attn_split_description d = {.struct_size = sizeof d};
    mine->count[s] = 0;
    mine->rows[s] = malloc(((size_t)tokens + 1) * sizeof(int64_t));
    if (!mine->rows[s]) abort();
    if (unit < 1 || attn_split_describe(&x->split, tokens, axis, rank, x->ranks, &d, NULL) != ATTN_OK) return;
    for (int64_t n = 0; n < d.parts; n++) {
        attn_split_part p = {.struct_size = sizeof p};
        attn_error error;
        if (attn_split_part_describe(&x->split, tokens, axis, rank, x->ranks, n, &p, &error) != ATTN_OK)
            finding("part %" PRId64 " of rank %d: %s", n, rank, error.message);
        for (int64_t i = p.first / unit; i < (p.first + p.tokens + unit - 1) / unit; i++) mine->rows[s][mine->count[s]++] = i;
    }
}

/* Strides of a rank's own, but what the whole broadcasts it broadcasts. */
static void draw_own_strides(const api_case *c, int t, block *own, draws *d)
{
    const block *whole = &c->blocks[t];
    const int output = own->output;
    own->output = 1; /* broadcasts nothing else */
    block_draw_strides(own, d, 1);
    own->output = output;
    for (int axis = 0; axis < 4 && !output; axis++)
        if (whole->bytes && whole->shape[axis] > 1 && whole->stride[axis] == 0) own->stride[axis] = 0;
    if (case_has(c, "cu_seqlens_q") && case_packs(c, t)) own->stride[0] = 0;
    if (!strcmp(own->name, "bias")) /* a stride of 0 broadcasts on all ranks, also on those with few rows */
        for (int axis = 0; axis < 4; axis++)
            if ((whole->stride[axis] != 0 || (axis == 2 && whole->shape[2] == 1)) && /* one row is not shared: share_no_row */
                (own->stride[axis] == 0 || own->stride[axis] == ATTN_BROADCAST))
                own->stride[axis] = 1;
}

static void copy_rows(const block *whole, const block *own, const int64_t *rows)
{
    for (int64_t i = 0; own->bytes && i < own->shape[0]; i++)
        for (int64_t h = 0; h < own->shape[1]; h++)
            for (int64_t r = 0; r < own->shape[2]; r++)
                for (int64_t c = 0; c < own->shape[3]; c++)
                    memcpy(block_at(own, i, h, r, c), block_at(whole, i, h, rows[r], c), own->element);
}

static void make_tensor(const api_case *c, rank_case *mine, int t, draws *d)
{
    const block *whole = &c->blocks[t];
    const spread s = spread_of(c, t);
    block *own = &mine->blocks[t];
    attn_output *slot = case_slot(&mine->tensors, c, t);
    if (!whole->name) return;
    if (s == SAME || !whole->bytes) { /* what is empty keeps its strides: they decide the shape of its gradient */
        *own = *whole;
        own->copy = own->is_element = NULL;
        if (s != SAME) own->shape[2] = mine->count[s];
        if (!block_allocate(own)) finding("%s cannot be copied", own->name);
        memcpy(own->memory, whole->memory, own->bytes);
        *slot = *case_slot(&((api_case *)(uintptr_t)c)->tensors, c, t);
        slot->data = own->bytes ? own->memory + own->first : ATTN_EMPTY;
        return;
    }
    *own = block_of(whole->name, whole->dtype, whole->output, whole->shape[0], whole->shape[1], mine->count[s], whole->shape[3]);
    draw_own_strides(c, t, own, d);
    if (!block_allocate(own)) finding("%s of a rank is too large", own->name);
    if (!own->output) copy_rows(whole, own, mine->rows[s]);
    *slot = block_out(own);
}

static draws draws_of(const ranks_case *x, int rank)
{
    uint8_t bytes[sizeof x->seed + 1];
    memcpy(bytes, &x->seed, sizeof x->seed);
    bytes[sizeof x->seed] = (uint8_t)rank;
    draws d = draws_from(bytes, sizeof bytes);
    d.left = 0; /* numbers of the generator alone */
    return d;
}

static void make(const ranks_case *x, rank_case *mine, int rank, draws *d)
{
    mine->tensors = (attn_tensors){.struct_size = sizeof mine->tensors, .call = &x->whole->call};
    for (int s = QUERIES; s < SPREADS; s++) list_rows(x, mine, rank, (spread)s);
    for (int t = 0; t < x->whole->count; t++) make_tensor(x->whole, mine, t, d);
}

static void unmake(const ranks_case *x, rank_case *mine)
{
    blocks_free(mine->blocks, x->whole->count);
    for (int s = QUERIES; s < SPREADS; s++) free(mine->rows[s]);
}

/* ---- running ---- */

static void check_description(const rank_case *mine, const attn_distributed_plan *plan, const attn_distributed_description *d,
                              int64_t messages, int64_t bytes)
{
    if (d->workspace_bytes != attn_distributed_workspace_size(plan)) finding("the description has another workspace");
    if (d->queries != mine->count[QUERIES] || d->keys != mine->count[KEYS])
        finding("%" PRId64 " queries and %" PRId64 " keys are described as %" PRId64 " and %" PRId64, mine->count[QUERIES],
                mine->count[KEYS], d->queries, d->keys);
    if (d->messages != messages || d->bytes != bytes)
        finding("%" PRId64 " bytes in %" PRId64 " messages are described as %" PRId64 " in %" PRId64, bytes, messages, d->bytes,
                d->messages);
}

/* In a workspace of exactly its size, for a sanitizer, on odd ranks; on even ones with guard bytes around it. */
static void execute(rank_case *mine, int count, const attn_transport *transport, const attn_distributed_plan *plan, draws *d)
{
    const size_t need = attn_distributed_workspace_size(plan), guard = transport->rank % 2 ? 0 : GUARD_BYTES,
                 first = guard + (size_t)draw_below(d, 64);
    unsigned char *memory = malloc(first + need + guard);
    int64_t messages[2], bytes[2];
    if (!memory) abort();
    memset(memory, GUARD, first + need + guard);
    blocks_canary(mine->blocks, count, CANARY);
    mine->about = (attn_distributed_description){.struct_size = sizeof mine->about};
    if (attn_distributed_describe(plan, &mine->about, NULL) != ATTN_OK) finding("a plan is not described");
    ranks_sent(transport, &messages[0], &bytes[0]);
    mine->status = attn_distributed_execute(plan, &mine->tensors, memory + first, need, &mine->error);
    check_error(mine->status, &mine->error);
    ranks_sent(transport, &messages[1], &bytes[1]);
    for (size_t n = 0; n < first; n++)
        if (memory[n] != GUARD) finding("rank %d has written before its workspace", transport->rank);
    for (size_t n = 0; n < guard; n++)
        if (memory[first + need + n] != GUARD) finding("rank %d has written behind its workspace", transport->rank);
    free(memory);
    if (mine->status != ATTN_OK)
        finding("rank %d has planned, and its execution is rejected: %s", transport->rank, mine->error.message);
    check_description(mine, plan, &mine->about, messages[1] - messages[0], bytes[1] - bytes[0]);
}

/* Elements of a dense tensor, in the rows that `rows` lists, are those of the whole. */
static void check_moved(const block *whole, const unsigned char *dense, const int64_t *rows, int64_t count)
{
    for (int64_t i = 0; i < whole->shape[0]; i++)
        for (int64_t h = 0; h < whole->shape[1]; h++)
            for (int64_t r = 0; r < count; r++)
                for (int64_t c = 0; c < whole->shape[3]; c++, dense += whole->element)
                    if (memcmp(dense, block_at(whole, i, h, rows ? rows[r] : r, c), whole->element) != 0)
                        finding("%s has other rows after it has moved", whole->name);
}

/* A tensor of the whole goes to its owners, and back. */
static void move(const ranks_case *x, const rank_case *mine, const attn_transport *transport, int t)
{
    const spread s = spread_of(x->whole, t);
    const block *whole = &x->whole->blocks[t];
    const attn_axis axis = s == KEYS ? ATTN_AXIS_KEY : ATTN_AXIS_QUERY;
    const int64_t *shape = whole->shape, rows = mine->count[s];
    const size_t row = (size_t)(shape[0] * shape[1] * shape[3]) * whole->element;
    unsigned char *own = malloc(row * (size_t)rows + 1), *all = malloc(row * (size_t)shape[2] + 1);
    if (!own || !all) abort();
    const attn_output from = block_out(whole), to = {rows ? own : (void *)(uintptr_t)ATTN_EMPTY, whole->dtype, {0, 0, 0, 0}},
                      back = {all, whole->dtype, {0, 0, 0, 0}};
    attn_error error;
    const attn_input of_whole = {from.data, from.dtype, {from.stride[0], from.stride[1], from.stride[2], from.stride[3]}},
                     of_own = {to.data, to.dtype, {0, 0, 0, 0}};
    attn_status status = attn_distributed_scatter(axis, shape, &of_whole, &x->split, transport, &to, &error);
    check_error(status, &error);
    if (status != ATTN_OK) finding("rank %d: %s cannot be scattered: %s", transport->rank, whole->name, error.message);
    check_moved(whole, own, mine->rows[s], rows);
    status = attn_distributed_gather(axis, shape, &of_own, &x->split, transport, &back, &error);
    check_error(status, &error);
    if (status != ATTN_OK) finding("rank %d: %s cannot be gathered: %s", transport->rank, whole->name, error.message);
    if (transport->rank == 0) check_moved(whole, all, NULL, shape[2]);
    free(own), free(all);
}

static int moves(const ranks_case *x, int t)
{
    const block *b = &x->whole->blocks[t];
    const spread s = b->name ? spread_of(x->whole, t) : SAME;
    return (s == QUERIES || s == KEYS) && !b->output && b->bytes > 0;
}

static void on_rank(void *context, const attn_transport *transport)
{
    job *j = context;
    const ranks_case *x = j->x;
    rank_case *mine = &j->of[transport->rank];
    draws d = draws_of(x, transport->rank);
    attn_options options = x->whole->options;
    attn_distributed_plan *plan = NULL;
    make(x, mine, transport->rank, &d);
    options.threads = 1 + (int)draw_below(&d, 3);
    memset(&mine->error, 0x55, sizeof mine->error);
    mine->status =
        attn_distributed_plan_create(&plan, &x->whole->problem, &mine->tensors, &x->split, transport, &options, &mine->error);
    check_error(mine->status, &mine->error);
    if ((mine->status == ATTN_OK) != (plan != NULL)) finding("status %d and plan %p", (int)mine->status, (void *)plan);
    if (plan) execute(mine, x->whole->count, transport, plan, &d);
    for (int t = 0; plan && t < x->whole->count; t++)
        if (moves(x, t)) move(x, mine, transport, t);
    attn_distributed_plan_destroy(plan);
}

/* ---- comparing ---- */

static int same(const void *a, const void *b, attn_dtype dtype)
{
    if (!memcmp(a, b, attn_dtype_size(dtype))) return 1;
    return isnan(number_get(a, dtype)) && isnan(number_get(b, dtype)); /* the bits of a NaN are unspecified */
}

double ranks_near(const api_case *c, const block *b, const unsigned char *numbers)
{
    const double unit = b->dtype == ATTN_F64 ? 1e-9 : b->dtype == ATTN_F32 ? 1e-3 : b->dtype == ATTN_F16 ? 4e-3 : 2e-2;
    const double dropped = c->problem.dropout.probability, factor = dropped < 1 ? 1 / (1 - dropped) : 1;
    double most = 0;
    for (size_t at = 0; at < b->bytes; at += b->element) {
        const double x = fabs(number_get(numbers + at, b->dtype));
        if (b->is_element[at] && isfinite(x) && x > most) most = x;
    }
    return unit * (factor + most);
}

static double tolerance_of(const ranks_case *x, const block *whole)
{
    if (!x->split.any_order) return 0;
    return x->near && strcmp(whole->name, "topk_index") != 0 ? ranks_near(x->whole, whole, whole->copy) : (double)INFINITY;
}

/* Where heads may be computed apart, tiles are others, and with them what a NaN or an infinity affects. */
static int may_spoil(const ranks_case *x, const void *a, const void *b, attn_dtype dtype)
{
    const int apart = x->split.way == ATTN_WAY_AUTO || x->split.way >= ATTN_WAY_HEADS;
    return x->whole->special && apart && (isnan(number_get(a, dtype)) || isnan(number_get(b, dtype)));
}

/* An output of a rank has the bits of one rank, and nothing between its elements is written. */
static void compare(const ranks_case *x, const rank_case *mine, int rank, int t)
{
    const block *whole = &x->whole->blocks[t], *own = &mine->blocks[t];
    const spread s = spread_of(x->whole, t);
    const double tolerance = tolerance_of(x, whole);
    unsigned char *is_element = calloc(own->bytes + 1, 1);
    if (!is_element) abort();
    for (int64_t i = 0; own->bytes && i < own->shape[0]; i++)
        for (int64_t h = 0; h < own->shape[1]; h++)
            for (int64_t r = 0; r < own->shape[2]; r++)
                for (int64_t c = 0; c < own->shape[3]; c++) {
                    const unsigned char *got = block_at(own, i, h, r, c),
                                        *one = block_at(whole, i, h, s == SAME ? r : mine->rows[s][r], c) - whole->memory +
                                               whole->copy;
                    memset(is_element + (got - own->memory), 1, own->element);
                    if (!same(got, one, own->dtype) && !may_spoil(x, got, one, own->dtype) && tolerance < (double)INFINITY &&
                        !(fabs(number_get(got, own->dtype) - number_get(one, own->dtype)) <= tolerance))
                        finding("%s[%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 "] of rank %d of %d is %.17g, on one rank %.17g",
                                own->name, i, h, r, c, rank, x->ranks, number_get(got, own->dtype), number_get(one, own->dtype));
                }
    for (size_t n = 0; n < own->bytes; n++)
        if (!is_element[n] && own->memory[n] != CANARY) finding("%s: byte %zu between elements is written", own->name, n);
    free(is_element);
}

/* What plans of all ranks have is what is predicted. */
static void check_predicted(const ranks_case *x, const job *j)
{
    const api_case *c = x->whole;
    attn_split_prediction got = {.struct_size = sizeof got};
    attn_error error;
    int64_t messages = 0, bytes = 0, messages_total = 0, bytes_total = 0, cells = 0;
    if (attn_split_predict(&c->problem, x->ranks, &c->tensors, &x->split, NULL, &got, &error) != ATTN_OK)
        finding("%d ranks are planned, and not predicted: %s", x->ranks, error.message);
    for (int r = 0; r < x->ranks; r++) {
        const attn_distributed_description *d = &j->of[r].about;
        messages = d->messages > messages ? d->messages : messages, messages_total += d->messages;
        bytes = d->bytes > bytes ? d->bytes : bytes, bytes_total += d->bytes;
        cells += d->cells;
        if (d->seconds != got.seconds || strcmp(d->why, got.why) != 0 || d->way != got.way || d->ranks_heads != got.ranks_heads)
            finding("rank %d: '%s' (way %d, %g s), and predicted: '%s' (way %d, %g s)", r, d->why, (int)d->way, d->seconds, got.why,
                    (int)got.way, got.seconds);
        if (d->cells_total != j->of[0].about.cells_total || d->cells_most != j->of[0].about.cells_most || d->cells > d->cells_most)
            finding("rank %d has other numbers of cells", r);
    }
    if (cells != got.cells_total || cells != j->of[0].about.cells_total || got.cells_most != j->of[0].about.cells_most)
        finding("%" PRId64 " cells, %" PRId64 " described and %" PRId64 " predicted; at most %" PRId64 " and %" PRId64, cells,
                j->of[0].about.cells_total, got.cells_total, j->of[0].about.cells_most, got.cells_most);
    if (messages != got.messages || messages_total != got.messages_total || bytes != got.bytes || bytes_total != got.bytes_total)
        finding("%" PRId64 " (%" PRId64 ") messages of %" PRId64 " (%" PRId64 ") bytes, and predicted %" PRId64 " (%" PRId64
                ") of %" PRId64 " (%" PRId64 ")",
                messages, messages_total, bytes, bytes_total, got.messages, got.messages_total, got.bytes, got.bytes_total);
}

/* With any_order: what all ranks have is the same on all of them, and all of it is what another run computes. */
static void check_again(const ranks_case *x, const job *first)
{
    static job again;
    memset(&again, 0, sizeof again);
    again.x = x;
    ranks_run(x->ranks, x->seed + 77, on_rank, &again);
    if (ranks_wrong()) finding("%s", ranks_wrong());
    for (int r = 0; r < x->ranks; r++)
        for (int t = 0; t < x->whole->count; t++) {
            const block *a = &first->of[r].blocks[t], *b = &again.of[r].blocks[t], *zero = &first->of[0].blocks[t];
            if (!a->name || !a->output) continue;
            if (again.of[r].status != first->of[r].status) finding("another status at the second time");
            if (memcmp(a->memory, b->memory, a->bytes) != 0)
                finding("%s of rank %d of %d: other bits at the second time", a->name, r, x->ranks);
            const spread s = spread_of(x->whole, t);
            if (s == SAME || (s == QUERIES && x->split.way == ATTN_WAY_SPLIT_KEYS))
                for (int64_t i = 0; a->bytes && i < a->shape[0]; i++)
                    for (int64_t h = 0; h < a->shape[1]; h++)
                        for (int64_t k = 0; k < a->shape[2]; k++)
                            for (int64_t c = 0; c < a->shape[3]; c++)
                                if (!same(block_at(a, i, h, k, c), block_at(zero, i, h, k, c), a->dtype))
                                    finding("%s: rank %d has other bits than rank 0", a->name, r);
        }
    for (int r = 0; r < x->ranks; r++) unmake(x, &again.of[r]);
}

void ranks_judge(const ranks_case *x)
{
    static job j;
    memset(&j, 0, sizeof j);
    j.x = x;
    ranks_run(x->ranks, x->delays ? x->seed : 0, on_rank, &j);
    if (ranks_wrong()) finding("%s", ranks_wrong());
    int all = x->expected == ATTN_OK;
    for (int r = 0; r < x->ranks; r++) all = all && j.of[r].status == ATTN_OK;
    if (all && x->whole->options.workspace_limit == 0) check_predicted(x, &j);
    if (all && x->split.any_order) check_again(x, &j);
    for (int r = 0; r < x->ranks; r++) {
        const rank_case *mine = &j.of[r];
        /* Strides are a rank's own: it may be rejected for them before what one rank is rejected for, or not where that is. */
        const int by_strides = x->expected == ATTN_ERR_STRIDE || (x->expected != ATTN_OK && mine->status == ATTN_ERR_STRIDE);
        /* And so are workspaces: one rank has no messages, and another one perhaps fewer heads. */
        const int by_limit =
            x->whole->options.workspace_limit > 0 && (mine->status == ATTN_ERR_MEMORY || x->expected == ATTN_ERR_MEMORY);
        if (mine->status != x->expected && !by_strides && !by_limit)
            finding("one rank: %d '%s', rank %d of %d: %d '%s'", (int)x->expected, x->error.message, r, x->ranks, (int)mine->status,
                    mine->error.message);
        if (mine->status != j.of[0].status || strcmp(mine->error.message, j.of[0].error.message) != 0)
            finding("rank %d: %d '%s', rank 0: %d '%s'", r, (int)mine->status, mine->error.message, (int)j.of[0].status,
                    j.of[0].error.message);
        for (int t = 0; x->expected == ATTN_OK && mine->status == ATTN_OK && t < x->whole->count; t++)
            if (mine->blocks[t].name && mine->blocks[t].output) compare(x, mine, r, t);
    }
    for (int r = 0; r < x->ranks; r++) unmake(x, &j.of[r]);
}
