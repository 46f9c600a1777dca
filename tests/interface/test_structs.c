/* SPDX-License-Identifier: MIT
 *
 * test_structs.c - structs as programs have them that were compiled with other headers, or without care: sizes, tails, and the
 * bytes between the fields of a slot. */
#include "fails.h"
#include "sound.h"

static sound s;

/* Room for any of the structs and two slots behind it. */
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

/* A sound struct of this kind, with zeros behind it. */
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
    assert_true(sound_untouched(&s));
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
        sound_make(&s, ATTN_FORWARD);
        for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
            copy c;
            if (wrong[i] == size) continue;
            fill(&c, which);
            c.struct_size = wrong[i];
            expect_rejected(which, &c, ATTN_ERR_ARGUMENT, "struct_size", wrong[i]);
        }
    }
}

/* A newer program: what this library does not know must be zero. */
static void test_tails(void **state)
{
    (void)state;
    for (int which = 0; which < SUBJECTS; which++) {
        const size_t size = subjects[which].size, longer = size + sizeof(attn_input);
        for (size_t at = size; at < longer + 8; at++) {
            attn_error error;
            copy c;
            sound_make(&s, ATTN_FORWARD);
            fill(&c, which);
            c.struct_size = longer;
            if (at >= longer) c.bytes[at] = 0x5a; /* behind the end: not looked at */
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

/* Compilers leave whatever they like between the type and the strides of a slot. */
static void test_dirty_padding(void **state)
{
    enum { FROM = offsetof(attn_input, dtype) + sizeof(attn_dtype), TO = offsetof(attn_input, stride) };
    (void)state;
    for (int op = ATTN_FORWARD; op <= ATTN_DOUBLE_BACKWARD; op++) {
        attn_error error;
        attn_plan *plan;
        sound_make(&s, (attn_op)op);
        assert_int_equal(sound_plan(&s, &plan, &error), ATTN_OK);
        for (int dirt = 0; dirt < 2; dirt++) { /* a clean plan, executed dirty, too */
            for (int n = 0; n < tensors_of_table; n++)
                memset((char *)&s.tensors + table[n].offset + FROM, dirt ? 0xff : 0x01, TO - FROM);
            if (sound_execute(plan, &s.tensors, &error) != ATTN_OK) fail_msg("%s", error.message);
            if (sound_compute(&s, &error) != ATTN_OK) fail_msg("%s", error.message);
        }
        attn_plan_destroy(plan);
    }
}

/* Descriptions: a size that is none is rejected, and nothing behind the size of the caller is written. */
static attn_status describe(int which, void *to, attn_error *error)
{
    static attn_plan *plan;
    if (!plan) {
        sound_make(&s, ATTN_FORWARD);
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
    default: /* the end: the plan goes */
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

/* Two of the numbers in an error are set on every failure and every success, for what has no tensor too. */
static void test_errors(void **state)
{
    attn_error error;
    attn_plan *plan;
    (void)state;
    sound_make(&s, ATTN_FORWARD);
    memset(&error, 0xa5, sizeof error);
    s.problem.shape.batch = -1;
    assert_int_equal(attn_plan_create(&plan, &s.problem, &s.tensors, NULL, &error), ATTN_ERR_SHAPE);
    assert_true(error.tensor == -1 && error.other == -1);
    memset(&error, 0xa5, sizeof error);
    assert_int_equal(attn_execute(NULL, NULL, NULL, 0, &error), ATTN_ERR_ARGUMENT);
    assert_true(error.tensor == -1 && error.other == -1);
    memset(&error, 0xa5, sizeof error);
    sound_make(&s, ATTN_FORWARD);
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
    sound_table();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
