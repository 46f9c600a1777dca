/* SPDX-License-Identifier: MIT
 *
 * adapters.c - the names that each suite uses, and their meaning.
 *
 * A case with a suite, operation, attribute or tensor that is in no table is skipped; nothing is silently ignored.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "translate.h"

#define END                                                                                                                        \
    {                                                                                                                              \
        0                                                                                                                          \
    }

/* ---- torch: scaled_dot_product_attention ---- */

static const param_rule torch_params[] = {
    {"is_causal", param_causal},  {"scale", param_scale},   {"enable_gqa", param_ignore}, /* only states that heads_q != heads_kv is
                                                                                           * intended
                                                                                           */
    {"mask_kind", param_ignore},                                                          /* follows from the mask's type */
    {"dropout_p", param_dropout}, {"layout", param_layout}, {"causal_alignment", param_alignment}, END,
};

static const tensor_rule torch_tensors[] = {
    {"in.query", ROLE_Q},
    {"in.key", ROLE_K},
    {"in.value", ROLE_V},
    {"in.attn_mask", ROLE_MASK},
    {"in.grad_output", ROLE_FLOW + TENSOR(grad_o)},
    {"out.output", ROLE_O},
    {"out.grad_query", ROLE_FLOW + TENSOR(grad_q)},
    {"out.grad_key", ROLE_FLOW + TENSOR(grad_k)},
    {"out.grad_value", ROLE_FLOW + TENSOR(grad_v)},
    {"out.grad_attn_mask", ROLE_FLOW + TENSOR(grad_bias)},
    END,
};

/* ---- onnx: Attention ---- */

/* The numbers of attn_stage are those of ONNX: 0 raw, 1 after softcap, 2 after bias and mask, 3 after softmax. */
static void param_score_output(translation *t, const param_rule *rule, const cJSON *value)
{
    const double mode = cJSON_IsNumber(value) ? value->valuedouble : -1;
    if (mode == 0 || mode == 1 || mode == 2 || mode == 3) t->stage = (attn_stage)mode;
    else unknown_value(t, rule, value);
}

/* The softmax is computed in this type or a wider one: ONNX's numbers of f32, f16, f64 and bf16. */
static void param_softmax_type(translation *t, const param_rule *rule, const cJSON *value)
{
    const int type = cJSON_IsNumber(value) ? (int)value->valuedouble : 0;
    if (type != 1 && type != 10 && type != 11 && type != 16) skip_case(t, "%s %d is not known", rule->name, type);
}

static void param_window_left(translation *t, const param_rule *rule, const cJSON *value)
{
    if (!cJSON_IsNumber(value)) {
        skip_case(t, "%s is not a number", rule->name);
        return;
    }
    if (value->valuedouble < 0) return;
    if (!t->window) t->window_right = -1;
    t->window = 1;
    t->window_left = (int64_t)value->valuedouble;
}

static void param_window_right(translation *t, const param_rule *rule, const cJSON *value)
{
    if (!cJSON_IsNumber(value)) {
        skip_case(t, "%s is not a number", rule->name);
        return;
    }
    if (value->valuedouble < 0) return;
    if (!t->window) t->window_left = -1;
    t->window = 1;
    t->window_right = (int64_t)value->valuedouble;
}

static const param_rule onnx_params[] = {
    {"is_causal", param_causal},
    {"scale", param_scale},
    {"q_num_heads", param_heads_q},
    {"kv_num_heads", param_heads_kv},
    {"softcap", param_softcap},
    {"qk_matmul_output_mode", param_score_output},
    {"softmax_precision", param_softmax_type},
    {"left_window_size", param_window_left},
    {"right_window_size", param_window_right},
    END,
};

