/* SPDX-License-Identifier: MIT
 *
 * fuzz_analysis.c - fuzzes the analysis functions (target.h; calls.h): softmax with temperature, entropies and statistics of heads
 * against loops in long double; attention step by step, its gradients, and their check by differences. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attn/analysis.h"
#include "calls.h"

const char *const target_cases = "analyses";

enum { SOFTMAX, LOG_SOFTMAX, SWEEP, NUMBERS, JACOBIAN, JVP, HEAD_ENTROPY, DECOMPOSE, FLOW, VERIFY, KINDS };
enum { IN_1, IN_2, KEEP, Q, K, V, GRAD_O, O, OUT_1, OUT_2, OUT_3, OUT_4, OUT_5, BLOCKS };
enum { MAX_N = 40, MAX_ROWS = 8, NUMBERS_OF = 7 };

static struct {
    draws *from;
    int kind;
    int64_t n, rows, heads, most;
    double temperature, step;
    attn_problem problem, drawn;
    attn_options options;
    attn_tensors tensors;
    attn_gibbs gibbs, *gibbs_at;
    attn_steps steps;
    attn_flow flow;
    attn_verification found;
    block blocks[BLOCKS];
    double *p[BLOCKS];
    int64_t drawn_n, drawn_rows, drawn_heads, drawn_max;
    double drawn_temperature, drawn_step;
} c;

void target_print(void)
{
    const attn_shape *s = &c.problem.shape;
    fprintf(stderr,
            "kind %d n %" PRId64 " rows %" PRId64 " heads %" PRId64 " temperature %g  B %" PRId64 " H %" PRId64 " %" PRId64
            " S %" PRId64 " %" PRId64 " D %" PRId64 " %" PRId64 " causal %d softcap %g scale %g dropout %g step %g most %" PRId64
            " threads %d isa %d\n",
            c.kind, c.n, c.rows, c.heads, c.temperature, s->batch, s->heads_q, s->heads_kv, s->len_q, s->len_kv, s->dim_qk,
            s->dim_v, c.problem.mask.causal, c.problem.score.softcap, c.problem.score.scale, c.problem.dropout.probability, c.step,
            c.most, c.options.threads, (int)c.options.isa);
    blocks_print(c.blocks, BLOCKS);
}

static const unsigned char *kept(void) { return c.blocks[KEEP].name ? c.blocks[KEEP].memory + c.blocks[KEEP].first : NULL; }

/* Functions that return no status: one number each, into OUT_1. */
static void call_numbers(void)
{
    double *const *p = c.p, *const to = p[OUT_1];
    to[0] = attn_entropy(c.n, p[IN_1]), to[1] = attn_max_entropy(c.n), to[2] = attn_normalised_entropy(c.n, p[IN_1]);
    to[3] = attn_effective_states(c.n, p[IN_1]), to[4] = attn_kl_divergence(c.n, p[IN_1], p[IN_2]);
    to[5] = attn_mutual_information(c.rows * c.heads, c.n, p[IN_1]);
    to[6] = attn_head_diversity(c.heads, c.rows * c.n, p[IN_1]);
}

static attn_status call(attn_error *e)
{
    double *const *p = c.p;
    switch (c.kind) {
    case SOFTMAX:
        return attn_softmax(c.n, c.temperature, p[IN_1], kept(), p[OUT_1], c.gibbs_at, e);
    case LOG_SOFTMAX:
        return attn_log_softmax(c.n, c.temperature, p[IN_1], kept(), p[OUT_1], e);
    case SWEEP:
        return attn_temperature_sweep(c.n, c.rows, p[IN_1], p[IN_2], p[OUT_1], p[OUT_2], e);
    case NUMBERS:
        memset(e, 0, sizeof *e);
        call_numbers();
        return ATTN_OK;
    case JACOBIAN:
        return attn_softmax_jacobian(c.n, c.temperature, p[IN_1], p[OUT_3], e);
    case JVP:
        return attn_softmax_jvp(c.n, c.temperature, p[IN_1], p[IN_2], p[OUT_4], e);
    case HEAD_ENTROPY:
        return attn_head_entropy(c.heads, c.rows, c.n, p[IN_1], p[OUT_2], e);
    case DECOMPOSE:
        return attn_decompose(&c.problem, &c.tensors, &c.steps, &c.options, e);
    case FLOW:
        return attn_gradient_flow(&c.problem, &c.tensors, &c.flow, &c.options, e);
    default:
        return attn_verify_gradients(&c.problem, c.step, c.most, &c.tensors, &c.found, &c.options, e);
    }
}

