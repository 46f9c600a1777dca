/* SPDX-License-Identifier: MIT
 *
 * test_additive.c - additive scores whose exponentials leave the range of the type, and scores computed together with such.
 */
#include "test.h"

#include <float.h>
#include <math.h>

#include "testing/memory/element.h"
#include "testing/random/random.h"

enum { SQ = 37, SKV = 70, D = 67, DV = 5 }; /* more than a strip of hidden units, and odd */

typedef struct sample {
    attn_problem problem;
    attn_dtype dtype;
    int masked;                                                           /* 1: mask is in use */
    double q[SQ * D], k[SKV * D], v[SKV * DV], w[2 * D], grad_o[SQ * DV]; /* rounded to the type */
    unsigned char mask[SQ * SKV];
    double in[5][SKV * D]; /* storage in the type, from here on */
    double o[SQ * DV], lse[SQ], scores[SQ * SKV], dq[SQ * D], dk[SKV * D], dv[SKV * DV], dw[2 * D];
} sample;

static double rounded(attn_dtype dtype, double x) { return dtype == ATTN_F32 ? (double)(float)x : x; }

static void put(sample *s, void *scratch, const double *from, int n)
{
    char *to = scratch;
    for (int i = 0; i < n; i++) element_write(s->dtype, to + (size_t)i * attn_dtype_size(s->dtype), from[i]);
}

static double at(const sample *s, const void *from, int i)
{
    return element_read(s->dtype, (const char *)from + (size_t)i * attn_dtype_size(s->dtype));
}

/* Rows of size sizes[r % count]. */
static void draw_rows(sample *s, double *x, int rows, const double *sizes, int count, random_state *random)
{
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < D; c++) x[r * D + c] = rounded(s->dtype, sizes[r % count] * (2 * random_unit(random) - 1));
}

static sample *sample_make(attn_dtype dtype, const double *sizes, int count, int bias)
{
    sample *s = calloc(1, sizeof *s);
    random_state random = {11};
    assert_non_null(s);
    s->dtype = dtype;
    draw_rows(s, s->q, SQ, sizes, count, &random);
    for (int j = 0; j < SKV; j++)
        for (int c = 0; c < D; c++) s->k[j * D + c] = rounded(dtype, sizes[j / 3 % count] * (2 * random_unit(&random) - 1));
    for (int i = 0; i < SKV * DV; i++) s->v[i] = rounded(dtype, 2 * random_unit(&random) - 1);
    for (int i = 0; i < SQ * DV; i++) s->grad_o[i] = rounded(dtype, 2 * random_unit(&random) - 1);
    for (int i = 0; i < 2 * D; i++) s->w[i] = rounded(dtype, 2 * random_unit(&random) - 1);
    memset(s->mask, 1, sizeof s->mask);
    s->problem = (attn_problem){.struct_size = sizeof s->problem, .shape = {1, 1, 1, SQ, SKV, D, DV}};
    s->problem.score.kind = ATTN_SCORE_ADDITIVE;
    s->problem.score.additive_bias = bias;
    return s;
}

/* Returns 0 if this CPU lacks the instruction set. */
static int run(sample *s, attn_op op, attn_isa isa)
{
    attn_tensors args = {.struct_size = sizeof args,
                         .q = attn_in(s->in[0]),
                         .k = attn_in(s->in[1]),
                         .v = attn_in(s->in[2]),
                         .score_matrix = attn_in(s->in[3]),
                         .o = attn_out(s->o),
                         .lse = attn_out(s->lse)};
    const attn_options options = {.struct_size = sizeof options, .isa = isa, .threads = 1};
    attn_problem p = s->problem;
    attn_plan *plan;
    attn_error error;
    p.op = op;
    args.q.dtype = s->dtype;
    if (s->masked) args.mask = attn_in(s->mask);
    if (op == ATTN_FORWARD) args.scores = attn_out(s->scores);
    if (op == ATTN_BACKWARD) {
        args.grad_o = attn_in(s->in[4]);
        args.grad_q = attn_out(s->dq), args.grad_k = attn_out(s->dk), args.grad_v = attn_out(s->dv);
        args.grad_score_matrix = attn_out(s->dw);
    }
    put(s, s->in[0], s->q, SQ * D), put(s, s->in[1], s->k, SKV * D), put(s, s->in[2], s->v, SKV * DV),
        put(s, s->in[3], s->w, 2 * D);
    put(s, s->in[4], s->grad_o, SQ * DV);
    attn_status status = attn_plan_create(&plan, &p, &args, &options, &error);
    if (status == ATTN_ERR_UNSUPPORTED && isa_is_elsewhere((int)isa, error.message)) return 0;
    if (status != ATTN_OK) fail_msg("%s", error.message);
    void *workspace = malloc(attn_plan_workspace_size(plan));
    if (attn_execute(plan, &args, workspace, attn_plan_workspace_size(plan), &error) != ATTN_OK) fail_msg("%s", error.message);
    free(workspace);
    attn_plan_destroy(plan);
    return 1;
}

