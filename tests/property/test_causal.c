/* SPDX-License-Identifier: MIT
 *
 * test_causal.c - masks by position: properties P12, P13, P14 and P18 of docs/coverage.md, and how many pairs each mask keeps.
 */
#include "attend.h"

#include <math.h>

#define FOR_EACH(n, count) for (int64_t n = 0; n < (count); n++)

/* Changes of keys and values after a query, even to NaN, leave its row unchanged, bit by bit. */
static void p12_no_leak_from_the_future(void **state)
{
    (void)state;
    const attn_shape shape = {1, 2, 1, 70, 70, 24, 19};
    static const double changes[] = {1e4, NAN, INFINITY};
    FOR_EACH_VARIANT(v, 1)
    {
        attend *a = attend_create(v, shape, 1);
        a->problem.mask.causal = 1;
        attend_run(a);
        for (int n = 0; n < 3; n++)
            for (int64_t from = 1; from < 70; from += 7) {
                attend *changed = attend_copy(a);
                for (int64_t j = from; j < 70; j++) {
                    FOR_EACH(c, 24) put(changed, K, 0, 0, j, c, changes[n]);
                    FOR_EACH(c, 19) put(changed, V, 0, 0, j, c, -changes[n]);
                }
                attend_run(changed);
                FOR_EACH(h, 2)
                FOR_EACH(i, from)
                for (int which = O; which <= WEIGHTS; which++) assert_same_row(a, changed, (part)which, 0, h, i, 0, h, i);
                attend_destroy(changed);
            }
        attend_destroy(a);
    }
}

/* The same for few queries and many keys, where a head's keys are split into parts: a key that one row drops and another keeps. */
static void p12_no_leak_between_rows(void **state)
{
    (void)state;
    const attn_shape shape = {1, 2, 1, 3, 4500, 8, 8};
    FOR_EACH_VARIANT(v, 0)
    {
        attend *a = attend_create(v, shape, 9);
        a->tensors.mask.data = ATTN_LATER;
        static const int64_t dropped[] = {0, 700, 2300, 4499};
        for (int n = 0; n < 4; n++) FOR_EACH(h, 2) * mask_at(a, 0, h, 1, dropped[n]) = 0;
        attend_run(a);
        for (int n = 0; n < 4; n++) {
            attend *changed = attend_copy(a);
            FOR_EACH(c, 8) put(changed, V, 0, 0, dropped[n], c, NAN);
            attend_run(changed);
            FOR_EACH(h, 2)
            {
                for (int which = O; which <= WEIGHTS; which++) assert_same_row(a, changed, (part)which, 0, h, 1, 0, h, 1);
                assert_true(isnan(get(changed, O, 0, h, 0, 0)) && isnan(get(changed, O, 0, h, 2, 0)));
            }
            attend_destroy(changed);
        }
        attend_destroy(a);
    }
}

static void p12_first_output_is_first_value(void **state)
{
    (void)state;
    FOR_EACH_VARIANT(v, 1)
    {
        attend *a = attend_create(v, (attn_shape){2, 2, 1, 33, 50, 24, 19}, 2);
        a->problem.mask.causal = 1;
        attend_run(a);
        FOR_EACH(b, 2) FOR_EACH(h, 2) assert_memory_equal(row_of(a, O, b, h, 0), row_of(a, V, b, 0, 0), row_bytes(a, O));
        attend_destroy(a);
    }
}

/* Entries of different lengths, padded to the longest, equal unpadded ones, with zeros in the padding of outputs.  That of inputs
 * may be NaN. */