static void place(void)
{
    double **const p = c.p;
    c.n = c.drawn_n, c.rows = c.drawn_rows, c.heads = c.drawn_heads, c.most = c.drawn_max;
    c.temperature = c.drawn_temperature, c.step = c.drawn_step;
    c.problem = c.drawn;
    for (int t = 0; t < BLOCKS; t++) p[t] = c.blocks[t].name ? (double *)(void *)(c.blocks[t].memory + c.blocks[t].first) : NULL;
    for (int t = 0; c.kind >= JACOBIAN && c.kind <= HEAD_ENTROPY && t < BLOCKS; t++)
        if (c.blocks[t].bytes == 0) p[t] = NULL; /* nothing to read or write */
    if (c.gibbs_at) c.gibbs = (attn_gibbs){.struct_size = sizeof c.gibbs};
    c.steps = (attn_steps){sizeof c.steps, p[OUT_1], p[OUT_2], p[OUT_3], p[OUT_4], p[OUT_5]};
    c.flow = (attn_flow){.struct_size = sizeof c.flow,
                         .grad_weights = p[OUT_1],
                         .grad_scores = p[OUT_2],
                         .grad_q = p[OUT_3],
                         .grad_k = p[OUT_4],
                         .grad_v = p[OUT_5]};
    c.found = (attn_verification){.struct_size = sizeof c.found};
    c.tensors = (attn_tensors){.struct_size = sizeof c.tensors,
                               .q = block_in(&c.blocks[Q]),
                               .k = block_in(&c.blocks[K]),
                               .v = block_in(&c.blocks[V]),
                               .o = block_out(&c.blocks[O]),
                               .grad_o = block_in(&c.blocks[GRAD_O])};
    if (c.kind == FLOW || c.kind == VERIFY) { /* dense: four strides of 0 */
        memset(c.tensors.q.stride, 0, sizeof c.tensors.q.stride), memset(c.tensors.k.stride, 0, sizeof c.tensors.k.stride);
        memset(c.tensors.v.stride, 0, sizeof c.tensors.v.stride), memset(c.tensors.o.stride, 0, sizeof c.tensors.o.stride);
        memset(c.tensors.grad_o.stride, 0, sizeof c.tensors.grad_o.stride);
    }
}

static const calls all = {c.blocks, BLOCKS, call, place};

/* ---- drawing ---- */

static void make(int at, const char *name, int64_t i0, int64_t i1, int64_t i2, int64_t i3, int strides)
{
    calls_make(&c.blocks[at], c.from, block_of(name, ATTN_F64, at >= O, i0, i1, i2, i3), strides);
    if (at < O) block_fill(&c.blocks[at], c.from, -1.5, 1.5, 0);
}

/* Scores of a softmax, often far from 0, where only their differences matter. */
static void draw_scores(void)
{
    static const double shifts[] = {0, 0, 100, -1000, 1e6, -1e10, 1e15}, temperatures[] = {1, 1, 0.1, 1e-3, 1e3, 1e-300, 1e300};
    const double shift = shifts[draw_below(c.from, 7)];
    c.drawn_temperature = draw_one_in(c.from, 2) ? draw_real(c.from, 0.05, 10) : temperatures[draw_below(c.from, 7)];
    make(IN_1, "scores", 1, 1, 1, c.drawn_n, CALLS_DENSE);
    for (int64_t j = 0; j < c.drawn_n; j++) block_put(&c.blocks[IN_1], 0, 0, 0, j, shift + draw_real(c.from, -30, 30));
    if (c.kind == SWEEP || draw_one_in(c.from, 2)) return;
    calls_make(&c.blocks[KEEP], c.from, block_of("keep", ATTN_BOOL, 0, 1, 1, 1, c.drawn_n), CALLS_DENSE);
    for (size_t j = 0; j < c.blocks[KEEP].bytes; j++)
        c.blocks[KEEP].memory[j] = (unsigned char)(draw_word(c.from) % 3 ? draw_word(c.from) : 0);
}

