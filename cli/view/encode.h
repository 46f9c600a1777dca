/* SPDX-License-Identifier: MIT
 *
 * encode.h - text and numbers in the two forms that are safe inside a <script> element of the page: JSON strings and base64.
 * text_status reports a lack of memory.
 */
#ifndef ATTN_CLI_VIEW_ENCODE_H
#define ATTN_CLI_VIEW_ENCODE_H

#include <stddef.h>
#include <stdint.h>

#include "cli/base/text_buffer.h"

/* Writes `text` as a JSON string, or null for NULL.  Only ASCII comes out, and none of < > &, so that no text can end the
 * element or open a comment.  Every byte that is not part of valid UTF-8 becomes \ufffd. */
void view_encode_text(text_buffer *out, const char *text);

/* Base64 of values in little-endian order, a few bytes at a time: start from {.out = out}, end with view_base64_end. */
typedef struct view_base64 {
    text_buffer *out;
    uint32_t group;   /* of up to three bytes, the first one highest */
    unsigned pending; /* how many of them there are: 0, 1, 2 */
} view_base64;

void view_base64_u8(view_base64 *stream, uint8_t value);
void view_base64_u16(view_base64 *stream, uint16_t value);
void view_base64_f32(view_base64 *stream, float value);
void view_base64_end(view_base64 *stream);

#endif
