/* SPDX-License-Identifier: MIT
 * multihead.c - com.microsoft MultiHeadAttention, as the runtime's own kernel for CPUs computes it: a padding key is not hidden, a
 * number is added to its score, so that a query with padding alone averages all keys as if none was. */
#include <string.h>

#include "shim.h"

enum { QUERY, KEY, VALUE, BIAS, PADDING, ADDED, PAST_KEY, PAST_VALUE, PAST_LENGTH, BEAMS }; /* inputs */
enum { O, PRESENT_KEY, PRESENT_VALUE, SCORES };                                             /* outputs */

const char *multihead_read(const source *s, attributes *a)
{
    a->heads_q = a->heads_kv = source_int(s, "num_heads", 0);
    a->causal = source_int(s, "unidirectional", 0) != 0;
    a->scale = source_float(s, "scale", 0);
    a->hidden = source_float(s, "mask_filter_value", -10000);
    a->window_left = a->window_right = -1;
    return a->heads_q < 1 ? "num_heads is less than 1" : NULL;
}

const char *multihead_refuse(const shape_of_node *node, const attributes *a)
{
    (void)a;
    if (HAS(node->outputs, SCORES)) return "the output qk";
    if (HAS(node->inputs, PAST_LENGTH) || HAS(node->inputs, BEAMS)) return "past_sequence_length or cache_indirection";
    if (HAS(node->inputs, PAST_KEY) != HAS(node->inputs, PAST_VALUE)) return "one of past_key and past_value without the other";
    if (HAS(node->inputs, BIAS) && HAS(node->inputs, KEY) && node->rank[KEY] != 3 && node->rank[KEY] != 5)
        return "a bias with keys of 4 axes";
    return NULL;
}

/* [B, T, heads, parts, dim], part number `part`. */
static attn_input part_of(const value *v, int64_t part, int64_t sizes[4])
{
    const int64_t token = v->size[2] * v->size[3] * v->size[4], all[4] = {v->size[0], v->size[2], v->size[1], v->size[4]};
    const attn_dtype type = type_of(v->type);
    char *data = v->data == ATTN_EMPTY ? v->data : (char *)v->data + (size_t)(part * v->size[4]) * attn_dtype_size(type);
    memcpy(sizes, all, sizeof all);
    return (attn_input){data, type, {v->size[1] * token, v->size[3] * v->size[4], token, 1}};
}

/* A copy of the rows plus the bias of each channel. */
static ort_status *add_bias(call *c, const float *bias, attn_input *slot, const int64_t sizes[4])
{
    const attn_input old = *slot;
    const int64_t dim = sizes[3];
    const size_t element = attn_dtype_size(old.dtype);
    char *to;
    float *row;
    if (old.data == ATTN_EMPTY) return NULL;
    TRY(call_scratch(c, sizes[0] * sizes[1] * sizes[2] * dim, element, (void **)&to));
    TRY(call_scratch(c, dim, sizeof *row, (void **)&row));
    *slot = dense(to, old.dtype, sizes);
    for (int64_t b = 0; b < sizes[0]; b++)
        for (int64_t h = 0; h < sizes[1]; h++)
            for (int64_t t = 0; t < sizes[2]; t++, to += (size_t)dim * element) {
                const int64_t at = b * old.stride[0] + h * old.stride[1] + t * old.stride[2];
                attn_convert(dim, (const char *)old.data + (size_t)at * element, old.dtype, row, ATTN_F32, NULL);
                for (int64_t i = 0; i < dim; i++) row[i] += bias[h * dim + i];
                attn_convert(dim, row, ATTN_F32, to, old.dtype, NULL);
            }
    return NULL;
}

