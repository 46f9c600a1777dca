/* SPDX-License-Identifier: MIT
 *
 * test_self.c - attn check can fail: correct outputs pass, and every way of corrupting them, the mask or scale of the problem, or
 * guarded memory is detected.
 */
#include "test.h"

#include <float.h>
#include <math.h>

#include "testing/bound/bound.h"
#include "testing/case/sweep.h"
#include "testing/memory/element.h"
#include "testing/memory/guard.h"
#include "testing/random/normal.h"
#include "testing/verdict/run.h"

static check_case parse(const char *text)
{
    check_case c;
    attn_error error;
    if (case_parse(text, &c, &error) != ATTN_OK) fail_msg("%s: %s", text, error.message);
    return c;
}

static check_result run(const char *text, void (*tamper)(check_outputs *out, void *context), void *context)
{
    const check_case c = parse(text);
    check_result r;
    check_run_case(&r, &c,
                   &(check_setting){.options = {.struct_size = sizeof(attn_options), .isa = ATTN_ISA_SCALAR, .threads = 1},
                                    .tamper = tamper,
                                    .tamper_context = context});
    return r;
}

/* ---- corrupted outputs ---- */

typedef struct spoil {
    const char *name;
    void (*tamper)(check_outputs *out, void *context);
} spoil;

static void flip_sign(check_outputs *out, void *context)
{
    (void)context, out->numbers[TENSOR(o)][7] = -out->numbers[TENSOR(o)][7];
}
static void nudge(check_outputs *out, void *context) { (void)context, out->numbers[TENSOR(o)][11] *= 1 + 1e-4; }
static void drop_one(check_outputs *out, void *context) { (void)context, out->numbers[TENSOR(o)][3] = 0; }
static void make_nan(check_outputs *out, void *context) { (void)context, out->numbers[TENSOR(o)][0] = NAN; }
static void make_infinite(check_outputs *out, void *context) { (void)context, out->numbers[TENSOR(o)][0] = INFINITY; }
static void nudge_lse(check_outputs *out, void *context) { (void)context, out->numbers[TENSOR(lse)][2] += 1e-4; }
static void lose_lse(check_outputs *out, void *context) { (void)context, out->numbers[TENSOR(lse)][2] = -INFINITY; }
static void nudge_weight(check_outputs *out, void *context) { (void)context, out->numbers[TENSOR(weights)][1] += 1e-4; }
static void swap_rows(check_outputs *out, void *context)
{
    (void)context;
    const double kept = out->numbers[TENSOR(o)][0];
    out->numbers[TENSOR(o)][0] = out->numbers[TENSOR(o)][16];
    out->numbers[TENSOR(o)][16] = kept;
}

static void spoilt_outputs_are_found(void **state)
{
    (void)state;
    static const spoil spoils[] = {{"a sign", flip_sign},  {"one part in 10^4", nudge}, {"a zero", drop_one},
                                   {"NaN", make_nan},      {"infinity", make_infinite}, {"lse", nudge_lse},
                                   {"lse -inf", lose_lse}, {"a weight", nudge_weight},  {"two rows", swap_rows}};
    static const char text[] = "fwd:f32:hq2:sq9:skv21:d8:dv16:lse:weights:seed=3";
    const check_result right = run(text, NULL, NULL);
    assert_string_equal(right.reason, "");
    assert_int_equal(right.status, CHECK_PASSED);
    assert_true(right.numbers.fraction > 0.005 && right.numbers.fraction < 1);
    for (size_t n = 0; n < sizeof spoils / sizeof *spoils; n++) {
        const check_result wrong = run(text, spoils[n].tamper, NULL);
        if (wrong.status != CHECK_FAILED || wrong.numbers.fraction <= 1 || !wrong.reason[0])
            fail_msg("not found: %s", spoils[n].name);
    }
}

/* The same for gradients, tangents and double backward: each output off by one part in 100, and with one sign flipped. */
typedef struct spoilt_flow {
    int which, sign;
} spoilt_flow;

static void spoil_flow(check_outputs *out, void *context)
{
    const spoilt_flow *s = context;
    double *numbers = out->numbers[s->which];
    const int64_t n = fabs(numbers[1]) > fabs(numbers[0]); /* the larger of the first two */
    numbers[n] *= s->sign ? -1 : 1.01;
}

