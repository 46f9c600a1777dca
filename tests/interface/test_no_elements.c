/* SPDX-License-Identifier: MIT
 *
 * test_no_elements.c - each pair of tensors in each operation, where one axis of the shape has size 0: what has no elements is
 * neither read nor written, wherever it lies and its strides lead; and nothing takes long, however large another axis is. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
#include "promptly.h"
#include "valid_call.h"

#include <sys/mman.h>
#include <unistd.h>

static valid_call s;
static unsigned char *guard; /* nothing may access it */

enum { FAR = 1 << 30 };
/* Strides that lead out of memory; those of 0 look as if the axis were shared. */
static const int64_t astray[][4] = {{0, 0, FAR, 1},     {0, FAR, 0, 1},        {FAR, 0, 0, 1},      {0, FAR, FAR, 1},
                                    {FAR, FAR, FAR, 1}, {-FAR, -FAR, -FAR, 1}, {FAR, FAR, FAR, FAR}};
enum { ASTRAY = sizeof astray / sizeof *astray };

static const char *const axes[] = {"batch", "heads_q", "heads", "len_q", "len_kv", "dim_qk", "dim_v"};
enum { AXES = sizeof axes / sizeof *axes };

static void set_size(attn_shape *shape, int axis, int64_t size)
{
    if (axis == 0) shape->batch = size;
    if (axis == 1 || axis == 2) shape->heads_q = size;
    if (axis == 2) shape->heads_kv = size;
    if (axis == 3) shape->len_q = size;
    if (axis == 4) shape->len_kv = size;
    if (axis == 5) shape->dim_qk = size;
    if (axis == 6) shape->dim_v = size;
}

/* Lists of pages, and their lengths: of keys, whatever queries there are. */
static int is_of_pages(const char *name) { return strncmp(name, "page_", 5) == 0 || strcmp(name, "lengths_last_page") == 0; }

static void make_empty(int axis)
{
    set_size(&s.problem.shape, axis, 0);
    for (int t = 0; t < tensors_of_table; t++) /* (lengths, and where sequences begin) */
        if ((axis == 4 || (axis == 3 && !is_of_pages(table[t].name))) && !(table[t].types & 1 << ATTN_F32) &&
            strcmp(table[t].name, "mask") != 0)
            memset(s.memory[t], 0, VALID_BYTES);
}

/* Moves what has no elements to the guard page, with these strides as far as planning takes them; returns how many tensors took
 * them.  Destroys the plan.  Each plan is asked anew: the gradient of a tensor that is shared along an axis (by a stride of 0) has
 * elements, even if nothing shares it. */
static int move_away(attn_plan *plan, const int64_t *stride)
{
    attn_error error;
    int moved = 0;
    for (int n = 0; n < tensors_of_table; n++) {
        const attn_input old = slot_get(&s.tensors, n);
        attn_input slot = old;
        attn_tensor_plan info = {.struct_size = sizeof info};
        attn_plan *with;
        if (!old.data) continue;
        assert_int_equal(attn_plan_tensor(plan, n, &info, &error), ATTN_OK);
        if (info.shape[0] && info.shape[1] && info.shape[2] && info.shape[3]) continue;
        slot.data = guard;
        memcpy(slot.stride, stride, sizeof slot.stride);
        slot_set(&s.tensors, n, slot);
        if (valid_call_plan(&s, &with, &error) == ATTN_OK) {
            moved++;
            attn_plan_destroy(plan);
            plan = with;
        } else {
            slot_set(&s.tensors, n, (attn_input){.data = guard, .dtype = old.dtype});
        }
    }
    attn_plan_destroy(plan);
    return moved;
}

static int run_pair(attn_op op, int n, int m, int axis, const int64_t *stride)
{
    attn_error error;
    attn_plan *plan;
    valid_call_with(&s, op, n);
    valid_call_use(&s, m);
    make_empty(axis);
    if (valid_call_plan(&s, &plan, &error) != ATTN_OK) return 0;
    const int moved = move_away(plan, stride);
    if (valid_call_compute(&s, &error) != ATTN_OK)
        fail_msg("op %d, %s and %s, %s 0: %s", (int)op, table[n].name, table[m].name, axes[axis], error.message);
    return moved;
}

