/* SPDX-License-Identifier: MIT
 *
 * metadata_list.c - a metadata value that is a JSON list, as its items.  Read twice: once to count, once to copy.
 */
#include <stdlib.h>
#include <string.h>

#include "container.h"
#include "text.h"

/* Items are written to `to`, and pointers to them to `items`, unless both are NULL. */
typedef struct list_reader {
    const char *at;
    const char **items;
    char *to;
    int64_t count;
    size_t bytes; /* of the items with their NULs */
} list_reader;

static void put(list_reader *r, char c)
{
    if (r->to) r->to[r->bytes] = c;
    r->bytes++;
}

static void begin_item(list_reader *r)
{
    if (r->items) r->items[r->count] = r->to + r->bytes;
    r->count++;
}

static void skip_space(list_reader *r) { r->at += strspn(r->at, " \t\r\n"); }

/* The 4 hexadecimal digits of \uXXXX; -1 if they are not there. */
static long hexadecimal(const char *digits)
{
    long value = 0;
    for (int i = 0; i < 4; i++) {
        static const char all[] = "0123456789abcdef0123456789ABCDEF";
        const char *digit = digits[i] ? strchr(all, digits[i]) : NULL;
        if (!digit) return -1;
        value = value * 16 + (digit - all) % 16;
    }
    return value;
}

static void put_utf8(list_reader *r, long code)
{
    const int more = code < 0x80 ? 0 : code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    static const int first[] = {0, 0xC0, 0xE0, 0xF0};
    put(r, (char)(first[more] | (int)(code >> (6 * more))));
    for (int i = more - 1; i >= 0; i--) put(r, (char)(0x80 | (int)(code >> (6 * i) & 63)));
}

/* After the backslash.  NUL and halves of surrogate pairs are no text. */
static bool read_escape(list_reader *r)
{
    static const char letters[] = "\"\\/bfnrt", characters[] = "\"\\/\b\f\n\r\t";
    const char *letter = *r->at ? strchr(letters, *r->at) : NULL;
    if (letter) {
        put(r, characters[letter - letters]);
        r->at++;
        return true;
    }
    if (*r->at != 'u') return false;
    long code = hexadecimal(r->at + 1);
    r->at += 5 * (code > 0);
    if (code >= 0xD800 && code < 0xDC00 && r->at[0] == '\\' && r->at[1] == 'u') {
        const long low = hexadecimal(r->at + 2);
        if (low < 0xDC00 || low > 0xDFFF) return false;
        code = 0x10000 + (code - 0xD800) * 0x400 + (low - 0xDC00);
        r->at += 6;
    }
    if (code <= 0 || (code >= 0xD800 && code < 0xE000)) return false;
    put_utf8(r, code);
    return true;
}

static bool read_text(list_reader *r)
{
    for (r->at++; *r->at != '"';) {
        if ((unsigned char)*r->at < 0x20) return false; /* the end, too */
        if (*r->at != '\\') put(r, *r->at++);
        else if (r->at++, !read_escape(r)) return false;
    }
    r->at++;
    return true;
}

/* Bytes of the number at `text` by the grammar of JSON (RFC 8259, section 6); 0 if there is none. */
static size_t length_of_number(const char *text)
{
    static const char digits[] = "0123456789";
    const char *at = text + (*text == '-');
    const size_t whole = strspn(at, digits);
    if (whole == 0 || (*at == '0' && whole > 1)) return 0;
    at += whole;
    if (*at == '.') {
        const size_t fraction = strspn(at + 1, digits);
        if (fraction == 0) return 0;
        at += 1 + fraction;
    }
    if (*at == 'e' || *at == 'E') {
        at += 1 + (at[1] == '+' || at[1] == '-');
        const size_t exponent = strspn(at, digits);
        if (exponent == 0) return 0;
        at += exponent;
    }
    return (size_t)(at - text);
}

/* A number, true, false or null, as it is written. */
static bool read_word(list_reader *r)
{
    static const char *const words[] = {"true", "false", "null"};
    const size_t length = strcspn(r->at, " \t\r\n,]");
    bool known = length > 0 && length_of_number(r->at) == length;
    for (int i = 0; i < 3; i++) known |= strlen(words[i]) == length && !memcmp(words[i], r->at, length);
    for (size_t i = 0; known && i < length; i++) put(r, r->at[i]);
    r->at += known ? length : 0;
    return known;
}

/* A list or an object, as it is written: to the bracket that closes its first. */
static bool read_nested(list_reader *r)
{
    int level = 0;
    bool text = false;
    do {
        const char c = *r->at;
        if (!c) return false;
        if (text && c == '\\' && r->at[1]) put(r, *r->at++);
        else if (c == '"') text = !text;
        else if (!text) level += (c == '[' || c == '{') - (c == ']' || c == '}');
        put(r, *r->at++);
    } while (level > 0);
    return true;
}

/* False with r->at at what is wrong. */
static bool read_list(list_reader *r)
{
    skip_space(r);
    if (*r->at != '[') return false;
    r->at++;
    skip_space(r);
    for (bool first = true; *r->at != ']'; first = false) {
        if (!first && *r->at++ != ',') return r->at--, false;
        skip_space(r);
        begin_item(r);
        const bool read = *r->at == '"' ? read_text(r) : *r->at == '[' || *r->at == '{' ? read_nested(r) : read_word(r);
        if (!read) return false;
        put(r, '\0');
        skip_space(r);
    }
    r->at++;
    skip_space(r);
    return !*r->at;
}

attn_status attn_metadata_list_create(attn_metadata_list **list, const attn_archive *archive, const char *key, attn_error *error)
{
    attn_io_context context = {.error = error};
    if (!list) return attn_io_fail(&context, ATTN_ERR_ARGUMENT, "list is NULL");
    *list = NULL;
    if (!archive) return attn_io_fail(&context, ATTN_ERR_ARGUMENT, "archive is NULL");
    if (!key) return attn_io_fail(&context, ATTN_ERR_ARGUMENT, "key is NULL");
    char excerpt[ATTN_IO_EXCERPT];
    const char *value = attn_archive_get_metadata(archive, key);
    if (!value) return attn_io_fail(&context, ATTN_ERR_ARGUMENT, "no metadata has the key '%s'", attn_io_excerpt(excerpt, key));
    context.noun = "metadata";
    context.name = key;
    list_reader reader = {.at = value};
    if (!read_list(&reader))
        return attn_io_fail(&context, ATTN_ERR_FORMAT, "not a JSON list, from byte %zu on", (size_t)(reader.at - value));
    const size_t pointers = (size_t)reader.count * sizeof(char *);
    attn_metadata_list *made = malloc(sizeof *made + pointers + reader.bytes);
    if (!made) return attn_io_fail_memory(&context);
    const char **items = (const char **)(made + 1);
    reader = (list_reader){.at = value, .items = items, .to = (char *)(items + reader.count)};
    (void)read_list(&reader);
    *made = (attn_metadata_list){.count = reader.count, .items = items};
    *list = made;
    return attn_io_succeed(&context);
}

void attn_metadata_list_destroy(attn_metadata_list *list) { free(list); }
