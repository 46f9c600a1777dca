/* SPDX-License-Identifier: MIT
 *
 * test_validate.c - the rules of every problem: a violation of each, with its status and exact message.  Those of scores,
 * operations and arguments are in test_validate_*.c.  tools/check_messages.py fails if a message of src/core/plan or src/core/api
 * is in no test.
 */
#include "rejected.h"

#include <math.h>

static void test_sound(void **state)
{
    (void)state;
    ACCEPTED((void)0);
}

static void test_enums(void **state)
{
    (void)state;
    REJECTED(s.problem.op = (attn_op)7, ATTN_ERR_ARGUMENT,
             "op is 7; known: 0 (forward), 1 (backward), 2 (jvp), 3 (double backward)");
    REJECTED(s.problem.score.kind = (attn_score_kind)9, ATTN_ERR_ARGUMENT,
             "score.kind is 9; known: 0 (dot), 1 (general), 2 (metric), 3 (cosine), 4 (distance), 5 (additive)");
    REJECTED(s.problem.score.scale_kind = (attn_scale_kind)3, ATTN_ERR_ARGUMENT,
             "score.scale_kind is 3; known: 0 (default), 1 (value)");
    REJECTED(s.problem.mask.empty = (attn_empty)2, ATTN_ERR_ARGUMENT, "mask.empty is 2; known: 0 (zero), 1 (uniform)");
    REJECTED(s.problem.mask.align = (attn_align)2, ATTN_ERR_ARGUMENT, "mask.align is 2; known: 0 (top-left), 1 (bottom-right)");
    REJECTED(s.tensors.lengths_q.dtype = ATTN_F32, ATTN_ERR_UNSUPPORTED, "lengths_q.dtype is f32; it must be i32 or i64");
    REJECTED(s.tensors.offset_q.dtype = (attn_dtype)77, ATTN_ERR_ARGUMENT, "offset_q.dtype is 77; it is not a type");
}

static void test_flags(void **state)
{
    (void)state;
    REJECTED(s.problem.mask.causal = 2, ATTN_ERR_ARGUMENT, "mask.causal is 2; it must be 0 or 1");
    REJECTED(s.problem.mask.window = -1, ATTN_ERR_ARGUMENT, "mask.window is -1; it must be 0 or 1");
    REJECTED(s.problem.outputs.after_dropout = 2, ATTN_ERR_ARGUMENT, "outputs.after_dropout is 2; it must be 0 or 1");
    REJECTED(s.problem.score.additive_bias = 3, ATTN_ERR_ARGUMENT, "score.additive_bias is 3; it must be 0 or 1");
}

/* A tensor is present or absent, and its slot is valid. */
static void test_presence(void **state)
{
    (void)state;
    REJECTED(s.tensors.mask = attn_in(NULL), ATTN_ERR_ARGUMENT, "mask is NULL");
    REJECTED(s.tensors.weights = attn_out(NULL), ATTN_ERR_ARGUMENT, "weights is NULL");
    REJECTED(s.tensors.lse = attn_saved(NULL), ATTN_ERR_ARGUMENT, "lse is NULL");
    REJECTED(s.tensors.bias = (attn_input){.dtype = ATTN_BF16}, ATTN_ERR_ARGUMENT,
             "bias is NULL and has a type or strides; a slot that is not set must be all 0");
    REJECTED(s.tensors.lengths_kv = (attn_input){.stride = {1}}, ATTN_ERR_ARGUMENT,
             "lengths_kv is NULL and has a type or strides; a slot that is not set must be all 0");
    REJECTED(s.tensors.q = (attn_input){0}, ATTN_ERR_ARGUMENT, "q is missing; ATTN_FORWARD needs it");
    REJECTED((small_backward(&s), s.tensors.lse = (attn_output){0}), ATTN_ERR_ARGUMENT, "lse is missing; ATTN_BACKWARD needs it");
    REJECTED(s.tensors.grad_sink.data = s.weights, ATTN_ERR_ARGUMENT, "grad_sink is set; ATTN_FORWARD does not use it");
    REJECTED(s.tensors.tan_q = s.tensors.q, ATTN_ERR_ARGUMENT, "tan_q is set; ATTN_FORWARD does not use it");
    REJECTED((small_backward(&s), s.tensors.row_max.data = s.weights), ATTN_ERR_ARGUMENT,
             "row_max is set; ATTN_BACKWARD does not use it");
    ACCEPTED(s.tensors.lengths_q = (attn_input){0});
    ACCEPTED(s.tensors.weights = (attn_output){0});
}

