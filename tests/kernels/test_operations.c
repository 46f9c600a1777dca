/* SPDX-License-Identifier: MIT
 *
 * test_operations.c - every operation on AVX-512, which this CPU may lack, in a library that emulates it: small random combinations
 * of all options against ref/, so that each step of backward, forward mode and double backward runs.
 */
#include "test.h"

#include "combination/outcome.h"

#include <math.h>

enum { SEEDS = 40 };

static int64_t at_most(int64_t size, int64_t most) { return size < most ? size : most; }

/* Small, since an emulated instruction is a function call; long enough for two tiles and key blocks of any remainder. */
static void draw(combination *c, uint64_t seed, attn_dtype dtype)
{
    problem_spec spec;
    random_problem(&spec, seed, dtype);
    spec.shape.batch = at_most(spec.shape.batch, 2);
    spec.shape.heads_q = spec.shape.heads_kv = at_most(spec.shape.heads_q, 2);
    spec.shape.len_q = at_most(spec.shape.len_q, 70);
    spec.shape.len_kv = at_most(spec.shape.len_kv, 90);
    spec.shape.dim_qk = at_most(spec.shape.dim_qk, 35);
    spec.shape.dim_v = at_most(spec.shape.dim_v, 35);
    combination_of(c, &spec, MORE);
}

static void check(attn_op op, attn_dtype dtype)
{
    double worst = 0;
    for (uint64_t seed = 40000; seed < 40000 + SEEDS; seed++) {
        const char *name;
        combination c;
        draw(&c, seed, dtype);
        outcome out = outcome_make(&c, op);
        if (!outcome_run(&c, &out, ATTN_ISA_AVX512, 1)) fail_msg("%s: AVX-512 is not emulated", c.text);
        double fraction = outcome_worst(&out, &name);
        if (!(fraction < 1)) fail_msg("%s: %s is %g of the bound", c.text, name, fraction);
        worst = fmax(worst, fraction);
        outcome_free(&c, &out);
        combination_free(&c);
    }
    print_message("%s: at most %.3f of the bound\n", attn_dtype_name(dtype), worst);
    assert_true(worst > 0.005);
}

static void test_forward(void **state)
{
    (void)state;
    check(ATTN_FORWARD, ATTN_F32), check(ATTN_FORWARD, ATTN_F64), check(ATTN_FORWARD, ATTN_F16), check(ATTN_FORWARD, ATTN_BF16);
}

static void test_backward(void **state)
{
    (void)state;
    check(ATTN_BACKWARD, ATTN_F32), check(ATTN_BACKWARD, ATTN_F64), check(ATTN_BACKWARD, ATTN_F16), check(ATTN_BACKWARD, ATTN_BF16);
}

static void test_jvp(void **state)
{
    (void)state;
    check(ATTN_JVP, ATTN_F32), check(ATTN_JVP, ATTN_F64);
}

static void test_double_backward(void **state)
{
    (void)state;
    check(ATTN_DOUBLE_BACKWARD, ATTN_F32), check(ATTN_DOUBLE_BACKWARD, ATTN_F64);
}

/* Small sequences have loops of their own: vectors of queries with and without a remainder, and keys in the lanes. */
static void test_short_heads(void **state)
{
    static const char *const options[] = {"sq17:skv21:d16", "sq20:skv35:d32:dv16", "sq34:skv16:d16:dv48",
                                          "sq67:skv3:d16",  "sq40:skv21:d16",      "sq33:skv30:d16:causal"};
    (void)state;
    for (size_t n = 0; n < sizeof options / sizeof *options; n++) {
        char text[80];
        combination c;
        const char *name;
        (void)snprintf(text, sizeof text, "fwd:f32:b1:hq2:%s", options[n]);
        combination_parse(&c, text, 0);
        outcome out = outcome_make(&c, ATTN_FORWARD);
        if (!outcome_run(&c, &out, ATTN_ISA_AVX512, 1)) fail_msg("%s: AVX-512 is not emulated", c.text);
        const double fraction = outcome_worst(&out, &name);
        if (!(fraction > 0 && fraction < 1)) fail_msg("%s: %s is %g of the bound", c.text, name, fraction);
        outcome_free(&c, &out);
        combination_free(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_forward), cmocka_unit_test(test_backward), cmocka_unit_test(test_jvp),
                                       cmocka_unit_test(test_double_backward), cmocka_unit_test(test_short_heads)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
