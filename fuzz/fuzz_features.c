/* SPDX-License-Identifier: MIT
 *
 * fuzz_features.c - fuzzes transformations of keys and values (target.h; calls.h): projections along the tokens (Linformer) and
 * their gradient against ref/, random features against their properties, quantisation against ref/, conversions against rounding.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attn/cache.h"
#include "attn/linear.h"
#include "attn_ref.h"
#include "calls.h"

const char *const target_cases = "calls with features";

enum { PROJECT, BACKWARD, RANDOM, QUANTISE, CONVERT, KINDS };
enum { X, PROJECTION, GRAD_Y, Y, GRAD_X, GRAD_PROJECTION, BLOCKS };

static struct {
    draws *from;
    int kind, special, shared;
    attn_linformer_problem problem, drawn;
    attn_linformer_tensors tensors;
    attn_options options;
    attn_random_rows rows;
    int64_t count, width, drawn_count, drawn_width;
    uint64_t seed;
    uint32_t draw;
    attn_input x;
    attn_output y, scales;
    const void *src;
    void *dst;
    attn_dtype src_dtype, dst_dtype;
    block blocks[BLOCKS];
} c;

void target_print(void)
{
    const attn_linformer_problem *p = &c.problem;
    fprintf(stderr,
            "kind %d B %" PRId64 " H %" PRId64 " n %" PRId64 " rank %" PRId64 " dim %" PRId64 " shared %d  %" PRId64 " x %" PRId64
            " seed %" PRIu64 " draw %u rows %d threads %d isa %d special %d\n",
            c.kind, p->batch, p->heads, p->len, p->rank, p->dim, c.shared, c.count, c.width, c.seed, (unsigned)c.draw, (int)c.rows,
            c.options.threads, (int)c.options.isa, c.special);
    blocks_print(c.blocks, BLOCKS);
}

static attn_status call(attn_error *error)
{
    switch (c.kind) {
    case PROJECT:
        return attn_linformer_project(&c.problem, &c.tensors, &c.options, error);
    case BACKWARD:
        return attn_linformer_backward(&c.problem, &c.tensors, &c.options, error);
    case RANDOM:
        return attn_random_features(c.rows, c.count, c.width, c.seed, c.draw, &c.y, error);
    case QUANTISE:
        return attn_quantise(c.count, c.width, &c.x, &c.y, &c.scales, error);
    default:
        return attn_convert(c.count, c.src, c.src_dtype, c.dst, c.dst_dtype, error);
    }
}

static void place(void)
{
    c.problem = c.drawn, c.count = c.drawn_count, c.width = c.drawn_width;
    c.x = block_in(&c.blocks[X]), c.y = block_out(&c.blocks[Y]), c.scales = block_out(&c.blocks[GRAD_X]);
    c.src = c.blocks[X].memory ? c.blocks[X].memory + c.blocks[X].first : NULL,
    c.dst = c.blocks[Y].memory ? c.blocks[Y].memory + c.blocks[Y].first : NULL;
    c.src_dtype = c.blocks[X].dtype, c.dst_dtype = c.blocks[Y].dtype;
    c.tensors = (attn_linformer_tensors){.struct_size = sizeof c.tensors,
                                         .x = c.x,
                                         .projection = block_in(&c.blocks[PROJECTION]),
                                         .y = c.y,
                                         .grad_y = block_in(&c.blocks[GRAD_Y]),
                                         .grad_x = block_out(&c.blocks[GRAD_X]),
                                         .grad_projection = block_out(&c.blocks[GRAD_PROJECTION])};
}

static const calls all = {c.blocks, BLOCKS, call, place};

/* ---- drawing ---- */

static const attn_dtype types[] = {ATTN_F32, ATTN_F64, ATTN_F16, ATTN_BF16};

