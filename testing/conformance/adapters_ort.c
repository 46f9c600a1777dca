/* SPDX-License-Identifier: MIT
 *
 * adapters_ort.c - onnxruntime's attention over queries, keys and values that are already projected: MultiHeadAttention, which adds
 * biases to them, and GroupQueryAttention.  (Its layers with weights are in layer_suites.c.)
 */
#include <string.h>

#include "translate.h"

#define END                                                                                                                        \
    {                                                                                                                              \
        0                                                                                                                          \
    }

/* ---- shapes: everything as [batch, token, head * channel] ---- */

/* From [batch, head, token, channel], the layout of cached keys. */
static view channels_of_heads(translation *t, const view *v)
{
    const view swapped = view_swap(v, 1, 2), dense = view_convert(t->pool, &swapped, v->dtype);
    const int64_t size[3] = {v->size[0], v->size[2], v->size[1] * v->size[3]};
    return view_made(v->dtype, 3, size, dense.data);
}

/* One part of [batch, token, head, parts, channel]. */
static view channels_of_part(translation *t, const view *v, int64_t part)
{
    view one = *v;
    one.rank = 4;
    one.size[3] = v->size[4], one.stride[3] = v->stride[4];
    one.data = (const char *)v->data + (size_t)(part * v->stride[3]) * attn_dtype_size(v->dtype);
    const view dense = view_convert(t->pool, &one, v->dtype);
    const int64_t size[3] = {v->size[0], v->size[1], v->size[2] * v->size[4]};
    return view_made(v->dtype, 3, size, dense.data);
}

/* A range of channels of [batch, token, channel]. */
static view some_channels(translation *t, const view *v, int64_t first, int64_t count)
{
    view some = *v;
    some.size[2] = count;
    some.data = (const char *)v->data + (size_t)(first * v->stride[2]) * attn_dtype_size(v->dtype);
    return view_convert(t->pool, &some, v->dtype);
}

static void unpack(translation *t)
{
    view *q = &t->raw[ROLE_Q], *k = &t->raw[ROLE_K], *v = &t->raw[ROLE_V];
    if (q->rank == 5 && q->size[3] == 3) {
        const view all = *q;
        for (int i = 0; i < 3; i++) t->raw[ROLE_Q + i] = channels_of_part(t, &all, i);
    } else if (k->rank == 5 && k->size[3] == 2 && !view_present(v)) {
        const view both = *k;
        for (int i = 0; i < 2; i++) t->raw[ROLE_K + i] = channels_of_part(t, &both, i);
    }
    for (int i = 1; i < 3; i++)
        if (t->raw[ROLE_Q + i].rank == 4) t->raw[ROLE_Q + i] = channels_of_heads(t, &t->raw[ROLE_Q + i]);
    for (int i = 0; i < 3; i++)
        if (t->raw[ROLE_Q + i].rank != 3) fail_case(t, "queries, keys or values have rank %d", t->raw[ROLE_Q + i].rank);
    t->layout = LAYOUT_CHANNELS;
}

/* The biases of queries, keys and values are concatenated. */
static void add_biases(translation *t)
{
    const view *added = &t->raw[ROLE_ADDED];
    int64_t first = 0;
    for (int i = 0; i < 3 && view_present(added); i++) {
        const view *from = &t->raw[ROLE_Q + i];
        const int64_t width = from->size[2], count = view_count(from);
        double *sum = pool_take(t->pool, count, sizeof *sum);
        if (added->rank != 1 || first + width > added->size[0]) {
            fail_case(t, "the biases are fewer than the channels");
            return;
        }
        for (int64_t n = 0; n < count; n++) sum[n] = view_get(from, n) + view_get(added, first + n % width);
        const view wide = view_made(ATTN_F64, 3, from->size, sum);
        t->raw[ROLE_Q + i] = view_convert(t->pool, &wide, from->dtype);
        first += width;
    }
    t->added_first = view_present(added);
    t->raw[ROLE_ADDED] = (view){0};
}

/* ---- masks ---- */

/* Lengths [batch] or [3 batch + 2] (lengths, then the offsets of packed sequences), or a mask [batch, key] or [batch, query, key].
 * Dropped keys get the number t->filter, which is added to the bias. */
