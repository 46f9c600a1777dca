/* SPDX-License-Identifier: MIT */
#include "formula.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>

#define TRANSPOSED "\xe1\xb5\x80"
#define SQUARED    "\xc2\xb2"

static const char *const products[] = {
    [ATTN_SCORE_DOT] = "q k" TRANSPOSED,
    [ATTN_SCORE_GENERAL] = "q w k" TRANSPOSED,
    [ATTN_SCORE_METRIC] = "(w q) (w k)" TRANSPOSED,
    [ATTN_SCORE_COSINE] = "cos(q, k)",
    [ATTN_SCORE_DISTANCE] = "(-|q - k|" SQUARED ")",
    [ATTN_SCORE_ADDITIVE] = "w tanh(q + k)",
};

static const char *const normalisers[] = {
    [ATTN_NORMALISER_SOFTMAX] = "softmax",
    [ATTN_NORMALISER_SOFTMAX_ONE] = "softmax-one",
    [ATTN_NORMALISER_SIGMOID] = "sigmoid",
    [ATTN_NORMALISER_RELU] = "relu",
};

typedef struct line {
    char *text;
    size_t size, used;
} line;

__attribute__((format(printf, 2, 3))) static void add(line *to, const char *format, ...)
{
    va_list values;
    va_start(values, format);
    const int length = vsnprintf(to->text + to->used, to->size - to->used, format, values);
    va_end(values);
    if (length > 0) to->used += (size_t)length < to->size - to->used ? (size_t)length : to->size - to->used - 1;
}

static void add_score(line *to, const attn_score *score, const attn_tensors *t, int64_t dim_qk)
{
    const double temperature = score->temperature > 0 ? score->temperature : 1;
    double scale = 1;
    if (score->scale_kind == ATTN_SCALE_VALUE) scale = score->scale;
    else if (score->kind == ATTN_SCORE_DOT && dim_qk > 0) scale = 1 / sqrt((double)dim_qk);
    if (score->softcap > 0) add(to, "%.4g tanh(", score->softcap);
    if (t->scale.data && temperature != 1) add(to, "scale / %.4g ", temperature);
    else if (t->scale.data) add(to, "scale ");
    else if (scale != temperature) add(to, "%.4g ", scale / temperature);
    if (score->kind == ATTN_SCORE_ADDITIVE && score->additive_bias) add(to, "w tanh(q + k + b)");
    else add(to, "%s", t->relative_keys.data ? "q (k + r)" TRANSPOSED : products[score->kind]);
    if (score->softcap > 0) add(to, " / %.4g)", score->softcap);
}

static void add_mask(line *to, const attn_mask *mask, const attn_tensors *t)
{
    if (mask->causal) add(to, ", causal");
    if (mask->window && mask->window_left >= 0) add(to, ", at most %" PRId64 " keys back", mask->window_left);
    if (mask->window && mask->window_right >= 0) add(to, ", at most %" PRId64 " ahead", mask->window_right);
    if (mask->dilation > 1) add(to, ", every %" PRId64 "th key", mask->dilation);
    if (mask->chunk > 0) add(to, ", in chunks of %" PRId64, mask->chunk);
    if (mask->least_distance > 0) add(to, ", at least %" PRId64 " apart", mask->least_distance);
    if (t->mask.data || t->ranges.data || t->block_mask.data || t->block_index.data) add(to, ", masked");
}

void formula_print(const attention_input *input, char *text, size_t size)
{
    const attn_problem *p = &input->problem;
    const attn_tensors *t = &input->tensors;
    line to = {text, size, 0};
    add(&to, "%s(", normalisers[p->score.normaliser]);
    add_score(&to, &p->score, t, p->shape.dim_qk);
    if (t->bias.data || t->bias_table.data) add(&to, " + bias");
    if (t->alibi_slopes.data) add(&to, " - slope |i - j|");
    if (p->score.normaliser == ATTN_NORMALISER_SIGMOID && p->score.shift != 0)
        add(&to, " %c %.4g", p->score.shift < 0 ? '-' : '+', fabs(p->score.shift));
    add(&to, p->score.normaliser == ATTN_NORMALISER_RELU ? ") / visible keys" : ")");
    if (t->sink.data) add(&to, ", with a sink");
    if (input->rope.struct_size) add(&to, ", q and k rotated");
    add_mask(&to, &p->mask, t);
}
