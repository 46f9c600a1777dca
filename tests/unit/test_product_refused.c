/* SPDX-License-Identifier: MIT
 * test_product_refused.c - every rule of a product of matrices: what breaks it, the status, the exact message; and that nothing was
 * written then. */
#include "test.h"

#include "attn/product.h"

enum { ROWS = 3, COLUMNS = 5, INNER = 4 };

typedef struct fixture {
    attn_product_problem problem;
    attn_options options;
    float a[ROWS * INNER + 1], b[INNER * COLUMNS + 1], c[ROWS * COLUMNS + 1];
    const void *A, *B;
    void *C, *workspace;
    size_t workspace_size, memory[100000];
} fixture;

static void init(fixture *f)
{
    memset(f, 0, sizeof *f);
    f->problem = (attn_product_problem){
        .struct_size = sizeof f->problem, .rows = ROWS, .columns = COLUMNS, .inner = INNER, .a_turned = 1, .b_turned = 1};
    f->options.struct_size = sizeof f->options;
    f->A = f->a, f->B = f->b, f->C = f->c;
    f->workspace = f->memory, f->workspace_size = sizeof f->memory;
    for (int i = 0; i <= ROWS * COLUMNS; i++) f->c[i] = 77;
}

static void dtype(fixture *f) { f->problem.dtype = ATTN_BF16; }
static void rows(fixture *f) { f->problem.rows = -1; }
static void inner(fixture *f) { f->problem.inner = -4; }
static void flag_add(fixture *f) { f->problem.add = 2; }
static void flag_turned(fixture *f) { f->problem.b_turned = -1; }
static void reserved(fixture *f) { f->problem.reserved[2] = 9; }
static void stride_a(fixture *f) { f->problem.stride_a = ROWS - 1; }
static void stride_c(fixture *f) { f->problem.stride_c = -5; }
static void far(fixture *f) { f->problem.stride_b = INT64_MAX / 8; }
static void null_a(fixture *f) { f->A = NULL; }
static void null_c(fixture *f) { f->C = NULL; }
static void odd_b(fixture *f) { f->B = (const char *)f->b + 1; }
static void same(fixture *f) { f->C = f->b; }
static void part(fixture *f) { f->A = f->c + ROWS * COLUMNS - 1; } /* the last element of C is the first of A */
static void options_size(fixture *f) { f->options.struct_size = 1; }
static void threads(fixture *f) { f->options.threads = -2; }
static void size(fixture *f) { f->problem.struct_size = 3; }
static void no_workspace(fixture *f) { f->workspace = NULL; }
static void small_workspace(fixture *f) { f->workspace_size = 100; }

static const struct {
    void (*spoil)(fixture *f);
    attn_status status;
    const char *message;
} rules[] = {
    {dtype, ATTN_ERR_UNSUPPORTED, "product: dtype is bf16; it must be f32 or f64"},
    {rows, ATTN_ERR_SHAPE, "product: rows (-1) is negative"},
    {inner, ATTN_ERR_SHAPE, "product: inner (-4) is negative"},
    {flag_add, ATTN_ERR_ARGUMENT, "product: add is 2; it is 0 or 1"},
    {flag_turned, ATTN_ERR_ARGUMENT, "product: b_turned is -1; it is 0 or 1"},
    {reserved, ATTN_ERR_ARGUMENT, "product: reserved[2] is 9; it must be 0"},
    {stride_a, ATTN_ERR_STRIDE, "product: stride_a is 2, and a row has 3 elements"},
    {stride_c, ATTN_ERR_STRIDE, "product: stride_c is -5, and a row has 5 elements"},
    {far, ATTN_ERR_SHAPE, "product: b has 5 rows 1152921504606846975 elements apart, which are too many"},
    {null_a, ATTN_ERR_ARGUMENT, "product: a is NULL"},
    {null_c, ATTN_ERR_ARGUMENT, "product: c is NULL"},
    {odd_b, ATTN_ERR_ARGUMENT, "product: b is not aligned to its elements of 4 bytes"},
    {same, ATTN_ERR_STRIDE, "product: c and b share elements, or strides too intricate to tell"},
    {part, ATTN_ERR_STRIDE, "product: c and a share elements, or strides too intricate to tell"},
    {options_size, ATTN_ERR_ARGUMENT, "attn_options.struct_size is 1; set it to sizeof(attn_options)"},
    {threads, ATTN_ERR_ARGUMENT, "options.threads is -2; it is at least 1, or 0 for the default"},
    {size, ATTN_ERR_ARGUMENT, "attn_product_problem.struct_size is 3; set it to sizeof(attn_product_problem)"},
    {no_workspace, ATTN_ERR_ARGUMENT, "workspace is NULL; the product needs %zu bytes"},
    {small_workspace, ATTN_ERR_MEMORY, "workspace has 100 bytes; the product needs %zu"},
};