/* Slots and sizes of queries, keys and values in any of their layouts. */
static ort_status *read_rows(const attributes *a, call *c, int64_t q[4], int64_t k[4], int64_t v[4])
{
    value query, key, values, bias;
    attn_tensors *t = &c->tensors;
    TRY(call_input(c, QUERY, "query", &query));
    TRY(call_input(c, KEY, "key", &key));
    TRY(call_input(c, VALUE, "value", &values));
    TRY(call_input(c, BIAS, "bias", &bias));
    if (query.rank == 5 && !key.data && !values.data && query.size[3] == 3) {
        t->q = part_of(&query, 0, q);
        t->k = part_of(&query, 1, k);
        t->v = part_of(&query, 2, v);
    } else if (query.rank == 3 && key.rank == 5 && !values.data && key.size[3] == 2) {
        TRY(rows_of(&query, a->heads_q, &t->q, q));
        t->k = part_of(&key, 0, k);
        t->v = part_of(&key, 1, v);
    } else if (query.rank == 3 && key.data && values.data && key.rank == values.rank && (key.rank == 3 || key.rank == 4)) {
        TRY(rows_of(&query, a->heads_q, &t->q, q));
        TRY(rows_of(&key, a->heads_kv, &t->k, k));
        TRY(rows_of(&values, a->heads_kv, &t->v, v));
    } else
        return fail(ORT_INVALID_ARGUMENT,
                    "query, key and value have %d, %d and %d axes; they must have 3, 3, 3 or 3, 4, 4, or be "
                    "packed in 5",
                    query.rank, key.rank, values.rank);
    const int64_t q_want[4] = {q[0], a->heads_q, q[2], q[3]}, k_want[4] = {q[0], a->heads_kv, k[2], q[3]},
                  v_want[4] = {q[0], a->heads_kv, k[2], v[3]};
    TRY(expect_sizes("query as [batch, heads, tokens, dim]", q, q_want));
    TRY(expect_sizes("key as [batch, heads, tokens, dim]", k, k_want));
    TRY(expect_sizes("value as [batch, heads, tokens, dim]", v, v_want));
    if (!bias.data) return NULL;
    const int64_t channels = a->heads_q * q[3], all = 2 * channels + a->heads_q * v[3];
    float *numbers;
    TRY(expect(&bias, 1, &all));
    if (bias.data == ATTN_EMPTY) return NULL;
    TRY(call_scratch(c, all, sizeof *numbers, (void **)&numbers));
    if (attn_convert(all, bias.data, type_of(bias.type), numbers, ATTN_F32, NULL)) return fail(ORT_FAIL, "cannot convert bias");
    TRY(add_bias(c, numbers, &t->q, q));
    TRY(add_bias(c, numbers + channels, &t->k, k));
    return add_bias(c, numbers + 2 * channels, &t->v, v);
}

/* ---- padding --------------------------------------------------------------------------------------------------- */

/* 1 if each of the rows is ones and then zeros, at least one of them 1; *lengths: how many ones. */
static int are_lengths(const int32_t *mask, int64_t rows, int64_t keys, int32_t *lengths)
{
    for (int64_t row = 0; row < rows; row++, mask += keys) {
        int64_t seen = 0;
        while (seen < keys && mask[seen] > 0) seen++;
        for (int64_t j = seen; j < keys; j++)
            if (mask[j] > 0) return 0;
        if (!seen) return 0;
        lengths[row] = (int32_t)seen;
    }
    return 1;
}

/* The padding as what it adds to scores, [rows, keys]. */
static ort_status *added_by(call *c, const attributes *a, const value *padding, int64_t rows, int64_t keys, float **added)
{
    const int32_t *mask = padding->data;
    TRY(call_scratch(c, rows * keys, sizeof **added, (void **)added));
    for (int64_t row = 0; row < rows; row++)
        for (int64_t j = 0; j < keys; j++) {
            const int seen = padding->rank == 1 ? j < mask[row] : mask[row * keys + j] > 0;
            (*added)[row * keys + j] = seen ? 0 : (float)a->hidden;
        }
    return NULL;
}

/* Both: the padding of [B, 1 or S, T] and attention_bias. */
static ort_status *add_both(call *c, const value *bias, const attn_input *slot, const float *padding, int64_t per_entry)
{
    const attn_shape *shape = &c->problem.shape;
    const int64_t heads = slot->stride[1] ? shape->heads_q : 1, keys = shape->len_kv, queries = shape->len_q;
    const int64_t sizes[4] = {shape->batch, heads, queries, keys};
    int64_t count = 1;
    float *numbers, *sum;
    for (int axis = 0; axis < bias->rank; axis++) count *= bias->size[axis];
    TRY(call_scratch(c, count, sizeof *numbers, (void **)&numbers));
    if (attn_convert(count, bias->data, slot->dtype, numbers, ATTN_F32, NULL))
        return fail(ORT_FAIL, "cannot convert attention_bias");
    TRY(call_scratch(c, shape->batch * heads * queries * keys, sizeof *sum, (void **)&sum));
    c->tensors.bias = dense(sum, ATTN_F32, sizes);
    if (heads == 1) c->tensors.bias.stride[1] = 0;
    const int64_t batch_step = slot->stride[0] == ATTN_BROADCAST ? 0 : slot->stride[0];
    for (int64_t b = 0; b < shape->batch; b++)
        for (int64_t h = 0; h < heads; h++)
            for (int64_t i = 0; i < queries; i++) {
                const float *one = numbers + b * batch_step + h * slot->stride[1] + i * slot->stride[2];
                const float *other = padding + (b * per_entry + (per_entry > 1 ? i : 0)) * keys;
                for (int64_t j = 0; j < keys; j++) *sum++ = one[j * slot->stride[3]] + other[j];
            }
    return NULL;
}

