/* SPDX-License-Identifier: MIT
 * tensor_file.c - see tensor_file.h. */
#include "tensor_file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "numbers.h"
#include "testing/problem/linear_tensors.h"
#include "testing/problem/tensors.h"
#include "testing/text/failure.h"
#include "testing/text/json.h"
#include "text_buffer.h"

int is_text_name(const char *path)
{
    static const char *const ends[] = {".csv", ".tsv", ".txt", ".json"};
    const size_t length = strlen(path);
    for (size_t k = 0; k < sizeof ends / sizeof *ends; k++) {
        const size_t size = strlen(ends[k]);
        if (length > size && strcasecmp(path + length - size, ends[k]) == 0) return 1;
    }
    return 0;
}

attn_dtype tensor_text_dtype(const char *name, attn_dtype real)
{
    const unsigned indices = 1u << ATTN_I32 | 1u << ATTN_I64, reals = 1u << ATTN_F32 | 1u << ATTN_F64;
    if (strcmp(name, "lengths") == 0 || strncmp(name, "positions", 9) == 0) return ATTN_I64;
    for (int t = 0; t < TENSORS; t++) {
        const unsigned types = (unsigned)tensors_about(t)->types;
        if (strcmp(name, tensors_file_name(t)) != 0 && strcmp(name, tensors_about(t)->name) != 0) continue;
        return !(types & ~indices) ? ATTN_I64 : (types & reals) ? real : ATTN_BOOL;
    }
    return real;
}

/* ---- an object of JSON ---- */

typedef struct document {
    attn_archive *archive;
    const char *text;
    size_t length;
    attn_dtype real;
} document;

static size_t skip_blanks(const document *d, size_t at) { return at + strspn(d->text + at, " \t\r\n"); }

/* The end of a value that begins at `at`: after its last bracket, quote or letter; 0 if it has none. */
static size_t value_end(const document *d, size_t at)
{
    int depth = 0, quoted = 0;
    for (; at < d->length; at++) {
        const char c = d->text[at];
        if (quoted) {
            if (c == '\\') at++;
            else if (c == '"') quoted = 0;
            if (!quoted && !depth) return at + 1;
            continue;
        }
        if (!depth && strchr(",}]", c)) return at;
        quoted = c == '"';
        depth += (c == '[' || c == '{') - (c == ']' || c == '}');
        if (!depth && (c == ']' || c == '}')) return at + 1;
    }
    return 0;
}

/* A text as metadata, or the JSON of any other value. */
static attn_status add_metadata(const document *d, const char *key, size_t from, size_t to, attn_error *error)
{
    cJSON *value = cJSON_ParseWithLength(d->text + from, to - from);
    if (!value) return numbers_fail(d->text, from, ATTN_ERR_FORMAT, error, "the value of '%.60s' is not JSON", key);
    char *text = cJSON_IsString(value) ? NULL : cJSON_PrintUnformatted(value);
    const attn_status status = attn_archive_set_metadata(d->archive, key, text ? text : value->valuestring, error);
    free(text);
    cJSON_Delete(value);
    return status;
}

static attn_status add_tensor(const document *d, const char *name, size_t from, size_t to, attn_error *error)
{
    number_text n;
    attn_status status = numbers_read(&n, d->text, from, to, error);
    if (status == ATTN_OK && n.in_rows) n.rank = 0; /* a number alone */
    if (status == ATTN_OK)
        status = numbers_add(d->archive, name, &n, n.booleans ? ATTN_BOOL : tensor_text_dtype(name, d->real), d->text, error);
    numbers_free(&n);
    return status;
}

static attn_status read_object(const document *d, size_t at, attn_error *error)
{
    attn_status status = ATTN_OK;
    at = skip_blanks(d, at + 1);
    while (status == ATTN_OK && d->text[at] != '}') {
        const size_t key_at = at, key_end = d->text[at] == '"' ? value_end(d, at) : 0;
        cJSON *key = key_end ? cJSON_ParseWithLength(d->text + at, key_end - at) : NULL;
        const size_t colon = key ? skip_blanks(d, key_end) : 0;
        const size_t from = key && d->text[colon] == ':' ? skip_blanks(d, colon + 1) : 0, to = from ? value_end(d, from) : 0;
        if (!to || to == from) {
            cJSON_Delete(key);
            return numbers_fail(d->text, key_at, ATTN_ERR_FORMAT, error,
                                "expected \"NAME\": VALUE, as in {\"q\": [[1, 0], [0, 1]]}");
        }
        const char *inner = d->text + from + strspn(d->text + from, "[ \t\r\n");
        status = *inner == '"' || *inner == '{' ? add_metadata(d, key->valuestring, from, to, error)
                                                : add_tensor(d, key->valuestring, from, to, error);
        cJSON_Delete(key);
        at = skip_blanks(d, to);
        if (status == ATTN_OK && d->text[at] == ',' && d->text[skip_blanks(d, at + 1)] != '}') at = skip_blanks(d, at + 1);
        else if (status == ATTN_OK && d->text[at] != '}')
            return numbers_fail(d->text, at, ATTN_ERR_FORMAT, error, "expected a comma and another member, or '}'");
    }
    if (status == ATTN_OK && skip_blanks(d, at + 1) < d->length)
        return numbers_fail(d->text, skip_blanks(d, at + 1), ATTN_ERR_FORMAT, error, "there is more after the end of the object");
    return status;
}

