/* SPDX-License-Identifier: MIT
 *
 * test_no_elements.c - each pair of tensors in each operation, where one axis of the shape has size 0: what has no elements is
 * neither read nor written, wherever it lies and its strides lead. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
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

static void make_empty(attn_shape *shape, int axis)
{
    if (axis == 0) shape->batch = 0;
    if (axis == 1 || axis == 2) shape->heads_q = 0;
    if (axis == 2) shape->heads_kv = 0;
    if (axis == 3) shape->len_q = 0;
    if (axis == 4) shape->len_kv = 0;
    if (axis == 5) shape->dim_qk = 0;
    if (axis == 6) shape->dim_v = 0;
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
    make_empty(&s.problem.shape, axis);
    for (int t = 0; t < tensors_of_table; t++) /* (lengths, and where sequences begin) */
        if ((axis == 3 || axis == 4) && !(table[t].types & 1 << ATTN_F32) && strcmp(table[t].name, "mask") != 0)
            memset(s.memory[t], 0, VALID_BYTES);
    if (valid_call_plan(&s, &plan, &error) != ATTN_OK) return 0;
    const int moved = move_away(plan, stride);
    if (valid_call_compute(&s, &error) != ATTN_OK)
        fail_msg("op %d, %s and %s, %s 0: %s", (int)op, table[n].name, table[m].name, axes[axis], error.message);
    return moved;
}

static void test_pairs(void **state)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    long moved = 0;
    (void)state;
    guard = mmap(NULL, page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(guard != MAP_FAILED);
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
    assert_int_equal(munmap(guard, page), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_pairs)};
    valid_call_table();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
