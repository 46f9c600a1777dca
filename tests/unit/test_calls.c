/* SPDX-License-Identifier: MIT
 * test_calls.c - the public functions of attn.h called wrongly, in the wrong version, and asked for names. */
#include "fails.h"
#include "small.h"

#include "plan/plan.h"

static attn_plan *plan_of(small *s)
{
    attn_plan *plan;
    assert_int_equal(attn_plan_create(&plan, &s->problem, &s->options, NULL), ATTN_OK);
    return plan;
}

static void test_null(void **state)
{
    attn_plan_description p = {.struct_size = sizeof p};
    small s;
    (void)state;
    small_init(&s);
    attn_plan *plan = plan_of(&s), *made = plan;
    FAILS(attn_plan_create(NULL, &s.problem, NULL, &error), ATTN_ERR_ARGUMENT, "plan is NULL");
    FAILS(attn_plan_create(&made, NULL, NULL, &error), ATTN_ERR_ARGUMENT, "problem is NULL");
    assert_null(made);
    FAILS(attn_forward(NULL, &s.args, &error), ATTN_ERR_ARGUMENT, "problem is NULL");
    FAILS(attn_forward(&s.problem, NULL, &error), ATTN_ERR_ARGUMENT, "args is NULL");
    FAILS(attn_execute(NULL, &s.args, NULL, 0, &error), ATTN_ERR_ARGUMENT, "plan is NULL");
    FAILS(attn_execute(plan, NULL, NULL, 0, &error), ATTN_ERR_ARGUMENT, "args is NULL");
    FAILS(attn_plan_describe(NULL, &p, &error), ATTN_ERR_ARGUMENT, "plan is NULL");
    FAILS(attn_plan_describe(plan, NULL, &error), ATTN_ERR_ARGUMENT, "description is NULL");
    FAILS(attn_cpu_describe(NULL, &error), ATTN_ERR_ARGUMENT, "description is NULL");
    FAILS(attn_kernel_describe(0, NULL, &error), ATTN_ERR_ARGUMENT, "description is NULL");
    assert_int_equal(attn_plan_workspace_size(NULL), 0);
    attn_plan_destroy(NULL);
    attn_plan_destroy(plan);
    assert_true(small_outputs_untouched(&s));
}

static void test_struct_size(void **state)
{
    attn_plan_description p = {.struct_size = 0};
    attn_cpu_description c = {.struct_size = 7};
    attn_kernel_description k = {.struct_size = 1};
    small s;
    (void)state;
    small_init(&s);
    attn_plan *plan = plan_of(&s), *made;
    FAILS(attn_plan_describe(plan, &p, &error), ATTN_ERR_ARGUMENT,
          "attn_plan_description.struct_size is 0; set it to sizeof(attn_plan_description)");
    FAILS(attn_cpu_describe(&c, &error), ATTN_ERR_ARGUMENT,
          "attn_cpu_description.struct_size is 7; set it to sizeof(attn_cpu_description)");
    FAILS(attn_kernel_describe(0, &k, &error), ATTN_ERR_ARGUMENT,
          "attn_kernel_description.struct_size is 1; set it to sizeof(attn_kernel_description)");
    s.problem.struct_size = 0;
    FAILS(attn_plan_create(&made, &s.problem, NULL, &error), ATTN_ERR_ARGUMENT,
          "attn_problem.struct_size is 0; set it to sizeof(attn_problem)");
    s.args.struct_size = 4;
    FAILS(attn_execute(plan, &s.args, NULL, 0, &error), ATTN_ERR_ARGUMENT,
          "attn_args.struct_size is 4; set it to sizeof(attn_args)");
    small_init(&s);
    s.options.struct_size = 1;
    FAILS(attn_plan_create(&made, &s.problem, &s.options, &error), ATTN_ERR_ARGUMENT,
          "attn_options.struct_size is 1; set it to sizeof(attn_options)");
    attn_plan_destroy(plan);
    assert_true(small_outputs_untouched(&s));
}

