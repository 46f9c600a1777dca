/* SPDX-License-Identifier: MIT
 *
 * test_validate_scores.c - the rules of scores and masks: kinds, normalisers, biases by distance, relative terms, modifiers. */
#include "rejected.h"

#include <math.h>

static void test_options_of_scores(void **state)
{
    (void)state;
    REJECTED(
        s.problem.score.temperature = -1, ATTN_ERR_ARGUMENT,
        "score.temperature is -1; it must be above 0, and it and its reciprocal finite in the compute type (0 for the default, 1)");
    REJECTED(s.problem.score.temperature = INFINITY, ATTN_ERR_ARGUMENT,
             "score.temperature is inf; it must be above 0, and it and its reciprocal finite in the compute type (0 for the "
             "default, 1)");
    REJECTED((s.problem.score.scale_kind = ATTN_SCALE_VALUE, s.problem.score.scale = -1e30, s.problem.score.temperature = 1e-30),
             ATTN_ERR_ARGUMENT, "score.scale / score.temperature is -1e+30 / 1e-30; it must be finite in the compute type");
    REJECTED(s.problem.score.softcap = -0.5, ATTN_ERR_ARGUMENT,
             "score.softcap is -0.5; it must be above 0, and it and its reciprocal finite in the compute type (0 for none)");
    REJECTED(s.problem.mask.chunk = -3, ATTN_ERR_ARGUMENT, "mask.chunk is -3; it must be at least 1, or 0 for none");
    REJECTED(s.problem.mask.least_distance = -1, ATTN_ERR_ARGUMENT,
             "mask.least_distance is -1; it must be at least 1, or 0 for none");
    REJECTED(s.problem.mask.dilation = -2, ATTN_ERR_ARGUMENT, "mask.dilation is -2; it must be at least 1, or 0 for every key");
    REJECTED((s.problem.mask.global_q = 1, s.problem.mask.global_kv = -1), ATTN_ERR_ARGUMENT,
             "mask.global_q is 1 and mask.global_kv -1; both must be at least 0");
    REJECTED((s.tensors.block_mask = s.tensors.block_starts = s.tensors.block_index = attn_in(s.lengths_q),
              s.problem.mask.block_q = s.problem.mask.block_kv = 4),
             ATTN_ERR_ARGUMENT, "block_mask and block_starts are both set; set only one of them");
    REJECTED(s.problem.mask.block_entries = -1, ATTN_ERR_ARGUMENT, "mask.block_entries is -1; it must be at least 0");
    REJECTED((s.tensors.block_mask = attn_in(s.mask), s.problem.mask.block_q = 4), ATTN_ERR_ARGUMENT,
             "block_mask needs mask.block_q and mask.block_kv of at least 1; they are 4 and 0");
    REJECTED((s.problem.mask.empty = ATTN_EMPTY_UNIFORM, s.tensors.sink = attn_in(s.q)), ATTN_ERR_ARGUMENT,
             "mask.empty is uniform and sink is set; with a sink a fully masked row has all its weight on the sink");
    REJECTED(s.problem.dropout.probability = 1.5, ATTN_ERR_ARGUMENT, "dropout.probability is 1.5; it must be between 0 and 1");
    ACCEPTED((s.problem.score.temperature = 2, s.problem.score.softcap = 30, s.problem.mask.chunk = 2));
}

