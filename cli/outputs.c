/* SPDX-License-Identifier: MIT
 * outputs.c - the tensors that `attn run` writes. */
#include "outputs.h"

#include <stddef.h>
#include <string.h>

#include "failure.h"

/* ---- flags ---- */

/* `value` as the number of its place in a list of words that NULL ends; no value is the first. */
static attn_status set_word(const char *name, const char *value, const char *const *words, const char *text, int *number,
                            attn_error *error)
{
    *number = 0;
    if (!value) return ATTN_OK;
    for (int k = 0; words[k]; k++)
        if (strcmp(value, words[k]) == 0) {
            *number = k;
            return ATTN_OK;
        }
    return failure(error, ATTN_ERR_ARGUMENT, "%s: '%.40s' is not one of %s", name, value, text);
}

static attn_status set_scores(void *target, const char *name, const char *value, attn_error *error)
{
    static const char *const words[] = {"raw", "capped", "biased", "weights", NULL};
    output_settings *settings = target;
    int stage;
    attn_status status = set_word(name, value, words, "raw, capped, biased, weights", &stage, error);
    settings->scores = 1;
    settings->scores_stage = (attn_stage)stage;
    return status;
}

static attn_status set_column_sum(void *target, const char *name, const char *value, attn_error *error)
{
    static const char *const words[] = {"each", "group", "all", NULL};
    output_settings *settings = target;
    int heads;
    attn_status status = set_word(name, value, words, "each, group, all", &heads, error);
    settings->column_sum = 1;
    settings->column_heads = (attn_columns)heads;
    return status;
}

static attn_status set_column_queries(void *target, const char *name, const char *value, attn_error *error)
{
    return option_whole(name, value, 1, INT64_MAX, &((output_settings *)target)->column_queries, error);
}

static attn_status set_topk(void *target, const char *name, const char *value, attn_error *error)
{
    return option_whole(name, value, 1, INT32_MAX, &((output_settings *)target)->topk, error);
}

static attn_status set_statistic(void *target, const char *name, const char *value, attn_error *error)
{
    output_settings *settings = target;
    (void)value, (void)error;
    if (strcmp(name, "row-max") == 0) settings->row_max = 1;
    else if (strcmp(name, "entropy") == 0) settings->entropy = 1;
    else if (strcmp(name, "dropout-mask") == 0) settings->dropout_mask = 1;
    else if (strcmp(name, "after-dropout") == 0) settings->after_dropout = 1;
    else settings->effective_keys = 1;
    return ATTN_OK;
}

const option_row output_options[] = {
    {"scores", 0, "[=STAGE]", "write scores: raw (default), capped, biased, weights", set_scores},
    {"row-max", 0, NULL, "write the largest score of each query", set_statistic},
    {"entropy", 0, NULL, "write the entropy of each query's weights, in nats", set_statistic},
    {"effective-keys", 0, NULL, "write exp(entropy): to how many keys a query attends", set_statistic},
    {"column-sum", 0, "[=HEADS]", "write what each key receives, by head (each), group or all", set_column_sum},
    {"column-queries", 0, "N", "let only the last N queries count in --column-sum", set_column_queries},
    {"topk", 0, "K", "write the K keys of the largest weights of each query", set_topk},
    {"dropout-mask", 0, NULL, "write which weights dropout keeps, as dropout_keep", set_statistic},
    {"after-dropout", 0, NULL, "let weights and scores=weights be those after dropout", set_statistic},
    {NULL, 0, NULL, NULL, NULL},
};

attn_status output_settings_check(const output_settings *settings, const problem_spec *spec, attn_error *error)
{
    if (settings->column_queries && !settings->column_sum)
        return failure(error, ATTN_ERR_ARGUMENT, "--column-queries says which queries count in --column-sum, which is not given");
    if (settings->after_dropout && !spec->weights && !(settings->scores && settings->scores_stage == ATTN_STAGE_WEIGHTS))
        return failure(error, ATTN_ERR_ARGUMENT, "--after-dropout says which weights are written, and none are: --weights");
    return ATTN_OK;
}

const char *output_beside(const output_settings *settings, const problem_spec *spec)
{
    return spec->lse                          ? "lse"
           : spec->weights                    ? "weights"
           : settings->scores                 ? "scores"
           : settings->row_max                ? "row-max"
           : settings->entropy                ? "entropy"
           : settings->effective_keys         ? "effective-keys"
           : settings->column_sum             ? "column-sum"
           : settings->topk                   ? "topk"
           : settings->dropout_mask           ? "dropout-mask"
           : spec->op == SPEC_JVP             ? "jvp"
           : spec->op == SPEC_DOUBLE_BACKWARD ? "double-backward"
           : spec->op == SPEC_BACKWARD        ? "backward"
                                              : NULL;
}

