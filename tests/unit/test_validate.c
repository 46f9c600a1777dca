/* SPDX-License-Identifier: MIT
 *
 * test_validate.c - the rules of every problem: what breaks one, the status, and the exact message.  Those of scores, operations
 * and arguments are in test_validate_*.c.  tools/check_messages.py fails when a message of src/core/plan or src/core/api is in no
 * test.
 */
#include "refused.h"

#include <math.h>

static void test_sound(void **state)
{
    (void)state;
    ACCEPTED((void)0);
}

static void test_enums(void **state)
{
    (void)state;
    REFUSED(s.problem.op = (attn_op)7, ATTN_ERR_ARGUMENT,
            "op is 7; known: 0 (forward), 1 (backward), 2 (jvp), 3 (double backward)");
    REFUSED(s.problem.score.kind = (attn_score_kind)9, ATTN_ERR_ARGUMENT,
            "score.kind is 9; known: 0 (dot), 1 (general), 2 (metric), 3 (cosine), 4 (distance), 5 (additive)");
    REFUSED(s.problem.score.scale_kind = (attn_scale_kind)3, ATTN_ERR_ARGUMENT,
            "score.scale_kind is 3; known: 0 (default), 1 (value), 2 (per head)");
    REFUSED(s.problem.bias.alibi = (attn_alibi)3, ATTN_ERR_ARGUMENT,
            "bias.alibi is 3; known: 0 (none), 1 (per head), 2 (per batch and head)");
    REFUSED(s.problem.mask.empty = (attn_empty)2, ATTN_ERR_ARGUMENT, "mask.empty is 2; known: 0 (zero), 1 (uniform)");
    REFUSED(s.problem.mask.align = (attn_align)3, ATTN_ERR_ARGUMENT,
            "mask.align is 3; known: 0 (top-left), 1 (bottom-right), 2 (offset)");
    REFUSED(s.problem.mask.index_dtype = ATTN_F32, ATTN_ERR_ARGUMENT,
            "mask.index_dtype is f32; lengths and offsets are i32 or i64");
    REFUSED(s.problem.mask.index_dtype = (attn_dtype)77, ATTN_ERR_ARGUMENT,
            "mask.index_dtype is unknown; lengths and offsets are i32 or i64");
}