static void test_score_kinds(void **state)
{
    static const float w[64] = {0};
    (void)state;
#define KIND(which) (s.problem.score.kind = ATTN_SCORE_##which)
    ACCEPTED((KIND(GENERAL), s.tensors.score_matrix = attn_in(w)));
    ACCEPTED((KIND(METRIC), s.tensors.score_matrix = attn_in(w), s.problem.score.dim_metric = 2));
    ACCEPTED(KIND(COSINE));
    ACCEPTED(KIND(DISTANCE));
    ACCEPTED((KIND(ADDITIVE), s.tensors.score_matrix = attn_in(w)));
    ACCEPTED((KIND(ADDITIVE), s.tensors.score_matrix = attn_in(w), s.problem.score.additive_bias = 1));
    REJECTED(KIND(GENERAL), ATTN_ERR_ARGUMENT, "score_matrix is missing; score.kind is general");
    REJECTED((KIND(GENERAL), s.tensors.score_matrix = attn_in(NULL)), ATTN_ERR_ARGUMENT, "score_matrix is NULL");
    REJECTED((KIND(GENERAL), s.problem.score.dim_k = -1), ATTN_ERR_SHAPE, "score.dim_k (-1) is negative");
    REJECTED((KIND(COSINE), s.problem.score.dim_k = 8), ATTN_ERR_ARGUMENT,
             "score.dim_k is 8 and score.kind is cosine; only general allows keys of another width than queries");
    REJECTED((KIND(METRIC), s.problem.score.dim_metric = -2), ATTN_ERR_SHAPE, "score.dim_metric (-2) is negative");
    REJECTED(s.problem.score.dim_metric = 3, ATTN_ERR_ARGUMENT, "score.dim_metric is 3 and score.kind is dot; only metric has it");
    REJECTED((KIND(DISTANCE), s.tensors.score_matrix = attn_in(w)), ATTN_ERR_ARGUMENT,
             "score_matrix is set and score.kind is distance, which has none");
    REJECTED((KIND(METRIC), s.tensors.score_matrix = attn_in(w), s.problem.score.additive_bias = 1), ATTN_ERR_ARGUMENT,
             "score.additive_bias is set and score.kind is metric; only additive has biases");
    REJECTED((KIND(ADDITIVE), s.problem.op = ATTN_DOUBLE_BACKWARD), ATTN_ERR_UNSUPPORTED,
             "score.kind is additive and op is neither ATTN_FORWARD nor ATTN_BACKWARD; the other operations are for dot products "
             "only");
    REJECTED((small_backward(&s), s.tensors.grad_score_matrix = attn_out(s.weights)), ATTN_ERR_ARGUMENT,
             "grad_score_matrix is set and score_matrix is not");
    REJECTED((KIND(GENERAL), s.tensors.score_matrix = attn_in(w), s.tensors.grad_score_matrix = attn_out(s.grad_q)),
             ATTN_ERR_ARGUMENT, "grad_score_matrix is set; ATTN_FORWARD does not use it");
    ACCEPTED((KIND(GENERAL), s.tensors.score_matrix = attn_in(w),
              sets(s.tensors.score_matrix.stride, 0, SMALL_D * SMALL_D, SMALL_D, 1))); /* one for each head */
    REJECTED((KIND(GENERAL), s.problem.op = ATTN_JVP), ATTN_ERR_UNSUPPORTED,
             "score.kind is general and op is neither ATTN_FORWARD nor ATTN_BACKWARD; the other operations are for dot products "
             "only");
    REJECTED((KIND(COSINE), s.problem.paging.page_size = 2, s.tensors.page_table = attn_in(s.lengths_q)), ATTN_ERR_UNSUPPORTED,
             "page_table is set and score.kind is cosine; keys in pages can be scored by dot, general, metric and additive");
    REJECTED((KIND(GENERAL), s.tensors.score_matrix = attn_in(w), s.tensors.score_matrix.dtype = ATTN_I32), ATTN_ERR_UNSUPPORTED,
             "score_matrix.dtype is i32; it must be f32, f64, f16 or bf16");
    REJECTED((KIND(METRIC), s.tensors.score_matrix = attn_in(w), s.problem.score.dim_metric = INT64_MAX / 8), ATTN_ERR_SHAPE,
             "score.dim_metric (1152921504606846975) is more than 2^48, the most of any size");
}

static void test_normalisers(void **state)
{
    (void)state;
#define NORMALISER(which) (s.tensors.weights = (attn_output){0}, s.problem.score.normaliser = ATTN_NORMALISER_##which)
    ACCEPTED(NORMALISER(SOFTMAX_ONE));
    ACCEPTED((NORMALISER(SIGMOID), s.problem.score.shift = -2));
    ACCEPTED(NORMALISER(RELU));
    REJECTED(s.problem.score.normaliser = (attn_normaliser)4, ATTN_ERR_ARGUMENT,
             "score.normaliser is 4; known: 0 (softmax), 1 (softmax one), 2 (sigmoid), 3 (relu)");
    REJECTED((NORMALISER(SIGMOID), s.problem.score.shift = NAN), ATTN_ERR_ARGUMENT, "score.shift is nan; it must be finite");
    REJECTED((NORMALISER(RELU), s.problem.score.shift = 2), ATTN_ERR_ARGUMENT,
             "score.shift is 2 and score.normaliser is relu; only sigmoid has it");
    REJECTED((NORMALISER(SOFTMAX_ONE), s.tensors.sink = attn_in(s.q)), ATTN_ERR_ARGUMENT,
             "sink is set and score.normaliser is softmax one; a sink joins the denominator of softmax");
    REJECTED(
        (NORMALISER(SOFTMAX_ONE), s.problem.mask.empty = ATTN_EMPTY_UNIFORM), ATTN_ERR_ARGUMENT,
        "mask.empty is uniform and score.normaliser is softmax one; with a sink a fully masked row has all its weight on the sink");
    REJECTED((NORMALISER(SIGMOID), s.problem.op = ATTN_JVP), ATTN_ERR_UNSUPPORTED,
             "score.normaliser is sigmoid and op is neither ATTN_FORWARD nor ATTN_BACKWARD; the other operations are for softmax "
             "only");
    REJECTED((NORMALISER(RELU), s.problem.outputs.topk = 2, s.tensors.topk_weight = attn_out(s.weights)), ATTN_ERR_ARGUMENT,
             "topk_weight is set and score.normaliser is relu; it is for softmax only");
    REJECTED((NORMALISER(SIGMOID), s.problem.mask.empty = ATTN_EMPTY_UNIFORM), ATTN_ERR_ARGUMENT,
             "mask.empty is uniform and score.normaliser is sigmoid; it is for softmax only");
    REJECTED((small_backward(&s), NORMALISER(SIGMOID), s.tensors.grad_lse = attn_in(s.q)), ATTN_ERR_ARGUMENT,
             "grad_lse is set and score.normaliser is sigmoid; it is for softmax only");
    REJECTED((NORMALISER(RELU), s.tensors.entropy = attn_out(s.weights)), ATTN_ERR_ARGUMENT,
             "entropy is set and score.normaliser is relu; it is for softmax only");
}

