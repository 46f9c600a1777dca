/* SPDX-License-Identifier: MIT
 *
 * problem.c - problem strings: parsing and printing. */
#include "problem.h"

#include <stdio.h>
#include <string.h>

#include "problem_rules.h"
#include "testing/text/failure.h"
#include "testing/text/nearest.h"

const problem_word *problem_word_at(int index)
{
    return index >= 0 && index < problem_rules_count ? &problem_rules[index].word : NULL;
}

const char *const *problem_word_choices(const problem_word *word)
{
    for (int k = 0; k < problem_rules_count; k++)
        if (&problem_rules[k].word == word) return problem_rules[k].choices;
    return NULL;
}

void problem_init(problem_spec *spec) { *spec = (problem_spec){.shape = {-1, -1, -1, -1, -1, -1, -1}, .temperature = 1}; }

static attn_status unknown_word(const char *text, attn_error *error)
{
    char word[41], hint[160];
    nearest near;
    snprintf(word, sizeof word, "%.*s", (int)strcspn(text, "="), text);
    nearest_init(&near, word);
    for (int r = 0; r < problem_rules_count; r++) {
        const problem_rule *rule = &problem_rules[r];
        if (rule->word.form != WORD_IS_VALUE) nearest_offer(&near, rule->word.name);
        for (int k = 0; rule->word.form == WORD_IS_VALUE && rule->choices[k]; k++) nearest_offer(&near, rule->choices[k]);
    }
    nearest_print(&near, "", hint, sizeof hint);
    return failure(error, ATTN_ERR_ARGUMENT, "unknown word '%s'%s", word, hint);
}

attn_status problem_set(problem_spec *spec, const char *name, const char *value, attn_error *error)
{
    for (int r = 0; r < problem_rules_count; r++)
        if (strcmp(name, problem_rules[r].word.name) == 0) return problem_rules[r].read(&problem_rules[r], spec, value, error);
    return unknown_word(name, error);
}

static int is_choice(const problem_rule *rule, const char *word, size_t length)
{
    for (int k = 0; rule->choices[k]; k++)
        if (strlen(rule->choices[k]) == length && strncmp(word, rule->choices[k], length) == 0) return 1;
    return 0;
}

/* The rule of one word of a string; *value: the start of its value in the word, NULL if it has none. */
static const problem_rule *find_rule(const char *word, const char **value)
{
    size_t name_length = strcspn(word, "=");
    size_t letters = strcspn(word, "=-0123456789");
    for (int r = 0; r < problem_rules_count; r++) {
        const problem_rule *rule = &problem_rules[r];
        const char *name = rule->word.name;
        switch (rule->word.form) {
        case WORD_IS_VALUE:
            *value = word;
            if (is_choice(rule, word, name_length)) return rule;
            break;
        case WORD_SIZE:
            *value = word + letters;
            if (strlen(name) == letters && strncmp(word, name, letters) == 0) return rule;
            break;
        case WORD_OPTION:
        case WORD_FLAG:
            *value = word[name_length] ? word + name_length + 1 : NULL;
            if (strlen(name) == name_length && strncmp(word, name, name_length) == 0) return rule;
            break;
        }
    }
    return NULL;
}

/* Checks sizes without a default, and fills in the others. */
static attn_status fill_defaults(problem_spec *spec, attn_error *error)
{
    attn_shape *s = &spec->shape;
    if (s->len_q < 0) return failure(error, ATTN_ERR_ARGUMENT, "sq is missing (the number of queries, as in sq1024)");
    if (s->dim_qk < 0) return failure(error, ATTN_ERR_ARGUMENT, "d is missing (the width of a query, as in d64)");
    if (s->batch < 0) s->batch = 1;
    if (s->heads_q < 0) s->heads_q = 1;
    if (s->heads_kv < 0) s->heads_kv = s->heads_q;
    if (s->len_kv < 0) s->len_kv = s->len_q;
    if (s->dim_v < 0) s->dim_v = s->dim_qk;
    return ATTN_OK;
}

attn_status problem_parse(const char *text, problem_spec *spec, attn_error *error)
{
    char word[SPEC_SPARSE + 8];
    unsigned char given[64] = {0};
    _Static_assert(sizeof given >= 40, "a place for every rule");
    problem_init(spec);
    for (const char *at = text;;) {
        size_t length = strcspn(at, ":");
        if (length == 0) return failure(error, ATTN_ERR_ARGUMENT, *text ? "an empty word" : "the problem string is empty");
        if (length >= sizeof word)
            return failure(error, ATTN_ERR_ARGUMENT, "a word of %zu characters is too long: '%.40s...'", length, at);
        memcpy(word, at, length);
        word[length] = 0;
        const char *value;
        const problem_rule *rule = find_rule(word, &value);
        if (!rule) return unknown_word(word, error);
        if (given[rule - problem_rules]++) return failure(error, ATTN_ERR_ARGUMENT, "%s is given twice", rule->word.name);
        attn_status status = rule->read(rule, spec, value, error);
        if (status != ATTN_OK) return status;
        if (!at[length]) break;
        at += length + 1;
    }
    attn_status status = fill_defaults(spec, error);
    return status == ATTN_OK ? problem_check(spec, error) : status;
}

size_t problem_print(const problem_spec *spec, char *text, size_t size)
{
    static const char *const between[] = {[WORD_IS_VALUE] = "", [WORD_SIZE] = "", [WORD_OPTION] = "=", [WORD_FLAG] = ""};
    size_t whole = 0;
    if (size) text[0] = 0;
    for (int r = 0; r < problem_rules_count; r++) {
        const problem_rule *rule = &problem_rules[r];
        char value[SPEC_SPARSE];
        if (!rule->print(rule, spec, value, sizeof value)) continue;
        const char *name = rule->word.form == WORD_IS_VALUE ? "" : rule->word.name;
        size_t left = whole < size ? size - whole : 0;
        int wrote = snprintf(left ? text + whole : NULL, left, "%s%s%s%s", whole ? ":" : "", name,
                             value[0] ? between[rule->word.form] : "", value);
        whole += (size_t)wrote;
    }
    return whole;
}

const char *problem_op_name(const problem_spec *spec)
{
    return problem_rules[0].choices[spec->op]; /* the first row is the operation */
}
