/* SPDX-License-Identifier: MIT
 *
 * fuzz_merge.c - fuzzes attn_merge and attn_merge_backward (target.h): against the formulas of attn/merge.h in double, within the
 * bound of tests/merge/test_merge.c; the same bits for other threads, addresses and batches; outputs untouched after an error. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attn/merge.h"
#include "block.h"
#include "target.h"

enum { MAX_PARTS = 40, BLOCKS = 4 * MAX_PARTS + 2 };
/* The order of a case's blocks: the parts, then o and lse or their gradients, then the gradients of the parts. */
enum { O_PARTS = 0, LSE_PARTS = MAX_PARTS, WHOLE = 2 * MAX_PARTS, WHOLE_LSE, GRAD_O, GRAD_LSE = GRAD_O + MAX_PARTS };

const char *const target_cases = "merges";

static struct {
    draws *from;
    int backward, special, hostile;
    attn_merge_problem problem;
    attn_merge_tensors tensors;
    attn_options options;
    attn_dtype dtype, compute;
    block blocks[BLOCKS];
    attn_input o_parts[MAX_PARTS], lse_parts[MAX_PARTS];
    attn_output grad_o_parts[MAX_PARTS], grad_lse_parts[MAX_PARTS];
} c;

void target_print(void)
{
    const attn_merge_problem *p = &c.problem;
    fprintf(stderr,
            "backward %d  parts %" PRId64 " B %" PRId64 " H %" PRId64 " Sq %" PRId64 " Dv %" PRId64
            " threads %d isa %d special %d hostile %d\n",
            c.backward, p->parts, p->batch, p->heads, p->len_q, p->dim_v, c.options.threads, (int)c.options.isa, c.special,
            c.hostile);
    blocks_print(c.blocks, BLOCKS);
}

static attn_error last;

/* Points the slots at the blocks, from batch entry e on. */
static void place(int64_t e)
{
    for (int64_t p = 0; p < c.problem.parts && p < MAX_PARTS; p++) {
        attn_output *const slots[2] = {&c.grad_o_parts[p], &c.grad_lse_parts[p]};
        c.o_parts[p] = block_in(&c.blocks[O_PARTS + p]), c.lse_parts[p] = block_in(&c.blocks[LSE_PARTS + p]);
        if (c.blocks[O_PARTS + p].bytes) c.o_parts[p].data = block_at(&c.blocks[O_PARTS + p], e, 0, 0, 0);
        if (c.blocks[LSE_PARTS + p].bytes) c.lse_parts[p].data = block_at(&c.blocks[LSE_PARTS + p], e, 0, 0, 0);
        for (int i = 0; i < 2; i++) {
            const block *b = &c.blocks[(i ? GRAD_LSE : GRAD_O) + p];
            *slots[i] = block_out(b);
            if (b->bytes) slots[i]->data = block_at(b, e, 0, 0, 0);
        }
    }
    attn_output whole[2];
    for (int i = 0; i < 2; i++) {
        whole[i] = block_out(&c.blocks[WHOLE + i]);
        if (c.blocks[WHOLE + i].bytes) whole[i].data = block_at(&c.blocks[WHOLE + i], e, 0, 0, 0);
    }
    c.tensors = (attn_merge_tensors){.struct_size = sizeof c.tensors, .o_parts = c.o_parts, .lse_parts = c.lse_parts};
    if (!c.backward) {
        c.tensors.o = whole[0], c.tensors.lse = whole[1];
        return;
    }
    memcpy(&c.tensors.grad_o, &whole[0], sizeof whole[0]), memcpy(&c.tensors.grad_lse, &whole[1], sizeof whole[1]);
    c.tensors.grad_o_parts = c.grad_o_parts, c.tensors.grad_lse_parts = c.grad_lse_parts;
}

/* Returns 1 if it ran; checks that a failed call wrote nothing. */
static int run(const attn_merge_problem *p, const attn_options *options, unsigned char canary)
{
    memset(&last, 0x55, sizeof last);
    blocks_canary(c.blocks, BLOCKS, canary);
    const attn_status status = (c.backward ? attn_merge_backward : attn_merge)(p, &c.tensors, options, &last);
    check_error(status, &last);
    if (status == ATTN_OK) return 1;
    blocks_untouched(c.blocks, BLOCKS, canary, last.message);
    return 0;
}

static void run_again(const attn_options *options, unsigned char canary, const char *what)
{
    if (!run(&c.problem, options, canary)) finding("%s: the same call is now rejected: %s", what, last.message);
    blocks_compare(c.blocks, BLOCKS, canary, what);
}