/* Tensors that require or exclude each other, or that duplicate a field of the problem. */
static void test_company(void **state)
{
    static const int64_t zeros[8];
    (void)state;
    REJECTED(s.tensors.cu_seqlens_kv = attn_in(zeros), ATTN_ERR_ARGUMENT, "cu_seqlens_kv is set and cu_seqlens_q is not; set both");
    REJECTED((small_backward(&s), s.tensors.cu_seqlens_q = attn_in(zeros), s.tensors.lengths_q = (attn_input){0}),
             ATTN_ERR_UNSUPPORTED,
             "cu_seqlens_q is set and cu_seqlens_kv is not; only ATTN_FORWARD takes packed queries over keys that are not");
    ACCEPTED((s.tensors.cu_seqlens_q = attn_in(zeros), s.tensors.lengths_q = (attn_input){0}));
    REJECTED(s.tensors.page_index = attn_in(zeros), ATTN_ERR_ARGUMENT, "page_index needs paging.page_size of at least 1; it is 0");
    REJECTED((s.tensors.page_index = attn_in(zeros), s.problem.paging.page_size = 2), ATTN_ERR_ARGUMENT,
             "page_index is set and page_starts is not; set both");
    REJECTED(s.tensors.page_starts = attn_in(zeros), ATTN_ERR_ARGUMENT, "page_starts is set and page_index is not; set both");
    REJECTED((s.tensors.lengths_kv = (attn_input){0}, s.tensors.lengths_last_page = attn_in(zeros)), ATTN_ERR_ARGUMENT,
             "lengths_last_page is set and page_starts is not; set both");
    REJECTED((s.tensors.page_index = s.tensors.page_starts = s.tensors.lengths_last_page = attn_in(zeros),
              s.problem.paging.page_size = 2),
             ATTN_ERR_ARGUMENT, "lengths_kv and lengths_last_page are both set; set only one of them");
    REJECTED((s.tensors.page_index = s.tensors.page_starts = s.tensors.page_table = attn_in(zeros), s.problem.paging.page_size = 2),
             ATTN_ERR_ARGUMENT, "page_table and page_index are both set; set only one of them");
    REJECTED(s.tensors.cu_seqlens_q = s.tensors.cu_seqlens_kv = attn_in(zeros), ATTN_ERR_ARGUMENT,
             "cu_seqlens_q and lengths_q are both set; set only one of them");
    REJECTED((s.tensors.cu_seqlens_q = s.tensors.cu_seqlens_kv = attn_in(zeros), s.tensors.lengths_q = (attn_input){0}),
             ATTN_ERR_ARGUMENT, "cu_seqlens_kv and lengths_kv are both set; set only one of them");
    REJECTED((s.tensors.block_mask = s.tensors.block_starts = s.tensors.block_index = attn_in(zeros),
              s.problem.mask.block_q = s.problem.mask.block_kv = 2),
             ATTN_ERR_ARGUMENT, "block_mask and block_starts are both set; set only one of them");
    REJECTED((s.tensors.block_starts = attn_in(zeros), s.problem.mask.block_q = s.problem.mask.block_kv = 2), ATTN_ERR_ARGUMENT,
             "block_starts is set and block_index is not; set both");
    REJECTED((s.tensors.scale = attn_in(s.q), s.problem.score.scale_kind = ATTN_SCALE_VALUE), ATTN_ERR_ARGUMENT,
             "scale is set and score.scale_kind is ATTN_SCALE_VALUE; set only one of them");
    REJECTED(s.problem.mask.align = ATTN_ALIGN_BOTTOM_RIGHT, ATTN_ERR_ARGUMENT,
             "offset_q is set and mask.align is bottom-right; set only one of them");
    ACCEPTED((s.tensors.offset_q = (attn_input){0}, s.problem.mask.align = ATTN_ALIGN_BOTTOM_RIGHT));
    ACCEPTED(s.tensors.scale = attn_in(s.q));
}

