/* SPDX-License-Identifier: MIT
 *
 * terms.c - weights of scores, and tables of terms by distance. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "parts.h"
#include "testing/memory/element.h"
#include "testing/text/failure.h"

/* ---- weights of scores ---- */

/* The error of a w that is not [rows, columns]; rows 0: any number from 1. */
static attn_status mismatch_of_weights(const attention_input *input, int64_t rows, int64_t columns, attn_error *error)
{
    const input_tensor *used = &input->used[TENSOR(score_matrix)];
    const int64_t heads = input->spec.shape.heads_q;
    char shape[SHAPE_TEXT], expected_shape[100];
    const attn_score_kind kind = problem_score_kind(&input->spec);
    shape_text(shape, used->tensor->rank, used->tensor->shape);
    if (kind == ATTN_SCORE_ADDITIVE)
        return failure(error, ATTN_ERR_SHAPE,
                       "%.60s: tensor '%.30s' %.50s: expected weights [%" PRId64 "], with biases [2, %" PRId64
                       "], or for each head [%" PRId64 ", 1 or 2, %" PRId64 "]",
                       used->path, used->tensor->name, shape, columns, columns, heads, columns);
    if (rows) snprintf(expected_shape, sizeof expected_shape, "%" PRId64 ", %" PRId64, rows, columns);
    else snprintf(expected_shape, sizeof expected_shape, "rows, %" PRId64, columns);
    return failure(error, ATTN_ERR_SHAPE, "%.60s: tensor '%.30s' %.50s: expected [%s]%s, or for each head [%" PRId64 ", %s]",
                   used->path, used->tensor->name, shape, expected_shape, kind == ATTN_SCORE_GENERAL ? " of widths of q and k" : "",
                   heads, expected_shape);
}

/* Checks the size of w against the options and the keys, and completes the options from w. */
static attn_status read_weights(attention_input *input, attn_error *error)
{
    const input_tensor *used = &input->used[TENSOR(score_matrix)], *k = &input->used[TENSOR(k)], *q = &input->used[TENSOR(q)];
    const attn_archive_tensor *t = used->tensor;
    problem_spec *spec = &input->spec;
    const attn_score_kind kind = problem_score_kind(spec);
    const int64_t heads = spec->shape.heads_q, dim = spec->shape.dim_qk, of_k = k->tensor->shape[k->tensor->rank - 1];
    const int64_t size = problem_after_slash(spec->score);
    if (kind == ATTN_SCORE_GENERAL && size && size != of_k)
        return input_mismatch(k, q, error, "score=general/%" PRId64 " sets the width of a key, which is %" PRId64, size, of_k);
    if (!t) return ATTN_OK;
    attn_status status = input_check_float(used, error);
    if (status != ATTN_OK) return status;
    const int64_t rows = t->rank > 1 ? t->shape[t->rank - 2] : 1, of_heads = t->rank > 2 ? t->shape[0] : 1;
    const int64_t columns = kind == ATTN_SCORE_GENERAL ? of_k : dim;
    const int64_t expected_rows = kind == ATTN_SCORE_GENERAL ? dim : kind == ATTN_SCORE_METRIC ? size : 0;
    const int64_t most = kind == ATTN_SCORE_ADDITIVE ? 2 : INT64_MAX;
    const int min_rank = kind == ATTN_SCORE_ADDITIVE ? 1 : 2;
    if (t->rank < min_rank || t->rank > 3 || t->shape[t->rank - 1] != columns || (of_heads != 1 && of_heads != heads) ||
        (expected_rows || kind == ATTN_SCORE_GENERAL ? rows != expected_rows : rows < 1 || rows > most))
        return mismatch_of_weights(input, kind == ATTN_SCORE_GENERAL ? dim : expected_rows, columns, error);
    spec->w = (of_heads > 1 ? SPEC_W_HEADS : 0) | (kind == ATTN_SCORE_ADDITIVE && rows == 2 ? SPEC_W_BIAS : 0);
    if (kind == ATTN_SCORE_GENERAL && of_k != dim) snprintf(spec->score, sizeof spec->score, "general/%" PRId64, of_k);
    if (kind == ATTN_SCORE_METRIC && rows != dim) snprintf(spec->score, sizeof spec->score, "metric/%" PRId64, rows);
    input_set(input, TENSOR(score_matrix), t->data, t->dtype);
    return ATTN_OK;
}

/* ---- terms by distance ---- */

