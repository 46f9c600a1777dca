/* SPDX-License-Identifier: MIT
 *
 * test_storage.c - every storage type with every layout and every output, at sizes for each walk, forward and backward: within the
 * bound of ref/, the same bits on 3 threads, and nothing written between the elements of an output.
 */
#include "features.h"

#include "test.h"

#include "outcome.h"

#include <math.h>

/* The storage type of q, and words for the other tensors. */
static const struct {
    attn_dtype dtype;
    const char *words;
} types[] = {{ATTN_F32, ""},
             {ATTN_F64, ""},
             {ATTN_F16, ""},
             {ATTN_BF16, ""},
             {ATTN_F32, "+types"},
             {ATTN_BF16, "+types"},
             {ATTN_F16, "+types"},
             {ATTN_F32, "+integers"},
             {ATTN_BF16, "+types +integers"},
             {ATTN_F32, "+blocks"},
             {ATTN_BF16, "+types +blocks"}};

static const char *const layouts[] = {
    "",           /* dense, random axis order */
    "+strided",   /* with gaps */
    "lens +full", /* padded */
    "lens +full +strided",
    "packed +full",
    "packed +full +strided",
    "+pages",
    "lens=kv +full +pages",
};

static const char *const outputs[2][8] = {
    {"", ">weights", ">scores", "rows", ">row_max >entropy >effective_keys", ">topk_weight", ">column_sum",
     "dropout=0.3 >dropout_keep"},
    {"", ">grad_lse", "bias >grad_bias", "bias=b1q1 >grad_bias", "table >grad_bias_table", ">grad_scale", "sink >grad_sink",
     "alibi >grad_alibi_slopes"},
};

static const feature_sizes sizes[2][4] = {
    {{"b2:hq2:sq2:skv45:d16:dv8", "b2:hq3:hkv1:sq2:skv45:d16"},
     {"b2:hq2:sq13:skv25:d16", "b2:hq3:hkv1:sq11:skv35:d5:dv6"},
     {"b2:hq2:sq50:skv20:d5:dv6", "b2:hq2:hkv1:sq50:skv20:d7:dv3"},
     {"b2:hq1:sq9:skv150:d16:dv17", "b2:hq2:hkv1:sq34:skv40:d16:dv32"}},
    {{"b2:hq2:sq2:skv45:d16:dv8", "b2:hq3:hkv1:sq2:skv45:d16"},
     {"b2:hq2:sq13:skv25:d16", "b2:hq3:hkv1:sq11:skv35:d5:dv6"},
     {"b2:hq2:sq13:skv25:d32:dv16", "b2:hq2:hkv1:sq50:skv20:d7:dv3"},
     {"b2:hq1:sq9:skv150:d16:dv17", "b2:hq2:hkv1:sq34:skv40:d16:dv32"}},
};

#define COUNT(array) (int)(sizeof(array) / sizeof *(array))

static int is_rejected(attn_op op, const char *type, const char *layout)
{
    return op == ATTN_BACKWARD &&
           (strstr(type, "+integers") || strstr(type, "+blocks") || strstr(layout, "+pages")); /* tests/unit has the messages */
}

static double check(attn_op op, int type, int layout, int requested, int size)
{
    static const int thread_counts[] = {3};
    const feature_way ways[] = {{0, 0, types[type].words, NULL},
                                {0, 0, layouts[layout], NULL},
                                {0, 0, outputs[op][requested], NULL},
                                {0, 0, (type + requested + size) % 2 ? "grouped" : "", NULL},
                                {0, 0, (layout + requested) % 2 ? "causal" : "", NULL}};
    const feature_way *all[] = {&ways[0], &ways[1], &ways[2], &ways[3], &ways[4]};
    const uint64_t seed = (uint64_t)(((type * 8 + layout) * 8 + requested) * 4 + size);
    combination c;
    attn_error error;
    const char *name;
    if (!feature_combination(&c, &sizes[op][size], types[type].dtype, all, 5, seed, &error)) fail_msg("%s", error.message);
    outcome out = outcome_make(&c, op);
    assert_true(outcome_run(&c, &out, ATTN_ISA_DEFAULT, 1));
    const double fraction = outcome_worst(&out, &name);
    if (!(fraction < 1)) fail_msg("%s, operation %d: %s is %g of the bound", c.text, (int)op, name, fraction);
    outcome_compare_bits(&c, &out, thread_counts, 1);
    (void)outcome_compare_scheduled(&c, &out, thread_counts[0]);
    outcome_free(&c, &out);
    combination_free(&c);
    return fraction;
}

static void check_all(attn_op op)
{
    double worst = 0;
    int count = 0;
    for (int type = 0; type < COUNT(types); type++)
        for (int layout = 0; layout < COUNT(layouts); layout++)
            for (int n = 0; n < 8 * 4 && !is_rejected(op, types[type].words, layouts[layout]); n += EVERY(1), count++)
                worst = fmax(worst, check(op, type, layout, n / 4, n % 4));
    print_message("operation %d: %d problems, at most %.3f of the bound\n", (int)op, count, worst);
}

static void test_forward(void **state)
{
    (void)state;
    check_all(ATTN_FORWARD);
}

static void test_backward(void **state)
{
    (void)state;
    check_all(ATTN_BACKWARD);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_forward), cmocka_unit_test(test_backward)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
