/* SPDX-License-Identifier: MIT
 * test_enums.c - invalid values of every enum and switch in problems and options are rejected, and the message names the field. */
#include "valid_call.h"

#include <limits.h>

static valid_call s;

typedef struct choice {
    const char *name; /* as in messages */
    size_t offset;    /* in attn_problem */
    int last;         /* the largest valid value */
    const char *use;  /* a tensor that must be present, or NULL */
} choice;

static const choice choices[] = {
    {"op", offsetof(attn_problem, op), ATTN_DOUBLE_BACKWARD, NULL},
    {"score.kind", offsetof(attn_problem, score.kind), ATTN_SCORE_ADDITIVE, NULL},
    {"score.scale_kind", offsetof(attn_problem, score.scale_kind), ATTN_SCALE_VALUE, NULL},
    {"score.normaliser", offsetof(attn_problem, score.normaliser), ATTN_NORMALISER_RELU, NULL},
    {"score.additive_bias", offsetof(attn_problem, score.additive_bias), 1, NULL},
    {"mask.causal", offsetof(attn_problem, mask.causal), 1, NULL},
    {"mask.align", offsetof(attn_problem, mask.align), ATTN_ALIGN_BOTTOM_RIGHT, NULL},
    {"mask.window", offsetof(attn_problem, mask.window), 1, NULL},
    {"mask.empty", offsetof(attn_problem, mask.empty), ATTN_EMPTY_UNIFORM, NULL},
    {"outputs.after_dropout", offsetof(attn_problem, outputs.after_dropout), 1, NULL},
    {"outputs.scores_stage", offsetof(attn_problem, outputs.scores_stage), ATTN_STAGE_WEIGHTS, "scores"},
    {"outputs.rows_stage", offsetof(attn_problem, outputs.rows_stage), ATTN_STAGE_WEIGHTS, NULL},
    {"outputs.column_heads", offsetof(attn_problem, outputs.column_heads), ATTN_COLUMNS_ALL, "column_sum"},
    {"kind", offsetof(attn_problem, bias_table.kind), ATTN_DISTANCE_CLIPPED, "bias_table"},
    {"causal", offsetof(attn_problem, bias_table.causal), 1, "bias_table"},
};
enum { CHOICES = sizeof choices / sizeof *choices };

static void test_problem(void **state)
{
    (void)state;
    for (int n = 0; n < CHOICES; n++) {
        const int values[] = {choices[n].last + 1, choices[n].last + 100, -1, INT_MIN, INT_MAX};
        for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
            attn_error error;
            char number[16];
            valid_call_make(&s, ATTN_FORWARD);
            if (choices[n].use) valid_call_use(&s, tensor_number(choices[n].use));
            memcpy((char *)&s.problem + choices[n].offset, &values[i], sizeof *values);
            (void)snprintf(number, sizeof number, "%d", values[i]);
            const attn_status status = valid_call_compute(&s, &error);
            if (status != ATTN_ERR_ARGUMENT || !strstr(error.message, choices[n].name) || !strstr(error.message, number))
                fail_msg("%s = %d: %d: %s", choices[n].name, values[i], (int)status, error.message);
            assert_true(valid_call_untouched(&s));
        }
    }
}

static void test_options(void **state)
{
    static const int values[] = {ATTN_ISA_WASM128 + 1, -1, INT_MIN, INT_MAX};
    (void)state;
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        attn_error error;
        valid_call_make(&s, ATTN_FORWARD);
        s.options.isa = (attn_isa)values[i];
        assert_int_equal(valid_call_compute(&s, &error), ATTN_ERR_ARGUMENT);
        assert_non_null(strstr(error.message, "options.isa"));
    }
    for (int threads = -1; threads > -100000; threads *= 7) {
        attn_error error;
        valid_call_make(&s, ATTN_FORWARD);
        s.options.threads = threads;
        assert_int_equal(valid_call_compute(&s, &error), ATTN_ERR_ARGUMENT);
    }
}

/* Reserved words of every group, and of the call. */
static void test_reserved(void **state)
{
    static const struct {
        size_t offset, size;
        const char *name;
    } groups[] = {{offsetof(attn_problem, score.reserved), sizeof s.problem.score.reserved, "score.reserved"},
                  {offsetof(attn_problem, mask.reserved), sizeof s.problem.mask.reserved, "mask.reserved"},
                  {offsetof(attn_problem, dropout.reserved), sizeof s.problem.dropout.reserved, "dropout.reserved"},
                  {offsetof(attn_problem, outputs.reserved), sizeof s.problem.outputs.reserved, "outputs.reserved"},
                  {offsetof(attn_problem, paging.reserved), sizeof s.problem.paging.reserved, "paging.reserved"},
                  {offsetof(attn_problem, bias_table.reserved), sizeof s.problem.bias_table.reserved, "bias_table.reserved"},
                  {offsetof(attn_problem, relative.reserved), sizeof s.problem.relative.reserved, "relative.reserved"}};
    (void)state;
    for (size_t g = 0; g < sizeof groups / sizeof *groups; g++)
        for (size_t at = 0; at < groups[g].size; at++) {
            attn_error error;
            valid_call_make(&s, ATTN_FORWARD);
            ((unsigned char *)&s.problem)[groups[g].offset + at] = 1;
            const attn_status status = valid_call_compute(&s, &error);
            if (status != ATTN_ERR_ARGUMENT || !strstr(error.message, groups[g].name))
                fail_msg("%s, byte %zu: %d: %s", groups[g].name, at, (int)status, error.message);
            assert_true(valid_call_untouched(&s));
        }
    for (size_t at = 0; at < sizeof s.call.reserved; at++) {
        attn_error error;
        valid_call_make(&s, ATTN_FORWARD);
        s.tensors.call = &s.call;
        assert_int_equal(valid_call_compute(&s, &error), ATTN_OK);
        valid_call_make(&s, ATTN_FORWARD);
        s.tensors.call = &s.call;
        ((unsigned char *)&s.call.reserved)[at] = 1;
        const attn_status status = valid_call_compute(&s, &error);
        if (status != ATTN_ERR_ARGUMENT || !strstr(error.message, "call.reserved is "))
            fail_msg("call.reserved, byte %zu: %d: %s", at, (int)status, error.message);
        assert_true(valid_call_untouched(&s));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_problem), cmocka_unit_test(test_options),
                                       cmocka_unit_test(test_reserved)};
    valid_call_table();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
