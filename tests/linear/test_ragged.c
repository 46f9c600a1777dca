/* SPDX-License-Identifier: MIT
 * test_ragged.c - linear attention over concatenated sequences of any length: the bits of each sequence alone, for every rule,
 * decay, map and form, forward and backward, with any number of threads. */
#include "ragged_case.h"

#include "testing/random/share.h"

#include <stdio.h>

static const int64_t lengths[RAGGED_SEQUENCES] = {3, 0, 1, 53, 1, 17, 0, 26};

/* Decoding: no sequence has more than one token. */
static const int64_t decoding[] = {1, 0, 1, 1};

static const struct {
    attn_features features;
    int64_t random_features;
    attn_denominator denominator;
} maps[] = {{ATTN_FEATURES_ELU1, 0, ATTN_DENOMINATOR_CLAMP},
            {ATTN_FEATURES_IDENTITY, 0, ATTN_DENOMINATOR_NONE},
            {ATTN_FEATURES_FAVOR, 9, ATTN_DENOMINATOR_ADD}};

static void check(attn_linear_problem p, int decays, int states, attn_dtype dtype, int64_t count, const int64_t *of)
{
    char what[160];
    ragged_case c = {.problem = p, .decays = decays, .states = states, .dtype = dtype};
    (void)snprintf(what, sizeof what, "op %d, rule %d, decay %d, map %d, form %d, causal %d, states %d, D %d, %s", (int)p.op,
                   (int)p.rule, decays + (int)p.decay_kind, (int)p.features, (int)p.form, p.causal, states, (int)p.shape.dim_qk,
                   attn_dtype_name(dtype));
    ragged_open(&c, count, of, 7);
    for (int threads = 1; threads <= 3; threads += 2) {
        ragged_run(&c, threads);
        ragged_compare(&c, 1, what);
        /* Backward of one token is recurrent in a dense call. */
        if (p.op == ATTN_FORWARD || p.form != ATTN_LINEAR_FORM_AUTO) ragged_compare(&c, 0, what);
    }
    ragged_close(&c);
}

/* One key head or two, of two query heads each; heads of 96 channels have states that are walked in chunks with gates, too. */
static void check_sizes(attn_linear_problem p, int decays, attn_dtype dtype)
{
    for (int op = ATTN_FORWARD; op <= ATTN_BACKWARD; op++)
        for (int states = 0; states < 2; states++) {
            p.op = (attn_op)op;
            p.shape = states ? (attn_shape){0, 4, 2, 0, 0, 5, 3} : (attn_shape){0, 2, 1, 0, 0, 96, 80};
            check(p, decays, states, dtype, RAGGED_SEQUENCES, lengths);
        }
}

static void test_alone(void **state)
{
    (void)state;
    for (size_t m = 0; m < sizeof maps / sizeof *maps; m += (size_t)share_stride()) {
        attn_linear_problem p = {
            .features = maps[m].features, .random_features = maps[m].random_features, .denominator = maps[m].denominator};
        check_sizes(p, 0, ATTN_F32); /* not causal */
        p.causal = 1;
        for (int decay = 0; decay < 3; decay++) {
            p.decay_kind = decay == 2 ? ATTN_DECAY_CHANNEL : ATTN_DECAY_HEAD;
            check_sizes(p, decay > 0, m == 0 ? ATTN_BF16 : ATTN_F32);
            if (maps[m].denominator != ATTN_DENOMINATOR_NONE) continue;
            for (p.rule = ATTN_LINEAR_RULE_DELTA; p.rule <= ATTN_LINEAR_RULE_LOW_RANK; p.rule++)
                check_sizes(p, decay > 0, ATTN_F32);
            p.rule = ATTN_LINEAR_RULE_ADD;
            for (p.form = ATTN_LINEAR_FORM_CHUNKED; p.form <= ATTN_LINEAR_FORM_QUADRATIC; p.form++)
                check_sizes(p, decay > 0, ATTN_F64);
            p.form = ATTN_LINEAR_FORM_AUTO;
        }
    }
}

/* A sequence that decodes has the same bits beside sequences that bring many tokens. */
static void test_decoding(void **state)
{
    const attn_linear_problem p = {.causal = 1, .shape = {0, 2, 1, 0, 0, 8, 6}};
    (void)state;
    check(p, 1, 1, ATTN_F32, sizeof decoding / sizeof *decoding, decoding);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_alone), cmocka_unit_test(test_decoding)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
