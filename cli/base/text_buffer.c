/* SPDX-License-Identifier: MIT
 *
 * text_buffer.c - see text_buffer.h. */
#include "text_buffer.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "testing/text/failure.h"

/* Makes space for `count` more bytes; 0 on failure. */
static int reserve(text_buffer *text, size_t count)
{
    if (text->failed || count <= text->capacity - text->count) return !text->failed;
    size_t capacity = text->capacity < 2048 ? 4096 : text->capacity > SIZE_MAX / 2 ? SIZE_MAX : 2 * text->capacity;
    if (count > SIZE_MAX - text->count) capacity = 0;
    else if (capacity < text->count + count) capacity = text->count + count;
    char *bytes = capacity ? realloc(text->bytes, capacity) : NULL;
    text->failed = !bytes;
    if (!bytes) return 0;
    text->bytes = bytes;
    text->capacity = capacity;
    return 1;
}

void text_add(text_buffer *text, const void *bytes, size_t count)
{
    if (!count || !reserve(text, count)) return;
    memcpy(text->bytes + text->count, bytes, count);
    text->count += count;
}

void text_letter(text_buffer *text, char letter) { text_add(text, &letter, 1); }

void text_string(text_buffer *text, const char *string) { text_add(text, string, strlen(string)); }

void text_print(text_buffer *text, const char *format, ...)
{
    for (size_t space = 256; reserve(text, space);) {
        va_list list;
        va_start(list, format);
        const int length = vsnprintf(text->bytes + text->count, space, format, list);
        va_end(list);
        if (length < 0) text->failed = 1; /* vsnprintf itself ran out of memory */
        else if ((size_t)length < space) text->count += (size_t)length;
        if (length < 0 || (size_t)length < space) return;
        space = (size_t)length + 1;
    }
}

attn_status text_status(const text_buffer *text, const char *what, attn_error *error)
{
    return text->failed ? failure(error, ATTN_ERR_MEMORY, "cannot allocate memory for %s", what) : ATTN_OK;
}

void text_free(text_buffer *text)
{
    free(text->bytes);
    *text = (text_buffer){0};
}