/* Rows of weights, some of them 0. */
static void draw_weights(int at, int64_t rows)
{
    make(at, "weights", 1, 1, rows, c.drawn_n, CALLS_DENSE);
    for (int64_t i = 0; i < rows; i++) {
        double sum = 0;
        for (int64_t j = 0; j < c.drawn_n; j++) {
            const double w = draw_one_in(c.from, 5) ? 0 : draw_real(c.from, 0, 1);
            block_put(&c.blocks[at], 0, 0, i, j, w), sum += w;
        }
        for (int64_t j = 0; sum > 0 && j < c.drawn_n; j++)
            block_put(&c.blocks[at], 0, 0, i, j, block_get(&c.blocks[at], 0, 0, i, j) / sum);
    }
}

static void draw_attention(void)
{
    draws *d = c.from;
    attn_shape *s = &c.drawn.shape;
    const int64_t group = 1 + draw_below(d, 2), pairs_at[] = {OUT_1, OUT_2, OUT_3};
    const int strides = c.kind == DECOMPOSE ? CALLS_ROWS : CALLS_DENSE;
    c.drawn = (attn_problem){.struct_size = sizeof c.drawn};
    s->batch = 1 + draw_below(d, 2), s->heads_kv = 1 + draw_below(d, 2), s->heads_q = group * s->heads_kv;
    s->len_q = 1 + draw_below(d, 7), s->len_kv = draw_below(d, 9), s->dim_qk = draw_below(d, 6), s->dim_v = draw_below(d, 6);
    if (c.kind != DECOMPOSE && s->len_kv == 0) s->len_kv = 1;
    c.drawn.mask.causal = draw_one_in(d, 2);
    if (draw_one_in(d, 3)) c.drawn.score.scale_kind = ATTN_SCALE_VALUE, c.drawn.score.scale = draw_real(d, -1, 1);
    if (draw_one_in(d, 4)) c.drawn.score.softcap = draw_real(d, 0.5, 4);
    if (c.kind == VERIFY && draw_one_in(d, 4)) c.drawn.dropout.probability = 0.3;
    make(Q, "q", s->batch, s->heads_q, s->len_q, s->dim_qk, strides),
        make(K, "k", s->batch, s->heads_kv, s->len_kv, s->dim_qk, strides);
    make(V, "v", s->batch, s->heads_kv, s->len_kv, s->dim_v, strides),
        make(O, "o", s->batch, s->heads_q, s->len_q, s->dim_v, strides);
    if (c.kind != DECOMPOSE && draw_one_in(d, 2)) make(GRAD_O, "grad_o", s->batch, s->heads_q, s->len_q, s->dim_v, CALLS_DENSE);
    for (int i = 0; i < (c.kind == DECOMPOSE ? 3 : c.kind == FLOW ? 2 : 0); i++)
        if (!draw_one_in(d, 3)) make((int)pairs_at[i], "pairs", s->batch, s->heads_q, s->len_q, s->len_kv, CALLS_DENSE);
    if (c.kind == DECOMPOSE) {
        if (!draw_one_in(d, 3)) make(OUT_4, "log_partition", s->batch, s->heads_q, s->len_q, 1, CALLS_DENSE);
        if (!draw_one_in(d, 3)) make(OUT_5, "partition", s->batch, s->heads_q, s->len_q, 1, CALLS_DENSE);
    }
    if (c.kind != FLOW) return;
    if (!draw_one_in(d, 3)) make(OUT_3, "grad_q", s->batch, s->heads_q, s->len_q, s->dim_qk, CALLS_DENSE);
    if (!draw_one_in(d, 3)) make(OUT_4, "grad_k", s->batch, s->heads_kv, s->len_kv, s->dim_qk, CALLS_DENSE);
    if (!draw_one_in(d, 3)) make(OUT_5, "grad_v", s->batch, s->heads_kv, s->len_kv, s->dim_v, CALLS_DENSE);
}