static void test_bias_table(void **state)
{
    static const float table[SMALL_HQ * 32];
    static float gradient[SMALL_HQ * 32];
    (void)state;
#define TABLE(...) (s.problem.bias_table = (attn_bias_table){__VA_ARGS__}, s.tensors.bias_table = attn_in(table))
    ACCEPTED(TABLE(0));
    ACCEPTED((TABLE(.kind = ATTN_DISTANCE_CLIPPED, .max_distance = 4), sets(s.tensors.bias_table.stride, 0, 0, 1, 0))); /* shared */
    REJECTED(TABLE(.reserved = {0, 7}), ATTN_ERR_ARGUMENT, "bias_table.reserved[1] is 7; it must be 0");
    REJECTED(s.problem.bias_table.buckets = 32, ATTN_ERR_ARGUMENT, "bias_table has a rule but the tensor bias_table is not set");
    REJECTED((small_backward(&s), s.tensors.grad_bias_table = attn_out(gradient)), ATTN_ERR_ARGUMENT,
             "grad_bias_table is set and bias_table is not");
    REJECTED(TABLE(.kind = (attn_distance_kind)2), ATTN_ERR_ARGUMENT, "distance bias: kind is 2; known: 0 (T5), 1 (clipped)");
    REJECTED(TABLE(.causal = 2), ATTN_ERR_ARGUMENT, "bias_table.causal is 2; it must be 0 or 1");
    REJECTED(TABLE(.buckets = 5), ATTN_ERR_ARGUMENT, "distance bias: buckets is 5; it must be even and at least 4");
    REJECTED(TABLE(.max_distance = 8), ATTN_ERR_ARGUMENT,
             "distance bias: max_distance is 8; it must be above 8, the exact buckets");
    REJECTED(TABLE(.max_distance = 16777217), ATTN_ERR_ARGUMENT,
             "bias_table.max_distance is 16777217; it must be at most 16777216");
    REJECTED(TABLE(.max_distance = -1), ATTN_ERR_ARGUMENT, "distance bias: max_distance is -1; it must be between 0 and 2^61");
    REJECTED((TABLE(0), s.tensors.grad_bias_table = attn_out(gradient)), ATTN_ERR_ARGUMENT,
             "grad_bias_table is set; ATTN_FORWARD does not use it");
    REJECTED((TABLE(0), s.tensors.bias_table.dtype = ATTN_I32), ATTN_ERR_UNSUPPORTED,
             "bias_table.dtype is i32; it must be f32, f64, f16 or bf16");
    REJECTED((TABLE(0), s.tensors.bias_table = attn_in(NULL)), ATTN_ERR_ARGUMENT, "bias_table is NULL");
    REJECTED((TABLE(0), s.tensors.bias_table.data = (const char *)table + 2), ATTN_ERR_ARGUMENT,
             "bias_table is not aligned to its elements of 4 bytes");
    REJECTED((TABLE(0), small_backward(&s), s.tensors.grad_bias_table = attn_out(gradient),
              sets(s.tensors.grad_bias_table.stride, 0, 1, 0, 0)),
             ATTN_ERR_STRIDE, "grad_bias_table overlaps itself: stride[2] is 0 and the axes with smaller strides span 1 elements");
#undef TABLE
}

