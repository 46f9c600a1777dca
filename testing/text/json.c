/* SPDX-License-Identifier: MIT
 *
 * json.c - one JSON object on standard output, with cJSON. */
#include "json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "failure.h"
#include "shown.h"

static void *allocate(size_t bytes) { return need_memory(1, bytes); }

void json_need_memory(void) { cJSON_InitHooks(&(cJSON_Hooks){.malloc_fn = allocate, .free_fn = free}); }

cJSON *json_begin(void)
{
    json_need_memory();
    return cJSON_CreateObject();
}

void json_text(cJSON *object, const char *name, const char *value) { cJSON_AddStringToObject(object, name, value); }
void json_number(cJSON *object, const char *name, double value) { cJSON_AddNumberToObject(object, name, value); }
void json_flag(cJSON *object, const char *name, int value) { cJSON_AddBoolToObject(object, name, value); }
cJSON *json_list(cJSON *object, const char *name) { return cJSON_AddArrayToObject(object, name); }
cJSON *json_object(cJSON *object, const char *name) { return cJSON_AddObjectToObject(object, name); }

/* cJSON stores numbers as double, so integers, which may exceed 2^53, are added as raw digits. */
void json_int(cJSON *object, const char *name, int64_t value)
{
    char digits[24];
    snprintf(digits, sizeof digits, "%lld", (long long)value);
    cJSON_AddRawToObject(object, name, digits);
}

cJSON *json_item(cJSON *list)
{
    cJSON *item = cJSON_CreateObject();
    cJSON_AddItemToArray(list, item);
    return item;
}

void json_words(cJSON *object, const char *name, const char *words)
{
    cJSON *list = json_list(object, name);
    for (const char *at = words; *at;) {
        size_t length = strcspn(at, " ");
        if (length) {
            char *word = need_text(at, length);
            cJSON_AddItemToArray(list, cJSON_CreateString(word));
            free(word);
        }
        at += length + (at[length] == ' ');
    }
}

char *json_compose(cJSON *object)
{
    char *text = cJSON_Print(object);
    cJSON_Delete(object);
    return text;
}

void json_print(char *text)
{
    if (!text) return;
    for (const char *at = text, *from = text; *at; from = at) {
        const uint32_t code = next_code_point(&at);
        if (code_point_is_shown(code) || code == '\n' || code == '\t') (void)fwrite(from, 1, (size_t)(at - from), stdout);
        else if (code < 0x10000) printf("\\u%04x", (unsigned)code);
        else printf("\\u%04x\\u%04x", (unsigned)(0xd800 | (code - 0x10000) >> 10), (unsigned)(0xdc00 | (code & 0x3ff)));
    }
    putchar('\n');
    free(text);
}

void json_end(cJSON *object) { json_print(json_compose(object)); }
