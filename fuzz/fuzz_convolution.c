/* SPDX-License-Identifier: MIT
 *
 * fuzz_convolution.c - fuzzes attn_convolution (target.h; calls.h): dense and ragged batches, states in slots, snapshots and
 * gradients, against ref/ within the bound of tests/linear/test_convolution.c. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attn/convolution.h"
#include "attn_ref.h"
#include "calls.h"

const char *const target_cases = "convolutions";

/* The order of the slots. */
enum { X, Y, WEIGHT, BIAS, INITIAL, FINAL, STARTS, FROM, TO, DY, DFINAL, DX, DWEIGHT, DBIAS, DINITIAL, BLOCKS };
enum { MOST_SEQUENCES = 5 };

static struct {
    draws *from;
    attn_convolution_problem problem, drawn;
    attn_convolution_tensors tensors;
    attn_options options;
    block blocks[BLOCKS];
    block pool; /* of final states, whose rows are not all written, so that it is not one of the blocks above */
    int64_t starts[MOST_SEQUENCES + 1]; /* dense: of the entries, one after the other */
    int special;
} c;

void target_print(void)
{
    const attn_convolution_problem *p = &c.problem;
    fprintf(stderr,
            "op %d width %d silu %d batch %" PRId64 " len %" PRId64 " channels %" PRId64 " pool %" PRId64 " snapshots %" PRId64
            " special %d\n",
            (int)p->op, p->width, p->silu, p->batch, p->len, p->channels, p->pool, p->snapshots, c.special);
    blocks_print(c.blocks, BLOCKS);
}

static attn_status call(attn_error *error) { return attn_convolution(&c.problem, &c.tensors, &c.options, error); }

static attn_output *slot_of(int at)
{
    return (attn_output *)(void *)((char *)&c.tensors + offsetof(attn_convolution_tensors, x)) + at;
}

static void place(void)
{
    c.problem = c.drawn;
    c.tensors = (attn_convolution_tensors){.struct_size = sizeof c.tensors};
    for (int at = 0; at < BLOCKS; at++) {
        const attn_output slot = block_out(&c.blocks[at]);
        memcpy(slot_of(at), &slot, sizeof slot);
    }
    if (c.pool.name) c.tensors.final_state = block_out(&c.pool);
}

static const calls all = {c.blocks, BLOCKS, call, place};

/* ---- drawing ---- */

static void make(int at, const char *name, int output, attn_dtype dtype, int strides, int64_t i0, int64_t i2, int64_t i3)
{
    calls_make(&c.blocks[at], c.from, block_of(name, dtype, output, i0, 1, i2, i3), strides);
    if (!output) block_fill(&c.blocks[at], c.from, -2, 2, c.special);
}

/* A list of rows, none of them twice, with some of -1. */
static void make_list(int at, const char *name, int64_t columns, int64_t first)
{
    const attn_convolution_problem *p = &c.drawn;
    const attn_dtype dtype = draw_one_in(c.from, 2) ? ATTN_I32 : ATTN_I64;
    calls_make(&c.blocks[at], c.from, block_of(name, dtype, 0, p->batch, 1, 1, columns), CALLS_DENSE);
    for (int64_t i = 0; i < p->batch * columns; i++)
        block_put(&c.blocks[at], i / columns, 0, 0, i % columns, draw_one_in(c.from, 5) ? -1 : (double)(first + i));
}

static void draw_lists(void)
{
    attn_convolution_problem *p = &c.drawn;
    p->snapshots = draw_below(c.from, 4);
    const int64_t columns = p->snapshots > 1 ? p->snapshots : 1, states = p->width - 1;
    p->pool = p->batch * (columns + 1) + draw_below(c.from, 3);
    const attn_dtype dtype = c.blocks[X].dtype;
    make(INITIAL, "initial_state", 0, dtype, CALLS_ROWS, p->pool, states, p->channels);
    calls_make(&c.pool, c.from, block_of("final_state", dtype, 1, p->pool, 1, states, p->channels), CALLS_ROWS);
    make_list(FROM, "initial_slots", 1, 0);
    make_list(TO, "final_slots", columns, p->batch);
}

