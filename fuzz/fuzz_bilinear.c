/* SPDX-License-Identifier: MIT
 *
 * fuzz_bilinear.c - fuzzes metrics and bilinear forms (target.h; calls.h) against loops in double, inverses and eigenvalues against
 * their defining properties, and attention with a metric against a general score. */
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "attn/bilinear.h"
#include "calls.h"

const char *const target_cases = "calls with metrics";

enum {
    SCALED,
    DIAGONAL,
    LEARNED,
    LEARNED_BACKWARD,
    INVERSE,
    INVERSE_BACKWARD,
    CHECK,
    LOWER,
    RAISE,
    INDEX_BACKWARD,
    FORM,
    FORM_BACKWARD,
    BATCH,
    BATCH_BACKWARD,
    QUADRATIC,
    INNER,
    ATTENTION,
    KINDS
};
/* Inputs, then outputs, each in the order of the function's arguments. */
enum { IN_1, IN_2, IN_3, IN_4, OUT_1, OUT_2, OUT_3, BLOCKS };
enum { MAX_DIM = 12, MAX_COUNT = 10 };

static struct {
    draws *from;
    int kind, special;
    int64_t count, other, dim, drawn[3];
    double scale, tolerance;
    const char *metric;
    attn_metric_properties properties;
    attn_problem problem;
    attn_options options;
    block blocks[BLOCKS];
    double *p[BLOCKS];
    attn_tensors tensors;
} c;

void target_print(void)
{
    fprintf(stderr,
            "kind %d count %" PRId64 " and %" PRId64 " dim %" PRId64 " scale %g tolerance %g metric %s special %d threads %d\n",
            c.kind, c.count, c.other, c.dim, c.scale, c.tolerance, c.metric ? c.metric : "NULL", c.special, c.options.threads);
    blocks_print(c.blocks, BLOCKS);
}

static attn_status call(attn_error *e)
{
    double *const *p = c.p;
    const int64_t n = c.count, dim = c.dim;
    switch (c.kind) {
    case SCALED:
        return attn_metric_scaled(dim, c.scale, p[OUT_1], e);
    case DIAGONAL:
        return attn_metric_diagonal(dim, p[IN_1], p[OUT_1], e);
    case LEARNED:
        return attn_metric_learned(n, dim, p[IN_1], p[OUT_1], e);
    case LEARNED_BACKWARD:
        return attn_metric_learned_backward(n, dim, p[IN_1], p[IN_2], p[OUT_1], e);
    case INVERSE:
        return attn_metric_inverse(dim, p[IN_1], p[OUT_1], e);
    case INVERSE_BACKWARD:
        return attn_metric_inverse_backward(dim, p[IN_1], p[IN_2], p[OUT_1], e);
    case CHECK:
        return attn_metric_check(dim, c.tolerance, p[IN_1], &c.properties, e);
    case LOWER:
        return attn_index_lower(n, dim, p[IN_1], p[IN_2], p[OUT_1], e);
    case RAISE:
        return attn_index_raise(n, dim, p[IN_1], p[IN_2], p[OUT_1], e);
    case INDEX_BACKWARD:
        return attn_index_backward(n, dim, p[IN_1], p[IN_2], p[IN_3], p[OUT_1], p[OUT_2], e);
    case FORM:
        return attn_bilinear_form(n, dim, p[IN_1], p[IN_2], p[IN_3], p[OUT_1], e);
    case FORM_BACKWARD:
        return attn_bilinear_form_backward(n, dim, p[IN_1], p[IN_2], p[IN_3], p[IN_4], p[OUT_1], p[OUT_2], p[OUT_3], e);
    case BATCH:
        return attn_bilinear_form_batch(n, c.other, dim, p[IN_1], p[IN_2], p[IN_3], p[OUT_1], e);
    case BATCH_BACKWARD:
        return attn_bilinear_form_batch_backward(n, c.other, dim, p[IN_1], p[IN_2], p[IN_3], p[IN_4], p[OUT_1], p[OUT_2], p[OUT_3],
                                                 e);
    case QUADRATIC:
        return attn_quadratic_form(n, dim, p[IN_1], p[IN_2], p[OUT_1], e);
    case INNER:
        return attn_inner_product(n, dim, p[IN_1], p[IN_2], c.metric, p[OUT_1], e);
    default:
        return attn_bilinear_attention(&c.problem, &c.tensors, p[IN_4], &c.options, e);
    }
}