static const double sizes[] = {0.5, 3, 17.5, 19, 40, 68, 70, 200, 1e4, 1e30};
enum { SIZES = sizeof sizes / sizeof *sizes };

/* Queries and keys of every size, near and far: the error of scores is at most (D + 2) u and 16 u for each term, and that of
 * rounding q + b. */
static void test_far_scores(void **state)
{
    (void)state;
    for (int type = 0; type < 2; type++)
        for (int bias = 0; bias < 2; bias++) {
            sample *s = sample_make(type ? ATTN_F64 : ATTN_F32, sizes, SIZES, bias);
            const double u = type ? DBL_EPSILON : (double)FLT_EPSILON / 2; /* the sum here rounds too */
            double worst = 0;
            for (int isa = ATTN_ISA_SCALAR; isa <= ATTN_ISA_WASM128; isa++) {
                if (!run(s, ATTN_FORWARD, (attn_isa)isa)) continue;
                for (int i = 0; i < SQ; i++)
                    for (int j = 0; j < SKV; j++) {
                        double exact = 0, size = 0;
                        for (int c = 0; c < D; c++) {
                            const double b = bias ? s->w[D + c] : 0, x = s->q[i * D + c] + b, z = x + s->k[j * D + c];
                            exact += s->w[c] * tanh(z);
                            size += fabs(s->w[c]) * (D + 18 + (bias ? fabs(x) * fmin(1, 4 * exp(-2 * fabs(z))) : 0));
                        }
                        const double error = fabs(at(s, s->scores, i * SKV + j) - exact) / (u * size);
                        if (!(error < 1)) fail_msg("isa %d, query %d and key %d: %g of the bound", isa, i, j, error);
                        worst = fmax(worst, error);
                    }
            }
            print_message("%s%s: at most %.3f of the bound\n", attn_dtype_name(s->dtype), bias ? " with biases" : "", worst);
            assert_true(worst > 1e-3);
            free(s);
        }
}

/* Gradients with far numbers: those of near ones are not lost next to them.  (test_kinds.c compares gradients with differences.)
 * Here all are compared with the formula from the weights, over the same numbers. */
static void test_far_gradients(void **state)
{
    (void)state;
    for (int isa = ATTN_ISA_SCALAR; isa <= ATTN_ISA_WASM128; isa++) {
        sample *s = sample_make(ATTN_F64, sizes, SIZES, 1);
        if (!run(s, ATTN_FORWARD, (attn_isa)isa) || !run(s, ATTN_BACKWARD, (attn_isa)isa)) {
            free(s);
            continue;
        }
        double *dq = calloc(SQ * D, sizeof *dq), *dk = calloc(SKV * D, sizeof *dk), dw[2 * D] = {0};
        assert_true(dq && dk);
        for (int i = 0; i < SQ; i++) {
            double delta = 0;
            for (int c = 0; c < DV; c++) delta += s->grad_o[i * DV + c] * at(s, s->o, i * DV + c);
            for (int j = 0; j < SKV; j++) {
                double g = 0, P = exp(at(s, s->scores, i * SKV + j) - at(s, s->lse, i));
                for (int c = 0; c < DV; c++) g += s->grad_o[i * DV + c] * s->v[j * DV + c];
                for (int c = 0; c < D; c++) {
                    const double t = tanh(s->q[i * D + c] + s->w[D + c] + s->k[j * D + c]), dS = P * (g - delta);
                    const double dz = dS * s->w[c] * (1 - t * t);
                    dq[i * D + c] += dz, dk[j * D + c] += dz, dw[c] += dS * t, dw[D + c] += dz;
                }
            }
        }
        for (int n = 0; n < SQ * D; n++) assert_true(fabs(at(s, s->dq, n) - dq[n]) < 1e-12);
        for (int n = 0; n < SKV * D; n++) assert_true(fabs(at(s, s->dk, n) - dk[n]) < 1e-12);
        for (int n = 0; n < 2 * D; n++) assert_true(fabs(at(s, s->dw, n) - dw[n]) < 1e-12);
        free(dq), free(dk), free(s);
    }
}

