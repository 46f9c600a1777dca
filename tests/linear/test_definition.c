/* SPDX-License-Identifier: MIT
 * test_definition.c - linear attention, forward and backward, against ref/ and against finite differences: every map, rule, decay,
 * form, denominator and storage type, with lengths that are multiples of no block size. */
#include "linear_case.h"

#include <math.h>

typedef struct row {
    const char *name;
    attn_linear_problem problem;
    int decays; /* 1: there is a decay */
} row;

#define SHAPE(b, hq, hkv, sq, skv, d, dv) .shape = {b, hq, hkv, sq, skv, d, dv}
static const row rows[] = {
    {"elu1 causal", {SHAPE(2, 2, 2, 131, 131, 8, 6), .causal = 1}, 0},
    {"elu1 causal d64", {SHAPE(1, 1, 1, 200, 200, 64, 64), .causal = 1}, 0},
    {"elu1 full", {SHAPE(2, 2, 1, 61, 103, 20, 33)}, 0},
    {"relu causal add",
     {SHAPE(1, 4, 2, 67, 67, 9, 17), .features = ATTN_FEATURES_RELU, .causal = 1, .denominator = ATTN_DENOMINATOR_ADD},
     0},
    {"relu full", {SHAPE(1, 2, 2, 22, 26, 8, 6), .features = ATTN_FEATURES_RELU}, 0},
    {"softmax causal", {SHAPE(1, 2, 1, 99, 99, 13, 5), .features = ATTN_FEATURES_SOFTMAX, .causal = 1}, 0},
    {"softmax full", {SHAPE(1, 1, 1, 50, 49, 16, 16), .features = ATTN_FEATURES_SOFTMAX}, 0},
    {"favor causal", {SHAPE(1, 2, 2, 77, 77, 8, 6), .features = ATTN_FEATURES_FAVOR, .random_features = 24, .causal = 1}, 0},
    {"favor full", {SHAPE(1, 2, 1, 30, 55, 12, 7), .features = ATTN_FEATURES_FAVOR, .random_features = 33}, 0},
    {"fourier causal",
     {SHAPE(1, 1, 1, 58, 58, 6, 9), .features = ATTN_FEATURES_FOURIER, .random_features = 15, .causal = 1,
      .denominator = ATTN_DENOMINATOR_NONE},
     0},
    {"trigonometric full",
     {SHAPE(1, 1, 1, 31, 29, 6, 9), .features = ATTN_FEATURES_TRIGONOMETRIC, .random_features = 15,
      .denominator = ATTN_DENOMINATOR_NONE},
     0},
    {"identity scaled",
     {SHAPE(1, 2, 2, 100, 100, 16, 24), .features = ATTN_FEATURES_IDENTITY, .causal = 1, .denominator = ATTN_DENOMINATOR_NONE,
      .scale_kind = ATTN_SCALE_VALUE, .scale = -0.3},
     0},
    {"retention",
     {SHAPE(1, 2, 1, 140, 140, 16, 11), .features = ATTN_FEATURES_IDENTITY, .causal = 1, .denominator = ATTN_DENOMINATOR_NONE},
     1},
    {"elu1 decayed", {SHAPE(2, 2, 2, 70, 70, 10, 12), .causal = 1}, 1},
    {"gated",
     {SHAPE(1, 4, 2, 45, 45, 9, 21), .features = ATTN_FEATURES_IDENTITY, .causal = 1, .denominator = ATTN_DENOMINATOR_NONE,
      .decay_kind = ATTN_DECAY_CHANNEL},
     1},
    {"gated elu1", {SHAPE(1, 1, 1, 39, 39, 9, 8), .causal = 1, .decay_kind = ATTN_DECAY_CHANNEL}, 1},
    {"delta",
     {SHAPE(1, 2, 2, 40, 40, 8, 37), .features = ATTN_FEATURES_SOFTMAX, .causal = 1, .denominator = ATTN_DENOMINATOR_NONE,
      .rule = ATTN_LINEAR_RULE_DELTA},
     0},
    {"gated delta",
     {SHAPE(2, 2, 1, 33, 33, 8, 6), .features = ATTN_FEATURES_SOFTMAX, .causal = 1, .denominator = ATTN_DENOMINATOR_NONE,
      .rule = ATTN_LINEAR_RULE_DELTA},
     1},
    {"gated delta channels",
     {SHAPE(1, 1, 1, 34, 34, 7, 6), .features = ATTN_FEATURES_SOFTMAX, .causal = 1, .denominator = ATTN_DENOMINATOR_NONE,
      .rule = ATTN_LINEAR_RULE_DELTA, .decay_kind = ATTN_DECAY_CHANNEL},
     1},
    {"gated d40",
     {SHAPE(1, 2, 1, 90, 90, 40, 70), .causal = 1, .denominator = ATTN_DENOMINATOR_ADD, .decay_kind = ATTN_DECAY_CHANNEL},
     1},
    {"gated delta d64",
     {SHAPE(1, 2, 1, 110, 110, 64, 72), .features = ATTN_FEATURES_SOFTMAX, .causal = 1, .denominator = ATTN_DENOMINATOR_NONE,
      .rule = ATTN_LINEAR_RULE_DELTA},
     1},
    {"low rank",
     {SHAPE(1, 2, 2, 41, 41, 9, 37), .features = ATTN_FEATURES_IDENTITY, .causal = 1, .denominator = ATTN_DENOMINATOR_NONE,
      .rule = ATTN_LINEAR_RULE_LOW_RANK},
     0},
    {"low rank gated",
     {SHAPE(2, 4, 2, 35, 35, 8, 6), .features = ATTN_FEATURES_ELU1, .causal = 1, .denominator = ATTN_DENOMINATOR_NONE,
      .rule = ATTN_LINEAR_RULE_LOW_RANK, .decay_kind = ATTN_DECAY_CHANNEL, .scale_kind = ATTN_SCALE_VALUE, .scale = 0.2},
     1},
    {"low rank retained",
     {SHAPE(1, 1, 1, 34, 34, 7, 6), .features = ATTN_FEATURES_SOFTMAX, .causal = 1, .denominator = ATTN_DENOMINATOR_NONE,
      .rule = ATTN_LINEAR_RULE_LOW_RANK},
     1},
    {"one token", {SHAPE(2, 2, 1, 1, 1, 8, 6), .causal = 1}, 0},
};
enum { ROWS = sizeof rows / sizeof *rows };

