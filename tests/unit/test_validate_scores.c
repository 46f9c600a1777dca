/* SPDX-License-Identifier: MIT
 *
 * test_validate_scores.c - the rules of scores and masks: kinds, normalisers, biases by distance, relative terms, modifiers. */
#include "refused.h"

#include <math.h>

static void test_options_of_scores(void **state)
{
    (void)state;
    REFUSED(s.problem.score.temperature = -1, ATTN_ERR_ARGUMENT,
            "score.temperature is -1; it must be above 0 and finite (0 for the default, 1)");
    REFUSED(s.problem.score.temperature = INFINITY, ATTN_ERR_ARGUMENT,
            "score.temperature is inf; it must be above 0 and finite (0 for the default, 1)");
    REFUSED(s.problem.score.softcap = -0.5, ATTN_ERR_ARGUMENT, "score.softcap is -0.5; it must be above 0 and finite (0 for none)");
    REFUSED(s.problem.mask.chunk = -3, ATTN_ERR_ARGUMENT, "mask.chunk is -3; it is at least 1, or 0 for none");
    REFUSED(s.problem.mask.packed = 1, ATTN_ERR_ARGUMENT,
            "mask.packed and mask.lengths_q are both set; packed sequences have their lengths from cu_seqlens");
    REFUSED((s.problem.mask.packed = 1, s.problem.mask.lengths_q = 0), ATTN_ERR_ARGUMENT,
            "mask.packed and mask.lengths_kv are both set; packed sequences have their lengths from cu_seqlens");
    REFUSED(s.problem.mask.dilation = -2, ATTN_ERR_ARGUMENT, "mask.dilation is -2; it is at least 1, or 0 for every key");
    REFUSED((s.problem.mask.global_q = 1, s.problem.mask.global_kv = -1), ATTN_ERR_ARGUMENT,
            "mask.global_q is 1 and mask.global_kv -1; both are at least 0");
    REFUSED((s.problem.mask.block = s.problem.mask.block_lists = 1), ATTN_ERR_ARGUMENT,
            "mask.block and mask.block_lists are both set; a block mask is given in one form");
    REFUSED((s.problem.mask.block_lists = 1, s.problem.mask.block_entries = -1), ATTN_ERR_ARGUMENT,
            "mask.block_entries is -1; it is at least 0");
    REFUSED((s.problem.mask.block = 1, s.problem.mask.block_q = 4), ATTN_ERR_ARGUMENT,
            "mask.block_q is 4 and mask.block_kv 0; with a block mask both are at least 1");
    REFUSED((s.problem.mask.empty = ATTN_EMPTY_UNIFORM, s.problem.bias.sink = 1), ATTN_ERR_ARGUMENT,
            "mask.empty is uniform and bias.sink is set; with a sink an empty row has all its weight on the sink");
    REFUSED(s.problem.dropout.probability = 1.5, ATTN_ERR_ARGUMENT, "dropout.probability is 1.5; it is within 0..1");
    ACCEPTED((s.problem.score.temperature = 2, s.problem.score.softcap = 30, s.problem.mask.chunk = 2));
}