static void test_flags(void **state)
{
    (void)state;
    REFUSED(s.problem.mask.causal = 2, ATTN_ERR_ARGUMENT, "mask.causal is 2; it is 0 or 1");
    REFUSED(s.problem.mask.window = -1, ATTN_ERR_ARGUMENT, "mask.window is -1; it is 0 or 1");
    REFUSED(s.problem.mask.lengths_q = 8, ATTN_ERR_ARGUMENT, "mask.lengths_q is 8; it is 0 or 1");
    REFUSED(s.problem.mask.lengths_kv = 9, ATTN_ERR_ARGUMENT, "mask.lengths_kv is 9; it is 0 or 1");
    REFUSED(s.problem.mask.boolean = 3, ATTN_ERR_ARGUMENT, "mask.boolean is 3; it is 0 or 1");
    REFUSED(s.problem.bias.additive = 4, ATTN_ERR_ARGUMENT, "bias.additive is 4; it is 0 or 1");
    REFUSED(s.problem.want.lse = 5, ATTN_ERR_ARGUMENT, "want.lse is 5; it is 0 or 1");
    REFUSED(s.problem.want.weights = 6, ATTN_ERR_ARGUMENT, "want.weights is 6; it is 0 or 1");
    REFUSED(s.problem.want.after_dropout = 2, ATTN_ERR_ARGUMENT, "want.after_dropout is 2; it is 0 or 1");
    REFUSED(s.problem.want.scores = 3, ATTN_ERR_ARGUMENT, "want.scores is 3; it is 0 or 1");
    REFUSED(s.problem.want.rows = 4, ATTN_ERR_ARGUMENT, "want.rows is 4; it is 0 or 1");
    REFUSED(s.problem.want.dropout_keep = 5, ATTN_ERR_ARGUMENT, "want.dropout_keep is 5; it is 0 or 1");
    REFUSED(s.problem.want.row_max = 6, ATTN_ERR_ARGUMENT, "want.row_max is 6; it is 0 or 1");
    REFUSED(s.problem.want.entropy = 7, ATTN_ERR_ARGUMENT, "want.entropy is 7; it is 0 or 1");
    REFUSED(s.problem.want.effective_keys = 8, ATTN_ERR_ARGUMENT, "want.effective_keys is 8; it is 0 or 1");
    REFUSED(s.problem.want.column_sum = 9, ATTN_ERR_ARGUMENT, "want.column_sum is 9; it is 0 or 1");
    REFUSED(s.problem.mask.packed = 2, ATTN_ERR_ARGUMENT, "mask.packed is 2; it is 0 or 1");
    REFUSED(s.problem.mask.ranges = 2, ATTN_ERR_ARGUMENT, "mask.ranges is 2; it is 0 or 1");
    REFUSED(s.problem.mask.block_lists = 2, ATTN_ERR_ARGUMENT, "mask.block_lists is 2; it is 0 or 1");
    REFUSED(s.problem.mask.block = 3, ATTN_ERR_ARGUMENT, "mask.block is 3; it is 0 or 1");
    REFUSED(s.problem.dropout.given = 2, ATTN_ERR_ARGUMENT, "dropout.given is 2; it is 0 or 1");
    REFUSED(s.problem.bias.sink = 4, ATTN_ERR_ARGUMENT, "bias.sink is 4; it is 0 or 1");
    REFUSED(s.problem.gradients.lse = 5, ATTN_ERR_ARGUMENT, "gradients.lse is 5; it is 0 or 1");
    REFUSED(s.problem.gradients.bias = 6, ATTN_ERR_ARGUMENT, "gradients.bias is 6; it is 0 or 1");
    REFUSED(s.problem.gradients.slopes = 7, ATTN_ERR_ARGUMENT, "gradients.slopes is 7; it is 0 or 1");
    REFUSED(s.problem.gradients.sink = 8, ATTN_ERR_ARGUMENT, "gradients.sink is 8; it is 0 or 1");
    REFUSED(s.problem.gradients.scale = 9, ATTN_ERR_ARGUMENT, "gradients.scale is 9; it is 0 or 1");
    REFUSED(s.problem.tangents.q = 2, ATTN_ERR_ARGUMENT, "tangents.q is 2; it is 0 or 1");
    REFUSED(s.problem.tangents.k = 3, ATTN_ERR_ARGUMENT, "tangents.k is 3; it is 0 or 1");
    REFUSED(s.problem.tangents.v = 4, ATTN_ERR_ARGUMENT, "tangents.v is 4; it is 0 or 1");
    REFUSED(s.problem.tangents.bias = 5, ATTN_ERR_ARGUMENT, "tangents.bias is 5; it is 0 or 1");
    REFUSED(s.problem.tangents.lse = 6, ATTN_ERR_ARGUMENT, "tangents.lse is 6; it is 0 or 1");
    REFUSED(s.problem.second.bias = 2, ATTN_ERR_ARGUMENT, "second.bias is 2; it is 0 or 1");
    REFUSED(s.problem.second.grad_lse = 3, ATTN_ERR_ARGUMENT, "second.grad_lse is 3; it is 0 or 1");
}

static void test_reserved(void **state)
{
    (void)state;
    REFUSED(s.problem.score.reserved[0] = 1, ATTN_ERR_ARGUMENT, "score.reserved[0] is 1; it must be 0");
    REFUSED(s.problem.mask.reserved[1] = -2, ATTN_ERR_ARGUMENT, "mask.reserved[1] is -2; it must be 0");
    REFUSED(s.problem.bias.reserved[2] = 3, ATTN_ERR_ARGUMENT, "bias.reserved[2] is 3; it must be 0");
    REFUSED(s.problem.want.reserved[3] = 4, ATTN_ERR_ARGUMENT, "want.reserved[3] is 4; it must be 0");
    REFUSED(s.problem.dropout.reserved[0] = 5, ATTN_ERR_ARGUMENT, "dropout.reserved[0] is 5; it must be 0");
    REFUSED(s.problem.gradients.reserved[1] = 6, ATTN_ERR_ARGUMENT, "gradients.reserved[1] is 6; it must be 0");
    REFUSED(s.problem.tangents.reserved[2] = 7, ATTN_ERR_ARGUMENT, "tangents.reserved[2] is 7; it must be 0");
    REFUSED(s.problem.second.reserved[3] = 8, ATTN_ERR_ARGUMENT, "second.reserved[3] is 8; it must be 0");
}

