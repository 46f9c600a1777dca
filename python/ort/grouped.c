/* SPDX-License-Identifier: MIT
 * grouped.c - com.microsoft GroupQueryAttention: new tokens go into a cache, where each sequence has a length of its own. */
#include <string.h>

#include "shim.h"

enum { QUERY, KEY, VALUE, PAST_KEY, PAST_VALUE, LENGTHS, TOTAL, COSINES, SINES, POSITIONS, ADDED, SINK, FURTHER }; /* inputs */
enum { O, PRESENT_KEY, PRESENT_VALUE, SCORES };                                                                    /* outputs */

const char *grouped_read(const source *s, attributes *a)
{
    char keys[16], values[16];
    a->heads_q = source_int(s, "num_heads", 0);
    a->heads_kv = source_int(s, "kv_num_heads", 0);
    a->causal = source_int(s, "causal", 1) != 0;
    a->scale = source_float(s, "scale", 0);
    a->softcap = source_float(s, "softcap", 0);
    a->window_left = source_int(s, "local_window_size", -1);
    a->window_right = -1;
    a->rotary = source_int(s, "do_rotary", 0) == 1;
    a->interleaved = source_int(s, "rotary_interleaved", 0) == 1;
    a->smooth = source_int(s, "smooth_softmax", 0) == 1;
    source_string(s, "k_quant_type", keys, sizeof keys);
    source_string(s, "v_quant_type", values, sizeof values);
    if (a->heads_q < 1 || a->heads_kv < 1) return "num_heads or kv_num_heads is less than 1";
    if (!(a->softcap >= 0)) return "softcap is negative";
    if (source_int(s, "qk_output", 0)) return "the output output_qk";
    if (source_int(s, "sliding_window_cache", 0)) return "sliding_window_cache";
    if ((*keys && strcmp(keys, "NONE")) || (*values && strcmp(values, "NONE"))) return "a quantised cache";
    if (!a->window_left) return "local_window_size is 0";
    if (a->window_left > 0 && !a->causal) return "a window that is not causal";
    return NULL;
}

const char *grouped_refuse(const shape_of_node *node, const attributes *a)
{
    if (node->inputs >> FURTHER) return "an input after head_sink";
    if (HAS(node->outputs, SCORES)) return "the output output_qk";
    if (HAS(node->inputs, PAST_KEY) != HAS(node->inputs, PAST_VALUE)) return "one of past_key and past_value without the other";
    if (HAS(node->inputs, KEY) != HAS(node->inputs, VALUE)) return "one of key and value without the other";
    if (a->rotary && (!HAS(node->inputs, COSINES) || !HAS(node->inputs, SINES))) return "do_rotary without cos_cache and sin_cache";
    if (HAS(node->inputs, PAST_KEY) && node->type[PAST_KEY] != node->type[QUERY]) return "a cache of another type than the query";
    return NULL;
}

/* What there is to know of the sequences. */
typedef struct sequences {
    const int32_t *last; /* [batch]: the index of the last key */
    int64_t total;       /* the longest */
    int first;           /* the first tokens of all of them, padded on the right */
} sequences;

static int64_t before(const sequences *s, const call *c, int64_t b)
{
    return s->first ? 0 : (int64_t)s->last[b] + 1 - c->problem.shape.len_q;
}

static ort_status *read_sequences(call *c, int64_t batch, sequences *s)
{
    value lengths, total;
    TRY(call_input(c, LENGTHS, "seqlens_k", &lengths));
    TRY(call_input(c, TOTAL, "total_sequence_length", &total));
    const int64_t two[2] = {batch, 1};
    TRY(lengths.rank == 2 ? expect(&lengths, 2, two) : expect(&lengths, 1, two));
    if (!total.data || total.data == ATTN_EMPTY) return fail(ORT_INVALID_ARGUMENT, "total_sequence_length has no number");
    s->last = lengths.data;
    s->total = *(const int32_t *)total.data;
    s->first = s->total == c->problem.shape.len_q;
    const int64_t least = s->first ? 0 : c->problem.shape.len_q - 1;
    for (int64_t b = 0; b < batch; b++)
        if (s->last[b] < least || s->last[b] >= s->total)
            return fail(ORT_INVALID_ARGUMENT, "seqlens_k[%lld] (%d) is not between %lld and %lld", (long long)b, s->last[b],
                        (long long)least, (long long)s->total - 1);
    return NULL;
}