static void place(void)
{
    c.count = c.drawn[0], c.other = c.drawn[1], c.dim = c.drawn[2];
    for (int t = 0; t < BLOCKS; t++) c.p[t] = c.blocks[t].name ? (double *)(void *)(c.blocks[t].memory + c.blocks[t].first) : NULL;
    if (c.kind == CHECK) c.properties = (attn_metric_properties){.struct_size = sizeof c.properties};
    if (c.kind != ATTENTION) return;
    c.problem.shape = (attn_shape){1, 1, 1, c.count, c.other, c.dim, c.dim};
    c.tensors = (attn_tensors){.struct_size = sizeof c.tensors,
                               .q = block_in(&c.blocks[IN_1]),
                               .k = block_in(&c.blocks[IN_2]),
                               .v = block_in(&c.blocks[IN_3]),
                               .o = block_out(&c.blocks[OUT_1]),
                               .scores = block_out(&c.blocks[OUT_2])};
}

static const calls all = {c.blocks, BLOCKS, call, place};

/* ---- drawing ---- */

static void make(int at, const char *name, int64_t rows, int64_t columns)
{
    calls_make(&c.blocks[at], c.from, block_of(name, ATTN_F64, at >= OUT_1, 1, 1, rows, columns), CALLS_DENSE);
    if (at < OUT_1) block_fill(&c.blocks[at], c.from, -2, 2, c.special);
}

