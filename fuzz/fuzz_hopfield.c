/* SPDX-License-Identifier: MIT
 *
 * fuzz_hopfield.c - fuzzes associative memory (target.h; calls.h): updates with their gradient, the classical network and the
 * energy along an axis against loops in double; retrieval and basins against repeated updates. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attn/hopfield.h"
#include "attn/linear.h"
#include "attn_ref.h"
#include "calls.h"

const char *const target_cases = "calls of memories";

enum { UPDATE, BACKWARD, RETRIEVE, CLASSICAL, SEPARATION, LANDSCAPE, BASIN, KINDS };
/* STATES to ENERGIES are in the order of the slots. */
enum { STATES, UPDATED, ENERGY, GRAD_UPDATED, GRAD_ENERGY, GRAD_STATES, GRAD_PATTERNS, ITERATIONS, ENERGIES, SLOTS };
enum { PATTERNS = SLOTS, AT, LEVEL, ONE, BLOCKS };
enum { MAX_STORED = 20, MAX_DIM = 40, MAX_COUNT = 12 };

static struct {
    draws *from;
    int kind, special, signs, implied;
    attn_hopfield memory, drawn;
    attn_options options;
    attn_hopfield_order order;
    int64_t count, most, axis, index;
    double tolerance, low, high, noise;
    uint64_t seed;
    attn_hopfield_tensors tensors;
    block blocks[BLOCKS];
    double *at, *level, *one;
    struct {
        int64_t count, most, axis, index;
        double tolerance, low, high, noise;
    } was;
} c;

void target_print(void)
{
    fprintf(stderr,
            "kind %d %s stored %" PRId64 " dim %" PRId64 " beta %g count %" PRId64 " most %" PRId64
            " tolerance %g order %d axis %" PRId64 " from %g to %g index %" PRId64
            " noise %g threads %d isa %d special %d signs %d\n",
            c.kind, attn_dtype_name(c.memory.dtype), c.memory.stored, c.memory.dim, c.memory.beta, c.count, c.most, c.tolerance,
            (int)c.order, c.axis, c.low, c.high, c.index, c.noise, c.options.threads, (int)c.options.isa, c.special, c.signs);
    blocks_print(c.blocks, BLOCKS);
}

static attn_status call(attn_error *error)
{
    switch (c.kind) {
    case UPDATE:
        return attn_hopfield_update(&c.memory, c.count, &c.tensors, error);
    case BACKWARD:
        return attn_hopfield_update_backward(&c.memory, c.count, &c.tensors, error);
    case RETRIEVE:
        return attn_hopfield_retrieve(&c.memory, c.count, c.most, c.tolerance, &c.tensors, error);
    case CLASSICAL:
        return attn_hopfield_classical(&c.memory, c.order, c.count, &c.tensors, error);
    case SEPARATION:
        return attn_hopfield_separation(&c.memory, c.one, error);
    case LANDSCAPE:
        return attn_hopfield_landscape(&c.memory, c.axis, c.count, c.low, c.high, c.at, c.level, error);
    default:
        return attn_hopfield_basin(&c.memory, c.index, c.count, c.noise, c.seed, c.most, c.tolerance, c.one, error);
    }
}

static attn_output *slot_of(int at)
{
    return (attn_output *)(void *)((char *)&c.tensors + offsetof(attn_hopfield_tensors, states)) + at;
}

static double *numbers(int at) { return c.blocks[at].name ? (double *)(void *)(c.blocks[at].memory + c.blocks[at].first) : NULL; }

static void place(void)
{
    c.memory = c.drawn;
    c.count = c.was.count, c.most = c.was.most, c.axis = c.was.axis, c.index = c.was.index;
    c.tolerance = c.was.tolerance, c.low = c.was.low, c.high = c.was.high, c.noise = c.was.noise;
    c.memory.patterns = block_in(&c.blocks[PATTERNS]);
    if (c.implied) memset(c.memory.patterns.stride, 0, sizeof c.memory.patterns.stride);
    c.tensors = (attn_hopfield_tensors){.struct_size = sizeof c.tensors};
    for (int at = 0; at < SLOTS; at++) {
        attn_output slot = block_out(&c.blocks[at]);
        if (c.implied) memset(slot.stride, 0, sizeof slot.stride);
        memcpy(slot_of(at), &slot, sizeof slot);
    }
    c.at = numbers(AT), c.level = numbers(LEVEL), c.one = numbers(ONE);
}

