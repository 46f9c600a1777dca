/* SPDX-License-Identifier: MIT
 *
 * source.c - see source.h. */
#include "source.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/base/numbers.h"
#include "cli/base/tensor_file.h"
#include "cli/base/text_buffer.h"
#include "testing/problem/tensors.h"
#include "testing/text/failure.h"

enum { MAX_TEXT = 1 << 28 };

static int is_text(int c) { return c == '{' || c == 'p' || c == ' ' || c == '\n' || c == '\t'; }

/* Opens the file and reads its first byte; *regular is 1 if it can be opened again. */
static attn_status peek(const char *path, FILE **file, int *first, int *regular, attn_error *error)
{
    struct stat about;
    *file = fopen(path, "rb");
    if (!*file || fstat(fileno(*file), &about) != 0)
        return failure(error, ATTN_ERR_IO, "%.150s: cannot open: %s", path, strerror(errno));
    *regular = S_ISREG(about.st_mode);
    if (!*regular && !S_ISFIFO(about.st_mode))
        return failure(error, ATTN_ERR_IO, "%.150s: %s", path,
                       S_ISDIR(about.st_mode) ? "is a directory" : "is neither a file nor a pipe");
    *first = getc(*file);
    if (*first == EOF)
        return failure(error, ferror(*file) ? ATTN_ERR_IO : ATTN_ERR_FORMAT, "%.150s: %s", path,
                       ferror(*file) ? "cannot be read" : "is empty");
    (void)ungetc(*first, *file);
    return ATTN_OK;
}

static attn_status read_all(source *s, FILE *file, size_t *bytes, attn_error *error)
{
    char part[1 << 14];
    text_buffer whole = {0};
    size_t count;
    while ((count = fread(part, 1, sizeof part, file)) > 0 && whole.count < MAX_TEXT) text_add(&whole, part, count);
    *bytes = whole.count;
    text_letter(&whole, 0); /* .csv is parsed as NUL-terminated text */
    s->bytes = whole.bytes;
    if (text_status(&whole, "a file of text", error) != ATTN_OK) return failure_about(error, s->path);
    if (ferror(file)) return failure(error, ATTN_ERR_IO, "%.150s: cannot be read", s->path);
    if (!feof(file)) return failure(error, ATTN_ERR_FORMAT, "%.150s: is larger than %d bytes", s->path, MAX_TEXT);
    return ATTN_OK;
}

/* ---- .csv ---- */

/* The next field, unquoted; *at is moved past it, *last is 1 if it is the last of its line. */
static char *next_field(char **at, int *last)
{
    char *from = *at, *to = from, *field = from;
    if (*from == '"') {
        for (from++; *from && (*from != '"' || from[1] == '"'); *to++ = *from++)
            if (*from == '"') from++;
        if (*from == '"') from++;
    } else {
        while (*from && *from != ',' && *from != '\n' && *from != '\r') *to++ = *from++;
    }
    if (*from == '\r') from++;
    *last = *from != ',';
    *at = *from ? from + 1 : from;
    *to = 0;
    return field;
}

static attn_status read_csv(source *s, attn_error *error)
{
    enum { MAX_COLUMNS = 160 };
    char *columns[MAX_COLUMNS], *at = s->bytes;
    int count = 0, last = 0;
    while (!last && count < MAX_COLUMNS) columns[count++] = next_field(&at, &last);
    s->json = cJSON_CreateObject();
    cJSON *rows = cJSON_AddArrayToObject(s->json, "results");
    for (int64_t line = 2; *at; line++) {
        cJSON *row = cJSON_CreateObject();
        int column = 0;
        cJSON_AddItemToArray(rows, row);
        for (last = 0; !last; column++) {
            char *field = next_field(&at, &last), *end;
            if (column >= count) break;
            const double number = strtod(field, &end);
            if (*field && !*end) cJSON_AddNumberToObject(row, columns[column], number);
            else cJSON_AddStringToObject(row, columns[column], field);
        }
        if (column != count || !last)
            return failure(error, ATTN_ERR_FORMAT, "%.150s: line %" PRId64 " does not have as many fields as the first (%d)",
                           s->path, line, count);
    }
    return ATTN_OK;
}

/* 1 for an object of tensors, {"weights": [[1, 0], [0, 1]]}, and 0 for what a command printed. */
static int has_tensors(const cJSON *object)
{
    for (int t = 0; t < TENSORS; t++)
        if (cJSON_IsArray(cJSON_GetObjectItemCaseSensitive(object, tensors_file_name(t)))) return 1;
    return 0;
}

