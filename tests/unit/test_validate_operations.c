/* SPDX-License-Identifier: MIT
 *
 * test_validate_operations.c - the rules of gradients, tangents and double backward, and of the outputs of forward. */
#include "fails.h"
#include "rejected.h"

#define GONE(slot) memset(&s.tensors.slot, 0, sizeof s.tensors.slot)

static void test_gradients(void **state)
{
    (void)state;
    ACCEPTED(small_backward(&s));
    REJECTED(s.tensors.grad_scale = attn_out(s.grad_q), ATTN_ERR_ARGUMENT, "grad_scale is set; ATTN_FORWARD does not use it");
    REJECTED((small_backward(&s), s.tensors.weights = attn_out(s.weights)), ATTN_ERR_ARGUMENT,
             "weights is set; ATTN_BACKWARD does not use it");
    REJECTED((small_backward(&s), GONE(bias), s.tensors.grad_bias = attn_out(s.weights)), ATTN_ERR_ARGUMENT,
             "grad_bias is set and bias is not");
    REJECTED((small_backward(&s), s.tensors.grad_alibi_slopes = attn_out(s.weights)), ATTN_ERR_ARGUMENT,
             "grad_alibi_slopes is set and alibi_slopes is not");
    REJECTED((small_backward(&s), s.tensors.grad_sink = attn_out(s.weights)), ATTN_ERR_ARGUMENT,
             "grad_sink is set and sink is not");
    REJECTED((small_backward(&s), GONE(grad_o)), ATTN_ERR_ARGUMENT, "grad_o is missing; ATTN_BACKWARD needs it");
    REJECTED((small_backward(&s), GONE(grad_k)), ATTN_ERR_ARGUMENT, "grad_k is missing; ATTN_BACKWARD needs it");
    REJECTED((small_backward(&s), s.tensors.grad_q.dtype = ATTN_F64), ATTN_ERR_UNSUPPORTED,
             "grad_q.dtype is f64; it must be f32, f16 or bf16, as q is not f64");
    ACCEPTED((small_backward(&s),
              s.tensors.grad_scale = attn_out(s.weights))); /* the gradient of the scale of each head, whatever its kind */
    ACCEPTED((small_backward(&s), s.tensors.grad_lse = attn_in(s.v)));
}

/* A valid call of forward mode, along a tangent of q. */
static void jvp(small *s)
{
    s->problem.op = ATTN_JVP;
    s->problem.shape.dim_v = SMALL_D;
    s->tensors.weights = (attn_output){0};
    s->tensors.tan_q = attn_in(s->q);
    s->tensors.o = attn_saved(s->v); /* inputs may be one another */
    s->tensors.lse = attn_saved(s->k);
    s->tensors.tan_o = attn_out(s->o);
    s->tensors.tan_lse = attn_out(s->lse);
}

static void test_tangents(void **state)
{
    (void)state;
    ACCEPTED(jvp(&s));
    ACCEPTED((jvp(&s), GONE(tan_q)));
    ACCEPTED((jvp(&s), GONE(tan_lse)));
    REJECTED(s.tensors.tan_v = attn_in(s.v), ATTN_ERR_ARGUMENT, "tan_v is set; ATTN_FORWARD does not use it");
    REJECTED((small_backward(&s), s.tensors.tan_lse = attn_out(s.weights)), ATTN_ERR_ARGUMENT,
             "tan_lse is set; ATTN_BACKWARD does not use it");
    REJECTED((jvp(&s), s.tensors.tan_bias = s.tensors.bias, GONE(bias)), ATTN_ERR_ARGUMENT, "tan_bias is set and bias is not");
    REJECTED((jvp(&s), s.tensors.weights = attn_out(s.weights)), ATTN_ERR_ARGUMENT, "weights is set; ATTN_JVP does not use it");
    REJECTED((jvp(&s), s.tensors.grad_scale = attn_out(s.weights)), ATTN_ERR_ARGUMENT,
             "grad_scale is set; ATTN_JVP does not use it");
    REJECTED((jvp(&s), s.tensors.grad_lse = attn_in(s.q)), ATTN_ERR_ARGUMENT, "grad_lse is set; ATTN_JVP does not use it");
    REJECTED((jvp(&s), s.tensors.tan_q = attn_in(NULL)), ATTN_ERR_ARGUMENT, "tan_q is NULL");
    REJECTED((jvp(&s), s.tensors.tan_bias = attn_in(NULL)), ATTN_ERR_ARGUMENT, "tan_bias is NULL");
    REJECTED((jvp(&s), GONE(tan_o)), ATTN_ERR_ARGUMENT, "tan_o is missing; ATTN_JVP needs it");
    REJECTED((jvp(&s), s.tensors.tan_lse = attn_out(NULL)), ATTN_ERR_ARGUMENT, "tan_lse is NULL");
    REJECTED((jvp(&s), s.tensors.tan_o.data = s.k), ATTN_ERR_STRIDE,
             "tan_o and k share elements; an output must not overlap another tensor");
    REJECTED((jvp(&s), s.tensors.tan_k = (attn_input){s.k, ATTN_F64, {0}}), ATTN_ERR_UNSUPPORTED,
             "tan_k.dtype is f64; it must be f32, f16 or bf16, as q is not f64");
}

