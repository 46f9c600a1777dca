/* SPDX-License-Identifier: MIT
 *
 * fuzz_linear.c - fuzzes attn_linear_plan_create and attn_linear_execute (target.h; linear_case.h): outputs complete or untouched,
 * the same bits for other threads, workspaces, addresses and batches, NaN in masked tokens, and ref/. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../tests/limited_allocator.h"
#include "linear_case.h"

enum { MAX_WORKSPACE = 1 << 26 };

const char *const target_cases = "problems of linear attention";

static linear_case c;

void target_print(void)
{
    const attn_linear_problem *p = &c.problem;
    const attn_shape *s = &p->shape;
    fprintf(stderr,
            "op %d form %d  B %" PRId64 " Hq %" PRId64 " Hkv %" PRId64 " Sq %" PRId64 " Skv %" PRId64 " D %" PRId64 " Dv %" PRId64
            "\n",
            (int)p->op, (int)p->form, s->batch, s->heads_q, s->heads_kv, s->len_q, s->len_kv, s->dim_qk, s->dim_v);
    fprintf(stderr,
            "features %d of %" PRId64 " denominator %d epsilon %g scale %d %g causal %d rule %d decay %d chunk %" PRId64
            " threads %d isa %d gentle %d special %d hostile %d\n",
            (int)p->features, p->random_features, (int)p->denominator, p->epsilon, (int)p->scale_kind, p->scale, p->causal,
            (int)p->rule, (int)p->decay_kind, p->chunk, c.options.threads, (int)c.options.isa, c.gentle, c.special, c.hostile);
    blocks_print(c.blocks, L_TENSORS);
}

static attn_error last; /* of the last call */

/* Returns 1 if it ran; checks that a failed call wrote nothing. */
static int run(const attn_linear_plan *plan, const attn_linear_tensors *tensors, unsigned char workspace_byte, size_t off,
               unsigned char canary)
{
    const size_t need = attn_linear_plan_workspace_size(plan);
    unsigned char *workspace = malloc(need + off + (need + off == 0));
    if (!workspace) abort();
    memset(workspace, workspace_byte, need + off);
    memset(&last, 0x55, sizeof last);
    blocks_canary(c.blocks, L_TENSORS, canary);
    const attn_status status = attn_linear_execute(plan, tensors, workspace + off, need, &last);
    free(workspace);
    check_error(status, &last);
    if (status == ATTN_OK) return 1;
    blocks_untouched(c.blocks, L_TENSORS, canary, last.message);
    return 0;
}

static void run_again(const attn_options *options, unsigned char byte, size_t off, unsigned char canary, const char *what)
{
    attn_linear_plan *plan = linear_plan(&c, &c.problem, &c.tensors, options, &last);
    if (!plan) finding("%s: the same plan is now rejected: %s", what, last.message);
    if (!run(plan, &c.tensors, byte, off, canary)) finding("%s: the same call is now rejected: %s", what, last.message);
    attn_linear_plan_destroy(plan);
    blocks_compare(c.blocks, L_TENSORS, canary, what);
}

/* Computes o and denominators by a forward, for backward to read. */
static void save_forward(void)
{
    attn_linear_problem p = c.problem;
    attn_linear_tensors tensors = c.tensors;
    attn_error error;
    c.saved = 1;
    if (p.op != ATTN_BACKWARD || !linear_has(&c, L_O)) return;
    p.op = ATTN_FORWARD;
    for (int t = 0; t < L_TENSORS; t++)
        if (c.about[t].role[ATTN_FORWARD] == ATTN_ROLE_NONE) memset(linear_slot(&tensors, &c, t), 0, sizeof(attn_output));
    c.saved = !block_may_overlap(&c.blocks[L_O]) && !block_may_overlap(&c.blocks[L_N]);
    if (!c.saved) return;
    const attn_status status = attn_linear_compute(&p, &tensors, &error);
    check_error(status, &error);
    if (status != ATTN_OK) finding("the forward of a valid backward is rejected: %s", error.message);
}

