/* SPDX-License-Identifier: MIT
 * test_masks.c - edge cases of what a query sees: a test for each ruling, which it quotes. */
#include "definition.h"

#include <float.h>

/* "a query that sees no key": O = 0, weights 0, lse = -inf, by every way of dropping. */
static void a_query_that_sees_no_key(void **state)
{
    (void)state;
    FOR_EACH_VARIANT(v, 1)
    for (int way = 0; way < 5; way++) {
        attend *a = attend_create(v, shape, 1);
        if (way == 0) a->tensors.mask.data = ATTN_LATER, memset(a->mask, 0, (size_t)(2 * 4 * 20 * 33));
        if (way == 1) {
            a->tensors.bias.data = ATTN_LATER;
            FOR_EACH(b, 2) FOR_EACH(h, 4) FOR_EACH(i, 20) FOR_EACH(j, 33) put(a, BIAS, b, h, i, j, -INFINITY);
        }
        if (way == 2) a->tensors.lengths_kv.data = ATTN_LATER, a->lengths_kv[0] = a->lengths_kv[1] = 0;
        if (way == 3) a->problem.mask.causal = 1, a->tensors.offset_q.data = ATTN_LATER, a->offset[0] = -20, a->offset[1] = -99;
        if (way == 4) a->problem.mask.window = 1, a->tensors.offset_q.data = ATTN_LATER, a->offset[0] = 100, a->offset[1] = -100;
        attend_run(a);
        FOR_EACH(b, 2) FOR_EACH(h, 4) FOR_EACH(i, 20)
        {
            FOR_EACH(c, 6) assert_true(get(a, O, b, h, i, c) == 0);
            FOR_EACH(j, 33) assert_true(get(a, WEIGHTS, b, h, i, j) == 0);
            assert_true(get(a, LSE, b, h, i, 0) == -INFINITY);
        }
        attend_destroy(a);
    }
}

static int64_t position(const attend *a, int64_t b, int64_t i)
{
    const attn_problem *p = &a->problem;
    const int64_t len_q = a->tensors.lengths_q.data ? a->lengths_q[b] : p->shape.len_q,
                  len_kv = a->tensors.lengths_kv.data ? a->lengths_kv[b] : p->shape.len_kv;
    return i + (a->tensors.offset_q.data ? a->offset[b] : p->mask.align == ATTN_ALIGN_BOTTOM_RIGHT ? len_kv - len_q : 0);
}

static int sees_causal(const attend *a, int64_t b, int64_t i, int64_t j) { return j <= position(a, b, i); }

/* The ways to specify the position of query 0. */
enum { TOP_LEFT, BOTTOM_RIGHT, OFFSET, ALIGNMENTS };

static void set_alignment(attend *a, int alignment)
{
    a->problem.mask.align = alignment == BOTTOM_RIGHT ? ATTN_ALIGN_BOTTOM_RIGHT : ATTN_ALIGN_TOP_LEFT;
    a->tensors.offset_q.data = alignment == OFFSET ? ATTN_LATER : NULL;
}

/* "causal": none by default; top-left; bottom-right; an offset for each entry; nothing is guessed. */
static void causal(void **state)
{
    (void)state;
    FOR_EACH_VARIANT(v, 0)
    for (int tall = 0; tall < 2; tall++) {
        const attn_shape s = {2, 2, 1, tall ? 33 : 20, tall ? 20 : 33, 8, 6};
        attend *a = attend_create(v, s, 2);
        const double scale = 1 / sqrt(8);
        run_and_assert(a, scale, sees_all, v->rtol);
        a->problem.mask.causal = 1;
        for (int align = TOP_LEFT; align < ALIGNMENTS; align++) {
            set_alignment(a, align);
            a->offset[0] = 7;
            a->offset[1] = 40;
            run_and_assert(a, scale, sees_causal, v->rtol);
        }
        attend_destroy(a);
    }
}

/* "negative offset": legal; the leading queries see no key. */
static void negative_offset(void **state)
{
    (void)state;
    FOR_EACH_VARIANT(v, 0)
    {
        attend *a = attend_create(v, shape, 3);
        a->problem.mask.causal = 1;
        a->tensors.offset_q.data = ATTN_LATER;
        a->offset[0] = -3;
        a->offset[1] = INT32_MIN;
        run_and_assert(a, 1 / sqrt(8), sees_causal, v->rtol);
        assert_true(get(a, LSE, 0, 0, 2, 0) == -INFINITY && get(a, LSE, 0, 0, 3, 0) > -INFINITY);
        attend_destroy(a);
    }
}