/* Inputs are within 1.5, which bound_of relies on, except in special cases. */
static void make(int at, const char *name, attn_dtype dtype, int64_t i0, int64_t i1, int64_t i2, int64_t i3)
{
    calls_make(&c.blocks[at], c.from, block_of(name, dtype, at >= Y, i0, i1, i2, i3), CALLS_ROWS);
    if (at < Y) block_fill(&c.blocks[at], c.from, -1.5, 1.5, c.special);
}

static void draw_linformer(void)
{
    draws *d = c.from;
    attn_linformer_problem *p = &c.drawn;
    const attn_dtype x = types[draw_below(d, 4)], compute = x == ATTN_F64 ? ATTN_F64 : ATTN_F32;
    const attn_dtype narrow = x == ATTN_F64 ? ATTN_F64 : draw_one_in(d, 2) ? compute : x;
    *p = (attn_linformer_problem){.struct_size = sizeof *p};
    p->batch = draw_below(d, 4), p->heads = draw_below(d, 4), p->len = draw_below(d, draw_one_in(d, 4) ? 200 : 20);
    p->rank = draw_below(d, draw_one_in(d, 4) ? 40 : 9), p->dim = draw_below(d, draw_one_in(d, 4) ? 40 : 9);
    if (p->batch + p->heads + p->len + p->rank + p->dim == 0) p->dim = 1; /* all sizes 0 are rejected */
    make(X, "x", x, p->batch, p->heads, p->len, p->dim);
    block b = block_of("projection", narrow, 0, 1, p->heads, p->len, p->rank);
    if (p->heads > 1 && draw_one_in(d, 2)) b.stride[1] = 0;
    calls_make(&c.blocks[PROJECTION], d, b, b.stride[1] == 0 ? CALLS_DENSE : CALLS_ROWS);
    block_fill(&c.blocks[PROJECTION], d, -1.5, 1.5, c.special);
    c.shared = p->heads > 1 && (c.blocks[PROJECTION].stride[1] == 0 || c.blocks[PROJECTION].stride[1] == ATTN_BROADCAST);
    if (c.kind == PROJECT) {
        make(Y, "y", compute, p->batch, p->heads, p->rank, p->dim);
        return;
    }
    make(GRAD_Y, "grad_y", compute, p->batch, p->heads, p->rank, p->dim),
        make(GRAD_X, "grad_x", x, p->batch, p->heads, p->len, p->dim);
    make(GRAD_PROJECTION, "grad_projection", compute, 1, c.shared ? 1 : p->heads, p->len, p->rank);
}

static void draw_case(void)
{
    draws *d = c.from;
    c.kind = (int)draw_below(d, KINDS), c.special = draw_one_in(d, 8), c.options = calls_options(d);
    c.drawn_count = draw_below(d, 24), c.drawn_width = draw_one_in(d, 3) ? draw_below(d, 150) : draw_below(d, 12);
    c.seed = draw_word(d), c.draw = (uint32_t)draw_word(d), c.rows = (attn_random_rows)draw_below(d, 2);
    const attn_dtype one = types[draw_below(d, 4)], other = types[draw_below(d, 4)];
    switch (c.kind) {
    case RANDOM:
        calls_make(&c.blocks[Y], d,
                   block_of("matrix", one == ATTN_F64 ? ATTN_F64 : ATTN_F32, 1, 1, 1, c.drawn_count, c.drawn_width), CALLS_ANY);
        break;
    case QUANTISE:
        make(X, "src", one, 1, 1, c.drawn_count, c.drawn_width), make(Y, "values", ATTN_I8, 1, 1, c.drawn_count, c.drawn_width);
        calls_make(&c.blocks[GRAD_X], d, block_of("scales", ATTN_F32, 1, 1, 1, c.drawn_count, 1), CALLS_ANY);
        break;
    case CONVERT:
        calls_make(&c.blocks[X], d, block_of("src", one, 0, 1, 1, 1, c.drawn_count), CALLS_DENSE);
        calls_make(&c.blocks[Y], d, block_of("dst", other, 1, 1, 1, 1, c.drawn_count), CALLS_DENSE);
        for (size_t i = 0; i < c.blocks[X].bytes; i++)
            c.blocks[X].memory[i] = (unsigned char)draw_word(d); /* every bit pattern of the type */
        break;
    default:
        draw_linformer();
    }
    place();
}