static const calls all = {c.blocks, BLOCKS, call, place};

/* ---- drawing ---- */

static void make(int at, const char *name, attn_dtype dtype, int output, int64_t rows, int64_t columns)
{
    block *b = &c.blocks[at];
    calls_make(b, c.from, block_of(name, dtype, output, 1, 1, rows, columns), CALLS_DENSE);
    if (output) return;
    block_fill(b, c.from, -1, 1, c.special);
    for (int64_t i = 0; c.signs && i < rows; i++)
        for (int64_t k = 0; k < columns; k++) block_put(b, 0, 0, i, k, block_get(b, 0, 0, i, k) < 0 ? -1 : 1);
}

static void draw_case(void)
{
    draws *d = c.from;
    c.kind = (int)draw_below(d, KINDS);
    c.special = c.kind != BASIN && c.kind != CLASSICAL && draw_one_in(d, 10);
    c.signs = c.kind == CLASSICAL ? !draw_one_in(d, 3) : draw_one_in(d, 4);
    c.implied = draw_one_in(d, 2), c.options = calls_options(d), c.order = (attn_hopfield_order)draw_below(d, 2);
    attn_hopfield *m = &c.drawn;
    *m = (attn_hopfield){.struct_size = sizeof *m, .dtype = draw_one_in(d, 2) ? ATTN_F64 : ATTN_F32};
    m->stored = 1 + draw_below(d, MAX_STORED), m->dim = 1 + draw_below(d, draw_one_in(d, 3) ? MAX_DIM : 9);
    if (!draw_one_in(d, 3)) m->beta = draw_real(d, 0.1, 8);
    m->options = draw_one_in(d, 8) ? NULL : &c.options;
    c.was.count = c.kind == LANDSCAPE ? 2 + draw_below(d, 12)
                  : c.kind == BASIN   ? 1 + draw_below(d, MAX_COUNT)
                                      : draw_below(d, MAX_COUNT);
    c.was.most = draw_below(d, 9), c.was.tolerance = draw_one_in(d, 3) ? 0 : draw_real(d, 1e-7, 0.3);
    c.was.axis = draw_below(d, m->dim), c.was.index = draw_below(d, m->stored), c.was.noise = draw_real(d, 0, 2),
    c.seed = draw_word(d);
    c.was.low = draw_real(d, -3, 3), c.was.high = draw_real(d, -3, 3);
    const int64_t n = c.was.count;
    make(PATTERNS, "patterns", m->dtype, 0, m->stored, m->dim);
    if (c.kind <= CLASSICAL) make(STATES, "states", m->dtype, 0, n, m->dim);
    if (c.kind == RETRIEVE || ((c.kind == UPDATE || c.kind == CLASSICAL) && !draw_one_in(d, 4)))
        make(UPDATED, "updated", m->dtype, 1, n, m->dim);
    if ((c.kind == UPDATE || c.kind == CLASSICAL) && !draw_one_in(d, 3)) make(ENERGY, "energy", m->dtype, 1, n, 1);
    if (c.kind == RETRIEVE && !draw_one_in(d, 3)) make(ITERATIONS, "iterations", ATTN_I64, 1, n, 1);
    if (c.kind == RETRIEVE && !draw_one_in(d, 3)) make(ENERGIES, "energies", ATTN_F64, 1, n, c.was.most + 1);
    if (c.kind == BACKWARD) {
        if (!draw_one_in(d, 4)) make(GRAD_UPDATED, "grad_updated", m->dtype, 0, n, m->dim);
        if (!draw_one_in(d, 4)) make(GRAD_ENERGY, "grad_energy", m->dtype, 0, n, 1);
        if (!draw_one_in(d, 4)) make(GRAD_STATES, "grad_states", m->dtype, 1, n, m->dim);
        if (!draw_one_in(d, 4)) make(GRAD_PATTERNS, "grad_patterns", m->dtype, 1, m->stored, m->dim);
    }
    if (c.kind == SEPARATION || c.kind == BASIN) make(ONE, "number", ATTN_F64, 1, 1, 1);
    if (c.kind == LANDSCAPE) make(AT, "x", ATTN_F64, 1, 1, n), make(LEVEL, "energy", ATTN_F64, 1, 1, n);
    place();
}