static void same_row(const void *x, const void *y, int row, size_t dim)
{
    const size_t bytes = dim * sizeof(float);
    assert_memory_equal((const char *)x + (size_t)row * bytes, (const char *)y + (size_t)row * bytes, bytes);
}

/* Neither other queries of its tile nor keys that it does not see change a bit of a query's results, near or far or NaN. */
static void test_neighbours(void **state)
{
    static const double near_sizes[] = {2}, strange[] = {40, 1e30, NAN, -INFINITY};
    (void)state;
    sample *plain = sample_make(ATTN_F32, near_sizes, 1, 1), *mixed = sample_make(ATTN_F32, near_sizes, 1, 1);
    plain->masked = mixed->masked = 1;
    for (int i = 0; i < SQ; i++)
        for (int j = 0; j < SKV; j++) plain->mask[i * SKV + j] = mixed->mask[i * SKV + j] = i % 5 != 0 && j % 7 != 0;
    for (int i = 0; i < SQ; i += 5)
        for (int c = 0; c < D; c += 3) mixed->q[i * D + c] = strange[i / 5 % 4];
    for (int j = 0; j < SKV; j += 7)
        for (int c = 0; c < D; c += 2) mixed->k[j * D + c] = strange[j / 7 % 4];
    for (int isa = ATTN_ISA_SCALAR; isa <= ATTN_ISA_WASM128; isa++) {
        if (!run(plain, ATTN_FORWARD, (attn_isa)isa)) continue;
        (void)run(plain, ATTN_BACKWARD, (attn_isa)isa);
        (void)run(mixed, ATTN_FORWARD, (attn_isa)isa), (void)run(mixed, ATTN_BACKWARD, (attn_isa)isa);
        for (int i = 0; i < SQ; i++) {
            if (i % 5 == 0) continue;
            same_row(plain->o, mixed->o, i, DV);
            same_row(plain->lse, mixed->lse, i, 1);
            same_row(plain->dq, mixed->dq, i, D);
        }
        for (int j = 0; j < SKV; j++) {
            if (j % 7 == 0) continue;
            same_row(plain->dk, mixed->dk, j, D);
            same_row(plain->dv, mixed->dv, j, DV);
        }
    }
    free(plain), free(mixed);
}

/* A number added to all scores (a bias on the outer weights) changes nothing but lse. */
static void p24_outer_bias(void **state)
{
    static const double near_sizes[] = {2};
    const float three[1] = {3};
    (void)state;
    sample *s = sample_make(ATTN_F32, near_sizes, 1, 0);
    float o[2][SQ * DV], lse[2][SQ];
    for (int biased = 0; biased < 2; biased++) {
        attn_error error;
        attn_tensors args = {.struct_size = sizeof args,
                             .q = attn_in(s->in[0]),
                             .k = attn_in(s->in[1]),
                             .v = attn_in(s->in[2]),
                             .score_matrix = attn_in(s->in[3]),
                             .o = attn_out(o[biased]),
                             .lse = attn_out(lse[biased])};
        const attn_problem p = s->problem;
        put(s, s->in[0], s->q, SQ * D), put(s, s->in[1], s->k, SKV * D), put(s, s->in[2], s->v, SKV * DV),
            put(s, s->in[3], s->w, D);
        if (biased) args.bias = attn_in(three);
        for (int axis = 0; biased && axis < 4; axis++) args.bias.stride[axis] = ATTN_BROADCAST;
        if (attn_compute(&p, &args, &error) != ATTN_OK) fail_msg("%s", error.message);
    }
    for (int n = 0; n < SQ * DV; n++) assert_true(fabsf(o[0][n] - o[1][n]) < 1e-5F);
    for (int i = 0; i < SQ; i++) assert_true(fabsf(lse[0][i] + 3 - lse[1][i]) < 1e-5F);
    free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_far_scores), cmocka_unit_test(test_far_gradients),
                                       cmocka_unit_test(test_neighbours), cmocka_unit_test(p24_outer_bias)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
