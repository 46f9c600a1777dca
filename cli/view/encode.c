/* SPDX-License-Identifier: MIT
 *
 * encode.c - JSON strings (RFC 8259) and base64 (RFC 4648), written as they are made.
 */
#include "encode.h"

#include <string.h>

#define NOT_UTF8 UINT32_C(0xfffd)

uint32_t view_code_point(const char **text)
{
    static const struct {
        unsigned char mask, lead;
        uint32_t smallest;
    } forms[] = {{0x80, 0x00, 0}, {0xe0, 0xc0, 0x80}, {0xf0, 0xe0, 0x800}, {0xf8, 0xf0, 0x10000}};
    const unsigned char *p = (const unsigned char *)*text;
    *text += 1;
    for (size_t extra = 0; extra < sizeof forms / sizeof forms[0]; extra++) {
        if ((p[0] & forms[extra].mask) != forms[extra].lead) continue;
        uint32_t code = p[0] & (uint32_t)(unsigned char)~forms[extra].mask;
        for (size_t i = 1; i <= extra; i++) {
            if ((p[i] & 0xc0) != 0x80) return NOT_UTF8; /* the NUL at the end stops here too */
            code = code << 6 | (p[i] & 0x3fu);
        }
        if (code < forms[extra].smallest || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) return NOT_UTF8;
        *text += extra;
        return code;
    }
    return NOT_UTF8;
}

void view_encode_text(FILE *out, const char *text)
{
    if (!text) {
        fputs("null", out);
        return;
    }
    putc('"', out);
    for (const char *p = text; *p;) {
        uint32_t code = view_code_point(&p);
        if (code >= 0x10000) {
            code -= 0x10000;
            fprintf(out, "\\u%04x\\u%04x", (unsigned)(0xd800 | code >> 10), (unsigned)(0xdc00 | (code & 0x3ff)));
        } else if (code < 0x20 || code >= 0x7f || strchr("\"\\<>&", (int)code)) {
            fprintf(out, "\\u%04x", (unsigned)code);
        } else {
            putc((int)code, out);
        }
    }
    putc('"', out);
}

static void put_byte(view_base64 *stream, uint32_t byte)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    uint32_t group = stream->group << 8 | (byte & 0xff);
    if (++stream->pending == 3) {
        const char four[4] = {digits[group >> 18 & 63], digits[group >> 12 & 63], digits[group >> 6 & 63], digits[group & 63]};
        fwrite(four, 1, sizeof four, stream->out);
        stream->pending = 0;
        group = 0;
    }
    stream->group = group;
}

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

/* Padding bytes need no '=': zeros are added instead, and the reader knows how many values it wants. */
void view_base64_end(view_base64 *stream)
{
    while (stream->pending) put_byte(stream, 0);
}
