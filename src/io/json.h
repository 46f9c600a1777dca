/* SPDX-License-Identifier: MIT
 *
 * json.h - untrusted JSON, over cJSON: what cJSON lets pass is rejected here before it sees the text.
 */
#ifndef ATTN_IO_JSON_H
#define ATTN_IO_JSON_H

#include <cjson/cJSON.h>

#include "container.h"
#include "context.h"

/*
 * Parses one object that is followed by nothing but spaces.  Rejects, besides invalid JSON: broken UTF-8, NUL and control
 * characters in strings (written out or as \u0000), numbers that are not written as integers, and nesting deeper than
 * `depth`.  Messages begin with `what`.  Free the result with cJSON_Delete.
 */
attn_status attn_io_json_parse(const attn_io_context *context, const char *what, const char *text, size_t length, int depth,
                               cJSON **object);

/* An integer from 0 to 2^53 - 1, the range that a double represents exactly; false for anything else. */
bool attn_io_json_integer(const cJSON *node, int64_t *value);

/* The metadata of a container as an object of strings, and back. */
cJSON *attn_io_json_from_metadata(const attn_archive *tensors);
attn_status attn_io_json_read_metadata(const attn_io_context *context, const cJSON *object, attn_archive *tensors);

#endif