static void draw_case(void)
{
    static const char *const metrics[] = {NULL, "scaled", "euclidean"};
    draws *d = c.from;
    c.kind = (int)draw_below(d, KINDS), c.special = c.kind != CHECK && c.kind != INVERSE && draw_one_in(d, 10);
    c.drawn[0] = draw_below(d, MAX_COUNT), c.drawn[1] = draw_below(d, MAX_COUNT), c.drawn[2] = 1 + draw_below(d, MAX_DIM);
    c.scale = draw_one_in(d, 3) ? 0 : draw_real(d, -3, 3), c.tolerance = draw_one_in(d, 2) ? 0 : draw_real(d, 0, 0.5);
    c.metric = metrics[draw_below(d, 3)], c.options = calls_options(d), c.problem = (attn_problem){.struct_size = sizeof c.problem};
    const int64_t n = c.drawn[0], m = c.drawn[1], dim = c.drawn[2];
    switch (c.kind) {
    case SCALED:
        make(OUT_1, "g", dim, dim);
        break;
    case DIAGONAL:
        make(IN_1, "diagonal", 1, dim), make(OUT_1, "g", dim, dim);
        break;
    case LEARNED:
        make(IN_1, "w", n, dim), make(OUT_1, "g", dim, dim);
        break;
    case LEARNED_BACKWARD:
        make(IN_1, "w", n, dim), make(IN_2, "grad_g", dim, dim), make(OUT_1, "grad_w", n, dim);
        break;
    case INVERSE:
        make(IN_1, "g", dim, dim), make(OUT_1, "inverse", dim, dim);
        break;
    case INVERSE_BACKWARD:
        make(IN_1, "inverse", dim, dim), make(IN_2, "grad_inverse", dim, dim), make(OUT_1, "grad_g", dim, dim);
        break;
    case CHECK:
        make(IN_1, "g", dim, dim);
        for (int64_t a = 0; a < dim; a++) /* often symmetric, sometimes definite */
            for (int64_t b = 0; b <= a && !draw_one_in(d, 40); b++)
                block_put(&c.blocks[IN_1], 0, 0, b, a,
                          block_get(&c.blocks[IN_1], 0, 0, a, b) + (a == b) * (double)draw_below(d, 20));
        break;
    case LOWER:
    case RAISE:
        make(IN_1, "v", n, dim), make(IN_2, "g", dim, dim), make(OUT_1, "lowered", n, dim);
        break;
    case INDEX_BACKWARD:
        make(IN_1, "v", n, dim), make(IN_2, "g", dim, dim), make(IN_3, "grad", n, dim);
        if (!draw_one_in(d, 4)) make(OUT_1, "grad_v", n, dim);
        if (!draw_one_in(d, 4)) make(OUT_2, "grad_g", dim, dim);
        break;
    case FORM:
    case FORM_BACKWARD:
        make(IN_1, "u", n, dim), make(IN_2, "v", n, dim), make(IN_3, "g", dim, dim);
        if (c.kind == FORM) make(OUT_1, "form", 1, n);
        else make(IN_4, "grad", 1, n);
        if (c.kind == FORM) break;
        if (!draw_one_in(d, 4)) make(OUT_1, "grad_u", n, dim);
        if (!draw_one_in(d, 4)) make(OUT_2, "grad_v", n, dim);
        if (!draw_one_in(d, 4)) make(OUT_3, "grad_g", dim, dim);
        break;
    case BATCH:
    case BATCH_BACKWARD:
        make(IN_1, "q", n, dim), make(IN_2, "k", m, dim), make(IN_3, "g", dim, dim);
        if (c.kind == BATCH) make(OUT_1, "scores", n, m);
        else make(IN_4, "grad", n, m);
        if (c.kind == BATCH) break;
        if (!draw_one_in(d, 4)) make(OUT_1, "grad_q", n, dim);
        if (!draw_one_in(d, 4)) make(OUT_2, "grad_k", m, dim);
        if (!draw_one_in(d, 4)) make(OUT_3, "grad_g", dim, dim);
        break;
    case QUADRATIC:
        make(IN_1, "v", n, dim), make(IN_2, "g", dim, dim), make(OUT_1, "form", 1, n);
        break;
    case INNER:
        make(IN_1, "u", n, dim), make(IN_2, "v", n, dim), make(OUT_1, "form", 1, n);
        break;
    default:
        make(IN_1, "q", n, dim), make(IN_2, "k", m, dim), make(IN_3, "v", m, dim), make(IN_4, "g", dim, dim);
        make(OUT_1, "o", n, dim), make(OUT_2, "scores", n, m);
    }
    place();
}

/* ---- expected results ---- */

/* Element [i][j] of a block; a vector is row 0. */
static double in(int at, int64_t i, int64_t j) { return block_get(&c.blocks[at], 0, 0, i, j); }
static double form(const double *u, const double *v, int g, double *size)
{
    double sum = 0;
    for (int64_t a = 0; a < c.dim; a++)
        for (int64_t b = 0; b < c.dim; b++) sum += u[a] * in(g, a, b) * v[b], *size += fabs(u[a] * in(g, a, b) * v[b]);
    return sum;
}

/* Every output is a sum  to[x][y] = sum_st L[.][.] M[.][.] N[.][.]; `size` is the sum of absolute terms, which bounds the error. */
static void check_sum(int at, int64_t x, int64_t y, double exact, double size)
{
    block_check(&c.blocks[at], 0, 0, x, y, exact, 64 * 0x1p-53 * (double)(c.dim + c.count + c.other + 4) * size);
}

