/* SPDX-License-Identifier: MIT
 * test_product_rejected.c - every rule of a product of matrices: a violation of it, with its status and exact message; and that
 * nothing is written then. */
#include "fails.h"

#include "attn/product.h"

enum { ROWS = 3, COLUMNS = 5, INNER = 4 };

typedef struct fixture {
    attn_product_problem problem;
    attn_product_tensors tensors;
    attn_options options;
    float a[ROWS * INNER + 1], b[INNER * COLUMNS + 1], c[ROWS * COLUMNS + 1];
    void *workspace;
    size_t workspace_size, memory[100000];
} fixture;

static void init(fixture *f)
{
    memset(f, 0, sizeof *f);
    f->problem = (attn_product_problem){.struct_size = sizeof f->problem, .rows = ROWS, .columns = COLUMNS, .inner = INNER};
    f->tensors = (attn_product_tensors){
        .struct_size = sizeof f->tensors, .a = attn_transposed(f->a, ROWS), .b = attn_transposed(f->b, INNER), .c = attn_out(f->c)};
    f->options.struct_size = sizeof f->options;
    f->workspace = f->memory, f->workspace_size = sizeof f->memory;
    for (int i = 0; i <= ROWS * COLUMNS; i++) f->c[i] = 77;
}

/* Each function rejects the call and writes nothing; with a wrong workspace, the one that takes it. */
static void reject(fixture *f, attn_status expected, const char *message, int line)
{
    const int in_place = f->workspace != f->memory || f->workspace_size != sizeof f->memory;
    for (int way = in_place; way < 2; way++) {
        attn_error error;
        const attn_status status =
            way ? attn_product_in(&f->problem, &f->tensors, f->workspace, f->workspace_size, &f->options, &error)
                : attn_product(&f->problem, &f->tensors, &f->options, &error);
        const size_t told = strcspn(message, "%"); /* the number of bytes depends on the instruction set */
        if (status != expected || strncmp(error.message, message, told + (message[told] == 0)) != 0)
            fail_msg("line %d: status %d, %s", line, (int)status, error.message);
        for (int k = 0; k <= ROWS * COLUMNS; k++) assert_true(f->c[k] == 77);
    }
}

