/* SPDX-License-Identifier: MIT
 *
 * test_presence.c - each tensor of the table in each operation: present, absent, NULL, ATTN_LATER, without elements, of a wrong
 * type or alignment, unused.  Checked are the status, the tensor that the error names, and that nothing is written. */
#include "valid_call.h"

static valid_call s, changed;

static int planned(const valid_call *with)
{
    attn_error error;
    attn_plan *plan;
    const int works = valid_call_plan(with, &plan, &error) == ATTN_OK;
    attn_plan_destroy(plan);
    return works;
}

#define FOR_EACH_USE(op, n, role_expected)                                                                                         \
    for (int op = ATTN_FORWARD; op <= ATTN_DOUBLE_BACKWARD; op++)                                                                  \
        for (int n = 0; n < tensors_of_table; n++)                                                                                 \
            if ((table[n].role[op] != ATTN_ROLE_NONE) == (role_expected))

/* Outputs that are present are written, and nothing else is. */
static void test_used(void **state)
{
    (void)state;
    FOR_EACH_USE(op, n, 1)
    {
        attn_error error;
        valid_call_with(&s, (attn_op)op, n);
        if (valid_call_compute(&s, &error) != ATTN_OK) fail_msg("op %d with %s: %s", op, table[n].name, error.message);
        for (int t = 0; t < tensors_of_table; t++) {
            const int written = memcmp(s.memory[t], s.before[t], VALID_BYTES) != 0;
            const int present = slot_get(&s.tensors, t).data != NULL && table[t].role[op] == ATTN_ROLE_OUTPUT;
            if (written != present)
                fail_msg("op %d with %s: %s is%s written", op, table[n].name, table[t].name, written ? "" : " not");
        }
    }
}

/* Inputs of forward that other operations do not support yet. */
static int is_term(int n)
{
    static const char *const names[] = {"page_table", "relative_keys", "relative_values", "page_index"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(table[n].name, names[i]) == 0) return 1;
    return 0;
}

static void test_wrong_operation(void **state)
{
    (void)state;
    FOR_EACH_USE(op, n, 0)
    {
        valid_call_make(&s, (attn_op)op);
        slot_fill(&s, n);
        const attn_status status = is_term(n) ? ATTN_ERR_UNSUPPORTED : ATTN_ERR_ARGUMENT;
        expect_no_plan(&s, status, n, "a tensor of another operation");
        slot_set(&s.tensors, n, (attn_input){.data = ATTN_LATER});
        expect_no_plan(&s, status, n, "a tensor of another operation, later");
    }
}

static void test_null(void **state)
{
    static const attn_input slots[] = {
        {NULL, ATTN_F32, {0}}, {NULL, 0, {8, 4, 2, 1}}, {NULL, 0, {0, 0, 0, 1}}, {NULL, 0, {ATTN_BROADCAST, 0, 0, 0}}};
    (void)state;
    FOR_EACH_USE(op, n, 1)
    {
        valid_call_with(&s, (attn_op)op, n);
        for (size_t i = 0; i < sizeof slots / sizeof *slots; i++) {
            slot_set(&s.tensors, n, slots[i]);
            expect_no_plan(&s, ATTN_ERR_ARGUMENT, n, "NULL with a type or a stride");
        }
        slot_set(&s.tensors, n, attn_in(NULL));
        expect_no_plan(&s, ATTN_ERR_ARGUMENT, n, "attn_in(NULL)");
        if (table[n].need[op] != ATTN_NEED_ALWAYS) continue;
        slot_clear(&s, n);
        expect_no_plan(&s, ATTN_ERR_ARGUMENT, n, "absence");
    }
}

/* A tensor that was planned but is absent at execution, and one that is present but was not planned. */
static void test_other_presence(void **state)
{
    (void)state;
    FOR_EACH_USE(op, n, 1)
    {
        attn_error error;
        attn_plan *plan;
        valid_call_with(&s, (attn_op)op, n);
        changed = s;
        slot_clear(&changed, n);
        for (int with = 0; with < 2; with++) {
            const valid_call *of_plan = with ? &s : &changed, *executed = with ? &changed : &s;
            if (valid_call_plan(of_plan, &plan, &error) != ATTN_OK) continue; /* it is required */
            if (valid_call_execute(plan, &executed->tensors, &error) != ATTN_ERR_ARGUMENT || error.tensor != n ||
                !strstr(error.message, table[n].name))
                fail_msg("op %d, %s planned %s: tensor %d: %s", op, table[n].name, with ? "only" : "not", error.tensor,
                         error.message);
            assert_true(valid_call_untouched(&s) && valid_call_untouched(&changed));
            attn_plan_destroy(plan);
        }
    }
}

