/* SPDX-License-Identifier: MIT
 *
 * encode.c - JSON strings (RFC 8259) and base64 (RFC 4648), written as they are made.
 */
#include "encode.h"

#include <string.h>

#include "testing/text/shown.h"

void view_encode_text(text_buffer *out, const char *text)
{
    if (!text) {
        text_string(out, "null");
        return;
    }
    text_letter(out, '"');
    for (const char *p = text; *p;) {
        uint32_t code = next_code_point(&p);
        if (code >= 0x10000) {
            code -= 0x10000;
            text_print(out, "\\u%04x\\u%04x", (unsigned)(0xd800 | code >> 10), (unsigned)(0xdc00 | (code & 0x3ff)));
        } else if (code < 0x20 || code >= 0x7f || strchr("\"\\<>&", (int)code)) {
            text_print(out, "\\u%04x", (unsigned)code);
        } else {
            text_letter(out, (char)code);
        }
    }
    text_letter(out, '"');
}

static void put_byte(view_base64 *stream, uint32_t byte)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    uint32_t group = stream->group << 8 | (byte & 0xff);
    if (++stream->pending == 3) {
        const char four[4] = {digits[group >> 18 & 63], digits[group >> 12 & 63], digits[group >> 6 & 63], digits[group & 63]};
        text_add(stream->out, four, sizeof four);
        stream->pending = 0;
        group = 0;
    }
    stream->group = group;
}

void view_base64_u8(view_base64 *stream, uint8_t value) { put_byte(stream, value); }

void view_base64_u16(view_base64 *stream, uint16_t value)
{
    put_byte(stream, value);
    put_byte(stream, (uint32_t)value >> 8);
}

void view_base64_f32(view_base64 *stream, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    view_base64_u16(stream, (uint16_t)(bits & 0xffff));
    view_base64_u16(stream, (uint16_t)(bits >> 16));
}

/* Pads with zero bytes instead of '=': the reader knows how many values to expect. */
void view_base64_end(view_base64 *stream)
{
    while (stream->pending) put_byte(stream, 0);
}