/* ---- queries, keys and values ---------------------------------------------------------------------------------- */

static ort_status *read_rows(const attributes *a, call *c, int64_t q[4], int64_t k[4])
{
    value query, key, values;
    attn_tensors *t = &c->tensors;
    int64_t v[4];
    TRY(call_input(c, QUERY, "query", &query));
    TRY(call_input(c, KEY, "key", &key));
    TRY(call_input(c, VALUE, "value", &values));
    if (query.rank != 3) return fail(ORT_INVALID_ARGUMENT, "query has %d axes; it must have 3", query.rank);
    if (key.data) {
        TRY(rows_of(&query, a->heads_q, &t->q, q));
        TRY(rows_of(&key, a->heads_kv, &t->k, k));
        TRY(rows_of(&values, a->heads_kv, &t->v, v));
        const int64_t want[4] = {q[0], a->heads_kv, q[2], q[3]};
        TRY(expect_sizes("key as [batch, heads, tokens, dim]", k, want));
        return expect_sizes("value as [batch, heads, tokens, dim]", v, want);
    }
    TRY(rows_of(&query, a->heads_q + 2 * a->heads_kv, &t->q, q));
    memcpy(k, q, 4 * sizeof *q);
    q[1] = a->heads_q;
    k[1] = a->heads_kv;
    t->k = t->v = t->q;
    if (query.data == ATTN_EMPTY) return NULL;
    const size_t head = (size_t)q[3] * attn_dtype_size(t->q.dtype);
    t->k.data = (const char *)t->q.data + (size_t)a->heads_q * head;
    t->v.data = (const char *)t->k.data + (size_t)a->heads_kv * head;
    return NULL;
}

static ort_status *read_positions(call *c, const sequences *s, int64_t **positions)
{
    const int64_t batch = c->problem.shape.batch, queries = c->problem.shape.len_q, two[2] = {batch, queries};
    value given;
    TRY(call_input(c, POSITIONS, "position_ids", &given));
    TRY(call_scratch(c, batch * queries, sizeof **positions, (void **)positions));
    if (given.data && !s->first) TRY(expect(&given, 2, two));
    const int64_t *numbers = given.data == ATTN_EMPTY ? NULL : given.data;
    for (int64_t b = 0; b < batch; b++)
        for (int64_t i = 0; i < queries; i++) {
            int64_t *to = &(*positions)[b * queries + i];
            if (!numbers) *to = before(s, c, b) + i;
            else *to = s->first ? numbers[0] + i : numbers[b * queries + i];
        }
    return NULL;
}