static void by_pairs(void)
{
    const int64_t n = c.count, m = c.kind == BATCH || c.kind == BATCH_BACKWARD ? c.other : 1, dim = c.dim;
    const int batch = c.kind == BATCH || c.kind == BATCH_BACKWARD;
    double gu[MAX_COUNT][MAX_DIM] = {{0}}, gv[MAX_COUNT][MAX_DIM] = {{0}}, gg[MAX_DIM][MAX_DIM] = {{0}};
    double su[MAX_COUNT][MAX_DIM] = {{0}}, sv[MAX_COUNT][MAX_DIM] = {{0}}, sg[MAX_DIM][MAX_DIM] = {{0}};
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < m; j++) {
            const int64_t other = batch ? j : i;
            double u[MAX_DIM], v[MAX_DIM], size = 0;
            for (int64_t a = 0; a < dim; a++) u[a] = in(IN_1, i, a), v[a] = in(IN_2, other, a);
            if (c.kind == FORM || c.kind == BATCH) {
                const double exact = form(u, v, IN_3, &size);
                check_sum(OUT_1, batch ? i : 0, batch ? j : i, exact, size);
                continue;
            }
            const double grad = batch ? in(IN_4, i, j) : in(IN_4, 0, i);
            for (int64_t a = 0; a < dim; a++)
                for (int64_t b = 0; b < dim; b++) {
                    const double g = in(IN_3, a, b), by_u = grad * g * v[b], by_v = grad * u[a] * g, by_g = grad * u[a] * v[b];
                    gu[i][a] += by_u, su[i][a] += fabs(by_u), gv[other][b] += by_v, sv[other][b] += fabs(by_v);
                    gg[a][b] += by_g, sg[a][b] += fabs(by_g);
                }
        }
    if (c.kind == FORM || c.kind == BATCH) return;
    for (int64_t a = 0; a < dim; a++) {
        for (int64_t i = 0; i < n; i++) check_sum(OUT_1, i, a, gu[i][a], su[i][a]);
        for (int64_t i = 0; i < (batch ? m : n); i++) check_sum(OUT_2, i, a, gv[i][a], sv[i][a]);
        for (int64_t b = 0; b < dim; b++) check_sum(OUT_3, a, b, gg[a][b], sg[a][b]);
    }
}

static void by_vectors(void)
{
    double v[MAX_DIM], size;
    for (int64_t i = 0; i < c.count; i++) {
        for (int64_t a = 0; a < c.dim; a++) v[a] = in(IN_1, i, a);
        if (c.kind == QUADRATIC) size = 0, check_sum(OUT_1, 0, i, form(v, v, IN_2, &size), size);
        double sum = 0;
        size = 0;
        for (int64_t a = 0; a < c.dim; a++)
            sum += v[a] * in(IN_2, c.kind == INNER ? i : 0, a), size += fabs(v[a] * in(IN_2, c.kind == INNER ? i : 0, a));
        const double by = c.metric && strcmp(c.metric, "scaled") != 0 ? 1 : sqrt((double)c.dim);
        if (c.kind == INNER) check_sum(OUT_1, 0, i, sum / by, size / by);
        for (int64_t a = 0; c.kind != INNER && c.kind != QUADRATIC && a < c.dim; a++) {
            double to = 0, reach = 0;
            for (int64_t b = 0; b < c.dim; b++) {
                const double term = c.kind == INDEX_BACKWARD ? in(IN_2, b, a) * in(IN_3, i, b) : in(IN_2, a, b) * v[b];
                to += term, reach += fabs(term);
            }
            check_sum(OUT_1, i, a, to, reach);
        }
    }
    for (int64_t a = 0; c.kind == INDEX_BACKWARD && a < c.dim; a++)
        for (int64_t b = 0; b < c.dim; b++) {
            double sum = 0, reach = 0;
            for (int64_t i = 0; i < c.count; i++)
                sum += in(IN_3, i, a) * in(IN_1, i, b), reach += fabs(in(IN_3, i, a) * in(IN_1, i, b));
            check_sum(OUT_2, a, b, sum, reach);
        }
}

