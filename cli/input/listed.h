/* SPDX-License-Identifier: MIT
 * listed.h - tensors of files as a command lists what it used, what it left and what it wrote. */
#ifndef ATTN_CLI_INPUT_LISTED_H
#define ATTN_CLI_INPUT_LISTED_H

#include "attn/io.h"
#include "testing/text/json.h"

/* role: what it is used for; NULL: what its name says.  path: the file that it is in, or NULL. */
void listed_json(cJSON *list, const char *role, const attn_archive_tensor *tensor);
void listed_print(const char *verb, const char *role, const attn_archive_tensor *tensor, const char *path);

/* Those of a file (may be NULL) that are not used, by name. */
typedef int listed_used(const void *context, const attn_archive_tensor *tensor);
void listed_unused_json(cJSON *list, const attn_archive *file, listed_used *used, const void *context);
void listed_unused_print(const attn_archive *file, listed_used *used, const void *context);

#endif