/* A valid call of double backward along a tangent of q. Inputs of k's or v's shape are k or v; outputs go to forward's. */
static void double_backward(small *s)
{
    jvp(s);
    s->problem.op = ATTN_DOUBLE_BACKWARD;
    s->tensors.tan_o = s->tensors.tan_lse = (attn_output){0};
    s->tensors.grad_o = attn_in(s->q);
    s->tensors.second_grad_o = attn_out(s->o), s->tensors.second_grad_lse = attn_out(s->lse);
    s->tensors.second_q = attn_out(s->o + SMALL_B * SMALL_HQ * SMALL_SQ * SMALL_D / 2);
    float *rest = s->weights; /* second_k and second_v have half of D channels */
    s->tensors.second_k = attn_out(rest), rest += SMALL_B * SMALL_HKV * SMALL_SKV * SMALL_D / 2;
    s->tensors.second_v = attn_out(rest), rest += SMALL_B * SMALL_HKV * SMALL_SKV * SMALL_D / 2;
    s->tensors.second_bias = attn_out(rest); /* SMALL_SKV */
    s->tensors.bias.stride[3] = 1;           /* the same for all queries, heads and entries */
    s->problem.shape.dim_qk = s->problem.shape.dim_v = SMALL_D / 2;
}

/* Instead of computing the tangents of o and lse, which are then inputs. */
static void given_tangents(small *s)
{
    s->tensors.second_grad_o = s->tensors.second_grad_lse = (attn_output){0};
    s->tensors.tan_o = attn_saved(s->q), s->tensors.tan_lse = attn_saved(s->k);
}

/* More heads than fit in 64 bits, though no tensor has an element. */
static void without_elements(small *s, int64_t heads_q)
{
    const int64_t many = INT64_C(1) << 32;
    s->problem.shape = (attn_shape){.batch = many, .heads_q = heads_q * many, .heads_kv = many, .dim_qk = 2, .dim_v = 2};
    s->tensors.lengths_q = s->tensors.lengths_kv = s->tensors.offset_q = (attn_input){0};
}

static void test_heads(void **state)
{
    static const char message[] = "the sizes are too large: a workspace or task count overflows 64 bits";
    (void)state;
    for (int heads_q = 0; heads_q < 2; heads_q++) {
        REJECTED(without_elements(&s, heads_q), ATTN_ERR_SHAPE, message);
        REJECTED((small_backward(&s), without_elements(&s, heads_q)), ATTN_ERR_SHAPE, message);
        REJECTED((double_backward(&s), without_elements(&s, heads_q)), ATTN_ERR_SHAPE, message);
    }
    REJECTED((jvp(&s), without_elements(&s, 1)), ATTN_ERR_SHAPE, message);
}

