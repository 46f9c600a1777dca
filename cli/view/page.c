/* SPDX-License-Identifier: MIT
 *
 * page.c - the page is the embedded source with one gap; this file checks the data and fills the gap with
 *
 *      <script type="application/json" id="attn-about">   sizes, tokens, texts
 *      <script type="text/plain" id="attn-weights-S-L">    base64 of all heads of sequence S and layer L, padding left out:
 *                      as f32: len_q * len_k values a head;
 *                      as u16: smallest and largest weight as f32, then len_q * len_k steps; 65535 is "not a finite number"
 */
#include "page.h"

#include "encode.h"
#include "source.h"
#include "testing/text/failure.h"

#include <inttypes.h>
#include <math.h>

#define LAST_STEP  65534
#define NOT_A_STEP 65535

/* The sequence as given, or the whole tensor without labels. */
static view_sequence sequence_at(const view_data *data, int64_t s)
{
    if (data->sequence) return data->sequence[s];
    return (view_sequence){.len_q = data->len_q, .len_k = data->len_k};
}

static attn_status check_sizes(const view_data *data, attn_error *error)
{
    const struct {
        const char *name;
        int64_t value;
    } sizes[] = {{"sequences", data->sequences},
                 {"layers", data->layers},
                 {"heads", data->heads},
                 {"queries", data->len_q},
                 {"keys", data->len_k}};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        if (sizes[i].value < 1)
            return failure(error, ATTN_ERR_SHAPE, "%s (%" PRId64 ") is below 1: there is nothing to show", sizes[i].name,
                           sizes[i].value);
    return ATTN_OK;
}

/* Divides instead of multiplying, so that no size overflows. */
static attn_status count_weights(const view_data *data, int64_t *count, attn_error *error)
{
    int64_t per_head = 0;
    if (data->layers > VIEW_MAX_HEADS / data->heads)
        return failure(error, ATTN_ERR_UNSUPPORTED,
                       "%" PRId64 " layers x %" PRId64 " heads are too many for a page (at most %" PRId64
                       " heads in all): choose fewer layers or heads",
                       data->layers, data->heads, VIEW_MAX_HEADS);
    int64_t all_heads = data->layers * data->heads;
    for (int64_t s = 0; s < data->sequences; s++) {
        view_sequence sequence = sequence_at(data, s);
        if (sequence.len_q < 0 || sequence.len_q > data->len_q)
            return failure(error, ATTN_ERR_SHAPE,
                           "length %" PRId64 " of sequence %" PRId64 " is not between 0 and %" PRId64 " queries", sequence.len_q, s,
                           data->len_q);
        if (sequence.len_k < 0 || sequence.len_k > data->len_k)
            return failure(error, ATTN_ERR_SHAPE,
                           "length %" PRId64 " of sequence %" PRId64 " is not between 0 and %" PRId64 " keys", sequence.len_k, s,
                           data->len_k);
        int64_t capacity = VIEW_MAX_WEIGHTS / all_heads - per_head;
        if (sequence.len_k > 0 && sequence.len_q > capacity / sequence.len_k)
            return failure(error, ATTN_ERR_UNSUPPORTED,
                           "%" PRId64 " x %" PRId64 " x %" PRId64 " x %" PRId64 " x %" PRId64
                           " weights (sequences x layers x heads x "
                           "queries x keys) are too many for a page (at most %" PRId64 "): choose fewer of them",
                           data->sequences, data->layers, data->heads, data->len_q, data->len_k, VIEW_MAX_WEIGHTS);
        per_head += sequence.len_q * sequence.len_k;
    }
    *count = per_head * all_heads;
    return ATTN_OK;
}

static void write_labels(text_buffer *out, const char *const *labels, int64_t count)
{
    if (!labels) {
        text_string(out, "null");
        return;
    }
    for (int64_t i = 0; i < count; i++) {
        text_letter(out, i ? ',' : '[');
        view_encode_text(out, labels[i] ? labels[i] : "");
    }
    text_string(out, count ? "]" : "[]");
}

static void write_numbers(text_buffer *out, const int64_t *numbers, int64_t count)
{
    for (int64_t i = 0; i < count; i++) text_print(out, "%c%" PRId64, i ? ',' : '[', numbers ? numbers[i] : i);
    text_letter(out, ']');
}

