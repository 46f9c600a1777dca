/* SPDX-License-Identifier: MIT
 *
 * failure.c - error reporting of the command and the test programs. */
#include "failure.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shown.h"

void failure_say(attn_error *error, attn_status status, const char *format, ...)
{
    va_list arguments;
    if (!error) return;
    va_start(arguments, format);
    vsnprintf(error->message, sizeof error->message, format, arguments);
    va_end(arguments);
    error->status = status;
}

attn_status failure_about(attn_error *error, const char *subject)
{
    char whole[2 * sizeof error->message];
    snprintf(whole, sizeof whole, "%.200s: %s", subject, error->message);
    whole[sizeof error->message - 1] = 0;
    memcpy(error->message, whole, sizeof error->message);
    return error->status;
}

void *need_memory(int64_t count, size_t size)
{
    void *memory =
        count < 0 || (uint64_t)count > SIZE_MAX / (size ? size : 1) ? NULL : calloc((size_t)(count ? count : 1), size ? size : 1);
    if (!memory) {
        fprintf(stderr, "attn: cannot allocate %lld x %zu bytes\n", (long long)count, size);
        exit(EXIT_USAGE);
    }
    return memory;
}

static _Noreturn void end_with(const char *begin, const char *text)
{
    fputs(begin, stderr);
    put_shown(stderr, text);
    putc('\n', stderr);
    exit(EXIT_USAGE);
}

void end_out_of_memory(const char *what) { end_with("attn: cannot allocate memory for ", what); }

void end_if_out_of_memory(const attn_error *error)
{
    if (error->status == ATTN_ERR_MEMORY) end_with("attn: ", error->message);
}

char *need_text(const char *text, size_t length)
{
    size_t whole = strlen(text);
    if (whole > length) whole = length;
    char *copy = need_memory((int64_t)whole + 1, 1);
    memcpy(copy, text, whole);
    return copy;
}