static int sees_window(const attend *a, int64_t b, int64_t i, int64_t j)
{
    enum { FAR = 1 << 30 }; /* farther than any key: sums with more could overflow */
    const int64_t p = position(a, b, i), left = a->problem.mask.window_left, right = a->problem.mask.window_right;
    return (left < 0 || left > FAR || j >= p - left) && (right < 0 || right > FAR || j <= p + right) &&
           (!a->problem.mask.causal || j <= p);
}

/* "window (left, right)": inclusive on both sides; -1 is unbounded; with causal and with every alignment. */
static void window(void **state)
{
    (void)state;
    static const int64_t bounds[][2] = {{0, 0}, {3, 0}, {0, 2}, {-1, 1}, {4, -1}, {-1, -1}, {1000, 1000}, {INT64_MAX, INT64_MAX}};
    FOR_EACH_VARIANT(v, 0)
    for (size_t n = 0; n < sizeof bounds / sizeof *bounds; n++)
        for (int align = TOP_LEFT; align < ALIGNMENTS; align++)
            for (int with_causal = 0; with_causal < 2; with_causal++) {
                attend *a = attend_create(v, shape, 4);
                a->problem.mask.window = 1;
                a->problem.mask.window_left = bounds[n][0];
                a->problem.mask.window_right = bounds[n][1];
                set_alignment(a, align);
                a->problem.mask.causal = with_causal;
                a->offset[0] = 5;
                a->offset[1] = -6;
                run_and_assert(a, 1 / sqrt(8), sees_window, v->rtol);
                attend_destroy(a);
            }
}

static int sees_global(const attend *a, int64_t b, int64_t i, int64_t j)
{
    const int64_t p = position(a, b, i);
    return j < a->problem.mask.global_kv || (p >= 0 && p < a->problem.mask.global_q) || sees_window(a, b, i, j);
}

/* "global tokens": the first of a sequence, with more global keys than a block and more global queries than a vector, before, in
 * and after the window. */
static void global_tokens(void **state)
{
    static const attn_shape many = {1, 2, 1, 40, 600, 8, 6};
    static const int64_t first[] = {0, 250, 560};
    (void)state;
    FOR_EACH_VARIANT(v, 0)
    for (int n = 0; n < 6; n++) {
        attend *a = attend_create(v, many, 14);
        a->problem.mask =
            (attn_mask){.window = 1, .window_left = 20, .window_right = 3, .global_kv = 300, .global_q = n < 3 ? 0 : 20};
        a->tensors.offset_q.data = ATTN_LATER;
        a->offset[0] = first[n % 3];
        run_and_assert(a, 1 / sqrt(8), sees_global, v->rtol);
        attend_destroy(a);
    }
}

static int sees_mask(const attend *a, int64_t b, int64_t i, int64_t j) { return *mask_at((attend *)a, b, 0, i, j) != 0; }

/* "boolean mask": 1 = keep, as does any byte but 0. */
static void boolean_mask(void **state)
{
    (void)state;
    FOR_EACH_VARIANT(v, 0)
    {
        attend *a = attend_create(v, shape, 5);
        a->tensors.mask.data = ATTN_LATER;
        FOR_EACH(b, 2) FOR_EACH(h, 4) FOR_EACH(i, 20) FOR_EACH(j, 33)
        {
            static const unsigned char bytes[] = {0, 1, 2, 0, 128, 255};
            *mask_at(a, b, h, i, j) = bytes[(b + 3 * i + j) % 6];
        }
        run_and_assert(a, 1 / sqrt(8), sees_mask, v->rtol);
        attend_destroy(a);
    }
}

/* "additive mask": -inf drops; any finite value is only a number.  So a row of -1e9, or of the lowest number of the type, is
 * uniform over its keys, and -1e9 next to 0 gets its weight of 0 from the softmax, not from being dropped. */
static void additive_mask(void **state)
{
    (void)state;
    FOR_EACH_VARIANT(v, 0)
    {
        static const double fills[] = {-1e9, -1e30, -FLT_MAX, FLT_MAX};
        for (int n = 0; n < 4; n++) {
            attend *a = attend_create(v, shape, 6);
            const double lowest = v->dtype == ATTN_F64 && n == 2 ? -DBL_MAX : v->dtype == ATTN_F64 && n == 3 ? DBL_MAX : fills[n];
            a->tensors.bias.data = ATTN_LATER;
            a->problem.score = (attn_score){.scale_kind = ATTN_SCALE_VALUE, .scale = 1e-6}; /* negligible next to the bias */
            FOR_EACH(b, 2) FOR_EACH(h, 4) FOR_EACH(i, 20) FOR_EACH(j, 33)
            {
                const double kept = i == 0 || (i == 1 && j % 3 == 1) ? lowest : 0;
                put(a, BIAS, b, h, i, j, j % 3 == 0 ? -INFINITY : kept);
            }
            attend_run(a);
            FOR_EACH(b, 2) FOR_EACH(h, 4) FOR_EACH(j, 33)
            {
                const double uniform = get(a, WEIGHTS, b, h, 0, j), beside = get(a, WEIGHTS, b, h, 1, j),
                             plain = get(a, WEIGHTS, b, h, 2, j);
                assert_close(uniform, j % 3 ? 1.0 / 22 : 0, 1e-4, 1);
                assert_close(beside, j % 3 == (lowest < 0 ? 2 : 1) ? 1.0 / 11 : 0, 1e-4, 1);
                assert_close(plain, j % 3 ? 1.0 / 22 : 0, 1e-4, 1);
            }
            assert_true(isfinite(get(a, LSE, 0, 0, 0, 0)));
            attend_destroy(a);
        }
    }
}

