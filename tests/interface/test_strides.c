/* SPDX-License-Identifier: MIT
 *
 * test_strides.c - the normal form of types and strides: a dense slot equals one with the same strides spelled out, strides of axes
 * of size 1 are ignored, one element may stand for a whole input, and a tensor that differs from the planned one at execution is
 * rejected by name. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
#include "valid_call.h"

#include <sys/mman.h>
#include <unistd.h>

static valid_call s, other;

#define FOR_EACH_USED(op, n)                                                                                                       \
    for (int op = ATTN_FORWARD; op <= ATTN_DOUBLE_BACKWARD; op++)                                                                  \
        for (int n = 0; n < tensors_of_table; n++)                                                                                 \
            if (table[n].role[op] != ATTN_ROLE_NONE)

static attn_tensor_plan info_of(const attn_plan *plan, int n)
{
    attn_tensor_plan info = {.struct_size = sizeof info};
    attn_error error;
    if (attn_plan_tensor(plan, n, &info, &error) != ATTN_OK) fail_msg("%s: %s", table[n].name, error.message);
    return info;
}

static attn_plan *plan_of(const valid_call *of)
{
    attn_error error;
    attn_plan *plan;
    if (valid_call_plan(of, &plan, &error) != ATTN_OK) fail_msg("%s", error.message);
    return plan;
}

static void execute(const attn_plan *plan, const valid_call *of, int n, const char *what)
{
    attn_error error;
    if (valid_call_execute(plan, &of->tensors, &error) != ATTN_OK)
        fail_msg("op %d, %s, %s: %s", (int)of->problem.op, table[n].name, what, error.message);
}

static void make(attn_op op, int n) { valid_call_with(&s, op, n); }

/* A plan accepts the type and strides that attn_plan_tensor returns, spelled out: planned dense and executed explicit, and the
 * reverse. */
static void test_dense_and_explicit(void **state)
{
    (void)state;
    FOR_EACH_USED(op, n)
    {
        make((attn_op)op, n);
        attn_plan *dense = plan_of(&s);
        const attn_tensor_plan info = info_of(dense, n);
        assert_int_equal(info.role, table[n].role[op]);
        assert_true(table[n].types >> info.dtype & 1);
        assert_true(info.bytes > 0 && info.bytes % (int64_t)attn_dtype_size(info.dtype) == 0);
        other = s;
        attn_input slot = slot_get(&s.tensors, n);
        slot.dtype = info.dtype;
        memcpy(slot.stride, info.stride, sizeof slot.stride);
        slot_set(&other.tensors, n, slot);
        attn_plan *explicit = plan_of(&other);
        const attn_tensor_plan again = info_of(explicit, n);
        if (memcmp(&info, &again, sizeof info) != 0) fail_msg("op %d: %s is described in two ways", op, table[n].name);
        execute(dense, &s, n, "dense");
        memcpy(other.memory, s.memory, sizeof s.memory);
        slot.data = s.memory[n];
        slot_set(&other.tensors, n, slot);
        execute(dense, &other, n, "explicit for a dense plan");
        execute(explicit, &s, n, "dense for an explicit plan");
        execute(explicit, &other, n, "explicit for an explicit plan");
        attn_plan_destroy(dense);
        attn_plan_destroy(explicit);
    }
}

/* Tensors that this plan does not have. */
static void test_absent(void **state)
{
    (void)state;
    for (int op = ATTN_FORWARD; op <= ATTN_DOUBLE_BACKWARD; op++) {
        valid_call_make(&s, (attn_op)op);
        attn_plan *plan = plan_of(&s);
        for (int n = 0; n < tensors_of_table; n++) {
            const attn_tensor_plan info = info_of(plan, n);
            if (slot_get(&s.tensors, n).data) continue;
            assert_true(info.role == ATTN_ROLE_NONE && info.dtype == 0 && info.bytes == 0);
            for (int axis = 0; axis < 4; axis++) assert_true(info.shape[axis] == 0 && info.stride[axis] == 0);
        }
        attn_error error;
        attn_tensor_plan info = {.struct_size = sizeof info};
        assert_int_equal(attn_plan_tensor(plan, tensors_of_table, &info, &error), ATTN_ERR_ARGUMENT);
        assert_int_equal(attn_plan_tensor(plan, -1, &info, &error), ATTN_ERR_ARGUMENT);
        assert_int_equal(attn_plan_tensor(NULL, 0, &info, &error), ATTN_ERR_ARGUMENT);
        attn_plan_destroy(plan);
    }
}

