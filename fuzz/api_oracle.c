/* SPDX-License-Identifier: MIT
 * api_oracle.c - invariants of every drawn case: outputs complete or untouched, bits that depend on the inputs alone. */
#include "api_case.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../tests/limited_allocator.h"

enum { MAX_WORKSPACE = 1 << 27 };

static char message[sizeof((attn_error *)0)->message]; /* of the last rejected call */

/* Returns 1 if it ran; checks that a failed call wrote nothing. */
static int run(api_case *c, const attn_plan *plan, const attn_tensors *tensors, unsigned char workspace_byte, size_t off,
               unsigned char canary)
{
    const attn_schedule *schedule = tensors->call ? tensors->call->schedule : NULL;
    const size_t need = schedule ? attn_schedule_workspace_size(schedule) : attn_plan_workspace_size(plan);
    unsigned char *workspace = malloc(need + off + (need + off == 0));
    attn_error error;
    if (!workspace) return 0;
    memset(workspace, workspace_byte, need + off);
    memset(&error, 0x55, sizeof error);
    blocks_canary(c->blocks, c->count, canary);
    attn_team alone = {.struct_size = sizeof alone, .workers = 1};
    const attn_status status = off & 1 ? attn_execute_worker(plan, 0, tensors, workspace + off, need, &alone, &error)
                                       : attn_execute(plan, tensors, workspace + off, need, &error);
    free(workspace);
    check_error(status, &error);
    if (status == ATTN_OK) return 1;
    memcpy(message, error.message, sizeof message);
    blocks_untouched(c->blocks, c->count, canary, error.message);
    return 0;
}

static void run_again(api_case *c, const attn_options *options, unsigned char byte, size_t off, unsigned char canary,
                      const char *what)
{
    attn_plan *plan = case_plan(c, options);
    if (!plan) finding("%s: the same plan is now rejected", what);
    if (!run(c, plan, &c->tensors, byte, off, canary)) finding("%s: the same call is now rejected: %s", what, message);
    attn_plan_destroy(plan);
    blocks_compare(c->blocks, c->count, canary, what);
}

/* ---- masked keys ---- */

static int poison(api_case *c)
{
    static const char *const names[] = {"k", "v", "k_scale", "v_scale", "tan_k", "tan_v"};
    const attn_problem *p = &c->problem;
    const int packed = case_has(c, "cu_seqlens_kv");
    int any = 0;
    if (case_has(c, "page_table") || case_has(c, "page_index") || p->mask.empty != ATTN_EMPTY_ZERO || c->hostile) return 0;
    if ((case_has(c, "scores") && p->outputs.scores_stage < ATTN_STAGE_BIASED) ||
        (c->call.visit_rows && p->outputs.rows_stage < ATTN_STAGE_BIASED))
        return 0;
    for (int64_t e = 0; e < p->shape.batch; e++) {
        const block *starts = &c->blocks[case_find(c, "cu_seqlens_kv")];
        const int64_t first = packed ? get_index(starts, e) : 0,
                      count = packed ? get_index(starts, e + 1) - first : p->shape.len_kv;
        unsigned char *seen = case_seen(c, e);
        for (int64_t row = 0; seen && row < p->shape.heads_kv * count; row++)
            for (size_t n = 0; !seen[row] && n < sizeof names / sizeof *names; n++) {
                block *b = &c->blocks[case_find(c, names[n])];
                if (!b->name || b->output || b->dtype == ATTN_I8 || b->dtype == ATTN_Q4_1C || block_may_overlap(b)) continue;
                any = 1;
                for (int64_t x = 0; x < b->shape[3]; x++) block_put(b, packed ? 0 : e, row / count, first + row % count, x, NAN);
            }
        free(seen);
    }
    return any;
}

/* ---- subproblems ---- */

static int is_paged(const char *name) { return strchr("kv", name[0]) && strcmp(name, "k_tail"); }

