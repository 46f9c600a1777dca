/* SPDX-License-Identifier: MIT
 *
 * npy_header.c - the header of .npy: a recursive-descent parser for the few forms that NumPy writes, and the printer.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "element.h"
#include "npy.h"
#include "text.h"

enum { WORD = 32 };

typedef struct header_text {
    const attn_io_context *context;
    const char *text;
    size_t length;
    size_t at;
} header_text;

static attn_status fail_here(const header_text *cursor, const char *expected)
{
    return attn_io_fail(cursor->context, ATTN_ERR_FORMAT, "header: byte %zu: expected %s", cursor->at, expected);
}

static void skip_blanks(header_text *cursor)
{
    while (cursor->at < cursor->length && (cursor->text[cursor->at] == ' ' || cursor->text[cursor->at] == '\n')) cursor->at++;
}

/* The next nonblank character, 0 at the end. */
static char peek(header_text *cursor)
{
    skip_blanks(cursor);
    return cursor->at < cursor->length ? cursor->text[cursor->at] : '\0';
}

static bool accept(header_text *cursor, char c)
{
    bool is = peek(cursor) == c && cursor->at < cursor->length;
    cursor->at += is;
    return is;
}

static bool accept_word(header_text *cursor, const char *word)
{
    size_t length = strlen(word);
    skip_blanks(cursor);
    bool is = cursor->length - cursor->at >= length && !memcmp(cursor->text + cursor->at, word, length);
    if (is) cursor->at += length;
    return is;
}

/* 'text' or "text", short, without escapes. */
static attn_status parse_string(header_text *cursor, char word[WORD])
{
    char quote = peek(cursor);
    if (quote != '\'' && quote != '"') return fail_here(cursor, "a string");
    size_t used = 0;
    for (size_t i = cursor->at + 1; i < cursor->length; i++) {
        char c = cursor->text[i];
        if (c == quote) {
            word[used] = '\0';
            cursor->at = i + 1;
            return ATTN_OK;
        }
        if ((unsigned char)c < 0x20 || c == '\\' || used + 1 == WORD) break;
        word[used++] = c;
    }
    return fail_here(cursor, "a short string without escapes");
}

static attn_status parse_descr(header_text *cursor, attn_io_npy_header *header)
{
    char word[WORD], excerpt[ATTN_IO_EXCERPT];
    if (peek(cursor) == '[')
        return attn_io_fail(cursor->context, ATTN_ERR_UNSUPPORTED,
                            "structured arrays are not supported: descr is a list of fields");
    attn_status status = parse_string(cursor, word);
    if (status) return status;
    header->dtype = attn_io_npy_dtype(word, &header->swap);
    if (header->dtype) return ATTN_OK;
    return attn_io_fail(cursor->context, ATTN_ERR_UNSUPPORTED,
                        "dtype '%s' is not one of bool, int, uint and float with 8 to 64 bits", attn_io_excerpt(excerpt, word));
}

static attn_status parse_order(header_text *cursor, attn_io_npy_header *header)
{
    header->fortran_order = accept_word(cursor, "True");
    return header->fortran_order || accept_word(cursor, "False") ? ATTN_OK : fail_here(cursor, "True or False");
}

static attn_status parse_size(header_text *cursor, int64_t *size)
{
    static const char expected[] = "a size from 0 to 2^63-1";
    char first = peek(cursor);
    if (first < '0' || first > '9') return fail_here(cursor, expected);
    if (first == '0' && cursor->at + 1 < cursor->length && cursor->text[cursor->at + 1] >= '0' &&
        cursor->text[cursor->at + 1] <= '9')
        return fail_here(cursor, "a size without leading zeros");
    *size = 0;
    size_t i = cursor->at;
    for (; i < cursor->length && cursor->text[i] >= '0' && cursor->text[i] <= '9'; i++) {
        int digit = cursor->text[i] - '0';
        if (*size > (INT64_MAX - digit) / 10) return fail_here(cursor, expected);
        *size = *size * 10 + digit;
    }
    if (i < cursor->length && cursor->text[i] == 'L') i++; /* Python 2 wrote 3L */
    cursor->at = i;
    return ATTN_OK;
}