/* ---- expected results ---- */

static double X[MAX_STORED * MAX_DIM];

/* The error bound of a score of state x, and of sums with such weights. */
static double unit(void) { return block_unit(c.memory.dtype) * (double)(c.memory.dim + c.memory.stored + 16); }
static double beta(void) { return c.memory.beta > 0 ? c.memory.beta : 1; }

static double lost_score(const double *x)
{
    double most = 0;
    for (int64_t m = 0; m < c.memory.stored; m++) {
        double size = 0;
        for (int64_t k = 0; k < c.memory.dim; k++) size += fabs(X[m * c.memory.dim + k] * x[k]);
        most = fmax(most, size);
    }
    return 2 * unit() * (1 + beta() * most);
}

static void read_rows(double *to, int at, int64_t rows)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t k = 0; k < c.memory.dim; k++) to[i * c.memory.dim + k] = block_get(&c.blocks[at], 0, 0, i, k);
}

static void by_update(void)
{
    const int64_t M = c.memory.stored, N = c.memory.dim;
    double x[MAX_COUNT * MAX_DIM], p[MAX_STORED], updated[MAX_DIM], grad[MAX_DIM], gx[MAX_DIM];
    double dX[MAX_STORED * MAX_DIM] = {0}, size_X = 0;
    read_rows(x, STATES, c.count);
    for (int64_t i = 0; i < c.count; i++) {
        const double *const xi = x + i * N, off = lost_score(xi), energy = ref_hopfield_update(M, N, beta(), X, xi, p, updated);
        double square = 0;
        for (int64_t k = 0; k < N; k++) square += xi[k] * xi[k];
        block_check(&c.blocks[ENERGY], 0, 0, i, 0, energy, 2 * off / beta() + unit() * (square + 8 / beta()));
        for (int64_t k = 0; k < N; k++) block_check(&c.blocks[UPDATED], 0, 0, i, k, updated[k], 4 * off);
        if (c.kind != BACKWARD) continue;
        const double dE = c.blocks[GRAD_ENERGY].name ? block_get(&c.blocks[GRAD_ENERGY], 0, 0, i, 0) : 0;
        for (int64_t k = 0; k < N; k++) grad[k] = c.blocks[GRAD_UPDATED].name ? block_get(&c.blocks[GRAD_UPDATED], 0, 0, i, k) : 0;
        ref_hopfield_backward(M, N, beta(), X, xi, p, grad, dE, gx, dX);
        const double bound = 16 * off * (1 + beta()) * (double)(N + 1); /* patterns and gradients are within 1 */
        size_X += bound;
        for (int64_t k = 0; k < N; k++) block_check(&c.blocks[GRAD_STATES], 0, 0, i, k, gx[k], bound);
    }
    for (int64_t m = 0; c.kind == BACKWARD && m < M; m++)
        for (int64_t k = 0; k < N; k++) block_check(&c.blocks[GRAD_PATTERNS], 0, 0, m, k, dX[m * N + k], size_X);
}