/* Entry e of the batch as its own problem: slots point at the entry, outputs go to the same memory. */
static void run_entry(api_case *c, int64_t e)
{
    attn_problem p = c->problem;
    attn_tensors tensors = c->tensors;
    attn_call call = c->call;
    attn_origin origin = c->origin;
    const int paged = case_has(c, "page_table"), both[2] = {case_has(c, "cu_seqlens_q"), case_has(c, "cu_seqlens_kv")};
    const int packed = both[0];
    int64_t first[2] = {0, 0}, cu[2][2] = {{0, 0}, {0, 0}};
    if (case_has(c, "page_index")) return; /* an entry's list does not begin at 0 */
    if (p.dropout.probability > 0 && p.mask.align == ATTN_ALIGN_BOTTOM_RIGHT) return;
    p.shape.batch = 1;
    for (int side = 0; side < 2 && both[side]; side++) {
        const block *b = &c->blocks[case_find(c, side ? "cu_seqlens_kv" : "cu_seqlens_q")];
        first[side] = get_index(b, e);
        cu[side][1] = get_index(b, e + 1) - first[side];
    }
    for (int t = 0; t < c->count; t++) {
        const block *b = &c->blocks[t];
        attn_output *slot = case_slot(&tensors, c, t);
        if (b->bytes == 0) continue;
        if (case_is_packed(c, t)) slot->data = block_at(b, 0, 0, first[c->about[t].axes[2] == ATTN_AXIS_KEY], 0);
        else if (c->about[t].axes[0] == ATTN_AXIS_BATCH && b->shape[0] > 1 && !(paged && is_paged(c->about[t].name)))
            slot->data = block_at(b, e, 0, 0, 0);
        if (!slot->stride[0] && !slot->stride[1] && !slot->stride[2] && !slot->stride[3]) {
            memcpy(slot->stride, b->stride, sizeof b->stride);
            if (case_is_packed(c, t)) slot->stride[2] = b->stride[2];
        }
    }
    if (both[0]) tensors.cu_seqlens_q = attn_in(cu[0]);
    if (both[1]) tensors.cu_seqlens_kv = attn_in(cu[1]);
    if (p.mask.align == ATTN_ALIGN_TOP_LEFT) {
        if (!call.origin) origin = (attn_origin){.batch = 0};
        origin.batch += e;
        call.origin = &origin;
    }
    tensors.call = &call;
    attn_error error;
    attn_plan *plan = NULL;
    const attn_status status = attn_plan_create(&plan, &p, &tensors, &c->options, &error);
    check_error(status, &error);
    if (status != ATTN_OK) finding("one entry: rejected: %s", error.message);
    if (!run(c, plan, &tensors, 0xFF, 0, 0x3C)) finding("one entry: the same call is now rejected: %s", message);
    attn_plan_destroy(plan);
    for (int t = 0; t < c->count; t++) {
        const block *b = &c->blocks[t];
        if (!b->copy || c->about[t].axes[0] != ATTN_AXIS_BATCH || (b->shape[0] == 1 && !packed)) continue;
        const int packs = case_is_packed(c, t), side = c->about[t].axes[2] == ATTN_AXIS_KEY;
        if (packed && !packs && b->shape[0] == 1 && c->problem.shape.batch > 1) continue;
        const int64_t begin = packs ? first[side] : 0, end = packs ? begin + cu[side][1] : b->shape[2], entry = packs ? 0 : e;
        block_compare_part(b, (int64_t[]){entry, 0, begin, 0}, (int64_t[]){entry + 1, b->shape[1], end, b->shape[3]}, 0,
                           "one entry");
    }
}

/* Queries [begin, end) as their own problem, which options.invariant promises the same bits. */
static void chunk(api_case *c, int64_t begin, int64_t end)
{
    attn_problem p = c->problem;
    attn_tensors tensors = c->tensors;
    attn_call call = c->call;
    attn_origin origin = c->origin;
    int64_t lengths[8] = {0};
    p.shape.len_q = end - begin;
    if (!call.origin) origin = (attn_origin){.batch = 0};
    origin.q += begin;
    call.origin = &origin;
    tensors.call = &call;
    for (int t = 0; t < c->count; t++) {
        const block *b = &c->blocks[t];
        attn_output *slot = case_slot(&tensors, c, t);
        if (b->bytes == 0) continue;
        if (c->about[t].axes[2] == ATTN_AXIS_QUERY && b->shape[2] > 1) slot->data = block_at(b, 0, 0, begin, 0);
        if (!slot->stride[0] && !slot->stride[1] && !slot->stride[2] && !slot->stride[3])
            memcpy(slot->stride, b->stride, sizeof b->stride);
        if (!slot->stride[0] && !slot->stride[1] && !slot->stride[2] && !slot->stride[3]) slot->stride[0] = ATTN_BROADCAST;
        if (b->output && slot->stride[0] == ATTN_BROADCAST) slot->stride[0] = 0;
    }
    if (case_has(c, "lengths_q")) {
        const block *b = &c->blocks[case_find(c, "lengths_q")];
        for (int64_t e = 0; e < p.shape.batch; e++) {
            lengths[e] = get_index(b, e) - begin;
            if (lengths[e] < 0) lengths[e] = 0;
            if (lengths[e] > end - begin) lengths[e] = end - begin;
        }
        tensors.lengths_q = attn_in(lengths);
    }
    attn_error error;
    attn_plan *plan = NULL;
    const attn_status status = attn_plan_create(&plan, &p, &tensors, &c->options, &error);
    check_error(status, &error);
    if (status != ATTN_OK) finding("chunk: rejected: %s", error.message);
    if (!run(c, plan, &tensors, 0xFF, 0, 0x3C)) finding("chunk: the same call is now rejected: %s", message);
    attn_plan_destroy(plan);
    for (int t = 0; t < c->count; t++) {
        const block *b = &c->blocks[t];
        if (!b->copy || c->about[t].axes[2] != ATTN_AXIS_QUERY) continue;
        block_compare_part(b, (int64_t[]){0, 0, begin, 0}, (int64_t[]){b->shape[0], b->shape[1], end, b->shape[3]}, 0, "chunk");
    }
}