static void draw_case(void)
{
    draws *d = c.from;
    c.kind = (int)draw_below(d, KINDS), c.options = calls_options(d);
    c.drawn_n = draw_below(d, MAX_N), c.drawn_rows = draw_below(d, MAX_ROWS), c.drawn_heads = draw_below(d, 4);
    c.drawn_temperature = draw_real(d, 0.1, 4), c.drawn_step = draw_one_in(d, 2) ? 0 : draw_real(d, 1e-6, 1e-4),
    c.drawn_max = draw_below(d, 5);
    if (c.kind <= SWEEP) draw_scores();
    if (c.kind == SOFTMAX) c.gibbs_at = draw_one_in(d, 4) ? NULL : &c.gibbs;
    if (c.kind == LOG_SOFTMAX || (c.kind == SOFTMAX && !draw_one_in(d, 4))) make(OUT_1, "weights", 1, 1, 1, c.drawn_n, CALLS_DENSE);
    if (c.kind == SWEEP) {
        make(IN_2, "temperatures", 1, 1, 1, c.drawn_rows, CALLS_DENSE),
            make(OUT_1, "weights", 1, 1, c.drawn_rows, c.drawn_n, CALLS_DENSE);
        for (int64_t t = 0; t < c.drawn_rows; t++) block_put(&c.blocks[IN_2], 0, 0, 0, t, draw_real(d, 0.01, 10));
        if (!draw_one_in(d, 3)) make(OUT_2, "entropy", 1, 1, 1, c.drawn_rows, CALLS_DENSE);
    }
    if (c.kind >= NUMBERS && c.kind <= HEAD_ENTROPY) {
        /* all but HEAD_ENTROPY need a first row */
        if (c.kind != HEAD_ENTROPY && c.drawn_heads * c.drawn_rows == 0) c.drawn_heads = c.drawn_rows = 1;
        draw_weights(IN_1, c.drawn_heads * c.drawn_rows), draw_weights(IN_2, 1);
        if (c.kind == NUMBERS) make(OUT_1, "numbers", 1, 1, 1, NUMBERS_OF, CALLS_DENSE);
        if (c.kind == HEAD_ENTROPY) make(OUT_2, "head_entropy", 1, 1, 1, c.drawn_heads, CALLS_DENSE);
        if (c.kind == JACOBIAN) make(OUT_3, "jacobian", 1, 1, c.drawn_n, c.drawn_n, CALLS_DENSE);
        if (c.kind == JVP) make(OUT_4, "jvp", 1, 1, 1, c.drawn_n, CALLS_DENSE);
    }
    if (c.kind >= DECOMPOSE) draw_attention();
    place();
}

/* ---- expected results ---- */

typedef long double precise;

static int counts(int64_t j) { return !c.blocks[KEEP].name || block_get(&c.blocks[KEEP], 0, 0, 0, j) != 0; }