static void spoilt_flows_are_found(void **state)
{
    (void)state;
    static const char *const texts[] = {
        [ATTN_BACKWARD] = "bwd:f64:hq2:sq9:skv21:d8:dv16:bias:dbias:alibi:dslopes:sink:dsink:scale=heads:dscale:seed=3",
        [ATTN_JVP] = "jvp:f64:hq2:sq9:skv21:d8:dv16:seed=3",
        [ATTN_DOUBLE_BACKWARD] = "bwd2:f64:hq2:sq9:skv21:d8:dv16:bias:softcap=2:seed=3",
    };
    for (int t = 0; t < TENSORS; t++) {
        const int relative = t >= TENSOR(grad_relative_keys) && t <= TENSOR(grad_relative_v);
        const char *name = tensors_about(t)->name, *text = NULL;
        for (int op = ATTN_BACKWARD; op < ATTN_OPERATIONS; op++)
            if (tensors_about(t)->role[op] == ATTN_ROLE_OUTPUT) text = texts[op];
        if (!text) continue;
        if (relative) text = "bwd:f64:hq2:sq9:skv21:d8:dv16:rel=xl:drel:seed=3";
        if (t == TENSOR(grad_relative_values)) text = "bwd:f64:hq2:sq9:skv21:d8:dv16:rel=shaw-values/4:drel:seed=3";
        if (t == TENSOR(grad_score_matrix)) text = "bwd:f64:hq2:sq9:skv21:d8:dv16:score=additive:seed=3";
        if (t == TENSOR(grad_bias_table)) text = "bwd:f64:hq2:sq9:skv21:d8:dv16:clipped=3:dtable:seed=3";
        const check_result right = run(text, NULL, NULL);
        if (right.status != CHECK_PASSED) fail_msg("%s: %s", text, right.reason);
        for (int sign = 0; sign < 2; sign++) {
            const check_result wrong = run(text, spoil_flow, &(spoilt_flow){t, sign});
            if (wrong.status != CHECK_FAILED || strcmp(wrong.numbers.where, name) != 0)
                fail_msg("not found in %s: %s", name, sign ? "a sign" : "one part in 100");
        }
    }
}

/* For scores and normalisers: one number of the output off by one part in 10^3, and outputs of a slightly different problem. */
static void nudge_largest(check_outputs *out, void *context)
{
    int largest = 0;
    (void)context;
    for (int n = 1; n < 100; n++)
        if (fabs(out->numbers[TENSOR(o)][n]) > fabs(out->numbers[TENSOR(o)][largest])) largest = n;
    out->numbers[TENSOR(o)][largest] *= 1 + 1e-3;
}
static void keep_outputs(check_outputs *out, void *context) { memcpy(context, out->numbers[TENSOR(o)], 100 * sizeof(double)); }
static void use_outputs(check_outputs *out, void *context) { memcpy(out->numbers[TENSOR(o)], context, 100 * sizeof(double)); }

static void spoilt_terms_are_found(void **state)
{
    (void)state;
    static const char *const pairs[][2] = {
        {"score=general", "score=general:scale=1.001"},
        {"score=general/5:w=heads", "score=general/5:w=heads:scale=1.001"},
        {"score=metric/3", "score=metric/3:scale=1.001"},
        {"score=additive:w=bias", "score=additive:w=bias:scale=1.001"},
        {"t5", "t5=causal"},
        {"clipped=3:causal", "clipped=3:causal:offset=1"},
        {"rel=shaw/3", "rel=shaw/3:scale=0.3539"},
        {"rel=shaw-values/3", "rel=shaw/3"},
        {"rel=xl", "rel=full"},
        {"normaliser=softmax-one", "normaliser=softmax"},
        {"normaliser=sigmoid", "normaliser=sigmoid:shift=0.001"},
        {"normaliser=relu", "normaliser=relu:scale=0.3539"},
    };
    for (size_t n = 0; n < sizeof pairs / sizeof *pairs; n++) {
        char texts[2][200];
        double numbers[100];
        for (int k = 0; k < 2; k++)
            snprintf(texts[k], sizeof texts[k], "fwd:f32:hq2:sq9:skv21:d8:dv16:lse:weights:%s", pairs[n][k]);
        const check_result right = run(texts[0], keep_outputs, numbers);
        if (right.status != CHECK_PASSED) fail_msg("%s: %s", texts[0], right.reason);
        assert_true(right.numbers.fraction > 0.002);
        if (run(texts[0], nudge_largest, NULL).status != CHECK_FAILED) fail_msg("%s: one part in 10^3 is not found", texts[0]);
        if (run(texts[0], nudge_weight, NULL).status != CHECK_FAILED) fail_msg("%s: a weight is not found", texts[0]);
        if (run(texts[1], use_outputs, numbers).status != CHECK_FAILED) fail_msg("%s passes for %s", texts[0], texts[1]);
    }
}

