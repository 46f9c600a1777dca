/* SPDX-License-Identifier: MIT
 *
 * test_validate_operations.c - the rules of gradients, tangents and second gradients, and of what forward is asked for. */
#include "refused.h"

static void test_gradients(void **state)
{
    (void)state;
    REFUSED(s.problem.gradients.scale = 1, ATTN_ERR_ARGUMENT, "gradients are asked for but op is not ATTN_BACKWARD");
    REFUSED(s.problem.op = ATTN_BACKWARD, ATTN_ERR_ARGUMENT,
            "want.weights is set but op is not ATTN_FORWARD; only forward gives it");
    REFUSED((backward(&s), s.problem.gradients.bias = 1, s.problem.bias.additive = 0), ATTN_ERR_ARGUMENT,
            "gradients.bias is set but bias.additive is not");
    REFUSED((backward(&s), s.problem.gradients.slopes = 1), ATTN_ERR_ARGUMENT, "gradients.slopes is set but bias.alibi is not");
    REFUSED((backward(&s), s.problem.gradients.sink = 1), ATTN_ERR_ARGUMENT, "gradients.sink is set but bias.sink is not");
    REFUSED(backward(&s), ATTN_ERR_ARGUMENT, "args.grad_o is NULL");
    REFUSED((backward(&s), s.problem.gradients.grad_q.dtype = ATTN_F64), ATTN_ERR_UNSUPPORTED,
            "grad_q.dtype is f64; it must be f32, f16 or bf16, as q is not f64");
}

/* A sound call of forward mode, along a tangent of q. */
static void jvp(small *s)
{
    backward(s);
    s->problem.op = ATTN_JVP;
    s->problem.tangents.q = s->problem.tangents.lse = 1;
    s->args.tan_q = s->q;
    s->args.o = s->v; /* inputs may be one another */
    s->args.lse = s->k;
    s->problem.shape.dim_v = SMALL_D;
    s->args.tan_o = s->o;
    s->args.tan_lse = s->lse;
}

static void test_tangents(void **state)
{
    (void)state;
    ACCEPTED(jvp(&s));
    ACCEPTED((jvp(&s), s.problem.tangents.q = 0, s.args.tan_q = NULL));
    REFUSED(s.problem.tangents.v = 1, ATTN_ERR_ARGUMENT, "tangents are given but op is neither ATTN_JVP nor ATTN_DOUBLE_BACKWARD");
    REFUSED((backward(&s), s.problem.tangents.lse = 1), ATTN_ERR_ARGUMENT, "tangents.lse is set but op is not ATTN_JVP");
    REFUSED((jvp(&s), s.problem.tangents.bias = 1, s.problem.bias.additive = 0), ATTN_ERR_ARGUMENT,
            "tangents.bias is set but bias.additive is not");
    REFUSED((jvp(&s), s.problem.want.weights = 1), ATTN_ERR_ARGUMENT,
            "want.weights is set but op is not ATTN_FORWARD; only forward gives it");
    REFUSED((jvp(&s), s.problem.gradients.scale = 1), ATTN_ERR_ARGUMENT, "gradients are asked for but op is not ATTN_BACKWARD");
    REFUSED((jvp(&s), s.problem.gradients.lse = 1), ATTN_ERR_ARGUMENT,
            "gradients.lse is set but op is neither ATTN_BACKWARD nor ATTN_DOUBLE_BACKWARD");
    REFUSED((jvp(&s), s.args.tan_q = NULL), ATTN_ERR_ARGUMENT, "args.tan_q is NULL");
    REFUSED((jvp(&s), s.problem.tangents.bias = 1), ATTN_ERR_ARGUMENT, "args.tan_bias is NULL");
    REFUSED((jvp(&s), s.args.tan_o = NULL), ATTN_ERR_ARGUMENT, "args.tan_o is NULL");
    REFUSED((jvp(&s), s.args.tan_lse = NULL), ATTN_ERR_ARGUMENT, "args.tan_lse is NULL");
    REFUSED((jvp(&s), s.args.tan_o = s.k), ATTN_ERR_ARGUMENT,
            "args.tan_o and args.k are the same pointer; outputs overlap nothing");
    REFUSED((jvp(&s), s.problem.tangents.tan_k.dtype = ATTN_F64, s.problem.tangents.k = 1), ATTN_ERR_UNSUPPORTED,
            "tan_k.dtype is f64; it must be f32, f16 or bf16, as q is not f64");
}

