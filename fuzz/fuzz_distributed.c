/* SPDX-License-Identifier: MIT
 *
 * fuzz_distributed.c - fuzzes attn/distributed.h (target.h) with the problems of api_case.h in parts of any size.  On one rank:
 * near one plain call where that is well conditioned.  On several, in any layout, way, strides and threads: the bits of one rank
 * (with any_order: near these, and those of another run), and the same status and sentence on all; messages and bytes as described
 * and as predicted; nothing outside workspaces of exactly their size, and outputs; and what has been planned runs. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "distributed_case.h"

const char *const target_cases = "problems over ranks";

static api_case drawn;
static ranks_case over;
static attn_error last;
static int32_t owners[2][PART_LISTS];
static attn_split_machine machine; /* of over.split */

void target_print(void)
{
    const attn_shape *s = &drawn.problem.shape;
    fprintf(stderr,
            "op %d  B %" PRId64 " Hq %" PRId64 " Hkv %" PRId64 " Sq %" PRId64 " Skv %" PRId64 " D %" PRId64 " Dv %" PRId64
            "  part %" PRId64 " layout %d way %d ranks %d in groups of %" PRId64 "\n",
            (int)drawn.problem.op, s->batch, s->heads_q, s->heads_kv, s->len_q, s->len_kv, s->dim_qk, s->dim_v, over.split.part,
            (int)over.split.layout, (int)over.split.way, over.ranks, over.split.ranks_heads);
    blocks_print(drawn.blocks, drawn.count);
}

/* ---- drawing ---- */

static void drop(api_case *c, const char *name) { memset(case_slot(&c->tensors, c, case_find(c, name)), 0, sizeof(attn_output)); }

/* Leaves out what attn/distributed.h does not have. */
static void make_possible(api_case *c)
{
    static const char *const never[] = {"page_table",   "page_starts", "page_index", "lengths_last_page",
                                        "block_starts", "block_index", "tree"},
                             *const packed[] = {"block_mask", "weights", "scores", "dropout_keep"};
    attn_problem *p = &c->problem;
    for (size_t n = 0; n < sizeof never / sizeof *never; n++) drop(c, never[n]);
    if (!case_has(c, "cu_seqlens_kv")) drop(c, "cu_seqlens_q");
    for (size_t n = 0; n < sizeof packed / sizeof *packed && case_has(c, "cu_seqlens_q"); n++) drop(c, packed[n]);
    memset(&p->paging, 0, sizeof p->paging);
    p->mask.block_entries = p->mask.block_heads = p->mask.tree_keys = 0;
    if (!case_has(c, "block_mask")) p->mask.block_q = p->mask.block_kv = 0;
    c->call.visit_rows = NULL;
}

/* One query whose row of the bias all ranks share, which only this stride says, and ranks draw strides of their own. */
static void share_no_row(api_case *c)
{
    if (c->problem.shape.len_q == 1 && c->tensors.bias.stride[2] == ATTN_BROADCAST) c->tensors.bias.stride[2] = 0;
}

static void draw_part(api_case *c)
{
    static const int64_t parts[] = {1, 2, 3, 5, 7, 16, 33, 64, 128, 0};
    draws *d = &c->from;
    const attn_mask *m = &c->problem.mask;
    const int64_t most = 400, queries = ranks_tokens(c, 0), keys = ranks_tokens(c, 1);
    over.split = (attn_split){.struct_size = sizeof over.split, .part = parts[draw_below(d, 10)]};
    int64_t part = over.split.part ? over.split.part : 1024;
    while ((queries / part + 1) * (keys / part + 1) > most) part *= 2;
    if (over.split.part) over.split.part = part;
    if (case_has(c, "block_mask") && m->block_q > 0 && m->block_kv > 0 && !draw_one_in(d, 20))
        over.split.part = m->block_q * m->block_kv;
    if (draw_one_in(d, 60)) over.split.part = draw_one_in(d, 2) ? -1 : INT64_MAX;
    if (draw_one_in(d, 60)) over.split.reserved[draw_below(d, sizeof over.split.reserved / sizeof *over.split.reserved)] = 1;
}

