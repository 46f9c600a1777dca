/* SPDX-License-Identifier: MIT
 * attention.c - ai.onnx Attention, versions 23 to 25. */
#include <string.h>

#include "shim.h"

enum { Q, K, V, MASK, PAST_KEY, PAST_VALUE, LENGTHS }; /* inputs */
enum { O, PRESENT_KEY, PRESENT_VALUE, SCORES };        /* outputs */

const char *attention_read(const source *s, attributes *a)
{
    a->heads_q = source_int(s, "q_num_heads", 0);
    a->heads_kv = source_int(s, "kv_num_heads", 0);
    a->causal = source_int(s, "is_causal", 0) != 0;
    a->scale = source_float(s, "scale", 0);
    a->softcap = source_float(s, "softcap", 0);
    a->scores_stage = (int)source_int(s, "qk_matmul_output_mode", 0);
    a->window_left = source_int(s, "left_window_size", -1);
    a->window_right = source_int(s, "right_window_size", -1);
    a->softmax_type = (int)source_int(s, "softmax_precision", 0);
    if (a->scale < 0) return "scale is negative";
    if (!(a->softcap >= 0)) return "softcap is negative";
    if (a->scores_stage < 0 || a->scores_stage > 3) return "qk_matmul_output_mode is not 0 to 3";
    return NULL;
}

const char *attention_refuse(const shape_of_node *node, const attributes *a)
{
    const int wide = node->type[Q] == ORT_DOUBLE;
    if (HAS(node->inputs, PAST_KEY) != HAS(node->inputs, PAST_VALUE)) return "one of past_key and past_value without the other";
    if (HAS(node->inputs, LENGTHS) && (HAS(node->inputs, PAST_KEY) || HAS(node->outputs, PRESENT_KEY)))
        return "nonpad_kv_seqlen with past or present keys";
    if (wide != (node->type[V] == ORT_DOUBLE) ||
        (HAS(node->inputs, MASK) && node->type[MASK] != ORT_BOOL && wide != (node->type[MASK] == ORT_DOUBLE)))
        return "double with another type";
    if (a->softmax_type == ORT_DOUBLE && !wide) return "softmax_precision is double";
    return NULL;
}

/* A mask whose last axis is shorter than the keys, in a copy that hides the others: -infinity, or false. */
static ort_status *lengthen(call *c, value *mask, int64_t keys)
{
    static const union {
        uint64_t bits;
        double number;
    } none = {0xfff0000000000000u};
    const uint16_t half = mask->type == ORT_FLOAT16 ? 0xfc00 : 0xff80;
    const float single = (float)none.number;
    const size_t element = attn_dtype_size(type_of(mask->type));
    const void *hidden = mask->type == ORT_DOUBLE  ? (const void *)&none.number
                         : mask->type == ORT_FLOAT ? (const void *)&single
                         : mask->type == ORT_BOOL  ? (const void *)"\0"
                                                   : (const void *)&half;
    const int64_t have = mask->size[mask->rank - 1];
    int64_t rows = 1;
    char *copy;
    for (int axis = 0; axis < mask->rank - 1; axis++) rows *= mask->size[axis];
    TRY(call_scratch(c, rows * keys, element, (void **)&copy));
    for (int64_t row = 0; row < rows; row++) {
        char *to = copy + (size_t)(row * keys) * element;
        if (have) memcpy(to, (const char *)mask->data + (size_t)(row * have) * element, (size_t)have * element);
        for (int64_t j = have; j < keys; j++) memcpy(to + (size_t)j * element, hidden, element);
    }
    mask->data = copy;
    mask->size[mask->rank - 1] = keys;
    return NULL;
}

static ort_status *set_mask(call *c, value *mask)
{
    const attn_shape *shape = &c->problem.shape;
    const int64_t sizes[4] = {shape->batch, shape->heads_q, shape->len_q, shape->len_kv};
    if (!mask->data) return NULL;
    if (mask->rank < 1 || mask->rank > 4)
        return fail(ORT_INVALID_ARGUMENT, "%s has %d axes; it must have 1 to 4", mask->name, mask->rank);
    if (mask->size[mask->rank - 1] < shape->len_kv) TRY(lengthen(c, mask, shape->len_kv));
    return pairs_of(mask, sizes, mask->type == ORT_BOOL ? &c->tensors.mask : &c->tensors.bias);
}

ort_status *attention_compute(const attributes *a, call *c)
{
    value q, k, v, mask, past_key, past_value, lengths, o, scores;
    int64_t query[4], key[4], value_sizes[4];
    attn_shape *shape = &c->problem.shape;
    attn_tensors *t = &c->tensors;
    TRY(call_input(c, Q, "Q", &q));
    TRY(call_input(c, K, "K", &k));
    TRY(call_input(c, V, "V", &v));
    TRY(call_input(c, MASK, "attn_mask", &mask));
    TRY(call_input(c, PAST_KEY, "past_key", &past_key));
    TRY(call_input(c, PAST_VALUE, "past_value", &past_value));
    TRY(call_input(c, LENGTHS, "nonpad_kv_seqlen", &lengths));

    TRY(rows_of(&q, a->heads_q, &t->q, query));
    TRY(rows_of(&k, a->heads_kv, &t->k, key));
    TRY(rows_of(&v, a->heads_kv, &t->v, value_sizes));
    if (k.rank != q.rank || v.rank != q.rank) return fail(ORT_INVALID_ARGUMENT, "Q, K and V have different numbers of axes");
    const int64_t key_want[4] = {query[0], key[1], key[2], query[3]}, value_want[4] = {query[0], key[1], key[2], value_sizes[3]};
    TRY(expect_sizes("K as [batch, heads, tokens, dim]", key, key_want));
    TRY(expect_sizes("V as [batch, heads, tokens, dim]", value_sizes, value_want));
    TRY(joined(c, &past_key, PRESENT_KEY, "present_key", k.type, &t->k, key));
    TRY(joined(c, &past_value, PRESENT_VALUE, "present_value", v.type, &t->v, value_sizes));
    if (value_sizes[2] != key[2]) return fail(ORT_INVALID_ARGUMENT, "past_key and past_value have different lengths");
    *shape = (attn_shape){query[0], query[1], key[1], query[2], key[2], query[3], value_sizes[3]};

    const int64_t three[3] = {query[0], query[2], query[1] * value_sizes[3]},
                  four[4] = {query[0], query[1], query[2], value_sizes[3]};
    TRY(call_output(c, O, "Y", q.rank, q.rank == 3 ? three : four, q.type, &o));
    attn_input slot;
    int64_t sizes[4];
    TRY(rows_of(&o, query[1], &slot, sizes));
    t->o = written(slot);
    const int64_t pairs[4] = {query[0], query[1], query[2], key[2]};
    TRY(call_output(c, SCORES, "qk_matmul_output", 4, pairs, q.type, &scores));
    if (scores.data) t->scores = written(dense(scores.data, type_of(scores.type), pairs));

    TRY(set_mask(c, &mask));
    if (lengths.data) {
        TRY(expect(&lengths, 1, query));
        t->lengths_kv = (attn_input){lengths.data, type_of(lengths.type), {1, 0, 0, 0}};
    }
    const int64_t before = lengths.data ? -1 : past_key.data ? past_key.size[2] : 0;
    TRY(set_position(c, a->causal, a->window_left, a->window_right, before));
    c->problem.outputs.scores_stage = scores.data ? (attn_stage)a->scores_stage : 0;
    set_score(c, a);
    return call_run(c);
}
