/* SPDX-License-Identifier: MIT
 * problems.c - see problems.h. */
#include "problems.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "registry.h"
#include "testing/text/failure.h"
#include "testing/text/nearest.h"

enum { MAX_TEXT = 512, MAX_WORDS = 48 };

static char *copy_of(const char *text) { return text ? need_text(text, strlen(text)) : NULL; }

static attn_status add(problem_list *list, const char *name, const char *text, const char *from, attn_error *error)
{
    if (list->count == MAX_PROBLEMS)
        return failure(error, ATTN_ERR_ARGUMENT, "more than %d problems; all of them are in memory at the same time", MAX_PROBLEMS);
    if (list->count == list->capacity) {
        const int capacity = list->capacity ? 2 * list->capacity : 64;
        problem_entry *larger = need_memory(capacity, sizeof *larger);
        if (list->count) memcpy(larger, list->entry, (size_t)list->count * sizeof *larger);
        free(list->entry);
        list->entry = larger;
        list->capacity = capacity;
    }
    const problem_entry *last = list->count ? &list->entry[list->count - 1] : NULL;
    const int place = last && last->word == list->words ? last->place + 1 : 0;
    list->names += name != NULL;
    list->entry[list->count++] =
        (problem_entry){.name = copy_of(name), .text = copy_of(text), .from = copy_of(from), .word = list->words, .place = place};
    return ATTN_OK;
}

/* ---- sweeps ---- */

/* The parts of "sq256,512": "sq256", "sq512"; of "fwd,bwd" the words.  A word with = has one part. */
typedef struct sweep_word {
    const char *at;
    int count, current;
} sweep_word;

static int parts_of(const char *word, size_t length)
{
    int count = 1;
    if (memchr(word, '=', length)) return 1;
    for (size_t k = 0; k < length; k++) count += word[k] == ',';
    return count;
}

/* Appends part `n` of the word; a part that begins with a digit gets the letters of the first. */
static void put_part(char *text, const char *word, int n, int count)
{
    const size_t length = count > 1 ? strcspn(word, ":,") : strcspn(word, ":"), used = strlen(text),
                 letters = strcspn(word, "0123456789,:");
    const char *part = word;
    for (int k = 0; k < n; k++) part += strcspn(part, ",") + 1;
    const size_t own = n ? strcspn(part, ":,") : length;
    const int prefix = n && isdigit((unsigned char)*part);
    snprintf(text + used, MAX_TEXT - used, "%s%.*s%.*s", used ? ":" : "", prefix ? (int)letters : 0, word, (int)own, part);
}

static attn_status add_string(problem_list *list, const char *string, const char *from, attn_error *error)
{
    sweep_word words[MAX_WORDS];
    int count = 0, k;
    if (strlen(string) >= MAX_TEXT / 2)
        return failure(error, ATTN_ERR_ARGUMENT, "a string of %zu characters is too long", strlen(string));
    for (const char *at = string;; at++) {
        const size_t length = strcspn(at, ":");
        if (count == MAX_WORDS) return failure(error, ATTN_ERR_ARGUMENT, "more than %d words", MAX_WORDS);
        words[count] = (sweep_word){at, parts_of(at, length), 0};
        for (size_t n = 0; words[count].count > 1 && n < length; n++)
            if (at[n] == ',' && (n == 0 || n + 1 == length || at[n + 1] == ','))
                return failure(error, ATTN_ERR_ARGUMENT, "an empty value in '%.*s'", (int)length, at);
        count++;
        at += length;
        if (!*at) break;
    }
    do { /* the last word changes fastest */
        char text[MAX_TEXT] = "";
        for (k = 0; k < count; k++) put_part(text, words[k].at, words[k].current, words[k].count);
        const attn_status status = add(list, NULL, text, from, error);
        if (status != ATTN_OK) return status;
        for (k = count - 1; k >= 0 && ++words[k].current == words[k].count; k--) words[k].current = 0;
    } while (k >= 0);
    return ATTN_OK;
}

/* ---- names ---- */

