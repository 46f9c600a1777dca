/* SPDX-License-Identifier: MIT
 *
 * test_validate.c - every rule of src/core/plan: what breaks it, the status, and the exact message.  tools/check_messages.py fails
 * when a message of src/core/plan or src/core/api is in no test.
 */
#include "small.h"

#include <math.h>

/* Plans and executes; the first that refuses tells why. */
static attn_status attempt(small *s, attn_error *error)
{
    attn_plan *plan = (attn_plan *)s; /* must become NULL on failure */
    attn_status status = attn_plan_create(&plan, &s->problem, &s->options, error);
    if (status != ATTN_OK) {
        assert_null(plan);
        return status;
    }
    size_t size = attn_plan_workspace_size(plan);
    void *workspace = malloc(size + 1);
    assert_non_null(workspace);
    status = attn_execute(plan, &s->args, workspace, size, error);
    free(workspace);
    attn_plan_destroy(plan);
    return status;
}

static void expect(small *s, attn_status status, const char *message, int line)
{
    static const attn_options defaults = {.struct_size = sizeof(attn_options)};
    attn_error error;
    attn_status got = attempt(s, &error);
    if (got != status || error.status != status || strcmp(error.message, message) != 0)
        fail_msg("line %d:\n  expected status %d: %s\n  got status %d: %s", line, (int)status, message, (int)got, error.message);
    assert_int_equal(attempt(s, NULL), status);
    if (memcmp(&s->options, &defaults, sizeof defaults) == 0) {
        assert_int_equal(attn_forward(&s->problem, &s->args, &error), status);
        assert_string_equal(error.message, message);
    }
    if (!small_holds_only(s->guard, sizeof s->guard, UNTOUCHED)) fail_msg("line %d: written behind the outputs", line);
    if (status != ATTN_OK && !small_outputs_untouched(s)) fail_msg("line %d: an output was written", line);
}

/* One row of the table: after `change`, a sound call is refused. */
#define REFUSED(change, status, message)                                                                                           \
    do {                                                                                                                           \
        small s;                                                                                                                   \
        small_init(&s);                                                                                                            \
        change;                                                                                                                    \
        expect(&s, status, message, __LINE__);                                                                                     \
    } while (0)

/* Rows that a rule must let pass. */
#define ACCEPTED(change) REFUSED(change, ATTN_OK, "")

static void sets(int64_t stride[4], int64_t b, int64_t h, int64_t t, int64_t c)
{
    stride[0] = b, stride[1] = h, stride[2] = t, stride[3] = c;
}

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