static void test_score_kinds(void **state)
{
    static const float w[64] = {0};
    (void)state;
#define KIND(which) (s.problem.score.kind = ATTN_SCORE_##which)
    ACCEPTED((KIND(GENERAL), s.args.w = w));
    ACCEPTED((KIND(METRIC), s.args.w = w, s.problem.score.dim_metric = 2));
    ACCEPTED(KIND(COSINE));
    ACCEPTED(KIND(DISTANCE));
    ACCEPTED((KIND(ADDITIVE), s.args.w = w));
    ACCEPTED((KIND(ADDITIVE), s.args.w = w, s.problem.score.w_bias = 1));
    REFUSED(KIND(GENERAL), ATTN_ERR_ARGUMENT, "args.w is NULL");
    REFUSED((KIND(GENERAL), s.problem.score.dim_k = -1), ATTN_ERR_SHAPE, "score.dim_k (-1) is negative");
    REFUSED((KIND(COSINE), s.problem.score.dim_k = 8), ATTN_ERR_ARGUMENT,
            "score.dim_k is 8 and score.kind is cosine; only with general do keys have other channels than queries");
    REFUSED((KIND(METRIC), s.problem.score.dim_metric = -2), ATTN_ERR_SHAPE, "score.dim_metric (-2) is negative");
    REFUSED(s.problem.score.dim_metric = 3, ATTN_ERR_ARGUMENT, "score.dim_metric is 3 and score.kind is dot; only metric has it");
    REFUSED((KIND(DISTANCE), s.problem.score.w_heads = 1), ATTN_ERR_ARGUMENT,
            "score.w_heads is set and score.kind is distance, which has no w");
    REFUSED((KIND(METRIC), s.args.w = w, s.problem.score.w_bias = 1), ATTN_ERR_ARGUMENT,
            "score.w_bias is set and score.kind is metric; only additive has biases");
    REFUSED((KIND(ADDITIVE), s.problem.op = ATTN_DOUBLE_BACKWARD), ATTN_ERR_UNSUPPORTED,
            "score.kind is additive and op is neither ATTN_FORWARD nor ATTN_BACKWARD; the other operations are there for dot "
            "products");
    REFUSED((KIND(GENERAL), s.problem.score.w_heads = 2), ATTN_ERR_ARGUMENT, "score.w_heads is 2; it is 0 or 1");
    REFUSED((backward(&s), s.problem.gradients.w = 1), ATTN_ERR_ARGUMENT,
            "gradients.w is set and score.kind is dot, which has no w");
    REFUSED((KIND(GENERAL), s.problem.gradients.w = 1), ATTN_ERR_ARGUMENT, "gradients are asked for but op is not ATTN_BACKWARD");
    REFUSED((KIND(GENERAL), s.problem.op = ATTN_JVP), ATTN_ERR_UNSUPPORTED,
            "score.kind is general and op is neither ATTN_FORWARD nor ATTN_BACKWARD; the other operations are there for dot "
            "products");
    REFUSED((KIND(COSINE), s.problem.paging.paged = 1), ATTN_ERR_UNSUPPORTED,
            "paging.paged is set and score.kind is cosine; keys in pages can be scored by dot, general, metric and additive");
    REFUSED((KIND(GENERAL), s.problem.score.w.dtype = ATTN_I32, s.args.w = w), ATTN_ERR_UNSUPPORTED,
            "w.dtype is i32; it must be f32, f64, f16 or bf16");
    REFUSED((KIND(METRIC), s.args.w = w, s.problem.score.dim_metric = INT64_MAX / 8), ATTN_ERR_SHAPE,
            "w.stride[2] (4) times its size (1152921504606846975) overflows 64-bit addresses");
}

static void test_normalisers(void **state)
{
    (void)state;
#define NORMALISER(which) (s.problem.want.weights = 0, s.problem.score.normaliser = ATTN_NORMALISER_##which)
    ACCEPTED(NORMALISER(SOFTMAX_ONE));
    ACCEPTED((NORMALISER(SIGMOID), s.problem.score.shift = -2));
    ACCEPTED(NORMALISER(RELU));
    REFUSED(s.problem.score.normaliser = (attn_normaliser)4, ATTN_ERR_ARGUMENT,
            "score.normaliser is 4; known: 0 (softmax), 1 (softmax one), 2 (sigmoid), 3 (relu)");
    REFUSED((NORMALISER(SIGMOID), s.problem.score.shift = NAN), ATTN_ERR_ARGUMENT, "score.shift is nan; it must be finite");
    REFUSED((NORMALISER(RELU), s.problem.score.shift = 2), ATTN_ERR_ARGUMENT,
            "score.shift is 2 and score.normaliser is relu; only sigmoid has it");
    REFUSED((NORMALISER(SOFTMAX_ONE), s.problem.bias.sink = 1), ATTN_ERR_ARGUMENT,
            "bias.sink is set and score.normaliser is softmax one; a sink joins the denominator of softmax");
    REFUSED((NORMALISER(SOFTMAX_ONE), s.problem.mask.empty = ATTN_EMPTY_UNIFORM), ATTN_ERR_ARGUMENT,
            "mask.empty is uniform and score.normaliser is softmax one; with a sink an empty row has all its weight on the sink");
    REFUSED((NORMALISER(SIGMOID), s.problem.op = ATTN_JVP), ATTN_ERR_UNSUPPORTED,
            "score.normaliser is sigmoid and op is neither ATTN_FORWARD nor ATTN_BACKWARD; the other operations are there for "
            "softmax");
    REFUSED((NORMALISER(RELU), s.problem.want.topk = 2), ATTN_ERR_ARGUMENT,
            "want.topk is asked for and score.normaliser is relu; it is a matter of softmax");
    REFUSED((NORMALISER(SIGMOID), s.problem.mask.empty = ATTN_EMPTY_UNIFORM), ATTN_ERR_ARGUMENT,
            "mask.empty uniform is asked for and score.normaliser is sigmoid; it is a matter of softmax");
}