static const tensor_rule onnx_tensors[] = {
    {"in.Q", ROLE_Q},
    {"in.K", ROLE_K},
    {"in.V", ROLE_V},
    {"in.attn_mask", ROLE_MASK},
    {"in.past_key", ROLE_PAST_K},
    {"in.past_value", ROLE_PAST_V},
    {"in.nonpad_kv_seqlen", ROLE_LENGTHS_KV},
    {"out.Y", ROLE_O},
    {"out.present_key", ROLE_PRESENT_K},
    {"out.present_value", ROLE_PRESENT_V},
    {"out.qk_matmul_output", ROLE_SCORES},
    END,
};

/*
 * Inputs of rank 3 are [batch, token, head * channel].  The queries follow the past keys; without a past they end with the lengths;
 * without lengths they start at the first key.  A mask that is shorter than the keys drops the rest.
 */
static void onnx_finish(translation *t)
{
    const view *k = &t->raw[ROLE_K], *past = &t->raw[ROLE_PAST_K];
    view *mask = &t->raw[ROLE_MASK];
    if (k->rank != 3 && k->rank != 4) {
        fail_case(t, "K has rank %d", k->rank);
        return;
    }
    if (k->rank == 3) t->layout = LAYOUT_CHANNELS;
    const int64_t before = view_present(past) && past->rank == 4 ? past->size[2] : 0;
    const int64_t keys = before + k->size[k->rank == 3 ? 1 : 2];
    if (view_present(past)) {
        t->has_offset = 1;
        t->offset = before;
    } else if (view_present(&t->raw[ROLE_LENGTHS_KV])) {
        t->align = ATTN_ALIGN_BOTTOM_RIGHT;
    }
    if (view_present(mask) && mask->rank > 0 && mask->size[mask->rank - 1] < keys) *mask = view_pad(t->pool, mask, keys, -INFINITY);
}

/* ---- onnx: FlexAttention ---- */

static void param_score_mod(translation *t, const param_rule *rule, const cJSON *value)
{
    const cJSON *kind = cJSON_GetObjectItemCaseSensitive(value, "kind"), *number = cJSON_GetObjectItemCaseSensitive(value, "value");
    const char *name = cJSON_IsString(kind) ? kind->valuestring : "";
    if (strcmp(name, "softcap") == 0 && cJSON_IsNumber(number)) {
        param_softcap(t, rule, number);
        return;
    }
    if (strcmp(name, "add_constant") != 0 || !cJSON_IsNumber(number)) {
        unknown_value(t, rule, value);
        return;
    }
    double *bias = pool_take(t->pool, 1, sizeof *bias); /* the same number for every pair */
    *bias = number->valuedouble;
    t->raw[ROLE_BIAS] = view_made(ATTN_F64, 1, (const int64_t[]){1}, bias);
}

/* A factor of the weights is applied to the values instead: O is the same. */
static void param_prob_mod(translation *t, const param_rule *rule, const cJSON *value)
{
    const cJSON *kind = cJSON_GetObjectItemCaseSensitive(value, "kind"), *number = cJSON_GetObjectItemCaseSensitive(value, "value");
    const int multiplies = cJSON_IsString(kind) && strcmp(kind->valuestring, "multiply_constant") == 0;
    if (multiplies && cJSON_IsNumber(number) && number->valuedouble != 0) t->value_factor = number->valuedouble;
    else unknown_value(t, rule, value);
}

static const param_rule onnx_flex_params[] = {
    {"scale", param_scale},
    {"score_mod", param_score_mod},
    {"prob_mod", param_prob_mod},
    END,
};

/* ---- ort_core ---- */

static const param_rule ort_core_params[] = {
    {"scale", param_scale},
    {"layout", param_layout},
    {"bias", param_ignore}, /* states that -10000 is an ordinary number, as it is here */
    END,
};

static const tensor_rule ort_core_tensors[] = {
    {"in.query", ROLE_Q},
    {"in.key", ROLE_K},
    {"in.value", ROLE_V},
    {"in.attn_bias", ROLE_MASK},
    {"in.mask", ROLE_MASK},
    {"out.output", ROLE_O},
    END,
};

/* ---- flash_attention_ref ---- */