static void rejected(const attn_plan *plan, attn_status status, int n, const char *what)
{
    attn_error error;
    memcpy(s.before, s.memory, sizeof s.memory);
    const attn_status got = valid_call_execute(plan, &s.tensors, &error);
    if (got != status || error.tensor != n || !strstr(error.message, table[n].name))
        fail_msg("op %d, %s, %s: status %d, tensor %d: %s", (int)s.problem.op, table[n].name, what, (int)got, error.tensor,
                 error.message);
    assert_true(valid_call_untouched(&s));
}

static void test_other_strides(void **state)
{
    int strides = 0, types = 0;
    (void)state;
    FOR_EACH_USED(op, n)
    {
        make((attn_op)op, n);
        attn_plan *plan = plan_of(&s);
        const attn_tensor_plan info = info_of(plan, n);
        const attn_input valid_call_slot = slot_get(&s.tensors, n);
        for (int axis = 0; axis < 4; axis++) { /* one stride differs */
            attn_input slot = valid_call_slot;
            slot.dtype = info.dtype;
            memcpy(slot.stride, info.stride, sizeof slot.stride);
            slot.stride[axis] += 1 + 7 * (int64_t)axis;
            slot_set(&s.tensors, n, slot);
            if (info.shape[axis] == 1) { /* frameworks put anything there */
                const int64_t anything[] = {0, 1, -3, INT64_MAX, INT64_MIN + 1, 999};
                for (size_t i = 0; i < sizeof anything / sizeof *anything; i++) {
                    slot.stride[axis] = anything[i];
                    const int64_t *stride = slot.stride;
                    if (!stride[0] && !stride[1] && !stride[2] && !stride[3]) continue; /* that is dense */
                    slot_set(&s.tensors, n, slot);
                    execute(plan, &s, n, "a stride of an axis of size 1");
                    attn_plan *with = plan_of(&s);
                    const int64_t has = info_of(with, n).stride[axis]; /* not a number that makes tile sizes overflow */
                    if (has != 0 && has != info.stride[axis]) fail_msg("%s has a stride of an axis of size 1", table[n].name);
                    execute(with, &s, n, "planned with a stride of an axis of size 1");
                    attn_plan_destroy(with);
                }
                continue;
            }
            rejected(plan, ATTN_ERR_STRIDE, n, "another stride");
            strides++;
        }
        for (int dtype = ATTN_F32; dtype <= ATTN_Q4_1C; dtype++) {
            attn_input slot = valid_call_slot;
            slot.dtype = (attn_dtype)dtype;
            slot_set(&s.tensors, n, slot);
            if (slot.dtype == info.dtype) execute(plan, &s, n, "the default type by its name");
            else rejected(plan, ATTN_ERR_ARGUMENT, n, "another type");
            types++;
        }
        for (int dtype = -1; dtype <= ATTN_Q4_1C + 100; dtype += ATTN_U64 + 2) { /* invalid types */
            attn_input slot = valid_call_slot;
            slot.dtype = (attn_dtype)dtype;
            if (dtype == -1 || dtype > ATTN_Q4_1C) slot_set(&s.tensors, n, slot), rejected(plan, ATTN_ERR_ARGUMENT, n, "no type");
        }
        attn_plan_destroy(plan);
    }
    assert_true(strides > 150 && types > 800);
}

/* Problems with axes of size 1 and garbage in their strides plan and run like dense ones. */
static void test_axes_of_one(void **state)
{
    enum { CAPACITY = 64 };
    static float q[CAPACITY], k[CAPACITY], v[CAPACITY], o[2][CAPACITY];
    static const char *const names[] = {"q", "k", "v", "o"};
    static const attn_shape shapes[] = {
        {1, 1, 1, 1, 1, 1, 1}, {1, 1, 1, 3, 4, 2, 2}, {1, 2, 1, 1, 4, 2, 2}, {2, 1, 1, 3, 1, 2, 1}, {1, 2, 2, 1, 3, 1, 4}};
    (void)state;
    for (int i = 0; i < CAPACITY; i++) q[i] = (float)(i % 7), k[i] = (float)(i % 5), v[i] = (float)i;
    for (size_t n = 0; n < sizeof shapes / sizeof *shapes; n++) {
        attn_problem p = {.struct_size = sizeof p, .shape = shapes[n]};
        attn_tensors t = {.struct_size = sizeof t, .q = attn_in(q), .k = attn_in(k), .v = attn_in(v), .o = attn_out(o[0])};
        attn_plan *plan;
        attn_error error;
        assert_int_equal(attn_compute(&p, &t, NULL), ATTN_OK);
        assert_int_equal(attn_plan_create(&plan, &p, &t, NULL, NULL), ATTN_OK);
        for (int x = 0; x < 4; x++) {
            const int number = tensor_number(names[x]);
            attn_input slot = slot_get(&t, number);
            const attn_tensor_plan info = info_of(plan, number);
            for (int axis = 0; axis < 4; axis++)
                slot.stride[axis] = info.shape[axis] == 1 ? (axis % 2 ? -12345 : INT64_MAX - axis) : info.stride[axis];
            slot_set(&t, number, slot);
        }
        t.o.data = o[1];
        if (attn_compute(&p, &t, &error) != ATTN_OK) fail_msg("shape %zu: %s", n, error.message);
        const int64_t elements = shapes[n].batch * shapes[n].heads_q * shapes[n].len_q * shapes[n].dim_v;
        assert_memory_equal(o[0], o[1], (size_t)elements * sizeof(float));
        attn_plan_destroy(plan);
    }
}