/* ---- expected results ---- */

/* A dense copy in double. */
static double *expanded(int at, int64_t heads)
{
    const block *b = &c.blocks[at];
    double *to = malloc((size_t)(b->shape[0] * heads * b->shape[2] * b->shape[3] + 1) * sizeof *to), *next = to;
    if (!to) abort();
    for (int64_t i = 0; i < b->shape[0]; i++)
        for (int64_t h = 0; h < heads; h++)
            for (int64_t t = 0; t < b->shape[2]; t++)
                for (int64_t k = 0; k < b->shape[3]; k++) *next++ = block_get(b, i, h, t, k);
    return to;
}

static void check_all(int at, const double *exact, double bound)
{
    const block *b = &c.blocks[at];
    for (int64_t i = 0; i < b->shape[0]; i++)
        for (int64_t h = 0; h < b->shape[1]; h++)
            for (int64_t t = 0; t < b->shape[2]; t++)
                for (int64_t k = 0; k < b->shape[3]; k++) block_check(b, i, h, t, k, *exact++, bound);
}

/* Inputs are within 1.5, so a sum of n products is within 2.25 n and has n roundings of that size. */
static double bound_of(int64_t terms)
{
    const double u = c.blocks[X].dtype == ATTN_F64 ? 0x1p-53 : 0x1p-24, n = (double)terms;
    return 2 * (n + 4) * u * 2.25 * n;
}

static void by_projection(void)
{
    const attn_linformer_problem *p = &c.problem;
    double *x = expanded(X, p->heads), *E = expanded(PROJECTION, c.shared ? 1 : p->heads);
    if (c.kind == PROJECT) {
        double *y = expanded(Y, p->heads);
        ref_linformer(p->batch, p->heads, p->len, p->rank, p->dim, c.shared, E, x, y);
        check_all(Y, y, bound_of(p->len));
        free(y);
    } else {
        double *dy = expanded(GRAD_Y, p->heads), *dx = expanded(GRAD_X, p->heads),
               *dE = expanded(GRAD_PROJECTION, c.shared ? 1 : p->heads);
        ref_linformer_backward(p->batch, p->heads, p->len, p->rank, p->dim, c.shared, E, x, dy, dx, dE);
        check_all(GRAD_X, dx, bound_of(p->rank)),
            check_all(GRAD_PROJECTION, dE, bound_of(p->batch * p->dim * (c.shared ? p->heads : 1)));
        free(dy), free(dx), free(dE);
    }
    free(x), free(E);
}