/* The form for causal masks counts distances from the last key, not from the query: lse differs by a constant for each query. */
static void param_alibi(translation *t, const param_rule *rule, const cJSON *value)
{
    const char *text = cJSON_IsString(value) ? value->valuestring : NULL;
    if (cJSON_IsNull(value) || (text && strcmp(text, "-slope*|query+len_k-len_q-key|") == 0)) return;
    if (text && strncmp(text, "-slope*(len_k_max-1-key)", 24) == 0) t->alibi_from_last_key = 1;
    else skip_case(t, "%s %.60s is not known", rule->name, text ? text : "");
}

/* Converts lse[b][h][i] from ALiBi distances counted from the last key to those from the query. */
static void move_lse(translation *t)
{
    const view *q = &t->raw[ROLE_Q], *k = &t->raw[ROLE_K], *slopes = &t->raw[ROLE_SLOPES];
    view *lse = &t->raw[ROLE_LSE];
    if (!t->alibi_from_last_key || !view_present(lse) || !view_present(slopes)) return;
    const int padded = view_present(&t->raw[ROLE_LENGTHS_Q]) || view_present(&t->raw[ROLE_LENGTHS_KV]);
    if (padded || lse->rank != 3 || q->rank != 4 || k->rank != 4) {
        skip_case(t, "this form of ALiBi with lengths is not known");
        return;
    }
    const int64_t heads = lse->size[1], rows = lse->size[2];
    view moved = view_convert(t->pool, lse, ATTN_F64);
    double *number = (double *)moved.data; /* the pool's copy */
    for (int64_t n = 0; n < view_count(lse); n++) {
        const int64_t i = n % rows, head = n / rows % heads, b = n / rows / heads;
        const double slope = view_get(slopes, slopes->rank == 2 ? b * heads + head : head);
        number[n] += slope * (double)(rows - 1 - i);
    }
    *lse = view_convert(t->pool, &moved, lse->dtype);
}

static void param_sink_tokens(translation *t, const param_rule *rule, const cJSON *value)
{
    if (cJSON_IsNumber(value) && value->valuedouble >= 0) t->sink_tokens = (int64_t)value->valuedouble;
    else unknown_value(t, rule, value);
}

/* The first tokens stay visible beyond the window's left bound: expressed as a mask that replaces that bound. */
static void keep_sink_tokens(translation *t)
{
    const view *q = &t->raw[ROLE_Q], *k = &t->raw[ROLE_K], *len_q = &t->raw[ROLE_LENGTHS_Q], *len_kv = &t->raw[ROLE_LENGTHS_KV];
    if (t->sink_tokens == 0 || !t->window || t->window_left < 0) return;
    if (q->rank != 4 || k->rank != 4 || t->align != ATTN_ALIGN_BOTTOM_RIGHT || view_present(&t->raw[ROLE_MASK])) {
        skip_case(t, "sink tokens are supported only for bottom-right windows without another mask");
        return;
    }
    const int64_t size[4] = {q->size[0], 1, q->size[1], k->size[1]};
    unsigned char *keep = pool_take(t->pool, size[0] * size[2] * size[3], 1);
    for (int64_t b = 0; b < size[0]; b++) {
        const int64_t keys = view_present(len_kv) ? (int64_t)view_get(len_kv, b) : size[3];
        const int64_t offset = keys - (view_present(len_q) ? (int64_t)view_get(len_q, b) : size[2]);
        for (int64_t i = 0; i < size[2]; i++)
            for (int64_t j = 0; j < size[3]; j++)
                keep[(b * size[2] + i) * size[3] + j] = j >= i + offset - t->window_left || j < t->sink_tokens;
    }
    t->raw[ROLE_MASK] = view_made(ATTN_BOOL, 4, size, keep);
    t->window_left = -1;
    t->window = t->window_right >= 0;
}