static void test_shape(void **state)
{
    (void)state;
    REFUSED(s.problem.shape.batch = -1, ATTN_ERR_SHAPE, "batch (-1) is negative");
    REFUSED(s.problem.shape.heads_q = -2, ATTN_ERR_SHAPE, "heads_q (-2) is negative");
    REFUSED(s.problem.shape.heads_kv = -3, ATTN_ERR_SHAPE, "heads_kv (-3) is negative");
    REFUSED(s.problem.shape.len_q = -4, ATTN_ERR_SHAPE, "len_q (-4) is negative");
    REFUSED(s.problem.shape.len_kv = -5, ATTN_ERR_SHAPE, "len_kv (-5) is negative");
    REFUSED(s.problem.shape.dim_qk = -6, ATTN_ERR_SHAPE, "dim_qk (-6) is negative");
    REFUSED(s.problem.shape.dim_v = INT64_MIN, ATTN_ERR_SHAPE, "dim_v (-9223372036854775808) is negative");
    REFUSED(s.problem.shape.heads_kv = 0, ATTN_ERR_SHAPE, "heads_kv is 0 and heads_q is 4: query heads need a key head");
    REFUSED(s.problem.shape.heads_kv = 3, ATTN_ERR_SHAPE, "heads_q (4) is not a multiple of heads_kv (3)");
    REFUSED((s.problem.shape.heads_q = 30, s.problem.shape.heads_kv = 8), ATTN_ERR_SHAPE,
            "heads_q (30) is not a multiple of heads_kv (8)");
}

static void test_values(void **state)
{
    (void)state;
    REFUSED((s.problem.score.scale_kind = ATTN_SCALE_VALUE, s.problem.score.scale = INFINITY), ATTN_ERR_ARGUMENT,
            "score.scale is inf; it must be finite");
    REFUSED(s.problem.score.scale = 0.5, ATTN_ERR_ARGUMENT, "score.scale is 0.5 but score.scale_kind is not ATTN_SCALE_VALUE");
    ACCEPTED((s.problem.score.scale_kind = ATTN_SCALE_VALUE, s.problem.score.scale = -1));
    ACCEPTED(s.problem.score.scale_kind = ATTN_SCALE_VALUE);

    REFUSED((s.problem.mask.window = 1, s.problem.mask.window_left = -2), ATTN_ERR_ARGUMENT,
            "mask.window_left is -2; it is at least 0, or -1 for no bound");
    REFUSED((s.problem.mask.window = 1, s.problem.mask.window_right = INT64_MIN), ATTN_ERR_ARGUMENT,
            "mask.window_right is -9223372036854775808; it is at least 0, or -1 for no bound");
    REFUSED(s.problem.mask.window_left = 4, ATTN_ERR_ARGUMENT,
            "mask.window_left is 4 and window_right 0 but mask.window is 0; set it to 1");
    REFUSED(s.problem.mask.window_right = 7, ATTN_ERR_ARGUMENT,
            "mask.window_left is 0 and window_right 7 but mask.window is 0; set it to 1");
    ACCEPTED((s.problem.mask.window = 1, s.problem.mask.window_left = s.problem.mask.window_right = INT64_MAX));
    ACCEPTED((s.problem.mask.window = 1, s.problem.mask.window_left = s.problem.mask.window_right = -1));
}

/* Where a tensor is not used, or has no elements, its pointer, strides and type are not looked at. */
static void test_unused(void **state)
{
    (void)state;
    ACCEPTED((s.problem.want.weights = 0, s.args.weights = NULL, s.problem.want.weights_layout.dtype = (attn_dtype)99));
    ACCEPTED((s.problem.mask.lengths_q = 0, s.args.lengths_q = NULL));
    ACCEPTED((s.problem.shape.batch = 0, s.args.q = NULL, s.args.k = NULL, s.args.v = NULL, s.args.o = NULL, s.args.lse = NULL,
              s.args.weights = NULL, s.args.mask = NULL, s.args.bias = NULL));
}