static void test_reserved(void **state)
{
    (void)state;
    REJECTED(s.problem.score.reserved[0] = 1, ATTN_ERR_ARGUMENT, "score.reserved[0] is 1; it must be 0");
    REJECTED(s.problem.mask.reserved[1] = -2, ATTN_ERR_ARGUMENT, "mask.reserved[1] is -2; it must be 0");
    REJECTED(s.problem.score.reserved[7] = 3, ATTN_ERR_ARGUMENT, "score.reserved[7] is 3; it must be 0");
    REJECTED(s.problem.outputs.reserved[3] = 4, ATTN_ERR_ARGUMENT, "outputs.reserved[3] is 4; it must be 0");
    REJECTED(s.problem.dropout.reserved[0] = 5, ATTN_ERR_ARGUMENT, "dropout.reserved[0] is 5; it must be 0");
    REJECTED(s.problem.paging.reserved[1] = 6, ATTN_ERR_ARGUMENT, "paging.reserved[1] is 6; it must be 0");
    REJECTED(s.problem.bias_table.reserved[2] = 7, ATTN_ERR_ARGUMENT, "bias_table.reserved[2] is 7; it must be 0");
    REJECTED(s.problem.relative.reserved[3] = 8, ATTN_ERR_ARGUMENT, "relative.reserved[3] is 8; it must be 0");
    REJECTED((s.tensors.call = &s.call, s.call.reserved = 9), ATTN_ERR_ARGUMENT, "call.reserved is 9; it must be 0");
}

static void test_shape(void **state)
{
    (void)state;
    REJECTED(s.problem.shape.batch = -1, ATTN_ERR_SHAPE, "batch (-1) is negative");
    REJECTED(s.problem.shape.heads_q = -2, ATTN_ERR_SHAPE, "heads_q (-2) is negative");
    REJECTED(s.problem.shape.heads_kv = -3, ATTN_ERR_SHAPE, "heads_kv (-3) is negative");
    REJECTED(s.problem.shape.len_q = -4, ATTN_ERR_SHAPE, "len_q (-4) is negative");
    REJECTED(s.problem.shape.len_kv = -5, ATTN_ERR_SHAPE, "len_kv (-5) is negative");
    REJECTED(s.problem.shape.dim_qk = -6, ATTN_ERR_SHAPE, "dim_qk (-6) is negative");
    REJECTED(s.problem.shape.dim_v = INT64_MIN, ATTN_ERR_SHAPE, "dim_v (-9223372036854775808) is negative");
    REJECTED(s.problem.shape.len_q = (INT64_C(1) << 48) + 1, ATTN_ERR_SHAPE,
             "len_q (281474976710657) is more than 2^48, the most of any size");
    REJECTED(s.problem.shape.dim_v = INT64_MAX, ATTN_ERR_SHAPE,
             "dim_v (9223372036854775807) is more than 2^48, the most of any size");
    /* The bytes of a row of values are 2^64; without a batch there is none. */
    REJECTED((s.problem.shape = (attn_shape){0, 1, 1, 1, 1, 64, INT64_C(1) << 62}), ATTN_ERR_SHAPE,
             "dim_v (4611686018427387904) is more than 2^48, the most of any size");
    REJECTED(s.problem.shape = (attn_shape){0}, ATTN_ERR_SHAPE,
             "shape is all 0: it was not set (an empty batch has batch 0 and the sizes of its heads)");
    REJECTED(s.problem.shape.heads_kv = 0, ATTN_ERR_SHAPE, "heads_kv is 0 and heads_q is 4: query heads need a key head");
    REJECTED(s.problem.shape.heads_kv = 3, ATTN_ERR_SHAPE, "heads_q (4) is not a multiple of heads_kv (3)");
    REJECTED((s.problem.shape.heads_q = 30, s.problem.shape.heads_kv = 8), ATTN_ERR_SHAPE,
             "heads_q (30) is not a multiple of heads_kv (8)");
}

