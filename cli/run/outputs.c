/* SPDX-License-Identifier: MIT
 * outputs.c - the tensors that `attn run` writes. */
#include "outputs.h"

#include <string.h>

#include "testing/text/failure.h"

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

void outputs_want(const output_settings *settings, attention_input *input)
{
    const struct {
        int t, wanted;
    } asked[] = {{TENSOR(scores), settings->scores},
                 {TENSOR(dropout_keep), settings->dropout_mask},
                 {TENSOR(row_max), settings->row_max},
                 {TENSOR(entropy), settings->entropy},
                 {TENSOR(effective_keys), settings->effective_keys},
                 {TENSOR(column_sum), settings->column_sum},
                 {TENSOR(topk_index), settings->topk > 0},
                 {TENSOR(topk_weight), settings->topk > 0}};
    attn_outputs *outputs = &input->problem.outputs;
    for (size_t k = 0; k < sizeof asked / sizeof *asked; k++)
        if (asked[k].wanted) tensors_ask(&input->tensors, asked[k].t);
    outputs->after_dropout = settings->after_dropout;
    outputs->scores_stage = settings->scores_stage;
    outputs->column_heads = settings->column_heads;
    outputs->column_queries = settings->column_queries;
    outputs->topk = settings->topk;
    if (input->spec.packed) input_lay_packed(input);
}

/* ---- tensors ---- */

/* As it is in the file, or as what it is the gradient of is there. */
static int shape_of(const attention_input *input, int t, const attn_tensor_plan *about, int64_t shape[ATTN_MAX_RANK])
{
    const int of = tensors_about(t)->gradient_of;
    const attn_archive_tensor *like = of >= 0 ? input->used[of].tensor : NULL;
    if (!like) return input_file_shape(input, t, about->shape, shape);
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
        const int rank = shape_of(input, t, &about, shape);
        status = attn_archive_allocate(out, tensors_file_name(t), about.dtype, rank, shape, &data, error);
        if (data) slot->data = data;
    }
    return status;
}
