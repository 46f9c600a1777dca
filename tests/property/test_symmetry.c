/* SPDX-License-Identifier: MIT
 *
 * test_symmetry.c - what attention does not depend on, and what it is linear in: properties P8, P9, P10, P15 and
 * P17 of docs/coverage.md; and numbers computed by hand.
 */
#include "attend.h"

#include <math.h>

static const attn_shape shape = {2, 4, 2, 37, 45, 24, 19};

#define FOR_EACH(n, count) for (int64_t n = 0; n < (count); n++)

/* Doubling every value doubles every output, bit by bit; sums of values give sums of outputs. */
static void p8_linear_in_values(void **state)
{
    (void)state;
    FOR_EACH_VARIANT(v, 0)
    {
        attend *a = attend_create(v, shape, 1), *other = attend_copy(a), *twice = attend_copy(a), *sum = attend_copy(a);
        random_state random = {2};
        FOR_EACH(b, 2) FOR_EACH(g, 2) FOR_EACH(j, shape.len_kv) FOR_EACH(c, shape.dim_v)
        {
            const double x = get(a, V, b, g, j, c);
            put(other, V, b, g, j, c, random_bell(&random));
            put(twice, V, b, g, j, c, 2 * x);
            put(sum, V, b, g, j, c, 3 * x - 0.5 * get(other, V, b, g, j, c));
        }
        attend *all[] = {a, other, twice, sum};
        for (int n = 0; n < 4; n++) attend_run(all[n]);
        FOR_EACH(b, 2) FOR_EACH(h, 4) FOR_EACH(i, shape.len_q) FOR_EACH(c, shape.dim_v)
        {
            const double o = get(a, O, b, h, i, c);
            assert_true(get(twice, O, b, h, i, c) == 2 * o);
            assert_close(get(sum, O, b, h, i, c), 3 * o - 0.5 * get(other, O, b, h, i, c), v->rtol, 5);
        }
        for (int n = 0; n < 4; n++) attend_destroy(all[n]);
    }
}

/* One vector added to all values is added to all outputs. */
static void p8_shift_of_values(void **state)
{
    (void)state;
    FOR_EACH_VARIANT(v, 0)
    {
        attend *a = attend_create(v, shape, 3), *moved = attend_copy(a);
        FOR_EACH(b, 2)
        FOR_EACH(g, 2)
        FOR_EACH(j, shape.len_kv) FOR_EACH(c, shape.dim_v) put(moved, V, b, g, j, c, get(a, V, b, g, j, c) + (double)(c - 5));
        attend_run(a);
        attend_run(moved);
        FOR_EACH(b, 2)
        FOR_EACH(h, 4)
        FOR_EACH(i, shape.len_q)
        FOR_EACH(c, shape.dim_v) assert_close(get(moved, O, b, h, i, c), get(a, O, b, h, i, c) + (double)(c - 5), v->rtol, 20);
        attend_destroy(a);
        attend_destroy(moved);
    }
}

/* Queries in another order: outputs in that order, bit by bit.  Keys and values in another order: the same up to rounding. */
static void p9_order(void **state)
{
    (void)state;
    FOR_EACH_VARIANT(v, 0)
    {
        attend *a = attend_create(v, shape, 4), *queries = attend_copy(a), *keys = attend_copy(a);
        FOR_EACH(b, 2)
        {
            FOR_EACH(h, 4) FOR_EACH(i, shape.len_q) copy_row(queries, b, h, 8 * i % 37, a, Q, b, h, i);
            FOR_EACH(g, 2) FOR_EACH(j, shape.len_kv)
            {
                copy_row(keys, b, g, 13 * j % 45, a, K, b, g, j);
                copy_row(keys, b, g, 13 * j % 45, a, V, b, g, j);
            }
        }
        attend_run(a);
        attend_run(queries);
        attend_run(keys);
        FOR_EACH(b, 2) FOR_EACH(h, 4) FOR_EACH(i, shape.len_q)
        {
            for (int which = O; which <= WEIGHTS; which++) assert_same_row(a, queries, (part)which, b, h, i, b, h, 8 * i % 37);
            FOR_EACH(c, shape.dim_v) assert_close(get(keys, O, b, h, i, c), get(a, O, b, h, i, c), v->rtol, 1);
            FOR_EACH(j, shape.len_kv)
            assert_close(get(keys, WEIGHTS, b, h, i, 13 * j % 45), get(a, WEIGHTS, b, h, i, j), v->rtol, 1);
        }
        attend_destroy(a);
        attend_destroy(queries);
        attend_destroy(keys);
    }
}

