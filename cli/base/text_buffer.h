/* SPDX-License-Identifier: MIT
 *
 * text_buffer.h - text of any length, built in memory before it is written to a file.
 *
 * A failed allocation is never silent: from then on nothing is added, and text_status reports it.  (open_memstream may lose bytes
 * without any stdio call failing.)  */
#ifndef ATTN_CLI_BASE_TEXT_BUFFER_H
#define ATTN_CLI_BASE_TEXT_BUFFER_H

#include <stddef.h>

#include "attn/attn.h"

/* Zero-initialised. */
typedef struct text_buffer {
    char *bytes; /* NULL while count is 0 */
    size_t count, capacity;
    int failed; /* 1: out of memory; the text is incomplete */
} text_buffer;

void text_add(text_buffer *text, const void *bytes, size_t count);
void text_letter(text_buffer *text, char letter);
void text_string(text_buffer *text, const char *string);
__attribute__((format(printf, 2, 3))) void text_print(text_buffer *text, const char *format, ...);

/* ATTN_OK if the text is complete; else ATTN_ERR_MEMORY, "cannot allocate memory for WHAT". */
attn_status text_status(const text_buffer *text, const char *what, attn_error *error);

void text_free(text_buffer *text);

#endif
