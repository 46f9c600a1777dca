/* SPDX-License-Identifier: MIT
 *
 * computed.c - q and k of the page.  The largest weight w_ij of a row, computed by the library from the rounded q and k, and its
 * score s_ij give lse_i = s_ij - log w_ij, whatever else is in the denominator. */
#include "computed.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/base/progress.h"
#include "cli/compute/weights.h"
#include "role_pass.h"
#include "testing/memory/element.h"
#include "testing/text/failure.h"

static const double largest_f16 = 65504;

/* A rule describes all layers of an entry: positions and lengths may not differ between them. */
static int same_in_all_layers(const shown *s)
{
    const attn_tensors *t = &s->input.tensors;
    const int64_t *const tables[] = {t->lengths_q.data, t->lengths_kv.data, t->offset_q.data};
    for (size_t k = 0; k < sizeof tables / sizeof *tables; k++)
        for (int64_t e = 0; e < s->entries && tables[k]; e++)
            for (int64_t y = 1; y < s->layers; y++)
                if (tables[k][shown_batch(s, y, e)] != tables[k][shown_batch(s, 0, e)]) return 0;
    return 1;
}

/* Numbers of q and k in the page; at most one more than fit. */
static int64_t count_numbers(const shown *s)
{
    const attn_shape *shape = &s->input.problem.shape;
    int64_t rows, count;
    if (__builtin_add_overflow(s->rows, shape->len_kv, &rows) || __builtin_mul_overflow(rows, shape->dim_qk, &count) ||
        __builtin_mul_overflow(count, s->entries * s->layers * s->heads, &count) || count > VIEW_MAX_NUMBERS)
        return VIEW_MAX_NUMBERS + 1;
    return count;
}

int computed_can(const shown *s)
{
    return view_rule_can(&s->input.problem, &s->input.tensors) && same_in_all_layers(s) && count_numbers(s) <= VIEW_MAX_NUMBERS;
}

/* ---- rows ---- */

/* All rows of q or k, dense: [batch, head, token, channel]. */
typedef struct dense {
    int64_t heads, tokens, dim;
    float *numbers;
    int changed; /* 1: some number is not that of the file */
    double largest;
} dense;

static const float *dense_row(const dense *d, int64_t b, int64_t head, int64_t token)
{
    return d->numbers + ((b * d->heads + head) * d->tokens + token) * d->dim;
}

static void dense_read(shown *s, int t, dense *d)
{
    const attn_problem *problem = &s->input.problem;
    int64_t shape[4], stride[4];
    tensors_shape(problem, &s->input.tensors, t, shape);
    tensors_strides(problem, &s->input.tensors, t, stride);
    const attn_dtype dtype = tensors_dtype(&s->input.tensors, t);
    const char *from = tensors_slot(&s->input.tensors, t)->data;
    *d = (dense){.heads = shape[1], .tokens = shape[2], .dim = shape[3]};
    float *out = d->numbers = shown_memory(s, shape[0] * shape[1] * shape[2] * shape[3], sizeof *out);
    for (int64_t b = 0; b < shape[0]; b++)
        for (int64_t h = 0; h < shape[1]; h++)
            for (int64_t i = 0; i < shape[2]; i++)
                for (int64_t c = 0; c < shape[3]; c++) {
                    const int64_t at = b * stride[0] + h * stride[1] + i * stride[2] + c * stride[3];
                    const double x = element_read(dtype, from + at * (int64_t)attn_dtype_size(dtype));
                    *out = (float)x;
                    d->changed |= (double)*out != x && !isnan(x);
                    if (fabs(x) > d->largest) d->largest = fabs(x);
                    out++;
                }
}

static void dense_round(dense *d, int64_t batch)
{
    for (int64_t k = 0; k < batch * d->heads * d->tokens * d->dim; k++) {
        const float x = (float)element_round(ATTN_F16, (double)d->numbers[k]);
        d->changed |= x != d->numbers[k] && !isnan(x);
        d->numbers[k] = x;
    }
}

/* As a tensor; f64 stays f64, since other tensors have the compute type. */
static attn_input dense_input(shown *s, const dense *d, attn_dtype dtype)
{
    const int64_t count = s->input.problem.shape.batch * d->heads * d->tokens * d->dim;
    if (dtype != ATTN_F64) return attn_in(d->numbers);
    double *wide = shown_memory(s, count, sizeof *wide);
    for (int64_t k = 0; k < count; k++) wide[k] = (double)d->numbers[k];
    attn_input input = attn_in(wide);
    input.dtype = ATTN_F64;
    return input;
}

/* ---- the rule of each sequence ---- */