static void param_qv(translation *t, const param_rule *rule, const cJSON *value)
{
    const char *text = cJSON_IsString(value) ? value->valuestring : NULL;
    if (text && strcmp(text, "extra score qv.v, scale 1/sqrt(D+Dv)") == 0) t->scores_of_values = 1;
    else if (!cJSON_IsNull(value)) unknown_value(t, rule, value);
}

/* q.k + qv.v is the product of (q, qv) and (k, v), whose width also determines the scale. */
static void join_values(translation *t)
{
    view *q = &t->raw[ROLE_Q], *k = &t->raw[ROLE_K], joined;
    if (t->scores_of_values != view_present(&t->raw[ROLE_QV])) {
        fail_case(t, "qv must be both an attribute and a tensor, or neither");
    } else if (t->scores_of_values) {
        if (!view_join(t->pool, q, &t->raw[ROLE_QV], q->rank - 1, &joined)) fail_case(t, "query and qv do not fit each other");
        *q = joined;
        if (!view_join(t->pool, k, &t->raw[ROLE_V], k->rank - 1, &joined)) fail_case(t, "key and value do not fit each other");
        *k = joined;
    }
}

static void flash_finish(translation *t)
{
    move_lse(t);
    keep_sink_tokens(t);
    if (!t->skip[0]) join_values(t);
}

static const param_rule flash_params[] = {
    {"layout", param_layout},
    {"causal", param_causal},
    {"causal_alignment", param_alignment},
    {"window", param_window},
    {"scale", param_scale},
    {"softcap", param_softcap},
    {"sink_token_length", param_sink_tokens},
    {"attention_chunk", param_chunk},
    {"alibi", param_alibi},
    {"learnable_sink", param_ignore}, /* follows from the tensor */
    {"qv", param_qv},
    {"fully_masked_rows", param_ignore},
    END,
};

static const tensor_rule flash_tensors[] = {
    {"in.query", ROLE_Q},
    {"in.key", ROLE_K},
    {"in.value", ROLE_V},
    {"in.query_lengths", ROLE_LENGTHS_Q},
    {"in.key_lengths", ROLE_LENGTHS_KV},
    {"in.alibi_slopes", ROLE_SLOPES},
    {"in.sink", ROLE_SINK},
    {"in.qv", ROLE_QV},
    {"out.output", ROLE_O},
    {"out.lse", ROLE_LSE},
    END,
};

/* ---- flex_attention: the mask function comes as the mask that it computes ---- */

/* slope (key - query) for each head, in the tensors' own order of axes: [batch, head, token, channel]. */
static void add_by_distance(translation *t, const double *slope, int64_t heads)
{
    const int64_t size[4] = {1, heads, t->raw[ROLE_Q].size[2], t->raw[ROLE_K].size[2]};
    double *bias = pool_take(t->pool, size[1] * size[2] * size[3], sizeof *bias);
    for (int64_t n = 0; n < size[1] * size[2] * size[3]; n++)
        bias[n] = slope[n / size[3] / size[2]] * (double)(n % size[3] - n / size[3] % size[2]);
    t->raw[ROLE_BIAS] = view_made(ATTN_F64, 4, size, bias);
}

static void param_flex_rule(translation *t, const param_rule *rule, const cJSON *value)
{
    const char *text = cJSON_IsString(value) ? value->valuestring : "";
    if (strcmp(text, "score + (key-query)*slope_h, slope_h=2^(-(h+1)*8/H)") == 0) t->alibi_of_heads = 1;
    else unknown_value(t, rule, value);
}

/* "0.1*(q-k)" */
static void param_flex_bias(translation *t, const param_rule *rule, const cJSON *value)
{
    const char *text = cJSON_IsString(value) ? value->valuestring : "";
    char end[8] = "";
    if (sscanf(text, "%lf*(%6s", &t->bias_slope, end) == 2 && strcmp(end, "q-k)") == 0) t->bias_slope = -t->bias_slope;
    else if (strcmp(end, "k-q)") != 0) unknown_value(t, rule, value);
}