static void write_sequence(text_buffer *out, const view_sequence *sequence)
{
    text_string(out, "{\"name\":");
    view_encode_text(out, sequence->name);
    text_print(out, ",\"lenQ\":%" PRId64 ",\"lenK\":%" PRId64 ",\"firstQuery\":%" PRId64 ",\"queries\":", sequence->len_q,
               sequence->len_k, sequence->first_query);
    write_labels(out, sequence->queries, sequence->len_q);
    text_string(out, ",\"keys\":");
    write_labels(out, sequence->keys, sequence->len_k);
    text_letter(out, '}');
}

static void write_about(text_buffer *out, const view_data *data, int exact)
{
    text_print(out, "<script type=\"application/json\" id=\"attn-about\">{\"encoding\":\"%s\",\"title\":", exact ? "f32" : "u16");
    view_encode_text(out, data->title);
    text_string(out, ",\"source\":");
    view_encode_text(out, data->source);
    text_string(out, ",\"attribution\":");
    view_encode_text(out, data->attribution);
    text_string(out, ",\"layers\":");
    write_numbers(out, data->layer_numbers, data->layers);
    text_string(out, ",\"heads\":");
    write_numbers(out, data->head_numbers, data->heads);
    text_string(out, ",\"facts\":[");
    for (int64_t i = 0; i < data->facts_count; i++) {
        text_string(out, i ? ",[" : "[");
        view_encode_text(out, data->facts[i].name);
        text_letter(out, ',');
        view_encode_text(out, data->facts[i].value);
        text_letter(out, ']');
    }
    text_string(out, "],\"sequences\":[");
    for (int64_t s = 0; s < data->sequences; s++) {
        view_sequence sequence = sequence_at(data, s);
        if (s) text_letter(out, ',');
        write_sequence(out, &sequence);
    }
    text_string(out, "]}</script>\n");
}

static void write_exact(view_base64 *stream, const float *weights, int64_t stride, const view_sequence *sequence)
{
    for (int64_t i = 0; i < sequence->len_q; i++)
        for (int64_t j = 0; j < sequence->len_k; j++) view_base64_f32(stream, weights[i * stride + j]);
}

static void write_steps(view_base64 *stream, const float *weights, int64_t stride, const view_sequence *sequence)
{
    float low = INFINITY, high = -INFINITY;
    for (int64_t i = 0; i < sequence->len_q; i++)
        for (int64_t j = 0; j < sequence->len_k; j++) {
            float w = weights[i * stride + j];
            if (!isfinite(w)) continue;
            low = fminf(low, w);
            high = fmaxf(high, w);
        }
    if (low > high) low = high = 0;
    view_base64_f32(stream, low);
    view_base64_f32(stream, high);
    double steps = high > low ? LAST_STEP / ((double)high - (double)low) : 0;
    for (int64_t i = 0; i < sequence->len_q; i++)
        for (int64_t j = 0; j < sequence->len_k; j++) {
            float w = weights[i * stride + j];
            view_base64_u16(stream, isfinite(w) ? (uint16_t)lrint(((double)w - (double)low) * steps) : NOT_A_STEP);
        }
}

static void write_weights(text_buffer *out, const view_data *data, int exact)
{
    const float *weights = data->weights;
    for (int64_t s = 0; s < data->sequences; s++) {
        view_sequence sequence = sequence_at(data, s);
        for (int64_t l = 0; l < data->layers; l++) {
            view_base64 stream = {.out = out};
            text_print(out, "<script type=\"text/plain\" id=\"attn-weights-%" PRId64 "-%" PRId64 "\">", s, l);
            for (int64_t h = 0; h < data->heads; h++, weights += data->len_q * data->len_k)
                (exact ? write_exact : write_steps)(&stream, weights, data->len_k, &sequence);
            view_base64_end(&stream);
            text_string(out, "</script>\n");
        }
    }
}

attn_status view_write(text_buffer *out, const view_data *data, attn_error *error)
{
    attn_status status;
    int64_t count = 0;
    if (!out || !data || !data->weights) return failure(error, ATTN_ERR_ARGUMENT, "out, data or weights is NULL");
    if ((status = check_sizes(data, error)) != ATTN_OK) return status;
    if ((status = count_weights(data, &count, error)) != ATTN_OK) return status;

    int exact = count <= VIEW_EXACT_WEIGHTS;
    text_add(out, view_source_before, view_source_before_size);
    write_about(out, data, exact);
    write_weights(out, data, exact);
    text_add(out, view_source_after, view_source_after_size);
    attn_status whole = text_status(out, "the page", error);
    if (whole != ATTN_OK) return whole;
    if (error) *error = (attn_error){.status = ATTN_OK};
    return ATTN_OK;
}
