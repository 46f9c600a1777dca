/* SPDX-License-Identifier: MIT
 * sentence.c - the library's words for fields of structs, which a caller from Python has never written, become his own. */
#include "sentence.h"

#include <string.h>

static const struct {
    const char *c, *python;
} words[] = {
#define WORD(c, python) {c, python},
#include "words.def"
#undef WORD
};

/* Structs whose fields are keywords of Python's by themselves. */
static const char *const structs[] = {"attention.", "tensors.", "tokens.", "split."};

static int is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

/* What only a caller from C can do; an array of Python has its type. */
static const char hint[] = "; the array was read as i64 (set its dtype if it is i32)";

/* The length of the word at the start of a text: letters, digits, and dots with a letter behind them. */
static size_t word_at(const char *text)
{
    size_t n = 0;
    while (is_letter(text[n]) || (n && text[n] >= '0' && text[n] <= '9') || (n && text[n] == '.' && is_letter(text[n + 1]))) n++;
    return n;
}

/* What stands for a word, or the word itself, without its struct; *size is its length. */
static const char *translate(const char *word, size_t *size)
{
    for (size_t i = 0; i < sizeof structs / sizeof *structs; i++) {
        const size_t prefix = strlen(structs[i]);
        if (*size <= prefix || strncmp(word, structs[i], prefix) != 0) continue;
        word += prefix;
        *size -= prefix;
    }
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (strlen(words[i].c) != *size || strncmp(word, words[i].c, *size) != 0) continue;
        *size = strlen(words[i].python);
        return words[i].python;
    }
    return word;
}

void sentence_python(char *message, size_t size, int forward)
{
    char made[SENTENCE_MOST];
    size_t at = 0;
    if (size > sizeof made) size = sizeof made;
    for (const char *from = message; *from;) {
        if (strncmp(from, hint, sizeof hint - 1) == 0) {
            from += sizeof hint - 1;
            continue;
        }
        const size_t length = word_at(from);
        const int is_out = forward && *from == 'o' && (length == 1 || (length && from[1] == '.')); /* o, or o.dtype */
        const size_t read = is_out || !length ? 1 : length;
        size_t count = is_out ? 3 : read;
        const char *with = is_out ? "out" : length ? translate(from, &count) : from;
        if (count > size - 1 - at) count = size - 1 - at;
        memcpy(made + at, with, count);
        at += count;
        from += read;
    }
    made[at] = '\0';
    memcpy(message, made, at + 1);
}