static void draw_backward(attn_dtype dtype, int strides, int64_t entries, int64_t rows)
{
    const attn_convolution_problem *p = &c.drawn;
    const int64_t states = p->width - 1;
    make(DY, "grad_y", 0, dtype, strides, entries, rows, p->channels);
    make(DX, "grad_x", 1, dtype, strides, entries, rows, p->channels);
    make(DWEIGHT, "grad_weight", 1, c.blocks[WEIGHT].dtype, CALLS_ROWS, 1, p->width, p->channels);
    if (c.blocks[BIAS].name) make(DBIAS, "grad_bias", 1, c.blocks[BIAS].dtype, CALLS_ROWS, 1, 1, p->channels);
    if (c.blocks[INITIAL].name) make(DINITIAL, "grad_initial_state", 1, dtype, CALLS_ROWS, p->batch, states, p->channels);
    if (draw_one_in(c.from, 2)) make(DFINAL, "grad_final_state", 0, dtype, CALLS_ROWS, p->batch, states, p->channels);
}

static void draw_case(void)
{
    static const attn_dtype types[] = {ATTN_F32, ATTN_F64, ATTN_F16, ATTN_BF16};
    draws *d = c.from;
    attn_convolution_problem *p = &c.drawn;
    *p = (attn_convolution_problem){.struct_size = sizeof *p, .op = draw_one_in(d, 3) ? ATTN_BACKWARD : ATTN_FORWARD};
    p->width = 2 + (int)draw_below(d, 3), p->silu = draw_one_in(d, 2);
    p->batch = draw_below(d, MOST_SEQUENCES + 1), p->channels = draw_one_in(d, 4) ? draw_below(d, 600) : draw_below(d, 40);
    const int64_t most = draw_one_in(d, 3) ? 70 : 6;
    const attn_dtype dtype = types[draw_below(d, 4)];
    const int ragged = draw_one_in(d, 2), strides = ragged ? CALLS_DENSE : CALLS_ROWS;
    p->len = draw_below(d, most);
    for (int64_t b = 0; b < p->batch; b++) c.starts[b + 1] = c.starts[b] + (ragged ? draw_below(d, p->len + 1) : p->len);
    const int64_t entries = ragged ? 1 : p->batch, rows = ragged ? c.starts[p->batch] : p->len;
    make(X, "x", 0, dtype, strides, entries, rows, p->channels);
    make(WEIGHT, "weight", 0, types[draw_below(d, 4)], CALLS_ROWS, 1, p->width, p->channels);
    if (draw_one_in(d, 2)) make(BIAS, "bias", 0, types[draw_below(d, 4)], CALLS_ROWS, 1, 1, p->channels);
    if (ragged) {
        calls_make(&c.blocks[STARTS], d, block_of("cu_seqlens", ATTN_I64, 0, p->batch + 1, 1, 1, 1), CALLS_DENSE);
        for (int64_t b = 0; b <= p->batch; b++) block_put(&c.blocks[STARTS], b, 0, 0, 0, (double)c.starts[b]);
    }
    if (p->op == ATTN_FORWARD) {
        make(Y, "y", 1, dtype, strides, entries, rows, p->channels);
        if (draw_one_in(d, 2)) {
            draw_lists();
        } else if (draw_one_in(d, 2)) {
            make(INITIAL, "initial_state", 0, dtype, CALLS_ROWS, p->batch, p->width - 1, p->channels);
            make(FINAL, "final_state", 1, dtype, CALLS_ROWS, p->batch, p->width - 1, p->channels);
        }
    } else {
        if (draw_one_in(d, 2)) make(INITIAL, "initial_state", 0, dtype, CALLS_ROWS, p->batch, p->width - 1, p->channels);
        draw_backward(dtype, strides, entries, rows);
    }
    place();
}

/* ---- expected results ---- */

static double *numbers(int64_t count)
{
    double *made = calloc((size_t)count + 1, sizeof *made);
    if (!made) abort();
    return made;
}

/* Token t of sequence b in a block of tokens. */
static double token_of(const block *from, int64_t b, int64_t t, int64_t k)
{
    return c.blocks[STARTS].name ? block_get(from, 0, 0, c.starts[b] + t, k) : block_get(from, b, 0, t, k);
}