/* Packed sequences of at most one token are consecutive rows of one axis, so the stride of tokens counts although len_q and len_kv
 * are 1. */
static void test_packed_tokens(void **state)
{
    enum { TOKENS = 3, WIDE = 8 };
    static const int64_t starts[] = {0, 1, 2, 3};
    float q[TOKENS * WIDE], k[TOKENS * WIDE], v[TOKENS * WIDE], o[TOKENS * WIDE];
    attn_problem p = {.struct_size = sizeof p, .shape = {TOKENS, 1, 1, 1, 1, 4, 4}};
    attn_tensors t = {.struct_size = sizeof t, .q = attn_in(q), .k = attn_in(k), .v = attn_in(v), .o = attn_out(o)};
    attn_error error;
    attn_plan *plan;
    (void)state;
    for (int n = 0; n < TOKENS * WIDE; n++) q[n] = k[n] = v[n] = (float)n, o[n] = -1;
    t.cu_seqlens_q = t.cu_seqlens_kv = attn_in(starts);
    assert_int_equal(attn_plan_create(&plan, &p, &t, NULL, &error), ATTN_OK);
    const int64_t gapped[4] = {0, 4, WIDE, 1}, dense[4] = {99, 4, 4, 1};
    memcpy(t.q.stride, gapped, sizeof gapped);
    assert_int_equal(valid_call_execute(plan, &t, &error), ATTN_ERR_STRIDE);
    assert_string_equal(error.message, "q.stride[2] is 8; the plan was made with 4");
    for (int n = 0; n < TOKENS * WIDE; n++) assert_true(o[n] == -1);
    memcpy(t.q.stride, dense, sizeof dense);
    assert_int_equal(valid_call_execute(plan, &t, &error), ATTN_OK);
    for (int n = 0; n < TOKENS * 4; n++) assert_true(o[n] == (float)n);
    attn_plan_destroy(plan);
}

/* The call must be as it was planned: its functions and its origin present or absent. */
static void no_rows(void *context, const attn_rows *rows) { (void)context, (void)rows; }
static void no_change(void *context, const attn_score_tile *tile) { (void)context, (void)tile; }

static void test_calls(void **state)
{
    static const attn_origin whole = {.heads = VALID_HQ};
    const attn_call calls[] = {{.struct_size = sizeof(attn_call)},
                               {.struct_size = sizeof(attn_call), .origin = &whole},
                               {.struct_size = sizeof(attn_call), .visit_rows = no_rows},
                               {.struct_size = sizeof(attn_call), .modify_scores = no_change},
                               {.struct_size = sizeof(attn_call), .modify_scores = no_change, .visit_rows = no_rows}};
    enum { CALLS = sizeof calls / sizeof *calls };
    (void)state;
    valid_call_make(&s, ATTN_FORWARD);
    for (int planned = -1; planned < CALLS; planned++) {
        s.tensors.call = planned < 0 ? NULL : &calls[planned];
        attn_plan *plan = plan_of(&s);
        for (int executed = -1; executed < CALLS; executed++) {
            attn_error error;
            const int same = planned == executed || (planned <= 0 && executed <= 0);
            s.tensors.call = executed < 0 ? NULL : &calls[executed];
            memcpy(s.before, s.memory, sizeof s.memory);
            const attn_status status = valid_call_execute(plan, &s.tensors, &error);
            if (status != (same ? ATTN_OK : ATTN_ERR_ARGUMENT))
                fail_msg("call %d planned and %d executed: %d: %s", planned, executed, (int)status, error.message);
            if (!same) assert_true(valid_call_untouched(&s));
        }
        attn_plan_destroy(plan);
    }
    /* Functions that the operation does not support. */
    attn_error error;
    attn_call call = {.struct_size = sizeof call, .modify_slopes = no_change};
    s.tensors.call = &call;
    assert_int_equal(valid_call_compute(&s, &error), ATTN_ERR_ARGUMENT);
    valid_call_make(&s, ATTN_BACKWARD);
    call = (attn_call){.struct_size = sizeof call, .visit_rows = no_rows};
    s.tensors.call = &call;
    assert_int_equal(valid_call_compute(&s, &error), ATTN_ERR_ARGUMENT);
    call = (attn_call){.struct_size = sizeof call, .modify_scores = no_change};
    assert_int_equal(valid_call_compute(&s, &error), ATTN_ERR_ARGUMENT);
    valid_call_make(&s, ATTN_DOUBLE_BACKWARD);
    s.tensors.call = &call;
    assert_true(valid_call_compute(&s, &error) != ATTN_OK);
    assert_true(valid_call_untouched(&s));
}