typedef struct maker {
    shown *shown;
    dense q, k;
    view_rule rule;          /* without position and slopes */
    int64_t *first_of_group; /* [groups] a chosen head, by its number in the file */
    float *lse;              /* [entries][layers][heads][rows] */
    role_pass pass;
} maker;

static int64_t key_head(const shown *s, int64_t head)
{
    return s->head[head] / (s->input.problem.shape.heads_q / s->input.problem.shape.heads_kv);
}

static double number_of_head(const attention_input *input, int t, int64_t head)
{
    const attn_dtype dtype = tensors_dtype(&input->tensors, t);
    return element_read(dtype, (const char *)tensors_at(&input->tensors, t)->data + head * (int64_t)attn_dtype_size(dtype));
}

/* The sink of each head; softmax-one is one of 0. */
static const double *sinks_of(shown *s)
{
    const int one = s->input.problem.score.normaliser == ATTN_NORMALISER_SOFTMAX_ONE;
    if (!one && !s->input.tensors.sink.data) return NULL;
    double *sinks = shown_memory(s, s->heads, sizeof *sinks);
    for (int64_t h = 0; h < s->heads && !one; h++) sinks[h] = number_of_head(&s->input, TENSOR(sink), s->head[h]);
    return sinks;
}

static view_rotation rotation_of(const attention_input *input)
{
    const attn_rope *rope = &input->rope;
    if (!rope->struct_size) return (view_rotation){.kind = VIEW_ROTATION_NONE};
    if (rope->frequencies || input->used[ROLE_POSITIONS_Q].tensor || input->used[ROLE_POSITIONS_KV].tensor)
        return (view_rotation){.kind = VIEW_ROTATION_OTHER};
    return (view_rotation){.kind = VIEW_ROTATION_OF_BASE,
                           .base = rope->base > 0 ? rope->base : 10000,
                           .channels = rope->dim_rotary ? rope->dim_rotary : input->problem.shape.dim_qk,
                           .halves = rope->pairs == ATTN_ROPE_PAIRS_HALVES};
}

static void make_rule(maker *m)
{
    shown *s = m->shown;
    const attn_score *score = &s->input.problem.score;
    int64_t *group = shown_memory(s, s->heads, sizeof *group);
    double *scale = shown_memory(s, s->heads, sizeof *scale), one = 1 / sqrt((double)m->q.dim);
    if (score->scale_kind == ATTN_SCALE_VALUE) one = score->scale;
    m->first_of_group = shown_memory(s, s->heads, sizeof *m->first_of_group);
    m->rule = (view_rule){.dim = m->q.dim,
                          .group = group,
                          .scale = scale,
                          .softcap = score->softcap,
                          .mask = s->input.problem.mask,
                          .sinks = sinks_of(s),
                          .rotation = rotation_of(&s->input)};
    for (int64_t h = 0; h < s->heads; h++) {
        if (h == 0 || key_head(s, h) != key_head(s, h - 1)) m->first_of_group[m->rule.groups++] = key_head(s, h);
        group[h] = m->rule.groups - 1;
        if (s->input.tensors.scale.data) one = number_of_head(&s->input, TENSOR(scale), s->head[h]);
        scale[h] = one / (score->temperature > 0 ? score->temperature : 1);
    }
}

static const double *slopes_of(maker *m, int64_t e)
{
    shown *s = m->shown;
    const attn_tensors *t = &s->input.tensors;
    int64_t stride[4];
    if (!t->alibi_slopes.data) return NULL;
    tensors_strides(&s->input.problem, t, TENSOR(alibi_slopes), stride);
    const attn_dtype dtype = tensors_dtype(t, TENSOR(alibi_slopes));
    double *slopes = shown_memory(s, s->layers * s->heads, sizeof *slopes);
    for (int64_t y = 0; y < s->layers; y++)
        for (int64_t h = 0; h < s->heads; h++) {
            const int64_t at = shown_batch(s, y, e) * stride[0] + s->head[h] * stride[1];
            slopes[y * s->heads + h] =
                element_read(dtype, (const char *)t->alibi_slopes.data + at * (int64_t)attn_dtype_size(dtype));
        }
    return slopes;
}

static int64_t position_of(const shown *s, int64_t e)
{
    const attn_tensors *t = &s->input.tensors;
    const attn_shape *shape = &s->input.problem.shape;
    const int64_t b = shown_batch(s, 0, e), *lengths_q = t->lengths_q.data, *lengths_kv = t->lengths_kv.data,
                  *offset = t->offset_q.data;
    int64_t position = s->query[0];
    if (s->input.problem.mask.align == ATTN_ALIGN_BOTTOM_RIGHT)
        position += (lengths_kv ? lengths_kv[b] : shape->len_kv) - (lengths_q ? lengths_q[b] : shape->len_q);
    const int64_t far = INT64_C(1) << 50; /* beyond all keys; a number of JavaScript holds it */
    return position + (offset ? offset[b] < -far ? -far : offset[b] > far ? far : offset[b] : 0);
}

