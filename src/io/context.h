/* SPDX-License-Identifier: MIT
 *
 * context.h - the context of an error message: `PATH: NOUN 'NAME': what went wrong`.
 */
#ifndef ATTN_IO_CONTEXT_H
#define ATTN_IO_CONTEXT_H

#include <attn/attn.h>
#include <stdbool.h>

typedef struct attn_io_context {
    attn_error *error; /* may be NULL */
    const char *path;  /* NULL: no file is involved */
    const char *noun;  /* "tensor", "member"; NULL: the file as a whole */
    const char *name;  /* of the noun */
} attn_io_context;

/* Fills context->error and returns `status`. */
__attribute__((format(printf, 3, 4))) attn_status attn_io_fail(const attn_io_context *context, attn_status status,
                                                               const char *format, ...);

/* The same from errno: ATTN_ERR_IO, `PATH: cannot DO: No such file or directory`; or ATTN_ERR_MEMORY. */
attn_status attn_io_fail_errno(const attn_io_context *context, const char *doing);

/* ATTN_ERR_MEMORY, `PATH: cannot allocate memory`. */
attn_status attn_io_fail_memory(const attn_io_context *context);

/* clang's analyser sees one file at a time, and so cannot know that these never return ATTN_OK. */
#if defined(__clang_analyzer__)
static inline attn_status attn_io_fail_status(attn_status status) { return status; }
#define attn_io_fail(context, status, ...) (attn_io_fail(context, status, __VA_ARGS__), attn_io_fail_status(status))
#define attn_io_fail_errno(context, doing) (attn_io_fail_errno(context, doing), attn_io_fail_status(ATTN_ERR_IO))
#define attn_io_fail_memory(context)       (attn_io_fail_memory(context), attn_io_fail_status(ATTN_ERR_MEMORY))
#endif

/* Clears the error; returns ATTN_OK. */
attn_status attn_io_succeed(const attn_io_context *context);

#endif
