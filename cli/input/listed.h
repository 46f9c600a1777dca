/* SPDX-License-Identifier: MIT
 * listed.h - lists the tensors that a command used, did not use, and wrote. */
#ifndef ATTN_CLI_INPUT_LISTED_H
#define ATTN_CLI_INPUT_LISTED_H

#include "attn/io.h"
#include "testing/text/json.h"

/* role: what it is used for; NULL: as its name says.  path: the file that it is in, or NULL. */
void listed_json(cJSON *list, const char *role, const attn_archive_tensor *tensor);
void listed_print(const char *verb, const char *role, const attn_archive_tensor *tensor, const char *path);

/* Lists by name the tensors of a file (may be NULL) that are not used. */
typedef int listed_used(const void *context, const attn_archive_tensor *tensor);
void listed_unused_json(cJSON *list, const attn_archive *file, listed_used *used, const void *context);
void listed_unused_print(const attn_archive *file, listed_used *used, const void *context);

#endif