static void draw_ranks(draws *d, attn_op op)
{
    static const int ranks[] = {1, 2, 3, 4, 5, 6, 7, 8, 16};
    static const attn_way ways[] = {ATTN_WAY_AUTO,       ATTN_WAY_RING,   ATTN_WAY_DIRECT,    ATTN_WAY_HEADS,
                                    ATTN_WAY_HEADS_RING, ATTN_WAY_GATHER, ATTN_WAY_SPLIT_KEYS};
    over.ranks = ranks[draw_below(d, 9)];
    over.seed = draw_word(d);
    over.delays = draw_one_in(d, 4);
    over.split.layout = (attn_layout)draw_below(d, 4);
    over.split.way = ways[draw_below(d, op == ATTN_FORWARD ? 7 : 6)]; /* keys stay in forward alone */
    over.split.ranks_heads = 0;
    if (over.split.way == ATTN_WAY_HEADS_RING && !draw_one_in(d, 3)) over.split.ranks_heads = 1 + draw_below(d, over.ranks);
    while (over.split.ranks_heads && over.ranks % over.split.ranks_heads) over.split.ranks_heads--;
    over.split.any_order = draw_one_in(d, 3);
    over.split.machine = draw_one_in(d, 2) ? &machine : NULL;
    machine.struct_size = sizeof machine;
    if (attn_split_machine_describe(&machine, NULL) != ATTN_OK) finding("there is no machine");
    if (draw_one_in(d, 2)) machine.bytes_per_second = 1e5; /* heads are divided then, and the bits stay */
    if (draw_one_in(d, 2)) machine.flops_per_second = 1e6, machine.seconds_per_message = 0;
    over.split.owners_q = over.split.owners_kv = NULL;
    if (over.split.layout != ATTN_LAYOUT_OWNERS) return;
    for (int keys = 0; keys < 2; keys++) { /* some ranks have nothing */
        const int64_t some = 1 + draw_below(d, over.ranks), first = draw_below(d, over.ranks);
        for (int64_t n = 0; n < PART_LISTS; n++)
            owners[keys][n] = (int32_t)((first + (int64_t)(draw_word(d) % (uint64_t)some)) % over.ranks);
    }
    over.split.owners_q = owners[0], over.split.owners_kv = owners[1];
}

/* ---- one rank ---- */

/* A planned problem can be predicted, with its cells. */
static void check_predicted(const api_case *c, const attn_distributed_plan *plan)
{
    attn_split_prediction x = {.struct_size = sizeof x};
    attn_distributed_description d = {.struct_size = sizeof d};
    attn_error error;
    memset(&error, 0x55, sizeof error);
    const attn_status status = attn_split_predict(&c->problem, 1, &c->tensors, &over.split, NULL, &x, &error);
    check_error(status, &error);
    if (attn_distributed_describe(plan, &d, NULL) != ATTN_OK) finding("a plan has no description");
    if (status != ATTN_OK) finding("a planned problem cannot be predicted: %s", error.message);
    if (x.cells_total != d.cells_total || x.messages || x.bytes || !(x.seconds >= 0) || x.seconds != d.seconds ||
        strcmp(x.why, d.why) != 0)
        finding("%" PRId64 " cells are predicted, and %" PRId64 " planned", x.cells_total, d.cells_total);
}

/* What attn/distributed.h does not have is named in one of these ways; another reason would hide what went wrong. */
static int is_excluded(const char *message)
{
    static const char *const ways[] = {"is not there yet", "must be a multiple", "there are no whole rows"};
    for (size_t n = 0; n < sizeof ways / sizeof *ways; n++)
        if (strstr(message, ways[n])) return 1;
    return 0;
}

/* Sets the expected status and message. */
static void run_alone(api_case *c)
{
    attn_distributed_plan *plan = NULL;
    memset(&over.error, 0x55, sizeof over.error);
    over.expected = attn_distributed_plan_create(&plan, &c->problem, &c->tensors, &over.split, NULL, &c->options, &over.error);
    check_error(over.expected, &over.error);
    if ((over.expected == ATTN_OK) != (plan != NULL)) finding("status %d and plan %p", (int)over.expected, (void *)plan);
    if (over.expected == ATTN_ERR_UNSUPPORTED && !is_excluded(over.error.message))
        finding("one call is planned, and parts are not: %s", over.error.message);
    if (!plan) return;
    check_predicted(c, plan);
    const size_t need = attn_distributed_workspace_size(plan);
    unsigned char *workspace = malloc(need);
    if (!workspace) abort();
    blocks_canary(c->blocks, c->count, 0x5A);
    const attn_status status = attn_distributed_execute(plan, &c->tensors, workspace, need, &last);
    check_error(status, &last);
    if (status != ATTN_OK) finding("it has been planned, and its execution is rejected: %s", last.message);
    free(workspace);
    attn_distributed_plan_destroy(plan);
    blocks_keep(c->blocks, c->count);
}

