/* SPDX-License-Identifier: MIT
 *
 * text_file.h - a small text file as a whole. */
#ifndef ATTN_CLI_LAYER_TEXT_FILE_H
#define ATTN_CLI_LAYER_TEXT_FILE_H

#include "attn/attn.h"

/* *text, which the caller frees, up to the first NUL; NULL on failure. */
attn_status text_file_read(const char *path, char **text, attn_error *error);

#endif
