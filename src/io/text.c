/* SPDX-License-Identifier: MIT
 *
 * text.c - UTF-8 and excerpts for messages.
 */
#include "text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Bytes of the well-formed sequence at `text`, 0 if there is none. */
static size_t sequence(const unsigned char *text, size_t length)
{
    unsigned char first = text[0];
    if (first < 0x80) return 1;
    size_t bytes = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
    if (first < 0xC2 || first > 0xF4 || bytes > length) return 0;
    for (size_t i = 1; i < bytes; i++)
        if ((text[i] & 0xC0) != 0x80) return 0;
    bool overlong = (first == 0xE0 && text[1] < 0xA0) || (first == 0xF0 && text[1] < 0x90);
    bool surrogate = first == 0xED && text[1] > 0x9F;
    bool beyond = first == 0xF4 && text[1] > 0x8F;
    return overlong || surrogate || beyond ? 0 : bytes;
}

bool attn_io_utf8(const char *text, size_t length)
{
    const unsigned char *bytes = (const unsigned char *)text;
    for (size_t i = 0, step; i < length; i += step)
        if (!(step = sequence(bytes + i, length - i))) return false;
    return true;
}

/* Control characters, and whatever changes the direction of text, breaks a line or is invisible: a message must not control the
 * terminal, and must show what is there. */
static bool hidden(const unsigned char *text)
{
    if (text[0] < 0x20 || text[0] == 0x7F) return true;
    if (text[0] == 0xC2) return text[1] < 0xA0 || text[1] == 0xAD;
    if (text[0] == 0xE2 && text[1] == 0x80) return (text[2] >= 0x8B && text[2] <= 0x8F) || (text[2] >= 0xA8 && text[2] <= 0xAE);
    if (text[0] == 0xE2 && text[1] == 0x81) return text[2] >= 0xA0 && text[2] <= 0xAF;
    return text[0] == 0xEF && text[1] == 0xBB && text[2] == 0xBF;
}

/* Copies whole characters while they and the NUL fit into `size` bytes; returns the number of bytes of `text` consumed. */
static size_t copy_shown(char *buffer, size_t size, const char *text, size_t length)
{
    size_t used = 0, i = 0;
    while (i < length) {
        size_t bytes = sequence((const unsigned char *)text + i, length - i);
        bool shown = bytes && !hidden((const unsigned char *)text + i);
        size_t width = shown ? bytes : 1;
        if (used + width >= size) break;
        if (shown) memcpy(buffer + used, text + i, width);
        else buffer[used] = '?';
        used += width;
        i += bytes ? bytes : 1;
    }
    buffer[used] = '\0';
    return i;
}

const char *attn_io_excerpt(char buffer[ATTN_IO_EXCERPT], const char *text)
{
    size_t length = strlen(text);
    if (copy_shown(buffer, ATTN_IO_EXCERPT, text, length) < length) {
        copy_shown(buffer, ATTN_IO_EXCERPT - 3, text, length);
        strcat(buffer, "...");
    }
    return buffer;
}

const char *attn_io_excerpt_end(char buffer[ATTN_IO_EXCERPT], const char *text)
{
    size_t length = strlen(text), keep = ATTN_IO_EXCERPT - 4;
    if (length < ATTN_IO_EXCERPT) return attn_io_excerpt(buffer, text);
    const char *end = text + length - keep;
    while ((*end & 0xC0) == 0x80) end++;
    memcpy(buffer, "...", 3);
    copy_shown(buffer + 3, ATTN_IO_EXCERPT - 3, end, strlen(end));
    return buffer;
}

const char *attn_io_shape_text(char buffer[ATTN_IO_SHAPE_TEXT], int rank, const int64_t *shape)
{
    size_t used = (size_t)snprintf(buffer, ATTN_IO_SHAPE_TEXT, "[");
    for (int i = 0; i < rank; i++)
        used += (size_t)snprintf(buffer + used, ATTN_IO_SHAPE_TEXT - used, "%s%" PRId64, i ? ", " : "", shape[i]);
    snprintf(buffer + used, ATTN_IO_SHAPE_TEXT - used, "]");
    return buffer;
}