/* Checks one softmax; its weights are in row `row` of OUT_1. */
static void one_softmax(int64_t row, double T, const attn_gibbs *g)
{
    precise most = -INFINITY, sum = 0, mean = 0, entropy = 0, variance = 0;
    for (int64_t j = 0; j < c.n; j++)
        if (counts(j)) most = fmaxl(most, block_get(&c.blocks[IN_1], 0, 0, 0, j));
    for (int64_t j = 0; j < c.n; j++)
        if (counts(j)) sum += expl((block_get(&c.blocks[IN_1], 0, 0, 0, j) - most) / T);
    for (int64_t j = 0; j < c.n; j++) {
        const double s = c.n ? block_get(&c.blocks[IN_1], 0, 0, 0, j) : 0;
        const precise down = (s - most) / T, w = counts(j) ? expl(down) / sum : 0;
        const double loose = 64 * 0x1p-53 * (1 - (double)(down > -800 ? down : -800)) * (double)(c.n + 1);
        if (w > 0) mean += w * s, entropy -= w * logl(w);
        if (c.kind != LOG_SOFTMAX) block_check(&c.blocks[OUT_1], 0, 0, row, j, (double)w, loose * (double)w + 1e-300);
        else if (!counts(j)) block_check(&c.blocks[OUT_1], 0, 0, row, j, -INFINITY, 0);
        else
            block_check(&c.blocks[OUT_1], 0, 0, row, j, (double)(down - logl(sum)),
                        64 * 0x1p-53 * (1 + fabs((double)down)) * (double)(c.n + 1));
    }
    if (c.blocks[OUT_2].name) block_check(&c.blocks[OUT_2], 0, 0, 0, row, (double)entropy, 1e-12);
    if (!g) return;
    for (int64_t j = 0; j < c.n; j++) {
        const double s = block_get(&c.blocks[IN_1], 0, 0, 0, j);
        const precise w = counts(j) ? expl((s - most) / T) / sum : 0;
        if (w > 0) variance += w * (s - mean) * (s - mean);
    }
    const double size = sum > 0 ? fabs((double)most) + 60 : 0;
    const struct {
        const char *name;
        double got, exact, bound;
    } all_of[] = {
        {"entropy", g->entropy, (double)entropy, 1e-12},
        {"effective_states", g->effective_states, sum > 0 ? (double)expl(entropy) : 0, 1e-10},
        {"mean_energy", g->mean_energy, sum > 0 ? -(double)mean : 0, 1e-13 * size},
        {"free_energy", g->free_energy, sum > 0 ? (double)(-most - T * logl(sum)) : INFINITY, 1e-13 * (size + T * 8)},
        {"log_partition", g->log_partition, sum > 0 ? (double)(most / T + logl(sum)) : -INFINITY, 1e-13 * (size / T + 8)},
        {"heat_capacity", g->heat_capacity, (double)(variance / T / T), 1e-12 * (double)(variance / T / T) + 1e-13 * size / T / T}};
    for (size_t i = 0; i < sizeof all_of / sizeof *all_of; i++)
        if (!(all_of[i].got == all_of[i].exact || fabs(all_of[i].got - all_of[i].exact) <= all_of[i].bound))
            finding("%s is %.17g, not %.17g, bound %g", all_of[i].name, all_of[i].got, all_of[i].exact, all_of[i].bound);
}

static double entropy_of(const double *p, int64_t step, int64_t n)
{
    precise sum = 0;
    for (int64_t j = 0; j < n; j++)
        if (p[j * step] > 0) sum -= (precise)p[j * step] * logl(p[j * step]);
    return (double)sum;
}

static void by_numbers(void)
{
    const double *p = c.p[IN_1], *q = c.p[IN_2], entropy = entropy_of(p, 1, c.n), rows = (double)(c.rows * c.heads);
    double kl = 0, most = c.n > 1 ? log((double)c.n) : 0, mean[MAX_N] = {0}, of_rows = 0, alike = 0;
    for (int64_t j = 0; j < c.n; j++) {
        if (p[j] > 0) kl += q[j] > 0 ? p[j] * log(p[j] / q[j]) : INFINITY;
        for (int64_t i = 0; i < c.rows * c.heads; i++) mean[j] += p[i * c.n + j] / rows;
    }
    for (int64_t i = 0; i < c.rows * c.heads; i++) of_rows += entropy_of(p + i * c.n, 1, c.n) / rows;
    const int64_t all_n = c.rows * c.n;
    for (int64_t g = 0; g < c.heads; g++)
        for (int64_t h = 0; h < g; h++) {
            double ab = 0, aa = 0, bb = 0;
            for (int64_t k = 0; k < all_n; k++)
                ab += p[g * all_n + k] * p[h * all_n + k], aa += p[g * all_n + k] * p[g * all_n + k],
                    bb += p[h * all_n + k] * p[h * all_n + k];
            if (aa > 0 && bb > 0) alike += ab / sqrt(aa) / sqrt(bb);
        }
    const double pairs = (double)(c.heads * (c.heads - 1) / 2), exact[NUMBERS_OF] = {entropy,
                                                                                     most,
                                                                                     c.n > 1 ? entropy / most : 0,
                                                                                     exp(entropy),
                                                                                     kl,
                                                                                     entropy_of(mean, 1, c.n) - of_rows,
                                                                                     c.heads > 1 ? 1 - alike / pairs : 0};
    for (int i = 0; i < NUMBERS_OF; i++) block_check(&c.blocks[OUT_1], 0, 0, 0, i, exact[i], 1e-12 * (1 + fabs(exact[i])));
}

