/* SPDX-License-Identifier: MIT
 * test_slots.c - states in rows of a pool, of any storage type, and snapshots of them: the bits of each sequence alone with a state
 * of the compute type, rounded once; and that other rows are not touched. */
#include "ragged_case.h"
#include "testing/random/share.h"

#include <stdio.h>
#include <stdlib.h>

static const int64_t lengths[RAGGED_SEQUENCES] = {3, 0, 1, 53, 1, 1, 2, 26}, drafts[RAGGED_SEQUENCES] = {4, 1, 1, 0, 4, 3, 2, 9};

/* In place, with the same rows for both lists, the pool has the final rows, and everything else is as it was. */
static void check_in_place(const ragged_case *c, const char *what)
{
    static const char *const pools[][2] = {{"initial_state", "final_state"}, {"initial_sum", "final_sum"}};
    const int64_t snapshots = c->problem.snapshots > 1 ? c->problem.snapshots : 1;
    attn_linear_tensors tensors = c->args;
    unsigned char *pool[2] = {NULL, NULL};
    for (int i = 0; i < 2; i++) {
        const int from = ragged_number(c, pools[i][0]), to = ragged_number(c, pools[i][1]);
        if (!c->plan[from].role) continue;
        pool[i] = malloc(c->bytes[from] + 1);
        assert_non_null(pool[i]);
        memcpy(pool[i], c->data[from], c->bytes[from]);
        ragged_slot(c, &tensors, from)->data = ragged_slot(c, &tensors, to)->data = pool[i];
    }
    ragged_execute(&c->problem, &tensors, 1);
    for (int i = 0; i < 2; i++) {
        const int from = ragged_number(c, pools[i][0]), to = ragged_number(c, pools[i][1]);
        for (int64_t row = 0; pool[i] && row < c->problem.pool; row++) {
            const size_t bytes = ragged_row_bytes(c, from);
            const unsigned char *expected = ragged_row(c, from, row);
            for (int64_t at = 0; at < c->count * snapshots; at++)
                if (ragged_slot_of(c, "final_slots", at) == row &&
                    at % snapshots <= c->starts[at / snapshots + 1] - c->starts[at / snapshots])
                    expected = c->kept[to] + (size_t)row * bytes;
            if (memcmp(pool[i] + (size_t)row * bytes, expected, bytes) != 0)
                fail_msg("%s: row %d of %s is another in place", what, (int)row, pools[i][0]);
        }
        free(pool[i]);
    }
}

static void check(attn_linear_problem p, int decays, int slots, attn_dtype dtype, attn_dtype stored, const int64_t *of)
{
    static int64_t number;
    char what[160];
    if (number++ % share_stride() != 0) return; /* (the inner lists have three entries: 2 and 4 meet all) */
    ragged_case c = {.problem = p, .decays = decays, .states = 1, .slots = slots, .dtype = dtype, .stored = stored};
    (void)snprintf(what, sizeof what, "rule %d, decay %d, denominator %d, form %d, D %d, snapshots %d, slots %d, states %s",
                   (int)p.rule, decays + (int)p.decay_kind, (int)p.denominator, (int)p.form, (int)p.shape.dim_qk, (int)p.snapshots,
                   slots, stored ? attn_dtype_name(stored) : "default");
    ragged_open(&c, RAGGED_SEQUENCES, of, 11);
    for (int threads = 1; threads <= 3; threads += 2) {
        ragged_run(&c, threads);
        ragged_compare(&c, 0, what);
    }
    if (slots == 2) check_in_place(&c, what);
    ragged_close(&c);
}

static const struct {
    attn_dtype dtype, stored;
} types[] = {{ATTN_F32, ATTN_DTYPE_DEFAULT}, {ATTN_BF16, ATTN_BF16}, {ATTN_F32, ATTN_F16}, {ATTN_F64, ATTN_DTYPE_DEFAULT}};

static void check_kinds(attn_linear_problem p, const int64_t *of)
{
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        for (int slots = 0; slots < 3; slots++) {
            const int few = i % 2 == 0; /* small states are walked token by token, and one query head needs one pass */
            if (p.snapshots > 1 && slots == 0) continue;
            p.shape = few ? (attn_shape){0, 2, 2, 0, 0, 5, 3} : (attn_shape){0, 2, 1, 0, 0, 96, 70};
            for (int decay = 0; decay < 3; decay++) {
                p.decay_kind = decay == 2 ? ATTN_DECAY_CHANNEL : ATTN_DECAY_HEAD;
                p.rule = ATTN_LINEAR_RULE_ADD;
                p.denominator = ATTN_DENOMINATOR_CLAMP;
                p.features = ATTN_FEATURES_ELU1;
                check(p, decay > 0, slots, types[i].dtype, types[i].stored, of);
                p.denominator = ATTN_DENOMINATOR_NONE;
                p.features = ATTN_FEATURES_IDENTITY;
                for (p.rule = ATTN_LINEAR_RULE_DELTA; p.rule <= ATTN_LINEAR_RULE_LOW_RANK; p.rule++)
                    check(p, decay > 0, slots, types[i].dtype, types[i].stored, of);
            }
        }
}

static void test_rows(void **state)
{
    (void)state;
    check_kinds((attn_linear_problem){.causal = 1}, lengths);
}

static void test_snapshots(void **state)
{
    (void)state;
    check_kinds((attn_linear_problem){.causal = 1, .snapshots = 4}, drafts);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rows), cmocka_unit_test(test_snapshots)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