static void flex_finish(translation *t)
{
    const view *q = &t->raw[ROLE_Q];
    if (!t->alibi_of_heads && t->bias_slope == 0) return;
    if (q->rank != 4 || t->raw[ROLE_K].rank != 4 || t->layout != LAYOUT_BHSD) {
        skip_case(t, "score functions are supported only for (batch, head, token, channel)");
        return;
    }
    const int64_t heads = q->size[1];
    double *slope = pool_take(t->pool, heads, sizeof *slope);
    for (int64_t h = 0; h < heads; h++) slope[h] = t->alibi_of_heads ? exp2(-(double)(h + 1) * 8 / (double)heads) : t->bias_slope;
    add_by_distance(t, slope, heads);
}

static const param_rule flex_params[] = {
    {"layout", param_layout},        {"scale", param_scale},     {"window_size", param_ignore},
    {"prefix_length", param_ignore}, {"dilation", param_ignore}, {"num_heads", param_ignore},
    {"rule", param_flex_rule},       {"bias", param_flex_bias},  END,
};

static const tensor_rule flex_tensors[] = {
    {"in.query", ROLE_Q},
    {"in.key", ROLE_K},
    {"in.value", ROLE_V},
    {"in.keep_mask", ROLE_MASK},
    {"out.output", ROLE_O},
    {"out.lse", ROLE_LSE},
    END,
};

/* ---- sdpa_misc: small cases of many projects ---- */

static const param_rule misc_params[] = {
    {"num_heads", param_heads}, {"scale", param_scale},
    {"layout", param_layout},   {"is_causal", param_causal},
    {"mask", param_ignore}, /* describes the tensor */
    {"note", param_note},       END,
};

static const tensor_rule misc_tensors[] = {
    {"in.query", ROLE_Q},
    {"in.key", ROLE_K},
    {"in.value", ROLE_V},
    {"in.attn_mask", ROLE_MASK},
    {"out.output", ROLE_O},
    {"out.attention_probs", ROLE_WEIGHTS},
    END,
};

/* ---- mechanism_grad: our own ---- */

static const param_rule mechanism_params[] = {
    {"layout", param_layout},   {"scale", param_scale},       {"temperature", param_temperature},
    {"causal", param_causal},   {"offset", param_offset},     {"window", param_window},
    {"softcap", param_softcap}, {"dropout_p", param_dropout}, END,
};

static const tensor_rule mechanism_tensors[] = {
    {"in.query", ROLE_Q},
    {"in.key", ROLE_K},
    {"in.value", ROLE_V},
    {"in.mask", ROLE_MASK},
    {"in.bias", ROLE_MASK},
    {"in.lengths_q", ROLE_LENGTHS_Q},
    {"in.lengths_kv", ROLE_LENGTHS_KV},
    {"in.slopes", ROLE_SLOPES},
    {"in.sink", ROLE_SINK},
    {"in.dropout_keep", ROLE_KEEP},
    {"in.scale_per_head", ROLE_SCALES},
    {"in.grad_output", ROLE_FLOW + TENSOR(grad_o)},
    {"in.grad_lse", ROLE_FLOW + TENSOR(grad_lse)},
    {"in.tangent_query", ROLE_FLOW + TENSOR(tan_q)},
    {"in.tangent_key", ROLE_FLOW + TENSOR(tan_k)},
    {"in.tangent_value", ROLE_FLOW + TENSOR(tan_v)},
    {"in.tangent_bias", ROLE_FLOW + TENSOR(tan_bias)},
    {"in.cotangent_grad_query", ROLE_FLOW + TENSOR(tan_q)},
    {"in.cotangent_grad_key", ROLE_FLOW + TENSOR(tan_k)},
    {"in.cotangent_grad_value", ROLE_FLOW + TENSOR(tan_v)},
    {"in.cotangent_grad_bias", ROLE_FLOW + TENSOR(tan_bias)},
    {"out.output", ROLE_O},
    {"out.lse", ROLE_LSE},
    {"out.weights", ROLE_WEIGHTS},
    {"out.grad_query", ROLE_FLOW + TENSOR(grad_q)},
    {"out.grad_key", ROLE_FLOW + TENSOR(grad_k)},
    {"out.grad_value", ROLE_FLOW + TENSOR(grad_v)},
    {"out.grad_bias", ROLE_FLOW + TENSOR(grad_bias)},
    {"out.grad_slopes", ROLE_FLOW + TENSOR(grad_alibi_slopes)},
    {"out.grad_sink", ROLE_FLOW + TENSOR(grad_sink)},
    {"out.grad_scale_per_head", ROLE_FLOW + TENSOR(grad_scale)},
    {"out.tangent_output", ROLE_FLOW + TENSOR(tan_o)},
    {"out.tangent_lse", ROLE_FLOW + TENSOR(tan_lse)},
    {"out.second_grad_output", ROLE_FLOW + TENSOR(second_grad_o)},
    {"out.second_grad_lse", ROLE_FLOW + TENSOR(second_grad_lse)},
    {"out.second_query", ROLE_FLOW + TENSOR(second_q)},
    {"out.second_key", ROLE_FLOW + TENSOR(second_k)},
    {"out.second_value", ROLE_FLOW + TENSOR(second_v)},
    {"out.second_bias", ROLE_FLOW + TENSOR(second_bias)},
    END,
};