/* Orthogonal rows are so within a block, numbers are normal, and a matrix of fewer rows has the same ones. */
static void by_themselves(void)
{
    const block *b = &c.blocks[Y];
    const double loose = (b->dtype == ATTN_F64 ? 1e-11 : 1e-4) * (double)(c.width + 1);
    for (int64_t i = 0; i < c.count; i++)
        for (int64_t j = c.width ? i / c.width * c.width : i; j < i && c.rows == ATTN_RANDOM_ROWS_ORTHOGONAL; j++) {
            double dot = 0, ii = 0, jj = 0;
            for (int64_t k = 0; k < c.width; k++) {
                const double x = block_get(b, 0, 0, i, k), y = block_get(b, 0, 0, j, k);
                dot += x * y, ii += x * x, jj += y * y;
            }
            if (!(fabs(dot) <= loose * sqrt(ii * jj)))
                finding("rows %lld and %lld: %g", (long long)i, (long long)j, dot / sqrt(ii * jj));
        }
    double square = 0;
    for (int64_t i = 0; i < c.count; i++)
        for (int64_t k = 0; k < c.width; k++) {
            const double x = block_get(b, 0, 0, i, k);
            if (!(fabs(x) < 40)) finding("a normal number is %g", x);
            square += x * x;
        }
    if (c.count * c.width > 2000 && !(fabs(square / (double)(c.count * c.width) - 1) < 0.5))
        finding("a variance of %g", square / (double)(c.count * c.width));
    block fewer_rows = block_of("matrix", b->dtype, 1, 1, 1, c.count / 2, c.width);
    if (!block_allocate(&fewer_rows)) abort();
    const attn_output slot = block_out(&fewer_rows);
    if (attn_random_features(c.rows, c.count / 2, c.width, c.seed, c.draw, &slot, &calls_last)) finding("%s", calls_last.message);
    for (int64_t i = 0; i < c.count / 2; i++)
        for (int64_t k = 0; k < c.width; k++) block_check(&fewer_rows, 0, 0, i, k, block_get(b, 0, 0, i, k), 0);
    block_free(&fewer_rows);
}

static void by_rows(void)
{
    double x[160], exact[160];
    for (int64_t i = 0; i < c.count; i++) {
        for (int64_t k = 0; k < c.width; k++) x[k] = block_get(&c.blocks[X], 0, 0, i, k);
        const double scale = ref_quantise(c.width, x, exact), got = block_get(&c.blocks[GRAD_X], 0, 0, i, 0);
        if (got != scale && !(isnan(got) && isnan(scale))) finding("the scale of row %lld is %g, not %g", (long long)i, got, scale);
        for (int64_t k = 0; k < c.width && !isnan(scale); k++)
            if (block_get(&c.blocks[Y], 0, 0, i, k) != exact[k])
                finding("element %lld of row %lld is quantised wrongly", (long long)k, (long long)i);
    }
}

/* Conversion to a wider type is exact, to a narrower one it rounds to nearest. */
static void by_types(void)
{
    const int digits[] = {0, 24, 53, 11, 8}, least[] = {0, -149, -1074, -24, -133};
    for (int64_t i = 0; i < c.count; i++) {
        const double x = block_get(&c.blocks[X], 0, 0, 0, i), y = block_get(&c.blocks[Y], 0, 0, 0, i);
        if (isnan(x) != isnan(y)) finding("%g becomes %g", x, y);
        if (isnan(x) || x == y) continue;
        int exponent;
        (void)frexp(x, &exponent);
        const int last = exponent - digits[c.dst_dtype] > least[c.dst_dtype] ? exponent - digits[c.dst_dtype] : least[c.dst_dtype];
        const double step = ldexp(1, last), nearest = isinf(x) ? x : nearbyint(x / step) * step;
        const double most = c.dst_dtype == ATTN_F16 ? 65504 : c.dst_dtype == ATTN_F32 ? 0x1.fffffep127 : 0x1.fep127;
        if (fabs(nearest) > most ? !isinf(y) || (y > 0) != (x > 0) : y != nearest)
            finding("%.17g becomes %.17g, not %.17g", x, y, nearest);
        if (signbit(x) != signbit(y)) finding("%g becomes %g", x, y);
    }
    if (c.blocks[X].element != c.blocks[Y].element || c.blocks[X].bytes == 0) return;
    unsigned char *same = malloc(c.blocks[X].bytes);
    if (!same) abort();
    memcpy(same, c.src, (size_t)c.count * c.blocks[X].element);
    if (attn_convert(c.count, same, c.src_dtype, same, c.dst_dtype, &calls_last)) finding("in place: %s", calls_last.message);
    if (memcmp(same, c.dst, (size_t)c.count * c.blocks[X].element) != 0) finding("in place: the results differ");
    free(same);
}

/* ---- invalid calls ---- */