static void test_second(void **state)
{
    (void)state;
    ACCEPTED(double_backward(&s));
    ACCEPTED((double_backward(&s), s.tensors.grad_lse = attn_in(s.q)));
    ACCEPTED((double_backward(&s), GONE(second_bias), GONE(second_grad_lse)));
    REJECTED((jvp(&s), s.tensors.second_bias = attn_out(s.weights)), ATTN_ERR_ARGUMENT,
             "second_bias is set; ATTN_JVP does not use it");
    REJECTED((small_backward(&s), s.tensors.second_grad_lse = attn_out(s.weights)), ATTN_ERR_ARGUMENT,
             "second_grad_lse is set; ATTN_BACKWARD does not use it");
    REJECTED((double_backward(&s), GONE(bias)), ATTN_ERR_ARGUMENT, "second_bias is set and bias is not");
    ACCEPTED((double_backward(&s), given_tangents(&s)));
    REJECTED((double_backward(&s), given_tangents(&s), GONE(tan_o)), ATTN_ERR_ARGUMENT,
             "tan_lse is set and tan_o is not; set both or neither");
    REJECTED((double_backward(&s), given_tangents(&s), GONE(tan_lse)), ATTN_ERR_ARGUMENT,
             "tan_o is set and tan_lse is not; set both or neither");
    REJECTED((double_backward(&s), given_tangents(&s), s.tensors.second_grad_o = attn_out(s.o)), ATTN_ERR_ARGUMENT,
             "second_grad_o and tan_o are both set, and are the same; set only one of them");
    REJECTED((double_backward(&s), given_tangents(&s), s.tensors.second_grad_lse = attn_out(s.lse)), ATTN_ERR_ARGUMENT,
             "second_grad_lse and tan_o are both set, and are the same; set only one of them");
    REJECTED((double_backward(&s), s.tensors.grad_lse = attn_in(NULL)), ATTN_ERR_ARGUMENT, "grad_lse is NULL");
    REJECTED((double_backward(&s), GONE(grad_o)), ATTN_ERR_ARGUMENT, "grad_o is missing; ATTN_DOUBLE_BACKWARD needs it");
    REJECTED((double_backward(&s), GONE(second_grad_o)), ATTN_ERR_ARGUMENT,
             "second_grad_o is missing; ATTN_DOUBLE_BACKWARD needs it, or tan_o");
    REJECTED((double_backward(&s), s.tensors.second_grad_lse = attn_out(NULL)), ATTN_ERR_ARGUMENT, "second_grad_lse is NULL");
    REJECTED((double_backward(&s), GONE(second_q)), ATTN_ERR_ARGUMENT, "second_q is missing; ATTN_DOUBLE_BACKWARD needs it");
    REJECTED((double_backward(&s), GONE(second_k)), ATTN_ERR_ARGUMENT, "second_k is missing; ATTN_DOUBLE_BACKWARD needs it");
    REJECTED((double_backward(&s), GONE(second_v)), ATTN_ERR_ARGUMENT, "second_v is missing; ATTN_DOUBLE_BACKWARD needs it");
    REJECTED((double_backward(&s), s.tensors.second_bias = attn_out(NULL)), ATTN_ERR_ARGUMENT, "second_bias is NULL");
    REJECTED((double_backward(&s), s.tensors.second_v.dtype = ATTN_I8), ATTN_ERR_UNSUPPORTED,
             "second_v.dtype is i8; it must be f32, f16 or bf16, as q is not f64");
    REJECTED((double_backward(&s), sets(s.tensors.second_bias.stride, 0, 0, 0, 2)), ATTN_ERR_STRIDE,
             "second_bias.stride[3] is 2; the last axis must be contiguous (1)");
}

static void no_visit(void *context, const attn_rows *rows) { (void)context, (void)rows; }

static void test_outputs(void **state)
{
    (void)state;
#define TOP(most) (s.problem.outputs.topk = (most), s.tensors.topk_index = attn_out(s.weights), GONE(weights))
    REJECTED((small_backward(&s), s.problem.outputs.topk = 1, s.tensors.topk_index = attn_out(s.weights)), ATTN_ERR_ARGUMENT,
             "topk_index is set; ATTN_BACKWARD does not use it");
    REJECTED((small_backward(&s), s.call.visit_rows = no_visit, s.tensors.call = &s.call), ATTN_ERR_ARGUMENT,
             "visit_rows is set; only ATTN_FORWARD visits rows");
    REJECTED(s.problem.outputs.scores_stage = (attn_stage)4, ATTN_ERR_ARGUMENT,
             "outputs.scores_stage is 4; known: 0 (raw), 1 (capped), 2 (biased), 3 (weights)");
    REJECTED(s.problem.outputs.rows_stage = (attn_stage)-1, ATTN_ERR_ARGUMENT,
             "outputs.rows_stage is -1; known: 0 (raw), 1 (capped), 2 (biased), 3 (weights)");
    REJECTED(s.problem.outputs.column_heads = (attn_columns)3, ATTN_ERR_ARGUMENT,
             "outputs.column_heads is 3; known: 0 (each), 1 (group), 2 (all)");
    REJECTED(s.problem.outputs.column_queries = -1, ATTN_ERR_ARGUMENT,
             "outputs.column_queries is -1; it must be at least 1, or 0 for all");
    REJECTED(s.problem.outputs.topk = -2, ATTN_ERR_ARGUMENT, "outputs.topk is -2; it must be at least 1, or 0 for none");
    REJECTED(s.problem.outputs.topk = 3, ATTN_ERR_ARGUMENT, "outputs.topk is 3 but neither topk_index nor topk_weight is set");
    REJECTED(TOP(0), ATTN_ERR_ARGUMENT, "topk_index is set and outputs.topk is 0; set outputs.topk to the number of keys");
    REJECTED((TOP(1), s.problem.shape.len_kv = INT64_C(1) << 31, s.tensors.topk_index.dtype = ATTN_I32), ATTN_ERR_UNSUPPORTED,
             "topk_index.dtype is i32 and len_kv (2147483648) does not fit in it");
    REJECTED((TOP(1), s.tensors.topk_index.dtype = ATTN_U8), ATTN_ERR_UNSUPPORTED, "topk_index.dtype is u8; it must be i32 or i64");
    REJECTED(s.tensors.entropy = ((attn_output){s.grad_q, ATTN_BF16, {0}}), ATTN_ERR_UNSUPPORTED,
             "entropy.dtype is bf16; it must be f32, the compute type");
    REJECTED(s.tensors.dropout_keep = ((attn_output){s.grad_q, ATTN_F32, {0}}), ATTN_ERR_UNSUPPORTED,
             "dropout_keep.dtype is f32; it must be bool or u8");
    REJECTED(s.tensors.topk_weight = attn_out(NULL), ATTN_ERR_ARGUMENT, "topk_weight is NULL");
    REJECTED(s.tensors.column_sum = attn_out(s.lse), ATTN_ERR_STRIDE,
             "lse and column_sum share elements; an output must not overlap another tensor");
    REJECTED((TOP(INT64_C(1) << 48), s.problem.shape.len_q = INT64_C(1) << 10, s.problem.shape.len_kv = INT64_C(1) << 48,
              s.problem.shape.dim_qk = s.problem.shape.dim_v = 0, GONE(mask), GONE(bias)),
             ATTN_ERR_SHAPE, "topk_index.stride[0] (1152921504606846976) times its size (2) overflows 64-bit addresses");
    REJECTED(TOP(INT64_MAX), ATTN_ERR_SHAPE, "outputs.topk (9223372036854775807) is more than 2^48, the most of any size");
    REJECTED((s.problem.paging.page_size = 4, s.problem.paging.pages = INT64_MAX, s.tensors.page_table = attn_in(s.lengths_q)),
             ATTN_ERR_SHAPE, "paging.pages (9223372036854775807) is more than 2^48, the most of any size");
    REJECTED(
        (s.problem.paging.page_size = 4, s.tensors.page_table = attn_in(s.lengths_q), s.problem.mask.empty = ATTN_EMPTY_UNIFORM),
        ATTN_ERR_ARGUMENT, "mask.empty is uniform and page_table is set; keys after lengths_kv have no page to average");
}