typedef struct sequence {
    ref_convolution r, absolute;
    double *own[8];
} sequence;

static sequence sequence_of(int64_t b)
{
    const attn_convolution_problem *p = &c.drawn;
    const int64_t L = c.starts[b + 1] - c.starts[b], C = p->channels, W = p->width;
    const int64_t row = !c.blocks[INITIAL].name ? -1 : c.blocks[FROM].name ? (int64_t)block_get(&c.blocks[FROM], b, 0, 0, 0) : b;
    sequence s = {.own = {numbers(L * C), numbers(W * C), numbers(C), numbers(W * C), numbers(L * C), numbers(W * C), numbers(C),
                          numbers(W * C)}};
    for (int64_t k = 0; k < C; k++) {
        for (int64_t t = 0; t < L; t++) s.own[0][t * C + k] = token_of(&c.blocks[X], b, t, k);
        for (int64_t i = 0; i < W; i++) s.own[1][i * C + k] = block_get(&c.blocks[WEIGHT], 0, 0, i, k);
        if (c.blocks[BIAS].name) s.own[2][k] = block_get(&c.blocks[BIAS], 0, 0, 0, k);
        for (int64_t i = 0; row >= 0 && i < W - 1; i++) s.own[3][i * C + k] = block_get(&c.blocks[INITIAL], row, 0, i, k);
    }
    for (int n = 0; n < 4; n++)
        for (int64_t i = 0; i < (n == 0 ? L * C : n == 2 ? C : W * C); i++) s.own[4 + n][i] = fabs(s.own[n][i]);
    s.r = (ref_convolution){
        .L = L, .C = C, .W = W, .silu = p->silu, .x = s.own[0], .weight = s.own[1], .bias = s.own[2], .before = s.own[3]};
    s.absolute = s.r;
    s.absolute.absolute = 1;
    s.absolute.x = s.own[4], s.absolute.weight = s.own[5], s.absolute.bias = s.own[6], s.absolute.before = s.own[7];
    return s;
}

static void sequence_free(sequence *s)
{
    for (int n = 0; n < 8; n++) free(s->own[n]);
}

static double unit(void) { return c.blocks[X].dtype == ATTN_F64 ? 0x1p-53 : 0x1p-24; }

static void check_tokens(int at, int64_t b, const sequence *s, const double *exact, const double *sums)
{
    const block *to = &c.blocks[at];
    for (int64_t t = 0; t < s->r.L; t++)
        for (int64_t k = 0; k < s->r.C; k++) {
            const double bound = 90 * unit() * sums[t * s->r.C + k];
            if (c.blocks[STARTS].name) block_check(to, 0, 0, c.starts[b] + t, k, exact[t * s->r.C + k], bound);
            else block_check(to, b, 0, t, k, exact[t * s->r.C + k], bound);
        }
}

static void check_forward(int64_t b, const sequence *s)
{
    const attn_convolution_problem *p = &c.drawn;
    const int64_t L = s->r.L, C = s->r.C, columns = p->snapshots > 1 ? p->snapshots : 1;
    double *y = numbers(L * C), *after = numbers(4 * C), *sums = numbers(L * C);
    ref_convolution_forward(&s->absolute, sums, after);
    ref_convolution_forward(&s->r, y, after);
    check_tokens(Y, b, s, y, sums);
    const block *final = c.pool.name ? &c.pool : &c.blocks[FINAL];
    for (int64_t j = 0; final->name && j < columns && j <= L; j++) {
        const int64_t row = c.blocks[TO].name ? (int64_t)block_get(&c.blocks[TO], b, 0, 0, j) : b;
        ref_convolution shorter = s->r;
        shorter.L = L - j;
        ref_convolution_forward(&shorter, y, after);
        for (int64_t i = 0; row >= 0 && i < p->width - 1; i++)
            for (int64_t k = 0; k < C; k++) block_check(final, row, 0, i, k, after[i * C + k], 0);
    }
    free(y), free(after), free(sums);
}