/* A caller compiled with an older header: what lies behind its struct_size is not ours to read. */
static void test_older_caller(void **state)
{
    small s;
    (void)state;
    small_init(&s);
    s.problem.struct_size = offsetof(attn_problem, want); /* a library without the group `want` */
    memset(&s.problem.want, UNTOUCHED, sizeof s.problem.want);
    s.args.struct_size = sizeof s.args;
    assert_int_equal(attn_forward(&s.problem, &s.args, NULL), ATTN_OK);
    assert_false(small_holds_only(s.o, sizeof s.o, UNTOUCHED));
    assert_true(small_holds_only(s.lse, sizeof s.lse, UNTOUCHED));
    assert_true(small_holds_only(s.weights, sizeof s.weights, UNTOUCHED));
}

/* A caller compiled with a newer header: its unknown fields must be at their default, 0. */
static void test_newer_caller(void **state)
{
    struct {
        attn_problem problem;
        int64_t future[2];
    } newer;
    char text[240];
    small s;
    (void)state;
    small_init(&s);
    memset(&newer, 0, sizeof newer);
    newer.problem = s.problem;
    newer.problem.struct_size = sizeof newer;
    assert_int_equal(attn_forward(&newer.problem, &s.args, NULL), ATTN_OK);
    assert_false(small_outputs_untouched(&s));

    small_init(&s);
    newer.future[1] = 1;
    (void)snprintf(
        text, sizeof text,
        "attn_problem.struct_size is %zu and a field behind byte %zu is set: this library is older than the header it was "
        "compiled with",
        sizeof newer, sizeof(attn_problem));
    FAILS(attn_forward(&newer.problem, &s.args, &error), ATTN_ERR_UNSUPPORTED, text);
    assert_true(small_outputs_untouched(&s));
}

/* Descriptions are filled as far as the caller's version reaches, and not a byte further. */
static void test_description_sizes(void **state)
{
    struct {
        attn_cpu_description cpu;
        unsigned char future[16];
    } newer;
    attn_cpu_description whole = {.struct_size = sizeof whole}, older;
    size_t end = offsetof(attn_cpu_description, threads);
    (void)state;
    assert_int_equal(attn_cpu_describe(&whole, NULL), ATTN_OK);

    memset(&older, UNTOUCHED, sizeof older);
    older.struct_size = end;
    assert_int_equal(attn_cpu_describe(&older, NULL), ATTN_OK);
    assert_int_equal(older.struct_size, end);
    assert_string_equal(older.features, whole.features);
    assert_true(small_holds_only((char *)&older + end, sizeof older - end, UNTOUCHED));

    memset(&newer, UNTOUCHED, sizeof newer);
    newer.cpu.struct_size = sizeof newer;
    assert_int_equal(attn_cpu_describe(&newer.cpu, NULL), ATTN_OK);
    assert_int_equal(newer.cpu.struct_size, sizeof newer);
    assert_int_equal(newer.cpu.cache_l3, whole.cache_l3);
    assert_true(small_holds_only(newer.future, sizeof newer.future, 0));
}

static void test_workspace(void **state)
{
    char text[240];
    small s;
    (void)state;
    small_init(&s);
    attn_plan *plan = plan_of(&s);
    size_t need = attn_plan_workspace_size(plan);
    assert_true(need > 0);
    char *memory = malloc(need + 1);
    assert_non_null(memory);

    (void)snprintf(text, sizeof text, "workspace is NULL; the plan needs %zu bytes", need);
    FAILS(attn_execute(plan, &s.args, NULL, need, &error), ATTN_ERR_ARGUMENT, text);
    (void)snprintf(text, sizeof text, "workspace has %zu bytes; the plan needs %zu", need - 1, need);
    FAILS(attn_execute(plan, &s.args, memory, need - 1, &error), ATTN_ERR_MEMORY, text);
    assert_true(small_outputs_untouched(&s));

    FAILS(attn_execute(plan, &s.args, memory + 1, need, &error), ATTN_OK, ""); /* any alignment */
    free(memory);
    attn_plan_destroy(plan);
}

static void *allocate_nothing(void *context, size_t bytes)
{
    *(size_t *)context = bytes;
    return NULL;
}

static void release_nothing(void *context, void *memory) { fail_msg("%p released to %p", memory, context); }