static void by_matrices(void)
{
    const int64_t dim = c.dim, n = c.count;
    for (int64_t a = 0; a < (c.kind == LEARNED_BACKWARD ? n : dim); a++)
        for (int64_t b = 0; b < dim; b++) {
            double sum = 0, size = 0;
            if (c.kind == SCALED) sum = a == b ? (c.scale != 0 ? c.scale : 1 / sqrt((double)dim)) : 0;
            if (c.kind == DIAGONAL) sum = a == b ? in(IN_1, 0, a) : 0;
            for (int64_t r = 0; c.kind == LEARNED && r < n; r++)
                sum += in(IN_1, r, a) * in(IN_1, r, b), size += fabs(in(IN_1, r, a) * in(IN_1, r, b));
            for (int64_t x = 0; c.kind == LEARNED_BACKWARD && x < dim; x++) {
                const double term = in(IN_1, a, x) * (in(IN_2, x, b) + in(IN_2, b, x));
                sum += term, size += fabs(in(IN_1, a, x)) * (fabs(in(IN_2, x, b)) + fabs(in(IN_2, b, x)));
            }
            for (int64_t x = 0; c.kind == INVERSE_BACKWARD && x < dim; x++)
                for (int64_t y = 0; y < dim; y++) {
                    const double term = in(IN_1, x, a) * in(IN_2, x, y) * in(IN_1, b, y);
                    sum -= term, size += fabs(term);
                }
            check_sum(OUT_1, a, b, sum, size);
        }
}

/* g inverse = 1, within the condition number. */
static void by_products(void)
{
    double most = 0, max_inverse = 0;
    for (int64_t a = 0; a < c.dim; a++)
        for (int64_t b = 0; b < c.dim; b++)
            most = fmax(most, fabs(in(IN_1, a, b))), max_inverse = fmax(max_inverse, fabs(in(OUT_1, a, b)));
    const double condition = most * max_inverse * (double)(c.dim * c.dim);
    for (int64_t a = 0; a < c.dim; a++)
        for (int64_t b = 0; b < c.dim; b++) {
            double sum = 0;
            for (int64_t x = 0; x < c.dim; x++) sum += in(IN_1, a, x) * in(OUT_1, x, b);
            if (fabs(sum - (a == b)) > 1e-12 * condition * (double)(c.dim * c.dim))
                finding("g inverse [%d][%d] is %g, condition %g", (int)a, (int)b, sum, condition);
        }
}

/* The extreme eigenvalues bound the trace over dim and every Rayleigh quotient. */
static void by_quotients(void)
{
    const attn_metric_properties *p = &c.properties;
    double most = 0, asymmetry = 0, trace = 0;
    for (int64_t a = 0; a < c.dim; a++)
        for (int64_t b = 0; b < c.dim; b++)
            most = fmax(most, fabs(in(IN_1, a, b))), asymmetry = fmax(asymmetry, fabs(in(IN_1, a, b) - in(IN_1, b, a)));
    for (int64_t a = 0; a < c.dim; a++) trace += in(IN_1, a, a);
    const double off = 1e-13 * (double)(c.dim * c.dim) * most, limit = (c.tolerance > 0 ? c.tolerance : 1e-6) * most;
    if (p->symmetric != (asymmetry <= limit) && fabs(asymmetry - limit) > off)
        finding("symmetric: %d, skew %g", p->symmetric, asymmetry);
    if (p->valid != (p->symmetric && p->positive_definite)) finding("valid: %d", p->valid);
    if (trace < (double)c.dim * p->min_eigenvalue - off || trace > (double)c.dim * p->max_eigenvalue + off)
        finding("a trace of %g, eigenvalues %g to %g", trace, p->min_eigenvalue, p->max_eigenvalue);
    for (int k = 0; k < 12; k++) {
        double v[MAX_DIM], size = 0, length = 0;
        for (int64_t a = 0; a < c.dim; a++) v[a] = k < c.dim ? (double)(a == k) : draw_real(c.from, -1, 1), length += v[a] * v[a];
        const double quotient = form(v, v, IN_1, &size) / length;
        if (quotient < p->min_eigenvalue - off || quotient > p->max_eigenvalue + off)
            finding("a quotient of %g, eigenvalues %g to %g", quotient, p->min_eigenvalue, p->max_eigenvalue);
    }
}