static void test_rules(void **state)
{
    static fixture f;
    (void)state;
#define REJECTED(change, status, message) (init(&f), change, reject(&f, status, message, __LINE__))
    REJECTED(f.problem.dtype = ATTN_BF16, ATTN_ERR_UNSUPPORTED, "product: dtype is bf16; it must be f32 or f64");
    REJECTED(f.problem.rows = -1, ATTN_ERR_SHAPE, "product: rows (-1) is negative");
    REJECTED(f.problem.inner = -4, ATTN_ERR_SHAPE, "product: inner (-4) is negative");
    REJECTED(f.problem.add = 2, ATTN_ERR_ARGUMENT, "product: add is 2; it must be 0 or 1");
    REJECTED(f.problem.reserved[2] = 9, ATTN_ERR_ARGUMENT, "product: reserved[2] is 9; it must be 0");
    REJECTED(f.tensors.a.stride[2] = 2, ATTN_ERR_STRIDE, "product: a.stride[2] is 2 and stride[3] 3; one of them must be 1");
    REJECTED(f.tensors.b.stride[2] = ATTN_BROADCAST, ATTN_ERR_STRIDE,
             "product: b.stride[2] is -9223372036854775808 and stride[3] 4; one of them must be 1");
    REJECTED((f.tensors.c.stride[2] = 1, f.tensors.c.stride[3] = ROWS), ATTN_ERR_STRIDE,
             "product: c.stride[2] is 1 and stride[3] 3; the last axis must be contiguous (1)");
    REJECTED((f.tensors.c.stride[2] = 1 - COLUMNS, f.tensors.c.stride[3] = 1), ATTN_ERR_STRIDE,
             "product: c.stride[2] is -4 and stride[3] 1; rows of an output must not overlap");
    REJECTED(f.tensors.b.stride[3] = INT64_MAX / 8, ATTN_ERR_SHAPE,
             "product: b has 5 columns 1152921504606846975 elements apart: its bytes overflow 64 bits");
    /* too far for all columns, but not for one */
    REJECTED(f.tensors.b.stride[3] = INT64_MAX / 64, ATTN_ERR_SHAPE,
             "product: b has 5 columns 144115188075855871 elements apart: its bytes overflow 64 bits");
    REJECTED(f.tensors.b.stride[3] = -INT64_MAX, ATTN_ERR_SHAPE,
             "product: b has 5 columns 9223372036854775807 elements apart: its bytes overflow 64 bits");
    REJECTED(f.tensors.struct_size = 16, ATTN_ERR_ARGUMENT,
             "attn_product_tensors.struct_size is 16; set it to sizeof(attn_product_tensors)");
    REJECTED(f.tensors.call = (const attn_call *)(const void *)&f, ATTN_ERR_ARGUMENT, "product: call is set; it must be NULL");
    REJECTED(f.tensors.a = (attn_input){0}, ATTN_ERR_ARGUMENT, "product: a is missing");
    REJECTED(f.tensors.a = attn_in(NULL), ATTN_ERR_ARGUMENT, "product: a is NULL");
    REJECTED(f.tensors.c = attn_out(NULL), ATTN_ERR_ARGUMENT, "product: c is NULL");
    REJECTED(f.tensors.b.data = NULL, ATTN_ERR_ARGUMENT,
             "product: b is NULL and has a type or strides; a slot that is not set must be all 0");
    REJECTED((f.tensors.c = (attn_output){NULL, ATTN_F32, {0, 0, 0, 0}}), ATTN_ERR_ARGUMENT,
             "product: c is NULL and has a type or strides; a slot that is not set must be all 0");
    REJECTED(f.tensors.a.data = ATTN_LATER, ATTN_ERR_ARGUMENT, "product: a is ATTN_LATER; this call needs its pointer");
    REJECTED(f.tensors.b.data = ATTN_EMPTY, ATTN_ERR_ARGUMENT, "product: b is ATTN_EMPTY and has elements");
    REJECTED(f.tensors.b.data = (const char *)f.b + 1, ATTN_ERR_ARGUMENT, "product: b is not aligned to its elements of 4 bytes");
    REJECTED(f.tensors.c.dtype = ATTN_F64, ATTN_ERR_UNSUPPORTED, "product: c is f64; it must be f32");
    REJECTED(f.tensors.c.data = f.b, ATTN_ERR_STRIDE, "product: c and b overlap, or their strides make it impossible to tell");
    /* the last element of C is the first of A */
    REJECTED(f.tensors.a.data = f.c + ROWS * COLUMNS - 1, ATTN_ERR_STRIDE,
             "product: c and a overlap, or their strides make it impossible to tell");
    REJECTED((f.tensors.b = (attn_input){f.c + ROWS * COLUMNS, 0, {0, 0, 1, -INNER}}), ATTN_ERR_STRIDE,
             "product: c and b overlap, or their strides make it impossible to tell");
    REJECTED(f.options.struct_size = 1, ATTN_ERR_ARGUMENT, "attn_options.struct_size is 1; set it to sizeof(attn_options)");
    REJECTED(f.options.threads = -2, ATTN_ERR_ARGUMENT,
             "options.threads is -2; it must be between 1 and 1024, or 0 for the default");
    REJECTED(f.problem.struct_size = 3, ATTN_ERR_ARGUMENT,
             "attn_product_problem.struct_size is 3; set it to sizeof(attn_product_problem)");
    REJECTED(f.workspace = NULL, ATTN_ERR_ARGUMENT, "workspace is NULL; the product needs %zu bytes");
    REJECTED(f.workspace_size = 100, ATTN_ERR_MEMORY, "workspace has 100 bytes; the product needs %zu");
    REJECTED((f.tensors.a.data = f.memory + 1, f.workspace_size -= 8), ATTN_ERR_ARGUMENT,
             "product: a and the workspace overlap, or its strides make it impossible to tell");
    REJECTED((f.tensors.b.data = f.memory, f.workspace_size -= 8), ATTN_ERR_ARGUMENT,
             "product: b and the workspace overlap, or its strides make it impossible to tell");
    REJECTED(f.workspace = f.c, ATTN_ERR_ARGUMENT,
             "product: c and the workspace overlap, or its strides make it impossible to tell");
}