/* Moves states by attn_hopfield_update, each until it moves less than the tolerance. */
static void retrieve(block *now, int64_t count, int64_t most, double tolerance, const char *what)
{
    const int64_t N = c.memory.dim;
    block next = block_of("next", c.memory.dtype, 1, 1, 1, count, N),
          energy = block_of("energy", c.memory.dtype, 1, 1, 1, count, 1);
    if (!block_allocate(&next) || !block_allocate(&energy)) abort();
    int64_t taken[MAX_COUNT] = {0}, stands[MAX_COUNT] = {0};
    for (int64_t step = 0; step <= most; step++) {
        attn_hopfield_tensors t = {
            .struct_size = sizeof t, .states = block_in(now), .updated = block_out(&next), .energy = block_out(&energy)};
        if (attn_hopfield_update(&c.memory, count, &t, &calls_last))
            finding("%s: an update is rejected: %s", what, calls_last.message);
        for (int64_t i = 0; i < count; i++) {
            double move = 0;
            if (c.blocks[ENERGIES].name && c.kind == RETRIEVE) {
                const double got = block_get(&c.blocks[ENERGIES], 0, 0, i, step), exact = block_get(&energy, 0, 0, i, 0);
                if (got != exact && !(isnan(got) && isnan(exact)))
                    finding("energy %lld of state %lld is %.17g, not %.17g", (long long)step, (long long)i, got, exact);
            }
            for (int64_t k = 0; k < N; k++) {
                const double by = fabs(block_get(&next, 0, 0, i, k) - block_get(now, 0, 0, i, k));
                if (!(by <= move)) move = by;
            }
            if (stands[i] || step == most) continue;
            for (int64_t k = 0; k < N; k++) block_put(now, 0, 0, i, k, block_get(&next, 0, 0, i, k));
            taken[i]++, stands[i] = move < tolerance;
        }
    }
    for (int64_t i = 0; c.kind == RETRIEVE && i < count; i++) {
        if (c.blocks[ITERATIONS].name && block_get(&c.blocks[ITERATIONS], 0, 0, i, 0) != (double)taken[i])
            finding("state %lld takes %lld updates", (long long)i, (long long)taken[i]);
        for (int64_t k = 0; k < N; k++) block_check(&c.blocks[UPDATED], 0, 0, i, k, block_get(now, 0, 0, i, k), 0);
    }
    block_free(&next), block_free(&energy);
}

static void by_updates(void)
{
    block now = block_of("now", c.memory.dtype, 0, 1, 1, c.count, c.memory.dim);
    if (!block_allocate(&now)) abort();
    memcpy(now.memory, c.blocks[STATES].memory, now.bytes);
    retrieve(&now, c.count, c.most, c.tolerance, "retrieval");
    block_free(&now);
}

static void by_signs(void)
{
    const int64_t M = c.memory.stored, N = c.memory.dim;
    double x[MAX_DIM], old[MAX_DIM];
    for (int64_t i = 0; i < c.count; i++) {
        double energy = 0, size = 0;
        for (int64_t k = 0; k < N; k++) x[k] = old[k] = block_get(&c.blocks[STATES], 0, 0, i, k);
        for (int64_t a = 0; a < N; a++) {
            double field = 0, most = 0;
            for (int64_t b = 0; b < N; b++) {
                double w = 0, w_size = 0;
                for (int64_t m = 0; m < M; m++) w += X[m * N + a] * X[m * N + b], w_size += fabs(X[m * N + a] * X[m * N + b]);
                field += w * (c.order ? x[b] : old[b]), most += w_size * 2;
                energy -= w * old[a] * old[b] / (2 * (double)N), size += w_size * fabs(old[a] * old[b]) / (double)N;
            }
            if (!c.blocks[UPDATED].name) continue;
            x[a] = field > 0 ? 1 : field < 0 ? -1 : 0;
            const double got = block_get(&c.blocks[UPDATED], 0, 0, i, a);
            if (!c.signs && fabs(field) < 1e-12 * (1 + most)) x[a] = got; /* rounding decides the sign */
            if (got != x[a]) finding("unit %lld of state %lld is %g, not %g", (long long)a, (long long)i, got, x[a]);
        }
        block_check(&c.blocks[ENERGY], 0, 0, i, 0, energy, 1e-12 * (1 + size));
    }
}