static void p13_padding(void **state)
{
    (void)state;
    const attn_shape shape = {4, 2, 2, 30, 60, 16, 12};
    static const int64_t lengths_q[] = {30, 1, 0, 17}, lengths_kv[] = {60, 33, 20, 5};
    FOR_EACH_VARIANT(v, 0)
    for (int causal = 0; causal < 2; causal++) {
        attend *a = attend_create(v, shape, 3);
        a->tensors.lengths_q.data = a->tensors.lengths_kv.data = ATTN_LATER;
        a->problem.mask.causal = causal;
        a->problem.mask.align = ATTN_ALIGN_BOTTOM_RIGHT;
        FOR_EACH(b, 4)
        {
            a->lengths_q[b] = lengths_q[b];
            a->lengths_kv[b] = lengths_kv[b];
            FOR_EACH(h, 2) for (int64_t j = lengths_kv[b]; j < 60; j++)
            {
                FOR_EACH(c, 16) put(a, K, b, h, j, c, NAN);
                FOR_EACH(c, 12) put(a, V, b, h, j, c, NAN);
            }
            FOR_EACH(h, 2) for (int64_t i = lengths_q[b]; i < 30; i++) FOR_EACH(c, 16) put(a, Q, b, h, i, c, NAN);
        }
        attend_run(a);
        FOR_EACH(b, 4)
        {
            attend *one = attend_create(v, (attn_shape){1, 2, 2, lengths_q[b], lengths_kv[b], 16, 12}, 4);
            one->problem.mask.causal = causal;
            one->problem.mask.align = ATTN_ALIGN_BOTTOM_RIGHT;
            FOR_EACH(h, 2)
            {
                FOR_EACH(i, lengths_q[b]) copy_row(one, 0, h, i, a, Q, b, h, i);
                FOR_EACH(j, lengths_kv[b]) copy_row(one, 0, h, j, a, K, b, h, j);
                FOR_EACH(j, lengths_kv[b]) copy_row(one, 0, h, j, a, V, b, h, j);
            }
            attend_run(one);
            FOR_EACH(h, 2) FOR_EACH(i, 30)
            {
                const int real = i < lengths_q[b];
                FOR_EACH(c, 12)
                {
                    if (real) assert_close(get(a, O, b, h, i, c), get(one, O, 0, h, i, c), v->rtol, 1);
                    else assert_true(get(a, O, b, h, i, c) == 0);
                }
                if (real && isfinite(get(one, LSE, 0, h, i, 0)))
                    assert_close(get(a, LSE, b, h, i, 0), get(one, LSE, 0, h, i, 0), v->rtol, 5);
                else assert_true(get(a, LSE, b, h, i, 0) == -INFINITY);
                FOR_EACH(j, 60) if (!real || j >= lengths_kv[b]) assert_true(get(a, WEIGHTS, b, h, i, j) == 0);
            }
            attend_destroy(one);
        }
        attend_destroy(a);
    }
}

static attend *windowed(const variant *v, attn_shape shape, int64_t left, int64_t right, int causal)
{
    attend *a = attend_create(v, shape, 5);
    a->problem.mask.window = left != -2;
    a->problem.mask.window_left = left == -2 ? 0 : left;
    a->problem.mask.window_right = right;
    a->problem.mask.causal = causal;
    attend_run(a);
    return a;
}

/* A window wider than the sequence has no effect; one that is wide only to the left is causal; with width 1 the output is the
 * value. */
static void p14_windows(void **state)
{
    (void)state;
    const attn_shape shape = {1, 2, 2, 40, 40, 16, 12};
    FOR_EACH_VARIANT(v, 0)
    {
        attend *plain = windowed(v, shape, -2, 0, 0), *wide = windowed(v, shape, 40, 100, 0), *open = windowed(v, shape, -1, -1, 0);
        assert_same_numbers(wide, plain, v->rtol);
        assert_same_numbers(open, plain, v->rtol);

        attend *causal = windowed(v, shape, -2, 0, 1), *left = windowed(v, shape, 39, 0, 0), *both = windowed(v, shape, 500, -1, 1);
        assert_same_numbers(left, causal, v->rtol);
        assert_same_numbers(both, causal, v->rtol);

        attend *self = windowed(v, shape, 0, 0, 0), *self_causal = windowed(v, shape, 0, -1, 1);
        FOR_EACH(h, 2) FOR_EACH(i, 40)
        {
            assert_memory_equal(row_of(self, O, 0, h, i), row_of(self, V, 0, h, i), row_bytes(self, O));
            assert_memory_equal(row_of(self_causal, O, 0, h, i), row_of(self, V, 0, h, i), row_bytes(self, O));
        }
        attend *all[] = {plain, wide, open, causal, left, both, self, self_causal};
        for (int n = 0; n < 8; n++) attend_destroy(all[n]);
    }
}