static void add_rows(maker *m, int64_t e)
{
    shown *s = m->shown;
    view_sequence *sequence = s->sequence + e;
    view_rule *rule = shown_memory(s, 1, sizeof *rule);
    const float **q = shown_memory(s, s->layers * s->heads, sizeof *q),
                **k = shown_memory(s, s->layers * m->rule.groups, sizeof *k);
    *rule = m->rule;
    rule->position = position_of(s, e);
    rule->slopes = slopes_of(m, e);
    for (int64_t y = 0; y < s->layers; y++) {
        const int64_t b = shown_batch(s, y, e);
        for (int64_t h = 0; h < s->heads; h++) q[y * s->heads + h] = dense_row(&m->q, b, s->head[h], s->query[0]);
        for (int64_t g = 0; g < rule->groups; g++) k[y * rule->groups + g] = dense_row(&m->k, b, m->first_of_group[g], 0);
    }
    sequence->rule = rule;
    sequence->data = (view_rows){.q = q, .k = k, .lse = m->lse + e * s->layers * s->heads * s->rows};
}

/* ---- values ---- */

static void read_norms(maker *m, const attention_input *with)
{
    shown *s = m->shown;
    const int64_t groups = m->rule.groups, keys = s->input.problem.shape.len_kv;
    const attn_dtype dtype = tensors_dtype(&with->tensors, TENSOR(v));
    int64_t stride[4];
    tensors_strides(&with->problem, &with->tensors, TENSOR(v), stride);
    for (int64_t e = 0; e < s->entries; e++) {
        const float **norms = shown_memory(s, s->layers * groups, sizeof *norms);
        float *out = shown_memory(s, s->layers * groups * keys, sizeof *out);
        for (int64_t n = 0; n < s->layers * groups; n++) {
            const int64_t head = shown_batch(s, n / groups, e) * stride[0] + m->first_of_group[n % groups] * stride[1];
            norms[n] = out;
            for (int64_t j = 0; j < keys; j++) {
                double sum = 0;
                for (int64_t c = 0; c < with->problem.shape.dim_v; c++) {
                    const int64_t at = head + j * stride[2] + c * stride[3];
                    const double x = element_read(dtype, (const char *)with->tensors.v.data + at * (int64_t)attn_dtype_size(dtype));
                    sum += x * x;
                }
                *out++ = (float)sqrt(sum);
            }
        }
        s->sequence[e].data.norms = norms;
    }
}

/* The lengths of values, if the file has them beside q and k.  Values that do not fit these are of no use here, and no error. */
static attn_status add_norms(maker *m, const char *path, const input_settings *in, attn_error *error)
{
    shown *s = m->shown;
    attention_input with = {0};
    if (!s->input.file || !attn_archive_find(s->input.file, "v") || s->input.begins_kv) return ATTN_OK;
    attn_status status = input_load(&with, path, in, INPUT_VALUE, error);
    if (status == ATTN_OK && with.problem.shape.dim_v > 0 && attn_dtype_size(tensors_dtype(&with.tensors, TENSOR(v))) >= 2)
        read_norms(m, &with);
    input_free(&with);
    return status == ATTN_ERR_IO || status == ATTN_ERR_FORMAT || status == ATTN_ERR_MEMORY ? status : ATTN_OK;
}

/* ---- one pass over all weights ---- */

enum { BLOCK_WEIGHTS = 1 << 22 };

/* A row of a chosen head: that of the file, and that of the page.  visible: memory for a row. */
static void take_row(maker *m, int64_t e, int64_t y, int64_t h, int64_t i, const float *row, const float *rounded, uint8_t *visible)
{
    shown *s = m->shown;
    const view_sequence *sequence = s->sequence + e;
    const view_rule *rule = sequence->rule;
    const int64_t keys = s->input.problem.shape.len_kv;
    int64_t best = 0;
    view_doubts_add(&s->doubts, row, keys);
    if (i >= sequence->len_q) return;
    for (int64_t j = 0; j < keys; j++) visible[j] = (uint8_t)(j < sequence->len_k && view_rule_sees(rule, i, j));
    summary_add((view_summary *)sequence->summary + y * s->heads + h, i, row, visible);
    role_pass_add(&m->pass, h, i, row, visible);
    for (int64_t j = 0; j < sequence->len_k; j++) {
        const double apart = fabs((double)row[j] - (double)rounded[j]);
        if (apart > s->difference) s->difference = apart;
        if (rounded[j] > rounded[best] || isnan(rounded[best])) best = j;
    }
    const float *q = sequence->data.q[y * s->heads + h] + i * rule->dim;
    const float *k = sequence->data.k[y * rule->groups + rule->group[h]] + best * rule->dim;
    m->lse[((e * s->layers + y) * s->heads + h) * s->rows + i] =
        !sequence->len_k || rounded[best] == 0
            ? -INFINITY
            : (float)(view_rule_score(rule, s->heads, y, h, i, best, q, k) - log((double)rounded[best]));
}