static void test_types(void **state)
{
    (void)state;
    REFUSED(s.problem.q.dtype = (attn_dtype)99, ATTN_ERR_ARGUMENT, "q.dtype is 99; it is no type");
    REFUSED(s.problem.want.weights_layout.dtype = (attn_dtype)14, ATTN_ERR_ARGUMENT, "weights.dtype is 14; it is no type");
    REFUSED(s.problem.q.dtype = ATTN_I8, ATTN_ERR_UNSUPPORTED, "q.dtype is i8; it must be f32, f64, f16 or bf16");
    REFUSED(s.problem.k.dtype = ATTN_F64, ATTN_ERR_UNSUPPORTED, "k.dtype is f64; it must be f32, f16, bf16 or i8, as q is not f64");
    REFUSED(s.problem.v.dtype = ATTN_U8, ATTN_ERR_UNSUPPORTED, "v.dtype is u8; it must be f32, f16, bf16 or i8, as q is not f64");
    REFUSED((s.problem.q.dtype = ATTN_F64, s.problem.o.dtype = ATTN_F32), ATTN_ERR_UNSUPPORTED,
            "o.dtype is f32; it must be f64, as q is f64");
    REFUSED(s.problem.mask.mask.dtype = ATTN_F32, ATTN_ERR_UNSUPPORTED, "mask.dtype is f32; it must be bool or u8");
    REFUSED((s.problem.dropout.given = 1, s.problem.dropout.given_layout.dtype = ATTN_I32), ATTN_ERR_UNSUPPORTED,
            "dropout_given.dtype is i32; it must be bool or u8");
    REFUSED(s.problem.bias.bias.dtype = ATTN_I32, ATTN_ERR_UNSUPPORTED, "bias.dtype is i32; it must be f32, f64, f16 or bf16");
    REFUSED(s.problem.want.lse_layout.dtype = ATTN_F64, ATTN_ERR_UNSUPPORTED, "lse.dtype is f64; it must be f32, the compute type");
    REFUSED((s.problem.q.dtype = ATTN_F64, s.problem.want.lse_layout.dtype = ATTN_F32), ATTN_ERR_UNSUPPORTED,
            "lse.dtype is f32; it must be f64, the compute type");
    ACCEPTED(s.problem.mask.mask.dtype = ATTN_U8);

    REFUSED((s.problem.q.dtype = ATTN_F64, s.problem.k.dtype = ATTN_I8), ATTN_ERR_UNSUPPORTED,
            "k.dtype is i8; it must be f64, as q is f64");
    REFUSED((s.problem.op = ATTN_BACKWARD, s.problem.v.dtype = ATTN_I8), ATTN_ERR_UNSUPPORTED,
            "v.dtype is i8 and op is not ATTN_FORWARD; whole numbers have no gradients");
    REFUSED((s.problem.op = ATTN_JVP, s.problem.k.dtype = ATTN_I8), ATTN_ERR_UNSUPPORTED,
            "k.dtype is i8 and op is not ATTN_FORWARD; whole numbers have no gradients");
    REFUSED((s.problem.k.dtype = ATTN_I8, s.problem.quantised.k_scale.dtype = ATTN_F16), ATTN_ERR_UNSUPPORTED,
            "k_scale.dtype is f16; it must be f32");
    REFUSED(s.problem.k.dtype = ATTN_I8, ATTN_ERR_ARGUMENT, "args.k_scale is NULL");
    REFUSED(s.problem.v.dtype = ATTN_I8, ATTN_ERR_ARGUMENT, "args.v_scale is NULL");
    REFUSED((s.problem.k.dtype = ATTN_I8, s.args.k_scale = (const char *)s.args.q + 2), ATTN_ERR_ARGUMENT,
            "args.k_scale is not aligned to its elements of 4 bytes");
    ACCEPTED((s.problem.k.dtype = s.problem.v.dtype = ATTN_I8, s.args.k_scale = s.args.v_scale = s.args.q));
}