static void test_null(void **state)
{
    static fixture f;
    size_t bytes;
    (void)state;
    init(&f);
    FAILS(attn_product(NULL, &f.tensors, NULL, &error), ATTN_ERR_ARGUMENT, "problem is NULL");
    FAILS(attn_product(&f.problem, NULL, NULL, &error), ATTN_ERR_ARGUMENT, "tensors is NULL");
    FAILS(attn_product_workspace_size(&f.problem, NULL, NULL, &error), ATTN_ERR_ARGUMENT, "bytes is NULL");
    assert_int_equal(attn_product_workspace_size(NULL, &bytes, NULL, NULL), ATTN_ERR_ARGUMENT);
    assert_int_equal(attn_product(&f.problem, &f.tensors, NULL, NULL), ATTN_OK);
    assert_true(f.c[0] == 0 && f.c[ROWS * COLUMNS] == 77);
}

/* A matrix without elements may be ATTN_EMPTY, whichever of its sizes is 0. */
static void test_no_elements(void **state)
{
    static fixture f;
    attn_error error;
    (void)state;
    for (int size = 0; size < 3; size++) {
        init(&f);
        if (size == 0) f.problem.rows = 0;
        if (size == 1) f.problem.columns = 0;
        if (size == 2) f.problem.inner = 0;
        if (size != 1) f.tensors.a = attn_in(ATTN_EMPTY);
        if (size != 0) f.tensors.b = attn_in(ATTN_EMPTY);
        if (size != 2) f.tensors.c = attn_out(ATTN_EMPTY);
        if (attn_product(&f.problem, &f.tensors, &f.options, &error) != ATTN_OK) fail_msg("%d: %s", size, error.message);
        for (int k = 0; k <= ROWS * COLUMNS; k++) assert_true(f.c[k] == (size == 2 && k < ROWS * COLUMNS ? 0 : 77));
    }
}

/* Matrices side by side in one buffer do not overlap. */
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
    f.tensors.a = (attn_input){both + COLUMNS, 0, {0, 0, 1, WIDE}};
    f.tensors.c = (attn_output){both, 0, {0, 0, WIDE, 1}};
    assert_int_equal(attn_product(&f.problem, &f.tensors, &f.options, &error), ATTN_OK);
    for (int k = 0; k < INNER * WIDE; k++) assert_true(both[k] == (k / WIDE < ROWS && k % WIDE < COLUMNS ? 2 * INNER : 1));
    f.tensors.a.data = both + COLUMNS - 1;
    assert_int_equal(attn_product(&f.problem, &f.tensors, &f.options, &error), ATTN_ERR_STRIDE);
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
    assert_int_equal(attn_product(&f.problem, &f.tensors, &f.options, &error), ATTN_ERR_MEMORY);
    assert_true(strncmp(error.message, "cannot allocate a workspace of ", 31) == 0);
    for (int k = 0; k <= ROWS * COLUMNS; k++) assert_true(f.c[k] == 77);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {cmocka_unit_test(test_rules), cmocka_unit_test(test_null),
                                              cmocka_unit_test(test_no_elements), cmocka_unit_test(test_beside),
                                              cmocka_unit_test(test_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
