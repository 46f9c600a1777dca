/* SPDX-License-Identifier: MIT
 *
 * test_random.c - linear attention drawn at random: every map with every rule, decay, denominator, form, chunk, type and group,
 * over sizes from 0 on, forward and backward against ref/.  A failure prints the number of its case: `test_random NUMBER` runs it
 * again, and it should be added to `kept`.  ATTN_LINEAR_CASES is the number of cases (default 500).
 */
#include "linear_case.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

/* Cases that once failed, or nearly did; 0 is an ordinary one. */
static const uint64_t kept[] = {0, 286, 754, 886, 1002, 1584};

/* Often small, sometimes larger than a tile. */
static int64_t size(random_state *state, int64_t most)
{
    return random_below(state, 4) ? random_below(state, 20) : random_below(state, most);
}

static attn_linear_problem draw(uint64_t number, attn_dtype *dtype, int *decays)
{
    *decays = 0;
    static const attn_dtype types[] = {ATTN_F32, ATTN_F64, ATTN_F32, ATTN_BF16, ATTN_F16};
    random_state state = random_from(number * 7919 + 1);
    attn_linear_problem p = {.features = (attn_features)random_below(&state, 7), .causal = random_below(&state, 4) > 0};
    const int64_t group = 1 + random_below(&state, 3), heads = 1 + random_below(&state, 2);
    const int random = p.features >= ATTN_FEATURES_FAVOR;
    *dtype = types[random_below(&state, 5)];
    p.shape = (attn_shape){1 + random_below(&state, 2), heads * group,       heads, 0, size(&state, 130),
                           1 + size(&state, 70),        1 + size(&state, 90)};
    p.shape.len_q = p.causal ? p.shape.len_kv : size(&state, 130);
    if (random) p.random_features = 1 + size(&state, 60);
    if (p.causal) {
        p.rule = (attn_linear_rule)random_below(&state, 3);
        const int64_t decay = random_below(&state, 3);
        *decays = decay > 0;
        p.decay_kind = decay > 1 ? ATTN_DECAY_CHANNEL : ATTN_DECAY_HEAD;
    }
    /* Features of either sign may sum to 0, and the other rules have no denominator. */
    const int positive = p.features != ATTN_FEATURES_IDENTITY && p.features < ATTN_FEATURES_FOURIER;
    p.denominator = positive && p.rule == ATTN_LINEAR_RULE_ADD ? (attn_denominator)random_below(&state, 3) : ATTN_DENOMINATOR_NONE;
    /* With few features the denominator cancels the numerator, and gradients of order 1 cancel to almost nothing. */
    if (p.denominator != ATTN_DENOMINATOR_NONE) p.shape.dim_qk += 8, p.random_features += p.random_features ? 8 : 0;
    /* The delta rule is bounded for features of small norm; with other maps the state may grow without bound. */
    if (p.rule == ATTN_LINEAR_RULE_DELTA && p.features != ATTN_FEATURES_SOFTMAX)
        p.features = ATTN_FEATURES_SOFTMAX, p.random_features = 0;
    if (p.rule == ATTN_LINEAR_RULE_LOW_RANK && !*decays) p.shape.len_kv = p.shape.len_q = p.shape.len_kv % 12;
    if (p.rule == ATTN_LINEAR_RULE_LOW_RANK)
        p.shape.dim_qk = 1 + p.shape.dim_qk % 9, p.random_features = p.random_features > 9 ? 9 : p.random_features;
    if (p.features == ATTN_FEATURES_SOFTMAX && p.denominator == ATTN_DENOMINATOR_NONE) p.shape.dim_qk += 8; /* they sum to 1 */
    p.form = (attn_linear_form)random_below(&state, 4);
    if (p.form == ATTN_LINEAR_FORM_RECURRENT && !p.causal) p.form = ATTN_LINEAR_FORM_AUTO;
    if (p.rule == ATTN_LINEAR_RULE_LOW_RANK && p.form != ATTN_LINEAR_FORM_RECURRENT) p.form = ATTN_LINEAR_FORM_AUTO;
    if (random_below(&state, 2)) p.chunk = 1 + random_below(&state, 60);
    if (random_below(&state, 3) == 0) p.scale_kind = ATTN_SCALE_VALUE, p.scale = 0.7;
    if (random_below(&state, 3) == 0) p.epsilon = (double)(1 + random_below(&state, 300)) / 10; /* many denominators are below it */
    return p;
}

static double check(uint64_t number)
{
    linear_case c = {0};
    attn_dtype dtype;
    double worst = 0;
    c.problem = draw(number, &dtype, &c.decays);
    linear_case_draw(&c, dtype, number);
    linear_case_run(&c, 1 + (int)(number % 3));
    linear_case_define(&c);
    for (int t = T_O; t < TENSORS; t++) {
        const double error = linear_case_error(&c, t);
        worst = fmax(worst, error);
        if (error <= 1) continue;
        const attn_linear_problem *p = &c.problem;
        fail_msg("case %" PRIu64
                 ": %s has an error of %g of its bound (%s, map %d, rule %d, decay %d, denominator %d, form %d, chunk %d, "
                 "causal %d, b%d hq%d hkv%d sq%d skv%d d%d dv%d m%d)",
                 number, linear_tensor_names[t], error, attn_dtype_name(dtype), (int)p->features, (int)p->rule,
                 c.decays + (int)p->decay_kind, (int)p->denominator, (int)p->form, (int)p->chunk, p->causal, (int)p->shape.batch,
                 (int)p->shape.heads_q, (int)p->shape.heads_kv, (int)p->shape.len_q, (int)p->shape.len_kv, (int)p->shape.dim_qk,
                 (int)p->shape.dim_v, (int)p->random_features);
    }
    linear_case_free(&c);
    return worst;
}

static uint64_t asked;

static void test_kept(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) (void)check(kept[i]);
    if (asked) print_message("case %" PRIu64 ": %.3f of the bound\n", asked, check(asked));
}

static void test_drawn(void **state)
{
    const char *count = getenv("ATTN_LINEAR_CASES");
    const uint64_t cases = count ? strtoull(count, NULL, 10) : 500;
    double worst = 0;
    (void)state;
    for (uint64_t number = 1; number <= cases && !asked; number++) worst = fmax(worst, check(number));
    print_message("worst error: %.3f of the bound\n", worst);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_kept), cmocka_unit_test(test_drawn)};
    if (argc > 1) asked = strtoull(argv[1], NULL, 10);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