/* Checks the functions of given weights. */
static void check_given(void)
{
    const double *p = c.p[IN_1], *q = c.p[IN_2], T = c.temperature;
    double px = 0, size = 0, same[MAX_N];
    for (int64_t h = 0; c.kind == HEAD_ENTROPY && h < c.heads; h++) {
        double sum = 0;
        for (int64_t i = 0; i < c.rows && c.n > 0; i++) sum += entropy_of(p + (h * c.rows + i) * c.n, 1, c.n) / (double)c.rows;
        block_check(&c.blocks[OUT_2], 0, 0, 0, h, sum, 1e-12);
    }
    if (c.kind == HEAD_ENTROPY) return;
    for (int64_t j = 0; j < c.n; j++) px += p[j] * q[j], size += fabs(p[j] * q[j]), same[j] = q[j];
    for (int64_t j = 0; j < c.n; j++) {
        block_check(&c.blocks[OUT_4], 0, 0, 0, j, p[j] * (q[j] - px) / T, 1e-14 * p[j] * (fabs(q[j]) + size) / T);
        for (int64_t k = 0; k < c.n; k++) block_check(&c.blocks[OUT_3], 0, 0, j, k, p[j] * ((j == k) - p[k]) / T, 1e-15 * p[j] / T);
    }
    if (c.kind == JVP && attn_softmax_jvp(c.n, T, p, same, same, &calls_last)) finding("in place: %s", calls_last.message);
    for (int64_t j = 0; c.kind == JVP && j < c.n; j++)
        if (same[j] != block_get(&c.blocks[OUT_4], 0, 0, 0, j)) finding("in place: number %lld differs", (long long)j);
}

