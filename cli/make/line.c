/* SPDX-License-Identifier: MIT
 * line.c - the flags of `attn run` for a problem string. */
#include <stdlib.h>
#include <string.h>

#include "cli/input/input.h"
#include "make.h"
#include "testing/text/failure.h"

/* 1 if the results depend on the seed beyond the tensors of the file. */
static int seed_matters(const problem_spec *s) { return s->seed && s->dropout > 0; }

/* 1 if a word of a problem string is a flag of `attn run` with the same value. */
static int is_flag(const problem_spec *s, const char *name, size_t length)
{
    for (int w = 0; problem_word_at(w); w++) {
        const problem_word *word = problem_word_at(w);
        if (word->form != WORD_OPTION || strlen(word->name) != length || strncmp(word->name, name, length) != 0) continue;
        if (strcmp(word->name, "align") == 0) return input_positions_matter(s); /* `attn run` rejects it otherwise */
        if (strcmp(word->name, "offset") == 0) return s->offset_kind == SPEC_OFFSET_VALUE && input_positions_matter(s);
        if (strcmp(word->name, "scale") == 0) return !s->scale_heads;
        if (strcmp(word->name, "seed") == 0) return seed_matters(s);
        return word->flag != FLAG_NONE || strcmp(word->name, "block") == 0;
    }
    return 0;
}

/* In quotes, if a shell would read it in another way. */
static void add_quoted(text_buffer *text, const char *word)
{
    const char *const safe = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./+,:@%=";
    const int quoted = word[strspn(word, safe)] != 0;
    if (quoted) text_letter(text, '\'');
    for (const char *at = word; *at; at++)
        if (*at == '\'') text_string(text, "'\\''");
        else text_letter(text, *at);
    if (quoted) text_letter(text, '\'');
}

void make_line(text_buffer *text, const problem_spec *spec, const char *path)
{
    static const char *const of_op[] = {[SPEC_BACKWARD] = " --backward",
                                        [SPEC_JVP] = " --jvp",
                                        [SPEC_DOUBLE_BACKWARD] = " --double-backward",
                                        [SPEC_LINEAR] = " --linear --state",
                                        [SPEC_LINEAR_BACKWARD] = " --linear --state --backward"};
    const char *dot = strrchr(path, '.');
    const size_t length = problem_print(spec, NULL, 0);
    char *words = need_memory((int64_t)length + 1, 1);
    problem_print(spec, words, length + 1);
    text_string(text, "attn run ");
    add_quoted(text, path);
    text_print(text, " -o out%s", dot ? dot : "");
    if (of_op[spec->op]) text_string(text, of_op[spec->op]);
    for (const char *at = words; *at; at += strspn(at, ":")) {
        const size_t word = strcspn(at, ":"), name = strcspn(at, ":=");
        const size_t value = strncmp(at, "block=", 6) == 0 ? strcspn(at, ":/") : word; /* without the share that is dropped */
        if (is_flag(spec, at, name)) text_print(text, " --%.*s", (int)value, at);
        at += word;
    }
    text_letter(text, 0);
    free(words);
}
