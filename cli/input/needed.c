/* SPDX-License-Identifier: MIT
 *
 * needed.c - see needed.h. */
#include "needed.h"

#include <stdlib.h>
#include <string.h>

#include "cli/base/commands.h"
#include "cli/base/text_buffer.h"
#include "testing/text/failure.h"

static const char key[] = "attn_flags";

/* 1 if a word of a problem string is a flag that changes weights; a scale of each head is a tensor of the file. */
static int changes_weights(const char *text, size_t length)
{
    for (int w = 0; problem_word_at(w); w++) {
        const problem_word *word = problem_word_at(w);
        if (word->form == WORD_OPTION && strlen(word->name) == length && strncmp(word->name, text, length) == 0)
            return word->flag == FLAG_INPUT || (strcmp(word->name, "scale") == 0 && strncmp(text, "scale=heads", 11) != 0);
    }
    return 0;
}

/* The flags, each after a blank. */
static void add_flags(text_buffer *text, const problem_spec *spec)
{
    problem_spec checked = *spec;
    (void)problem_check(&checked, NULL); /* one form for equal options */
    if (checked.t5_buckets == 32 && checked.t5_distance == 128) checked.t5_buckets = checked.t5_distance = 0; /* the default */
    const size_t length = problem_print(&checked, NULL, 0);
    char *words = need_memory((int64_t)length + 1, 1);
    problem_print(&checked, words, length + 1);
    for (const char *at = words; *at; at += strspn(at, ":")) {
        const size_t word = strcspn(at, ":");
        if (changes_weights(at, strcspn(at, ":="))) text_print(text, " --%.*s", (int)word, at);
        at += word;
    }
    text_letter(text, 0);
    free(words);
}

attn_status needed_write(attn_archive *out, const problem_spec *spec, attn_error *error)
{
    text_buffer flags = {0};
    add_flags(&flags, spec);
    attn_status status = text_status(&flags, "the flags of q and k", error);
    if (status == ATTN_OK && flags.bytes[0]) status = attn_archive_set_metadata(out, key, flags.bytes + 1, error);
    text_free(&flags);
    return status;
}

/* 1 if the flag, so many bytes, is among those of add_flags. */
static int has_flag(const char *flags, const char *flag, size_t length)
{
    while (*flags) {
        flags += strspn(flags, " ");
        if (strcspn(flags, " ") == length && strncmp(flags, flag, length) == 0) return 1;
        flags += strcspn(flags, " ");
    }
    return 0;
}

void needed_warn(const attention_input *input)
{
    const char *const needed = input->file ? attn_archive_get_metadata(input->file, key) : NULL;
    text_buffer given = {0};
    int missing = 0;
    if (!needed) return;
    add_flags(&given, &input->spec);
    for (const char *at = needed; *at && !given.failed; at += strspn(at, " ")) {
        missing |= !has_flag(given.bytes, at, strcspn(at, " "));
        at += strcspn(at, " ");
    }
    if (missing)
        command_warn("%.60s has q and k of a layer with %.100s; without %s these weights are not the layer's", input->path, needed,
                     strchr(needed, ' ') ? "all of these flags" : "this flag");
    text_free(&given);
}