/* Ways that compute heads apart reject what all heads share, and split keys what has whole rows: one rank, asked for that way, says
 * so, too.  Others are compared with what it has computed. */
static void expect_way(api_case *c, attn_status alone)
{
    attn_split split = over.split;
    attn_distributed_plan *plan = NULL;
    over.expected = alone;
    if (alone != ATTN_OK || split.way < ATTN_WAY_SPLIT_KEYS) return; /* ring, direct */
    split.layout = ATTN_LAYOUT_CONTIGUOUS, split.ranks_heads = 0;
    split.owners_q = split.owners_kv = NULL;
    over.expected = attn_distributed_plan_create(&plan, &c->problem, &c->tensors, &split, NULL, &c->options, &over.error);
    check_error(over.expected, &over.error);
    if (over.expected != ATTN_OK && !strstr(over.error.message, "where heads are computed apart") &&
        !strstr(over.error.message, "a rank has its own keys alone"))
        finding("one rank is planned, but not in way %d: %s", (int)split.way, over.error.message);
    attn_distributed_plan_destroy(plan);
}

/* ---- one call ---- */

/* Whether o of forward, if it is an input, is finite.  It is not in f16 where dropout multiplies by 1e9. */
static int has_finite_o(const api_case *c)
{
    const block *o = &c->blocks[case_find(c, "o")];
    if (!o->name || o->output) return 1;
    for (int64_t b = 0; b < o->shape[0]; b++)
        for (int64_t h = 0; h < o->shape[1]; h++)
            for (int64_t i = 0; i < o->shape[2]; i++)
                for (int64_t e = 0; e < o->shape[3]; e++)
                    if (!isfinite(block_get(o, b, h, i, e))) return 0;
    return 1;
}

static int is_well_conditioned(const api_case *c)
{
    const attn_problem *p = &c->problem;
    const block *offset = &c->blocks[case_find(c, "offset_q")];
    for (int64_t b = 0; offset->name && b < offset->shape[0]; b++)
        if (fabs(block_get(offset, b, 0, 0, 0)) > 1e5) return 0; /* distances beyond these rows */
    if (p->score.temperature > 0 && p->score.temperature < 0.1) return 0;
    if (p->score.scale_kind == ATTN_SCALE_VALUE && fabs(p->score.scale) > 100) return 0;
    if (p->dropout.probability > 0.999 && p->dropout.probability < 1) return 0; /* what it keeps is multiplied by so much */
    return !c->special && p->shape.len_q > 0 && p->shape.len_kv > 0 && has_finite_o(c);
}

static void compare_near(const api_case *c, const block *b)
{
    const double most = ranks_near(c, b, b->memory);
    for (size_t at = 0; at < b->bytes; at += b->element) {
        const double x = number_get(b->memory + at, b->dtype), y = number_get(b->copy + at, b->dtype);
        if (!b->is_element[at] || x == y || (isnan(x) && isnan(y))) continue;
        if (!(fabs(x - y) <= most))
            finding("%s: element %zu is %.9g in one call and %.9g over parts", b->name, at / b->element, x, y);
    }
}

static void check_near(api_case *c)
{
    attn_plan *plan = case_plan(c, &c->options);
    if (!plan) finding("one call is rejected, and parts are not");
    const size_t need = attn_plan_workspace_size(plan);
    void *workspace = malloc(need + 1);
    if (!workspace) abort();
    blocks_canary(c->blocks, c->count, 0x5A);
    const attn_status status = attn_execute(plan, &c->tensors, workspace, need, &last);
    free(workspace);
    attn_plan_destroy(plan);
    for (int t = 0; status == ATTN_OK && t < c->count; t++) /* (it rejects a stride that overflows, of one token, too) */
        if (c->blocks[t].name && c->blocks[t].output && strcmp(c->blocks[t].name, "topk_index") != 0) /* (equal weights) */
            compare_near(c, &c->blocks[t]);
}

/* ---- owners ---- */