/* An infinite key's weight of 0 times an infinite value is skipped in a tile with a mask and is NaN in a tile without one, and
 * which queries share a tile depends on the chunk: options.invariant promises its bits "of finite numbers" only. */
static int infinite_scores(const api_case *c)
{
    static const char *const names[] = {"q", "k", "k_scale"};
    for (size_t n = 0; n < sizeof names / sizeof *names; n++) {
        const block *b = &c->blocks[case_find(c, names[n])];
        if (b->output || b->dtype < ATTN_F32 || b->dtype > ATTN_BF16) continue;
        for (size_t i = 0; i < b->bytes; i += b->element)
            if (isinf(number_get(b->memory + i, b->dtype))) return 1;
    }
    return 0;
}

static void parts(api_case *c)
{
    const attn_problem *p = &c->problem;
    if (c->hostile) return;
    if (p->mask.block_heads || p->mask.tree_keys) return; /* lists of an entry begin elsewhere; a tree has no origin */
    if (p->shape.batch > 1 && draw_one_in(&c->from, 2)) run_entry(c, draw_below(&c->from, p->shape.batch));
    if (!c->options.invariant || p->op != ATTN_FORWARD || case_has(c, "cu_seqlens_q") || p->shape.len_q < 2 || p->shape.batch > 8)
        return;
    if (p->mask.align == ATTN_ALIGN_BOTTOM_RIGHT || p->mask.block_q || case_has(c, "column_sum")) return;
    if (c->special && infinite_scores(c)) return;
    const int64_t begin = draw_below(&c->from, p->shape.len_q), end = begin + 1 + draw_below(&c->from, p->shape.len_q - begin);
    chunk(c, begin, end);
}

/* ---- schedules ---- */

/* The same bits with a schedule, in the memory that it asks for. */
static void scheduled(api_case *c, const attn_plan *plan)
{
    const size_t size = attn_schedule_size(plan);
    unsigned char *memory = size ? malloc(size) : NULL;
    const attn_call *call = c->tensors.call;
    attn_call with = c->call;
    attn_error error;
    attn_schedule_description about = {.struct_size = sizeof about};
    const attn_schedule *schedule = NULL;
    if (!memory) return;
    with.struct_size = sizeof with;
    if (size > 1) {
        const attn_status small = attn_schedule_make(&schedule, plan, &c->tensors, memory, size - 1, NULL, &error);
        check_error(small, &error);
        if (small != ATTN_ERR_MEMORY || schedule) finding("a schedule fits in less than its size");
    }
    /* As if all keys were the same in all entries, unless one of them has fewer, and on some nodes. */
    enum { BATCH = 64, WORKERS = 3, NODES = 3 };
    const attn_prefix all = {0, c->problem.shape.batch, c->problem.shape.len_kv};
    int32_t nodes[BATCH];
    attn_schedule_options options = {.struct_size = sizeof options, .prefix_count = 1, .prefixes = &all};
    for (int n = 0; n < BATCH; n++) nodes[n] = (int32_t)draw_below(&c->from, NODES + 1) - 1;
    if (c->problem.shape.batch <= BATCH) options.nodes = NODES, options.entry_nodes = nodes;
    if (options.nodes && draw_below(&c->from, 2)) options.workers = WORKERS, options.worker_nodes = nodes;
    attn_status status = attn_schedule_make(&schedule, plan, &c->tensors, memory, size, &options, &error);
    check_error(status, &error);
    if (status == ATTN_ERR_ARGUMENT && !schedule)
        status = attn_schedule_make(&schedule, plan, &c->tensors, memory, size, NULL, &error);
    if (status != ATTN_OK) finding("no schedule of a call that ran: %s", error.message);
    if (attn_schedule_describe(schedule, 1 + (int)draw_below(&c->from, 9), &about, &error) != ATTN_OK ||
        !(about.balance > 0 && about.balance <= 1.000001) || about.workspace_bytes != attn_schedule_workspace_size(schedule))
        finding("a schedule described: balance %g, %zu bytes", about.balance, about.workspace_bytes);
    attn_scheduled_item item = {.struct_size = sizeof item};
    for (int64_t n = 0; n < about.items; n += 1 + about.items / 8)
        if (attn_schedule_item(schedule, n, &item, &error) != ATTN_OK || item.entry < 0 || item.entry >= c->problem.shape.batch ||
            !(item.work >= (double)item.tasks))
            finding("item %d of a schedule: entry %d, work %g", (int)n, (int)item.entry, item.work);
    if (about.workspace_bytes > attn_plan_workspace_size(plan)) finding("a schedule needs more workspace than its plan");
    with.schedule = schedule;
    c->tensors.call = &with;
    if (!run(c, plan, &c->tensors, 0xFF, (size_t)draw_below(&c->from, 9), 0x2B)) finding("rejected with a schedule: %s", message);
    c->tensors.call = call;
    blocks_compare(c->blocks, c->count, 0x2B, "a schedule");
    free(memory);
}