/* A dropped key must have weight exactly 0, a fully masked row output 0: even 1e-45 is an error. */
static void whisper(check_outputs *out, void *context)
{
    const int64_t *at = context;
    (at[0] ? out->numbers[TENSOR(weights)] : out->numbers[TENSOR(o)])[at[1]] = 1e-45;
}

static void exact_zeros_are_exact(void **state)
{
    (void)state;
    static const char text[] = "fwd:f32:sq4:skv6:d8:causal:offset=-1:lse:weights";
    assert_int_equal(run(text, NULL, NULL).status, CHECK_PASSED);
    int64_t weight[] = {1, 3}, row[] = {0, 2};
    assert_int_equal(run(text, whisper, weight).status, CHECK_FAILED);
    assert_int_equal(run(text, whisper, row).status, CHECK_FAILED);
}

/* Outputs of a mask that is one key wider or narrower, of any kind, or of a scale off by 3e-5, fail. */
static void keep_many(check_outputs *out, void *context) { memcpy(context, out->numbers[TENSOR(o)], 1000 * sizeof(double)); }
static void use_many(check_outputs *out, void *context) { memcpy(out->numbers[TENSOR(o)], context, 1000 * sizeof(double)); }

static void masks_off_by_one_are_found(void **state)
{
    (void)state;
    static const char *const pairs[][2] = {
        {"fwd:f32:sq50:skv60:d8:dv20:causal:offset=3", "fwd:f32:sq50:skv60:d8:dv20:causal:offset=4"},
        {"fwd:f32:sq50:skv60:d8:dv20:causal", "fwd:f32:sq50:skv60:d8:dv20:causal=bottom-right"},
        {"fwd:f32:sq50:skv60:d8:dv20:window=5,0", "fwd:f32:sq50:skv60:d8:dv20:window=4,0"},
        {"fwd:f32:sq50:skv60:d8:dv20:window=5,9", "fwd:f32:sq50:skv60:d8:dv20:window=5,8"},
        {"fwd:f32:sq50:skv60:d8:dv20:scale=0.3", "fwd:f32:sq50:skv60:d8:dv20:scale=0.30001"},
    };
    for (size_t n = 0; n < sizeof pairs / sizeof *pairs; n++) {
        double *numbers = calloc(1000, sizeof *numbers);
        assert_non_null(numbers);
        assert_int_equal(run(pairs[n][0], keep_many, numbers).status, CHECK_PASSED);
        assert_int_equal(run(pairs[n][0], use_many, numbers).status, CHECK_PASSED);
        if (run(pairs[n][1], use_many, numbers).status != CHECK_FAILED) fail_msg("%s passes for %s", pairs[n][0], pairs[n][1]);
        free(numbers);
    }
}

/* ---- memory ---- */

static void guards_see_every_side(void **state)
{
    (void)state;
    for (int side = GUARD_AFTER; side <= GUARD_BEFORE; side++)
        for (size_t bytes = 0; bytes < 5000; bytes = 3 * bytes + 1) {
            guarded g;
            assert_true(guarded_create(&g, bytes, (guard_side)side, 5));
            memset(g.data, 0, bytes);
            assert_true(guarded_intact(&g));
            g.data[bytes] = 0;
            assert_false(guarded_intact(&g));
            g.data[bytes] = GUARD_BYTE;
            g.data[-1] = 0;
            assert_false(guarded_intact(&g));
            guarded_destroy(&g);
        }
}

static void gaps_between_elements_are_guarded(void **state)
{
    (void)state;
    const int64_t size[4] = {2, 2, 3, 4};
    const tensor_plan plan = {.order = {0, 1, 2, 3}, .inner = 1, .gap = {0, 0, 0, 2}};
    double numbers[48];
    tensor t;
    assert_true(tensor_create(&t, ATTN_F32, size, &plan));
    for (int64_t b = 0; b < 2; b++)
        for (int64_t h = 0; h < 2; h++)
            for (int64_t i = 0; i < 3; i++)
                for (int64_t c = 0; c < 4; c++)
                    element_write(ATTN_F32, tensor_at(&t, b, h, i, c), (double)(100 * b + 20 * h + 4 * i + c));
    assert_true(tensor_take(&t, numbers));
    assert_true(numbers[47] == 100 + 20 + 8 + 3 && numbers[4] == 4);
    *((float *)tensor_at(&t, 0, 1, 1, 3) + 1) = 1;
    assert_false(tensor_take(&t, numbers));
    tensor_destroy(&t);
}