static int has_chunks(const attn_linear_problem *p) { return p->rule != ATTN_LINEAR_RULE_LOW_RANK; }

static double compare(const row *r, linear_case *c, const char *how)
{
    double worst = 0;
    for (int t = T_O; t < TENSORS; t++) {
        const double error = linear_case_error(c, t);
        if (!(error <= 1)) fail_msg("%s, %s: %s has an error of %g of its bound", r->name, how, linear_tensor_names[t], error);
        worst = fmax(worst, error);
    }
    return worst;
}

static double check_row(const row *r, attn_dtype dtype, attn_linear_form form, int64_t chunk)
{
    linear_case c = {.problem = r->problem, .decays = r->decays};
    char how[64];
    (void)snprintf(how, sizeof how, "%s form %d chunk %d", attn_dtype_name(dtype), (int)form, (int)chunk);
    c.problem.form = form;
    c.problem.chunk = chunk;
    linear_case_draw(&c, dtype, 7);
    linear_case_run(&c, 0);
    linear_case_define(&c);
    const double worst = compare(r, &c, how);
    linear_case_free(&c);
    return worst;
}

static void test_rows(void **state)
{
    static const attn_dtype types[] = {ATTN_F64, ATTN_F32, ATTN_BF16, ATTN_F16};
    double worst = 0;
    (void)state;
    for (int i = 0; i < ROWS; i++)
        for (int t = 0; t < 4; t++) {
            worst = fmax(worst, check_row(&rows[i], types[t], ATTN_LINEAR_FORM_AUTO, 0));
            if (t > 1) continue;
            if (rows[i].problem.causal) worst = fmax(worst, check_row(&rows[i], types[t], ATTN_LINEAR_FORM_RECURRENT, 0));
            if (!has_chunks(&rows[i].problem)) continue;
            worst = fmax(worst, check_row(&rows[i], types[t], ATTN_LINEAR_FORM_QUADRATIC, 0));
            worst = fmax(worst, check_row(&rows[i], types[t], ATTN_LINEAR_FORM_CHUNKED, 1));
            worst = fmax(worst, check_row(&rows[i], types[t], ATTN_LINEAR_FORM_CHUNKED, 37));
        }
    print_message("worst error: %.3f of the bound\n", worst);
}

/* Channels that decay by e^-60 per token, and chunks of hundreds of tokens: products of gates underflow, and nothing may be divided
 * by them. */
