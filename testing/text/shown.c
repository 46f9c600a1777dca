/* SPDX-License-Identifier: MIT
 *
 * shown.c - safe output of foreign text. */
#include "shown.h"

#include <stddef.h>

#define NOT_UTF8 UINT32_C(0xfffd)

uint32_t next_code_point(const char **text)
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
            if ((p[i] & 0xc0) != 0x80) return NOT_UTF8; /* also stops at the terminating NUL */
            code = code << 6 | (p[i] & 0x3fu);
        }
        if (code < forms[extra].smallest || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) return NOT_UTF8;
        *text += extra;
        return code;
    }
    return NOT_UTF8;
}

int code_point_is_shown(uint32_t code)
{
    /* Unicode categories Cc, Cf, Zl and Zp, and code points in between reserved for them. */
    static const uint32_t hidden[][2] = {
        {0x00, 0x1f},       {0x7f, 0x9f},       {0xad, 0xad},       {0x600, 0x605},     {0x61c, 0x61c},     {0x6dd, 0x6dd},
        {0x70f, 0x70f},     {0x890, 0x891},     {0x8e2, 0x8e2},     {0x180e, 0x180e},   {0x200b, 0x200f},   {0x2028, 0x202e},
        {0x2060, 0x206f},   {0xfeff, 0xfeff},   {0xfff0, 0xfffb},   {0xfffd, 0xffff},   {0x110bd, 0x110bd}, {0x110cd, 0x110cd},
        {0x13430, 0x1343f}, {0x1bca0, 0x1bca3}, {0x1d173, 0x1d17a}, {0xe0000, 0xe0fff},
    };
    for (size_t k = 0; k < sizeof hidden / sizeof *hidden; k++)
        if (code >= hidden[k][0] && code <= hidden[k][1]) return 0;
    return 1;
}

void put_shown(FILE *out, const char *text)
{
    while (*text) {
        const char *from = text;
        if (code_point_is_shown(next_code_point(&text))) (void)fwrite(from, 1, (size_t)(text - from), out);
        else (void)putc('?', out);
    }
}

int shown_width(const char *text)
{
    int width = 0;
    for (; *text; width++) (void)next_code_point(&text);
    return width;
}