/* Invalid calls must be rejected with outputs untouched; others may run. */
static void reject(const attn_linear_plan *plan)
{
    draws *d = c.from;
    attn_linear_tensors tensors = c.tensors;
    const int t = (int)draw_below(d, L_TENSORS), other = (int)draw_below(d, L_TENSORS);
    attn_output *slot = linear_slot(&tensors, &c, t);
    const size_t need = attn_linear_plan_workspace_size(plan);
    const char *must = NULL;
    switch (draw_below(d, 6)) {
    case 0:
        if (!linear_has(&c, t)) return;
        memset(slot, 0, sizeof *slot);
        must = "a tensor of the plan is missing";
        break;
    case 1:
        if (!linear_has(&c, t)) return;
        slot->data = draw_one_in(d, 2) ? ATTN_LATER : ATTN_MISSING;
        must = "a tensor is ATTN_LATER or ATTN_MISSING";
        if (c.blocks[t].bytes == 0) must = NULL;
        break;
    case 2:
        if (!linear_has(&c, t) || !linear_has(&c, other) || t == other || !c.blocks[t].output) return;
        if (t == L_S1 || t == L_Z1 || c.blocks[t].bytes == 0 || c.blocks[other].bytes == 0) return;
        slot->data = linear_slot(&tensors, &c, other)->data;
        if (((uintptr_t)slot->data & (c.blocks[t].element - 1)) == 0) must = "an output overlaps another tensor";
        break;
    case 3:
        if (!linear_has(&c, L_LENGTHS) || c.blocks[L_LENGTHS].bytes == 0) return;
        {
            int64_t lengths[8] = {0};
            lengths[draw_below(d, c.problem.shape.batch)] = draw_one_in(d, 2) ? c.problem.shape.len_kv + 1 : -1;
            int32_t narrow[8];
            for (int i = 0; i < 8; i++) narrow[i] = (int32_t)lengths[i];
            tensors.lengths.data = c.blocks[L_LENGTHS].dtype == ATTN_I32 ? (void *)narrow : (void *)lengths;
            if (run(plan, &tensors, 0xFF, 0, 0x11)) finding("lengths outside the sequence are accepted");
        }
        return;
    case 4:
        if (need == 0) return;
        {
            unsigned char *workspace = malloc(need);
            blocks_canary(c.blocks, L_TENSORS, 0x22);
            const attn_status status = attn_linear_execute(plan, &tensors, workspace, need - 1, &last);
            check_error(status, &last);
            if (status != ATTN_ERR_MEMORY) finding("a workspace that is too small gives status %d", (int)status);
            blocks_untouched(c.blocks, L_TENSORS, 0x22, last.message);
            free(workspace);
        }
        return;
    default:
        if (!linear_has(&c, t) || t == L_OMEGA || c.blocks[t].shape[2] < 2 || c.blocks[t].bytes == 0) return;
        slot->stride[2] += 1 + draw_below(d, 9);
        must = "strides are not those of the plan";
        break;
    }
    if (run(plan, &tensors, 0xFF, 0, 0x33) && must)
        finding("%s (%s, %s), but the call succeeds", must, c.about[t].name, c.about[other].name);
}

/* Entry e of the batch as its own problem: slots point at the entry, outputs go to the same memory. */
static void run_entry(int64_t e)
{
    attn_linear_problem p = c.problem;
    attn_linear_tensors tensors = c.tensors;
    p.shape.batch = 1;
    for (int t = 0; t < L_TENSORS; t++) {
        const block *b = &c.blocks[t];
        if (!linear_has(&c, t) || b->bytes == 0 || c.about[t].axes[0] != ATTN_AXIS_BATCH) continue;
        linear_slot(&tensors, &c, t)->data = block_at(b, e, 0, 0, 0);
    }
    attn_linear_plan *plan = linear_plan(&c, &p, &tensors, &c.options, &last);
    if (!plan) finding("one entry: rejected: %s", last.message);
    if (!run(plan, &tensors, 0xFF, 0, 0x3C)) finding("one entry: the same call is now rejected: %s", last.message);
    attn_linear_plan_destroy(plan);
    for (int t = 0; t < L_TENSORS; t++) {
        const block *b = &c.blocks[t];
        const int64_t begin[4] = {e, 0, 0, 0}, end[4] = {e + 1, b->shape[1], b->shape[2], b->shape[3]};
        if (b->output) block_compare_part(b, begin, end, 0, "one entry");
    }
}

/* NaN in row `token` of every input with tokens whose elements do not overlap.  Returns 1 if any was written. */
static int poison_token(int64_t e, int64_t token)
{
    static const int of_tokens[] = {L_Q, L_K, L_V, L_DECAY, L_BETA, L_ERASE, L_WRITE, L_DO};
    int any = 0;
    for (size_t i = 0; i < sizeof of_tokens / sizeof *of_tokens; i++) {
        const block *b = &c.blocks[of_tokens[i]];
        if (!linear_has(&c, of_tokens[i]) || b->output || block_may_overlap(b) || token >= b->shape[2]) continue;
        if (!c.problem.causal && (of_tokens[i] == L_Q || of_tokens[i] == L_DO)) continue;
        for (int64_t h = 0; h < b->shape[1]; h++)
            for (int64_t x = 0; x < b->shape[3]; x++) block_put(b, e, h, token, x, NAN), any = 1;
    }
    return any;
}

static void run_masked(void)
{
    const attn_shape *s = &c.problem.shape;
    int any = 0;
    for (int64_t e = 0; linear_has(&c, L_LENGTHS) && e < s->batch; e++)
        for (int64_t t = linear_length(&c, e); t < s->len_kv; t++) any |= poison_token(e, t);
    if (any) run_again(&c.options, 0xFF, 3, 0x66, "NaN past the lengths");
    if (!c.problem.causal || c.problem.op != ATTN_FORWARD || s->len_q < 2) return;
    /* NaN in a token reaches only later tokens.  (The sign of a zero may differ: it may come from zero times a later value.) */
    const int64_t first = draw_below(c.from, s->len_q);
    for (int64_t e = 0; e < s->batch; e++)
        for (int64_t t = first; t < s->len_q; t++) (void)poison_token(e, t);
    attn_linear_plan *plan = linear_plan(&c, &c.problem, &c.tensors, &c.options, &last);
    if (!plan || !run(plan, &c.tensors, 0xFF, 1, 0x44)) finding("NaN from a token on: rejected: %s", last.message);
    attn_linear_plan_destroy(plan);
    for (int t = L_O; t <= L_N; t++) {
        const int64_t begin[4] = {0, 0, 0, 0}, end[4] = {s->batch, s->heads_q, first, c.blocks[t].shape[3]};
        if (linear_has(&c, t)) block_compare_part(&c.blocks[t], begin, end, 1, "NaN from a token on");
    }
}