static void test_pairs(void **state)
{
    long moved = 0;
    (void)state;
    for (int op = ATTN_FORWARD; op <= ATTN_DOUBLE_BACKWARD; op++)
        for (int n = 0; n < tensors_of_table; n++)
            for (int m = n; m < tensors_of_table; m++)
                for (int axis = 0; axis < AXES; axis++)
                    if (table[n].role[op] != ATTN_ROLE_NONE && table[m].role[op] != ATTN_ROLE_NONE)
                        moved += run_pair((attn_op)op, n, m, axis, astray[(n + m + axis) % ASTRAY]);
    for (int op = ATTN_FORWARD; op <= ATTN_DOUBLE_BACKWARD; op++)
        for (int n = 0; n < tensors_of_table; n++)
            for (int axis = 0; axis < AXES; axis++)
                for (int i = 0; i < ASTRAY; i++)
                    if (table[n].role[op] != ATTN_ROLE_NONE) moved += run_pair((attn_op)op, n, n, axis, astray[i]);
    print_message("%ld tensors without elements\n", moved);
    assert_true(moved > 10000);
}

/* 1 if no output of a plan has elements, and all that has some has few. */
static int has_little(const attn_plan *plan)
{
    for (int n = 0; n < tensors_of_table; n++) {
        attn_tensor_plan info = {.struct_size = sizeof info};
        assert_int_equal(attn_plan_tensor(plan, n, &info, NULL), ATTN_OK);
        if (info.bytes > (info.role == ATTN_ROLE_OUTPUT ? 0 : VALID_BYTES)) return 0;
    }
    return 1;
}

/* What needs no workspace can be planned under any limit. */
static void plan_with_least_workspace(void)
{
    attn_error error;
    attn_plan *plan;
    s.options.workspace_limit = 1;
    if (valid_call_plan(&s, &plan, &error) != ATTN_OK) fail_msg("a limit of one byte: %s", error.message);
    attn_plan_destroy(plan);
    s.options.workspace_limit = 0;
}

/* Planning takes no longer for vast sizes, nor does executing what writes nothing.  Returns 1 if it was executed. */
static int run_vast(attn_op op, int n, int empty, int too, int vast)
{
    attn_error error;
    attn_plan *plan;
    int ran = 0;
    valid_call_with(&s, op, n);
    set_size(&s.problem.shape, vast, INT64_C(1) << 40);
    make_empty(empty);
    make_empty(too);
    /* (lists of pages for all keys of a vast tensor are as long) */
    if (s.tensors.page_starts.data && !s.tensors.lengths_last_page.data) slot_fill(&s, tensor_number("lengths_kv"));
    promptly_limit(5);
    if (valid_call_plan(&s, &plan, &error) == ATTN_OK) {
        if (has_little(plan)) move_away(plan, astray[(n + empty + vast) % ASTRAY]);
        else attn_plan_destroy(plan);
        assert_int_equal(valid_call_plan(&s, &plan, &error),
                         ATTN_OK); /* (strides may have shared an axis, whose gradient is larger) */
        ran = has_little(plan);
        if (ran && valid_call_execute(plan, &s.tensors, &error) != ATTN_OK)
            fail_msg("op %d, %s, %s and %s 0, %s vast: %s", (int)op, table[n].name, axes[empty], axes[too], axes[vast],
                     error.message);
        const size_t workspace = attn_plan_workspace_size(plan);
        attn_plan_destroy(plan);
        if (workspace == 0) plan_with_least_workspace();
    }
    promptly_limit(0);
    return ran;
}

static void test_vast(void **state)
{
    long ran = 0, number = 0;
    (void)state;
    for (int op = ATTN_FORWARD; op <= ATTN_DOUBLE_BACKWARD; op++)
        for (int n = 0; n < tensors_of_table; n++)
            for (int empty = 0; empty < AXES; empty++)
                for (int too = empty; too < AXES; too++)
                    for (int vast = 0; vast < AXES; vast++)
                        if (table[n].role[op] != ATTN_ROLE_NONE && number++ % EVERY(1) == 0)
                            ran += run_vast((attn_op)op, n, empty, too, vast);
    print_message("%ld calls that write nothing\n", ran);
    assert_true(ran > CASES(8000));
}

static int map_guard(void **state)
{
    (void)state;
    guard = mmap(NULL, (size_t)sysconf(_SC_PAGESIZE), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return guard == MAP_FAILED;
}

static int unmap_guard(void **state)
{
    (void)state;
    return munmap(guard, (size_t)sysconf(_SC_PAGESIZE));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_pairs), cmocka_unit_test(test_vast)};
    valid_call_table();
    return cmocka_run_group_tests(tests, map_guard, unmap_guard);
}
