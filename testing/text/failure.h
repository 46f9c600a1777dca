/* SPDX-License-Identifier: MIT
 *
 * failure.h - how the command and the programs of the tests report what went wrong. */
#ifndef ATTN_TESTING_TEXT_FAILURE_H
#define ATTN_TESTING_TEXT_FAILURE_H

#include "attn/attn.h"

/* What a program returns to the shell. */
enum {
    EXIT_DONE = 0,        /* done, all checks passed */
    EXIT_CHECK = 1,       /* a check failed */
    EXIT_USAGE = 2,       /* wrong usage or bad input; no output file was written */
    EXIT_UNSUPPORTED = 3, /* well formed, and this build cannot do it */
};

/* Fills *error (which may be NULL) and returns status.  (A macro, so that who reads one file, compilers and analysers too, knows
 * that what comes back is no success.) */
#define failure(error, status, ...) (failure_say(error, status, __VA_ARGS__), failure_status(status))
static inline attn_status failure_status(attn_status status) { return status; }
__attribute__((format(printf, 3, 4))) void failure_say(attn_error *error, attn_status status, const char *format, ...);

/* Puts "SUBJECT: " in front of the message. */
attn_status failure_about(attn_error *error, const char *subject);

/* count zeroed elements of `size` bytes; never NULL: prints "attn: out of memory" and exits with EXIT_USAGE where there is none.
 * Only for the command line, which has written nothing at that moment. */
__attribute__((returns_nonnull)) void *need_memory(int64_t count, size_t size);

/* Ends the program in the same way: "attn: out of memory: WHAT". */
_Noreturn void end_out_of_memory(const char *what);

/* The same if the error is ATTN_ERR_MEMORY.  For checks: that memory is out says nothing about what was to be checked, so the check
 * has neither passed nor failed. */
void end_if_out_of_memory(const attn_error *error);

/* A copy of at most `length` letters, terminated, from need_memory. */
char *need_text(const char *text, size_t length);

#endif
