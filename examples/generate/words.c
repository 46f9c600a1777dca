/* SPDX-License-Identifier: MIT
 *
 * words.c - see words.h.  Outside ASCII the classes are those of blocks, not of each character: what is not a space, a number,
 * punctuation or a symbol by the tables below is taken for a letter.
 */
#include "words.h"

#include <stdint.h>
#include <string.h>

typedef enum kind { SPACE, LETTER, NUMBER, OTHER } kind;

typedef struct range {
    uint32_t first, last;
    kind kind;
} range;

static const range ranges[] = {
    {0x09, 0x0D, SPACE},      {0x20, 0x20, SPACE},      {0x30, 0x39, NUMBER},     {0x41, 0x5A, LETTER},
    {0x61, 0x7A, LETTER},     {0x85, 0x85, SPACE},      {0xA0, 0xA0, SPACE},      {0x1680, 0x1680, SPACE},
    {0x2000, 0x200A, SPACE},  {0x2028, 0x2029, SPACE},  {0x202F, 0x202F, SPACE},  {0x205F, 0x205F, SPACE},
    {0x3000, 0x3000, SPACE},  {0xB2, 0xB3, NUMBER},     {0xB9, 0xB9, NUMBER},     {0xBC, 0xBE, NUMBER},
    {0x660, 0x669, NUMBER},   {0x6F0, 0x6F9, NUMBER},   {0x966, 0x96F, NUMBER},   {0x2070, 0x2070, NUMBER},
    {0x2074, 0x2079, NUMBER}, {0x2080, 0x2089, NUMBER}, {0x2150, 0x218B, NUMBER}, {0x2460, 0x249B, NUMBER},
    {0x24EA, 0x24FF, NUMBER}, {0xFF10, 0xFF19, NUMBER}, {0xAA, 0xAA, LETTER},     {0xB5, 0xB5, LETTER},
    {0xBA, 0xBA, LETTER},     {0x00, 0xBF, OTHER},      {0xD7, 0xD7, OTHER},      {0xF7, 0xF7, OTHER},
    {0x300, 0x36F, OTHER},    {0x2010, 0x206F, OTHER},  {0x20A0, 0x20FF, OTHER},  {0x2190, 0x245F, OTHER},
    {0x249C, 0x2BFF, OTHER},  {0x3001, 0x3004, OTHER},  {0x3008, 0x3020, OTHER},  {0xFE00, 0xFE6F, OTHER},
    {0xFF00, 0xFF0F, OTHER},  {0xFF1A, 0xFF20, OTHER},  {0xFFE0, 0xFFFF, OTHER},  {0x1F000, 0x1FAFF, OTHER},
};

static kind kind_of(uint32_t c)
{
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++)
        if (c >= ranges[i].first && c <= ranges[i].last) return ranges[i].kind;
    return LETTER;
}

/* The kind of the first character and, in *bytes, its length; a byte that begins none is OTHER. */
static kind first_kind(const char *text, size_t length, size_t *bytes)
{
    const unsigned char first = (unsigned char)text[0];
    const size_t size = first < 0x80 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
    uint32_t c = size == 1 ? first : (uint32_t)first & (0x7FU >> size);
    *bytes = 1;
    if (size > length || (first >= 0x80 && first < 0xC0)) return OTHER;
    for (size_t i = 1; i < size; i++) c = c << 6 | ((unsigned char)text[i] & 0x3F);
    *bytes = size;
    return kind_of(c);
}

/* The bytes of the characters of one kind with which a text begins. */
static size_t run(const char *text, size_t length, kind of)
{
    size_t used = 0, bytes;
    while (used < length && first_kind(text + used, length - used, &bytes) == of) used += bytes;
    return used;
}

/* Spaces: all at the end of the text; else all but the last, which goes to the next word, unless there is but one. */
static size_t spaces(const char *text, size_t length)
{
    size_t used = 0, before = 0, bytes;
    while (used < length && first_kind(text + used, length - used, &bytes) == SPACE) {
        before = used;
        used += bytes;
    }
    return used < length && before > 0 ? before : used;
}

/* The first word by GPT-2's pattern. */
static size_t first_word(const char *text, size_t length)
{
    static const char *const endings[] = {"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"};
    for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++) {
        const size_t size = strlen(endings[i]);
        if (size <= length && !memcmp(text, endings[i], size)) return size;
    }
    const size_t space = text[0] == ' ' && length > 1;
    size_t bytes;
    const kind next = first_kind(text + space, length - space, &bytes);
    if (next == SPACE) return spaces(text, length);
    return space + run(text + space, length - space, next);
}

size_t words_first(const char *text, size_t length, int single_digits)
{
    size_t bytes, used = 0;
    if (!single_digits) return first_word(text, length);
    if (first_kind(text, length, &bytes) == NUMBER) return bytes;
    while (used < length && first_kind(text + used, length - used, &bytes) != NUMBER) used += bytes;
    return first_word(text, used);
}