static void test_bias_table(void **state)
{
    static const float table[SMALL_HQ * 32];
    static float gradient[SMALL_HQ * 32];
    (void)state;
#define TABLE(...) (s.problem.bias_table = (attn_bias_table){__VA_ARGS__}, s.args.bias_table = table)
    ACCEPTED(TABLE(.used = 1));
    ACCEPTED(TABLE(.used = 1, .kind = ATTN_DISTANCE_CLIPPED, .max_distance = 4, .shared = 1));
    REFUSED(TABLE(.used = 2), ATTN_ERR_ARGUMENT, "bias_table.used is 2; it is 0 or 1");
    REFUSED(TABLE(.used = 1, .shared = 2), ATTN_ERR_ARGUMENT, "bias_table.shared is 2; it is 0 or 1");
    REFUSED((TABLE(.used = 1), backward(&s), s.problem.gradients.bias_table = 3), ATTN_ERR_ARGUMENT,
            "gradients.bias_table is 3; it is 0 or 1");
    REFUSED(TABLE(.used = 1, .reserved = {0, 7}), ATTN_ERR_ARGUMENT, "bias_table.reserved[1] is 7; it must be 0");
    REFUSED(TABLE(.shared = 1), ATTN_ERR_ARGUMENT, "bias_table.shared is set but bias_table.used is not");
    REFUSED((backward(&s), s.problem.gradients.bias_table = 1), ATTN_ERR_ARGUMENT,
            "gradients.bias_table is set but bias_table.used is not");
    REFUSED(TABLE(.used = 1, .kind = (attn_distance_kind)2), ATTN_ERR_ARGUMENT,
            "distance bias: kind is 2; known: 0 (T5), 1 (clipped)");
    REFUSED(TABLE(.used = 1, .causal = 2), ATTN_ERR_ARGUMENT, "distance bias: causal is 2; it is 0 or 1");
    REFUSED(TABLE(.used = 1, .buckets = 5), ATTN_ERR_ARGUMENT, "distance bias: buckets is 5; it is even and at least 4");
    REFUSED(TABLE(.used = 1, .max_distance = 8), ATTN_ERR_ARGUMENT,
            "distance bias: max_distance is 8; it is above 8, the exact buckets");
    REFUSED(TABLE(.used = 1, .max_distance = 16777217), ATTN_ERR_ARGUMENT,
            "bias_table.max_distance is 16777217; in the walk over tiles it is at most 16777216");
    REFUSED(TABLE(.used = 1, .max_distance = -1), ATTN_ERR_ARGUMENT, "distance bias: max_distance is -1; it is within 0..2^61");
    REFUSED((TABLE(.used = 1), s.problem.gradients.bias_table = 1), ATTN_ERR_ARGUMENT,
            "gradients are asked for but op is not ATTN_BACKWARD");
    REFUSED(TABLE(.used = 1, .table.dtype = ATTN_I32), ATTN_ERR_UNSUPPORTED,
            "bias_table.dtype is i32; it must be f32, f64, f16 or bf16");
    REFUSED((TABLE(.used = 1), s.args.bias_table = NULL), ATTN_ERR_ARGUMENT, "args.bias_table is NULL");
    REFUSED((TABLE(.used = 1), s.args.bias_table = (const char *)table + 2), ATTN_ERR_ARGUMENT,
            "args.bias_table is not aligned to its elements of 4 bytes");
    REFUSED((TABLE(.used = 1), backward(&s), s.problem.gradients.bias_table = 1,
             sets(s.problem.gradients.grad_bias_table.stride, 0, 1, 0, 0), s.args.grad_bias_table = gradient),
            ATTN_ERR_STRIDE, "grad_bias_table overlaps itself: stride[2] is 0 and the axes with smaller strides span 1 elements");
#undef TABLE
}

