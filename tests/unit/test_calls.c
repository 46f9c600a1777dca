/* SPDX-License-Identifier: MIT
 * test_calls.c - the public functions of attn.h: wrong calls, calls by other versions, and names. */
#include "fails.h"
#include "small.h"

#include "plan/plan.h"

static attn_plan *plan_of(small *s)
{
    attn_plan *plan;
    assert_int_equal(attn_plan_create(&plan, &s->problem, &s->tensors, &s->options, NULL), ATTN_OK);
    return plan;
}

static void test_null(void **state)
{
    attn_plan_description p = {.struct_size = sizeof p};
    attn_tensor_plan tensor = {.struct_size = sizeof tensor};
    attn_tensor_description description = {.struct_size = sizeof description};
    small s;
    (void)state;
    small_init(&s);
    attn_plan *plan = plan_of(&s), *made = plan;
    FAILS(attn_plan_create(NULL, &s.problem, &s.tensors, NULL, &error), ATTN_ERR_ARGUMENT, "plan is NULL");
    FAILS(attn_plan_create(&made, NULL, &s.tensors, NULL, &error), ATTN_ERR_ARGUMENT, "problem is NULL");
    assert_null(made);
    made = plan;
    FAILS(attn_plan_create(&made, &s.problem, NULL, NULL, &error), ATTN_ERR_ARGUMENT, "tensors is NULL");
    assert_null(made);
    FAILS(attn_compute(NULL, &s.tensors, &error), ATTN_ERR_ARGUMENT, "problem is NULL");
    FAILS(attn_compute(&s.problem, NULL, &error), ATTN_ERR_ARGUMENT, "tensors is NULL");
    FAILS(attn_execute(NULL, &s.tensors, NULL, 0, &error), ATTN_ERR_ARGUMENT, "plan is NULL");
    FAILS(attn_execute(plan, NULL, NULL, 0, &error), ATTN_ERR_ARGUMENT, "tensors is NULL");
    FAILS(attn_plan_describe(NULL, &p, &error), ATTN_ERR_ARGUMENT, "plan is NULL");
    FAILS(attn_plan_describe(plan, NULL, &error), ATTN_ERR_ARGUMENT, "description is NULL");
    FAILS(attn_plan_tensor(NULL, 0, &tensor, &error), ATTN_ERR_ARGUMENT, "plan is NULL");
    FAILS(attn_plan_tensor(plan, 0, NULL, &error), ATTN_ERR_ARGUMENT, "tensor is NULL");
    FAILS(attn_tensor_describe(ATTN_FAMILY_ATTENTION, 0, NULL, &error), ATTN_ERR_ARGUMENT, "description is NULL");
    FAILS(attn_tensor_describe((attn_family)7, 0, &description, &error), ATTN_ERR_ARGUMENT,
          "family is 7; known: 0 (attention), 1 (linear)");
    FAILS(attn_cpu_describe(NULL, &error), ATTN_ERR_ARGUMENT, "description is NULL");
    FAILS(attn_options_resolve(NULL, NULL, &error), ATTN_ERR_ARGUMENT, "resolved is NULL");
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
    attn_tensor_description t = {.struct_size = 2};
    attn_tensor_plan tensor = {.struct_size = 3};
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
    FAILS(attn_tensor_describe(ATTN_FAMILY_ATTENTION, 0, &t, &error), ATTN_ERR_ARGUMENT,
          "attn_tensor_description.struct_size is 2; set it to sizeof(attn_tensor_description)");
    FAILS(attn_plan_tensor(plan, 0, &tensor, &error), ATTN_ERR_ARGUMENT,
          "attn_tensor_plan.struct_size is 3; set it to sizeof(attn_tensor_plan)");
    s.problem.struct_size = 0;
    FAILS(attn_plan_create(&made, &s.problem, &s.tensors, NULL, &error), ATTN_ERR_ARGUMENT,
          "attn_problem.struct_size is 0; set it to sizeof(attn_problem)");
    s.tensors.struct_size = 4;
    FAILS(attn_execute(plan, &s.tensors, NULL, 0, &error), ATTN_ERR_ARGUMENT,
          "attn_tensors.struct_size is 4; set it to sizeof(attn_tensors)");
    small_init(&s);
    s.tensors.struct_size = 4;
    FAILS(attn_plan_create(&made, &s.problem, &s.tensors, NULL, &error), ATTN_ERR_ARGUMENT,
          "attn_tensors.struct_size is 4; set it to sizeof(attn_tensors)");
    small_init(&s);
    s.call.struct_size = 12, s.tensors.call = &s.call;
    FAILS(attn_plan_create(&made, &s.problem, &s.tensors, NULL, &error), ATTN_ERR_ARGUMENT,
          "attn_call.struct_size is 12; set it to sizeof(attn_call)");
    small_init(&s);
    s.options.struct_size = 1;
    FAILS(attn_plan_create(&made, &s.problem, &s.tensors, &s.options, &error), ATTN_ERR_ARGUMENT,
          "attn_options.struct_size is 1; set it to sizeof(attn_options)");
    attn_plan_destroy(plan);
    assert_true(small_outputs_untouched(&s));
}