/* The final state written over the initial one. */
static void in_place(void)
{
    block *s0 = &c.blocks[L_S0], *z0 = &c.blocks[L_Z0];
    if (!linear_has(&c, L_S0) || !linear_has(&c, L_S1) || block_may_overlap(s0) || (linear_has(&c, L_Z0) && block_may_overlap(z0)))
        return;
    attn_linear_tensors tensors = c.tensors;
    tensors.final_state = block_out(s0);
    if (linear_has(&c, L_Z0)) tensors.final_sum = block_out(z0);
    attn_linear_plan *plan = linear_plan(&c, &c.problem, &tensors, &c.options, &last);
    if (!plan) finding("states in place: rejected: %s", last.message);
    if (!run(plan, &tensors, 0xFF, 0, 0x88)) finding("states in place: the same call is now rejected: %s", last.message);
    attn_linear_plan_destroy(plan);
    const attn_shape *s = &c.problem.shape;
    for (int64_t e = 0; s0->bytes && e < s->batch; e++)
        for (int64_t h = 0; h < s->heads_kv; h++)
            for (int64_t f = 0; f < s0->shape[2]; f++)
                for (int64_t x = 0; x < s0->shape[3]; x++) {
                    const unsigned char *was =
                        c.blocks[L_S1].copy + (block_at(&c.blocks[L_S1], e, h, f, x) - c.blocks[L_S1].memory);
                    if (memcmp(block_at(s0, e, h, f, x), was, s0->element) != 0 && !isnan(block_get(s0, e, h, f, x)))
                        finding("states in place: final_state differs");
                }
}

static void without_memory(void)
{
    for (int left = 0; left < 3; left++) {
        limited_allocator p = {left, 0};
        attn_options options = c.options;
        options.allocator = (attn_allocator){limited_acquire, limited_release, &p};
        attn_linear_plan *plan = NULL;
        const attn_status status = attn_linear_plan_create(&plan, &c.problem, &c.tensors, &options, &last);
        check_error(status, &last);
        if (status != ATTN_OK && (plan || status != ATTN_ERR_MEMORY)) finding("allocation %d fails: status %d", left, (int)status);
        attn_linear_plan_destroy(plan);
        if (p.held) finding("allocation %d fails: %d blocks are not released", left, p.held);
    }
}

static int judge(const attn_linear_plan *plan)
{
    draws *d = c.from;
    if (attn_linear_plan_workspace_size(plan) > MAX_WORKSPACE) return 0;
    save_forward();
    if (!run(plan, &c.tensors, 0xFF, (size_t)draw_below(d, 64), 0xA5)) {
        if (!c.hostile) finding("a plan's own tensors are rejected: %s", last.message);
        return 0;
    }
    blocks_keep(c.blocks, L_TENSORS);
    if (c.gentle && c.saved) linear_reference(&c);
    if (c.saved && !c.special && !c.hostile) linear_ragged(&c, plan);
    attn_options other = c.options;
    for (other.threads = 1; other.threads <= 3; other.threads++)
        if (other.threads != c.options.threads)
            run_again(&other, 0, (size_t)other.threads, 0x5A, "other threads, workspace of zeros");
    if (draw_one_in(d, 8)) without_memory();
    if (draw_one_in(d, 3)) reject(plan);
    if (c.hostile) return 1;
    if (c.problem.shape.batch > 1) run_entry(draw_below(d, c.problem.shape.batch));
    if (draw_one_in(d, 3)) {
        for (int t = 0; t < L_TENSORS; t++) {
            block_move(&c.blocks[t], 1 + (size_t)draw_below(d, 15));
            if (linear_has(&c, t)) linear_slot(&c.tensors, &c, t)->data = block_out(&c.blocks[t]).data;
        }
        run_again(&c.options, 0xFF, 5, 0x99, "other addresses");
    }
    in_place();
    if (!(linear_has(&c, L_S0) && linear_has(&c, L_S1))) run_masked(); /* otherwise in_place has overwritten the initial state */
    return 1;
}

void target_run(draws *from)
{
    memset(&c, 0, sizeof c);
    c.from = from;
    attn_linear_plan *plan = linear_draw(&c);
    target_drawn();
    if (plan) target_ran += judge(plan);
    else target_rejected++;
    attn_linear_plan_destroy(plan);
    blocks_free(c.blocks, L_TENSORS);
}
