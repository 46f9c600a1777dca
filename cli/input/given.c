/* SPDX-License-Identifier: MIT
 *
 * given.c - the weights of a file without q, in place of those that are computed. */
#include <string.h>

#include "input.h"
#include "testing/text/failure.h"

void input_recall_alignment(attention_input *input)
{
    const char *text = input->file ? attn_archive_get_metadata(input->file, "attn_problem") : NULL;
    problem_spec spec;
    attn_problem *p = &input->problem;
    if (!text || problem_parse(text, &spec, NULL) != ATTN_OK || spec.offset_kind != SPEC_OFFSET_NONE) return;
    p->mask.causal = spec.causal != SPEC_CAUSAL_NONE;
    if (spec.causal == SPEC_CAUSAL_BOTTOM_RIGHT || spec.align == SPEC_ALIGN_BOTTOM_RIGHT) p->mask.align = ATTN_ALIGN_BOTTOM_RIGHT;
}

static attn_status take(attention_input *input, const input_settings *in, attn_error *error)
{
    const attn_archive_tensor *t = attn_archive_find(input->file, "weights");
    problem_spec plain;
    char given[400], defaults[400];
    problem_init(&plain);
    plain.seed = in->spec.seed;
    problem_print(&in->spec, given, sizeof given);
    problem_print(&plain, defaults, sizeof defaults);
    int flags = strcmp(given, defaults) != 0 || in->has_dtype || in->rope_word;
    for (int r = 0; r < ROLES; r++) flags |= in->chosen[r] != NULL;
    if (flags)
        return failure(error, ATTN_ERR_ARGUMENT,
                       "%.100s has weights and no q: the flags of a mechanism need scores, which cannot be computed from weights",
                       input->path);
    if (t->rank < 2 || t->dtype < ATTN_F32 || t->dtype > ATTN_BF16)
        return failure(error, ATTN_ERR_SHAPE, "%.100s: tensor 'weights' is %s with %d axes; expected floats, [head, query, key]",
                       input->path, attn_dtype_name(t->dtype), t->rank);
    attn_shape *s = &input->problem.shape;
    input->problem = (attn_problem){.struct_size = sizeof input->problem};
    input->used[TENSOR(q)] = (input_tensor){.path = input->path, .tensor = t};
    *s = (attn_shape){.batch = 1, .len_q = t->shape[t->rank - 2], .len_kv = t->shape[t->rank - 1]};
    s->heads_q = s->heads_kv = t->rank > 2 ? t->shape[t->rank - 3] : 1;
    input->leading = t->rank > 3 ? t->rank - 3 : 0;
    for (int a = 0; a < input->leading; a++) s->batch *= input->lead[a] = t->shape[a];
    input->spec.shape = *s;
    input->total_q = s->len_q;
    input->total_kv = s->len_kv;
    input->weights = t;
    input_recall_alignment(input);
    return ATTN_OK;
}

int input_has_weights_alone(const attention_input *input, const input_settings *settings)
{
    const attn_archive *file = input->file;
    return file && !settings->chosen[TENSOR(q)] && !attn_archive_find(file, "q") && attn_archive_find(file, "weights");
}

attn_status input_load_weights(attention_input *input, const char *path, const input_settings *settings, attn_error *error)
{
    const attn_status status = input_load(input, path, settings, INPUT_NO_VALUE, error);
    return status == ATTN_OK || !input_has_weights_alone(input, settings) ? status : take(input, settings, error);
}
