/* SPDX-License-Identifier: MIT
 *
 * adapters.c - what each suite calls things, and what it means by them.
 *
 * A suite, an operation, an attribute or a tensor that is in no table makes a case skipped, never silently ignored.  An option that
 * the library gains moves from a "later" row to one that says what it means; nothing else changes.
 */
#include <math.h>
#include <string.h>

#include "translate.h"

#define END                                                                                                                        \
    {                                                                                                                              \
        0                                                                                                                          \
    }

/* ---- torch: scaled_dot_product_attention ---- */

static const param_rule torch_params[] = {
    {"is_causal", param_causal, NULL, 0},
    {"scale", param_scale, NULL, 0},
    {"enable_gqa", param_ignore, NULL, 0}, /* says that heads_q != heads_kv is meant */
    {"mask_kind", param_ignore, NULL, 0},  /* the mask's type says it */
    {"dropout_p", param_later, "dropout by a mask that is given", 0},
    {"layout", param_layout, NULL, 0},
    {"causal_alignment", param_alignment, NULL, 0},
    END,
};

static const tensor_rule torch_tensors[] = {
    {"in.query", ROLE_Q, NULL},
    {"in.key", ROLE_K, NULL},
    {"in.value", ROLE_V, NULL},
    {"in.attn_mask", ROLE_MASK, NULL},
    {"in.grad_output", ROLE_UNUSED, NULL},
    {"out.output", ROLE_O, NULL},
    {"out.grad_*", ROLE_UNCHECKED, "gradients"},
    END,
};

/* ---- onnx: Attention ---- */

static void param_score_output(translation *t, const param_rule *rule, const cJSON *value)
{
    if (!cJSON_IsNumber(value)) param_later(t, rule, value);
    else t->weights_are_scores = value->valuedouble == 3; /* 0 raw, 1 after softcap, 2 after bias and mask, 3 after softmax */
}

/* The softmax is done in this type or a wider one: f32, f16, f64 and bf16 in ONNX's numbers. */
static void param_softmax_type(translation *t, const param_rule *rule, const cJSON *value)
{
    const int type = cJSON_IsNumber(value) ? (int)value->valuedouble : 0;
    if (type != 1 && type != 10 && type != 11 && type != 16) skip_case(t, "%s %d is not known", rule->name, type);
}

static void param_window_left(translation *t, const param_rule *rule, const cJSON *value)
{
    if (!cJSON_IsNumber(value)) {
        skip_case(t, "%s is no number", rule->name);
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
        skip_case(t, "%s is no number", rule->name);
        return;
    }
    if (value->valuedouble < 0) return;
    if (!t->window) t->window_left = -1;
    t->window = 1;
    t->window_right = (int64_t)value->valuedouble;
}

static const param_rule onnx_params[] = {
    {"is_causal", param_causal, NULL, 0},
    {"scale", param_scale, NULL, 0},
    {"q_num_heads", param_heads_q, NULL, 0},
    {"kv_num_heads", param_heads_kv, NULL, 0},
    {"softcap", param_softcap, NULL, 0},
    {"qk_matmul_output_mode", param_score_output, "qk_matmul_output_mode", 0},
    {"softmax_precision", param_softmax_type, NULL, 0},
    {"left_window_size", param_window_left, NULL, 0},
    {"right_window_size", param_window_right, NULL, 0},
    END,
};

static const tensor_rule onnx_tensors[] = {
    {"in.Q", ROLE_Q, NULL},
    {"in.K", ROLE_K, NULL},
    {"in.V", ROLE_V, NULL},
    {"in.attn_mask", ROLE_MASK, NULL},
    {"in.past_key", ROLE_PAST_K, NULL},
    {"in.past_value", ROLE_PAST_V, NULL},
    {"in.nonpad_kv_seqlen", ROLE_LENGTHS_KV, NULL},
    {"out.Y", ROLE_O, NULL},
    {"out.present_key", ROLE_PRESENT_K, NULL},
    {"out.present_value", ROLE_PRESENT_V, NULL},
    {"out.qk_matmul_output", ROLE_SCORES, NULL},
    END,
};