static double distance(const double *x, const double *y)
{
    double sum = 0;
    for (int64_t k = 0; k < c.memory.dim; k++) sum += (x[k] - y[k]) * (x[k] - y[k]);
    return sqrt(sum);
}

static void by_distances(void)
{
    const int64_t M = c.memory.stored, N = c.memory.dim;
    static const double zero[MAX_DIM];
    double least = INFINITY, lengths = 0;
    for (int64_t a = 0; a < M; a++) {
        for (int64_t b = 0; b < a; b++) least = fmin(least, distance(X + a * N, X + b * N));
        lengths += distance(X + a * N, zero);
    }
    const double exact = least / (lengths / (double)M);
    block_check(&c.blocks[ONE], 0, 0, 0, 0, exact, 1e-13 * exact);
}

static void by_energies(void)
{
    double x[MAX_DIM], p[MAX_STORED], updated[MAX_DIM];
    for (int64_t i = 0; i < c.count; i++) {
        memset(x, 0, sizeof x);
        const double at = c.low + (double)i * (c.high - c.low) / (double)(c.count - 1);
        x[c.axis] = c.memory.dtype == ATTN_F64 ? at : (double)(float)at;
        block_check(&c.blocks[AT], 0, 0, 0, i, at, 1e-14 * (fabs(c.low) + fabs(c.high)));
        const double energy = ref_hopfield_update(c.memory.stored, c.memory.dim, beta(), X, x, p, updated);
        block_check(&c.blocks[LEVEL], 0, 0, 0, i, energy, 2 * lost_score(x) / beta() + unit() * (at * at + 8 / beta()));
    }
}

static void by_probes(void)
{
    const int64_t N = c.memory.dim;
    block probes = block_of("probes", c.memory.dtype, 0, 1, 1, c.count, N);
    if (!block_allocate(&probes)) abort();
    const attn_output drawn = block_out(&probes);
    if (attn_random_features(ATTN_RANDOM_ROWS_NORMAL, c.count, N, c.seed, 0, &drawn, &calls_last))
        finding("%s", calls_last.message);
    for (int64_t i = 0; i < c.count; i++)
        for (int64_t k = 0; k < N; k++)
            block_put(&probes, 0, 0, i, k, X[c.index * N + k] + c.noise * block_get(&probes, 0, 0, i, k));
    retrieve(&probes, c.count, c.most, c.tolerance, "a basin");
    int64_t back = 0;
    for (int64_t i = 0; i < c.count; i++) {
        double x[MAX_DIM], least = INFINITY;
        int64_t best = 0;
        for (int64_t k = 0; k < N; k++) x[k] = block_get(&probes, 0, 0, i, k);
        for (int64_t m = 0; m < c.memory.stored; m++) {
            const double off = distance(x, X + m * N);
            if (off < least) least = off, best = m;
        }
        back += best == c.index;
    }
    block_check(&c.blocks[ONE], 0, 0, 0, 0, (double)back / (double)c.count, 0);
    block_free(&probes);
}

static void by_definition(void)
{
    const int64_t dim = draw_hostile(c.from);
    if (attn_hopfield_classical_capacity(c.memory.dim) != 0.14 * (double)c.memory.dim) finding("the classical capacity is wrong");
    if (!(attn_hopfield_modern_capacity(dim) >= 0)) finding("a negative capacity");
    read_rows(X, PATTERNS, c.memory.stored);
    if (c.kind == RETRIEVE) by_updates(); /* with NaN, too */
    if (c.kind == BASIN) by_probes();
    if (c.special) return;
    if (c.kind == UPDATE || c.kind == BACKWARD) by_update();
    if (c.kind == CLASSICAL) by_signs();
    if (c.kind == SEPARATION) by_distances();
    if (c.kind == LANDSCAPE) by_energies();
}

/* ---- invalid calls ---- */