static void test_values(void **state)
{
    (void)state;
    REJECTED((s.problem.score.scale_kind = ATTN_SCALE_VALUE, s.problem.score.scale = INFINITY), ATTN_ERR_ARGUMENT,
             "score.scale is inf; it must be finite in the compute type");
    REJECTED((s.problem.score.scale_kind = ATTN_SCALE_VALUE, s.problem.score.scale = 1e300), ATTN_ERR_ARGUMENT,
             "score.scale is 1e+300; it must be finite in the compute type");
    REJECTED(s.problem.score.scale = 0.5, ATTN_ERR_ARGUMENT, "score.scale is 0.5 but score.scale_kind is not ATTN_SCALE_VALUE");
    ACCEPTED((s.problem.score.scale_kind = ATTN_SCALE_VALUE, s.problem.score.scale = -1));
    ACCEPTED(s.problem.score.scale_kind = ATTN_SCALE_VALUE);

    REJECTED((s.problem.mask.window = 1, s.problem.mask.window_left = -2), ATTN_ERR_ARGUMENT,
             "mask.window_left is -2; it must be at least 0, or -1 for no bound");
    REJECTED((s.problem.mask.window = 1, s.problem.mask.window_right = INT64_MIN), ATTN_ERR_ARGUMENT,
             "mask.window_right is -9223372036854775808; it must be at least 0, or -1 for no bound");
    REJECTED(s.problem.mask.window_left = 4, ATTN_ERR_ARGUMENT,
             "mask.window_left is 4 and window_right 0 but mask.window is 0; set it to 1");
    REJECTED(s.problem.mask.window_right = 7, ATTN_ERR_ARGUMENT,
             "mask.window_left is 0 and window_right 7 but mask.window is 0; set it to 1");
    REJECTED(s.problem.mask.window_right = 1, ATTN_ERR_ARGUMENT,
             "mask.window_left is 0 and window_right 1 but mask.window is 0; set it to 1");
    REJECTED(s.problem.mask.window_left = 1, ATTN_ERR_ARGUMENT,
             "mask.window_left is 1 and window_right 0 but mask.window is 0; set it to 1");
    ACCEPTED((s.problem.mask.window = 1, s.problem.mask.window_left = s.problem.mask.window_right = INT64_MAX));
    ACCEPTED((s.problem.mask.window = 1, s.problem.mask.window_left = s.problem.mask.window_right = -1));
}

/* The pointer of a tensor without elements is not read, and may be ATTN_EMPTY. */
static void test_unused(void **state)
{
    (void)state;
    ACCEPTED((s.tensors.weights = (attn_output){0}, s.tensors.lengths_q = (attn_input){0}));
    ACCEPTED((s.problem.shape.batch = 0, s.tensors.q.data = s.tensors.k.data = s.tensors.v.data = ATTN_EMPTY,
              s.tensors.o.data = s.tensors.lse.data = s.tensors.weights.data = ATTN_EMPTY,
              s.tensors.mask.data = s.tensors.bias.data = ATTN_EMPTY,
              s.tensors.lengths_q.data = s.tensors.lengths_kv.data = s.tensors.offset_q.data = ATTN_EMPTY));
    ACCEPTED((s.problem.shape.dim_qk = 0, s.tensors.q.data = s.tensors.k.data = (char *)1));
    REJECTED(s.tensors.v.data = ATTN_EMPTY, ATTN_ERR_ARGUMENT, "v is ATTN_EMPTY and has elements");
    REJECTED(s.tensors.o.data = ATTN_EMPTY, ATTN_ERR_ARGUMENT, "o is ATTN_EMPTY and has elements");
    REJECTED(s.tensors.bias.data = ATTN_LATER, ATTN_ERR_ARGUMENT, "bias is ATTN_LATER; an execution needs its pointer");
}