/* A cache [B, heads, capacity, dim] with the past of each sequence, into which its new tokens are to go. */
static ort_status *open_cache(call *c, const sequences *s, const value *past, size_t index, const char *name, const int64_t k[4],
                              value *present)
{
    int64_t capacity = s->total;
    if (past->data && past->rank == 4 && past->size[2] > capacity) capacity = past->size[2];
    const int64_t sizes[4] = {k[0], k[1], capacity, k[3]};
    const size_t row = (size_t)k[3] * attn_dtype_size(c->tensors.k.dtype);
    if (past->data) {
        const int64_t want[4] = {k[0], k[1], past->rank == 4 ? past->size[2] : 0, k[3]};
        TRY(expect(past, 4, want));
    }
    TRY(call_output(c, index, name, 4, sizes, 0, present));
    if ((past->data && type_of(past->type) != c->tensors.k.dtype) ||
        (present->data && type_of(present->type) != c->tensors.k.dtype))
        return fail(ORT_INVALID_ARGUMENT, "%s has another element type than the keys", past->data ? past->name : name);
    if (!present->data) {
        *present = (value){.name = name, .rank = 4, .size = {sizes[0], sizes[1], sizes[2], sizes[3]}};
        TRY(call_scratch(c, sizes[0] * sizes[1] * sizes[2], row, &present->data));
    }
    if (present->data == past->data || present->data == ATTN_EMPTY) return NULL;
    for (int64_t i = 0; i < k[0] * k[1]; i++) {
        const int64_t old = before(s, c, i / k[1]);
        char *to = (char *)present->data + (size_t)(i * capacity) * row;
        if (old && (!past->data || past->size[2] < old))
            return fail(ORT_INVALID_ARGUMENT, "seqlens_k[%lld] (%d) asks for %lld past tokens, and %s has %lld",
                        (long long)(i / k[1]), s->last[i / k[1]], (long long)old, past->name,
                        past->data ? (long long)past->size[2] : 0);
        if (old) memcpy(to, (const char *)past->data + (size_t)(i * past->size[2]) * row, (size_t)old * row);
        memset(to + (size_t)old * row, 0, (size_t)(capacity - old) * row);
    }
    return NULL;
}

/* The new tokens of one sequence in a cache. */
static attn_input place_in(const value *present, attn_dtype type, int64_t b, int64_t old)
{
    attn_input slot = dense(present->data, type, present->size);
    slot.data = (char *)present->data + (size_t)(b * slot.stride[0] + old * slot.stride[2]) * attn_dtype_size(type);
    return slot;
}

static void store(const attn_input *from, const attn_input *to, const int64_t sizes[4], int64_t b)
{
    const size_t element = attn_dtype_size(from->dtype), row = (size_t)sizes[3] * element;
    for (int64_t h = 0; h < sizes[1]; h++)
        for (int64_t i = 0; i < sizes[2]; i++)
            memcpy((char *)(uintptr_t)to->data + (size_t)(h * to->stride[1] + i * to->stride[2]) * element,
                   (const char *)from->data + (size_t)(b * from->stride[0] + h * from->stride[1] + i * from->stride[2]) * element,
                   row);
}

/* Turns the queries, in a copy, and the keys on their way into the cache. */
static ort_status *rotate_all(const attributes *a, call *c, const sequences *s, const value *keys, const int64_t q[4],
                              const int64_t k[4])
{
    attn_tensors *t = &c->tensors;
    value cosines, sines;
    int64_t *positions;
    void *rotated;
    TRY(call_input(c, COSINES, "cos_cache", &cosines));
    TRY(call_input(c, SINES, "sin_cache", &sines));
    if (cosines.rank != 2 || 2 * cosines.size[1] > q[3])
        return fail(ORT_INVALID_ARGUMENT,
                    "cos_cache must have 2 axes, the last at most half as long as the %lld channels of a head", (long long)q[3]);
    TRY(expect(&sines, 2, cosines.size));
    TRY(read_positions(c, s, &positions));
    TRY(call_scratch(c, q[0] * q[1] * q[2] * q[3], attn_dtype_size(t->q.dtype), &rotated));
    rotation one = {&cosines, &sines, positions, {q[0], q[1], q[2], q[3]}, t->q, dense(rotated, t->q.dtype, q), a->interleaved};
    TRY(rotate(c, &one));
    t->q = one.to;
    for (int64_t b = 0; b < k[0]; b++) {
        rotation next = {&cosines,
                         &sines,
                         positions + b * k[2],
                         {1, k[1], k[2], k[3]},
                         t->k,
                         place_in(keys, t->k.dtype, b, before(s, c, b)),
                         a->interleaved};
        next.from.data = (const char *)t->k.data + (size_t)(b * t->k.stride[0]) * attn_dtype_size(t->k.dtype);
        TRY(rotate(c, &next));
    }
    return NULL;
}

