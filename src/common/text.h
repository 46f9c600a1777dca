/* SPDX-License-Identifier: MIT
 * text.h - strings joined from pieces, for strings built in every call: printf takes longer than the rest of a small call. */
#ifndef ATTN_COMMON_TEXT_H
#define ATTN_COMMON_TEXT_H

#include <stddef.h>
#include <string.h>

/* Appends as much as fits to a terminated string in `size` bytes. */
static inline void text_add(char *text, size_t size, const char *more)
{
    const size_t length = strlen(text), extra = strlen(more), available = size - 1 - length;
    const size_t added = extra < available ? extra : available;
    memcpy(text + length, more, added);
    text[length + added] = '\0';
}

/* The same for a number >= 0. */
static inline void text_add_number(char *text, size_t size, int number)
{
    char digits[12] = "", *first = digits + sizeof digits - 1;
    do *--first = (char)('0' + number % 10);
    while ((number /= 10) > 0);
    text_add(text, size, first);
}

/* to = a b c. */
static inline const char *text_join(char *to, size_t size, const char *a, const char *b, const char *c)
{
    *to = '\0';
    text_add(to, size, a);
    text_add(to, size, b);
    text_add(to, size, c);
    return to;
}

#endif