static int64_t count_seen(const attend *a)
{
    const attn_shape *s = &a->problem.shape;
    int64_t seen = 0;
    FOR_EACH(i, s->len_q) FOR_EACH(j, s->len_kv) seen += get(a, WEIGHTS, 0, 0, i, j) > 0;
    return seen;
}

/* Causal sees n(n+1)/2 pairs; a symmetric window a symmetric set; blocks of a block-diagonal mask b^2 each. */
static void p14_counts(void **state)
{
    (void)state;
    FOR_EACH_VARIANT(v, 0)
    {
        for (int64_t n = 1; n <= 70; n = 2 * n + 1) {
            attend *causal = windowed(v, (attn_shape){1, 1, 1, n, n, 4, 1}, -2, 0, 1);
            assert_int_equal(count_seen(causal), n * (n + 1) / 2);
            attend_destroy(causal);
        }
        attend *local = windowed(v, (attn_shape){1, 1, 1, 40, 40, 4, 1}, 3, 3, 0);
        assert_int_equal(count_seen(local), 40 * 7 - 2 * (3 + 2 + 1));
        FOR_EACH(i, 40) FOR_EACH(j, 40) assert_int_equal(get(local, WEIGHTS, 0, 0, i, j) > 0, get(local, WEIGHTS, 0, 0, j, i) > 0);
        attend_destroy(local);

        attend *blocks = attend_create(v, (attn_shape){1, 1, 1, 40, 40, 4, 6}, 6);
        blocks->tensors.mask.data = ATTN_LATER;
        FOR_EACH(i, 40) FOR_EACH(j, 40) * mask_at(blocks, 0, 0, i, j) = i / 8 == j / 8;
        attend_run(blocks);
        assert_int_equal(count_seen(blocks), 5 * 8 * 8);
        FOR_EACH(i, 40) FOR_EACH(j, 40) * mask_at(blocks, 0, 0, i, j) = i == j;
        attend_run(blocks);
        FOR_EACH(i, 40) assert_memory_equal(row_of(blocks, O, 0, 0, i), row_of(blocks, V, 0, 0, i), row_bytes(blocks, O));
        attend_destroy(blocks);
    }
}

/* Token by token with a growing cache equals causal attention over the whole sequence. */
static void p18_decoding(void **state)
{
    (void)state;
    const int64_t n = 70, heads = 4, groups = 2;
    FOR_EACH_VARIANT(v, 0)
    {
        attend *whole = attend_create(v, (attn_shape){1, heads, groups, n, n, 16, 12}, 7);
        whole->problem.mask.causal = 1;
        attend_run(whole);
        for (int64_t i = 0; i < n; i++) {
            attend *step = attend_create(v, (attn_shape){1, heads, groups, 1, i + 1, 16, 12}, 8);
            step->problem.mask.causal = 1;
            step->problem.mask.align = ATTN_ALIGN_BOTTOM_RIGHT;
            FOR_EACH(h, heads) copy_row(step, 0, h, 0, whole, Q, 0, h, i);
            FOR_EACH(g, groups) FOR_EACH(j, i + 1)
            {
                copy_row(step, 0, g, j, whole, K, 0, g, j);
                copy_row(step, 0, g, j, whole, V, 0, g, j);
            }
            attend_run(step);
            FOR_EACH(h, heads)
            {
                FOR_EACH(c, 12) assert_close(get(step, O, 0, h, 0, c), get(whole, O, 0, h, i, c), v->rtol, 1);
                assert_close(get(step, LSE, 0, h, 0, 0), get(whole, LSE, 0, h, i, 0), v->rtol, 5);
            }
            attend_destroy(step);
        }
        attend_destroy(whole);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(p12_no_leak_from_the_future),
        cmocka_unit_test(p12_no_leak_between_rows),
        cmocka_unit_test(p12_first_output_is_first_value),
        cmocka_unit_test(p13_padding),
        cmocka_unit_test(p14_windows),
        cmocka_unit_test(p14_counts),
        cmocka_unit_test(p18_decoding),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