/* Numbers for all inputs in f32; equal ones for tensor n, of whatever type it has. */
static void draw_inputs(attn_op op, int n, attn_dtype dtype)
{
    for (int t = 0; t < tensors_of_table; t++) {
        const int is_float = table[t].types & 1 << ATTN_F32 && !slot_get(&s.tensors, t).dtype;
        if (table[t].role[op] != ATTN_ROLE_INPUT || !is_float) continue;
        for (size_t i = 0; i < VALID_BYTES / sizeof(float); i++) {
            const float number = (float)((31 * (size_t)t + 17 * (t == n ? 0 : i)) % 13) / 8 - 0.75f;
            memcpy(s.memory[t] + i * sizeof number, &number, sizeof number);
        }
    }
    if (dtype == ATTN_BOOL) memset(s.memory[n], 1, VALID_BYTES);
    memcpy(s.before, s.memory, sizeof s.before);
}

/* One element may stand for a whole input, where the end of memory follows it: the same bits as a dense tensor of that number. */
static void test_one_element(void **state)
{
    static unsigned char dense[VALID_TENSORS][VALID_BYTES];
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    unsigned char *const memory = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int accepted = 0, changed = 0;
    (void)state;
    assert_true(memory != MAP_FAILED && mprotect(memory + page, page, PROT_NONE) == 0);
    FOR_EACH_USED(op, n)
    {
        if (table[n].role[op] != ATTN_ROLE_INPUT) continue;
        attn_plan *plan;
        attn_error error;
        make((attn_op)op, n);
        plan = plan_of(&s);
        const attn_dtype dtype = info_of(plan, n).dtype;
        draw_inputs((attn_op)op, n, dtype);
        execute(plan, &s, n, "dense");
        attn_plan_destroy(plan);
        changed += !valid_call_untouched(&s);
        memcpy(dense, s.memory, sizeof dense);
        memcpy(s.memory, s.before, sizeof dense);
        attn_input slot = slot_get(&s.tensors, n);
        slot.data = memcpy(memory + page - attn_dtype_size(dtype), s.memory[n], attn_dtype_size(dtype));
        for (int axis = 0; axis < 4; axis++) slot.stride[axis] = ATTN_BROADCAST;
        slot_set(&s.tensors, n, slot);
        if (valid_call_plan(&s, &plan, &error) != ATTN_OK) {
            if (error.status != ATTN_ERR_STRIDE || error.tensor != n) fail_msg("op %d: %s: %s", op, table[n].name, error.message);
            continue;
        }
        execute(plan, &s, n, "one element");
        attn_plan_destroy(plan);
        if (memcmp(dense, s.memory, sizeof dense) != 0)
            fail_msg("op %d: one element of %s is not the dense tensor", op, table[n].name);
        accepted++;
    }
    print_message("%d tensors of one element\n", accepted);
    assert_true(accepted > 30 && changed > accepted);
    assert_int_equal(munmap(memory, 2 * page), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_dense_and_explicit), cmocka_unit_test(test_absent),
                                       cmocka_unit_test(test_other_strides),      cmocka_unit_test(test_axes_of_one),
                                       cmocka_unit_test(test_packed_tokens),      cmocka_unit_test(test_calls),
                                       cmocka_unit_test(test_one_element)};
    valid_call_table();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