/* Self-attention of tokens in another order gives the outputs in that order. */
static void p9_self_attention_is_equivariant(void **state)
{
    (void)state;
    const attn_shape self = {1, 2, 2, 41, 41, 16, 16};
    FOR_EACH_VARIANT(v, 0)
    {
        attend *a = attend_create(v, self, 5), *moved;
        FOR_EACH(h, 2) FOR_EACH(i, 41)
        {
            memcpy((void *)row_of(a, K, 0, h, i), row_of(a, Q, 0, h, i), row_bytes(a, Q));
            memcpy((void *)row_of(a, V, 0, h, i), row_of(a, Q, 0, h, i), row_bytes(a, Q));
        }
        moved = attend_copy(a);
        FOR_EACH(h, 2)
        FOR_EACH(i, 41) for (int which = Q; which <= V; which++) copy_row(moved, 0, h, 9 * i % 41, a, (part)which, 0, h, i);
        attend_run(a);
        attend_run(moved);
        FOR_EACH(h, 2)
        FOR_EACH(i, 41) FOR_EACH(c, 16) assert_close(get(moved, O, 0, h, 9 * i % 41, c), get(a, O, 0, h, i, c), v->rtol, 4);
        attend_destroy(a);
        attend_destroy(moved);
    }
}

/* One vector added to all keys adds a number to all scores of a query: weights and outputs do not change. */
static void p10_shift_of_keys(void **state)
{
    (void)state;
    FOR_EACH_VARIANT(v, 0)
    {
        attend *a = attend_create(v, shape, 6), *moved = attend_copy(a);
        FOR_EACH(b, 2)
        FOR_EACH(g, 2)
        FOR_EACH(j, shape.len_kv) FOR_EACH(c, shape.dim_qk) put(moved, K, b, g, j, c, get(a, K, b, g, j, c) + sin((double)c));
        attend_run(a);
        attend_run(moved);
        FOR_EACH(b, 2) FOR_EACH(h, 4) FOR_EACH(i, shape.len_q)
        {
            FOR_EACH(c, shape.dim_v) assert_close(get(moved, O, b, h, i, c), get(a, O, b, h, i, c), 2 * v->rtol, 2);
            FOR_EACH(j, shape.len_kv) assert_close(get(moved, WEIGHTS, b, h, i, j), get(a, WEIGHTS, b, h, i, j), 2 * v->rtol, 1);
        }
        attend_destroy(a);
        attend_destroy(moved);
    }
}

/* A batch equals a loop over its entries and heads, bit by bit, so a group of one is plain attention; also for one query with so
 * many keys that they are split. */
static void p15_batch_is_a_loop(void **state)
{
    (void)state;
    const attn_shape shapes[] = {
        {3, 4, 2, 37, 45, 24, 19}, {5, 2, 1, 1, 4500, 8, 8}, {2, 16, 16, 3, 2100, 8, 8}, {2, 3, 3, 37, 45, 24, 19}};
    FOR_EACH_VARIANT(v, 0)
    for (int n = 0; n < 4; n++) {
        const attn_shape s = shapes[n];
        const int64_t group = s.heads_q / s.heads_kv;
        attend *a = attend_create(v, s, 7);
        attend_run(a);
        for (int64_t b = 0; b < s.batch; b++)
            for (int64_t h = 0; h < s.heads_q; h++) {
                attend *one = attend_create(v, (attn_shape){1, 1, 1, s.len_q, s.len_kv, s.dim_qk, s.dim_v}, 0);
                FOR_EACH(i, s.len_q) copy_row(one, 0, 0, i, a, Q, b, h, i);
                FOR_EACH(j, s.len_kv)
                {
                    copy_row(one, 0, 0, j, a, K, b, h / group, j);
                    copy_row(one, 0, 0, j, a, V, b, h / group, j);
                }
                attend_run(one);
                FOR_EACH(i, s.len_q)
                for (int which = O; which <= WEIGHTS; which++) assert_same_row(a, one, (part)which, b, h, i, 0, 0, i);
                attend_destroy(one);
            }
        attend_destroy(a);
    }
}

/* Key heads shared by a group equal repeated key heads, bit by bit. */
static void p17_grouped_heads(void **state)
{
    (void)state;
    FOR_EACH_VARIANT(v, 0)
    {
        attend *a = attend_create(v, (attn_shape){2, 6, 2, 37, 45, 24, 19}, 8), *repeated;
        repeated = attend_create(v, (attn_shape){2, 6, 6, 37, 45, 24, 19}, 8);
        FOR_EACH(b, 2) FOR_EACH(h, 6)
        {
            FOR_EACH(i, 37) copy_row(repeated, b, h, i, a, Q, b, h, i);
            FOR_EACH(j, 45)
            {
                copy_row(repeated, b, h, j, a, K, b, h / 3, j);
                copy_row(repeated, b, h, j, a, V, b, h / 3, j);
            }
        }
        attend_run(a);
        attend_run(repeated);
        assert_same_bits(a, repeated);
        attend_destroy(a);
        attend_destroy(repeated);
    }
}