static void add_padding(translation *t, int64_t past)
{
    const view *pad = &t->raw[ROLE_PADDING], *bias = &t->raw[ROLE_BIAS];
    const int64_t batch = t->raw[ROLE_Q].size[0], queries = t->raw[ROLE_Q].size[1], keys = past + t->raw[ROLE_K].size[1];
    const int lengths = pad->rank == 1 && (pad->size[0] == batch || pad->size[0] == 3 * batch + 2);
    if (!view_present(pad)) return;
    if (!lengths && !(pad->rank == 2 && pad->size[0] == batch && pad->size[1] == keys) &&
        !(pad->rank == 3 && pad->size[0] == batch && pad->size[1] == queries && pad->size[2] == keys)) {
        skip_case(t, "a key_padding_mask of this shape is not known");
        return;
    }
    int64_t size[4] = {batch, 1, queries, keys};
    view whole = *bias;
    if (view_present(bias)) {
        size[1] = t->heads_q;
        if (bias->rank != 4 || !view_expand(bias, size, &whole)) {
            fail_case(t, "the bias does not broadcast to the scores");
            return;
        }
    }
    double *sum = pool_take(t->pool, size[0] * size[1] * size[2] * size[3], sizeof *sum);
    for (int64_t n = 0; n < size[0] * size[1] * size[2] * size[3]; n++) {
        const int64_t j = n % keys, i = n / keys % queries, b = n / keys / queries / size[1];
        const int real = lengths          ? j < (int64_t)view_get(pad, b)
                         : pad->rank == 2 ? view_get(pad, b * keys + j) != 0
                                          : view_get(pad, (b * queries + i) * keys + j) != 0;
        sum[n] = (real ? 0 : t->filter) + (view_present(bias) ? view_get(&whole, n) : 0);
    }
    t->raw[ROLE_BIAS] = view_made(ATTN_F64, 4, size, sum);
    t->raw[ROLE_PADDING] = (view){0};
}

static int64_t place_after_past(translation *t)
{
    const view *past = &t->raw[ROLE_PAST_K];
    const int64_t before = view_present(past) && past->rank == 4 ? past->size[2] : 0;
    t->has_offset = 1;
    t->offset = before;
    return before;
}

static void param_filter(translation *t, const param_rule *rule, const cJSON *value)
{
    if (cJSON_IsNumber(value)) t->filter = value->valuedouble;
    else unknown_value(t, rule, value);
}

static void multi_head_finish(translation *t)
{
    unpack(t);
    if (t->skip[0] || t->wrong[0]) return;
    add_biases(t);
    const int64_t before = place_after_past(t);
    if (t->filter == 0) t->filter = -10000; /* the default of the operator's attribute */
    if (!t->wrong[0]) add_padding(t, before);
}

static const param_rule multi_head_params[] = {
    {"num_heads", param_heads}, {"mask_filter_value", param_filter}, {"scale", param_scale}, {"unidirectional", param_causal}, END,
};

static const tensor_rule multi_head_tensors[] = {
    {"in.query", ROLE_Q},
    {"in.key", ROLE_K},
    {"in.value", ROLE_V},
    {"in.bias", ROLE_ADDED},
    {"in.key_padding_mask", ROLE_PADDING},
    {"in.attention_bias", ROLE_BIAS},
    {"in.past_key", ROLE_PAST_K},
    {"in.past_value", ROLE_PAST_V},
    {"out.output", ROLE_O},
    {"out.present_key", ROLE_PRESENT_K},
    {"out.present_value", ROLE_PRESENT_V},
    END,
};

/* ---- GroupQueryAttention: always causal; queries, keys and values may share the channels of `query` ---- */

static void grouped_finish(translation *t)
{
    const view all = t->raw[ROLE_Q];
    const int64_t heads = t->heads_q + 2 * t->heads_kv;
    if (all.rank != 3 || heads < 3) {
        fail_case(t, "query has rank %d", all.rank);
        return;
    }
    t->layout = LAYOUT_CHANNELS;
    t->causal = 1;
    if (!view_present(&t->raw[ROLE_K])) {
        const int64_t dim = all.size[2] / heads;
        t->raw[ROLE_Q] = some_channels(t, &all, 0, t->heads_q * dim);
        t->raw[ROLE_K] = some_channels(t, &all, t->heads_q * dim, t->heads_kv * dim);
        t->raw[ROLE_V] = some_channels(t, &all, (t->heads_q + t->heads_kv) * dim, t->heads_kv * dim);
    }
    (void)place_after_past(t);
}

static const param_rule grouped_params[] = {
    {"num_heads", param_heads_q}, {"kv_num_heads", param_heads_kv}, {"scale", param_scale}, {"softcap", param_softcap}, END,
};

static const tensor_rule grouped_tensors[] = {
    {"in.query", ROLE_Q},
    {"in.key", ROLE_K},
    {"in.value", ROLE_V},
    {"in.past_key", ROLE_PAST_K},
    {"in.past_value", ROLE_PAST_V},
    {"in.seqlens_k", ROLE_SIZE},
    {"in.total_sequence_length", ROLE_SIZE},
    {"out.output", ROLE_O},
    {"out.present_key", ROLE_PRESENT_K},
    {"out.present_value", ROLE_PRESENT_V},
    END,
};

static const adapter adapters[] = {
    {"ort_multihead_attention", "com.microsoft.MultiHeadAttention", multi_head_params, multi_head_tensors, multi_head_finish},
    {"ort_web", "com.microsoft.MultiHeadAttention", multi_head_params, multi_head_tensors, multi_head_finish},
    {"ort_web", "com.microsoft.GroupQueryAttention", grouped_params, grouped_tensors, grouped_finish},
};

const adapter *adapter_find_ort(const char *suite, const char *op)
{
    for (size_t i = 0; i < sizeof adapters / sizeof *adapters; i++)
        if (adapter_matches(&adapters[i], suite, op)) return &adapters[i];
    return NULL;
}