static void test_strong_decay(void **state)
{
    static const attn_linear_problem kinds[] = {
        {.causal = 1, .decay_kind = ATTN_DECAY_CHANNEL},
        {.causal = 1,
         .rule = ATTN_LINEAR_RULE_DELTA,
         .decay_kind = ATTN_DECAY_CHANNEL,
         .features = ATTN_FEATURES_SOFTMAX,
         .denominator = ATTN_DENOMINATOR_NONE},
    };
    static const int64_t chunks[] = {0, 5, 200};
    (void)state;
    for (int kind = 0; kind < 2; kind++)
        for (int k = 0; k < 3; k++) {
            linear_case c = {.problem = kinds[kind], .decays = 1};
            const row r = {.name = "strong decay", .decays = 1};
            c.problem.shape = (attn_shape){1, 1, 1, 200, 200, 12, 9};
            c.problem.form = ATTN_LINEAR_FORM_CHUNKED;
            c.problem.chunk = chunks[k];
            linear_case_draw(&c, ATTN_F32, 3);
            for (int64_t i = 0; i < c.count[T_DECAY]; i++) {
                ((float *)c.data[T_DECAY])[i] *= i % 3 == 0 ? 60 : i % 3 == 1 ? 1 : 0;
                c.exact[T_DECAY][i] = (double)((float *)c.data[T_DECAY])[i];
            }
            linear_case_run(&c, 0);
            linear_case_define(&c);
            (void)compare(&r, &c, "chunks");
            linear_case_free(&c);
        }
}

/* Tokens with beta 0, which write nothing: the gradient of beta still is that of what they would write. */
static void test_beta_zero(void **state)
{
    static const attn_linear_form forms[] = {ATTN_LINEAR_FORM_RECURRENT, ATTN_LINEAR_FORM_CHUNKED, ATTN_LINEAR_FORM_QUADRATIC};
    static const attn_dtype types[] = {ATTN_F64, ATTN_F32};
    (void)state;
    for (int i = 0; i < ROWS; i++)
        for (int how = 0; rows[i].problem.rule == ATTN_LINEAR_RULE_DELTA && how < 6; how++) {
            linear_case c = {.problem = rows[i].problem, .decays = rows[i].decays};
            c.problem.form = forms[how / 2];
            linear_case_draw(&c, types[how % 2], 5);
            for (int64_t b = 0; b < c.count[T_BETA]; b++) {
                if (b % 3 != 1) continue;
                c.exact[T_BETA][b] = 0;
                memset((char *)c.data[T_BETA] + b * (int64_t)attn_dtype_size(c.dtype), 0, attn_dtype_size(c.dtype));
            }
            linear_case_run(&c, 0);
            linear_case_define(&c);
            (void)compare(&rows[i], &c, "a beta of 0");
            linear_case_free(&c);
        }
}

/* Moves the elements of a dense tensor apart. */
enum { STEP = 3 };

static void spread(linear_case *c, int tensor, attn_input *slot, const int64_t extent[4])
{
    const attn_dtype type = linear_case_type(c, tensor);
    const size_t size = attn_dtype_size(type);
    char *separate = calloc((size_t)c->count[tensor] * STEP + 1, size);
    assert_non_null(separate);
    for (int64_t i = 0; i < c->count[tensor]; i++)
        memcpy(separate + (size_t)(i * STEP) * size, (char *)c->data[tensor] + (size_t)i * size, size);
    *slot = (attn_input){
        separate, type, {extent[1] * extent[2] * extent[3] * STEP, extent[2] * extent[3] * STEP, extent[3] * STEP, STEP}};
}

static void gather(linear_case *c, int tensor, const attn_input *slot)
{
    const size_t size = attn_dtype_size(linear_case_type(c, tensor));
    for (int64_t i = 0; i < c->count[tensor]; i++)
        memcpy((char *)c->data[tensor] + (size_t)i * size, (const char *)slot->data + (size_t)(i * STEP) * size, size);
}