/* Checks every step of one query, from q to o. */
static void one_query(int64_t b, int64_t h, int64_t i, double *dk_norm)
{
    const attn_shape *s = &c.problem.shape;
    const attn_score *score = &c.problem.score;
    const int64_t g = h / (s->heads_q / s->heads_kv);
    const double scale = score->scale_kind ? score->scale : s->dim_qk ? 1 / sqrt((double)s->dim_qk) : 1;
    double w[16], slope[16], sum = 0, most = -INFINITY, delta = 0, dP[16];
    for (int64_t j = 0; j < s->len_kv; j++) {
        double raw = 0;
        for (int64_t x = 0; x < s->dim_qk; x++) raw += block_get(&c.blocks[Q], b, h, i, x) * block_get(&c.blocks[K], b, g, j, x);
        const int seen = !c.problem.mask.causal || j <= i;
        const double t = score->softcap > 0 ? tanh(scale * raw / score->softcap) : 0;
        w[j] = !seen ? -INFINITY : score->softcap > 0 ? score->softcap * t : scale * raw, slope[j] = scale * (1 - t * t);
        most = fmax(most, w[j]);
        if (c.kind == DECOMPOSE)
            block_check(&c.blocks[OUT_1], b, h, i, j, raw, 1e-13), block_check(&c.blocks[OUT_2], b, h, i, j, w[j], 1e-13);
    }
    for (int64_t j = 0; j < s->len_kv; j++) sum += most > -INFINITY ? exp(w[j] - most) : 0;
    const double lse = sum > 0 ? most + log(sum) : -INFINITY;
    for (int64_t j = 0; j < s->len_kv; j++) w[j] = sum > 0 ? exp(w[j] - lse) : 0;
    if (c.kind == DECOMPOSE)
        block_check(&c.blocks[OUT_4], b, h, i, 0, lse, 1e-13),
            block_check(&c.blocks[OUT_5], b, h, i, 0, exp(lse), 1e-12 * exp(lse));
    for (int64_t x = 0; x < s->dim_v; x++) {
        double o = 0;
        for (int64_t j = 0; j < s->len_kv; j++) o += w[j] * block_get(&c.blocks[V], b, g, j, x);
        block_check(&c.blocks[O], b, h, i, x, o, 1e-13);
    }
    for (int64_t j = 0; j < s->len_kv; j++) {
        if (c.kind == DECOMPOSE) block_check(&c.blocks[OUT_3], b, h, i, j, w[j], 1e-13);
        dP[j] = 0;
        for (int64_t x = 0; x < s->dim_v; x++)
            dP[j] += block_get(&c.blocks[c.blocks[GRAD_O].name ? GRAD_O : O], b, h, i, x) * block_get(&c.blocks[V], b, g, j, x);
        delta += w[j] * dP[j];
    }
    for (int64_t j = 0; c.kind == FLOW && j < s->len_kv; j++) {
        const int seen = !c.problem.mask.causal || j <= i;
        block_check(&c.blocks[OUT_1], b, h, i, j, seen ? dP[j] : 0, 1e-12),
            block_check(&c.blocks[OUT_2], b, h, i, j, w[j] * (dP[j] - delta), 1e-12);
        *dk_norm += w[j] * w[j] * (dP[j] - delta) * (dP[j] - delta);
    }
    for (int64_t x = 0; c.kind == FLOW && x < s->dim_qk; x++) {
        double dq = 0;
        for (int64_t j = 0; j < s->len_kv; j++) dq += w[j] * (dP[j] - delta) * slope[j] * block_get(&c.blocks[K], b, g, j, x);
        block_check(&c.blocks[OUT_3], b, h, i, x, dq, 1e-12);
    }
}

static void by_attention(void)
{
    const attn_shape *s = &c.problem.shape;
    double square = 0;
    for (int64_t b = 0; b < s->batch; b++)
        for (int64_t h = 0; h < s->heads_q; h++)
            for (int64_t i = 0; i < s->len_q; i++) one_query(b, h, i, &square);
    if (c.kind == FLOW && !(fabs(c.flow.norm_grad_scores - sqrt(square)) <= 1e-11 * (1 + sqrt(square))))
        finding("norm_grad_scores is %.17g, not %.17g", c.flow.norm_grad_scores, sqrt(square));
}

static void by_differences(void)
{
    const attn_shape *s = &c.problem.shape;
    const int64_t sizes[] = {s->batch * s->heads_q * s->len_q * s->dim_qk, s->batch * s->heads_kv * s->len_kv * s->dim_qk,
                             s->batch * s->heads_kv * s->len_kv * s->dim_v};
    int64_t checked = 0;
    for (int i = 0; i < 3; i++) checked += c.most > 0 && c.most < sizes[i] ? c.most : sizes[i];
    if (c.found.checked != checked) finding("%lld elements are checked, not %lld", (long long)c.found.checked, (long long)checked);
    if (!c.found.correct) finding("gradients are off by %g, limit %g", c.found.max_error, c.found.limit);
}

static void by_definition(void)
{
    if (c.kind == SOFTMAX || c.kind == LOG_SOFTMAX) one_softmax(0, c.temperature, c.gibbs_at);
    for (int64_t t = 0; c.kind == SWEEP && t < c.rows; t++) one_softmax(t, block_get(&c.blocks[IN_2], 0, 0, 0, t), NULL);
    if (c.kind == NUMBERS) by_numbers();
    if (c.kind >= JACOBIAN && c.kind <= HEAD_ENTROPY) check_given();
    if (c.kind == DECOMPOSE || c.kind == FLOW) by_attention();
    if (c.kind == VERIFY) by_differences();
}

