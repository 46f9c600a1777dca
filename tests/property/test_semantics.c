/* SPDX-License-Identifier: MIT
 *
 * test_semantics.c - edge cases of attention: a test for each ruling, which it quotes.  Others have their own files: masks
 * (test_masks.c), same bits (test_bits.c), and bad input (tests/unit: every message).
 */
#include "definition.h"

/* "scale": 1/sqrt(D) by default, and a kind, since 0 and negative numbers are legal; NaN is not. */
static void scale(void **state)
{
    (void)state;
    static const double scales[] = {0, -0.0, 1, -0.7, 1e-30, 12};
    FOR_EACH_VARIANT(v, 0)
    {
        attend *a = attend_create(v, shape, 11);
        run_and_assert(a, 1 / sqrt(8), sees_all, v->rtol);
        for (int n = 0; n < 6; n++) {
            a->problem.score = (attn_score){.scale_kind = ATTN_SCALE_VALUE, .scale = scales[n]};
            run_and_assert(a, scales[n], sees_all, n == 5 ? 40 * v->rtol : v->rtol);
        }
        a->problem.score.scale = NAN;
        attn_plan *plan = NULL;
        assert_int_equal(attn_plan_create(&plan, &a->problem, &a->tensors, NULL, NULL), ATTN_ERR_ARGUMENT);
        attend_destroy(a);
    }
}

/* "grouped heads": key head h / (Hq/Hkv); otherwise an error. */
static void grouped_heads(void **state)
{
    (void)state;
    static const int64_t heads[][2] = {{1, 1}, {6, 1}, {6, 2}, {6, 3}, {6, 6}};
    FOR_EACH_VARIANT(v, 0)
    for (int n = 0; n < 5; n++) {
        attend *a = attend_create(v, (attn_shape){2, heads[n][0], heads[n][1], 9, 21, 8, 6}, 12);
        run_and_assert(a, 1 / sqrt(8), sees_all, v->rtol);
        attend_destroy(a);
    }
    attn_error error;
    attn_plan *plan = NULL;
    attn_problem p = {.struct_size = sizeof p, .shape = {1, 30, 8, 4, 4, 8, 8}};
    attn_tensors t = {.struct_size = sizeof t, .q = {.data = ATTN_LATER}, .k = {.data = ATTN_LATER}, .v = {.data = ATTN_LATER}};
    t.o.data = ATTN_LATER;
    assert_int_equal(attn_plan_create(&plan, &p, &t, NULL, &error), ATTN_ERR_SHAPE);
    assert_string_equal(error.message, "heads_q (30) is not a multiple of heads_kv (8)");
}

/* "lse": natural logarithm, f32 for every 16-bit type; "weights": after the softmax. */
static void lse_and_weights(void **state)
{
    (void)state;
    FOR_EACH_VARIANT(v, 1)
    {
        attend *a = attend_create(v, (attn_shape){1, 1, 1, 1, 4, 2, 1}, 13);
        FOR_EACH(j, 4) FOR_EACH(c, 2) put(a, K, 0, 0, j, c, 0);
        attend_run(a);
        assert_close(get(a, LSE, 0, 0, 0, 0), log(4), v->dtype == ATTN_F64 ? 1e-15 : 2e-7, 1);
        FOR_EACH(j, 4) assert_true(get(a, WEIGHTS, 0, 0, 0, j) == 0.25);
        attend_destroy(a);
    }
}

/* 1 if scores are products of the stored bf16 numbers: these are summed in f32 too, but in another order. */
static int multiplies_bf16(const attend *a)
{
    attn_plan_description description = {.struct_size = sizeof description};
    attn_plan *plan;
    assert_int_equal(attn_plan_create(&plan, &a->problem, &a->tensors, &a->options, NULL), ATTN_OK);
    assert_int_equal(attn_plan_describe(plan, &description, NULL), ATTN_OK);
    const int found = strstr(description.kernel, "_bf16") != NULL;
    attn_plan_destroy(plan);
    return found;
}

/* "accumulation": 16-bit storage is computed in f32 and rounded once, on store: results equal those of f32 from the same numbers,
 * rounded; if scores are products of bf16, those of bf16 from the same numbers with O in f32. */
static void accumulation(void **state)
{
    (void)state;
    FOR_EACH_VARIANT(v, 1)
    {
        if (v->dtype != ATTN_F16 && v->dtype != ATTN_BF16) continue;
        attend *a = attend_create(v, (attn_shape){1, 2, 2, 30, 700, 40, 24}, 14);
        const int pairs = multiplies_bf16(a);
        const variant single = {v->isa, pairs ? ATTN_BF16 : ATTN_F32, 0};
        attend *wide = attend_create(&single, a->problem.shape, 14);
        assert_true(!pairs || v->dtype == ATTN_BF16);
        attend_store_wide(wide);
        for (int which = Q; which <= V; which++) {
            int64_t size[4];
            size_of(a, (part)which, size);
            FOR_EACH(h, size[1])
            FOR_EACH(i, size[2]) FOR_EACH(c, size[3]) put(wide, (part)which, 0, h, i, c, get(a, (part)which, 0, h, i, c));
        }
        attend_run(a);
        attend_run(wide);
        FOR_EACH(h, 2) FOR_EACH(i, 30)
        {
            FOR_EACH(c, 24) assert_true(get(a, O, 0, h, i, c) == element_round(v->dtype, get(wide, O, 0, h, i, c)));
            assert_same_row(a, wide, LSE, 0, h, i, 0, h, i);
            assert_same_row(a, wide, WEIGHTS, 0, h, i, 0, h, i);
        }
        attend_destroy(a);
        attend_destroy(wide);
    }
}