/* ---- numbers ---- */

static void storage_types_round_to_nearest_even(void **state)
{
    (void)state;
    static const struct {
        attn_dtype dtype;
        double x, rounded;
    } rows[] = {
        {ATTN_F16, 1, 1},
        {ATTN_F16, 1 + 0x1p-11, 1},                   /* tie: to even */
        {ATTN_F16, 1 + 3 * 0x1p-11, 1 + 2 * 0x1p-10}, /* tie: to even, upwards */
        {ATTN_F16, 1 + 0x1.001p-11, 1 + 0x1p-10},
        {ATTN_F16, 65504, 65504},
        {ATTN_F16, 65519.99, 65504},
        {ATTN_F16, 65520, INFINITY},
        {ATTN_F16, -0x1p-24, -0x1p-24},
        {ATTN_F16, 0x1p-25, 0},
        {ATTN_F16, 0x1.8p-24, 0x1p-23},
        {ATTN_F16, 0x1.ff8p-15, 0x1.ff8p-15},
        {ATTN_BF16, 1 + 0x1p-8, 1},
        {ATTN_BF16, 1 + 0x1.8p-8, 1 + 0x1p-7},
        {ATTN_BF16, 0x1p-133, 0x1p-133},
        {ATTN_BF16, 3.4e38, INFINITY},
        {ATTN_BF16, -0x1.fep127, -0x1.fep127},
    };
    for (size_t n = 0; n < sizeof rows / sizeof *rows; n++)
        if (element_round(rows[n].dtype, rows[n].x) != rows[n].rounded)
            fail_msg("%s: %a becomes %a, not %a", attn_dtype_name(rows[n].dtype), rows[n].x,
                     element_round(rows[n].dtype, rows[n].x), rows[n].rounded);
    assert_true(isnan(element_round(ATTN_F16, NAN)) && isnan(element_round(ATTN_BF16, NAN)));
    for (uint32_t bits = 0; bits < 65536; bits++) /* reading and writing are inverse */
        for (int which = 0; which < 2; which++) {
            const attn_dtype dtype = which ? ATTN_BF16 : ATTN_F16;
            const uint16_t half = (uint16_t)bits;
            uint16_t again;
            const double x = element_read(dtype, &half);
            element_write(dtype, &again, x);
            if (!isnan(x)) assert_int_equal(again, half);
        }
}

/* bound_output of one column, of keys with values V. */
static double bound_of_column(const bound_model *model, const bound_weights *weights, int64_t n, const double *V,
                              const double *size, double o)
{
    double space[6];
    bound_sums sums = {1, space, space + 1, space + 2, space + 3, space + 4, space + 5};
    bound_begin_sums(model, &o, &sums);
    for (int64_t j = 0; j < n; j++) bound_add_key(model, weights, j, V + j, size + j, &sums);
    return bound_output(model, weights, &sums, 0, o);
}

/* The bound holds for a constructed worst case, and is not far above it: scores with the largest errors that rounding can cause, up
 * for values above the mean, down for those below it. */
static void bound_is_tight_for_wrong_scores(void **state)
{
    (void)state;
    enum { N = 2 };
    const bound_model model = bound_model_of(ATTN_F32, 64, N, 128);
    for (double size = 1; size <= 1e4; size *= 10) {
        const double S[N] = {0, 0}, dot[N] = {size, size}, lost[N] = {0, 0}, V[N] = {1, -1}, size_of_V[N] = {1, 1};
        const bound_row row = {S, log(2), dot, lost, NULL, -INFINITY, NULL};
        double P[N], low[N], high[N], own[N];
        bound_weights w = {.P = P, .low = low, .high = high, .own = own};
        bound_prepare(&model, &row, &w);
        const double bound = bound_of_column(&model, &w, N, V, size_of_V, 0);
        const double off = 66 * (double)FLT_EPSILON / 2 * size; /* about gamma of dim + 2 roundings */
        const double worst = (exp(off) - exp(-off)) / (exp(off) + exp(-off));
        assert_true(bound >= worst);
        assert_true(bound <= (size < 10 ? 1.5 : 1.1) * worst); /* other roundings count only next to small scores */
    }
}

