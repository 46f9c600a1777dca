/* SPDX-License-Identifier: MIT
 *
 * test_structs.c - structs of programs that were compiled with other headers, or that fill them in carelessly: sizes, tails, and
 * the padding in slots. */
#include "fails.h"
#include "valid_call.h"

static valid_call s;

/* Storage for any of the structs and two slots after it. */
typedef union copy {
    size_t struct_size;
    unsigned char bytes[sizeof(attn_tensors) + 2 * sizeof(attn_input)];
    int64_t align;
} copy;

typedef struct subject {
    const char *name;
    size_t size;
    attn_status (*run)(const copy *c, attn_error *error);
} subject;

static attn_status run_tensors(const copy *c, attn_error *error)
{
    return attn_compute(&s.problem, (const attn_tensors *)(const void *)c, error);
}

static attn_status run_problem(const copy *c, attn_error *error)
{
    return attn_compute((const attn_problem *)(const void *)c, &s.tensors, error);
}

static attn_status run_call(const copy *c, attn_error *error)
{
    s.tensors.call = (const attn_call *)(const void *)c;
    attn_status status = attn_compute(&s.problem, &s.tensors, error);
    s.tensors.call = NULL;
    return status;
}

static attn_status run_options(const copy *c, attn_error *error)
{
    attn_plan *plan;
    attn_status status = attn_plan_create(&plan, &s.problem, &s.tensors, (const attn_options *)(const void *)c, error);
    attn_plan_destroy(plan);
    return status;
}

static const subject subjects[] = {{"attn_tensors", sizeof(attn_tensors), run_tensors},
                                   {"attn_problem", sizeof(attn_problem), run_problem},
                                   {"attn_call", sizeof(attn_call), run_call},
                                   {"attn_options", sizeof(attn_options), run_options}};
enum { SUBJECTS = sizeof subjects / sizeof *subjects };

/* A valid struct of this kind, followed by zeros. */
static void fill(copy *c, int which)
{
    const void *from[] = {&s.tensors, &s.problem, &s.call, &s.options};
    memset(c, 0, sizeof *c);
    memcpy(c, from[which], subjects[which].size);
}

static void expect_rejected(int which, const copy *c, attn_status expected, const char *what, size_t number)
{
    attn_error error;
    memset(&error, 0xa5, sizeof error);
    const attn_status status = subjects[which].run(c, &error);
    if (status != expected || error.status != status || error.tensor != -1 || error.other != -1 ||
        !strstr(error.message, subjects[which].name))
        fail_msg("%s, %s %zu: status %d: %s", subjects[which].name, what, number, (int)status, error.message);
    assert_true(valid_call_untouched(&s));
}

static void test_sizes(void **state)
{
    (void)state;
    for (int which = 0; which < SUBJECTS; which++) {
        const size_t size = subjects[which].size;
        const size_t wrong[] = {0,
                                1,
                                7,
                                8,
                                16,
                                24,
                                size - 1,
                                size - 8,
                                size - 16,
                                size - sizeof(attn_input),
                                100,
                                SIZE_MAX,
                                SIZE_MAX / 2,
                                (size_t)1 << 40,
                                ((size_t)1 << 20) + 8};
        valid_call_make(&s, ATTN_FORWARD);
        for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
            copy c;
            if (wrong[i] == size) continue;
            fill(&c, which);
            c.struct_size = wrong[i];
            expect_rejected(which, &c, ATTN_ERR_ARGUMENT, "struct_size", wrong[i]);
        }
    }
}

/* The struct of a newer program: fields that this library does not know must be zero. */
static void test_tails(void **state)
{
    (void)state;
    for (int which = 0; which < SUBJECTS; which++) {
        const size_t size = subjects[which].size, longer = size + sizeof(attn_input);
        for (size_t at = size; at < longer + 8; at++) {
            attn_error error;
            copy c;
            valid_call_make(&s, ATTN_FORWARD);
            fill(&c, which);
            c.struct_size = longer;
            if (at >= longer) c.bytes[at] = 0x5a; /* past the end: not read */
            if (at == size || at >= longer) {
                if (subjects[which].run(&c, &error) != ATTN_OK) fail_msg("%s: %s", subjects[which].name, error.message);
                continue;
            }
            c.bytes[at] = 1;
            const int padding = which == 0 && at - size >= offsetof(attn_input, dtype) + sizeof(attn_dtype) &&
                                at - size < offsetof(attn_input, stride);
            if (padding) assert_int_equal(subjects[which].run(&c, &error), ATTN_OK);
            else expect_rejected(which, &c, ATTN_ERR_UNSUPPORTED, "a tail at byte", at);
        }
    }
}

