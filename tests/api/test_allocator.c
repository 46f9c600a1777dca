/* SPDX-License-Identifier: MIT
 * test_allocator.c - the caller's allocator: one block per plan, no allocation while executing, and every block is freed. */
#include "test.h"

#include "attn/attn.h"

typedef struct ledger {
    int allocations, releases;
    size_t bytes;
    void *memory; /* the one live block */
} ledger;

static void *allocate(void *context, size_t bytes)
{
    ledger *l = context;
    assert_null(l->memory); /* one block per object */
    l->allocations++;
    l->bytes = bytes;
    return l->memory = aligned_alloc(64, (bytes + 63) / 64 * 64);
}

static void release(void *context, void *memory)
{
    ledger *l = context;
    assert_ptr_equal(memory, l->memory);
    l->releases++;
    l->memory = NULL;
    free(memory);
}

static void test_balance(void **state)
{
    ledger l = {0, 0, 0, NULL};
    attn_problem problem = {.struct_size = sizeof problem, .shape = {2, 2, 1, 70, 70, 16, 16}};
    attn_options options = {.struct_size = sizeof options, .allocator = {allocate, release, &l}};
    static float q[2 * 2 * 70 * 16], kv[2 * 70 * 16], o[2 * 2 * 70 * 16];
    attn_tensors tensors = {.struct_size = sizeof tensors, .q = attn_in(q), .k = attn_in(kv), .v = attn_in(kv), .o = attn_out(o)};
    attn_plan *plan;
    (void)state;

    assert_int_equal(attn_plan_create(&plan, &problem, &tensors, &options, NULL), ATTN_OK);
    assert_ptr_equal(plan, l.memory);
    assert_int_equal(l.allocations, 1);

    memset(&problem, 0, sizeof problem); /* copied: they need not outlive the call */
    memset(&options, 0, sizeof options);
    size_t size = attn_plan_workspace_size(plan);
    void *workspace = malloc(size);
    assert_non_null(workspace);
    for (int i = 0; i < 3; i++) assert_int_equal(attn_execute(plan, &tensors, workspace, size, NULL), ATTN_OK);
    assert_int_equal(l.allocations, 1);
    free(workspace);

    attn_plan_destroy(plan);
    assert_int_equal(l.releases, 1);
    assert_null(l.memory);
}

/* A rejected problem leaks nothing: whether it is rejected before the plan's block is allocated or, since its workspace is too
 * large, after that. */
static void test_rejection(void **state)
{
    ledger l = {0, 0, 0, NULL};
    attn_problem problem = {.struct_size = sizeof problem, .shape = {1, 3, 2, 1, 1, 1, 1}};
    float q[3], kv[2], o[3];
    attn_tensors tensors = {.struct_size = sizeof tensors, .q = attn_in(q), .k = attn_in(kv), .v = attn_in(kv), .o = attn_out(o)};
    attn_options options = {.struct_size = sizeof options, .allocator = {allocate, release, &l}};
    attn_plan *plan;
    (void)state;
    assert_int_equal(attn_plan_create(&plan, &problem, &tensors, &options, NULL), ATTN_ERR_SHAPE);
    assert_null(plan);
    assert_int_equal(l.allocations, 0);
    problem.shape.heads_q = 2;
    options.workspace_limit = 1;
    assert_int_equal(attn_plan_create(&plan, &problem, &tensors, &options, NULL), ATTN_ERR_MEMORY);
    assert_null(plan);
    assert_int_equal(l.allocations, 1);
    assert_int_equal(l.releases, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_balance), cmocka_unit_test(test_rejection)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