/* A sound call of the second order, along a tangent of q: inputs are k and v in their own shape, outputs lie where forward's do. */
static void double_backward(small *s)
{
    jvp(s);
    s->problem.op = ATTN_DOUBLE_BACKWARD;
    s->problem.tangents.lse = 0;
    s->problem.second.grad_lse = s->problem.second.bias = 1;
    s->args.grad_o = s->q;
    s->args.second_grad_o = s->o, s->args.second_grad_lse = s->lse;
    s->args.second_q = s->o + SMALL_B * SMALL_HQ * SMALL_SQ * SMALL_D;
    float *rest = s->weights; /* second_k and second_v have half of D channels */
    s->args.second_k = rest, rest += SMALL_B * SMALL_HKV * SMALL_SKV * SMALL_D / 2;
    s->args.second_v = rest, rest += SMALL_B * SMALL_HKV * SMALL_SKV * SMALL_D / 2;
    s->args.second_bias = rest;         /* SMALL_SKV */
    s->problem.bias.bias.stride[3] = 1; /* the same for all queries, heads and entries */
    s->problem.shape.dim_qk = s->problem.shape.dim_v = SMALL_D / 2;
}

static void test_second(void **state)
{
    (void)state;
    ACCEPTED(double_backward(&s));
    ACCEPTED((double_backward(&s), s.problem.gradients.lse = 1, s.args.grad_lse = s.q));
    REFUSED((jvp(&s), s.problem.second.bias = 1), ATTN_ERR_ARGUMENT, "second.bias is set but op is not ATTN_DOUBLE_BACKWARD");
    REFUSED((backward(&s), s.problem.second.grad_lse = 1), ATTN_ERR_ARGUMENT,
            "second.grad_lse is set but op is not ATTN_DOUBLE_BACKWARD");
    REFUSED((double_backward(&s), s.problem.bias.additive = 0), ATTN_ERR_ARGUMENT, "second.bias is set but bias.additive is not");
    REFUSED((double_backward(&s), s.problem.tangents.lse = 1), ATTN_ERR_ARGUMENT, "tangents.lse is set but op is not ATTN_JVP");
    REFUSED((double_backward(&s), s.problem.gradients.lse = 1), ATTN_ERR_ARGUMENT, "args.grad_lse is NULL");
    REFUSED((double_backward(&s), s.args.grad_o = NULL), ATTN_ERR_ARGUMENT, "args.grad_o is NULL");
    REFUSED((double_backward(&s), s.args.second_grad_o = NULL), ATTN_ERR_ARGUMENT, "args.second_grad_o is NULL");
    REFUSED((double_backward(&s), s.args.second_grad_lse = NULL), ATTN_ERR_ARGUMENT, "args.second_grad_lse is NULL");
    REFUSED((double_backward(&s), s.args.second_q = NULL), ATTN_ERR_ARGUMENT, "args.second_q is NULL");
    REFUSED((double_backward(&s), s.args.second_k = NULL), ATTN_ERR_ARGUMENT, "args.second_k is NULL");
    REFUSED((double_backward(&s), s.args.second_v = NULL), ATTN_ERR_ARGUMENT, "args.second_v is NULL");
    REFUSED((double_backward(&s), s.args.second_bias = NULL), ATTN_ERR_ARGUMENT, "args.second_bias is NULL");
    REFUSED((double_backward(&s), s.problem.second.second_v.dtype = ATTN_I8), ATTN_ERR_UNSUPPORTED,
            "second_v.dtype is i8; it must be f32, f16 or bf16, as q is not f64");
    REFUSED((double_backward(&s), sets(s.problem.second.second_bias.stride, 0, 0, 0, 2)), ATTN_ERR_STRIDE,
            "second_bias.stride[3] is 2; the last axis must be contiguous (1)");
}