/* "zero sizes": nothing to do, or zeros. */
static void zero_sizes(void **state)
{
    (void)state;
    FOR_EACH_VARIANT(v, 1)
    for (int axis = 0; axis < 6; axis++) {
        attn_shape s = {2, 2, 2, 5, 7, 8, 6};
        int64_t *sizes[] = {&s.batch, &s.heads_q, &s.len_q, &s.len_kv, &s.dim_qk, &s.dim_v};
        *sizes[axis] = 0;
        if (axis == 1) s.heads_kv = 0;
        attend *a = attend_create(v, s, 15);
        attend_run(a);
        FOR_EACH(b, s.batch) FOR_EACH(h, s.heads_q) FOR_EACH(i, s.len_q)
        {
            if (axis == 3) {
                FOR_EACH(c, s.dim_v) assert_true(get(a, O, b, h, i, c) == 0);
                assert_true(get(a, LSE, b, h, i, 0) == -INFINITY);
            }
            if (axis == 4) assert_close(get(a, LSE, b, h, i, 0), log(7), 1e-6, 1); /* every score is 0 */
        }
        attend_destroy(a);
    }
}

/* "strides": any, the last axis contiguous: [batch, token, head, channel] without a copy; a last stride of 2 is an error. */
static void strides(void **state)
{
    (void)state;
    FOR_EACH_VARIANT(v, 1)
    {
        attend *a = attend_create(v, shape, 16), *moved = attend_copy(a);
        const struct {
            part which;
            int64_t *stride;
        } tensors[] = {
            {Q, moved->tensors.q.stride}, {K, moved->tensors.k.stride}, {V, moved->tensors.v.stride}, {O, moved->tensors.o.stride}};
        for (int n = 0; n < 4; n++) {
            int64_t size[4];
            size_of(a, tensors[n].which, size);
            const int64_t stride[4] = {size[1] * size[2] * size[3], size[3], size[1] * size[3], 1};
            memcpy(tensors[n].stride, stride, sizeof stride);
            const size_t bytes = (size_t)size[3] * attn_dtype_size(v->dtype);
            char *to = tensors[n].which == Q ? moved->q : tensors[n].which == K ? moved->k : moved->v;
            FOR_EACH(b, size[0])
            FOR_EACH(h, size[1])
            FOR_EACH(i, size[2])
            if (tensors[n].which != O)
                memcpy(to + (size_t)((b * size[2] + i) * size[1] + h) * bytes, row_of(a, tensors[n].which, b, h, i), bytes);
        }
        attend_run(a);
        attend_run(moved);
        const size_t bytes = row_bytes(a, O);
        FOR_EACH(b, 2)
        FOR_EACH(h, 4)
        FOR_EACH(i, 20) assert_memory_equal(row_of(a, O, b, h, i), moved->o + (size_t)((b * 20 + i) * 4 + h) * bytes, bytes);

        attn_plan *plan = NULL;
        moved->tensors.k.stride[3] = 2;
        assert_int_equal(attn_plan_create(&plan, &moved->problem, &moved->tensors, NULL, NULL), ATTN_ERR_STRIDE);
        attend_destroy(a);
        attend_destroy(moved);
    }
}

/* "index arrays": i32 or i64, each as its slot says. */
static void index_arrays(void **state)
{
    (void)state;
    FOR_EACH_VARIANT(v, 0)
    {
        attend *a = attend_create(v, shape, 17), *narrow;
        a->problem.mask.causal = 1, a->tensors.lengths_q.data = a->tensors.lengths_kv.data = ATTN_LATER;
        a->tensors.offset_q.data = ATTN_LATER;
        const int64_t values[3][2] = {{20, 3}, {9, 33}, {-2, 11}};
        memcpy(a->lengths_q, values[0], sizeof values[0]);
        memcpy(a->lengths_kv, values[1], sizeof values[1]);
        memcpy(a->offset, values[2], sizeof values[2]);
        narrow = attend_copy(a);
        narrow->tensors.lengths_q.dtype = narrow->tensors.lengths_kv.dtype = narrow->tensors.offset_q.dtype = ATTN_I32;
        int64_t *arrays[] = {narrow->lengths_q, narrow->lengths_kv, narrow->offset};
        for (int n = 0; n < 3; n++) {
            const int32_t small[2] = {(int32_t)values[n][0], (int32_t)values[n][1]};
            memcpy(arrays[n], small, sizeof small);
        }
        attend_run(a);
        attend_run(narrow);
        assert_same_bits(a, narrow);
        attend_destroy(a);
        attend_destroy(narrow);
    }
}

/* "aliasing": inputs may be one tensor; they are not written. */
static void inputs_may_be_one_tensor(void **state)
{
    (void)state;
    FOR_EACH_VARIANT(v, 0)
    {
        attend *a = attend_create(v, (attn_shape){1, 2, 2, 30, 30, 8, 8}, 18), *shared = attend_copy(a);
        const size_t bytes = 2 * 30 * 8 * attn_dtype_size(v->dtype);
        memcpy(a->k, a->q, bytes);
        memcpy(a->v, a->q, bytes);
        attend_run(a);
        char *k = shared->k, *values = shared->v;
        shared->k = shared->v = shared->q;
        attend_run(shared);
        assert_same_bits(a, shared);
        assert_memory_equal(shared->q, a->q, bytes);
        shared->k = k, shared->v = values;
        attend_destroy(a);
        attend_destroy(shared);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scale),           cmocka_unit_test(grouped_heads),
        cmocka_unit_test(lse_and_weights), cmocka_unit_test(accumulation),
        cmocka_unit_test(zero_sizes),      cmocka_unit_test(strides),
        cmocka_unit_test(index_arrays),    cmocka_unit_test(inputs_may_be_one_tensor),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
