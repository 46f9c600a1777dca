/* SPDX-License-Identifier: MIT
 * listed.c - see listed.h. */
#include "listed.h"

#include <stdio.h>
#include <string.h>

#include "input.h"
#include "testing/text/shown.h"

void listed_json(cJSON *list, const char *role, const attn_archive_tensor *tensor)
{
    char shape[SHAPE_TEXT];
    cJSON *item = json_item(list);
    if (role) json_text(item, "role", role);
    json_text(item, "name", tensor->name);
    json_text(item, "dtype", attn_dtype_name(tensor->dtype));
    cJSON_AddRawToObject(item, "shape", shape_text(shape, tensor->rank, tensor->shape));
}

void listed_print(const char *verb, const char *role, const attn_archive_tensor *tensor, const char *path)
{
    char shape[SHAPE_TEXT];
    printf("%-8s%-11s %s %s", verb, role ? role : tensor->name, attn_dtype_name(tensor->dtype),
           shape_text(shape, tensor->rank, tensor->shape));
    if (role && strcmp(role, tensor->name) != 0) {
        printf(" from '");
        put_shown(stdout, tensor->name);
        putchar('\'');
    }
    if (path) {
        printf("  ");
        put_shown(stdout, path);
    }
    putchar('\n');
}

void listed_unused_json(cJSON *list, const attn_archive *file, listed_used *used, const void *context)
{
    for (int64_t k = 0; file && k < attn_archive_count(file); k++) {
        const attn_archive_tensor *tensor = attn_archive_at(file, k);
        if (!used(context, tensor)) cJSON_AddItemToArray(list, cJSON_CreateString(tensor->name));
    }
}

void listed_unused_print(const attn_archive *file, listed_used *used, const void *context)
{
    int unused = 0;
    for (int64_t k = 0; file && k < attn_archive_count(file); k++) {
        const attn_archive_tensor *tensor = attn_archive_at(file, k);
        if (used(context, tensor)) continue;
        printf("%s", unused++ ? ", " : "unused  ");
        put_shown(stdout, tensor->name);
    }
    if (unused) putchar('\n');
}