static void bound_knows_what_is_exact(void **state)
{
    (void)state;
    enum { N = 3 };
    const bound_model model = bound_model_of(ATTN_F32, 8, N, 128);
    const double dead[N] = {-INFINITY, -INFINITY, -INFINITY}, some[N] = {1, -INFINITY, 2}, dot[N] = {3, 3, 3}, lost[N] = {0};
    double P[N], low[N], high[N], own[N], V[N] = {1, NAN, 2};
    bound_weights w = {.P = P, .low = low, .high = high, .own = own};
    bound_prepare(&model, &(bound_row){dead, -INFINITY, dot, lost, NULL, -INFINITY, NULL}, &w);
    assert_true(bound_of_column(&model, &w, N, V, V, 0) == 0 && bound_lse(&model, &w, -INFINITY) == 0 &&
                bound_weight(&model, &w, 1) == 0);
    bound_prepare(&model, &(bound_row){some, log(exp(1) + exp(2)), dot, lost, NULL, -INFINITY, NULL}, &w);
    assert_true(bound_weight(&model, &w, 1) == 0 && bound_weight(&model, &w, 0) > 0);
    assert_true(bound_of_column(&model, &w, N, V, V, 1.7) < 1e-5); /* the value of a dropped key does not matter */
}

/* ---- numbers ---- */

/* Those of Box and Muller's formula; and in blocks the same as one by one, with the state that these leave. */
static void normal_numbers_are_normal(void **state)
{
    (void)state;
    for (int pairs = 0; pairs < 2; pairs++)
        for (int count = 0; count < 3 * NORMAL_BLOCK; count += 7) {
            random_state each = random_from(5), blocks = each;
            normal_run run;
            normal_begin(&run, &blocks, pairs);
            for (int n = 0; n < count; n++) {
                random_state formula = each;
                const double radius = sqrt(-2 * log(1 - random_unit(&formula))),
                             x = radius * cos(6.283185307179586 * random_unit(&formula));
                const int next = normal_next(&run);
                assert_true(fabs(x - random_normal(&each)) <= 1e-14 && fabs(run.normal[next] - x) <= 1e-14);
                assert_true(!pairs || run.unit[next] == random_unit(&each));
            }
            normal_end(&run);
            assert_int_equal(each.state, blocks.state);
        }
    assert_true(normal_of(0, 0.3) == 0 && fabs(normal_of(1 - 0x1p-53, 0) - sqrt(106 * log(2))) < 1e-14);
}

/* ---- cases ---- */

static void cases_print_and_parse(void **state)
{
    (void)state;
    sweep s, again;
    char text[CASE_TEXT], second[CASE_TEXT];
    assert_true(sweep_create(&s, (sweep_tile){24, 256}, 1, 0));
    assert_true(sweep_create(&again, (sweep_tile){24, 256}, 1, 0));
    assert_true(s.count > 1000 && s.count == again.count);
    for (int64_t n = 0; n < s.count; n++) {
        assert_true(case_print(&s.cases[n], text, sizeof text) < sizeof text);
        case_print(&again.cases[n], second, sizeof second);
        assert_string_equal(text, second);
        const check_case c = parse(text);
        case_print(&c, second, sizeof second);
        assert_string_equal(text, second);
    }
    sweep_destroy(&s);
    sweep_destroy(&again);
}

static void wrong_words_are_rejected(void **state)
{
    (void)state;
    static const char *const rows[][2] = {
        {"fwd:f32:sq4:d8:fill=hugh", "fill=hugh is not one of its kinds (see attn check --help)"},
        {"fwd:f32:sq4:d8:ktype=i16", "ktype: unknown value 'i16' (nearest: f16, bf16, i8)"},
        {"fwd:f32:sq4:d8:otype=i8", "otype=i8 is not f32, f64, f16 or bf16"},
        {"fwd:f32:sq4:d8:poison=nan:poison=inf", "poison is given twice"},
    };
    for (size_t n = 0; n < sizeof rows / sizeof *rows; n++) {
        check_case c;
        attn_error error;
        assert_int_equal(case_parse(rows[n][0], &c, &error), ATTN_ERR_ARGUMENT);
        assert_string_equal(error.message, rows[n][1]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spoilt_outputs_are_found),
        cmocka_unit_test(spoilt_flows_are_found),
        cmocka_unit_test(spoilt_terms_are_found),
        cmocka_unit_test(exact_zeros_are_exact),
        cmocka_unit_test(masks_off_by_one_are_found),
        cmocka_unit_test(guards_see_every_side),
        cmocka_unit_test(gaps_between_elements_are_guarded),
        cmocka_unit_test(storage_types_round_to_nearest_even),
        cmocka_unit_test(bound_is_tight_for_wrong_scores),
        cmocka_unit_test(bound_knows_what_is_exact),
        cmocka_unit_test(normal_numbers_are_normal),
        cmocka_unit_test(cases_print_and_parse),
        cmocka_unit_test(wrong_words_are_rejected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