static ort_status *set_masks(const attributes *a, call *c)
{
    const attn_shape *shape = &c->problem.shape;
    const int64_t pairs[4] = {shape->batch, shape->heads_q, shape->len_q, shape->len_kv};
    const int64_t three[3] = {shape->batch, shape->len_q, shape->len_kv}, two[2] = {shape->batch, shape->len_kv};
    value padding, bias;
    attn_input slot = {0};
    float *added;
    int32_t *lengths;
    TRY(call_input(c, PADDING, "key_padding_mask", &padding));
    TRY(call_input(c, ADDED, "attention_bias", &bias));
    if (bias.data) {
        if (bias.rank != 4) return fail(ORT_INVALID_ARGUMENT, "attention_bias has %d axes; it must have 4", bias.rank);
        TRY(pairs_of(&bias, pairs, &slot));
    }
    c->tensors.bias = slot;
    if (!padding.data) return NULL;
    TRY(padding.rank == 1 ? expect(&padding, 1, two) : padding.rank == 2 ? expect(&padding, 2, two) : expect(&padding, 3, three));
    if (padding.data == ATTN_EMPTY) return NULL;
    const int64_t per_entry = padding.rank == 3 ? shape->len_q : 1, rows = shape->batch * per_entry;
    if (padding.rank < 3 && a->hidden <= -10000) { /* then exp(hidden) is 0 */
        const int32_t *mask = padding.data;
        int fits = 1;
        TRY(call_scratch(c, shape->batch, sizeof *lengths, (void **)&lengths));
        if (padding.rank == 2) fits = are_lengths(mask, shape->batch, shape->len_kv, lengths);
        for (int64_t b = 0; padding.rank == 1 && b < shape->batch; b++) {
            fits = fits && mask[b] > 0;
            lengths[b] = mask[b] > shape->len_kv ? (int32_t)shape->len_kv : mask[b];
        }
        if (fits) {
            c->tensors.lengths_kv = (attn_input){lengths, ATTN_I32, {1, 0, 0, 0}};
            return NULL;
        }
    }
    TRY(added_by(c, a, &padding, rows, shape->len_kv, &added));
    if (bias.data && bias.data != ATTN_EMPTY) return add_both(c, &bias, &slot, added, per_entry);
    const int64_t sizes[4] = {shape->batch, 1, per_entry, shape->len_kv};
    c->tensors.bias = dense(added, ATTN_F32, sizes);
    c->tensors.bias.stride[1] = 0;
    if (per_entry == 1) c->tensors.bias.stride[2] = 0;
    return NULL;
}

/* The runtime's kernel lets the last query see all keys, which matters where there are more new keys than queries. */
static ort_status *set_causal(const attributes *a, call *c, int64_t before)
{
    const int64_t queries = c->problem.shape.len_q, keys = c->problem.shape.len_kv, sizes[4] = {1, 1, queries, keys};
    unsigned char *mask;
    if (!a->causal || queries < 2) return NULL;
    if (keys - before == queries) return set_position(c, 1, -1, -1, before);
    TRY(call_scratch(c, queries * keys, 1, (void **)&mask));
    for (int64_t i = 0; i < queries; i++)
        for (int64_t j = 0; j < keys; j++) mask[i * keys + j] = j <= i + before || i == queries - 1;
    c->tensors.mask = keys ? dense(mask, ATTN_BOOL, sizes) : (attn_input){0};
    c->tensors.mask.stride[0] = c->tensors.mask.stride[1] = 0;
    return NULL;
}

/* ---- all of it ------------------------------------------------------------------------------------------------- */

ort_status *multihead_compute(const attributes *a, call *c)
{
    value past_key, past_value, o;
    int64_t q[4], k[4], v[4], sizes[4];
    attn_tensors *t = &c->tensors;
    attn_input slot;
    TRY(read_rows(a, c, q, k, v));
    TRY(call_input(c, PAST_KEY, "past_key", &past_key));
    TRY(call_input(c, PAST_VALUE, "past_value", &past_value));
    const int type = past_key.data ? past_key.type : 0;
    TRY(joined(c, &past_key, PRESENT_KEY, "present_key", type, &t->k, k));
    TRY(joined(c, &past_value, PRESENT_VALUE, "present_value", type, &t->v, v));
    if (v[2] != k[2]) return fail(ORT_INVALID_ARGUMENT, "past_key and past_value have different lengths");
    c->problem.shape = (attn_shape){q[0], q[1], k[1], q[2], k[2], q[3], v[3]};

    const int64_t three[3] = {q[0], q[2], q[1] * v[3]};
    TRY(call_output(c, O, "output", 3, three, 0, &o));
    TRY(rows_of(&o, a->heads_q, &slot, sizes));
    t->o = written(slot);
    TRY(set_masks(a, c));
    TRY(set_causal(a, c, past_key.data ? past_key.size[2] : 0));
    set_score(c, a);
    return call_run(c);
}