/* A caller compiled with an older header: before 1.0 every older struct is rejected, and nothing is computed. */
static void test_older_caller(void **state)
{
    char text[240];
    small s;
    (void)state;
    small_init(&s);
    s.problem.struct_size = offsetof(attn_problem, relative);
    (void)snprintf(text, sizeof text, "attn_problem.struct_size is %zu; set it to sizeof(attn_problem)", s.problem.struct_size);
    FAILS(attn_compute(&s.problem, &s.tensors, &error), ATTN_ERR_ARGUMENT, text);
    small_init(&s);
    s.tensors.struct_size = offsetof(attn_tensors, second_grad_lse);
    (void)snprintf(text, sizeof text, "attn_tensors.struct_size is %zu; set it to sizeof(attn_tensors)", s.tensors.struct_size);
    FAILS(attn_compute(&s.problem, &s.tensors, &error), ATTN_ERR_ARGUMENT, text);
    assert_true(small_outputs_untouched(&s));
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
    assert_int_equal(attn_compute(&newer.problem, &s.tensors, NULL), ATTN_OK);
    assert_false(small_outputs_untouched(&s));

    small_init(&s);
    newer.future[1] = 1;
    (void)snprintf(
        text, sizeof text,
        "attn_problem.struct_size is %zu and a field after byte %zu is set: this library is older than the header it was "
        "compiled with",
        sizeof newer, sizeof(attn_problem));
    FAILS(attn_compute(&newer.problem, &s.tensors, &error), ATTN_ERR_UNSUPPORTED, text);
    assert_true(small_outputs_untouched(&s));

    struct {
        attn_tensors tensors;
        attn_input future[2];
    } more;
    memset(&more, 0, sizeof more);
    more.tensors = s.tensors;
    more.tensors.struct_size = sizeof more;
    more.future[1].dtype = ATTN_F32;
    (void)snprintf(text, sizeof text,
                   "attn_tensors.struct_size is %zu and a slot after byte %zu is set: this library is older than the header it was "
                   "compiled with",
                   sizeof more, sizeof(attn_tensors));
    FAILS(attn_compute(&s.problem, &more.tensors, &error), ATTN_ERR_UNSUPPORTED, text);
    assert_true(small_outputs_untouched(&s));
    more.future[1].dtype = ATTN_DTYPE_DEFAULT;
    FAILS(attn_compute(&s.problem, &more.tensors, &error), ATTN_OK, "");
}

/* Descriptions are filled in up to the size of the caller's version, and not a byte further. */
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
    older.struct_size = end; /* before 1.0 it is rejected, and nothing is written */
    assert_int_equal(attn_cpu_describe(&older, NULL), ATTN_ERR_ARGUMENT);
    assert_int_equal(older.struct_size, end);
    assert_true(small_holds_only((char *)&older + sizeof end, sizeof older - sizeof end, UNTOUCHED));

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
    FAILS(attn_execute(plan, &s.tensors, NULL, need, &error), ATTN_ERR_ARGUMENT, text);
    (void)snprintf(text, sizeof text, "workspace has %zu bytes; the plan needs %zu", need - 1, need);
    FAILS(attn_execute(plan, &s.tensors, memory, need - 1, &error), ATTN_ERR_MEMORY, text);
    assert_true(small_outputs_untouched(&s));

    FAILS(attn_execute(plan, &s.tensors, memory + 1, need, &error), ATTN_OK, ""); /* any alignment */
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
    assert_int_equal(attn_plan_create(&plan, &s.problem, &s.tensors, &s.options, NULL), ATTN_ERR_MEMORY);
    assert_true(asked > 0);
    (void)snprintf(text, sizeof text, "cannot allocate the %zu bytes of a plan", asked);
    FAILS(attn_plan_create(&plan, &s.problem, &s.tensors, &s.options, &error), ATTN_ERR_MEMORY, text);
    assert_null(plan);
}