/* Q = [[1,0],[0,1]], K = [[1,0],[0,1],[1,1]], V = [[2,0],[0,2],[1,1]], scale 1/sqrt(2). */
static void golden_vectors(void **state)
{
    (void)state;
    static const double weights[2][3] = {{.401112093, .197775815, .401112093}, {.197775815, .401112093, .401112093}};
    static const double o[2][2] = {{1.203336278, .796663722}, {.796663722, 1.203336278}};
    static const double k[3][2] = {{1, 0}, {0, 1}, {1, 1}}, values[3][2] = {{2, 0}, {0, 2}, {1, 1}};
    FOR_EACH_VARIANT(v, 1)
    {
        attend *a = attend_create(v, (attn_shape){1, 1, 1, 2, 3, 2, 2}, 1);
        FOR_EACH(i, 2) FOR_EACH(c, 2) put(a, Q, 0, 0, i, c, i == c);
        FOR_EACH(j, 3) FOR_EACH(c, 2) put(a, K, 0, 0, j, c, k[j][c]);
        FOR_EACH(j, 3) FOR_EACH(c, 2) put(a, V, 0, 0, j, c, values[j][c]);
        attend_run(a);
        const double rtol = v->dtype == ATTN_F64 ? 1e-9 : 3e-7, stored = v->dtype == ATTN_F64 ? 1e-9 : v->rtol;
        FOR_EACH(i, 2)
        {
            FOR_EACH(j, 3) assert_close(get(a, WEIGHTS, 0, 0, i, j), weights[i][j], rtol, 1);
            FOR_EACH(c, 2) assert_close(get(a, O, 0, 0, i, c), o[i][c], stored, 1);
            assert_close(get(a, LSE, 0, 0, i, 0), log(2 * exp(sqrt(0.5)) + 1), rtol, 2);
        }
        attend_destroy(a);
    }
}

/* Hopfield retrieval is attention of a state over its patterns with scale beta. */
static void golden_hopfield(void **state)
{
    (void)state;
    static const double patterns[3][2] = {{1, 0}, {0, 1}, {.7, .7}};
    static const double beta[2] = {1, 5}, weights[2][3] = {{.4409, .1981, .3610}, {.7214, .0132, .2654}},
                        xi[2][2] = {{.6936, .4508}, {.9072, .1990}};
    FOR_EACH_VARIANT(v, 0)
    for (int n = 0; n < 2; n++) {
        attend *a = attend_create(v, (attn_shape){1, 1, 1, 1, 3, 2, 2}, 1);
        put(a, Q, 0, 0, 0, 0, .9);
        put(a, Q, 0, 0, 0, 1, .1);
        FOR_EACH(j, 3) FOR_EACH(c, 2)
        {
            put(a, K, 0, 0, j, c, patterns[j][c]);
            put(a, V, 0, 0, j, c, patterns[j][c]);
        }
        a->problem.score = (attn_score){.scale_kind = ATTN_SCALE_VALUE, .scale = beta[n]};
        attend_run(a);
        FOR_EACH(j, 3) assert_close(get(a, WEIGHTS, 0, 0, 0, j), weights[n][j], 5.1e-5, 1);
        FOR_EACH(c, 2) assert_close(get(a, O, 0, 0, 0, c), xi[n][c], 5.1e-5, 1);
        attend_destroy(a);
    }
}

/* Softmax of known scores at several temperatures: one query of 1, keys that are the scores. */
static void golden_softmax(void **state)
{
    (void)state;
    static const struct {
        double temperature, weights[3];
    } rows[] = {{.25, {.981690, .017980, .000329}},
                {.5, {.866813, .117310, .015876}},
                {1, {.665241, .244728, .090031}},
                {2, {.506480, .307196, .186324}}};
    FOR_EACH_VARIANT(v, 0)
    for (int n = 0; n < 4; n++) {
        attend *a = attend_create(v, (attn_shape){1, 1, 1, 1, 3, 1, 1}, 1);
        put(a, Q, 0, 0, 0, 0, 1);
        FOR_EACH(j, 3) put(a, K, 0, 0, j, 0, (double)(2 - j));
        a->problem.score = (attn_score){.scale_kind = ATTN_SCALE_VALUE, .scale = 1 / rows[n].temperature};
        attend_run(a);
        FOR_EACH(j, 3) assert_close(get(a, WEIGHTS, 0, 0, 0, j), rows[n].weights[j], 6e-7, 1);
        attend_destroy(a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(p8_linear_in_values),
        cmocka_unit_test(p8_shift_of_values),
        cmocka_unit_test(p9_order),
        cmocka_unit_test(p9_self_attention_is_equivariant),
        cmocka_unit_test(p10_shift_of_keys),
        cmocka_unit_test(p15_batch_is_a_loop),
        cmocka_unit_test(p17_grouped_heads),
        cmocka_unit_test(golden_vectors),
        cmocka_unit_test(golden_hopfield),
        cmocka_unit_test(golden_softmax),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