/*
 * Inputs of rank 3 are [batch, token, head * channel].  The queries stand behind the past keys, or at the end of the lengths if
 * there are such, or at the first key.  A mask that is shorter than the keys drops the rest.
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
    const int64_t before = view_given(past) && past->rank == 4 ? past->size[2] : 0;
    const int64_t keys = before + k->size[k->rank == 3 ? 1 : 2];
    if (view_given(past)) {
        t->align = ATTN_ALIGN_OFFSET;
        t->offset = before;
    } else if (view_given(&t->raw[ROLE_LENGTHS_KV])) {
        t->align = ATTN_ALIGN_BOTTOM_RIGHT;
    }
    if (view_given(mask) && mask->rank > 0 && mask->size[mask->rank - 1] < keys) *mask = view_pad(t->pool, mask, keys, -INFINITY);
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
        skip_case(t, "%s %.40s: not in this version", rule->name, name);
        return;
    }
    double *bias = pool_take(t->pool, 1, sizeof *bias); /* one number for every pair */
    *bias = number->valuedouble;
    t->raw[ROLE_MASK] = (view){.dtype = ATTN_F64, .rank = 1, .size = {1}, .stride = {1}, .data = bias};
}

static const param_rule onnx_flex_params[] = {
    {"scale", param_scale, NULL, 0},
    {"score_mod", param_score_mod, NULL, 0},
    {"prob_mod", param_later, "prob_mod", 0},
    END,
};

/* ---- ort_core ---- */

static const param_rule ort_core_params[] = {
    {"scale", param_scale, NULL, 0},
    {"layout", param_layout, NULL, 0},
    {"bias", param_ignore, NULL, 0}, /* says that -10000 is a number: so it is here */
    END,
};

static const tensor_rule ort_core_tensors[] = {
    {"in.query", ROLE_Q, NULL},
    {"in.key", ROLE_K, NULL},
    {"in.value", ROLE_V, NULL},
    {"in.attn_bias", ROLE_MASK, NULL},
    {"in.mask", ROLE_MASK, NULL},
    {"out.output", ROLE_O, NULL},
    END,
};

/* ---- flash_attention_ref ---- */

/* The form for causal masks counts distances from the last key, not from the query: lse differs by a number for each query. */
static void param_alibi(translation *t, const param_rule *rule, const cJSON *value)
{
    const char *text = cJSON_IsString(value) ? value->valuestring : NULL;
    if (cJSON_IsNull(value) || (text && strcmp(text, "-slope*|query+len_k-len_q-key|") == 0)) return;
    if (text && strncmp(text, "-slope*(len_k_max-1-key)", 24) == 0) t->alibi_from_last_key = 1;
    else skip_case(t, "%s %.60s is not known", rule->name, text ? text : "");
}

static void flash_finish(translation *t)
{
    const view *q = &t->raw[ROLE_Q], *k = &t->raw[ROLE_K], *slopes = &t->raw[ROLE_SLOPES];
    view *lse = &t->raw[ROLE_LSE];
    if (!t->alibi_from_last_key || !view_given(lse) || !view_given(slopes)) return;
    const int padded = view_given(&t->raw[ROLE_LENGTHS_Q]) || view_given(&t->raw[ROLE_LENGTHS_KV]);
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
        number[n] += slope * (double)(rows - 1 - i); /* from the last key to the query's own */
    }
    *lse = view_convert(t->pool, &moved, lse->dtype);
}

static const param_rule flash_params[] = {
    {"layout", param_layout, NULL, 0},
    {"causal", param_causal, NULL, 0},
    {"causal_alignment", param_alignment, NULL, 0},
    {"window", param_window, NULL, 0},
    {"scale", param_scale, NULL, 0},
    {"softcap", param_softcap, NULL, 0},
    {"sink_token_length", param_later, "sink tokens (keys that every window sees)", 0},
    {"attention_chunk", param_chunk, NULL, 0},
    {"alibi", param_alibi, NULL, 0},
    {"learnable_sink", param_ignore, NULL, 0}, /* the tensor says it */
    {"qv", param_later, "a score of queries and values (qv)", 0},
    {"fully_masked_rows", param_ignore, NULL, 0},
    END,
};

static const tensor_rule flash_tensors[] = {
    {"in.query", ROLE_Q, NULL},
    {"in.key", ROLE_K, NULL},
    {"in.value", ROLE_V, NULL},
    {"in.query_lengths", ROLE_LENGTHS_Q, NULL},
    {"in.key_lengths", ROLE_LENGTHS_KV, NULL},
    {"in.alibi_slopes", ROLE_SLOPES, NULL},
    {"in.sink", ROLE_SINK, NULL},
    {"in.qv", ROLE_LATER, "a score of queries and values (qv)"},
    {"out.output", ROLE_O, NULL},
    {"out.lse", ROLE_LSE, NULL},
    END,
};

/* ---- flex_attention: the mask function is given as the mask that it makes ---- */