static void test_types(void **state)
{
    (void)state;
    REJECTED(s.tensors.q.dtype = (attn_dtype)99, ATTN_ERR_ARGUMENT, "q.dtype is 99; it is not a type");
    REJECTED(s.tensors.weights.dtype = (attn_dtype)20, ATTN_ERR_ARGUMENT, "weights.dtype is 20; it is not a type");
    REJECTED(s.tensors.q.dtype = ATTN_I8, ATTN_ERR_UNSUPPORTED, "q.dtype is i8; it must be f32, f64, f16 or bf16");
    REJECTED(s.tensors.k.dtype = ATTN_F64, ATTN_ERR_UNSUPPORTED,
             "k.dtype is f64; it must be f32, f16, bf16, i8, f8 or blocks, as q is not f64");
    REJECTED(s.tensors.v.dtype = ATTN_U8, ATTN_ERR_UNSUPPORTED,
             "v.dtype is u8; it must be f32, f16, bf16, i8, f8 or blocks, as q is not f64");
    REJECTED((s.tensors.q.dtype = ATTN_F64, s.tensors.o.dtype = ATTN_F32), ATTN_ERR_UNSUPPORTED,
             "o.dtype is f32; it must be f64, as q is f64");
    REJECTED(s.tensors.mask.dtype = ATTN_F32, ATTN_ERR_UNSUPPORTED, "mask.dtype is f32; it must be bool or u8");
    REJECTED((s.problem.dropout.probability = 0.5, s.tensors.dropout_given = (attn_input){s.mask, ATTN_I32, {0}}),
             ATTN_ERR_UNSUPPORTED, "dropout_given.dtype is i32; it must be bool or u8");
    REJECTED(s.tensors.bias.dtype = ATTN_I32, ATTN_ERR_UNSUPPORTED, "bias.dtype is i32; it must be f32, f64, f16 or bf16");
    REJECTED(s.tensors.lse.dtype = ATTN_F64, ATTN_ERR_UNSUPPORTED, "lse.dtype is f64; it must be f32, the compute type");
    REJECTED((s.tensors.q.dtype = ATTN_F64, s.tensors.lse.dtype = ATTN_F32), ATTN_ERR_UNSUPPORTED,
             "lse.dtype is f32; it must be f64, the compute type");
    ACCEPTED(s.tensors.mask.dtype = ATTN_U8);

    REJECTED((s.tensors.q.dtype = ATTN_F64, s.tensors.k.dtype = ATTN_I8, s.tensors.k_scale = attn_in(s.q)), ATTN_ERR_UNSUPPORTED,
             "k.dtype is i8; it must be f64, as q is f64");
    REJECTED((small_backward(&s), s.tensors.v.dtype = ATTN_I8), ATTN_ERR_UNSUPPORTED,
             "v.dtype is i8 and op is not ATTN_FORWARD; quantised keys and values have no gradients");
    REJECTED((s.problem.op = ATTN_JVP, s.tensors.k.dtype = ATTN_I8), ATTN_ERR_UNSUPPORTED,
             "k.dtype is i8 and op is not ATTN_FORWARD; quantised keys and values have no gradients");
    REJECTED((s.tensors.k.dtype = ATTN_I8, s.tensors.k_scale = (attn_input){s.q, ATTN_F16, {0}}), ATTN_ERR_UNSUPPORTED,
             "k_scale.dtype is f16; it must be f32");
    REJECTED(s.tensors.k.dtype = ATTN_I8, ATTN_ERR_ARGUMENT, "k_scale is missing; k.dtype is i8");
    REJECTED(s.tensors.v.dtype = ATTN_I8, ATTN_ERR_ARGUMENT, "v_scale is missing; v.dtype is i8");
    REJECTED(s.tensors.v_scale = attn_in(s.q), ATTN_ERR_ARGUMENT, "v_scale is set and v.dtype is neither i8 nor f8");
    REJECTED((s.tensors.k.dtype = ATTN_I8, s.tensors.k_scale.data = (char *)s.q + 2), ATTN_ERR_ARGUMENT,
             "k_scale is not aligned to its elements of 4 bytes");
    ACCEPTED((s.tensors.k.dtype = s.tensors.v.dtype = ATTN_I8, s.tensors.k_scale = s.tensors.v_scale = attn_in(s.q)));
}

static const char missing[] = "v_scale is missing; v is k, and k_scale is set: give v_scale = k_scale";

/* Values in keys of f8, and scales of the keys alone. */
static void latents(small *s, const void *k, const void *v)
{
    s->tensors.k = (attn_input){k, ATTN_F8_E4M3, {60, 30, 6, 1}};
    s->tensors.v = (attn_input){v, ATTN_F8_E4M3, {60, 30, 6, 1}};
    s->tensors.k_scale = (attn_input){s->q, ATTN_F32, {0, 0, 0, 1}};
}