/* ---- all of it ------------------------------------------------------------------------------------------------- */

static ort_status *set_sink(const attributes *a, call *c)
{
    value sink;
    float *numbers;
    TRY(call_input(c, SINK, "head_sink", &sink));
    if (!sink.data) {
        if (a->smooth) c->problem.score.normaliser = ATTN_NORMALISER_SOFTMAX_ONE;
        return NULL;
    }
    TRY(expect(&sink, 1, &a->heads_q));
    TRY(call_scratch(c, a->heads_q, sizeof *numbers, (void **)&numbers));
    if (attn_convert(a->heads_q, sink.data, type_of(sink.type), numbers, ATTN_F32, NULL))
        return fail(ORT_FAIL, "cannot convert head_sink");
    c->tensors.sink = (attn_input){numbers, ATTN_F32, {0, 1, 0, 0}};
    return NULL;
}

static ort_status *set_lengths(call *c, const sequences *s)
{
    int32_t *lengths;
    TRY(call_scratch(c, c->problem.shape.batch, sizeof *lengths, (void **)&lengths));
    for (int64_t b = 0; b < c->problem.shape.batch; b++) lengths[b] = s->last[b] + 1;
    c->tensors.lengths_kv = (attn_input){lengths, ATTN_I32, {1, 0, 0, 0}};
    return NULL;
}

ort_status *grouped_compute(const attributes *a, call *c)
{
    value past_key, past_value, keys, values, o, bias;
    int64_t q[4], k[4], sizes[4];
    attn_tensors *t = &c->tensors;
    attn_input slot;
    sequences s;
    TRY(read_rows(a, c, q, k));
    c->problem.shape = (attn_shape){q[0], q[1], k[1], q[2], 0, q[3], q[3]};
    TRY(read_sequences(c, q[0], &s));
    c->problem.shape.len_kv = s.total;
    TRY(call_input(c, PAST_KEY, "past_key", &past_key));
    TRY(call_input(c, PAST_VALUE, "past_value", &past_value));
    TRY(open_cache(c, &s, &past_key, PRESENT_KEY, "present_key", k, &keys));
    TRY(open_cache(c, &s, &past_value, PRESENT_VALUE, "present_value", k, &values));
    if (t->k.data != ATTN_EMPTY) {
        if (a->rotary) TRY(rotate_all(a, c, &s, &keys, q, k));
        for (int64_t b = 0; b < k[0]; b++) {
            const attn_input key_to = place_in(&keys, t->k.dtype, b, before(&s, c, b)),
                             value_to = place_in(&values, t->v.dtype, b, before(&s, c, b));
            if (!a->rotary) store(&t->k, &key_to, k, b);
            store(&t->v, &value_to, k, b);
        }
    }
    t->k = dense(keys.data, t->k.dtype, keys.size);
    t->v = dense(values.data, t->v.dtype, values.size);

    const int64_t three[3] = {q[0], q[2], q[1] * q[3]}, pairs[4] = {q[0], q[1], q[2], s.total};
    TRY(call_output(c, O, "output", 3, three, 0, &o));
    TRY(rows_of(&o, a->heads_q, &slot, sizes));
    t->o = written(slot);
    TRY(call_input(c, ADDED, "attention_bias", &bias));
    if (bias.data) {
        if (bias.rank != 4) return fail(ORT_INVALID_ARGUMENT, "attention_bias has %d axes; it must have 4", bias.rank);
        TRY(pairs_of(&bias, pairs, &t->bias));
    }
    TRY(set_sink(a, c));
    TRY(set_lengths(c, &s));
    TRY(set_position(c, a->causal, a->window_left > 0 ? a->window_left - 1 : -1, -1, s.first ? 0 : -1));
    set_score(c, a);
    return call_run(c);
}