/* ---- the list of adapters ---- */

static const adapter adapters[] = {
    {"onnx_attention", "Attention", onnx_params, onnx_tensors, onnx_finish},
    {"onnx_attention", "FlexAttention", onnx_flex_params, onnx_tensors, NULL},
    {"torch_sdpa", "scaled_dot_product_attention", torch_params, torch_tensors, NULL},
    {"torch_sdpa_grad", "scaled_dot_product_attention*", torch_params, torch_tensors, NULL},
    {"ort_core", "SDPA", ort_core_params, ort_core_tensors, NULL},
    {"flash_attention_ref", "attention_ref", flash_params, flash_tensors, flash_finish},
    {"flex_attention", "flex_attention*", flex_params, flex_tensors, flex_finish},
    {"sdpa_misc", "SDPA*", misc_params, misc_tensors, NULL},
    {"mechanism_grad", "scaled_dot_product_attention", mechanism_params, mechanism_tensors, NULL},
    {"mechanism_grad", "scaled_dot_product_attention jvp", mechanism_params, mechanism_tensors, NULL},
    {"mechanism_grad", "scaled_dot_product_attention double_backward", mechanism_params, mechanism_tensors, NULL},
};

/* Operations that are not attention over dot products, and so have no adapter. */
static const struct {
    adapter names; /* suite and op */
    const char *what;
} others[] = {
    {{.suite = "onnx_attention", .op = "LinearAttention"}, "linear attention, without a softmax"},
    {{.suite = "onnx_attention", .op = "TensorScatter"}, "a write to a cache alone"},
    {{.suite = "sdpa_misc", .op = "MHA*"}, "a layer with projections"},
    {{.suite = "sdpa_misc", .op = "softmax(scores)*"}, "scores that are given, without queries and keys"},
    {{.suite = "sdpa_misc", .op = "Transformer-XL relative shift"}, "an index map alone"},
    {{.suite = "mechanism_grad", .op = "linear_attention"}, "linear attention, without a softmax"},
    {{.suite = "mechanism_grad", .op = "multi_head_attention"}, "a layer with projections"},
    {{.suite = "mechanism_grad", .op = "modern_hopfield"}, "retrieval of patterns"},
};

const char *adapter_missing(const char *suite, const char *op)
{
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (adapter_matches(&others[i].names, suite, op)) return others[i].what;
    return NULL;
}

const adapter *adapter_find(const char *suite, const char *op)
{
    for (size_t i = 0; i < sizeof adapters / sizeof *adapters; i++)
        if (adapter_matches(&adapters[i], suite, op)) return &adapters[i];
    return adapter_find_ort(suite, op);
}