/* ---- invalid calls ---- */

static const char *corrupt_softmax(void)
{
    static const double bad[] = {0, -1, NAN, INFINITY};
    draws *d = c.from;
    switch (draw_below(d, 4)) {
    case 0:
        *(c.kind == SWEEP && draw_one_in(d, 2) ? &c.rows : &c.n) = -1 - draw_below(d, 9);
        return c.kind == SWEEP && c.rows == 0 ? NULL : "a negative size";
    case 1:
        if (c.kind == SWEEP && c.rows == 0) return NULL;
        if (c.kind == SWEEP) block_put(&c.blocks[IN_2], 0, 0, 0, c.rows - 1, bad[draw_below(d, 4)]);
        else c.temperature = bad[draw_below(d, 4)];
        return "an invalid temperature";
    case 2:
        if (!c.gibbs_at) return NULL;
        c.gibbs.struct_size = (size_t)draw_hostile(d) | 1 << 22;
        return "a struct of megabytes";
    default:
        if (c.n == 0 || (c.kind == SWEEP && c.rows == 0)) return NULL;
        c.p[IN_1] = NULL;
        return "no scores";
    }
}

/* For the functions of given weights; NULL is rejected if something is read or written there. */
static const char *corrupt_given(void)
{
    static const double bad[] = {0, -1, NAN, INFINITY, -INFINITY};
    draws *d = c.from;
    int64_t *const sizes[] = {&c.n, &c.heads, &c.rows};
    const int heads = c.kind == HEAD_ENTROPY, at = (int)draw_below(d, 4);
    static const int out[] = {OUT_3, OUT_4, OUT_2};
    if (at == 0) return *sizes[draw_below(d, heads ? 3 : 1)] = -1 - draw_below(d, 9), "a negative size";
    if (at == 1 && !heads) return c.temperature = bad[draw_below(d, 5)], "an invalid temperature";
    const int no = at == 2 ? (c.kind == JVP && draw_one_in(d, 2) ? IN_2 : IN_1) : out[c.kind - JACOBIAN];
    if (!c.p[no]) return NULL;
    c.p[no] = NULL;
    return "NULL";
}

static const char *corrupt_attention(void)
{
    draws *d = c.from;
    size_t *const sizes[] = {&c.steps.struct_size, &c.flow.struct_size, &c.found.struct_size};
    switch (draw_below(d, 6)) {
    case 0:
        *sizes[c.kind - DECOMPOSE] = (size_t)draw_hostile(d) | 1 << 22;
        return "a struct of megabytes";
    case 1:
        c.problem.op = ATTN_BACKWARD;
        return "another operation";
    case 2:
        c.tensors.q.dtype = ATTN_F32;
        return "another type";
    case 3:
        if (c.kind == VERIFY) return c.step = draw_one_in(d, 2) ? -1 : NAN, "an invalid step";
        if (c.kind == FLOW) return c.problem.dropout.probability = 0.5, "dropout";
        return NULL;
    case 4:
        if (c.kind == VERIFY) return c.most = -1 - draw_below(d, 9), "a negative number of elements";
        return calls_corrupt_input(&c.tensors.k, &c.blocks[K], d, 1);
    default:
        return calls_corrupt(&c.tensors.o, &c.blocks[O], d, 1, &c.blocks[V]);
    }
}

static void reject(void)
{
    if (c.kind == NUMBERS) return;
    calls_rejected(&all, c.kind <= SWEEP ? corrupt_softmax() : c.kind <= HEAD_ENTROPY ? corrupt_given() : corrupt_attention());
}

void target_run(draws *from)
{
    memset(&c, 0, sizeof c);
    c.from = from;
    draw_case();
    target_drawn();
    calls_first(&all);
    by_definition();
    calls_vary(&all, from, c.kind >= DECOMPOSE ? &c.options : NULL, 1, reject);
    blocks_free(c.blocks, BLOCKS);
}
