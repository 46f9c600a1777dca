/* SPDX-License-Identifier: MIT
 * no_json.c - testing/text/json.h without cJSON: --json ends the program. */
#include <stdio.h>
#include <stdlib.h>

#include "testing/text/failure.h"
#include "testing/text/json.h"

cJSON *json_begin(void)
{
    fputs("attn-check.wasm: --json needs cJSON, which this build lacks\n", stderr);
    exit(EXIT_UNSUPPORTED);
}

void json_text(cJSON *object, const char *name, const char *value) { (void)object, (void)name, (void)value; }
void json_number(cJSON *object, const char *name, double value) { (void)object, (void)name, (void)value; }
void json_int(cJSON *object, const char *name, int64_t value) { (void)object, (void)name, (void)value; }
void json_flag(cJSON *object, const char *name, int value) { (void)object, (void)name, (void)value; }
void json_words(cJSON *object, const char *name, const char *words) { (void)object, (void)name, (void)words; }
cJSON *json_list(cJSON *object, const char *name) { return (void)name, object; }
cJSON *json_object(cJSON *object, const char *name) { return (void)name, object; }
cJSON *json_item(cJSON *list) { return list; }
void json_end(cJSON *object) { (void)object; }
CJSON_PUBLIC(cJSON *) cJSON_CreateArray(void) { return NULL; }
CJSON_PUBLIC(cJSON_bool) cJSON_AddItemToObject(cJSON *object, const char *name, cJSON *item)
{
    return (void)object, (void)name, (void)item, 0;
}
CJSON_PUBLIC(void) cJSON_Delete(cJSON *item) { (void)item; }