static const char *corrupt_memory(void)
{
    static const double bad[] = {-1, NAN, INFINITY, -INFINITY};
    draws *d = c.from;
    attn_hopfield *m = &c.memory;
    switch (draw_below(d, 7)) {
    case 0:
        m->struct_size = (size_t)draw_hostile(d) | 1 << 22;
        return "a struct of megabytes";
    case 1:
        m->dtype = (attn_dtype)(3 + draw_below(d, 20));
        return "an invalid type";
    case 2:
        *(draw_one_in(d, 2) ? &m->stored : &m->dim) = draw_one_in(d, 3) ? 0 : calls_bad_size(d);
        return "an invalid size";
    case 3:
        m->beta = bad[draw_below(d, 4)];
        return "an invalid beta";
    case 4:
        m->reserved[draw_below(d, 4)] = 1;
        return "a reserved word";
    case 5:
        if (!m->options) return NULL;
        c.options.isa = (attn_isa)77;
        return "an unknown instruction set";
    default:
        return calls_corrupt_input(&m->patterns, &c.blocks[PATTERNS], d, 1);
    }
}

static const char *corrupt_numbers(void)
{
    static const double bad[] = {-1, NAN, -INFINITY};
    draws *d = c.from;
    switch (draw_below(d, 4)) {
    case 0:
        if (c.kind == SEPARATION) return NULL;
        c.count = calls_bad_size(d);
        return "an invalid count";
    case 1:
        if (c.kind == LANDSCAPE) return c.axis = draw_one_in(d, 2) ? -1 : c.memory.dim, "an axis that does not exist";
        if (c.kind == BASIN) return c.index = draw_one_in(d, 2) ? -1 : c.memory.stored, "a pattern that does not exist";
        if (c.kind == CLASSICAL) return c.order = (attn_hopfield_order)2, "an unknown order";
        return NULL;
    case 2:
        if (c.kind == LANDSCAPE)
            return *(draw_one_in(d, 2) ? &c.low : &c.high) = bad[1 + draw_below(d, 2)], "an end that is not finite";
        if (c.kind == BASIN) return c.noise = bad[draw_below(d, 3)], "invalid noise";
        return NULL;
    default:
        if (c.kind != RETRIEVE && c.kind != BASIN) return NULL;
        if (draw_one_in(d, 2)) return c.tolerance = bad[draw_below(d, 3)], "an invalid tolerance";
        c.most = draw_one_in(d, 2) ? -1 - draw_below(d, 9) : INT64_MAX;
        return "an invalid number of updates";
    }
}

static void reject(void)
{
    draws *d = c.from;
    const attn_options options = c.options;
    const attn_hopfield_order order = c.order;
    const int at = (int)draw_below(d, SLOTS), which = (int)draw_below(d, 3);
    const char *must = NULL;
    if (which == 0) must = corrupt_memory();
    else if (which == 1 || c.kind > CLASSICAL) must = corrupt_numbers();
    else if (c.blocks[at].name)
        must = calls_corrupt(slot_of(at), &c.blocks[at], d, at == STATES || (at == UPDATED && c.kind == RETRIEVE),
                             at == STATES ? NULL : &c.blocks[PATTERNS]);
    else if (at == ITERATIONS || at == ENERGIES ? c.kind != RETRIEVE
             : at >= GRAD_UPDATED               ? c.kind != BACKWARD
                                                : c.kind == BACKWARD || (at == ENERGY && c.kind == RETRIEVE)) {
        *slot_of(at) = (attn_output){c.blocks[PATTERNS].memory, c.memory.dtype, {0, 0, 0, 0}};
        must = "an unused tensor";
    }
    calls_rejected(&all, must);
    c.options = options, c.order = order;
}

void target_run(draws *from)
{
    memset(&c, 0, sizeof c);
    c.from = from;
    draw_case();
    target_drawn();
    calls_first(&all);
    by_definition();
    calls_vary(&all, from, c.memory.options ? &c.options : NULL, c.kind != SEPARATION, reject);
    blocks_free(c.blocks, BLOCKS);
}
