/* SPDX-License-Identifier: MIT
 *
 * failure.h - error reporting of the command and the test programs. */
#ifndef ATTN_TESTING_TEXT_FAILURE_H
#define ATTN_TESTING_TEXT_FAILURE_H

#include "attn/attn.h"

/* Exit statuses. */
enum {
    EXIT_DONE = 0,        /* done, all checks passed */
    EXIT_CHECK = 1,       /* a check failed */
    EXIT_USAGE = 2,       /* wrong usage, bad input, or output that cannot be written (see EXIT STATUS of attn.1.in) */
    EXIT_UNSUPPORTED = 3, /* well formed, but not supported by this build */
};

/* Fills *error (which may be NULL) and returns status.  (A macro, so that compilers and analysers that see one file know that it
 * never returns ATTN_OK.) */
#define failure(error, status, ...) (failure_say(error, status, __VA_ARGS__), failure_status(status))
static inline attn_status failure_status(attn_status status) { return status; }
__attribute__((format(printf, 3, 4))) void failure_say(attn_error *error, attn_status status, const char *format, ...);

/* Prepends "SUBJECT: " to the message; returns error->status. */
attn_status failure_about(attn_error *error, const char *subject);

/* count zeroed elements of `size` bytes; never NULL: if memory is short, prints "attn: cannot allocate COUNT x SIZE bytes" and
 * exits with EXIT_USAGE.  Only for the command line, which has not written anything by then. */
__attribute__((returns_nonnull)) void *need_memory(int64_t count, size_t size);

/* Ends the program in the same way: "attn: cannot allocate memory for WHAT". */
_Noreturn void end_out_of_memory(const char *what);

/* The same if the error is ATTN_ERR_MEMORY.  For checks: when memory is short, a check has neither passed nor failed. */
void end_if_out_of_memory(const attn_error *error);

/* A copy of at most `length` bytes, terminated, from need_memory. */
char *need_text(const char *text, size_t length);

#endif