static attn_status read_all(maker *m, const attention_input *rounded, const common_settings *common, attn_error *error)
{
    shown *s = m->shown;
    const attn_shape *shape = &s->input.problem.shape;
    const int64_t each = shape->heads_q * shape->len_kv, most = BLOCK_WEIGHTS / each > 1 ? BLOCK_WEIGHTS / each : 1;
    const int64_t rows = most < s->rows ? most : s->rows, same = !m->q.changed && !m->k.changed;
    weight_reader reader, second = {0};
    progress bar;
    float *of_file = need_memory(each * rows, sizeof *of_file),
          *of_page = same ? of_file : need_memory(each * rows, sizeof *of_page);
    uint8_t *visible = need_memory(shape->len_kv, 1);
    attn_status status = weights_begin(&reader, &s->input, rows, common, error);
    if (status == ATTN_OK && !same) status = weights_begin(&second, rounded, rows, common, error);
    progress_begin(&bar, "weights", common->quiet);
    for (int64_t e = 0; e < s->entries; e++) {
        role_pass_begin(&m->pass, s, e);
        for (int64_t y = 0; y < s->layers; y++) {
            role_pass_clear(&m->pass);
            for (int64_t done = 0; done < s->rows && status == ATTN_OK;) {
                const int64_t first = done < s->rows - rows ? done : s->rows - rows, b = shown_batch(s, y, e);
                status = weights_read(&reader, b, s->query[0] + first, of_file, error);
                if (status == ATTN_OK && !same) status = weights_read(&second, b, s->query[0] + first, of_page, error);
                for (int64_t h = 0; h < s->heads && status == ATTN_OK; h++)
                    for (int64_t i = done - first; i < rows; i++) {
                        const int64_t at = (s->head[h] * rows + i) * shape->len_kv;
                        take_row(m, e, y, h, first + i, of_file + at, of_page + at, visible);
                    }
                done = first + rows;
                progress_show(&bar, (e * s->layers + y) * s->rows + done, s->entries * s->layers * s->rows);
            }
            role_pass_finish(&m->pass, y);
        }
        role_pass_end(&m->pass);
    }
    progress_end(&bar);
    weights_end(&reader);
    if (!same) weights_end(&second), free(of_page);
    free(of_file);
    free(visible);
    return status == ATTN_OK ? status : failure_about(error, s->input.path);
}

attn_status computed_take(shown *s, const input_settings *in, attn_error *error)
{
    maker m = {.shown = s};
    const attn_shape *shape = &s->input.problem.shape;
    dense_read(s, TENSOR(q), &m.q);
    dense_read(s, TENSOR(k), &m.k);
    make_rule(&m);
    m.rule.dtype = ATTN_F32;
    if (count_numbers(s) > VIEW_EXACT_NUMBERS && m.q.largest <= largest_f16 && m.k.largest <= largest_f16) {
        m.rule.dtype = ATTN_F16;
        dense_round(&m.q, shape->batch);
        dense_round(&m.k, shape->batch);
    }
    attention_input rounded = s->input;
    const attn_dtype dtype = tensors_dtype(&s->input.tensors, TENSOR(q));
    rounded.tensors.q = dense_input(s, &m.q, dtype);
    rounded.tensors.k = dense_input(s, &m.k, dtype);
    m.lse = shown_memory(s, s->entries * s->layers * s->heads * s->rows, sizeof *m.lse);
    for (int64_t e = 0; e < s->entries; e++) {
        view_summary *summary = need_memory(s->layers * s->heads, sizeof *summary);
        add_rows(&m, e);
        s->sequence[e].summary = summary;
        for (int64_t k = 0; k < s->layers * s->heads; k++) summary_begin(summary + k, s->sequence[e].len_q, s->sequence[e].len_k);
    }
    attn_status status = add_norms(&m, s->input.path, in, error);
    if (status == ATTN_OK) status = read_all(&m, &rounded, &in->common, error);
    for (int64_t e = 0; e < s->entries; e++)
        for (int64_t k = 0; k < s->layers * s->heads; k++) summary_end((view_summary *)s->sequence[e].summary + k);
    return status;
}