static void by_general_score(void)
{
    attn_problem p = c.problem;
    attn_tensors t = c.tensors;
    p.score.kind = ATTN_SCORE_GENERAL;
    t.score_matrix = (attn_input){c.p[IN_4], ATTN_F64, {0, 0, 0, 0}};
    blocks_canary(c.blocks, BLOCKS, 0x5A);
    if (attn_compute(&p, &t, &calls_last)) finding("a general score is rejected: %s", calls_last.message);
    if (c.options.isa == ATTN_ISA_DEFAULT) blocks_compare(c.blocks, BLOCKS, 0x5A, "a general score");
}

static void by_definition(void)
{
    if (c.kind == ATTENTION) by_general_score();
    if (c.special) return;
    if (c.kind <= LEARNED_BACKWARD || c.kind == INVERSE_BACKWARD) by_matrices();
    if (c.kind == INVERSE) by_products();
    if (c.kind == CHECK) by_quotients();
    if (c.kind == FORM || c.kind == FORM_BACKWARD || c.kind == BATCH || c.kind == BATCH_BACKWARD) by_pairs();
    if (c.kind == LOWER || c.kind == RAISE || c.kind == INDEX_BACKWARD || c.kind == QUADRATIC || c.kind == INNER) by_vectors();
}

/* ---- invalid calls ---- */

static void reject(void)
{
    draws *d = c.from;
    const double scale = c.scale, tolerance = c.tolerance;
    const char *must = NULL;
    const char *const metric = c.metric;
    const int at = (int)draw_below(d, BLOCKS), counted = c.kind == LEARNED || c.kind == LEARNED_BACKWARD || c.kind >= LOWER;
    switch (draw_below(d, 4)) {
    case 0:
        if (c.kind == ATTENTION) break;
        if (draw_one_in(d, 2) && counted) c.count = calls_bad_size(d), must = "an invalid count";
        else c.dim = draw_one_in(d, 3) ? 0 : calls_bad_size(d), must = "an invalid dim";
        break;
    case 1:
        if (!c.blocks[at].name ||
            (at >= OUT_1 && (c.kind == INDEX_BACKWARD || c.kind == FORM_BACKWARD || c.kind == BATCH_BACKWARD)))
            break;
        if (c.kind == ATTENTION && at != IN_4) break;
        c.p[at] = NULL, must = "NULL";
        break;
    case 2:
        if (c.kind == SCALED) c.scale = NAN, must = "a scale that is NaN";
        if (c.kind == CHECK) c.tolerance = draw_one_in(d, 2) ? -1 : NAN, must = "an invalid tolerance";
        if (c.kind == INNER) c.metric = draw_one_in(d, 2) ? "" : "scaled ", must = "an unknown metric";
        if (c.kind == INVERSE || c.kind == CHECK)
            block_put(&c.blocks[IN_1], 0, 0, c.dim - 1, 0, draw_one_in(d, 2) ? NAN : INFINITY),
                must = "a number that is not finite";
        if (c.kind == ATTENTION) c.problem.score.kind = ATTN_SCORE_COSINE, must = "a score kind set by the caller";
        break;
    default:
        if (c.kind == CHECK) c.properties.struct_size = (size_t)draw_hostile(d) | 1 << 22, must = "a struct of megabytes";
        if (c.kind == ATTENTION) c.tensors.score_matrix = block_in(&c.blocks[IN_4]), must = "a score matrix set by the caller";
        for (int64_t a = 0; c.kind == INVERSE && a < c.dim; a++) /* two equal rows, or a row of zeros */
            block_put(&c.blocks[IN_1], 0, 0, 0, a, c.dim > 1 ? block_get(&c.blocks[IN_1], 0, 0, c.dim - 1, a) : 0),
                must = "a singular matrix";
    }
    calls_rejected(&all, must);
    c.scale = scale, c.tolerance = tolerance, c.metric = metric, c.problem.score.kind = ATTN_SCORE_DOT;
}

void target_run(draws *from)
{
    memset(&c, 0, sizeof c);
    c.from = from;
    draw_case();
    target_drawn();
    calls_first(&all);
    by_definition();
    calls_vary(&all, from, c.kind == ATTENTION ? &c.options : NULL, 1, reject);
    blocks_free(c.blocks, BLOCKS);
}