static void test_relative(void **state)
{
    static const float table[SMALL_HQ * 9 * SMALL_DV];
    (void)state;
#define RELATIVE(...)                                                                                                              \
    (s.problem.relative = (attn_relative){__VA_ARGS__}, s.tensors.relative_keys = attn_in(table),                                  \
     s.tensors.relative_values = attn_in(table + 1), s.tensors.relative_u = attn_in(table + 2),                                    \
     s.tensors.relative_v = attn_in(table + 3))
#define WITHOUT(name) s.tensors.relative_##name = (attn_input){0}
    ACCEPTED(RELATIVE(.first = -4, .rows = 9));
    ACCEPTED((RELATIVE(.first = 100, .rows = 1), WITHOUT(keys), WITHOUT(u), WITHOUT(v),
              sets(s.tensors.relative_values.stride, 0, 0, SMALL_DV, 1))); /* shared */
    REJECTED((RELATIVE(.rows = 9), sets(s.tensors.relative_values.stride, 0, 0, SMALL_DV, 1)), ATTN_ERR_UNSUPPORTED,
             "one of relative_keys and relative_values is shared by the heads and the other is not");
    REJECTED(RELATIVE(.rows = 9, .reserved = {1}), ATTN_ERR_ARGUMENT, "relative.reserved[0] is 1; it must be 0");
    REJECTED((RELATIVE(.rows = 9), WITHOUT(keys), WITHOUT(v)), ATTN_ERR_ARGUMENT, "relative_u is set and relative_keys is not");
    REJECTED((RELATIVE(.rows = 9), WITHOUT(keys), WITHOUT(u), WITHOUT(values)), ATTN_ERR_ARGUMENT,
             "relative_v is set and relative_keys is not");
    REJECTED(s.problem.relative.rows = 9, ATTN_ERR_ARGUMENT,
             "relative.rows is 9 and relative.first 0 but neither relative_keys nor relative_values is set");
    REJECTED(RELATIVE(0), ATTN_ERR_SHAPE, "relative.rows is 0; it must be between 1 and 2^40");
    REJECTED(RELATIVE(.rows = 9, .first = INT64_MIN), ATTN_ERR_ARGUMENT,
             "relative.first is -9223372036854775808; it must be between -2^40 and 2^40");
    REJECTED((RELATIVE(.rows = 9), s.problem.op = ATTN_JVP), ATTN_ERR_UNSUPPORTED,
             "relative_keys is set and op is neither ATTN_FORWARD nor ATTN_BACKWARD");
    REJECTED((RELATIVE(.rows = 9), WITHOUT(keys), WITHOUT(u), WITHOUT(v), s.problem.score.kind = ATTN_SCORE_COSINE),
             ATTN_ERR_UNSUPPORTED, "relative_values is set and score.kind is cosine; relative terms are for dot products only");
    REJECTED((small_backward(&s), s.tensors.grad_relative_u = attn_out(s.weights)), ATTN_ERR_ARGUMENT,
             "grad_relative_u is set and relative_u is not");
    REJECTED((RELATIVE(.rows = 9), s.tensors.grad_relative_keys = attn_out(s.grad_q)), ATTN_ERR_ARGUMENT,
             "grad_relative_keys is set; ATTN_FORWARD does not use it");
    REJECTED((RELATIVE(.rows = 9), sets(s.tensors.relative_keys.stride, 0, 0, 8, 2)), ATTN_ERR_STRIDE,
             "relative_keys.stride[3] is 2; the last axis must be contiguous (1)");
    REJECTED((RELATIVE(.rows = 9), s.tensors.relative_keys = attn_in(NULL)), ATTN_ERR_ARGUMENT, "relative_keys is NULL");
#undef WITHOUT
#undef RELATIVE
}

static void no_modifier(void *context, const attn_score_tile *tile) { (void)context, (void)tile; }

/* The same for double backward, whose outputs are ATTN_LATER. */
static void small_second(small *s)
{
    small_backward(s);
    s->problem.op = ATTN_DOUBLE_BACKWARD;
    s->tensors.grad_q = s->tensors.grad_k = s->tensors.grad_v = (attn_output){0};
    s->tensors.second_grad_o = s->tensors.second_q = s->tensors.second_k = s->tensors.second_v = attn_out(ATTN_LATER);
}

static void test_modifier(void **state)
{
    (void)state;
#define MODIFIER (s.tensors.call = &s.call, s.call.modify_scores = no_modifier)
    ACCEPTED(MODIFIER);
    ACCEPTED((small_backward(&s), MODIFIER, s.call.modify_slopes = no_modifier));
    REJECTED((s.tensors.call = &s.call, s.call.modify_slopes = no_modifier), ATTN_ERR_ARGUMENT,
             "call.modify_slopes is set and call.modify_scores is NULL");
    REJECTED((small_second(&s), MODIFIER), ATTN_ERR_UNSUPPORTED,
             "ATTN_DOUBLE_BACKWARD does not support this: the caller modifies scores");
    REJECTED((small_backward(&s), MODIFIER), ATTN_ERR_ARGUMENT,
             "call.modify_scores is set and call.modify_slopes is NULL; the derivatives need it");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_options_of_scores), cmocka_unit_test(test_score_kinds), cmocka_unit_test(test_normalisers),
        cmocka_unit_test(test_bias_table),        cmocka_unit_test(test_relative),    cmocka_unit_test(test_modifier),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