static attn_status add_name(problem_list *list, const char *name, const name_sizes *sizes, const char *from, attn_error *error)
{
    const registered *entry;
    attn_status status = registry_find(name, &entry, error);
    for (int b = 0; b < sizes->batches; b++)
        for (int n = 0; n < sizes->lengths && status == ATTN_OK; n++) {
            const registry_sizes x = {sizes->batch[b], sizes->tokens[n], sizes->width, sizes->heads, sizes->causal};
            char text[MAX_TEXT];
            registry_string(entry, &x, text, sizeof text);
            status = add(list, name, text, from, error);
        }
    return status;
}

attn_status problems_add(problem_list *list, const char *word, const name_sizes *sizes, const char *file, int line,
                         attn_error *error)
{
    char *from = NULL;
    if (file) {
        from = need_memory((int64_t)strlen(file) + 16, 1);
        sprintf(from, "%s:%d", file, line);
    }
    const int is_name = *word && !strchr(word, ':');
    list->words++;
    const attn_status status = is_name ? add_name(list, word, sizes, from, error) : add_string(list, word, from, error);
    if (status != ATTN_OK) {
        failure_about(error, word);
        if (from) failure_about(error, from);
    }
    free(from);
    return status;
}

attn_status problems_read(problem_list *list, const char *path, const name_sizes *sizes, attn_error *error)
{
    char line[1024];
    FILE *file = fopen(path, "r");
    if (!file) return failure(error, ATTN_ERR_IO, "%s: %s", path, strerror(errno));
    attn_status status = ATTN_OK;
    for (int number = 1; status == ATTN_OK && fgets(line, sizeof line, file); number++) {
        if (strlen(line) == sizeof line - 1)
            status = failure(error, ATTN_ERR_FORMAT, "%s:%d: a line of more than %zu characters", path, number, sizeof line - 2);
        char *begin = line + strspn(line, " \t\r\n");
        size_t length = strcspn(begin, "#\r\n");
        while (length && isspace((unsigned char)begin[length - 1])) length--;
        begin[length] = 0;
        if (length && status == ATTN_OK) status = problems_add(list, begin, sizes, path, number, error);
    }
    if (status == ATTN_OK && ferror(file)) status = failure(error, ATTN_ERR_IO, "%s: %s", path, strerror(errno));
    fclose(file);
    return status;
}

void problems_free(problem_list *list)
{
    for (int k = 0; k < list->count; k++) {
        free(list->entry[k].name);
        free(list->entry[k].text);
        free(list->entry[k].from);
    }
    free(list->entry);
    *list = (problem_list){0};
}

/* The index of the problem that `word` names. */
static attn_status find(const problem_list *list, const char *word, int is_number, int *index, attn_error *error)
{
    char hint[400];
    nearest near;
    nearest_init(&near, word);
    for (*index = 0; *index < list->count; (*index)++) {
        const problem_entry *e = &list->entry[*index];
        char text[MAX_TEXT];
        operand_print(&e->operand, text, sizeof text);
        if (is_number ? strtol(word, NULL, 10) == *index + 1 : strcmp(word, e->text) == 0 || strcmp(word, text) == 0)
            return ATTN_OK;
        if (e->name && strcmp(word, e->name) == 0) return ATTN_OK;
        nearest_offer(&near, e->name ? e->name : e->text);
    }
    nearest_print(&near, "", hint, sizeof hint);
    return failure(error, ATTN_ERR_ARGUMENT, "--baseline: '%.80s' is none of the %d problems%s", word, list->count, hint);
}

/* 1 if each of several words stands for as many problems. */
static int is_even(const problem_list *list)
{
    const int each = list->words ? list->count / list->words : 0;
    for (int k = 0; k < list->count; k++)
        if (list->entry[k].place != k % each) return 0;
    return list->words > 1 && list->count == each * list->words;
}

attn_status problems_compare(const problem_list *list, const char *with, int *index, attn_error *error)
{
    const int is_number = with && *with && strspn(with, "0123456789") == strlen(with);
    int first = 0;
    const attn_status status = with ? find(list, with, is_number, &first, error) : ATTN_OK;
    if (status != ATTN_OK) return status;
    const problem_entry *base = &list->entry[first];
    const int by_place = !is_number && is_even(list) && (!with || base->name);
    for (int k = 0; k < list->count; k++) index[k] = by_place ? first - base->place + list->entry[k].place : first;
    return ATTN_OK;
}