static void test_kernels(void **state)
{
    attn_kernel_description kernel = {.struct_size = sizeof kernel};
    char text[240];
    int count = 0;
    (void)state;
    while (attn_kernel_describe(count, &kernel, NULL) == ATTN_OK) {
        static const char *const names[] = {"attn_fwd_",    "attn_bwd_",    "attn_jvp_", "attn_double_backward_",
                                            "attn_linear_", "attn_product_"};
        assert_in_range(kernel.op, ATTN_FORWARD, ATTN_PRODUCT);
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
    } dtypes[] = {{"default", 0}, {"f32", 4},     {"f64", 8},   {"f16", 2},   {"bf16", 2},  {"bool", 1},  {"i8", 1},
                  {"u8", 1},      {"i16", 2},     {"u16", 2},   {"i32", 4},   {"u32", 4},   {"i64", 8},   {"u64", 8},
                  {"f8_e4m3", 1}, {"f8_e5m2", 1}, {"q8_0", 34}, {"q4_0", 18}, {"q4_1", 20}, {"q4_1c", 20}};
    static const char *const isas[] = {"default", "scalar", "avx2", "avx512", "neon", "wasm128"};
    char version[32];
    (void)state;
    for (int i = 0; i < 8; i++) assert_string_equal(attn_status_string((attn_status)i), statuses[i]);
    assert_string_equal(attn_status_string((attn_status)8), "unknown status");
    assert_string_equal(attn_status_string((attn_status)-1), "unknown status");
    for (int i = 0; i < 20; i++) {
        assert_string_equal(attn_dtype_name((attn_dtype)i), dtypes[i].name);
        assert_int_equal(attn_dtype_size((attn_dtype)i), dtypes[i].size);
    }
    assert_string_equal(attn_dtype_name((attn_dtype)20), "unknown");
    assert_int_equal(attn_dtype_size((attn_dtype)-1), 0);
    for (int i = 0; i < 6; i++) assert_string_equal(attn_isa_name((attn_isa)i), isas[i]);
    assert_string_equal(attn_isa_name((attn_isa)6), "unknown");
    (void)snprintf(version, sizeof version, "%d.%d.%d", ATTN_VERSION_MAJOR, ATTN_VERSION_MINOR, ATTN_VERSION_PATCH);
    assert_string_equal(attn_version(), version);
}

/* Conversion of numbers between types: invalid calls are rejected, and nothing is written. */
static void test_convert(void **state)
{
    double from[2] = {1, -2.5};
    float to[2] = {7, 7};
    uint16_t half[2];
    (void)state;
    FAILS(attn_convert(2, from, ATTN_F64, to, ATTN_I32, &error), ATTN_ERR_UNSUPPORTED,
          "convert: dst is i32; it must be f32, f64, f16 or bf16");
    FAILS(attn_convert(2, from, ATTN_DTYPE_DEFAULT, to, ATTN_F32, &error), ATTN_ERR_UNSUPPORTED,
          "convert: src is default; it must be f32, f64, f16 or bf16");
    FAILS(attn_convert(-1, from, ATTN_F64, to, ATTN_F32, &error), ATTN_ERR_SHAPE, "convert: count (-1) is negative");
    FAILS(attn_convert(2, from, ATTN_F64, NULL, ATTN_F32, &error), ATTN_ERR_ARGUMENT, "convert: dst is NULL");
    FAILS(attn_convert(2, NULL, ATTN_F64, to, ATTN_F32, &error), ATTN_ERR_ARGUMENT, "convert: src is NULL");
    FAILS(attn_convert(1, (const char *)from + 4, ATTN_F64, to, ATTN_F32, &error), ATTN_ERR_ARGUMENT,
          "convert: src is not aligned to its elements of 8 bytes");
    FAILS(attn_convert(1, from, ATTN_F64, (char *)to + 2, ATTN_F32, &error), ATTN_ERR_ARGUMENT,
          "convert: dst is not aligned to its elements of 4 bytes");
    FAILS(attn_convert(2, from, ATTN_F64, from, ATTN_F32, &error), ATTN_ERR_STRIDE,
          "convert: dst and src share elements; dst may be src where the types are the same size");
    FAILS(attn_convert(2, from, ATTN_F64, (float *)(void *)from + 3, ATTN_F32, &error), ATTN_ERR_STRIDE,
          "convert: dst and src share elements; dst may be src where the types are the same size");
    assert_true(to[0] == 7 && to[1] == 7);
    assert_int_equal(attn_convert(0, NULL, ATTN_F64, NULL, ATTN_F32, NULL), ATTN_OK);
    assert_int_equal(attn_convert(2, from, ATTN_F64, to, ATTN_F32, NULL), ATTN_OK);
    assert_true(to[0] == 1 && to[1] == -2.5F);
    assert_int_equal(attn_convert(2, to, ATTN_F32, half, ATTN_BF16, NULL), ATTN_OK);
    assert_true(half[0] == 0x3f80 && half[1] == 0xc020);
}

/* A plan that needs no workspace gets NULL, to which nothing may be added, not even 0 (reported by clang's UBSan). */
static void test_no_workspace(void **state)
{
    (void)state;
    char some[130];
    assert_non_null(attn_workspace_align(NULL));
    assert_int_equal((uintptr_t)attn_workspace_align(NULL) % 64, 0);
    for (int i = 0; i < 65; i++) {
        char *const at = attn_workspace_align(some + i);
        assert_true(at >= some + i && at < some + i + 64 && (uintptr_t)at % 64 == 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_workspace), cmocka_unit_test(test_null),         cmocka_unit_test(test_struct_size),
        cmocka_unit_test(test_older_caller), cmocka_unit_test(test_newer_caller), cmocka_unit_test(test_description_sizes),
        cmocka_unit_test(test_workspace),    cmocka_unit_test(test_plan_memory),  cmocka_unit_test(test_kernels),
        cmocka_unit_test(test_names),        cmocka_unit_test(test_convert),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
