/* SPDX-License-Identifier: MIT
 * test_tail.c - of keys by channel, k is not read from the last whole group on: there are inaccessible pages in its place, with
 * lists of single keys too. */
#include "test.h"

#include "attn/attn.h"
#include "testing/memory/guard.h"

enum { DIM = 64, CAPACITY = 96, KEYS = 40, ROW = 20 * DIM / ATTN_BLOCK, LISTED = 9 };

static void test_not_read(void **state)
{
    static const int64_t index[LISTED] = {3, 7, 8, 31, 32, 35, 36, 37, 39};
    static float q[DIM], v[CAPACITY * DIM], o[DIM];
    static uint16_t tail[ATTN_TAIL * DIM];
    const int64_t lengths[1] = {KEYS}, cu_seqlens[2] = {0, 1}, starts[2] = {0, LISTED};
    guarded k;
    (void)state;
    assert_true(guarded_create(&k, ATTN_BLOCK * ROW, GUARD_AFTER, 0));
    memset(k.data, 0, k.bytes);
    for (int way = 0; way < 4; way++) {
        attn_problem p = {.struct_size = sizeof p, .shape = {1, 1, 1, 1, CAPACITY, DIM, DIM}};
        attn_tensors t = {.struct_size = sizeof t,
                          .q = attn_in(q),
                          .k = {k.data, ATTN_Q4_1C, {0, 0, 0, 0}},
                          .v = attn_in(v),
                          .k_tail = attn_in(tail),
                          .o = attn_out(o),
                          .cu_seqlens_q = attn_in(cu_seqlens),
                          .lengths_kv = attn_in(lengths)};
        const attn_options options = {.struct_size = sizeof options, .threads = 1, .invariant = way & 1};
        attn_plan *plan;
        attn_error error;
        if (way & 2) {
            p.mask = (attn_mask){.block_heads = 1, .block_q = 1, .block_kv = 1, .block_entries = LISTED};
            t.block_starts = attn_in(starts), t.block_index = attn_in(index);
        }
        if (attn_plan_create(&plan, &p, &t, &options, &error) != ATTN_OK) fail_msg("%s", error.message);
        const size_t need = attn_plan_workspace_size(plan);
        void *workspace = malloc(need + 1);
        if (attn_execute(plan, &t, workspace, need, &error) != ATTN_OK) fail_msg("%s", error.message);
        free(workspace);
        attn_plan_destroy(plan);
    }
    guarded_destroy(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_not_read)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