static int sees_several(const attend *a, int64_t b, int64_t i, int64_t j)
{
    return i < a->lengths_q[b] && j < a->lengths_kv[b] && sees_window(a, b, i, j) && sees_mask(a, b, i, j);
}

/* "several masks": all must keep. */
static void several_masks(void **state)
{
    (void)state;
    FOR_EACH_VARIANT(v, 0)
    {
        attend *a = attend_create(v, shape, 7);
        a->problem.mask.causal = a->problem.mask.window = 1, a->tensors.mask.data = ATTN_LATER;
        a->tensors.lengths_q.data = a->tensors.lengths_kv.data = ATTN_LATER;
        a->problem.mask.align = ATTN_ALIGN_BOTTOM_RIGHT;
        a->problem.mask.window_left = 9;
        a->problem.mask.window_right = 3;
        a->lengths_q[0] = 17, a->lengths_q[1] = 20;
        a->lengths_kv[0] = 25, a->lengths_kv[1] = 12;
        FOR_EACH(b, 2) FOR_EACH(h, 4) FOR_EACH(i, 20) FOR_EACH(j, 33) * mask_at(a, b, h, i, j) = (b + i + 2 * j) % 5 != 0;
        run_and_assert(a, 1 / sqrt(8), sees_several, v->rtol);
        attend_destroy(a);
    }
}

/* "mask and bias shapes": four strides; 0 broadcasts along any axis; a mask may be transposed. */
static void mask_and_bias_shapes(void **state)
{
    (void)state;
    FOR_EACH_VARIANT(v, 0)
    for (int one = 0; one < 16; one++) {
        attend *full = attend_create(v, shape, 8), *broadcast;
        const int64_t size[4] = {2, 4, 20, 33};
        int64_t stride[4] = {4 * 20 * 33, 20 * 33, 33, 1}, at[4];
        full->tensors.mask.data = full->tensors.bias.data = ATTN_LATER;
        for (at[0] = 0; at[0] < 2; at[0]++)
            for (at[1] = 0; at[1] < 4; at[1]++)
                for (at[2] = 0; at[2] < 20; at[2]++)
                    for (at[3] = 0; at[3] < 33; at[3]++) {
                        int64_t key = 0;
                        for (int axis = 0; axis < 4; axis++)
                            if (!(one & 1 << axis)) key += (axis + 1) * at[axis] * 7;
                        *mask_at(full, at[0], at[1], at[2], at[3]) = one == 15 || key % 4 != 1;
                        put(full, BIAS, at[0], at[1], at[2], at[3], sin((double)key));
                    }
        for (int axis = 0; axis < 4; axis++)
            if (one & 1 << axis) stride[axis] = size[axis] > 1 ? 0 : stride[axis];
        broadcast = attend_copy(full);
        for (int axis = 0; axis < 4; axis++) {
            const int64_t s = one == 15 ? ATTN_BROADCAST : stride[axis];
            broadcast->tensors.mask.stride[axis] = s;
            broadcast->tensors.bias.stride[axis] = s;
        }
        attend_run(full);
        attend_run(broadcast);
        assert_same_bits(full, broadcast);
        attend_destroy(full);
        attend_destroy(broadcast);
    }
}

/* "dropped K and V": NaN and infinities there have no effect, even in blocks that are visited; NaN in kept ones propagates. */
static void dropped_keys_and_values(void **state)
{
    (void)state;
    static const double poison[] = {NAN, INFINITY, -INFINITY};
    FOR_EACH_VARIANT(v, 1)
    for (int n = 0; n < 3; n++)
        for (int where = 0; where < 2; where++) {
            attend *clean = attend_create(v, shape, 9), *a = attend_copy(clean);
            const part which = where ? V : K;
            clean->tensors.mask.data = a->tensors.mask.data = ATTN_LATER;
            FOR_EACH(b, 2)
            FOR_EACH(h, 4)
            FOR_EACH(i, 20) * mask_at(clean, b, h, i, 5) = *mask_at(a, b, h, i, 5) = i == 11; /* only query 11 sees key 5 */
            FOR_EACH(b, 2) FOR_EACH(g, 2) put(a, which, b, g, 5, 2, poison[n]);
            attend_run(clean);
            attend_run(a);
            FOR_EACH(b, 2) FOR_EACH(h, 4) FOR_EACH(i, 20)
            {
                if (i != 11)
                    for (int out = O; out <= WEIGHTS; out++) assert_same_row(clean, a, (part)out, b, h, i, b, h, i);
                else if (n == 0) assert_true(isnan(get(a, O, b, h, i, 2)));
                else if (where) assert_true(isinf(get(a, O, b, h, i, 2)));
            }
            attend_destroy(clean);
            attend_destroy(a);
        }
}