static const param_rule flex_params[] = {
    {"layout", param_layout, NULL, 0},
    {"scale", param_scale, NULL, 0},
    {"window_size", param_ignore, NULL, 0},
    {"prefix_length", param_ignore, NULL, 0},
    {"dilation", param_ignore, NULL, 0},
    {"num_heads", param_ignore, NULL, 0},
    {"rule", param_later, "score functions", 0},
    {"bias", param_later, "score functions", 0},
    END,
};

static const tensor_rule flex_tensors[] = {
    {"in.query", ROLE_Q, NULL},
    {"in.key", ROLE_K, NULL},
    {"in.value", ROLE_V, NULL},
    {"in.keep_mask", ROLE_MASK, NULL},
    {"out.output", ROLE_O, NULL},
    {"out.lse", ROLE_LSE, NULL},
    END,
};

/* ---- sdpa_misc: small cases of many projects ---- */

static const param_rule misc_params[] = {
    {"num_heads", param_heads, NULL, 0}, {"scale", param_scale, NULL, 0},
    {"layout", param_layout, NULL, 0},   {"is_causal", param_causal, NULL, 0},
    {"mask", param_ignore, NULL, 0}, /* describes the tensor */
    {"note", param_note, NULL, 0},       END,
};

static const tensor_rule misc_tensors[] = {
    {"in.query", ROLE_Q, NULL},
    {"in.key", ROLE_K, NULL},
    {"in.value", ROLE_V, NULL},
    {"in.attn_mask", ROLE_MASK, NULL},
    {"out.output", ROLE_O, NULL},
    {"out.attention_probs", ROLE_WEIGHTS, NULL},
    END,
};

/* ---- mechanism_grad: our own ---- */

static const param_rule mechanism_params[] = {
    {"layout", param_layout, NULL, 0},
    {"scale", param_scale, NULL, 0},
    {"temperature", param_temperature, NULL, 0},
    {"causal", param_causal, NULL, 0},
    {"offset", param_offset, NULL, 0},
    {"window", param_window, NULL, 0},
    {"softcap", param_softcap, NULL, 0},
    {"dropout_p", param_later, "dropout by a mask that is given", 0},
    END,
};

static const tensor_rule mechanism_tensors[] = {
    {"in.query", ROLE_Q, NULL},
    {"in.key", ROLE_K, NULL},
    {"in.value", ROLE_V, NULL},
    {"in.mask", ROLE_MASK, NULL},
    {"in.bias", ROLE_MASK, NULL},
    {"in.lengths_q", ROLE_LENGTHS_Q, NULL},
    {"in.lengths_kv", ROLE_LENGTHS_KV, NULL},
    {"in.slopes", ROLE_SLOPES, NULL},
    {"in.sink", ROLE_SINK, NULL},
    {"in.dropout_keep", ROLE_LATER, "dropout by a mask that is given"},
    {"in.scale_per_head", ROLE_SCALES, NULL},
    {"in.grad_*", ROLE_UNUSED, NULL},
    {"in.tangent_*", ROLE_UNUSED, NULL},
    {"in.cotangent_*", ROLE_UNUSED, NULL},
    {"out.output", ROLE_O, NULL},
    {"out.lse", ROLE_LSE, NULL},
    {"out.weights", ROLE_WEIGHTS, NULL},
    {"out.grad_*", ROLE_UNCHECKED, "gradients"},
    {"out.tangent_*", ROLE_UNCHECKED, "tangents"},
    END,
};

/* ---- all of them ---- */

static const adapter adapters[] = {
    {"onnx_attention", "Attention", onnx_params, onnx_tensors, onnx_finish},
    {"onnx_attention", "FlexAttention", onnx_flex_params, onnx_tensors, NULL},
    {"torch_sdpa", "scaled_dot_product_attention", torch_params, torch_tensors, NULL},
    {"torch_sdpa_grad", "scaled_dot_product_attention*", torch_params, torch_tensors, NULL},
    {"ort_core", "SDPA", ort_core_params, ort_core_tensors, NULL},
    {"flash_attention_ref", "attention_ref", flash_params, flash_tensors, flash_finish},
    {"flex_attention", "flex_attention*", flex_params, flex_tensors, NULL},
    {"sdpa_misc", "SDPA*", misc_params, misc_tensors, NULL},
    {"mechanism_grad", "scaled_dot_product_attention", mechanism_params, mechanism_tensors, NULL},
    {"mechanism_grad", "scaled_dot_product_attention jvp", mechanism_params, mechanism_tensors, NULL},
};

const adapter *adapter_find(const char *suite, const char *op)
{
    for (size_t i = 0; i < sizeof adapters / sizeof *adapters; i++)
        if (adapter_matches(&adapters[i], suite, op)) return &adapters[i];
    return NULL;
}