attn_status source_open(source *s, const char *path, attn_error *error)
{
    FILE *file;
    int first = 0, regular = 0;
    size_t bytes = 0;
    *s = (source){.path = path};
    const char *opened = strcmp(path, "-") == 0 ? "/dev/stdin" : path;
    tensor_text how = {"weights", ATTN_F32, 0};
    attn_status status = peek(opened, &file, &first, &regular, error);
    const int to_read = !regular || opened != path || is_text_name(path);
    if (status == ATTN_OK && (is_text(first) || to_read)) status = read_all(s, file, &bytes, error);
    if (file) fclose(file);
    if (status != ATTN_OK) return status;
    if (s->bytes && bytes > 7 && strncmp(s->bytes, "problem", 7) == 0) return read_csv(s, error);
    if (s->bytes && !memchr(s->bytes, 0, bytes < 8 ? bytes : 8) && (numbers_begin(s->bytes) || *s->bytes == '#'))
        return tensor_text_read(&s->tensors, path, s->bytes, &how, error);
    /* The first byte of a .safetensors file is that of a length below 2^32, which may look like a letter. */
    if (s->bytes && is_text(first) && !(bytes >= 8 && memchr(s->bytes, 0, 8))) {
        s->json = cJSON_ParseWithLength(s->bytes, bytes);
        if (has_tensors(s->json)) {
            cJSON_Delete(s->json);
            s->json = NULL;
            return tensor_text_read(&s->tensors, path, s->bytes, &how, error);
        }
        if (cJSON_IsObject(s->json)) return ATTN_OK;
        if (first == '{') return failure(error, ATTN_ERR_FORMAT, "%.150s: is not complete JSON", path);
        cJSON_Delete(s->json);
        s->json = NULL;
    }
    return s->bytes ? attn_archive_read_memory(&s->tensors, path, s->bytes, bytes, error)
                    : attn_archive_read(&s->tensors, opened, error);
}

void source_close(source *s)
{
    attn_archive_destroy(s->tensors);
    cJSON_Delete(s->json);
    free(s->bytes);
}

/* ---- tensors ---- */

attn_status source_find(const source *s, const char *name, const char *command, const attn_archive_tensor **tensor,
                        attn_error *error)
{
    char found_names[200] = "";
    if (!s->tensors) return failure(error, ATTN_ERR_FORMAT, "%.100s: holds no tensors; %s writes '%.40s'", s->path, command, name);
    *tensor = attn_archive_find(s->tensors, name);
    if (*tensor) return ATTN_OK;
    for (int64_t k = 0; k < attn_archive_count(s->tensors) && strlen(found_names) < 100; k++)
        snprintf(found_names + strlen(found_names), sizeof found_names - strlen(found_names), "%s%.40s", k ? ", " : "",
                 attn_archive_at(s->tensors, k)->name);
    return failure(error, ATTN_ERR_ARGUMENT, "%.100s: no tensor '%.40s' (available: %s); %s writes it", s->path, name, found_names,
                   command);
}

attn_status source_numbers(const source *s, const attn_archive_tensor *tensor, int64_t first, int64_t count, int masked,
                           double *numbers, attn_error *error)
{
    const attn_dtype type = tensor->dtype;
    const size_t size = attn_dtype_size(type);
    const char *data = (const char *)tensor->data + (size_t)first * size;
    if (type != ATTN_F32 && type != ATTN_F64 && type != ATTN_F16 && type != ATTN_BF16 && type != ATTN_BOOL && type != ATTN_U8 &&
        type != ATTN_I32 && type != ATTN_I64)
        return failure(error, ATTN_ERR_UNSUPPORTED, "%.100s: tensor '%.40s' is %s, which cannot be drawn", s->path, tensor->name,
                       attn_dtype_name(type));
    for (int64_t n = 0; n < count; n++, data += size) {
        if (tensor->dtype == ATTN_BOOL || tensor->dtype == ATTN_U8) numbers[n] = *(const unsigned char *)data;
        else if (tensor->dtype == ATTN_I32) numbers[n] = *(const int32_t *)data;
        else if (tensor->dtype == ATTN_I64) numbers[n] = (double)*(const int64_t *)data;
        else (void)attn_convert(1, data, tensor->dtype, &numbers[n], ATTN_F64, NULL);
        if (isnan(numbers[n]) || (isinf(numbers[n]) && !(masked && numbers[n] < 0)))
            return failure(error, ATTN_ERR_ARGUMENT, "%.100s: tensor '%.40s': number %" PRId64 " is %g", s->path, tensor->name,
                           first + n, numbers[n]);
    }
    return ATTN_OK;
}