static void test_later(void **state)
{
    (void)state;
    FOR_EACH_USE(op, n, 1)
    {
        attn_error error;
        attn_plan *plan;
        valid_call_with(&s, (attn_op)op, n);
        slot_set(&s.tensors, n, (attn_input){ATTN_LATER, slot_get(&s.tensors, n).dtype, {0}});
        expect_no_execute(&s, ATTN_ERR_ARGUMENT, n, "ATTN_LATER");
        if (valid_call_plan(&s, &plan, &error) != ATTN_OK) fail_msg("%s", error.message);
        attn_input slot = slot_get(&s.tensors, n);
        slot.data = s.memory[n];
        slot_set(&s.tensors, n, slot);
        if (valid_call_execute(plan, &s.tensors, &error) != ATTN_OK)
            fail_msg("op %d, later %s: %s", op, table[n].name, error.message);
        attn_plan_destroy(plan);
    }
}

/* ATTN_EMPTY stands for a tensor without elements, for which bindings may have NULL; if it has elements, that is an error. */
static void test_empty(void **state)
{
    (void)state;
    FOR_EACH_USE(op, n, 1)
    {
        attn_error error;
        valid_call_with(&s, (attn_op)op, n);
        const attn_input slot = {ATTN_EMPTY, slot_get(&s.tensors, n).dtype, {0}};
        slot_set(&s.tensors, n, slot);
        if (valid_call_compute(&s, &error) != ATTN_ERR_ARGUMENT || error.tensor != n || !strstr(error.message, table[n].name))
            fail_msg("op %d, ATTN_EMPTY for %s: tensor %d: %s", op, table[n].name, error.tensor, error.message);
        assert_true(valid_call_untouched(&s));

        attn_plan *plan;
        attn_tensor_plan info = {.struct_size = sizeof info};
        s.problem.shape.batch = s.problem.shape.heads_q = s.problem.shape.len_q = s.problem.shape.len_kv = 0;
        if (s.problem.paging.page_size) s.problem.paging.pages = 0;
        if (!planned(&s)) continue; /* some tensors always have elements: a list of starts has at least one number */
        assert_int_equal(valid_call_plan(&s, &plan, &error), ATTN_OK);
        assert_int_equal(attn_plan_tensor(plan, n, &info, &error), ATTN_OK);
        const attn_status status = valid_call_execute(plan, &s.tensors, &error);
        const int none = info.shape[0] * info.shape[1] * info.shape[2] * info.shape[3] == 0;
        if ((status == ATTN_OK) != none || (status != ATTN_OK && error.tensor != n))
            fail_msg("op %d, ATTN_EMPTY for %s of %d elements: %s", op, table[n].name, !none, error.message);
        attn_plan_destroy(plan);
    }
}

static void test_types(void **state)
{
    (void)state;
    FOR_EACH_USE(op, n, 1)
    {
        int accepted = 0;
        valid_call_with(&s, (attn_op)op, n);
        const attn_input valid_call_slot = slot_get(&s.tensors, n);
        for (int dtype = -1; dtype <= ATTN_Q4_1C + 2; dtype++) {
            attn_error error;
            attn_plan *plan;
            attn_input slot = valid_call_slot;
            slot.dtype = (attn_dtype)dtype;
            slot_set(&s.tensors, n, slot);
            const attn_status status = valid_call_plan(&s, &plan, &error);
            attn_plan_destroy(plan);
            const int in_table = dtype >= 0 && dtype <= ATTN_Q4_1C && (table[n].types >> dtype & 1);
            if (dtype < 0 || dtype > ATTN_Q4_1C) expect_no_plan(&s, ATTN_ERR_ARGUMENT, n, "an invalid type");
            else if (!in_table && dtype != ATTN_DTYPE_DEFAULT)
                expect_no_plan(&s, ATTN_ERR_UNSUPPORTED, n, "a type of another kind");
            accepted += status == ATTN_OK && dtype != ATTN_DTYPE_DEFAULT;
        }
        if (!accepted) fail_msg("op %d: no type of %s is accepted", op, table[n].name);
    }
}

static void test_alignment(void **state)
{
    (void)state;
    FOR_EACH_USE(op, n, 1)
    {
        attn_error error;
        attn_plan *plan;
        attn_tensor_plan info = {.struct_size = sizeof info};
        valid_call_with(&s, (attn_op)op, n);
        assert_int_equal(valid_call_plan(&s, &plan, &error), ATTN_OK);
        assert_int_equal(attn_plan_tensor(plan, n, &info, &error), ATTN_OK);
        attn_plan_destroy(plan);
        attn_input slot = slot_get(&s.tensors, n);
        slot.data = s.memory[n] + 1;
        slot_set(&s.tensors, n, slot);
        if (attn_dtype_size(info.dtype) > 1) expect_no_execute(&s, ATTN_ERR_ARGUMENT, n, "an odd address");
    }
}