/* The padding between the type and the strides of a slot may hold anything. */
static void test_dirty_padding(void **state)
{
    enum { FROM = offsetof(attn_input, dtype) + sizeof(attn_dtype), TO = offsetof(attn_input, stride) };
    (void)state;
    for (int op = ATTN_FORWARD; op <= ATTN_DOUBLE_BACKWARD; op++) {
        attn_error error;
        attn_plan *plan;
        valid_call_make(&s, (attn_op)op);
        assert_int_equal(valid_call_plan(&s, &plan, &error), ATTN_OK);
        for (int dirt = 0; dirt < 2; dirt++) { /* execute uses the plan of a clean slot */
            for (int n = 0; n < tensors_of_table; n++)
                memset((char *)&s.tensors + table[n].offset + FROM, dirt ? 0xff : 0x01, TO - FROM);
            if (valid_call_execute(plan, &s.tensors, &error) != ATTN_OK) fail_msg("%s", error.message);
            if (valid_call_compute(&s, &error) != ATTN_OK) fail_msg("%s", error.message);
        }
        attn_plan_destroy(plan);
    }
}

/* Descriptions: an invalid size is rejected, and nothing past the caller's size is written. */
static attn_status describe(int which, void *to, attn_error *error)
{
    static attn_plan *plan;
    if (!plan) {
        valid_call_make(&s, ATTN_FORWARD);
        assert_int_equal(attn_plan_create(&plan, &s.problem, &s.tensors, &s.options, NULL), ATTN_OK);
    }
    switch (which) {
    case 0:
        return attn_plan_describe(plan, to, error);
    case 1:
        return attn_cpu_describe(to, error);
    case 2:
        return attn_kernel_describe(0, to, error);
    case 3:
        return attn_tensor_describe(ATTN_FAMILY_ATTENTION, 0, to, error);
    case 4:
        return attn_plan_tensor(plan, 0, to, error);
    default: /* the end: destroys the plan */
        attn_plan_destroy(plan);
        plan = NULL;
        return ATTN_OK;
    }
}

static void test_descriptions(void **state)
{
    static const struct {
        const char *name;
        size_t size;
    } kinds[] = {{"attn_plan_description", sizeof(attn_plan_description)},
                 {"attn_cpu_description", sizeof(attn_cpu_description)},
                 {"attn_kernel_description", sizeof(attn_kernel_description)},
                 {"attn_tensor_description", sizeof(attn_tensor_description)},
                 {"attn_tensor_plan", sizeof(attn_tensor_plan)}};
    enum { KINDS = sizeof kinds / sizeof *kinds };
    (void)state;
    for (int which = 0; which < KINDS; which++) {
        const size_t wrong[] = {0, 1, 7, SIZE_MAX, SIZE_MAX / 2, ((size_t)1 << 20) + 8};
        for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
            copy c;
            attn_error error;
            memset(&c, 0x5a, sizeof c);
            c.struct_size = wrong[i];
            if (describe(which, &c, &error) != ATTN_ERR_ARGUMENT || !strstr(error.message, kinds[which].name))
                fail_msg("%s of %zu bytes: %s", kinds[which].name, wrong[i], error.message);
            for (size_t at = sizeof c.struct_size; at < sizeof c; at++) assert_int_equal(c.bytes[at], 0x5a);
        }
        for (size_t size = kinds[which].size; size < kinds[which].size + 24; size += 8) {
            copy c;
            memset(&c, 0x5a, sizeof c);
            c.struct_size = size;
            assert_int_equal(describe(which, &c, NULL), ATTN_OK);
            assert_int_equal(c.struct_size, size);
            for (size_t at = kinds[which].size; at < sizeof c; at++) assert_int_equal(c.bytes[at], at < size ? 0 : 0x5a);
        }
        attn_error error;
        assert_int_equal(describe(which, NULL, &error), ATTN_ERR_ARGUMENT);
    }
    assert_int_equal(describe(KINDS, NULL, NULL), ATTN_OK);
}

/* error.tensor and error.other are set on every failure and success, even if no tensor is involved. */
static void test_errors(void **state)
{
    attn_error error;
    attn_plan *plan;
    (void)state;
    valid_call_make(&s, ATTN_FORWARD);
    memset(&error, 0xa5, sizeof error);
    s.problem.shape.batch = -1;
    assert_int_equal(attn_plan_create(&plan, &s.problem, &s.tensors, NULL, &error), ATTN_ERR_SHAPE);
    assert_true(error.tensor == -1 && error.other == -1);
    memset(&error, 0xa5, sizeof error);
    assert_int_equal(attn_execute(NULL, NULL, NULL, 0, &error), ATTN_ERR_ARGUMENT);
    assert_true(error.tensor == -1 && error.other == -1);
    memset(&error, 0xa5, sizeof error);
    valid_call_make(&s, ATTN_FORWARD);
    assert_int_equal(attn_compute(&s.problem, &s.tensors, &error), ATTN_OK);
    assert_true(error.status == ATTN_OK && error.tensor == -1 && error.other == -1 && error.message[0] == 0);
    s.call.reserved = 1, s.tensors.call = &s.call;
    assert_int_equal(attn_compute(&s.problem, &s.tensors, &error), ATTN_ERR_ARGUMENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_sizes), cmocka_unit_test(test_tails),
                                       cmocka_unit_test(test_dirty_padding), cmocka_unit_test(test_descriptions),
                                       cmocka_unit_test(test_errors)};
    valid_call_table();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