attn_status source_number(const source *s, const cJSON *object, const char *name, const char *where, double *number,
                          attn_error *error)
{
    char flat[64], *dot;
    snprintf(flat, sizeof flat, "%s", name);
    const cJSON *item = object;
    for (const char *at = name; item && *at;) {
        const size_t length = strcspn(at, ".");
        char part[64];
        snprintf(part, sizeof part, "%.*s", (int)length, at);
        item = cJSON_GetObjectItemCaseSensitive(item, part);
        at += length + (at[length] == '.');
    }
    while ((dot = strchr(flat, '.'))) *dot = '_';
    if (!item) item = cJSON_GetObjectItemCaseSensitive(object, flat);
    if (!item) return failure(error, ATTN_ERR_FORMAT, "%.100s: %.100s has no '%s'", s->path, where, name);
    if (!cJSON_IsNumber(item) || !isfinite(item->valuedouble))
        return failure(error, ATTN_ERR_FORMAT, "%.100s: %.100s: '%s' is not a number", s->path, where, name);
    *number = item->valuedouble;
    return ATTN_OK;
}

/* ---- matrices ---- */

attn_status stack_open(stack *s, const source *from, const char *name, const char *command, int last, attn_error *error)
{
    *s = (stack){.source = from};
    attn_status status = source_find(from, name, command, &s->tensor, error);
    if (status != ATTN_OK) return status;
    const attn_archive_tensor *t = s->tensor;
    if (t->rank < last)
        return failure(error, ATTN_ERR_SHAPE, "%.100s: tensor '%.40s' has %d axes; at least %d are needed", from->path, name,
                       t->rank, last);
    for (int axis = 0; axis < t->rank; axis++)
        if (t->shape[axis] == 0)
            return failure(error, ATTN_ERR_SHAPE, "%.100s: tensor '%.40s' has an axis of size 0: nothing to draw", from->path,
                           name);
    const int leading = t->rank - last - 1 > 0 ? t->rank - last - 1 : 0;
    s->heads = t->rank > last ? t->shape[leading] : 1;
    s->rows = t->shape[t->rank - last];
    s->columns = last > 1 ? t->shape[t->rank - 1] : 1;
    s->axes = (attn_archive_tensor){.name = t->name, .rank = leading + 3};
    s->input = (attention_input){.path = from->path, .file = from->tensors, .leading = leading};
    s->input.used[TENSOR(q)].tensor = &s->axes;
    for (int axis = 0; axis < leading; axis++) s->input.lead[axis] = t->shape[axis];
    const int64_t keys = last > 1 ? s->columns : s->rows;
    s->input.problem.shape = s->input.spec.shape = (attn_shape){1, s->heads, s->heads, s->rows, keys, 1, 1};
    input_recall_alignment(&s->input);
    return labels_read(&s->labels, &s->input, NULL, error);
}

void stack_close(stack *s) { labels_free(&s->labels); }

attn_status stack_read(const stack *s, int64_t layer, int64_t entry, int64_t head, int masked, double **numbers, attn_error *error)
{
    const int64_t size = s->rows * s->columns, number = labels_batch(&s->labels, layer, entry) * s->heads + head;
    *numbers = need_memory(size, sizeof **numbers);
    return source_numbers(s->source, s->tensor, number * size, size, masked, *numbers, error);
}

const char **stack_row_names(const stack *s, int64_t entry)
{
    const char **names = need_memory(s->rows, sizeof *names);
    int any = 0;
    for (int64_t i = 0; i < s->rows; i++) {
        names[i] = labels_query(&s->labels, &s->input, entry, i);
        any |= names[i] != NULL;
        if (!names[i]) names[i] = "";
    }
    if (any) return names;
    free(names);
    return NULL;
}

const char **stack_column_names(const stack *s, int64_t entry)
{
    const char **names = need_memory(s->columns, sizeof *names);
    int any = 0;
    for (int64_t j = 0; j < s->columns; j++) {
        names[j] = labels_key(&s->labels, &s->input, entry, j);
        any |= names[j] != NULL;
        if (!names[j]) names[j] = "";
    }
    if (any) return names;
    free(names);
    return NULL;
}