/* (), (3,), (3, 4), (3, 4,); (3) is not a tuple. */
static attn_status parse_shape(header_text *cursor, attn_io_npy_header *header)
{
    bool comma = true;
    if (!accept(cursor, '(')) return fail_here(cursor, "a tuple of sizes");
    for (header->rank = 0; !accept(cursor, ')'); header->rank++) {
        int64_t size = 0;
        if (!comma) return fail_here(cursor, "a comma");
        attn_status status = parse_size(cursor, &size);
        if (status) return status;
        if (header->rank == ATTN_MAX_RANK)
            return attn_io_fail(cursor->context, ATTN_ERR_UNSUPPORTED, "shape has more than %d sizes", ATTN_MAX_RANK);
        header->shape[header->rank] = size;
        comma = accept(cursor, ',');
    }
    return header->rank == 1 && !comma ? fail_here(cursor, "a comma in a tuple of one") : ATTN_OK;
}

attn_status attn_io_npy_parse_header(const attn_io_context *context, const char *text, size_t length, attn_io_npy_header *header)
{
    static const struct {
        const char *name;
        attn_status (*parse)(header_text *cursor, attn_io_npy_header *header);
    } keys[3] = {{"descr", parse_descr}, {"fortran_order", parse_order}, {"shape", parse_shape}};
    header_text cursor = {.context = context, .text = text, .length = length};
    char word[WORD], excerpt[ATTN_IO_EXCERPT];
    bool seen[3] = {false}, comma = true;
    *header = (attn_io_npy_header){0};
    if (!accept(&cursor, '{')) return fail_here(&cursor, "'{'");
    while (!accept(&cursor, '}')) {
        if (!comma) return fail_here(&cursor, "a comma");
        attn_status status = parse_string(&cursor, word);
        if (status) return status;
        int key = 0;
        while (key < 3 && strcmp(word, keys[key].name)) key++;
        if (key == 3)
            return attn_io_fail(context, ATTN_ERR_FORMAT, "header: key '%s' is not one of descr, fortran_order, shape",
                                attn_io_excerpt(excerpt, word));
        if (seen[key]) return attn_io_fail(context, ATTN_ERR_FORMAT, "header: key '%s' occurs twice", word);
        seen[key] = true;
        if (!accept(&cursor, ':')) return fail_here(&cursor, "a colon");
        if ((status = keys[key].parse(&cursor, header))) return status;
        comma = accept(&cursor, ',');
    }
    for (int key = 0; key < 3; key++)
        if (!seen[key]) return attn_io_fail(context, ATTN_ERR_FORMAT, "header: key '%s' is missing", keys[key].name);
    skip_blanks(&cursor);
    return cursor.at == length ? ATTN_OK : fail_here(&cursor, "nothing after '}'");
}

size_t attn_io_npy_print_preamble(char buffer[ATTN_IO_NPY_PREAMBLE], const attn_archive_tensor *tensor)
{
    enum { FIXED = 10, ALIGNMENT = 64 };
    size_t used = FIXED;
    used += (size_t)snprintf(buffer + used, ATTN_IO_NPY_PREAMBLE - used, "{'descr': '%s', 'fortran_order': False, 'shape': (",
                             attn_io_npy_name(tensor->dtype));
    for (int i = 0; i < tensor->rank; i++)
        used += (size_t)snprintf(buffer + used, ATTN_IO_NPY_PREAMBLE - used, "%s%" PRId64, i ? ", " : "", tensor->shape[i]);
    used += (size_t)snprintf(buffer + used, ATTN_IO_NPY_PREAMBLE - used, "%s), }", tensor->rank == 1 ? "," : "");
    size_t size = (used + 1 + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    memset(buffer + used, ' ', size - used);
    buffer[size - 1] = '\n';
    memcpy(buffer, "\x93NUMPY\x01\x00", 8);
    buffer[8] = (char)((size - FIXED) & 0xFF);
    buffer[9] = (char)((size - FIXED) >> 8);
    return size;
}
