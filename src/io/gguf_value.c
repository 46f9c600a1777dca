/* SPDX-License-Identifier: MIT
 *
 * gguf_value.c - metadata of .gguf files as text.  A text takes at most 6 times the bytes of its value (a byte becomes \u001f, or
 * "false,", or "-128,"; 4 bytes of f32 become at most 16), so a small file cannot ask for much memory.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gguf.h"
#include "text.h"

enum { LEVELS = 4, NUMBER_TEXT = 40 }; /* of lists in lists; of a number */

enum {
    GGUF_U8,
    GGUF_I8,
    GGUF_U16,
    GGUF_I16,
    GGUF_U32,
    GGUF_I32,
    GGUF_F32,
    GGUF_BOOL,
    GGUF_TEXT,
    GGUF_LIST,
    GGUF_U64,
    GGUF_I64,
    GGUF_F64
};

/* Bytes of a number; 0 for texts and lists. */
static const unsigned char widths[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
enum { TYPES = sizeof widths / sizeof widths[0] };

attn_status attn_io_take(const attn_io_context *context, attn_io_cursor *cursor, const char *what, void *number, size_t size)
{
    if (size > cursor->size - cursor->at)
        return attn_io_fail(context, ATTN_ERR_FORMAT, "the file ends inside %s, at byte %zu", what, cursor->size);
    memcpy(number, cursor->bytes + cursor->at, size);
    cursor->at += size;
    return ATTN_OK;
}

attn_status attn_io_take_text(const attn_io_context *context, attn_io_cursor *cursor, const char *what, char **text)
{
    uint64_t length = 0;
    *text = NULL;
    attn_status status = attn_io_take(context, cursor, what, &length, sizeof length);
    if (status) return status;
    if (length > cursor->size - cursor->at)
        return attn_io_fail(context, ATTN_ERR_FORMAT, "%s of %" PRIu64 " bytes, the file has %zu after its length", what, length,
                            cursor->size - cursor->at);
    const char *begin = (const char *)cursor->bytes + cursor->at;
    const size_t size = (size_t)length;
    if (size && memchr(begin, 0, size)) return attn_io_fail(context, ATTN_ERR_FORMAT, "NUL in %s", what);
    if (!attn_io_utf8(begin, size)) return attn_io_fail(context, ATTN_ERR_FORMAT, "%s is not UTF-8", what);
    if (!(*text = malloc(size + 1))) return attn_io_fail_memory(context);
    if (size) memcpy(*text, begin, size);
    (*text)[size] = '\0';
    cursor->at += size;
    return ATTN_OK;
}

/* ---- text that grows ---- */

typedef struct growing {
    char *text; /* NULL at first, and after a failure */
    size_t length, capacity;
} growing;

static attn_status put(const attn_io_context *context, growing *to, const char *text, size_t length)
{
    if (!to->text || length >= to->capacity - to->length) {
        const size_t capacity = to->capacity + to->capacity / 2 + length + 64;
        char *grown = realloc(to->text, capacity);
        if (!grown) {
            free(to->text);
            *to = (growing){0};
            return attn_io_fail_memory(context);
        }
        to->text = grown;
        to->capacity = capacity;
    }
    memcpy(to->text + to->length, text, length);
    to->length += length;
    to->text[to->length] = '\0';
    return ATTN_OK;
}

/* A JSON string. */
static attn_status put_quoted(const attn_io_context *context, growing *to, const char *text)
{
    attn_status status = put(context, to, "\"", 1);
    while (*text && !status) {
        const size_t plain =
            strcspn(text, "\"\\\1\2\3\4\5\6\7\10\11\12\13\14\15\16\17\20\21\22\23\24\25\26\27\30\31\32\33\34\35\36\37");
        char escaped[8];
        status = put(context, to, text, plain);
        text += plain;
        if (status || !*text) continue;
        const int control = (unsigned char)*text < 0x20;
        const int length = snprintf(escaped, sizeof escaped, control ? "\\u%04x" : "\\%c", *text);
        status = put(context, to, escaped, (size_t)length);
        text++;
    }
    return status ? status : put(context, to, "\"", 1);
}

/* ---- numbers ---- */

/* The shortest decimal that strtod (or strtof) reads back as x, with a point in every locale. */
static void print_real(char text[NUMBER_TEXT], double x, int is_float)
{
    for (int digits = is_float ? 6 : 15; digits <= 17; digits++) {
        snprintf(text, NUMBER_TEXT, "%.*g", digits, x);
        if (is_float ? strtof(text, NULL) == (float)x : strtod(text, NULL) == x) break;
    }
    if (!isfinite(x)) return;
    size_t used = 0;
    for (size_t i = 0; text[i]; i++) {
        const int kept = strchr("0123456789-+e", text[i]) != NULL;
        if (kept) text[used++] = text[i];
        else if (used && text[used - 1] != '.') text[used++] = '.'; /* a locale's point may have several bytes */
    }
    text[used] = '\0';
}

static int64_t signed_of(const unsigned char *bytes, size_t width)
{
    uint64_t value = bytes[width - 1] & 0x80 ? UINT64_MAX : 0;
    memcpy(&value, bytes, width);
    return (int64_t)value;
}

/* Takes a number; false if a bool is neither 0 nor 1. */
static bool print_number(char text[NUMBER_TEXT], uint32_t type, const unsigned char *bytes)
{
    uint64_t whole = 0;
    float single;
    double real;
    memcpy(&whole, bytes, widths[type]);
    switch (type) {
    case GGUF_F32:
        memcpy(&single, bytes, sizeof single);
        print_real(text, (double)single, 1);
        return true;
    case GGUF_F64:
        memcpy(&real, bytes, sizeof real);
        print_real(text, real, 0);
        return true;
    case GGUF_BOOL:
        snprintf(text, NUMBER_TEXT, "%s", whole ? "true" : "false");
        return whole < 2;
    case GGUF_I8:
    case GGUF_I16:
    case GGUF_I32:
    case GGUF_I64:
        snprintf(text, NUMBER_TEXT, "%" PRId64, signed_of(bytes, widths[type]));
        return true;
    default:
        snprintf(text, NUMBER_TEXT, "%" PRIu64, whole);
        return true;
    }
}

/* ---- values ---- */

/* in_list: a text is quoted, and so is a number that JSON lacks. */
static attn_status put_number(const attn_io_context *context, attn_io_cursor *cursor, uint32_t type, int in_list, growing *to)
{
    unsigned char bytes[8];
    char text[NUMBER_TEXT];
    attn_status status = attn_io_take(context, cursor, "metadata", bytes, widths[type]);
    if (status) return status;
    if (!print_number(text, type, bytes)) return attn_io_fail(context, ATTN_ERR_FORMAT, "a bool is %d", bytes[0]);
    const int quoted = in_list && (strstr(text, "nan") || strstr(text, "inf"));
    return quoted ? put_quoted(context, to, text) : put(context, to, text, strlen(text));
}

static attn_status put_value(const attn_io_context *context, attn_io_cursor *cursor, uint32_t type, int level, growing *to);

static attn_status put_list(const attn_io_context *context, attn_io_cursor *cursor, int level, growing *to)
{
    uint32_t type = 0;
    uint64_t count = 0;
    attn_status status = attn_io_take(context, cursor, "metadata", &type, sizeof type);
    if (!status) status = attn_io_take(context, cursor, "metadata", &count, sizeof count);
    if (status) return status;
    if (type >= TYPES) return attn_io_fail(context, ATTN_ERR_FORMAT, "items of type %" PRIu32 ", which is not 0 to 12", type);
    if (level == LEVELS) return attn_io_fail(context, ATTN_ERR_UNSUPPORTED, "lists in more than %d lists", LEVELS);
    /* A text has at least its length, and a list its type and length. */
    const size_t least = widths[type] ? widths[type] : type == GGUF_TEXT ? 8 : 12;
    if (count > (cursor->size - cursor->at) / least)
        return attn_io_fail(context, ATTN_ERR_FORMAT, "a list of %" PRIu64 " items, the file has %zu bytes after its length", count,
                            cursor->size - cursor->at);
    status = put(context, to, "[", 1);
    for (uint64_t i = 0; i < count && !status; i++) {
        if (i) status = put(context, to, ",", 1);
        if (!status) status = put_value(context, cursor, type, level + 1, to);
    }
    return status ? status : put(context, to, "]", 1);
}

static attn_status put_value(const attn_io_context *context, attn_io_cursor *cursor, uint32_t type, int level, growing *to)
{
    if (type >= TYPES) return attn_io_fail(context, ATTN_ERR_FORMAT, "a value of type %" PRIu32 ", which is not 0 to 12", type);
    if (type == GGUF_LIST) return put_list(context, cursor, level, to);
    if (type != GGUF_TEXT) return put_number(context, cursor, type, level > 0, to);
    char *text;
    attn_status status = attn_io_take_text(context, cursor, "a text", &text);
    if (status) return status;
    status = level ? put_quoted(context, to, text) : put(context, to, text, strlen(text));
    free(text);
    return status;
}

attn_status attn_io_gguf_read_value(const attn_io_context *context, attn_io_cursor *cursor, const char *key, attn_archive *tensors,
                                    uint64_t *alignment)
{
    attn_io_context at = *context;
    growing value = {0};
    uint32_t type = 0;
    at.noun = "metadata";
    at.name = key;
    attn_status status = attn_io_take(&at, cursor, "metadata", &type, sizeof type);
    if (!status) status = put_value(&at, cursor, type, 0, &value);
    if (!status && !strcmp(key, "general.alignment")) {
        char excerpt[ATTN_IO_EXCERPT];
        if (type == GGUF_U32) *alignment = strtoull(value.text, NULL, 10);
        /* Sizes of every type divide 8, so that all data is aligned. */
        if (type != GGUF_U32 || *alignment < 8 || (*alignment & (*alignment - 1)))
            status = attn_io_fail(&at, ATTN_ERR_FORMAT, "is %s, not a power of 2 from 8 on in a u32",
                                  attn_io_excerpt(excerpt, value.text));
    }
    if (!status) status = attn_io_append_metadata(context, tensors, key, value.text);
    free(value.text);
    return status;
}
