/* SPDX-License-Identifier: MIT
 *
 * json.c - a lint over the text, then cJSON.  cJSON by itself takes control characters for blanks, cuts strings at \u0000, reads
 * numbers as doubles, does not check UTF-8, and recurses a thousand deep.  (Duplicate keys are found where the keys are read.)
 */
#include "json.h"

#include <pthread.h>
#include <string.h>

#include "text.h"

typedef struct json_text {
    const attn_io_context *context;
    const char *what;
    const char *text;
    size_t length;
} json_text;

static attn_status fail_at(const json_text *json, size_t at, const char *reason)
{
    return attn_io_fail(json->context, ATTN_ERR_FORMAT, "%s: byte %zu: %s", json->what, at, reason);
}

/* Moves *at from the opening quote past the closing one. */
static attn_status lint_string(const json_text *json, size_t *at)
{
    for (size_t i = *at + 1; i < json->length; i++) {
        unsigned char c = (unsigned char)json->text[i];
        if (c == '"') {
            *at = i + 1;
            return ATTN_OK;
        }
        if (c < 0x20) return fail_at(json, i, "control character in a string");
        if (c != '\\') continue;
        if (json->length - i >= 6 && !memcmp(json->text + i, "\\u0000", 6)) return fail_at(json, i, "NUL in a string");
        i++;
    }
    return fail_at(json, *at, "unterminated string");
}

/* Moves *at from the first character of a number past the last one. */
static attn_status lint_number(const json_text *json, size_t *at)
{
    size_t begin = *at, i = begin;
    while (i < json->length && json->text[i] && strchr("0123456789+-.eE", json->text[i])) i++;
    size_t digits = begin + (json->text[begin] == '-');
    bool integer = i > digits && (json->text[digits] != '0' || i == digits + 1);
    for (size_t k = digits; k < i; k++) integer = integer && json->text[k] >= '0' && json->text[k] <= '9';
    *at = i;
    return integer ? ATTN_OK : fail_at(json, begin, "number that is not an integer");
}

static attn_status lint_text(const json_text *json, int depth)
{
    int level = 0;
    for (size_t i = 0; i < json->length;) {
        char c = json->text[i];
        attn_status status = ATTN_OK;
        if (c == '"') status = lint_string(json, &i);
        else if (c == '-' || (c >= '0' && c <= '9')) status = lint_number(json, &i);
        else if (c == '{' || c == '[') {
            if (++level > depth) return fail_at(json, i, "nested too deeply");
            i++;
        } else if (c && strchr("}]:,\t\n\r ", c)) {
            level -= c == '}' || c == ']';
            i++;
        } else if (c >= 'a' && c <= 'z') i++; /* true, false, null: cJSON knows them */
        else return fail_at(json, i, "character that is not JSON");
        if (status) return status;
    }
    return ATTN_OK;
}

/* cJSON keeps the position of the last error in a global that every parse writes, so parses are serialised. */
static cJSON *locked_parse(const char *text, size_t length, const char **end)
{
    static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&turn);
    cJSON *object = cJSON_ParseWithLengthOpts(text, length, end, 0);
    pthread_mutex_unlock(&turn);
    return object;
}

attn_status attn_io_json_parse(const attn_io_context *context, const char *what, const char *text, size_t length, int depth,
                               cJSON **object)
{
    json_text json = {.context = context, .what = what, .text = text, .length = length};
    *object = NULL;
    if (!length || text[0] != '{') return fail_at(&json, 0, "JSON object expected");
    if (!attn_io_utf8(text, length)) return attn_io_fail(context, ATTN_ERR_FORMAT, "%s: not UTF-8", what);
    attn_status status = lint_text(&json, depth);
    if (status) return status;
    const char *end = text;
    *object = locked_parse(text, length, &end);
    if (!*object) return fail_at(&json, (size_t)(end - text), "not valid JSON");
    for (; end < text + length; end++) {
        if (*end == ' ') continue;
        cJSON_Delete(*object);
        *object = NULL;
        return fail_at(&json, (size_t)(end - text), "trailing text after the object");
    }
    return ATTN_OK;
}

bool attn_io_json_integer(const cJSON *node, int64_t *value)
{
    if (!cJSON_IsNumber(node) || !(node->valuedouble >= 0 && node->valuedouble < 0x1p53)) return false;
    *value = (int64_t)node->valuedouble;
    return true;
}

cJSON *attn_io_json_from_metadata(const attn_archive *tensors)
{
    cJSON *object = cJSON_CreateObject();
    for (int64_t i = 0; object && i < attn_archive_metadata_count(tensors); i++) {
        const attn_metadata *metadata = attn_archive_metadata_at(tensors, i);
        if (cJSON_AddStringToObject(object, metadata->key, metadata->value)) continue;
        cJSON_Delete(object);
        return NULL;
    }
    return object;
}

attn_status attn_io_json_read_metadata(const attn_io_context *context, const cJSON *object, attn_archive *tensors)
{
    char excerpt[ATTN_IO_EXCERPT];
    if (!cJSON_IsObject(object)) return attn_io_fail(context, ATTN_ERR_FORMAT, "%s is not an object of strings", ATTN_IO_METADATA);
    for (const cJSON *node = object->child; node; node = node->next) {
        if (!cJSON_IsString(node))
            return attn_io_fail(context, ATTN_ERR_FORMAT, "metadata '%s' is not a string", attn_io_excerpt(excerpt, node->string));
        attn_status status = attn_io_append_metadata(context, tensors, node->string, node->valuestring);
        if (status) return status;
    }
    return ATTN_OK;
}
