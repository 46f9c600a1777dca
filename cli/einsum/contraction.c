/* SPDX-License-Identifier: MIT
 * contraction.c - reading contractions and their sizes. */
#include "contraction.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "testing/text/failure.h"

static attn_status add_letter(char *term, char letter, attn_error *error)
{
    const size_t at = strlen(term);
    if (!isalpha((unsigned char)letter))
        return failure(error, ATTN_ERR_ARGUMENT, "'%c' is not an index; indices are letters", letter);
    if (at + 1 == TERM) return failure(error, ATTN_ERR_ARGUMENT, "more than %d indices on one tensor", TERM - 1);
    term[at] = letter;
    return ATTN_OK;
}

static attn_status read_terms(contraction *c, const char *text, size_t length, attn_error *error)
{
    c->count = 1;
    for (size_t i = 0; i < length; i++) {
        if (text[i] == ' ') continue;
        if (text[i] == ',') {
            if (c->count == OPERANDS) return failure(error, ATTN_ERR_ARGUMENT, "more than %d tensors", OPERANDS);
            c->count++;
            continue;
        }
        const attn_status status = add_letter(c->inputs[c->count - 1], text[i], error);
        if (status != ATTN_OK) return status;
    }
    for (int k = 0; k < c->count; k++)
        if (!c->inputs[k][0] && c->count > 1) return failure(error, ATTN_ERR_ARGUMENT, "tensor %d has no index", k + 1);
    if (!c->inputs[0][0]) return failure(error, ATTN_ERR_ARGUMENT, "no index before the arrow");
    return ATTN_OK;
}

int contraction_occurrences(const contraction *c, char letter)
{
    int n = 0;
    for (int k = 0; k < c->count; k++)
        for (const char *at = c->inputs[k]; *at; at++) n += *at == letter;
    return n;
}

static attn_status read_output(contraction *c, const char *arrow, attn_error *error)
{
    for (int letter = 'A'; !arrow && letter <= 'z'; letter++) {
        if (!isalpha(letter) || contraction_occurrences(c, (char)letter) != 1) continue;
        const attn_status status = add_letter(c->output, (char)letter, error);
        if (status != ATTN_OK) return status;
    }
    for (const char *at = arrow ? arrow + 2 : ""; *at; at++) {
        if (*at == ' ') continue;
        if (strchr(c->output, *at)) return failure(error, ATTN_ERR_ARGUMENT, "index %c appears twice after the arrow", *at);
        const attn_status status = add_letter(c->output, *at, error);
        if (status != ATTN_OK) return status;
        if (!contraction_occurrences(c, *at))
            return failure(error, ATTN_ERR_ARGUMENT, "index %c after the arrow is not on any tensor before it", *at);
    }
    return ATTN_OK;
}

static void sort_indices(contraction *c)
{
    for (int k = 0; k < c->count; k++)
        for (const char *at = c->inputs[k]; *at; at++) {
            char *list = strchr(c->output, *at) ? c->free_indices : c->summed;
            if (!strchr(list, *at)) list[strlen(list)] = *at;
        }
}

attn_status contraction_read(contraction *c, const char *text, attn_error *error)
{
    const char *arrow = strstr(text, "->");
    attn_status status = read_terms(c, text, arrow ? (size_t)(arrow - text) : strlen(text), error);
    if (status == ATTN_OK) status = read_output(c, arrow, error);
    if (status != ATTN_OK) return status;
    for (int k = 0; k < c->count; k++) {
        if (k) strcat(c->text, ",");
        strcat(c->text, c->inputs[k]);
    }
    strcat(strcat(c->text, "->"), c->output);
    sort_indices(c);
    return ATTN_OK;
}

attn_status contraction_size(contraction *c, const char *text, attn_error *error)
{
    while (*text) {
        char *end;
        const char letter = *text;
        const long long size = text[1] == '=' ? strtoll(text + 2, &end, 10) : 0;
        if (text[1] != '=' || end == text + 2 || (*end && *end != ','))
            return failure(error, ATTN_ERR_ARGUMENT, "sizes (%.40s) are not a list such as b=2,h=8", text);
        if (!isalpha((unsigned char)letter) || !contraction_occurrences(c, letter))
            return failure(error, ATTN_ERR_ARGUMENT, "sizes name %c, which is not an index of %.100s", letter, c->text);
        if (size < 1 || size > 1 << 30)
            return failure(error, ATTN_ERR_ARGUMENT, "the size of %c (%.*s) is not between 1 and %d", letter, (int)(end - text - 2),
                           text + 2, 1 << 30);
        if (c->size[(unsigned char)letter]) return failure(error, ATTN_ERR_ARGUMENT, "sizes name %c twice", letter);
        c->size[(unsigned char)letter] = size;
        text = *end ? end + 1 : end;
    }
    for (const char *list = c->free_indices; list; list = list == c->free_indices ? c->summed : NULL)
        for (const char *at = list; *at; at++)
            if (!c->size[(unsigned char)*at]) return failure(error, ATTN_ERR_ARGUMENT, "sizes do not name %c", *at);
    return ATTN_OK;
}
