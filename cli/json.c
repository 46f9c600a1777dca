/* SPDX-License-Identifier: MIT
 *
 * json.c - one JSON object on standard output, by cJSON. */
#include "json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "failure.h"

static void *allocate(size_t bytes) { return need_memory(1, bytes); }

cJSON *json_begin(void)
{
    cJSON_InitHooks(&(cJSON_Hooks){.malloc_fn = allocate, .free_fn = free});
    return cJSON_CreateObject();
}

void json_text(cJSON *object, const char *name, const char *value) { cJSON_AddStringToObject(object, name, value); }
void json_number(cJSON *object, const char *name, double value) { cJSON_AddNumberToObject(object, name, value); }
void json_flag(cJSON *object, const char *name, int value) { cJSON_AddBoolToObject(object, name, value); }
cJSON *json_list(cJSON *object, const char *name) { return cJSON_AddArrayToObject(object, name); }
cJSON *json_object(cJSON *object, const char *name) { return cJSON_AddObjectToObject(object, name); }

/* cJSON keeps numbers as double: beyond 2^53 the digits go in as they are. */
void json_whole(cJSON *object, const char *name, int64_t value)
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

void json_end(cJSON *object)
{
    char *text = cJSON_Print(object);
    puts(text);
    free(text);
    cJSON_Delete(object);
}