/* A gradient or tangent of a tensor that is absent. */
static void test_gradient_of_nothing(void **state)
{
    int tried = 0;
    (void)state;
    FOR_EACH_USE(op, n, 1)
    {
        const int of = table[n].gradient_of;
        if (of < 0 || table[of].need[op] == ATTN_NEED_ALWAYS || strcmp(table[n].name, "grad_scale") == 0) continue;
        if (strcmp(table[n].name, "second_grad_lse") == 0) continue;                                  /* grad_lse then is 0 */
        if (table[n].role[op] == ATTN_ROLE_INPUT && strcmp(table[n].name, "grad_lse") == 0) continue; /* lse is required there */
        valid_call_with(&s, (attn_op)op, n);
        slot_clear(&s, of);
        s.problem.score.kind = ATTN_SCORE_DOT;
        if (strncmp(table[of].name, "relative_", 9) ==
            0) { /* relative_keys and problem.relative go too: they would be rejected first */
            slot_clear(&s, tensor_number("relative_keys"));
            s.problem.relative = (attn_relative){0};
        }
        expect_no_plan(&s, ATTN_ERR_ARGUMENT, n, "a derivative of an absent tensor");
        tried++;
    }
    assert_true(tried >= 8);
}

/* Inputs and outputs that the options of the problem leave unused. */
static void test_no_use(void **state)
{
    static const char *const names[] = {"k_scale",     "v_scale",      "score_matrix",      "relative_u",
                                        "relative_v",  "topk_index",   "topk_weight",       "page_table",
                                        "block_index", "block_starts", "block_mask",        "cu_seqlens_kv",
                                        "page_starts", "page_index",   "lengths_last_page", "k_tail"};
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        for (int op = ATTN_FORWARD; op <= ATTN_DOUBLE_BACKWARD; op++) {
            const int n = tensor_number(names[i]);
            if (table[n].role[op] == ATTN_ROLE_NONE) continue;
            attn_error error;
            attn_plan *plan;
            valid_call_make(&s, (attn_op)op);
            slot_fill(&s, n); /* and nothing that uses it */
            const attn_status status = valid_call_plan(&s, &plan, &error);
            if (status != ATTN_ERR_ARGUMENT) fail_msg("op %d with %s alone: %d: %s", op, names[i], (int)status, error.message);
            attn_plan_destroy(plan);
            assert_int_equal(attn_compute(&s.problem, &s.tensors, NULL), ATTN_ERR_ARGUMENT);
            assert_true(valid_call_untouched(&s));
        }
}

/* Mutually exclusive tensors: the error names both. */
static void test_excluded(void **state)
{
    static const char *const pairs[][2] = {{"cu_seqlens_q", "lengths_q"},  {"cu_seqlens_kv", "lengths_kv"},
                                           {"page_table", "page_index"},   {"lengths_kv", "lengths_last_page"},
                                           {"block_mask", "block_starts"}, {"page_table", "cu_seqlens_kv"},
                                           {"page_index", "cu_seqlens_kv"}};
    (void)state;
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        const int x = tensor_number(pairs[i][0]), y = tensor_number(pairs[i][1]);
        attn_error error;
        attn_plan *plan;
        valid_call_make(&s, ATTN_FORWARD);
        valid_call_use(&s, x), valid_call_use(&s, y);
        assert_int_equal(valid_call_plan(&s, &plan, &error), ATTN_ERR_ARGUMENT);
        if (!((error.tensor == x && error.other == y) || (error.tensor == y && error.other == x)))
            fail_msg("%s and %s: tensors %d and %d: %s", pairs[i][0], pairs[i][1], error.tensor, error.other, error.message);
        assert_true(strstr(error.message, pairs[i][0]) && strstr(error.message, pairs[i][1]));
        assert_int_equal(attn_compute(&s.problem, &s.tensors, NULL), ATTN_ERR_ARGUMENT);
        assert_true(valid_call_untouched(&s));
    }
    /* A tensor together with a field that contradicts it. */
    attn_error error;
    attn_plan *plan;
    valid_call_make(&s, ATTN_FORWARD);
    valid_call_use(&s, tensor_number("scale"));
    s.problem.score.scale_kind = ATTN_SCALE_VALUE, s.problem.score.scale = 1;
    assert_int_equal(valid_call_plan(&s, &plan, &error), ATTN_ERR_ARGUMENT);
    assert_int_equal(error.tensor, tensor_number("scale"));
    valid_call_make(&s, ATTN_FORWARD);
    valid_call_use(&s, tensor_number("offset_q"));
    s.problem.mask.align = ATTN_ALIGN_BOTTOM_RIGHT;
    assert_int_equal(valid_call_plan(&s, &plan, &error), ATTN_ERR_ARGUMENT);
    assert_int_equal(error.tensor, tensor_number("offset_q"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_used),           cmocka_unit_test(test_wrong_operation), cmocka_unit_test(test_null),
        cmocka_unit_test(test_other_presence), cmocka_unit_test(test_later),           cmocka_unit_test(test_empty),
        cmocka_unit_test(test_types),          cmocka_unit_test(test_alignment),       cmocka_unit_test(test_gradient_of_nothing),
        cmocka_unit_test(test_no_use),         cmocka_unit_test(test_excluded),
    };
    valid_call_table();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