/* options.invariant rejects what depends on which rows share a tile. */
static void test_invariant(void **state)
{
    small s;
    attn_plan *plan;
    (void)state;
    small_init(&s);
    s.options.invariant = 1;
    assert_int_equal(attn_plan_create(&plan, &s.problem, &s.tensors, &s.options, NULL), ATTN_OK);
    attn_plan_destroy(plan);
    s.problem.mask.global_kv = 1;
    FAILS(attn_plan_create(&plan, &s.problem, &s.tensors, &s.options, &error), ATTN_ERR_UNSUPPORTED,
          "options.invariant is set and there are global tokens; then bits depend on the chunk");
}

/* options.reproducible rejects what depends on the number of queries of a tile, since its bits must be those of every instruction
 * set.
 */
static void test_reproducible(void **state)
{
    small s;
    attn_plan *plan;
    attn_cpu_description cpu = {.struct_size = sizeof cpu};
    (void)state;
    small_init(&s);
    s.options.reproducible = 1;
    s.options.isa = ATTN_ISA_SCALAR;
    FAILS(attn_plan_create(&plan, &s.problem, &s.tensors, &s.options, &error), ATTN_ERR_UNSUPPORTED,
          "options.reproducible is set and the instruction set is scalar; it needs avx2, avx512 or neon");
    s.options.isa = ATTN_ISA_DEFAULT;
    s.problem.mask.global_kv = 1;
    FAILS(attn_plan_create(&plan, &s.problem, &s.tensors, &s.options, &error), ATTN_ERR_UNSUPPORTED,
          "options.reproducible is set and there are global tokens; then bits depend on the instruction set");
    assert_int_equal(attn_cpu_describe(&cpu, NULL), ATTN_OK);
    if (cpu.isa == ATTN_ISA_SCALAR) return;
    s.problem.mask.global_kv = 0;
    for (attn_isa isa = ATTN_ISA_AVX2; isa <= cpu.isa; isa = (attn_isa)(isa + 1)) {
        attn_plan_description d = {.struct_size = sizeof d};
        if (isa_is_foreign((int)isa)) continue;
        s.options.isa = isa;
        assert_int_equal(attn_plan_create(&plan, &s.problem, &s.tensors, &s.options, NULL), ATTN_OK);
        assert_int_equal(attn_plan_describe(plan, &d, NULL), ATTN_OK);
        assert_non_null(strstr(d.why, "; options.reproducible: the blocks and chains of every instruction set"));
        attn_plan_destroy(plan);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reproducible), cmocka_unit_test(test_invariant), cmocka_unit_test(test_gradients),
        cmocka_unit_test(test_tangents),     cmocka_unit_test(test_second),    cmocka_unit_test(test_heads),
        cmocka_unit_test(test_outputs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
