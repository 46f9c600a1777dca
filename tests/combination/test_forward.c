/* SPDX-License-Identifier: MIT
 *
 * test_forward.c - forward against ref/ on 500 random combinations of all options for each storage type: output and lse within the
 * bound on every instruction set.  Elements that no query may see are NaN.  Also cases that were once wrong.
 */
#include "test.h"

#include "outcome.h"
#include "testing/random/share.h"

#include <math.h>

enum { SEEDS = CASES(500), FIRST = 5000 };

static void compare(attn_dtype dtype)
{
    double worst = 0;
    for (int64_t n = 0; n < share_of_cases(SEEDS); n++)
        worst = fmax(worst, outcome_drawn_fraction(FIRST + (uint64_t)n, dtype, 0, ATTN_FORWARD, 1));
    print_message("forward in %s: at most %.3f of the bound\n", attn_dtype_name(dtype), worst);
    assert_true(worst > 0.005); /* a bound that is never approached tests nothing */
}

/* Keys beyond a sequence's end together with rows of uniform weights; queries that see only global keys next to queries that see
 * both kinds. */
static void test_once_wrong(void **state)
{
    static const char *const texts[] = {
        ("fwd:f32:b2:hq2:sq9:skv249:d53:dv66:align=bottom-right:lens=kv:scale=-0.125:block=7,53/0.5/b1:empty=uniform:seed=90556 "
         "more"),
        "fwd:f32:b2:hq9:hkv3:sq6:skv9:d8:dv24:mask=0.3:bias=q1k1:lens=kv:scale=heads:dropout=0.875:empty=uniform:seed=92755 more",
        "fwd:bf16:b3:hq3:sq12:skv295:d3:dv37:causal:offset:window=0,152:scale=heads:seed=90021 more",
    };
    (void)state;
    for (size_t n = 0; n < sizeof texts / sizeof *texts; n++) {
        combination c;
        combination_parse(&c, texts[n], 0);
        (void)outcome_fraction(&c, ATTN_FORWARD, 1);
        combination_free(&c);
    }
}

static void test_types(void **state)
{
    static const attn_dtype types[] = {ATTN_F32, ATTN_F64, ATTN_F16, ATTN_BF16};
    (void)state;
    for (int t = 0; t < 4; t++) compare(types[t]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_types), cmocka_unit_test(test_once_wrong)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
