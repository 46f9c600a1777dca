/* SPDX-License-Identifier: MIT
 *
 * test_table.c - the table that attn_tensor_describe returns matches the struct in the header: each name, offset and direction, in
 * order; and its rows are consistent. */
#include "valid_call.h"

#include "base/problem.h"
#include "fails.h"

/* The struct, as this compiler lays it out.  (table.py compares slots.def with the header.) */
static const struct {
    const char *name;
    size_t offset;
    int output; /* the slot is an attn_output */
} slots[] = {
#define INPUT(name)  {#name, offsetof(attn_tensors, name), 0},
#define OUTPUT(name) {#name, offsetof(attn_tensors, name), 1},
#include "base/slots.def"
#undef INPUT
#undef OUTPUT
};
enum { SLOTS = sizeof slots / sizeof *slots };

enum { HEAD = offsetof(attn_tensors, q), SLOT = sizeof(attn_input) };
_Static_assert(sizeof(void *) != 8 || (HEAD == 16 && SLOT == 48), "the documented layout for 64-bit pointers");
_Static_assert(offsetof(attn_input, data) == 0 && offsetof(attn_input, dtype) == 8 && offsetof(attn_input, stride) == 16, "slots");
_Static_assert(offsetof(attn_output, data) == 0 && offsetof(attn_output, dtype) == 8 && offsetof(attn_output, stride) == 16,
               "slots");
_Static_assert(offsetof(attn_tensors, struct_size) == 0 && offsetof(attn_tensors, call) == 8 && offsetof(attn_tensors, q) == 16,
               "the fields before the slots");

static void test_offsets(void **state)
{
    (void)state;
    assert_int_equal(tensors_of_table, SLOTS);
    assert_int_equal(SLOTS, ATTN_SLOTS);
    assert_int_equal(sizeof(attn_tensors), HEAD + SLOT * SLOTS);
    for (int n = 0; n < SLOTS; n++) {
        assert_string_equal(table[n].name, slots[n].name);
        assert_int_equal(table[n].offset, slots[n].offset);
        assert_int_equal(table[n].offset, HEAD + SLOT * n);
        assert_int_equal(table[n].struct_size, sizeof table[n]);
    }
}

static int of_any_float(unsigned types) { return (types >> ATTN_F32 & 1) && (types >> ATTN_F64 & 1); }

static void test_rows(void **state)
{
    (void)state;
    for (int n = 0; n < tensors_of_table; n++) {
        const attn_tensor_description *t = &table[n];
        int used = 0;
        for (int op = 0; op < ATTN_OPERATIONS; op++) {
            assert_in_range(t->role[op], ATTN_ROLE_NONE, ATTN_ROLE_OUTPUT);
            assert_in_range(t->need[op], ATTN_NEED_NEVER, ATTN_NEED_ALWAYS);
            if ((t->role[op] == ATTN_ROLE_NONE) != (t->need[op] == ATTN_NEED_NEVER)) fail_msg("%s in op %d", t->name, op);
            if (t->role[op] == ATTN_ROLE_OUTPUT && !slots[n].output) fail_msg("%s is const, and written by op %d", t->name, op);
            used |= t->role[op] != ATTN_ROLE_NONE;
        }
        assert_true(used);
        for (int axis = 0; axis < 4; axis++) assert_in_range(t->axes[axis], ATTN_AXIS_ONE, ATTN_AXIS_WORD);
        assert_true(t->types != 0 && (t->types & 1u << ATTN_DTYPE_DEFAULT) == 0 && t->types < 1u << (ATTN_Q4_1C + 1));
        assert_in_range(t->since, 100, 10000 * ATTN_VERSION_MAJOR + 100 * ATTN_VERSION_MINOR + ATTN_VERSION_PATCH);
        assert_true(t->gradient_of >= -1 && t->gradient_of < tensors_of_table && t->gradient_of != n);
        assert_true(t->may_alias >= -1 && t->may_alias < tensors_of_table && t->may_alias != n);
    }
}

/* A derivative belongs to the tensor whose name it ends with, and has its shape and a floating-point type. */
static void test_derivatives(void **state)
{
    static const char *const prefixes[] = {"grad_", "tan_", "second_"};
    (void)state;
    for (int n = 0; n < tensors_of_table; n++) {
        int of = -1;
        for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
            if (strncmp(table[n].name, prefixes[i], strlen(prefixes[i])) == 0)
                of = tensor_number(table[n].name + strlen(prefixes[i]));
        if (table[n].gradient_of != of) fail_msg("%s: gradient_of should be %d, not %d", table[n].name, of, table[n].gradient_of);
        if (of < 0) continue;
        for (int axis = 0; axis < 4; axis++) assert_int_equal(table[n].axes[axis], table[of].axes[axis]);
        assert_true(of_any_float(table[n].types));
    }
}

static void test_asking(void **state)
{
    attn_tensor_description row = {.struct_size = sizeof row};
    char text[120];
    (void)state;
    (void)snprintf(text, sizeof text, "tensor %d does not exist; attn_tensors has %d", tensors_of_table, tensors_of_table);
    FAILS(attn_tensor_describe(ATTN_FAMILY_ATTENTION, tensors_of_table, &row, &error), ATTN_ERR_ARGUMENT, text);
    const int wrong[] = {-1, INT32_MIN, INT32_MAX};
    for (int i = 0; i < 3; i++)
        assert_int_equal(attn_tensor_describe(ATTN_FAMILY_ATTENTION, wrong[i], &row, NULL), ATTN_ERR_ARGUMENT);
    assert_int_equal(attn_tensor_describe((attn_family)2, 0, &row, NULL), ATTN_ERR_ARGUMENT);
    assert_int_equal(attn_tensor_describe((attn_family)-1, 0, &row, NULL), ATTN_ERR_ARGUMENT);
    assert_int_equal(attn_tensor_describe(ATTN_FAMILY_ATTENTION, 0, NULL, NULL), ATTN_ERR_ARGUMENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_offsets), cmocka_unit_test(test_rows),
                                       cmocka_unit_test(test_derivatives), cmocka_unit_test(test_asking)};
    valid_call_table();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
