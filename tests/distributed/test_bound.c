/* SPDX-License-Identifier: MIT
 *
 * test_bound.c - every operation over parts of 1 to 7 tokens against ref/ in double: its errors keep to the bound that those of one
 * call keep to, which is derived (docs/numerics.md), although parts add in another order and add their results, too. */
#include "test.h"

#include "combination/outcome.h"
#include "testing/random/share.h"

#include <math.h>

enum { SEEDS = CASES(24), FIRST = 91000 };

/* Beside the options of all: one by one, up to the last operation that has it. */
static const struct {
    int flag;
    attn_op last;
} steps[] = {
    {0, ATTN_DOUBLE_BACKWARD},     {KIND, ATTN_JVP},
    {TABLE, ATTN_DOUBLE_BACKWARD}, {DISTANT, ATTN_DOUBLE_BACKWARD},
    {TYPES, ATTN_DOUBLE_BACKWARD}, {STRIDED, ATTN_DOUBLE_BACKWARD},
    {FULL, ATTN_DOUBLE_BACKWARD},  {RELATIVE, ATTN_BACKWARD},
};
enum { STEPS = sizeof steps / sizeof *steps };

/* What takes a second run, and what has a number for each pair, which packed sequences do not have. */
static void request(combination *c)
{
    const int pairs = !c->tensors.cu_seqlens_q.data;
    c->chooses = 1;
    c->requested[TENSOR(column_sum)] = 1;
    c->requested[TENSOR(weights)] = c->requested[TENSOR(scores)] = (unsigned char)pairs;
    c->requested[TENSOR(dropout_keep)] = pairs && c->problem.dropout.probability < 1; /* of 1, ref/ has the factor, 0 */
    c->problem.outputs.scores_stage = ATTN_STAGE_BIASED;
}

/* The largest error as a fraction of the bound; below 0 if parts do not have the combination. */
static double fraction(combination *c, attn_op op, int64_t part, int any_order)
{
    const char *name;
    double worst = -1;
    outcome out = outcome_make(c, op);
    for (int n = 0; n < out.count; n++) tensor_fill_bytes(&out.of[n].got, 0xff);
    if ((op == ATTN_FORWARD || combination_forward(c, ATTN_ISA_DEFAULT)) && combination_run_parts(c, op, part, any_order)) {
        for (int n = 0; n < out.count; n++) tensor_read(&out.of[n].got);
        worst = outcome_worst(&out, &name);
        if (!(worst < 1))
            fail_msg("%s, operation %d, parts of %d, any order %d: %s is %g of the bound", c->text, (int)op, (int)part, any_order,
                     name, worst);
    }
    outcome_free(c, &out);
    return worst;
}

static void test_operation(void **state)
{
    const attn_op op = *(const attn_op *)*state;
    static const attn_dtype types[] = {ATTN_F32, ATTN_F64, ATTN_F16, ATTN_BF16};
    double any_order = 0, worst = 0; /* in f32 and f64: in 16 bits, rounding of what is stored may be all of the bound */
    int ran = 0;
    const int seeds = (int)share_at_least(SEEDS, 2);
    for (int n = 0; n < seeds * STEPS; n++) {
        combination c;
        if (op > steps[n % STEPS].last) continue;
        const int type = (n + n / STEPS) % 4; /* all of them in each round of steps, and each step with all in four rounds */
        combination_draw(&c, FIRST + (uint64_t)n, types[type], steps[n % STEPS].flag);
        if (op == ATTN_FORWARD && n / STEPS % 8 < 4) request(&c);
        const int stored_wide = type < 2 && steps[n % STEPS].flag != TYPES;
        const double of_bound = fraction(&c, op, 1 + n % 7, 0),
                     of_other = of_bound >= 0 && n % 3 == 0 ? fraction(&c, op, 1 + n % 7, 1) : 0;
        if (stored_wide) worst = fmax(worst, of_bound), any_order = fmax(any_order, of_other);
        ran += of_bound >= 0;
        combination_free(&c);
    }
    print_message("operation %d over parts, %d combinations: at most %.3f of the bound; a third of them in any order, %.3f\n",
                  (int)op, ran, worst, any_order);
    assert_in_range(ran, seeds * STEPS / 10, seeds * STEPS);
    assert_true(worst > 0.005); /* a bound that is never approached tests nothing */
}

int main(void)
{
    static attn_op ops[] = {ATTN_FORWARD, ATTN_BACKWARD, ATTN_JVP, ATTN_DOUBLE_BACKWARD};
    const struct CMUnitTest tests[] = {{"forward", test_operation, NULL, NULL, &ops[0]},
                                       {"backward", test_operation, NULL, NULL, &ops[1]},
                                       {"jvp", test_operation, NULL, NULL, &ops[2]},
                                       {"double backward", test_operation, NULL, NULL, &ops[3]}};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
