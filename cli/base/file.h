/* SPDX-License-Identifier: MIT
 *
 * file.h - the one place where the command writes files: each appears whole or not at all, and whatever ends the program but
 * SIGKILL leaves nothing beside it. */
#ifndef ATTN_CLI_BASE_FILE_H
#define ATTN_CLI_BASE_FILE_H

#include "attn/io.h"
#include "text_buffer.h"

/* Once, before anything is written: every signal that would end the program removes the file that is being written first, and so
 * does exit; a limit on the size of files (SIGXFSZ) is an error of the write. */
void file_guard(void);

/* attn_archive_write, and attn_file_write of a text, which has to be whole (text_status). */
attn_status file_write_archive(const attn_archive *archive, const char *path, attn_error *error);
attn_status file_write_text(const text_buffer *text, const char *path, attn_error *error);

/* Before work whose result is to be written: ATTN_ERR_IO where this user cannot write `path`.  Touches nothing. */
attn_status file_check(const char *path, attn_error *error);

/* ATTN_ERR_ARGUMENT where both are one file, by whatever names: what is read would be replaced.  Either may be NULL. */
attn_status file_check_apart(const char *output, const char *input, attn_error *error);

#endif
