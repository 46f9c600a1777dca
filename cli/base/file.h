/* SPDX-License-Identifier: MIT
 *
 * file.h - all file output of the command: a file appears whole or not at all, and nothing but SIGKILL can leave a partial one
 * behind. */
#ifndef ATTN_CLI_BASE_FILE_H
#define ATTN_CLI_BASE_FILE_H

#include "attn/io.h"
#include "text_buffer.h"

/* Call once, before anything is written: every signal that would end the program first removes the unfinished file, and so does
 * exit; exceeding the file size limit (SIGXFSZ) is an error of the write. */
void file_guard(void);

/* From here on, what this process prints on standard output goes nowhere. */
void file_no_stdout(void);

/* attn_archive_write, or with "-" the numbers on standard output; attn_file_write of a text, which must be complete (text_status).
 */
attn_status file_write_archive(const attn_archive *archive, const char *path, attn_error *error);
attn_status file_write_text(const text_buffer *text, const char *path, attn_error *error);

/* The end of a command.  If status is ATTN_OK: writes the archive to `path` (NULL: there is no file, or it has been written), then
 * prints the JSON of json_compose (NULL: none).  Frees the JSON in any case; returns the status. */
attn_status file_finish(attn_status status, const attn_archive *archive, const char *path, char *json, attn_error *error);

/* ATTN_ERR_ARGUMENT if the name of an output does not end in one of these: ".safetensors, .npz or .npy". */
attn_status file_check_name(const char *path, const char *ends, attn_error *error);

/* For a check before long work: ATTN_ERR_IO if this user cannot write `path`.  Touches nothing. */
attn_status file_check(const char *path, attn_error *error);

/* ATTN_ERR_ARGUMENT if both are the same file, by whatever names: the input would be overwritten.  Either may be NULL. */
attn_status file_check_distinct(const char *output, const char *input, attn_error *error);

#endif