static void test_want(void **state)
{
    (void)state;
    REFUSED((backward(&s), s.problem.want.topk = 1), ATTN_ERR_ARGUMENT,
            "want.topk is set but op is not ATTN_FORWARD; only forward gives it");
    REFUSED((backward(&s), s.problem.want.rows = 1), ATTN_ERR_ARGUMENT,
            "want.rows is set but op is not ATTN_FORWARD; only forward gives it");
    REFUSED(s.problem.want.scores_stage = (attn_stage)4, ATTN_ERR_ARGUMENT,
            "want.scores_stage is 4; known: 0 (raw), 1 (capped), 2 (biased), 3 (weights)");
    REFUSED(s.problem.want.rows_stage = (attn_stage)-1, ATTN_ERR_ARGUMENT,
            "want.rows_stage is -1; known: 0 (raw), 1 (capped), 2 (biased), 3 (weights)");
    REFUSED(s.problem.want.column_heads = (attn_columns)3, ATTN_ERR_ARGUMENT,
            "want.column_heads is 3; known: 0 (each), 1 (group), 2 (all)");
    REFUSED(s.problem.want.column_queries = -1, ATTN_ERR_ARGUMENT, "want.column_queries is -1; it is at least 1, or 0 for all");
    REFUSED(s.problem.want.topk = -2, ATTN_ERR_ARGUMENT, "want.topk is -2; it is at least 1, or 0 for none");
    REFUSED((s.problem.shape.len_kv = INT64_C(1) << 31, s.problem.want.topk_index_layout.dtype = ATTN_I32), ATTN_ERR_UNSUPPORTED,
            "topk_index.dtype is i32 and len_kv (2147483648) is more than it holds");
    REFUSED((s.problem.want.topk = 1, s.problem.want.topk_index_layout.dtype = ATTN_U8), ATTN_ERR_UNSUPPORTED,
            "topk_index.dtype is u8; it must be i32 or i64");
    REFUSED((s.problem.want.entropy = 1, s.problem.want.entropy_layout.dtype = ATTN_BF16), ATTN_ERR_UNSUPPORTED,
            "entropy.dtype is bf16; it must be f32, the compute type");
    REFUSED((s.problem.want.dropout_keep = 1, s.problem.want.dropout_keep_layout.dtype = ATTN_F32), ATTN_ERR_UNSUPPORTED,
            "dropout_keep.dtype is f32; it must be bool or u8");
    REFUSED(s.problem.want.rows = 1, ATTN_ERR_ARGUMENT, "want.rows is set but args.visit_rows is NULL");
    REFUSED(s.problem.want.topk = 3, ATTN_ERR_ARGUMENT, "args.topk_index is NULL");
    REFUSED((s.problem.want.column_sum = 1, s.args.column_sum = s.lse), ATTN_ERR_ARGUMENT,
            "args.lse and args.column_sum are the same pointer; outputs overlap nothing");
    REFUSED((s.problem.want.topk = INT64_MAX / 64, s.args.topk_index = s.args.topk_weight = s.o), ATTN_ERR_SHAPE,
            "topk_index.stride[0] (1729382256910270452) times its size (2) overflows 64-bit addresses");
    REFUSED((s.problem.paging.paged = 1, s.problem.paging.page_size = 4, s.problem.mask.empty = ATTN_EMPTY_UNIFORM),
            ATTN_ERR_ARGUMENT, "mask.empty is uniform and the keys are in pages; those behind lengths_kv have no page to weigh");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gradients),
        cmocka_unit_test(test_tangents),
        cmocka_unit_test(test_second),
        cmocka_unit_test(test_want),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