/* ---- drawing ---- */

static void make(int at, const char *name, int wide, int output)
{
    const attn_merge_problem *p = &c.problem;
    block *b = &c.blocks[at];
    *b = block_of(name, wide ? c.dtype : c.compute, output, p->batch, p->heads, p->len_q, wide ? p->dim_v : 1);
    if (draw_one_in(c.from, 2)) block_draw_strides(b, c.from, wide);
    if (!block_allocate(b)) finding("%s is too large", name);
}

static void draw_case(void)
{
    static const int64_t dims[] = {0, 1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 64, 65, 130, 300};
    static const attn_dtype types[] = {ATTN_F32, ATTN_F64, ATTN_F16, ATTN_BF16};
    draws *d = c.from;
    attn_merge_problem *p = &c.problem;
    attn_cpu_description cpu = {.struct_size = sizeof cpu};
    if (attn_cpu_describe(&cpu, NULL)) finding("no CPU");
    c.backward = draw_one_in(d, 2), c.special = draw_one_in(d, 8);
    c.dtype = types[draw_below(d, 4)], c.compute = c.dtype == ATTN_F64 ? ATTN_F64 : ATTN_F32;
    *p = (attn_merge_problem){.struct_size = sizeof *p,
                              .parts = 1 + (draw_one_in(d, 6) ? draw_below(d, MAX_PARTS) : draw_below(d, 5))};
    p->batch = draw_one_in(d, 30) ? 0 : 1 + draw_below(d, 3), p->heads = draw_one_in(d, 30) ? 0 : 1 + draw_below(d, 3);
    p->len_q = draw_one_in(d, 5) ? draw_below(d, 200) : draw_below(d, 20), p->dim_v = dims[draw_below(d, 15)];
    if (p->len_q > 40) p->dim_v %= 34;
    if (p->parts > 5) p->len_q %= 30;
    c.options =
        (attn_options){.struct_size = sizeof c.options, .threads = 1 + (int)draw_below(d, 3), .isa = (attn_isa)draw_below(d, 4)};
    if (c.options.isa > cpu.isa) c.options.isa = ATTN_ISA_DEFAULT;
    const uint64_t empty = draw_word(d); /* rows for which no part has keys */
    for (int i = 0; i < p->parts; i++) {
        make(O_PARTS + i, "o_parts", 1, 0), make(LSE_PARTS + i, "lse_parts", 0, 0);
        block_fill(&c.blocks[O_PARTS + i], d, -2, 2, c.special);
        block_fill(&c.blocks[LSE_PARTS + i], d, -9, 9, c.special);
        const block *lse = &c.blocks[LSE_PARTS + i], *o = &c.blocks[O_PARTS + i];
        for (int64_t b = 0; b < p->batch; b++) /* parts without keys */
            for (int64_t h = 0; h < p->heads; h++)
                for (int64_t t = 0; t < p->len_q; t++)
                    if (draw_word(d) % 5 == 0 || (empty >> (b * 3 + h * 7 + t) % 61 & 7) == 0) {
                        block_put(lse, b, h, t, 0, -INFINITY);
                        for (int64_t x = 0; !block_may_overlap(lse) && !block_may_overlap(o) && x < p->dim_v; x++)
                            block_put(o, b, h, t, x, NAN);
                    }
        if (c.backward) make(GRAD_O + i, "grad_o_parts", 1, 1), make(GRAD_LSE + i, "grad_lse_parts", 0, 1);
    }
    make(WHOLE, c.backward ? "grad_o" : "o", 1, !c.backward);
    if (!draw_one_in(d, 3)) make(WHOLE_LSE, c.backward ? "grad_lse" : "lse", 0, !c.backward);
    if (c.backward) block_fill(&c.blocks[WHOLE], d, -1, 1, c.special), block_fill(&c.blocks[WHOLE_LSE], d, -1, 1, c.special);
    place(0);
}

/* ---- invalid calls ---- */