static void test_latents(void **state)
{
    (void)state;
    REJECTED(latents(&s, s.v, s.v), ATTN_ERR_ARGUMENT, missing);
    REJECTED((latents(&s, s.v, s.v), s.problem.shape.heads_kv = 1, s.tensors.k.stride[1] = 60), ATTN_ERR_ARGUMENT, missing);
    ACCEPTED((latents(&s, s.v, s.v), s.tensors.v_scale = s.tensors.k_scale));
    ACCEPTED((latents(&s, s.v, s.v), s.tensors.k_scale = (attn_input){0}));
    ACCEPTED((latents(&s, s.v, s.v), s.tensors.v.dtype = ATTN_F8_E5M2));
    ACCEPTED((latents(&s, s.v, s.v), sets(s.tensors.k.stride, 60, 24, 6, 1)));
    ACCEPTED(latents(&s, s.k, s.v));
}

/* Creation rejects what it sees; a plan whose tensors come later is made, and its execution sees which they are. */
static void test_later_latents(void **state)
{
    attn_error error;
    attn_plan *plan;
    small s;
    (void)state;
    small_init(&s);
    latents(&s, s.v, s.v);
    assert_int_equal(attn_plan_create(&plan, &s.problem, &s.tensors, NULL, &error), ATTN_ERR_ARGUMENT);
    assert_string_equal(error.message, missing);
    latents(&s, ATTN_LATER, ATTN_LATER);
    assert_int_equal(attn_plan_create(&plan, &s.problem, &s.tensors, NULL, &error), ATTN_OK);
    const size_t size = attn_plan_workspace_size(plan);
    void *workspace = malloc(size + 1);
    latents(&s, s.v, s.v);
    assert_int_equal(attn_execute(plan, &s.tensors, workspace, size, &error), ATTN_ERR_ARGUMENT);
    assert_string_equal(error.message, missing);
    assert_true(small_outputs_untouched(&s));
    latents(&s, s.k, s.v);
    assert_int_equal(attn_execute(plan, &s.tensors, workspace, size, &error), ATTN_OK);
    free(workspace);
    attn_plan_destroy(plan);
}

static void test_strides(void **state)
{
    (void)state;
    REJECTED(s.tensors.q.stride[3] = 2, ATTN_ERR_STRIDE, "q.stride[3] is 2; the last axis must be contiguous (1)");
    REJECTED(sets(s.tensors.v.stride, 60, 30, 6, -1), ATTN_ERR_STRIDE, "v.stride[3] is -1; the last axis must be contiguous (1)");
    REJECTED(s.tensors.weights.stride[0] = 60, ATTN_ERR_STRIDE, "weights.stride[3] is 0; the last axis must be contiguous (1)");
    REJECTED((s.problem.shape.batch = s.problem.shape.len_q = INT64_C(1) << 48), ATTN_ERR_SHAPE,
             "q has the shape [281474976710656, 4, 281474976710656, 4]: the number of elements overflows 64 bits");
    REJECTED(sets(s.tensors.k.stride, INT64_MAX / 2, 20, 4, 1), ATTN_ERR_SHAPE,
             "k.stride[0] (4611686018427387903) times its size (2) overflows 64-bit addresses");
    REJECTED(sets(s.tensors.bias.stride, 0, 0, -INT64_MAX, 1), ATTN_ERR_SHAPE,
             "bias.stride[2] (-9223372036854775807) times its size (3) overflows 64-bit addresses");
    REJECTED(sets(s.tensors.o.stride, 72, 18, 2, 1), ATTN_ERR_STRIDE,
             "o overlaps itself: stride[2] is 2 and the axes with smaller strides span 6 elements");
    REJECTED(sets(s.tensors.o.stride, ATTN_BROADCAST, 18, 6, 1), ATTN_ERR_STRIDE,
             "o overlaps itself: stride[0] is 0 and the axes with smaller strides span 1 elements");
    REJECTED(sets(s.tensors.lse.stride, 12, -2, 1, 0), ATTN_ERR_STRIDE,
             "lse overlaps itself: stride[1] is -2 and the axes with smaller strides span 3 elements");
    REJECTED(sets(s.tensors.weights.stride, 15, 15, 5, 1), ATTN_ERR_STRIDE,
             "weights overlaps itself: stride[1] is 15 and the axes with smaller strides span 30 elements");
    REJECTED(sets(s.tensors.lengths_q.stride, 2, 0, 0, 0), ATTN_ERR_STRIDE, "lengths_q.stride[0] is 2; it must be dense (0, or 1)");
    ACCEPTED(sets(s.tensors.lengths_q.stride, 1, 7, 7, 7));
    ACCEPTED(sets(s.tensors.q.stride, ATTN_BROADCAST, 0, 0, 1));
    ACCEPTED(sets(s.tensors.mask.stride, 0, 0, 0, ATTN_BROADCAST));
    ACCEPTED(sets(s.tensors.o.stride, 72, 6, 24, 1)); /* token before head */
}