/* ---- text ---- */

attn_status tensor_text_read(attn_archive **archive, const char *subject, const char *text, tensor_text *how, attn_error *error)
{
    document d = {NULL, text, strlen(text), how->real};
    number_text n = {0};
    attn_status status = attn_archive_create(&d.archive, error);
    const size_t first = status == ATTN_OK ? skip_blanks(&d, 0) : 0;
    if (status == ATTN_OK && text[first] == '{') {
        status = read_object(&d, first, error);
    } else if (status == ATTN_OK) {
        status = numbers_read(&n, text, 0, d.length, error);
        how->in_rows = n.in_rows;
        if (status == ATTN_OK)
            status = numbers_add(d.archive, how->name, &n, n.booleans ? ATTN_BOOL : tensor_text_dtype(how->name, how->real), text,
                                 error);
    }
    numbers_free(&n);
    if (status != ATTN_OK) {
        attn_archive_destroy(d.archive);
        return failure_about(error, subject);
    }
    *archive = d.archive;
    return ATTN_OK;
}

/* ---- files ---- */

/* The whole of a stream, with a 0 after it. */
static attn_status read_stream(FILE *file, const char *subject, text_buffer *bytes, attn_error *error)
{
    char block[65536];
    size_t got;
    while ((got = fread(block, 1, sizeof block, file)) > 0) text_add(bytes, block, got);
    if (ferror(file)) return failure(error, ATTN_ERR_IO, "%.150s: %s", subject, strerror(errno));
    text_letter(bytes, 0);
    return text_status(bytes, subject, error);
}

/* The file's name without folder and extension. */
static char *stem_of(const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path, *dot = strrchr(name, '.');
    return need_text(name, dot && dot > name ? (size_t)(dot - name) : strlen(name));
}

static attn_status read_text(attn_archive **archive, const char *subject, const text_buffer *bytes, tensor_text *how,
                             attn_error *error)
{
    if (strlen(bytes->bytes) + 1 != bytes->count)
        return failure(error, ATTN_ERR_FORMAT, "%.150s: a byte of 0: this is neither text nor a file of tensors", subject);
    const size_t mark = strncmp(bytes->bytes, "\xEF\xBB\xBF", 3) == 0 ? 3 : 0; /* that some programs begin UTF-8 with */
    return tensor_text_read(archive, subject, bytes->bytes + mark, how, error);
}

/* Text of numbers, or an object, by its first bytes; no format of tensors begins so and has no byte of 0 among its first 8. */
static int is_text(const text_buffer *bytes)
{
    const size_t most = bytes->count - 1 < 8 ? bytes->count - 1 : 8;
    if (memchr(bytes->bytes, 0, most)) return 0;
    const char *first = bytes->bytes + strspn(bytes->bytes, " \t\r\n");
    return *first == '{' || *first == '#' || numbers_begin(first);
}

static attn_status open_stdin(attn_archive **archive, tensor_text *how, attn_error *error)
{
    static text_buffer bytes; /* which tensors point into, to the end */
    static int is_read;
    if (is_read++) return failure(error, ATTN_ERR_ARGUMENT, "-: standard input can be read once");
    const attn_status status = read_stream(stdin, "standard input", &bytes, error);
    if (status != ATTN_OK) return status;
    if (bytes.count == 1) return failure(error, ATTN_ERR_FORMAT, "standard input is empty");
    if (is_text(&bytes)) {
        if (!how->name) how->name = "stdin";
        return read_text(archive, "standard input", &bytes, how, error);
    }
    return attn_archive_read_memory(archive, "stdin", bytes.bytes, bytes.count - 1, error);
}

attn_status tensor_file_open(attn_archive **archive, const char *path, tensor_text *how, attn_error *error)
{
    text_buffer bytes = {0};
    tensor_text usual = {NULL, ATTN_F32, 0};
    if (!how) how = &usual;
    how->in_rows = 0;
    if (strcmp(path, "-") == 0) return open_stdin(archive, how, error);
    if (!is_text_name(path)) return attn_archive_read(archive, path, error);
    FILE *file = fopen(path, "rb");
    if (!file) return failure(error, ATTN_ERR_IO, "%.150s: %s", path, strerror(errno));
    attn_status status = read_stream(file, path, &bytes, error);
    char *stem = stem_of(path);
    tensor_text named = *how;
    if (!named.name) named.name = stem;
    if (status == ATTN_OK) status = read_text(archive, path, &bytes, &named, error);
    how->in_rows = named.in_rows;
    free(stem);
    text_free(&bytes);
    fclose(file);
    return status;
}