static void test_relative(void **state)
{
    static const float table[SMALL_HQ * 9 * SMALL_DV];
    (void)state;
#define RELATIVE(...)                                                                                                              \
    (s.problem.relative = (attn_relative){__VA_ARGS__}, s.args.relative_keys = table, s.args.relative_values = table + 1,          \
     s.args.relative_u = table + 2, s.args.relative_v = table + 3)
    ACCEPTED(RELATIVE(.keys = 1, .values = 1, .u = 1, .v = 1, .first = -4, .rows = 9));
    ACCEPTED(RELATIVE(.values = 1, .shared = 1, .first = 100, .rows = 1));
    REFUSED(RELATIVE(.keys = 2, .rows = 9), ATTN_ERR_ARGUMENT, "relative.keys is 2; it is 0 or 1");
    REFUSED(RELATIVE(.keys = 1, .rows = 9, .reserved = {1}), ATTN_ERR_ARGUMENT, "relative.reserved[0] is 1; it must be 0");
    REFUSED(RELATIVE(.values = 1, .u = 1, .rows = 9), ATTN_ERR_ARGUMENT, "relative.u is set but relative.keys is not");
    REFUSED(RELATIVE(.v = 1, .rows = 9), ATTN_ERR_ARGUMENT, "relative.v is set but relative.keys is not");
    REFUSED(RELATIVE(.keys = 1), ATTN_ERR_SHAPE, "relative.rows is 0; it is within 1..2^40");
    REFUSED(RELATIVE(.keys = 1, .rows = 9, .first = INT64_MIN), ATTN_ERR_ARGUMENT,
            "relative.first is -9223372036854775808; it is within -2^40..2^40");
    REFUSED((RELATIVE(.keys = 1, .rows = 9), s.problem.op = ATTN_JVP), ATTN_ERR_UNSUPPORTED,
            "relative.keys is set and op is neither ATTN_FORWARD nor ATTN_BACKWARD");
    REFUSED((RELATIVE(.values = 1, .rows = 9), s.problem.score.kind = ATTN_SCORE_COSINE), ATTN_ERR_UNSUPPORTED,
            "relative.values is set and score.kind is cosine; relative terms are there for dot products");
    REFUSED((backward(&s), s.problem.gradients.relative = 1), ATTN_ERR_ARGUMENT,
            "gradients.relative is set but neither relative.keys nor relative.values is");
    REFUSED((RELATIVE(.keys = 1, .rows = 9), s.problem.gradients.relative = 1), ATTN_ERR_ARGUMENT,
            "gradients are asked for but op is not ATTN_BACKWARD");
    REFUSED(RELATIVE(.keys = 1, .rows = 9, .keys_table.stride = {0, 0, 8, 2}), ATTN_ERR_STRIDE,
            "relative_keys.stride[3] is 2; the last axis must be contiguous (1)");
    REFUSED((RELATIVE(.keys = 1, .rows = 9), s.args.relative_keys = NULL), ATTN_ERR_ARGUMENT, "args.relative_keys is NULL");
#undef RELATIVE
}

static void no_modifier(void *context, const attn_score_tile *tile) { (void)context, (void)tile; }

static void test_modifier(void **state)
{
    (void)state;
    ACCEPTED((s.problem.modifier.used = 1, s.args.modify_scores = no_modifier));
    REFUSED(s.problem.modifier.used = 2, ATTN_ERR_ARGUMENT, "modifier.used is 2; it is 0 or 1");
    REFUSED(s.problem.modifier.reserved[3] = 1, ATTN_ERR_ARGUMENT, "modifier.reserved[3] is 1; it must be 0");
    REFUSED(s.problem.modifier.used = 1, ATTN_ERR_ARGUMENT, "modifier.used is set but args.modify_scores is NULL");
    REFUSED((s.problem.modifier.used = 1, s.problem.op = ATTN_DOUBLE_BACKWARD), ATTN_ERR_UNSUPPORTED,
            "modifier.used is set and op is ATTN_DOUBLE_BACKWARD; a modifier tells no second derivative");
    REFUSED((backward(&s), s.problem.modifier.used = 1, s.args.modify_scores = no_modifier, s.args.grad_o = s.q,
             s.args.grad_q = s.guard, s.args.grad_k = s.guard + 4, s.args.grad_v = s.guard + 8),
            ATTN_ERR_ARGUMENT, "modifier.used is set but args.modify_slopes is NULL; the derivatives need it");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_options_of_scores), cmocka_unit_test(test_score_kinds), cmocka_unit_test(test_normalisers),
        cmocka_unit_test(test_bias_table),        cmocka_unit_test(test_relative),    cmocka_unit_test(test_modifier),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
