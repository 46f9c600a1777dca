/* SPDX-License-Identifier: MIT
 *
 * role_pass.c - the roles of the heads that are shown. */
#include "role_pass.h"

#include <stdlib.h>

#include "testing/text/failure.h"

void role_pass_begin(role_pass *pass, const shown *s, int64_t entry)
{
    const int64_t keys = s->input.problem.shape.len_kv;
    const char **words = need_memory(keys, sizeof *words);
    *pass = (role_pass){.heads = s->heads, .text = {.queries = s->rows, .keys = keys}};
    pass->text.aligned = labels_aligned(&s->input, shown_batch(s, 0, entry), &pass->text.offset);
    pass->text.offset += s->query[0];
    for (int64_t j = 0; j < keys; j++) words[j] = labels_key(&s->labels, &s->input, s->entry[entry], j);
    head_text_words(&pass->text, words);
    free(words);
    pass->sums = need_memory(s->heads, sizeof(head_sums *));
    for (int64_t h = 0; h < s->heads; h++) pass->sums[h] = head_sums_make(&pass->text);
}

void role_pass_clear(const role_pass *pass)
{
    for (int64_t h = 0; h < pass->heads; h++) head_sums_clear(pass->sums[h]);
}

void role_pass_add(const role_pass *pass, int64_t head, int64_t i, const float *weights, const uint8_t *visible)
{
    head_sums_add(pass->sums[head], i, weights, visible);
}

void role_pass_finish(const role_pass *pass, head_roles *roles)
{
    for (int64_t h = 0; h < pass->heads; h++) head_sums_finish(pass->sums[h], roles + h);
}

void role_pass_end(role_pass *pass)
{
    for (int64_t h = 0; h < pass->heads; h++) head_sums_free(pass->sums[h]);
    free(pass->sums);
    head_text_end(&pass->text);
}