/* What the ranks own is the whole, once, whatever the layout. */
static void check_owned(const api_case *c)
{
    const int64_t tokens = c->problem.shape.len_kv;
    const int ranks = 1 + (int)(tokens % 5);
    int64_t all = 0, counted = 0;
    for (int r = 0; r < ranks; r++) {
        attn_split_description d = {.struct_size = sizeof d};
        attn_split_part x = {.struct_size = sizeof x};
        attn_status status = attn_split_describe(&over.split, tokens, ATTN_AXIS_KEY, r, ranks, &d, &last);
        check_error(status, &last);
        if (status != ATTN_OK) finding("a planned split is rejected: %s", last.message);
        all += d.tokens;
        for (int64_t n = 0; n <= d.parts; n++) {
            status = attn_split_part_describe(&over.split, tokens, ATTN_AXIS_KEY, r, ranks, n, &x, &last);
            check_error(status, &last);
            if ((status == ATTN_OK) != (n < d.parts)) finding("part %" PRId64 " of %" PRId64, n, d.parts);
            if (status == ATTN_OK) counted += x.tokens;
            if (status == ATTN_OK && x.local + x.tokens > d.tokens) finding("part %" PRId64 " ends behind its rank", n);
        }
    }
    if (all != tokens || counted != tokens)
        finding("%" PRId64 " and %" PRId64 " of %" PRId64 " keys have an owner", all, counted, tokens);
}

/* Owners are ranks, and none has more than its share of parts. */
static void check_balance(const api_case *c)
{
    const int packed = case_has(c, "cu_seqlens_q");
    const int64_t part = over.split.part ? over.split.part : 1024, queries = packed ? c->tokens[0] : c->problem.shape.len_q,
                  keys = packed ? c->tokens[1] : c->problem.shape.len_kv;
    if (part > INT64_MAX / 2) return;
    const int64_t parts = (queries + part - 1) / part, of_keys = (keys + part - 1) / part;
    const int ranks = 1 + (int)(queries % 5);
    int32_t *q = malloc((size_t)parts * sizeof *q + 1), *kv = malloc((size_t)of_keys * sizeof *kv + 1);
    int64_t owned[5] = {0};
    if (!q || !kv) {
        free(q), free(kv);
        return;
    }
    const attn_output owners_q = {parts ? q : ATTN_EMPTY, ATTN_I32, {0, 0, 0, 0}},
                      owners_kv = {of_keys ? kv : ATTN_EMPTY, ATTN_I32, {0, 0, 0, 0}};
    const attn_status status = attn_split_balance(&c->problem, ranks, &c->tensors, &over.split, &owners_q, &owners_kv, &last);
    check_error(status, &last);
    if (status != ATTN_OK) finding("a planned problem cannot be balanced: %s", last.message);
    for (int64_t n = 0; n < parts; n++) {
        if (q[n] < 0 || q[n] >= ranks) finding("part %" PRId64 " belongs to rank %d", n, (int)q[n]);
        owned[q[n]]++;
    }
    for (int r = 0; r < ranks; r++)
        if (owned[r] > (parts + ranks - 1) / ranks) finding("rank %d has %" PRId64 " of %" PRId64 " parts", r, owned[r], parts);
    for (int64_t n = 0; n < of_keys; n++)
        if (kv[n] < 0 || kv[n] >= ranks) finding("part %" PRId64 " of keys belongs to rank %d", n, (int)kv[n]);
    free(q), free(kv);
}

/* ---- a case ---- */

void target_run(draws *from)
{
    api_case *const c = &drawn;
    memset(c, 0, sizeof *c);
    memset(&over, 0, sizeof over);
    c->from = *from;
    over.whole = c, over.ranks = 1;
    c->no_blocks = 1; /* which libattn_mpi does not have */
    attn_plan *whole = case_draw(c);
    draws *d = &c->from;
    if (whole) {
        attn_plan_destroy(whole);
        if (!draw_one_in(d, 12)) make_possible(c);
        share_no_row(c);
        whole = case_plan(c, &c->options);
    }
    const int fits = whole && !c->plan_only && case_allocate(c, whole);
    attn_plan_destroy(whole);
    if (!fits) {
        target_rejected++;
        blocks_free(c->blocks, c->count);
        return;
    }
    draw_part(c);
    if (!draw_one_in(d, 3)) (void)case_save_forward(c, &c->options);
    target_drawn();
    run_alone(c);
    if (over.expected == ATTN_OK) {
        target_ran++;
        check_owned(c);
        check_balance(c);
        over.near = is_well_conditioned(c);
        if (over.near) check_near(c);
    } else target_rejected++;
    const attn_status alone = over.expected;
    for (int n = 0; n < 2; n++) {
        draw_ranks(d, c->problem.op);
        expect_way(c, alone);
        ranks_judge(&over);
    }
    blocks_free(c->blocks, c->count);
}
