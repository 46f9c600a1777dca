/* SPDX-License-Identifier: MIT
 * outputs.c - the tensors that `attn run` writes. */
#include "outputs.h"

#include <string.h>

#include "testing/text/failure.h"

/* ---- flags ---- */

/* The index of `value` in a NULL-terminated list of words; 0 if there is no value. */
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

const option_row output_options[] = {
    {"scores", 0, "[=STAGE]", "write scores: raw (default), capped, biased, weights", CALL(set_scores)},
    {"row-max", 0, NULL, "write the largest score of each query", FLAG(output_settings, row_max)},
    {"entropy", 0, NULL, "write the entropy of each query's weights, in nats", FLAG(output_settings, entropy)},
    {"effective-keys", 0, NULL, "write exp(entropy), the effective number of keys", FLAG(output_settings, effective_keys)},
    {"column-sum", 0, "[=HEADS]", "write the weight each key receives, by head (each), group, all", CALL(set_column_sum)},
    {"column-queries", 0, "N", "count only the last N queries in --column-sum",
     WHOLE(output_settings, column_queries, 1, INT64_MAX)},
    {"topk", 0, "K", "write the K keys with the largest weights of each query", WHOLE(output_settings, topk, 1, INT32_MAX)},
    {"dropout-mask", 0, NULL, "write which weights dropout keeps, as dropout_keep", FLAG(output_settings, dropout_mask)},
    {"after-dropout", 0, NULL, "write weights and --scores=weights after dropout", FLAG(output_settings, after_dropout)},
    {0},
};

attn_status output_settings_check(const output_settings *settings, const problem_spec *spec, attn_error *error)
{
    if (settings->column_queries && !settings->column_sum)
        return failure(error, ATTN_ERR_ARGUMENT, "--column-queries needs --column-sum");
    if (settings->after_dropout && !spec->weights && !(settings->scores && settings->scores_stage == ATTN_STAGE_WEIGHTS))
        return failure(error, ATTN_ERR_ARGUMENT, "--after-dropout needs --weights or --scores=weights");
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

void outputs_request(const output_settings *settings, attention_input *input)
{
    const struct {
        int t, requested;
    } requests[] = {{TENSOR(scores), settings->scores},
                    {TENSOR(dropout_keep), settings->dropout_mask},
                    {TENSOR(row_max), settings->row_max},
                    {TENSOR(entropy), settings->entropy},
                    {TENSOR(effective_keys), settings->effective_keys},
                    {TENSOR(column_sum), settings->column_sum},
                    {TENSOR(topk_index), settings->topk > 0},
                    {TENSOR(topk_weight), settings->topk > 0}};
    attn_outputs *outputs = &input->problem.outputs;
    for (size_t k = 0; k < sizeof requests / sizeof *requests; k++)
        if (requests[k].requested) tensors_request(&input->tensors, requests[k].t);
    outputs->after_dropout = settings->after_dropout;
    outputs->scores_stage = settings->scores_stage;
    outputs->column_heads = settings->column_heads;
    outputs->column_queries = settings->column_queries;
    outputs->topk = settings->topk;
    if (input->spec.packed) input_lay_packed(input);
}

/* ---- tensors ---- */

int output_shape(const attention_input *input, int t, const int64_t size[4], int64_t shape[ATTN_MAX_RANK])
{
    const int primal = tensors_about(t)->gradient_of;
    const input_tensor *used = primal >= 0 ? &input->used[primal] : NULL;
    const attn_archive_tensor *like = used && used->in_file && used->in_file->rank == 1 && primal <= TENSOR(v)
                                          ? used->in_file /* a vector */
                                      : used ? used->tensor
                                             : NULL;
    if (!like) return input_file_shape(input, t, size, shape);
    memcpy(shape, like->shape, sizeof like->shape);
    return like->rank;
}

attn_status outputs_add(attn_archive *out, const attention_input *input, const attn_plan *plan, attn_tensors *tensors,
                        attn_error *error)
{
    attn_status status = ATTN_OK;
    for (int t = 0; t < TENSORS && status == ATTN_OK; t++) {
        attn_tensor_plan about = {.struct_size = sizeof about};
        attn_output *slot = tensors_slot(tensors, t);
        int64_t shape[ATTN_MAX_RANK];
        void *data = NULL;
        if (slot->data != ATTN_LATER && slot->data != ATTN_EMPTY) continue;
        status = attn_plan_tensor(plan, t, &about, error);
        if (status != ATTN_OK || about.role != ATTN_ROLE_OUTPUT || (t == TENSOR(lse) && !input->spec.lse)) continue;
        const int rank = output_shape(input, t, about.shape, shape);
        status = attn_archive_allocate(out, tensors_file_name(t), about.dtype, rank, shape, &data, error);
        if (data) slot->data = data;
    }
    return status;
}