/* Decays per channel, and sums of features, with a last axis that is not contiguous. */
static void test_spread(void **state)
{
    (void)state;
    for (int i = 0; i < ROWS; i++)
        for (int token = 0; token <= rows[i].problem.causal; token++) {
            linear_case c = {.problem = rows[i].problem, .decays = rows[i].decays};
            const attn_shape *s = &c.problem.shape;
            const int of_channels = rows[i].decays && rows[i].problem.decay_kind == ATTN_DECAY_CHANNEL;
            c.problem.form = token ? ATTN_LINEAR_FORM_RECURRENT : ATTN_LINEAR_FORM_AUTO;
            linear_case_draw(&c, ATTN_F32, 9);
            const int64_t features = attn_features_count(c.problem.features, s->dim_qk, c.problem.random_features);
            const int64_t of_decay[4] = {s->batch, s->heads_kv, s->len_kv, features},
                          of_sum[4] = {s->batch, s->heads_kv, features, 1};
            const struct {
                int tensor, there;
                attn_input *slot;
                const int64_t *extent;
            } all[] = {{T_DECAY, of_channels, &c.args.decay, of_decay},
                       {T_DDECAY, of_channels, (attn_input *)&c.args.grad_decay, of_decay},
                       {T_Z0, c.count[T_Z0] > 0, &c.args.initial_sum, of_sum},
                       {T_Z1, c.count[T_Z0] > 0, (attn_input *)&c.args.final_sum, of_sum},
                       {T_DZ1, c.count[T_Z0] > 0, &c.args.grad_final_sum, of_sum},
                       {T_DZ0, c.count[T_Z0] > 0, (attn_input *)&c.args.grad_initial_sum, of_sum}};
            enum { ALL = sizeof all / sizeof *all };
            for (int t = 0; t < ALL; t++)
                if (all[t].there) spread(&c, all[t].tensor, all[t].slot, all[t].extent);
            linear_case_run(&c, 0);
            linear_case_define(&c);
            for (int t = 0; t < ALL; t++)
                if (all[t].there && all[t].tensor != T_DECAY && all[t].tensor != T_Z0 && all[t].tensor != T_DZ1)
                    gather(&c, all[t].tensor, all[t].slot);
            (void)compare(&rows[i], &c, "spread");
            for (int t = 0; t < ALL; t++)
                if (all[t].there) free((void *)(uintptr_t)all[t].slot->data);
            linear_case_free(&c);
        }
}

/* The function whose gradients are computed: <do, o> + <ds1, s1> + <dz1, z1>. */
static double objective(linear_case *c)
{
    static const int pairs[][2] = {{T_DO, T_O}, {T_DS1, T_S1}, {T_DZ1, T_Z1}};
    double sum = 0;
    linear_case_forward(c, 1);
    for (int k = 0; k < 3; k++)
        for (int64_t i = 0; i < c->count[pairs[k][0]]; i++)
            sum += linear_case_at(c, pairs[k][0], i) * linear_case_at(c, pairs[k][1], i);
    return sum;
}

static void test_differences(void **state)
{
    static const int inputs[] = {T_Q, T_K, T_V, T_DECAY, T_BETA, T_ERASE, T_WRITE, T_S0, T_Z0};
    static const int gradients[] = {T_DQ, T_DK, T_DV, T_DDECAY, T_DBETA, T_DERASE, T_DWRITE, T_DS0, T_DZ0};
    const double step = 1e-5;
    (void)state;
    for (int i = 0; i < ROWS; i++) {
        linear_case c = {.problem = rows[i].problem, .decays = rows[i].decays};
        c.problem.shape.len_kv = c.problem.causal ? c.problem.shape.len_q = rows[i].problem.shape.len_q < 19 ? 1 : 19 : 17;
        linear_case_draw(&c, ATTN_F64, 3);
        linear_case_run(&c, 1);
        for (int t = 0; t < 9; t++)
            for (int64_t at = 0; at < c.count[inputs[t]]; at += 1 + c.count[inputs[t]] / 7) {
                double *x = (double *)c.data[inputs[t]] + at, kept = *x, up;
                if (c.problem.features == ATTN_FEATURES_RELU && fabs(kept) < 2 * step) continue; /* at the corner */
                *x = kept + step;
                up = objective(&c);
                *x = kept - step;
                const double slope = (up - objective(&c)) / (2 * step), got = linear_case_at(&c, gradients[t], at);
                *x = kept;
                /* The third derivative times step^2 / 6, and rounding over step; everything is of order 1 to 100. */
                if (!(fabs(slope - got) <= 1e-7 * (1 + fabs(got))))
                    fail_msg("%s: %s[%d] is %.12g, by differences %.12g", rows[i].name, linear_tensor_names[gradients[t]], (int)at,
                             got, slope);
            }
        linear_case_free(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rows), cmocka_unit_test(test_strong_decay),
                                       cmocka_unit_test(test_beta_zero), cmocka_unit_test(test_spread),
                                       cmocka_unit_test(test_differences)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
