/* SPDX-License-Identifier: MIT
 * text.h - sentences made of pieces, where every plan makes one: printf takes longer than the rest of a small plan. */
#ifndef ATTN_BASE_TEXT_H
#define ATTN_BASE_TEXT_H

#include <stddef.h>
#include <string.h>

/* Appends to a terminated text of `size` bytes what fits. */
static inline void attn_text_add(char *text, size_t size, const char *more)
{
    const size_t length = strlen(text), wanted = strlen(more), room = size - 1 - length;
    const size_t added = wanted < room ? wanted : room;
    memcpy(text + length, more, added);
    text[length + added] = '\0';
}

/* The same of a number from 0 on. */
static inline void attn_text_add_number(char *text, size_t size, int number)
{
    char digits[12] = "", *first = digits + sizeof digits - 1;
    do *--first = (char)('0' + number % 10);
    while ((number /= 10) > 0);
    attn_text_add(text, size, first);
}

#endif