static const char *corrupt_problem(void)
{
    draws *d = c.from;
    attn_linformer_problem *p = &c.problem;
    switch (draw_below(d, 4)) {
    case 0:
        p->struct_size = (size_t)draw_hostile(d) | 1 << 22;
        return "a struct of megabytes";
    case 1:
        p->reserved[draw_below(d, 4)] = 1;
        return "a reserved word";
    case 2:
        (&p->batch)[draw_below(d, 5)] = -1 - draw_below(d, 9);
        return "a negative size";
    default:
        if (p->batch * p->heads * p->len * p->rank * p->dim == 0) return NULL;
        for (int64_t n = draw_below(d, 5); n >= 0; n--) (&p->batch)[draw_below(d, 5)] = INT64_MAX - draw_below(d, 3);
        return "bytes that overflow 64 bits";
    }
}

static void reject(void)
{
    draws *d = c.from;
    const attn_random_rows rows = c.rows;
    const char *must = NULL;
    const int at = (int)draw_below(d, c.kind == CONVERT ? 4 : 3);
    if (c.kind <= BACKWARD && draw_one_in(d, 2)) must = corrupt_problem();
    else if (c.kind == PROJECT && at == 2) must = calls_corrupt(&c.tensors.y, &c.blocks[Y], d, 1, &c.blocks[X]);
    else if (c.kind == BACKWARD && at == 2)
        must = calls_corrupt(&c.tensors.grad_projection, &c.blocks[GRAD_PROJECTION], d, 1, &c.blocks[X]);
    else if (c.kind == BACKWARD && draw_one_in(d, 2))
        must = calls_corrupt(&c.tensors.grad_x, &c.blocks[GRAD_X], d, 1, &c.blocks[GRAD_Y]);
    else if (c.kind <= BACKWARD)
        must = calls_corrupt_input(at ? &c.tensors.projection : &c.tensors.x, &c.blocks[at ? PROJECTION : X], d, 1);
    else if (c.kind == CONVERT) {
        if (at == 0) c.count = -1 - draw_below(d, 9), must = "a negative count";
        if (at == 1)
            *(draw_one_in(d, 2) ? &c.src_dtype : &c.dst_dtype) = (attn_dtype)(draw_one_in(d, 2) ? 0 : 5 + draw_below(d, 99)),
                                                 must = "a type that is not a float";
        if (at == 2 && c.count > 0) *(draw_one_in(d, 2) ? (void **)(void *)&c.src : &c.dst) = NULL, must = "NULL";
        if (at == 3 && c.count > 0) {
            if (draw_one_in(d, 2)) c.src = (const char *)c.src + 1;
            else c.dst = (char *)c.dst + 1;
            must = "a misaligned address";
        }
    } else if (at == 0) {
        *(draw_one_in(d, 2) ? &c.count : &c.width) = calls_bad_size(d);
        if (c.count < 0 || c.width < 0 || c.kind == RANDOM || (c.count && c.width)) must = "an invalid size";
    } else if (c.kind == RANDOM && at == 1) c.rows = (attn_random_rows)2, must = "an unknown kind of rows";
    else if (c.kind == QUANTISE && at == 1) must = calls_corrupt_input(&c.x, &c.blocks[X], d, 1);
    else must = calls_corrupt(&c.y, &c.blocks[Y], d, 1, c.kind == QUANTISE ? &c.blocks[X] : NULL);
    calls_rejected(&all, must);
    c.rows = rows;
}

void target_run(draws *from)
{
    memset(&c, 0, sizeof c);
    c.from = from;
    draw_case();
    target_drawn();
    calls_first(&all);
    if (c.kind <= BACKWARD && !c.special) by_projection();
    if (c.kind == RANDOM) by_themselves();
    if (c.kind == QUANTISE) by_rows();
    if (c.kind == CONVERT) by_types();
    calls_vary(&all, from, c.kind <= BACKWARD ? &c.options : NULL, 1, reject);
    blocks_free(c.blocks, BLOCKS);
}
