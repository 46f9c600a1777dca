/* SPDX-License-Identifier: MIT
 *
 * fuzz_distributed.c - fuzzes attn/distributed.h (target.h) on one rank, with the problems of api_case.h and parts of any size, in
 * memory of exactly their size: outputs complete or untouched, the same bits for other threads, workspaces and layouts, and near
 * those of one call. */
#include "attn/distributed.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api_case.h"

const char *const target_cases = "problems in parts";

static api_case drawn;
static attn_split split;
static attn_error last;

void target_print(void)
{
    const attn_shape *s = &drawn.problem.shape;
    fprintf(stderr,
            "op %d  B %" PRId64 " Hq %" PRId64 " Hkv %" PRId64 " Sq %" PRId64 " Skv %" PRId64 " D %" PRId64 " Dv %" PRId64
            "  part %" PRId64 " layout %d way %d\n",
            (int)drawn.problem.op, s->batch, s->heads_q, s->heads_kv, s->len_q, s->len_kv, s->dim_qk, s->dim_v, split.part,
            (int)split.layout, (int)split.way);
    for (int t = 0; t < drawn.count; t++) {
        const block *b = &drawn.blocks[t];
        if (b->name) fprintf(stderr, "  %s %s\n", b->name, attn_dtype_name(b->dtype));
    }
}

static void draw_split(draws *d)
{
    static const int64_t parts[] = {1, 2, 3, 7, 16, 33, 64, 128};
    split = (attn_split){.struct_size = sizeof split, .part = parts[draw_below(d, 8)]};
    split.layout = (attn_layout)draw_below(d, 3);
    split.way = (attn_way)draw_below(d, 4);
    if (draw_one_in(d, 30)) split.part = draw_one_in(d, 2) ? -1 : INT64_MAX;
    if (draw_one_in(d, 60)) split.layout = (attn_layout)(4 - draw_below(d, 2));
    if (draw_one_in(d, 60)) split.way = (attn_way)17;
    if (draw_one_in(d, 60)) split.reserved[draw_below(d, 6)] = 1;
}

static attn_distributed_plan *plan_parts(const api_case *c, const attn_options *options)
{
    attn_distributed_plan *plan;
    memset(&last, 0x55, sizeof last);
    const attn_status status = attn_distributed_plan_create(&plan, &c->problem, &c->tensors, &split, NULL, options, &last);
    check_error(status, &last);
    if ((status == ATTN_OK) != (plan != NULL)) finding("status %d and plan %p", (int)status, (void *)plan);
    return plan;
}

/* Returns 1 if it ran; checks that a failed call wrote nothing. */
static int run(api_case *c, const attn_distributed_plan *plan, size_t off, unsigned char canary)
{
    const size_t need = attn_distributed_workspace_size(plan);
    unsigned char *workspace = malloc(need + off + (need + off == 0));
    if (!workspace) return 0;
    memset(workspace, canary ^ 0xff, need + off);
    memset(&last, 0x55, sizeof last);
    blocks_canary(c->blocks, c->count, canary);
    const attn_status status = attn_distributed_execute(plan, &c->tensors, workspace + off, need, &last);
    free(workspace);
    check_error(status, &last);
    if (status == ATTN_OK) return 1;
    blocks_untouched(c->blocks, c->count, canary, last.message);
    return 0;
}

static void run_again(api_case *c, int threads, size_t off, const char *what)
{
    attn_options options = c->options;
    options.threads = threads;
    attn_distributed_plan *plan = plan_parts(c, &options);
    if (!plan) finding("%s: the same plan is now rejected: %s", what, last.message);
    if (!run(c, plan, off, 0x3C)) finding("%s: the same call is now rejected: %s", what, last.message);
    attn_distributed_plan_destroy(plan);
    blocks_compare(c->blocks, c->count, 0x3C, what);
}

/* What the ranks own is the whole, once, whatever the layout. */
static void check_owned(const api_case *c)
{
    const int64_t tokens = c->problem.shape.len_kv;
    const int ranks = 1 + (int)(tokens % 5);
    int64_t all = 0, counted = 0;
    for (int r = 0; r < ranks; r++) {
        attn_split_description d = {.struct_size = sizeof d};
        attn_split_part x = {.struct_size = sizeof x};
        attn_status status = attn_split_describe(&split, tokens, ATTN_AXIS_KEY, r, ranks, &d, &last);
        check_error(status, &last);
        if (status != ATTN_OK) finding("a planned split is rejected: %s", last.message);
        all += d.tokens;
        for (int64_t n = 0; n <= d.parts; n++) {
            status = attn_split_part_describe(&split, tokens, ATTN_AXIS_KEY, r, ranks, n, &x, &last);
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
    const int64_t part = split.part, queries = packed ? c->tokens[0] : c->problem.shape.len_q,
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
    const attn_status status = attn_split_balance(&c->problem, ranks, &c->tensors, &split, &owners_q, &owners_kv, &last);
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

void target_run(draws *from)
{
    api_case *const c = &drawn;
    memset(c, 0, sizeof *c);
    c->from = *from;
    attn_plan *whole = case_draw(c);
    if (!whole) {
        target_rejected++;
        return;
    }
    draw_split(&c->from);
    const int fits = !c->plan_only && case_allocate(c, whole);
    attn_plan_destroy(whole);
    target_drawn();
    attn_distributed_plan *plan = fits ? plan_parts(c, &c->options) : NULL;
    attn_distributed_description d = {.struct_size = sizeof d};
    if (!plan) target_rejected++;
    else {
        if (attn_distributed_describe(plan, &d, NULL) != ATTN_OK || d.workspace_bytes != attn_distributed_workspace_size(plan) ||
            d.messages)
            finding("a wrong description");
        check_owned(c);
        check_balance(c);
        if (d.workspace_bytes < (size_t)1 << 27 && run(c, plan, 0, 0x5A)) {
            target_ran++;
            blocks_keep(c->blocks, c->count);
            run_again(c, 1 + (int)draw_below(&c->from, 3), 1 + (size_t)draw_below(&c->from, 64), "other threads and workspace");
        }
    }
    attn_distributed_plan_destroy(plan);
    blocks_free(c->blocks, c->count);
}
