/* SPDX-License-Identifier: MIT
 *
 * json.h - one JSON object on standard output, with cJSON. */
#ifndef ATTN_TESTING_TEXT_JSON_H
#define ATTN_TESTING_TEXT_JSON_H

#include <cjson/cJSON.h>
#include <stdint.h>

/* From here on, cJSON never returns NULL for lack of memory, which would look like invalid JSON: it exits like need_memory. */
void json_need_memory(void);

/* An empty object, after json_need_memory. */
cJSON *json_begin(void);

/* Add members; numbers that JSON does not have (NaN, infinities) become null. */
void json_text(cJSON *object, const char *name, const char *value);
void json_number(cJSON *object, const char *name, double value);
void json_int(cJSON *object, const char *name, int64_t value);
void json_flag(cJSON *object, const char *name, int value);
cJSON *json_list(cJSON *object, const char *name);
cJSON *json_object(cJSON *object, const char *name);
cJSON *json_item(cJSON *list); /* a new object at the list's end */

/* The words of a space-separated text as a list of texts. */
void json_words(cJSON *object, const char *name, const char *words);

/* The object as text, which json_print frees; frees the object.  A command that writes a file calls this first, so that only
 * writing to standard output can fail once the file exists. */
char *json_compose(cJSON *object);

/* Prints the text with a newline and frees it; NULL is a no-op.  Characters that are not shown (shown.h) become JSON escapes. */
void json_print(char *text);

/* json_compose, then json_print. */
void json_end(cJSON *object);

#endif