static void test_rules(void **state)
{
    static fixture f;
    attn_error error;
    (void)state;
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        const int in_place = rules[i].spoil == no_workspace || rules[i].spoil == small_workspace;
        for (int way = in_place; way < 2; way++) {
            init(&f);
            rules[i].spoil(&f);
            const attn_status status =
                way ? attn_product_in(&f.problem, f.A, f.B, f.C, f.workspace, f.workspace_size, &f.options, &error)
                    : attn_product(&f.problem, f.A, f.B, f.C, &f.options, &error);
            const size_t told = strcspn(rules[i].message, "%"); /* how many bytes depends on the instruction set */
            if (status != rules[i].status || strncmp(error.message, rules[i].message, told + (rules[i].message[told] == 0)) != 0)
                fail_msg("rule %zu: status %d, %s", i, (int)status, error.message);
            for (int k = 0; k <= ROWS * COLUMNS; k++) assert_true(f.c[k] == 77);
        }
    }
}

static void test_null(void **state)
{
    static fixture f;
    attn_error error;
    size_t bytes;
    (void)state;
    init(&f);
    assert_int_equal(attn_product(NULL, f.A, f.B, f.C, NULL, &error), ATTN_ERR_ARGUMENT);
    assert_string_equal(error.message, "problem is NULL");
    assert_int_equal(attn_product_workspace_size(&f.problem, NULL, NULL, &error), ATTN_ERR_ARGUMENT);
    assert_string_equal(error.message, "bytes is NULL");
    assert_int_equal(attn_product_workspace_size(NULL, NULL, &bytes, &error), ATTN_ERR_ARGUMENT);
    assert_int_equal(attn_product(&f.problem, f.A, f.B, f.C, NULL, NULL), ATTN_OK);
    assert_true(f.c[0] == 0 && f.c[ROWS * COLUMNS] == 77);
}

/* Matrices side by side in one buffer share no element. */
static void test_beside(void **state)
{
    enum { WIDE = 8 };
    static fixture f;
    float both[INNER * WIDE];
    attn_error error;
    (void)state;
    init(&f);
    for (int k = 0; k < INNER * WIDE; k++) both[k] = 1;
    for (int k = 0; k < INNER * COLUMNS; k++) f.b[k] = 2;
    f.problem.stride_a = f.problem.stride_c = WIDE;
    assert_int_equal(attn_product(&f.problem, both + COLUMNS, f.b, both, &f.options, &error), ATTN_OK);
    for (int k = 0; k < INNER * WIDE; k++) assert_true(both[k] == (k / WIDE < ROWS && k % WIDE < COLUMNS ? 2 * INNER : 1));
    assert_int_equal(attn_product(&f.problem, both + COLUMNS - 1, f.b, both, &f.options, &error), ATTN_ERR_STRIDE);
}

static void *nothing(void *context, size_t bytes)
{
    (void)context, (void)bytes;
    return NULL;
}

static void none(void *context, void *memory) { (void)context, (void)memory; }

static void test_memory(void **state)
{
    static fixture f;
    attn_error error;
    (void)state;
    init(&f);
    f.options.allocator.allocate = nothing;
    f.options.allocator.release = none;
    assert_int_equal(attn_product(&f.problem, f.A, f.B, f.C, &f.options, &error), ATTN_ERR_MEMORY);
    assert_true(strncmp(error.message, "cannot allocate a workspace of ", 31) == 0);
    for (int k = 0; k <= ROWS * COLUMNS; k++) assert_true(f.c[k] == 77);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {cmocka_unit_test(test_rules), cmocka_unit_test(test_null),
                                              cmocka_unit_test(test_beside), cmocka_unit_test(test_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