static void test_plan_memory(void **state)
{
    char text[240];
    attn_plan *plan = NULL;
    size_t asked = 0;
    small s;
    (void)state;
    small_init(&s);
    s.options.allocator = (attn_allocator){allocate_nothing, release_nothing, &asked};
    (void)snprintf(text, sizeof text, "cannot allocate the %zu bytes of a plan", sizeof *plan);
    FAILS(attn_plan_create(&plan, &s.problem, &s.options, &error), ATTN_ERR_MEMORY, text);
    assert_null(plan);
    assert_int_equal(asked, sizeof *plan);
}

static void test_kernels(void **state)
{
    attn_kernel_description kernel = {.struct_size = sizeof kernel};
    char text[240];
    int count = 0;
    (void)state;
    while (attn_kernel_describe(count, &kernel, NULL) == ATTN_OK) {
        static const char *const names[] = {"attn_fwd_", "attn_bwd_", "attn_jvp_", "attn_second_", "attn_linear_"};
        assert_in_range(kernel.op, ATTN_FORWARD, ATTN_LINEAR);
        const char *name = kernel.decode ? "attn_dec_" : names[kernel.op];
        assert_true(strncmp(kernel.name, name, strlen(name)) == 0);
        assert_true(!kernel.decode || kernel.op == ATTN_FORWARD);
        assert_non_null(strstr(kernel.name, attn_isa_name(kernel.isa)));
        assert_non_null(strstr(kernel.name, attn_dtype_name(kernel.compute)));
        assert_true(kernel.usable || kernel.isa != ATTN_ISA_SCALAR);
        count++;
    }
    assert_true(count >= 2);
    (void)snprintf(text, sizeof text, "kernel %d does not exist; this build has %d", count, count);
    FAILS(attn_kernel_describe(count, &kernel, &error), ATTN_ERR_ARGUMENT, text);
    (void)snprintf(text, sizeof text, "kernel -1 does not exist; this build has %d", count);
    FAILS(attn_kernel_describe(-1, &kernel, &error), ATTN_ERR_ARGUMENT, text);
}

/* The texts and numbers that programs may rely on. */
static void test_names(void **state)
{
    static const char *const statuses[] = {"ok",
                                           "bad argument",
                                           "shapes do not fit",
                                           "bad strides",
                                           "not supported",
                                           "out of memory",
                                           "input or output failed",
                                           "bad file format"};
    static const struct {
        const char *name;
        size_t size;
    } dtypes[] = {{"default", 0}, {"f32", 4}, {"f64", 8}, {"f16", 2}, {"bf16", 2}, {"bool", 1}, {"i8", 1},
                  {"u8", 1},      {"i16", 2}, {"u16", 2}, {"i32", 4}, {"u32", 4},  {"i64", 8},  {"u64", 8}};
    static const char *const isas[] = {"default", "scalar", "avx2", "avx512"};
    char version[32];
    (void)state;
    for (int i = 0; i < 8; i++) assert_string_equal(attn_status_string((attn_status)i), statuses[i]);
    assert_string_equal(attn_status_string((attn_status)8), "unknown status");
    assert_string_equal(attn_status_string((attn_status)-1), "unknown status");
    for (int i = 0; i < 14; i++) {
        assert_string_equal(attn_dtype_name((attn_dtype)i), dtypes[i].name);
        assert_int_equal(attn_dtype_size((attn_dtype)i), dtypes[i].size);
    }
    assert_string_equal(attn_dtype_name((attn_dtype)14), "unknown");
    assert_int_equal(attn_dtype_size((attn_dtype)-1), 0);
    for (int i = 0; i < 4; i++) assert_string_equal(attn_isa_name((attn_isa)i), isas[i]);
    assert_string_equal(attn_isa_name((attn_isa)4), "unknown");
    (void)snprintf(version, sizeof version, "%d.%d.%d", ATTN_VERSION_MAJOR, ATTN_VERSION_MINOR, ATTN_VERSION_PATCH);
    assert_string_equal(attn_version(), version);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_null),         cmocka_unit_test(test_struct_size),       cmocka_unit_test(test_older_caller),
        cmocka_unit_test(test_newer_caller), cmocka_unit_test(test_description_sizes), cmocka_unit_test(test_workspace),
        cmocka_unit_test(test_plan_memory),  cmocka_unit_test(test_kernels),           cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