static void reject(void)
{
    draws *d = c.from;
    attn_merge_problem p = c.problem;
    const int part = (int)draw_below(d, p.parts);
    const char *must = NULL;
    attn_output *slot = c.backward ? &c.grad_o_parts[part] : &c.tensors.o;
    switch (draw_below(d, 9)) {
    case 0:
        for (int64_t n = draw_below(d, 4); n >= 0; n--) (&p.batch)[draw_below(d, 4)] = draw_hostile(d);
        for (int i = 0; i < 4; i++) /* larger sizes would be read: none but invalid ones */
            if ((&p.batch)[i] > (&c.problem.batch)[i]) (&p.batch)[i] = draw_one_in(d, 2) ? INT64_MAX : -1;
        if (p.batch < 0 || p.heads < 0 || p.len_q < 0 || p.dim_v < 0) must = "a negative size";
        else if (p.batch && p.heads && p.len_q && p.dim_v) {
            if (p.batch == INT64_MAX || p.heads == INT64_MAX || p.len_q == INT64_MAX || p.dim_v == INT64_MAX) break;
        }
        break;
    case 1:
        p.parts = -(int64_t)draw_below(d, 3);
        must = "no parts";
        break;
    case 2:
        slot->stride[draw_below(d, 3)] = 0, slot->stride[draw_below(d, 3)] = INT64_MIN + 1;
        break;
    case 3:
        memset(draw_one_in(d, 2) ? &c.o_parts[part] : &c.lse_parts[part], 0, sizeof(attn_input));
        must = "a part is missing";
        break;
    case 4:
        slot->dtype = (attn_dtype)draw_below(d, 16);
        if (slot->dtype != c.dtype && slot->dtype) must = "another type";
        break;
    case 5:
        p.reserved[draw_below(d, 4)] = 1;
        must = "a reserved word";
        break;
    case 6:
        slot->data = draw_one_in(d, 2) ? ATTN_MISSING : ATTN_LATER;
        must = "ATTN_MISSING or ATTN_LATER";
        break;
    case 7: /* o over a part of other strides, or a gradient over any part */
        if (c.blocks[O_PARTS].bytes == 0) return;
        slot->data = (void *)(uintptr_t)c.o_parts[part].data;
        if (c.backward) must = "a gradient overlaps a part";
        else if (memcmp(slot->stride, c.o_parts[part].stride, sizeof slot->stride) == 0) return;
        else if (block_may_overlap(&c.blocks[O_PARTS + part])) must = "o overlaps a part that broadcasts";
        else return;
        break;
    default:
        p.struct_size = (size_t)draw_hostile(d) | 1 << 22;
        must = "a struct of megabytes";
        break;
    }
    c.hostile = 1;
    /* Without channels only the rows of lse grow with a size, and the library would read them: no call. */
    for (int i = 0; i < 3; i++)
        if (p.dim_v == 0 && p.batch && p.heads && p.len_q && (&p.batch)[i] > (&c.problem.batch)[i]) {
            c.hostile = 0;
            place(0);
            return;
        }
    /* The library cannot know that a size exceeds the memory, so such sizes must be beyond 64 bits. */
    for (int i = 0; i < 4; i++)
        if ((&p.batch)[i] > (&c.problem.batch)[i] && !must) {
            for (int k = 0; k < 4; k++)
                if ((&p.batch)[k] == INT64_MAX) (&p.batch)[k] = INT64_MAX / 2;
            must = p.batch && p.heads && p.len_q && p.dim_v ? "sizes beyond 64 bits" : NULL;
        }
    if (run(&p, &c.options, 0x77) && must) finding("%s, but the call succeeds", must);
    c.hostile = 0;
    place(0);
}

/* ---- expected results ---- */

