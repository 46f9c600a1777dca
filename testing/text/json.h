/* SPDX-License-Identifier: MIT
 *
 * json.h - one JSON object on standard output, by cJSON. */
#ifndef ATTN_TESTING_TEXT_JSON_H
#define ATTN_TESTING_TEXT_JSON_H

#include <cjson/cJSON.h>
#include <stdint.h>

/* From here on cJSON does not return NULL for lack of memory, which would look like text that is not JSON: the program ends as
 * need_memory does. */
void json_need_memory(void);

/* An empty object, after json_need_memory. */
cJSON *json_begin(void);

/* Members; numbers that JSON does not have (NaN, infinities) become null. */
void json_text(cJSON *object, const char *name, const char *value);
void json_number(cJSON *object, const char *name, double value);
void json_whole(cJSON *object, const char *name, int64_t value);
void json_flag(cJSON *object, const char *name, int value);
cJSON *json_list(cJSON *object, const char *name);
cJSON *json_object(cJSON *object, const char *name);
cJSON *json_item(cJSON *list); /* a new object at the list's end */

/* The words of a space-separated text as a list of texts. */
void json_words(cJSON *object, const char *name, const char *words);

/* The object as text, which json_print frees; frees the object.  A command that writes a file composes before, so that nothing but
 * standard output can fail once the file is there. */
char *json_compose(cJSON *object);

/* Prints the text with a newline and frees it; NULL is a no-op.  What a terminal would obey or not show (shown.h) is escaped as
 * JSON allows. */
void json_print(char *text);

/* Both. */
void json_end(cJSON *object);

#endif