static void check_backward(int64_t b, const sequence *s, double *const totals[4])
{
    const int64_t L = s->r.L, C = s->r.C, before = s->r.W - 1;
    double *dy = numbers(L * C), *dafter = numbers(4 * C), *dx = numbers(L * C), *dbefore = numbers(4 * C), *sums = numbers(L * C),
           *sums_before = numbers(4 * C);
    for (int64_t k = 0; k < C; k++) {
        for (int64_t t = 0; t < L; t++) dy[t * C + k] = token_of(&c.blocks[DY], b, t, k);
        for (int64_t i = 0; c.blocks[DFINAL].name && i < before; i++) dafter[i * C + k] = block_get(&c.blocks[DFINAL], b, 0, i, k);
    }
    ref_convolution_backward(&s->r, dy, dafter, dx, dbefore, totals[0], totals[1]);
    for (int64_t i = 0; i < L * C; i++) dy[i] = fabs(dy[i]);
    for (int64_t i = 0; i < 4 * C; i++) dafter[i] = fabs(dafter[i]);
    ref_convolution_backward(&s->absolute, dy, dafter, sums, sums_before, totals[2], totals[3]);
    check_tokens(DX, b, s, dx, sums);
    for (int64_t i = 0; c.blocks[DINITIAL].name && i < before; i++)
        for (int64_t k = 0; k < C; k++)
            block_check(&c.blocks[DINITIAL], b, 0, i, k, dbefore[i * C + k], 90 * unit() * sums_before[i * C + k]);
    free(dy), free(dafter), free(dx), free(dbefore), free(sums), free(sums_before);
}

static void check(void)
{
    const attn_convolution_problem *p = &c.drawn;
    const int64_t C = p->channels;
    double *const totals[4] = {numbers(4 * C), numbers(C), numbers(4 * C), numbers(C)};
    for (int64_t b = 0; b < p->batch; b++) {
        sequence s = sequence_of(b);
        if (p->op == ATTN_FORWARD) check_forward(b, &s);
        else check_backward(b, &s, totals);
        sequence_free(&s);
    }
    const double terms = (90 + (double)c.starts[p->batch]) * unit();
    for (int64_t k = 0; p->op == ATTN_BACKWARD && k < C; k++) {
        for (int64_t i = 0; i < p->width; i++)
            block_check(&c.blocks[DWEIGHT], 0, 0, i, k, totals[0][i * C + k], terms * totals[2][i * C + k]);
        block_check(&c.blocks[DBIAS], 0, 0, 0, k, totals[1][k], terms * totals[3][k]);
    }
    for (int n = 0; n < 4; n++) free(totals[n]);
}

/* ---- invalid calls ---- */

static void reject(void)
{
    draws *d = c.from;
    const char *must = NULL;
    const int at = (int)draw_below(d, BLOCKS);
    switch (draw_below(d, 5)) {
    case 0:
        c.problem.width = draw_one_in(d, 2) ? 1 : 5, must = "a width that does not exist";
        break;
    case 1:
        (&c.problem.batch)[draw_below(d, 3)] = calls_bad_size(d), must = "a bad size";
        break;
    case 2:
        if (!c.blocks[STARTS].name || c.drawn.batch == 0) return;
        c.problem.len = -1, must = "a negative length";
        break;
    default:
        if (!c.blocks[at].name) return;
        must = calls_corrupt(slot_of(at), &c.blocks[at], d,
                             at == X || at == Y || at == WEIGHT || at == DY || at == DX || at == DWEIGHT,
                             at == STARTS || at == FROM || at == TO || at == X ? NULL : &c.blocks[X]);
        if (!must && (at == STARTS || at == FROM || at == TO)) return place(); /* without it, other tensors are larger */
        break;
    }
    calls_rejected(&all, must);
}

void target_run(draws *d)
{
    memset(&c, 0, sizeof c);
    c.from = d;
    c.options = calls_options(d);
    c.special = draw_one_in(d, 8);
    draw_case();
    target_drawn();
    calls_first(&all);
    if (!c.special) check();
    calls_vary(&all, d, &c.options, 1, reject);
    blocks_free(c.blocks, BLOCKS);
    block_free(&c.pool);
}