/* NaN also propagates from a key of weight 0 that is not dropped: -1e4 is only a number, though its exponential is 0 in every type.
 */
static void values_of_no_weight(void **state)
{
    (void)state;
    FOR_EACH_VARIANT(v, 1)
    for (int few = 0; few < 2; few++) {
        attn_shape own = shape;
        if (few) own.len_q = 1;
        attend *a = attend_create(v, own, 10);
        a->tensors.mask.data = a->tensors.bias.data = ATTN_LATER;
        FOR_EACH(b, 2) FOR_EACH(h, 4)
        {
            FOR_EACH(i, own.len_q) * mask_at(a, b, h, i, 7) = 0; /* so that the NaN-safe step runs */
            put(a, BIAS, b, h, 0, 5, -1e4);
        }
        FOR_EACH(b, 2) FOR_EACH(g, 2) put(a, V, b, g, 5, 2, NAN), put(a, V, b, g, 7, 3, NAN);
        attend_run(a);
        FOR_EACH(b, 2) FOR_EACH(h, 4)
        {
            assert_true(get(a, WEIGHTS, b, h, 0, 5) == 0 && isnan(get(a, O, b, h, 0, 2)));
            assert_true(isfinite(get(a, O, b, h, 0, 3)));
        }
        attend_destroy(a);
    }
}

/* Few queries over many keys, split into parts that several threads compute at once and that are merged 16 at a time: the same bits
 * as with one thread, and a key dropped in one part has no effect. */
static void dropped_in_a_part(void **state)
{
    static const attn_shape few = {1, 2, 2, 20, 17500, 8, 8};
    static const int64_t dropped[] = {3, 9000, 17499, -1}; /* -1: none, so nothing is recomputed */
    (void)state;
    FOR_EACH_VARIANT(v, 0)
    for (int n = 0; n < 4; n++) {
        const int64_t j = dropped[n];
        attend *one = attend_create(v, few, 11);
        one->tensors.mask.data = ATTN_LATER;
        if (j >= 0) {
            FOR_EACH(h, 2) FOR_EACH(i, 20) * mask_at(one, 0, h, i, j) = 0;
            FOR_EACH(g, 2) put(one, V, 0, g, j, 2, NAN);
        }
        attend *many = attend_copy(one);
        many->options.threads = 8;
        attend_run(one);
        attend_run(many);
        FOR_EACH(h, 2) FOR_EACH(i, 20) assert_true(isfinite(get(one, O, 0, h, i, 2)));
        assert_same_bits(one, many);
        attend_destroy(one);
        attend_destroy(many);
    }
}

static int sees_lengths(const attend *a, int64_t b, int64_t i, int64_t j) { return i < a->lengths_q[b] && j < a->lengths_kv[b]; }

/* "key lengths, query lengths": keys past them are dropped; rows past them are written as zeros, with lse -inf. */
static void lengths(void **state)
{
    (void)state;
    FOR_EACH_VARIANT(v, 0)
    FOR_EACH(n, 34)
    {
        attend *a = attend_create(v, shape, 10);
        a->tensors.lengths_q.data = a->tensors.lengths_kv.data = ATTN_LATER;
        a->lengths_kv[0] = n, a->lengths_kv[1] = 33 - n;
        a->lengths_q[0] = n % 21, a->lengths_q[1] = 20;
        run_and_assert(a, 1 / sqrt(8), sees_lengths, v->rtol);
        attend_destroy(a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_query_that_sees_no_key),
        cmocka_unit_test(causal),
        cmocka_unit_test(negative_offset),
        cmocka_unit_test(window),
        cmocka_unit_test(global_tokens),
        cmocka_unit_test(boolean_mask),
        cmocka_unit_test(additive_mask),
        cmocka_unit_test(several_masks),
        cmocka_unit_test(mask_and_bias_shapes),
        cmocka_unit_test(dropped_keys_and_values),
        cmocka_unit_test(values_of_no_weight),
        cmocka_unit_test(dropped_in_a_part),
        cmocka_unit_test(lengths),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