/* [head, token, last] of packed sequences, where dense would be [token, head, last]. */
static void lay_by_head(attn_layout *layout, int64_t tokens, int64_t last)
{
    layout->stride[0] = 0;
    layout->stride[1] = tokens * last;
    layout->stride[2] = last;
    layout->stride[3] = 1;
}

void outputs_want(const output_settings *settings, attention_input *input)
{
    attn_want *want = &input->problem.want;
    want->scores = settings->scores;
    want->scores_stage = settings->scores_stage;
    want->row_max = settings->row_max;
    want->entropy = settings->entropy;
    want->effective_keys = settings->effective_keys;
    want->column_sum = settings->column_sum;
    want->column_heads = settings->column_heads;
    want->column_queries = settings->column_queries;
    want->topk = settings->topk;
    want->dropout_keep = settings->dropout_mask;
    want->after_dropout = settings->after_dropout;
    if (!input->spec.packed) return;
    attn_layout *rows[] = {&want->lse_layout, &want->row_max_layout, &want->entropy_layout, &want->effective_keys_layout};
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) lay_by_head(rows[k], input->total_q, 1);
    lay_by_head(&want->column_sum_layout, input->total_kv, 1);
    lay_by_head(&want->topk_index_layout, input->total_q, want->topk);
    lay_by_head(&want->topk_weight_layout, input->total_q, want->topk);
}

/* ---- tensors ---- */

enum { NUMBER = -1 };

typedef struct output_row {
    const char *name;
    int wanted;
    attn_dtype dtype;
    int64_t heads, tokens;
    int64_t last; /* NUMBER: there is no last axis */
    size_t pointer;
} output_row;

/* Queries x keys. */
static int is_pairs(const output_row *row)
{
    return row->pointer == offsetof(attn_args, weights) || row->pointer == offsetof(attn_args, scores) ||
           row->pointer == offsetof(attn_args, dropout_keep);
}

attn_status outputs_add(attn_tensors *out, const attention_input *input, const attn_problem *problem, attn_args *args,
                        attn_error *error)
{
    const attn_tensor *q = input->used[ROLE_Q].tensor;
    const attn_shape *s = &problem->shape;
    const attn_want *want = &problem->want;
    const attn_dtype stored = problem_dtype(&input->spec), compute = stored == ATTN_F64 ? ATTN_F64 : ATTN_F32;
    const int64_t sums = want->column_heads == ATTN_COLUMNS_EACH    ? s->heads_q
                         : want->column_heads == ATTN_COLUMNS_GROUP ? s->heads_kv
                                                                    : 1;
#define OUTPUT(name, wanted, dtype, heads, tokens, last)                                                                           \
    {                                                                                                                              \
#name, wanted, dtype, heads, tokens, last, offsetof(attn_args, name)                                                       \
    }
    const output_row rows[MOST_OUTPUTS] = {
        OUTPUT(o, 1, stored, s->heads_q, input->total_q, s->dim_v),
        OUTPUT(lse, want->lse, compute, s->heads_q, input->total_q, NUMBER),
        OUTPUT(weights, want->weights, compute, s->heads_q, s->len_q, s->len_kv),
        OUTPUT(scores, want->scores, compute, s->heads_q, s->len_q, s->len_kv),
        OUTPUT(row_max, want->row_max, compute, s->heads_q, input->total_q, NUMBER),
        OUTPUT(entropy, want->entropy, compute, s->heads_q, input->total_q, NUMBER),
        OUTPUT(effective_keys, want->effective_keys, compute, s->heads_q, input->total_q, NUMBER),
        OUTPUT(column_sum, want->column_sum, compute, sums, input->total_kv, NUMBER),
        OUTPUT(topk_index, want->topk > 0, ATTN_I64, s->heads_q, input->total_q, want->topk),
        OUTPUT(topk_weight, want->topk > 0, compute, s->heads_q, input->total_q, want->topk),
        OUTPUT(dropout_keep, want->dropout_keep, ATTN_BOOL, s->heads_q, s->len_q, s->len_kv),
    };
#undef OUTPUT
    attn_status status = ATTN_OK;
    for (int k = 0; k < MOST_OUTPUTS && status == ATTN_OK; k++) {
        const output_row *row = &rows[k];
        int64_t shape[ATTN_MAX_RANK];
        int rank = q->rank;
        if (!row->wanted) continue;
        memcpy(shape, q->shape, sizeof shape);
        if (input->spec.packed && is_pairs(row)) { /* weights and scores keep the axis of the batch */
            rank = 4;
            shape[0] = s->batch;
        }
        shape[rank - 1] = row->last;
        if (k > 0) { /* o has the order of q; the others are [head, token, ...] */
            if (rank > 2) shape[rank - 3] = row->heads;
            shape[rank - 2] = row->tokens;
        }
        void **pointer = (void **)(void *)((char *)args + row->pointer);
        status = attn_tensors_allocate(out, row->name, row->dtype, row->last == NUMBER ? rank - 1 : rank, shape, pointer, error);
    }
    return status;
}