static void test_too_large(void **state)
{
    (void)state;
    /* Heads without channels, whose tensors have no elements. */
    REJECTED(
        (s.problem.shape = (attn_shape){INT64_C(1) << 48, INT64_C(1) << 48, 1, 1, 1, 0, 0},
         s.tensors =
             (attn_tensors){
                 .struct_size = sizeof s.tensors, .q = attn_in(s.q), .k = attn_in(s.k), .v = attn_in(s.v), .o = attn_out(s.o)}),
        ATTN_ERR_SHAPE, "the sizes are too large: a workspace or task count overflows 64 bits");
    /* Queries whose bytes fit in 64 bits in f16, but not in f32, in which they are prepared. */
    REJECTED((s.problem.shape = (attn_shape){1, 1, 1, INT64_C(1) << 30, 1, INT64_C(1) << 31, 1}, s.tensors.q.dtype = ATTN_F16,
              s.problem.score.kind = ATTN_SCORE_COSINE, s.tensors.lengths_q = s.tensors.lengths_kv = (attn_input){0}),
             ATTN_ERR_SHAPE, "the sizes are too large: a workspace or task count overflows 64 bits");
}

static void *never_allocate(void *context, size_t bytes)
{
    (void)context;
    fail_msg("%zu bytes are requested", bytes);
    return NULL;
}

static void never_release(void *context, void *memory)
{
    (void)context;
    fail_msg("%p is released", memory);
}

static void test_options(void **state)
{
    (void)state;
    REJECTED(s.options.reproducible = -1, ATTN_ERR_ARGUMENT, "options.reproducible is -1; it must be 0 or 1");
    REJECTED(s.options.invariant = 2, ATTN_ERR_ARGUMENT, "options.invariant is 2; it must be 0 or 1");
    ACCEPTED(s.options.threads = 1024);
    REJECTED(s.options.threads = 1025, ATTN_ERR_ARGUMENT,
             "options.threads is 1025; it must be between 1 and 1024, or 0 for the default");
    REJECTED(s.options.threads = -1, ATTN_ERR_ARGUMENT,
             "options.threads is -1; it must be between 1 and 1024, or 0 for the default");
    REJECTED(s.options.isa = (attn_isa)6, ATTN_ERR_ARGUMENT,
             "options.isa is 6; known: 0 (default), 1 (scalar), 2 (avx2), 3 (avx512), 4 (neon), 5 (wasm128)");
    REJECTED(s.options.allocator.allocate = never_allocate, ATTN_ERR_ARGUMENT,
             "options.allocator has allocate and no release; set both or neither");
    REJECTED(s.options.allocator.release = never_release, ATTN_ERR_ARGUMENT,
             "options.allocator has release and no allocate; set both or neither");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sound),    cmocka_unit_test(test_enums),     cmocka_unit_test(test_flags),
        cmocka_unit_test(test_presence), cmocka_unit_test(test_company),   cmocka_unit_test(test_reserved),
        cmocka_unit_test(test_shape),    cmocka_unit_test(test_values),    cmocka_unit_test(test_unused),
        cmocka_unit_test(test_types),    cmocka_unit_test(test_latents),   cmocka_unit_test(test_later_latents),
        cmocka_unit_test(test_strides),  cmocka_unit_test(test_too_large), cmocka_unit_test(test_options),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
