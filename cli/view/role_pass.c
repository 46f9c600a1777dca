/* SPDX-License-Identifier: MIT
 *
 * role_pass.c - the roles of the heads that are shown. */
#include "role_pass.h"

#include <stdlib.h>

#include "testing/text/failure.h"

static int has_special(const head_text *text)
{
    int any = 0;
    for (int64_t j = 0; j < text->keys; j++) any |= text->special[j];
    return any;
}

void role_pass_begin(role_pass *pass, shown *s, int64_t entry)
{
    const int64_t keys = s->input.problem.shape.len_kv;
    const char **words = need_memory(keys, sizeof *words);
    for (int64_t j = 0; j < keys; j++) words[j] = labels_key(&s->labels, &s->input, s->entry[entry], j);
    *pass = (role_pass){.heads = s->heads};
    for (int p = 0; p == 0 || (p < ROLE_PASSES && has_special(&pass->text[0])); p++) {
        head_text *text = &pass->text[p];
        *text = (head_text){.queries = s->rows, .keys = keys, .content = p};
        text->aligned = labels_aligned(&s->input, shown_batch(s, 0, entry), &text->offset);
        text->offset += s->query[0];
        head_text_words(text, words);
        pass->sums[p] = need_memory(s->heads, sizeof(head_sums *));
        for (int64_t h = 0; h < s->heads; h++) pass->sums[p][h] = head_sums_make(text);
        pass->roles[p] = shown_memory(s, s->layers * s->heads, sizeof *pass->roles[p]);
        pass->passes++;
    }
    s->sequence[entry].roles = pass->roles[0];
    s->sequence[entry].content_roles = pass->roles[1];
    free(words);
}

void role_pass_clear(const role_pass *pass)
{
    for (int p = 0; p < pass->passes; p++)
        for (int64_t h = 0; h < pass->heads; h++) head_sums_clear(pass->sums[p][h]);
}

void role_pass_add(const role_pass *pass, int64_t head, int64_t i, const float *weights, const uint8_t *visible)
{
    for (int p = 0; p < pass->passes; p++) head_sums_add(pass->sums[p][head], i, weights, visible);
}

void role_pass_finish(const role_pass *pass, int64_t layer)
{
    for (int p = 0; p < pass->passes; p++)
        for (int64_t h = 0; h < pass->heads; h++) head_sums_finish(pass->sums[p][h], pass->roles[p] + layer * pass->heads + h);
}

void role_pass_end(role_pass *pass)
{
    for (int p = 0; p < pass->passes; p++) {
        for (int64_t h = 0; h < pass->heads; h++) head_sums_free(pass->sums[p][h]);
        free(pass->sums[p]);
        head_text_end(&pass->text[p]);
    }
}
