/* SPDX-License-Identifier: MIT
 * report_csv.c - the JSON object as rows: one per problem, with the machine in each, so that files of several runs can be combined.
 * A column is named by the path to its value: seconds.p10 is seconds_p10; a list has its values in one cell, with blanks between.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/base/file.h"
#include "report.h"
#include "testing/text/json.h"

/* Text in quotes, quotes doubled. */
static void put_text(text_buffer *file, const char *text)
{
    text_letter(file, '"');
    for (; *text; text++) {
        if (*text == '"') text_letter(file, '"');
        text_letter(file, *text);
    }
    text_letter(file, '"');
}

/* A number as in the JSON; null is empty. */
static void put_number(text_buffer *file, const cJSON *value)
{
    char *printed = cJSON_IsNumber(value) || cJSON_IsRaw(value) ? cJSON_PrintUnformatted(value) : NULL;
    if (printed) text_string(file, printed);
    cJSON_free(printed);
}

static void put_list(text_buffer *file, const cJSON *list)
{
    const cJSON *value;
    text_letter(file, '"');
    cJSON_ArrayForEach(value, list)
    {
        if (value != list->child) text_letter(file, ' ');
        if (cJSON_IsString(value)) text_string(file, value->valuestring);
        else put_number(file, value);
    }
    text_letter(file, '"');
}

static void put_value(text_buffer *file, const cJSON *value)
{
    if (cJSON_IsArray(value)) put_list(file, value);
    else if (cJSON_IsString(value)) put_text(file, value->valuestring);
    else put_number(file, value);
}

/* All values under an object: names in the first line, else values.  `first`: the row, whose names others must not repeat. */
static void put_values(text_buffer *file, const cJSON *object, const char *before, const cJSON *first, int names)
{
    const cJSON *value;
    cJSON_ArrayForEach(value, object)
    {
        char path[200];
        const int again = first && cJSON_GetObjectItemCaseSensitive(first, value->string) != NULL;
        snprintf(path, sizeof path, "%s%s%s", before, again ? "machine_" : "", value->string);
        if (cJSON_IsObject(value)) {
            const size_t used = strlen(path);
            snprintf(path + used, sizeof path - used, "_");
            put_values(file, value, path, NULL, names);
            continue;
        }
        if (file->count && file->bytes[file->count - 1] != '\n') text_letter(file, ',');
        if (names) text_string(file, path);
        else put_value(file, value);
    }
}

/* A row of the table, or the names of its columns. */
static void put_row(text_buffer *file, cJSON *object, const cJSON *row, int names)
{
    put_values(file, row, "", NULL, names);
    put_values(file, cJSON_GetObjectItemCaseSensitive(object, "machine"), "", row, names);
    for (const cJSON *value = object->child; value; value = value->next) /* the version and the like */
        if (!cJSON_IsObject(value) && !cJSON_IsArray(value)) {
            text_letter(file, ',');
            if (names) text_string(file, value->string);
            else put_value(file, value);
        }
    text_letter(file, '\n');
}

attn_status report_csv(const report *r, const char *path, attn_error *error)
{
    text_buffer text = {0};
    cJSON *object = report_object(r);
    const cJSON *row, *rows = cJSON_GetObjectItemCaseSensitive(object, "results");
    if (rows->child) put_row(&text, object, rows->child, 1);
    cJSON_ArrayForEach(row, rows) put_row(&text, object, row, 0);
    const attn_status status = file_write_text(&text, path, error);
    text_free(&text);
    cJSON_Delete(object);
    return status;
}