/* A sound call of backward: the outputs of forward are inputs, and there are no weights. */
static void backward(small *s)
{
    s->problem.op = ATTN_BACKWARD;
    s->problem.want.weights = 0;
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

static void test_paged(void **state)
{
    static const int64_t table[4] = {0, 1, 2, 7};
    (void)state;
#define PAGED(size, count)                                                                                                         \
    (s.problem.paging.paged = 1, s.problem.paging.page_size = (size), s.problem.paging.pages = (count), s.args.page_table = table)
    REFUSED(s.problem.paging.paged = 2, ATTN_ERR_ARGUMENT, "paging.paged is 2; it is 0 or 1");
    REFUSED(s.problem.paging.reserved[2] = 1, ATTN_ERR_ARGUMENT, "paging.reserved[2] is 1; it must be 0");
    REFUSED((backward(&s), PAGED(3, 3)), ATTN_ERR_UNSUPPORTED,
            "paging.paged is set and op is not ATTN_FORWARD; gradients of pages are not there");
    REFUSED((PAGED(3, 3), s.problem.mask.packed = 1, s.problem.mask.lengths_q = s.problem.mask.lengths_kv = 0), ATTN_ERR_ARGUMENT,
            "paging.paged and mask.packed are both set; keys are either in pages or packed");
    REFUSED(PAGED(0, 3), ATTN_ERR_ARGUMENT, "paging.page_size is 0; it is at least 1");
    REFUSED(PAGED(3, -1), ATTN_ERR_ARGUMENT, "paging.pages is -1; it is at least 0");
    REFUSED((PAGED(3, 3), s.problem.paging.table_stride = 1), ATTN_ERR_ARGUMENT,
            "paging.table_stride is 1; len_kv (5) in pages of 3 needs 2");
    REFUSED((PAGED(3, 2), s.problem.mask.lengths_kv = 0), ATTN_ERR_ARGUMENT,
            "page 0 of batch entry 1 is 2 in page_table; there are 2 pages");
    REFUSED((PAGED(3, 3), s.args.page_table = NULL), ATTN_ERR_ARGUMENT, "args.page_table is NULL");
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

static void test_packed(void **state)
{
    static const int64_t late[] = {1, 2, 3}, falling[] = {0, 2, 1}, far[] = {0, 1, 99}, sound[] = {0, 1, 2}, none[] = {0, 0, 0},
                         full[] = {0, 3, 6};
    (void)state;
#define PACKED(q, kv)                                                                                                              \
    (s.problem.mask.packed = 1, s.problem.mask.lengths_q = s.problem.mask.lengths_kv = 0, s.args.cu_seqlens_q = (q),               \
     s.args.cu_seqlens_kv = (kv))
    REFUSED(PACKED(late, sound), ATTN_ERR_ARGUMENT, "cu_seqlens_q[0] (1) is not 0");
    REFUSED(PACKED(sound, falling), ATTN_ERR_ARGUMENT, "cu_seqlens_kv[2] (1) is not within 0..5 behind its predecessor (2)");
    REFUSED(PACKED(far, sound), ATTN_ERR_ARGUMENT, "cu_seqlens_q[2] (99) is not within 0..3 behind its predecessor (1)");
    REFUSED(PACKED(NULL, sound), ATTN_ERR_ARGUMENT, "args.cu_seqlens_q is NULL");
    REFUSED((PACKED(sound, sound), s.problem.shape.heads_q = INT64_C(1) << 32, s.problem.shape.heads_kv = 1,
             s.problem.shape.dim_qk = INT64_C(1) << 31, s.problem.shape.len_q = 0),
            ATTN_ERR_SHAPE, "q has rows of more elements than 64 bits count");
    ACCEPTED(PACKED(sound, sound));
    /* Whether [head, token, channel] overlaps depends on the tokens that there are, 2, and not on len_q, 3. */
    ACCEPTED((PACKED(sound, sound), sets(s.problem.o.stride, 0, 2 * SMALL_DV, SMALL_DV, 1)));
    REFUSED((PACKED(sound, sound), sets(s.problem.o.stride, 0, 2 * SMALL_DV - 1, SMALL_DV, 1)), ATTN_ERR_STRIDE,
            "o overlaps itself: stride[1] is 11 and the axes with smaller strides span 12 elements");
    REFUSED((PACKED(full, sound), sets(s.problem.q.stride, 0, 1, INT64_MAX / 12, 1)), ATTN_ERR_SHAPE,
            "q.stride[2] (768614336404564650) times its size (6) overflows 64-bit addresses");
    ACCEPTED((PACKED(none, none), sets(s.problem.o.stride, 0, 0, SMALL_DV, 1), s.args.o = NULL));
    ACCEPTED((PACKED(none, none), s.problem.shape.batch = 0, s.args.o = s.args.lse = NULL));
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

static void test_pointers(void **state)
{
    (void)state;
    REFUSED(s.args.q = NULL, ATTN_ERR_ARGUMENT, "args.q is NULL");
    REFUSED(s.args.k = NULL, ATTN_ERR_ARGUMENT, "args.k is NULL");
    REFUSED(s.args.v = NULL, ATTN_ERR_ARGUMENT, "args.v is NULL");
    REFUSED(s.args.o = NULL, ATTN_ERR_ARGUMENT, "args.o is NULL");
    REFUSED(s.args.mask = NULL, ATTN_ERR_ARGUMENT, "args.mask is NULL");
    REFUSED(s.args.bias = NULL, ATTN_ERR_ARGUMENT, "args.bias is NULL");
    REFUSED(s.args.lse = NULL, ATTN_ERR_ARGUMENT, "args.lse is NULL");
    REFUSED(s.args.weights = NULL, ATTN_ERR_ARGUMENT, "args.weights is NULL");
    REFUSED(s.args.lengths_q = NULL, ATTN_ERR_ARGUMENT, "args.lengths_q is NULL");
    REFUSED(s.args.lengths_kv = NULL, ATTN_ERR_ARGUMENT, "args.lengths_kv is NULL");
    REFUSED(s.args.offset = NULL, ATTN_ERR_ARGUMENT, "args.offset is NULL");
    REFUSED(s.args.k = (char *)s.k + 2, ATTN_ERR_ARGUMENT, "args.k is not aligned to its elements of 4 bytes");
    REFUSED(s.args.offset = (char *)s.offset + 4, ATTN_ERR_ARGUMENT, "args.offset is not aligned to its elements of 8 bytes");
    REFUSED(s.args.o = s.v, ATTN_ERR_ARGUMENT, "args.o and args.v are the same pointer; outputs overlap nothing");
    REFUSED(s.args.lse = s.weights, ATTN_ERR_ARGUMENT, "args.lse and args.weights are the same pointer; outputs overlap nothing");
    REFUSED(s.args.weights = s.bias, ATTN_ERR_ARGUMENT, "args.weights and args.bias are the same pointer; outputs overlap nothing");
    ACCEPTED(s.args.k = s.args.q); /* inputs may be one another */
}

static void test_lengths(void **state)
{
    (void)state;
    REFUSED(s.lengths_q[0] = 4, ATTN_ERR_ARGUMENT, "lengths_q[0] (4) is not within 0..3");
    REFUSED(s.lengths_q[1] = -1, ATTN_ERR_ARGUMENT, "lengths_q[1] (-1) is not within 0..3");
    REFUSED(s.lengths_kv[1] = 6, ATTN_ERR_ARGUMENT, "lengths_kv[1] (6) is not within 0..5");
    REFUSED((s.problem.mask.index_dtype = ATTN_I32, s.args.lengths_kv = memcpy(s.lengths_kv, (int32_t[]){5, -7}, 8),
             s.args.lengths_q = memcpy(s.lengths_q, (int32_t[]){3, 0}, 8)),
            ATTN_ERR_ARGUMENT, "lengths_kv[1] (-7) is not within 0..5");
    ACCEPTED((s.lengths_q[0] = 0, s.lengths_kv[1] = 0, s.offset[0] = INT64_MIN, s.offset[1] = INT64_MAX));
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

/* Blocks of two queries and two keys: lists for queries 0, 1 and for query 2, of the blocks 0, 1 and 2. */
static void test_block_lists(void **state)
{
    (void)state;
    static const int64_t rows[] = {0, 2, 3}, late[] = {1, 2, 3}, falling[] = {0, 2, 1}, far[] = {0, 2, 4};
    static const int64_t columns[] = {0, 2, 1}, again[] = {0, 0, 1}, beyond[] = {0, 3, 1}, below[] = {-1, 0, 1};
#define LISTS(r, c)                                                                                                                \
    (s.problem.mask.block_lists = 1, s.problem.mask.block_q = s.problem.mask.block_kv = 2, s.problem.mask.block_entries = 3,       \
     s.args.block_rows = (r), s.args.block_columns = (c))
    ACCEPTED(LISTS(rows, columns));
    REFUSED(LISTS(late, columns), ATTN_ERR_ARGUMENT, "block_rows[0] (1) is not 0");
    REFUSED(LISTS(falling, columns), ATTN_ERR_ARGUMENT,
            "block_rows[2] (1) is not within its predecessor (2) and block_entries (3)");
    REFUSED(LISTS(far, columns), ATTN_ERR_ARGUMENT, "block_rows[2] (4) is not within its predecessor (2) and block_entries (3)");
    REFUSED(LISTS(rows, again), ATTN_ERR_ARGUMENT,
            "block_columns[1] (0) is not above its predecessor in the list and below 3, the blocks of keys");
    REFUSED(LISTS(rows, beyond), ATTN_ERR_ARGUMENT,
            "block_columns[1] (3) is not above its predecessor in the list and below 3, the blocks of keys");
    REFUSED(LISTS(rows, below), ATTN_ERR_ARGUMENT,
            "block_columns[0] (-1) is not above its predecessor in the list and below 3, the blocks of keys");
    REFUSED(LISTS(NULL, columns), ATTN_ERR_ARGUMENT, "args.block_rows is NULL");
    REFUSED(LISTS(rows, NULL), ATTN_ERR_ARGUMENT, "args.block_columns is NULL");
    REFUSED(s.problem.mask.ranges = 1, ATTN_ERR_ARGUMENT, "args.ranges is NULL");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_block_lists), cmocka_unit_test(test_sound),
        cmocka_unit_test(test_enums),       cmocka_unit_test(test_flags),
        cmocka_unit_test(test_bias_table),  cmocka_unit_test(test_modifier),
        cmocka_unit_test(test_relative),    cmocka_unit_test(test_reserved),
        cmocka_unit_test(test_shape),       cmocka_unit_test(test_options_of_scores),
        cmocka_unit_test(test_score_kinds), cmocka_unit_test(test_normalisers),
        cmocka_unit_test(test_gradients),   cmocka_unit_test(test_packed),
        cmocka_unit_test(test_want),        cmocka_unit_test(test_values),
        cmocka_unit_test(test_types),       cmocka_unit_test(test_strides),
        cmocka_unit_test(test_too_large),   cmocka_unit_test(test_options),
        cmocka_unit_test(test_pointers),    cmocka_unit_test(test_lengths),
        cmocka_unit_test(test_unused),      cmocka_unit_test(test_tangents),
        cmocka_unit_test(test_second),      cmocka_unit_test(test_paged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
