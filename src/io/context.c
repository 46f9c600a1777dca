/* SPDX-License-Identifier: MIT
 *
 * context.c - composes error messages.  A message holds 240 bytes, and its end matters most, so a long path is shortened.
 */
#include "context.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "text.h"

#undef attn_io_fail
#undef attn_io_fail_errno
#undef attn_io_fail_memory

static void put_prefix(const attn_io_context *context, char *message, size_t size)
{
    char path[ATTN_IO_EXCERPT], name[ATTN_IO_EXCERPT];
    message[0] = '\0';
    if (context->path) snprintf(message, size, "%s: ", attn_io_excerpt_end(path, context->path));
    size_t used = strlen(message);
    if (context->noun) snprintf(message + used, size - used, "%s '%s': ", context->noun, attn_io_excerpt(name, context->name));
}

attn_status attn_io_fail(const attn_io_context *context, attn_status status, const char *format, ...)
{
    attn_error *error = context->error;
    if (!error) return status;
    error->status = status;
    put_prefix(context, error->message, sizeof error->message);
    size_t used = strlen(error->message);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(error->message + used, sizeof error->message - used, format, arguments);
    va_end(arguments);
    return status;
}

attn_status attn_io_fail_errno(const attn_io_context *context, const char *doing)
{
    char reason[96];
    int number = errno;
    if (number == ENOMEM) return attn_io_fail_memory(context);
    if (strerror_r(number, reason, sizeof reason)) snprintf(reason, sizeof reason, "error %d", number);
    return attn_io_fail(context, ATTN_ERR_IO, "cannot %s: %s", doing, reason);
}

attn_status attn_io_fail_memory(const attn_io_context *context)
{
    return attn_io_fail(context, ATTN_ERR_MEMORY, "cannot allocate memory");
}

attn_status attn_io_succeed(const attn_io_context *context)
{
    if (context->error) *context->error = (attn_error){.status = ATTN_OK};
    return ATTN_OK;
}