static void row(int64_t e, int64_t h, int64_t i)
{
    const int64_t parts = c.problem.parts, dim = c.problem.dim_v;
    const double unit =
        c.compute == ATTN_F64 ? 2 * block_unit(ATTN_F64) : block_unit(ATTN_F32); /* this check computes in double, too */
    const double terms = (double)parts + 8;
    double most = -INFINITY, sum = 0, lse, w[MAX_PARTS], loose[MAX_PARTS];
    for (int64_t p = 0; p < parts; p++) most = fmax(most, w[p] = block_get(&c.blocks[LSE_PARTS + p], e, h, i, 0));
    for (int64_t p = 0; p < parts; p++) sum += w[p] == -INFINITY ? 0 : exp(w[p] - most);
    lse = sum > 0 ? most + log(sum) : -INFINITY;
    /* A weight's error is the rounding of its exponent and of lse. */
    for (int64_t p = 0; p < parts; p++) {
        loose[p] = w[p] == -INFINITY ? 0 : terms + fabs(w[p] - lse) + fabs(lse);
        w[p] = w[p] == -INFINITY ? 0 : exp(w[p] - lse);
    }
    if (!c.backward) block_check(&c.blocks[WHOLE_LSE], e, h, i, 0, lse, unit * (terms + fabs(lse)));
    double dot[MAX_PARTS] = {0}, size[MAX_PARTS] = {0};
    for (int64_t x = 0; x < dim; x++) {
        double o = 0, bound = 0;
        for (int64_t p = 0; p < parts; p++) {
            const double part = w[p] == 0 ? 0 : block_get(&c.blocks[O_PARTS + p], e, h, i, x);
            o += w[p] * part, bound += unit * loose[p] * w[p] * fabs(part);
        }
        if (!c.backward) {
            block_check(&c.blocks[WHOLE], e, h, i, x, o, bound);
            continue;
        }
        const double grad = block_get(&c.blocks[WHOLE], e, h, i, x);
        for (int64_t p = 0; p < parts; p++) {
            const double part = w[p] == 0 ? 0 : block_get(&c.blocks[O_PARTS + p], e, h, i, x);
            dot[p] += grad * (part - o),
                size[p] += fabs(grad) * (fabs(part) + fabs(o)) * unit * (terms + (double)dim) + fabs(grad) * bound;
            block_check(&c.blocks[GRAD_O + p], e, h, i, x, w[p] * grad, unit * loose[p] * w[p] * fabs(grad));
        }
    }
    const double grad_lse = c.backward && c.blocks[WHOLE_LSE].name ? block_get(&c.blocks[WHOLE_LSE], e, h, i, 0) : 0;
    for (int64_t p = 0; c.backward && p < parts; p++)
        block_check(&c.blocks[GRAD_LSE + p], e, h, i, 0, w[p] * (dot[p] + grad_lse),
                    w[p] * (2 * size[p] + unit * loose[p] * (fabs(dot[p]) + fabs(grad_lse)) + 4 * unit * fabs(grad_lse)));
}

/* ---- checks ---- */

static void judge(void)
{
    draws *d = c.from;
    const attn_merge_problem *p = &c.problem;
    if (!run(p, &c.options, 0xA5)) finding("a valid call is rejected: %s", last.message);
    target_ran++;
    blocks_keep(c.blocks, BLOCKS);
    for (int64_t e = 0; !c.special && e < p->batch; e++)
        for (int64_t h = 0; h < p->heads; h++)
            for (int64_t i = 0; i < p->len_q; i++) row(e, h, i);
    attn_options other = c.options;
    for (other.threads = 1; other.threads <= 3; other.threads++)
        if (other.threads != c.options.threads) run_again(&other, 0x5A, "other threads");
    if (draw_one_in(d, 2)) reject();
    if (p->batch > 1) {
        const int64_t e = draw_below(d, p->batch);
        attn_merge_problem one = *p;
        one.batch = 1;
        place(e);
        if (!run(&one, &c.options, 0x3C)) finding("one entry: the same call is now rejected: %s", last.message);
        place(0);
        for (int t = 0; t < BLOCKS; t++) {
            const int64_t begin[4] = {e, 0, 0, 0}, end[4] = {e + 1, p->heads, p->len_q, c.blocks[t].shape[3]};
            if (c.blocks[t].output) block_compare_part(&c.blocks[t], begin, end, 0, "one entry");
        }
    }
    if (draw_one_in(d, 2)) {
        for (int t = 0; t < BLOCKS; t++) block_move(&c.blocks[t], 1 + (size_t)draw_below(d, 15));
        place(0);
        run_again(&c.options, 0x99, "other addresses");
    }
    /* o and lse written over a part. */
    const int part = (int)draw_below(d, p->parts);
    if (c.backward || block_may_overlap(&c.blocks[part]) || block_may_overlap(&c.blocks[LSE_PARTS + part])) return;
    c.tensors.o = block_out(&c.blocks[part]), c.tensors.lse = block_out(&c.blocks[LSE_PARTS + part]);
    if (!run(p, &c.options, 0x11)) finding("in place: the same call is now rejected: %s", last.message);
    for (int64_t e = 0; e < p->batch; e++)
        for (int64_t h = 0; h < p->heads; h++)
            for (int64_t i = 0; i < p->len_q; i++)
                for (int64_t x = 0; x < p->dim_v; x++) {
                    const unsigned char *was =
                        c.blocks[WHOLE].copy + (block_at(&c.blocks[WHOLE], e, h, i, x) - c.blocks[WHOLE].memory);
                    if (memcmp(block_at(&c.blocks[part], e, h, i, x), was, c.blocks[part].element) != 0 &&
                        !isnan(block_get(&c.blocks[part], e, h, i, x)))
                        finding("in place: o differs");
                }
}

void target_run(draws *from)
{
    memset(&c, 0, sizeof c);
    c.from = from;
    draw_case();
    target_drawn();
    judge();
    blocks_free(c.blocks, BLOCKS);
}