static void test_strides(void **state)
{
    (void)state;
    REFUSED(s.problem.q.stride[3] = 2, ATTN_ERR_STRIDE, "q.stride[3] is 2; the last axis must be contiguous (1)");
    REFUSED(sets(s.problem.v.stride, 60, 30, 6, -1), ATTN_ERR_STRIDE, "v.stride[3] is -1; the last axis must be contiguous (1)");
    REFUSED(s.problem.want.weights_layout.stride[0] = 60, ATTN_ERR_STRIDE,
            "weights.stride[3] is 0; the last axis must be contiguous (1)");
    REFUSED((s.problem.shape.len_q = INT64_MAX / 2), ATTN_ERR_SHAPE,
            "q has the shape [2, 4, 4611686018427387903, 4]: more elements than 64 bits count");
    REFUSED(sets(s.problem.k.stride, INT64_MAX / 2, 20, 4, 1), ATTN_ERR_SHAPE,
            "k.stride[0] (4611686018427387903) times its size (2) overflows 64-bit addresses");
    REFUSED(sets(s.problem.bias.bias.stride, 0, 0, -INT64_MAX, 1), ATTN_ERR_SHAPE,
            "bias.stride[2] (-9223372036854775807) times its size (3) overflows 64-bit addresses");
    REFUSED(sets(s.problem.o.stride, 72, 18, 2, 1), ATTN_ERR_STRIDE,
            "o overlaps itself: stride[2] is 2 and the axes with smaller strides span 6 elements");
    REFUSED(sets(s.problem.o.stride, ATTN_BROADCAST, 18, 6, 1), ATTN_ERR_STRIDE,
            "o overlaps itself: stride[0] is 0 and the axes with smaller strides span 1 elements");
    REFUSED(sets(s.problem.want.lse_layout.stride, 12, -2, 1, 0), ATTN_ERR_STRIDE,
            "lse overlaps itself: stride[1] is -2 and the axes with smaller strides span 3 elements");
    REFUSED(sets(s.problem.want.weights_layout.stride, 15, 15, 5, 1), ATTN_ERR_STRIDE,
            "weights overlaps itself: stride[1] is 15 and the axes with smaller strides span 30 elements");
    ACCEPTED(sets(s.problem.q.stride, ATTN_BROADCAST, 0, 0, 1));
    ACCEPTED(sets(s.problem.mask.mask.stride, 0, 0, 0, ATTN_BROADCAST));
    ACCEPTED(sets(s.problem.o.stride, 72, 6, 24, 1)); /* token before head */
}

static void test_too_large(void **state)
{
    (void)state;
    REFUSED((memset(&s.problem.shape, 0, sizeof s.problem.shape), s.problem.shape.batch = s.problem.shape.heads_q = 1,
             s.problem.shape.heads_kv = s.problem.shape.len_q = s.problem.shape.len_kv = 1,
             s.problem.shape.dim_qk = INT64_C(1) << 59),
            ATTN_ERR_SHAPE, "the sizes are too large: a workspace or task count overflows 64 bits");
}

static void *never_allocate(void *context, size_t bytes)
{
    (void)context;
    fail_msg("asked for %zu bytes", bytes);
    return NULL;
}

static void never_release(void *context, void *memory)
{
    (void)context;
    fail_msg("asked to release %p", memory);
}

static void test_options(void **state)
{
    (void)state;
    REFUSED(s.options.threads = -1, ATTN_ERR_ARGUMENT, "options.threads is -1; it is at least 1, or 0 for the default");
    REFUSED(s.options.isa = (attn_isa)4, ATTN_ERR_ARGUMENT,
            "options.isa is 4; known: 0 (default), 1 (scalar), 2 (avx2), 3 (avx512)");
    REFUSED(s.options.allocator.allocate = never_allocate, ATTN_ERR_ARGUMENT,
            "options.allocator has allocate and no release; give both or none");
    REFUSED(s.options.allocator.release = never_release, ATTN_ERR_ARGUMENT,
            "options.allocator has release and no allocate; give both or none");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sound),     cmocka_unit_test(test_enums),   cmocka_unit_test(test_flags),
        cmocka_unit_test(test_reserved),  cmocka_unit_test(test_shape),   cmocka_unit_test(test_values),
        cmocka_unit_test(test_unused),    cmocka_unit_test(test_types),   cmocka_unit_test(test_strides),
        cmocka_unit_test(test_too_large), cmocka_unit_test(test_options),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
