/* SPDX-License-Identifier: MIT
 *
 * chunks.c - the numbers of the page. */
#include "chunks.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>

#include "encode.h"
#include "testing/memory/element.h"

/* The last step of 8 or 16 bits stands for "not a finite number". */
enum { NOT_A_BYTE = 255, NOT_A_STEP = 65535 };

__attribute__((format(printf, 2, 3))) static view_base64 begin(text_buffer *out, const char *name, ...)
{
    char id[100];
    va_list numbers;
    va_start(numbers, name);
    (void)vsnprintf(id, sizeof id, name, numbers);
    va_end(numbers);
    text_print(out, "<script type=\"text/plain\" id=\"attn-%s\">", id);
    return (view_base64){.out = out};
}

static void end(view_base64 *stream)
{
    view_base64_end(stream);
    text_string(stream->out, "</script>\n");
}

static void write_floats(view_base64 *stream, const float *numbers, int64_t count)
{
    for (int64_t k = 0; k < count; k++) view_base64_f32(stream, numbers[k]);
}

static void write_numbers(view_base64 *stream, const float *numbers, int64_t count, attn_dtype dtype)
{
    if (dtype == ATTN_F32) {
        write_floats(stream, numbers, count);
        return;
    }
    for (int64_t k = 0; k < count; k++) {
        uint16_t bits;
        element_write(dtype, &bits, (double)numbers[k]);
        view_base64_u16(stream, bits);
    }
}

/* A matrix as steps between its smallest and its largest number, both of which come first. */
static void write_steps(view_base64 *stream, const float *numbers, int64_t stride, int64_t rows, int64_t columns, int none)
{
    float low = INFINITY, high = -INFINITY;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++) {
            const float x = numbers[i * stride + j];
            if (!isfinite(x)) continue;
            low = fminf(low, x);
            high = fmaxf(high, x);
        }
    if (low > high) low = high = 0;
    write_floats(stream, (const float[]){low, high}, 2);
    const double steps = high > low ? (none - 1) / ((double)high - (double)low) : 0;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++) {
            const float x = numbers[i * stride + j];
            const long step = isfinite(x) ? lrint(((double)x - (double)low) * steps) : none;
            if (none == NOT_A_BYTE) view_base64_u8(stream, (uint8_t)step);
            else view_base64_u16(stream, (uint16_t)step);
        }
}

static void write_level(view_base64 *stream, const view_level *level)
{
    if (!level->rows) return;
    write_steps(stream, level->most, level->columns, level->rows, level->columns, NOT_A_BYTE);
    write_steps(stream, level->mean, level->columns, level->rows, level->columns, NOT_A_BYTE);
}

static void write_summaries(text_buffer *out, const view_data *data, int64_t s, int64_t layer)
{
    const view_summary *summary = data->sequence[s].summary + layer * data->heads;
    view_base64 stream = begin(out, "summary-%" PRId64 "-%" PRId64, s, layer);
    for (int64_t h = 0; h < data->heads; h++) {
        write_floats(&stream, &summary[h].largest, 1);
        write_floats(&stream, summary[h].spread, summary[h].len_q);
        write_floats(&stream, summary[h].received, summary[h].len_k);
        write_level(&stream, &summary[h].small);
    }
    end(&stream);
    for (int64_t h = 0; h < data->heads; h++) {
        if (!summary[h].large.rows) continue;
        stream = begin(out, "large-%" PRId64 "-%" PRId64 "-%" PRId64, s, layer, h);
        write_level(&stream, &summary[h].large);
        end(&stream);
    }
}

static void write_rows(text_buffer *out, const view_data *data, int64_t s, int64_t layer)
{
    const view_sequence *sequence = data->sequence + s;
    const view_rule *rule = sequence->rule;
    const view_rows *rows = &sequence->data;
    for (int64_t h = 0; h < data->heads; h++) {
        view_base64 stream = begin(out, "q-%" PRId64 "-%" PRId64 "-%" PRId64, s, layer, h);
        write_numbers(&stream, rows->q[layer * data->heads + h], sequence->len_q * rule->dim, rule->dtype);
        write_floats(&stream, rows->lse + (layer * data->heads + h) * sequence->rows, sequence->len_q);
        end(&stream);
    }
    for (int64_t g = 0; g < rule->groups; g++) {
        view_base64 stream = begin(out, "k-%" PRId64 "-%" PRId64 "-%" PRId64, s, layer, g);
        write_numbers(&stream, rows->k[layer * rule->groups + g], sequence->len_k * rule->dim, rule->dtype);
        if (rows->norms) write_floats(&stream, rows->norms[layer * rule->groups + g], sequence->len_k);
        end(&stream);
    }
}

static void write_weights(text_buffer *out, const view_data *data, int64_t s, int64_t layer, int exact)
{
    const view_sequence *sequence = data->sequence + s;
    const int64_t head = sequence->rows * sequence->columns;
    const float *weights = sequence->weights + layer * data->heads * head;
    view_base64 stream = begin(out, "weights-%" PRId64 "-%" PRId64, s, layer);
    for (int64_t h = 0; h < data->heads; h++, weights += head) {
        if (!exact) write_steps(&stream, weights, sequence->columns, sequence->len_q, sequence->len_k, NOT_A_STEP);
        for (int64_t i = 0; exact && i < sequence->len_q; i++)
            write_floats(&stream, weights + i * sequence->columns, sequence->len_k);
    }
    end(&stream);
}

void view_write_chunks(text_buffer *out, const view_data *data, int64_t s, int exact)
{
    for (int64_t layer = 0; layer < data->layers; layer++) {
        write_summaries(out, data, s, layer);
        if (data->sequence[s].rule) write_rows(out, data, s, layer);
        else write_weights(out, data, s, layer, exact);
    }
}