/* ---- failing allocations ---- */

static void without_memory(const api_case *c)
{
    for (int left = 0; left < 4; left++) {
        limited_allocator p = {left, 0};
        attn_options options = c->options;
        options.allocator = (attn_allocator){limited_acquire, limited_release, &p};
        attn_plan *plan = NULL;
        attn_error error;
        const attn_status status = attn_plan_create(&plan, &c->problem, &c->tensors, &options, &error);
        check_error(status, &error);
        if (status != ATTN_OK && (plan || status != ATTN_ERR_MEMORY)) finding("allocation %d fails: status %d", left, status);
        attn_plan_destroy(plan);
        if (p.held) finding("allocation %d fails: %d blocks are not released", left, p.held);
    }
}

int case_judge(api_case *c, attn_plan *plan)
{
    const size_t need = attn_plan_workspace_size(plan);
    if (c->options.workspace_limit && need > c->options.workspace_limit)
        finding("%zu bytes of workspace, but workspace_limit is %zu", need, c->options.workspace_limit);
    if (need > MAX_WORKSPACE) return 0;
    const int saved = case_save_forward(c, NULL);
    if (!run(c, plan, &c->tensors, 0xFF, (size_t)draw_below(&c->from, 64), 0xA5)) return 0;
    blocks_keep(c->blocks, c->count);
    if (saved && !c->special && !c->hostile) (void)case_reference(c);
    attn_options other = c->options;
    other.threads = 1 + (int)draw_below(&c->from, 7);
    if (other.threads == c->options.threads) other.threads++;
    run_again(c, &other, 0, 0, 0x5A, "other threads, workspace of zeros");
    if (draw_one_in(&c->from, 3) && need > 64) {
        other.threads = c->options.threads;
        other.workspace_limit = need - (size_t)draw_below(&c->from, (int64_t)need / 2);
        attn_plan *small = NULL;
        attn_error error;
        const attn_status status = attn_plan_create(&small, &c->problem, &c->tensors, &other, &error);
        check_error(status, &error);
        if (small && attn_plan_workspace_size(small) > other.workspace_limit) finding("workspace_limit is exceeded");
        if (small && !run(c, small, &c->tensors, 0xFF, 1, 0x77)) finding("rejected under a workspace_limit: %s", message);
        if (small) blocks_compare(c->blocks, c->count, 0x77, "workspace_limit");
        attn_plan_destroy(small);
        other = c->options;
    }
    if (draw_one_in(&c->from, 2)) scheduled(c, plan);
    if (draw_one_in(&c->from, 8)) without_memory(c);
    parts(c);
    if (poison(c)) run_again(c, &c->options, 0xFF, 3, 0x66, "NaN in masked keys");
    if (draw_one_in(&c->from, 3)) {
        case_move(c, 1 + (size_t)draw_below(&c->from, 15));
        run_again(c, &c->options, 0xFF, 5, 0x99, "other addresses");
    }
    return 1;
}