/* [head, bucket], or [bucket] for all heads, with the buckets of --t5 or --clipped. */
static attn_status read_bias_table(attention_input *input, attn_error *error)
{
    const input_tensor *used = &input->used[TENSOR(bias_table)];
    const attn_archive_tensor *t = used->tensor;
    problem_spec *spec = &input->spec;
    const int64_t heads = spec->shape.heads_q, numbers = spec->clipped      ? 2 * spec->clipped + 1
                                                         : spec->t5_buckets ? spec->t5_buckets
                                                                            : 32;
    char shape[SHAPE_TEXT];
    if (!t && !spec->t5 && !spec->clipped) return ATTN_OK;
    if (!t)
        return failure(error, ATTN_ERR_ARGUMENT,
                       "%.80s: no tensor 'bias_table' with a bias by distance; --bias-table=NAME chooses another", input->path);
    if (!spec->t5 && !spec->clipped)
        return failure(error, ATTN_ERR_ARGUMENT, "%.60s: tensor '%.30s' is a bias by distance; --t5 or --clipped=N gives its kind",
                       used->path, t->name);
    const int of_heads = t->rank == 2 && t->shape[0] == heads, of_all = t->rank == 1 || (t->rank == 2 && t->shape[0] == 1);
    if ((!of_heads && !of_all) || t->shape[t->rank - 1] != numbers)
        return failure(error, ATTN_ERR_SHAPE,
                       "%.60s: tensor '%.30s' %.60s: expected [%" PRId64 ", %" PRId64
                       "], a number for each head and %s%s, or [%" PRId64 "] for all heads",
                       used->path, t->name, shape_text(shape, t->rank, t->shape), heads, numbers,
                       spec->clipped ? "distance" : "bucket", spec->clipped ? "" : " (--t5=both/N takes N)", numbers);
    if (!of_heads) spec->shared |= SPEC_SHARED_TABLE;
    attn_status status = input_check_float(used, error);
    if (status == ATTN_OK) input_set_as(input, TENSOR(bias_table), input_compute_dtype(input));
    return status;
}

/* [head, row, channel], or [row, channel] for all heads. */
static attn_status check_table(const attention_input *input, const input_tensor *used, int64_t rows, int64_t width, int *shared,
                               attn_error *error)
{
    const attn_archive_tensor *t = used->tensor;
    const int64_t required[3] = {input->spec.shape.heads_q, rows, width};
    char actual_text[SHAPE_TEXT], expected_text[SHAPE_TEXT], all[SHAPE_TEXT];
    const int fits = t->rank >= 2 && t->rank <= 3 && memcmp(t->shape + t->rank - 2, required + 1, 2 * sizeof *required) == 0;
    *shared = t->rank == 2 || t->shape[0] != required[0];
    if (fits && (t->rank == 2 || t->shape[0] == 1 || t->shape[0] == required[0])) return input_check_float(used, error);
    return failure(error, ATTN_ERR_SHAPE, "%.60s: tensor '%.30s' %.50s: expected %.50s, or for all heads %.50s", used->path,
                   t->name, shape_text(actual_text, t->rank, t->shape), shape_text(expected_text, 3, required),
                   shape_text(all, 2, required + 1));
}

/* Rejects a tensor that --rel needs and that is missing, or that is present and not needed. */
static attn_status check_present(const attention_input *input, int role, int needed, attn_error *error)
{
    const input_tensor *used = &input->used[role];
    if (!used->tensor == !needed) return ATTN_OK;
    if (needed)
        return failure(error, ATTN_ERR_ARGUMENT, "%.80s: --rel=%s needs %s; --%s=NAME chooses another", input->path,
                       input->spec.rel, role_name(role), role_flag(role));
    return failure(error, ATTN_ERR_ARGUMENT, "%.60s: tensor '%.30s' holds relative terms; --rel=KIND gives their kind", used->path,
                   used->tensor->name);
}

static attn_status read_relative(attention_input *input, attn_error *error)
{
    problem_spec *spec = &input->spec;
    const attn_shape *s = &spec->shape;
    const int xl = strcmp(spec->rel, "xl") == 0, values = problem_has_relative_values(spec) && input->used[TENSOR(v)].tensor;
    const struct {
        int role;
        int needed, table;
        int64_t width;
    } tensors[] = {
        {TENSOR(relative_keys), spec->rel[0] != 0, 1, s->dim_qk},
        {TENSOR(relative_values), values, 1, s->dim_v},
        {TENSOR(relative_u), xl, 0, s->dim_qk},
        {TENSOR(relative_v), xl, 0, s->dim_qk},
    };
    int shared[2] = {0, 0};
    for (size_t k = 0; k < sizeof tensors / sizeof *tensors; k++) {
        const input_tensor *used = &input->used[tensors[k].role];
        const int64_t vectors[2] = {s->heads_q, tensors[k].width};
        attn_status status = check_present(input, tensors[k].role, tensors[k].needed, error);
        if (status == ATTN_OK && !used->tensor) continue;
        if (status == ATTN_OK)
            status = tensors[k].table ? check_table(input, used, problem_relative_rows(spec), tensors[k].width, &shared[k], error)
                                      : input_check_shape(used, 2, vectors, error);
        if (status != ATTN_OK) return status;
        input_set_as(input, tensors[k].role, input_compute_dtype(input));
    }
    if (values && shared[0] != shared[1])
        return input_mismatch(&input->used[TENSOR(relative_values)], &input->used[TENSOR(relative_keys)], error,
                              "one table for all heads and one for each of %" PRId64, s->heads_q, 0);
    if (shared[0]) spec->shared |= SPEC_SHARED_REL;
    return ATTN_OK;
}

attn_status input_read_terms(attention_input *input, attn_error *error)
{
    attn_status status = read_weights(input, error);
    if (status == ATTN_OK) status = read_relative(input, error);
    return status == ATTN_OK ? read_bias_table(input, error) : status;
}
